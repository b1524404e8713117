// A server that was away: who keeps leases alive learns soon what it has forgotten.
package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// restarting is a server that tells of its restarts.
type restarting struct {
	*lockstest.Memory
	returns atomic.Uint64
	probes  atomic.Int32
	limit   atomic.Int64 // time.Duration that the last probe may take
}

func (p *restarting) Probe(_ context.Context, due time.Time) uint64 {
	p.probes.Add(1)
	p.limit.Store(int64(time.Until(due)))
	return p.returns.Load()
}

// restartingBare is one that renews each lock by itself.
type restartingBare struct {
	driver.Protocol
	driver.Prober
}

// A server restarts without its data. Long before the next renewal is planned the holder knows.
func TestForgottenLockIsFoundSoon(t *testing.T) {
	for what, many := range map[string]bool{"one by one": false, "in bulk": true} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := &restarting{Memory: &lockstest.Memory{}}
				var p driver.Protocol = r
				if !many {
					p = restartingBare{bare(r), r}
				}
				s := open(t, p, strategy.Options{TTL: 10 * time.Minute})
				forgotten, kept := take(t, s), takeNamed(t, s, "kept")
				is(t, "KeepAlive", forgotten.KeepAlive(0))
				is(t, "KeepAlive", kept.KeepAlive(0))
				time.Sleep(10 * time.Second)
				renewals := r.Requests(lockstest.OpExtend, lockstest.OpExtendAll)
				equal(t, "renewals before", renewals, 0)
				if n := r.probes.Load(); n > 14 {
					t.Errorf("probes of two leases in 10s = %d, want one in 0.75s", n)
				}
				equal(t, "a probe may take", time.Duration(r.limit.Load()), time.Second)
				r.Evict(bg, key)
				r.returns.Add(1)
				began := time.Now()
				<-forgotten.Lost()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("lost after %v, want 2s at most: a probe, and what renewals are spread over", took)
				}
				time.Sleep(2 * time.Second)
				is(t, "Err of a lock that the server still has", kept.Err())
				renewals = r.Requests(lockstest.OpExtend, lockstest.OpExtendAll)
				time.Sleep(time.Minute)
				equal(t, "renewals later", r.Requests(lockstest.OpExtend, lockstest.OpExtendAll), renewals)

				release(t, kept)
				time.Sleep(2 * time.Second)
				probes := r.probes.Load()
				time.Sleep(time.Minute)
				equal(t, "probes while nothing is held", r.probes.Load(), probes)
				again := take(t, s)
				is(t, "KeepAlive", again.KeepAlive(0))
				time.Sleep(2 * time.Second)
				if r.probes.Load() == probes {
					t.Error("no probes for the next lease")
				}
				release(t, again)
			})
		})
	}
}

// For holders that hold for a moment, or do not renew, the engine probes nothing.
func TestProbesAreForLeasesKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := &restarting{Memory: &lockstest.Memory{}}
		s := open(t, r, strategy.Options{TTL: time.Minute})
		for range 100 {
			lease := take(t, s)
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(10 * ms)
			release(t, lease)
			time.Sleep(time.Second)
		}
		lease := take(t, s)
		lease.Lost()
		time.Sleep(30 * time.Second)
		release(t, lease)
		equal(t, "probes", r.probes.Load(), 0)
	})
}

// The renewals that a restart makes due do not come in one moment, nor in as many requests as there are locks.
func TestRenewalsAfterARestartAreSpread(t *testing.T) {
	for what, tt := range map[string]struct {
		bulk           bool
		locks          int
		most, requests int // in one moment, and in all
		restarts       int // of which each probe learns of one
	}{
		"one by one":        {false, 500, 5, 500, 1},
		"in bulk":           {true, 10_000, 5_000, 100, 1},
		"one by one, twice": {false, 500, 10, 1000, 2},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				record := record(&m)
				r := &restarting{Memory: &m}
				var p driver.Protocol = r
				if !tt.bulk {
					p = restartingBare{bare(r), r}
				}
				s := open(t, p, strategy.Options{TTL: 10 * time.Minute})
				var leases []strategy.Lease
				for i := range tt.locks {
					lease := takeNamed(t, s, fmt.Sprint(i))
					is(t, "KeepAlive", lease.KeepAlive(0))
					leases = append(leases, lease)
				}
				time.Sleep(5 * time.Second)
				began := time.Now()
				for range tt.restarts {
					r.returns.Add(1)
					time.Sleep(750 * ms)
				}
				time.Sleep(3 * time.Second)
				most, requests, renewed := 0, 0, map[string]bool{}
				at := map[time.Time]int{}
				for _, e := range record.of(lockstest.OpExtend, lockstest.OpExtendAll) {
					if e.at.After(began) {
						requests++
						at[e.at] += len(e.all)
						most = max(most, at[e.at])
					}
					for _, c := range e.all {
						renewed[c.Name] = renewed[c.Name] || e.at.Before(began.Add(1750*ms))
					}
				}
				in := 0
				for _, soon := range renewed {
					if soon {
						in++
					}
				}
				equal(t, "renewed within a second of the first probe", in, tt.locks)
				if most > tt.most {
					t.Errorf("%d of %d came in one moment, want %d at most", most, tt.locks, tt.most)
				}
				if requests > tt.requests {
					t.Errorf("%d requests for %d locks, want %d at most", requests, tt.locks, tt.requests)
				}
				for _, lease := range leases {
					release(t, lease)
				}
			})
		})
	}
}

