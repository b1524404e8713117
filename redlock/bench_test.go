// Measures what RedLock costs, next to the quickest client that could be; and that it leaves nothing.
package redlock_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// compareAndDelete is the release of everybody who asks one server.
var compareAndDelete = redis.NewScript(1, `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

// A floor is what no RedLock can be quicker than: it writes SET NX PX to all connections
// and then reads all replies, and the same again with a script that deletes. It has no
// time-outs, waits for all, and undoes nothing.
type floor struct {
	conns []redis.Conn
	key   string
	n     int
}

func newFloor(b *testing.B, pools []*redis.Pool, key string) *floor {
	f := &floor{key: key}
	for _, p := range pools {
		c := p.Get()
		b.Cleanup(func() { c.Close() })
		if err := compareAndDelete.Load(c); err != nil {
			b.Fatal(err)
		}
		f.conns = append(f.conns, c)
	}
	return f
}

func (f *floor) pair() error {
	f.n++
	token := fmt.Sprintf("%032x", f.n)
	for _, c := range f.conns {
		c.Send("SET", f.key, token, "NX", "PX", 10000)
		c.Flush()
	}
	for _, c := range f.conns {
		if r, err := c.Receive(); r == nil || err != nil {
			return fmt.Errorf("SET = %v, %w", r, err)
		}
	}
	for _, c := range f.conns {
		compareAndDelete.SendHash(c, f.key, token)
		c.Flush()
	}
	for _, c := range f.conns {
		if r, err := c.Receive(); r != int64(1) || err != nil {
			return fmt.Errorf("EVALSHA = %v, %w", r, err)
		}
	}
	return nil
}

// ours is the same with the library.
func ours(b *testing.B, pools []*redis.Pool, key string, o strategy.Options, options ...redlock.Option) func() error {
	if err := bootstrap(b.Context(), pools...); err != nil {
		b.Fatal(err)
	}
	s, err := redlock.New(locktest.Nodes(pools...), o, options...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Errorf("Close() = %v, want nil", err)
		}
	})
	lock := s.NewLock(key)
	return func() error {
		lease, err := lock.TryAcquire(b.Context())
		if err != nil {
			return err
		}
		return lease.Release(b.Context())
	}
}

// plain dials without options, as a time-out of the pool's costs a system call per command.
func plain(b *testing.B, urls ...string) (ps []*redis.Pool) {
	for _, url := range urls {
		p := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }, MaxIdle: 2}
		b.Cleanup(func() { p.Close() })
		ps = append(ps, p)
	}
	return ps
}

// A side is one of those that take turns.
type side struct {
	name string
	pair func() error
}

// versus lets sides take turns, so that a noisy machine is unkind to all, and reports for
// each its median, and that over the median of the first side in the same round: the
// median of the rounds. The first side stands twice, for the control: A/A.
func versus(b *testing.B, sides ...side) {
	const each = 100
	sides = append(sides, side{"A/A", sides[0].pair})
	for _, s := range sides {
		for range 2 * each { // connections and scripts are there when the clock starts
			if err := s.pair(); err != nil {
				b.Fatalf("%s: %v", s.name, err)
			}
		}
	}
	all := make([][]time.Duration, len(sides))
	ratios := make([][]float64, len(sides))
	took := make([]time.Duration, each)
	b.ResetTimer()
	for done := 0; done < b.N; done += each {
		medians := make([]time.Duration, len(sides))
		for k := range sides {
			i := (k + done/each) % len(sides) // nobody is always after the same one
			for j := range took {
				start := time.Now()
				if err := sides[i].pair(); err != nil {
					b.Fatalf("%s: %v", sides[i].name, err)
				}
				took[j] = time.Since(start)
			}
			slices.Sort(took)
			medians[i] = took[each/2]
			all[i] = append(all[i], medians[i])
		}
		for i := range sides {
			ratios[i] = append(ratios[i], float64(medians[i])/float64(medians[0]))
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, s := range sides {
		slices.Sort(all[i])
		slices.Sort(ratios[i])
		b.ReportMetric(float64(all[i][len(all[i])/2]), "ns-"+s.name)
		if i > 0 {
			b.ReportMetric(ratios[i][len(ratios[i])/2], "÷-"+s.name)
		}
	}
}

func urlsOf(servers []*redistest.Server) (urls []string) {
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	return urls
}

// BenchmarkRedLock is five nodes on this machine.
func BenchmarkRedLock(b *testing.B) {
	urls := urlsOf(redistest.Nodes(b, 5))
	versus(b,
		side{"raw", newFloor(b, plain(b, urls...), "bench:raw").pair},
		side{"ours", ours(b, plain(b, urls...), "ours", strategy.Options{})},
		side{"unguarded", ours(b, plain(b, urls...), "unguarded", strategy.Options{}, redlock.WithoutGuard())},
		side{"fences", ours(b, plain(b, urls...), "fences", strategy.Options{}, redlock.WithFences())},
		side{"one-node-raw", newFloor(b, plain(b, urls[0]), "bench:one").pair},
	)
}

// BenchmarkRedLockFar is five nodes that are 5 ms away, there and back, next to one that is.
func BenchmarkRedLockFar(b *testing.B) {
	r := rig.New(b, 5, redistest.Config{})
	var pools []*redis.Pool
	for _, n := range r.Nodes {
		link := n.Link()
		link.Delay(rig.Both, 2500*time.Microsecond)
		pools = append(pools, link.Pool())
	}
	versus(b,
		side{"one-node-raw", newFloor(b, pools[:1], "bench:one").pair},
		side{"ours", ours(b, pools, "ours", strategy.Options{})},
		side{"fences", ours(b, pools, "fences", strategy.Options{}, redlock.WithFences())},
	)
}

// BenchmarkRedLockFrozen freezes one of five nodes and thaws it, in turns: the p99 of pairs
// while it is paused, and of those while all are up. It fails if anything is left when
// the node has thawed: a key on any node, or a goroutine. An operation is a pair of either.
func BenchmarkRedLockFrozen(b *testing.B) {
	r := rig.New(b, 5, redistest.Config{})
	var urls []string
	for _, n := range r.Nodes {
		urls = append(urls, n.Server().URL())
	}
	pair := ours(b, plain(b, urls...), "ours", strategy.Options{})
	const each = 500
	var up, frozen, ratios []float64
	run := func(n int) []time.Duration {
		took := make([]time.Duration, n)
		for i := range took {
			start := time.Now()
			if err := pair(); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		return took
	}
	run(each)
	goroutines := runtime.NumGoroutine()
	b.ResetTimer()
	for done := 0; done < b.N; done += 2 * each {
		u := run(each)
		if err := r.Nodes[done/each/2%5].Freeze(b.Context()); err != nil {
			b.Fatal(err)
		}
		f := run(each)
		if err := r.Nodes[done/each/2%5].Thaw(b.Context()); err != nil {
			b.Fatal(err)
		}
		p99 := each * 99 / 100
		up, frozen = append(up, float64(u[p99])), append(frozen, float64(f[p99]))
		ratios = append(ratios, float64(f[p99])/float64(u[p99]))
		b.Logf("all up: p50 %v, p99 %v; one frozen: p50 %v, p99 %v, longest %v", u[each/2], u[p99], f[each/2], f[p99], f[each-1])
		nothingLeft(b, r, goroutines)
	}
	b.ReportMetric(0, "ns/op")
	for _, x := range []struct {
		unit string
		all  []float64
	}{{"p99-ns-all-up", up}, {"p99-ns-one-frozen", frozen}, {"p99-÷-all-up", ratios}} {
		slices.Sort(x.all)
		b.ReportMetric(x.all[len(x.all)/2], x.unit)
	}
}

// BenchmarkRedLockOrphans fails if pairs leave a key on any of five nodes: run it with
// -benchtime 5000x or more.
func BenchmarkRedLockOrphans(b *testing.B) {
	r := rig.New(b, 5, redistest.Config{})
	var urls []string
	for _, n := range r.Nodes {
		urls = append(urls, n.Server().URL())
	}
	pair := ours(b, plain(b, urls...), "ours", strategy.Options{TTL: time.Hour})
	goroutines := runtime.NumGoroutine()
	for b.Loop() {
		if err := pair(); err != nil {
			b.Fatal(err)
		}
	}
	nothingLeft(b, r, goroutines+5) // goroutines that dial, or read for others, may have started since
	b.ReportMetric(0, "keys-left")
}

// nothingLeft waits until no node has a key but the guard's, and no more goroutines run.
func nothingLeft(b *testing.B, r *rig.Rig, goroutines int) {
	b.StopTimer()
	defer b.StartTimer()
	verdict.Eventually(b, fmt.Sprintf("no node has a key but the guard's, and %d goroutines run at most", goroutines), func() bool {
		for _, n := range r.Nodes {
			keys, err := redis.Strings(n.Do(b.Context(), "KEYS", "*"))
			if err != nil {
				b.Fatal(err)
			}
			if slices.ContainsFunc(keys, func(key string) bool { return key != redlock.GuardKey }) {
				return false
			}
		}
		return runtime.NumGoroutine() <= goroutines
	})
}
