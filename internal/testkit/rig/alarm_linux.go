package rig

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm wakes its goroutine at the time, give or take some 50 µs. A timer of Go may be
// most of a millisecond late where the process has nothing else to do: its poller sleeps for
// whole ones.
type alarm struct {
	timer *os.File // nil: not made yet
	fd    int
}

// wait returns when the time is over.
func (a *alarm) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	begin := time.Now()
	if !a.ring(d) { // no descriptor is free, perhaps
		time.Sleep(d - time.Since(begin))
	}
}

// ring waits, and reports whether it could.
func (a *alarm) ring(d time.Duration) bool {
	if a.timer == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return false
		}
		a.timer, a.fd = os.NewFile(uintptr(fd), "timerfd"), fd
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if unix.TimerfdSettime(a.fd, 0, &at, nil) != nil {
		return false
	}
	var rung [8]byte // how often
	_, err := a.timer.Read(rung[:])
	return err == nil
}

func (a *alarm) close() {
	if a.timer != nil {
		a.timer.Close()
	}
}
