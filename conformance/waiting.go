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

func waiting() []Property {
	return inGroup("waiting",
		scripted("WaitLimit",
			"Acquire waits as long as its context allows, and then says both that the lock is held and that the time is over.",
			func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				a.try().want(nil, "the lock is free")
				limit := t.ttl / 2
				ctx, cancel := context.WithTimeout(t.ctx, limit)
				defer cancel()
				k := b.waitsUntil(ctx, limit)
				if ctx.Err() == nil {
					t.failf("%s = %w after %v, want to wait for %v", k.text, orNil{k.err}, k.elapsed, limit)
				}
			}),
		scripted("DeadlinePassed",
			"A deadline counts by the clock: once it has passed nothing is sent but a release, and a waiter learns that the lock is held, also if no timer has told.",
			func(t *trial) {
				a, b := t.gated("A", ample), t.gated("B", ample)
				h := a.try().want(nil, "the lock is free")
				a.settle() // of several servers, some may still be asked
				over := untold{t.ctx, time.Now()}
				before := a.requests() + b.requests()
				for _, k := range []call{
					b.tryWith(over), b.acquireWith(over),
					h.do("Extend(deadline passed)", func() error { return h.lease.Extend(over) }),
				} {
					k.want(context.DeadlineExceeded, "its deadline has passed")
				}
				if n := a.requests() + b.requests() - before; n > 0 {
					t.failf("%d requests after the deadline, want none", n)
				}
				limit := t.ttl / 2
				b.waitsUntil(untold{t.ctx, time.Now().Add(limit)}, limit)
				h.do("Release(deadline passed)", func() error { return h.lease.Release(over) }).want(nil, "A holds the lock")
				b.eventually("A has released, and B has given up its place in the queue")
			}),
		scripted("WokenByRelease", "A waiter gets the lock when it is released, not only when its TTL is over.", func(t *trial) {
			patient := t.patient()
			a, b := t.contender("A", patient), t.contender("B", patient)
			h := a.try().want(nil, "the lock is free")
			waiter := b.start().settles()
			h.release().want(nil, "A holds the lock")
			waiter.wait("A has released").want(nil, "A has released")
		}),
		scripted("WokenByNotification", "Where the servers announce releases, a waiter needs no polling: it is notified.", func(t *trial) {
			a, b := t.contender("A", t.listening()), t.contender("B", t.listening())
			h := a.try().want(nil, "the lock is free")
			for range 3 { // the second waits on what it heard from the first
				waiter := b.start().settles()
				h.release().want(nil, "A holds the lock")
				waiter.wait("A has released").want(nil, "A has released").release().want(nil, "B holds the lock")
				h = a.try().want(nil, "B has released")
			}
		}),
		alone(scripted("BrokenWatch",
			"A waiter whose subscription breaks learns it: it listens again, and gets the lock when it is released.",
			func(t *trial) {
				t.needs(t.BreakWatches != nil, "Subject.BreakWatches is nil")
				o := t.patient()
				o.Wait = strategy.WaitNotification
				a, b := t.contender("A", o), t.contender("B", o)
				h := a.try().want(nil, "the lock is free")
				waiter := b.start().settles()
				t.breakWatches()
				b.settle()
				h.release().want(nil, "A holds the lock")
				waiter.wait("A has released").want(nil, "A has released")
			})),
		scripted("WokenAtExpiry", "A waiter gets the lock when its holder's TTL is over, though nobody announces that.", func(t *trial) {
			a, c := t.contender("A", t.brief()), t.contender("C", ample)
			h := a.try().want(nil, "the lock is free")
			h.detach()
			patient := ample
			var held *strategy.HeldError
			k := c.try()
			k.wantHeldBy(h, "A holds the lock")
			if errors.As(k.err, &held) && held.TTL > 0 {
				// A waiter that knows when the TTL ends need not ask at random before.
				patient.Backoff = never
			}
			b := t.contender("B", patient)
			b.start().wait("A's lock has expired").want(nil, "A's lock has expired")
		}),
		scripted("NoMissedRelease",
			"A waiter does not miss a release, between whichever of its requests that comes: not even between its refusal and its subscription.",
			func(t *trial) {
				for k, asks := 1, true; asks; k++ {
					asks = t.releaseAt(k, (*contender).before) && t.releaseAt(k, (*contender).after)
				}
			}),
		scripted("CancelledBefore",
			"A context that is done already acquires nothing and extends nothing, though the lock is free: nothing is sent.",
			func(t *trial) {
				b := t.contender("B", ample)
				var a *contender
				if t.OpenGated != nil {
					a = t.gated("A", ample)
				} else {
					a = t.contender("A", ample)
				}
				cause := errors.New("called off")
				ctx, cancel := context.WithCancelCause(t.ctx)
				cancel(cause)
				a.tryWith(ctx).wantBoth(context.Canceled, cause)
				a.acquireWith(ctx).wantBoth(context.Canceled, cause)
				if a.net != nil && a.requests() != 0 {
					t.failf("A made %d requests, want 0: its context was done", a.requests())
				}
				h := b.try().want(nil, "A has acquired nothing")
				h.do("Extend(cancelled context)", func() error { return h.lease.Extend(ctx) }).wantBoth(context.Canceled, cause)
				h.extend().want(nil, "B holds the lock")
			}),
		scripted("CancelledWaiting",
			"A wait that is called off ends at once, and says that the lock is held, that the wait was called off, and why.",
			func(t *trial) {
				patient := t.patient()
				a, c := t.contender("A", patient), t.contender("C", patient)
				patient.Backoff = never // so that no attempt is under way
				b := t.contender("B", patient)
				h := a.try().want(nil, "the lock is free")
				waiter := b.start().settles()
				cause := errors.New("called off")
				t.rec.add("B's context is cancelled")
				waiter.cancel(cause)
				k := waiter.wait("its context is cancelled")
				if errors.Is(k.err, strategy.ErrUnknown) {
					t.tooSlow("B was still asking when its context was cancelled")
				}
				k.wantBoth(strategy.ErrHeld, context.Canceled)
				k.wantBoth(strategy.ErrHeld, cause)
				h.release().want(nil, "A holds the lock")
				c.eventually("B does not wait any more") // B may still be giving up its place in the queue
			}),
		byChance("CancelRacesGrant",
			"When a context ends while the lock is granted, the caller either has it, or it becomes free again long before its TTL ends.",
			func(t *trial) {
				patient := t.patient()
				a, b := t.contender("A", patient), t.contender("B", patient)
				for i := range time.Duration(40) {
					ctx, cancel := context.WithCancel(t.ctx)
					time.AfterFunc(i*12500*time.Nanosecond, cancel) // before, while and after the servers grant it
					if k := a.acquireWith(ctx); k.err == nil {
						k.hold.release().want(nil, "A holds the lock")
					}
					cancel()
					b.eventually("what A was granted too late is undone").release().want(nil, "B holds the lock")
				}
			}),
		scripted("FirstComeFirstServed", "The waiters of one process get the lock in the order in which they came.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			h := a.try().want(nil, "the lock is free")
			queue := newQueue(b, 5, 0)
			h.release().want(nil, "A holds the lock")
			queue.wantInOrder()
		}),
		scripted("WaitersAreCheap",
			"However many of one process wait, only one of them asks the servers: where the servers announce releases, an acquisition costs as much as without rivals.",
			func(t *trial) {
				a, b := t.contender("A", t.listening()), t.gated("B", t.listening())
				h := a.try().want(nil, "the lock is free")
				const n = 20
				queue := newQueue(b, n, 0)
				h.release().want(nil, "A holds the lock")
				queue.wantInOrder()
				used := b.requests()
				b.try().want(nil, "nobody holds the lock any more").release().want(nil, "B holds the lock")
				each := b.requests() - used
				move := (each + 1) / 2 // of several servers, a request to each
				more := n / 2          // being refused, listening, a few wakes too many
				if t.OpenPermits != nil || t.OpenRW != nil {
					more += n // several may hold the lock, so each asks, too, when the one before it gets in
				}
				if most := n*each + more*move; used > most {
					t.failf("%d acquisitions by waiters took %d requests, want %d each, as without rivals, and %d in all at most", n, used, each, most)
				}
			}),
		scripted("Burst",
			"Of many contenders of one process that come at the same moment few ask the servers at once, and all get the lock.",
			func(t *trial) {
				a := t.gated("A", t.patient())
				const n, most = 60, 10
				held := a.holdUp()
				calls := make(chan call, n)
				for range n {
					go func() {
						k := a.acquire()
						if k.hold != nil {
							k = k.hold.release()
						}
						calls <- k
					}()
				}
				a.settle() // if the time is too short for all of them, the trial is less severe
				asked := a.requests()
				if limit := most * max(t.Nodes, 1); asked > limit {
					t.failf("%d contenders have sent %d requests before the first answer, want those of %d attempts at most", n, asked, most)
				}
				held.melt()
				for i := range n {
					await(t, calls, t.patience, "after %v %d contenders have had the lock, want all %d", t.patience, i, n).want(nil, "its turn comes")
				}
			}),
		scripted("FairAcrossProcesses",
			"Contenders of several processes get the lock in the order in which they came, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				a := t.contender("A", ample)
				h := a.try().want(nil, "the lock is free")
				var waiters []*pending
				for i := range 5 {
					waiters = append(waiters, t.contender(fmt.Sprintf("%c", 'B'+i), ample).queues(i+1))
				}
				released := time.Now()
				h.release().want(nil, "A holds the lock")
				for i, first := range waiters {
					inOrder(t, first.done, released, waiters[i+1:]...)
					got := first.k.want(nil, "it is its turn")
					released = time.Now()
					got.release().want(nil, first.c.who+" holds the lock")
				}
			}),
		scripted("Persist",
			"Servers that fail end a wait at once, or, with Options.RetryOnError, do not end it: then it goes on until they recover.",
			func(t *trial) {
				o := t.hasty()
				o.Backoff = func(int) time.Duration { return 5 * time.Millisecond }
				hasty := t.gated("A", o)
				attempts := make(chan struct{}, 100)
				o.RetryOnError = true
				o.Observe = func(e strategy.Event) {
					if e.Kind == strategy.EventAttempt && e.Err != nil {
						select {
						case attempts <- struct{}{}:
						default:
						}
					}
				}
				stubborn := t.gated("B", o)
				held := hasty.holdUp()
				if k := hasty.acquire(); k.err == nil || errors.Is(k.err, strategy.ErrHeld) {
					t.failf("%s = %w, want an error that claims nothing: no server has answered", k.text, orNil{k.err})
				}
				held.melt()
				held = stubborn.holdUp()
				acquired := aside(stubborn.acquire)
				for range 2 {
					select {
					case <-attempts:
					case k := <-acquired:
						t.failf("%s = %w, want to go on waiting: RetryOnError is set", k.text, orNil{k.err})
					case <-t.late(t.patience):
						t.brokef("B has made no two attempts in %v", t.patience)
					}
				}
				held.melt()
				select {
				case k := <-acquired:
					k.want(nil, "the servers have recovered")
				case <-t.late(t.patience):
					t.tooSlow("B has no answer in time from servers that have recovered")
				}
			}),
	)
}

