// Contenders on fake servers that are slow, down, frozen or out of order, in virtual time: no two hold the lock.
package redlock_test

import (
	"context"
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

// A slowFake is a fake that takes its time: what is sent to it arrives later, in order or
// not, is executed when it is not frozen, and the answer is on its way back for as long
// again. A caller that does not wait for that does not take the request back.
type slowFake struct {
	*fake
	rng    *rand.Rand // guarded by mu, as what follows
	most   time.Duration
	frozen bool
	silent bool // executes, and does not answer
	first  chan struct{}
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func (f *slowFake) delay() time.Duration {
	if f.rng.IntN(20) == 0 {
		return time.Duration(f.rng.Int64N(10 * int64(f.most)))
	}
	return time.Duration(f.rng.Int64N(int64(f.most)))
}

func (f *slowFake) Eval(ctx context.Context, due time.Time, s *driver.Script, _ []string, args ...any) (any, error) {
	f.mu.Lock()
	if f.down || ctx.Err() != nil || !time.Now().Before(due) {
		f.mu.Unlock()
		return nil, f.fail(strategy.ErrUnsent)
	}
	arrives := time.Now().Add(f.delay())
	before, over := f.first, make(chan struct{})
	if f.unordered {
		before = nil
	} else {
		f.first = over
	}
	back := f.delay()
	f.mu.Unlock()

	answer := make(chan any, 1)
	go func() {
		defer close(over)
		time.Sleep(time.Until(arrives))
		if before != nil {
			<-before
		}
		f.mu.Lock()
		for f.frozen {
			f.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			f.mu.Lock()
		}
		reply := f.serve(s.Name(), args)
		silent := f.silent
		f.mu.Unlock()
		if silent {
			return
		}
		go func() {
			time.Sleep(back)
			answer <- reply
		}()
	}()
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case reply := <-answer:
		return reply, nil
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil, f.fail(strategy.ErrUnknown)
}

// TestChaos: whatever is slow, down, frozen or out of order, and whichever caller gives up
// in between, no two hold the lock; and when all is over the servers are empty.
func TestChaos(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := 1 + rng.IntN(5)
	ttl := 300 * time.Millisecond
	lasting := seed%2 == 0 // nothing lapses: so what is left was left behind
	if lasting {
		ttl = 5 * time.Minute
	}
	var fakes []*slowFake
	var nodes []driver.Node
	for i := range n {
		f := &slowFake{fake: &fake{name: fmt.Sprintf("fake %d", i+1), unordered: rng.IntN(4) == 0}, rng: rand.New(rand.NewPCG(seed, uint64(i+2))), most: 4 * time.Millisecond}
		fakes, nodes = append(fakes, f), append(nodes, f)
	}
	var mu sync.Mutex
	var leases []strategy.Lease
	grants := 0
	got := func(l strategy.Lease) {
		mu.Lock()
		defer mu.Unlock()
		grants++
		for _, other := range leases {
			if other.Err() == nil && l.Err() == nil {
				t.Errorf("seed %d: %s has the lock together with %s", seed, l.Token(), other.Token())
			}
		}
		leases = append(leases, l)
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	var stores []strategy.Strategy
	for k := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(100+k)))
		s, err := redlock.New(nodes, strategy.Options{TTL: ttl, OpTimeout: 100 * time.Millisecond, Label: fmt.Sprint(k)})
		is(t, "New()", err)
		stores = append(stores, s)
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(300))*time.Millisecond)
				lease, err := s.NewLock("n").Acquire(ctx)
				if err != nil {
					cancel()
					time.Sleep(time.Duration(1+rng.IntN(20)) * time.Millisecond)
					continue
				}
				got(lease)
				if rng.IntN(2) == 0 {
					lease.KeepAlive(0)
				}
				for range rng.IntN(4) {
					time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
					if rng.IntN(2) == 0 {
						lease.Extend(ctx)
					}
				}
				if rng.IntN(8) == 0 {
					time.Sleep(2 * 300 * time.Millisecond)
				}
				if !lasting && rng.IntN(10) == 0 {
					if token, err := lease.Detach(); err == nil {
						if adopted, err := s.Adopt(t.Context(), "n", token); err == nil {
							lease = adopted
							got(lease)
						}
					}
				}
				lease.Release(ctx)
				cancel()
			}
		})
	}
	for range 60 {
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		f := fakes[rng.IntN(n)]
		f.mu.Lock()
		switch rng.IntN(5) {
		case 0:
			f.frozen = true
		case 1:
			f.down = true
		default:
			f.frozen, f.down = false, false
		}
		f.mu.Unlock()
	}
	for _, f := range fakes {
		f.mu.Lock()
		f.frozen, f.down = false, false
		f.mu.Unlock()
	}
	close(stop)
	all.Wait()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	for _, f := range fakes {
		f.mu.Lock()
		if f.token != "" && lasting {
			t.Errorf("seed %d of %d nodes: %s (unordered %v) has %q, want nothing", seed, n, f.name, f.unordered, f.token)
		}
		f.mu.Unlock()
	}
	for _, s := range stores {
		s.Close()
	}
	if grants == 0 {
		t.Error("nobody got the lock, want somebody")
	}
}
