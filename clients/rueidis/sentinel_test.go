// Locks behind Sentinels live through fail-overs.
package rueidisnode

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// Behind Sentinel locks go to the master, and to the next one after a fail-over: whether the
// old one is dead, or has become a replica whose connections stay.
func TestSentinelFailOver(t *testing.T) {
	t.Parallel()
	s := rig.NewSentinels(t, 1, redistest.Config{})
	client, err := rueidis.NewClient(small(rueidis.ClientOption{InitAddress: s.Addrs, Sentinel: rueidis.SentinelOption{MasterSet: s.Name}}))
	redistest.Must(t, err)
	t.Cleanup(client.Close)
	n := New(client).(*lending.Node)
	lock := clienttest.Strategy(t, fairqueue.On(n), strategy.Options{TTL: time.Minute, OpTimeout: 5 * time.Second}).NewLock("sentinel")

	holds := func(what string, master *redistest.Server) {
		t.Helper()
		var lease strategy.Lease
		verdict.Eventually(t, "a lock "+what, func() bool {
			var err error
			lease, err = lock.TryAcquire(t.Context())
			if errors.Is(err, strategy.ErrHeld) {
				t.Fatalf("TryAcquire %s = %v", what, err)
			}
			return err == nil
		})
		master.Redial() // a change of role ends connections
		if got := redistest.Do(t, master, "EXISTS", "lock:{sentinel}"); got != int64(1) {
			t.Errorf("%s: EXISTS at the master = %v, want 1", what, got)
		}
		// A release there reaches a waiter, too.
		waited := make(chan error, 1)
		go func() {
			next, err := lock.Acquire(t.Context())
			if err == nil {
				err = next.Release(t.Context())
			}
			waited <- err
		}()
		if err := errors.Join(lease.Release(t.Context()), receive(t, "the waiter "+what, waited)); err != nil {
			t.Errorf("the release, or the waiter %s: %v", what, err)
		}
		if !n.Ordered() || !strings.Contains(n.Name(), ":") {
			t.Errorf("%s: Ordered() = %v, Name() = %s", what, n.Ordered(), n.Name())
		}
	}
	first, err := s.Master(t.Context())
	redistest.Must(t, err)
	holds("at first", first)
	second, err := s.Promote(t.Context())
	redistest.Must(t, err)
	redistest.Must(t, s.Demote(t.Context(), first, second))
	holds("after the old master became a replica", second)
	redistest.Must(t, s.Heard(t.Context(), second))
	third, err := s.FailOver(t.Context())
	redistest.Must(t, err)
	holds("after the master died", third)
}
