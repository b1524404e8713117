//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests what locks exec does, as a process on a real server: statuses, signals, losses, outages, and what
// the command inherits and leaves behind.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

func TestExecMisuse(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"exec", "want the lock's name and the command"},
		{"exec -- true", "want the lock's name and the command"},
		{"exec a", "there is no command"},
		{"exec a --", "there is no command"},
		{"exec a --nope true", "unknown flag: --nope"},
		{"exec a --wait soon -- true", "--wait is soon: allowed are seconds, such as 90 or 0.5, and times such as 90s, 2m or 300ms"},
		{"exec a -v -q -- true", "--verbose and --quiet exclude each other"},
		{"exec a --try --wait 1s -- true", "--wait and --try exclude each other"},
		{"exec a --fail-fast -- true", "--fail-fast without --wait: without it exec ends at once in any case"},
		{"exec a --wait 0s -- true", "--wait is 0s: allowed is more than 0"},
		{"exec a --ttl 1ms -- true", "--ttl is 1ms: allowed are whole milliseconds from 10ms to 24h0m0s"},
		{"exec a --ttl 1m --max-hold 30s -- true", "--max-hold is 30s: allowed are the TTL of 1m0s and more"},
		{"exec a --max-ttl 1m --redis a -- true", "--max-ttl with fairqueue: only redlock has it"},
		{"exec a --max-ttl 10s --strategy redlock --redis a --redis b --redis c -- true", "--max-ttl is 10s: allowed are whole milliseconds from 30s to 24h0m0s"},
		{"exec a --permits 5 --strategy fairqueue --redis a -- true", "--permits with fairqueue: only semaphore has them"},
		{"exec a --permits 0 --redis a -- true", "--permits is 0: allowed are 1 to 1000000"},
		{"exec a --permits 1000001 --redis a -- true", "--permits is 1000001: allowed are 1 to 1000000"},
		{"exec a --strategy semaphore --redis a -- true", "--strategy semaphore without --permits: how many may hold the lock at a time?"},
		{"exec a --at-least 0s -- true", "--at-least is 0s: allowed are whole milliseconds from 10ms to 24h0m0s"},
		{"exec a --at-least 25h -- true", "--at-least is 25h0m0s: allowed are"},
		{"exec a --at-least 10.5ms -- true", "--at-least is 10.5ms: allowed are"},
		{"exec a --at-least 2m --max-ttl 1m --strategy redlock --redis a --redis b --redis c -- true", "--at-least is 2m0s: allowed is --max-ttl, 1m0s, at most"},
		{"exec a --at-least 1s --permits 5 --redis a -- true", "--at-least and --permits exclude each other"},
		{"exec a --at-least 1s --read --redis a -- true", "--at-least and --read exclude each other"},
		{"exec a --read --write --redis a -- true", "--read and --write exclude each other"},
		{"exec a --read --strategy fairqueue --redis a -- true", "--read with fairqueue: only rwlock has readers and writers"},
		{"exec a --write --permits 5 --redis a -- true", "--write with semaphore: only rwlock has readers and writers"},
		{"exec a --permits 5 --strategy rwlock --redis a -- true", "--permits with rwlock: only semaphore has them"},
		{"inspect a --read --redis a", "unknown flag: --read"},
		{"exec " + strings.Repeat("x", 1016) + " --at-least 1s -- true", "the lock's name has 1016 bytes: with --at-least allowed are 1 to 1015"},
		{"exec a --grace -1s -- true", "--grace is -1s: allowed are 0 (SIGKILL at once) and more"},
		{"exec a -E 256 -- true", "--conflict-exit-code is 256: allowed are 0 to 255"},
		{"exec a --label " + strings.Repeat("x", 257) + " -- true", "--label has 257 bytes: allowed are "},
		{"exec " + strings.Repeat("x", 1025) + " -- true", "the lock's name has 1025 bytes: allowed are 1 to 1024"},
	} {
		clitest.Misuse(t, rootCommand(), c.args, c.want)
	}
}

func TestExecStatus(t *testing.T) {
	t.Parallel()
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
		wantFree(t, s, name)
	}
}

