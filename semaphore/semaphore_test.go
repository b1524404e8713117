// The semaphore as its users see it: the suite with one permit, and what only a semaphore does, what it costs, what
// it refuses, and what becomes of a user who may not do everything.
package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

func TestConformance(t *testing.T) { subjects.Run(t, "semaphore") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "semaphore") }

// opened closes what New or Make has returned with the test.
func opened(t *testing.T, locks strategy.Semaphore, err error) strategy.Semaphore {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	locktest.Opened(t, locks, nil)
	return locks
}

// open returns a semaphore of so many permits on s, as another process would open it.
func open(t *testing.T, s *redistest.Server, permits int, o strategy.Options) strategy.Semaphore {
	t.Helper()
	locks, err := semaphore.New(redigonode.New(s.Pool()), permits, o)
	return opened(t, locks, err)
}

// patient are options with which no TTL ends while a test runs.
var patient = strategy.Options{TTL: time.Hour, OpTimeout: time.Minute}

// try acquires permits that are free.
func try(t *testing.T, locks strategy.Semaphore, name string, permits int) strategy.Lease {
	t.Helper()
	lease, err := locks.NewMultiPermitLock(name, permits).TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire() of %d permits = %v, want nil", permits, err)
	}
	return lease
}

// refused fails the test unless permits are not free.
func refused(t *testing.T, locks strategy.Semaphore, name string, permits int) {
	t.Helper()
	if lease, err := locks.NewMultiPermitLock(name, permits).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("TryAcquire() of %d permits = %v, %v, want ErrHeld", permits, lease, err)
	}
}

// permitsOf are the members of a hold of so many permits.
func permitsOf(l strategy.Lease, permits int) []string {
	all := []string{"permit:" + l.Token()}
	for i := 2; i <= permits; i++ {
		all = append(all, fmt.Sprintf("%s:%d", all[0], i))
	}
	return all
}

// members are the permits that are taken, also those that have lapsed.
func members(t *testing.T, s *redistest.Server, name string) []string {
	t.Helper()
	all, err := redis.Strings(redistest.Do(t, s, "ZRANGE", strategy.DefaultKey(name), 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// lapse makes the time of all permits of a hold pass.
func lapse(t *testing.T, s *redistest.Server, l strategy.Lease) {
	t.Helper()
	for _, m := range members(t, s, l.Name()) {
		if m == "permit:"+l.Token() || strings.HasPrefix(m, "permit:"+l.Token()+":") {
			redistest.Do(t, s, "ZADD", strategy.DefaultKey(l.Name()), "XX", 1000, m)
		}
	}
}

// inQueue waits until so many are in the queue.
func inQueue(t *testing.T, s *redistest.Server, name string, n int) {
	t.Helper()
	verdict.Eventually(t, fmt.Sprintf("%d are in the queue", n), func() bool {
		return redistest.Do(t, s, "LLEN", strategy.DefaultKey(name)+":waiters") == int64(n)
	})
}

// quiet fails the test unless nobody queues or listens any more.
func quiet(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	inQueue(t, s, name, 0)
	verdict.Eventually(t, "nobody listens", func() bool {
		channels, err := redis.Strings(redistest.Do(t, s, "PUBSUB", "CHANNELS", strategy.DefaultKey(name)+":*"), nil)
		return err == nil && len(channels) == 0
	})
}

// A waiter is an Acquire under way.
type waiter struct {
	lease  strategy.Lease
	err    error
	done   chan struct{}
	asleep chan struct{}
}

func wait(ctx context.Context, lock strategy.Lock) *waiter {
	w := &waiter{done: make(chan struct{}), asleep: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = lock.Acquire(&sleeping{Context: ctx, asleep: w.asleep})
	}()
	return w
}

// sleeping tells when somebody first waits for its end. A caller behind others of its process does so when it stands in line.
type sleeping struct {
	context.Context
	once   sync.Once
	asleep chan struct{}
}

func (s *sleeping) Done() <-chan struct{} {
	s.once.Do(func() { close(s.asleep) })
	return s.Context.Done()
}

// inLine waits until the waiters of a process stand in line, with one place in the queue.
func inLine(t *testing.T, s *redistest.Server, name string, waiters ...*waiter) {
	t.Helper()
	inQueue(t, s, name, 1)
	for _, w := range waiters {
		select {
		case <-w.asleep:
		case <-time.After(5 * time.Minute):
			t.Fatal("Acquire() does not wait in line after 5 minutes")
		}
	}
	inQueue(t, s, name, 1)
}

// got waits until the waiter has its permits.
func (w *waiter) got(t *testing.T) strategy.Lease {
	t.Helper()
	w.end(t)
	if w.err != nil {
		t.Fatalf("Acquire() = %v, want nil", w.err)
	}
	return w.lease
}

func (w *waiter) end(t *testing.T) {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(5 * time.Minute):
		t.Fatal("Acquire() has not ended after 5 minutes")
	}
}

func (w *waiter) waits(t *testing.T) {
	t.Helper()
	select {
	case <-w.done:
		t.Errorf("Acquire() = %v, %v, want that it waits", w.lease, w.err)
	default:
	}
}

// TestNewRefuses: what is not allowed, and that the error says what is.
func TestNewRefuses(t *testing.T) {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("unused") }}
	const allowed = "permits: allowed are 1 to 1000000"
	for _, c := range []struct {
		pool    *redis.Pool
		permits int
		o       strategy.Options
		says    string // empty: it is allowed
	}{
		{nil, 5, strategy.Options{}, "the *redis.Pool is nil"},
		{pool, 0, strategy.Options{}, "a semaphore of 0 " + allowed},
		{pool, -1, strategy.Options{}, "a semaphore of -1 " + allowed},
		{pool, semaphore.MaxPermits + 1, strategy.Options{}, "a semaphore of 1000001 " + allowed},
		{pool, 5, strategy.Options{TTL: time.Millisecond}, "Options.TTL is 1ms"},
		{pool, 1, strategy.Options{}, ""},
		{pool, semaphore.MaxPermits, strategy.Options{}, ""},
	} {
		locks, err := semaphore.New(redigonode.New(c.pool), c.permits, c.o)
		switch {
		case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("New(%v, %d, %v) = %v, want that it says %q, and no error where that is empty", c.pool, c.permits, c.o.TTL, err, c.says)
		case err == nil:
			locktest.Opened(t, locks, err)
		}
	}
}

// TestRefusesNumbers: shares and numbers of permits that are not allowed. Nothing is sent.
func TestRefusesNumbers(t *testing.T) {
	locks, err := semaphore.New(&locktest.Dialog{}, 5, strategy.Options{}) // it answers nothing
	if err != nil {
		t.Fatal(err)
	}
	for _, permits := range []int{0, -1, semaphore.MaxShare + 1} {
		lock := locks.NewMultiPermitLock("a", permits)
		want := fmt.Sprintf("a share of %d of the lock \"a\": allowed are 1 to 1000", permits)
		if _, err := lock.TryAcquire(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("TryAcquire() of %d permits = %v, want that it says %q", permits, err, want)
		}
		if _, err := lock.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Acquire() of %d permits = %v, want that it says %q", permits, err, want)
		}
	}
	for _, permits := range []int{-1, semaphore.MaxPermits + 1} {
		want := fmt.Sprintf("SetPermits of \"a\" to %d: allowed are 1 to 1000000, and 0 for", permits)
		if err := locks.SetPermits(t.Context(), "a", permits); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SetPermits(%d) = %v, want that it says %q", permits, err, want)
		}
	}
	if err := locks.SetPermits(t.Context(), "", 1); err == nil || !strings.Contains(err.Error(), "name has 0 bytes") {
		t.Errorf("SetPermits() of a lock without a name = %v, want that the name is not allowed", err)
	}
}

