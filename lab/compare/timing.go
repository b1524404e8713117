package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/wait"
	"github.com/lockstrategies/locks/strategy"
)

// timing is how long and how often a measurement is taken. Compared strategies take
// turns, so that a machine that is slower for a while is slower for all.
type timing struct {
	each   time.Duration // of one measurement of one strategy, in all rounds
	rounds int
}

// patient are the options of locks that are measured. A machine that stalls for a second makes a measurement slow, and not
// wrong. The TTL is the default, because redlock's servers remember the longest.
var patient = strategy.Options{OpTimeout: 9 * time.Second}

func (t timing) round() time.Duration { return t.each / time.Duration(t.rounds) }

// warmUp is what passes before the counting begins, in each round: connections are
// dialled, scripts loaded, and all contenders have begun.
func (t timing) warmUp() time.Duration {
	return max(t.round()/5, 30*time.Millisecond)
}

// histogram covers 1 ns … 1 min with three digits.
func histogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Minute), 3) }

func latency(h *hdrhistogram.Histogram) Latency {
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	return Latency{
		Count: h.TotalCount(),
		P50:   us(h.ValueAtQuantile(50)),
		P90:   us(h.ValueAtQuantile(90)),
		P99:   us(h.ValueAtQuantile(99)),
		Max:   us(h.Max()),
	}
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	h.RecordValue(min(int64(d), int64(time.Minute)))
}

