package lessons

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

var renew = script("renew")

// watchdogLessons are about work that outlives its TTL.
func watchdogLessons() []Lesson {
	return []Lesson{{
		Number: 10, Name: "watchdog", Title: "The watchdog: work that takes longer than the TTL",
		Idea: "Nobody knows how long the work takes. So a watchdog runs next to it, and starts the TTL again and again: the lock lives for as long as the work. " +
			"But when the work dies or hangs, and its watchdog does not, nobody works under the lock, and nobody else gets it.",
		Fix: "A hold needs a maximum, beyond which no watchdog renews it: Lease.KeepAlive(maxHold). " +
			"No watchdog helps a program that is paused as a whole, because its watchdog is paused, too.",
		Acts: []Act{
			{Title: "no watchdog: the work goes on when its TTL is over", play: func(s *Stage, a, b *client) {
				a.takes("token-of-A")
				s.note("A works, for longer than it thought")
				s.lapse(s.key())
				b.takes("token-of-B")
				a.eval(s.redis(), compareDelete, s.key(), "token-of-A") // only now the diagram shows it
				a.ends()
			}},
			{Title: "a watchdog renews the lock: KeepAlive of package luascript", Timed: true,
				cast: "A dog B", play: func(s *Stage, a, dog, b *client) {
					a.opensWith(dog)
					b.opensWith(b)
					lease, since := a.keptAlive(0)
					s.note("A works; its watchdog (dog) runs next to it")
					s.until("the lock is renewed, and a TTL is over", func() bool {
						return s.answers(dog, "extend") >= 3 && time.Since(since) > s.ttl
					})
					b.acquires()
					a.releases(lease)
					b.acquires()
				}},
			{Title: "a watchdog that outlives the work", Timed: true, lists: []string{"renew"},
				cast: "A dog B", play: func(s *Stage, a, dog, b *client) {
					a.takes("token-of-A")
					a.dies()
					death := time.Now()
					s.note("the work is dead; its program is not, and the watchdog (dog) in it goes on")
					for n := 1; n <= 4; n++ {
						s.until("a third of a TTL goes by", func() bool { return time.Since(death) > time.Duration(n)*s.ttl/3 })
						dog.eval(s.redis(), renew, s.key(), "token-of-A", s.px())
					}
					s.freedAfter(death, b, func() bool { return b.takes("token-of-B") })
				}},
			{Title: "a maximum for the hold: KeepAlive(maxHold)", Timed: true, cast: "A dog B", play: func(s *Stage, a, dog, b *client) {
				a.opensWith(dog)
				b.opensWith(b)
				most := 3 * s.ttl / 2
				a.keptAlive(most)
				s.note("A is to hold the lock for %d ms at most", most.Milliseconds())
				a.dies()
				death := time.Now()
				s.note("the work is dead; its program is not, and the watchdog (dog) in it goes on")
				s.until("the lock is renewed, and a TTL is over", func() bool {
					return s.answers(dog, "extend") >= 1 && time.Since(death) > s.ttl+s.ttl/20 // by then there is no further renewal
				})
				b.acquires()
				s.until("maxHold is over", func() bool { return s.redis().ask("EXISTS", s.key()) == int64(0) })
				s.note("maxHold is over")
				s.freedAfter(death, b, func() bool { return b.acquires() != nil })
			}},
		},
	}}
}

// freedAfter is freed for the lock of one who died then. If nobody gets it, that is because of who renews it.
func (s *Stage) freedAfter(death time.Time, c *client, try func() bool) {
	since := time.Since(death)
	if since < s.ttl {
		s.Cannot("%s asks too early: %v after its holder's death", c.name, since)
	}
	s.freed(c, try, func() string {
		left := s.redis().look("PTTL", s.key())
		return fmt.Sprintf("its holder died %d ms ago, its TTL is %s ms, and there are %d ms left: it is renewed for nobody", since.Milliseconds(), s.px(), left)
	})
}

// opensWith has the client lock by package luascript. The diagram shows the renewals, which the
// program makes besides its work, as another's.
func (c *client) opensWith(dog *client) {
	c.opens(func(n []driver.Node) driver.Protocol {
		return luascript.On(withDog{n[0], c, dog.node(c.s.redis())}, luascript.WithoutFences())
	})
}

// withDog is the way to a server of a program in which one works and one renews.
type withDog struct {
	driver.Node
	works *client
	dog   driver.Node
}

func (n withDog) Eval(ctx context.Context, due time.Time, script *driver.Script, keys []string, args ...any) (any, error) {
	if script.Name() == "extend" || n.works.dead {
		return n.dog.Eval(ctx, due, script, keys, args...)
	}
	return n.Node.Eval(ctx, due, script, keys, args...)
}

// keptAlive has the client acquire the lock, and a watchdog renew it, up to this maximum.
func (c *client) keptAlive(most time.Duration) (lease strategy.Lease, since time.Time) {
	lease, since = c.begins(), time.Now()
	if err := lease.KeepAlive(most); err != nil {
		c.s.Cannot("%s: %w", c.name, err)
	}
	return lease, since
}
