package main

// The measurement of locks that several may hold: it counts who holds them, and no lock admits more than it may.

import (
	"testing"
	"time"
)

func TestSharing(t *testing.T) {
	b := embedded(t)
	b.quick = true
	for _, s := range sharing() {
		o, err := b.play(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, who := range s.who {
			one := func(unit string) float64 { return o.series(who, 0, unit)[0] }
			most := map[string]float64{"semaphore": permits, "semaphore-poll": permits, "fairqueue": 1}[who]
			if most == 0 {
				most = 64
			}
			if n := one("most"); !(n >= 1 && n <= most) || one("overlaps") != 0 {
				t.Errorf("%s, %s: %v held it at most, with %v overlaps, want 1 to %v, and none", s.name, who, n, one("overlaps"), most)
			}
			if !(one("acq/s") > 0 && one("requests/acq") > 0) {
				t.Errorf("%s, %s: %v acquisitions per second, with %v requests each, want some", s.name, who, one("acq/s"), one("requests/acq"))
			}
		}
	}
}

// TestPresence: an overlap is a holder next to a writer; it does not matter which of them came first.
func TestPresence(t *testing.T) {
	var p presence
	p.enter(false)
	p.enter(false)
	if p.overlaps != 0 || p.most != 2 {
		t.Errorf("two readers: %d overlaps, %d at most, want 0 and 2", p.overlaps, p.most)
	}
	p.enter(true)
	p.leave(false, true, time.Second)
	p.leave(false, false, time.Second)
	p.enter(false)
	if p.overlaps != 2 || p.held != time.Second {
		t.Errorf("a writer next to readers, a reader next to it: %d overlaps, held for %v, want 2 and a second", p.overlaps, p.held)
	}
	p.leave(true, false, 0)
	p.leave(false, false, 0)
	p.enter(true)
	if p.overlaps != 2 {
		t.Errorf("a writer alone: %d overlaps, want the 2 of before", p.overlaps)
	}
}