// TestExecNoFormat: the kernel finds out what the look-up did not, when the lock is held.
func TestExecNoFormat(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	dir := t.TempDir()
	for file, text := range map[string]string{"empty": "\x00", "lost": "#!/there/is/none\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	toolFor(t, s, "exec", name, "--", filepath.Join(dir, "empty")).start().wantEnd(126, "exec format error")
	toolFor(t, s, "exec", name, "--", filepath.Join(dir, "lost")).start().wantEnd(127, "no such file")
	wantFree(t, s, name)
}

// TestExecStatusKept: the parent of exec may ignore SIGCHLD.
func TestExecStatusKept(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	if out := toolFor(t, s, "exec", name, "--wait", "2s", "--", "echo", "ran").start().wantEnd(75, who); out != "" {
		t.Errorf("it ran: %q", out)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it waited %v, want 2s", took)
	}
	waiting := toolFor(t, s, "exec", name, "--", "echo", "ran").start()
	verdict.Eventually(t, "exec queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := waiting.wantEnd(0); out != "ran\n" {
		t.Errorf("it printed %q, want ran", out)
	}
}

// TestExecSpelling: the command needs no --, flags may stand before and after the name, what follows the
// command is its own, -n and -w are those of flock, and times may be plain seconds.
func TestExecSpelling(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	for _, args := range []string{
		"exec NAME echo -n -v --try", "exec NAME -- echo -n -v --try", "exec -n NAME echo -n -v --try", "exec NAME --wait 10 -q -- echo -n -v --try",
		"exec -w 60.5 NAME --ttl 20 --grace 1m echo -n -v --try",
	} {
		words := strings.Fields(args)
		words[slices.Index(words, "NAME")] = name
		if out := toolFor(t, s, words...).start().wantEnd(0); out != "-v --try" {
			t.Errorf("%s: it printed %q, want what echo makes of its arguments", args, out)
		}
	}
	lease, err := onServer(t, s, strategy.Options{}).NewLock(name).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())
	toolFor(t, s, "exec", name, "-n", "echo", "ran").start().wantEnd(75, "is held by ")
	toolFor(t, s, "exec", name, "-v", "-w", "1.5", "echo", "ran").start().wantEnd(75, "locks: waiting: lock ", "is held by ")
}

// TestExecTellsWho: while exec waits, it says every ten seconds who holds the lock by then, and nothing once it has ended.
func TestExecTellsWho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said lockedBuffer
		e := execution{verbose: true, who: make(chan error, 1), said: newTeller(&said)}
		held := func(by string) error { return &strategy.HeldError{Name: "n", Holder: by} }
		done := e.tellWho(held("the first"))
		time.Sleep(11 * time.Second)
		e.observe(strategy.Event{Kind: strategy.EventHeld, Err: held("the second")})
		time.Sleep(10 * time.Second)
		done()
		e.said.end()
		time.Sleep(time.Minute)
		var want string
		for _, line := range []struct{ waited, by string }{{"", "the first"}, {" for 10s", "the first"}, {" for 20s", "the second"}} {
			want += fmt.Sprintf("locks: waiting%s: lock \"n\" is held by %s\n", line.waited, holderOf(line.by))
		}
		if said.String() != want {
			t.Errorf("it said\n%swant\n%s", &said, want)
		}
	})
}

// TestExecAtLeast: no other exec with --at-least starts until the mark is gone, although the first has ended, or was
// killed. An exec that finds the mark has released the lock.
func TestExecAtLeast(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	again := func(code int, words ...string) (out string) {
		t.Helper()
		return toolFor(t, s, "exec", name, "--try", "--at-least", "1h", "--", "echo", "ran").start().wantEnd(code, words...)
	}
	marked := "lock \"" + name + "/at-least\" is held by "
	if out := again(0); out != "ran\n" {
		t.Errorf("the first printed %q", out)
	}
	for range 2 {
		if out := again(75, marked, "for 59m"); out != "" {
			t.Errorf("the next printed %q", out)
		}
	}
	toolFor(t, s, "exec", name, "--try", "--", "true").start().wantEnd(0)

	mark := strategy.DefaultKey(name + "/at-least")
	if n := redistest.Do(t, s, "DEL", mark); n != int64(1) { // as when its time has come
		t.Fatalf("%v keys %s", n, mark)
	}
	killed := toolFor(t, s, "exec", name, "--ttl", "1s", "--at-least", "1h", "--", "sh", "-c", "echo in; read line; true")
	killed.input()
	killed.start().line()
	killed.kill(syscall.SIGKILL)
	killed.end()
	verdict.Eventually(t, "the lock has lapsed", func() bool { return redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)) == int64(0) })
	again(75, marked)

	redistest.Do(t, s, "DEL", mark)
	script := filepath.Join(t.TempDir(), "script")
	redistest.Must(t, os.WriteFile(script, []byte("#!/nowhere/interpreter\n"), 0o700))
	toolFor(t, s, "exec", name, "--try", "--at-least", "1h", "--", script).start().wantEnd(127, script)
	if n := redistest.Do(t, s, "EXISTS", mark, strategy.DefaultKey(name)); n != int64(0) {
		t.Errorf("%v keys are left by an exec that could not start its command, want 0", n)
	}

	redistest.Do(t, s, "RPUSH", mark, "no lock")
	if out := again(69, "WRONGTYPE"); out != "" {
		t.Errorf("without a mark it printed %q", out)
	}
	toolFor(t, s, "exec", name, "--try", "--", "true").start().wantEnd(0)
	redistest.Do(t, s, "DEL", mark)
}

