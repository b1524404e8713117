//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/cli/clitest"
)

// patience is for what comes soon on a machine that is not loaded.
const patience = 30 * time.Second

// A tool is the command as a process, with what it prints.
type tool struct {
	*exec.Cmd
	t      *testing.T
	out    *bufio.Reader
	pipe   io.Closer // of out
	errs   *bytes.Buffer
	waited bool
}

// toolFor makes the command, to be run on the server, unless the arguments name one.
func toolFor(t *testing.T, s *redistest.Server, args ...string) *tool {
	t.Helper()
	cmd := clitest.Command(t, args...)
	cmd.Env = append(cmd.Env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	if s != nil {
		cmd.Env = append(cmd.Env, redisVar+"="+s.URL())
	}
	c := &tool{Cmd: cmd, t: t, errs: &bytes.Buffer{}}
	cmd.Stderr, cmd.WaitDelay = c.errs, patience // a command that outlives exec must not keep the test
	return c
}

// start starts it; it is gone at the end of the test, and what it has started, too.
func (c *tool) start() *tool {
	c.t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.out, c.pipe = bufio.NewReader(out), out
	if err := c.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if !c.waited {
			c.Process.Kill()
			c.Wait()
		}
	})
	return c
}

// line is the next line of the standard output.
func (c *tool) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("after %q: %v; on stderr\n%s", s, err, c.errs)
	}
	return strings.TrimSuffix(s, "\n")
}

// number is a line that is one: a process.
func (c *tool) number() int {
	c.t.Helper()
	line := c.line()
	n, err := strconv.Atoi(line)
	if err != nil {
		c.t.Fatalf("the line is %q, want a process", line)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			syscall.Kill(-n, syscall.SIGKILL)
		}
	})
	return n
}

// end waits for it, and returns the rest of its output and its status.
func (c *tool) end() (out string, code int) {
	c.t.Helper()
	late := time.AfterFunc(patience, func() {
		c.Process.Kill()
		c.pipe.Close() // which the command may have still
	})
	defer late.Stop()
	rest, err := io.ReadAll(c.out)
	if err != nil {
		c.t.Errorf("it has not ended: %v", err)
	}
	if err := c.Wait(); errors.Is(err, exec.ErrWaitDelay) {
		c.t.Errorf("%q: somebody has its standard error, and outlives it", c.Args[1:])
	}
	c.waited = true
	return string(rest), c.ProcessState.ExitCode()
}

func (c *tool) run() (out string, code int) {
	c.t.Helper()
	return c.start().end()
}

func (c *tool) kill(s syscall.Signal) {
	c.t.Helper()
	if err := c.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// wantEnd holds how it ends to that.
func (c *tool) wantEnd(code int, says ...string) (out string) {
	c.t.Helper()
	out, got := c.end()
	if got != code {
		c.t.Errorf("%q: exit %d, want %d; it said\n%s%s", c.Args[1:], got, code, out, c.errs)
	}
	for _, s := range says {
		if !strings.Contains(c.errs.String(), s) {
			c.t.Errorf("%q: on stderr is %q, want %q", c.Args[1:], c.errs, s)
		}
	}
	if len(says) == 0 && c.errs.Len() > 0 {
		c.t.Errorf("%q: on stderr is %q, want nothing", c.Args[1:], c.errs)
	}
	return out
}

var lockCount atomic.Int64

// newName is a lock of this test alone.
func newName(t *testing.T) string {
	return fmt.Sprintf("tool %s %d %d", t.Name(), os.Getpid(), lockCount.Add(1))
}

// eventually waits until it is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	eventuallyWithin(t, patience, what, is)
}

func eventuallyWithin(t *testing.T, patience time.Duration, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("after %v not yet: %s", patience, what)
		}
	}
}

func groupGone(group int) func() bool {
	return func() bool { return !alive(group) || onlyZombies(group) }
}

// onlyZombies tells that nobody reaps what is left of a group: where this system has no
// init that does.
func onlyZombies(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if w := strings.Fields(rest); len(w) > 2 && w[2] == strconv.Itoa(group) && w[0] != "Z" {
			return false
		}
	}
	return len(stats) > 0
}

