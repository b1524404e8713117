// Tests what locks exec does in a terminal: the foreground, Ctrl-C, Ctrl-Z, and the jobs of a shell.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
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
	mu     sync.Mutex
	text   strings.Builder
	read   int // what expect has seen
}

// newScreen makes the command a session of its own on a new terminal, and starts it.
func newScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("not proven: what exec does in a terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd.Stdin, cmd.Stderr = tty, tty
	if cmd.Stdout == nil {
		cmd.Stdout = tty
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	s := &screen{t: t, master: master}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen shows\n%s", s.shown())
		}
	})
	go func() {
		for b := make([]byte, 1024); ; {
			n, err := master.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *screen) types(what string) {
	s.t.Helper()
	if _, err := io.WriteString(s.master, what); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits for what to be shown, after what was expected before, and returns what came
// between.
func (s *screen) expect(what string) (between string) {
	s.t.Helper()
	verdict.Eventually(s.t, fmt.Sprintf("the screen shows %q", what), func() bool {
		text := s.shown()[s.read:]
		i := strings.Index(text, what)
		if i < 0 {
			return false
		}
		between = text[:i]
		s.read += i + len(what)
		return true
	})
	return between
}

// shown is all that was on the screen.
func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
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
	if err != nil {
		t.Fatal(err)
	}
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
	scr.expect("Password of Redis: ")
	verdict.Eventually(t, "what is typed is not shown", func() bool {
		mode, err := unix.IoctlGetTermios(int(scr.master.Fd()), unix.TCGETS)
		return err == nil && mode.Lflag&unix.ECHO == 0
	})
	scr.types(ctrlC)
	scr.expect("status 130")
	scr.expect(" echo ")
	shell.Wait()
}

// TestExecTerminalInterrupt: Ctrl-C ends the command, and then exec, of the same signal.
func TestExecTerminalInterrupt(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, pipeline := range []bool{false, true} {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--", "sh", "-c", "echo ready >&2; exec sleep 60")
		if pipeline {
			null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			c.Cmd.Stdout = null
		}
		scr := newScreen(t, c.Cmd)
		scr.expect("ready")
		scr.types(ctrlC)
		c.Wait()
		if w := c.ProcessState.Sys().(syscall.WaitStatus); !w.Signaled() || w.Signal() != syscall.SIGINT {
			t.Errorf("pipeline %v: %v, want that it died of SIGINT, too", pipeline, c.ProcessState)
		}
		wantFree(t, s, name)
	}
	name := newName(t) // after a loss the status is that of the loss
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--grace", "1m", "--", "sh", "-c", "trap 'echo told >&2' TERM; echo ready >&2; while :; do sleep 0.05; done")
	scr := newScreen(t, c.Cmd)
	scr.expect("ready")
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	scr.expect("told")
	scr.types(ctrlC)
	if c.Wait(); c.ProcessState.ExitCode() != exitLost {
		t.Errorf("after a loss: %v, want status %d", c.ProcessState, exitLost)
	}
}

// TestExecJobControl: in a shell Ctrl-Z stops the job, and the lock goes with its TTL; fg
// continues it, or ends it if another may have had the lock.
func TestExecJobControl(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("not proven: what exec does in a shell with jobs; that takes bash")
	}
	s := redistest.Shared(t)
	shell := toolFor(t, s)
	shell.Cmd.Path, shell.Cmd.Args = bash, []string{"bash", "--norc", "--noprofile", "-i"}
	shell.Cmd.Env = append(shell.Cmd.Env, "PS1=ready> ", "TERM=dumb")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell.Cmd.Env = append(shell.Cmd.Env, "TOOL="+self)
	scr := newScreen(t, shell.Cmd)
	scr.expect("ready> ")

	name := newName(t)
	scr.types("$TOOL exec '" + name + `' --ttl 1m -- sh -c 'echo begi""ns; read x; echo "hello, $x"'` + "\n")
	scr.expect("begins")
	scr.types(ctrlZ)
	scr.expect("Stopped")
	scr.expect("ready> ")
	if !inspected(t, s, name).Held {
		t.Error("the lock is lost")
	}
	scr.types("fg\n")
	scr.types("you\n")
	scr.expect("hello, you")
	scr.expect("ready> ")
	scr.types("echo status $?\n")
	scr.expect("status 0")
	scr.expect("ready> ")

	name = newName(t)
	scr.types("$TOOL exec '" + name + `' --ttl 6s -- sh -c 'echo begi""ns; kill -TSTP $$; echo goes "o"n'` + "\n")
	scr.expect("begins")
	scr.expect("Stopped")
	scr.expect("ready> ")
	verdict.Eventually(t, "the lock is free", func() bool { return !inspected(t, s, name).Held })
	scr.types("fg\n")
	scr.expect("lost: its deadline came")
	scr.expect("ready> ")
	scr.types("echo status $?\n")
	scr.expect("status 76")
	if strings.Contains(scr.shown(), "goes on") {
		t.Error("the command went on although its lock was lost")
	}
	scr.expect("ready> ")

	// In the background it stops when it wants to read, and fg gives it the terminal.
	scr.types("$TOOL exec '" + newName(t) + `' -- sh -c 'read x; echo "hello, $x"' &` + "\n")
	scr.expect("ready> ")
	verdict.Eventually(t, "the job stops", func() bool {
		scr.types("jobs\n")
		return strings.Contains(scr.expect("ready> "), "Stopped")
	})
	scr.types("fg\n")
	scr.types("again\n")
	scr.expect("hello, again")
	scr.expect("ready> ")
	scr.types("exit 9\n")
	shell.Wait()
	if code := shell.ProcessState.ExitCode(); code != 9 {
		t.Errorf("the shell exits with %d, want 9", code)
	}
}

// TestExecTerminalScript: a script ends with Ctrl-C, and does not go on behind exec.
func TestExecTerminalScript(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("not proven: that a script ends with Ctrl-C; that takes bash")
	}
	s, name := redistest.Shared(t), newName(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell := toolFor(t, s)
	shell.Cmd.Path, shell.Cmd.Args = bash, []string{"bash", "-c", `"$TOOL" exec "$NAME" -- sh -c 'echo begins; exec sleep 60'; echo went on`}
	shell.Cmd.Env = append(shell.Cmd.Env, "TOOL="+self, "NAME="+name)
	scr := newScreen(t, shell.Cmd)
	scr.expect("begins")
	scr.types(ctrlC)
	shell.Wait()
	if w := shell.ProcessState.Sys().(syscall.WaitStatus); !w.Signaled() || w.Signal() != syscall.SIGINT {
		t.Errorf("%v, want that it died of SIGINT", shell.ProcessState)
	}
	if strings.Contains(scr.shown(), "went on") {
		t.Error("the script went on")
	}
	wantFree(t, s, name)
}
