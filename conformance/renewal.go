package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func renewal() []Property {
	return inGroup("renewal",
		scripted("KeptAlive", "A lock that is kept alive lasts longer than its TTL, for as long as it is held.", func(t *trial) {
			a, b := t.contender("A", t.brief()), t.contender("B", ample)
			h := a.try().want(nil, "the lock is free")
			h.keepAlive(0)
			h.mustLast(b, 3*t.ttl+t.ttl/2)
			h.release().want(nil, "A holds the lock")
			b.try().want(nil, "A has released")
		}),
		scripted("RenewalStops", "Renewal ends with the release: nothing is sent after it.", func(t *trial) {
			a := t.gated("A", t.brief())
			h := a.try().want(nil, "the lock is free")
			h.keepAlive(0)
			t.untilRenewed(h)
			t.relies(t.ttl / 8) // so no renewal is under way when A releases
			h.release().want(nil, "A holds the lock")
			sent := a.requests()
			t.sleep(t.ttl) // at least twice the pause between renewals
			if more := a.requests() - sent; more > 0 {
				// If a server did not answer in time, the release is repeated in the background.
				t.tooSlow(fmt.Sprintf("A made %d requests after its release, want 0", more))
			}
		}),
		scripted("LossNoticed",
			"A holder that keeps its lock alive learns at the next renewal that it was taken away: Lost is closed long before the deadline.",
			func(t *trial) {
				a, b := t.contender("A", strategy.Options{TTL: 3 * t.ttl, OpTimeout: 2 * t.ttl}), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				t.evict(t.name)
				h.keepAlive(0)
				b.try().want(nil, "nobody holds the lock any more")
				if lost := h.waitLost("B holds the lock"); lost.Lapsed {
					// A renewal came first, half of the TTL earlier or more, or should have.
					t.tooSlow("A noticed the loss only by its deadline")
				}
				h.release().want(strategy.ErrLost, "a loss stays")
			}),
		scripted("LossByDeadline",
			"A holder learns at its deadline at the latest that its lock is over, also if nobody asks the servers.",
			func(t *trial) {
				a := t.contender("A", t.brief())
				h := a.try().want(nil, "the lock is free")
				told := h.lease.Lost()
				t.sleep(time.Until(h.lease.Deadline()))
				h.err().want(strategy.ErrLost, "its deadline is over")
				await(t, told, t.patience, "A.Lost() is not closed %v after the deadline, want closed", t.patience)
				h.extend().want(strategy.ErrLost, "a loss stays")
				h.release().want(strategy.ErrLost, "a loss stays")
			}),
		scripted("LossWithoutNetwork",
			"A holder whose renewals get no answer learns at its deadline that its lock is over, network or no network.",
			func(t *trial) {
				a, b := t.gated("A", t.brief()), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				h.keepAlive(0)
				late := a.holdUp()
				h.waitLost("no renewal was answered")
				late.melt()
				b.eventually("the lock expires, and no late renewal brings it back")
			}),
		scripted("ReleaseIsNoLoss", "A release is no loss: it does not close Lost, and Err says ErrReleased.", func(t *trial) {
			a := t.contender("A", ample)
			h := a.try().want(nil, "the lock is free")
			h.err().want(nil, "A holds the lock")
			before := h.lease.Lost()
			h.release().want(nil, "A holds the lock")
			h.err().want(strategy.ErrReleased, "A has released")
			for _, lost := range []<-chan struct{}{before, h.lease.Lost()} {
				select {
				case <-lost:
					t.failf("A.Lost() is closed, want open: A has released the lock itself")
				default:
				}
			}
		}),
		scripted("ContextEnds",
			"The lease's context ends with the lease, and its cause says whether that was a release or a loss; and it ends with its parent.",
			func(t *trial) {
				a := t.contender("A", t.brief())
				lost := a.try().want(nil, "the lock is free")
				ctx, cancel := lost.lease.Context(t.ctx)
				defer cancel()
				t.wantCause(ctx, strategy.ErrLost, "A does not renew", nil)

				released := a.eventually("A's lock expires")
				ctx, cancel = released.lease.Context(t.ctx)
				defer cancel()
				if err := ctx.Err(); err != nil {
					t.unlessLapsed(released)
					t.failf("the lease's context = %w, want <nil>: A holds the lock", err)
				}
				released.release().want(nil, "A holds the lock")
				t.wantCause(ctx, strategy.ErrReleased, "A has released", released)

				off := errors.New("called off")
				parent, end := context.WithCancelCause(t.ctx)
				ctx, cancel = t.contender("B", ample).on(t.name+"2").try().want(nil, "the lock is free").lease.Context(parent)
				defer cancel()
				end(off)
				t.wantCause(ctx, off, "its parent has ended", nil)
			}),
		scripted("MaxHold", "Renewal with a maximum hold ends when that is over: the holder learns it, and the lock becomes free.", func(t *trial) {
			a, b := t.contender("A", t.brief()), t.contender("B", ample)
			h := a.try().want(nil, "the lock is free")
			most := t.ttl + t.ttl/2 // renewals come at 1/3 and 2/3: the second would reach beyond
			h.keepAlive(most)
			h.mustLast(b, t.ttl+t.ttl/4)
			t.sleep(time.Until(h.got.Add(most)))
			h.err().want(strategy.ErrLost, "the maximum hold is over")
			h.waitLost("the maximum hold is over")
			b.eventually("the lock expires when the maximum hold is over")
		}),
		scripted("RenewsAfterLoss", "A loss concerns one lease: the next one is kept alive as the first was.", func(t *trial) {
			a, b := t.contender("A", t.brief()), t.contender("B", ample)
			first := a.try().want(nil, "the lock is free")
			t.evict(t.name)
			first.keepAlive(0)
			first.waitLost("the lock was taken away")
			second := a.try().want(nil, "nobody holds the lock any more")
			second.keepAlive(0)
			second.mustLast(b, t.ttl+t.ttl/2)
			first.err().want(strategy.ErrLost, "a loss stays")
		}),
		scripted("Do",
			"Do runs a function while it holds the lock and keeps it alive, and releases it, whatever becomes of the function.",
			func(t *trial) {
				a, b := t.contender("A", t.brief()), t.contender("B", ample)
				wrong := errors.New("the work went wrong")
				k := a.do("Do()", func() (strategy.Lease, error) {
					return nil, strategy.Do(t.ctx, a.lock, func(ctx context.Context, lease strategy.Lease) error {
						for end := time.Now().Add(t.ttl + t.ttl/2); time.Now().Before(end) && t.ctx.Err() == nil; {
							if k := b.try(); k.err == nil && lease.Err() == nil {
								t.failed(verdict{err: errors.New("B got the lock while A's function ran, want ErrHeld"), shown: true})
								return wrong
							}
							t.pause(t.ttl / 20)
						}
						return errors.Join(wrong, ctx.Err())
					})
				})
				if errors.Is(k.err, strategy.ErrLost) {
					t.tooSlow("A's lock was lost while it was kept alive") // every time, if it is not
				}
				k.want(wrong, "that is what the function returned")
				c := t.contender("C", t.patient())
				var outcome error
				panics := func(context.Context, strategy.Lease) error { panic("the work broke") }
				func() {
					defer func() { recover() }()
					outcome = strategy.Do(t.ctx, c.lock, panics)
				}()
				if outcome != nil { // so the function was not called
					t.brokef("C.Do() = %w, want the function's panic", outcome)
				}
				b.eventually("C's function is over")
			}),
	)
}