// TestExecPermits: as many commands run at a time as there are permits; the next one waits for the first that
// ends.
func TestExecPermits(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	begin := func() (*tool, io.Closer) {
		c := toolFor(t, s, "exec", name, "--permits", "2", "--", "sh", "-c", "echo in; read line; echo out")
		in := c.input()
		return c.start(), in
	}
	first, end := begin()
	second, endSecond := begin()
	first.line()
	second.line()
	toolFor(t, s, "exec", name, "--permits", "2", "--try", "--", "echo", "ran").start().wantEnd(75, "is held by ", "; 2 of 2 permits are taken")
	third, endThird := begin()
	inspect := []string{"inspect", name, "--strategy", "semaphore", "--json"}
	verdict.Eventually(t, "the third queues", func() bool {
		return strings.Contains(toolFor(t, s, inspect...).start().wantEnd(0), `"queue": [
    {`)
	})
	end.Close()
	if out := first.wantEnd(0); out != "out\n" {
		t.Errorf("the first printed %q", out)
	}
	third.line()
	endSecond.Close()
	endThird.Close()
	second.wantEnd(0)
	third.wantEnd(0)
	toolFor(t, s, "release", name, "--strategy", "semaphore").start().wantEnd(2, "--strategy semaphore without --permits")
	if out := toolFor(t, s, inspect...).start().wantEnd(0); !strings.Contains(out, `"held": false`) {
		t.Errorf("inspect says\n%s", out)
	}
}

// TestExecReadWrite: several read at the same time, and who writes is alone.
func TestExecReadWrite(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	begin := func(flag string) (*tool, io.Closer) {
		c := toolFor(t, s, "exec", name, flag, "--", "sh", "-c", "echo in; read line; echo out")
		in := c.input()
		return c.start(), in
	}
	look := func(command string, flags ...string) string {
		t.Helper()
		return toolFor(t, s, append([]string{command, name, "--strategy", "rwlock"}, flags...)...).start().wantEnd(0)
	}
	first, endFirst := begin("--read")
	second, endSecond := begin("--read")
	first.line()
	second.line()
	toolFor(t, s, "exec", name, "--write", "--try", "--", "echo", "ran").start().wantEnd(75, "is held by ")
	if out := look("inspect"); !strings.Contains(out, "\nholds    2\n") {
		t.Errorf("of two readers inspect says\n%s", out)
	}
	if out := look("list"); !strings.HasSuffix(out, ", and 2 holds in all\n") {
		t.Errorf("of two readers list says\n%s", out)
	}
	writer, endWriter := begin("--write")
	verdict.Eventually(t, "the writer queues", func() bool { return strings.Contains(look("inspect"), "\nqueue    ") })
	toolFor(t, s, "exec", name, "--read", "--try", "--", "echo", "ran").start().wantEnd(75, "is held by ")
	endFirst.Close()
	first.wantEnd(0)
	endSecond.Close()
	second.wantEnd(0)
	writer.line()
	for _, flag := range []string{"--read", "--write"} {
		toolFor(t, s, "exec", name, flag, "--try", "--", "echo", "ran").start().wantEnd(75, "is held by ")
	}
	endWriter.Close()
	writer.wantEnd(0)
	if out := look("inspect"); !strings.Contains(out, "held by  nobody\n") {
		t.Errorf("of a free lock inspect says\n%s", out)
	}
}

// TestExecKinds: a lock that several may hold excludes nobody of another kind, so exec refuses it and says what is there.
func TestExecKinds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for holder, others := range map[string]map[string]string{
		"--write":     {"--permits 5": "holds a read-write lock", "--strategy reentrant": "not of a reentrant lock"},
		"--read":      {"--permits 5": "holds a read-write lock", "--strategy fairqueue": "not of a fairqueue lock"},
		"--permits 5": {"--read": "holds the permits of a semaphore", "--write": "holds the permits of a semaphore"},
		"":            {"--permits 5": "not of a semaphore lock", "--read": "not of a rwlock lock"},
	} {
		name := newName(t)
		with := func(flags string, command ...string) *tool {
			args := append([]string{"exec", name}, strings.Fields(flags)...)
			return toolFor(t, s, append(append(args, "--"), command...)...)
		}
		c := with(holder, "sh", "-c", "echo in; read line; true")
		in := c.input()
		c.start().line()
		for flags, says := range others {
			for _, wait := range []string{" --try", " --wait 1m"} {
				if out := with(flags+wait, "echo", "ran").start().wantEnd(69, says, "give the --strategy of the lock's holder"); out != "" {
					t.Errorf("exec %s next to exec %s printed %q", flags, holder, out)
				}
			}
		}
		in.Close()
		c.wantEnd(0)
	}
}

