// One attempt, and what it may leave behind: which answers are undone, what ends a wait, and what an operator may do.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// bothWays are the calls that make a first attempt.
var bothWays = map[string]func(strategy.Lock, context.Context) (strategy.Lease, error){
	"TryAcquire": strategy.Lock.TryAcquire, "Acquire": strategy.Lock.Acquire,
}

// An attempt that fails is undone if nobody knows its end, whether or not it took effect. Otherwise there is nothing to undo.
func TestFailedAttempt(t *testing.T) {
	bubbles(t, failures, func(t *testing.T, f failure) {
		for call, acquire := range bothWays {
			m, r, s := served(t, strategy.Options{})
			r.then(only(lockstest.OpAcquire, f.fault))
			lease, err := acquire(s.NewLock(name), bg)
			if lease != nil {
				t.Errorf("%s = %v, want no lease", call, lease)
			}
			is(t, call, err, f.want)
			isNot(t, call, err, strategy.ErrHeld, strategy.ErrLost)
			time.Sleep(ttl)
			if f.want != strategy.ErrUnknown {
				equal(t, "requests", m.Requests(), 1)
				continue
			}
			undo := r.of(lockstest.OpUndo, lockstest.OpRelease)
			equal(t, "undos", len(undo), 1)
			equal(t, "which", undo[0].op, lockstest.OpUndo)
			equal(t, "token undone", undo[0].all[0].Token, r.of(lockstest.OpAcquire)[0].all[0].Token)
			equal(t, "Grant.IsZero", undo[0].all[0].Grant.IsZero(), true)
			free(t, m)
		}
	})
}

// A grant whose validity is over when it arrives is of no use to anybody. Acquire goes on.
func TestGrantLaterThanItsValidity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, r, s := served(t, strategy.Options{OpTimeout: ttl - ms})
		r.then(only(lockstest.OpAcquire, slow(0, valid-1)))
		lease := take(t, s)
		equal(t, "validity left", time.Until(lease.Deadline()), 1)
		release(t, lease)

		r.then(only(lockstest.OpAcquire, slow(0, valid)))
		late, err := s.NewLock(name).TryAcquire(bg)
		if late != nil {
			t.Errorf("TryAcquire = %v, want no lease", late)
		}
		is(t, "TryAcquire", err, strategy.ErrLost)
		synctest.Wait()
		undo := r.of(lockstest.OpUndo)
		equal(t, "undos", len(undo), 1)
		equal(t, "Grant.IsZero", undo[0].all[0].Grant.IsZero(), false) // answered: it cannot arrive later

		start := time.Now()
		w := wait(bg, s)
		r.then(nil)
		release(t, w.got(t))
		between(t, "Acquire took", w.at.Sub(start), valid, valid+2*ms)
		free(t, m)
	})
}

// With RetryOnError a wait goes on while the servers fail, by attempts with tokens of their own, and says at its end how.
func TestRetryOnError(t *testing.T) {
	bubbles(t, failures, func(t *testing.T, f failure) {
		_, r, s := served(t, strategy.Options{RetryOnError: true, Label: "me"})
		r.then(only(lockstest.OpAcquire, f.fault))
		ctx, cancel := context.WithTimeoutCause(bg, 30*time.Second, errors.New("why"))
		defer cancel()
		_, err := s.NewLock(name).Acquire(ctx)
		is(t, "Acquire that gave up", err, f.want, context.DeadlineExceeded, context.Cause(ctx))
		isNot(t, "Acquire that gave up", err, strategy.ErrHeld)
		seen := map[string]bool{}
		for _, a := range r.of(lockstest.OpAcquire) {
			seen[a.all[0].Token] = true
		}
		between(t, "attempts", len(r.of(lockstest.OpAcquire)), 50, 1000)
		equal(t, "different tokens", len(seen), len(r.of(lockstest.OpAcquire)))
	})
}

// When ctx ends the first attempt nobody knows what the servers did: that is not "held".
func TestContextEndsTheFirstAttempt(t *testing.T) {
	bubbles(t, bothWays, func(t *testing.T, acquire func(strategy.Lock, context.Context) (strategy.Lease, error)) {
		m, r, s := served(t, strategy.Options{})
		r.then(only(lockstest.OpAcquire, slow(100*ms, 0)))
		why := errors.New("why")
		ctx, cancel := context.WithTimeoutCause(bg, 50*ms, why)
		defer cancel()
		_, err := acquire(s.NewLock(name), ctx)
		is(t, "the call", err, strategy.ErrUnknown, context.DeadlineExceeded, why)
		isNot(t, "the call", err, strategy.ErrHeld, context.Canceled)
		time.Sleep(op)
		free(t, m)
	})
}

