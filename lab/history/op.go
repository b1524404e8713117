// Package history records what clients did with locks and what was done to the servers,
// by one clock, and judges it: which guarantees the history shows to be broken. A judge
// believes what the holders believed, never what the servers say.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Kind says what an [Op] did.
type Kind string

const (
	KindAcquire Kind = "acquire" // TryAcquire, or Acquire with its waiting
	KindRenew   Kind = "renew"   // Extend, or a renewal in the background
	KindRelease Kind = "release"
	KindLost    Kind = "lost"  // the holder learned that its hold is over, by Lost or Err, since it last saw that it was not; asks nobody
	KindRead    Kind = "read"  // of what the lock protects
	KindWrite   Kind = "write" // likewise
	KindFault   Kind = "fault" // something was done to servers, network or clients
)

var kinds = []Kind{KindAcquire, KindRenew, KindRelease, KindLost, KindRead, KindWrite, KindFault}

// silent reports whether such an operation asks nobody, and so has no result.
func (k Kind) silent() bool { return k == KindLost || k == KindFault }

// A Result says how an [Op] ended, as its client heard.
type Result string

const (
	OK       Result = "ok"
	Held     Result = "held"     // another holds the lock
	Lost     Result = "lost"     // the hold is over
	Refused  Result = "refused"  // by the server, or by the store for its fence: nothing has changed
	Unsent   Result = "unsent"   // nothing was sent: nothing has changed
	Unknown  Result = "unknown"  // nobody knows whether it took effect, or will
	Closed   Result = "closed"   // the strategy was
	Released Result = "released" // the client had ended the hold itself
)

var results = []Result{OK, Held, Lost, Refused, Unsent, Unknown, Closed, Released}

// ResultOf puts the errors of package strategy into classes; nil is OK. What belongs to
// no class is Unknown: nobody has said that nothing has changed.
func ResultOf(err error) Result {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, strategy.ErrHeld): // first: a QuorumError may be more than that
		return Held
	case errors.Is(err, strategy.ErrLost): // it wraps why it could not be renewed
		return Lost
	case errors.Is(err, strategy.ErrUnknown): // one unknown answer of several decides
		return Unknown
	case errors.Is(err, strategy.ErrRefused), errors.Is(err, strategy.ErrUnsupported):
		return Refused
	case errors.Is(err, strategy.ErrReleased):
		return Released
	case errors.Is(err, strategy.ErrClosed):
		return Closed
	case errors.Is(err, strategy.ErrUnsent),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // gave up in the line
		return Unsent
	}
	return Unknown
}

// Forever is the End of what was not seen to end: its client was killed.
const Forever time.Duration = math.MaxInt64

// An Op is one operation: what its client asked for, what it heard, and when.
type Op struct {
	Client string `json:"client"`       // who: a thread of its own, of a process; fault: empty, or who is hit
	ID     uint64 `json:"id,omitempty"` // which of its recorder's; set by [Recorder.Begin]
	Kind   Kind   `json:"kind"`
	Key    string `json:"key,omitempty"` // the lock, or what it protects; fault: empty, or the only one that is hit

	// Hold is the hold's token: of an acquire that is OK, and of all that follows.
	Hold  string `json:"hold,omitempty"`
	Owner string `json:"owner,omitempty"` // of the hold; who asked, if acquire named one; empty: Hold

	// Start is before the first byte was sent, End after the answer was read, both by Now.
	// A renewal in the background may be recorded when it is noticed: then Start is when
	// the hold was last looked at, and End now; it took place somewhere between.
	Start  time.Duration `json:"start"`
	End    time.Duration `json:"end"`
	Result Result        `json:"result,omitempty"`

	// Noticed: renew: it took place in the background, or may hide one that did, so that its
	// End does not say when the holder had it.
	Noticed bool `json:"noticed,omitempty"`

	// Took: renew: how long the request took, as the lease measured it ([strategy.EventRenewed]). A client that is paused
	// right after the answer reads the clock for End later. 0: not known.
	Took time.Duration `json:"took,omitempty"`

	// GaveUp: acquire: the client's context ended it. A grant may have come just then, and
	// is given back in the background.
	GaveUp bool `json:"gaveUp,omitempty"`

	// Unconfirmed: acquire: how many attempts of unknown outcome its client made until it ended,
	// which may be well. They are undone in the background.
	Unconfirmed int `json:"unconfirmed,omitempty"`

	// Capped: lost: because the maximum hold was over. The client undoes what servers may have kept.
	Capped bool `json:"capped,omitempty"`

	// Deadline is, of acquire and renew that are OK, until when the holder believes
	// to hold. A client that sets a maximum hold that makes it earlier records a renewal.
	Deadline time.Duration `json:"deadline,omitempty"`
	TTL      time.Duration `json:"ttl,omitempty"` // acquire, renew: what the servers were asked to count

	// Share is how much of the lock was asked for, if several may hold it: how many permits of a semaphore (0: one);
	// 1 to read, 0 to write. It is that of an acquire, and of all that follows.
	Share int `json:"share,omitempty"`

	// From: acquire: it was a downgrade, which ended this hold in the same step. That hold has a release that took
	// as long.
	From string `json:"from,omitempty"`

	Fence uint64 `json:"fence,omitempty"` // of the hold; 0: none

	Value string `json:"value,omitempty"` // read: what was read; write: what was to be written; fault: its kind
	Note  string `json:"note,omitempty"`  // the error's words; fault: what was done, to what
}

