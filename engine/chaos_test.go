// The servers' queue under random faults, by seeds: there is never more held than there is, somebody always gets
// the lock, and nothing is left behind.
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

// A witness sees all leases of a lock that their holders believe in, and complains if they hold more than there is, and of fences
// that do not rise.
type witness struct {
	*testing.T
	permits int  // of the lock; 0: it is a lock of one holder
	evicted bool // keys are taken away: then only that no fence is issued twice can be said
	events  ledger.Ledger

	mu       sync.Mutex
	held     map[strategy.Lease]int // its share
	fences   map[uint64]bool
	greatest uint64
	last     time.Time // when somebody got the lock
	grants   int
}

func newWitness(t *testing.T, permits int) *witness {
	return &witness{T: t, permits: permits, last: time.Now(), held: map[strategy.Lease]int{}, fences: map[uint64]bool{}}
}

// got notes that somebody holds a share by l, perhaps in place of another lease.
func (w *witness) got(l strategy.Lease, share int, instead strategy.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, instead)
	if l.Err() != nil {
		return // lost on its way
	}
	w.held[l] = share
	sum := 0
	for other, its := range w.held {
		if other.Err() == nil {
			sum += its
		}
	}
	if sum > max(w.permits, 1) && !w.evicted {
		w.Errorf("shares held at once = %d, want %d at most", sum, max(w.permits, 1))
	}
	fence := fenceOf(l)
	if instead != nil && fenceOf(instead) == fence {
		return // the hold goes on
	}
	if fence == 0 || w.fences[fence] || fence < w.greatest && !w.evicted && w.permits == 0 {
		w.Errorf("fence = %d after %d, want a greater one of its own", fence, w.greatest)
	}
	w.fences[fence] = true
	w.greatest = max(w.greatest, fence)
	w.last = time.Now()
	w.grants++
}

// ended notes that a hold ends, and checks that its fence is what it was.
func (w *witness) ended(l strategy.Lease, fence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, l)
	if now := fenceOf(l); now != fence {
		w.Errorf("fence = %d, want %d for life", now, fence)
	}
}

// wiredShares are shares whose messages go by a wire.
type wiredShares struct {
	*shares
	wire *wire
}

func (p wiredShares) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	return p.wire.Watch(ctx, c, fn)
}

// TestChaos lets contenders of several processes come, wait in all ways, give up, hold, detach, forget
// and crash at random, on a network that loses and delays. They want a lock of one holder, or permits.
func TestChaos(t *testing.T) {
	for permits, seeds := range map[int]uint64{0: 70, maxShare: 40} {
		if testing.Short() {
			seeds = 15
		}
		for seed := range seeds {
			t.Run(fmt.Sprintf("%d permits, seed %d", permits, seed), func(t *testing.T) {
				bubble(t, func(t *testing.T) { inChaos(t, permits, seed) })
			})
		}
	}
}

func inChaos(t *testing.T, permits int, seed uint64) {
	const ttl = 3 * time.Second
	p := &wire{delay: time.Duration(seed%7/5) * 30 * ms}
	m := &p.Memory
	var protocol driver.Protocol = p
	if permits > 0 {
		protocol = wiredShares{&shares{m.Shares(nil, permits), &recorder{}, m}, p}
	}
	if m.Reentrant = permits == 0 && seed%5 == 4; seed%7 == 6 {
		lost := rand.New(rand.NewPCG(seed, 2000))
		p.drop = func(n driver.Notification) bool { return !n.Broken() && lost.IntN(5) == 0 }
	}
	w := newWitness(t, permits)
	w.evicted = permits == 0 && seed%3 == 2
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
	var processes []engine.Strategy
	m.Intercept(chaos(seed))
	for h := range 3 {
		r := rand.New(rand.NewPCG(seed, uint64(h)))
		first := open(t, protocol, options(r))
		processes = append(processes, first)
		if seed%4 == 3 && h == 2 {
			all.Go(func() { time.Sleep(700 * ms); first.Close() })
		}
		for c := range 6 {
			s, err := first.Changed(func(to *strategy.Options) { *to = options(r) })
			is(t, "With", err)
			if c%2 == 0 {
				s = first
			}
			random := rand.New(rand.NewPCG(seed, uint64(100*h+c)))
			all.Go(func() {
				for i := range 12 {
					if !w.contend(s, random, fmt.Sprintf("%d/%d/%d", h, c, i)) {
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
			if left, _ := m.Leftovers(bg, key); idle > 5*ttl {
				t.Fatalf("nobody has got the lock for %v; at the server: %v", idle, left)
			}
		}
	}
	close(stop)
	m.Intercept(nil)
	time.Sleep(2 * ttl)
	for i, s := range processes {
		equal(t, fmt.Sprint("waiting in ", i), engine.Waiting(s, key), 0)
		equal(t, fmt.Sprint("under way in ", i), engine.UnderWay(s), 0)
		equal(t, fmt.Sprint("scheduled of ", i), engine.Scheduled(s), 0)
	}
	is(t, "events", w.events.Err())
	equal(t, "held and asking, by the events", w.events.Held()+w.events.Asking(), 0)
	leftovers(t, m)
	if w.grants < 50 {
		t.Errorf("grants = %d, want more", w.grants)
	}
}

// contend acquires once and does something with the lease; false: the strategy is closed.
func (w *witness) contend(s engine.Strategy, r *rand.Rand, who string) bool {
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
	share, lock := 1, s.NewLock(name)
	if w.permits > 0 {
		share = 1 + r.IntN(w.permits)
		lock = s.NewShare(name, share)
	}
	lease, err := lock.Acquire(ctx)
	switch {
	case errors.Is(err, strategy.ErrClosed):
		return false
	case err != nil:
		if ctx.Err() == nil {
			w.Errorf("%s: Acquire = %v, want to wait on", who, err)
		}
		return true
	}
	w.got(lease, share, nil)
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
	fence := fenceOf(lease)
	switch {
	case owner && w.permits == 0 && r.IntN(2) == 0:
		again, err := s.NewLock(name).TryAcquire(ctx)
		if err == nil {
			w.got(again, share, lease)
			lease.Release(bg)
			time.Sleep(time.Duration(r.IntN(4)) * ms)
			lease, fence = again, fenceOf(again)
		}
	case share > 1 && r.IntN(4) == 0:
		less, err := s.Exchange(bg, lease, 1)
		w.ended(lease, fence)
		if err != nil {
			return !errors.Is(err, strategy.ErrClosed)
		}
		w.got(less, 1, nil)
		lease, fence = less, fenceOf(less)
	}
	w.ended(lease, fence)
	switch {
	case what == 4 && r.IntN(3) == 0:
		lease.Detach()
	case what == 5 && r.IntN(3) == 0: // forgotten
	default:
		err = lease.Release(bg)
	}
	return !errors.Is(err, strategy.ErrClosed)
}
