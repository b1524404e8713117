// Package locktest is what the tests of the algorithms do with locks on a test server.
package locktest

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// Main is the body of a TestMain, as redistest.Main. Tests that run side by side mostly wait, so more
// of them do than the machine has processors, unless -parallel says otherwise.
func Main(m *testing.M, ready ...func(*redistest.Server)) {
	if p := flag.Lookup("test.parallel"); p != nil && p.Value.String() == p.DefValue {
		flag.Set("test.parallel", "8") //nolint:errcheck // it is a number
	}
	redistest.Main(m, ready...)
}

// MainForExamples is Main of a package whose examples use the URL of the shared server, and a node on it.
func MainForExamples(m *testing.M, url *string, yourNode *driver.Node) {
	Main(m, func(s *redistest.Server) {
		n := redigonode.New(s.Pool())
		*url, *yourNode = s.URL(), n
	})
}

// Opened is the strategy that a New has returned. It is closed with the test.
func Opened(t testing.TB, locks strategy.Strategy, err error) strategy.Strategy {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return locks
}

// NodeOn is a node on a pool. It is closed with the test.
func NodeOn(t testing.TB, pool *redis.Pool) driver.Node {
	t.Helper()
	n := redigonode.New(pool)
	t.Cleanup(func() { n.Close() })
	return n
}

// Nodes are nodes on pools, for a strategy that closes them.
func Nodes(pools ...*redis.Pool) []driver.Node {
	nodes := make([]driver.Node, len(pools))
	for i, pool := range pools {
		nodes[i] = redigonode.New(pool)
	}
	return nodes
}

// OnNodes calls f with nodes on pools, and closes them.
func OnNodes(pools []*redis.Pool, f func([]driver.Node) error) error {
	nodes := Nodes(pools...)
	defer func() {
		for _, n := range nodes {
			n.Close()
		}
	}()
	return f(nodes)
}

// Try acquires a lock that is free.
func Try(t testing.TB, locks strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := locks.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want nil", err)
	}
	return lease
}

// Release ends a hold.
func Release(t testing.TB, l strategy.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// Fence is the number of a hold that has one.
func Fence(t testing.TB, l strategy.Lease) uint64 {
	t.Helper()
	n, ok := l.Fence()
	if !ok {
		t.Fatal("Fence() = 0, false, want a fence")
	}
	return n
}

// Unique is the name of a lock that no other test uses.
func Unique(t testing.TB) string { return fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano()) }

// As is a pool for a user of the ACL whom rules restrict, who may otherwise do everything. A server
// without an ACL skips the test, which leaves notProven.
func As(t testing.TB, s *redistest.Server, user, notProven string, rules ...any) *redis.Pool {
	t.Helper()
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("ACL", append([]any{"SETUSER", user, "reset", "on", ">secret", "~*", "&*", "+@all"}, rules...)...); err != nil {
		t.Skipf("NOT PROVEN: %s: %v", notProven, err)
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername(user), redis.DialPassword("secret"))
	}}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// RoundTrips fails the test unless f takes as many round trips as wanted, as the server counts them.
func RoundTrips(t testing.TB, s *redistest.Server, what string, want int64, f func() error) {
	t.Helper()
	before, err := s.RoundTrips(t.Context())
	redistest.Skip(t, err, "how many round trips a lock costs")
	if err := f(); err != nil {
		t.Errorf("%s = %v, want nil", what, err)
	}
	after, err := s.RoundTrips(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := after - before; got != want {
		t.Errorf("round trips of %s = %d, want %d", what, got, want)
	}
}

// Held fails unless a lock is held: TryAcquire says ErrHeld.
func Held(t testing.TB, locks strategy.Strategy, name string) error {
	t.Helper()
	if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
		return fmt.Errorf("%w, want ErrHeld", err)
	}
	return nil
}
