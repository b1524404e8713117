// Tests what the engine makes of protocols on several servers: their errors, and what is Partial.
package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// These tests have a protocol on several servers.

func TestQuorumError(t *testing.T) {
	t.Parallel()
	held := &strategy.HeldError{Name: name, Holder: "t", TTL: time.Second}
	down := &strategy.ServerError{Node: "n3", Kind: strategy.ErrUnsent, Err: errors.New("refused")}
	answers := []strategy.NodeAnswer{{Node: "n1"}, {Node: "n2", Err: held}, {Node: "n3", Err: down}}
	const words = `no quorum: 1 of 3 servers agreed, needed are 2; n2: held by "…" for 1s unless renewed; n3: not sent: refused`

	e := &strategy.QuorumError{Name: name, Need: 2, Nodes: answers}
	is(t, "a minority that holds", e, strategy.ErrNoQuorum, strategy.ErrUnsent)
	isNot(t, "a minority that holds", e, strategy.ErrHeld, strategy.ErrUnknown, strategy.ErrLost)
	var h *strategy.HeldError
	if errors.As(e, &h) {
		t.Errorf("As HeldError = %v, want none: no quorum answered", h)
	}
	var s *strategy.ServerError
	if !errors.As(e, &s) || s != down {
		t.Errorf("As ServerError = %v, want %v", s, down)
	}
	equal(t, "Error", e.Error(), `lock "n": `+words)

	e.Held = held
	is(t, "a quorum that answered", e, strategy.ErrNoQuorum, strategy.ErrHeld)
	isNot(t, "a quorum that answered", e, strategy.ErrUnsent)
	heldBy(t, "a quorum that answered", e, "t")
	equal(t, "Error of a lock that is held", e.Error(), `lock "n": held by "…" for 1s unless renewed; `+words)

	answers[1].Err = &strategy.LostError{Name: name}
	isNot(t, "a minority that lost it", &strategy.QuorumError{Name: name, Need: 2, Nodes: answers}, strategy.ErrLost)
}

// remaining is a protocol that says Partial, as one does of whose servers a minority did not answer.
type remaining struct {
	*lockstest.Memory
	acquire, release bool
	extend           func() (driver.Grant, error) // nil: all have made it
	undone           chan driver.Claim
}

func (r *remaining) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g, err := r.Memory.Acquire(ctx, c)
	if r.acquire {
		return driver.Grant{State: "votes", Partial: true}, &strategy.HeldError{Name: c.Name}
	}
	return g, err
}

func (r *remaining) Adopt(_ context.Context, c driver.Claim, _ string) (driver.Grant, error) {
	return driver.Grant{State: "votes", Partial: true}, &strategy.LostError{Name: c.Name}
}

func (r *remaining) Extend(context.Context, driver.Claim) (driver.Grant, error) { return r.extend() }

func (r *remaining) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	_, err := r.Memory.Release(ctx, c)
	return driver.Outcome{Partial: r.release}, err
}

func (r *remaining) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	_, err := r.Memory.ForceRelease(ctx, c)
	return driver.Outcome{Partial: r.release}, err
}

func (r *remaining) Undo(ctx context.Context, c driver.Claim) error {
	r.undone <- c
	return r.Memory.Undo(ctx, c)
}

