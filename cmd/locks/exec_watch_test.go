//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests what becomes of the command when exec is killed or paused, or its starter or watcher dies.
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// TestExecKilled: the group does not outlive exec, and the lock keeps its TTL.
func TestExecKilled(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	c.kill(syscall.SIGKILL)
	out, _ := c.end()
	if strings.ReplaceAll(out, "told\n", "") != "" || out == "" { // by the kernel, too, at the end of each thread of exec
		t.Errorf("the command said %q, want that it got the signal", out)
	}
	if !strings.Contains(c.errs.String(), "the process that held the lock is gone; ending the command") {
		t.Errorf("on stderr is %q", c.errs)
	}
	verdict.Eventually(t, "the group is gone", groupEnded(group))
	if ttl := inspected(t, s, name).TTL; ttl <= 0 || ttl > time.Minute {
		t.Errorf("the lock goes in %v, want what is left of a minute", ttl)
	}
}

// TestExecKilledAtTheStart: nothing outlives exec, whatever exec was about to do.
func TestExecKilledAtTheStart(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	tools := make([]*tool, 16)
	for i := range tools {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "20ms", "--", "sh", "-c", stubborn).start()
		if i%2 == 0 {
			verdict.Eventually(t, "it holds the lock", func() bool {
				held, err := redis.Bool(redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)), nil)
				redistest.Must(t, err)
				return held
			})
			<-time.After(rand.N(30 * time.Millisecond)) // while it starts its watcher and the command
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

// TestExecStarterFirst: a signal that comes before the starter has executed the command waits for
// that. The starter, a Go program, would swallow SIGUSR1.
func TestExecStarterFirst(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	lease, err := onServer(t, s, strategy.Options{TTL: time.Minute}).NewLock(newName(t)).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "starter"), os.NewFile(uintptr(pair[1]), "exec")
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	command := exec.Command("sleep", "60")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Process.Kill()

	signals := make(chan os.Signal, 1)
	j := &job{
		e: &execution{}, lease: lease, leader: command.Process.Pid, tty: &terminal{fd: -1}, signals: signals,
		starter: &starter{socket: ours, executed: make(chan struct{})}, watcher: &watcher{pid: -1}, changes: make(chan change),
	}
	signals <- syscall.SIGUSR1
	j.starter.start()
	over := make(chan struct{})
	go func() {
		defer close(over)
		j.run()
	}()
	for range 100 { // of another process; run would have read the signal between two
		j.changes <- change{pid: 1}
	}
	if len(signals) == 0 {
		t.Error("the signal was passed to the starter, want that it waits for the command")
	}
	theirs.Close() // as execve does
	command.Wait()
	status := command.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signal() != syscall.SIGUSR1 {
		t.Errorf("the command ended by %v, want SIGUSR1", command.ProcessState)
	}
	j.changes <- change{j.leader, unix.WaitStatus(status)}
	<-over
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

// TestExecWatcherReplaced: exec starts another watcher when the first was killed. It leaves the command the same grace.
func TestExecWatcherReplaced(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "1m", "--", "sh", "-c",
		`trap 'sleep 1.5; echo saved; exit' TERM; echo $$; while :; do sleep 0.05; done`).start()
	group := c.number()
	first, begun := watcherOf(t, c.Process.Pid), time.Now()
	verdict.Eventually(t, "the watcher is so old that it is replaced", func() bool { return time.Since(begun) > watchSlack })
	syscall.Kill(first, syscall.SIGKILL)
	verdict.Eventually(t, "there is another watcher", func() bool { w := watcherOf(t, c.Process.Pid); return w != 0 && w != first })
	c.kill(syscall.SIGKILL)
	if out, _ := c.end(); out != "saved\n" {
		t.Errorf("the command said %q, want that it had the time to save its work", out)
	}
	verdict.Eventually(t, "the group is gone", groupEnded(group))
}

