// Locks behind Sentinels live through fail-overs.
package rueidisnode

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/fairqueue"
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
	o := small(rueidis.ClientOption{InitAddress: s.Addrs, Sentinel: rueidis.SentinelOption{MasterSet: s.Name}})
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	n := New(client).(*node)
	locks, err := fairqueue.New(n, strategy.Options{TTL: time.Minute, OpTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lock := locks.NewLock("sentinel")

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
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release %s = %v", what, err)
		}
		if err := receive(t, "the waiter "+what, waited); err != nil {
			t.Errorf("the waiter %s: %v", what, err)
		}
		if !n.Ordered() || !strings.Contains(n.Name(), ":") {
			t.Errorf("%s: Ordered() = %v, Name() = %s", what, n.Ordered(), n.Name())
		}
	}
	first, err := s.Master(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	holds("at first", first)
	second, err := s.Promote(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Demote(t.Context(), first, second); err != nil {
		t.Fatal(err)
	}
	holds("after the old master became a replica", second)
	if err := s.Heard(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	third, err := s.FailOver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	holds("after the master died", third)
}