// TestExecEnvironment: of each strategy; and that the standard streams are the command's.
func TestExecEnvironment(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms() {
		t.Run(a.name, func(t *testing.T) {
			args := append([]string{"exec", newName(t), "--ttl", "20s"}, onServers(t, a)...)
			t.Parallel()
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
				fenced := slices.Contains([]string{"luascript", "fairqueue", "reentrant", withPermits, withReaders, "redlock-fenced"}, a.name)
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
	t.Parallel()
	s := redistest.Shared(t)
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2} {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--", "sh", "-c",
			fmt.Sprintf(`trap 'echo heard; exit 9' %d; sleep 60 >/dev/null & echo ready; wait`, sig)).start()
		c.line()
		c.kill(sig)
		if out, code := c.end(); out != "heard\n" || code != 9 {
			t.Errorf("%v: exit %d, %q, %s, want 9, and that it was heard once", sig, code, out, c.errs)
		}
		// A second process of the group, which hears nothing but sig. Behind & a shell cannot trap SIGINT
		// and SIGQUIT.
		c = toolFor(t, s, "exec", name, "--grace", "100ms", "--", "sh", "-c", fmt.Sprintf(
			`echo $$; (trap '' TERM; trap 'echo heard; exit' %d; echo ready; while :; do sleep 0.05; done) & exec cat`, sig))
		in := c.input()
		group := c.start().number()
		c.line()
		fmt.Fprintln(in, "cat")
		c.line() // it is cat, and no more the shell, which between fork and exec may swallow a signal
		c.kill(sig)
		switch out, code := c.end(); {
		case code != 128+int(sig):
			t.Errorf("%v: exit %d %q %s, want %d", sig, code, out, c.errs, 128+int(sig))
		case alive(group):
			t.Errorf("%v: there is still a process in the group", sig)
		case out != "heard\n" && sig != unix.SIGINT && sig != unix.SIGQUIT:
			t.Errorf("%v: the group says %q, want that each of its processes gets the signal", sig, out)
		}
		wantFree(t, s, name)
	}
}

// TestExecStops: SIGTSTP stops the command, and SIGCONT lets it go on; the lock is kept.
func TestExecStops(t *testing.T) {
	t.Parallel()
	if state, _ := statOf(os.Getpid()); state == "" {
		t.Skip("not proven: that SIGTSTP stops the command; that takes /proc")
	}
	stopped := func(pid int) bool {
		state, _ := statOf(pid)
		return state == "T"
	}
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--", "sh", "-c", "echo $$; exec sleep 60")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	c.start()
	group := c.number()
	c.kill(unix.SIGTSTP)
	verdict.Eventually(t, "the command is stopped", func() bool { return stopped(group) })
	left := func() int {
		n, err := redis.Int(redistest.Do(t, s, "PTTL", strategy.DefaultKey(name)), nil)
		redistest.Must(t, err)
		return n
	}
	before := left()
	verdict.Eventually(t, "the lock is renewed while the command is stopped", func() bool { return left() > before })
	c.kill(unix.SIGCONT)
	verdict.Eventually(t, "the command runs again", func() bool { return !stopped(group) })
	c.kill(unix.SIGTERM)
	c.wantEnd(143)
}

// sleeper is a command in a group of its own. ended is closed when it is gone.
func sleeper(t *testing.T) (command *exec.Cmd, ended chan struct{}) {
	t.Helper()
	command, ended = exec.Command("sleep", "600"), make(chan struct{})
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	redistest.Must(t, command.Start())
	go func() {
		defer close(ended)
		command.Wait()
	}()
	t.Cleanup(func() {
		command.Process.Kill()
		<-ended
	})
	return command, ended
}

// TestExecContinues: SIGCONT goes to the command while the lock is held. A command whose lock is lost gets the signal to end
// first, and then goes on, so that it can end. The watcher leaves exec the time for that.
func TestExecContinues(t *testing.T) {
	if state, _ := statOf(os.Getpid()); state == "" {
		t.Skip("not proven: that a stopped command stays stopped; that takes /proc")
	}
	command, ended := sleeper(t)
	pid := command.Process.Pid
	stopped := func() bool { state, _ := statOf(pid); return state == "T" }
	stop := func() {
		redistest.Must(t, unix.Kill(pid, unix.SIGSTOP))
		verdict.Eventually(t, "the command is stopped", stopped)
	}
	lease, err := lockstest.New(t).NewLock("n").TryAcquire(t.Context())
	redistest.Must(t, err)
	defer lease.Release(t.Context())
	stop()
	(&job{lease: lease, leader: pid}).pass(unix.SIGCONT)
	verdict.Eventually(t, "the command goes on", func() bool { return !stopped() })
	stop()
	r, w, err := os.Pipe()
	redistest.Must(t, err)
	defer r.Close()
	j := &job{e: &execution{grace: time.Hour}, lease: lapsed{}, leader: pid, watcher: &watcher{pid: -1, pipe: w}}
	if j.pass(unix.SIGCONT); !stopped() {
		t.Error("a command whose lock is lost goes on before it is ended")
	}
	j.end()
	j.end() // the grace goes on
	verdict.Eventually(t, "the command has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	w.Close()
	if heard, err := io.ReadAll(r); err != nil || string(heard) != "left 3602000\n" {
		t.Errorf("the watcher hears %q, %v, want that it has the grace, and two seconds more", heard, err)
	}
}

// lapses is a lease whose deadline comes when the channel is closed.
type lapses struct {
	strategy.Lease
	lost chan struct{}
}

func (l lapses) Deadline() time.Time   { return time.Now().Add(time.Hour) }
func (l lapses) Lost() <-chan struct{} { return l.lost }
func (l lapses) Err() error {
	select {
	case <-l.lost:
		return &strategy.LostError{Name: "n", Lapsed: true}
	default:
		return nil
	}
}

// TestExecLosesWhatIsLeft: a loss counts also while what the command has left behind is being ended, though the command
// itself ended in time.
func TestExecLosesWhatIsLeft(t *testing.T) {
	command := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := command.StdoutPipe()
	redistest.Must(t, err)
	redistest.Must(t, command.Start())
	defer command.Wait()
	defer unix.Kill(-command.Process.Pid, unix.SIGKILL)
	_, err = out.Read(make([]byte, 1))
	redistest.Must(t, err)
	lease := lapses{lost: make(chan struct{})}
	notes, note, err := os.Pipe()
	redistest.Must(t, err)
	defer note.Close()
	fmt.Fprintln(note, int64(monotonic()))
	var said lockedBuffer
	j := &job{
		e: &execution{name: "n", said: newTeller(&said), grace: time.Hour}, lease: lease, leader: command.Process.Pid, tty: &terminal{fd: -1},
		starter: &starter{executed: make(chan struct{})}, watcher: &watcher{pid: -1, notes: notes}, changes: make(chan change, 1),
	}
	j.changes <- change{pid: j.leader} // it exits with 0
	over := make(chan struct{})
	go func() {
		defer close(over)
		j.run()
	}()
	says := func(words string) func() bool { return func() bool { return strings.Contains(said.String(), words) } }
	verdict.Eventually(t, "what is left is being ended", says("left processes behind"))
	close(lease.lost)
	verdict.Eventually(t, "exec hears of the loss", says("lost: its deadline came"))
	unix.Kill(-j.leader, unix.SIGKILL)
	command.Wait()
	<-over
	if !errors.Is(j.lost, strategy.ErrLost) {
		t.Errorf("the loss is %v, want ErrLost", j.lost)
	}
	j.e.said.end()
}

// TestExecWatcherReplacedInTime: a watcher in the place of one that was killed ends the command at the deadline, before it
// hears of a renewal.
func TestExecWatcherReplacedInTime(t *testing.T) {
	t.Setenv(clitest.MainVar, "1")
	command, ended := sleeper(t)
	e := &execution{grace: time.Minute, said: newTeller(io.Discard)}
	defer e.said.end()
	j := &job{e: e, lease: lapsed{deadline: time.Now()}, leader: command.Process.Pid, watcher: &watcher{pid: -1}}
	j.replaceWatcher()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the command goes on after the deadline")
	}
	j.watcher.stop()
	unix.Wait4(j.watcher.pid, nil, 0, nil)
}

// TestExecInterrupted: a signal ends the wait, and leaves nothing behind.
func TestExecInterrupted(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		name := newName(t)
		lease, err := onServer(t, s, strategy.Options{TTL: time.Minute}).NewLock(name).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := toolFor(t, s, "exec", name, "--", "echo", "ran").start()
		verdict.Eventually(t, "exec queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
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
		wantFree(t, s, name)
	}
}

// TestExecInterruptedUnderWay: the server has granted the lock, and the reply does not come. exec
// ends, and has released the lock by another connection.
func TestExecInterruptedUnderWay(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	held := func() bool {
		c := s.Pool().Get()
		defer c.Close()
		n, err := redis.Int(c.Do("EXISTS", strategy.DefaultKey(name)))
		return n > 0 && err == nil
	}
	var silenced atomic.Bool
	addr := relay(t, "tcp", "127.0.0.1:0", s.Addr(), func() bool { return !held() || silenced.Swap(true) })
	c := toolFor(t, nil, "exec", name, "--redis", addr, "--ttl", "1m", "--", "echo", "ran").start()
	verdict.Eventually(t, "the server has granted the lock", held)
	c.kill(syscall.SIGINT)
	if out, code := c.end(); code != 130 || out != "" {
		t.Errorf("exit %d, %q, %s, want 130", code, out, c.errs)
	}
	if held() {
		t.Error("the lock is still held")
	}
}

// TestExecLost: SIGTERM to the group, SIGKILL after the grace, and a status of its own.
func TestExecLost(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	if out := c.wantEnd(76, "lost: the key is gone; ending the command"); out != "told\n" {
		t.Errorf("the command said %q, want that it got the signal", out)
	}
	if alive(group) {
		t.Error("there is still a process in the group")
	}
}

// TestExecLostToAnother: the next holder keeps the lock.
func TestExecLostToAnother(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--", "sh", "-c", "echo $$; exec sleep 60").start()
	c.number()
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
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
	t.Parallel()
	s := redistest.Shared(t)
	for status, c := range map[int]struct {
		want int
		says string
	}{0: {76, "the command has succeeded, but lock"}, 5: {5, "warning: the release of the lock was not confirmed: lock"}} {
		name := newName(t)
		x := toolFor(t, s, "exec", name, "--ttl", "1h", "--", "sh", "-c", fmt.Sprintf("echo; read x; exit %d", status))
		in := x.input()
		x.start().line()
		redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
		in.Close()
		x.wantEnd(c.want, c.says)
	}
}

// TestExplained: what is said of an error names its server, and no place in a script.
func TestExplained(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "1h", "--", "sh", "-c", "echo; read x; exit 5")
	in := c.input()
	c.start().line()
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	redistest.Do(t, s, "RPUSH", strategy.DefaultKey(name), "no lock")
	in.Close()
	c.wantEnd(5, "the release of the lock was not confirmed: "+s.Addr()+": refused by the server: WRONGTYPE Operation against a key holding the wrong kind of value (TYPE of the lock's key, ")
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))

	const hash = "799ee5a4b0c4a8e7d3c2b1a09f8e7d6c5b4a3f2e"
	for _, words := range []string{ // of Redis 7.0 and 6.2
		"OOM no memory script: " + hash + ", on @user_script:233.",
		"ERR Error running script (call to f_" + hash + "): @user_script:233: @user_script: 233: -OOM no memory",
	} {
		var said lockedBuffer
		e := &execution{name: "n", said: newTeller(&said)}
		e.servers = []address{{at: "10.0.0.1:6379"}}
		j := &job{e: e, lease: lapsed{deadline: time.Now().Add(-time.Minute)}, watcher: &watcher{pid: -1}}
		j.hear(strategy.Event{Kind: strategy.EventRenewalFailed, Err: &strategy.ServerError{Node: driver.Unnamed, Kind: strategy.ErrRefused, Err: redis.Error(words)}})
		e.said.end()
		if want := "held for 0s more: 10.0.0.1:6379: refused by the server: OOM no memory\n"; !strings.HasSuffix(said.String(), want) {
			t.Errorf("of %q it says %q, want %q at the end", words, &said, want)
		}
	}
}

