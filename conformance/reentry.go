package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func reentering() []Property {
	return inGroup("re-entry",
		scripted("Reentry",
			"A contender that holds a lock gets in again if the lock is re-entrant and the context names the same owner, and is refused otherwise.", reentry),
		scripted("ReentryByOwner",
			"Another owner is refused, however often the first one holds the lock, and learns which owner that is.",
			reentrant(func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				rival := strategy.WithOwner(t.ctx, "another "+t.name)
				for range 2 {
					h := a.tryWith(t.owner()).want(nil, "its owner holds the lock, or nobody")
					k := b.tryWith(rival)
					k.want(strategy.ErrHeld, "another owner is somebody else")
					var held *strategy.HeldError
					if !errors.As(k.err, &held) || held.Holder != h.lease.Owner() {
						t.failf("%s = %w, want a HeldError whose holder is the owner, %q", k.text, k.err, h.lease.Owner())
					}
				}
			})),
		scripted("ReentryUnnamed",
			"A caller whose context names no owner, or an empty one, never re-enters; a caller with the context of a lease does.",
			reentrant(func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				nobody := strategy.WithOwner(t.owner(), "")
				h := a.tryWith(nobody).want(nil, "the lock is free")
				if h.lease.Owner() != h.lease.Token() {
					t.failf("Owner() of an unnamed hold = %q, want its token, %q", h.lease.Owner(), h.lease.Token())
				}
				a.try().want(strategy.ErrHeld, "each unnamed acquisition owns itself")
				a.tryWith(nobody).want(strategy.ErrHeld, "an empty owner is none")
				b.tryWith(t.owner()).want(strategy.ErrHeld, "the holder has no name")
				ctx, cancel := h.lease.Context(t.ctx)
				defer cancel()
				inner := b.tryWith(ctx).want(nil, "the lease's context names its owner")
				h.release().want(nil, "A holds the lock")
				inner.release().want(nil, "B holds the lock")
			})),
		scripted("ReentryByContext",
			"A function that Do runs gets the same lock again with its context, by Do or by Acquire, and the lock is free after the outermost call.",
			reentrant(func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				depth := 0
				var nested func(ctx context.Context, outer strategy.Lease) error
				nested = func(ctx context.Context, outer strategy.Lease) error {
					if depth++; depth == 3 {
						return nil
					}
					ctx, cancel := context.WithTimeout(ctx, t.patience)
					defer cancel()
					err := strategy.Do(ctx, a.lock, nested)
					if k := b.try(); err == nil && !errors.Is(k.err, strategy.ErrHeld) {
						err = fmt.Errorf("%s = %w after the inner Do, want ErrHeld: the outer goes on", k.text, orNil{k.err})
					}
					return err
				}
				k := a.do("Do()", func() (strategy.Lease, error) { return nil, strategy.Do(t.ctx, a.lock, nested) })
				k.want(nil, "each Do hands out a context that names the owner")
				b.try().want(nil, "the outermost Do is over")
			})),
		scripted("ReentryFence",
			"Re-entry does not change the fence; the next owner's fence is greater, and so is the same owner's when it comes again.",
			reentrant(func(t *trial) {
				t.needs(t.Fenced, "Subject.Fenced is false")
				a, b := t.contender("A", ample), t.contender("B", ample)
				var last uint64
				for _, owner := range []string{"one", "another", "another"} {
					ctx := strategy.WithOwner(t.ctx, owner+" "+t.name)
					outer := a.tryWith(ctx).want(nil, "the lock is free")
					fence, _ := outer.lease.Fence()
					if fence <= last {
						t.failf("Fence() of %s owner = %d, want more than %d, that of the owner before", owner, fence, last)
					}
					last = fence
					inner := b.tryWith(ctx).want(nil, "the owner holds the lock already")
					if got, _ := inner.lease.Fence(); got != fence {
						t.failf("Fence() of the inner hold = %d, want %d as the outer's: both may write", got, fence)
					}
					outer.release().want(nil, "the outer hold is held")
					third := a.tryWith(ctx).want(nil, "the owner holds the lock still")
					if got, _ := third.lease.Fence(); got != fence {
						t.failf("Fence() of a later hold = %d, want %d as of those before", got, fence)
					}
					inner.release().want(nil, "the inner hold is held")
					third.release().want(nil, "the third hold is held")
				}
			})),
		scripted("ReentryCount",
			"Inspect shows the owner, and how often it holds the lock: one more with each entry, one less with each release.",
			reentrant(func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				var holds []*hold
				check := func() {
					info := b.inspect()
					if len(holds) == 0 {
						if info.Held || info.Holds != 0 || info.Owner != "" {
							t.failf("Inspect() of a free lock = %+v, want not held", info)
						}
						return
					}
					known := slices.ContainsFunc(holds, func(h *hold) bool { return h.lease.Token() == info.Token })
					if info.Owner != holds[0].lease.Owner() || info.Holds != len(holds) || !known {
						t.failf("Inspect() = owner %q, %d holds, token %q, want %q, %d, and a hold's token", info.Owner, info.Holds, info.Token, holds[0].lease.Owner(), len(holds))
					}
				}
				check()
				for range 3 {
					holds = append(holds, a.tryWith(t.owner()).want(nil, "its owner holds the lock, or nobody"))
					check()
				}
				for len(holds) > 0 {
					holds[0].release().want(nil, "it is held")
					holds = holds[1:]
					check()
				}
			})),
		scripted("ReentryLastRelease", "The lock is held until the last release, in whatever order its holds end.", reentrant(func(t *trial) {
			for i, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
				name := fmt.Sprintf("%s/%d", t.name, i)
				a, b := t.contender("A", ample).on(name), t.contender("B", ample).on(name)
				var holds []*hold
				for range order {
					holds = append(holds, a.tryWith(t.owner()).want(nil, "its owner holds the lock, or nobody"))
				}
				for _, j := range order {
					b.try().want(strategy.ErrHeld, "a hold is left")
					holds[j].extend().want(nil, "it is held, whichever others have ended")
					holds[j].release().want(nil, "it is held")
				}
				b.try().want(nil, "all holds are released")
			}
		})),
		scripted("ReentryReleaseOnce",
			"A request that arrives twice, because its reply was lost, counts once: it makes no second hold, and ends no other.",
			reentrant(func(t *trial) {
				hasty := strategy.Options{TTL: ample.TTL, OpTimeout: t.ttl}
				a, b, c := t.gated("A", hasty), t.contender("B", ample), t.contender("C", ample)
				outer := b.tryWith(t.owner()).want(nil, "the lock is free")
				twice := func(send func()) {
					send()
					t.rec.add("it arrives again")
					send()
				}
				a.each(func(_ int, send func()) { twice(send) })
				inner := a.tryWith(t.owner()).want(nil, "the owner holds the lock already")
				a.each(func(_ int, send func()) {
					twice(send)
					t.pause(2 * hasty.OpTimeout) // a lock that can give up waiting for the reply does, and asks again
				})
				inner.release() // what it says does not matter
				a.each(nil)
				inner.release().want(strategy.ErrReleased, "a hold is released once")
				a.close() // waits for what asks again
				c.try().want(strategy.ErrHeld, "the outer hold is left")
				outer.extend().want(nil, "B holds the lock")
				outer.release().want(nil, "B holds the lock")
				c.try().want(nil, "A's hold, acquired and released twice, is over")
			})),
		scripted("ReentryRenewal",
			"Each hold is kept alive by itself: when one is released, the renewal of the others goes on.",
			reentrant(func(t *trial) {
				for i, first := range []string{"inner", "outer"} {
					name := fmt.Sprintf("%s/%d", t.name, i)
					a, b := t.contender("A", t.brief()).on(name), t.contender("B", ample).on(name)
					ends := a.tryWith(t.owner()).want(nil, "the lock is free")
					ends.keepAlive(0)
					stays := a.tryWith(t.owner()).want(nil, "the owner holds the lock already")
					stays.keepAlive(0)
					if first == "inner" {
						ends, stays = stays, ends
					}
					t.untilRenewed(ends)
					ends.release().want(nil, "the "+first+" hold is held")
					stays.mustLast(b, 2*t.ttl)
					stays.release().want(nil, "it is held")
					b.try().want(nil, "both holds are released")
				}
			})),
		scripted("ReentryOwnTTL",
			"Each hold lasts for its own TTL: one that comes or goes makes the others neither shorter nor longer.",
			reentrant(func(t *trial) {
				long, short, b := t.contender("A", ample), t.contender("A", t.brief()), t.contender("B", ample)
				outer := long.tryWith(t.owner()).want(nil, "the lock is free")
				inner := short.tryWith(t.owner()).want(nil, "the owner holds the lock already")
				k := inner.release()
				if errors.Is(k.err, strategy.ErrLost) {
					t.unlessLapsed(inner)
				}
				k.want(nil, "the inner hold is held")
				short.tryWith(t.owner()).want(nil, "the owner holds the lock already").detach()
				t.sleep(t.ttl + t.ttl/4)
				b.try().want(strategy.ErrHeld, "the outer hold's TTL is long, whatever the inner's was")
				outer.extend().want(nil, "the outer hold's TTL is long")
				outer.release().want(nil, "the outer hold is held")

				outer = short.tryWith(t.owner()).want(nil, "all holds are over")
				inner = long.tryWith(t.owner()).want(nil, "the owner holds the lock already")
				if d := outer.lease.Deadline(); d.After(outer.got.Add(t.ttl)) {
					t.failf("Deadline() of the outer hold is %v after its TTL, want before", d.Sub(outer.got.Add(t.ttl)))
				}
				inner.release().want(nil, "the inner hold is held")
				b.try().wantHeldBy(outer, "the outer hold is left")
				outer.detach()
				b.eventually("the outer hold's TTL is short, whatever the inner's was")
			})),
		scripted("ReentryDeadHold", "A hold whose holder died ends with its own TTL, though its owner goes on elsewhere.", reentrant(func(t *trial) {
			a, dies, b := t.contender("A", t.brief()), t.contender("A", t.brief()), t.contender("B", ample)
			outer := a.tryWith(t.owner()).want(nil, "the lock is free")
			outer.keepAlive(0)
			dead := dies.tryWith(t.owner()).want(nil, "the owner holds the lock already")
			dead.detach()
			t.sleep(time.Until(dead.got.Add(t.ttl + t.ttl/2)))
			if info, err := b.s.Inspect(t.ctx, t.name); err == nil && info.Held && info.Holds != 1 {
				t.failf("Inspect() = %d holds, want 1: the other holder is dead", info.Holds)
			}
			k := outer.release()
			if errors.Is(k.err, strategy.ErrLost) {
				t.unlessLapsed(outer)
			}
			k.want(nil, "the outer hold is kept alive")
			b.try().want(nil, "the outer hold was the last that counted")
		})),
		scripted("ReentryAfterLoss",
			"When a lock is lost, all its holds are lost, and its owner does not get in again while another has it.",
			reentrant(func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				outer := a.tryWith(t.owner()).want(nil, "the lock is free")
				inner := a.tryWith(t.owner()).want(nil, "the owner holds the lock already")
				t.evict(t.name)
				rival := b.tryWith(strategy.WithOwner(t.ctx, "another "+t.name)).want(nil, "nobody holds the lock any more")
				a.tryWith(t.owner()).want(strategy.ErrHeld, "the lock was lost to B")
				inner.release().want(strategy.ErrLost, "B holds the lock")
				outer.extend().want(strategy.ErrLost, "B holds the lock")
				rival.release().want(nil, "B holds the lock")
				a.tryWith(t.owner()).want(nil, "B has released").release().want(nil, "A holds the lock")
			})),
		scripted("ReentryBesideWaiters",
			"The owner gets in again at once, though others of its process wait for the lock; the others keep their order.",
			reentrant(func(t *trial) {
				patient := t.patient()
				a := t.contender("A", patient)
				outer := a.tryWith(t.owner()).want(nil, "the lock is free")
				queue := newQueue(a, 3, 0)
				ctx, cancel := context.WithTimeout(t.owner(), t.patience)
				defer cancel()
				inner := a.acquireWith(ctx).want(nil, "its owner holds the lock: waiting for the others would be waiting for itself")
				outer.release().want(nil, "the outer hold is held")
				inner.release().want(nil, "the inner hold is held")
				queue.wantInOrder()
			})),
		scripted("ReentryOvertakesNobody",
			"A contender with an owner asks whether it holds the lock already; if the lock is free, it does not take it before the waiters of its process.",
			reentrant(func(t *trial) {
				patient := t.listening()
				a, b := t.gated("A", patient), t.contender("B", patient)
				h := b.try().want(nil, "the lock is free")
				waiter := a.start().settles()
				reached, thaw := make(chan struct{}), make(chan struct{})
				goOn := sync.OnceFunc(func() { close(thaw) })
				defer goOn()
				a.each(func(i int, send func()) {
					if i == 1 { // the waiter's, who has heard that the lock is free
						close(reached)
						<-thaw
					}
					send()
				})
				h.release().want(nil, "B holds the lock")
				await(t, reached, t.patience, "A's waiter has not asked after %v, want it to: the lock is free", t.patience)
				ctx, cancel := context.WithTimeout(t.owner(), t.ttl/2)
				defer cancel()
				if k := a.acquireWith(ctx); k.err == nil {
					t.failf("%s by a newcomer = <nil>, want it to wait: another came before", k.text)
				}
				goOn()
				waiter.wait("the lock is free").want(nil, "the lock is free")
			})),
		scripted("ReentryWakes",
			"Where the servers announce releases, waiters sleep through the releases of inner holds, and wake at the last one.",
			reentrant(func(t *trial) {
				a, b := t.contender("A", t.listening()), t.gated("B", t.listening())
				outer := a.tryWith(t.owner()).want(nil, "the lock is free")
				inner := a.tryWith(t.owner()).want(nil, "the owner holds the lock already")
				waiter := b.start().settles()
				asked := b.requests()
				inner.release().want(nil, "the inner hold is held")
				a.tryWith(t.owner()).want(nil, "the owner holds the lock still").release().want(nil, "it is held")
				waiter.settles()
				if more := b.requests() - asked; more > 0 {
					// Each of the releases wakes it, or none; on a slow machine it may just have
					// come to its rest.
					t.tooSlow(fmt.Sprintf("B made %d requests after releases of inner holds, want 0: the lock is held", more))
				}
				outer.release().want(nil, "the outer hold is held")
				waiter.wait("all holds are released").want(nil, "all holds are released")
			})),
		scripted("ReentryForce",
			"An operator who frees a lock ends all its holds, and no hold of a later tenure, not even of the same owner.",
			reentrant(func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				outer := a.tryWith(t.owner()).want(nil, "the lock is free")
				inner := b.tryWith(t.owner()).want(nil, "the owner holds the lock already")
				seen := c.inspect()
				c.force(seen).want(nil, "A's owner holds the lock")
				again := a.tryWith(t.owner()).want(nil, "the lock was freed")
				inner.extend().want(strategy.ErrLost, "its hold was taken away")
				outer.release().want(strategy.ErrLost, "its hold was taken away")
				if t.Fenced { // otherwise nothing tells the two apart
					c.force(seen).want(strategy.ErrLost, "that tenure is over")
				}
				c.try().want(strategy.ErrHeld, "A holds the lock again")
				again.release().want(nil, "A holds the lock again")
			})),
		scripted("ReentryAdopt",
			"A caller that adopts one hold of several joins its owner, with its fence; one that adopts the only hold becomes the owner, with a greater fence.",
			reentrant(func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				other := strategy.WithOwner(t.ctx, "another "+t.name)
				adopt := func(token string) *hold {
					k := b.do("Adopt()", func() (strategy.Lease, error) { return b.s.Adopt(other, t.name, token) })
					t.needs(!matches(k.err, strategy.ErrUnsupported), "the protocol's Adopt is that of driver.Unsupported")
					return k.want(nil, "A has detached")
				}
				outer := a.tryWith(t.owner()).want(nil, "the lock is free")
				inner := a.tryWith(t.owner()).want(nil, "the owner holds the lock already")
				fence, _ := outer.lease.Fence()
				adopted := adopt(inner.detach())
				if got, _ := adopted.lease.Fence(); adopted.lease.Owner() != outer.lease.Owner() || got != fence {
					t.failf("Owner() and Fence() of a hold adopted next to another = %q, %d, want that one's: %q, %d", adopted.lease.Owner(), got, outer.lease.Owner(), fence)
				}
				c.tryWith(other).want(strategy.ErrHeld, "the adopter's name is not the owner's")
				outer.extend().want(nil, "A holds the lock")
				adopted.release().want(nil, "B has adopted a hold")
				c.try().want(strategy.ErrHeld, "the outer hold is left")

				alone := adopt(outer.detach())
				if got, ok := alone.lease.Fence(); alone.lease.Owner() != "another "+t.name || ok && got <= fence {
					t.failf("Owner() and Fence() of the only hold, adopted = %q, %d, want %q, and more than %d", alone.lease.Owner(), got, "another "+t.name, fence)
				}
				a.tryWith(t.owner()).want(strategy.ErrHeld, "A's owner has given up its last hold")
				c.tryWith(other).want(nil, "the adopter's owner holds the lock")
				alone.release().want(nil, "B has adopted the lock")
			})),
	)
}

