// Package clitest runs a program's test binary as the program itself, so that what is tested is a
// process with arguments, streams, signals, children and an exit status.
package clitest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstrategies/locks/internal/cli"
)

// MainVar is set in the environment of what is to be the program.
const MainVar = "LOCKS_TEST_MAIN"

// Main is the first thing that TestMain calls. It reports whether this process was the program.
func Main(program func()) bool {
	if os.Getenv(MainVar) != "" {
		program()
		return true
	}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) { // by nohup, or a shell's &: then the tools of the tests would ignore it, too
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	return false
}

// Command is the program, to be started.
func Command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	// By default a program with the race detector sleeps a second at its exit.
	cmd.Env = append(os.Environ(), MainVar+"=1", "COLUMNS=80", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	return cmd
}

// Run runs the program to its end.
func Run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return RunIn(t, nil, args...)
}

// RunIn is Run with more in the environment, as NAME=value.
func RunIn(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := Command(t, args...)
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Misuse runs the program with arguments that it is to refuse, with these words and where help is.
func Misuse[C cli.Command[C]](t *testing.T, root C, args, words string) (stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Execute(t.Context(), root, strings.Fields(args), nil, &out, &errs)
	if code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), words) {
		t.Errorf("%s: exit %d, %q on stdout, on stderr\n%s\nwant exit 2, nothing, and %q", args, code, out.String(), errs.String(), words)
	}
	if !strings.Contains(errs.String(), "--help'.") {
		t.Errorf("%s: %q does not say where help is", args, errs.String())
	}
	return errs.String()
}

// Help runs the program with arguments that are to print all these words, and none of the hidden.
func Help[C cli.Command[C]](t *testing.T, root C, args string, words []string, hidden ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Execute(t.Context(), root, strings.Fields(args), nil, &out, &errs)
	if code != 0 || errs.Len() > 0 {
		t.Errorf("%s: exit %d, %q on stderr, want 0 and nothing", args, code, errs.String())
	}
	for _, want := range words {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q in\n%s", args, want, out.String())
		}
	}
	for _, not := range hidden {
		if strings.Contains(out.String(), not) {
			t.Errorf("%s: %s is not for users, and is in\n%s", args, not, out.String())
		}
	}
}
