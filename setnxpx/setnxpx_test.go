package setnxpx_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) {
		n, err := node.New(s.Pool())
		if err != nil {
			panic(err)
		}
		url, yourNode = s.URL(), n
	})
}

// TestConformance holds both variants to what every lock must do, and confirms
// their weaknesses.
func TestConformance(t *testing.T) { subjects.Run(t, "setnxpx") }

func open(t *testing.T, s *redistest.Server, o strategy.Options, own ...setnxpx.Option) strategy.Strategy {
	t.Helper()
	locks, err := setnxpx.New(s.Pool(), o, own...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return locks
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		name    string
		own     []setnxpx.Option
		release int64
	}{
		{"compare", nil, 2},
		{"blind", []setnxpx.Option{setnxpx.BlindRelease()}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := redistest.Own(t, redistest.Config{})
			locks := open(t, s, strategy.Options{}, c.own...)
			lease, err := locks.NewLock("a").TryAcquire(t.Context()) // dials
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			count := func(what string, want int64, f func() error) {
				t.Helper()
				before, err := s.RoundTrips(t.Context())
				if err != nil {
					redistest.Skip(t, err, "how many round trips a lock costs")
				}
				if err := f(); err != nil {
					t.Errorf("%s = %v, want nil", what, err)
				}
				after, err := s.RoundTrips(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := after - before; got != want {
					t.Errorf("round trips of %s = %d, want %d", what, got, want)
				}
			}
			count("Acquire", 1, func() (err error) { lease, err = locks.NewLock("a").TryAcquire(t.Context()); return })
			count("a held TryAcquire", 2, func() error {
				if _, err := locks.NewLock("a").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
					return fmt.Errorf("%w, want ErrHeld", err)
				}
				return nil
			})
			count("Extend", 2, func() error { return lease.Extend(t.Context()) })
			count("Release", c.release, func() error { return lease.Release(t.Context()) })
		})
	}
}

// TestSharesTheWireFormat: luascript, and every library that uses SET NX PX with a
// token, excludes this lock and is excluded by it.
func TestSharesTheWireFormat(t *testing.T) {
	s := redistest.Shared(t)
	ours := open(t, s, strategy.Options{})
	theirs, err := luascript.New(s.Pool(), strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	name := fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
	for _, c := range []struct {
		who           string
		first, second strategy.Strategy
	}{
		{"luascript", ours, theirs},
		{"setnxpx", theirs, ours},
	} {
		lease, err := c.first.NewLock(name).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.second.NewLock(name).TryAcquire(t.Context())
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Holder != lease.Token() {
			t.Errorf("%s.TryAcquire() = %v, want a HeldError with the other's token", c.who, err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	}
	// As redis-py, redsync and the like do it.
	c := s.Pool().Get()
	defer c.Close()
	key := strategy.DefaultKey(name)
	if _, err := redis.String(c.Do("SET", key, "somebody", "NX", "PX", 60_000)); err != nil {
		t.Fatal(err)
	}
	defer c.Do("DEL", key)
	for _, locks := range []strategy.Strategy{ours, theirs} {
		if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
			t.Errorf("TryAcquire() = %v, want ErrHeld", err)
		}
	}
}

// TestBlindOnlyForItsOwnLease: who releases by force, or cleans up, compares.
func TestBlindOnlyForItsOwnLease(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{}, setnxpx.BlindRelease())
	name := fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
	first, err := locks.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen, err := locks.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := locks.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.ForceRelease(t.Context(), seen); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("ForceRelease() of an earlier holder = %v, want ErrLost", err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil: the successor was hit", err)
	}
}

func TestCheck(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	if err := s.Kill(t.Context()); err != nil {
		redistest.Skip(t, err, "that Check tells of a dead server")
	}
	if err := locks.Check(t.Context()); !errors.Is(err, strategy.ErrUnsent) && !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("Check() of a dead server = %v, want ErrUnsent or ErrUnknown", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := setnxpx.New(nil, strategy.Options{}); err == nil {
		t.Error("New(nil) = nil, want an error")
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("unused") }}
	_, err := setnxpx.New(pool, strategy.Options{Wait: strategy.WaitNotification})
	if !errors.Is(err, strategy.ErrUnsupported) {
		t.Errorf("New() with WaitNotification = %v, want ErrUnsupported: nothing is published", err)
	}
}

// TestWaitsByAsking: without notices, a waiter has the lock soon after it is free.
func TestWaitsByAsking(t *testing.T) {
	var lease strategy.Lease
	refused := 0
	locks := open(t, redistest.Shared(t), strategy.Options{TTL: time.Minute, Observe: func(e strategy.Event) {
		if e.Kind != strategy.EventHeld {
			return
		}
		if refused++; refused == 3 { // it waits, and goes on asking
			go lease.Release(context.Background())
		}
	}})
	name := fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
	lease, err := locks.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // generous, and far below the TTL
	defer cancel()
	next, err := locks.NewLock(name).Acquire(ctx)
	if err != nil {
		t.Fatalf("Acquire() = %v, want nil", err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// oneReply is a node that answers everything in the same way.
type oneReply struct {
	driver.Node
	reply any
}

func (n oneReply) Name() string  { return "fake" }
func (n oneReply) Ordered() bool { return true }
func (n oneReply) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return n.reply, nil
}

// TestGarbage: only OK to SET is a grant. What Redis never answers is unknown.
func TestGarbage(t *testing.T) {
	for _, reply := range []any{[]byte("QUEUED"), []byte{}, int64(0), int64(1), []any{}} {
		g, err := setnxpx.On(oneReply{reply: reply}).Acquire(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{int64(2), []byte("OK"), []any{}} {
		c := driver.Claim{Name: "a", Key: "a", Token: "t", Grant: driver.Grant{Start: time.Now()}}
		err := setnxpx.On(oneReply{reply: reply}, setnxpx.BlindRelease()).Release(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Release() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
}

// TestEmptyValue: a foreign lock whose token is empty is held, and can be released
// by force.
func TestEmptyValue(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{})
	theirs, err := luascript.New(s.Pool(), strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	c := s.Pool().Get()
	defer c.Close()
	for _, l := range []strategy.Strategy{locks, theirs} {
		name := fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
		if _, err := c.Do("SET", strategy.DefaultKey(name), ""); err != nil {
			t.Fatal(err)
		}
		if _, err := l.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
			t.Errorf("TryAcquire() = %v, want ErrHeld", err)
		}
		info, err := l.Inspect(t.Context(), name)
		if err != nil || !info.Held || info.Token != "" || info.TTL >= 0 {
			t.Errorf("Inspect() = %+v, %v, want held, without a token, without expiry", info, err)
		}
		if err := l.ForceRelease(t.Context(), info); err != nil {
			t.Errorf("ForceRelease() = %v, want nil", err)
		}
	}
}
