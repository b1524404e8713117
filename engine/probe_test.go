// A server that was away: who keeps leases alive learns soon what it has forgotten.
package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// restarting is a server that tells of its restarts.
type restarting struct {
	*conformance.Memory
	returns atomic.Uint64
	probes  atomic.Int32
}

func (p *restarting) Probe(context.Context, time.Time) uint64 {
	p.probes.Add(1)
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
				r := &restarting{Memory: &conformance.Memory{}}
				var p driver.Protocol = r
				if !many {
					p = restartingBare{bare(r), r}
				}
				s := open(t, p, strategy.Options{TTL: 10 * time.Minute})
				forgotten, kept := take(t, s), takeNamed(t, s, "kept")
				is(t, "KeepAlive", forgotten.KeepAlive(0))
				is(t, "KeepAlive", kept.KeepAlive(0))
				time.Sleep(10 * time.Second)
				renewals := r.Requests(conformance.OpExtend, conformance.OpExtendAll)
				equal(t, "renewals before", renewals, 0)
				r.Evict(bg, key)
				r.returns.Add(1)
				began := time.Now()
				<-forgotten.Lost()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("lost after %v, want 2s at most: a probe, and what renewals are spread over", took)
				}
				time.Sleep(2 * time.Second)
				is(t, "Err of a lock that the server still has", kept.Err())
				renewals = r.Requests(conformance.OpExtend, conformance.OpExtendAll)
				time.Sleep(time.Minute)
				equal(t, "renewals later", r.Requests(conformance.OpExtend, conformance.OpExtendAll), renewals)

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
		r := &restarting{Memory: &conformance.Memory{}}
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
	bubble(t, func(t *testing.T) {
		var m conformance.Memory
		record := record(&m)
		r := &restarting{Memory: &m}
		s := open(t, r, strategy.Options{TTL: 10 * time.Minute})
		const locks = 10000
		var leases []strategy.Lease
		for i := range locks {
			lease := takeNamed(t, s, fmt.Sprint(i))
			is(t, "KeepAlive", lease.KeepAlive(0))
			leases = append(leases, lease)
		}
		time.Sleep(5 * time.Second)
		r.returns.Add(1)
		began := time.Now()
		time.Sleep(3 * time.Second)
		renewed, most, requests := 0, 0, 0
		at := map[time.Time]int{}
		for _, e := range record.of(conformance.OpExtendAll) {
			if e.at.After(began) {
				requests++
				renewed += len(e.all)
				at[e.at] += len(e.all)
				most = max(most, at[e.at])
			}
		}
		equal(t, "renewed", renewed, locks)
		if most > locks/2 {
			t.Errorf("%d of %d came in one moment", most, locks)
		}
		if requests > locks/100 {
			t.Errorf("%d requests for %d locks, want hundreds of locks in each", requests, locks)
		}
		for _, lease := range leases {
			release(t, lease)
		}
	})
}

// A probe under way ends before Close returns, and none comes after it.
func TestProbeEndsWithClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := &restarting{Memory: &conformance.Memory{}}
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
