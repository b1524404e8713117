// Tests what locks exec does in a terminal: the foreground, Ctrl-C, Ctrl-Z, and the jobs of a shell.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// A screen is a terminal on which the test types.
type screen struct {
	t      *testing.T
	master *os.File
	text   lockedBuffer // all that was shown
	read   int          // what expect has seen
}

// newScreen makes the command a session of its own on a new terminal, and starts it.
func newScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("not proven: what exec does in a terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	redistest.Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	redistest.Must(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	redistest.Must(t, err)
	defer tty.Close()
	cmd.Stdin, cmd.Stderr = tty, tty
	if cmd.Stdout == nil {
		cmd.Stdout = tty
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	redistest.Must(t, cmd.Start())
	s := &screen{t: t, master: master}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
		if t.Failed() {
			t.Logf("the screen shows\n%s", &s.text)
		}
	})
	go io.Copy(&s.text, master)
	return s
}

// newShell runs bash on a new terminal.
func newShell(t *testing.T, s *redistest.Server, name string, args ...string) (*screen, *exec.Cmd) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("not proven: what exec does in a shell; that takes bash")
	}
	shell := toolFor(t, s)
	shell.Env = append(shell.Env, "PS1=ready> ", "TERM=dumb", "TOOL="+shell.Path, "NAME="+name)
	shell.Cmd.Path, shell.Cmd.Args = bash, append([]string{"bash"}, args...)
	return newScreen(t, shell.Cmd), shell.Cmd
}

func (s *screen) types(what string) {
	s.t.Helper()
	_, err := io.WriteString(s.master, what)
	redistest.Must(s.t, err)
}

// expect waits for what to be shown, after what was expected before, and returns what came
// between.
func (s *screen) expect(what string) (between string) {
	s.t.Helper()
	verdict.Eventually(s.t, fmt.Sprintf("the screen shows %q", what), func() (found bool) {
		text := s.text.String()[s.read:]
		if between, _, found = strings.Cut(text, what); found {
			s.read += len(between) + len(what)
		}
		return found
	})
	return between
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// TestExecTerminal: the command reads what is typed, and has the foreground.
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := toolFor(t, s, "exec", newName(t), "--", "sh", "-c",
		`ps -o stat= -p $$; printf 'name? '; read x; echo "hello, $x"; exit 3`)
	scr := newScreen(t, c.Cmd)
	scr.expect("+") // of ps: in the foreground
	scr.expect("name? ")
	scr.types("you\n")
	scr.expect("hello, you")
	if c.Wait(); c.ProcessState.ExitCode() != 3 {
		t.Errorf("%v, want exit 3", c.ProcessState)
	}
}

// TestExecTerminalInPipeline: there it gets the foreground when it asks for it.
func TestExecTerminalInPipeline(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := toolFor(t, s, "exec", newName(t), "--", "sh", "-c", `echo begins; read x; echo "hello, $x"`)
	r, w, err := os.Pipe()
	redistest.Must(t, err)
	defer r.Close()
	c.Cmd.Stdout = w
	scr := newScreen(t, c.Cmd)
	w.Close()
	scr.types("you\n")
	out, err := io.ReadAll(r)
	if c.Wait(); string(out) != "begins\nhello, you\n" || err != nil || c.ProcessState.ExitCode() != 0 {
		t.Errorf("%q, %v, %v, want what was typed", out, err, c.ProcessState)
	}
}

// TestPasswordInterrupted: Ctrl-C ends the question for the password, and the terminal shows again what is typed.
func TestPasswordInterrupted(t *testing.T) {
	t.Parallel()
	shell := exec.Command("sh", "-c", `trap : INT; "$0" inspect some --redis localhost --password-file -; echo "status $?"; stty -a`, toolFor(t, nil).Path)
	shell.Env = toolFor(t, nil).Env
	scr := newScreen(t, shell)
	scr.expect("Password: ")
	verdict.Eventually(t, "what is typed is not shown", func() bool {
		mode, err := unix.IoctlGetTermios(int(scr.master.Fd()), unix.TCGETS)
		return err == nil && mode.Lflag&unix.ECHO == 0
	})
	scr.types(ctrlC)
	scr.expect("status 130")
	scr.expect(" echo ")
	shell.Wait()
}

