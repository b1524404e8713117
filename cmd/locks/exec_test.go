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

// TestExecStatus: also of a command of which only the kernel finds out that it cannot be executed, when the lock is held.
func TestExecStatus(t *testing.T) {
	t.Parallel()
	s, dir := redistest.Shared(t), t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		redistest.Must(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	for _, c := range []struct {
		code    int
		says    []string
		command []string
	}{
		{0, nil, []string{"true"}},
		{7, nil, []string{"sh", "-c", "exit 7"}},
		{255, nil, []string{"sh", "-c", "exit 255"}},
		{137, nil, []string{"sh", "-c", "kill -9 $$"}},
		{128 + int(syscall.SIGUSR1), nil, []string{"sh", "-c", "kill -USR1 $$"}},
		{127, []string{"command not found"}, []string{"there-is-no-such-command"}},
		{127, []string{"command not found"}, []string{"/there/is/none"}},
		{126, []string{"permission denied"}, []string{file("plain", "x", 0o600)}},
		{126, []string{"is a directory"}, []string{os.TempDir()}},
		{126, []string{"exec format error"}, []string{file("empty", "\x00", 0o700)}},
		{127, []string{"no such file"}, []string{file("lost", "#!/there/is/none\n", 0o700)}},
	} {
		name := newName(t)
		toolFor(t, s, append([]string{"exec", name, "--"}, c.command...)...).start().wantEnd(c.code, c.says...)
		wantFree(t, s, name)
	}
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
	lease := acquire(t, s, name, strategy.Options{Label: strategy.Holder{Host: "elsewhere", PID: 42, Label: "x"}.String()})
	const who = `is held by elsewhere, process 42, "x", for `
	toolFor(t, s, "exec", name, "--try", "--", "echo", "ran").start().wantEnd(75, who)
	toolFor(t, s, "exec", name, "-n", "-E", "0", "echo", "ran").start().wantEnd(0, who)
	began := time.Now()
	if out := toolFor(t, s, "exec", name, "-v", "-w", "1.5", "echo", "ran").start().wantEnd(75, "locks: waiting: lock ", who); out != "" {
		t.Errorf("it ran: %q", out)
	}
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("it waited %v, want 1.5s", took)
	}
	waiting := toolFor(t, s, "exec", name, "--", "echo", "ran").start()
	queues(t, s, name)
	redistest.Must(t, lease.Release(t.Context()))
	if out := waiting.wantEnd(0); out != "ran\n" {
		t.Errorf("it printed %q, want ran", out)
	}
}

// TestExecSpelling: the command needs no --, flags may stand before and after the name, what follows the
// command is its own (without -- no long flag that exec has, too: see TestMisuse), -n and -w are those of flock, and times may be plain seconds.
func TestExecSpelling(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	for _, args := range []string{
		"exec NAME echo -n -v --trying", "exec NAME -- echo -n -v --try", "exec -n NAME echo -n -v -- --try", "exec NAME --wait 10 -q -- echo -n -v --try",
		"exec -w 60.5 NAME --ttl 20 --grace 1m echo -n -v --tr",
	} {
		words := strings.Fields(args)
		words[slices.Index(words, "NAME")] = name
		_, want, _ := strings.Cut(args, "echo -n ")
		if out := toolFor(t, s, words...).start().wantEnd(0); out != want {
			t.Errorf("%s: it printed %q, want what echo makes of its arguments", args, out)
		}
	}
	if out := toolFor(t, s, "exec", name, "--no-redis-env", "sh", "-c", `echo "${REDIS_URL-none}"`).start().wantEnd(0); out != "none\n" {
		t.Errorf("with --no-redis-env it printed %q, want none", out)
	}
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
	key, mark := strategy.DefaultKey(name), strategy.DefaultKey(name+"/at-least")
	again := func(code int, want string, says ...string) {
		t.Helper()
		if out := toolFor(t, s, "exec", name, "--try", "--at-least", "1h", "--", "echo", "ran").start().wantEnd(code, says...); out != want {
			t.Errorf("it printed %q, want %q", out, want)
		}
		if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
			t.Error("the lock is left")
		}
	}
	marked := "lock \"" + name + "/at-least\" is held by "
	again(0, "ran\n")
	again(75, "", marked, "for 59m")
	again(75, "", marked, "for 59m")
	toolFor(t, s, "exec", name, "--try", "--", "true").start().wantEnd(0)

	redistest.Do(t, s, "DEL", mark) // as when its time has come
	killed := hold(t, s, 0, name, "--ttl", "1s", "--at-least", "1h")
	killed.kill(syscall.SIGKILL)
	killed.end()
	verdict.Eventually(t, "the lock has lapsed", func() bool { return redistest.Do(t, s, "EXISTS", key) == int64(0) })
	again(75, "", marked)

	redistest.Do(t, s, "DEL", mark)
	script := filepath.Join(t.TempDir(), "script")
	redistest.Must(t, os.WriteFile(script, []byte("#!/nowhere/interpreter\n"), 0o700))
	toolFor(t, s, "exec", name, "--try", "--at-least", "1h", "--", script).start().wantEnd(127, script)
	if n := redistest.Do(t, s, "EXISTS", mark, key); n != int64(0) {
		t.Errorf("%v keys are left by an exec that could not start its command, want 0", n)
	}
	redistest.Do(t, s, "RPUSH", mark, "no lock")
	again(69, "", "WRONGTYPE")
	redistest.Do(t, s, "DEL", mark)
}

