// The servers of the tests, and clients of them.
package etcd

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// endpointsVar names the servers, separated by commas.
const endpointsVar = "ETCD_ENDPOINTS"

// endpoints are those of the servers. Without any the test is skipped.
func endpoints(t testing.TB) []string {
	t.Helper()
	list := os.Getenv(endpointsVar)
	if list == "" {
		t.Skip(endpointsVar + " is not set")
	}
	return strings.Split(list, ",")
}

// connect makes a client, and does no I/O.
func connect(endpoints []string, options ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: options, Logger: zap.NewNop()})
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

// leastTTL is the shortest TTL that the servers count.
var leastTTL = sync.OnceValues(func() (time.Duration, error) {
	c, err := connect(strings.Split(os.Getenv(endpointsVar), ","))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	granted, err := c.Grant(ctx, 1)
	if err != nil {
		return 0, err
	}
	return time.Duration(granted.TTL) * time.Second, nil
})

// shortTTL is leastTTL, of servers that answer.
func shortTTL(t testing.TB) time.Duration {
	t.Helper()
	ttl, err := leastTTL()
	if err != nil {
		t.Fatal(err)
	}
	return ttl
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
