// Which clients New takes, and what NewDerived makes of one: embedded clients, and options that do not suit.
package goredisnode

import (
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// Structs that programs pass around in place of a client.
type (
	plainClient struct{ *redis.Client }
	plainMaster struct{ *redis.ClusterClient }
	plainRing   struct{ *redis.Ring }
	universal   struct{ redis.UniversalClient }

	// counting is a client that counts, as one with metrics does.
	counting struct {
		*redis.Client
		calls atomic.Int64
	}
)

func (c *counting) Process(ctx context.Context, cmd redis.Cmder) error {
	c.calls.Add(1)
	return c.Client.Process(ctx, cmd)
}

func TestClientsRefused(t *testing.T) {
	t.Parallel()
	addr := []string{"127.0.0.1:1"}
	one := func(o redis.Options) *redis.Client {
		o.Addr, o.ContextTimeoutEnabled = addr[0], true
		return clientOf(t, &o)
	}
	many := func(o redis.ClusterOptions) *redis.ClusterClient {
		o.Addrs, o.ContextTimeoutEnabled = addr, true
		c := redis.NewClusterClient(&o)
		closeWith(t, c)
		return c
	}
	ring := redis.NewRing(&redis.RingOptions{})
	closeWith(t, ring)
	for _, c := range []struct {
		client redis.UniversalClient
		want   string
	}{
		{nil, "the client is nil: allowed are a *redis.Client, a *redis.ClusterClient, and a struct that embeds one"},
		{(*redis.Client)(nil), "a *redis.Client is nil, or the client in it is: allowed are"},
		{(*redis.ClusterClient)(nil), "a *redis.ClusterClient is nil, or"},
		{(*counting)(nil), "a *goredisnode.counting is nil, or"},
		{plainClient{}, "a goredisnode.plainClient is nil, or the client in it is"},
		{plainMaster{}, "a goredisnode.plainMaster is nil, or the client in it is"},
		{universal{one(redis.Options{})}, "a goredisnode.universal does not show which client is in it: give that one; a"},
		{ring, "redis.Ring asks another server"},
		{plainRing{ring}, "redis.Ring asks another server"},
		{one(redis.Options{ReadTimeout: -2, WriteTimeout: time.Second}), "WriteTimeout is -2, which keeps any deadline from"},
		{one(redis.Options{WriteTimeout: -2}), "ReadTimeout or WriteTimeout is -2"},
		{many(redis.ClusterOptions{ReadTimeout: -2, WriteTimeout: time.Second}), "ReadTimeout or WriteTimeout is -2"},
		{many(redis.ClusterOptions{WriteTimeout: -2}), "ReadTimeout or WriteTimeout is -2"},
	} {
		for name, n := range map[string]driver.Node{"New": New(c.client), "NewDerived": NewDerived(c.client)} {
			err := n.Use()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "goredis: ") {
				t.Errorf("%s(%T).Use() = %v, want an error with %q", name, c.client, err, c.want)
			}
		}
	}
}

// Only New refuses a client without ContextTimeoutEnabled. Only NewDerived refuses what a copy would not
// follow.
func TestUnboundedRefused(t *testing.T) {
	t.Parallel()
	o := clusterOptions([]string{"127.0.0.1:1"})
	o.ContextTimeoutEnabled = false
	o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return nil, nil }
	many := redis.NewClusterClient(o)
	closeWith(t, many)
	one := clientOf(t, &redis.Options{Addr: "127.0.0.1:1"})
	for _, c := range []struct {
		node driver.Node
		want string
	}{
		{New(one), "ContextTimeoutEnabled is false, so a request"},
		{New(many), "set it, or call goredisnode.NewDerived in place of New"},
		{New(plainClient{one}), "ContextTimeoutEnabled is false, so a request"},
		{NewDerived(many), "would not hear when they change: set ContextTimeoutEnabled, and call New"},
		{NewDerived(one, nil), "a function that is to prepare the derived client is nil"},
	} {
		if err := c.node.Use(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Use() = %v, want an error with %q", err, c.want)
		}
	}
	o.ContextTimeoutEnabled = true
	nodeOf(t, redis.NewClusterClient(o)) // it has no connection that would have to be closed
}

