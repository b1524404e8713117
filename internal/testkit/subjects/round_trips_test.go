// Tests how many round trips the operations of the algorithms take.
package subjects

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// TestRoundTrips: what the packages' docs say of the wire, as the server counts it, of the algorithms each of whose operations
// is one script.
func TestRoundTrips(t *testing.T) {
	for _, name := range []string{"luascript", "fairqueue", "semaphore", "rwlock", "reentrant"} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Own(t, redistest.Config{})
			locks, err := plainly(name).New([]*redis.Pool{s.Pool()}, unhurried)
			locktest.Opened(t, locks, err)
			for range 2 { // dials, and loads the scripts
				lease := locktest.Try(t, locks, "warm")
				if err := lease.Extend(t.Context()); err != nil {
					t.Fatal(err)
				}
				locktest.Release(t, lease)
			}
			count := func(what string, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, 1, f) }
			var lease strategy.Lease
			count("Acquire", func() error { lease = locktest.Try(t, locks, "counted"); return nil })
			count("a held TryAcquire", func() error { return locktest.Held(t, locks, "counted") })
			count("Extend", func() error { return lease.Extend(t.Context()) })
			count("Release", func() error { return lease.Release(t.Context()) })
		})
	}
}