// TestSeveralPermits: an acquisition gets all of its permits or none, and gives all of them back. For more than there are
// it does not wait.
func TestSeveralPermits(t *testing.T) {
	s := redistest.Shared(t)
	locks, name := open(t, s, 5, patient), locktest.Unique(t)
	two, one := try(t, locks, name, 2), try(t, locks, name, 1)
	refused(t, locks, name, 3)
	other := try(t, open(t, s, 5, patient), name, 2)
	refused(t, locks, name, 1)
	want := slices.Concat(permitsOf(two, 2), permitsOf(one, 1), permitsOf(other, 2))
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(members(t, s, name))); !slices.Equal(got, want) {
		t.Errorf("permits = %q, want %q", got, want)
	}
	locktest.Release(t, two)
	locktest.Release(t, try(t, locks, name, 2))
	locktest.Release(t, one)
	locktest.Release(t, other)
	all := try(t, locks, name, 5)
	for what, acquire := range map[string]func(strategy.Lock) (strategy.Lease, error){
		"TryAcquire": func(l strategy.Lock) (strategy.Lease, error) { return l.TryAcquire(t.Context()) },
		"Acquire":    func(l strategy.Lock) (strategy.Lease, error) { return l.Acquire(t.Context()) },
	} {
		if _, err := acquire(locks.NewMultiPermitLock(name, 6)); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "LIMIT 6 permits are asked for, and there are 5") {
			t.Errorf("%s() of more permits than there are = %v, want ErrRefused, and how many there are", what, err)
		}
	}
	locktest.Release(t, all)
	quiet(t, s, name)
	many := open(t, s, semaphore.MaxPermits, patient)
	locktest.Release(t, try(t, many, name, semaphore.MaxShare))
	if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
		t.Errorf("EXISTS = %v after the last release, want 0", n)
	}
}

// TestHeldTells: what a refused contender and an operator learn.
func TestHeldTells(t *testing.T) {
	s := redistest.Shared(t)
	o := patient
	o.Label = "host-1/7"
	locks, name := open(t, s, 3, o), locktest.Unique(t)
	first := try(t, locks, name, 2) // it ends first
	o.TTL *= 2
	second := try(t, open(t, s, 3, o), name, 1)
	_, err := locks.NewLock(name).TryAcquire(t.Context())
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != first.Token() || held.TTL <= 0 || held.TTL > time.Hour {
		t.Errorf("TryAcquire() = %v, want a HeldError with the token of the hold that ends first, and up to an hour", err)
	} else if held.Taken != 3 || held.Permits != 3 {
		t.Errorf("TryAcquire() = %v, want that 3 of 3 permits are taken", err)
	}
	w := wait(t.Context(), locks.NewLock(name))
	inQueue(t, s, name, 1)
	info, err := locks.Inspect(t.Context(), name)
	if err != nil || !info.Held || info.Token != first.Token() || info.Owner != first.Token() || info.Holds != 3 || info.Label != "host-1/7" ||
		info.Fence != locktest.Fence(t, second) || info.TTL <= 0 || info.TTL > time.Hour || len(info.Queue) != 1 {
		t.Errorf("Inspect() = %+v, %v, want three permits, the hold that ends first, the last fence, and one that queues", info, err)
	}
	locktest.Release(t, first)
	if l := w.got(t); l.Token() != info.Queue[0] {
		t.Errorf("Token() of who queued = %q, Inspect said %q", l.Token(), info.Queue[0])
	}
	locktest.Release(t, second)
	locktest.Release(t, w.lease)
	info, err = locks.Inspect(t.Context(), name)
	if err != nil || info.Held || info.Holds != 0 || info.Token != "" || info.Queue != nil || info.Fence < locktest.Fence(t, second) {
		t.Errorf("Inspect() = %+v, %v, want that nobody holds any", info, err)
	}
}