func inspected(t *testing.T, s *redistest.Server, name string) strategy.Info {
	t.Helper()
	info, err := onServer(t, s, strategy.Options{}).Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func onServer(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	locks, err := fairqueue.New(s.Pool(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

func TestExecMisuse(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"exec", "want the lock's name, --, and the command"},
		{"exec name true", "want the lock's name, --, and the command"},
		{"exec -- true", "want one name before the --, and there are 0"},
		{"exec a b -- true", "want one name before the --, and there are 2"},
		{"exec a --", "there is no command after the --"},
		{"exec a --try --wait 1s -- true", "--wait and --try exclude each other"},
		{"exec a --wait 0s -- true", "--wait is 0s: allowed is more than 0"},
		{"exec a --ttl 1ms -- true", "--ttl is 1ms: allowed are whole milliseconds from 10ms to 24h0m0s"},
		{"exec a --ttl 1m --max-hold 30s -- true", "--max-hold is 30s: allowed are the TTL of 1m0s and more"},
		{"exec a --grace -1s -- true", "--grace is -1s: allowed are 0 (SIGKILL at once) and more"},
		{"exec a -E 256 -- true", "--conflict-exit-code is 256: allowed are 0 to 255"},
		{"exec a --label " + strings.Repeat("x", 257) + " -- true", "--label has 257 bytes: allowed are "},
		{"exec " + strings.Repeat("x", 1025) + " -- true", "the lock's name has 1025 bytes: allowed are 1 to 1024"},
	} {
		var out, errs bytes.Buffer
		code := cli.Execute(t.Context(), rootCommand(), strings.Fields(c.args), nil, &out, &errs)
		if code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("locks %s: exit %d, %q, on stderr\n%s\nwant exit 2, nothing, and %q", c.args, code, out.String(), errs.String(), c.want)
		}
	}
}

func TestExecStatus(t *testing.T) {
	s := redistest.Shared(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command []string
		code    int
		says    []string
	}{
		{[]string{"true"}, 0, nil},
		{[]string{"sh", "-c", "exit 7"}, 7, nil},
		{[]string{"sh", "-c", "exit 255"}, 255, nil},
		{[]string{"sh", "-c", "kill -9 $$"}, 137, nil},
		{[]string{"sh", "-c", "kill -USR1 $$"}, 128 + int(syscall.SIGUSR1), nil},
		{[]string{"there-is-no-such-command"}, 127, []string{"command not found"}},
		{[]string{"/there/is/none"}, 127, []string{"command not found"}},
		{[]string{plain}, 126, []string{"permission denied"}},
		{[]string{os.TempDir()}, 126, []string{"is a directory"}},
	} {
		name := newName(t)
		toolFor(t, s, append([]string{"exec", name, "--"}, c.command...)...).start().wantEnd(c.code, c.says...)
		if info := inspected(t, s, name); info.Held {
			t.Errorf("%q: the lock is still held: %+v", c.command, info)
		}
	}
}

// TestExecNoFormat: the kernel finds out what the look-up did not, when the lock is held.
func TestExecNoFormat(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	dir := t.TempDir()
	for file, text := range map[string]string{"empty": "\x00", "lost": "#!/there/is/none\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	toolFor(t, s, "exec", name, "--", filepath.Join(dir, "empty")).start().wantEnd(126, "exec format error")
	toolFor(t, s, "exec", name, "--", filepath.Join(dir, "lost")).start().wantEnd(127, "no such file")
	if info := inspected(t, s, name); info.Held {
		t.Errorf("the lock is still held: %+v", info)
	}
}

// TestExecStatusKept: also where whoever starts exec ignores what becomes of children.
func TestExecStatusKept(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("not proven: that a status is kept where SIGCHLD is ignored; that takes python3")
	}
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--", "sh", "-c", "exit 7")
	ignoring := `import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])`
	c.Path, _ = exec.LookPath("python3")
	c.Args = append([]string{"python3", "-c", ignoring}, c.Args...)
	c.start().wantEnd(7)
}

func TestExecHeld(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	holder := onServer(t, s, strategy.Options{TTL: time.Minute, Label: strategy.Holder{Host: "elsewhere", PID: 42, Label: "x"}.String()})
	lease, err := holder.NewLock(name).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const who = `is held by elsewhere, process 42, "x", for `
	toolFor(t, s, "exec", name, "--try", "--", "echo", "ran").start().wantEnd(75, who)
	toolFor(t, s, "exec", name, "--try", "-E", "0", "--", "echo", "ran").start().wantEnd(0, who)
	began := time.Now()
	if out := toolFor(t, s, "exec", name, "--wait", "300ms", "--", "echo", "ran").start().wantEnd(75, who); out != "" {
		t.Errorf("it ran: %q", out)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it waited %v, want 300ms", took)
	}
	waiting := toolFor(t, s, "exec", name, "--", "echo", "ran").start()
	eventually(t, "exec queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := waiting.wantEnd(0); out != "ran\n" {
		t.Errorf("it printed %q, want ran", out)
	}
}

// bootstrap lets new servers vote at once.
func bootstrap(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	var pools []*redis.Pool
	for _, s := range servers {
		pools = append(pools, s.Pool())
	}
	if len(pools) > 1 {
		if err := redlock.Bootstrap(t.Context(), pools); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExecEnvironment: of each strategy; and that the standard streams are the command's.
func TestExecEnvironment(t *testing.T) {
	nodes, err := redistest.TryNodes(t, 3)
	for _, a := range algorithms() {
		t.Run(a.name, func(t *testing.T) {
			args := []string{"exec", newName(t), "--strategy", a.name, "--ttl", "20s"}
			for i := range a.servers {
				redistest.Must(t, err)
				args = append(args, "--redis", nodes[i].URL())
			}
			bootstrap(t, nodes[:a.servers])
			args = append(args, "--", "sh", "-c", `read line; echo "$line"; echo "$LOCKS_NAME"; echo "$LOCKS_TOKEN"; echo "${LOCKS_FENCE-none}"; echo "$LOCKS_DEADLINE"`)
			var last uint64
			for range 2 {
				c := toolFor(t, nil, args...)
				c.Env = append(c.Env, "LOCKS_FENCE=1", "LOCKS_TOKEN=of another")
				c.Stdin = strings.NewReader("spoken\n")
				c.start()
				if line := c.line(); line != "spoken" {
					t.Errorf("it read %q", line)
				}
				if name := c.line(); name != args[1] {
					t.Errorf("LOCKS_NAME is %q, want %q", name, args[1])
				}
				if token := c.line(); !strings.Contains(token, "/"+strconv.Itoa(c.Process.Pid)) || token == "of another" {
					t.Errorf("LOCKS_TOKEN is %q, want one of process %d", token, c.Process.Pid)
				}
				fence := c.line()
				fenced := a.name == "luascript" || a.name == "fairqueue" || a.name == "reentrant" || a.name == "redlock-fenced"
				if n, err := strconv.ParseUint(fence, 10, 64); fenced && (err != nil || n <= last) || !fenced && fence != "none" {
					t.Errorf("LOCKS_FENCE is %q after %d", fence, last)
				} else {
					last = n
				}
				deadline, err := time.Parse(time.RFC3339Nano, c.line())
				if left := time.Until(deadline); err != nil || left < 5*time.Second || left > 20*time.Second {
					t.Errorf("LOCKS_DEADLINE is in %v (%v), want what is left of 20s", left, err)
				}
				c.wantEnd(0)
			}
		})
	}
}

// TestExecSignals: signals go to the whole group, and what they do to it is the status.
func TestExecSignals(t *testing.T) {
	s := redistest.Shared(t)
	for _, sig := range passed {
		sig := sig.(syscall.Signal)
		if sig == unix.SIGTSTP {
			continue
		}
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--", "sh", "-c",
			fmt.Sprintf(`trap 'echo heard; exit 9' %d; sleep 60 >/dev/null & echo ready; wait`, sig)).start()
		c.line()
		c.kill(sig)
		if out, code := c.end(); out != "heard\n" || code != 9 {
			t.Errorf("%v: exit %d, %q, %s, want 9, and that it was heard once", sig, code, out, c.errs)
		}
		c = toolFor(t, s, "exec", name, "--", "sh", "-c", "sleep 60 & echo $$; exec cat")
		in, err := c.StdinPipe()
		redistest.Must(t, err)
		group := c.start().number()
		fmt.Fprintln(in, "cat")
		c.line() // it is cat, and no more the shell, which between fork and exec may swallow a signal
		c.kill(sig)
		switch out, code := c.end(); {
		case code != 128+int(sig):
			t.Errorf("%v: exit %d %q %s, want %d", sig, code, out, c.errs, 128+int(sig))
		case alive(group):
			t.Errorf("%v: there is still somebody in the group", sig)
		case strings.Contains(c.errs.String(), "left processes") && sig != unix.SIGINT && sig != unix.SIGQUIT:
			t.Errorf("%v: it went to the command alone: %s", sig, c.errs) // the two are ignored behind &
		}
		if info := inspected(t, s, name); info.Held {
			t.Errorf("%v: the lock is still held: %+v", sig, info)
		}
	}
}

// TestExecStops: SIGTSTP stops the command, and SIGCONT lets it go on; the lock is kept.
func TestExecStops(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "2s", "--", "sh", "-c", "echo $$; exec sleep 60")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	c.start()
	group := c.number()
	c.kill(unix.SIGTSTP)
	eventually(t, "the command stands still", func() bool { return stateOf(t, group) == "T" })
	time.Sleep(2500 * time.Millisecond) // more than the TTL
	if info := inspected(t, s, name); !info.Held {
		t.Error("the lock was not kept alive")
	}
	c.kill(unix.SIGCONT)
	eventually(t, "it goes on", func() bool { return stateOf(t, group) != "T" })
	c.kill(unix.SIGTERM)
	c.wantEnd(143)
}

// stateOf is that of a process: T stands still.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if errors.Is(err, exec.ErrNotFound) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Skip("not proven: it takes ps, or /proc")
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		return rest[:1]
	}
	return strings.TrimSpace(string(out))[:1]
}

