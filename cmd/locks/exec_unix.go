//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

var errNoExec error

// passed are the signals that go to the command. SIGCONT does, too, if the lock is held.
var passed = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP,
}

const (
	settle    = 100 * time.Millisecond // for those that end together with the command
	pollPause = 10 * time.Millisecond  // while the last of a group end
	killLimit = 2 * time.Second        // for what was sent SIGKILL to be gone
)

// A job is a command under a lock: a process group and its watcher.
type job struct {
	e       *execution
	lease   strategy.Lease
	leader  int // also the group
	starter *starter
	watcher *watcher
	tty     *terminal
	signals <-chan os.Signal
	changes chan change

	ended  bool // the leader has, with status
	had    bool // the foreground, when it did
	status unix.WaitStatus
	noted  time.Duration    // when the leader ended, as the watcher saw it; 0: not known
	lost   error            // before the command ended
	ending bool             // the group was sent SIGTERM
	kill   <-chan time.Time // and gets SIGKILL then
	giveUp <-chan time.Time // and is left to itself then
	failed bool             // the last renewal has
}

// A change is what has become of a child.
type change struct {
	pid    int
	status unix.WaitStatus
}

// hold runs the program while the lease is held, and returns how exec ends.
func (e *execution) hold(ctx context.Context, lease strategy.Lease, program string) error {
	// SIGPIPE: nobody may read our warnings any more.
	signals, err := cli.TakeSignals(ctx, append([]os.Signal{unix.SIGCONT, unix.SIGPIPE}, passed...)...)
	if err != nil {
		e.giveUp(lease, nil)
		return err
	}
	j := &job{e: e, lease: lease, signals: signals, changes: make(chan change)}
	if err := lease.KeepAlive(e.maxHold); err != nil {
		e.say("%v", err)
		return e.giveUp(lease, err)
	}
	if err := j.start(program); errors.Is(err, strategy.ErrLost) {
		e.say("%v; the command was not started", err)
		return e.giveUp(lease, err)
	} else if err != nil {
		e.giveUp(lease, nil)
		return &cli.Exit{Status: exitNotExecutable, Err: fmt.Errorf("%s: %w", e.command[0], err)}
	}
	j.run()
	j.watcher.end(j.changes)
	if err := j.starter.failed(); err != nil {
		e.giveUp(lease, nil)
		status := exitNotExecutable
		if errors.Is(err, fs.ErrNotExist) { // an interpreter, say
			status = exitNotFound
		}
		return &cli.Exit{Status: status, Err: fmt.Errorf("%s: %w", e.command[0], err)}
	}
	status := j.status.ExitStatus()
	if j.status.Signaled() {
		status = 128 + int(j.status.Signal())
	}
	ended := e.release(lease, status, j.lost)
	var end *cli.Exit
	if errors.As(ended, &end) && j.lost == nil && j.status.Signaled() && j.status.Signal() == unix.SIGINT {
		end.Last = j.tty.interrupt(j.had)
	}
	return ended
}

// start starts the command in a process group of its own: so it can be ended with all
// that it has started, and nothing else is, of a pipeline or a script that exec is in.
func (j *job) start(program string) error {
	// On Linux the command is sent SIGTERM when the thread that has started it ends. This
	// one does not before exec does.
	runtime.LockOSThread()
	adoptOrphans()
	j.tty = openTerminal()
	var err error
	if j.watcher, err = startWatcher(j.e.grace, 0); err != nil {
		return fmt.Errorf("its watcher: %w", err)
	}
	// What it is started with is what the command inherits: signals are ignored below.
	// No other process is started meanwhile, or it would have the starter's end of the socket.
	if j.starter, err = startStarter(program, j.e.command, j.e.environment(j.lease)); err != nil {
		j.watcher.stop()
		return err
	}
	j.leader = j.starter.pid
	j.watcher.group(j.leader)
	j.watcher.left(time.Until(j.lease.Deadline()))
	// From here on exec takes and gives the foreground, and writes warnings, also in the background.
	signal.Ignore(unix.SIGTTOU)
	if j.tty.wholly() {
		j.tty.give(j.leader)
	}
	go j.listen()
	if err := j.lease.Err(); err != nil { // exec was paused, say: the command must not begin
		j.starter.socket.Close()
		j.tty.take(j.leader)
		j.watcher.stop()
		return err
	}
	j.starter.start()
	return nil
}

