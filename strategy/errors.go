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
	// whether it took effect. An acquire that ends so is undone in the
	// background; a release that ends so is repeated in the background.
	ErrUnknown = errors.New("outcome unknown")

	// ErrUnsupported: this algorithm or this server cannot do that.
	ErrUnsupported = errors.New("not supported")

	// ErrClosed: the Strategy has been closed.
	ErrClosed = errors.New("strategy closed")
)

// A HeldError says who holds a lock. It is [ErrHeld].
type HeldError struct {
	Name  string
	Token string        // the holder's; empty if the servers did not say
	TTL   time.Duration // until the servers let go; zero: not known; negative: never
}

func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q: held", e.Name)
	if e.Token != "" {
		fmt.Fprintf(&b, " by %.100q", e.Token)
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

// A LostError says how a lease ended before its release. It is [ErrLost].
type LostError struct {
	Name   string
	Holder string // the token that the servers show instead; empty: none
	Lapsed bool   // the deadline came; nobody asked the servers, or none answered
	Err    error  // why it could not be renewed, or why it was not
}

func (e *LostError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q: lost: ", e.Name)
	switch {
	case e.Lapsed:
		b.WriteString("its deadline came")
	case e.Holder != "":
		fmt.Fprintf(&b, "now held by %.100q", e.Holder)
	default:
		b.WriteString("the key is gone")
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
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
