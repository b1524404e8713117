// Waiters in a cluster that listen at another node than the one they ask.
package subjects

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// elsewhere listens at another server than the one it asks.
type elsewhere struct {
	driver.Node
	listens driver.Node
}

func (n elsewhere) Subscribe(ctx context.Context, channel string, fn func([]byte, error)) (func(), error) {
	return n.listens.Subscribe(ctx, channel, fn)
}

func (n elsewhere) Close() error {
	n.listens.Close()
	return n.Node.Close()
}

// TestSuccessorsThatListenElsewhere: what is published reaches every node of a cluster, but PUBLISH
// counts who hears it at its own. A waiter that listens at another, because its slot has just moved,
// must not hear of a grant that goes on to the next, since nobody seems to hear.
func TestSuccessorsThatListenElsewhere(t *testing.T) {
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{Masters: 2})
	for _, v := range All() {
		if !v.Fair {
			continue
		}
		for _, rule := range []string{"+pubsub", "-pubsub"} { // with NUMSUB, and where it is forbidden
			t.Run(v.Name+rule, func(t *testing.T) {
				for _, s := range cl.Servers() {
					redistest.Do(t, s, "ACL", "SETUSER", "default", rule)
				}
				listenElsewhere(t, cl, v)
			})
		}
	}
}

func listenElsewhere(t *testing.T, cl *redistest.Cluster, v Variant) {
	newNode := func(s *redistest.Server) driver.Node {
		n := redigonode.New(s.Pool())
		return n
	}
	const ttl = time.Minute // nobody gets it by waiting
	at, err := cl.OwnerOf(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	other, err := cl.Other(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	open := func(n driver.Node) strategy.Strategy {
		s, err := engine.New(v.On([]driver.Node{n}), strategy.Options{TTL: ttl, OpTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	looks := open(newNode(at))
	first, err := looks.NewLock(t.Name()).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const waiters = 3
	var inside atomic.Int32
	ended := make(chan error, waiters)
	ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
	defer cancel()
	for range waiters {
		l := open(elsewhere{newNode(at), newNode(other)}).NewLock(t.Name())
		go func() {
			lease, err := l.Acquire(ctx)
			if err != nil {
				ended <- err
				return
			}
			if inside.Add(1) > 1 {
				t.Error("two hold the lock")
			}
			if err := lease.Extend(ctx); err != nil { // the holder, though others may have heard of a grant
				t.Errorf("Extend() = %v, want nil", err)
			}
			inside.Add(-1)
			ended <- lease.Release(t.Context())
		}()
	}
	verdict.Eventually(t, "all waiters have queued", func() bool {
		info, err := looks.Inspect(ctx, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		return len(info.Queue) == waiters
	})
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
