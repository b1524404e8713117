package history

// Simulated histories: the judges and models accept every legal one, and reject every one with a planted change.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// worlds are what the simulated histories come from.
func worlds() map[string]simRules {
	calm, fenced, rough, again, fenceless := usual(), usual(), usual(), usual(), usual()
	fenced.fenced, fenced.pauses = true, true
	rough.fenced, rough.pauses, rough.loseReplies, rough.freezes = true, true, true, true
	rough.timeOut = rough.ttl + 5*ms // a grant may come too late to be of use
	again.reentrant, again.fenced, again.loseReplies, again.freezes = true, true, true, true
	fenceless.loseReplies, fenceless.freezes = true, true
	return map[string]simRules{"calm": calm, "fenced": fenced, "rough": rough, "re-entrant": again, "fenceless": fenceless,
		"queue": queueing(rough, 1), "permits": queueing(calm, 3), "rough permits": queueing(rough, 3), "readers": reading(calm), "rough readers": reading(rough)}
}

// queueing has waiters stand in a queue for permits.
func queueing(r simRules, permits int) simRules {
	r.clients, r.permits, r.waits, r.fenced = 4+permits, permits, true, true
	return r
}

// reading has readers besides writers.
func reading(r simRules) simRules {
	r = queueing(r, 1)
	r.readWrite = true
	return r
}

func (r simRules) rules() Rules {
	rules := Rules{Reentrant: r.reentrant, Fenced: r.fenced, Permits: r.permits, ReadWrite: r.readWrite, Bound: 2*r.ttl + simLinger, Linger: simLinger}
	if r.waits { // a waiter that has not heard that it is a holder may keep the lock for a TTL before it asks again
		rules.Bound += 2 * r.ttl
	}
	return rules
}

// A legal history offends no judge, whatever went wrong in it.
func TestLegalHistories(t *testing.T) {
	t.Parallel()
	for name, r := range worlds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds := map[string]int{}
			r.length = time.Second
			for seed := range uint64(100) {
				ops := simulate(r, seed)
				if v := Judge(ops, r.rules()); len(v) > 0 {
					t.Fatalf("seed %d: %v", seed, v[0])
				}
				for _, op := range ops {
					kinds[fmt.Sprint(op.Kind, " ", op.Result)]++
				}
			}
			want := []string{"acquire ok", "acquire held", "renew ok", "release ok"}
			if r.freezes {
				want = append(want, "acquire unknown", "renew unknown", "release unknown", "fault ")
			}
			if r.pauses && r.freezes {
				want = append(want, "acquire lost", "renew lost", "release lost", "lost ")
			}
			if r.fenced && r.pauses && r.permits <= 1 {
				want = append(want, "read refused", "write refused")
			}
			for _, kind := range want {
				if kinds[kind] < 3 {
					t.Errorf("%d times %q, want 3 at least: the histories say little", kinds[kind], kind)
				}
			}
		})
	}
}

// Nor does it offend the models, which search.
func TestLegalHistoriesLinear(t *testing.T) {
	t.Parallel()
	for name, r := range worlds() {
		r.length = time.Second / 2
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(60) {
				ops := simulate(r, seed)
				found := LinearLock(ops, r.rules(), time.Minute)
				if r.fenced {
					found = append(found, FencedRegister(ops, "0", time.Minute)...)
				}
				if len(found) > 0 {
					t.Fatalf("seed %d: %v", seed, found[0])
				}
			}
		})
	}
}

// A history that cannot be decided is no pass.
func TestUndecided(t *testing.T) {
	t.Parallel()
	var ops []Op
	for i := range 60 { // each may have taken effect or not, in any order
		ops = append(ops, Op{Client: fmt.Sprint("W", i), Kind: KindWrite, Key: "k", Start: 1, End: 2, Result: Unknown, Value: fmt.Sprint(i)})
	}
	ops = append(ops, Op{Client: "R", Kind: KindRead, Key: "k", Start: 3, End: 4, Result: OK, Value: "none of these"})
	found := FencedRegister(ops, "0", 50*ms)
	if len(found) != 1 || !strings.Contains(found[0].Sentence, "undecided") {
		t.Errorf("%v, want that it is undecided", found)
	}
}

// A mutation spoils one operation of a legal history; false: this one does not lend itself
// to it.
type mutation struct {
	name, world string
	caught      []string // by these judges
	spoil       func(o []Op, i int, b *book) ([]Op, bool)
}