// TestExecPermits: as many commands run at a time as there are permits.
func TestExecPermits(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	first, second := hold(t, s, 0, name, "--permits", "2"), hold(t, s, 0, name, "--permits", "2")
	toolFor(t, s, "exec", name, "--permits", "2", "--try", "--", "echo", "ran").start().wantEnd(75, "is held by ", "; 2 of 2 permits are taken")
	third := toolFor(t, s, "exec", name, "--permits", "2", "--", "echo", "ran").start()
	first.in.Close()
	first.wantEnd(0)
	if out := third.wantEnd(0); out != "ran\n" {
		t.Errorf("the third printed %q", out)
	}
	second.in.Close()
	second.wantEnd(0)
	if out := toolFor(t, s, "inspect", name, "--strategy", "semaphore").start().wantEnd(0); !strings.Contains(out, "held by  nobody\n") {
		t.Errorf("in the end inspect says\n%s", out)
	}
}

// TestExecReadWrite: several read at the same time, and who writes is alone.
func TestExecReadWrite(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	refuses := func(flag string) {
		t.Helper()
		toolFor(t, s, "exec", name, flag, "--try", "--", "echo", "ran").start().wantEnd(75, "is held by ")
	}
	readers := []*tool{hold(t, s, 0, name, "--read"), hold(t, s, 0, name, "--read")}
	refuses("--write")
	for command, want := range map[string]string{"inspect": "\nholds    2\n", "list": ", and 2 holds in all\n"} {
		if out := toolFor(t, s, command, name, "--strategy", "rwlock").start().wantEnd(0); !strings.Contains(out, want) {
			t.Errorf("while two read, %s says\n%s", command, out)
		}
	}
	for _, reader := range readers {
		reader.in.Close()
		reader.wantEnd(0)
	}
	writer := hold(t, s, 0, name, "--write")
	refuses("--read")
	refuses("--write")
	writer.in.Close()
	writer.wantEnd(0)
}

// TestExecKinds: a lock that several may hold excludes nobody of another kind, so exec refuses it and says what is there.
func TestExecKinds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, c := range []struct{ holder, other, says string }{
		{"--write", "--permits 5", "holds a read-write lock"}, {"--write", "--strategy reentrant", "not of a reentrant lock"},
		{"--read", "--permits 5", "holds a read-write lock"}, {"--read", "--strategy fairqueue", "not of a fairqueue lock"},
		{"--permits 5", "--read", "holds the permits of a semaphore"}, {"--permits 5", "--write", "holds the permits of a semaphore"},
		{"--ttl 30", "--permits 5", "not of a semaphore lock"}, {"--ttl 30", "--read", "not of a rwlock lock"},
	} {
		name := newName(t)
		holder := hold(t, s, 0, append([]string{name}, strings.Fields(c.holder)...)...)
		for _, wait := range []string{" --try", " --wait 1m"} {
			args := append(strings.Fields("exec "+c.other+wait), name, "echo", "ran")
			if out := toolFor(t, s, args...).start().wantEnd(69, c.says, "give the --strategy of the lock's holder"); out != "" {
				t.Errorf("exec %s next to exec %s printed %q", c.other, c.holder, out)
			}
		}
		holder.in.Close()
		holder.wantEnd(0)
	}
}

