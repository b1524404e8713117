// Tests what the engine makes of protocols on several servers: their errors, and what Remains marks.
package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
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
	equal(t, "Error", e.Error(), `lock "a": no quorum: 1 of 3 servers agreed, needed are 2; n2: held by "…" for up to 1s; n3: not sent: refused`)

	e = &strategy.QuorumError{Name: "a", Need: 2, Nodes: answers, Held: held}
	is(t, "a quorum that answered", e, strategy.ErrNoQuorum, strategy.ErrHeld)
	isNot(t, "a quorum that answered", e, strategy.ErrUnsent)
	if !errors.As(e, &h) || h != held {
		t.Errorf("As HeldError = %v, want %v", h, held)
	}
	equal(t, "Error of a lock that is held", e.Error(), `lock "a": held by "…" for up to 1s; no quorum: 1 of 3 servers agreed, needed are 2; n2: held by "…" for up to 1s; n3: not sent: refused`)

	lost := &strategy.QuorumError{Name: "a", Need: 2, Nodes: []strategy.NodeAnswer{{Node: "n1", Err: &strategy.LostError{Name: "a"}}, {Node: "n2", Err: down}}}
	isNot(t, "a minority that lost it", lost, strategy.ErrLost)
}

// remaining is a protocol that marks what it returns, as one does of whose servers a
// minority did not answer.
type remaining struct {
	*conformance.Memory
	acquire, release atomic.Bool
	undone           chan driver.Claim
}

func (r *remaining) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g, err := r.Memory.Acquire(ctx, c)
	if r.acquire.Load() {
		err = driver.Remains(&strategy.HeldError{Name: c.Name})
		g = driver.Grant{State: "votes"}
	}
	return g, err
}

func (r *remaining) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	if r.acquire.Load() {
		return driver.Grant{State: "votes"}, driver.Remains(&strategy.LostError{Name: c.Name})
	}
	return r.Memory.Adopt(ctx, c, from)
}

func (r *remaining) Release(ctx context.Context, c driver.Claim) error {
	if c.Undo {
		r.undone <- c
		return r.Memory.Release(ctx, c)
	}
	err := r.Memory.Release(ctx, c)
	if r.release.Load() {
		err = driver.Remains(err)
	}
	return err
}

func newRemaining() *remaining {
	return &remaining{Memory: &conformance.Memory{}, undone: make(chan driver.Claim, 1)}
}

// The engine undoes what may remain, with the protocol's own state, and callers learn what
// they asked for.
func TestRemains(t *testing.T) {
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
		equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
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

// partial is a protocol whose extensions fail, and may have been made by a minority.
type partial struct {
	*remaining
	err error
}

func (p partial) Extend(context.Context, driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, driver.Remains(p.err)
}

// The engine undoes what an extension without a majority leaves, once the lease is lost.
func TestRemainsOfAnExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refused := &strategy.QuorumError{Name: name, Need: 2}
		r := newRemaining()
		s := open(t, partial{r, refused}, strategy.Options{TTL: ttl})
		lease := take(t, s)
		if err := lease.Extend(bg); err != refused {
			t.Errorf("Extend = %#v, want the bare error", err)
		}
		equal(t, "Failing", lease.RenewalErr(), error(refused))
		synctest.Wait()
		equal(t, "undone while it is held", len(r.undone), 0)
		<-lease.Lost()
		equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
		synctest.Wait() // it is undone

		lost := &strategy.LostError{Name: name}
		s = open(t, partial{r, lost}, strategy.Options{TTL: ttl})
		lease = take(t, s)
		if err := lease.Extend(bg); err != lost {
			t.Errorf("Extend = %#v, want the bare error", err)
		}
		equal(t, "token of what is undone", (<-r.undone).Token, lease.Token())
	})
}

// An undo that leaves something goes on, and Close says so.
func TestRemainsAfterUndo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tries atomic.Int64
		p := &stubborn{Memory: &conformance.Memory{}, tries: &tries}
		s := open(t, p, strategy.Options{})
		_, err := s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrUnknown)
		time.Sleep(op)
		if n := tries.Load(); n < 2 {
			t.Errorf("releases = %d, want several", n)
		}
		err = s.Close()
		if err == nil || !strings.Contains(err.Error(), "may remain") {
			t.Errorf("Close = %v, want what remains", err)
		}
	})
}

// stubborn never gets rid of all.
type stubborn struct {
	*conformance.Memory
	tries *atomic.Int64
}

func (s *stubborn) Acquire(context.Context, driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, conformance.Unknown()
}

func (s *stubborn) Release(context.Context, driver.Claim) error {
	s.tries.Add(1)
	return driver.Remains(nil)
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
		p := picky{&conformance.Memory{}, 5 * time.Second}
		s := open(t, p, strategy.Options{}) // the default is 10 s, and that is what it is shown
		_, err := s.With(strategy.Options{TTL: time.Second})
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

func TestAdoptUnsupported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, bare(&conformance.Memory{}), strategy.Options{})
		_, err := s.Adopt(bg, name, "token")
		is(t, "Adopt", err, strategy.ErrUnsupported)
	})
}
