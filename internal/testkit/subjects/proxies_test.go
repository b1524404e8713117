// What works behind a proxy, and what says that it does not: docs/use/connecting.md has the table.
package subjects

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/strategy"
)

func TestProxies(t *testing.T) {
	t.Parallel()
	for _, kind := range []rig.ProxyKind{rig.Twemproxy, rig.Envoy} {
		for _, v := range All() {
			if v.Servers != 1 || v.Guarded || v.Commands != nil {
				continue
			}
			t.Run(kind.Name+"/"+v.Name, func(t *testing.T) {
				t.Parallel()
				srv := redistest.Shared(t)
				p, err := rig.NewProxy(srv.Addr(), kind)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Close)
				open := func() strategy.Strategy {
					pool := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", p.Addr) }}
					t.Cleanup(func() { pool.Close() })
					s, err := v.New([]*redis.Pool{pool}, strategy.Options{TTL: 10 * time.Second, OpTimeout: 5 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { s.Close() }) //nolint:errcheck // some cannot release
					return s
				}
				a, b := open(), open()
				name := t.Name()
				if err := a.Check(t.Context()); (err == nil) == kind.HangsUp { // which does not let it see the server
					t.Errorf("Check = %v, want an error: %v", err, kind.HangsUp)
				}
				lease, err := a.NewLock(name).TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if kind.HangsUp && scriptless(v) {
					err := lease.Extend(t.Context())
					if !errors.Is(err, strategy.ErrUnknown) || !strings.Contains(err.Error(), "perhaps a proxy that does not know ") {
						t.Errorf("Extend = %v, want what may be the reason", err)
					}
					return
				}
				if _, err := b.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
					t.Errorf("TryAcquire next to the holder = %v, want ErrHeld", err)
				}
				got := make(chan error, 1)
				go func() {
					next, err := b.NewLock(name).Acquire(t.Context())
					if err == nil {
						err = next.Release(t.Context())
					}
					got <- err
				}()
				if err := errors.Join(lease.Extend(t.Context()), lease.Release(t.Context()), <-got); err != nil {
					t.Errorf("extend, release, next holder = %v, want nil", err)
				}
				if info, err := a.Inspect(t.Context(), name); err != nil || info.Held {
					t.Errorf("Inspect = %+v, %v, want that it is free", info, err)
				}
			})
		}
	}
}

// scriptless reports whether a variant has no scripts.
func scriptless(v Variant) bool {
	return v.Package == "setnxgetset" || v.Package == "setnxpx" || v.Package == "ifeq"
}
