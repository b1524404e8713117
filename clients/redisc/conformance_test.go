package rediscnode

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// subject is the suite's subject of a strategy on one server, on a cluster.
func subject(t *testing.T, v subjects.Variant) conformance.Subject {
	t.Helper()
	at := addrs(t)
	open := func(o strategy.Options, on func([]driver.Node) driver.Protocol, around func(driver.Node) driver.Node) (strategy.Strategy, error) {
		n, err := New(&redisc.Cluster{StartupNodes: at})
		if err != nil {
			return nil, err
		}
		return engine.New(on([]driver.Node{around(n)}), o)
	}
	plainly := func(n driver.Node) driver.Node { return n }
	look := openLook(t, at)
	foreign := func(ctx context.Context, key string) error {
		if v.Foreign != "" {
			return look.do(ctx, key, "SET", v.Foreign)
		}
		if err := look.do(ctx, key, "DEL"); err != nil {
			return err
		}
		return look.do(ctx, key, "LPUSH", "not a lock")
	}
	return conformance.Subject{
		Name: v.Name,
		Open: func(o strategy.Options) (strategy.Strategy, error) { return open(o, v.On, plainly) },
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return open(o, v.On, func(n driver.Node) driver.Node { return conformance.GateNode(n, g) })
		},
		OpenSkewed: func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
			on := v.On
			if v.Skewed != nil {
				on = func(nodes []driver.Node) driver.Protocol { return v.Skewed(nodes, ahead) }
			}
			return open(o, on, plainly)
		},
		Evict:     func(ctx context.Context, key string) error { return look.do(ctx, key, "DEL") },
		Spoil:     foreign,
		Leftovers: look.leftovers,
		ChildEnv: []string{
			addrsVar + "=" + strings.Join(at, ","),
			"REDIS_ADDRS=" + strings.Join(at, ","), "REDIS_KIND=" + string(redistest.Given),
		},
		Fenced:    v.Fenced,
		Fair:      v.Fair,
		Reentrant: v.Reentrant,
		Except:    v.Except,
	}
}

// look looks at a cluster through the client that is not under test.
type look struct{ cluster *redisc.Cluster }

func openLook(t *testing.T, at []string) look {
	l := look{&redisc.Cluster{StartupNodes: at, CreatePool: func(addr string, opts ...redis.DialOption) (*redis.Pool, error) {
		return &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr, opts...) }}, nil
	}}}
	if err := l.cluster.Refresh(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.cluster.Close() })
	return l
}

func (l look) do(_ context.Context, key, cmd string, args ...any) error {
	c, err := redisc.RetryConn(l.cluster.Get(), 3, 10*time.Millisecond)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do(cmd, append([]any{key}, args...)...)
	return err
}

// leftovers finds the keys and channels whose name has the lock's in it, on all masters. The
// fence counter is meant to stay.
func (l look) leftovers(_ context.Context, key string) (left []string, err error) {
	pattern := "*" + strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(key) + "*"
	err = l.cluster.EachNode(false, func(addr string, c redis.Conn) error {
		for cursor := "0"; ; {
			page, err := redis.Values(c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
			if err != nil {
				return err
			}
			var keys []string
			if _, err := redis.Scan(page, &cursor, &keys); err != nil {
				return err
			}
			for _, k := range keys {
				if k != driver.SiblingKey(key, "fence") {
					left = append(left, fmt.Sprintf("key %s at %s", k, addr))
				}
			}
			if cursor == "0" {
				break
			}
		}
		channels, err := redis.Strings(c.Do("PUBSUB", "CHANNELS", pattern))
		for _, ch := range channels {
			left = append(left, fmt.Sprintf("a subscription to %s at %s", ch, addr))
		}
		return err
	})
	return left, err
}

// TestConformance holds the suite on all strategies on one server, on a cluster of three.
func TestConformance(t *testing.T) {
	for _, v := range subjects.All() {
		if v.Servers == 1 && !v.Aside {
			conformance.Run(t, subject(t, v))
		}
	}
}
