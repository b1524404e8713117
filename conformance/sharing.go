package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func sharing() []Property {
	return inGroup("sharing",
		scripted("PermitsBound", "A lock of n permits has n holders at most, and each release lets one more in.", func(t *trial) {
			a, b := t.sharer("A", 3, ample), t.sharer("B", 3, ample)
			first := a.try().want(nil, "three permits are free")
			b.try().want(nil, "two permits are free")
			a.try().want(nil, "one permit is free")
			b.try().want(strategy.ErrHeld, "all three are taken")
			a.try().want(strategy.ErrHeld, "all three are taken, two of them by A")
			first.release().want(nil, "A holds it")
			b.try().want(nil, "A has released one")
			a.try().want(strategy.ErrHeld, "one came back, and B has it")
		}),
		byChance("PermitsUnderContention",
			"However many contend at once for permits, some of them for several, never are more taken than there are; and they hold the lock at the same time.",
			func(t *trial) {
				const permits = 4 // so any two of those that contend can hold the lock together
				var taken atomic.Int64
				together, meet := make(chan struct{}), sync.Once{}
				t.compete(func(who string, o strategy.Options) *contender {
					return t.sharer(who, permits, o).wanting(int(who[0]-'A')%2 + 1)
				}, 4, func(h *hold) error {
					own := int64(h.c.permits)
					n := taken.Add(own)
					defer taken.Add(-own)
					if n > permits {
						return fmt.Errorf("%d permits are taken at once, want %d at most", n, permits)
					}
					if n > own {
						meet.Do(func() { close(together) })
					}
					select {
					case <-together:
					case <-t.late(t.patience):
						return fmt.Errorf("nobody else holds a permit after %v, want another: permits are free", t.patience)
					}
					time.Sleep(time.Microsecond) // let the others in, if they can
					return nil
				})
			}),
		scripted("SeveralPermits", "An acquisition of several permits gets all of them or none, and all come back with its release.", func(t *trial) {
			a, b := t.sharer("A", 3, ample), t.sharer("B", 3, ample)
			two := a.wanting(2).try().want(nil, "three permits are free")
			b.wanting(2).try().want(strategy.ErrHeld, "one permit is free, and B wants two")
			b.try().want(nil, "one permit is free: the attempt that was refused has taken nothing")
			a.try().want(strategy.ErrHeld, "all three are taken, two of them by one holder")
			two.extend().want(nil, "A holds two permits")
			two.release().want(nil, "A holds two permits")
			b.wanting(2).try().want(nil, "A has released two permits")
			a.try().want(strategy.ErrHeld, "B holds all three")
		}),
		scripted("TooManyPermits",
			"An acquisition of more permits than there are is refused, and does not wait for what cannot come.",
			func(t *trial) {
				a, b := t.sharer("A", 3, ample), t.sharer("B", 3, ample)
				b.wanting(4).try().want(strategy.ErrRefused, "there are three")
				all := a.wanting(3).try().want(nil, "all three are free: what was refused took none")
				b.wanting(4).try().want(strategy.ErrRefused, "there are three, free or not")
				b.wanting(4).acquire().want(strategy.ErrRefused, "there are three, however long B waits")
				all.release().want(nil, "A holds all three")
				b.wanting(3).try().want(nil, "all three are free: what was refused does not wait")
			}),
		scripted("PermitsInOrder",
			"Contenders of several processes get permits in the order in which they came, each as soon as one is released, if the lock says that it is fair.",
			func(t *trial) {
				a := t.sharer("A", 2, ample)
				t.needs(t.Fair, "Subject.Fair is false")
				holds := []*hold{a.try().want(nil, "two permits are free"), a.try().want(nil, "one permit is free")}
				var waiters []*pending
				for i := range 4 {
					waiters = append(waiters, t.sharer(fmt.Sprintf("%c", 'B'+i), 2, ample).queues(i+1))
				}
				for i, first := range waiters {
					released := time.Now()
					holds[i].release().want(nil, holds[i].c.who+" holds a permit")
					inOrder(t, first.done, released, waiters[i+1:]...)
					holds = append(holds, first.k.want(nil, "it is its turn"))
				}
			}),
		scripted("ManyPermitsNotOvertaken",
			"A waiter for many permits is not overtaken by those that come later and want few, if the lock says that it is fair.",
			func(t *trial) {
				a, b, c, d := t.sharer("A", 3, ample), t.sharer("B", 3, ample), t.sharer("C", 3, ample), t.sharer("D", 3, ample)
				t.needs(t.Fair, "Subject.Fair is false")
				one, two := a.try().want(nil, "three permits are free"), a.wanting(2).try().want(nil, "two permits are free")
				many := b.wanting(3).queues(1)
				light := c.queues(2)
				one.release().want(nil, "A holds it")
				d.try().want(strategy.ErrHeld, "one permit is free, and it is kept for B")
				released := time.Now()
				two.release().want(nil, "A holds two permits")
				inOrder(t, many.done, released, light)
				many.k.want(nil, "it is its turn").release().want(nil, "B holds all three")
				light.wait("B has released").want(nil, "it is its turn")
			}),
		scripted("ManyPermitsGiveUp",
			"When a waiter for many permits gives up, those behind it have what is free, without a release.",
			func(t *trial) {
				a, b, c := t.sharer("A", 2, t.patient()), t.sharer("B", 2, t.patient()), t.sharer("C", 2, t.patient())
				t.needs(t.Fair, "Subject.Fair is false")
				a.try().want(nil, "two permits are free")
				many := b.wanting(2).queues(1)
				light := c.queues(2)
				many.givesUp().want(strategy.ErrHeld, "one permit is free, and B wants two")
				light.wait("B has given up, and one permit is free").want(nil, "it is its turn")
			}),
		scripted("PermitsRaised", "When the number of permits is raised, those who wait have the new ones, without a release.", func(t *trial) {
			a, b, c := t.sharer("A", 1, t.patient()), t.sharer("B", 1, t.patient()), t.sharer("C", 1, t.patient())
			a.try().want(nil, "the only permit is free")
			first, second := b.start().settles(), c.start().settles()
			a.setPermits(3)
			first.wait("there are two more").want(nil, "there are two more")
			second.wait("there are two more").want(nil, "there are two more")
			a.try().want(strategy.ErrHeld, "all three are taken")
		}),
		scripted("PermitsLowered",
			"When the number of permits is lowered, holders keep theirs, and nobody gets in until enough have released.",
			func(t *trial) {
				a, b := t.sharer("A", 3, ample), t.sharer("B", 3, ample)
				first, second := a.try().want(nil, "three permits are free"), a.try().want(nil, "two permits are free")
				third := a.try().want(nil, "one permit is free")
				b.setPermits(1)
				for _, h := range []*hold{first, second, third} {
					h.extend().want(nil, "A keeps what it holds")
				}
				first.release().want(nil, "A holds it")
				b.try().want(strategy.ErrHeld, "two are taken, and there is one")
				second.release().want(nil, "A holds it")
				b.try().want(strategy.ErrHeld, "one is taken, and there is one")
				third.release().want(nil, "A holds it")
				b.wanting(2).try().want(strategy.ErrRefused, "there is one")
				b.try().want(nil, "it is free")
				a.try().want(strategy.ErrHeld, "there is one, and B has it")
			}),
		scripted("TooManyNow",
			"When the number of permits is lowered below what a waiter wants, its wait ends with ErrRefused, and those behind it have their turn.",
			func(t *trial) {
				a, b, c := t.sharer("A", 2, t.patient()), t.sharer("B", 2, t.patient()), t.sharer("C", 2, t.patient())
				h := a.wanting(2).try().want(nil, "both permits are free")
				many := b.wanting(2).start().settles()
				light := c.start().settles()
				a.setPermits(1)
				h.release().want(nil, "A keeps what it holds")
				many.wait("there is one permit").want(strategy.ErrRefused, "there is one, and B wants two")
				light.wait("A has released").want(nil, "the permit is free, and B does not wait any more")
			}),
		scripted("PermitsForAll",
			"A number of permits that was set counts for all processes; zero takes it back, and then each goes by the number that it was started with.",
			func(t *trial) {
				a, b := t.sharer("A", 1, ample), t.sharer("B", 4, ample)
				a.setPermits(2)
				b.try().want(nil, "both permits are free")
				a.try().want(nil, "there are two, though A was started with one")
				b.try().want(strategy.ErrHeld, "there are two, though B was started with four")
				b.setPermits(0)
				a.try().want(strategy.ErrHeld, "A was started with one")
				b.try().want(nil, "B was started with four")
			}),
		scripted("DeadPermits",
			"The permits of a holder that died come back after its TTL, though others renew theirs, and the others keep theirs.",
			func(t *trial) {
				a, b := t.sharer("A", 4, ample), t.sharer("B", 4, t.patient())
				d, k := t.sharer("D", 4, t.brief()), t.sharer("K", 4, t.brief())
				long := a.try().want(nil, "four permits are free")
				kept := k.try().want(nil, "three permits are free")
				kept.keepAlive(0)
				d.wanting(2).try().want(nil, "two permits are free").detach() // as if it had died
				b.wanting(2).start().wait("D's TTL is over").want(nil, "D's TTL is over")
				b.try().wantHeldBy(kept, "A and K keep theirs")
				kept.extend().want(nil, "K keeps its permit alive")
				long.extend().want(nil, "A's TTL is long, whatever D's was")
			}),
		scripted("PermitsOnlyOwn",
			"A holder that has lost its permit releases and extends nothing: those who took permits after it keep them.",
			func(t *trial) {
				a, b, c := t.sharer("A", 2, ample), t.sharer("B", 2, shorter), t.sharer("C", 2, ample)
				releases, extends := a.try().want(nil, "two permits are free"), a.try().want(nil, "one permit is free")
				t.evict(t.name)
				first, second := b.try().want(nil, "A has lost both"), b.try().want(nil, "A has lost both")
				releases.release().want(strategy.ErrLost, "A has lost it")
				c.try().want(strategy.ErrHeld, "B holds both: A must not release them")
				extends.extend().want(strategy.ErrLost, "A has lost it")
				first.extend().want(nil, "B holds it")
				first.release().want(nil, "B holds it")
				second.release().want(nil, "B holds it")
			}),
		scripted("PermitsApart", "Each holder has a token of its own, and its release ends no other hold.", func(t *trial) {
			a, b, c := t.sharer("A", 3, ample), t.sharer("B", 3, ample), t.sharer("C", 3, ample)
			first := a.try().want(nil, "three permits are free")
			second := b.wanting(2).try().want(nil, "two permits are free")
			if first.lease.Token() == second.lease.Token() {
				t.failf("the token of both A and B is %q, want one of its own for each", first.lease.Token())
			}
			second.release().want(nil, "B holds two permits")
			first.extend().want(nil, "A holds a permit, whether B does or not")
			third := c.wanting(2).try().want(nil, "B has released two permits")
			first.release().want(nil, "A holds a permit")
			third.extend().want(nil, "C holds two permits, whether A does or not")
			third.release().want(nil, "C holds two permits")
		}),
		scripted("PermitFences",
			"Each holder has a fence of its own, and keeps it; it is greater than that of the hold before it on the same permit, and than all before it if no permit was taken.",
			func(t *trial) {
				a, b, c := t.sharer("A", 2, ample), t.sharer("B", 2, ample), t.sharer("C", 2, ample)
				t.needs(t.Fenced, "Subject.Fenced is false")
				fences := map[uint64]bool{}
				// next is h's fence: one of its own, and more than those of the holds before it.
				next := func(h *hold, before ...uint64) uint64 {
					fence, ok := h.lease.Fence()
					if !ok || fences[fence] {
						t.failf("%s.Fence() = %d, %v, want one of its own", h.c.who, fence, ok)
					}
					for _, f := range before {
						if fence <= f {
							t.failf("%s.Fence() = %d, want more than %d, that of a hold before it", h.c.who, fence, f)
						}
					}
					fences[fence] = true
					return fence
				}
				first := a.try().want(nil, "two permits are free")
				one := next(first)
				second := b.try().want(nil, "one permit is free")
				two := next(second)
				waiter := c.start().settles()
				second.release().want(nil, "B holds a permit")
				third := waiter.wait("B has released").want(nil, "B has released")
				three := next(third, two)
				first.extend().want(nil, "A holds a permit")
				if got, _ := first.lease.Fence(); got != one {
					t.failf("A.Fence() after Extend = %d, want %d as before", got, one)
				}
				first.release().want(nil, "A holds a permit")
				fourth := b.try().want(nil, "A has released")
				four := next(fourth, one)
				third.release().want(nil, "C holds a permit")
				fourth.release().want(nil, "B holds a permit")
				next(a.try().want(nil, "no permit is taken"), one, two, three, four)
			}),
		scripted("PermitsLeaveNothing",
			"After the last release the servers keep nothing of a lock of several permits, and nothing of those who waited for it.",
			func(t *trial) {
				a, b, c := t.sharer("A", 3, ample), t.sharer("B", 3, ample), t.sharer("C", 3, ample)
				t.needs(t.Leftovers != nil, "Subject.Leftovers is nil")
				one, two := a.try().want(nil, "three permits are free"), b.wanting(2).try().want(nil, "two permits are free")
				gaveUp := c.wanting(2).start().settles()
				gaveUp.givesUp()
				waiter := c.wanting(3).start().settles()
				two.release().want(nil, "B holds two permits")
				one.release().want(nil, "A holds one permit")
				waiter.wait("all have released").want(nil, "all have released").release().want(nil, "C holds three permits")
				t.nothingLeft(t.patience, "the last release")
			}),
	)
}

