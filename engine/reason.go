package engine

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// A reason says why a waiter did not get the lock.
type reason struct {
	n      int                 // counts the reasons of a line
	err    error               // nil: not known, so ask
	at     time.Time           // when that was answered
	held   *strategy.HeldError // nil: err is not ErrHeld
	until  time.Time           // held, with a TTL: when that ends
	longer time.Duration       // it may sleep this much longer, because it is not the first in the servers' queue
	silent bool                // the holder's release will not be announced
	turn   time.Time           // until then the lock comes from this process, if at all: see got
	ask    bool                // a later attempt got no answer, or the lock has changed hands: do not sleep on this reason
}

// reasonOf is what an attempt has learned.
//
// The first in the servers' queue asks when the holder's TTL ends. If that waiter has died, too,
// another has to ask: the n-th does so after a random time of up to n - 1 TTLs. So all of them together ask
// a few times per TTL, however many they are.
func (c *core) reasonOf(err error, g driver.Grant) reason {
	r := reason{err: err, at: time.Now(), silent: g.Silent}
	if errors.As(err, &r.held) && r.held.TTL > 0 {
		r.until = time.Now().Add(r.held.TTL)
	}
	if g.Place > 1 {
		r.longer = rand.N(min(time.Duration(g.Place-1), contract.MaxTTL/c.o.TTL) * c.o.TTL)
	}
	return r
}

// grantedTo is the reason that the next in line has without asking: the last head got the lock.
func grantedTo(l *lease) reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.claim.Grant
	until := g.Start.Add(g.TTL)
	held := &strategy.HeldError{Name: l.claim.Name, Holder: l.holder(), TTL: max(time.Until(until), 0)}
	return reason{err: held, at: time.Now(), held: held, until: until}
}

// next is the reason after a message that the line is the first in the queue now, and that the new holder has until then. The
// line sleeps until then, but not for longer than the last answer said, or a TTL from that: anybody who may publish can have
// sent the message.
func (r reason) next(until time.Time, ttl time.Duration) reason {
	latest := r.until.Add(r.longer)
	if most := r.at.Add(ttl); latest.Before(most) {
		latest = most
	}
	if latest.Before(until) {
		until = latest
	}
	r.until, r.longer, r.silent = until, 0, false
	return r
}

// left is the reason's error for a caller whose lock has that name: with what is left of the holder's TTL now.
func (r reason) left(name string) error {
	if r.held == nil {
		return r.err
	}
	held := *r.held
	held.Name = name
	if held.TTL >= 0 {
		held.TTL = max(time.Until(r.until), 0)
	}
	return &held
}

// awaited is whose release a waiter waits for; empty: any. Where several hold the lock, the release of any may do. A re-entrant
// lock may have been adopted by another owner, which is not announced. A waiter that does not queue hears only of the last holder that the
// queue served.
func (c *core) awaited(held *strategy.HeldError) string {
	if c.maxShare > 0 || c.reenters || keepsQueue(c.p) && !c.queues {
		return ""
	}
	return held.Holder
}

// jitter is a random pause after n attempts: full jitter.
func (t *target) jitter(n int) time.Duration {
	return rand.N(max(t.c.o.Backoff(max(n, 1)), time.Microsecond)) + 1
}

// pause is how long a head sleeps, if no message ends that: at random, as jitter is. listening says that it hears of a release.
func (t *target) pause(jitter time.Duration, why reason, listening bool) time.Duration {
	o := &t.c.o
	listening = listening && !why.silent
	if why.held == nil || why.until.IsZero() {
		if listening {
			return o.TTL + why.longer + min(jitter, o.TTL) // no expiry to wait for: ask now and then
		}
		return jitter
	}
	if why.held.Holder == "" {
		// Rivals have split the votes of several servers, and each gives up its own. If all came back
		// together, they would split them again. So each waits some time of its own, or until somebody
		// has had the lock.
		listening = false
	}
	// A key expires in the millisecond after its TTL. If the TTL lasts for ages, ask now and then.
	until := why.until
	if listening {
		until = until.Add(why.longer)
	}
	expiry := min(max(time.Until(until), 0), contract.MaxTTL) + time.Millisecond
	if listening {
		// A holder that died announces nothing. Waiters of other processes wake at the same moment, so
		// spread a little.
		return expiry + min(jitter, rand.N(2*time.Millisecond))
	}
	return min(jitter, expiry)
}