// waitsUntil waits for a lock that is held, with a context whose time ends after limit, and demands that both is said.
func (c *contender) waitsUntil(ctx context.Context, limit time.Duration) call {
	t := c.t
	k := await(t, aside(func() call { return c.acquireWith(ctx) }), limit+t.patience,
		"%s.Acquire() has not returned after %v, want to wait for %v", c.who, limit+t.patience, limit)
	if !errors.Is(k.err, strategy.ErrHeld) {
		t.tooSlow("no answer came within the limit") // every time, if it is not said
	}
	k.wantBoth(strategy.ErrHeld, context.DeadlineExceeded)
	return k
}

// releaseAt lets A release before or after the k-th request that B makes to acquire
// its lock. It tells if B made so many.
func (t *trial) releaseAt(k int, moment func(*contender, int, func())) (asks bool) {
	name := fmt.Sprintf("%s/%d", t.name, k)
	a, b := t.contender("A", t.listening()).on(name), t.gated("B", t.listening()).on(name)
	h := a.try().want(nil, "the lock is free")
	var once sync.Once
	released := make(chan call, 1)
	release := func(inside bool) {
		once.Do(func() { asks = inside; released <- h.release() })
	}
	moment(b, k, func() { release(true) })
	waiter := b.start()
	select {
	case <-waiter.done:
	case <-time.After(t.ttl / 2): // it makes no more requests, and waits
	}
	release(false)
	(<-released).want(nil, "A holds the lock")
	waiter.wait("A has released").want(nil, "A has released").release().want(nil, "B holds the lock")
	return asks
}