// TestOnTheWire: the keys are what the package doc says they are.
func TestOnTheWire(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, 2, strategy.Options{TTL: time.Minute, OpTimeout: 50 * time.Second})
	a, b := try(t, locks, "a", 1), try(t, locks, "a", 1)
	if err := locks.SetPermits(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	w := wait(t.Context(), locks.NewMultiPermitLock("a", 2))
	inQueue(t, s, "a", 1)
	for key, kind := range map[string]string{"lock:{a}": "zset", "lock:{a}:waiters": "list", "lock:{a}:fence": "string", "lock:{a}:permits": "string"} {
		if got := redistest.Do(t, s, "TYPE", key); got != kind {
			t.Errorf("TYPE %s = %v, want %s", key, got, kind)
		}
		ttl := redistest.Do(t, s, "PTTL", key).(int64)
		if lasts := key == "lock:{a}:permits"; lasts != (ttl == -1) {
			t.Errorf("PTTL %s = %d, want an expiry of all but the number of permits", key, ttl)
		}
	}
	now, err := redis.Int64s(redistest.Do(t, s, "TIME"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []strategy.Lease{a, b} {
		score, err := redis.Int64(redistest.Do(t, s, "ZSCORE", "lock:{a}", "permit:"+l.Token()), nil)
		if left := score - now[0]*1000 - now[1]/1000; err != nil || left <= 0 || left > 60_000 {
			t.Errorf("ZSCORE of %s = %d, %v, want up to a minute from now, in ms", l.Token(), score, err)
		}
	}
	entry, err := redis.String(redistest.Do(t, s, "LINDEX", "lock:{a}:waiters", 0), nil)
	words := strings.Fields(entry)
	if err != nil || len(words) != 4 || words[1] != "1000" || words[2] != "2" {
		t.Fatalf("the entry in the queue = %q, %v, want a line, 1000 ms, 2 permits and a token", entry, err)
	}
	channels, err := redis.Strings(redistest.Do(t, s, "PUBSUB", "CHANNELS"), nil)
	if want := []string{"lock:{a}:waiters:" + words[0]}; err != nil || !slices.Equal(channels, want) {
		t.Errorf("channels = %q, %v, want %q", channels, err, want)
	}
	locktest.Release(t, a)
	w.waits(t)
	locktest.Release(t, b)
	if l := w.got(t); l.Token() != words[3] {
		t.Errorf("Token() = %q, want %q", l.Token(), words[3])
	}
	locktest.Release(t, w.lease)
}

// TestFIFO: first come, first served, among processes, however many permits they want.
func TestFIFO(t *testing.T) {
	s := redistest.Shared(t)
	verdict.Conclusive(t, func() verdict.Slow {
		name := locktest.Unique(t)
		all := try(t, open(t, s, 3, patient), name, 3)
		var waiters []*waiter
		for i, permits := range []int{1, 3, 1, 2, 1, 1, 3, 1, 2} {
			waiters = append(waiters, wait(t.Context(), open(t, s, 3, patient).NewMultiPermitLock(name, permits)))
			inQueue(t, s, name, i+1)
		}
		released := time.Now()
		locktest.Release(t, all)
		var fences []uint64
		for _, w := range waiters {
			fences = append(fences, locktest.Fence(t, w.got(t)))
			w.lease.Release(t.Context()) //nolint:errcheck // seen below: it may be late
		}
		quiet(t, s, name)
		if slices.IsSorted(fences) {
			return ""
		}
		if took := time.Since(released); took > driver.SuccessorTTL(time.Hour) {
			return verdict.Slowf("a direct grant lasts for a second, and all of them took %v", took)
		}
		t.Errorf("fences in the order of arrival = %v, want that they rise", fences)
		return ""
	})
}

// TestNeverMore: however many contend, in several processes and for different numbers of permits, never are more permits
// taken than there are.
func TestNeverMore(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	const permits = 4
	var taken, most atomic.Int64
	var all sync.WaitGroup
	for p := range 3 {
		locks := open(t, s, permits, patient)
		for c := range 6 {
			lock, share := locks.NewMultiPermitLock(name, 1+(p+c)%3), int64(1+(p+c)%3)
			all.Go(func() {
				for range 5 {
					l, err := lock.Acquire(t.Context())
					if err != nil {
						t.Errorf("Acquire() = %v, want nil", err)
						return
					}
					if n := taken.Add(share); n > permits && l.Err() == nil {
						t.Errorf("permits taken = %d, want %d at most", n, permits)
					} else if n > most.Load() {
						most.Store(n)
					}
					runtime.Gosched() // others acquire it, if they can
					taken.Add(-share)
					if err := l.Release(t.Context()); err != nil && !errors.Is(err, strategy.ErrLost) { // after a second of a direct grant
						t.Errorf("Release() = %v, want nil", err)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("at most %d permits were taken at once", most.Load())
	quiet(t, s, name)
}

// TestSetPermits: the number goes for all processes. Raised, it grants to those who wait, at once; lowered, it takes
// nothing from holders; and 0 takes it back.
func TestSetPermits(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	one, five := open(t, s, 1, patient), open(t, s, 5, patient) // one does not know of the other's number
	set := func(locks strategy.Semaphore, permits int) {
		t.Helper()
		if err := locks.SetPermits(t.Context(), name, permits); err != nil {
			t.Errorf("SetPermits(%d) = %v, want nil", permits, err)
		}
	}
	holds := []strategy.Lease{try(t, one, name, 1)}
	first, second, heavy := wait(t.Context(), one.NewLock(name)), (*waiter)(nil), (*waiter)(nil)
	inQueue(t, s, name, 1)
	set(five, 4)
	holds = append(holds, first.got(t))
	holds = append(holds, try(t, one, name, 2)) // although it was started with one
	second = wait(t.Context(), one.NewLock(name))
	inQueue(t, s, name, 1)
	heavy = wait(t.Context(), five.NewMultiPermitLock(name, 2))
	inQueue(t, s, name, 2)
	set(one, 7)
	holds = append(holds, second.got(t), heavy.got(t))
	refused(t, five, name, 2)

	set(five, 2)
	if info, err := one.Inspect(t.Context(), name); err != nil || info.Holds != 7 {
		t.Errorf("Inspect() = %+v, %v, want that all seven permits are still taken", info, err)
	}
	for _, l := range holds {
		if err := l.Extend(t.Context()); err != nil {
			t.Errorf("Extend() = %v, want nil: who holds permits keeps them", err)
		}
	}
	if _, err := five.NewMultiPermitLock(name, 3).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "there are 2") {
		t.Errorf("TryAcquire() of three = %v, want ErrRefused, and that there are 2", err)
	}
	for _, l := range slices.Backward(holds[1:]) {
		locktest.Release(t, l)
	}
	holds = append(holds[:1], try(t, five, name, 1))
	refused(t, five, name, 1)

	set(five, 0)
	refused(t, one, name, 1)
	holds = append(holds, try(t, five, name, 3))
	refused(t, five, name, 1)
	if n := redistest.Do(t, s, "GET", strategy.DefaultKey(name)+":permits"); n != nil && fmt.Sprintf("%s", n) != "" {
		t.Errorf("GET of the number = %s, want none", n)
	}
	for _, l := range holds {
		locktest.Release(t, l)
	}
	set(one, semaphore.MaxPermits)
	locktest.Release(t, try(t, one, name, semaphore.MaxShare))
	set(one, 0)
}

// TestSetPermitsTellsAll: who waits by notification hears of it, too.
func TestSetPermitsTellsAll(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	notified := patient
	notified.Wait = strategy.WaitNotification
	locks := open(t, s, 1, notified)
	holds := []strategy.Lease{try(t, locks, name, 1)}
	w := wait(t.Context(), locks.NewLock(name))
	verdict.Eventually(t, "the waiter listens", func() bool {
		n, err := redis.Values(redistest.Do(t, s, "PUBSUB", "NUMSUB", strategy.DefaultKey(name)+":free"), nil)
		return err == nil && n[1] == int64(1)
	})
	if err := locks.SetPermits(t.Context(), name, 2); err != nil {
		t.Fatal(err)
	}
	for _, l := range append(holds, w.got(t)) { // far earlier than the TTL ends
		locktest.Release(t, l)
	}
	if err := locks.SetPermits(t.Context(), name, 0); err != nil {
		t.Error(err)
	}
}

// TestSetPermitsFails: the server says why, and nothing is set.
func TestSetPermitsFails(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks := open(t, s, 1, patient)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := locks.SetPermits(done, name, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("SetPermits() with a ctx that is done = %v, want context.Canceled", err)
	}
	redistest.Do(t, s, "SET", strategy.DefaultKey(name), "no semaphore", "PX", 600_000)
	if err := locks.SetPermits(t.Context(), name, 2); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("SetPermits() of a string = %v, want ErrRefused and WRONGTYPE", err)
	}
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	if err := locks.SetPermits(t.Context(), name, 2); !errors.Is(err, strategy.ErrClosed) {
		t.Errorf("SetPermits() after Close = %v, want ErrClosed", err)
	}
	if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)+":permits"); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0: nothing was set", n)
	}
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
}

// TestDeadHolder: permits whose time has passed are free, also while others are held. The next request gives them to
// the first in the queue. Their holder learns that it has lost them.
func TestDeadHolder(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks, other := open(t, s, 3, patient), open(t, s, 3, patient)
	alive, dead := try(t, locks, name, 1), try(t, locks, name, 2)
	lapse(t, s, dead)
	if info, err := locks.Inspect(t.Context(), name); err != nil || info.Holds != 1 || info.Token != alive.Token() {
		t.Errorf("Inspect() = %+v, %v, want the one permit that counts", info, err)
	}
	next := try(t, other, name, 2)
	if got := members(t, s, name); len(got) != 3 || slices.Contains(got, "permit:"+dead.Token()) {
		t.Errorf("permits = %q, want those of the dead holder dropped", got)
	}
	if err := dead.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Extend() of a hold that has lapsed = %v, want ErrLost", err)
	}
	if err := next.Extend(t.Context()); err != nil {
		t.Errorf("Extend() of the next = %v, want nil", err)
	}

	w := wait(t.Context(), locks.NewMultiPermitLock(name, 2))
	inQueue(t, s, name, 1)
	lapse(t, s, next)
	if err := next.Release(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Release() of a hold that has lapsed = %v, want ErrLost", err)
	}
	got := w.got(t) // by that release
	w = wait(t.Context(), locks.NewMultiPermitLock(name, 2))
	inQueue(t, s, name, 1)
	for _, permit := range permitsOf(got, 2) {
		redistest.Do(t, s, "ZREM", strategy.DefaultKey(name), permit)
	}
	refused(t, other, name, 2) // and the waiter has them
	locktest.Release(t, w.got(t))
	locktest.Release(t, alive)
}

// TestDeadWaiter: an entry of which nobody hears is passed over, also where it waits for more than is free.
func TestDeadWaiter(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks := open(t, s, 2, patient)
	queue := strategy.DefaultKey(name) + ":waiters"
	alive, holder := try(t, locks, name, 1), try(t, locks, name, 1)
	redistest.Do(t, s, "RPUSH", queue, "dead 1000 1 light", "dead-too 1000 2 heavy")
	w := wait(t.Context(), locks.NewLock(name))
	inQueue(t, s, name, 3) // while no permit is free, nobody looks at the others
	locktest.Release(t, holder)
	locktest.Release(t, w.got(t)) // the other permit is taken all the time
	redistest.Do(t, s, "RPUSH", queue, "dead-too 1000 2 heavy")
	locktest.Release(t, try(t, locks, name, 1))
	locktest.Release(t, alive)
	quiet(t, s, name)
}

// TestAllLapsed: when several holds have lapsed, the first in the queue asks, and what it leaves goes to the next
// processes in the same step.
func TestAllLapsed(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks := open(t, s, 3, patient)
	holds := []strategy.Lease{try(t, locks, name, 1), try(t, locks, name, 2)}
	var waiters []*waiter
	for i := range 3 {
		waiters = append(waiters, wait(t.Context(), open(t, s, 3, patient).NewLock(name)))
		inQueue(t, s, name, i+1)
	}
	for _, l := range holds {
		lapse(t, s, l)
	}
	line, _, _ := strings.Cut(string(redistest.Do(t, s, "LINDEX", strategy.DefaultKey(name)+":waiters", 0).([]byte)), " ")
	redistest.Do(t, s, "PUBLISH", strategy.DefaultKey(name)+":waiters:"+line, "next 1") // as when its time comes
	for _, w := range waiters {
		w.got(t)
	}
	for _, w := range waiters {
		locktest.Release(t, w.lease)
	}
	quiet(t, s, name)
}

// TestCancelled: a wait that ends leaves nothing in the queue, and no subscription, at whatever moment it ends.
func TestCancelled(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks := open(t, s, 2, patient)
	holder := try(t, locks, name, 1)
	ctx, cancel := context.WithCancel(t.Context())
	heavy := wait(ctx, locks.NewMultiPermitLock(name, 2))
	inQueue(t, s, name, 1)
	light := wait(t.Context(), open(t, s, 2, patient).NewLock(name))
	inQueue(t, s, name, 2)
	cancel()
	if heavy.end(t); !errors.Is(heavy.err, context.Canceled) || !errors.Is(heavy.err, strategy.ErrHeld) {
		t.Errorf("Acquire() = %v, want context.Canceled and ErrHeld", heavy.err)
	}
	locktest.Release(t, light.got(t)) // which was behind it
	quiet(t, s, name)

	ctx, cancel = context.WithCancel(t.Context())
	heavy = wait(ctx, locks.NewMultiPermitLock(name, 2))
	inQueue(t, s, name, 1)
	light = wait(t.Context(), locks.NewLock(name))
	inLine(t, s, name, heavy, light)
	light.waits(t) // although a permit is free
	cancel()
	if heavy.end(t); !errors.Is(heavy.err, context.Canceled) || !errors.Is(heavy.err, strategy.ErrHeld) {
		t.Errorf("Acquire() = %v, want context.Canceled and ErrHeld", heavy.err)
	}
	locktest.Release(t, light.got(t)) // which was behind it in the same process
	quiet(t, s, name)

	all := try(t, locks, name, 1)
	var waiters []*waiter
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(10_000))*time.Microsecond)
		defer cancel()
		waiters = append(waiters, wait(ctx, locks.NewMultiPermitLock(name, 1+rand.IntN(2))))
	}
	for _, w := range waiters {
		if w.end(t); w.err == nil || !errors.Is(w.err, context.DeadlineExceeded) {
			t.Errorf("Acquire() = %v, want context.DeadlineExceeded", w.err)
		}
	}
	quiet(t, s, name)
	locktest.Release(t, all)
	locktest.Release(t, holder)
	if got := members(t, s, name); len(got) != 0 {
		t.Errorf("permits = %q, want none", got)
	}
}

