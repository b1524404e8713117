// What works behind a proxy, and what says that it does not: docs/use/connecting.md has the table.
package subjects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// A proxy passes on the commands that it knows.
type proxy struct {
	name    string
	unknown []string // commands
	hangsUp bool     // it ends a connection on which one comes; otherwise it answers with an error
}

// The limits of two proxies, as their documentation has them: notes/redis.md of twemproxy, and the page of Envoy's
// Redis proxy. Both send a script to the server of its first key.
var (
	twemproxy = proxy{"twemproxy", []string{
		"CLIENT", "HELLO", "PING", "AUTH", "QUIT", "INFO", "SCRIPT", "CONFIG", "CLUSTER", "TIME", "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "WATCH",
		"UNWATCH", "MULTI", "EXEC", "DISCARD", "WAIT", "GETEX", "SELECT", "ROLE", "ECHO",
	}, true}
	envoy = proxy{"Envoy", []string{"CLIENT", "HELLO", "SUBSCRIBE", "UNSUBSCRIBE", "TIME", "WAIT"}, false}
)

// before starts a proxy before the server. It ends with the test.
func (p proxy) before(t *testing.T, srv *redistest.Server) *nodetest.Server {
	var conns sync.Map // to the server, by the client's number: transactions take one each
	return nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		switch unknown := slices.Contains(p.unknown, cmd[0]); {
		case unknown && p.hangsUp:
			c.Close()
			return
		case unknown:
			c.Say("-ERR unknown command '%s'\r\n", strings.ToLower(cmd[0]))
			return
		}
		to, known := conns.Load(c.ID)
		if !known {
			conn := srv.Pool().Get()
			t.Cleanup(func() { conn.Close() })
			conns.Store(c.ID, conn)
			to = conn
		}
		reply, err := to.(redis.Conn).Do(cmd[0], redis.Args{}.AddFlat(cmd[1:])...)
		if err != nil {
			reply = redis.Error(err.Error())
		}
		c.Say("%s", resp(reply))
	})
}

// resp is a reply on the wire.
func resp(reply any) string {
	switch r := reply.(type) {
	case redis.Error:
		return "-" + string(r) + "\r\n"
	case string:
		return "+" + r + "\r\n"
	case int64:
		return fmt.Sprintf(":%d\r\n", r)
	case []byte:
		return fmt.Sprintf("$%d\r\n%s\r\n", len(r), r)
	case []any:
		all := fmt.Sprintf("*%d\r\n", len(r))
		for _, part := range r {
			all += resp(part)
		}
		return all
	}
	return "$-1\r\n" // nothing
}

func TestProxies(t *testing.T) {
	t.Parallel()
	for _, kind := range []proxy{twemproxy, envoy} {
		for _, v := range All() {
			if v.Servers != 1 || v.Guarded || v.Commands != nil {
				continue
			}
			t.Run(kind.name+"/"+v.Name, func(t *testing.T) {
				t.Parallel()
				p := kind.before(t, redistest.Shared(t))
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
				name := locktest.Unique(t)
				if err := a.Check(t.Context()); (err == nil) == kind.hangsUp { // which does not let it see the server
					t.Errorf("Check = %v, want an error: %v", err, kind.hangsUp)
				}
				lease, err := a.NewLock(name).TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if kind.hangsUp && scriptless(v) {
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
