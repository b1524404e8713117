package rig

import (
	"syscall"
	"time"
)

// sleep returns when the time is over, give or take some 50 µs, or earlier. A timer of Go may be most of a millisecond
// late where the process has nothing else to do: its poller sleeps for whole ones.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	syscall.Nanosleep(&t, nil) //nolint:errcheck // a signal may end it early
}
