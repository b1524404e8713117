//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A watcher is a process that ends the command's group if exec does not live to do so. It reads
// lines from a pipe, and the end of the pipe before "done" says that exec is gone. It has a session
// of its own, so what ends exec's group or terminal spares it.
//
//	group 4711      the command's process group
//	left 29000      so many milliseconds are left until the lock's deadline
//	pause 29000     exec is stopped, and so is the command, until the next "left"; if that does
//	                not come in time, the command is to end when somebody continues it
//	done            nothing is left to be watched
//
// It writes a line when the command has ended by itself: when, by [monotonic]. An exec that was paused
// learns from that whether the lock was held until then.
type watcher struct {
	pid         int
	pipe, notes *os.File
	born        time.Time
}

const (
	watchName = "exec-watch"

	// watchSlack is how much later than exec the watcher believes in a loss: exec, if it
	// runs, is the one to tell of it.
	watchSlack = time.Second

	// tellLimit is how long a watcher that does not read keeps exec from its other work.
	tellLimit = 100 * time.Millisecond
)

// startWatcher starts one that watches a group; 0: exec names the group later.
func startWatcher(grace time.Duration, group int) (*watcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	notes, note, err := os.Pipe()
	if err != nil {
		out.Close()
		return nil, err
	}
	defer note.Close()
	p, err := os.StartProcess(self, []string{"locks", watchName, grace.String(), strconv.Itoa(group)}, &os.ProcAttr{
		Files: []*os.File{in, note, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		out.Close()
		notes.Close()
		return nil, err
	}
	defer p.Release()
	return &watcher{p.Pid, out, notes, time.Now()}, nil
}

func (w *watcher) group(g int)          { w.tell("group " + strconv.Itoa(g)) }
func (w *watcher) left(d time.Duration) { w.tell("left " + strconv.FormatInt(d.Milliseconds(), 10)) }
func (w *watcher) pause(d time.Duration) {
	w.tell("pause " + strconv.FormatInt(d.Milliseconds(), 10))
}

// tell writes a line to the watcher. It does nothing if the watcher is gone.
func (w *watcher) tell(line string) {
	w.pipe.SetWriteDeadline(time.Now().Add(tellLimit))
	io.WriteString(w.pipe, line+"\n")
}

// noted returns what the watcher has written since it was last asked: when the command ended. 0: nothing.
func (w *watcher) noted() (at time.Duration) {
	c, err := w.notes.SyscallConn()
	if err != nil {
		return 0
	}
	c.Read(func(fd uintptr) bool { //nolint:errcheck // then nothing was noted
		line := make([]byte, 32)
		if n, err := unix.Read(int(fd), line); err == nil {
			ns, _ := strconv.ParseInt(strings.TrimSpace(string(line[:n])), 10, 64)
			at = time.Duration(ns)
		}
		return true // there is nothing to wait for
	})
	return at
}

// monotonic is Go's clock that nobody sets, which all processes of this machine share.
func monotonic() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(clockMonotonic, &t)
	return time.Duration(t.Nano())
}

func (w *watcher) stop() {
	w.tell("done")
	w.close()
}

func (w *watcher) close() {
	w.pipe.Close()
	w.notes.Close()
}

// end waits until it is gone, so that nothing of exec outlasts it.
func (w *watcher) end(changes <-chan change) {
	w.stop()
	limit := time.After(killLimit)
	for {
		select {
		case c, ok := <-changes:
			if !ok || c.pid == w.pid && !c.status.Stopped() {
				return
			}
		case <-limit:
			return
		}
	}
}

func watchCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:    watchName + " GRACE GROUP",
		Short:  "End a command whose lock nobody holds any more (started by exec)",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			grace, group, ok := watched(args)
			if !ok {
				return errors.New("only locks exec starts " + watchName)
			}
			// A signal to all processes of this name is meant for exec, which needs its watcher to the end.
			signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
			w := watch{grace: grace, group: group, said: newTeller(cmd.ErrOrStderr()), notes: cmd.OutOrStdout(), endOf: endOf}
			w.run(cmd.InOrStdin())
			return nil
		},
	}}
}

// watched is the inverse of the arguments that startWatcher makes.
func watched(args []string) (grace time.Duration, group int, ok bool) {
	if len(args) != 2 {
		return 0, 0, false
	}
	grace, badGrace := time.ParseDuration(args[0])
	group, badGroup := strconv.Atoi(args[1])
	return grace, group, badGrace == nil && badGroup == nil
}

// watch is the watcher's side.
type watch struct {
	grace  time.Duration
	said   *teller
	notes  io.Writer
	endOf  func(pid int) <-chan time.Duration // of the command
	group  int                                // 0: none yet
	ended  bool                               // the command has, by itself
	ending bool
	kill   <-chan time.Time
}

// endOf gets when a process has ended.
func endOf(pid int) <-chan time.Duration {
	at := make(chan time.Duration, 1)
	go func() {
		if awaitEnd(pid) == nil {
			at <- monotonic()
		}
	}()
	return at
}

// run returns when there is nothing left to be watched.
func (w *watch) run(in io.Reader) {
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	defer w.said.end()
	var late, paused, poll, giveUp <-chan time.Time
	var ended <-chan time.Duration
	if w.group != 0 {
		ended = w.endOf(w.group)
	}
	for {
		select {
		case line, ok := <-lines:
			word, number, _ := strings.Cut(line, " ")
			n, _ := strconv.Atoi(number)
			switch {
			case !ok:
				lines, late, paused = nil, nil, nil
				w.end("the process that held the lock is gone")
			case word == "done":
				return
			case word == "group":
				w.group, ended = n, w.endOf(n)
			case word == "left":
				late, paused = time.After(time.Duration(n)*time.Millisecond+watchSlack), nil
			case word == "pause":
				late, paused = nil, time.After(time.Duration(n)*time.Millisecond+watchSlack)
			}
		case at := <-ended:
			if ended = nil; !w.ending {
				w.ended = true
				fmt.Fprintln(w.notes, int64(at))
			}
		case <-paused:
			// A stopped process gets it when it is continued, by exec or not; the others get it now.
			if paused = nil; w.group != 0 {
				unix.Kill(-w.group, unix.SIGTERM)
			}
		case <-late:
			late = nil
			w.end("the process that held the lock is paused, and its deadline is over")
		case <-w.kill:
			unix.Kill(-w.group, unix.SIGKILL)
			w.kill, giveUp = nil, time.After(killLimit)
		case <-giveUp:
			return
		case <-poll:
			poll = nil
		}
		if (lines == nil || w.ending) && (w.group == 0 || !alive(w.group)) {
			return // exec is gone; the processes that it started have ended by themselves, or we have ended them
		}
		if w.ending && poll == nil {
			poll = time.After(pollPause)
		}
	}
}

// end has the group end, unless it does already. If the command has ended by itself, it may have left
// processes behind, or be all that there is of the group until exec takes notice.
func (w *watch) end(why string) {
	if w.group == 0 || w.ending || !alive(w.group) {
		return
	}
	w.ending = true
	if !w.ended {
		w.said.say("%s; ending the command: SIGTERM, and after %v SIGKILL", why, w.grace)
	}
	unix.Kill(-w.group, unix.SIGTERM)
	unix.Kill(-w.group, unix.SIGCONT)
	w.kill = time.After(w.grace)
}