// Of fills in what an acquire or renew gave: the lease as it is now, or the error.
func (op Op) Of(l strategy.Lease, err error) Op {
	if op = op.Ended(err); err != nil {
		return op
	}
	op.Hold, op.Owner, op.Deadline = l.Token(), l.Owner(), At(l.Deadline())
	op.Fence, _ = l.Fence()
	return op
}

// Ended fills in how the operation ended.
func (op Op) Ended(err error) Op {
	op.Result, op.Note = ResultOf(err), ""
	op.GaveUp = op.Kind == KindAcquire && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
	if err != nil {
		op.Note = err.Error()
	}
	return op
}

// answered is when the answer came.
func (op Op) answered() time.Duration {
	if op.Took > 0 {
		return min(op.End, op.Start+op.Took)
	}
	return op.End
}

// owner is who holds: without a name the hold owns itself.
func (op Op) owner() string { return cmp.Or(op.Owner, op.Hold) }

// grants reports whether the operation made a hold.
func (op Op) grants() bool {
	return op.Kind == KindAcquire && op.Result == OK
}

// Check tells what makes no sense in an operation: a history with a gap must not pass
// for a good one.
func (op Op) Check() error {
	switch {
	case !slices.Contains(kinds, op.Kind):
		return fmt.Errorf("history: kind %q, allowed are %q", op.Kind, kinds)
	case op.Kind != KindFault && op.Client == "":
		return fmt.Errorf("history: %s has no client", op.Kind)
	case op.End < op.Start:
		return fmt.Errorf("history: %s of %s ends at %v, before its start at %v", op.Kind, op.Client, op.End, op.Start)
	case op.Kind.silent():
		if op.Result != "" && op.Result != OK {
			return fmt.Errorf("history: result %q of %s, which has none: allowed is %q or none", op.Result, op.Kind, OK)
		}
	case !slices.Contains(results, op.Result):
		return fmt.Errorf("history: result %q of %s of %s, allowed are %q", op.Result, op.Kind, op.Client, results)
	}
	switch {
	case op.Kind == KindFault:
	case op.Key == "":
		return fmt.Errorf("history: %s of %s has no key", op.Kind, op.Client)
	case op.Hold == "" && (op.grants() || op.Kind == KindRenew || op.Kind == KindRelease || op.Kind == KindLost):
		return fmt.Errorf("history: %s of %s has no hold", op.Kind, op.Client)
	case op.Deadline == 0 && (op.grants() || op.Kind == KindRenew && op.Result == OK):
		return fmt.Errorf("history: %s of %s was granted without a deadline", op.Kind, op.Client)
	}
	return nil
}

// remains reports whether an acquire may have left something with the servers for a
// while, of which its client has no hold: nobody knows, it was granted too late to be of
// use, or when the client gave up.
func (op Op) remains() bool {
	return op.Result == Unknown || op.Result == Lost && op.Kind == KindAcquire || op.GaveUp || op.Unconfirmed > 0
}

func byStart(a, b Op) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
}