func TestExecMaxHold(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "9s", "--max-hold", "9s", "--", "sh", "-c", "echo $$; exec sleep 60").start()
	c.number()
	c.wantEnd(76, "the maximum hold is over")
	verdict.Eventually(t, "the lock is free", func() bool { return !inspected(t, s, name).Held }) // by the server's clock, too
}

// TestExecUnread: a command is ended when its lock is lost, and when exec is killed, although nobody
// reads what exec and the watcher say.
func TestExecUnread(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, killed := range []bool{true, false} {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--ttl", "12s", "--grace", "100ms", "--", "sh", "-c", stubborn)
		full, unread := fullPipe(t)
		c.Stderr = unread
		group := c.start().number()
		if killed {
			c.kill(syscall.SIGKILL)
		} else {
			redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
		}
		verdict.Eventually(t, "the group is gone", groupEnded(group))
		full.Close() // now what is still to be said cannot be
		unread.Close()
		c.end()
	}
}

// fullPipe is a pipe whose writers wait for ever, if they wait.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 4096); ; {
		if _, err := unix.Write(fd, b); err != nil {
			if len(b) == 1 {
				break
			}
			b = b[:1]
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return r, w
}

// TestExecFiles: the command inherits other open files than the standard streams.
func TestExecFiles(t *testing.T) {
	t.Parallel()
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
		t.Errorf("the command wrote %q (%v), want what it was to write", text, err)
	}
}

