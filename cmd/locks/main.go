// Locks is the command line tool of this module. It runs commands under a lock, shows who
// holds one, and takes it away; it compares the lock strategies on a Redis, puts them to
// work in a flash sale, shows what each does when things break, gives lessons on how lock
// designs evolved, and writes all that down as one page.
//
//	locks exec --help
//	locks inspect --help
//	locks release --help
//	locks prime --help
//	locks compare --help
//	locks flashsale --help
//	locks faults --help
//	locks lesson --help
//	locks report --help
//
// It exits with 0 when it did what was asked for, 1 when it could not, 2 when it did
// not understand, and 128 + n when signal n ended it (130 for Ctrl-C).
//
// locks exec exits as its command does: with the command's own status, or 128 + n when
// signal n has ended the command. Beside that:
//
//	 69  the servers cannot be reached, refuse, or did not answer: nobody knows whether
//	     the lock was free, and the command was not started
//	 75  another holds the lock, and the wait is over; another status by -E
//	 76  the lock was lost, or the maximum hold was over, before the command ended
//	126  the command cannot be executed
//	127  the command was not found
//
// locks inspect, locks release and locks prime exit with 69, too, when the servers do not do as asked,
// and locks release with 75 when another holds the lock than the one it was to be taken from.
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
	becomeCommand()
	if contender.Child(faults.Players()...) { // a process that a play of faults stops
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // by nohup, say
			signal.Notify(signals, s)
		}
	}
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
	var ended *exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		if ended.err != nil {
			fmt.Fprintf(stderr, "locks: %v\n", ended.err)
		}
		if ended.last != nil {
			ended.last()
		}
		return ended.status
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

// An exit is the end of work with a status of its own.
type exit struct {
	status int
	err    error  // nil: there is nothing to say
	last   func() // before it exits; nil: nothing
}

func (e *exit) Error() string { return fmt.Sprintf("exit status %d: %v", e.status, e.err) }
func (e *exit) Unwrap() error { return e.err }

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
		Short: "Redis locks: held for a command, inspected, and compared",
		Long: "Redis locks: several algorithms behind one interface.\n\n" +
			"locks exec holds a lock while a command runs; locks inspect shows who holds one,\nand locks release takes it away. locks prime lets new servers vote in redlock.\n\nlocks compare shows what each guarantees, and what it does not, what it costs,\nand how fast it is, on a Redis that it finds or starts. locks flashsale puts\neach to work: 10 goods, 30 buyers, 2 processes. locks faults shows what each\ndoes when things break. locks lesson shows how lock designs evolved,\nand locks report writes all that down as one page.",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("locks {{.Version}} " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n")
	root.AddCommand(execCommand(), inspectCommand(), releaseCommand(), primeCommand())
	root.AddCommand(compareCommand(), flashsaleCommand(), faultsCommand(), lessonCommand(), reportCommand(), childCommand(), saleChildCommand())
	root.AddCommand(watchCommands()...)
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