// watcherOf is exec's; 0: there is none.
func watcherOf(t *testing.T, pid int) int {
	t.Helper()
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("not proven: that takes /proc")
	}
	for _, child := range strings.Fields(allChildren(pid)) {
		if line, _ := os.ReadFile("/proc/" + child + "/cmdline"); strings.Contains(string(line), watchName) {
			n, _ := strconv.Atoi(child)
			return n
		}
	}
	return 0
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
		w := watch{said: newTeller(io.Discard), endOf: never}
		w.run(strings.NewReader(fmt.Sprintf("group %d\nleft 60000\n", c.Process.Pid)))
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Errorf("after %v it still watches a group that is gone", patience)
	}
}

// TestExecPaused: the command does not outlive the lock of an exec that is paused.
func TestExecPaused(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "9s", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	c.kill(syscall.SIGSTOP)
	verdict.Eventually(t, "the group is gone", groupEnded(group))
	c.kill(syscall.SIGCONT)
	c.wantEnd(76, "is paused, and its deadline is over")
}

// TestExecEndsWhilePaused: the command ended by itself while exec was paused and the lock was held. Its status
// counts, and nobody says that it was ended.
func TestExecEndsWhilePaused(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	verdict.Conclusive(t, func() verdict.Slow {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--ttl", "12s", "--", "sh", "-c", "echo $$; read x; exit 7")
		in := c.input()
		c.start()
		group := c.number()
		c.kill(syscall.SIGSTOP)
		verdict.Eventually(t, "exec is paused", func() bool { return allStopped(t, c.Process.Pid) })
		in.Close()
		verdict.Eventually(t, "the command has ended", func() bool { state, _ := statOf(group); return state == "Z" })
		left := redistest.Do(t, s, "PTTL", strategy.DefaultKey(name)).(int64)
		verdict.Eventually(t, "the lock has lapsed", func() bool {
			return redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)) == int64(0)
		})
		c.kill(syscall.SIGCONT)
		if left < 6000 {
			c.end()
			return verdict.Slowf("%d ms of the TTL were left when the command had ended, want 6 s, in which the watcher notes it", left)
		}
		const lapsed = "the release of the lock was not confirmed"
		c.wantEnd(7, lapsed, "its deadline came")
		if said := c.errs.String(); strings.Count(said, "\n") != 1 {
			t.Errorf("on stderr is %q, want nothing but that %s", said, lapsed)
		}
		return ""
	})
}

// TestExecPausedPastItsWait: an exec that was paused until --wait was over says that the lock is held, and not that the
// server does not answer: it was not there to listen.
func TestExecPausedPastItsWait(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	verdict.Conclusive(t, func() verdict.Slow {
		name := newName(t)
		holder := onServer(t, s, strategy.Options{TTL: time.Minute})
		if _, err := holder.NewLock(name).TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		over := time.Now().Add(3 * time.Second)
		c := toolFor(t, s, "exec", name, "--wait", "3s", "--", "echo", "ran").start()
		verdict.Eventually(t, "exec queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
		c.kill(syscall.SIGSTOP)
		verdict.Eventually(t, "exec is paused", func() bool { return allStopped(t, c.Process.Pid) })
		paused := time.Now()
		verdict.Eventually(t, "its wait is over", func() bool { return time.Since(over) > time.Second })
		c.kill(syscall.SIGCONT)
		resumed := time.Now()
		if _, code := c.end(); code != exitHeld || !strings.Contains(c.errs.String(), "is held") {
			switch took := time.Since(resumed); {
			case paused.After(over):
				return verdict.Slowf("it was paused %v after its wait", paused.Sub(over))
			case took > answerPatience/2:
				return verdict.Slowf("it ended %v after the pause", took)
			}
			t.Errorf("exit %d, want %d; it said\n%s", code, exitHeld, c.errs)
		}
		return ""
	})
}

// allStopped reports whether all threads of a process are.
func allStopped(t *testing.T, pid int) bool {
	t.Helper()
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("not proven: that takes /proc")
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return !slices.ContainsFunc(threads, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && !strings.Contains(string(text), ") T ")
	})
}

