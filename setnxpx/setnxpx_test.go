// The strategy as its users see it: what it costs, and what it shares with other libraries.
package setnxpx_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, &yourNode) }

// TestConformance holds both variants to what every lock must do, and confirms
// their weaknesses.
func TestConformance(t *testing.T) { subjects.Run(t, "setnxpx") }

func open(t *testing.T, s *redistest.Server, o strategy.Options, options ...setnxpx.Option) strategy.Strategy {
	t.Helper()
	locks, err := setnxpx.New(redigonode.New(s.Pool()), o, options...)
	return locktest.Opened(t, locks, err)
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []setnxpx.Option
		release int64
	}{
		{"compare", nil, 2},
		{"blind", []setnxpx.Option{setnxpx.WithBlindRelease()}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := redistest.Own(t, redistest.Config{})
			locks := open(t, s, strategy.Options{}, c.options...)
			lease, err := locks.NewLock("a").TryAcquire(t.Context()) // dials
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			count := func(what string, want int64, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, want, f) }
			count("Acquire", 1, func() (err error) { lease, err = locks.NewLock("a").TryAcquire(t.Context()); return })
			count("a held TryAcquire", 3, func() error { return locktest.Held(t, locks, "a") })
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
	theirs, err := luascript.New(redigonode.New(s.Pool()), strategy.Options{})
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
	locks := open(t, s, strategy.Options{}, setnxpx.WithBlindRelease())
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
	_, err := setnxpx.New(redigonode.New(pool), strategy.Options{Wait: strategy.WaitNotification})
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

// TestGarbage: only OK to SET is a grant. The outcome of a request that Redis never answers is unknown.
func TestGarbage(t *testing.T) {
	for _, reply := range []any{[]byte("QUEUED"), []byte{}, int64(0), int64(1), []any{}} {
		g, err := setnxpx.On(locktest.OneReply{Reply: reply}).Acquire(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{int64(2), []byte("OK"), []any{}} {
		c := driver.Claim{Name: "a", Key: "a", Token: "t", Grant: driver.Grant{Start: time.Now()}}
		_, err := setnxpx.On(locktest.OneReply{Reply: reply}, setnxpx.WithBlindRelease()).Release(t.Context(), c)
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
	theirs, err := luascript.New(redigonode.New(s.Pool()), strategy.Options{})
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

// TestRequests: each request of each operation, and what becomes of its reply.
func TestRequests(t *testing.T) {
	type doing = func(driver.Node) (any, error)
	type replies = []any
	type asks = []string
	talk := func(name string, do doing, r replies, a asks, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Replies: r, Asked: a, Got: got, Err: err}
	}
	c := locktest.AClaim()
	acquire := func(n driver.Node) (any, error) { return setnxpx.On(n).Acquire(t.Context(), c) }
	extend := func(n driver.Node) (any, error) { return setnxpx.On(n).Extend(t.Context(), c) }
	release := func(n driver.Node) (any, error) { return nil, locktest.Err(setnxpx.On(n).Release(t.Context(), c)) }
	blind := func(n driver.Node) (any, error) {
		return nil, locktest.Err(setnxpx.On(n, setnxpx.WithBlindRelease()).Release(t.Context(), c))
	}
	adopt := func(n driver.Node) (any, error) {
		return setnxpx.On(n).Adopt(t.Context(), c, "from")
	}
	inspect := func(n driver.Node) (any, error) {
		return setnxpx.On(n).Inspect(t.Context(), c)
	}
	const set, extended, adopted = "SET a t NX PX 60000", "PEXPIRE a 60000", "SET a t XX PX 60000"
	const get, del, pttl = "GETEX a", "DEL a", "PTTL a"
	ok, mine, other := []byte("OK"), []byte("t"), []byte("other")
	lost, byOther := &strategy.LostError{Name: "a"}, &strategy.LostError{Name: "a", Holder: "other"}
	none := driver.Grant{}
	locktest.Talks(t,
		talk("acquire", acquire, replies{ok}, asks{set}, none, nil),
		talk("acquire a held one", acquire, replies{nil, other, int64(1000)}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second}),
		talk("acquire one without expiry", acquire, replies{nil, other, int64(-1)}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other", TTL: -1}),
		talk("acquire one that goes meanwhile", acquire, replies{nil, other, int64(-2)}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other"}),
		talk("acquire one whose TTL nobody knows", acquire, replies{nil, other, strategy.ErrRefused}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other"}),
		talk("acquire one whose TTL makes no sense", acquire, replies{nil, other, []byte("1")}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other"}),
		talk("acquire one that has gone meanwhile", acquire, replies{nil, nil}, asks{set, get}, none, &strategy.HeldError{Name: "a"}),
		talk("acquire what is no lock", acquire, replies{nil, strategy.ErrRefused}, asks{set, get}, none, strategy.ErrRefused),
		talk("acquire one whose holder nobody tells", acquire, replies{nil, strategy.ErrUnknown}, asks{set, get}, none, &strategy.HeldError{Name: "a"}),
		talk("extend", extend, replies{mine, int64(1)}, asks{get, extended}, none, nil),
		talk("extend another's", extend, replies{other}, asks{get}, none, byOther),
		talk("extend one that is gone", extend, replies{nil}, asks{get}, none, lost),
		talk("extend one that goes meanwhile", extend, replies{mine, int64(0)}, asks{get, extended}, none, lost),
		talk("adopt", adopt, replies{[]byte("from"), ok}, asks{get, adopted}, none, nil),
		talk("adopt one that goes meanwhile", adopt, replies{[]byte("from"), nil}, asks{get, adopted}, none, lost),
		talk("adopt another's", adopt, replies{mine}, asks{get}, none, &strategy.LostError{Name: "a", Holder: "t"}),
		talk("release", release, replies{mine, int64(1)}, asks{get, del}, nil, nil),
		talk("release another's", release, replies{other}, asks{get}, nil, byOther),
		talk("release one that is gone", release, replies{nil}, asks{get}, nil, lost),
		talk("release one that goes meanwhile", release, replies{mine, int64(0)}, asks{get, del}, nil, lost),
		talk("release blindly", blind, replies{int64(1)}, asks{del}, nil, nil),
		talk("release blindly one that is gone", blind, replies{int64(0)}, asks{del}, nil, lost),
		talk("inspect", inspect, replies{mine, int64(1000)}, asks{get, pttl}, strategy.Info{Held: true, Token: "t", TTL: time.Second}, nil),
		talk("inspect one that is free", inspect, replies{nil}, asks{get}, strategy.Info{}, nil),
		talk("inspect one that goes meanwhile", inspect, replies{mine, int64(-2)}, asks{get, pttl}, strategy.Info{}, nil),
	)
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return setnxpx.On(n) })
}

func TestGrantsOnceConfirmed(t *testing.T) {
	on := func(n driver.Node, a strategy.Acks) driver.Protocol {
		return setnxpx.On(n).(driver.Acknowledger).Acknowledged(a)
	}
	locktest.GrantsOnceConfirmed(t, on, "SET", []byte("OK"))
}