var mutations = []mutation{
	{"a hold gets the fence of one before", "fenced", []string{"FenceOrder", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		for _, before := range b.holds {
			if before.grant.End < o[i].Start && o[i].grants() {
				o[i].Fence = before.grant.Fence
				return o, true
			}
		}
		return o, false
	}},
	{"a renewal changes the fence", "fenced", []string{"FenceOrder"}, func(o []Op, i int, b *book) ([]Op, bool) {
		o[i].Fence++
		return o, o[i].Kind == KindRenew
	}},
	{"who was refused is granted", "calm", []string{"Exclusion", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Result != Held || !b.within(o[i], 5*ms) {
			return o, false
		}
		o[i].Result, o[i].Hold, o[i].Deadline = OK, "new", o[i].End+5*ms
		return o, true
	}},
	{"one permit more is granted than there are", "permits", []string{"Exclusion", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Result != Held || b.taken(o[i], 5*ms, Rules{Permits: 3}) < 3 {
			return o, false
		}
		o[i].Result, o[i].Hold, o[i].Deadline, o[i].GaveUp = OK, "new", o[i].End+5*ms, false
		return o, true
	}},
	{"who asks while permits are free is refused", "permits", []string{"HonestAmbiguity", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		z := Op{Client: "Z", Kind: KindAcquire, Key: "k", TTL: o[i].TTL, Start: o[i].End + 1, End: o[i].End + 2, Result: Held}
		r := Rules{Permits: 3, Linger: simLinger}
		free := most(b.present("k", b.byKey["k"], r), z)+b.wanted("k", b.byKey["k"], r)(z) <= 3
		return append(o, z), free && o[i].Kind == KindRelease
	}},
	{"one permit is lost by another's release", "permits", []string{"Ownership", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		ok := o[i].Kind == KindRenew && o[i].Result == OK && b.early(o[i])
		o[i].Result, o[i].Deadline = Lost, 0
		return o, ok
	}},
	{"a reader gets in next to a writer", "readers", []string{"Exclusion", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Result != Held || o[i].Share == 0 || b.taken(o[i], 5*ms, Rules{ReadWrite: true}) < whole {
			return o, false
		}
		o[i].Result, o[i].Hold, o[i].Deadline, o[i].GaveUp = OK, "new", o[i].End+5*ms, false
		return o, true
	}},
	{"a writer gets in next to readers", "readers", []string{"Exclusion", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Result != Held || o[i].Share > 0 || b.taken(o[i], 5*ms, Rules{ReadWrite: true}) == 0 {
			return o, false
		}
		o[i].Result, o[i].Hold, o[i].Deadline, o[i].GaveUp = OK, "new", o[i].End+5*ms, false
		return o, true
	}},
	{"a reader is refused while others read", "readers", []string{"HonestAmbiguity", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		z := Op{Client: "Z", Kind: KindAcquire, Key: "k", TTL: o[i].TTL, Start: o[i].End + 1, End: o[i].End + 2, Result: Held, Share: 1}
		r := Rules{ReadWrite: true, Linger: simLinger}
		taken := most(b.present("k", b.byKey["k"], r), z)
		return append(o, z), o[i].Kind == KindRead && taken > 0 && taken+b.wanted("k", b.byKey["k"], r)(z) <= whole
	}},
	{"a reader has the fence of a writer before the last", "readers", []string{"FenceOrder", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		for _, before := range b.holds {
			if o[i].grants() && o[i].Share > 0 && before.grant.End < o[i].Start && before.grant.Share == 0 && before.grant.Fence == o[i].Fence && o[i].Fence > 1 {
				o[i].Fence--
				return o, true
			}
		}
		return o, false
	}},
	{"a writer has the fence of a reader before", "readers", []string{"FenceOrder", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		for _, before := range b.holds {
			if o[i].grants() && o[i].Share == 0 && before.grant.End < o[i].Start && before.grant.Share > 0 && before.grant.Fence == o[i].Fence-1 && o[i].Fence > 1 {
				o[i].Fence--
				return o, true
			}
		}
		return o, false
	}},
	{"a hold that was granted is unknown", "fenced", []string{"HonestAmbiguity"}, func(o []Op, i int, b *book) ([]Op, bool) {
		ok := o[i].grants() && o[i].Start < time.Second
		o[i].Result = Unknown
		return o, ok
	}},
	{"a token is granted twice", "fenced", []string{"HonestAmbiguity"}, func(o []Op, i int, b *book) ([]Op, bool) {
		ok := o[i].grants() && o[i].Hold != b.holds[0].grant.Hold
		o[i].Hold = b.holds[0].grant.Hold
		return o, ok
	}},
	{"a renewal finds the key gone", "rough", []string{"Ownership"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Kind != KindRenew || o[i].Result != OK {
			return o, false
		}
		o[i].Result = Lost
		return o, o[i].End < o[i].Start+20*ms && b.early(o[i])
	}},
	{"a release finds the key gone", "calm", []string{"Ownership", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		ok := o[i].Kind == KindRelease && o[i].Result == OK && b.early(o[i])
		o[i].Result = Lost
		return o, ok
	}},
	{"a stranger releases", "calm", []string{"Ownership", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Kind != KindRelease || o[i].Result != OK {
			return o, false
		}
		for _, s := range b.byKey["k"].spans {
			if s.from > o[i].End && s.until-s.from > 2*ms {
				o[i].Start, o[i].End = s.from+ms, s.from+3*ms/2
				return o, true
			}
		}
		return o, false
	}},
	{"a use begins at the deadline", "rough", []string{"HonestLoss"}, func(o []Op, i int, b *book) ([]Op, bool) {
		for _, h := range b.holds {
			if h.grant.Hold == o[i].Hold && (o[i].Kind == KindRead || o[i].Kind == KindWrite) {
				o[i].Start, _ = h.deadlineAt(Forever, Op{})
				o[i].End = o[i].Start + 2*ms
				return o, true
			}
		}
		return o, false
	}},
	{"a deadline is later than the TTL", "rough", []string{"HonestLoss"}, func(o []Op, i int, b *book) ([]Op, bool) {
		ok := o[i].Deadline != 0
		o[i].Deadline = o[i].End + o[i].TTL + 1
		return o, ok
	}},
	{"a read sees the first value", "calm", []string{"NoLostUpdate"}, func(o []Op, i int, b *book) ([]Op, bool) {
		ok := o[i].Kind == KindRead && o[i].Result == OK && slices.ContainsFunc(o, func(w Op) bool {
			return w.Kind == KindWrite && w.Result == OK && w.End < o[i].Start
		})
		o[i].Value = "0"
		return o, ok
	}},
	{"a stale write is accepted", "fenced", []string{"FencedRegister"}, func(o []Op, i int, b *book) ([]Op, bool) {
		ok := o[i].Kind == KindWrite && o[i].Result == Refused
		o[i].Result = OK
		return o, ok
	}},
	{"a write is refused for nothing", "fenced", []string{"FencedRegister"}, func(o []Op, i int, b *book) ([]Op, bool) {
		newer := slices.ContainsFunc(o, func(p Op) bool { return p.Fence > o[i].Fence && p.Start <= o[i].End })
		ok := o[i].Kind == KindWrite && o[i].Result == OK && !newer
		o[i].Result = Refused
		return o, ok
	}},
	{"who asks between two holds is refused", "alone", []string{"HonestAmbiguity", "LinearLock"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Kind != KindRelease || o[i].Result != OK {
			return o, false
		}
		for _, next := range o {
			if next.Kind == KindAcquire && next.Start > o[i].End+ms {
				return append(o, Op{Client: "Z", Kind: KindAcquire, Key: "k", TTL: next.TTL, Start: o[i].End + 1, End: o[i].End + 2, Result: Held}), true
			}
		}
		return o, false
	}},
	{"who waits is never served", "alone", []string{"DeadlockFree"}, func(o []Op, i int, b *book) ([]Op, bool) {
		if o[i].Kind != KindAcquire || o[i].Result != OK {
			return o, false
		}
		o = o[:i+1] // and nobody else asks
		o[i].Result, o[i].Hold, o[i].Deadline, o[i].Fence = Held, "", 0, 0
		o[i].End = o[i].Start + time.Second
		return o, true
	}},
}