// TestEmbedded: commands and scripts go through the methods of a struct around the client, and its client's
// hooks; what needs a connection does not, and is on the same pool.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"a lock": 0, "a client that retries": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, redistest.Shared(t).URL())
			o.MaxRetries, o.PoolSize = retries, 2
			c := &counting{Client: clientOf(t, o)}
			var hooked atomic.Int64
			c.AddHook(counts(&hooked))
			n := nodeOf(t, c)
			locks := clienttest.Strategy(t, fairqueue.On(n), clienttest.Patient)
			for range 3 {
				err := strategy.Do(t.Context(), locks.NewLock(t.Name()), func(context.Context, strategy.Lease) error { return nil })
				redistest.Must(t, err)
			}
			if calls := c.calls.Load(); calls < 6 {
				t.Errorf("Process was called %d times, want it for each of three grants and releases", calls)
			}
			if hooked.Load() < c.calls.Load() {
				t.Errorf("the hook was called %d times, and Process %d times", hooked.Load(), c.calls.Load())
			}
			before, heard := c.calls.Load(), hooked.Load()
			err := n.Session(t.Context(), soon(), t.Name(), func(c driver.Conn) error {
				_, err := c.Do("WATCH", t.Name())
				return err
			})
			if err != nil || c.calls.Load() != before || hooked.Load() != heard {
				t.Errorf("Session = %v, and it has called Process or the hook, want nil, and no call", err)
			}
			stop, err := n.Subscribe(t.Context(), t.Name(), func([]byte, error) {})
			redistest.Must(t, err)
			stop()
			if conns := c.PoolStats().TotalConns; conns == 0 || conns > 2 {
				t.Errorf("%d connections are in the client's pool, want 1 or 2", conns)
			}
			if n.Name() != redistest.Shared(t).Addr() {
				t.Errorf("Name() = %s, want the server's", n.Name())
			}
		})
	}
}

func TestEmbeddedCluster(t *testing.T) {
	t.Parallel()
	n := nodeOf(t, plainMaster{clusterClient(t, clienttest.Addrs(t))})
	locks := clienttest.Strategy(t, fairqueue.On(n), clienttest.Patient)
	err := strategy.Do(t.Context(), locks.NewLock(t.Name()), func(context.Context, strategy.Lease) error { return nil })
	if err != nil {
		t.Errorf("Do = %v, want nil", err)
	}
}

// TestDerivedEndsInTime: requests on a client without ContextTimeoutEnabled end by their due time, not by
// its ReadTimeout.
func TestDerivedEndsInTime(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, f *nodetest.Server) redis.UniversalClient{
		"one": func(t *testing.T, f *nodetest.Server) redis.UniversalClient {
			return clientOf(t, &redis.Options{Addr: "10.0.0.1:1", Dialer: dialerOf(f)})
		},
		"one, embedded, without time-outs": func(t *testing.T, f *nodetest.Server) redis.UniversalClient {
			o := &redis.Options{Addr: "10.0.0.1:1", Dialer: dialerOf(f), ReadTimeout: -1, WriteTimeout: -1}
			return plainClient{clientOf(t, o)}
		},
		"cluster": func(t *testing.T, f *nodetest.Server) redis.UniversalClient {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"10.0.0.1:1"}, Dialer: dialerOf(f)})
			closeWith(t, c)
			return plainMaster{c}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Second) }) // go-redis waits after it has asked for the slots
				f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
					if cmd[0] != "SET" {
						slots(c, cmd)
					}
				})
				n := NewDerived(open(t, f)).(*node)
				closeWith(t, n)
				began := time.Now()
				due := began.Add(50 * time.Millisecond)
				_, err := n.Do(t.Context(), due, "SET", "k", "v")
				want(t, "SET", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
				if took := time.Since(began); took != 50*time.Millisecond {
					t.Errorf("SET took %v, want 50 ms", took)
				}
				began = time.Now()
				err = n.Session(t.Context(), began.Add(50*time.Millisecond), "k", func(c driver.Conn) error {
					_, err := c.Do("SET", "k", "v")
					return err
				})
				want(t, "SET in a session", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
				if took := time.Since(began); took != 50*time.Millisecond {
					t.Errorf("SET in a session took %v, want 50 ms", took)
				}
			})
		})
	}
}

