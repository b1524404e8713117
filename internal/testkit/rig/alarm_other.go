//go:build !linux

package rig

import "time"

// An alarm is as exact as Go's timers are.
type alarm struct{}

func (*alarm) wait(d time.Duration) { time.Sleep(d) }

func (*alarm) close() {}
