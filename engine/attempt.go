package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// A target is the lock that attempts ask for.
type target struct {
	c     *core
	name  string
	key   string
	share int32 // see driver.Claim.Share
	err   error // the name is not allowed: every call returns this
}

// alone reports whether nobody else holds the lock while somebody holds this share of it.
func (c *core) alone(share int32) bool { return c.sharer == nil || c.sharer.Excludes(share, share) }

// lineKey is where those wait who ask for this share.
func (c *core) lineKey(key string, share int32) lineKey {
	return lineKey{key, c.sharer != nil && c.sharer.Groups(share)}
}

func (t *target) lineKey() lineKey { return t.c.lineKey(t.key, t.share) }

func (t *target) Name() string { return t.name }
func (t *target) Key() string  { return t.key }

// An answer is what the servers returned next to an error.
type answer struct {
	driver.Grant
	undone bool // the claim is over: what it may have left behind is undone
}

// attempt sends a claim, and undoes what it may leave behind. n counts the attempts of one call. The
// lease has not begun yet. The caller has entered.
func (t *target) attempt(ctx context.Context, c driver.Claim, n int) (*lease, answer, error) {
	if t.c.group.Closed() {
		return nil, answer{}, strategy.ErrClosed
	}
	start := time.Now() // before the request: the servers start to count later
	c.Due = start.Add(t.c.o.OpTimeout)
	g, err := t.c.p.Acquire(ctx, c)
	end := time.Now()
	t.c.observe(strategy.Event{Kind: strategy.EventAttempt, Context: ctx, Name: c.Name, Token: c.Token, Attempt: n, Elapsed: end.Sub(start), Err: err})
	if err != nil {
		if errors.Is(err, strategy.ErrHeld) {
			t.c.observe(strategy.Event{Kind: strategy.EventHeld, Context: ctx, Name: c.Name, Token: c.Token, Attempt: n, Err: err})
		}
		return nil, answer{g, t.c.undoFailed(c, g, err)}, err
	}

	l := newLease(t.c, c, g, start)
	if closed := t.c.group.Closed(); closed || !end.Before(l.deadline) {
		// Granted, but of no use any more: Close came meanwhile, or the reply took longer than the
		// validity. Nobody else will release it.
		c.Grant = l.claim.Grant
		t.c.undo(c)
		if closed {
			return nil, answer{undone: true}, strategy.ErrClosed
		}
		return nil, answer{undone: true}, &strategy.LostError{Name: c.Name, Lapsed: true, Err: errors.New("the grant came after its validity")}
	}
	return l, answer{Grant: g}, nil
}

// refuse returns why no attempt is made at all: the call is not allowed, or ctx is done.
func (t *target) refuse(ctx context.Context) error {
	if t.err != nil {
		return t.err
	}
	if ended := timeup.Ended(ctx); ended != nil {
		return fmt.Errorf("lock %q: %w", t.name, ended)
	}
	if n := len(strategy.OwnerFrom(ctx)); n > contract.MaxNameLen {
		return fmt.Errorf("locks: the owner has %d bytes: allowed are %d", n, contract.MaxNameLen)
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
	return driver.Claim{Name: t.name, Key: t.key, Token: token, Owner: cmp.Or(owner, token), Share: t.share, TTL: t.c.o.TTL, FenceTTL: max(t.c.o.FenceTTL, 0)}
}

// worthWaiting reports whether another attempt may succeed.
func (t *target) worthWaiting(ctx context.Context, err error) bool {
	switch {
	case err == nil, cutShort(ctx, err):
		return false
	case errors.Is(err, strategy.ErrHeld), errors.Is(err, strategy.ErrLost): // lost: the grant came too late
		return true
	default:
		return t.c.o.RetryOnError && isServers(err)
	}
}

// cutShort reports whether err is that of an attempt which got no answer before ctx was over. That says nothing of the
// servers.
func cutShort(ctx context.Context, err error) bool {
	return (errors.Is(err, strategy.ErrUnsent) || errors.Is(err, strategy.ErrUnknown)) && timeup.Over(ctx)
}

// isServers reports whether err is what a server answered, or that it did not answer.
func isServers(err error) bool {
	var server *strategy.ServerError
	return errors.As(err, &server)
}
