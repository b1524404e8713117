package conformance

import (
	"errors"
	"sync/atomic"

	"github.com/lockstrategies/locks/strategy"
)

func unanswered() []Property {
	const group = "no answer"
	return []Property{
		{
			Name: "TimeOut", Group: group, Scripted: true,
			Clause: "Acquiring, extending and releasing end by the operation time-out, with an error, though no server answers.",
			check: func(t *trial) {
				o := t.hasty()
				a := t.gated("A", o)
				h := a.try().want(nil, "the lock is free")
				other := a.on(t.name + "/other")
				defer a.holdUp().melt()
				for _, move := range []func() call{other.try, h.extend, h.release} {
					ended := make(chan call, 1)
					go func() { ended <- move() }()
					select {
					case k := <-ended:
						if k.err == nil || errors.Is(k.err, strategy.ErrHeld) || errors.Is(k.err, strategy.ErrLost) {
							t.failf("%s = %w, want an error that claims nothing: no server has answered", k.text, orNil{k.err})
						}
					case <-t.late(o.OpTimeout + t.patience):
						t.failf("a call has not returned %v after its time-out of %v, want an error: no server answers", t.patience, o.OpTimeout)
					}
				}
			},
		},
		{
			Name: "LateRequestUndone", Group: group, Scripted: true,
			Clause: "An acquisition that reaches the servers after its caller got ErrUnknown is taken back long before its TTL ends.",
			check: func(t *trial) {
				a, b := t.gated("A", t.hasty()), t.contender("B", t.patient())
				late := a.holdUp()
				if k := a.try(); k.err == nil {
					t.failf("%s = <nil>, want an error: no server has answered", k.text)
				}
				a.requests.each(nil)
				t.sleep(t.ttl / 4) // A undoes what is not there yet: were the time too short, the trial would be less severe
				late.melt()
				t.sleep(t.ttl / 8) // so that it arrives before B asks
				b.eventually("A's late acquisition is taken back")
			},
		},
		{
			Name: "LateExtension", Group: group, Scripted: true,
			Clause: "An extension that reaches the servers after the lock has expired there does not bring it back.",
			check: func(t *trial) {
				a, b := t.gated("A", t.brief()), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				t.sleep(t.ttl / 2)
				late := a.holdUp()
				extended := make(chan call, 1)
				go func() { extended <- h.extend() }()
				t.eventually("A sends its extension", func() bool {
					t.unlessLapsed(h)
					return late.caught.Load() > 0
				})
				t.sleep(t.ttl / 20)     // of several servers, to all
				defer a.holdUp().melt() // then A dies: it undoes nothing
				b.seesExpire(h)
				late.melt()
				<-extended // what it says is of no concern here
				b.try().want(nil, "A's lock had expired when its extension arrived")
			},
		},
	}
}

// hasty is patient, but for answers.
func (t *trial) hasty() strategy.Options {
	t.relies(t.ttl / 4)
	o := t.patient()
	o.OpTimeout = t.ttl / 2
	return o
}

// A holdUp is a network that delivers late.
type holdUp struct {
	c      *contender
	melts  chan struct{}
	caught atomic.Int32 // requests held up
	under  atomic.Int32 // of these, what has not arrived
}

// holdUp holds up all that the contender asks, until it melts.
func (c *contender) holdUp() *holdUp {
	u := &holdUp{c: c, melts: make(chan struct{})}
	c.requests.each(func(_ int, send func()) {
		select {
		case <-u.melts:
			send()
			return
		default:
		}
		u.caught.Add(1)
		u.under.Add(1)
		defer u.under.Add(-1)
		select {
		case <-u.melts:
			send()
		case <-c.t.ctx.Done():
		}
	})
	c.t.rec.add("%s's requests are held up", c.who)
	return u
}

// melt lets what was held up arrive, and returns when it has. It holds up nothing more.
func (u *holdUp) melt() {
	close(u.melts)
	u.c.t.rec.add("what was held up arrives")
	u.c.t.eventually("what was held up has arrived", func() bool { return u.under.Load() == 0 })
}
