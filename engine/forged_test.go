// What a message alone can do: anybody who may publish can send one, and who may read the queue knows the token that it
// has to name.
package engine_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// clock is what the server's clock shows.
func clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// queuedToken is the token of the only claim that queues at the server.
func queuedToken(t *testing.T, m *lockstest.Memory) string {
	t.Helper()
	m.Intercept(nil)
	info, err := m.Inspect(bg, driver.Claim{Key: key})
	if err != nil || len(info.Queue) != 1 {
		t.Fatalf("the queue = %v, %v, want one claim", info.Queue, err)
	}
	return info.Queue[0]
}

// TestForgedFences: a message that says more than was asked for hands no number on that nobody reserved.
func TestForgedFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := enact(t, &wire{}, strategy.Options{}, 21)
		token := queuedToken(t, &s.Memory)
		forged := driver.Grant{Fence: 100, Fences: driver.MaxFences, TTL: time.Second, ServerTime: clock()}
		s.Tell(key, driver.Notification{Token: token, Grant: forged})
		const reserved = 16 // so many the first head asks for at least
		for i, w := range s.ws[:reserved] {
			l := w.got(t)
			equal(t, "fence", fenceOf(l), 100+uint64(i))
			if i+1 < reserved {
				release(t, l)
				synctest.Wait()
				equal(t, fmt.Sprintf("hold %d has been handed over", i+1), closed(s.ws[i+1].done), true)
			} else {
				is(t, "Release of the last", l.Release(bg), strategy.ErrLost)
				synctest.Wait()
				equal(t, "the forged place is left", queuedToken(t, &s.Memory) == token, false)
			}
		}
		release(t, s.holder)
		for _, w := range s.ws[reserved:] {
			release(t, w.got(t))
		}
		leftovers(t, &s.Memory)
	})
}

// TestImplausibleGrant: a message that cannot be what the servers said since the last answer makes no holder. It is a hint,
// and the waiter asks.
func TestImplausibleGrant(t *testing.T) {
	for _, granted := range []bool{false, true} { // by a message that is lost
		bubbles(t, map[string]func(g *driver.Grant, asked time.Duration){
			"of the future":                 func(g *driver.Grant, _ time.Duration) { g.ServerTime += 50 * ms },
			"of the end of time":            func(g *driver.Grant, _ time.Duration) { g.ServerTime = math.MaxInt64 },
			"from before the last question": func(g *driver.Grant, asked time.Duration) { g.ServerTime = asked - time.Microsecond },
			"without a TTL":                 func(g *driver.Grant, _ time.Duration) { g.TTL = 0 },
			"that is over":                  func(g *driver.Grant, _ time.Duration) { g.TTL, g.ServerTime = 100*ms, g.ServerTime-100*ms },
		}, func(t *testing.T, forge func(g *driver.Grant, asked time.Duration)) {
			p := &wire{drop: func(n driver.Notification) bool { return granted && n.Grant.Fence != 7 }}
			asked := clock()
			s := enact(t, p, strategy.Options{}, 1)
			time.Sleep(500 * ms)
			token, before := queuedToken(t, &p.Memory), s.attempts()
			if granted {
				release(t, s.holder)
			}
			g := driver.Grant{Fence: 7, Fences: 1, TTL: time.Second, ServerTime: clock()}
			forge(&g, asked)
			s.Tell(key, driver.Notification{Token: token, Grant: g})
			synctest.Wait()
			equal(t, "attempts", s.attempts()-before, 1)
			equal(t, "Acquire has ended", closed(s.ws[0].done), granted)
			if !granted {
				equal(t, "who queues", queuedToken(t, &p.Memory), token)
				release(t, s.holder)
			}
			l := s.ws[0].got(t)
			equal(t, "holder", tokenAt(&p.Memory), l.Token())
			equal(t, "the fence is that of the message", fenceOf(l) == 7, false)
			release(t, l)
			leftovers(t, &p.Memory)
		})
	}
}