// TestExecInterrupted: a signal ends the wait, and leaves nothing behind.
func TestExecInterrupted(t *testing.T) {
	s := redistest.Shared(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		name := newName(t)
		lease, err := onServer(t, s, strategy.Options{TTL: time.Minute}).NewLock(name).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := toolFor(t, s, "exec", name, "--", "echo", "ran").start()
		eventually(t, "exec queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
		c.kill(sig)
		if out := c.wantEnd(128+int(sig), "gave up after"); out != "" {
			t.Errorf("%v: it ran: %q", sig, out)
		}
		if info := inspected(t, s, name); len(info.Queue) > 0 {
			t.Errorf("%v: it still queues: %q", sig, info.Queue)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if info := inspected(t, s, name); info.Held {
			t.Errorf("%v: who gave up has the lock: %+v", sig, info)
		}
	}
}

// TestExecInterruptedUnderWay: while nobody answers, it ends soon, says what may be left,
// and that goes with the TTL.
func TestExecInterruptedUnderWay(t *testing.T) {
	s, name := redistest.Own(t, redistest.Config{}), newName(t)
	redistest.Skip(t, s.Freeze(t.Context()), "what becomes of exec on a server that stands still")
	c := toolFor(t, s, "exec", name, "--ttl", "6s", "--", "echo", "ran").start()
	time.Sleep(300 * time.Millisecond) // into the request, or before it
	c.kill(syscall.SIGINT)
	began := time.Now()
	if out, code := c.end(); code != 130 || out != "" {
		t.Errorf("exit %d, %q, %s, want 130", code, out, c.errs)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v to end", took)
	}
	if err := s.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lock is free", func() bool { return !inspected(t, s, name).Held })
}

// TestExecInterruptedAtOnce: whenever the signal comes, no lock is left behind.
func TestExecInterruptedAtOnce(t *testing.T) {
	s := redistest.Shared(t)
	for i := range 25 {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--ttl", "10m", "--", "sleep", "60").start()
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		c.kill(syscall.SIGTERM)
		if _, code := c.end(); code != 143 && code != -1 { // -1: before main
			t.Errorf("exit %d, %s", code, c.errs)
		}
		if info := inspected(t, s, name); info.Held {
			t.Errorf("after %d ms: the lock is left behind: %+v", 2*i, info)
		}
	}
}

// TestExecInterruptedBefore: a signal that came just before the command was to start.
func TestExecInterruptedBefore(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	lease, err := onServer(t, s, strategy.Options{}).NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := &cli.Interrupted{Signal: syscall.SIGTERM}
	cancel(why)
	started := filepath.Join(t.TempDir(), "started")
	e := execution{said: newTeller(io.Discard), command: []string{"touch", started}}
	if err := e.hold(ctx, lease, "/usr/bin/touch"); !errors.Is(err, why) {
		t.Errorf("hold = %v, want %v", err, why)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the command was started")
	}
	if inspected(t, s, name).Held {
		t.Error("the lock is still held")
	}
}

// stubborn prints its group and then, on SIGTERM, a word; it and its child go on. It waits
// without starting anything: a shell may swallow what comes between its fork and exec.
const stubborn = `trap 'echo told' TERM
(trap '' TERM; while :; do sleep 0.05; done) &
echo $$
while :; do wait; done`

// TestExecLost: SIGTERM to the group, SIGKILL after the grace, and a status of its own.
func TestExecLost(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "3s", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	if out := c.wantEnd(76, "lost: the key is gone; ending the command"); out != "told\n" {
		t.Errorf("the command said %q, want that it was told", out)
	}
	if alive(group) {
		t.Error("there is still somebody in the group")
	}
}

// TestExecLostToAnother: whoever has the lock now keeps it.
func TestExecLostToAnother(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "3s", "--", "sh", "-c", "echo $$; exec sleep 60").start()
	c.number()
	toolFor(t, s, "release", name, "--force").run()
	lease, err := onServer(t, s, strategy.Options{TTL: time.Minute}).NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.wantEnd(76, "now held by")
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestExecLostUnseen: a loss that is found out at the release counts where the command
// would have counted as a success.
func TestExecLostUnseen(t *testing.T) {
	s := redistest.Shared(t)
	for status, c := range map[int]struct {
		want int
		says string
	}{0: {76, "the command has succeeded, but lock"}, 5: {5, "warning: the release of the lock was not confirmed: lock"}} {
		name := newName(t)
		x := toolFor(t, s, "exec", name, "--ttl", "1h", "--", "sh", "-c", fmt.Sprintf("echo; read x; exit %d", status))
		in, err := x.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		x.start().line()
		redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
		in.Close()
		x.wantEnd(c.want, c.says)
	}
}

func TestExecMaxHold(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "2s", "--max-hold", "2s", "--", "sh", "-c", "echo $$; exec sleep 60").start()
	c.number()
	c.wantEnd(76, "the maximum hold is over")
	eventually(t, "the lock is free", func() bool { return !inspected(t, s, name).Held }) // by the server's clock, too
}

// TestExecKilled: the group does not outlive exec, and the lock goes with its TTL.
func TestExecKilled(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "2s", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	c.kill(syscall.SIGKILL)
	out, _ := c.end()
	if strings.ReplaceAll(out, "told\n", "") != "" || out == "" { // by the kernel, too, at the end of each thread of exec
		t.Errorf("the command said %q, want that it was told", out)
	}
	if !strings.Contains(c.errs.String(), "the process that held the lock is gone; ending the command") {
		t.Errorf("on stderr is %q", c.errs)
	}
	eventually(t, "the group is gone", groupGone(group))
	eventually(t, "the lock is free", func() bool { return !inspected(t, s, name).Held })
}

// TestExecKilledAtTheStart: whatever it was about to do when it got the lock.
func TestExecKilledAtTheStart(t *testing.T) {
	s := redistest.Shared(t)
	tools := make([]*tool, 30)
	for i := range tools {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "20ms", "--", "sh", "-c", stubborn).start()
		if i%2 == 0 {
			eventually(t, "it holds the lock", func() bool {
				held, err := redis.Bool(redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)), nil)
				redistest.Must(t, err)
				return held
			})
			time.Sleep(rand.N(30 * time.Millisecond)) // while it starts its watcher and the command
		} else {
			c.number() // the command may have come so far before exec goes on
		}
		c.kill(syscall.SIGKILL)
		tools[i] = c
	}
	for _, c := range tools {
		c.end() // nobody has the standard output any more
	}
}

