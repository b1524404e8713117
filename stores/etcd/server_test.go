// The servers of the tests, and clients of them.
package etcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// endpoints are those of the servers. Without any the test is skipped.
func endpoints(t testing.TB) []string {
	t.Helper()
	return storetest.EtcdEndpoints(t)
}

// quiet is for clients: they tell of each request that a test loses.
var quiet = zap.NewNop()

// connect makes a client, and does no I/O.
func connect(endpoints []string, options ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: options, Logger: quiet})
}

// clientOf is a client that ends with the test.
func clientOf(t testing.TB, endpoints []string, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := connect(endpoints, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// owning is a strategy that closes its client, too.
type owning struct {
	strategy.Strategy
	client *clientv3.Client
}

func (o owning) Close() error {
	err := o.Strategy.Close()
	o.client.Close()
	return err
}

// open makes a strategy with a client of its own, as another process would have.
func open(o strategy.Options, endpoints []string, options ...grpc.DialOption) (strategy.Strategy, error) {
	c, err := connect(endpoints, options...)
	if err != nil {
		return nil, err
	}
	s, err := New(c, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	return owning{s, c}, nil
}

// shortTTL is the shortest TTL that the servers count.
func shortTTL(t testing.TB) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	granted, err := clientOf(t, endpoints(t)).Grant(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(granted.TTL) * time.Second
}

// strategyOf is a strategy on a client that ends with the test.
func strategyOf(t testing.TB, c *clientv3.Client, o strategy.Options) strategy.Strategy {
	t.Helper()
	s, err := engine.New(On(c), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// startCluster starts members of the test's own.
func startCluster(t testing.TB, n int, args ...string) (members []*storetest.Server, endpoints []string) {
	t.Helper()
	members = storetest.OwnEtcd(t, n, args...)
	for _, m := range members {
		endpoints = append(endpoints, m.Addr)
	}
	return members, endpoints
}

// leader is the member that leads now.
func leader(t testing.TB, members []*storetest.Server) (found *storetest.Server) {
	t.Helper()
	verdict.Eventually(t, "there is a leader", func() bool {
		for _, m := range members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := clientOf(t, []string{m.Addr}).Status(ctx, m.Addr)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				found = m
			}
		}
		return found != nil
	})
	return found
}