// TestClose: waiters learn that the semaphore is closed, and leave nothing behind.
func TestClose(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	o := patient
	o.OpTimeout = 10 * time.Second
	locks, err := semaphore.New(redigonode.New(s.Pool()), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	holder := try(t, open(t, s, 1, patient), name, 1)
	waiters := []*waiter{wait(t.Context(), locks.NewLock(name)), wait(t.Context(), locks.NewLock(name))}
	inLine(t, s, name, waiters...)
	if err := locks.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	for _, w := range waiters {
		if w.end(t); !errors.Is(w.err, strategy.ErrClosed) {
			t.Errorf("Acquire() = %v, want ErrClosed", w.err)
		}
	}
	quiet(t, s, name)
	locktest.Release(t, holder)
	if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrClosed) {
		t.Errorf("TryAcquire() after Close = %v, want ErrClosed", err)
	}
}

// TestWith: other options make a semaphore, too, of as many permits.
func TestWith(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks := open(t, s, 2, patient)
	made, err := locks.With(func(o *strategy.Options) { o.TTL, o.OpTimeout = time.Minute, 50*time.Second })
	if err != nil {
		t.Fatal(err)
	}
	other, ok := made.(strategy.Semaphore)
	if !ok {
		t.Fatalf("With() = a %T, want a strategy.Semaphore", made)
	}
	two := try(t, other, name, 2)
	if left := time.Until(two.Deadline()); left > time.Minute {
		t.Errorf("Deadline() in %v, want a minute at most", left)
	}
	refused(t, locks, name, 1)
	if err := other.SetPermits(t.Context(), name, 3); err != nil {
		t.Error(err)
	}
	locktest.Release(t, try(t, locks, name, 1))
	locktest.Release(t, two)
	if err := other.SetPermits(t.Context(), name, 0); err != nil {
		t.Error(err)
	}
	if made, err := locks.With(func(o *strategy.Options) { o.TTL = time.Millisecond }); err == nil || made != nil {
		t.Errorf("With() a TTL of 1ms = %v, %v, want nil and an error that says what is allowed", made, err)
	}
}

// TestAdopt: a hold of several permits goes to the caller that has its token, with all of them, a new token and a
// new fence.
func TestAdopt(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks, other := open(t, s, 4, patient), open(t, s, 4, patient)
	one, lease := try(t, locks, name, 1), try(t, locks, name, 3)
	fence := locktest.Fence(t, lease)
	token, err := lease.Detach()
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := other.Adopt(t.Context(), name, token)
	if err != nil {
		t.Fatal(err)
	}
	if got := adopted.Token(); got == token || locktest.Fence(t, adopted) <= fence {
		t.Errorf("Token() = %q after %q, Fence() = %d after %d, want a new token and a greater fence", got, token, locktest.Fence(t, adopted), fence)
	}
	want := slices.Sorted(slices.Values(slices.Concat(permitsOf(one, 1), permitsOf(adopted, 3))))
	if got := slices.Sorted(slices.Values(members(t, s, name))); !slices.Equal(got, want) {
		t.Errorf("permits = %q, want %q", got, want)
	}
	if _, err := locks.Adopt(t.Context(), name, token); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Adopt() again = %v, want ErrLost", err)
	}
	if err := adopted.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	w := wait(t.Context(), locks.NewMultiPermitLock(name, 3))
	inQueue(t, s, name, 1)
	locktest.Release(t, adopted)
	locktest.Release(t, w.got(t))
	locktest.Release(t, one)
}

