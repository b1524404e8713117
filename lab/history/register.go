package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// NoLostUpdate finds updates that were lost: who reads, thinks and writes back under a
// lock overwrites only what it has read. Each write names the value that its hold read or
// wrote last; no two writes that took effect may come from the same one, or one of them is
// lost. A reader sees no less than what was written before it asked. A write of unknown
// end has taken effect if somebody has read its value. For clients
// that write only what no other ever writes, and only after reading, this check is
// complete; a write without a read is not looked at.
func NoLostUpdate(ops []Op) []Violation {
	byKey := uses(ops)
	var found []Violation
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		found = append(found, lostUpdates(key, byKey[key])...)
	}
	return found
}

// uses are the operations on each register.
func uses(ops []Op) map[string][]Op {
	byKey := map[string][]Op{}
	for _, op := range Merge(ops) {
		if op.Kind == KindRead || op.Kind == KindWrite {
			byKey[op.Key] = append(byKey[op.Key], op)
		}
	}
	return byKey
}

// An update is one hold's write and where it got the value from.
type update struct {
	from        string
	read, write Op
	sure        bool          // it has taken effect: it succeeded, or its value was read
	by          time.Duration // when at the latest, if it is sure
	steps       int           // how many updates led to its value; 0: not counted yet
}

func lostUpdates(key string, ops []Op) []Violation {
	var found []Violation
	report := func(ops []Op, format string, args ...any) {
		found = append(found, violation("NoLostUpdate", ops, format, args...))
	}
	var reads []Op
	seen := map[string]time.Duration{} // by value: when somebody had read it first
	for _, op := range ops {
		if op.Kind == KindRead && op.Result == OK {
			if first, ok := seen[op.Value]; !ok || op.End < first {
				seen[op.Value] = op.End
			}
		}
	}
	bases := map[string]Op{}        // by hold: what it read or wrote last
	written := map[string]*update{} // by value
	wrote := map[string]*update{}   // by the value it came from; those that are sure
	for _, op := range ops {
		hold := cmp.Or(op.Hold, op.Client)
		base, based := bases[hold]
		switch {
		case op.Kind == KindRead && op.Result == OK:
			reads = append(reads, op)
			bases[hold] = op
		case op.Kind == KindWrite && based && (op.Result == OK || op.Result == Unknown):
			u := &update{from: base.Value, read: base, write: op, sure: op.Result == OK, by: op.End}
			if at, ok := seen[op.Value]; ok {
				u.sure, u.by = true, min(u.by, at)
			}
			if first := written[op.Value]; first != nil {
				report([]Op{first.write, op}, "%q was written to %q twice: values must differ, or updates cannot be told apart", op.Value, key)
			}
			written[op.Value] = u
			if first := wrote[u.from]; first != nil && u.sure {
				report([]Op{first.read, base, first.write, op}, "the updates of %s and %s to %q both come from %q: one of them is lost",
					first.write.Client, op.Client, key, u.from)
			} else if u.sure {
				wrote[u.from] = u
			}
			bases[hold] = op
		}
	}
	return append(found, staleReads(key, reads, written)...)
}

// staleReads are those that saw fewer updates than had taken effect before they began.
func staleReads(key string, reads []Op, written map[string]*update) []Violation {
	var found []Violation
	var done []*update
	for _, u := range written {
		if u.sure {
			done = append(done, u)
		}
	}
	slices.SortFunc(done, func(a, b *update) int { return cmp.Compare(a.by, b.by) })
	slices.SortFunc(reads, byStart)
	steps := counter(written)
	var newest *update
	i := 0
	for _, r := range reads {
		for ; i < len(done) && done[i].by < r.Start; i++ {
			if newest == nil || steps(done[i].write.Value) > steps(newest.write.Value) {
				newest = done[i]
			}
		}
		if newest != nil && steps(r.Value) < steps(newest.write.Value) {
			found = append(found, violation("NoLostUpdate", []Op{newest.write, r}, "%s read %q from %q after %s had written %q",
				r.Client, r.Value, key, newest.write.Client, newest.write.Value))
		}
	}
	return found
}

// counter counts the updates that led to a value; 0 is what was there at first.
func counter(written map[string]*update) func(value string) int {
	return func(value string) int {
		var way []*update
		for u := written[value]; u != nil && u.steps == 0; u = written[u.from] {
			u.steps = 1 // already, so that values that come from each other end
			way = append(way, u)
		}
		for _, u := range slices.Backward(way) {
			if before := written[u.from]; before != nil {
				u.steps += before.steps
			}
		}
		if u := written[value]; u != nil {
			return u.steps
		}
		return 0
	}
}
