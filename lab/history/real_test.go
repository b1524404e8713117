package history

// Histories of the real engine in a bubble: legal ones pass, and broken protocols are convicted.

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

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lab/flawed"
	"github.com/lockstrategies/locks/strategy"
)

const realTTL = 300 * ms

// network loses and delays what it carries; what it does comes from the seed.
func network(seed uint64) conformance.Interceptor {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	draw := func() (int, time.Duration, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(100), time.Duration(rng.Int64N(int64(5 * ms))), time.Duration(rng.Int64N(int64(100 * ms)))
	}
	return func(_ context.Context, _ conformance.Request, serve func() error) error {
		what, brief, long := draw()
		time.Sleep(brief)
		switch {
		case what < 4:
			return conformance.Unknown()
		case what < 8:
			serve()
			return conformance.Unknown()
		case what < 10:
			return conformance.Unsent()
		case what < 12:
			return conformance.Refused("LOADING")
		case what < 20:
			time.Sleep(long)
			err := serve()
			time.Sleep(long / 2)
			return err
		}
		err := serve()
		time.Sleep(brief / 2)
		return err
	}
}

// unreachable is a network that does not send one request in five.
func unreachable(seed uint64) conformance.Interceptor {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 4))
	return func(_ context.Context, _ conformance.Request, serve func() error) error {
		time.Sleep(ms)
		mu.Lock()
		lost := rng.IntN(5) == 0
		mu.Unlock()
		if lost {
			return conformance.Unsent()
		}
		return serve()
	}
}

// A worker does what the documentation of Op and of the judges asks of who records.
type worker struct {
	r     *Recorder
	s     strategy.Strategy
	name  string
	owner string
	rng   *rand.Rand
	store *store

	doubts *atomic.Int64 // attempts of unknown outcome of all workers of its process
}

// store keeps a value, and refuses stale holders.
type store struct {
	mu    sync.Mutex
	value string
	max   uint64
	owner string
}

func (s *store) do(op Op) Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op.Fence < s.max || op.Fence == s.max && op.owner() != s.owner {
		op.Result = Refused
		return op
	}
	s.max, s.owner = op.Fence, op.owner()
	if op.Kind == KindWrite {
		s.value = op.Value
	}
	op.Value, op.Result = s.value, OK
	return op
}

func (w *worker) round(ctx context.Context) {
	op := Op{Client: w.name, Kind: KindAcquire, Key: "k", Owner: w.owner, TTL: realTTL}
	var lease strategy.Lease
	var err error
	before := w.doubts.Load()
	if w.rng.IntN(3) == 0 {
		op = w.r.Begin(op)
		lease, err = w.s.NewLock("k").TryAcquire(ctx)
	} else {
		patient, cancel := context.WithTimeout(ctx, time.Duration(w.rng.Int64N(int64(5*time.Second))))
		op = w.r.Begin(op)
		lease, err = w.s.NewLock("k").Acquire(patient)
		cancel()
	}
	op.Doubts = int(w.doubts.Load() - before)
	op = w.r.End(op.Of(lease, err))
	if err != nil {
		return
	}
	op.TTL = realTTL
	looked := op.End
	// look records what renewals in the background have given since it last looked.
	look := func() {
		seen := Op{Client: w.name, Kind: KindRenew, Key: "k", Start: looked, TTL: realTTL, Noticed: true}
		deadline := lease.Deadline()
		seen = seen.Of(lease, nil)
		seen.Deadline = At(deadline)
		seen.End = Now()
		if looked = seen.End; seen.Deadline != op.Deadline {
			op.Deadline = seen.Deadline
			w.r.Add(seen)
		}
	}
	use := func(kind Kind, value string) {
		u := w.r.Begin(Op{Client: w.name, Kind: kind, Key: "k", Hold: op.Hold, Owner: op.Owner, Fence: op.Fence, Value: value})
		if lease.Err() != nil {
			u.Result = Unsent
		} else {
			time.Sleep(time.Duration(w.rng.Int64N(int64(2 * ms)))) // on its way
			u = w.store.do(u)
		}
		look()
		w.r.End(u)
	}
	kept := w.rng.IntN(2) == 0
	if kept {
		lease.KeepAlive(0)
	}
	use(KindRead, "")
	for range w.rng.IntN(8) {
		time.Sleep(time.Duration(w.rng.Int64N(int64(80 * ms))))
		look()
		if w.rng.IntN(4) == 0 {
			ext := w.r.Begin(Op{Client: w.name, Kind: KindRenew, Key: "k", Hold: op.Hold, TTL: realTTL, Noticed: kept})
			err := lease.Extend(ctx)
			ext = w.r.End(ext.Of(lease, err))
			if err == nil {
				op.Deadline, looked = ext.Deadline, ext.End
			}
		}
	}
	if w.owner == "" {
		use(KindWrite, op.Hold)
	}
	look()
	if lease.Err() != nil {
		w.r.End(w.r.Begin(Op{Client: w.name, Kind: KindLost, Key: "k", Hold: op.Hold}))
	}
	rel := w.r.Begin(Op{Client: w.name, Kind: KindRelease, Key: "k", Hold: op.Hold})
	w.r.End(rel.Ended(lease.Release(ctx)))
}

