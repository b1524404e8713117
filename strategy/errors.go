package strategy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/internal/contract"
)

// The kinds of failure, for [errors.Is]; the error types, for [errors.As], say more. No call reports an
// unknown outcome as held, lost or acquired. No text has a whole token: see [ShortToken].
var (
	ErrHeld        = errors.New("held by another")       // somebody else holds the lock, perhaps in this process; see [HeldError]
	ErrNoQuorum    = errors.New("no quorum")             // too few of several servers agreed; see [QuorumError]
	ErrLost        = errors.New("lock lost")             // the lease ended before its release: stop the work; see [LostError]
	ErrReleased    = errors.New("lock released")         // the caller has released or detached the lease
	ErrRefused     = errors.New("refused by the server") // the server answered with an error; nothing has changed
	ErrUnsent      = errors.New("not sent")              // the call reached no server; nothing has changed
	ErrUnsupported = errors.New("not supported")         // this algorithm or this server cannot do that
	ErrClosed      = errors.New("strategy closed")       // the Strategy has been closed
	ErrUnknown     = errors.New("outcome unknown")       // no answer, or too few confirmed ([AcksError]); the engine undoes such an acquire, and repeats such a release
)

// A HeldError names the holder of a lock. It is [ErrHeld].
type HeldError struct {
	Name   string
	Holder string        // its token; of a re-entrant lock its owner; of several, the one that ends first; empty: not known
	TTL    time.Duration // until that holder's lock expires; zero: not known; negative: never

	Taken, Permits int // of a semaphore, how many permits are taken, and of how many; 0 of any other lock
}

func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q: held", e.Name)
	if e.Holder != "" {
		fmt.Fprintf(&b, " by %.100q", ShortToken(e.Holder))
	}
	switch {
	case e.TTL > 0:
		fmt.Fprintf(&b, " for %v unless renewed", max(e.TTL.Round(time.Millisecond), time.Millisecond))
	case e.TTL < 0:
		b.WriteString(" without expiry")
	}
	if e.Permits > 0 {
		fmt.Fprintf(&b, "; %d of %d permits are taken", e.Taken, e.Permits)
	}
	return b.String()
}

func (e *HeldError) Unwrap() error { return ErrHeld }

// A QuorumError says what each of several servers answered when too few agreed. It is [ErrNoQuorum], and also [ErrHeld] if a
// quorum answered; otherwise it is ErrUnsent, ErrUnknown or ErrRefused, even if a minority reports the lock as held.
type QuorumError struct {
	Name  string
	Need  int          // how many have to agree
	Nodes []NodeAnswer // in the order in which New was given them
	Held  *HeldError   // nil: no quorum answered
}

// A NodeAnswer is the answer of one of several servers.
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
		words, node := strings.TrimPrefix(n.Err.Error(), lock), contract.Printable(n.Node)+": "
		if !strings.HasPrefix(words, node) { // a ServerError names it
			words = node + words
		}
		fmt.Fprintf(&others, "; %s", words)
	}
	return fmt.Sprintf("%sno quorum: %d of %d servers agreed, needed are %d%s", head, agreed, len(e.Nodes), e.Need, &others)
}

func (e *QuorumError) Unwrap() []error {
	if e.Held != nil {
		return []error{ErrNoQuorum, e.Held}
	}
	failed := []error{ErrNoQuorum}
	for _, n := range e.Nodes {
		if n.Err != nil && !errors.Is(n.Err, ErrHeld) && !errors.Is(n.Err, ErrLost) {
			failed = append(failed, n.Err)
		}
	}
	return failed
}

// A LostError says how a lease ended before its release. It is [ErrLost].
type LostError struct {
	Name   string
	Holder string // the token that the servers show instead; empty: none
	Lapsed bool   // the deadline came without a renewal
	Err    error  // why it was not renewed; nil: the key is gone, or Holder's
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
		what = fmt.Sprintf("now held by %.100q", ShortToken(e.Holder))
	case why != "":
		what, why = why, ""
	}
	if why != "" {
		what += ": " + why
	}
	return lock + "lost: " + what
}

func (e *LostError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, e.Err}
}

// A ServerError is a failed request to one server.
type ServerError struct {
	Node string // the server's name
	Kind error  // ErrRefused, ErrUnsent or ErrUnknown
	Err  error  // the server's words, or what broke
}

func (e *ServerError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %v", contract.Printable(e.Node), e.Kind)
	}
	return fmt.Sprintf("%s: %v: %s", contract.Printable(e.Node), e.Kind, contract.Printable(shortenTokens(e.Err.Error())))
}

func (e *ServerError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, reason{e.Err}}
}

// A reason is what broke a request. It says nothing of the lock: it may be the cause of a context, and so the loss of
// another lock.
type reason struct{ error }

func (r reason) Is(target error) bool {
	switch target {
	case ErrHeld, ErrNoQuorum, ErrLost, ErrReleased, ErrRefused, ErrUnsent, ErrUnknown:
		return false
	}
	return errors.Is(r.error, target)
}

func (r reason) As(target any) bool {
	switch target.(type) {
	case **HeldError, **LostError, **QuorumError, **ServerError:
		return false
	}
	return errors.As(r.error, target)
}

// An AcksError reports that a server granted or renewed a lock, and too few confirmed it ([Acks]). It
// comes inside a *[ServerError] that is [ErrUnknown].
type AcksError struct {
	Want Acks
	Got  Acks  // what has confirmed
	Err  error // why waiting for them failed; nil: too few confirmed in time
}

func (e *AcksError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("done, but nobody knows which servers have confirmed it: %v", e.Err)
	}
	replicas := fmt.Sprintf("%d of %d replicas", e.Got.Replicas, e.Want.Replicas)
	switch {
	case e.Want.AOF && !e.Got.AOF:
		return fmt.Sprintf("done, but too few confirmed it in time: %s, not the append-only file", replicas)
	case e.Want.AOF:
		return fmt.Sprintf("done, but too few confirmed it in time: the append-only file, %s", replicas)
	}
	return fmt.Sprintf("done, but too few confirmed it in time: %s", replicas)
}

func (e *AcksError) Unwrap() error {
	// Not the kind of Err: a WAIT that was refused, or not sent, does not mean that nothing changed.
	var server *ServerError
	if errors.As(e.Err, &server) {
		return server.Err
	}
	return e.Err
}