// TestExecStarter: without exec's word it executes nothing.
func TestExecStarter(t *testing.T) {
	t.Setenv(clitest.MainVar, "1")
	s, err := startStarter("/bin/sh", []string{"sh", "-c", "exit 5"}, os.Environ())
	redistest.Must(t, err)
	s.socket.Close()
	var status unix.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; {
		_, err = unix.Wait4(s.pid, &status, 0, nil)
	}
	if err != nil || status.ExitStatus() != exitNotExecutable {
		t.Errorf("it ended with %d (%v), want %d", status.ExitStatus(), err, exitNotExecutable)
	}
}

// TestExecUnread: a command is ended when its lock is lost, and when exec is killed, though
// nobody reads what they have to say about it.
func TestExecUnread(t *testing.T) {
	s := redistest.Shared(t)
	for _, killed := range []bool{false, true} {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--ttl", "3s", "--grace", "100ms", "--", "sh", "-c", stubborn)
		full, unread := fullPipe(t)
		c.Stderr = unread
		group := c.start().number()
		if killed {
			c.kill(syscall.SIGKILL)
		} else {
			redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
		}
		eventually(t, "the group is gone", groupGone(group))
		full.Close() // now what is still to be said cannot be
		unread.Close()
		c.end()
	}
}

// fullPipe is a pipe whose writers wait for ever, if they wait.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(p[1], true); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 4096); ; {
		if _, err := unix.Write(p[1], b); err != nil {
			if len(b) == 1 {
				break
			}
			b = b[:1]
		}
	}
	if err := unix.SetNonblock(p[1], false); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(p[0]), "full"), os.NewFile(uintptr(p[1]), "full")
}