// play lets workers, two to a process, contend for a lock of protocol p.
func play(t *testing.T, p driver.Protocol, seed uint64, processes int, reentrant bool) []Op {
	var ops []Op
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		var all sync.WaitGroup
		var st store
		for i := range processes {
			doubts := new(atomic.Int64)
			s, err := engine.New(p, strategy.Options{TTL: realTTL, OpTimeout: 40 * ms, RetryOnError: i%2 == 0, Observe: func(e strategy.Event) {
				if e.Kind == strategy.EventAttempt && errors.Is(e.Err, strategy.ErrUnknown) {
					doubts.Add(1)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			for j := range 2 {
				w := &worker{r: r, s: s, name: fmt.Sprintf("P%d/%d", i, j), store: &st, doubts: doubts, rng: rand.New(rand.NewPCG(seed, uint64(10*i+j)))}
				ctx := t.Context()
				if reentrant {
					w.owner = fmt.Sprint("owner", (i+j)%3)
					ctx = strategy.WithOwner(ctx, w.owner)
				}
				all.Go(func() {
					for range 15 {
						w.round(ctx)
						time.Sleep(time.Duration(w.rng.Int64N(int64(50 * ms))))
					}
				})
			}
			defer s.Close()
		}
		all.Wait()
		time.Sleep(time.Second) // until what is under way has come
		ops = r.Ops()
	})
	return ops
}

// On a network that loses and delays the engine acts legally, as its users see it.
func TestRealLock(t *testing.T) {
	t.Parallel()
	for _, reentrant := range []bool{false, true} {
		t.Run(fmt.Sprint("reentrant=", reentrant), func(t *testing.T) {
			t.Parallel()
			kinds := map[string]int{}
			for seed := range uint64(6) {
				m := &conformance.Memory{Reentrant: reentrant}
				m.Intercept(network(seed))
				ops := play(t, m, seed, 5, reentrant)
				r := Rules{Reentrant: reentrant, Fenced: true, Bound: 5 * time.Second, Linger: realTTL}
				found := slices.Concat(Judge(ops, r), LinearLock(ops, r, time.Minute), FencedRegister(ops, "", time.Minute))
				if len(found) > 0 {
					t.Errorf("seed %d: %d violations: %v", seed, len(found), found[0])
				}
				for _, op := range ops {
					kinds[fmt.Sprint(op.Kind, " ", op.Result)]++
				}
			}
			for _, want := range []string{"acquire ok", "acquire held", "acquire unknown", "renew ok", "lost ", "release ok", "release lost", "release unknown"} {
				if kinds[want] == 0 {
					t.Errorf("no %q in %v", want, kinds)
				}
			}
		})
	}
}

// A protocol that breaks a promise is found out by what its users see.
func TestRealMutants(t *testing.T) {
	t.Parallel()
	n := uint64(1 << 20)
	var mu sync.Mutex
	count := func(by int64) uint64 {
		mu.Lock()
		defer mu.Unlock()
		n = uint64(int64(n) + by)
		return n
	}
	type grants = func(driver.Grant, error) (driver.Grant, error)
	acquire := func(instead grants) func(driver.Protocol) driver.Protocol {
		return func(p driver.Protocol) driver.Protocol { return flawed.Granting(p, instead) }
	}
	extend := func(instead grants) func(driver.Protocol) driver.Protocol {
		return func(p driver.Protocol) driver.Protocol { return flawed.Extending(p, instead) }
	}
	for _, c := range []struct {
		name, caught string
		broken       func(driver.Protocol) driver.Protocol
		calm         bool // few contend, and nothing is lost: or somebody may always hold it
	}{
		{"grants what it does not know", "Exclusion", acquire(func(g driver.Grant, err error) (driver.Grant, error) {
			if ResultOf(err) == Unknown {
				return driver.Grant{Fence: count(1)}, nil
			}
			return g, err
		}), false},
		{"calls refused what is unreachable", "HonestAmbiguity", acquire(func(g driver.Grant, err error) (driver.Grant, error) {
			if r := ResultOf(err); r == Unsent || r == Refused {
				return g, &strategy.HeldError{Name: "k"}
			}
			return g, err
		}), true},
		{"renews what it does not know", "LinearLock", extend(func(g driver.Grant, err error) (driver.Grant, error) {
			return g, nil
		}), false},
		{"calls lost what it does not know", "Ownership", extend(func(g driver.Grant, err error) (driver.Grant, error) {
			if ResultOf(err) == Unknown {
				return g, &strategy.LostError{Name: "k"}
			}
			return g, err
		}), false},
		{"counts fences down", "FenceOrder", acquire(func(g driver.Grant, err error) (driver.Grant, error) {
			g.Fence = count(-1)
			return g, err
		}), false},
		{"says it has released what it has not", "LinearLock", func(p driver.Protocol) driver.Protocol {
			return &flawed.Protocol{Protocol: p, Releases: func(ctx context.Context, c driver.Claim) error {
				p.Release(ctx, c)
				return nil
			}}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(1000) { // goroutines take turns as they like: one seed has many histories
				m := &conformance.Memory{}
				m.Intercept(network(seed))
				processes := 5
				if c.calm {
					processes = 1
					m.Intercept(unreachable(seed))
				}
				ops := play(t, c.broken(m), seed, processes, false)
				r := Rules{Fenced: true, Bound: 5 * time.Second, Linger: realTTL}
				if c.calm {
					r.Linger = 20 * ms // nothing is slow
				}
				found := Judge(ops, r)
				if c.caught == "LinearLock" {
					found = append(found, LinearLock(ops, r, time.Minute)...)
				}
				if slices.ContainsFunc(found, func(v Violation) bool { return v.Property == c.caught }) {
					return
				}
			}
			t.Errorf("%s has seen nothing", c.caught)
		})
	}
}
