//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests what becomes of the command when exec is killed or paused, or its starter or watcher dies.
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/internal/cli/clitest"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/verdict"
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
	verdict.Eventually(t, "the group is gone", groupGone(group))
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

// TestExecWatcherReplaced: exec starts another watcher when the first was killed.
func TestExecWatcherReplaced(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "1m", "--grace", "100ms", "--", "sh", "-c", stubborn).start()
	group := c.number()
	first, begun := watcherOf(t, c.Process.Pid), time.Now()
	verdict.Eventually(t, "the watcher is so old that it is replaced", func() bool { return time.Since(begun) > watchSlack })
	syscall.Kill(first, syscall.SIGKILL)
	verdict.Eventually(t, "there is another watcher", func() bool { w := watcherOf(t, c.Process.Pid); return w != 0 && w != first })
	c.kill(syscall.SIGKILL)
	c.end()
	verdict.Eventually(t, "the group is gone", groupGone(group))
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
		w := watch{said: newTeller(io.Discard)}
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
	verdict.Eventually(t, "the group is gone", groupGone(group))
	c.kill(syscall.SIGCONT)
	c.wantEnd(76, "is paused, and its deadline is over")
}

// lines gets what is written.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
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
		w := watch{said: newTeller(said), group: command.Process.Pid, grace: time.Minute}
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