// TestExecFiles: what exec is started with beside the standard streams is the command's.
func TestExecFiles(t *testing.T) {
	s := redistest.Shared(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := toolFor(t, s, "exec", newName(t), "--", "sh", "-c", "echo three >&3; echo four >&4")
	c.ExtraFiles = []*os.File{w, w}
	c.start()
	w.Close()
	c.wantEnd(0)
	if text, err := io.ReadAll(r); string(text) != "three\nfour\n" || err != nil {
		t.Errorf("the command wrote %q (%v), want what it was told to", text, err)
	}
}

// TestExecWatchedAnew: a watcher that was killed has a successor.
func TestExecWatchedAnew(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "100ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	first := watcherOf(t, c.Process.Pid)
	time.Sleep(watchSlack + 100*time.Millisecond) // one that dies sooner has no successor
	syscall.Kill(first, syscall.SIGKILL)
	eventually(t, "there is another watcher", func() bool { w := watcherOf(t, c.Process.Pid); return w != 0 && w != first })
	c.kill(syscall.SIGKILL)
	c.end()
	eventually(t, "the group is gone", groupGone(group))
}

// watcherOf is exec's; 0: there is none.
func watcherOf(t *testing.T, pid int) int {
	t.Helper()
	children := allChildren(pid)
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("not proven: that takes /proc")
	}
	for _, child := range strings.Fields(children) {
		if n, _ := strconv.Atoi(child); strings.Contains(cmdline(n), watchName) {
			return n
		}
	}
	return 0
}

