// What all tests of goredis begin with: the shared server, and clients and nodes of it.
package goredisnode

import (
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // it tells of each connection that a test breaks
	redistest.Main(m, func(s *redistest.Server) { URL = s.URL() })
}

// URL is of the shared server, for examples.
var URL string

// options are for a client of the server.
func options(t testing.TB, url string) *redis.Options {
	t.Helper()
	o, err := redis.ParseURL(url)
	redistest.Must(t, err)
	o.ContextTimeoutEnabled = true
	return o
}

// clientOf is a client that ends with the test.
func clientOf(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	c := redis.NewClient(o)
	closeWith(t, c)
	return c
}

func closeWith(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
}

// nodeOf is a Node of a client.
func nodeOf(t testing.TB, c redis.UniversalClient) *node {
	t.Helper()
	n := New(c).(*node)
	closeWith(t, n)
	return n
}

// to is a Node of a server.
func to(t testing.TB, url string) *node {
	t.Helper()
	return nodeOf(t, clientOf(t, options(t, url)))
}

// owning is a node that closes its client, too, with all goroutines that it has.
type owning struct {
	driver.Node
	client redis.UniversalClient
}

func owned(c redis.UniversalClient) driver.Node { return owning{New(c), c} }

func (o owning) Close() error { return errors.Join(o.Node.Close(), o.client.Close()) }

var (
	soon = nodetest.Soon
	want = nodetest.Want
	idle = nodetest.Idle

	bubble = nodetest.Bubble
)

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	return nodetest.Receive(t, what, from)
}

func optionsOf(s *nodetest.Server) *redis.Options {
	return &redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true}
}

// inMemory is a Node of a server without a network, for a bubble.
func inMemory(t testing.TB, serve func(c *nodetest.Conn, cmd []string)) (*node, *nodetest.Server) {
	t.Helper()
	f := nodetest.NewInMemory(t, serve)
	return nodeIn(t, f), f
}

// nodeIn is a Node of that server.
func nodeIn(t testing.TB, f *nodetest.Server) *node {
	t.Helper()
	o := optionsOf(f)
	o.Addr = "127.0.0.1:1" // a name would be looked up outside of the bubble
	o.Dialer = dialerOf(f)
	return nodeOf(t, clientOf(t, o))
}

// second is what a call returns that fails, or not.
func second(_ any, err error) error { return err }