// soloists measures acquire and release by one caller. Everything takes turns call
// by call: PING of the first server, PING again for control, and each strategy.
func soloists(ctx context.Context, servers []*redistest.Server, contestants []contestant, d time.Duration) (*Ping, []*Solo, []error, error) {
	conn, err := servers[0].Pool().GetContext(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer conn.Close()
	ping := func() error {
		_, err := conn.Do("PING")
		return err
	}
	timed := []func() error{ping, ping}
	errs := make([]error, len(contestants))
	for i, c := range contestants {
		name := freshName()
		defer sweep(ctx, c.servers, name)
		st, err := c.subject.Open(patient)
		if err != nil {
			return nil, nil, nil, err
		}
		defer st.Close()
		lock := st.NewLock(name)
		timed = append(timed, func() error {
			if errs[i] != nil {
				return nil // once is enough: the others go on
			}
			lease, err := lock.Acquire(ctx)
			if err == nil {
				err = lease.Release(ctx)
			}
			if err != nil && ctx.Err() == nil {
				errs[i] = err
			}
			return nil
		})
	}

	hs := make([]*hdrhistogram.Histogram, len(timed))
	for i := range hs {
		hs[i] = histogram()
	}
	began := time.Now()
	warm := max(d/10, 30*time.Millisecond)
	for warmed := false; ctx.Err() == nil; {
		switch passed := time.Since(began); {
		case passed >= warm+d:
			warmed = true
			p := latency(hs[0])
			control := hs[1].ValueAtQuantile(50)
			solos := make([]*Solo, len(contestants))
			for i := range solos {
				if errs[i] == nil {
					l := latency(hs[i+2])
					solos[i] = &Solo{Latency: l, PerPing: l.P50 / p.P50}
				}
			}
			return &Ping{Latency: p, Control: float64(control) / 1e3 / p.P50}, solos, errs, nil
		case !warmed && passed >= warm:
			warmed = true
			for _, h := range hs {
				h.Reset()
			}
		}
		for i, f := range timed {
			t := time.Now()
			if err := f(); err != nil {
				return nil, nil, nil, fmt.Errorf("PING: %w", err)
			}
			record(hs[i], time.Since(t))
		}
	}
	return nil, nil, nil, context.Cause(ctx)
}

// hold is how long a lock is held before it is handed off: longer than a waiter
// takes to begin to wait, so that it is the hand-off that is measured.
const hold = time.Millisecond

// handOffs measures the way of a lock from one process to another that waits for
// it. Two strategies, each with connections of its own, pass it to and fro.
type handOffs struct {
	of contestant
	h  *hdrhistogram.Histogram
	n  sent
}

// round passes the lock to and fro for warm and then for d, which counts.
func (o *handOffs) round(ctx context.Context, warm, d time.Duration) (err error) {
	var m Meter
	open, end := o.of.opener(&m)
	defer end()
	name := freshName()
	defer sweep(ctx, o.of.servers, name)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := errors.New("over")

	// released is when the holder called Release, as the next one reads it.
	var released atomic.Pointer[time.Time]
	var counting atomic.Bool
	counted := make(chan struct{}, 1)
	play := func(lock strategy.Lock, turn <-chan struct{}, next chan<- struct{}) error {
		for {
			lease, err := lock.Acquire(ctx)
			if err != nil {
				return err
			}
			if t := released.Load(); t != nil { // not the very first
				if counting.Load() {
					record(o.h, time.Since(*t)) // one at a time, in the order of the words
					signal(counted)
				}
				next <- struct{}{} // who has released may ask again
			}
			time.Sleep(hold)
			now := time.Now()
			released.Store(&now)
			if err := lease.Release(ctx); err != nil {
				return err
			}
			select {
			case <-turn: // another has it
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	// Each tells the other when it has got the lock, so they never race for it.
	a, b := make(chan struct{}, 1), make(chan struct{}, 1)
	var players sync.WaitGroup
	errs := make([]error, 2)
	for i, ch := range [][2]chan struct{}{{a, b}, {b, a}} {
		st, err := open(patient)
		if err != nil {
			cancel(err)
			players.Wait()
			return err
		}
		defer st.Close()
		players.Go(func() {
			if err := play(st.NewLock(name), ch[0], ch[1]); !errors.Is(err, over) {
				errs[i] = err
				cancel(err)
			}
		})
	}
	wait.For(ctx, warm)
	m.take()
	counting.Store(true)
	wait.For(ctx, d)
	first(ctx, counted)
	counting.Store(false)
	o.n.add(m.take())
	cancel(over)
	players.Wait()
	return errors.Join(errs...)
}

func (o *handOffs) finish(s *Column, ping *Ping) error {
	l := latency(o.h)
	if l.Count == 0 {
		return errors.New("no hand-off in the time given: try a longer --duration")
	}
	s.HandOff = &HandOff{Latency: l, Commands: float64(sum(o.n.commands)) / float64(l.Count)}
	if ping != nil {
		s.HandOff.PerPing = l.P50 / ping.P50
	}
	return nil
}

// contention measures n contenders for one name: each is a goroutine of one process
// that acquires and releases over and over, without holding.
type contention struct {
	of    contestant
	got   []int64 // by contender, in all rounds
	rates []float64
}

func (c *contention) round(ctx context.Context, warm, d time.Duration) error {
	st, err := c.of.subject.Open(patient)
	if err != nil {
		return err
	}
	defer st.Close()
	name := freshName()
	defer sweep(ctx, c.of.servers, name)
	lock := st.NewLock(name)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := errors.New("over")
	var counting atomic.Bool
	granted := make(chan struct{}, 1)
	got := make([]int64, len(c.got)) // each contender its own
	var contenders sync.WaitGroup
	for i := range got {
		contenders.Go(func() {
			for {
				lease, err := lock.Acquire(ctx)
				if err == nil {
					if counting.Load() {
						got[i]++
						signal(granted)
					}
					err = lease.Release(ctx)
				}
				if err != nil {
					if context.Cause(ctx) == nil {
						cancel(err)
					}
					return
				}
			}
		})
	}
	wait.For(ctx, warm)
	counting.Store(true)
	began := time.Now()
	wait.For(ctx, d)
	first(ctx, granted)
	counting.Store(false)
	passed := time.Since(began)
	cancel(over)
	contenders.Wait()
	if err := context.Cause(ctx); err != over {
		return err
	}
	var sum int64
	for i, n := range got {
		c.got[i] += n
		sum += n
	}
	c.rates = append(c.rates, float64(sum)/passed.Seconds())
	return nil
}

// first waits until something was counted: on a busy machine nothing fits into a short round, which
// then takes until the first is counted, for a minute at most.
func first(ctx context.Context, counted <-chan struct{}) {
	select {
	case <-counted:
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
}

// signal leaves word in a channel for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c *contention) finish(s *Column, _ *Ping) error {
	s.Contention = append(s.Contention, Contention{
		Contenders: len(c.got),
		PerSecond:  median(c.rates),
		Lowest:     slices.Min(c.rates),
		Highest:    slices.Max(c.rates),
		Jain:       jain(c.got),
	})
	return nil
}

// jain is Jain's fairness index, (Σx)² ÷ (n Σx²): 1, all got the same; 1/n, one got
// all. NaN for nothing at all would not survive JSON: that is 0.
func jain(xs []int64) float64 {
	var sum, squares float64
	for _, x := range xs {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(xs)) * squares)
}

// median of an odd number of values.
func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[len(s)/2]
}

// afterwards is a context for cleaning up, which must be done also when ctx is over.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}
