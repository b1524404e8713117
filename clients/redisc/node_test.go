// A node of redisc at its edges: nonsense, several slots, ended contexts, Close, nobody there.
package rediscnode

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/clienttest"
	"github.com/lockstrategies/locks/strategy"
)

func TestNewRefusesNonsense(t *testing.T) {
	for _, c := range []*redisc.Cluster{nil, {}, {StartupNodes: []string{"redis"}}, {StartupNodes: []string{"redis:6379", ""}}} {
		if n, err := New(c); err == nil {
			t.Errorf("%v: %v, want an error", c, n)
		}
	}
}

// TestBasics: a strategy on a cluster, from one of its nodes' addresses.
func TestBasics(t *testing.T) {
	n := open(t, addrs(t)[2])
	s := clienttest.Must[strategy.Strategy](t)(engine.New(fairqueue.On(n), strategy.Options{}))
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d"} { // in several slots, of all masters
		l := clienttest.Must[strategy.Lease](t)(s.NewLock(t.Name() + name).TryAcquire(t.Context()))
		if err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !n.Ordered() {
		t.Error("nothing has moved, and the order is lost")
	}
}

func TestSeveralSlots(t *testing.T) {
	n := open(t, addrs(t)...)
	_, err := n.Eval(t.Context(), soon(), driver.NewScript("no", "return 1"), []string{"{a}1", "{b}1"})
	if !driver.SeveralSlots(err) {
		t.Errorf("%v, want CROSSSLOT", err)
	}
}

func TestDoneContextSendsNothing(t *testing.T) {
	n := open(t, addrs(t)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Do(ctx, soon(), "SET", key(t), "x"); !errors.Is(err, strategy.ErrUnsent) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want ErrUnsent and context.Canceled", err)
	}
	if _, err := n.Do(t.Context(), time.Now(), "SET", key(t), "x"); !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("%v, want ErrUnsent", err)
	}
	if got := clienttest.Must[any](t)(n.Do(t.Context(), soon(), "EXISTS", key(t))); got != int64(0) {
		t.Error("it was sent")
	}
}

func TestClosed(t *testing.T) {
	n := open(t, addrs(t)...)
	broken := make(chan error, 1)
	stop := clienttest.Must[func()](t)(n.Subscribe(t.Context(), key(t), func(_ []byte, err error) { broken <- err }))
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-broken; !errors.Is(err, strategy.ErrClosed) {
		t.Errorf("the subscription ended with %v", err)
	}
	stop()
	if _, err := n.Do(t.Context(), soon(), "GET", key(t)); !errors.Is(err, strategy.ErrClosed) || !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("%v, want ErrClosed and ErrUnsent", err)
	}
}

// TestNobodyThere: who was asked in vain is named.
func TestNobodyThere(t *testing.T) {
	n := open(t, "127.0.0.1:1", "127.0.0.1:2")
	_, err := n.Do(t.Context(), soon(), "GET", key(t))
	if !errors.Is(err, strategy.ErrUnsent) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want ErrUnsent, and who was asked", err)
	}
}