// replaceWatcher starts another watcher when the first was killed. The new one knows the group from
// its start: exec may be killed at any moment. One that ended within a second is not replaced, or
// exec might start watchers without end.
func (j *job) replaceWatcher() {
	j.note()
	j.watcher.close()
	w, err := (*watcher)(nil), errors.New("it ends as soon as it is started")
	if time.Since(j.watcher.born) > watchSlack {
		w, err = startWatcher(j.e.grace, j.leader)
	}
	if err != nil {
		j.e.say("warning: the watcher is gone, and another cannot be started: if this process is killed, the command may go on without the lock: %v", err)
		j.watcher.pid = -1
		return
	}
	j.watcher = w
	if !j.ending {
		w.left(time.Until(j.lease.Deadline()))
	}
}

// listen reports what becomes of children, also that they stop, which os.Process does not
// report. It reaps the orphans that became our children.
func (j *job) listen() {
	for {
		var c change
		pid, err := unix.Wait4(-1, &c.status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // there is none any more
			close(j.changes)
			return
		default:
			c.pid = pid
			j.changes <- c
		}
	}
}

// run returns when the group is gone.
func (j *job) run() {
	lost := j.lease.Lost()
	changes := j.changes
	executed := j.starter.executed
	var signals <-chan os.Signal // none before the starter is the command: it does not take all of them as the command would
	var poll <-chan time.Time
	var settled time.Time
	for {
		select {
		case <-executed:
			executed, signals = nil, j.signals
		case s := <-signals:
			j.pass(s.(syscall.Signal))
		case n := <-j.e.news:
			j.hear(n)
		case <-lost:
			if lost = nil; j.ended || !j.endedInTime() {
				j.lose("ending the command: SIGTERM, and after %v SIGKILL", j.e.grace)
				j.end()
			}
		case c, ok := <-changes:
			switch {
			case !ok:
				changes = nil
			case c.pid == j.watcher.pid && !c.status.Stopped():
				j.replaceWatcher()
			case c.pid != j.leader:
			case c.status.Stopped():
				j.stopped(c.status.StopSignal())
			case !j.ended:
				j.ended, j.status = true, c.status
				j.had = j.tty.take(j.leader)
				if j.lease.Err() != nil && j.lost == nil { // exec was paused, and hears of both at once
					if lost = nil; !j.endedInTime() {
						j.lose("the command has ended, too")
					}
				}
				poll, settled = time.After(0), time.Now().Add(settle)
			}
		case <-poll:
			if !alive(j.leader) {
				return
			}
			if !j.ending && time.Now().After(settled) {
				const behind = "the command has left processes behind: ending them"
				if j.lost == nil && j.lease.Err() != nil {
					lost = nil
					j.lose(behind)
				} else {
					j.e.say(behind + " before the lock is released")
				}
				j.end()
			}
			poll = time.After(pollPause)
		case <-j.kill:
			unix.Kill(-j.leader, unix.SIGKILL)
			j.kill, j.giveUp = nil, time.After(killLimit)
		case <-j.giveUp:
			j.giveUp = nil
			j.watcher.left(contract.MaxTTL) // the watcher could end these processes no better
			j.e.say("warning: processes of the command, of group %d, could not be ended: waiting for them", j.leader)
		}
	}
}

// lose notes that the lock was lost before the command ended, and says what that means.
func (j *job) lose(format string, args ...any) {
	j.lost = j.lease.Err()
	j.e.say("%v; %s", j.e.explained(j.e.name, j.lost), fmt.Sprintf(format, args...))
}

// endedInTime reports whether the command ended before the lock's deadline came. While exec was paused, the
// watcher was not.
func (j *job) endedInTime() bool {
	j.note()
	var lost *strategy.LostError
	if j.noted == 0 || !errors.As(j.lease.Err(), &lost) || !lost.Lapsed {
		return false
	}
	now := monotonic() // first: a pause after it makes the deadline earlier
	return j.noted < now+time.Until(j.lease.Deadline())
}

// note reads what the watcher has noted.
func (j *job) note() {
	if at := j.watcher.noted(); at != 0 {
		j.noted = at
	}
}

// end has the group end, now or when the grace is over. It continues stopped
// processes, which could not end otherwise.
func (j *job) end() {
	if j.ending {
		return
	}
	j.ending = true
	j.watcher.left(j.e.grace + killLimit)
	if err := unix.Kill(-j.leader, unix.SIGTERM); err == unix.EPERM {
		j.e.say("warning: the command cannot be ended: it runs as another user")
	}
	unix.Kill(-j.leader, unix.SIGCONT)
	j.kill = time.After(j.e.grace)
}

