package rig

// The alarm by which a rig notices a slow machine.

import (
	"testing"
	"time"
)

// An alarm rings, again and again, and never before its time.
func TestAlarm(t *testing.T) {
	var a alarm
	defer a.close()
	for _, d := range []time.Duration{time.Millisecond, time.Nanosecond, 3 * time.Millisecond} {
		begin := time.Now()
		if !a.ring(d) {
			t.Fatalf("the alarm for %v does not ring", d)
		}
		if took := time.Since(begin); took < d {
			t.Errorf("the alarm for %v rang after %v", d, took)
		}
	}
	a.wait(0)
	a.wait(-time.Second) // no time to wait for
}
