package strategy

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The vocabulary of failure. Each is found with [errors.Is]; the types below,
// found with [errors.As] through a pointer, add what the caller cannot know.
//
// What cannot be known is never reported as held, lost or acquired.
var (
	// ErrHeld: somebody else holds the lock; try later. See [HeldError].
	ErrHeld = errors.New("held by another")

	// ErrNoQuorum: too few of several servers agreed, because another holds the lock
	// (then it is ErrHeld, too), or because they cannot be reached. See [QuorumError].
	ErrNoQuorum = errors.New("no quorum")

	// ErrLost: this lease has ended before its release; stop the work that it
	// protects. See [LostError].
	ErrLost = errors.New("lock lost")

	// ErrReleased: this lease was released or detached by its own user.
	ErrReleased = errors.New("lock released")

	// ErrRefused: the server answered with an error; nothing has changed.
	ErrRefused = errors.New("refused by the server")

	// ErrUnsent: no server was reached; nothing has changed.
	ErrUnsent = errors.New("not sent")

	// ErrUnknown: the request left and its answer did not come back. Nobody knows
	// whether it took effect; or, with an [AcksError], whether that will last. An
	// acquire that ends so is undone in the background; a release that ends so is
	// repeated in the background.
	ErrUnknown = errors.New("outcome unknown")

	// ErrUnsupported: this algorithm or this server cannot do that.
	ErrUnsupported = errors.New("not supported")

	// ErrClosed: the Strategy has been closed.
	ErrClosed = errors.New("strategy closed")
)

// A HeldError says who holds a lock. It is [ErrHeld].
type HeldError struct {
	Name   string
	Holder string        // its token, or, where locks are re-entrant, its owner; empty if the servers did not say, or do not agree
	TTL    time.Duration // until the servers let go; zero: not known; negative: never

	// Silent says that the holder's release will not be announced to whoever waits, so a
	// waiter asks again after pauses of Options.Backoff. It is a protocol's word to [New].
	Silent bool
}

func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q: held", e.Name)
	if e.Holder != "" {
		fmt.Fprintf(&b, " by %.100q", e.Holder)
	}
	switch {
	case e.TTL > 0:
		fmt.Fprintf(&b, " for up to %v", e.TTL)
	case e.TTL < 0:
		b.WriteString(" without expiry")
	}
	return b.String()
}

// Is makes a HeldError match [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A QuorumError says what each of several servers answered when too few agreed. It
// is [ErrNoQuorum]. It is [ErrHeld] too, by Held, if and only if a quorum answered:
// then waiting makes sense. Otherwise it is what the servers that failed said
// (ErrUnsent, ErrUnknown, ErrRefused): a lock that cannot be reached is not "held",
// though a minority may say so. So whoever tells an outage from a lock that is held
// asks for ErrHeld first.
type QuorumError struct {
	Name  string
	Need  int          // how many have to agree
	Nodes []NodeAnswer // in the order in which they were given
	Held  *HeldError   // nil: no quorum answered
}

// A NodeAnswer is what one of several servers said.
type NodeAnswer struct {
	Node string // the server's name
	Err  error  // nil: it agreed
}

func (e *QuorumError) Error() string {
	lock := fmt.Sprintf("lock %q: ", e.Name) // said once, not by each
	head := lock
	if e.Held != nil { // what most callers ask: a lock that is held is no outage
		head = e.Held.Error() + "; "
	}
	agreed := 0
	var others strings.Builder
	for _, n := range e.Nodes {
		if n.Err == nil {
			agreed++
			continue
		}
		words := strings.TrimPrefix(n.Err.Error(), lock)
		if !strings.HasPrefix(words, n.Node+": ") { // a ServerError names it
			words = n.Node + ": " + words
		}
		fmt.Fprintf(&others, "; %s", words)
	}
	return fmt.Sprintf("%sno quorum: %d of %d servers agreed, needed are %d%s", head, agreed, len(e.Nodes), e.Need, &others)
}

// Is makes a QuorumError match [ErrNoQuorum].
func (e *QuorumError) Is(target error) bool { return target == ErrNoQuorum }

// Unwrap returns Held, or else what the servers that failed said.
func (e *QuorumError) Unwrap() []error {
	if e.Held != nil {
		return []error{e.Held}
	}
	var failed []error
	for _, n := range e.Nodes {
		if n.Err != nil && !errors.Is(n.Err, ErrHeld) && !errors.Is(n.Err, ErrLost) {
			failed = append(failed, n.Err)
		}
	}
	return failed
}

// An AllError says which of several locks failed ([All]), and why. What each of them said
// is found through it by errors.Is and errors.As.
type AllError struct {
	Name   string      // of all
	Failed []PartError // in the order in which the locks are taken; the others did as they were told
}

// A PartError is what became of one of several locks.
type PartError struct {
	Name string // the lock's
	Err  error
}

func (e *AllError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q", e.Name)
	for i, f := range e.Failed {
		b.WriteString([2]string{": ", "; "}[min(i, 1)])
		lock := fmt.Sprintf("lock %q: ", f.Name) // said once
		b.WriteString(lock + strings.TrimPrefix(f.Err.Error(), lock))
	}
	return b.String()
}

// Unwrap returns the errors of those that failed.
func (e *AllError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}

// Remains marks what a [Protocol] returns, if something of the claim may remain with
// some servers, so that the machinery undoes it in the background: at once, or, of an
// Extend that failed, when the lease is lost.
// Callers get err: nil, if what they asked for is done all the same.
func Remains(err error) error { return &remaining{err} }

type remaining struct{ err error }

func (r *remaining) Error() string {
	if r.err == nil {
		return "something may remain with a server that did not answer"
	}
	return r.err.Error()
}

func (r *remaining) Unwrap() error { return r.err }

// unmark takes the mark of [Remains] off.
func unmark(err error) (unmarked error, remains bool) {
	if err == nil {
		return nil, false
	}
	if r, ok := err.(*remaining); ok {
		return r.err, true
	}
	var r *remaining // within an error that says more
	return err, errors.As(err, &r)
}

// A LostError says how a lease ended before its release. It is [ErrLost].
type LostError struct {
	Name   string
	Holder string // the token that the servers show instead; empty: none
	Lapsed bool   // the deadline came; nobody asked the servers, or none answered
	Err    error  // why it could not be renewed, or why it was not; nil: the key is gone, or Holder's
}

func (e *LostError) Error() string {
	lock := fmt.Sprintf("lock %q: ", e.Name)
	why := ""
	if e.Err != nil {
		why = strings.TrimPrefix(e.Err.Error(), lock)
	}
	what := "the key is gone"
	switch {
	case e.Lapsed:
		what = "its deadline came"
	case e.Holder != "":
		what = fmt.Sprintf("now held by %.100q", e.Holder)
	case why != "":
		what, why = why, ""
	}
	if why != "" {
		what += ": " + why
	}
	return lock + "lost: " + what
}

// Is makes a LostError match [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the reason, if there is one.
func (e *LostError) Unwrap() error { return e.Err }

// A ServerError is a failed request to one server.
type ServerError struct {
	Node string // the server's name
	Kind error  // ErrRefused, ErrUnsent or ErrUnknown
	Err  error  // the server's words, or what broke
}

func (e *ServerError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %v", e.Node, e.Kind)
	}
	return fmt.Sprintf("%s: %v: %v", e.Node, e.Kind, e.Err)
}

// Unwrap returns the kind and the cause.
func (e *ServerError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
