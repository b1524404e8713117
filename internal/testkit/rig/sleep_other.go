//go:build !linux

package rig

import "time"

// sleep is as exact as Go's timers are.
func sleep(d time.Duration) { time.Sleep(d) }