// lapsed is the lease of an exec that was paused: its deadline has come.
type lapsed struct {
	strategy.Lease
	deadline time.Time
	lost     chan struct{}
	asked    chan struct{} // gets a value when somebody asks for Err
	evicted  bool          // before its deadline
}

func (l lapsed) Deadline() time.Time   { return l.deadline }
func (l lapsed) Lost() <-chan struct{} { return l.lost }
func (l lapsed) Err() error {
	select {
	case l.asked <- struct{}{}:
	default:
	}
	return &strategy.LostError{Name: "n", Lapsed: !l.evicted}
}

// TestExecEndedInTime: the lock is not lost if the command ended before the deadline, as far as the watcher has noted
// that, and has left nothing behind that runs without the lock. When exec is continued, it may hear of the loss first,
// or of the command's end.
func TestExecEndedInTime(t *testing.T) {
	const ending, ended = "ending the command: SIGTERM, and after 1m0s SIGKILL", "the command has ended, too"
	const behind = "the command has left processes behind: ending them"
	for _, c := range []struct {
		name      string
		lossFirst bool
		ago       time.Duration // when the watcher saw the end; 0: it has not
		behind    bool
		says      string // after the loss; empty: nothing is said
		evicted   bool
	}{
		{"before the deadline", true, 5 * time.Second, false, "", false},
		{"before the deadline", false, 5 * time.Second, false, "", false},
		{"after the deadline", true, time.Millisecond, false, ending, false},
		{"after the deadline", false, time.Millisecond, false, ended, false},
		{"not noted", true, 0, false, ending, false},
		{"not noted", false, 0, false, ended, false},
		{"something is left", true, 5 * time.Second, true, behind, false},
		{"something is left", false, 5 * time.Second, true, behind, false},
		{"before an eviction is noticed", true, 5 * time.Second, false, ending, true},
		{"before an eviction is noticed", false, 5 * time.Second, false, ended, true},
	} {
		t.Run(fmt.Sprintf("%s, loss first %t", c.name, c.lossFirst), func(t *testing.T) {
			command := exec.Command("sleep", "60")
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			redistest.Must(t, command.Start())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				command.Wait()
			}()
			if !c.behind {
				command.Process.Kill()
				<-ended
			}
			notes, note, err := os.Pipe()
			redistest.Must(t, err)
			defer note.Close()
			if c.ago > 0 {
				fmt.Fprintln(note, int64(monotonic()-c.ago))
			}
			var said lockedBuffer
			e := &execution{said: newTeller(&said), grace: time.Minute}
			lease := lapsed{deadline: time.Now().Add(-time.Second), asked: make(chan struct{}, 1), evicted: c.evicted}
			j := &job{
				e: e, lease: lease, leader: command.Process.Pid, tty: &terminal{fd: -1},
				starter: &starter{executed: make(chan struct{})}, watcher: &watcher{pid: -1, notes: notes}, changes: make(chan change, 1),
			}
			end := change{j.leader, 7 << 8} // it exits with 7
			if c.lossFirst {
				lease.lost = make(chan struct{})
				close(lease.lost)
				j.lease = lease
				go func() {
					<-lease.asked
					j.changes <- end
				}()
			} else {
				j.changes <- end
			}
			j.run()
			e.said.end()
			if lost := c.says != ""; (j.lost != nil) != lost || j.status.ExitStatus() != 7 {
				t.Errorf("lost: %v, status %d, want lost: %t, status 7", j.lost, j.status.ExitStatus(), lost)
			}
			want := ""
			if c.says != "" {
				want = "locks: " + lease.Err().Error() + "; " + c.says + "\n"
			}
			if said.String() != want {
				t.Errorf("it said %q, want %q", &said, want)
			}
			command.Process.Kill()
			<-ended
		})
	}
}