// A probe under way ends before Close returns, and none comes after it.
func TestProbeEndsWithClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := &restarting{Memory: &lockstest.Memory{}}
		s, err := engine.New(r, strategy.Options{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		is(t, "KeepAlive", take(t, s).KeepAlive(0))
		time.Sleep(3500 * ms)
		is(t, "Close", s.Close())
		probes := r.probes.Load()
		time.Sleep(10 * time.Second)
		equal(t, "probes after Close", r.probes.Load(), probes)
	})
}

func takeNamed(t *testing.T, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(bg)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A demotion is what becomes of the subscriptions to a server that turns into a replica: nothing is heard there any more, and
// a probe finds that out.
type demotion struct {
	mu       sync.Mutex
	demoted  bool
	watchers []func(driver.Notification)
	probes   atomic.Int32
}

// heard is fn, but for what a replica does not say.
func (d *demotion) heard(fn func(driver.Notification)) func(driver.Notification) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, fn)
	return func(n driver.Notification) {
		d.mu.Lock()
		demoted := d.demoted
		d.mu.Unlock()
		if !demoted {
			fn(n)
		}
	}
}

func (d *demotion) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.demoted = true
}

func (d *demotion) Probe(context.Context, time.Time) uint64 {
	d.probes.Add(1)
	d.mu.Lock()
	var end []func(driver.Notification)
	if d.demoted {
		d.demoted, end, d.watchers = false, d.watchers, nil
	}
	d.mu.Unlock()
	for _, fn := range end {
		fn(driver.Notification{})
	}
	return 0
}

// demotedMemory is the way of one process to a server in memory, and demotedShares to one of shares.
type demotedMemory struct {
	*lockstest.Memory
	demotion
}

func (p *demotedMemory) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	return p.Memory.Watch(ctx, c, p.heard(fn))
}

type demotedShares struct {
	*shares
	demotion
}

func (p *demotedShares) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	return p.shares.Watch(ctx, c, p.heard(fn))
}

// A server becomes a replica while a waiter listens to it and sleeps until the holder's TTL ends. Within a second the waiter
// asks the new primary, and listens there.
func TestWaiterLeavesAReplica(t *testing.T) {
	const ttl, rest = 10 * time.Second, 3 * time.Second
	memory := func(o strategy.Options) func(*testing.T) (a, b strategy.Strategy, demote func(), probes func() int) {
		return func(t *testing.T) (strategy.Strategy, strategy.Strategy, func(), func() int) {
			p := &demotedMemory{Memory: &lockstest.Memory{}}
			demote := func() { p.begin(); p.BreakWatches() }
			return open(t, p.Memory, o), open(t, p, o), demote, func() int { return int(p.probes.Load()) }
		}
	}
	for what, house := range map[string]func(*testing.T) (a, b strategy.Strategy, demote func(), probes func() int){
		"queue":        memory(strategy.Options{TTL: ttl, Wait: strategy.WaitQueue}),
		"notification": memory(strategy.Options{TTL: ttl, Wait: strategy.WaitNotification}),
		"shares": func(t *testing.T) (strategy.Strategy, strategy.Strategy, func(), func() int) {
			p := &demotedShares{shares: &shares{limit: 1}}
			demote := func() {
				p.begin()
				p.shares.mu.Lock()
				defer p.shares.mu.Unlock()
				p.watches = nil
			}
			return open(t, p.shares, strategy.Options{TTL: ttl}), open(t, p, strategy.Options{TTL: ttl}), demote, func() int { return int(p.probes.Load()) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for phase := time.Duration(0); phase < time.Second; phase += 90 * ms {
					a, b, demote, probes := house(t)
					holder := take(t, a)
					w := wait(bg, b)
					time.Sleep(rest + phase)
					if n := probes(); n < 3 || n > 6 {
						t.Errorf("probes in %v of waiting = %d, want one or two a second", rest+phase, n)
					}
					began := time.Now()
					demote()
					release(t, holder)
					lease := w.got(t)
					if took := w.at.Sub(began); took > time.Second {
						t.Errorf("served %v after the server became a replica, want a second at most", took)
					}
					again := wait(bg, a) // in the queue, or listening, where the waiter listens now
					time.Sleep(ms)
					release(t, lease)
					release(t, again.got(t))

					time.Sleep(2 * time.Second)
					n := probes()
					time.Sleep(time.Minute)
					equal(t, "probes while nobody waits", probes(), n)
				}
			})
		})
	}
}
