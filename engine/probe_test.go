// A server that was away: who keeps leases alive learns soon what it has forgotten.
package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
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

// restarts makes a server that tells of its restarts, and a strategy on it that renews each lock by itself, or many in one request.
func restarts(t *testing.T, bulk bool) (*restarting, strategy.Strategy) {
	t.Helper()
	r := &restarting{Memory: &lockstest.Memory{}}
	var p driver.Protocol = r
	if !bulk {
		p = struct {
			driver.Protocol
			driver.Prober
		}{r, r}
	}
	return r, open(t, p, strategy.Options{TTL: 10 * time.Minute})
}

// A server restarts without its data. Long before the next renewal is planned the holder knows.
func TestForgottenLockIsFoundSoon(t *testing.T) {
	bubbles(t, map[string]bool{"one by one": false, "in bulk": true}, func(t *testing.T, bulk bool) {
		r, s := restarts(t, bulk)
		forgotten, kept := take(t, s), takeNamed(t, s, "kept")
		is(t, "KeepAlive", forgotten.KeepAlive(0))
		is(t, "KeepAlive", kept.KeepAlive(0))
		renewals := func() int { return r.Requests(lockstest.OpExtend, lockstest.OpExtendAll) }
		time.Sleep(10 * time.Second)
		equal(t, "renewals before", renewals(), 0)
		between(t, "probes of two leases in 10s, one in 0.75s", r.probes.Load(), 10, 14)
		equal(t, "a probe may take", time.Duration(r.limit.Load()), time.Second)
		r.Evict(bg, key)
		r.returns.Add(1)
		began := time.Now()
		<-forgotten.Lost()
		between(t, "lost after a probe, and what renewals are spread over", time.Since(began), 0, 2*time.Second)
		time.Sleep(2 * time.Second)
		is(t, "Err of a lock that the server still has", kept.Err())
		before := renewals()
		time.Sleep(time.Minute)
		equal(t, "renewals later", renewals(), before)

		w := await(bg, s.NewLock("kept"))
		release(t, kept)
		release(t, w.got(t))
		time.Sleep(2 * time.Second)
		probes := r.probes.Load()
		time.Sleep(time.Minute)
		equal(t, "probes while nothing is held", r.probes.Load(), probes)
		again := take(t, s)
		is(t, "KeepAlive", again.KeepAlive(0))
		time.Sleep(2 * time.Second)
		between(t, "probes for the next lease", r.probes.Load()-probes, 1, 3)

		is(t, "Close", s.Close())
		probes = r.probes.Load()
		time.Sleep(10 * time.Second)
		equal(t, "probes after Close", r.probes.Load(), probes)
	})
}

// For holders that hold for a moment, or do not renew, the engine probes nothing.
func TestProbesAreForLeasesKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, s := restarts(t, true)
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
	type row struct {
		bulk           bool
		locks          int
		most, requests int // in one moment, and in all
		restarts       int // of which each probe learns of one
	}
	bubbles(t, map[string]row{
		"one by one":        {false, 500, 5, 500, 1},
		"in bulk":           {true, 10_000, 5_000, 100, 1},
		"one by one, twice": {false, 500, 10, 1000, 2},
	}, func(t *testing.T, row row) {
		r, s := restarts(t, row.bulk)
		record := record(r.Memory)
		leases := keepAll(t, s, row.locks, 0)
		time.Sleep(5 * time.Second)
		began := time.Now()
		for range row.restarts {
			r.returns.Add(1)
			time.Sleep(750 * ms)
		}
		time.Sleep(3 * time.Second)
		most, requests := 0, 0
		soon, at := map[string]bool{}, map[time.Time]int{}
		for _, e := range record.of(lockstest.OpExtend, lockstest.OpExtendAll) {
			requests++
			at[e.at] += len(e.all)
			most = max(most, at[e.at])
			for _, c := range e.all {
				soon[c.Name] = soon[c.Name] || e.at.Before(began.Add(1750*ms))
			}
		}
		for name, in := range soon {
			if !in {
				t.Errorf("%s is renewed later than within a second of the first probe", name)
			}
		}
		equal(t, "renewed", len(soon), row.locks)
		between(t, "renewals in one moment", most, 1, row.most)
		between(t, "requests", requests, 1, row.requests)
		for _, lease := range leases {
			release(t, lease)
		}
	})
}