func cmdline(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(b)
}

// TestExecWatcherOfNobody: a watcher ends also where the command ended by itself, and exec was
// killed before it could say so.
func TestExecWatcherOfNobody(t *testing.T) {
	c := exec.Command("true")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w := watch{said: newTeller(io.Discard)}
		w.run(strings.NewReader(fmt.Sprintf("group %d\nleft 60000\n", c.Process.Pid)))
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Errorf("after %v it still watches a group that is gone", patience)
	}
}

// TestExecFrozen: nor does it outlive the lock of one that stands still.
func TestExecFrozen(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "2s", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	time.Sleep(3500 * time.Millisecond) // more than the TTL, and the watcher's second
	if groupGone(group)() {
		t.Fatal("the command was ended while its lock was kept alive")
	}
	c.kill(syscall.SIGSTOP)
	eventually(t, "the group is gone", groupGone(group))
	c.kill(syscall.SIGCONT)
	c.wantEnd(76, "stands still, and its deadline is over")
}

// TestExecWatcherKilled: with exec and its watcher gone the command itself is told.
func TestExecWatcherKilled(t *testing.T) {
	text := func(pid int, of string) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, of))
		return string(b)
	}
	s, name := redistest.Shared(t), newName(t)
	// In a loop: a signal that comes just before the shell's wait would be noticed only after it.
	c := toolFor(t, s, "exec", name, "--", "sh", "-c", "trap 'echo told; exit' TERM; echo $$; while :; do sleep 0.1; done").start()
	group := c.number()
	if text(group, "stat") == "" {
		t.Skip("not proven: that a command is told when exec and its watcher are killed; that takes /proc")
	}
	watcher := watcherOf(t, c.Process.Pid)
	if watcher == 0 {
		t.Fatal("there is no watcher")
	}
	c.kill(syscall.SIGSTOP) // or it would start another
	syscall.Kill(watcher, syscall.SIGKILL)
	c.kill(syscall.SIGKILL)
	if out, _ := c.end(); out != "told\n" {
		t.Errorf("the command said %q, want that it was told", out)
	}
}

