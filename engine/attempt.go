package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// A target is the lock that attempts ask for.
type target struct {
	c    *core
	name string
	key  string
	part int32 // how much of a lock that several may hold; see driver.Claim.Share
	err  error // the name is not allowed: every call returns this
}

func (t *target) Name() string { return t.name }
func (t *target) Key() string  { return t.key }

// An answer is what the servers returned next to an error.
type answer struct {
	driver.Grant
	undone bool // the claim is over: what it may have left behind is undone
}

// attempt sends a claim, and undoes what it may leave behind. n counts the attempts of one call. The
// lease has not begun yet.
func (t *target) attempt(ctx context.Context, c driver.Claim, n int) (*lease, answer, error) {
	if err := t.c.enter(); err != nil {
		return nil, answer{}, err
	}
	defer t.c.leave()

	start := time.Now() // before the request: the servers start to count later
	c.Due = start.Add(t.c.o.OpTimeout)
	g, err := t.c.p.Acquire(ctx, c)
	end := time.Now()
	reported, _ := driver.Unmark(err)
	t.c.observe(strategy.Event{Kind: strategy.EventAttempt, Context: ctx, Name: c.Name, Token: c.Token, Attempt: n, Took: end.Sub(start), Err: reported})
	if err != nil {
		c.Grant.State = g.State
		undone, err := t.failed(ctx, c, n, err)
		return nil, answer{g, undone}, err
	}

	l := newLease(t.c, c, g, start)
	if closed := t.c.group.Closed(); closed || !end.Before(l.deadline) {
		// Granted, but of no use any more: Close came meanwhile, or the reply took longer than the
		// validity. Nobody else will release it.
		t.c.undo(l.claim)
		if closed {
			return nil, answer{undone: true}, strategy.ErrClosed
		}
		return nil, answer{undone: true}, &strategy.LostError{Name: c.Name, Lapsed: true, Err: errors.New("the grant came after its validity")}
	}
	return l, answer{Grant: g}, nil
}

// failed undoes what an attempt may have left behind, and returns the caller's error.
func (t *target) failed(ctx context.Context, c driver.Claim, n int, err error) (undone bool, reported error) {
	err, remains := driver.Unmark(err)
	if undone = remains || errors.Is(err, strategy.ErrUnknown); undone {
		t.c.undo(c)
	}
	if errors.Is(err, strategy.ErrHeld) {
		t.c.observe(strategy.Event{Kind: strategy.EventHeld, Context: ctx, Name: c.Name, Token: c.Token, Attempt: n, Err: err})
	}
	return undone, err
}

// refuse returns why no attempt is made at all: the call is not allowed, or ctx is done.
func (t *target) refuse(ctx context.Context) error {
	if t.err != nil {
		return t.err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lock %q: %w", t.name, contextError(ctx))
	}
	if n := len(strategy.OwnerFrom(ctx)); n > strategy.MaxNameLen {
		return fmt.Errorf("locks: the owner has %d bytes: allowed are %d", n, strategy.MaxNameLen)
	}
	return nil
}

// claim makes the claim of a new attempt. Its token is fresh, so an attempt whose end nobody knows can
// be undone without harm to the next.
func (t *target) claim(ctx context.Context) (driver.Claim, error) {
	if err := t.refuse(ctx); err != nil {
		return driver.Claim{}, err
	}
	return t.claimFor(strategy.OwnerFrom(ctx)), nil
}

// claimFor is a claim for the owner that a ctx names; empty: it names none.
func (t *target) claimFor(owner string) driver.Claim {
	token := token.New(t.c.o.Label, t.c.announces)
	return driver.Claim{Name: t.name, Key: t.key, Token: token, Owner: cmp.Or(owner, token), Share: t.part, TTL: t.c.o.TTL, FenceTTL: max(t.c.o.FenceTTL, 0)}
}

// worthWaiting reports whether another attempt may succeed.
func (t *target) worthWaiting(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, strategy.ErrHeld), errors.Is(err, strategy.ErrLost): // lost: the grant came too late
		return true
	default:
		return t.c.o.RetryOnError && isServers(err)
	}
}

// isServers reports whether err is what a server answered, or that it did not answer.
func isServers(err error) bool {
	var server *strategy.ServerError
	return errors.As(err, &server)
}
