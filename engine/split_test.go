// Several servers of which some are silent: split votes, and how long a claim is undone.
package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// split is a protocol that tells of releases and says at first that nobody in particular
// holds the lock: rivals have split the votes of several servers.
type split struct {
	*lockstest.Memory
	left  atomic.Int64 // attempts that end so
	asked chan time.Time
}

func newSplit(n int64) *split {
	p := &split{Memory: &lockstest.Memory{}, asked: make(chan time.Time, 100)}
	p.left.Store(n)
	return p
}

func (p *split) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	p.asked <- time.Now()
	if p.left.Add(-1) >= 0 {
		return driver.Grant{}, &strategy.HeldError{Name: c.Name, TTL: c.TTL}
	}
	return p.Memory.Acquire(ctx, c)
}

func TestSplitVotes(t *testing.T) {
	t.Run("RandomPauses", testRandomPauses)
	t.Run("AnyNotice", testAnyNotice)
}

// Who has split the votes with others tries again after random pauses: not when the TTL
// of what the others give up anyway is over, and not in step with them.
func testRandomPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, wait := range []strategy.Wait{strategy.WaitQueue, strategy.WaitNotification, strategy.WaitPoll} {
			randomPauses(t, wait)
		}
	})
}

func randomPauses(t *testing.T, wait strategy.Wait) {
	const n = 12
	p := newSplit(n)
	s := open(t, p, strategy.Options{TTL: ttl, Wait: wait})
	lease, err := s.NewLock(name).Acquire(bg)
	is(t, "Acquire", err)
	release(t, lease)
	close(p.asked)
	var times []time.Time
	for at := range p.asked {
		times = append(times, at)
	}
	equal(t, "attempts", len(times), n+1)
	pauses := map[time.Duration]bool{}
	for i := 2; i < len(times); i++ { // the second asks because it listens by now
		pause := times[i].Sub(times[i-1])
		pauses[pause] = true
		if most := contract.Backoff(i) + 1; pause <= 0 || pause > most {
			t.Errorf("%v: pause before attempt %d = %v, want more than 0 and %v at most", wait, i+1, pause, most)
		}
	}
	if len(pauses) < n-3 {
		t.Errorf("%v: %d different pauses of %d, want random ones", wait, len(pauses), n-1)
	}
}

// It does not sleep through a release either, whosever that is.
func testAnyNotice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newSplit(2)
		s := open(t, p, strategy.Options{Wait: strategy.WaitNotification, TTL: ttl, Backoff: func(int) time.Duration { return time.Hour }})
		other := open(t, p.Memory, strategy.Options{Wait: strategy.WaitNotification}) // who has had the lock
		start := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := s.NewLock(name).Acquire(bg)
			done <- err
		}()
		synctest.Wait()
		equal(t, "attempts", len(p.asked), 2)
		release(t, take(t, other))
		is(t, "Acquire", <-done)
		since(t, "Acquire after the release", start, 0)
	})
}

// still is a protocol on several servers, one of which has not answered since the
// acquire was sent to it, until it does.
type still struct {
	*lockstest.Memory
	thawed atomic.Bool
	tries  atomic.Int64
	voted  bool // it has answered the acquire
}

func (p *still) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g, err := p.Memory.Acquire(ctx, c)
	g.Partial = err == nil && !p.voted
	return g, err
}

func (p *still) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	_, err := p.Memory.Release(ctx, c)
	return driver.Outcome{Partial: true}, err
}

func (p *still) Undo(context.Context, driver.Claim) error {
	p.tries.Add(1)
	if p.thawed.Load() {
		return nil
	}
	return lockstest.Unsent()
}

// The engine undoes what one of several servers may yet grant, for as long as that server is
// paused: its TTL begins to count only afterwards. A vote that it has cast goes with its TTL.
func TestUndoOutlastsOneServersSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &still{Memory: &lockstest.Memory{}}
		s := open(t, p, strategy.Options{TTL: ttl})
		release(t, take(t, s))
		time.Sleep(3 * ttl)
		before := p.tries.Load()
		time.Sleep(ttl)
		if p.tries.Load() == before {
			t.Error("the undo has ended while a server is paused, want that it goes on")
		}
		p.thawed.Store(true)
		time.Sleep(ttl)
		after := p.tries.Load()
		time.Sleep(10 * ttl)
		equal(t, "releases once all is undone", p.tries.Load(), after)
	})
}

func TestUndoOfAGrantEndsWithTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &still{Memory: &lockstest.Memory{}, voted: true}
		s := open(t, p, strategy.Options{TTL: ttl})
		release(t, take(t, s))
		time.Sleep(3 * ttl)
		before := p.tries.Load()
		time.Sleep(10 * ttl)
		equal(t, "releases after the TTL", p.tries.Load(), before)
		if err := s.Close(); errors.Is(err, strategy.ErrUnsent) {
			t.Errorf("Close = %v, want nil: the key went with its TTL", err)
		}
	})
}
