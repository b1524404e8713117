package history

// Histories of the real engine in a bubble offend no judge. That broken locks do, the table and the nemesis show.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

const realTTL = 300 * ms

// network loses and delays what it carries; what it does comes from the seed.
func network(seed uint64) lockstest.Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	draw := func() (int, time.Duration, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(100), time.Duration(rng.Int64N(int64(5 * ms))), time.Duration(rng.Int64N(int64(100 * ms)))
	}
	return func(_ context.Context, _ lockstest.Request, serve func() error) error {
		what, brief, long := draw()
		time.Sleep(brief)
		switch {
		case what < 4:
			return lockstest.Unknown()
		case what < 8:
			serve()
			return lockstest.Unknown()
		case what < 10:
			return lockstest.Unsent()
		case what < 12:
			return lockstest.Refused("LOADING")
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

// A worker does what the documentation of Op and of the judges asks of who records.
type worker struct {
	r     *Recorder
	s     strategy.Strategy
	name  string
	owner string
	rng   *rand.Rand
	store *store // nil: several permits protect no value
	rules Rules

	unconfirmed *atomic.Int64 // attempts of unknown outcome of all workers of its process
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
	if op.Fence < s.max || op.Fence == s.max && op.owner() != s.owner && !(op.Kind == KindRead && op.Share > 0) {
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
	lock := w.s.NewLock("k")
	switch {
	case w.rules.ReadWrite && w.rng.IntN(4) > 0:
		op.Share, lock = 1, w.s.(strategy.ReadWriter).NewRLock("k")
	case w.rules.Permits > 1 && w.rng.IntN(4) == 0:
		op.Share = 1 + w.rng.IntN(w.rules.Permits)
		lock = w.s.(strategy.Semaphore).NewMultiPermitLock("k", op.Share)
	}
	var lease strategy.Lease
	var err error
	before := w.unconfirmed.Load()
	if w.rng.IntN(3) == 0 {
		op = w.r.Begin(op)
		lease, err = lock.TryAcquire(ctx)
	} else {
		patient, cancel := context.WithTimeout(ctx, time.Duration(w.rng.Int64N(int64(5*time.Second))))
		op = w.r.Begin(op)
		lease, err = lock.Acquire(patient)
		cancel()
	}
	op.Unconfirmed = int(w.unconfirmed.Load() - before)
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
		if w.store == nil {
			return
		}
		u := w.r.Begin(Op{Client: w.name, Kind: kind, Key: "k", Hold: op.Hold, Owner: op.Owner, Fence: op.Fence, Share: op.Share, Value: value})
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
	if w.owner == "" && !(w.rules.ReadWrite && op.Share > 0) {
		use(KindWrite, op.Hold)
	}
	look()
	if lease.Err() != nil {
		w.r.End(w.r.Begin(Op{Client: w.name, Kind: KindLost, Key: "k", Hold: op.Hold}))
	}
	rel := w.r.Begin(Op{Client: w.name, Kind: KindRelease, Key: "k", Hold: op.Hold})
	w.r.End(rel.Ended(lease.Release(ctx)))
}

// An opener opens the strategy of one process.
type opener = func(strategy.Options) (strategy.Strategy, error)

// play lets workers, two to a process, contend for a lock on m, on a bad network.
func play(t *testing.T, m *lockstest.Memory, open opener, seed uint64, processes int, rules Rules) []Op {
	var ops []Op
	synctest.Test(t, func(t *testing.T) {
		m.Intercept(network(seed))
		r := NewRecorder(nil)
		var all sync.WaitGroup
		st := &store{}
		if rules.Permits > 1 {
			st = nil
		}
		for i := range processes {
			unconfirmed := new(atomic.Int64)
			s, err := open(strategy.Options{TTL: realTTL, OpTimeout: 40 * ms, RetryOnError: i%2 == 0, Observe: func(e strategy.Event) {
				if e.Kind == strategy.EventAttempt && errors.Is(e.Err, strategy.ErrUnknown) {
					unconfirmed.Add(1)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			for j := range 2 {
				w := &worker{r: r, s: s, name: fmt.Sprintf("P%d/%d", i, j), store: st, rules: rules, unconfirmed: unconfirmed, rng: rand.New(rand.NewPCG(seed, uint64(10*i+j)))}
				ctx := t.Context()
				if rules.Reentrant {
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
	for name, r := range map[string]Rules{"exclusive": {}, "re-entrant": {Reentrant: true}, "permits": {Permits: 3}, "readers": {ReadWrite: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds := map[string]int{}
			for seed := range uint64(6) {
				m := &lockstest.Memory{}
				m.Reentrant = r.Reentrant
				open := func(o strategy.Options) (strategy.Strategy, error) { return engine.New(m, o) }
				switch {
				case r.Permits > 1:
					open = func(o strategy.Options) (strategy.Strategy, error) { return m.Semaphore(r.Permits, o) }
				case r.ReadWrite:
					open = func(o strategy.Options) (strategy.Strategy, error) { return m.ReadWriter(o) }
				}
				ops := play(t, m, open, seed, 5, r)
				r.Fenced, r.Bound, r.Linger = true, 5*time.Second, realTTL
				if found := Judge(ops, r); len(found) > 0 {
					t.Errorf("seed %d: %d violations: %v", seed, len(found), found[0])
				}
				for _, op := range ops {
					kinds[fmt.Sprint(op.Kind, " ", op.Result)]++
				}
				stricter := Rules{Reentrant: r.Reentrant, Permits: r.Permits - 1} // it is seen that several hold the lock
				kinds["together"] += len(Exclusion(ops, stricter))
			}
			wants := []string{"acquire ok", "acquire held", "acquire unknown", "renew ok", "lost ", "release ok", "release lost", "release unknown"}
			if r.shared() {
				wants = append(wants, "together")
			}
			for _, want := range wants {
				if kinds[want] == 0 {
					t.Errorf("no %q in %v", want, kinds)
				}
			}
		})
	}
}