func dialerOf(f *nodetest.Server) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return f.Dial(ctx)
	}
}

// TestDerivedShares: the lock's requests use the connections of the client, which does not change, and stays
// open.
func TestDerivedShares(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	client := clientOf(t, &redis.Options{Addr: f.Addr, WriteTimeout: time.Minute})
	var theirs, ours atomic.Int64
	client.AddHook(counts(&theirs))
	redistest.Must(t, client.Ping(t.Context()).Err())
	before := theirs.Load()
	var derived *redis.Client
	n := NewDerived(client, func(c redis.UniversalClient) {
		c.AddHook(counts(&ours))
		derived = c.(*redis.Client)
	}).(*node)
	for range 2 {
		if _, err := n.Do(t.Context(), soon(), "SET", "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	if got := ours.Load(); got != 2 {
		t.Errorf("the hook of prepare was called %d times, want 2", got)
	}
	if got := theirs.Load(); got != before {
		t.Errorf("the client's hook was called %d times, want 0", got-before)
	}
	if stats := client.PoolStats(); stats.TotalConns != 1 {
		t.Errorf("%d connections, want 1 for both", stats.TotalConns)
	}
	if got, o := *derived.Options(), client.Options(); o.ContextTimeoutEnabled ||
		got.ReadTimeout != o.ReadTimeout || got.WriteTimeout != o.WriteTimeout {
		t.Errorf("the derived options are %+v, the client's %+v, want only ContextTimeoutEnabled to differ", got, *o)
	}
	if err := n.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Close = %v, want the client open", err)
	}
}

// TestDerivedCluster: the derived client is another, with the same time-outs, and is closed with the last
// user of the Node.
func TestDerivedCluster(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, slots)
	for name, c := range map[string]struct{ read, write time.Duration }{
		"default": {0, 0}, "none": {-1, -1}, "none to write": {time.Minute, -1}, "some": {time.Minute, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{"10.0.0.1:1"}, Dialer: dialerOf(f), ReadTimeout: c.read, WriteTimeout: c.write, PoolSize: 3,
			})
			closeWith(t, client)
			var derived *redis.ClusterClient
			n := NewDerived(client, func(c redis.UniversalClient) { derived = c.(*redis.ClusterClient) })
			if got, o := *derived.Options(), client.Options(); o.ContextTimeoutEnabled || got.PoolSize != 3 ||
				got.ReadTimeout != o.ReadTimeout || got.WriteTimeout != o.WriteTimeout {
				t.Errorf("the derived options are %+v, the client's %+v, want only ContextTimeoutEnabled to differ", got, *o)
			}
			n.Use()
			n.Use()
			for range 2 {
				if _, err := n.Do(t.Context(), soon(), "SET", "k", "v"); err != nil {
					t.Errorf("SET = %v, want nil", err)
				}
				if err := derived.Get(t.Context(), "k").Err(); err != nil {
					t.Errorf("GET = %v, want the derived client open", err)
				}
				n.Close()
			}
			if err := derived.Get(t.Context(), "k").Err(); err != redis.ErrClosed {
				t.Errorf("GET after the last Close = %v, want %v", err, redis.ErrClosed)
			}
			if err := client.Get(t.Context(), "k").Err(); err != nil {
				t.Errorf("GET of the client = %v, want it open", err)
			}
		})
	}
}

// slots answers as the only master of a cluster would.
func slots(c *nodetest.Conn, cmd []string) {
	if cmd[0] == "CLUSTER" {
		c.Say("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$8\r\n10.0.0.1\r\n:1\r\n")
		return
	}
	c.Plain(cmd)
}