// TestExecLeftBehind: what a command leaves in its group ends before the lock is free; what
// has left the group goes on.
func TestExecLeftBehind(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--grace", "300ms", "--", "sh", "-c",
		`(trap '' TERM; while :; do sleep 0.05; done) >/dev/null 2>&1 & echo $$; exit 4`).start()
	group := c.number()
	c.wantEnd(4, "left processes behind")
	if alive(group) {
		t.Error("there is still a process in the group")
	}
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("not proven: that a session of its own outlives the lock; that takes setsid")
	}
	c = toolFor(t, s, "exec", name, "--", "sh", "-c", `setsid sh -c 'echo $$; exec sleep 60 >&- 2>&-' & read x; exit 0`)
	in := c.input()
	daemon := c.start().number()
	in.Close() // the daemon has left the group
	defer syscall.Kill(daemon, syscall.SIGKILL)
	c.wantEnd(0)
	if !alive(daemon) {
		t.Error("a session of its own was ended, too")
	}
}

// TestExecServerDown: at the first attempt that ends it; during a wait it does not, nor
// while the command runs; and at the release the command's status counts.
func TestExecServerDown(t *testing.T) {
	t.Parallel()
	toolFor(t, nil, "exec", "x", "--redis", "127.0.0.1:1", "--", "echo", "ran").start().wantEnd(69, "connection refused")

	s, name := redistest.Own(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}), newName(t)
	ctx := t.Context()
	lease, err := onServer(t, s, strategy.Options{TTL: time.Minute}).NewLock(name).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--", "sh", "-c", "echo in; read x; exit 5")
	in := c.input()
	c.start()
	verdict.Eventually(t, "exec queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
	redistest.Skip(t, s.Kill(ctx), "what exec does when its server dies")
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if line := c.line(); line != "in" {
		t.Errorf("it said %q, want that it got in after the restart", line)
	}
	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	in.Close()
	c.wantEnd(5, "warning: the release of the lock was not confirmed")
}

