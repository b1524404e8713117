// A server is killed and comes back without its data: holders learn of it soon.
package subjects

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// TestForgottenLockIsFoundSoon: the next renewal is planned for a time that the test does not wait for,
// and nothing else is sent.
func TestForgottenLockIsFoundSoon(t *testing.T) {
	for _, v := range All() {
		if v.Servers != 1 || v.Dead > 0 || v.Aside {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Own(t, redistest.Config{})
			if _, err := Bootstrap(t.Context(), []Variant{v}, []*redistest.Server{srv}); err != nil {
				t.Fatal(err)
			}
			s, err := v.New([]*redis.Pool{srv.Pool()}, strategy.Options{TTL: 10 * time.Minute, OpTimeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() }) //nolint:errcheck // of a server that is dead, perhaps
			lease, err := s.NewLock(t.Name()).TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.KeepAlive(0); err != nil {
				t.Fatal(err)
			}
			redistest.Skip(t, srv.Kill(t.Context()), "that a holder learns of a lock that was forgotten")
			if err := srv.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			verdict.Eventually(t, "the holder knows", func() bool { return lease.Err() != nil })
			t.Logf("known %v after the restart", time.Since(began).Round(time.Millisecond))
			if _, err := s.NewLock(t.Name()).TryAcquire(t.Context()); err != nil {
				t.Errorf("TryAcquire = %v, want nil: the server has forgotten the lock", err)
			}
		})
	}
}
