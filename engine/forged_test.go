// What a message alone can do: anybody who may publish can send one, and who may read the queue knows the token that it
// has to name.
package engine_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
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

// TestForgedGrant: a message that nobody can tell from a grant makes a second holder for milliseconds, until the servers
// deny the renewal; for a successor's TTL if they do not answer. The place in the queue is withdrawn: nobody would know of
// a true grant.
func TestForgedGrant(t *testing.T) {
	for _, long := range []time.Duration{ttl, 800 * ms} { // a TTL that is a successor's, too
		for _, fault := range []string{"none", "released", "away"} {
			t.Run(fmt.Sprint(long, " ", fault), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := &teller{}
					o := strategy.Options{TTL: long}
					a, b := houses(t, p, o)
					holder := take(t, a)
					is(t, "KeepAlive", holder.KeepAlive(0))
					w := wait(bg, b)
					token := queuedToken(t, &p.Memory)
					r := record(&p.Memory)
					if fault == "away" {
						r.then(func(ctx context.Context, q lockstest.Request, serve func() error) error {
							if q.Claims[0].Token == token {
								return lockstest.Unsent()
							}
							return serve()
						})
					}
					start := time.Now()
					p.tell(driver.Notification{Token: token, Grant: driver.Grant{Fence: 7, Fences: driver.MaxFences, TTL: contract.MaxTTL, ServerTime: clock()}})
					l := w.got(t)
					direct := driver.SuccessorTTL(long)
					if most := direct - driver.Drift(direct); l.Deadline().Sub(start) > most {
						t.Errorf("Deadline in %v, want %v at most", l.Deadline().Sub(start), most)
					}
					if fault == "released" {
						is(t, "Release", l.Release(bg), strategy.ErrLost)
					} else {
						<-l.Lost()
						want := 5 * ms
						if fault == "away" {
							want = direct - driver.Drift(direct)
						}
						equal(t, "lost after", time.Since(start), want)
						is(t, "Err", l.Err(), strategy.ErrLost)
					}
					r.then(nil)
					time.Sleep(direct) // an undo that failed is repeated
					synctest.Wait()
					is(t, "the holder's Err", holder.Err())
					if info, err := p.Inspect(bg, driver.Claim{Key: key}); err != nil || len(info.Queue) != 0 {
						t.Errorf("the queue = %v, %v, want nobody: the waiter has gone", info.Queue, err)
					}
					release(t, holder)
					leftovers(t, &p.Memory)
				})
			})
		}
	}
}

// TestForgedFences: a message that says more than was asked for hands no number on that nobody reserved.
func TestForgedFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &teller{}
		a, b := houses(t, p, strategy.Options{})
		holder := take(t, a)
		first := wait(bg, b)
		waiters := make([]*waiter, 20)
		for i := range waiters {
			waiters[i] = wait(bg, b)
		}
		token := queuedToken(t, &p.Memory)
		p.tell(driver.Notification{Token: token, Grant: driver.Grant{Fence: 100, Fences: driver.MaxFences, TTL: time.Second, ServerTime: clock()}})
		l := first.got(t)
		for i := 1; ; i++ {
			n, _ := l.Fence()
			equal(t, "fence", n, 100+uint64(i)-1)
			if i == 16 { // so many the first head asks for at least
				is(t, "Release of the last", l.Release(bg), strategy.ErrLost)
				break
			}
			release(t, l)
			synctest.Wait()
			if w := waiters[i-1]; closed(w.done) {
				l = w.lease
			} else {
				t.Fatalf("hold %d has not been handed over", i+1)
			}
		}
		release(t, holder)
		for _, w := range waiters[15:] {
			release(t, w.got(t))
		}
		leftovers(t, &p.Memory)
	})
}

// TestImplausibleGrant: a message that cannot be what the servers said since the last answer makes no holder. It is a hint,
// and the waiter asks.
func TestImplausibleGrant(t *testing.T) {
	grant := func(change func(g *driver.Grant)) driver.Grant {
		g := driver.Grant{Fence: 7, Fences: 1, TTL: time.Second, ServerTime: clock()}
		change(&g)
		return g
	}
	for what, forge := range map[string]func(asked time.Duration) driver.Grant{
		"of the future": func(time.Duration) driver.Grant {
			return grant(func(g *driver.Grant) { g.ServerTime += 50 * ms })
		},
		"of the end of time": func(time.Duration) driver.Grant {
			return grant(func(g *driver.Grant) { g.ServerTime = math.MaxInt64 })
		},
		"from before the last question": func(asked time.Duration) driver.Grant {
			return grant(func(g *driver.Grant) { g.ServerTime = asked - time.Microsecond })
		},
		"without a TTL": func(time.Duration) driver.Grant {
			return grant(func(g *driver.Grant) { g.TTL = 0 })
		},
		"that is over": func(time.Duration) driver.Grant {
			return grant(func(g *driver.Grant) { g.TTL = 100 * ms; g.ServerTime -= 100 * ms })
		},
	} {
		for _, granted := range []bool{false, true} {
			t.Run(fmt.Sprint(what, " ", granted), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := &teller{silenced: granted}
					a, b := houses(t, p, strategy.Options{})
					holder := take(t, a)
					asked := clock()
					w := wait(bg, b)
					time.Sleep(500 * ms)
					token := queuedToken(t, &p.Memory)
					r := record(&p.Memory)
					if granted {
						release(t, holder) // which grants, and nobody hears of it
					}
					p.tell(driver.Notification{Token: token, Grant: forge(asked)})
					synctest.Wait()
					equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 1)
					equal(t, "Acquire has ended", closed(w.done), granted)
					if !granted {
						equal(t, "who queues", queuedToken(t, &p.Memory), token)
						p.silenced = false
						release(t, holder)
					}
					l := w.got(t)
					equal(t, "holder", tokenAt(&p.Memory), l.Token())
					if fence, _ := l.Fence(); fence == 7 {
						t.Error("the fence is that of the message")
					}
					release(t, l)
					leftovers(t, &p.Memory)
				})
			})
		}
	}
}
