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
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// These tests have a protocol on several servers.

func TestQuorumError(t *testing.T) {
	t.Parallel()
	held := &strategy.HeldError{Name: "a", Holder: "t", TTL: time.Second}
	down := &strategy.ServerError{Node: "n3", Kind: strategy.ErrUnsent, Err: errors.New("refused")}
	answers := []strategy.NodeAnswer{{Node: "n1"}, {Node: "n2", Err: held}, {Node: "n3", Err: down}}

	e := &strategy.QuorumError{Name: "a", Need: 2, Nodes: answers}
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
	equal(t, "Error", e.Error(), `lock "a": no quorum: 1 of 3 servers agreed, needed are 2; n2: held by "…" for 1s unless renewed; n3: not sent: refused`)

	e = &strategy.QuorumError{Name: "a", Need: 2, Nodes: answers, Held: held}
	is(t, "a quorum that answered", e, strategy.ErrNoQuorum, strategy.ErrHeld)
	isNot(t, "a quorum that answered", e, strategy.ErrUnsent)
	if !errors.As(e, &h) || h != held {
		t.Errorf("As HeldError = %v, want %v", h, held)
	}
	equal(t, "Error of a lock that is held", e.Error(), `lock "a": held by "…" for 1s unless renewed; no quorum: 1 of 3 servers agreed, needed are 2; n2: held by "…" for 1s unless renewed; n3: not sent: refused`)

	lost := &strategy.QuorumError{Name: "a", Need: 2, Nodes: []strategy.NodeAnswer{{Node: "n1", Err: &strategy.LostError{Name: "a"}}, {Node: "n2", Err: down}}}
	isNot(t, "a minority that lost it", lost, strategy.ErrLost)
}

// remaining is a protocol that says Partial, as one does of whose servers a minority did not answer.
type remaining struct {
	*lockstest.Memory
	acquire, release atomic.Bool
	undone           chan driver.Claim
}

func (r *remaining) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g, err := r.Memory.Acquire(ctx, c)
	if r.acquire.Load() {
		return driver.Grant{State: "votes", Partial: true}, &strategy.HeldError{Name: c.Name}
	}
	return g, err
}

func (r *remaining) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	if r.acquire.Load() {
		return driver.Grant{State: "votes", Partial: true}, &strategy.LostError{Name: c.Name}
	}
	return r.Memory.Adopt(ctx, c, from)
}

func (r *remaining) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	_, err := r.Memory.Release(ctx, c)
	return driver.Outcome{Partial: r.release.Load()}, err
}

func (r *remaining) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	_, err := r.Memory.ForceRelease(ctx, c)
	return driver.Outcome{Partial: r.release.Load()}, err
}

func (r *remaining) Undo(ctx context.Context, c driver.Claim) error {
	r.undone <- c
	return r.Memory.Undo(ctx, c)
}

func newRemaining() *remaining {
	return &remaining{Memory: &lockstest.Memory{}, undone: make(chan driver.Claim, 1)}
}

// The engine undoes what may remain, with the protocol's own state, and callers learn what
// they asked for.
func TestPartial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemaining()
		var events []strategy.Event
		s := open(t, r, strategy.Options{Observe: func(e strategy.Event) { events = append(events, e) }})
		r.acquire.Store(true)
		_, err := s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrHeld)
		if _, bare := err.(*strategy.HeldError); !bare {
			t.Errorf("TryAcquire = %T, want the bare *HeldError", err)
		}
		c := <-r.undone
		equal(t, "State of what is undone", c.Grant.State, any("votes"))
		equal(t, "IsZero of what was not granted", c.Grant.IsZero(), true)
		synctest.Wait()
		equal(t, "holder", holds(r.Memory, key), "")
		for _, e := range events {
			if e.Err != nil && e.Err != err {
				t.Errorf("%v = %#v, want the bare error", e.Kind, e.Err)
			}
		}
		r.acquire.Store(false)

		lease := take(t, s)
		r.release.Store(true)
		is(t, "Release", lease.Release(bg))
		equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())

		lease = take(t, s)
		info, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		is(t, "ForceRelease", s.ForceRelease(bg, info))
		c = <-r.undone
		equal(t, "token of what is undone", c.Token, lease.Token())
		equal(t, "IsZero of what an operator has seen", c.Grant.IsZero(), false)
		is(t, "Release after ForceRelease", lease.Release(bg), strategy.ErrLost)
		<-r.undone
		r.release.Store(false)

		token, err := take(t, s).Detach()
		is(t, "Detach", err)
		r.acquire.Store(true)
		_, err = s.Adopt(bg, name, token)
		is(t, "Adopt", err, strategy.ErrLost)
		c = <-r.undone
		equal(t, "State of what is undone", c.Grant.State, any("votes"))
		if c.Token == token {
			t.Error("undone is the token that was brought, want the one that was to take its place")
		}
	})
}

