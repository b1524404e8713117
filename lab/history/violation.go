package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Violation is a guarantee that a history shows to be broken.
type Violation struct {
	Property string // as the judge is called
	Sentence string
	Ops      []Op // what shows it, the first cause first
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", v.Property, v.Sentence)
	for _, op := range v.Ops {
		fmt.Fprintf(&b, "\n  %v", op)
	}
	return b.String()
}

// Rules say by what a lock is judged: what it claims.
type Rules struct {
	Reentrant bool // holds of one owner may overlap, and share a fence
	Fenced    bool // every hold has a fence

	Permits   int  // how many there are, of which each hold has its Op.Share; 0: one, the lock is exclusive
	ReadWrite bool // many may hold it to read (their Op.Share is 1), or one to write

	// Forgets tells of a fault whether it takes locks from their holders: servers
	// restarted empty, flushed, keys evicted. nil: none does.
	Forgets func(fault Op) bool

	// Hinders tells of a fault whether the lock may be out of reach for a client while it
	// lasts. nil: it may, for all.
	Hinders func(fault Op, client string) bool

	// Bound is how long a lock that nobody holds may be out of reach for somebody who
	// keeps trying: the TTL, and what he waits between attempts. 0: not judged.
	Bound time.Duration

	// Prompt is how soon somebody who keeps trying gets a lock of which nothing can be left with the servers, and how soon a client
	// undoes what it may have left there; a grant that a message told of is renewed at once then, too. 0: not judged.
	Prompt time.Duration

	// Ends tells of a fault whether it ended a client, which then undoes nothing. nil: none does.
	Ends func(fault Op, client string) bool

	// Overtakers is how many of other processes may call after a waiter and get the lock before it, while nothing is broken; and
	// Equal tells of a waiter whether it waits as they do. 0: not judged.
	Overtakers int
	Equal      func(acquire Op) bool

	// Linger is how long past its TTL a hold may stay on a server that nothing hinders.
	// 0: whether "held" was true is not judged, as where a loser leaves traces (the
	// timestamp lock) or votes split (a quorum).
	Linger time.Duration
}

// whole is what a writer takes of a read-write lock: more than there are readers.
const whole = 1 << 30

// room is how much of a lock can be held at a time.
func (r Rules) room() int {
	if r.ReadWrite {
		return whole
	}
	return max(r.Permits, 1)
}

// size is how much an acquire asks for.
func (r Rules) size(op Op) int {
	switch {
	case r.ReadWrite && op.Share == 0:
		return whole
	case r.Permits > 1:
		return max(op.Share, 1)
	}
	return 1
}

// shared reports whether several may hold the lock, who are not one owner.
func (r Rules) shared() bool { return r.ReadWrite || r.Permits > 1 }

// Judge is all complete sweeps: none needs to search, so none gives up on a long history.
func Judge(ops []Op, r Rules) []Violation {
	b := bookOf(ops)
	all := slices.Concat(
		b.exclusion(r),
		b.ownership(r),
		b.honestLoss(r),
		b.honestAmbiguity(r),
	)
	if r.Permits <= 1 { // several permits protect no updates from each other
		all = append(all, noLostUpdate(b.ops)...)
	}
	if r.Bound > 0 {
		all = append(all, b.deadlockFree(r)...)
	}
	if r.Prompt > 0 {
		all = append(all, b.prompt(r)...)
	}
	if r.Overtakers > 0 {
		all = append(all, b.fair(r)...)
	}
	if r.Fenced {
		all = append(all, b.fenceOrder(r)...)
	}
	return all
}

// violation makes one. An operation that plays two parts is shown once.
func violation(property string, ops []Op, format string, args ...any) Violation {
	v := Violation{Property: property, Sentence: fmt.Sprintf(format, args...)}
	for _, op := range ops {
		if !slices.Contains(v.Ops, op) {
			v.Ops = append(v.Ops, op)
		}
	}
	return v
}

// String is the operation in a line.
func (op Op) String() string {
	line := fmt.Sprintf("%s–%s", clock(op.Start), clock(op.End))
	add := func(told bool, format string, args ...any) {
		if told {
			line += fmt.Sprintf(format, args...)
		}
	}
	add(op.Client != "", "  %s", op.Client)
	add(true, "  %s", op.Kind)
	add(op.Key != "", " %s", op.Key)
	add(op.Kind == KindWrite, " %q", op.Value)
	add(op.Result != "", " = %s", op.Result)
	add(op.Kind == KindRead && op.Result == OK, " %q", op.Value)
	add(op.Hold != "", ", hold %s", strategy.ShortToken(op.Hold))
	add(op.Owner != "" && op.Owner != op.Hold, ", owner %.20s", op.Owner)
	add(op.Share != 0, ", share %d", op.Share)
	add(op.Fence != 0, ", fence %d", op.Fence)
	add(op.Deadline != 0, ", until %s", clock(op.Deadline))
	add(op.Unconfirmed != 0, ", %d attempts of unknown outcome", op.Unconfirmed)
	add(op.Note != "", ", %s", op.Note)
	return line
}

// rounded shows a duration to the microsecond.
func rounded(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// clock shows a moment in seconds, so that moments can be compared at a glance.
func clock(d time.Duration) string {
	if d == Forever {
		return "∞"
	}
	return fmt.Sprintf("%.6fs", d.Seconds())
}