// TestExecServerAway: a wait covers a server that is away when exec starts, and one that has just started; it
// does not cover what passes only when somebody changes something.
func TestExecServerAway(t *testing.T) {
	t.Parallel()
	s, name := redistest.Own(t, redistest.Config{}), newName(t)
	redistest.Skip(t, s.Kill(t.Context()), "what exec does when its server is away")
	const away = "waiting for the server for up to "
	toolFor(t, s, "exec", name, "--", "echo", "ran").start().wantEnd(69, "connection refused")
	toolFor(t, s, "exec", name, "--wait", "5m", "--fail-fast", "--", "echo", "ran").start().wantEnd(69, "connection refused")
	toolFor(t, s, "exec", name, "--wait", "2s", "--", "echo", "ran").start().wantEnd(69, away, "connection refused")
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--wait", "5m", "--", "echo", "ran")
	said := &lockedBuffer{}
	c.Stderr = said
	c.start()
	verdict.Eventually(t, "exec says that it waits", func() bool { return strings.Contains(said.String(), away+"5m0s: ") })
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := c.wantEnd(0); out != "ran\n" {
		t.Errorf("it printed %q, want ran; it said %s", out, said)
	}
	wantFree(t, s, name)

	refused, unsent := strategy.ErrRefused, strategy.ErrUnsent
	const place = "ERR Error running script (call to f_0123456789012345678901234567890123456789): @user_script:12: @user_script: 12: " // Redis 6.2
	for _, tt := range []struct {
		kind, reason error
		covered      bool
	}{
		{refused, redis.Error("LOADING Redis is loading"), true},
		{refused, redis.Error(place + "-READONLY You can't write against a read only replica."), true},
		{refused, redis.Error("NOPERM no"), false},
		{refused, redis.Error(place + "-NOPERM no"), false},
		{refused, &redlock.GuardError{Reason: redlock.ReasonRestarted, For: time.Second}, true},
		{unsent, &net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		{unsent, &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, false},
	} {
		e := execution{wait: time.Minute}
		err := &strategy.ServerError{Kind: tt.kind, Err: tt.reason}
		if e.outlasts(err) != tt.covered {
			t.Errorf("a wait covers %v: %t", err, !tt.covered)
		}
	}
	redistest.Do(t, s, "CONFIG", "SET", "requirepass", "secret")
	toolFor(t, s, "exec", name, "--wait", "5m", "--", "echo", "ran").start().wantEnd(69, "NOAUTH")
}

// TestExecWaitEnds: exec ends when the time of --wait is over, or at most half a second later, though the server does
// not answer any more, and the last undo is not confirmed.
func TestExecWaitEnds(t *testing.T) {
	for _, wait := range []time.Duration{100 * time.Millisecond, 2 * time.Second, 6 * time.Second, time.Minute} {
		for answers, want := range map[int]int{0: exitUnavailable, 1: exitUnavailable, 2: exitUnavailable, 1000: exitHeld} {
			t.Run(fmt.Sprintf("%v, %d answers", wait, answers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var said lockedBuffer
					e := execution{name: "n", wait: wait, ttl: usualTTL, conflict: exitHeld, quiet: true, said: newTeller(&said)}
					o := options(e.ttl)
					o.RetryOnError = true
					s, err := engine.New(&freezing{answers: answers, first: min(wait/4, time.Second)}, o)
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					lease, err := e.obtain(t.Context(), s, o.OpTimeout)
					took := time.Since(began)
					var end *cli.Exit
					if !errors.As(err, &end) || end.Status != want || lease != nil {
						t.Errorf("it ends with %v, want status %d", err, want)
					}
					if took < wait || took > wait+500*time.Millisecond {
						t.Errorf("it ends after %v, want %v to 500ms more", took, wait)
					}
					time.Sleep(48 * time.Hour) // the undo is given up
					e.said.end()
				})
			})
		}
	}
}

// TestExecGrantedTooLate: a grant that comes when exec has given up is given back, with the mark of --at-least. So is the
// lock, if it is the mark that comes late. Exec ends its strategy after that.
func TestExecGrantedTooLate(t *testing.T) {
	const over = 2*time.Second + answerPatience
	for late, takes := range map[string]map[string]time.Duration{
		"the lock": {"n": over + time.Millisecond},
		"the mark": {"n": over - 300*time.Millisecond, "n" + markSuffix: 301 * time.Millisecond},
	} {
		t.Run(late, func(t *testing.T) { grantedTooLate(t, takes) })
	}
}