func (j *job) pass(s syscall.Signal) {
	switch {
	case s == unix.SIGPIPE:
	case s == unix.SIGCONT && j.lease.Err() != nil: // it gets the signal to end first
	default:
		unix.Kill(-j.leader, s)
	}
}

// hear warns once of renewals that fail, and tells the watcher of those that do not.
func (j *job) hear(n strategy.Event) {
	failing := n.Kind == strategy.EventRenewalFailed
	switch {
	case failing && !j.failed:
		j.e.say("warning: the lock cannot be renewed, and is held for %v more: %v",
			max(time.Until(j.lease.Deadline()), 0).Round(time.Millisecond), j.e.explained(j.e.name, n.Err))
	case !failing && j.failed:
		j.e.say("the lock is renewed again")
	}
	j.failed = failing
	if !failing && !j.ending {
		j.watcher.left(time.Until(j.lease.Deadline()))
	}
}

// stopped does what the terminal wants of a job whose command has stopped: it stops as a
// whole, unless the command only lacks the foreground, which exec can give it. A SIGSTOP from
// elsewhere stops the command alone: its sender would not continue exec.
func (j *job) stopped(by syscall.Signal) {
	asks := by == unix.SIGTTIN || by == unix.SIGTTOU
	// Some stop themselves by SIGSTOP for Ctrl-Z.
	stops := by == unix.SIGTSTP || by == unix.SIGSTOP && j.tty.holder() == j.leader
	if !asks && !stops || !j.tty.open() {
		return
	}
	wants := asks
	if !wants || !j.tty.ours() {
		had := j.tty.take(j.leader)
		j.watcher.pause(time.Until(j.lease.Deadline()))
		suspend(had)
		wants = wants || had
		if j.lease.Err() != nil {
			return // run ends it
		}
		j.watcher.left(time.Until(j.lease.Deadline()))
	}
	if wants && j.tty.ours() {
		j.tty.give(j.leader)
	}
	unix.Kill(-j.leader, unix.SIGCONT)
}

// suspend stops us, and returns when we are continued. all: with our process group, as the
// terminal would have done if the command had not had it for itself.
func suspend(all bool) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	who := os.Getpid()
	if all {
		who = 0
	}
	// SIGTSTP would be the one, but what Go has once been notified of does not stop it any
	// more; and SIGSTOP would stop us also where no shell is there to continue us.
	unix.Kill(who, unix.SIGTTIN)
	select { // it takes effect on any of our threads, so perhaps not at once
	case <-continued:
	case <-time.After(100 * time.Millisecond): // nobody could continue us: the kernel stops no such process
	}
}

// alive reports whether the group has a process.
func alive(group int) bool { return unix.Kill(-group, 0) != unix.ESRCH }

// A terminal is the one that controls us. Where there is none it does nothing.
type terminal struct {
	fd    int  // -1: none
	group int  // ours
	front bool // we had the foreground when the command was started
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		fd = -1
	}
	t := &terminal{fd: fd, group: unix.Getpgrp()}
	t.front = t.ours()
	return t
}

func (t *terminal) open() bool { return t.fd >= 0 }

// ours reports whether we are in the foreground.
func (t *terminal) ours() bool { return t.holder() == t.group }

// holder is the group in the foreground.
func (t *terminal) holder() int {
	if !t.open() {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// wholly reports whether the command is to have the terminal from the beginning. In a pipeline
// others may need the foreground (… | less): there it gets it when it asks, by stopping.
func (t *terminal) wholly() bool {
	return t.front && isTerminal(os.Stdin) && isTerminal(os.Stdout)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

func (t *terminal) give(group int) { unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

// take takes the foreground back, if that group has it, and reports whether it had.
func (t *terminal) take(group int) bool {
	if t.holder() != group {
		return false
	}
	t.give(t.group)
	return true
}

// interrupt is what is left to do when the command has died of Ctrl-C: to die of it, too,
// because a script that we are in ends then, and would go on after an exit. Those of our
// group have not heard of it, if the command had the foreground.
func (t *terminal) interrupt(had bool) func() {
	if !t.front {
		return nil
	}
	return func() {
		signal.Reset(unix.SIGINT)
		who := os.Getpid()
		if had {
			who = 0
		}
		unix.Kill(who, unix.SIGINT)
		time.Sleep(time.Second) // it takes effect at once
	}
}