// TestForceRelease: an operator takes all permits of the hold that Inspect saw, and no other's. They go to the waiter.
func TestForceRelease(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks := open(t, s, 3, patient)
	longer := patient
	longer.TTL *= 2
	stuck, other := try(t, locks, name, 2), try(t, open(t, s, 3, longer), name, 1)
	seen, err := locks.Inspect(t.Context(), name)
	if err != nil || seen.Token != stuck.Token() {
		t.Fatalf("Inspect() = %+v, %v, want the hold that ends first", seen, err)
	}
	w := wait(t.Context(), locks.NewMultiPermitLock(name, 2))
	inQueue(t, s, name, 1)
	if err := locks.ForceRelease(t.Context(), seen); err != nil {
		t.Errorf("ForceRelease() = %v, want nil", err)
	}
	next := w.got(t)
	if err := locks.ForceRelease(t.Context(), seen); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("ForceRelease() again = %v, want ErrLost", err)
	}
	if err := stuck.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Extend() of who was released by force = %v, want ErrLost", err)
	}
	locktest.Release(t, next)
	locktest.Release(t, other)
}

func TestFencesExpire(t *testing.T) {
	locktest.FencesExpire(t, func(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy { return open(t, s, 1, o) })
}

// TestFencesOfSeveral: each hold has a number of its own, greater than those before, also by a direct grant.
func TestFencesOfSeveral(t *testing.T) {
	s, name := redistest.Shared(t), locktest.Unique(t)
	locks := open(t, s, 3, patient)
	var last uint64
	rises := func(l strategy.Lease) {
		t.Helper()
		if f := locktest.Fence(t, l); f <= last {
			t.Errorf("Fence() = %d after %d", f, last)
		}
		last = locktest.Fence(t, l)
	}
	a, b := try(t, locks, name, 2), try(t, locks, name, 1)
	rises(a)
	rises(b)
	w := wait(t.Context(), locks.NewLock(name))
	inQueue(t, s, name, 1)
	locktest.Release(t, b)
	rises(w.got(t))
	locktest.Release(t, w.lease)
	locktest.Release(t, a)
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, 2, patient)
	for range 2 { // dials, and loads the scripts
		warm := try(t, locks, "warm", 1)
		if err := warm.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		locktest.Release(t, warm)
		if err := locks.SetPermits(t.Context(), "warm", 0); err != nil {
			t.Fatal(err)
		}
	}
	count := func(what string, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, 1, f) }
	var lease strategy.Lease
	count("Acquire of two permits", func() error { lease = try(t, locks, "counted", 2); return nil })
	count("a held TryAcquire", func() error { return locktest.Held(t, locks, "counted") })
	count("Extend", func() error { return lease.Extend(t.Context()) })
	count("Release", func() error { return lease.Release(t.Context()) })
	count("SetPermits", func() error { return locks.SetPermits(t.Context(), "counted", 2) })
	count("SetPermits again", func() error { return locks.SetPermits(t.Context(), "counted", 0) })
}

// TestRequestsOfWaiters: a process that waits asks, subscribes and asks for a place. Then it has its permits without
// another request, however many wait and however many permits they want. Several who wait in one process need one
// subscription, and ask no more often than if each were a process.
func TestRequestsOfWaiters(t *testing.T) {
	s := redistest.Shared(t)
	for _, c := range []struct{ waiters, processes int }{{1, 1}, {12, 12}, {12, 1}} {
		var mu sync.Mutex
		asked := map[string]int{}
		counting := conformance.GateNode(locktest.Node(t, s), func(request string, send func()) {
			what, _, _ := strings.Cut(request, " lock:") // SUBSCRIBE of which channel does not matter
			mu.Lock()
			asked[what]++
			mu.Unlock()
			send()
		})
		verdict.Conclusive(t, func() verdict.Slow {
			name := locktest.Unique(t)
			holder := try(t, open(t, s, 2, patient), name, 2)
			var processes []strategy.Semaphore
			for range c.processes {
				locks, err := semaphore.New(counting, 2, patient)
				processes = append(processes, opened(t, locks, err))
			}
			var waiters []*waiter
			for i := range c.waiters {
				waiters = append(waiters, wait(t.Context(), processes[i%c.processes].NewMultiPermitLock(name, 1+i%2)))
			}
			if c.processes == 1 {
				inLine(t, s, name, waiters...)
			}
			inQueue(t, s, name, c.processes)
			began := time.Now()
			var releases sync.WaitGroup
			for _, w := range waiters {
				releases.Go(func() {
					if <-w.done; w.err == nil {
						w.lease.Release(t.Context()) //nolint:errcheck // counted
					}
				})
			}
			locktest.Release(t, holder)
			releases.Wait()
			quiet(t, s, name)
			mu.Lock()
			defer mu.Unlock()
			acquires, subscribes, ends := asked["script acquire"]+asked["script pass"], asked["SUBSCRIBE"], asked["script release"]+asked["script pass"]
			all := fmt.Sprint(asked)
			clear(asked)
			asExpected := subscribes == c.processes && acquires <= 2*c.waiters && ends <= c.waiters
			if c.processes == c.waiters {
				asExpected = asExpected && acquires == 2*c.waiters && ends == c.waiters
			}
			if took := time.Since(began); !asExpected && took > driver.SuccessorTTL(time.Hour) {
				return verdict.Slowf("a direct grant lasts for a second, and all of them took %v", took)
			}
			if !asExpected {
				t.Errorf("requests of %d waiters in %d processes = %s, want %d to subscribe, %d to acquire and %d to release; no more if there is one process",
					c.waiters, c.processes, all, c.processes, 2*c.waiters, c.waiters)
			}
			return ""
		})
	}
}

// TestAllocations: its lease, its token, its keys and its claims.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), 5, strategy.Options{}), 12)
}

// TestBulk: renewals go a hundred to a request, each with an answer of its own, also where several are holds of one
// lock, and of several permits.
func TestBulk(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	p := semaphore.On(locktest.Node(t, s), 10)
	claims := make([]driver.Claim, 250)
	for i := range claims {
		name := strconv.Itoa(i / 2) // two holds each
		c := driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: "t" + strconv.Itoa(i), TTL: 20 * time.Second, Share: int32(i % 3), Due: time.Now().Add(time.Minute)}
		g, err := p.Acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		g.Start = time.Now()
		c.Grant, c.TTL = g, time.Minute
		claims[i] = c
	}
	deleted, ended, spoiled := 7, 107, 207
	redistest.Do(t, s, "DEL", claims[deleted].Key)
	redistest.Do(t, s, "ZADD", claims[ended].Key, 1000, "permit:"+claims[ended].Token)
	redistest.Do(t, s, "DEL", claims[spoiled].Key)
	redistest.Do(t, s, "RPUSH", claims[spoiled].Key, "no lock")

	answers, scripts := locktest.RenewAll(t, s, p, claims)
	if scripts != 3 {
		t.Errorf("requests for %d renewals = %d, want 3", len(claims), scripts)
	}
	for i, err := range answers {
		switch i {
		case deleted, deleted - 1, ended:
			if !errors.Is(err, strategy.ErrLost) {
				t.Errorf("renewal of a deleted one = %v, want ErrLost", err)
			}
		case spoiled, spoiled - 1:
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("renewal of a list = %v, want ErrRefused and WRONGTYPE", err)
			}
		default:
			if err != nil {
				t.Errorf("renewal %d = %v, want nil", i, err)
			}
			if ms := redistest.Do(t, s, "PTTL", claims[i].Key).(int64); ms < 30_000 {
				t.Errorf("PTTL of renewal %d = %d ms, want about a minute", i, ms)
			}
		}
	}
}

