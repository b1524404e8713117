// Tests what the machine did to a play: which plays count, and how the longest pause is found.
package faults

import (
	"errors"
	"testing"
	"time"
)

// TestCounts: a play is repeated for what the machine has done to it, and for nothing else.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		out  Outcome
		want Verdict // what the matrix says
		yes  bool
	}{
		{Outcome{Verdict: Kept}, Kept, true},
		{Outcome{Verdict: Detected}, Kept, true},
		{Outcome{Verdict: Unavailable}, Kept, true},
		{Outcome{Verdict: Kept}, Unavailable, true},
		{Outcome{Verdict: Kept, Slow: "slow"}, Kept, true},
		{Outcome{Verdict: Detected, Slow: "slow"}, Kept, false},
		{Outcome{Verdict: Unavailable, Slow: "slow"}, Violated, false},
		{Outcome{Verdict: Violated, Slow: "slow"}, Kept, true},
		{Outcome{Verdict: Kept, Err: errors.New("no play")}, Kept, false},
		{Outcome{Verdict: Violated, Err: errors.New("no end")}, Kept, true},
		{Outcome{Verdict: Violated, Err: errors.New("no end")}, Violated, false},
	} {
		if c.out.counts(c.want) != c.yes {
			t.Errorf("a play that should end %v counts: %v, want %v: %+v", c.want, !c.yes, c.yes, c.out)
		}
	}
}

// TestPulse: the longest gap counts for each play that lasted until its end, and so does one that
// has not ended.
func TestPulse(t *testing.T) {
	now := time.Now()
	p := &pulse{last: now.Add(-20 * time.Second)}
	for _, ago := range []time.Duration{19 * time.Second, 10 * time.Second, 9990 * time.Millisecond, 5 * time.Second} {
		p.answered(now.Add(-ago))
	}
	for since, want := range map[time.Duration]time.Duration{
		20 * time.Second: 9*time.Second - beat,
		11 * time.Second: 9*time.Second - beat,
		7 * time.Second:  5*time.Second - beat, // up to now, and no answer yet
	} {
		if got := p.longest(now.Add(-since)); got < want || got > want+time.Second {
			t.Errorf("the longest gap in the last %v is %v, want %v", since, got, want)
		}
	}
}