// TestExecEnvironment: of each strategy; and that the standard streams are the command's.
func TestExecEnvironment(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms() {
		t.Run(a.name, func(t *testing.T) {
			args := append([]string{"exec", newName(t), "--ttl", "20s"}, onServers(t, a)...)
			t.Parallel()
			args = append(args, "--", "sh", "-c", `read line; echo "$line,$LOCKS_NAME,$LOCKS_TOKEN,${LOCKS_FENCE-none},$LOCKS_DEADLINE"`)
			var last uint64
			for range 2 {
				c := toolFor(t, nil, args...)
				c.Env = append(c.Env, "LOCKS_FENCE=1", "LOCKS_TOKEN=of another")
				c.Stdin = strings.NewReader("spoken\n")
				got := strings.Split(c.start().line(), ",")
				if got[0] != "spoken" || got[1] != args[1] || !strings.Contains(got[2], "/"+strconv.Itoa(c.Process.Pid)) {
					t.Errorf("it has read, and has the name and the token, %q, want spoken, %s and one of process %d", got[:3], args[1], c.Process.Pid)
				}
				fenced := slices.Contains([]string{"luascript", "fairqueue", "reentrant", withPermits, withReaders, "redlock-fenced"}, a.name)
				n, err := strconv.ParseUint(got[3], 10, 64)
				if fenced && (err != nil || n <= last) || !fenced && got[3] != "none" {
					t.Errorf("LOCKS_FENCE is %q after %d", got[3], last)
				}
				last = n
				deadline, err := time.Parse(time.RFC3339Nano, got[4])
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
		group := c.begin().number()
		c.line()
		io.WriteString(c.in, "cat\n")
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
	needsProc(t)
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--", "sh", "-c", "echo $$; exec sleep 60")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	group := c.start().number()
	stopped := func() bool { state, _ := statOf(group); return state == "T" }
	left := func() int64 { return redistest.Do(t, s, "PTTL", strategy.DefaultKey(name)).(int64) }
	c.kill(unix.SIGTSTP)
	verdict.Eventually(t, "the command is stopped", stopped)
	before := left()
	verdict.Eventually(t, "the lock is renewed while the command is stopped", func() bool { return left() > before })
	c.kill(unix.SIGCONT)
	verdict.Eventually(t, "the command runs again", func() bool { return !stopped() })
	c.kill(unix.SIGTERM)
	c.wantEnd(143)
}

// TestExecContinues: SIGCONT goes to the command while the lock is held. A command whose lock is lost gets the signal to end
// first, and then goes on, so that it can end. The watcher leaves exec the time for that.
func TestExecContinues(t *testing.T) {
	needsProc(t)
	command, ended := sleeper(t)
	pid := command.Process.Pid
	stopped := func() bool { state, _ := statOf(pid); return state == "T" }
	stop := func() {
		redistest.Must(t, unix.Kill(pid, unix.SIGSTOP))
		verdict.Eventually(t, "the command is stopped", stopped)
	}
	stop()
	newJob(pid, lapsed{held: true}, io.Discard).pass(unix.SIGCONT)
	verdict.Eventually(t, "the command goes on", func() bool { return !stopped() })
	stop()
	r, w, err := os.Pipe()
	redistest.Must(t, err)
	defer r.Close()
	j := newJob(pid, lapsed{}, io.Discard)
	j.e.grace, j.watcher.pipe = time.Hour, w
	if j.pass(unix.SIGCONT); !stopped() {
		t.Error("a command whose lock is lost goes on before it is ended")
	}
	j.end()
	j.end() // the grace goes on
	within(t, "the command ends", ended)
	w.Close()
	if heard, err := io.ReadAll(r); err != nil || string(heard) != "left 3602000\n" {
		t.Errorf("the watcher hears %q, %v, want that it has the grace, and two seconds more", heard, err)
	}
}

// TestExecLosesWhatIsLeft: a loss counts also while what the command has left behind is being ended, though the command
// itself ended in time.
func TestExecLosesWhatIsLeft(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	command, ended := sleeper(t, "sh", "-c", "trap '' TERM; mkdir '"+ready+"'; exec sleep 600")
	verdict.Eventually(t, "SIGTERM does not end it", func() bool { _, err := os.Stat(ready); return err == nil })
	notes, note, err := os.Pipe()
	redistest.Must(t, err)
	defer note.Close()
	fmt.Fprintln(note, int64(monotonic()))
	var said lockedBuffer
	lease := lapsed{held: true, deadline: time.Now().Add(time.Hour), lost: make(chan struct{})}
	j := newJob(command.Process.Pid, lease, &said)
	j.watcher.notes = notes
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
	command.Process.Kill()
	<-ended
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
	j := newJob(command.Process.Pid, lapsed{deadline: time.Now()}, io.Discard)
	defer j.e.said.end()
	j.replaceWatcher()
	within(t, "the command ends after the deadline", ended)
	j.watcher.stop()
	unix.Wait4(j.watcher.pid, nil, 0, nil)
}

// TestExecInterrupted: a signal ends the wait, and leaves nothing behind.
func TestExecInterrupted(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	lease := acquire(t, s, name, strategy.Options{})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		c := toolFor(t, s, "exec", name, "--", "echo", "ran").start()
		queues(t, s, name)
		c.kill(sig)
		if out := c.wantEnd(128+int(sig), "gave up after"); out != "" {
			t.Errorf("%v: it ran: %q", sig, out)
		}
		if info := inspected(t, s, name); len(info.Queue) > 0 {
			t.Errorf("%v: it still queues: %q", sig, info.Queue)
		}
	}
	redistest.Must(t, lease.Release(t.Context()))
	wantFree(t, s, name)
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

// TestExplained: what is said of an error names its server, and no place in a script. A loss that is found out at the
// release counts where the command would have counted as a success.
func TestExplained(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	key := strategy.DefaultKey(name)
	c := hold(t, s, 0, name, "--ttl", "1h")
	redistest.Do(t, s, "DEL", key)
	c.in.Close()
	c.wantEnd(76, "the command has succeeded, but lock")
	c = hold(t, s, 5, name, "--ttl", "1h")
	redistest.Do(t, s, "DEL", key)
	redistest.Do(t, s, "RPUSH", key, "no lock")
	c.in.Close()
	c.wantEnd(5, "the release of the lock was not confirmed: "+s.Addr()+": refused by the server: WRONGTYPE Operation against a key holding the wrong kind of value (TYPE of the lock's key, ")
	redistest.Do(t, s, "DEL", key)

	for _, words := range []string{ // of Redis 7.0 and 6.2
		"OOM no memory script: " + sha + ", on @user_script:233.",
		"ERR Error running script (call to f_" + sha + "): @user_script:233: @user_script: 233: -OOM no memory",
	} {
		var said lockedBuffer
		j := newJob(0, lapsed{deadline: time.Now().Add(-time.Minute)}, &said)
		j.e.servers = []address{{at: "10.0.0.1:6379"}}
		j.hear(strategy.Event{Kind: strategy.EventRenewalFailed, Err: &strategy.ServerError{Node: driver.Unnamed, Kind: strategy.ErrRefused, Err: redis.Error(words)}})
		j.e.said.end()
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
// reads what exec and the watcher say, or nobody can.
func TestExecUnread(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, c := range []struct{ killed, closed bool }{{true, false}, {false, false}, {false, true}} {
		name := newName(t)
		x := toolFor(t, s, "exec", name, "--ttl", "12s", "--grace", "100ms", "--", "sh", "-c", stubborn)
		full, unread := fullPipe(t)
		x.Stderr = unread
		group := x.start().number()
		if c.closed {
			full.Close()
		}
		if c.killed {
			x.kill(syscall.SIGKILL)
		} else {
			redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
		}
		wantEnded(t, group)
		full.Close() // now what is still to be said cannot be
		unread.Close()
		if _, code := x.end(); !c.killed && code != 76 {
			t.Errorf("exit %d, want 76", code)
		}
	}
}

// fullPipe is a pipe whose writers wait for ever, if they wait.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	redistest.Must(t, err)
	fd := int(w.Fd())
	redistest.Must(t, unix.SetNonblock(fd, true))
	for size := 4096; size > 0; {
		if _, err := unix.Write(fd, make([]byte, size)); err != nil {
			size /= 2
		}
	}
	redistest.Must(t, unix.SetNonblock(fd, false))
	return r, w
}

// TestExecFiles: the command inherits other open files than the standard streams.
func TestExecFiles(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	r, w, err := os.Pipe()
	redistest.Must(t, err)
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
	c = toolFor(t, s, "exec", name, "--", "sh", "-c", `setsid sh -c 'echo $$; exec sleep 60 >&- 2>&-' & read x; exit 0`).begin()
	daemon := c.number()
	c.in.Close() // the daemon has left the group
	defer syscall.Kill(daemon, syscall.SIGKILL)
	c.wantEnd(0)
	if !alive(daemon) {
		t.Error("a session of its own was ended, too")
	}
}

// TestExecServerAway: a wait covers a server that is away when exec starts, and one that has just started; it does not cover
// what passes only when somebody changes something. A server that goes away ends neither a wait that has begun nor the
// command, and at the release the command's status counts.
func TestExecServerAway(t *testing.T) {
	t.Parallel()
	s, name := redistest.Own(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}), newName(t)
	lease := acquire(t, s, name, strategy.Options{TTL: time.Hour})
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--", "sh", "-c", "echo in; read x; exit 5").begin()
	queues(t, s, name)
	redistest.Skip(t, s.Kill(t.Context()), "what exec does when its server is away")
	redistest.Must(t, s.Restart(t.Context()))
	redistest.Must(t, lease.Release(t.Context()))
	if line := c.line(); line != "in" {
		t.Errorf("it said %q, want that it got in after the restart", line)
	}
	redistest.Must(t, s.Kill(t.Context()))
	c.in.Close()
	c.wantEnd(5, "warning: the release of the lock was not confirmed")

	const away = "waiting for the server for up to "
	toolFor(t, s, "exec", name, "--", "echo", "ran").start().wantEnd(69, "connection refused")
	toolFor(t, s, "exec", name, "--wait", "5m", "--fail-fast", "--", "echo", "ran").start().wantEnd(69, "connection refused")
	toolFor(t, s, "exec", name, "--wait", "2s", "--", "echo", "ran").start().wantEnd(69, away, "connection refused")
	name = newName(t)
	c = toolFor(t, s, "exec", name, "--ttl", "1m", "--wait", "5m", "--", "echo", "ran")
	said := &lockedBuffer{}
	c.Stderr = said
	c.start()
	verdict.Eventually(t, "exec says that it waits", func() bool { return strings.Contains(said.String(), away+"5m0s: ") })
	redistest.Must(t, s.Restart(t.Context()))
	if out := c.wantEnd(0); out != "ran\n" {
		t.Errorf("it printed %q, want ran; it said %s", out, said)
	}
	wantFree(t, s, name)
	redistest.Do(t, s, "CONFIG", "SET", "requirepass", "secret")
	toolFor(t, s, "exec", name, "--wait", "5m", "--", "echo", "ran").start().wantEnd(69, "NOAUTH")
}

// TestExecOutlasts: what a wait covers that begins with a failure.
func TestExecOutlasts(t *testing.T) {
	refused, unsent := strategy.ErrRefused, strategy.ErrUnsent
	const place = "ERR Error running script (call to f_" + sha + "): @user_script:12: @user_script: 12: " // Redis 6.2
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
					redistest.Must(t, err)
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
	const wait, atLeast = 2 * time.Second, 2 * time.Second // less than an operation may take
	const over = wait + answerPatience
	for late, takes := range map[string]map[string]time.Duration{
		"the lock": {"n": over + time.Millisecond},
		"the mark": {"n": over - 300*time.Millisecond, "n" + markSuffix: 301 * time.Millisecond},
	} {
		t.Run(late, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var server lockstest.Memory
				o := options(usualTTL)
				s, err := engine.New(&server, o)
				redistest.Must(t, err)
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
		})
	}
}

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

// TestReadme runs what the README tells to type.
func TestReadme(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{})
	readme, err := os.ReadFile("../../README.md")
	redistest.Must(t, err)
	_, rest, _ := strings.Cut(string(readme), "## The tool")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	block, _, found := strings.Cut(rest, "```\n")
	const url = "redis://localhost:6379"
	if !found || !strings.Contains(block, url) {
		t.Fatalf("the README has no block of the tool with %s: %q", url, block)
	}
	dir, c := t.TempDir(), toolFor(t, nil)
	for name, text := range map[string]string{
		"locks":     fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", c.Path),
		"import.sh": "#!/bin/sh\necho imports under $LOCKS_NAME\n",
		"deploy.sh": "#!/bin/sh\necho deploys under $LOCKS_NAME\n",
	} {
		redistest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	cmd := exec.Command("sh", "-euc", strings.ReplaceAll(block, url, s.URL()))
	cmd.Dir, cmd.Env = dir, append(c.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"imports under nightly\n", "deploys under deploy/web\n", "held by  nobody\n", "lock deploy/web is free\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, there is no %q in\n%s", err, want, out)
		}
	}
}
