// Many acquisitions in virtual time while any two of five fake servers are sick, within the documented bounds.
package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// TestAnyMinority: eight hundred acquisitions, and some with fences, on five servers, of
// which any two are frozen, down or silent at any time. No two hold the lock, and nobody waits
// for those two longer than the documented bound: [redlock.WithNodeTimeout] for each round of
// requests. An attempt has one, and one more to give back; with fences, which then only
// rise, it has three. An extension has one, and a release.
func TestAnyMinority(t *testing.T) {
	const acquisitions = 800
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { minority(t, seed, acquisitions/4, 2, redlock.WithoutGuard()) })
		})
		t.Run(fmt.Sprint("Fenced", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { minority(t, seed, acquisitions/10, 3, redlock.WithFences()) })
		})
	}
}

func minority(t *testing.T, seed uint64, acquisitions, rounds int, option redlock.Option) {
	const timeout = 20 * time.Millisecond
	var fakes []*slowFake
	var nodes []driver.Node
	for i := range 5 {
		f := &slowFake{fake: &fake{name: fmt.Sprintf("fake %d", i+1), fenced: rounds == 3}, rng: rand.New(rand.NewPCG(seed, uint64(i+2))), most: time.Millisecond}
		fakes, nodes = append(fakes, f), append(nodes, f)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for rng := rng(seed); ; {
			var sick [2]int
			sick[0], sick[1] = rng.IntN(5), rng.IntN(5)
			for i, f := range fakes {
				f.mu.Lock()
				f.frozen, f.down, f.silent = false, false, false
				if i == sick[0] || i == sick[1] {
					switch rng.IntN(3) {
					case 0:
						f.frozen = true
					case 1:
						f.down = true
					case 2:
						f.silent = true
					}
				}
				f.mu.Unlock()
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(5+rng.IntN(200)) * time.Millisecond):
			}
		}
	})

	var mu sync.Mutex
	var holder strategy.Lease
	got, last := 0, uint64(0)
	enter := func(l strategy.Lease) (enough bool) {
		mu.Lock()
		defer mu.Unlock()
		if holder != nil && holder.Err() == nil && l.Err() == nil {
			t.Errorf("seed %d: %s has the lock together with %s", seed, l.Token(), holder.Token())
		}
		if fence, fenced := l.Fence(); fenced != (rounds == 3) || fenced && fence <= last {
			t.Errorf("seed %d: Fence() = %d, %t after %d", seed, fence, fenced, last)
		} else {
			last = fence
		}
		holder = l
		got++
		return got >= acquisitions
	}
	within := func(what string, rounds int, began time.Time) {
		if took, most := time.Since(began), time.Duration(rounds)*timeout; took > most {
			t.Errorf("seed %d: %s took %v, want %v at most", seed, what, took, most)
		}
	}
	var work sync.WaitGroup
	var stores []strategy.Strategy
	for k := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(100+k)))
		s, err := redlock.New(nodes, strategy.Options{TTL: 2 * time.Second, OpTimeout: 500 * time.Millisecond}, redlock.WithNodeTimeout(timeout), option)
		is(t, "New()", err)
		stores = append(stores, s)
		work.Go(func() {
			for ctx, enough := t.Context(), false; !enough; {
				mu.Lock()
				enough = got >= acquisitions
				mu.Unlock()
				began := time.Now()
				lease, err := s.NewLock("n").TryAcquire(ctx)
				within("TryAcquire", rounds, began)
				if err != nil {
					time.Sleep(time.Duration(rng.IntN(int(10 * time.Millisecond))))
					continue
				}
				enough = enter(lease)
				for range rng.IntN(3) {
					time.Sleep(time.Duration(rng.IntN(int(20 * time.Millisecond))))
					began = time.Now()
					err := lease.Extend(ctx)
					within("Extend", 1, began)
					if errors.Is(err, strategy.ErrLost) {
						t.Errorf("seed %d: Extend() = %v: no server has lost anything", seed, err)
					}
				}
				began = time.Now()
				err = lease.Release(context.Background())
				within("Release", 1, began)
				if errors.Is(err, strategy.ErrLost) && lease.Err() == nil {
					t.Errorf("seed %d: Release() = %v: no server has lost anything", seed, err)
				}
			}
		})
	}
	work.Wait()
	close(stop)
	all.Wait()
	for _, f := range fakes {
		f.mu.Lock()
		f.frozen, f.down, f.silent = false, false, false
		f.mu.Unlock()
	}
	time.Sleep(5 * time.Second) // what lay in their sockets is executed, and undone
	synctest.Wait()
	for _, f := range fakes {
		f.mu.Lock()
		if f.token != "" && time.Now().Before(f.until) {
			t.Errorf("seed %d: %s has %q, want nothing", seed, f.name, f.token)
		}
		f.mu.Unlock()
	}
	for _, s := range stores {
		s.Close()
	}
}
