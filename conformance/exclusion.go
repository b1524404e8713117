package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func exclusion() []Property {
	return inGroup("exclusion",
		scripted("Exclusive", "While one contender holds a lock, every other is refused.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			a.try().want(nil, "the lock is free")
			b.try().want(strategy.ErrHeld, "A holds the lock")
			b.try().want(strategy.ErrHeld, "asking again does not change that")
		}),
		scripted("TryDoesNotWait", "TryAcquire answers while the lock is held: it does not wait for it.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			a.try().want(nil, "the lock is free")
			const why = "A holds the lock"
			await(t, aside(b.try), t.patience, "B.TryAcquire() has not returned after %v, want ErrHeld: %s", t.patience, why).want(strategy.ErrHeld, why)
		}),
		scripted("ReleaseFrees", "A lock that was released can be taken at once, by anybody.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			a.try().want(nil, "the lock is free").release().want(nil, "A holds the lock")
			b.try().want(nil, "A has released").release().want(nil, "B holds the lock")
			a.try().want(nil, "B has released")
		}),
		scripted("NamesIndependent", "Locks of different names have nothing to do with each other.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			first := a.try().want(nil, "the lock is free")
			second := b.on(t.name+"2").try().want(nil, "A holds a lock of another name")
			first.release().want(nil, "A holds its lock")
			a.on(t.name+"2").try().want(strategy.ErrHeld, "A's release was that of another lock")
			second.release().want(nil, "B holds its lock")
		}),
		byChance("Contention", "However many contend at once, never do two hold the lock.", func(t *trial) {
			var inside atomic.Int32
			t.compete(t.contender, 4, func(h *hold) error {
				if n := inside.Add(1); n != 1 {
					return fmt.Errorf("%d hold the lock at once, want 1", n)
				}
				time.Sleep(time.Microsecond) // let the others in, if they can
				inside.Add(-1)
				return nil
			})
		}),
		byChance("NoLostUpdate", "A counter that is read, and written in a second step, under the lock, counts every holder.", func(t *trial) {
			var counter atomic.Int64 // atomic for the race detector's sake: the two steps are not
			const rounds = 4
			t.compete(t.contender, rounds, func(h *hold) error {
				read := counter.Load()
				time.Sleep(time.Microsecond)
				counter.Store(read + 1)
				return nil
			})
			if got := counter.Load(); got != rivals*threads*rounds {
				t.failf("the counter is %d, want %d: an update was lost", got, rivals*threads*rounds)
			}
		}),
		byChance("Processes", "Five processes that start together and fight for one lock get it one at a time, and all of them do.", processes),
	)
}

// So many contenders compete, with so many threads each.
const rivals, threads = 4, 4

// compete lets contenders that open makes acquire the lock and call work in it, rounds times a thread.
func (t *trial) compete(open func(who string, o strategy.Options) *contender, rounds int, work func(*hold) error) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	// A lock that does not hear of releases polls: at a pace that lets all have their turn.
	o := ample
	o.Backoff = func(int) time.Duration { return 5 * time.Millisecond }
	var all sync.WaitGroup
	for i := range rivals {
		c := open(fmt.Sprintf("%c", 'A'+i), o)
		for range threads {
			all.Go(func() {
				for range rounds {
					k := c.acquireWith(ctx)
					if k.err != nil {
						cancel(fmt.Errorf("%s = %w, want <nil>: its turn comes", k.text, k.err))
						return
					}
					err := work(k.hold)
					if err == nil {
						err = k.hold.release().err
					}
					if err != nil {
						cancel(fmt.Errorf("%s: %w", c.who, err))
						return
					}
				}
			})
		}
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		var server *strategy.ServerError
		if errors.As(err, &server) {
			if errors.Is(err, strategy.ErrUnknown) {
				t.tooSlow(err.Error()) // no answer within the operation time-out
			}
			t.brokef("%w", err)
		}
		var lost *strategy.LostError
		if errors.As(err, &lost) && lost.Lapsed {
			t.tooSlow(err.Error()) // a direct grant is for a second at most
		}
		t.failf("%w", err)
	}
}
