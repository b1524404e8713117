//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithExec does nothing: there is the watcher.
func endWithExec(*syscall.SysProcAttr) {}

// adoptOrphans does nothing: init reaps them.
func adoptOrphans() {}

// clockMonotonic is the clock by which Go measures: CLOCK_MONOTONIC, on macOS CLOCK_UPTIME_RAW. Package unix
// does not name NetBSD's.
var clockMonotonic = map[string]int32{"darwin": 8, "dragonfly": 4, "freebsd": 4, "netbsd": 3, "openbsd": 3}[runtime.GOOS]

// awaitEnd returns when a process has ended. It need not be a child, and its parent need not have noticed. An
// error says that there is no such process.
func awaitEnd(pid int) error {
	queue, err := unix.Kqueue()
	if err != nil {
		return err
	}
	defer unix.Close(queue)
	end := make([]unix.Kevent_t, 1)
	unix.SetKevent(&end[0], pid, unix.EVFILT_PROC, unix.EV_ADD)
	end[0].Fflags = unix.NOTE_EXIT
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Kevent(queue, end, make([]unix.Kevent_t, 1), nil)
	}
	return err
}
