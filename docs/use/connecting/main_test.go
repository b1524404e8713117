package connecting

// The tests of this page share these helpers.

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) {
		addr = s.Addr()
		if u, err := url.Parse(s.URL()); err == nil && u.User != nil {
			user = u.User.Username()
			password, _ = u.User.Password()
		}
	})
}

// patience is for what a busy machine may delay.
const patience = 60 * time.Second

// pooled ends a pool with the test.
func pooled(t *testing.T, p *redis.Pool) *redis.Pool {
	t.Helper()
	t.Cleanup(func() { p.Close() })
	return p
}

func isHeld(err error) bool    { return errors.Is(err, strategy.ErrHeld) }
func isLost(err error) bool    { return errors.Is(err, strategy.ErrLost) }
func isUnsent(err error) bool  { return errors.Is(err, strategy.ErrUnsent) }
func isUnknown(err error) bool { return errors.Is(err, strategy.ErrUnknown) }

// try asks for a lock until nothing but an answer comes of it: it is taken, or held.
func try(t *testing.T, s strategy.Strategy, name string) (lease strategy.Lease, err error) {
	t.Helper()
	verdict.Eventually(t, "an answer about the lock "+name, func() bool {
		lease, err = s.NewLock(name).TryAcquire(t.Context())
		return err == nil || isHeld(err)
	})
	return lease, err
}
