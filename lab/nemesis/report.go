package nemesis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/lessons"
)

// Counts is how often what happened: how much the run is worth.
func (r *Report) Counts() map[string]int {
	n := map[string]int{}
	for _, op := range r.Ops {
		if op.Kind == history.KindFault {
			n["fault: "+op.Value]++
		} else {
			n[fmt.Sprint(op.Kind, " ", op.Result)]++
		}
	}
	return n
}

// Acquired is how many acquisitions there were.
func (r *Report) Acquired() int { return r.Counts()["acquire ok"] }

// Slow is for how much of the run the machine was too slow to tell much of a lock.
func (r *Report) Slow() (slow time.Duration) {
	for _, op := range r.Ops {
		if op.Kind == history.KindFault && op.Value == Slow {
			slow += op.End - op.Start
		}
	}
	return slow
}

// most is how many violations are printed in full.
const most = 3

// String tells what happened in the run.
func (r *Report) String() string {
	said := fmt.Sprintf("%s, seed %d, %v: %v\n", r.Variant.Name, r.Seed, r.For, r.Counts())
	if slow := r.Slow(); slow > 0 {
		said += fmt.Sprintf("the machine was slow for %v\n", slow.Round(time.Millisecond))
	}
	for _, why := range slices.Sorted(maps.Keys(r.Declared)) {
		said += fmt.Sprintf("declared, %d times: %s\n", r.Declared[why], why)
	}
	for _, v := range r.Found[:min(len(r.Found), most)] {
		said += fmt.Sprintf("VIOLATED %v\n", v)
	}
	return said
}

// Picture draws what happened to the lock of the first violation shortly before it, and what was broken then.
func (r *Report) Picture() string {
	if len(r.Found) == 0 {
		return r.String()
	}
	shown := r.Found[0].Ops
	key, last := shown[0].Key, shown[len(shown)-1]
	var t lessons.Trace
	for _, op := range r.Ops {
		if op.Key != key && op.Kind != history.KindFault || op.Start > last.Start+r.TTL || op.End < last.Start-3*r.TTL {
			continue
		}
		e := lessons.Event{At: op.Start, Kind: lessons.Note, From: op.Client, Text: op.String()}
		switch {
		case op.Kind == history.KindAcquire && op.Result == history.OK:
			e.At, e.Kind, e.Condition = op.End, lessons.State, lessons.Holds
		case op.Kind == history.KindRelease, op.Kind == history.KindLost:
			e.Kind, e.Condition = lessons.State, lessons.Ended
		}
		if slices.Contains(shown, op) {
			e.Text = "✗ " + e.Text
		}
		t.Events = append(t.Events, e)
		if who := (lessons.Actor{Name: op.Client}); op.Kind != history.KindFault && !slices.Contains(t.Actors, who) {
			t.Actors = append(t.Actors, who)
		}
	}
	slices.SortStableFunc(t.Events, func(a, b lessons.Event) int { return cmp.Compare(a.At, b.At) })
	return r.String() + "\n" + t.Diagram(400, func(_ diagram.Style, s string) string { return s })
}
