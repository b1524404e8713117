// The servers' queue under random faults, by seeds: two never hold the lock at once, somebody always gets
// it, and nothing is left behind.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/ledger"
	"github.com/lockstrategies/locks/strategy"
)

// chaosSeeds is how many plays TestQueueInChaos plays.
const chaosSeeds = 70

// witness sees all leases of a lock that their holders believe in, and complains of two
// at a time, and of fences that do not rise.
type witness struct {
	t         *testing.T
	seed      uint64
	reentrant bool
	evicted   bool // keys are taken away: then only that no fence is issued twice can be said
	events    ledger.Ledger

	mu       sync.Mutex
	held     map[strategy.Lease]string
	fences   map[uint64]bool
	greatest uint64
	last     time.Time // when somebody got the lock
	grants   int
}

func (w *witness) got(l strategy.Lease, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Err() != nil {
		return // lost on its way
	}
	for other, its := range w.held {
		if !w.evicted && other.Err() == nil {
			w.t.Errorf("seed %d: %s and %s hold the lock at once", w.seed, its, who)
		}
	}
	w.held[l] = who
	fence, ok := l.Fence()
	switch {
	case !ok || w.fences[fence]:
		w.t.Errorf("seed %d: fence of %s = %d, %v, want one of its own", w.seed, who, fence, ok)
	case !w.evicted && fence <= w.greatest:
		w.t.Errorf("seed %d: fence of %s = %d, want more than %d", w.seed, who, fence, w.greatest)
	}
	w.fences[fence] = true
	w.greatest = max(w.greatest, fence)
	w.last = time.Now()
	w.grants++
}

// swap notes that a hold goes on with another lease.
func (w *witness) swap(l, other strategy.Lease, who string) {
	w.mu.Lock()
	delete(w.held, l)
	same := fenceOf(l) == fenceOf(other)
	if same {
		w.held[other] = who
	}
	w.mu.Unlock()
	if !same {
		w.got(other, who)
	}
}

// ended notes that a hold ends, and checks that its fence is what it was.
func (w *witness) ended(l strategy.Lease, who string, fence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, l)
	if now, _ := l.Fence(); now != fence {
		w.t.Errorf("seed %d: fence of %s = %d, want %d for life", w.seed, who, now, fence)
	}
}

// TestQueueInChaos lets contenders of several processes come, wait, give up, hold, detach
// and crash at random, on a network that loses and delays.
func TestQueueInChaos(t *testing.T) {
	seeds := uint64(chaosSeeds)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { queueInChaos(t, seed) })
		})
	}
}