// reentrant skips the trial on locks that are not.
func reentrant(check func(*trial)) func(*trial) {
	return func(t *trial) {
		t.needs(t.Reentrant, "Subject.Reentrant is false")
		check(t)
	}
}

// owner is a context that names the trial's owner.
func (t *trial) owner() context.Context { return strategy.WithOwner(t.ctx, "request "+t.name) }

func reentry(t *trial) {
	a, b := t.contender("A", ample), t.contender("B", ample)
	outer := a.tryWith(t.owner()).want(nil, "the lock is free")
	if !t.Reentrant {
		a.tryWith(t.owner()).want(strategy.ErrHeld, "the lock is not re-entrant")
		return
	}
	inner := b.tryWith(t.owner()).want(nil, "the owner holds the lock already, and owners are not processes")
	if inner.lease.Owner() != outer.lease.Owner() {
		t.failf("Owner() of the inner hold = %q, want %q: that of the outer", inner.lease.Owner(), outer.lease.Owner())
	}
	b.try().want(strategy.ErrHeld, "a context without owner is somebody else")
	inner.release().want(nil, "the inner hold is held")
	b.try().want(strategy.ErrHeld, "the outer hold is left")
	outer.release().want(nil, "the outer hold is held")
	b.try().want(nil, "both holds are released")
}
