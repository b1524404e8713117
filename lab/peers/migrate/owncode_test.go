// What docs/use/migrating.md says of code of one's own: an object with Lock and Unlock, a home-made SETNX lock, a lock inside a
// library. It is played on a real server.
package migrate

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

var work func(context.Context) error

// A Storage locks by name, as a certmagic.Storage does.
type Storage struct {
	locks strategy.Strategy // with Options.MaxHold

	mu     sync.Mutex
	leases map[string][]strategy.Lease // made by the constructor
}

func (s *Storage) Lock(ctx context.Context, name string) error {
	lease, err := s.locks.NewLock(name).Acquire(ctx)
	if err != nil {
		return err
	}
	if err := lease.KeepAlive(0); err != nil {
		return errors.Join(err, lease.Release(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[name] = append(s.leases[name], lease)
	return nil
}

func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	held := s.leases[name]
	if len(held) == 0 {
		s.mu.Unlock()
		return strategy.ErrReleased
	}
	if s.leases[name] = held[1:]; len(held) == 1 {
		delete(s.leases, name)
	}
	s.mu.Unlock()
	return held[0].Release(ctx)
}

func TestTwoMethods(t *testing.T) {
	server := redistest.Shared(t)
	locks, err := luascript.New(redigonode.New(poolOf(t, server)), strategy.Options{TTL: time.Minute, MaxHold: time.Hour})
	nilError(t, "New", err)
	defer locks.Close()
	s, ctx, name := &Storage{locks: locks, leases: map[string][]strategy.Lease{}}, t.Context(), "cert/"+t.Name()
	nilError(t, "Lock", s.Lock(ctx, name))
	if _, err := locks.NewLock(name).TryAcquire(ctx); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("TryAcquire of another = %v, want ErrHeld", err)
	}
	nilError(t, "Unlock", s.Unlock(ctx, name))
	if err := s.Unlock(ctx, name); err != strategy.ErrReleased || len(s.leases) > 0 {
		t.Errorf("a second Unlock = %v, and %d leases are kept, want ErrReleased, and none", err, len(s.leases))
	}

	// The lock of the first is lost, and a second caller of the process gets it. The late Unlock leaves that alone.
	nilError(t, "Lock", s.Lock(ctx, name))
	redistest.Do(t, server, "DEL", strategy.DefaultKey(name))
	nilError(t, "Lock of a second caller", s.Lock(ctx, name))
	if err := s.Unlock(ctx, name); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Unlock of the first = %v, want ErrLost", err)
	}
	if info, err := locks.Inspect(ctx, name); err != nil || !info.Held {
		t.Errorf("Inspect = %+v, %v, want that the second caller still holds the lock", info, err)
	}
	nilError(t, "Unlock of the second", s.Unlock(ctx, name))
}

// TestConstantValue: an old lock that writes a constant and deletes blindly. Both sides exclude each other; a late DEL frees
// the other's lock.
func TestConstantValue(t *testing.T) {
	for _, name := range []string{"luascript", "setnxpx"} {
		t.Run(name, func(t *testing.T) {
			server, key := redistest.Shared(t), "own:"+t.Name()
			locks := opened(t, name, server)
			lock := locks.NewLock(key)
			old := func() any { return redistest.Do(t, server, "SET", key, "1", "NX", "PX", 60_000) }
			old()
			var held *strategy.HeldError
			if _, err := lock.TryAcquire(t.Context()); !errors.As(err, &held) || held.Holder != "1" || held.TTL <= 0 {
				t.Errorf("TryAcquire = %v, want held by 1, with its TTL", err)
			}
			redistest.Do(t, server, "DEL", key)
			lease, err := lock.TryAcquire(t.Context())
			nilError(t, "TryAcquire", err)
			if got := old(); got != nil {
				t.Errorf("SET NX while we hold the lock = %v, want nil", got)
			}
			redistest.Do(t, server, "DEL", key) // late
			if err := lease.Release(t.Context()); !errors.Is(err, strategy.ErrLost) {
				t.Errorf("Release = %v, want ErrLost", err)
			}

			redistest.Do(t, server, "SETNX", key, "1") // and the process dies before its EXPIRE
			if _, err := lock.TryAcquire(t.Context()); !errors.As(err, &held) || held.TTL >= 0 {
				t.Errorf("TryAcquire = %v, want held without expiry", err)
			}
			seen, err := locks.Inspect(t.Context(), key)
			nilError(t, "Inspect", err)
			nilError(t, "ForceRelease", locks.ForceRelease(t.Context(), seen))
		})
	}
}