// never is the end of a command that goes on.
func never(int) <-chan time.Duration { return nil }

// lines gets what is written.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestExecWatcherQuiet: if the command has ended by itself, the watcher notes when. At the deadline it ends what is
// left of the group, and does not say that it ends the command.
func TestExecWatcherQuiet(t *testing.T) {
	command := exec.Command("sleep", "60")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	redistest.Must(t, command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		command.Wait()
	}()
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		over, said, notes := make(chan struct{}), make(lines, 1), make(lines, 1)
		end := make(chan time.Duration, 1)
		w := watch{said: newTeller(said), notes: notes, grace: time.Minute, endOf: func(pid int) <-chan time.Duration {
			if pid != command.Process.Pid {
				t.Errorf("it watches process %d, want the group's first, %d", pid, command.Process.Pid)
			}
			return end
		}}
		go func() {
			defer close(over)
			w.run(in)
		}()
		fmt.Fprintf(out, "group %d\nleft 2000\n", command.Process.Pid)
		end <- 1234
		if line := <-notes; line != "1234\n" {
			t.Errorf("it has noted %q, want 1234", line)
		}
		time.Sleep(2*time.Second + watchSlack)
		synctest.Wait()
		if len(said) > 0 {
			t.Errorf("it says %q of a command that had ended", <-said)
		}
		out.Close()
		<-over
	})
	command.Process.Kill()
	<-ended
	if by := command.ProcessState.Sys().(syscall.WaitStatus); by.Signal() != syscall.SIGTERM && !t.Failed() {
		t.Errorf("what was left ended by %v, want SIGTERM", command.ProcessState)
	}
}

// TestEndOf: the end of a process is seen before its parent has taken notice.
func TestEndOf(t *testing.T) {
	command := exec.Command("cat")
	in, err := command.StdinPipe()
	redistest.Must(t, err)
	redistest.Must(t, command.Start())
	defer command.Wait()
	end, began := endOf(command.Process.Pid), monotonic()
	in.Close()
	select {
	case at := <-end:
		if at < began || at > monotonic() {
			t.Errorf("it ended at %v, want after %v and before now", at, began)
		}
	case <-time.After(patience):
		command.Process.Kill()
		t.Errorf("the end was not seen within %v", patience)
	}
}

// TestExecWatcherWaits: the watcher ends no command whose lock is renewed, and every other a second
// after the deadline that it knows.
func TestExecWatcherWaits(t *testing.T) {
	command := exec.Command("sleep", "60")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		command.Wait()
	}()
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		over, said := make(chan struct{}), make(lines, 1)
		w := watch{said: newTeller(said), group: command.Process.Pid, grace: time.Minute, endOf: never}
		go func() {
			defer close(over)
			w.run(in)
		}()
		for range 10 {
			io.WriteString(out, "left 2000\n")
			time.Sleep(2*time.Second + watchSlack - time.Millisecond)
		}
		synctest.Wait()
		if len(said) > 0 {
			t.Errorf("the watcher says %q while the lock is renewed", <-said)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if len(said) == 0 {
			t.Error("the watcher has not ended the command a second after the deadline")
		}
		out.Close()
		<-over
	})
	command.Process.Kill()
	<-ended
	if by := command.ProcessState.Sys().(syscall.WaitStatus); by.Signal() != syscall.SIGTERM && !t.Failed() {
		t.Errorf("the command ended by %v, want SIGTERM", command.ProcessState)
	}
}

// TestWatcherMisuse: only exec starts the watcher, and the error says so.
func TestWatcherMisuse(t *testing.T) {
	for _, args := range []string{"", " 1s", " 1s 2 3", " a 1", " 1s b"} {
		refused(t, "exec-watch"+args, "only locks exec starts exec-watch\n")
	}
}