// An operator sees who holds the lock, and frees it from that holder alone.
func TestInspectAndForceRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, r, s := served(t, strategy.Options{Label: "me"})
		nobody, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		equal(t, "Inspect of a free lock", fmt.Sprint(nobody), fmt.Sprint(strategy.Info{Name: name, Key: key}))
		asked := r.of(lockstest.OpInspect)[0].all[0]
		equal(t, "Token for Inspect", asked.Token, "")
		equal(t, "TTL for Inspect", asked.TTL, 0)
		for _, seen := range []strategy.Info{nobody, {Name: name, Token: "x"}, {}} {
			says(t, "ForceRelease of what nobody holds", s.ForceRelease(bg, seen), "allowed is what Inspect saw")
		}
		_, err = s.Inspect(bg, "")
		says(t, "Inspect of no name", err, "0 bytes: allowed are 1 to 1024")
		says(t, "ForceRelease of no name", s.ForceRelease(bg, strategy.Info{Held: true, Token: "x"}), "0 bytes")
		start := time.Now()
		token := take(t, s).Token()
		seen, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		equal(t, "Token, Owner, Label and Holds", fmt.Sprint(seen.Token, seen.Owner, seen.Label, seen.Holds), fmt.Sprint(token, token, "me", 1))
		equal(t, "Since", seen.Since.Equal(start), true)
		is(t, "ForceRelease", s.ForceRelease(bg, seen))
		equal(t, "FenceTTL for ForceRelease, which may grant", r.of(lockstest.OpForceRelease)[0].all[0].FenceTTL, 24*time.Hour)
		is(t, "Check", s.Check(bg))
		m.Intercept(refused)
		is(t, "Check of a server that refuses", s.Check(bg), strategy.ErrRefused)
		_, err = s.Inspect(bg, name)
		is(t, "Inspect of a server that refuses", err, strategy.ErrRefused)
	})
}

// Strategies made from one another share connections and lines. What With does not change is inherited as it was given: a
// default follows the change.
func TestWith(t *testing.T) {
	bubble(t, func(t *testing.T) {
		acquired := 0
		_, _, s := served(t, strategy.Options{TTL: time.Second, Label: "one", Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventAcquired {
				acquired++
			}
		}})
		other, err := s.With(func(o *strategy.Options) { o.TTL, o.Wait, o.Label = ttl, strategy.WaitPoll, "" })
		is(t, "With", err)
		labelled, err := other.With(func(o *strategy.Options) {
			equal(t, "OpTimeout as it was given", o.OpTimeout, 0)
			o.Label = "two"
		})
		is(t, "With", err)
		c := take(t, labelled)
		equal(t, "acquired", acquired, 1)
		if !strings.HasSuffix(c.Token(), ":two") {
			t.Errorf("Token() = %s, want the label at its end", c.Token())
		}
		release(t, c)
		_, err = s.With(func(o *strategy.Options) { o.Acks.AOF = true })
		says(t, "With other Acks", err, "allowed are those of New")
		_, err = s.With(nil)
		says(t, "With(nil)", err, "allowed")
		_, err = s.With(func(o *strategy.Options) { o.TTL = 1 })
		says(t, "With(TTL: 1ns)", err, "allowed")
		a := take(t, other)
		equal(t, "validity", time.Until(a.Deadline()), valid)
		equal(t, "length of the token", len(a.Token()), 36)
		w1, w2 := wait(bg, s), wait(bg, other)
		equal(t, "waiting", engine.Waiting(s, key), 2)
		equal(t, "waiting", engine.Waiting(other, key), 2)
		release(t, a)
		release(t, w1.got(t))
		release(t, w2.got(t))
		is(t, "Close", other.Close())
		_, err = s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire after Close of the other", err, strategy.ErrClosed)
	})
}

// confirmable is a protocol that can have its grants confirmed.
type confirmable struct {
	driver.Protocol
	asked *strategy.Acks
}

func (c confirmable) Acknowledged(a strategy.Acks) driver.Protocol {
	*c.asked = a
	return c.Protocol
}

// unusable is a protocol on nodes that cannot be used.
type unusable struct {
	driver.Protocol
	err error
}

func (u unusable) Use() error { return u.err }

// picky is a protocol that wants longer TTLs.
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

// New asks the protocol: for confirmations, if Options name some, whether its nodes can be used, and whether the options, with
// their defaults, suit it.
func TestNewAsksTheProtocol(t *testing.T) {
	var m lockstest.Memory
	var asked strategy.Acks
	open(t, confirmable{&m, &asked}, strategy.Options{})
	equal(t, "asked without Acks", asked, strategy.Acks{})
	want := strategy.Acks{Replicas: 2, AOF: true}
	s := open(t, confirmable{&m, &asked}, strategy.Options{Acks: want})
	equal(t, "asked", asked, want)
	if _, ok := engine.ProtocolOf(s).(confirmable); ok {
		t.Error("the strategy uses the protocol that confirms nothing")
	}
	_, err := engine.New(&m, strategy.Options{Acks: want})
	is(t, "New with Acks that the algorithm does not have", err, strategy.ErrUnsupported)
	broken := errors.New("broken")
	if s, err := engine.New(unusable{&m, broken}, strategy.Options{}); s != nil || !errors.Is(err, broken) {
		t.Errorf("New() on nodes that cannot be used = %v, %v, want %v", s, err, broken)
	}
	p := picky{&m, 5 * time.Second}
	_, err = open(t, p, strategy.Options{}).With(func(o *strategy.Options) { o.TTL = time.Second })
	says(t, "With", err, "picky: allowed")
	_, err = engine.New(p, strategy.Options{TTL: time.Second})
	says(t, "New", err, "picky: allowed")
	_, err = engine.New(nil, strategy.Options{})
	says(t, "New(nil)", err, "allowed")
}