// TestStamps: setnxgetset reads stamps in milliseconds, and no others. Its own value begins with one.
func TestStamps(t *testing.T) {
	server, key := redistest.Shared(t), "own:"+t.Name()
	locks := opened(t, "setnxgetset", server)
	lock, ctx := locks.NewLock(key), t.Context()
	now := time.Now()
	for unit, stamp := range map[string]int64{"s": now.Add(time.Minute).Unix(), "ns": now.Add(time.Minute).UnixNano()} {
		redistest.Do(t, server, "SET", key, stamp)
		if _, err := lock.TryAcquire(ctx); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "NOLOCK") {
			t.Errorf("TryAcquire of a stamp in %s = %v, want ErrRefused and NOLOCK", unit, err)
		}
	}
	redistest.Do(t, server, "SET", key, now.Add(time.Minute).UnixMilli())
	if _, err := lock.TryAcquire(ctx); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("TryAcquire of a stamp in ms that is ahead = %v, want ErrHeld", err)
	}
	redistest.Do(t, server, "SET", key, now.Add(-time.Minute).UnixMilli())
	var held *strategy.HeldError
	if _, err := opened(t, "luascript", server).NewLock(key).TryAcquire(ctx); !errors.As(err, &held) || held.TTL >= 0 {
		t.Errorf("luascript's TryAcquire of a stamp that has passed = %v, want held without expiry", err)
	}
	lease, err := lock.TryAcquire(ctx)
	nilError(t, "TryAcquire of a stamp in ms that has passed", err)
	value, err := redis.String(redistest.Do(t, server, "GET", key), nil)
	nilError(t, "GET", err)
	digits, token, _ := strings.Cut(value, ":")
	if ms, err := strconv.ParseInt(digits, 10, 64); err != nil || ms < now.UnixMilli() || token != lease.Token() {
		t.Errorf("the value is %q, want a stamp in ms, a colon and the token", value)
	}
	if _, err := strconv.ParseInt(value, 10, 64); err == nil {
		t.Error("a strict parser reads our value, want that it refuses it")
	}
	nilError(t, "Release", lease.Release(ctx))
}

func untilThen(ctx context.Context, locks strategy.Strategy, then time.Time) error {
	once, err := locks.With(func(o *strategy.Options) { o.TTL = time.Until(then).Truncate(time.Millisecond) })
	if err != nil {
		return err // then is more than 24 hours away, or past
	}
	lease, err := once.NewLock("report").TryAcquire(ctx)
	if err != nil {
		return err // ErrHeld: another process has it until then
	}
	if err := work(ctx); err != nil {
		return errors.Join(err, lease.Release(ctx)) // others may try
	}
	_, err = lease.Detach() // nobody renews or releases the lock: it ends then
	return err
}

func TestUntilThen(t *testing.T) {
	server, ctx := redistest.Shared(t), t.Context()
	locks := opened(t, "luascript", server)
	work = func(context.Context) error { return nil }
	then := time.Now().Add(20 * time.Hour)
	nilError(t, "untilThen", untilThen(ctx, locks, then))
	left := redistest.Do(t, server, "PTTL", "report").(int64)
	if at := time.Now().Add(time.Duration(left) * time.Millisecond); at.Sub(then).Abs() > 5*time.Second {
		t.Errorf("the key ends at %v, want %v", at, then)
	}
	if err := untilThen(ctx, locks, then); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("the second = %v, want ErrHeld", err)
	}
	redistest.Do(t, server, "DEL", "report")
	work = func(context.Context) error { return errors.New("no") }
	if err := untilThen(ctx, locks, then); err == nil || redistest.Do(t, server, "EXISTS", "report") != int64(0) {
		t.Errorf("of work that fails = %v, want its error, and a free lock", err)
	}
	if err := untilThen(ctx, locks, time.Now().Add(25*time.Hour)); err == nil || errors.Is(err, strategy.ErrHeld) {
		t.Errorf("until in 25 hours = %v, want an error of With", err)
	}
}

// Queue is what a library offers. It has a constructor that does not fail, and no Close.
type Queue struct {
	locks strategy.Strategy
	err   error
}

func NewQueue(pool *redis.Pool, hook func(name string, waited time.Duration, err error)) *Queue {
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{
		Key: func(name string) string { return "queue:{" + name + "}" }, // in the library's own part of the keys
		Observe: func(e strategy.Event) {
			switch e.Kind {
			case strategy.EventAcquired, strategy.EventMissed:
				hook(e.Name, e.Elapsed, e.Err)
			case strategy.EventLost:
				hook(e.Name, 0, e.Err)
			}
		},
	}, luascript.WithoutFences())
	return &Queue{locks, err} // the error is that of the first call
}

func (q *Queue) Drain(ctx context.Context, name string) error {
	if q.err != nil {
		return q.err
	}
	return strategy.Do(ctx, q.locks.NewLock(name), func(ctx context.Context, _ strategy.Lease) error {
		return work(ctx)
	})
}

// TestInsideALibrary: with the rights that the page lists, and without any channel.
func TestInsideALibrary(t *testing.T) {
	server := redistest.Shared(t)
	rights := "~queue:{*} +eval +evalsha +get +getex +set +del +pttl +pexpire"
	args := redis.Args{"SETUSER", "library", "reset", "on", ">secret"}.AddFlat(strings.Fields(rights))
	redistest.Do(t, server, "ACL", args...)
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", server.Addr(), redis.DialUsername("library"), redis.DialPassword("secret"))
	}}
	defer pool.Close()
	var mu sync.Mutex
	var heard []error
	hook := func(_ string, _ time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, err)
	}
	q := NewQueue(pool, hook)
	var inside atomic.Int32
	work = func(context.Context) error { inside.Add(1); return nil }
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := q.Drain(t.Context(), t.Name()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if inside.Load() != 2 || len(heard) != 2 || heard[0] != nil || heard[1] != nil {
		t.Errorf("the work was done %d times, and the hook has heard %v; want both twice, without an error", inside.Load(), heard)
	}
	if err := NewQueue(nil, hook).Drain(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("Drain without a pool = %v, want the error of New", err)
	}
}
