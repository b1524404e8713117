//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A starter is the process that becomes the command: this program again, which waits at a
// socket for one byte before it executes the command in its place. Until the watcher knows
// the group nothing has been started, so exec may be killed at any moment: either the
// watcher ends the group, or there is no byte and the starter ends by itself.
type starter struct {
	pid      int
	socket   *os.File
	executed chan struct{} // closed when it has executed the command, or is gone
	err      error         // of executing it
}

const startName = "exec-start"

func startStarter(program string, command, env []string) (*starter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	// Its end keeps the number that it has here: the parent of exec may have opened 3 and
	// the following for the command.
	unix.CloseOnExec(pair[0])
	ours, theirs := os.NewFile(uintptr(pair[0]), "starter"), os.NewFile(uintptr(pair[1]), "exec")
	defer theirs.Close()
	attributes := &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	endWithExec(attributes.Sys)
	p, err := os.StartProcess(self, append([]string{"locks", startName, strconv.Itoa(pair[1]), program}, command...), attributes)
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer p.Release() // listen waits for it
	return &starter{pid: p.Pid, socket: ours, executed: make(chan struct{})}, nil
}

// start lets it execute the command.
func (s *starter) start() {
	s.socket.Write([]byte{1})
	go func() {
		defer close(s.executed)
		defer s.socket.Close()
		text := make([]byte, 16)
		n, _ := s.socket.Read(text) // its end is closed when the command is executed
		if errno, err := strconv.Atoi(string(text[:n])); err == nil {
			s.err = syscall.Errno(errno)
		}
	}()
}

// failed returns why the command was not executed, if it was not.
func (s *starter) failed() error {
	<-s.executed
	return s.err
}

func isStarter() bool { return len(os.Args) >= 5 && os.Args[1] == startName }

// The starter stays on its main thread. When the command is executed, the process loses what the
// other threads have: a signal that one of them has taken, and, if one of them executes the
// command, the order to end with exec. Only an init function is sure to run on the main thread.
func init() {
	if isStarter() {
		runtime.LockOSThread()
	}
}

// becomeCommand is the starter's side, and comes before all else in main: a signal is to do
// to it what it would to the command. It returns if this process is not a starter.
func becomeCommand() {
	if !isStarter() {
		return
	}
	fd, _ := strconv.Atoi(os.Args[2])
	unix.CloseOnExec(fd)
	socket := os.NewFile(uintptr(fd), "exec")
	n, err := socket.Read(make([]byte, 1))
	if n == 1 {
		err := syscall.Exec(os.Args[3], os.Args[4:], os.Environ())
		fmt.Fprint(socket, int(err.(syscall.Errno)))
	} else if err != io.EOF { // that is how it hears that exec is gone
		fmt.Fprintf(os.Stderr, "locks: only exec starts %s: %v\n", startName, err)
	}
	os.Exit(exitNotExecutable)
}