// diedOfInterrupt wants that a process died of SIGINT, as a script in which it is has to.
func diedOfInterrupt(t *testing.T, c *exec.Cmd) {
	t.Helper()
	c.Wait()
	if w := c.ProcessState.Sys().(syscall.WaitStatus); !w.Signaled() || w.Signal() != syscall.SIGINT {
		t.Errorf("%v, want that it died of SIGINT, too", c.ProcessState)
	}
}

// TestExecTerminalInterrupt: Ctrl-C ends the command, and then exec, of the same signal, and a script that exec is in.
func TestExecTerminalInterrupt(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	for _, pipeline := range []bool{false, true} {
		c := toolFor(t, s, "exec", name, "--", "sh", "-c", "echo ready >&2; exec sleep 60")
		if pipeline {
			c.Cmd.Stdout = io.Discard
		}
		scr := newScreen(t, c.Cmd)
		scr.expect("ready")
		scr.types(ctrlC)
		diedOfInterrupt(t, c.Cmd)
		wantFree(t, s, name)
	}
	// After a loss the status is that of the loss.
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--grace", "1m", "--", "sh", "-c", "trap 'echo told >&2' TERM; echo ready >&2; while :; do sleep 0.05; done")
	scr := newScreen(t, c.Cmd)
	scr.expect("ready")
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	scr.expect("told")
	scr.types(ctrlC)
	if c.Wait(); c.ProcessState.ExitCode() != exitLost {
		t.Errorf("after a loss: %v, want status %d", c.ProcessState, exitLost)
	}
	scr, shell := newShell(t, s, name, "-c", `"$TOOL" exec "$NAME" -- sh -c 'echo begins; exec sleep 60'; echo went on`)
	scr.expect("begins")
	scr.types(ctrlC)
	diedOfInterrupt(t, shell)
	if strings.Contains(scr.text.String(), "went on") {
		t.Error("the script went on")
	}
	wantFree(t, s, name)
}

// TestExecJobControl: in a shell Ctrl-Z stops the job, and the lock goes with its TTL; fg
// continues it, or ends it if another may have had the lock.
func TestExecJobControl(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	scr, shell := newShell(t, s, name, "--norc", "--noprofile", "-i")
	dialogue := func(shows ...string) {
		t.Helper()
		for _, what := range shows {
			scr.expect(what)
		}
	}
	dialogue("ready> ")
	scr.types(`$TOOL exec "$NAME" --ttl 1m -- sh -c 'echo begi""ns; read x; echo "hello, $x"'` + "\n")
	dialogue("begins")
	scr.types(ctrlZ)
	dialogue("Stopped", "ready> ")
	if !inspected(t, s, name).Held {
		t.Error("the lock is lost")
	}
	scr.types("fg\nyou\n")
	dialogue("hello, you", "ready> ")
	scr.types("echo status $?\n")
	dialogue("status 0", "ready> ")

	scr.types(`$TOOL exec "$NAME" --ttl 6s -- sh -c 'echo begi""ns; kill -TSTP $$; echo goes "o"n'` + "\n")
	dialogue("begins", "Stopped", "ready> ")
	verdict.Eventually(t, "the lock is free", func() bool { return !inspected(t, s, name).Held })
	scr.types("fg\n")
	dialogue("lost: its deadline came", "ready> ")
	scr.types("echo status $?\n")
	dialogue("status 76", "ready> ")
	if strings.Contains(scr.text.String(), "goes on") {
		t.Error("the command went on although its lock was lost")
	}

	// In the background it stops when it wants to read, and fg gives it the terminal.
	scr.types(`$TOOL exec "$NAME" -- sh -c 'read x; echo "hello, $x"' &` + "\n")
	dialogue("ready> ")
	verdict.Eventually(t, "the job stops", func() bool {
		scr.types("jobs\n")
		return strings.Contains(scr.expect("ready> "), "Stopped")
	})
	scr.types("fg\nagain\n")
	dialogue("hello, again", "ready> ")
	scr.types("exit 9\n")
	shell.Wait()
	if code := shell.ProcessState.ExitCode(); code != 9 {
		t.Errorf("the shell exits with %d, want 9", code)
	}
}
