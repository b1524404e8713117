// Package cli is what the programs locks and lab share: how an error becomes an exit status, and
// how a signal ends the work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Main runs the program, and exits. The first signal ends the context of its work, unless the work
// has taken the signals by [TakeSignals].
func Main(root *cobra.Command) {
	ctx := withSignals(context.Background())
	os.Exit(Execute(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Execute runs the program and returns its exit status: 0 when it did what was asked for, 1 when
// it could not, 2 when it did not understand, 128 + n when signal n ended it, or that of an [Exit].
func Execute(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.Version = Version()
	root.SetVersionTemplate(root.Name() + " {{.Version}} " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	say := func(err error) { fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err) }
	var sig *Interrupted
	var failed *failure
	var ended *Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		if ended.Err != nil {
			say(ended.Err)
		}
		if ended.Last != nil {
			ended.Last()
		}
		return ended.Status
	case errors.As(context.Cause(ctx), &sig):
		say(err)
		return 128 + int(sig.Signal)
	case errors.As(err, &failed):
		say(err)
		return 1
	default: // refused before anything was done
		say(err)
		fmt.Fprintf(stderr, "See '%s --help'.\n", cmd.CommandPath())
		return 2
	}
}

// failure is an error of the work itself: what was asked for was understood.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// An Exit is the end of work with a status of its own.
type Exit struct {
	Status int
	Err    error  // nil: there is nothing to say
	Last   func() // before it exits; nil: nothing
}

func (e *Exit) Error() string { return fmt.Sprintf("exit status %d: %v", e.Status, e.Err) }
func (e *Exit) Unwrap() error { return e.Err }

// Does marks the errors of a command's work. Those of cobra, and of PreRunE, are the
// user's mistakes.
func Does(work func(*cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := work(cmd); err != nil {
			return &failure{err}
		}
		return nil
	}
}

// Given returns those of the flags that the user has set.
func Given(cmd *cobra.Command, flags ...string) (set []string) {
	for _, f := range flags {
		if cmd.Flags().Changed(f) {
			set = append(set, "--"+f)
		}
	}
	return set
}

// Unavailable is the exit status when no server can be reached, or it refuses: EX_UNAVAILABLE of sysexits.h.
const Unavailable = 69

// PasswordInArgument is the error for a flag whose value has a password. other says how else to give it.
func PasswordInArgument(flag, other string) error {
	return fmt.Errorf("%s has a password, and everybody on this machine can read arguments in the list of processes: "+
		"change it, and give it by %s", flag, other)
}

// Version is the module's as the Go toolchain knows it: a tag, or the commit.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	var revision, changed string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if revision != "" && !strings.Contains(v, revision) {
		v += " " + revision + changed
	}
	return v
}