func queueInChaos(t *testing.T, seed uint64) {
	const ttl = 3 * time.Second
	p := &wire{delay: time.Duration(seed%7/5) * 30 * ms}
	m := &p.Memory
	if m.Reentrant = seed%5 == 4; seed%7 == 6 {
		lost := rand.New(rand.NewPCG(seed, 2000))
		p.drop = func(n driver.Notification) bool { return !n.Broken() && lost.IntN(5) == 0 }
	}
	w := &witness{t: t, seed: seed, reentrant: m.Reentrant, evicted: seed%3 == 2, held: map[strategy.Lease]string{}, fences: map[uint64]bool{}, last: time.Now()}
	options := func(r *rand.Rand) strategy.Options {
		o := strategy.Options{TTL: ttl, OpTimeout: 100 * ms, RetryOnError: true}
		if seed%2 == 0 || seed%3 == 0 { // who is not observed takes other ways
			o.Observe = w.events.Observe
		}
		if seed%2 == 1 { // mixed
			o.Wait = []strategy.Wait{strategy.WaitBest, strategy.WaitBest, strategy.WaitNotification, strategy.WaitPoll}[r.IntN(4)]
			o.NoHandOver = r.IntN(2) == 1
			o.TTL = []time.Duration{ttl, ttl / 2, 500 * ms}[r.IntN(3)]
		}
		return o
	}
	var all sync.WaitGroup
	var houses []strategy.Strategy
	m.Intercept(chaos(seed))
	const contenders = 6
	for h := range 3 {
		r := rand.New(rand.NewPCG(seed, uint64(h)))
		first := open(t, p, options(r))
		houses = append(houses, first)
		crash := seed%4 == 3 && h == 2
		if crash {
			all.Go(func() { time.Sleep(700 * ms); first.Close() })
		}
		for c := range contenders {
			s, err := first.With(func(to *strategy.Options) { *to = options(r) })
			is(t, "With", err)
			if c%2 == 0 {
				s = first
			}
			random := rand.New(rand.NewPCG(seed, uint64(100*h+c)))
			all.Go(func() {
				for i := range 12 {
					who := fmt.Sprintf("%d/%d/%d", h, c, i)
					if !contendOnce(t, w, s, random, who) {
						return
					}
				}
			})
		}
	}
	stop := make(chan struct{})
	if w.evicted {
		r := rand.New(rand.NewPCG(seed, 1000))
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(r.IntN(400)) * ms):
					m.Evict(bg, key)
					if r.IntN(3) == 0 {
						m.BreakWatches()
					}
				}
			}
		}()
	}
	// Nobody waits for ever: the lock goes on from hand to hand.
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(ttl):
			w.mu.Lock()
			idle := time.Since(w.last)
			w.mu.Unlock()
			if idle > 4*ttl {
				for _, s := range houses {
					t.Logf("waiting %d, under way %d", engine.Waiting(s, key), engine.UnderWay(s))
				}
				left, _ := m.Leftovers(bg, key)
				t.Fatalf("seed %d: nobody has got the lock for %v; at the server: %v", seed, idle, left)
			}
		}
	}
	close(stop)
	m.Intercept(nil)
	time.Sleep(2 * ttl)
	for i, s := range houses {
		equal(t, fmt.Sprintf("seed %d: waiting in %d", seed, i), engine.Waiting(s, key), 0)
		equal(t, fmt.Sprintf("seed %d: under way in %d", seed, i), engine.UnderWay(s), 0)
		equal(t, fmt.Sprintf("seed %d: scheduled of %d", seed, i), engine.Scheduled(s), 0)
	}
	if err := w.events.Err(); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	equal(t, fmt.Sprintf("seed %d: held, by the events", seed), w.events.Held(), 0)
	equal(t, fmt.Sprintf("seed %d: asking, by the events", seed), w.events.Asking(), 0)
	left, _ := m.Leftovers(bg, key)
	if len(left) != 0 {
		t.Errorf("seed %d: left at the server: %v", seed, left)
	}
	if w.grants < 50 {
		t.Errorf("seed %d: grants = %d, want more", seed, w.grants)
	}
}

// contendOnce acquires and does something with the lease; false: the strategy is closed.
func contendOnce(t *testing.T, w *witness, s strategy.Strategy, r *rand.Rand, who string) bool {
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	if r.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(bg, time.Duration(r.IntN(300))*ms)
		defer cancel()
	}
	owner := r.IntN(4) == 0
	if owner {
		ctx = strategy.WithOwner(ctx, who)
	}
	lease, err := s.NewLock(name).Acquire(ctx)
	switch {
	case errors.Is(err, strategy.ErrClosed):
		return false
	case err != nil:
		if ctx.Err() == nil {
			t.Errorf("%s: Acquire = %v, want to wait on", who, err)
		}
		return true
	}
	w.got(lease, who)
	fence, _ := lease.Fence()
	what := r.IntN(20)
	if what < 3 {
		lease.KeepAlive(0)
	}
	if what == 3 {
		lease.Extend(bg)
	}
	switch r.IntN(4) {
	case 0:
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	case 1:
		time.Sleep(time.Duration(r.IntN(30)) * ms)
	}
	if r.IntN(40) == 0 {
		time.Sleep(time.Duration(r.IntN(3000)) * ms)
	}
	if owner && w.reentrant && r.IntN(2) == 0 {
		again, err := s.NewLock(name).Acquire(ctx)
		if err == nil { // it has held the lock without a break, if the first hold has not lapsed
			if f := fenceOf(again); f != fence && lease.Err() == nil && !w.evicted {
				t.Errorf("seed %d: fence of %s again = %d, want %d", w.seed, who, f, fence)
			}
			w.swap(lease, again, who)
			lease.Release(bg)
			time.Sleep(time.Duration(r.IntN(4)) * ms)
			lease, fence = again, fenceOf(again)
		}
	}
	w.ended(lease, who, fence)
	switch {
	case what == 4 && r.IntN(3) == 0:
		lease.Detach()
	case what == 5 && r.IntN(3) == 0: // forgotten
	default:
		err = lease.Release(bg)
	}
	return !errors.Is(err, strategy.ErrClosed)
}
