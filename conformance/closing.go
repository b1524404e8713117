package conformance

import (
	"runtime"
	"strings"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func closing() []Property {
	return inGroup("closing",
		scripted("CloseEndsWaits", "Close ends all waits: the waiters get ErrClosed.", func(t *trial) {
			patient := t.patient()
			a, b := t.contender("A", patient), t.contender("B", patient)
			a.try().want(nil, "the lock is free")
			waiter := b.start().settles()
			b.close().want(nil, "nothing is left to be done")
			waiter.wait("B is closed").want(strategy.ErrClosed, "B is closed")
		}),
		scripted("ClosedRefuses", "A closed strategy refuses every call with ErrClosed; closing it again does nothing.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			h := a.try().want(nil, "the lock is free")
			a.close().want(nil, "nothing is left to be done")
			a.close().want(nil, "it is closed already")
			a.try().want(strategy.ErrClosed, "A is closed")
			a.acquire().want(strategy.ErrClosed, "A is closed")
			h.extend().want(strategy.ErrClosed, "A is closed")
			h.release().want(strategy.ErrClosed, "A is closed")
			b.adopt(h.lease.Token()).want(nil, "Close does not release: the servers keep the lock until its TTL is over")
		}),
		scripted("LossAfterClose", "A holder of a lock whose strategy is closed still learns of the deadline.", func(t *trial) {
			a := t.contender("A", t.brief())
			h := a.try().want(nil, "the lock is free")
			h.lease.Lost()
			a.close().want(nil, "nothing is left to be done")
			h.waitLost("nobody renews the lock any more")
		}),
		scripted("LeavesNothing",
			"After the last release the servers keep nothing of a lock and its waiters, and a caller that was refused leaves nothing either.",
			func(t *trial) {
				t.needs(t.Leftovers != nil, "Subject.Leftovers is nil")
				a, b := t.contender("A", ample), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				b.try().want(strategy.ErrHeld, "A holds the lock")
				gaveUp := b.start().settles()
				gaveUp.givesUp()
				waiter := b.start().settles()
				h.release().want(nil, "A holds the lock")
				waiter.wait("A has released").want(nil, "A has released").release().want(nil, "B holds the lock")
				t.nothingLeft(t.patience, "the last release")
			}),
		scripted("ExpiryLeavesNothing",
			"If a holder has died, the servers keep nothing of its lock after its TTL, though nobody takes it over.",
			func(t *trial) {
				t.needs(t.Leftovers != nil, "Subject.Leftovers is nil")
				a, b := t.contender("A", t.brief()), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				h.detach() // as if it had died
				b.seesExpire(h)
				t.nothingLeft(5*time.Second, "A's lock has expired") // of several servers, some are behind
			}),
		alone(byChance("NoGoroutines",
			"After Close no goroutine is left, whatever was acquired, renewed, lost, waited for and called off before.",
			func(t *trial) {
				t.live() // what is made once per process is made now
				before := goroutines()
				t.live()
				limit := time.Now().Add(t.patience)
				pause := time.Millisecond
				for left := newSince(before); len(left) > 0; left = newSince(before) {
					if time.Now().After(limit) {
						t.failf("%d goroutines are left %v after Close, want none:\n%s", len(left), t.patience, strings.Join(left, "\n\n"))
					}
					t.sleep(pause) // stacks are dear
					pause *= 2
				}
			})),
	)
}

// nothingLeft ends the trial unless the servers keep nothing of the lock by then.
func (t *trial) nothingLeft(within time.Duration, since string) {
	for limit := time.Now().Add(within); ; t.sleep(5 * time.Millisecond) {
		left, err := t.Leftovers(t.ctx, strategy.DefaultKey(t.name))
		switch {
		case err != nil:
			t.brokef("Subject.Leftovers: %w", err)
		case len(left) == 0:
			return
		case time.Now().After(limit):
			t.failf("%v after %s the servers keep %q, want nothing", within, since, left)
		}
	}
}

// live is a life of a few contenders, from Open to Close.
func (t *trial) live() {
	a, b, c := t.contender("A", t.brief()), t.contender("B", ample), t.contender("C", ample)
	for range 4 {
		h := a.eventually("nobody holds the lock")
		h.lease.KeepAlive(0)
		_, cancel := h.lease.Context(t.ctx)
		waiter, calledOff := b.start(), c.start()
		if k := calledOff.givesUp(); k.hold != nil {
			k.hold.release() // on a slow machine A's lock has expired meanwhile
		}
		h.release()
		waiter.wait("A has released").want(nil, "A has released").release()
		cancel()
	}
	lost := a.eventually("nobody holds the lock")
	if t.Evict != nil {
		t.evict(t.name)
	}
	lost.lease.KeepAlive(0)
	if t.Evict != nil {
		lost.waitLost("the lock was taken away")
	}
	a.try() // held when its strategy is closed
	for _, c := range []*contender{a, b, c} {
		c.close()
	}
}

func (c *contender) close() call {
	return c.do("Close()", func() (strategy.Lease, error) { return nil, c.s.Close() })
}

// goroutines returns the stacks of all goroutines, by number.
func goroutines() map[string]string {
	buf := make([]byte, 4<<20)
	all := map[string]string{}
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		all[id] = stack
	}
	return all
}

// newSince returns the stacks of goroutines that have come since.
func newSince(before map[string]string) []string {
	var more []string
	for id, stack := range goroutines() {
		if _, old := before[id]; !old {
			more = append(more, stack)
		}
	}
	return more
}
