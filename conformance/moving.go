package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Ground is servers of a trial's own, of which one is a primary with a replica. The suite judges by it what
// becomes of those that are connected to a primary while it turns into a replica.
type Ground struct {
	// Open is Subject.Open, on these servers. New connections lead to the primary.
	Open func(strategy.Options) (strategy.Strategy, error)
	// Moves are ways in which the two change places. When one returns, new connections lead to the new
	// primary. Those to the old one are still open, and it is a replica that gets no more writes: what it has
	// is out of date. The suite makes each move once, one after the other.
	Moves []Move
	// Close ends the servers.
	Close func() error
}

// A Move is a way in which a primary and its replica change places.
type Move struct {
	Name string // for texts: "a fail-over by …"
	Do   func(context.Context) error
}

func moving() []Property {
	return inGroup("fail-over", scripted("ReplicaIsLeft",
		"When the primary becomes a replica while connections live, nobody stays with it: the new primary serves a waiter long before its holder's TTL would end, a holder keeps its lock or learns of the loss, and no answer is the replica's.",
		func(t *trial) {
			t.needs(t.OpenGround != nil, "Subject.OpenGround is nil")
			g, err := t.OpenGround(t.ctx)
			if err != nil {
				t.brokef("Subject.OpenGround: %w", err)
			}
			t.mu.Lock()
			t.grounds = append(t.grounds, g)
			t.mu.Unlock()
			for _, move := range g.Moves {
				t.moves(g, move)
			}
		}))
}

// moves tells the story of one move. All contenders but the last are connected to the old primary.
func (t *trial) moves(g *Ground, move Move) {
	const ttl = 10 * time.Second
	on := func(who, lock string, ttl time.Duration) *contender {
		o := strategy.Options{TTL: ttl, OpTimeout: 5 * time.Second, RetryOnError: true}
		c := t.enrol(&contender{who: who, o: o}, g.Open)
		return c.on(t.name + " " + move.Name + " " + lock)
	}
	a, b := on("A", "awaited", ttl), on("B", "awaited", ttl)
	keeper := on("K", "kept", ttl)
	past, idle, reader := on("P", "past", ample.TTL), on("D", "past", ample.TTL), on("I", "past", ample.TTL)

	h := a.try().want(nil, "the lock is free")
	kept := keeper.try().want(nil, "the lock is free")
	kept.keepAlive(0)
	former := past.try().want(nil, "the lock is free")
	idle.try().wantHeldBy(former, "P holds the lock")
	reader.try().wantHeldBy(former, "P holds the lock")
	waiter := b.start().settles()

	if err := move.Do(t.ctx); err != nil {
		t.brokef("%s: %w", move.Name, err)
	}
	began := time.Now()
	t.rec.add("%s: the primary is a replica now, and what it has is out of date", move.Name)

	c := on("C", "awaited", ttl)
	h.release() // what it says is not judged: the lock becomes free in any case
	for served := false; !served; {
		select {
		case <-waiter.done:
			served = true
		default:
			if time.Since(began) > ttl/2 {
				t.failf("B.Acquire() has not returned %v after the move, want the lock: nobody else holds it for long", ttl/2)
			}
			if k := c.try(); k.err == nil {
				k.hold.release()
			}
			t.sleep(50 * time.Millisecond)
		}
	}
	waiter.k.want(nil, "nobody else holds the lock for long").release().want(nil, "B holds the lock")

	former.release()
	c.on(past.lock.Name()).eventually("the lock is free: P has released it").release().want(nil, "C holds the lock")
	reader.leavesReplica("the lock is free", func() error {
		info, err := reader.s.Inspect(t.ctx, past.lock.Name())
		if t.rec.add("I.Inspect() = held: %v, %v", info.Held, err); info.Held {
			t.failf("I.Inspect() says that %s holds the lock, want nobody: the replica's answer is out of date", info.Label)
		}
		if errors.Is(err, strategy.ErrUnsupported) {
			return nil
		}
		return err
	})
	idle.leavesReplica("the lock is free", func() error {
		k := idle.try()
		if errors.Is(k.err, strategy.ErrHeld) {
			t.failf("%s = %w, want nil: the lock is free, and the replica's answer is out of date", k.text, k.err)
		}
		if k.err == nil {
			k.hold.release().want(nil, "D holds the lock")
		}
		return k.err
	})
	keeper.leavesReplica("K keeps its lock, or learns of its loss", func() error {
		k := kept.extend()
		if k.err == nil {
			c.on(keeper.lock.Name()).try().wantHeldBy(kept, "K has heard that it holds the lock")
		}
		if errors.Is(k.err, strategy.ErrLost) {
			return nil
		}
		return k.err
	})
	kept.release()
}

// leavesReplica asks until a server gives an answer, which must come some time.
func (c *contender) leavesReplica(want string, ask func() error) {
	var last error
	for began := time.Now(); ; c.t.sleep(100 * time.Millisecond) {
		var server *strategy.ServerError
		if last = ask(); last == nil {
			return
		}
		if !errors.As(last, &server) {
			c.t.failf("%s says %w, want: %s", c.who, last, want)
		}
		if time.Since(began) > c.t.patience {
			c.t.failf("%s has heard nothing but errors for %v, at last %w, want: %s", c.who, c.t.patience, last, want)
		}
	}
}
