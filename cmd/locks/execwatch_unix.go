//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
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
type watcher struct {
	pid  int
	pipe *os.File
	born time.Time
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
	p, err := os.StartProcess(self, []string{"locks", watchName, grace.String(), strconv.Itoa(group)}, &os.ProcAttr{
		Files: []*os.File{in, nil, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		out.Close()
		return nil, err
	}
	defer p.Release()
	return &watcher{p.Pid, out, time.Now()}, nil
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

func (w *watcher) stop() {
	w.tell("done")
	w.pipe.Close()
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
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			grace, err := time.ParseDuration(args[0])
			if err != nil {
				return err
			}
			group, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			// A signal to all processes of this name is meant for exec, which needs its watcher to the end.
			signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
			w := watch{grace: grace, group: group, said: newTeller(cmd.ErrOrStderr())}
			w.run(cmd.InOrStdin())
			return nil
		},
	}}
}

// watch is the watcher's side.
type watch struct {
	grace  time.Duration
	said   *teller
	group  int // 0: none yet
	ending bool
	kill   <-chan time.Time
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
				w.group = n
			case word == "left":
				late, paused = time.After(time.Duration(n)*time.Millisecond+watchSlack), nil
			case word == "pause":
				late, paused = nil, time.After(time.Duration(n)*time.Millisecond+watchSlack)
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

// end has the group end, unless it does already.
func (w *watch) end(why string) {
	if w.group == 0 || w.ending || !alive(w.group) {
		return
	}
	w.ending = true
	w.said.say("%s; ending the command: SIGTERM, and after %v SIGKILL", why, w.grace)
	unix.Kill(-w.group, unix.SIGTERM)
	unix.Kill(-w.group, unix.SIGCONT)
	w.kill = time.After(w.grace)
}