// within reports whether somebody surely held for all of an operation, and a while longer.
func (b *book) within(op Op, more time.Duration) bool {
	op.End += more
	return len(b.byKey[op.Key].covering()(op, func(*hold) bool { return true })) > 0
}

// taken is how much others surely held for all of an operation, and a while longer.
func (b *book) taken(op Op, more time.Duration, r Rules) (size int) {
	op.End += more
	for _, s := range b.byKey[op.Key].covering()(op, func(*hold) bool { return true }) {
		size += r.size(s.hold.grant)
	}
	return size
}

// early reports whether an operation ended while its hold was surely held.
func (b *book) early(op Op) bool {
	for _, h := range b.holds {
		if h.grant.Hold == op.Hold {
			deadline, _ := h.deadlineBefore(op.Start)
			over, _ := h.over()
			return op.End < min(deadline, max(over, op.End+1))
		}
	}
	return false
}

func TestMutations(t *testing.T) {
	t.Parallel()
	worlds := worlds()
	alone := usual()
	alone.clients = 1
	worlds["alone"] = alone
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			r := worlds[m.world]
			r.length = time.Second / 2
			spoiled := 0
			for seed := range uint64(50) {
				legal := simulate(r, seed)
				b := bookOf(legal)
				rng := rand.New(rand.NewPCG(seed, 2))
				var o []Op
				for _, i := range rng.Perm(len(legal)) {
					var ok bool
					if o, ok = m.spoil(slices.Clone(legal), i, b); ok {
						spoiled++
						break
					}
					o = nil
				}
				if o == nil {
					continue
				}
				all := Judge(o, r.rules())
				for _, judge := range m.caught {
					switch judge {
					case "LinearLock":
						all = append(all, LinearLock(o, r.rules(), time.Minute)...)
					case "FencedRegister":
						all = append(all, FencedRegister(o, "0", time.Minute)...)
					}
					if !slices.ContainsFunc(all, func(v Violation) bool { return v.Property == judge && len(v.Ops) > 0 }) {
						t.Fatalf("seed %d: %s does not see it, only %v", seed, judge, all)
					}
				}
			}
			if spoiled < 3 {
				t.Errorf("only %d of 50 histories were spoiled, want 3 at least", spoiled)
			}
		})
	}
}