// mustLast ends the trial if the lock does not last that long, or somebody else
// gets it meanwhile.
func (h *hold) mustLast(rival *contender, d time.Duration) {
	t := h.c.t
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := h.lease.Err(); err != nil {
			t.unlessLapsed(h)
			t.failf("%s.Err() = %w, want <nil>: the lock is kept alive", h.c.who, err)
		}
		if k := rival.try(); k.err == nil {
			t.unlessLapsed(h)
			t.failf("%s = <nil>, want ErrHeld: %s keeps the lock alive", k.text, h.c.who)
		}
		t.sleep(h.c.o.TTL / 20)
	}
}

// untilRenewed waits for the deadline to move.
func (t *trial) untilRenewed(h *hold) {
	first := h.lease.Deadline()
	t.eventually(h.c.who+"'s lock is renewed", func() bool {
		t.unlessLapsed(h)
		return h.lease.Deadline().After(first)
	})
}

// wantCause waits for ctx to end, and for the right reason. Where the hold's deadline
// would be another reason, it is given.
func (t *trial) wantCause(ctx context.Context, want error, why string, of *hold) {
	await(t, ctx.Done(), t.patience, "the lease's context has not ended after %v, want %s: %s", t.patience, nameOf(want), why)
	if got := context.Cause(ctx); !errors.Is(got, want) {
		if of != nil {
			t.unlessLapsed(of)
		}
		t.failf("the lease's context ended by %w, want %s: %s", got, nameOf(want), why)
	}
}
