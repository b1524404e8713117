// A node that several strategies share is closed by the last of them, whatever the algorithm.
package subjects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// used counts its users.
type used struct {
	driver.Node // nil
	rediskit.Users
	name   string
	closed bool
}

func (u *used) Name() string { return u.name }
func (u *used) Use() error   { return u.Users.Use() }
func (u *used) Close() error { u.closed = u.Leave(); return nil }

// around is a user's decorator of a node.
type around struct{ driver.Node }

func TestNodesAreShared(t *testing.T) {
	t.Parallel()
	acked := acknowledged(strategy.Acks{Replicas: 1})
	for i := range acked {
		acked[i].Name += ", acknowledged"
	}
	for _, v := range slices.Concat(All(), acked) {
		t.Run(v.Name, func(t *testing.T) {
			var all []*used
			open := func(o strategy.Options) (strategy.Strategy, error) {
				var nodes []driver.Node
				for _, u := range all {
					nodes = append(nodes, around{u})
				}
				return engine.New(v.On(nodes), o)
			}
			for i := range v.Servers + v.Dead {
				all = append(all, &used{name: fmt.Sprint("node", i)})
			}
			closed := func() bool { return slices.ContainsFunc(all, func(u *used) bool { return u.closed }) }
			var strategies []strategy.Strategy
			for range 3 {
				s, err := open(strategy.Options{})
				if err != nil {
					t.Fatal(err)
				}
				strategies = append(strategies, s)
			}
			if _, err := open(strategy.Options{TTL: -1}); err == nil {
				t.Fatal("a negative TTL was allowed")
			}
			whole := all[len(all)-1]
			for want, bad := range map[string]driver.Node{"the client is a stone": driver.BadNode(errors.New("the client is a stone")), "node": nil} {
				var nodes []driver.Node
				for _, u := range all {
					if nodes = append(nodes, u); u == whole {
						nodes[len(nodes)-1] = bad
					}
				}
				if _, err := engine.New(v.On(nodes), strategy.Options{}); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("New() on a node that cannot be used = %v, want that it says %q", err, want)
				}
			}
			if derived, err := strategies[0].With(func(*strategy.Options) {}); err != nil {
				t.Fatal(err)
			} else if err := derived.Close(); err != nil || closed() {
				t.Errorf("the first strategy's Close = %v, and a node is closed: %v", err, closed())
			}
			if err := strategies[0].Close(); err != nil || closed() { // it is closed already
				t.Errorf("its second Close = %v, and a node is closed: %v", err, closed())
			}
			if err := strategies[1].Close(); err != nil || closed() {
				t.Errorf("the second strategy's Close = %v, and a node is closed: %v", err, closed())
			}
			if err := strategies[2].Close(); err != nil {
				t.Errorf("the last Close = %v, want nil", err)
			}
			for _, u := range all {
				if !u.closed {
					t.Errorf("%s is open though its last strategy is closed", u.name)
				}
			}
		})
	}
}

// TestNilOption: an option that is nil is an error of New, which says which it is.
func TestNilOption(t *testing.T) {
	t.Parallel()
	var n driver.Node = &used{name: "n"}
	o := strategy.Options{}
	for name, open := range map[string]func() (strategy.Strategy, error){
		"setnxgetset": func() (strategy.Strategy, error) { return setnxgetset.New(n, o, setnxgetset.WithBlindRelease(), nil) },
		"setnxpx":     func() (strategy.Strategy, error) { return setnxpx.New(n, o, setnxpx.WithBlindRelease(), nil) },
		"luascript":   func() (strategy.Strategy, error) { return luascript.New(n, o, luascript.WithoutFences(), nil) },
		"fairqueue":   func() (strategy.Strategy, error) { return fairqueue.New(n, o, fairqueue.WithoutFences(), nil) },
		"redlock":     func() (strategy.Strategy, error) { return redlock.New([]driver.Node{n}, o, redlock.WithFences(), nil) },
	} {
		if s, err := open(); s != nil || err == nil || !strings.Contains(err.Error(), "option 2 is nil: allowed") {
			t.Errorf("%s.New() = %v, %v, want that its option 2 is nil", name, s, err)
		}
	}
}
