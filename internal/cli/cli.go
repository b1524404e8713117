// Package cli is what the programs locks and lab share: how an error becomes an exit status, and
// how a signal ends the work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/lockstrategies/locks/internal/contract"
)

// A Command is a *cobra.Command. Only the modules of the two programs require cobra, so this package describes it
// by its methods. What only a field can say, the program's root says itself: Version is [Version], and
// SilenceErrors and SilenceUsage are true.
type Command[C any] interface {
	Name() string
	CommandPath() string
	SetVersionTemplate(string)
	SetArgs([]string)
	SetIn(io.Reader)
	SetOut(io.Writer)
	SetErr(io.Writer)
	ExecuteContextC(context.Context) (C, error)
}

// Main runs the program, and exits. The first signal ends the context of its work, unless the work
// has taken the signals by [TakeSignals].
func Main[C Command[C]](root C) {
	ctx := withSignals(context.Background())
	os.Exit(Execute(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Execute runs the program and returns its exit status: 0 when it did what was asked for, 1 when
// it could not, 2 when it did not understand, 128 + n when signal n ended it, or that of an [Exit].
func Execute[C Command[C]](ctx context.Context, root C, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetVersionTemplate(root.Name() + " {{.Version}} " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n")
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	say := func(err error) { fmt.Fprintf(stderr, "%s: %s\n", root.Name(), Printable(err.Error())) }
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

// Printable is [contract.Printable] of a text for the terminal, whose lines and tabs stay.
func Printable(text string) string { return words.ReplaceAllStringFunc(text, contract.Printable) }

var words = regexp.MustCompile(`[^\n\t]+`)

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
func Does[C any](work func(C) error) func(C, []string) error {
	return func(cmd C, _ []string) error {
		if err := work(cmd); err != nil {
			return &failure{err}
		}
		return nil
	}
}

// Given returns those of the flags that the user has set. changed is the method Changed of the command's flags.
func Given(changed func(flag string) bool, flags ...string) (set []string) {
	for _, f := range flags {
		if changed(f) {
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