// TestCheck: it looks at the server, and changes nothing.
func TestCheck(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	for _, w := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll, strategy.WaitNotification, strategy.WaitQueue} {
		if err := open(t, s, 5, strategy.Options{Wait: w}).Check(t.Context()); err != nil {
			t.Errorf("Check() of who waits by %v = %v, want nil", w, err)
		}
	}
	if n := redistest.Do(t, s, "DBSIZE"); n != int64(0) {
		t.Errorf("DBSIZE = %v, want 0: Check changes nothing", n)
	}
	locks := open(t, s, 5, strategy.Options{})
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Skipf("NOT PROVEN: that Check sees a replica: %v", err)
	}
	if err := locks.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("Check() of a replica = %v, want an error that says primary", err)
	}
}

// Commands of the scripts: those without which there is no semaphore, and those that its queue needs.
var (
	vital   = []string{"zrange", "zadd", "zrem", "zremrangebyscore", "zscore", "zcount", "zcard", "pttl", "pexpireat", "time", "get", "set"}
	queuing = []string{"lindex", "lpop", "lpos", "lrem", "rpush", "pexpire", "publish"}
)

// TestCheckAsksForWhatIsUsed: which rights are missing depends on how waiters wait.
func TestCheckAsksForWhatIsUsed(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	type user struct {
		rules  []any
		wait   strategy.Wait
		wanted string // what the error says; empty: Check returns nil
	}
	var users []user
	for _, command := range vital {
		for _, w := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll} {
			users = append(users, user{[]any{"-" + command}, w, "allow +" + command})
		}
	}
	for _, command := range queuing {
		users = append(users, user{[]any{"-" + command}, strategy.WaitQueue, "allow +" + command}, user{[]any{"-" + command}, strategy.WaitBest, ""})
		if command != "publish" {
			users = append(users, user{[]any{"-" + command}, strategy.WaitNotification, ""})
		}
	}
	own := []any{"resetkeys", "~lock:{*}", "~lock:{*}:waiters", "~lock:{*}:fence"}
	users = append(users,
		user{[]any{"-publish"}, strategy.WaitNotification, "allow +publish"},
		user{[]any{"-subscribe"}, strategy.WaitNotification, "+subscribe"},
		user{[]any{"-subscribe"}, strategy.WaitQueue, "+subscribe"},
		user{[]any{"-subscribe"}, strategy.WaitPoll, ""},
		user{[]any{"resetchannels", "&lock:{*}:free"}, strategy.WaitNotification, ""},
		user{[]any{"resetchannels", "&lock:{*}:free"}, strategy.WaitQueue, ":waiters:"},
		user{[]any{"resetchannels", "&lock:{*}:waiters:*"}, strategy.WaitQueue, ""},
		user{[]any{"resetchannels", "&lock:{*}:waiters:*"}, strategy.WaitNotification, ":free"},
		user{own, strategy.WaitQueue, ":permits"},
		user{append(slices.Clone(own), "~lock:{*}:permits"), strategy.WaitQueue, ""},
	)
	for i, u := range users {
		pool := locktest.As(t, s, fmt.Sprint("user-", i), "which rights Check asks for", u.rules...)
		locks, err := semaphore.New(redigonode.New(pool), 5, strategy.Options{Wait: u.wait})
		err = opened(t, locks, err).Check(t.Context())
		if u.wanted == "" && err != nil || u.wanted != "" && (!errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), u.wanted)) {
			t.Errorf("Check() of a user with %v, who waits by %v = %v, want an error only with, and about, %q", u.rules, u.wait, err, u.wanted)
		}
	}
}

// TestLeastPermissions: a user who may touch the semaphore's own keys and channels, and nothing else, can do
// everything.
func TestLeastPermissions(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := locktest.As(t, s, "narrow", "that the lock's own keys are all that is needed", "resetkeys", "~job:*", "~{job:*", "resetchannels", "&{job:*")
	o := patient
	o.Key, o.Wait = func(n string) string { return "job:" + n }, strategy.WaitQueue
	locks, err := semaphore.New(redigonode.New(pool), 2, o)
	opened(t, locks, err)
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	lease := try(t, locks, "a", 2)
	if info, err := locks.Inspect(t.Context(), "a"); err != nil || info.Token != lease.Token() {
		t.Errorf("Inspect() = %+v, %v, want the lease's token", info, err)
	}
	w := wait(t.Context(), locks.NewLock("a"))
	verdict.Eventually(t, "the waiter is in the queue", func() bool { return redistest.Do(t, s, "LLEN", "{job:a}:waiters:") == int64(1) })
	if err := locks.SetPermits(t.Context(), "a", 3); err != nil {
		t.Errorf("SetPermits() = %v, want nil", err)
	}
	locktest.Release(t, w.got(t))
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	locktest.Release(t, lease)
}

// TestForbidden: whichever command an ACL forbids, no permit is taken that could not be given back. A request that is
// refused leaves the holds as they were, a release that is not refused has ended its hold, and no key loses its expiry.
func TestForbidden(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	all := semaphore.On(locktest.Node(t, s), 3)
	for _, command := range append(slices.Clone(vital), queuing...) {
		t.Run(command, func(t *testing.T) {
			bound := semaphore.On(locktest.NodeOn(t, locktest.As(t, s, "no-"+command, "that permits are safe from ACLs", "-"+command)), 3)
			key := strategy.DefaultKey(command)
			claim := func(token string, permits int32) driver.Claim {
				return driver.Claim{Name: command, Key: key, Token: token, TTL: time.Hour, Share: permits, Line: "line of " + token, Due: time.Now().Add(time.Minute)}
			}
			taken := func() int64 { return redistest.Do(t, s, "ZCOUNT", key, 2000, "+inf").(int64) } // what has lapsed is from 1970
			sound := func(what string, before, change int64, err error) {
				t.Helper()
				switch n := taken(); {
				case err != nil && !errors.Is(err, strategy.ErrRefused):
					t.Errorf("%s = %v, want nil or ErrRefused", what, err)
				case err != nil && n != before, err == nil && n != before+change:
					t.Errorf("permits after %s = %d, and it returned %v; before there were %d", what, n, err, before)
				}
				if ttl := redistest.Do(t, s, "PTTL", key); ttl == int64(-1) {
					t.Errorf("the key has no expiry after %s", what)
				}
			}
			_, err := bound.Acquire(t.Context(), claim("free", 2))
			sound("Acquire", 0, 2, err)
			if needed := slices.Contains(vital, command) && command != "zremrangebyscore" && command != "zcount"; needed != errors.Is(err, strategy.ErrRefused) {
				t.Errorf("Acquire() = %v, want ErrRefused if nothing goes without %s", err, command)
			}
			redistest.Do(t, s, "DEL", key)
			for _, token := range []string{"old", "mine"} {
				if _, err := all.Acquire(t.Context(), claim(token, 1)); err != nil {
					t.Fatal(err)
				}
			}
			_, err = bound.Extend(t.Context(), claim("mine", 0))
			sound("Extend", 2, 0, err)
			_, err = bound.Adopt(t.Context(), claim("adopted", 0), "old")
			sound("Adopt", 2, 0, err)
			_, err = bound.Release(t.Context(), claim("mine", 1))
			sound("Release", 2, -1, err)
			redistest.Do(t, s, "ZADD", key, 1000, "permit:lapsed")
			before := taken()
			_, err = bound.Acquire(t.Context(), claim("late", 1))
			sound("Acquire when one has lapsed", before, 1, err)
			redistest.Do(t, s, "DEL", key)
		})
	}
}

