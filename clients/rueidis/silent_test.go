// Tests that many connections which have gone silent, as a firewall makes them, cost one attempt in all.
package rueidisnode

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

// TestSilentCluster: the settings of docs/use/connecting.md have a cluster's client find within three seconds that its
// pipeline, and its idle connections, have gone silent. Its own settings take twelve.
func TestSilentCluster(t *testing.T) {
	for limit, most := range map[time.Duration]time.Duration{time.Second: 3 * time.Second, 10 * time.Second: 12 * time.Second} {
		t.Run(limit.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var old atomic.Int32
				n, first, _ := twoMasters(t, rueidis.ClientOption{Dialer: net.Dialer{KeepAlive: time.Second}, ConnWriteTimeout: limit},
					func(c *nodetest.Conn, _ string) bool { return c.ID <= int(old.Load()) })
				nodetest.Idle(t, n, 12)
				one := call(n, t.Context(), soon(), "HOLD", ofFirst)
				c := <-first.held
				other := call(n, t.Context(), soon(), "GET", ofFirst) // from now on the client has goroutines for the pipeline
				synctest.Wait()
				c.Say("+OK\r\n")
				noError(t, "HOLD", <-one)
				noError(t, "GET", <-other)
				old.Store(int32(first.Dialled()))
				began, failed := time.Now(), 0
				for ; ; failed++ {
					if _, err := n.Do(t.Context(), time.Now().Add(time.Second), "SET", ofFirst); err == nil {
						break
					}
				}
				synctest.Wait() // the client's PINGs of its idle connections end at this moment, too
				for range 12 {
					noError(t, "Session", n.Session(t.Context(), time.Now().Add(time.Second), ofFirst, func(driver.Conn) error { return nil }))
				}
				if took := time.Since(began); failed == 0 || took > most {
					t.Errorf("%d calls failed, and an answer came after %v, want some, and at most %v", failed, took, most)
				}
			})
		})
	}
}

// TestFarAwayServerIsWaitedFor: a new connection has the time that the way to the server takes, also where others have
// gone silent.
func TestFarAwayServerIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t, func(c *nodetest.Conn, _ string) bool { time.Sleep(2 * client.Patience); return false })
		m.Greet = 2 * client.Patience
		n := m.node(t)
		n.Silent.Note()
		noError(t, "Session", n.Session(t.Context(), soon(), ofFirst, func(driver.Conn) error { return nil }))
		if got := m.Dialled(); got != 2 {
			t.Errorf("%d connections, want the client's own and one", got)
		}
	})
}
