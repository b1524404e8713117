package conformance

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func expiry() []Property {
	return inGroup("expiry",
		scripted("Expires", "A lock whose holder has died becomes free by itself.", func(t *trial) {
			a, b := t.contender("A", t.brief()), t.contender("B", ample)
			a.try().want(nil, "the lock is free").detach() // as if it had died
			b.eventually("A's lock expires")
		}),
		scripted("DeadlineIsSafe", "Nobody else gets the lock before its holder's deadline.", func(t *trial) {
			a, b := t.contender("A", t.brief()), t.contender("B", ample)
			deadline := a.try().want(nil, "the lock is free").lease.Deadline()
			for left := t.ttl; left > 0; left = time.Until(deadline) {
				if k := b.try(); k.err == nil && time.Now().Before(deadline) {
					t.failf("%s = <nil> %v before A's deadline, want ErrHeld until then", k.text, time.Until(deadline))
				}
				t.sleep(max(left/10, time.Millisecond)) // the last moments count
			}
		}),
		scripted("DeadlineFromRequest",
			"The deadline counts from before the request left, not from its reply: a slow reply does not make the lock look younger.",
			func(t *trial) {
				a := t.gated("A", strategy.Options{TTL: 6 * t.ttl, OpTimeout: 5 * t.ttl})
				var last atomic.Pointer[time.Time] // several servers may be asked at once
				sent := func() time.Time { return *last.Load() }
				slow := func(_ int, send func()) {
					now := time.Now()
					last.Store(&now)
					send()
					t.pause(t.ttl / 3) // far more than the drift that a deadline is shortened by
				}
				a.each(slow)
				h := a.try().want(nil, "the lock is free")
				if late := h.lease.Deadline().Sub(sent().Add(a.o.TTL)); late > 0 {
					t.failf("Deadline() is %v after the TTL that began when the request was sent, want before", late)
				}
				h.extend().want(nil, "A holds the lock")
				if late := h.lease.Deadline().Sub(sent().Add(a.o.TTL)); late > 0 {
					t.failf("Deadline() after Extend is %v after the TTL that began when the request was sent, want before", late)
				}
			}),
		scripted("LateGrant", "A grant that arrives after its own deadline is an error, not a lease.", func(t *trial) {
			ttl := max(50*time.Millisecond, t.TTL)
			a := t.gated("A", strategy.Options{TTL: ttl, OpTimeout: ttl * 4 / 5})
			a.each(func(_ int, send func()) {
				send()
				t.pause(2 * a.o.TTL)
			})
			k := a.try()
			a.each(nil)
			if k.err == nil {
				t.failf("%s = <nil>, %v after it was asked for a lock of %v, want an error", k.text, k.elapsed, a.o.TTL)
			}
		}),
		scripted("FailedTryChangesNothing",
			"An attempt that is refused, and an extension that comes too late, change neither whose the lock is nor how long it lasts.",
			func(t *trial) {
				a, b := t.contender("A", t.brief()), t.contender("B", ample)
				var late, h *hold
				if t.Evict != nil {
					late, h = b.takenOverBy(a)
				} else {
					h = a.try().want(nil, "the lock is free")
				}
				for range 3 {
					b.try().wantHeldBy(h, "A holds the lock")
				}
				h.extend().want(nil, "A holds the lock")
				if late != nil {
					late.extend().want(strategy.ErrLost, "A holds the lock")
				}
				h.detach()
				b.eventually("A's lock expires, whatever B asks for")
			}),
		byChance("OneTakesOver", "Of many who wait for a lock to expire, one gets it.", func(t *trial) {
			a := t.contender("A", t.brief())
			rivals := []*contender{t.contender("B", ample), t.contender("C", ample), t.contender("D", ample), t.contender("E", ample)}
			a.try().want(nil, "the lock is free").detach()
			t.sleep(t.ttl * 3 / 4) // whether it is held so long, other trials look
			var winners atomic.Int32
			var wrong atomic.Pointer[call]
			limit := time.Now().Add(t.patience)
			for over := false; !over && time.Now().Before(limit) && t.ctx.Err() == nil && wrong.Load() == nil; {
				over = winners.Load() > 0 // and one last round
				var round sync.WaitGroup  // all at the same moment, so that they are rivals on a busy machine, too
				for _, c := range rivals {
					for range 2 {
						round.Go(func() {
							if k := c.try(); k.err == nil {
								winners.Add(1)
							} else if !errors.Is(k.err, strategy.ErrHeld) {
								wrong.Store(&k)
							}
						})
					}
				}
				round.Wait()
				t.sleep(t.ttl / 100)
			}
			if k := wrong.Load(); k != nil {
				k.want(strategy.ErrHeld, "somebody holds the lock")
			}
			if n := winners.Load(); n != 1 {
				t.failf("%d took the lock over, want 1", n)
			}
		}),
		scripted("ExtendRestarts", "Extending counts the TTL again: from now, not on top of the time that is left.", func(t *trial) {
			a, b := t.contender("A", t.brief()), t.contender("B", ample)
			h := a.try().want(nil, "the lock is free")
			for end := time.Now().Add(2 * t.ttl); time.Now().Before(end); {
				t.sleep(t.ttl / 8)
				old := h.lease.Deadline()
				k := h.extend()
				if errors.Is(k.err, strategy.ErrLost) && time.Now().After(old.Add(-t.ttl/10)) {
					t.tooSlow("A did not come to extend in time")
				}
				k.want(nil, "A holds the lock")
				deadline := h.lease.Deadline()
				if !deadline.After(old) {
					t.failf("Deadline() after Extend is %v later, want later", deadline.Sub(old))
				}
				if k := b.try(); k.err == nil {
					if left := time.Until(deadline); left > 0 {
						t.failf("%s = <nil> %v before A's deadline, want ErrHeld: A has extended", k.text, left)
					}
					t.tooSlow("A did not come to extend in time")
				}
			}
			if info, err := b.s.Inspect(t.ctx, t.name); err == nil && info.TTL > t.ttl {
				t.failf("after Extend the lock is left for %v, want the TTL of %v at most", info.TTL, t.ttl)
			}
			h.detach()
			b.eventually("A's lock expires")
		}),
		scripted("ExtendNeverRecreates", "Extending a lock that was lost says ErrLost, and does not bring it back.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			h := a.try().want(nil, "the lock is free")
			t.evict(t.name)
			h.extend().want(strategy.ErrLost, "A has lost the lock")
			b.try().want(nil, "A has lost the lock, and its Extend did not bring it back")
		}),
		scripted("NoDeadlock",
			"Whichever of its requests a contender dies after, the lock becomes free by itself: at no moment is it without expiry.",
			func(t *trial) {
				b := t.contender("B", ample)
				for k, alive := 1, false; !alive; k++ {
					alive = t.dieAfter(k, b)
				}
			}),
		byChance("HolderKilled", "When the holder's process is killed, its lock becomes free by itself.", holderKilled),
	)
}

// dieAfter lets A die after its k-th request of an acquisition, and b inherit. It
// reports whether A lived on, because it made fewer requests than that.
func (t *trial) dieAfter(k int, b *contender) (alive bool) {
	name := fmt.Sprintf("%s/%d", t.name, k)
	a := t.gated("A", t.brief()).on(name)
	died, revive := make(chan struct{}), make(chan struct{})
	a.each(func(i int, send func()) {
		if i == k+1 {
			close(died)
		}
		if i > k {
			<-revive // the dead send nothing; when all is over, its goroutine may end
		}
		send()
	})
	acquired := aside(a.try)
	defer func() { close(revive) }()
	select {
	case <-died:
		t.rec.add("A dies after request %d", k)
	case got := <-acquired:
		got.want(nil, "the lock is free").detach() // now it dies as well
		select {
		case <-died: // in a request that it did not wait for
		default:
			alive = true
		}
	}
	b.on(name).eventually("A is dead, and its lock expires")
	return alive
}
