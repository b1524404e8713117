package connecting

// The tests of this page share these helpers.

import (
	"errors"
	"net/url"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
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

// pooled ends a pool with the test.
func pooled(t *testing.T, p *redis.Pool) *redis.Pool {
	t.Helper()
	t.Cleanup(func() { p.Close() })
	return p
}

func isHeld(err error) bool    { return errors.Is(err, strategy.ErrHeld) }
func isUnsent(err error) bool  { return errors.Is(err, strategy.ErrUnsent) }
func isUnknown(err error) bool { return errors.Is(err, strategy.ErrUnknown) }