// listening is for waiters that hear of releases and hardly ask of themselves.
// New refuses it for locks that tell nobody.
func (t *trial) listening() strategy.Options {
	o := t.patient()
	o.Wait, o.Backoff = strategy.WaitNotification, never
	return o
}

// never is the Backoff of a waiter that does not ask of itself. Pauses are drawn from it: of an hour, one in two hundred
// would end within the patience of a trial.
func never(int) time.Duration { return 100_000 * time.Hour }

func (k call) wantBoth(first, second error) {
	if !errors.Is(k.err, first) || !errors.Is(k.err, second) {
		k.t.failf("%s = %w, want both %s and %s", k.text, orNil{k.err}, nameOf(first), nameOf(second))
	}
}

// A queue is contenders of one process in line for a lock that somebody holds.
type queue struct {
	c     *contender
	n     int
	calls chan numbered
	ended chan numbered  // the releases
	all   sync.WaitGroup // until they have released
}

type numbered struct {
	i int
	k call
}

// newQueue lets n waiters get in line, each after the one before it stands there.
// Each releases the lock once it has had it for that long.
func newQueue(c *contender, n int, linger time.Duration) *queue {
	q := &queue{c: c, n: n, calls: make(chan numbered, n), ended: make(chan numbered, n)}
	waiter, held := c.noticing()
	for i := range n {
		ctx := &waitingContext{Context: c.t.ctx, held: held, waits: make(chan struct{})}
		q.all.Go(func() {
			k := waiter.do(fmt.Sprintf("Acquire() number %d", i+1), func() (strategy.Lease, error) { return waiter.lock.Acquire(ctx) })
			q.calls <- numbered{i + 1, k}
			if k.hold != nil {
				c.t.pause(linger)
				k := waiter.do(fmt.Sprintf("Release() number %d", i+1), func() (strategy.Lease, error) { return nil, k.hold.lease.Release(c.t.ctx) })
				q.ended <- numbered{i + 1, k}
			}
		})
		select {
		case <-ctx.waits:
		case got := <-q.calls: // no answer came in time, or the holder has lost the lock; every time, if it is not the machine
			c.t.tooSlow(fmt.Sprintf("%s = %v, want that it waits: the lock is held", got.k.text, got.k.err))
		case <-c.t.late(c.t.patience):
			c.t.brokef("%s.Acquire() number %d does not wait after %v", c.who, i+1, c.t.patience)
		}
	}
	c.settle()
	c.t.rec.add("%s has %d waiters in line", c.who, n)
	return q
}

// wantInOrder waits until all have had the lock and released it, and ends the trial unless they came in order.
func (q *queue) wantInOrder() {
	var order, want []int
	for i := range q.n {
		want = append(want, i+1)
		got := await(q.c.t, q.calls, q.c.t.patience, "after %v the waiters %v have had the lock, want all %d", q.c.t.patience, order, q.n)
		got.k.want(nil, "its turn comes")
		order = append(order, got.i)
	}
	q.all.Wait()
	if !slices.Equal(order, want) {
		q.c.t.failf("the waiters got the lock in the order %v, want %v", order, want)
	}
}

// waitingContext tells when somebody who has been refused begins to wait for its
// end: that is the moment at which a contender stands in line.
type waitingContext struct {
	context.Context
	held  <-chan struct{}
	waits chan struct{}
	once  sync.Once
}

func (c *waitingContext) Done() <-chan struct{} {
	select {
	case <-c.held:
		c.once.Do(func() { close(c.waits) })
	default: // the first attempt, not answered yet
	}
	return c.Context.Done()
}

// untold is a context whose deadline passes, and neither Err nor Done tells: its timer has not run.
type untold struct {
	context.Context
	deadline time.Time
}

func (u untold) Deadline() (time.Time, bool) { return u.deadline, true }
