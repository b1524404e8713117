package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/strategy"
)

// works are what children do, by name.
var works = map[string]func(context.Context, *seat, *client) (report, error){
	"solo":     solo,
	"distinct": distinct,
	"loop":     loop,
	"drain":    drain,
	"renewal":  renewal,
	"fresh":    fresh,
	"frozen":   frozen,
	"names":    names,
	"share":    share,
}

// giveUp is how long a contestant may go without any progress.
const giveUp = 5 * time.Second

func (s *seat) name(i int) string {
	name := fmt.Sprintf("%s-%d", s.Keys, i)
	if s.AsKeys {
		return strategy.DefaultKey(name)
	}
	return name
}

func pair(ctx context.Context, m mutex) error {
	h, err := m(ctx)
	if err != nil {
		return err
	}
	return h.Release(ctx)
}

// repeat times pairs, for as long as the job says, or at most n of them.
func (s *seat) repeat(n int, f func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, 0, min(n, 1<<17))
	for begin := time.Now(); len(took) < cap(took); {
		start := time.Now()
		if start.Sub(begin) > s.For {
			break
		}
		if err := f(len(took)); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	if len(took) == 0 {
		return nil, errors.New("there was no time for a single pair")
	}
	return took, nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// solo: one caller, one name, in turns.
func solo(ctx context.Context, s *seat, c *client) (report, error) {
	m := c.mutex(s.name(0))
	one := func(int) error { return pair(ctx, m) }
	if err := warm(500, one); err != nil {
		return report{}, err
	}
	var r report
	for range s.Turns {
		s.step("turn")
		if err := warm(20, one); err != nil {
			return report{}, err
		}
		begin, err := s.read()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		took, err2 := s.repeat(1<<16, one)
		runtime.ReadMemStats(&after)
		end, err3 := s.read()
		if err := errors.Join(err, err2, err3); err != nil {
			return report{}, err
		}
		n := float64(len(took))
		r.Each = append(r.Each, map[string]float64{
			"allocs/pair":   float64(after.Mallocs-before.Mallocs) / n,
			"requests/pair": float64(end.requests-begin.requests) / n,
			"commands/pair": float64(end.commands-begin.commands) / n,
			"p50-µs":        micros(quantile(took, 0.5)),
			"p99-µs":        micros(quantile(took, 0.99)),
		})
	}
	return r, nil
}

// distinct: N callers, each with a name of its own, in turns.
func distinct(ctx context.Context, s *seat, c *client) (report, error) {
	callers := make([]mutex, s.N)
	for i := range callers {
		callers[i] = c.mutex(s.name(i))
	}
	var r report
	for turn := range s.Turns + 1 {
		var (
			wg       sync.WaitGroup
			over     atomic.Bool
			counting atomic.Bool
			counts   = make([]int, len(callers))
			errs     = make([]error, len(callers))
		)
		if turn > 0 { // before the first, connections are dialled
			s.step("turn")
		}
		for i, m := range callers {
			wg.Go(func() {
				for !over.Load() {
					if errs[i] = pair(ctx, m); errs[i] != nil {
						return
					}
					if counting.Load() {
						counts[i]++
					}
				}
			})
		}
		time.Sleep(s.For / 3) // all callers are busy
		loaded := time.Now()  // the two INFOs are in this time; during them the server's share of a processor is the same
		before, err := s.read()
		own, sent, begin := cpu(), s.requests.Load(), time.Now()
		counting.Store(true)
		time.Sleep(s.For)
		counting.Store(false)
		took := time.Since(begin)
		own, sent = cpu()-own, s.requests.Load()-sent
		after, err2 := s.read()
		share := (after.server - before.server).Seconds() / time.Since(loaded).Seconds()
		over.Store(true)
		if !ended(&wg) {
			r.Stuck = true
			return r, nil
		}
		if err := errors.Join(err, err2, errors.Join(errs...)); err != nil {
			return report{}, err
		}
		if turn > 0 {
			n := float64(sum(counts))
			r.Each = append(r.Each, map[string]float64{
				"pairs/s":            n / took.Seconds(),
				"requests/pair":      float64(sent) / max(n, 1),
				"client-cpu-µs/pair": micros(own) / max(n, 1),
				"server-cpu-µs/pair": share * micros(took) / max(n, 1),
			})
		}
	}
	return r, nil
}

// loop: N waiters on one name, in one process or several. A holder who has released asks again at
// once or, if holds last, when another has the lock.
func loop(ctx context.Context, s *seat, c *client) (report, error) {
	grants, err := s.grants()
	if err != nil {
		return report{}, err
	}
	holds := make([][]hold, s.N)
	r, waits, err := s.contend(ctx, c, func(t success) error {
		if s.Hold == 0 {
			err := t.Release(context.Background())
			time.Sleep(s.Pause)
			return err
		}
		mine := grants.Add(1)
		time.Sleep(s.Hold)
		held := hold{history.At(t.since), history.Now()}
		if err := t.Release(context.Background()); err != nil {
			return err
		}
		if t.counting.Load() {
			holds[t.caller] = append(holds[t.caller], held)
		}
		for grants.Load() == mine && !t.over.Load() {
			time.Sleep(50 * time.Microsecond)
		}
		return nil
	})
	if err != nil || r.Stuck {
		return r, err // callers may still append to holds
	}
	r.Holds = slices.Concat(holds...)
	r.Values["p50-ms"], r.Values["p99-ms"] = micros(quantile(waits[0], 0.5))/1e3, micros(quantile(waits[0], 0.99))/1e3
	return r, nil
}

// A success is one acquisition of a caller among many.
type success struct {
	held
	caller, mode   int // mode: see job.mode
	since          time.Time
	counting, over *atomic.Bool // whether it is measured, and whether the time is up
}

// contend lets N callers acquire one name again and again. use is what they do with it; that includes
// the release. waits are to write, and to read. One that is not over when the time is up counts
// with the time so far.
func (s *seat) contend(ctx context.Context, c *client, use func(success) error) (r report, waits [2][]time.Duration, err error) {
	if err := pair(ctx, c.mutex(s.name(0))); err != nil { // connected
		return r, waits, err
	}
	ping, err := s.ping()
	if err != nil {
		return r, waits, err
	}
	s.step("begin")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg             sync.WaitGroup
		counting, over atomic.Bool
		counts         = make([]int, s.N)
		each           = make([][2][]time.Duration, s.N)
		errs           = make([]error, s.N)
		end            time.Time // written before over
	)
	for i := range s.N {
		modes := [2]mutex{c.mutex(s.name(0)), c.mutex(s.name(0))}
		if c.reader != nil {
			modes[1] = c.reader(s.name(0))
		}
		for mode := range modes {
			each[i][mode] = make([]time.Duration, 0, 1<<11)
		}
		wg.Go(func() {
			for !over.Load() && errs[i] == nil {
				mode := s.mode(i)
				asked := time.Now()
				h, err := modes[mode](ctx)
				if err != nil {
					switch {
					case ctx.Err() == nil:
						errs[i] = err
					case asked.Before(end):
						each[i][mode] = append(each[i][mode], end.Sub(asked))
					}
					return
				}
				now := time.Now()
				if counting.Load() {
					counts[i]++
					each[i][mode] = append(each[i][mode], now.Sub(asked))
				}
				errs[i] = use(success{h, i, mode, now, &counting, &over})
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // all waiters stand in line
	before, err := s.read()
	begin := time.Now()
	counting.Store(true)
	time.Sleep(s.For)
	counting.Store(false)
	took := time.Since(begin)
	after, err2 := s.read()
	end = time.Now()
	over.Store(true)
	cancel()
	if !ended(&wg) {
		return report{Stuck: true}, waits, nil // callers may still count
	}
	for i := range s.N {
		for mode := range waits {
			waits[mode] = append(waits[mode], each[i][mode]...)
		}
	}
	return report{
		Counts: counts, Requests: after.requests - before.requests, Commands: after.commands - before.commands,
		Values: map[string]float64{"acq/s": float64(sum(counts)) / took.Seconds(), "seconds": took.Seconds(), "ping-µs": micros(ping)},
	}, waits, errors.Join(err, err2, errors.Join(errs...))
}

// ended waits for all, for giveUp at most.
func ended(wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(giveUp):
		return false
	}
}

// grants is the number in the file that processes share. A process that has released sees by it that
// another has the lock.
func (s *seat) grants() (*atomic.Uint64, error) {
	if s.Grants == "" {
		return &atomic.Uint64{}, nil
	}
	f, err := os.OpenFile(s.Grants, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, binary.Size(uint64(0)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*atomic.Uint64)(unsafe.Pointer(&b[0])), nil
}

// drain: N waiters get the lock once each.
func drain(ctx context.Context, s *seat, c *client) (report, error) {
	ping, err := s.ping()
	if err != nil {
		return report{}, err
	}
	h, err := c.mutex(s.name(0))(ctx)
	if err != nil {
		return report{}, err
	}
	errs := make(chan error, s.N)
	for range s.N {
		m := c.mutex(s.name(0))
		go func() { errs <- pair(ctx, m) }()
	}
	time.Sleep(time.Duration(50+s.N) * time.Millisecond) // all waiters stand in line
	before, err := s.read()
	begin, late := time.Now(), time.After(s.For)
	if err := errors.Join(err, h.Release(ctx)); err != nil {
		return report{}, err
	}
	for range s.N {
		select {
		case err := <-errs:
			if err != nil {
				return report{}, err
			}
		case <-late:
			return report{Stuck: true}, nil
		}
	}
	took := time.Since(begin)
	after, err := s.read()
	return report{
		Requests: after.requests - before.requests, Commands: after.commands - before.commands,
		Values: map[string]float64{"µs/waiter": micros(took) / float64(s.N), "ping-µs": micros(ping)},
	}, err
}

// renewal: N locks are kept alive.
func renewal(ctx context.Context, s *seat, c *client) (report, error) {
	if err := pair(ctx, c.mutex(s.name(-1))); err != nil { // connected
		return report{}, err
	}
	names := make([]string, s.N)
	for i := range names {
		names[i] = s.name(i)
	}
	locks := make([]held, s.N)
	used, routines := memory(), runtime.NumGoroutine()
	if err := s.all(func(i int) error {
		h, err := c.mutex(names[i])(ctx)
		if err == nil {
			c.keep(h)
			locks[i] = h
		}
		return err
	}); err != nil {
		return report{}, err
	}
	time.Sleep(s.TTL + s.TTL/3) // see measureRenewal
	used, routines = memory()-used, runtime.NumGoroutine()-routines
	before, err := s.read()
	if err != nil {
		return report{}, err
	}
	own, begin := cpu(), time.Now()
	time.Sleep(s.For)
	own = cpu() - own
	after, err := s.read()
	took := time.Since(begin).Seconds()
	lost := 0
	for _, h := range locks {
		if c.lost(h) {
			lost++
		}
	}
	n := float64(s.N)
	return report{Values: map[string]float64{
		"goroutines/lock": float64(routines) / n,
		"B/lock":          float64(used) / n,
		"requests/s":      float64(after.requests-before.requests) / took,
		"commands/s":      float64(after.commands-before.commands) / took,
		"client-cpu-%":    100 * own.Seconds() / took,
		"server-cpu-%":    100 * (after.server - before.server).Seconds() / took,
		"cpu-%":           100 * (own + after.server - before.server).Seconds() / took,
		"lost":            float64(lost),
	}}, err
}

// all does something with each of N names, with many at a time.
func (s *seat) all(do func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, 64)
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < s.N && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// memory is what the heap and the stacks take when there is no garbage.
func memory() int64 {
	runtime.GC()
	runtime.GC() // what the first one has found to be finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// cpu is the time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // there is no such system
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// warm makes n pairs that are not measured, or fewer where they take long.
func warm(n int, f func(int) error) error {
	for begin := time.Now(); n > 0 && time.Since(begin) < 300*time.Millisecond; n-- {
		if err := f(0); err != nil {
			return err
		}
	}
	return nil
}

// fresh: one caller takes a new name for each pair, so that a key which is left behind stays
// to be counted.
func fresh(ctx context.Context, s *seat, c *client) (report, error) {
	one, err := s.onNewNames(ctx, c)
	if err != nil {
		return report{}, err
	}
	took, err := s.repeat(s.N, one)
	if err != nil {
		return report{}, err
	}
	time.Sleep(200 * time.Millisecond) // background work has ended
	s.step("count")
	n := len(took)
	return report{Values: map[string]float64{
		"pairs": float64(n), "p50-µs": micros(quantile(took, 0.5)), "p99-µs": micros(quantile(took, 0.99)),
	}}, nil
}

// onNewNames warms up what acquires and releases a new name each time.
func (s *seat) onNewNames(ctx context.Context, c *client) (one func(int) error, err error) {
	i := 0
	one = func(int) error { i++; return pair(ctx, c.mutex(s.name(i))) }
	return one, warm(200, one)
}

// frozen: as fresh, before and while one server is paused.
func frozen(ctx context.Context, s *seat, c *client) (report, error) {
	one, err := s.onNewNames(ctx, c)
	if err != nil {
		return report{}, err
	}
	up, err := s.repeat(s.N, one)
	if err != nil {
		return report{}, err
	}
	time.Sleep(200 * time.Millisecond) // background work has ended
	routines := runtime.NumGoroutine()
	s.step("freeze")
	var down []time.Duration
	done, progress := make(chan error, 1), make(chan struct{}, s.N+1)
	go func() {
		var err error
		down, err = s.repeat(s.N, func(i int) error { defer func() { progress <- struct{}{} }(); return one(i) })
		done <- err
	}()
	stuck, timer := false, time.NewTimer(giveUp)
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				return report{}, err
			}
			running = false
		case <-progress:
			timer.Reset(giveUp)
		case <-timer.C:
			stuck, running = true, false
		}
	}
	time.Sleep(200 * time.Millisecond) // as before
	meanwhile := runtime.NumGoroutine() - routines
	s.step("thaw")
	r := report{Stuck: stuck, Values: map[string]float64{
		"up-p99-µs": micros(quantile(up, 0.99)), "up-p50-µs": micros(quantile(up, 0.5)),
		"goroutines-frozen": float64(meanwhile), "goroutines-thawed": float64(runtime.NumGoroutine() - routines),
	}}
	if !stuck {
		r.Values["pairs"] = float64(len(down))
		r.Values["frozen-p99-µs"], r.Values["frozen-p50-µs"] = micros(quantile(down, 0.99)), micros(quantile(down, 0.5))
	}
	return r, nil
}

// names: one caller goes through N names that have all been used before.
func names(ctx context.Context, s *seat, c *client) (report, error) {
	if err := pair(ctx, c.mutex(s.name(0))); err != nil { // connected
		return report{}, err
	}
	if err := s.all(func(i int) error { return pair(ctx, c.mutex(s.name(i))) }); err != nil {
		return report{}, err
	}
	const stride = 7919 // a prime: all names come, not in the order of their first use
	took, err := s.repeat(1<<17, func(i int) error { return pair(ctx, c.mutex(s.name(i*stride%s.N))) })
	if err != nil {
		return report{}, err
	}
	return report{Values: map[string]float64{"p50-µs": micros(quantile(took, 0.5))}}, nil
}