// TestForbiddenToListen: a user without channels waits, too: he asks again and again. His release stands.
func TestForbiddenToListen(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := locktest.As(t, s, "mute", "that a user without channels can release", "resetchannels")
	asked := make(chan struct{}, 100)
	o := patient
	o.Observe = func(e strategy.Event) {
		if e.Kind == strategy.EventHeld {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}
	locks, err := semaphore.New(redigonode.New(pool), 1, o)
	opened(t, locks, err)
	lease := try(t, locks, "a", 1)
	w := wait(t.Context(), locks.NewLock("a"))
	for range 3 {
		select {
		case <-asked:
		case <-w.done:
			t.Fatalf("Acquire() = %v while the lock is held, want it to wait", w.err)
		}
	}
	locktest.Release(t, lease)
	locktest.Release(t, w.got(t))
	if n := redistest.Do(t, s, "EXISTS", "lock:{a}", "lock:{a}:waiters"); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0", n)
	}
}

// TestChannels: a line hears of direct grants to it, and everybody else of releases.
func TestChannels(t *testing.T) {
	for line, want := range map[string]string{"": "SUBSCRIBE {a}:free:", "line": "SUBSCRIBE {a}:waiters::line"} {
		n, c := &locktest.Dialog{Replies: []any{nil}}, locktest.AClaim()
		c.Line = line
		stop, err := semaphore.On(n, 5).(driver.Sharer).Watch(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if stop(); len(n.Asked) != 1 || n.Asked[0] != want {
			t.Errorf("Watch() for the line %q asks %q, want %q", line, n.Asked, want)
		}
	}
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	type doing = func(driver.Node) (any, error)
	talk := func(name string, do doing, asked string, reply, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Asked: []string{asked}, Replies: []any{reply}, Got: got, Err: err}
	}
	with := func(change func(*driver.Claim)) driver.Claim {
		c := locktest.AClaim()
		change(&c)
		return c
	}
	acquire := func(c driver.Claim) doing {
		return func(n driver.Node) (any, error) { return semaphore.On(n, 5).Acquire(t.Context(), c) }
	}
	release := func(c driver.Claim) doing {
		return func(n driver.Node) (any, error) { return nil, locktest.Err(semaphore.On(n, 5).Release(t.Context(), c)) }
	}
	plain := with(func(*driver.Claim) {})
	queues := with(func(c *driver.Claim) { c.Line = "line" })
	again := with(func(c *driver.Claim) { c.Line, c.Repeated = "line", true })
	unheard := with(func(c *driver.Claim) { c.Repeated = true })
	heavy := with(func(c *driver.Claim) { c.Line, c.Share = "line", 3 })
	fences := with(func(c *driver.Claim) { c.Fences = 16 })
	holds := with(func(c *driver.Claim) { c.Holds = 3 })
	passesFences := with(func(c *driver.Claim) { c.Line, c.Fences = "line", 16 })
	short := with(func(c *driver.Claim) { c.Line, c.TTL, c.FenceTTL = "line", 500*time.Millisecond, 0 })
	undo := func(c driver.Claim) doing {
		return func(n driver.Node) (any, error) { return nil, semaphore.On(n, 5).Undo(t.Context(), c) }
	}
	pass := func(next driver.Claim) doing {
		next.Token = "next"
		return func(n driver.Node) (any, error) {
			return semaphore.On(n, 5).(driver.Sharer).Pass(t.Context(), plain, next)
		}
	}
	force := func(n driver.Node) (any, error) {
		return nil, locktest.Err(semaphore.On(n, 5).ForceRelease(t.Context(), plain))
	}
	extend := func(n driver.Node) (any, error) { return semaphore.On(n, 5).Extend(t.Context(), plain) }
	adopt := func(n driver.Node) (any, error) {
		return semaphore.On(n, 5).Adopt(t.Context(), plain, "from")
	}
	inspect := func(n driver.Node) (any, error) {
		return semaphore.On(n, 5).Inspect(t.Context(), plain)
	}
	set := func(permits int) doing {
		return func(n driver.Node) (any, error) {
			locks, err := semaphore.New(n, 5, strategy.Options{Key: func(name string) string { return name }})
			if err != nil {
				return nil, err
			}
			return nil, locks.SetPermits(t.Context(), "a", permits)
		}
	}
	const keys = "a {a}:waiters: {a}:fence: {a}:permits:"
	other, none := []byte("other"), driver.Grant{}
	granted, held := driver.Grant{Fence: 7}, &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second, Taken: 4, Permits: 5}
	lost := &strategy.LostError{Name: "a"}
	place := driver.Grant{ServerTime: 3*time.Second + 5*time.Microsecond, Place: 2, Kept: true}
	locktest.Talks(t,
		talk("acquire", acquire(plain), "acquire "+keys+" 5 86400000 60000 t 1   1", int64(7), granted, nil),
		talk("acquire a held one", acquire(plain), "acquire "+keys+" 5 86400000 60000 t 1   1", []any{other, int64(1000), int64(4), int64(5)}, none, held),
		talk("queue", acquire(queues), "acquire "+keys+" 5 86400000 60000 t 1 line 1000 1 t  1", []any{other, int64(1000), int64(4), int64(5), int64(3), int64(5), int64(2), int64(1)}, place, held),
		talk("queue again", acquire(again), "acquire "+keys+" 5 86400000 60000 t 1 line 1000 1 t 1 1", int64(7), granted, nil),
		talk("ask again without a line", acquire(unheard), "acquire "+keys+" 5 86400000 60000 t 1   1", int64(7), granted, nil),
		talk("acquire with fences", acquire(fences), "acquire "+keys+" 5 86400000 60000 t 1   1 16 1", []any{int64(7), int64(5), int64(1)}, driver.Grant{Fence: 7, Fences: 5, Holds: 1}, nil),
		talk("acquire with fences, and there is one", acquire(fences), "acquire "+keys+" 5 86400000 60000 t 1   1 16 1", int64(7), granted, nil),
		talk("acquire several holds", acquire(holds), "acquire "+keys+" 5 86400000 60000 t 1   1 1 3", []any{int64(7), int64(1), int64(2)}, driver.Grant{Fence: 7, Fences: 1, Holds: 2}, nil),
		talk("acquire several holds, and get one", acquire(holds), "acquire "+keys+" 5 86400000 60000 t 1   1 1 3", int64(7), granted, nil),
		talk("undo several holds", undo(holds), "release "+keys+" 5 86400000 t  {a}:free: 3", int64(1), nil, nil),
		talk("acquire several", acquire(heavy), "acquire "+keys+" 5 86400000 60000 t 3 line 1000 3 t  1", int64(7), granted, nil),
		talk("acquire for half a second", acquire(short), "acquire "+keys+" 5 0 500 t 1 line 500 1 t  1", int64(7), granted, nil),
		talk("pass", pass(queues), "pass "+keys+" 5 86400000 60000 next 1 line 1000 1 next  t {a}:free:", int64(7), granted, nil),
		talk("pass, and it queues", pass(again), "pass "+keys+" 5 86400000 60000 next 1 line 1000 1 next 1 t {a}:free:", []any{other, int64(1000), int64(4), int64(5), int64(3), int64(5), int64(2), int64(1)}, place, held),
		talk("pass with fences", pass(passesFences), "pass "+keys+" 5 86400000 60000 next 1 line 1000 1 next  t {a}:free: 16", []any{int64(7), int64(16), int64(1)}, driver.Grant{Fence: 7, Fences: 16, Holds: 1}, nil),
		talk("pass several", pass(heavy), "pass "+keys+" 5 86400000 60000 next 3 line 1000 3 next  t {a}:free:", int64(7), granted, nil),
		talk("pass what is gone", pass(queues), "pass "+keys+" 5 86400000 60000 next 1 line 1000 1 next  t {a}:free:", nil, none, lost),
		talk("extend", extend, "extend a t 60000", int64(1), none, nil),
		talk("extend what is gone", extend, "extend a t 60000", []any{nil}, none, lost),
		talk("release", release(plain), "release "+keys+" 5 86400000 t  {a}:free:", int64(1), nil, nil),
		talk("release who was in the queue", release(heavy), "release "+keys+" 5 86400000 t  {a}:free:", int64(1), nil, nil),
		talk("release what is gone", release(plain), "release "+keys+" 5 86400000 t  {a}:free:", nil, nil, lost),
		talk("release by force", force, "release "+keys+" 5 86400000 t  {a}:free:", int64(1), nil, nil),
		talk("undo", undo(heavy), "release "+keys+" 5 86400000 t line 1000 3 t {a}:free:", int64(1), nil, nil),
		talk("undo what is not there", undo(queues), "release "+keys+" 5 86400000 t line 1000 1 t {a}:free:", nil, nil, nil),
		talk("adopt", adopt, "adopt "+keys+" 5 86400000 from 60000 t", int64(7), granted, nil),
		talk("adopt what is gone", adopt, "adopt "+keys+" 5 86400000 from 60000 t", nil, none, lost),
		talk("inspect", inspect, "inspect a {a}:fence: {a}:waiters:", []any{int64(3), other, int64(1000), []byte("7"), []any{[]byte("first"), nil, []byte("second")}},
			strategy.Info{Held: true, Token: "other", Owner: "other", Holds: 3, TTL: time.Second, Fence: 7, Queue: []string{"first", "second"}}, nil),
		talk("inspect one that is free", inspect, "inspect a {a}:fence: {a}:waiters:", []any{int64(0), nil, int64(0), []byte("7"), []any{}}, strategy.Info{Fence: 7}, nil),
		talk("inspect one that nobody has had", inspect, "inspect a {a}:fence: {a}:waiters:", []any{int64(0), nil, int64(0), nil, []any{}}, strategy.Info{}, nil),
		talk("inspect one that ends now", inspect, "inspect a {a}:fence: {a}:waiters:", []any{int64(1), other, int64(0), nil, []any{}},
			strategy.Info{Held: true, Token: "other", Owner: "other", Holds: 1, TTL: time.Millisecond}, nil),
		talk("set", set(7), "limit "+keys+" 5 86400000 7 {a}:free:", int64(1), nil, nil),
		talk("set no longer", set(0), "limit "+keys+" 5 86400000 0 {a}:free:", int64(1), nil, nil),
	)
}