func allChildren(pid int) (all string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all += " " + string(b)
	}
	return all
}

// TestExecLeftBehind: what a command leaves in its group ends before the lock is free; what
// has left the group goes on.
func TestExecLeftBehind(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--grace", "300ms", "--", "sh", "-c",
		`(trap '' TERM; while :; do sleep 0.05; done) >/dev/null 2>&1 & echo $$; exit 4`).start()
	group := c.number()
	c.wantEnd(4, "left processes behind")
	if alive(group) {
		t.Error("there is still somebody in the group")
	}
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("not proven: that a session of its own outlives the lock; that takes setsid")
	}
	c = toolFor(t, s, "exec", name, "--", "sh", "-c", `setsid sh -c 'echo $$; exec sleep 60' 2>/dev/null & wait $!; echo x`)
	c.Args[len(c.Args)-1] = `setsid sh -c 'echo $$; exec sleep 60 >&- 2>&-' & sleep 0.3`
	c.start()
	daemon := c.number()
	defer syscall.Kill(daemon, syscall.SIGKILL)
	c.wantEnd(0)
	if !alive(daemon) {
		t.Error("a session of its own was ended, too")
	}
}

// TestExecServerDown: at the first attempt that ends it; during a wait it does not, nor
// while the command runs; and at the release the command's status counts.
func TestExecServerDown(t *testing.T) {
	toolFor(t, nil, "exec", "x", "--redis", "127.0.0.1:1", "--", "echo", "ran").start().wantEnd(69, "connection refused")

	s, name := redistest.Own(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}), newName(t)
	ctx := t.Context()
	lease, err := onServer(t, s, strategy.Options{TTL: 4 * time.Second}).NewLock(name).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := toolFor(t, s, "exec", name, "--ttl", "6s", "--", "sh", "-c", "echo in; read x; exit 5")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.start()
	eventually(t, "exec queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
	redistest.Skip(t, s.Kill(ctx), "what exec does when its server dies")
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	_ = lease // it goes with its TTL
	if line := c.line(); line != "in" {
		t.Errorf("it said %q, want that it got in after the restart", line)
	}
	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	in.Close()
	began := time.Now()
	c.wantEnd(5, "warning: the release of the lock was not confirmed")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v to end", took)
	}
}

// TestExecPipeBroken: nobody reads its warnings, and it does its work all the same.
func TestExecPipeBroken(t *testing.T) {
	s, name := redistest.Shared(t), newName(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := toolFor(t, s, "exec", name, "--ttl", "3s", "--", "sh", "-c", "echo $$; exec sleep 60")
	c.Stderr = w
	c.start()
	w.Close()
	r.Close()
	group := c.number()
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	c.errs = &bytes.Buffer{}
	if _, code := c.end(); code != 76 {
		t.Errorf("exit %d, want 76", code)
	}
	if alive(group) {
		t.Error("there is still somebody in the group")
	}
}

// TestReadme runs what the README tells to type.
func TestReadme(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "<!-- tool -->\n```sh\n")
	block, _, ok2 := strings.Cut(rest, "```\n<!-- /tool -->")
	if !ok || !ok2 {
		t.Fatal("the README has no block of the tool")
	}
	const url = "redis://localhost:6379"
	if !strings.Contains(block, url) {
		t.Fatalf("there is no %s in\n%s", url, block)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"locks":     fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", clitest.MainVar, self),
		"import.sh": "#!/bin/sh\necho imports under $LOCKS_NAME\n",
		"deploy.sh": "#!/bin/sh\necho deploys under $LOCKS_NAME\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-euc", strings.ReplaceAll(block, url, s.URL()))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"imports under nightly\n", "deploys under deploy/web\n", "held by  nobody\n", "lock deploy/web is free\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, there is no %q in\n%s", err, want, out)
		}
	}
}
