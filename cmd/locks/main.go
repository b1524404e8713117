// Locks is the command line tool of this module: it compares the lock strategies on
// a Redis, puts them to work in a flash sale, and shows what each does when things break.
//
//	locks compare --help
//	locks flashsale --help
//	locks faults --help
//
// It exits with 0 when it did what was asked for, 1 when it could not, 2 when it did
// not understand, and 128 + n when signal n ended it (130 for Ctrl-C).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/contender"
	"github.com/lockstrategies/locks/internal/faults"
)

func main() {
	if contender.Child(faults.Players()...) { // a process that a play of faults stops
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals) // the next one ends the process at once
		cancel(&interrupted{s.(syscall.Signal)})
	}()
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs the command and returns the exit code.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var sig *interrupted
	var failed *failure
	switch {
	case err == nil:
		return 0
	case errors.As(context.Cause(ctx), &sig):
		fmt.Fprintf(stderr, "locks: %v\n", err)
		return 128 + int(sig.signal)
	case errors.As(err, &failed):
		fmt.Fprintf(stderr, "locks: %v\n", err)
		return 1
	default: // refused before anything was done
		fmt.Fprintf(stderr, "locks: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return 2
	}
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

func (i *interrupted) Error() string {
	if i.signal == syscall.SIGINT {
		return "interrupted"
	}
	return "ended by signal: " + i.signal.String()
}

// failure is an error of the work itself: what was asked for was understood.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// does marks the errors of a command's work. Those of cobra, and of PreRunE, are the
// user's mistakes.
func does(work func(*cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := work(cmd); err != nil {
			return &failure{err}
		}
		return nil
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "locks",
		Short: "Redis locks, compared",
		Long: "Redis locks: several algorithms behind one interface.\n\n" +
			"locks compare shows what each guarantees, and what it does not, what it costs,\nand how fast it is, on a Redis that it finds or starts. locks flashsale puts\neach to work: 10 goods, 30 buyers, 2 processes. locks faults shows what each\ndoes when things break.",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("locks {{.Version}} " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n")
	root.AddCommand(compareCommand(), flashsaleCommand(), faultsCommand(), childCommand(), saleChildCommand())
	return root
}

// version is the module's as the Go toolchain knows it: a tag, or the commit.
func version() string {
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
