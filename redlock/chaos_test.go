// Contenders on fake servers that are slow, down, frozen or out of order, in virtual time: no two hold the lock.
package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

func rng(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

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

// TestChaos: whatever is slow, down, frozen or out of order, and whichever caller gives up in between, no two hold the
// lock; and when all is over the servers are empty.
func TestChaos(t *testing.T) {
	granted := grants(t, 16)
	for seed := range uint64(16) {
		c := &contest{seed: seed, granted: granted, disorder: true, o: strategy.Options{TTL: 300 * time.Millisecond, OpTimeout: 100 * time.Millisecond}}
		c.servers = 1 + rng(seed, 1).IntN(5)
		c.sick, c.steps, c.lapses = c.servers, 60, seed%2 == 1
		if !c.lapses { // so what is left was left behind
			c.o.TTL = 5 * time.Minute
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { bubble(t, c.play) })
	}
}

// TestAnyMinority: any two of five servers are frozen, down or silent at any time. Nobody waits for those two longer than
// the documented bound: [redlock.WithNodeTimeout] for each round of requests. An attempt has one, and one more to give
// back; with fences, which then only rise, it has three. An extension has one, and a release.
func TestAnyMinority(t *testing.T) {
	granted := grants(t, 8)
	for name, option := range map[string]redlock.Option{"": redlock.WithoutGuard(), "Fenced": redlock.WithFences()} {
		for seed := range uint64(4) {
			c := &contest{seed: seed, granted: granted, servers: 5, sick: 2, steps: 80, rounds: 2, option: option}
			c.o = strategy.Options{TTL: 2 * time.Second, OpTimeout: 500 * time.Millisecond}
			if name != "" {
				c.rounds = 3
			}
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) { bubble(t, c.play) })
		}
	}
}

// grants counts what so many contests grant: they show something only if they grant locks. The number of one of them is left to
// chance.
func grants(t *testing.T, contests int32) *atomic.Int32 {
	var n atomic.Int32
	t.Cleanup(func() {
		if n.Load() < 5*contests {
			t.Errorf("the lock was granted %d times in %d contests, want %d at least", n.Load(), contests, 5*contests)
		}
	})
	return &n
}

// A contest is of three processes for one lock.
type contest struct {
	seed     uint64
	granted  *atomic.Int32 // by all contests of a test
	servers  int
	sick     int // so many are at most
	steps    int // so often that changes
	disorder bool
	lapses   bool // a holder may let its lease lapse, or adopt it
	rounds   int  // of an attempt, which has to end in time; 0: any number
	option   redlock.Option
	o        strategy.Options

	mu     sync.Mutex
	leases []strategy.Lease
}

const perRound = 20 * time.Millisecond

func (c *contest) play(t *testing.T) {
	var fakes []*slowFake
	var nodes []driver.Node
	chance := rng(c.seed, 2)
	for i := range c.servers {
		f := &slowFake{fake: &fake{name: fmt.Sprintf("fake %d", i+1)}, rng: rng(c.seed, uint64(i+3)), most: time.Millisecond}
		f.fenced = c.rounds == 3
		if c.disorder {
			f.unordered, f.most = chance.IntN(4) == 0, 4*time.Millisecond
		}
		fakes, nodes = append(fakes, f), append(nodes, f)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for k := range uint64(3) {
		var options []redlock.Option
		if c.rounds > 0 {
			options = []redlock.Option{redlock.WithNodeTimeout(perRound), c.option}
		}
		s, err := redlock.New(nodes, c.o, options...)
		is(t, "New()", err)
		defer s.Close()
		all.Go(func() {
			for r := rng(c.seed, 100+k); ; {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(r.IntN(20)) * time.Millisecond):
					c.hold(t, s, r)
				}
			}
		})
	}
	for range c.steps {
		time.Sleep(time.Duration(5+chance.IntN(100)) * time.Millisecond)
		sick := chance.Perm(c.servers)[:c.sick]
		for i, f := range fakes {
			f.mu.Lock()
			if f.frozen, f.down, f.silent = false, false, false; slices.Contains(sick, i) {
				switch chance.IntN(5) {
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
	}
	for _, f := range fakes {
		f.set(func(*fake) { f.frozen, f.down, f.silent = false, false, false })
	}
	close(stop)
	all.Wait()
	time.Sleep(5 * time.Second) // what lay in their sockets is executed, and undone
	synctest.Wait()
	for _, f := range fakes {
		if f.token != "" && time.Now().Before(f.until) {
			t.Errorf("%s of %d (unordered: %t) has %q, want nothing", f.name, c.servers, f.unordered, f.token)
		}
	}
	c.granted.Add(int32(len(c.leases)))
}

// got notes a lease that was granted.
func (c *contest) got(t *testing.T, l strategy.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.leases {
		if other.Err() == nil && l.Err() == nil {
			t.Errorf("%s has the lock together with %s", l.Token(), other.Token())
		}
		if fence, fenced := l.Fence(); fenced {
			if before, _ := other.Fence(); fence <= before {
				t.Errorf("Fence() = %d after %d", fence, before)
			}
		}
	}
	c.leases = append(c.leases, l)
}

// hold tries to get the lock, and to keep it for a while.
func (c *contest) hold(t *testing.T, s strategy.Strategy, r *rand.Rand) {
	within := func(what string, rounds int, f func() error) error {
		start := time.Now()
		err := f()
		if took, most := time.Since(start), time.Duration(rounds)*perRound; c.rounds > 0 && took > most {
			t.Errorf("%s took %v, want %v at most", what, took, most)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(300))*time.Millisecond)
	defer cancel()
	var lease strategy.Lease
	attempt := s.NewLock("n").Acquire
	if c.rounds > 0 {
		ctx, attempt = t.Context(), s.NewLock("n").TryAcquire
	}
	if err := within("TryAcquire", c.rounds, func() (err error) { lease, err = attempt(ctx); return err }); err != nil {
		return
	}
	c.got(t, lease)
	if c.rounds == 0 && r.IntN(2) == 0 {
		lease.KeepAlive(0) //nolint:errcheck // it may be lost already
	}
	for range r.IntN(4) {
		time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
		err := within("Extend", 1, func() error { return lease.Extend(ctx) })
		if c.rounds > 0 && errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() = %v: no server has lost anything", err)
		}
	}
	if c.lapses && r.IntN(8) == 0 {
		time.Sleep(2 * c.o.TTL)
	}
	if c.lapses && r.IntN(10) == 0 {
		if token, err := lease.Detach(); err == nil {
			if adopted, err := s.Adopt(t.Context(), "n", token); err == nil {
				lease = adopted
				c.got(t, lease)
			}
		}
	}
	err := within("Release", 1, func() error { return lease.Release(ctx) })
	if c.rounds > 0 && errors.Is(err, strategy.ErrLost) && lease.Err() == nil {
		t.Errorf("Release() = %v: no server has lost anything", err)
	}
}
