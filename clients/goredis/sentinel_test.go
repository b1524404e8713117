// Locks behind Sentinels live through a fail-over.
package goredisnode

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// TestSentinel: after a fail-over the client finds the new master; who holds a lock that this
// one has heard of goes on.
func TestSentinel(t *testing.T) {
	t.Parallel()
	s := rig.NewSentinels(t, 1, redistest.Config{})
	n := nodeOf(t, failoverClient(t, s.Name, s.Addrs))
	locks := clienttest.Strategy(t, fairqueue.On(n), strategy.Options{TTL: 5 * time.Minute, OpTimeout: 2 * time.Second})
	lease, err := locks.NewLock(t.Name()).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan error, 1)
	if _, err := n.Subscribe(t.Context(), "c", func(_ []byte, err error) { heard <- err }); err != nil {
		t.Fatal(err)
	}
	master, err := s.Master(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Heard(t.Context(), master); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FailOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the end of the subscription", heard); err == nil {
		t.Error("a message was heard, want the end")
	}
	verdict.Eventually(t, "the holder reaches the new master", func() bool {
		err := lease.Extend(t.Context())
		if errors.Is(err, strategy.ErrLost) {
			t.Fatalf("Extend = %v, want the lock kept", err)
		}
		return err == nil
	})
	_, err = locks.NewLock(t.Name()).TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("another's TryAcquire = %v, want %v", err, strategy.ErrHeld)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release = %v, want nil", err)
	}
	stop, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
	if err != nil {
		t.Fatalf("Subscribe = %v, want nil", err)
	}
	stop()
}
