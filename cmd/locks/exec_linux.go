package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithExec makes the kernel send the command SIGTERM when exec is gone, in case the watcher is gone,
// too.
func endWithExec(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }

// adoptOrphans makes what the command leaves behind our children, so that we see them end
// also where nobody else would reap them, as in a container without an init. An error says
// that the kernel is older than that.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

const clockMonotonic = unix.CLOCK_MONOTONIC

// awaitEnd returns when a process has ended. It need not be a child, and its parent need not have noticed. An
// error says that there is no such process, or that the kernel is older than Linux 5.3.
func awaitEnd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	}
	return err
}
