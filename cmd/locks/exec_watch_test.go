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
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// TestExecKilled: the group does not outlive exec, and the lock keeps its TTL.
func TestExecKilled(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	c.kill(syscall.SIGKILL)
	out := c.wantEnd(-1, "the process that held the lock is gone; ending the command")
	if strings.ReplaceAll(out, "told\n", "") != "" || out == "" { // by the kernel, too, at the end of each thread of exec
		t.Errorf("the command said %q, want that it got the signal", out)
	}
	wantEnded(t, group)
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
	lease, err := lockstest.New(t).NewLock("n").TryAcquire(t.Context())
	redistest.Must(t, err)
	defer lease.Release(t.Context())
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	redistest.Must(t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "starter"), os.NewFile(uintptr(pair[1]), "exec")
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	command, ended := sleeper(t)

	signals := make(chan os.Signal, 1)
	j := newJob(command.Process.Pid, lease, io.Discard)
	j.signals, j.starter.socket, j.changes = signals, ours, make(chan change)
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
	<-ended
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
	needsProc(t)
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "1m", "--", "sh", "-c",
		`trap 'sleep 1.5; echo saved; exit' TERM; echo $$; while :; do sleep 0.05; done`).start()
	group := c.number()
	first, begun := watcherOf(c.Process.Pid), time.Now()
	verdict.Eventually(t, "the watcher is so old that it is replaced", func() bool { return time.Since(begun) > watchSlack })
	syscall.Kill(first, syscall.SIGKILL)
	verdict.Eventually(t, "there is another watcher", func() bool { w := watcherOf(c.Process.Pid); return w != 0 && w != first })
	c.kill(syscall.SIGKILL)
	if out, _ := c.end(); out != "saved\n" {
		t.Errorf("the command said %q, want that it had the time to save its work", out)
	}
	wantEnded(t, group)
}

// watcherOf is exec's; 0: there is none.
func watcherOf(pid int) int {
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
	command, over := sleeper(t, "true")
	<-over
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w := watch{said: newTeller(io.Discard), endOf: never}
		w.run(strings.NewReader(fmt.Sprintf("group %d\nleft 60000\n", command.Process.Pid)))
	}()
	within(t, "the watcher of a group that is gone ends", ended)
}

// TestExecPaused: the command does not outlive the lock of an exec that is paused.
func TestExecPaused(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "9s", "--grace", "300ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	c.kill(syscall.SIGSTOP)
	wantEnded(t, group)
	c.kill(syscall.SIGCONT)
	c.wantEnd(76, "is paused, and its deadline is over")
}

// TestExecEndsWhilePaused: the command ended by itself while exec was paused and the lock was held. Its status
// counts, and nobody says that it was ended.
func TestExecEndsWhilePaused(t *testing.T) {
	t.Parallel()
	needsProc(t)
	s := redistest.Shared(t)
	verdict.Conclusive(t, func() verdict.Slow {
		name := newName(t)
		c := toolFor(t, s, "exec", name, "--ttl", "12s", "--", "sh", "-c", "echo $$; read x; exit 7").begin()
		group := c.number()
		c.pause()
		c.in.Close()
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
	needsProc(t)
	s := redistest.Shared(t)
	verdict.Conclusive(t, func() verdict.Slow {
		name := newName(t)
		acquire(t, s, name, strategy.Options{})
		over := time.Now().Add(3 * time.Second)
		c := toolFor(t, s, "exec", name, "--wait", "3s", "--", "echo", "ran").start()
		queues(t, s, name)
		c.pause()
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

// pause returns when all threads of exec are stopped.
func (c *tool) pause() {
	c.t.Helper()
	c.kill(syscall.SIGSTOP)
	verdict.Eventually(c.t, "exec is paused", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.Process.Pid))
		return !slices.ContainsFunc(threads, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(text), ") T ")
		})
	})
}

