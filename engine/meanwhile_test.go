// Permits that come back to a process while the head of its line asks.
package engine_test

import (
	"context"
	"sync"
	"testing"

	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// The head gets a permit from its own process while its request is under way. A grant of that request is for the next waiter. If nobody
// waits any more, the servers get it back.
func TestHandedWhileItAsks(t *testing.T) {
	for what, c := range map[string]struct {
		freed  bool // another process gives back the other permit, so the request is granted
		lost   bool // its reply does not come
		behind int  // who waits behind the head
	}{
		"refused, and nobody waits":  {},
		"refused, and another waits": {behind: 1},
		"granted, and nobody waits":  {freed: true},
		"granted to the next":        {freed: true, behind: 2},
		"lost, and nobody waits":     {freed: true, lost: true},
		"lost, and another waits":    {freed: true, lost: true, behind: 1},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s, other := permitsOf(t, &m, 2), permitsOf(t, &m, 2)
				passed, theirs := take(t, other), take(t, other)
				holder := wait(bg, s)
				release(t, passed)
				mine := holder.got(t) // by a direct grant, which may be handed over
				sent := len(r.of(lockstest.OpRelease, lockstest.OpPass))
				asked, answer := make(chan struct{}), make(chan struct{})
				var once sync.Once
				r.then(only(lockstest.OpAcquire, func(_ context.Context, q lockstest.Request, serve func() error) error {
					lost := false
					if q.Claims[0].Line != "" { // the head asks for its place in the queue
						once.Do(func() {
							close(asked)
							<-answer
							lost = c.lost
						})
					}
					if err := serve(); !lost {
						return err
					}
					return lockstest.Unknown()
				}))
				head := wait(bg, s)
				<-asked
				var behind []*waiter
				for range c.behind {
					behind = append(behind, wait(bg, s))
				}
				release(t, mine)
				if n := len(r.of(lockstest.OpRelease, lockstest.OpPass)); n != sent {
					t.Errorf("releases sent = %d, want a hand-over without one", n-sent)
				}
				if c.freed {
					release(t, theirs)
				}
				close(answer)
				first := head.got(t)
				if !c.freed {
					release(t, theirs)
				}
				if c.freed && c.behind == 2 { // one permit is left: the request got it
					release(t, behind[0].got(t))
				} else {
					for _, w := range behind {
						release(t, w.got(t))
					}
				}
				release(t, first)
				if c.behind == 2 {
					release(t, behind[1].got(t))
				}
				leftovers(t, &m)
			})
		})
	}
}

func permitsOf(t *testing.T, m *lockstest.Memory, n int) strategy.Semaphore {
	t.Helper()
	s, err := m.Semaphore(n, strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
