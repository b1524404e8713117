package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func noAnswer() []Property {
	return inGroup("no answer",
		scripted("TimeOut",
			"Acquiring, extending, adopting, inspecting and releasing end by the operation time-out, with an error, though no server answers.",
			func(t *trial) {
				o := t.hasty()
				a := t.gated("A", o)
				h := a.try().want(nil, "the lock is free")
				other, left := a.on(t.name+"/other"), a.on(t.name+"/left")
				token := left.try().want(nil, "the lock is free").detach()
				inspect := func() call {
					return a.do("Inspect()", func() (strategy.Lease, error) {
						_, err := a.s.Inspect(t.ctx, t.name)
						return nil, err
					})
				}
				adopt := func() call { // a protocol that cannot says ErrUnsupported, which claims nothing either
					return left.do("Adopt()", func() (strategy.Lease, error) { return left.s.Adopt(t.ctx, left.lock.Name(), token) })
				}
				defer a.holdUp().melt()
				for _, x := range []struct {
					text string
					move func() call
				}{{"TryAcquire()", other.try}, {"Extend()", h.extend}, {"Inspect()", inspect}, {"Adopt()", adopt}, {"Release()", h.release}} {
					k := await(t, aside(x.move), o.OpTimeout+t.patience,
						"A.%s has not returned %v after its time-out of %v, want an error: no server answers", x.text, t.patience, o.OpTimeout)
					if k.err == nil || errors.Is(k.err, strategy.ErrHeld) || errors.Is(k.err, strategy.ErrLost) {
						t.failf("%s = %w, want an error that claims nothing: no server has answered", k.text, orNil{k.err})
					}
				}
			}),
		scripted("TimeOutInLine",
			"A release ends by the operation time-out, though no server answers and another of its process waits for the lock.",
			func(t *trial) {
				o := t.hasty()
				a := t.gated("A", o)
				h := a.try().want(nil, "the lock is free")
				line := newQueue(a, 2, t.ttl) // for so long that the first does not hand over to the second
				h.release().want(nil, "A holds the lock")
				await(t, line.calls, t.patience, "after %v no waiter has had the lock, want the first", t.patience).k.want(nil, "its turn comes")
				defer a.holdUp().melt()                            // before the first releases: if the time is too short, the trial is less severe
				await(t, line.ended, t.ttl+o.OpTimeout+t.patience, // in time, or before it was held up
					"A.Release() number 1 has not returned %v after its time-out of %v, want an error: no server answers", t.patience, o.OpTimeout)
			}),
		scripted("WaiterWithoutAnswer",
			"A waiter gets the lock when it is released, or an error that claims nothing, though one of its requests gets no answer.",
			func(t *trial) {
				asks := true
				for k := 1; asks && k <= 3*max(t.Nodes, 1); k++ { // it asks, listens, and asks again; then it may poll
					asks = t.withoutAnswer(k)
				}
			}),
		scripted("LateRequestUndone",
			"An acquisition that reaches the servers after its caller got ErrUnknown is taken back long before its TTL ends.",
			func(t *trial) {
				a, b := t.gated("A", t.hasty()), t.contender("B", t.patient())
				late := a.holdUp()
				late.until = time.Now().Add(a.o.OpTimeout) // A undoes from then on
				if k := a.try(); k.err == nil {
					if time.Now().After(late.until) {
						t.tooSlow("A's request was sent only when it should have had its answer")
					}
					t.failf("%s = <nil>, want an error: no server has answered", k.text)
				}
				t.sleep(t.ttl / 4) // A undoes what is not there yet: if the time is too short, the trial is less severe
				late.melt()
				t.sleep(t.ttl / 8) // so that it arrives before B asks
				b.eventually("A's late acquisition is taken back")
			}),
		scripted("LateExtension", "An extension that reaches the servers after the lock has expired there does not bring it back.", func(t *trial) {
			a, b := t.gated("A", t.brief()), t.contender("B", ample)
			h := a.try().want(nil, "the lock is free")
			t.sleep(t.ttl / 2)
			late := a.holdUp()
			extended := aside(h.extend)
			t.eventually("A sends its extension", func() bool {
				t.unlessLapsed(h)
				return late.holds() > 0
			})
			t.sleep(t.ttl / 20)     // of several servers, to all
			defer a.holdUp().melt() // then A dies: it undoes nothing
			b.seesExpire(h)
			late.melt()
			<-extended // what it says is of no concern here
			b.try().want(nil, "A's lock had expired when its extension arrived")
		}),
	)
}

// withoutAnswer holds the k-th request up that B makes to acquire A's lock, for ever, and lets A release. It
// reports whether B made so many.
func (t *trial) withoutAnswer(k int) (asks bool) {
	name := fmt.Sprintf("%s/%d", t.name, k)
	a, b := t.contender("A", t.patient()).on(name), t.gated("B", t.hasty()).on(name)
	h := a.try().want(nil, "the lock is free")
	caught, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	b.each(func(i int, send func()) {
		if i == k {
			close(caught)
			<-over // then its caller waits no longer
		}
		send()
	})
	ended := aside(b.acquire)
	select {
	case <-caught:
		asks = true
	case <-t.late(t.ttl): // it makes no more requests, and waits
	}
	h.release().want(nil, "A holds the lock")
	const want = ", though its request %d got no answer and A has released, want the lock, or an error that claims nothing"
	if got := await(t, ended, b.o.OpTimeout+2*t.patience, "B.Acquire() has not returned"+want, k); errors.Is(got.err, strategy.ErrHeld) || errors.Is(got.err, strategy.ErrLost) {
		t.failf("%s = %w"+want, got.text, got.err, k)
	}
	return asks
}

// hasty is patient, but for answers.
func (t *trial) hasty() strategy.Options {
	t.relies(t.ttl / 4)
	o := t.patient()
	o.OpTimeout = t.ttl / 2
	return o
}