// TestProof: the first grant of a lock has the user's rights proven, and so has the first after a release that failed.
func TestProof(t *testing.T) {
	c := locktest.AClaim()
	n := &locktest.Dialog{Replies: []any{int64(7), int64(7), errors.New("NOPERM"), int64(7)}}
	p := semaphore.On(n, 5)
	for range 2 {
		if _, err := p.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Release(t.Context(), c); err == nil {
		t.Fatal("Release() = nil, want the server's error")
	}
	if _, err := p.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	const acquires = "acquire a {a}:waiters: {a}:fence: {a}:permits: 5 86400000 60000 t 1"
	const proves = acquires + "   1"
	want := []string{proves, acquires, "release a {a}:waiters: {a}:fence: {a}:permits: 5 86400000 t  {a}:free:", proves}
	if !slices.Equal(n.Asked, want) {
		t.Errorf("asked %q, want %q", n.Asked, want)
	}
}

// TestGarbage: what no script returns is neither a grant, nor held, nor lost: nobody knows.
func TestGarbage(t *testing.T) {
	text, n, c := []byte("x"), int64(9), locktest.AClaim()
	on := func(reply any) driver.Protocol { return semaphore.On(locktest.OneReply{Reply: reply}, 5) }
	unknown := func(what string, reply any, err error) {
		t.Helper()
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("%s on %#v = %v, want ErrUnknown", what, reply, err)
		}
	}
	for _, reply := range []any{
		nil, int64(-1), int64(0), []byte("OK"), "text", []any{}, []any{n}, []any{text}, []any{text, text}, []any{n, n}, []any{text, n, n, n, n},
		[]any{text, n, nil, n}, []any{text, n, n, nil}, []any{nil, n, n, n}, []any{text, n, n, n, n, n},
		[]any{text, n, n, n, nil, n, n, n}, []any{text, n, n, n, n, int64(-1), n, n}, []any{text, n, n, n, n, n, nil, n}, []any{text, n, n, n, n, n, n, nil},
		[]any{nil, n, n, n, n, n, n, n}, []any{text, n, nil, n, n, n, n, n},
	} {
		_, err := on(reply).Acquire(t.Context(), c)
		unknown("Acquire()", reply, err)
	}
	for _, reply := range []any{int64(0), []byte("OK"), []any{}, []any{n, n}, []any{text, n, n, n, n}} {
		_, err := on(reply).(driver.Sharer).Pass(t.Context(), c, c)
		unknown("Pass()", reply, err)
	}
	several := c
	several.Fences, several.Holds = 8, 4
	for _, reply := range []any{
		[]any{nil, n, n}, []any{text, int64(8), int64(1)}, []any{n, n, int64(1)}, []any{n, int64(0), int64(1)}, []any{n, int64(1), int64(5)},
		[]any{n, int64(8), int64(0)}, []any{n, nil, int64(1)}, []any{n, int64(8), nil}, []any{int64(0), int64(8), int64(1)},
	} {
		_, err := on(reply).Acquire(t.Context(), several)
		unknown("Acquire()", reply, err)
	}
	for _, reply := range []any{int64(2), int64(-1), []byte("OK"), []any{}, []any{int64(2)}, []any{int64(1), int64(1)}, []any{[]any{}}} {
		_, err := on(reply).Extend(t.Context(), c)
		unknown("Extend()", reply, err)
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}} {
		unknown("Release()", reply, locktest.Err(on(reply).Release(t.Context(), c)))
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}, "text"} {
		_, err := on(reply).Adopt(t.Context(), c, "from")
		unknown("Adopt()", reply, err)
	}
	none := []any{}
	for _, reply := range []any{
		nil, none, int64(1), []any{n, text, n, nil}, []any{nil, text, n, nil, none}, []any{n, nil, n, nil, none}, []any{n, text, nil, nil, none},
		[]any{n, text, n, nil, nil}, []any{text, text, n, nil, none}, []any{n, n, n, nil, none}, []any{n, text, n, nil, none, none},
	} {
		_, err := on(reply).Inspect(t.Context(), c)
		unknown("Inspect()", reply, err)
	}
	bad := []any{n, text, n, []byte("no number"), none}
	if info, err := on(bad).Inspect(t.Context(), c); !errors.Is(err, strategy.ErrRefused) || !reflect.DeepEqual(info, strategy.Info{}) {
		t.Errorf("Inspect() of a counter that is no number = %+v, %v, want ErrRefused", info, err)
	}
	for _, reply := range []any{nil, int64(0), []byte("1"), none} {
		locks, err := semaphore.New(locktest.OneReply{Reply: reply}, 5, strategy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		unknown("SetPermits()", reply, locks.SetPermits(t.Context(), "a", 1))
	}
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return semaphore.On(n, 5) })
}