// sharer opens a contender for one of so many permits of the trial's lock.
func (t *trial) sharer(who string, permits int, o strategy.Options) *contender {
	t.needs(t.OpenPermits != nil, "Subject.OpenPermits is nil")
	return t.enrol(&contender{who: who, o: o}, func(o strategy.Options) (strategy.Strategy, error) {
		return t.OpenPermits(permits, o)
	})
}

// wanting returns the same contender, which wants that number of permits at once.
func (c *contender) wanting(permits int) *contender {
	other := *c
	other.permits = permits
	return other.on(c.lock.Name())
}

func (c *contender) setPermits(n int) {
	c.t.mu.Lock()
	c.t.limited = append(c.t.limited, c)
	c.t.mu.Unlock()
	c.do(fmt.Sprintf("SetPermits(%d)", n), func() (strategy.Lease, error) {
		return nil, c.s.(strategy.Semaphore).SetPermits(c.t.ctx, c.lock.Name(), n)
	}).want(nil, "so many are allowed")
}

// unlimit takes the number of permits back, which would stay with the servers for ever.
func (c *contender) unlimit() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.ctx), c.t.patience)
	defer cancel()
	_ = c.s.(strategy.Semaphore).SetPermits(ctx, c.lock.Name(), 0) // of a server that fails it stays
}