// The engine undoes what may remain, with the protocol's own state, and callers learn what they asked for.
func TestPartial(t *testing.T) {
	type story func(t *testing.T, r *remaining, s strategy.Strategy)
	bubbles(t, map[string]story{
		"of an attempt": func(t *testing.T, r *remaining, s strategy.Strategy) {
			r.acquire = true
			_, err := s.NewLock(name).TryAcquire(bg)
			if _, bare := err.(*strategy.HeldError); !bare {
				t.Errorf("TryAcquire = %T, want the bare *HeldError", err)
			}
			c := <-r.undone
			equal(t, "State of what is undone", c.Grant.State, any("votes"))
			equal(t, "IsZero of what was not granted", c.Grant.IsZero(), true)
			free(t, r.Memory)
		},
		"of a release": func(t *testing.T, r *remaining, s strategy.Strategy) {
			lease := take(t, s)
			r.release = true
			release(t, lease)
			equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
		},
		"of an operator's release": func(t *testing.T, r *remaining, s strategy.Strategy) {
			lease := take(t, s)
			r.release = true
			info, err := s.Inspect(bg, name)
			is(t, "Inspect", err)
			is(t, "ForceRelease", s.ForceRelease(bg, info))
			c := <-r.undone
			equal(t, "token of what is undone", c.Token, lease.Token())
			equal(t, "IsZero of what an operator has seen", c.Grant.IsZero(), false)
			is(t, "Release after ForceRelease", lease.Release(bg), strategy.ErrLost)
			<-r.undone
		},
		"of an adoption": func(t *testing.T, r *remaining, s strategy.Strategy) {
			token, err := take(t, s).Detach()
			is(t, "Detach", err)
			_, err = s.Adopt(bg, name, token)
			is(t, "Adopt", err, strategy.ErrLost)
			c := <-r.undone
			equal(t, "State of what is undone", c.Grant.State, any("votes"))
			if c.Token == token {
				t.Error("undone is the token that was brought, want the one that was to take its place")
			}
		},
		"of an extension that a minority has made, once the lease is over": func(t *testing.T, r *remaining, s strategy.Strategy) {
			lease := take(t, s)
			refused := &strategy.QuorumError{Name: name, Need: 2}
			r.extend = func() (driver.Grant, error) { return driver.Grant{Partial: true}, refused }
			equal(t, "Extend, which says the bare error", lease.Extend(bg), error(refused))
			equal(t, "RenewalErr", lease.RenewalErr(), error(refused))
			synctest.Wait()
			equal(t, "undone while it is held", len(r.undone), 0)
			r.extend = func() (driver.Grant, error) { return driver.Grant{}, lockstest.Refused("") } // which takes back nothing
			is(t, "second Extend", lease.Extend(bg), strategy.ErrRefused)
			<-lease.Lost()
			equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
		},
		"of an extension that the others say is lost": func(t *testing.T, r *remaining, s strategy.Strategy) {
			lease := take(t, s)
			lost := &strategy.LostError{Name: name}
			r.extend = func() (driver.Grant, error) { return driver.Grant{Partial: true}, lost }
			equal(t, "Extend, which says the bare error", lease.Extend(bg), error(lost))
			equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
		},
	}, func(t *testing.T, tell story) {
		r := &remaining{Memory: &lockstest.Memory{}, undone: make(chan driver.Claim, 1)}
		tell(t, r, open(t, r, strategy.Options{}))
	})
}

// An undo that leaves something goes on. An event reports that Close has ended it.
func TestPartialUndo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tries atomic.Int64
		p := &scripted{
			acquire: func(driver.Claim) (driver.Grant, error) { return driver.Grant{}, lockstest.Unknown() },
			release: func(driver.Claim) error { tries.Add(1); return errors.New("a vote may remain") },
		}
		var ended []error
		s := open(t, p, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventUndoFailed {
				ended = append(ended, e.Err)
			}
		}})
		_, err := s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrUnknown)
		time.Sleep(op)
		between(t, "undos", tries.Load(), 2, 100)
		is(t, "Close", s.Close())
		if len(ended) != 1 {
			t.Fatalf("EventUndoFailed with %v, want once", ended)
		}
		says(t, "EventUndoFailed", ended[0], "may remain")
	})
}

// A call for which the protocol has no method returns an error that says so, and leaves nothing under way.
func TestUnsupported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, &scripted{}, strategy.Options{})
		_, adopt := s.Adopt(bg, name, "token")
		_, inspect := s.Inspect(bg, name)
		for what, err := range map[string]error{
			"Adopt": adopt, "Inspect": inspect, "Check": s.Check(bg),
			"ForceRelease": s.ForceRelease(bg, strategy.Info{Name: name, Held: true, Token: "token"}),
		} {
			is(t, what, err, strategy.ErrUnsupported)
			if want := "locks: " + what + ": "; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s = %v, want that it begins with %q", what, err, want)
			}
		}
	})
}