func grantedTooLate(t *testing.T, takes map[string]time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var server lockstest.Memory
		o := options(usualTTL)
		s, err := engine.New(&server, o)
		if err != nil {
			t.Fatal(err)
		}
		const wait, atLeast = 2 * time.Second, 2 * time.Second // less than an operation may take
		server.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
			err := serve()
			if c := r.Claims[0]; r.Op == lockstest.OpAcquire && c.Name == "n"+markSuffix && c.TTL != atLeast {
				t.Errorf("the mark is for %v, want %v, though the lock's TTL is longer", c.TTL, atLeast)
			}
			if r.Op == lockstest.OpAcquire {
				time.Sleep(takes[r.Claims[0].Name])
			}
			return err
		})
		e := execution{name: "n", wait: wait, ttl: usualTTL, atLeast: atLeast, said: newTeller(io.Discard)}
		lease, err := e.obtain(t.Context(), s, o.OpTimeout)
		var end *cli.Exit
		if !errors.As(err, &end) || end.Status != exitUnavailable || lease != nil {
			t.Errorf("it ends with %v, want status %d", err, exitUnavailable)
		}
		if n := server.Requests(lockstest.OpAcquire); n != 2 {
			t.Errorf("there were %d grants, want that of the lock and that of the mark", n)
		}
		for _, name := range []string{"n", "n" + markSuffix} {
			if info, err := server.Inspect(t.Context(), driver.Claim{Key: strategy.DefaultKey(name)}); err != nil || info.Held {
				t.Errorf("%s is held after exec gave up: %t, %v", name, info.Held, err)
			}
		}
		e.said.end()
	})
}

// TestExecWaitOver: where the time of --wait is over before exec can ask again, the first answer counts.
func TestExecWaitOver(t *testing.T) {
	held := &strategy.HeldError{Name: "n", Holder: "another"}
	away := &strategy.ServerError{Node: "s", Kind: strategy.ErrUnsent}
	for _, tt := range []struct{ first, then, want error }{
		{held, context.DeadlineExceeded, strategy.ErrHeld},
		{away, context.DeadlineExceeded, strategy.ErrUnsent},
		{held, fmt.Errorf("%w: %w", away, context.DeadlineExceeded), strategy.ErrUnsent},
		{away, fmt.Errorf("%w: %w", held, context.DeadlineExceeded), strategy.ErrHeld},
		{held, strategy.ErrClosed, strategy.ErrClosed},
	} {
		e := execution{name: "n", wait: time.Minute, until: time.Now().Add(time.Minute), quiet: true}
		_, err := e.await(t.Context(), answers{tt.first, tt.then})
		for _, kind := range []error{strategy.ErrHeld, strategy.ErrUnsent, strategy.ErrClosed} {
			if errors.Is(err, kind) != (kind == tt.want) {
				t.Errorf("after %v and %v exec ends with %v, want %v", tt.first, tt.then, err, tt.want)
			}
		}
	}
}

// answers are those of a lock to exec's first question, and to its wait.
type answers struct{ first, then error }

func (answers) Name() string                                         { return "n" }
func (answers) Key() string                                          { return "n" }
func (a answers) TryAcquire(context.Context) (strategy.Lease, error) { return nil, a.first }
func (a answers) Acquire(context.Context) (strategy.Lease, error)    { return nil, a.then }

// A freezing protocol says that another holds the lock, so many times. Then it answers nothing.
type freezing struct {
	driver.Unsupported
	mu      sync.Mutex
	answers int
	first   time.Duration // that the first answer takes
}

func (f *freezing) answer(c driver.Claim, held error) error {
	f.mu.Lock()
	f.answers--
	answers, first := f.answers >= 0, f.first
	f.first = 0
	f.mu.Unlock()
	time.Sleep(first)
	if answers {
		return held
	}
	<-time.After(time.Until(c.Due)) // whatever the context says: so does a Node that reads the reply
	return &strategy.ServerError{Node: "frozen", Kind: strategy.ErrUnknown}
}

func (f *freezing) Acquire(_ context.Context, c driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, f.answer(c, &strategy.HeldError{Name: c.Name, Holder: "another", TTL: time.Hour})
}

func (f *freezing) Extend(_ context.Context, c driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, f.answer(c, &strategy.LostError{Name: c.Name})
}

func (f *freezing) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, f.Undo(ctx, c)
}

func (f *freezing) Undo(_ context.Context, c driver.Claim) error {
	return f.answer(c, &strategy.LostError{Name: c.Name})
}

// A lockedBuffer is written to by one goroutine and read by another.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestExecPipeBroken: nobody reads its warnings any more, and it does its work.
func TestExecPipeBroken(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--", "sh", "-c", "echo $$; exec sleep 60")
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
		t.Error("there is still a process in the group")
	}
}

// TestReadme runs what the README tells to type.
func TestReadme(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{})
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "## The tool")
	_, rest, ok2 := strings.Cut(rest, "```sh\n")
	block, _, ok3 := strings.Cut(rest, "```\n")
	if !ok || !ok2 || !ok3 {
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
		"locks":     fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", self),
		"import.sh": "#!/bin/sh\necho imports under $LOCKS_NAME\n",
		"deploy.sh": "#!/bin/sh\necho deploys under $LOCKS_NAME\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-euc", strings.ReplaceAll(block, url, s.URL()))
	cmd.Dir = dir
	cmd.Env = append(clitest.Command(t).Env, "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"imports under nightly\n", "deploys under deploy/web\n", "held by  nobody\n", "lock deploy/web is free\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, there is no %q in\n%s", err, want, out)
		}
	}
}