// minority is a protocol whose extensions fail. Where they are Partial, a minority has made them.
type minority struct {
	*remaining
	partial bool
	err     error
}

func (p *minority) Extend(context.Context, driver.Claim) (driver.Grant, error) {
	return driver.Grant{Partial: p.partial}, p.err
}

// The engine undoes what an extension without a majority leaves, once the lease is lost.
func TestPartialExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refused := &strategy.QuorumError{Name: name, Need: 2}
		r := newRemaining()
		p := &minority{r, true, refused}
		s := open(t, p, strategy.Options{TTL: ttl})
		lease := take(t, s)
		if err := lease.Extend(bg); err != refused {
			t.Errorf("Extend = %#v, want the bare error", err)
		}
		equal(t, "Failing", lease.RenewalErr(), error(refused))
		synctest.Wait()
		equal(t, "undone while it is held", len(r.undone), 0)
		p.partial, p.err = false, lockstest.Refused("LOADING") // which takes back nothing
		is(t, "second Extend", lease.Extend(bg), strategy.ErrRefused)
		<-lease.Lost()
		equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
		synctest.Wait() // it is undone

		lost := &strategy.LostError{Name: name}
		s = open(t, &minority{r, true, lost}, strategy.Options{TTL: ttl})
		lease = take(t, s)
		if err := lease.Extend(bg); err != lost {
			t.Errorf("Extend = %#v, want the bare error", err)
		}
		equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
	})
}

// An undo that leaves something goes on. An event reports that Close has ended it.
func TestPartialUndo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tries atomic.Int64
		p := &stubborn{Memory: &lockstest.Memory{}, tries: &tries}
		var ended []error
		s := open(t, p, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventUndoFailed {
				ended = append(ended, e.Err)
			}
		}})
		_, err := s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrUnknown)
		time.Sleep(op)
		if n := tries.Load(); n < 2 {
			t.Errorf("undos = %d, want several", n)
		}
		is(t, "Close", s.Close())
		if len(ended) != 1 || !strings.Contains(ended[0].Error(), "may remain") {
			t.Errorf("EventUndoFailed with %v, want once, with what remains", ended)
		}
	})
}

// stubborn never gets rid of all.
type stubborn struct {
	*lockstest.Memory
	tries *atomic.Int64
}

func (s *stubborn) Acquire(context.Context, driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, lockstest.Unknown()
}

func (s *stubborn) Undo(context.Context, driver.Claim) error {
	s.tries.Add(1)
	return errors.New("a vote may remain")
}

type picky struct {
	driver.Protocol
	least time.Duration
}

func (p picky) Validate(o strategy.Options) error {
	if o.TTL < p.least {
		return errors.New("picky: allowed are TTLs from " + p.least.String())
	}
	return nil
}

// New and With look at a protocol's own settings, besides the options.
func TestValidator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := picky{&lockstest.Memory{}, 5 * time.Second}
		s := open(t, p, strategy.Options{}) // the default is 10 s, and that is what it is shown
		_, err := s.With(func(o *strategy.Options) { o.TTL = time.Second })
		if err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("With = %v, want what is allowed", err)
		}
		if _, err := engine.New(p, strategy.Options{TTL: time.Second}); err == nil {
			t.Error("New = nil, want what is allowed")
		}
	})
}

func TestNoProtocol(t *testing.T) {
	t.Parallel()
	if _, err := engine.New(nil, strategy.Options{}); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("New(nil) = %v, want what is allowed", err)
	}
}

// TestUnsupported: what a protocol lacks is an error that says so, and nothing is left under way.
func TestUnsupported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, &scripted{}, strategy.Options{})
		_, adopt := s.Adopt(bg, name, "token")
		_, inspect := s.Inspect(bg, name)
		for what, err := range map[string]error{
			"Adopt": adopt, "Inspect": inspect, "Check": s.Check(bg), "ForceRelease": s.ForceRelease(bg, strategy.Info{Name: name, Held: true, Token: "token"}),
		} {
			is(t, what, err, strategy.ErrUnsupported)
			if want := "locks: " + what + ": "; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s = %v, want that it begins with %q", what, err, want)
			}
		}
	})
}