// TestExecEndedInTime: the lock is not lost if the command ended before the deadline, as far as the watcher has noted
// that, and has left nothing behind that runs without the lock. When exec is continued, it may hear of the loss first,
// or of the command's end. A loss counts also while what is left behind is being ended.
func TestExecEndedInTime(t *testing.T) {
	const ending, too = "ending the command: SIGTERM, and after 1m0s SIGKILL", "the command has ended, too"
	const behind = "the command has left processes behind: ending them"
	for _, c := range []struct {
		name              string
		ago               time.Duration // when the watcher saw the end; 0: it has not
		behind, evicted   bool
		lossFirst, second string // what is said after the loss, if exec hears of it first, or second; empty: nothing is said
	}{
		{"before the deadline", 5 * time.Second, false, false, "", ""},
		{"after the deadline", time.Millisecond, false, false, ending, too},
		{"not noted", 0, false, false, ending, too},
		{"something is left", 5 * time.Second, true, false, behind, behind},
		{"before an eviction is noticed", 5 * time.Second, false, true, ending, too},
	} {
		for i, says := range []string{c.lossFirst, c.second} {
			t.Run(fmt.Sprintf("%s, loss first %t", c.name, i == 0), func(t *testing.T) {
				command, ended := sleeper(t)
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
				lease := lapsed{deadline: time.Now().Add(-time.Second), asked: make(chan struct{}, 1), evicted: c.evicted}
				j := newJob(command.Process.Pid, lease, &said)
				j.watcher.notes = notes
				end := change{j.leader, 7 << 8} // it exits with 7
				if i == 0 {
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
				j.e.said.end()
				if lost := says != ""; (j.lost != nil) != lost || j.status.ExitStatus() != 7 {
					t.Errorf("lost: %v, status %d, want lost: %t, status 7", j.lost, j.status.ExitStatus(), lost)
				}
				want := ""
				if says != "" {
					want = "locks: " + lease.Err().Error() + "; " + says + "\n"
				}
				if said.String() != want {
					t.Errorf("it said %q, want %q", &said, want)
				}
			})
		}
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

// TestEndOf: the end of a process is seen before its parent has taken notice.
func TestEndOf(t *testing.T) {
	command := exec.Command("cat")
	in, err := command.StdinPipe()
	redistest.Must(t, err)
	redistest.Must(t, command.Start())
	defer command.Wait()
	end, began := endOf(command.Process.Pid), monotonic()
	in.Close()
	if at := within(t, "the end is seen", end); at < began || at > monotonic() {
		t.Errorf("it ended at %v, want after %v and before now", at, began)
	}
}

// TestExecWatcherWaits: the watcher ends no command whose lock is renewed, and every other a second after the deadline that
// it knows. If the command has ended by itself, the watcher notes when. Then it ends what is left of the group at the
// deadline, and does not say that it ends the command.
func TestExecWatcherWaits(t *testing.T) {
	for _, byItself := range []bool{false, true} {
		command, ended := sleeper(t)
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
			fmt.Fprintf(out, "group %d\n", command.Process.Pid)
			if byItself {
				end <- 1234
				if line := <-notes; line != "1234\n" {
					t.Errorf("it has noted %q, want 1234", line)
				}
			}
			for range 10 {
				io.WriteString(out, "left 2000\n")
				time.Sleep(2*time.Second + watchSlack - time.Millisecond)
			}
			synctest.Wait()
			if len(said) > 0 {
				t.Error("the watcher ends the command while the lock is renewed")
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if (len(said) == 0) != byItself {
				t.Errorf("the command has ended by itself: %t; a second after the deadline the watcher says %d lines", byItself, len(said))
			}
			out.Close()
			<-over
		})
		within(t, "the group ends", ended)
		if by := command.ProcessState.Sys().(syscall.WaitStatus); by.Signal() != syscall.SIGTERM && !t.Failed() {
			t.Errorf("what was left ended by %v, want SIGTERM", command.ProcessState)
		}
	}
}
