// Package multilock over locks of several strategies, in several processes.
package subjects

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

// combined are the variants that TestAllTogether combines; quorum is the one on several servers.
var combined = []string{"setnxpx", "luascript", "fairqueue", "reentrant", "redlock-3"}

// a fleet is several processes' worth of the combined variants, on the same servers.
type fleet struct {
	servers []*redistest.Server
	opened  []map[string]strategy.Strategy // by process, by variant
	pools   []*redis.Pool
	prefix  string // of its keys: servers may be shared
}

func newFleet(t *testing.T, processes int) *fleet {
	t.Helper()
	servers, err := redistest.TryNodes(t, 3)
	redistest.Must(t, err)
	f := &fleet{servers: servers, prefix: fmt.Sprintf("all-%d:", rand.Uint64())}
	if _, err := Bootstrap(t.Context(), All(), servers); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		f.pools = append(f.pools, s.Pool())
	}
	for range processes {
		by := map[string]strategy.Strategy{}
		for _, v := range All() {
			if !slices.Contains(combined, v.Name) {
				continue
			}
			s, err := v.New(f.pools[:v.Servers], strategy.Options{
				TTL: 10 * time.Minute, OpTimeout: 20 * time.Second, // a busy machine may take long for an answer
				Key: func(name string) string { return strategy.DefaultKey(f.prefix + v.Name + ":" + name) },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			by[v.Name] = s
		}
		f.opened = append(f.opened, by)
	}
	return f
}

// left is what the servers keep of the fleet's locks.
func (f *fleet) left(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, pool := range f.pools {
		here, err := leftovers(t.Context(), pool, f.prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range here {
			if !isFence(key) {
				left = append(left, key)
			}
		}
	}
	return left
}

func isFence(key string) bool { return len(key) > 6 && key[len(key)-6:] == ":fence" }

func (f *fleet) wantNothingLeft(t *testing.T) {
	t.Helper()
	verdict.Eventually(t, "nothing is left on the servers", func() bool { return len(f.left(t)) == 0 })
}

// TestAllTogether: contenders of several processes take several locks of several strategies
// at once, in whatever order. Nobody waits for ever, and each lock has one holder.
func TestAllTogether(t *testing.T) {
	t.Parallel()
	for _, variants := range [][]string{{"setnxpx"}, {"luascript"}, {"fairqueue"}, {"reentrant"}, {"redlock-3"}, combined} {
		t.Run(fmt.Sprint(variants), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 3)
			var mu sync.Mutex
			holders := map[string]int{}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // generous: a deadlock takes for ever
			defer cancel()
			var everybody sync.WaitGroup
			for i := range 12 {
				everybody.Go(func() {
					random := rand.New(rand.NewPCG(3, uint64(i)))
					for range 6 {
						var locks []strategy.Lock
						var names []string
						for _, n := range random.Perm(5)[:1+random.IntN(3)] {
							v := variants[n%len(variants)]
							names = append(names, fmt.Sprint(v, n))
							locks = append(locks, f.opened[i%3][v].NewLock(fmt.Sprint(n)))
						}
						all, err := multilock.New(locks...)
						if err != nil {
							t.Error(err)
							return
						}
						err = strategy.Do(ctx, all, func(ctx context.Context, lease strategy.Lease) error {
							mu.Lock()
							for _, name := range names {
								if holders[name]++; holders[name] > 1 {
									t.Errorf("%s has %d holders", name, holders[name])
								}
							}
							mu.Unlock()
							runtime.Gosched() // others may go on
							mu.Lock()
							for _, name := range names {
								holders[name]--
							}
							mu.Unlock()
							return nil
						})
						if err != nil {
							t.Errorf("Do with %q: %v", names, err)
							return
						}
					}
				})
			}
			everybody.Wait()
			f.wantNothingLeft(t)
		})
	}
}
