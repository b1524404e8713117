// The strategy as its users see it: stamps, take-overs, and what it costs.
package setnxgetset_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, &yourNode) }

// TestConformance holds the variants to what every lock must do, and confirms their
// weaknesses.
func TestConformance(t *testing.T) { subjects.Run(t, "setnxgetset") }

// modes are the ways to take over, extend and release.
var modes = []struct {
	name    string
	options []setnxgetset.Option
}{
	{"getset", nil},
	{"watch", []setnxgetset.Option{setnxgetset.WithWatchTakeOver()}},
}

func open(t *testing.T, s *redistest.Server, o strategy.Options, options ...setnxgetset.Option) strategy.Strategy {
	t.Helper()
	locks, err := setnxgetset.New(redigonode.New(s.Pool()), o, options...)
	return locktest.Opened(t, locks, err)
}

// A clock can be put forward, so that stamps pass without anybody sleeping.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time             { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(d time.Duration)    { c.ahead.Add(int64(d)) }
func (c *clock) option() setnxgetset.Option { return setnxgetset.WithClock(c.now) }

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		name                      string
		options                   []setnxgetset.Option
		takeOver, extend, release int64
	}{
		{"getset", nil, 3, 2, 2},
		{"blind", []setnxgetset.Option{setnxgetset.WithBlindRelease()}, 3, 2, 1},
		{"watch", []setnxgetset.Option{setnxgetset.WithWatchTakeOver()}, 8, 6, 6},
		{"watch, blind", []setnxgetset.Option{setnxgetset.WithWatchTakeOver(), setnxgetset.WithBlindRelease()}, 8, 6, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := redistest.Own(t, redistest.Config{})
			var wall clock
			locks := open(t, s, strategy.Options{TTL: time.Minute}, append(c.options, wall.option())...)
			lease := locktest.Try(t, locks, "a") // dials
			if err := errors.Join(lease.Extend(t.Context()), lease.Release(t.Context())); err != nil {
				t.Fatal(err)
			}
			count := func(what string, want int64, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, want, f) }
			acquire := func() (err error) { lease, err = locks.NewLock("a").TryAcquire(t.Context()); return }
			count("Acquire", 1, acquire)
			count("a held TryAcquire", 2, func() error { return locktest.Held(t, locks, "a") })
			wall.forward(2 * time.Minute)
			count("taking over", c.takeOver, acquire)
			count("Extend", c.extend, func() error { return lease.Extend(t.Context()) })
			count("Release", c.release, func() error { return lease.Release(t.Context()) })
		})
	}
}

// TestManySeeItLapsed: fifty contenders, each as a process of its own would be, see
// one lapsed lock at once. One gets it.
func TestManySeeItLapsed(t *testing.T) {
	s := redistest.Shared(t)
	const contenders, rounds = 50, 20
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			pool := &redis.Pool{MaxIdle: contenders, Dial: func() (redis.Conn, error) { return redis.DialURL(s.URL()) }}
			defer pool.Close()
			all := make([]strategy.Strategy, contenders)
			for i := range all {
				locks, err := setnxgetset.New(redigonode.New(pool), strategy.Options{TTL: time.Minute, OpTimeout: 30 * time.Second}, m.options...)
				if err != nil {
					t.Fatal(err)
				}
				defer locks.Close()
				all[i] = locks
			}
			name := locktest.Unique(t)
			for round := range rounds {
				name := fmt.Sprintf("%s/%d", name, round)
				redistest.Do(t, s, "SET", strategy.DefaultKey(name), time.Now().Add(-time.Second).UnixMilli())
				start := make(chan struct{})
				type result struct {
					lease strategy.Lease
					err   error
				}
				results := make(chan result)
				for _, locks := range all {
					go func() {
						<-start
						lease, err := locks.NewLock(name).TryAcquire(t.Context())
						results <- result{lease, err}
					}()
				}
				close(start)
				winners := 0
				for range contenders {
					switch r := <-results; {
					case r.err == nil:
						winners++
					case !errors.Is(r.err, strategy.ErrHeld):
						t.Errorf("TryAcquire() = %v, want ErrHeld", r.err)
					}
				}
				if winners != 1 {
					t.Fatalf("round %d: %d took the lapsed lock over, want 1", round, winners)
				}
				redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
			}
		})
	}
}

// TestNoStamp: what is no stamp is an error to everybody, and is left alone. It is
// neither held, which would mean waiting for ever, nor lapsed.
func TestNoStamp(t *testing.T) {
	s := redistest.Shared(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var wall clock
			locks := open(t, s, strategy.Options{TTL: time.Minute}, append(m.options, wall.option())...)
			name := locktest.Unique(t)
			key := strategy.DefaultKey(name)
			now := time.Now()
			for _, value := range []string{
				"", ":", "token", ":token", "0", "0:token", "-1", "-1:token", "123", "123:token",
				fmt.Sprint(now.Unix()), fmt.Sprint(now.Add(time.Hour).Unix(), ":token"), // seconds
				fmt.Sprint(now.UnixMicro()), fmt.Sprint(now.UnixNano(), ":token"),
				fmt.Sprint("-", now.UnixMilli()), fmt.Sprint("+", now.UnixMilli()), fmt.Sprint(" ", now.UnixMilli()),
				fmt.Sprint(now.UnixMilli(), " "), fmt.Sprint(now.UnixMilli(), ":"), fmt.Sprint(now.UnixMilli(), ".5"),
				fmt.Sprintf("%q", fmt.Sprint(now.UnixMilli())), // as JSON, which ServiceStack's take-over writes
				fmt.Sprintf("0x%x", now.UnixMilli()), "1_700_000_000_000", "1e12", "１７０００００００００００",
				"9223372036854775807", "9223372036854775808:token", "18446744073709551616", strings.Repeat("9", 400),
				"9999999999999:token", fmt.Sprint(now.Add(2 * 366 * 24 * time.Hour).UnixMilli()), // for ever, nearly
				"\x00\xff", "5d2c8a8e-8c5c-4c3c-9f43-0d3b8c1f6f11", // the token of a SET NX PX
			} {
				lease := locktest.Try(t, locks, name)
				redistest.Do(t, s, "SET", key, value)
				_, tried := locks.NewLock(name).TryAcquire(t.Context())
				_, waited := locks.NewLock(name).Acquire(t.Context())
				_, inspected := locks.Inspect(t.Context(), name)
				_, adopted := locks.Adopt(t.Context(), name, value+"token")
				for what, err := range map[string]error{
					"TryAcquire": tried, "Acquire": waited, "Inspect": inspected, "Adopt": adopted,
					"Extend": lease.Extend(t.Context()), "Release": lease.Release(t.Context()),
				} {
					if !errors.Is(err, strategy.ErrRefused) || errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
						t.Errorf("%s() of %q = %v, want ErrRefused", what, value, err)
					}
					if value != "" && strings.Contains(err.Error(), fmt.Sprintf("%q", value)) {
						t.Errorf("%s() of %q = %v, want the value in short: it may be a token", what, value, err)
					}
				}
				if got, err := redis.String(redistest.Do(t, s, "GET", key), nil); got != value || err != nil {
					t.Errorf("the value is %q, want %q, left alone", got, value)
				}
				redistest.Do(t, s, "DEL", key)
			}
			lease := locktest.Try(t, locks, name)
			redistest.Do(t, s, "DEL", key)
			redistest.Do(t, s, "LPUSH", key, "not a lock")
			_, tried := locks.NewLock(name).TryAcquire(t.Context())
			for what, err := range map[string]error{"TryAcquire": tried, "Extend": lease.Extend(t.Context()), "Release": lease.Release(t.Context())} {
				if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("%s() of a list = %v, want ErrRefused and WRONGTYPE", what, err)
				}
			}
			redistest.Do(t, s, "DEL", key)
		})
	}
}

// TestDigitsOnly: the locks of clients that know no tokens are minded, taken over when
// they have lapsed, and freed by operators, who hit no successor.
func TestDigitsOnly(t *testing.T) {
	s := redistest.Shared(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var wall clock
			locks := open(t, s, strategy.Options{TTL: time.Minute}, append(m.options, wall.option())...)
			name := locktest.Unique(t)
			key := strategy.DefaultKey(name)
			stamp := time.Now().Add(time.Minute).UnixMilli()
			redistest.Do(t, s, "SET", key, stamp)

			_, err := locks.NewLock(name).TryAcquire(t.Context())
			var held *strategy.HeldError
			if !errors.As(err, &held) || held.Holder != fmt.Sprint(stamp) || held.TTL <= 0 || held.TTL > time.Minute {
				t.Errorf("TryAcquire() = %v, want a HeldError by the stamp, for up to a minute", err)
			}
			seen, err := locks.Inspect(t.Context(), name)
			if err != nil || !seen.Held || seen.Token != fmt.Sprint(stamp) || seen.TTL <= 0 || seen.TTL > time.Minute {
				t.Errorf("Inspect() = %+v, %v, want held by the stamp, for up to a minute", seen, err)
			}
			redistest.Do(t, s, "SET", key, stamp+1) // released, and taken by another
			if err := locks.ForceRelease(t.Context(), seen); !errors.Is(err, strategy.ErrLost) {
				t.Errorf("ForceRelease() of an earlier holder = %v, want ErrLost", err)
			}
			redistest.Do(t, s, "SET", key, stamp)
			if err := locks.ForceRelease(t.Context(), seen); err != nil {
				t.Errorf("ForceRelease() = %v, want nil", err)
			}

			redistest.Do(t, s, "SET", key, stamp)
			wall.forward(2 * time.Minute)
			if info, err := locks.Inspect(t.Context(), name); err != nil || info.Held || info.Token != "" {
				t.Errorf("Inspect() of a lapsed lock = %+v, %v, want not held", info, err)
			}
			if err := locktest.Try(t, locks, name).Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
			if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
				t.Error("the key is left after the release")
			}
		})
	}
}

// TestLapsedIsAnybodys: once its stamp has passed a lock is neither extended, nor
// adopted, nor deleted by its holder, for somebody may be about to take it over.
func TestLapsedIsAnybodys(t *testing.T) {
	s := redistest.Shared(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var wall clock
			locks := open(t, s, strategy.Options{TTL: time.Minute}, append(m.options, wall.option())...)
			name := locktest.Unique(t)
			key := strategy.DefaultKey(name)
			for _, c := range []struct {
				what string
				move func(strategy.Lease) error
			}{
				{"Extend", func(l strategy.Lease) error { return l.Extend(t.Context()) }},
				{"Release", func(l strategy.Lease) error { return l.Release(t.Context()) }},
				{"Adopt", func(l strategy.Lease) error {
					_, err := locks.Adopt(t.Context(), name, l.Token())
					return err
				}},
			} {
				lease := locktest.Try(t, locks, name)
				before, _ := redis.String(redistest.Do(t, s, "GET", key), nil)
				wall.forward(2 * time.Minute) // as when the machine was suspended, and its monotonic clock with it
				var lost *strategy.LostError
				if err := c.move(lease); !errors.As(err, &lost) || !lost.Lapsed {
					t.Errorf("%s() past the stamp = %v, want a LostError that says so", c.what, err)
				}
				if after, err := redis.String(redistest.Do(t, s, "GET", key), nil); err != nil || after != before {
					t.Errorf("after %s the value is %q, want %q", c.what, after, before)
				}
			}
			redistest.Do(t, s, "DEL", key)
		})
	}
}

// TestExtendNeverSetsBack: a renewal that was stuck on its way, or whose clock was set
// back, must not take from the holder what it relies on.
func TestExtendNeverSetsBack(t *testing.T) {
	s := redistest.Shared(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var wall clock
			locks := open(t, s, strategy.Options{TTL: time.Minute}, append(m.options, wall.option())...)
			name := locktest.Unique(t)
			lease := locktest.Try(t, locks, name)
			before := redistest.Do(t, s, "GET", strategy.DefaultKey(name)).([]byte)
			wall.forward(-time.Hour)
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend() = %v, want nil", err)
			}
			if after := redistest.Do(t, s, "GET", strategy.DefaultKey(name)).([]byte); string(after) != string(before) {
				t.Errorf("the value is %q, want %q as before", after, before)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
		})
	}
}

// TestClockNeverSet: a machine that thinks it is 1970 would stamp locks that everybody
// takes at once.
func TestClockNeverSet(t *testing.T) {
	locks := open(t, redistest.Shared(t), strategy.Options{}, setnxgetset.WithClock(func() time.Time { return time.Unix(100, 0) }))
	_, err := locks.NewLock(locktest.Unique(t)).TryAcquire(t.Context())
	if err == nil || !strings.Contains(err.Error(), "allowed") || errors.Is(err, strategy.ErrHeld) {
		t.Errorf("TryAcquire() = %v, want an error that says what is allowed", err)
	}
}

// TestBlindOnlyForItsOwnLease: who releases by force, or cleans up, compares.
func TestBlindOnlyForItsOwnLease(t *testing.T) {
	locks := open(t, redistest.Shared(t), strategy.Options{}, setnxgetset.WithBlindRelease())
	name := locktest.Unique(t)
	first := locktest.Try(t, locks, name)
	seen, err := locks.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := locktest.Try(t, locks, name)
	if err := locks.ForceRelease(t.Context(), seen); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("ForceRelease() of an earlier holder = %v, want ErrLost", err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil: the successor was hit", err)
	}
}

func TestCheck(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			s := redistest.Own(t, redistest.Config{})
			locks := open(t, s, strategy.Options{}, m.options...)
			if err := locks.Check(t.Context()); err != nil {
				t.Errorf("Check() = %v, want nil", err)
			}
			if err := s.Kill(t.Context()); err != nil {
				redistest.Skip(t, err, "that Check tells of a dead server")
			}
			if err := locks.Check(t.Context()); !errors.Is(err, strategy.ErrUnsent) && !errors.Is(err, strategy.ErrUnknown) {
				t.Errorf("Check() of a dead server = %v, want ErrUnsent or ErrUnknown", err)
			}
		})
	}
}

// TestCheckWithoutTransactions: where WATCH is forbidden, Check says so before the
// first take-over does.
func TestCheckWithoutTransactions(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("ACL", "SETUSER", "plain", "on", ">secret", "~*", "+@all", "-@transaction"); err != nil {
		t.Skipf("NOT PROVEN: that Check sees that transactions are forbidden: %v", err)
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername("plain"), redis.DialPassword("secret"))
	}}
	defer pool.Close()
	for _, m := range modes {
		locks, err := setnxgetset.New(redigonode.New(pool), strategy.Options{}, m.options...)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		err = locks.Check(t.Context())
		if forbidden := errors.Is(err, strategy.ErrRefused) && strings.Contains(err.Error(), "NOPERM"); forbidden != (m.name == "watch") {
			t.Errorf("Check() of %s = %v", m.name, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := setnxgetset.New(nil, strategy.Options{}); err == nil {
		t.Error("New(nil) = nil, want an error")
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("unused") }}
	if _, err := setnxgetset.New(redigonode.New(pool), strategy.Options{Wait: strategy.WaitNotification}); !errors.Is(err, strategy.ErrUnsupported) {
		t.Errorf("New() with WaitNotification = %v, want ErrUnsupported: nothing is published", err)
	}
	if _, err := setnxgetset.New(redigonode.New(pool), strategy.Options{}, setnxgetset.WithClock(nil)); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("New() with Clock(nil) = %v, want an error that says what is allowed", err)
	}
}

// TestBackoff: ServiceStack's ceilings.
func TestBackoff(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		-1: 200, 0: 200, 1: 200, 2: 400, 3: 800, 4: 1600, 5: 3200, 6: 6400, 7: 12800, 8: 20_000, 9: 20_000, 1 << 40: 20_000,
	} {
		if got := setnxgetset.Backoff(attempt); got != want*time.Millisecond {
			t.Errorf("Backoff(%d) = %v, want %v", attempt, got, want*time.Millisecond)
		}
	}
}

// TestGarbage: what Redis never answers is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	c := driver.Claim{Name: "a", Key: "a", Token: "t", TTL: time.Minute, Grant: driver.Grant{Start: time.Now()}}
	for _, reply := range []any{nil, []byte("OK"), []byte("QUEUED"), []byte{}, int64(2), []any{}, "text"} {
		g, err := setnxgetset.On(locktest.OneReply{Reply: reply}).Acquire(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{int64(2), []byte("QUEUED"), []any{}} {
		_, err := setnxgetset.On(locktest.OneReply{Reply: reply}, setnxgetset.WithBlindRelease()).Release(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Release() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	// A proxy that lets no transaction through, and says OK to everything.
	for _, reply := range []any{[]byte("OK"), []byte("QUEUED"), int64(1), nil, []any{[]byte("OK")}} {
		_, err := setnxgetset.On(locktest.OneReply{Reply: reply}, setnxgetset.WithWatchTakeOver()).Extend(t.Context(), c)
		if err == nil || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() on %#v = %v, want an error that is not ErrLost", reply, err)
		}
	}
}

// FuzzStamp: no value makes anything but a refusal, a holder for a year at most, or a
// lapsed lock of what it looks.
func FuzzStamp(f *testing.F) {
	for _, value := range []string{"", ":", "1700000000000", "1700000000000:t", "99999999999999999999:t", "-1:t", "1e12"} {
		f.Add(value, int64(1_700_000_000_000))
	}
	f.Add("9223372036854775807", int64(-1<<62))
	f.Fuzz(func(t *testing.T, value string, ms int64) {
		clock := setnxgetset.WithClock(func() time.Time { return time.UnixMilli(ms) })
		p := setnxgetset.On(locktest.OneReply{Reply: []byte(value)}, clock)
		info, err := p.Inspect(t.Context(), driver.Claim{Name: "a", Key: "a"})
		switch {
		case err != nil && !errors.Is(err, strategy.ErrRefused):
			t.Errorf("Inspect() of %q = %v, want ErrRefused", value, err)
		case info.Held && (info.TTL <= 0 || info.TTL > 366*24*time.Hour || info.Token == "" || !strings.HasSuffix(value, info.Token)):
			t.Errorf("Inspect() of %q at %d = %+v", value, ms, info)
		}
	})
}

// TestOutOfMemory: nothing is stamped when Redis is out of memory, and a holder can still
// release: but not in a transaction of Redis 7.0, which refuses each then, whatever is in it. Redis 8 and
// Valkey do not. A refused request has changed nothing.
func TestOutOfMemory(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			s := redistest.Own(t, redistest.Config{})
			locks := open(t, s, strategy.Options{TTL: time.Minute}, mode.options...)
			lease := locktest.Try(t, locks, "a")
			c := s.Pool().Get()
			defer c.Close()
			if _, err := c.Do("CONFIG", "SET", "maxmemory", 1); err != nil {
				t.Skipf("NOT PROVEN: what a Redis out of memory does to a lock: %v", err)
			}
			before, err := redis.String(c.Do("GET", "lock:{a}"))
			if err != nil {
				t.Fatal(err)
			}
			refused := func(call string, err error) {
				t.Helper()
				if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
					t.Errorf("%s = %v, want ErrRefused and OOM", call, err)
				}
			}
			_, err = locks.NewLock("b").TryAcquire(t.Context())
			refused("TryAcquire()", err)
			refused("Extend()", lease.Extend(t.Context()))
			if after, err := redis.String(c.Do("GET", "lock:{a}")); err != nil || after != before {
				t.Errorf("the key holds %q, %v, want %q: refused", after, err, before)
			}
			left := 0
			if err := lease.Release(t.Context()); mode.options != nil && strings.HasPrefix(s.Version(), "Redis 7.") {
				refused("Release()", err)
				left = 1
			} else if err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
			if n, err := redis.Int(c.Do("EXISTS", "lock:{a}")); err != nil || n != left {
				t.Errorf("EXISTS = %d, %v, want %d", n, err, left)
			}
			if _, err := c.Do("CONFIG", "SET", "maxmemory", 0); err != nil { // what is left can be undone
				t.Fatal(err)
			}
		})
	}
}

// unordered is a node that keeps no order among commands.
type unordered struct{ driver.Node }

func (unordered) Ordered() bool { return false }

// TestRequests: each request of each operation, and what becomes of its reply.
func TestRequests(t *testing.T) {
	type doing = func(driver.Node) (any, error)
	type replies = []any
	type asks = []string
	talk := func(name string, do doing, r replies, a asks, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Replies: r, Asked: a, Got: got, Err: err}
	}
	clock := setnxgetset.WithClock(func() time.Time { return time.UnixMilli(1_700_000_000_000) })
	c := locktest.AClaim()
	on := func(n driver.Node, options ...setnxgetset.Option) driver.Protocol {
		return setnxgetset.On(n, append(options, clock)...)
	}
	watch := setnxgetset.WithWatchTakeOver()
	acquire := func(n driver.Node) (any, error) { return on(n).Acquire(t.Context(), c) }
	watching := func(n driver.Node) (any, error) { return on(n, watch).Acquire(t.Context(), c) }
	extend := func(n driver.Node) (any, error) { return on(n).Extend(t.Context(), c) }
	extendWatching := func(n driver.Node) (any, error) { return on(n, watch).Extend(t.Context(), c) }
	release := func(n driver.Node) (any, error) { return nil, locktest.Err(on(n).Release(t.Context(), c)) }
	releaseWatching := func(n driver.Node) (any, error) { return nil, locktest.Err(on(n, watch).Release(t.Context(), c)) }
	blind := func(n driver.Node) (any, error) {
		return nil, locktest.Err(on(n, setnxgetset.WithBlindRelease()).Release(t.Context(), c))
	}
	undo := func(n driver.Node) (any, error) {
		return nil, on(n, setnxgetset.WithBlindRelease()).Undo(t.Context(), c)
	}
	undoUnordered := func(n driver.Node) (any, error) { return nil, on(unordered{n}).Undo(t.Context(), c) }
	adopt := func(n driver.Node) (any, error) { return on(n).Adopt(t.Context(), c, "other") }
	inspect := func(n driver.Node) (any, error) { return on(n).Inspect(t.Context(), c) }
	const (
		stamped                  = "1700000060000:t"
		setnx, getset, set       = "SETNX a " + stamped, "GETSET a " + stamped, "SET a " + stamped
		extended                 = "SET a " + stamped + " XX"
		get, del                 = "GETEX a", "DEL a"
		watches, multi, executes = "WATCH a", "MULTI", "EXEC"
	)
	one, none := int64(1), int64(0)
	ok, queued := []byte("OK"), []byte("QUEUED")
	mine, lapsed, stranger := []byte(stamped), []byte("1700000000000:t"), []byte("yesterday")
	longer := []byte("1700000099999:t")
	other, old := []byte("1700000000001:other"), []byte("1700000000000:other") // in its last millisecond, and over
	held := &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Millisecond}
	lost, byOther := &strategy.LostError{Name: "a"}, &strategy.LostError{Name: "a", Holder: "other"}
	no := driver.Grant{}
	locktest.Talks(t,
		talk("acquire", acquire, replies{one}, asks{setnx}, no, nil),
		talk("acquire a held one", acquire, replies{none, other}, asks{setnx, get}, no, held),
		talk("acquire one that has gone meanwhile", acquire, replies{none, nil}, asks{setnx, get}, no, &strategy.HeldError{Name: "a"}),
		talk("acquire what is no lock", acquire, replies{none, stranger}, asks{setnx, get}, no, strategy.ErrRefused),
		talk("take over", acquire, replies{none, old, old}, asks{setnx, get, getset}, no, nil),
		talk("take over one that has gone meanwhile", acquire, replies{none, old, nil}, asks{setnx, get, getset}, no, nil),
		talk("take over too late", acquire, replies{none, old, other}, asks{setnx, get, getset}, no, &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Minute}),
		talk("watching, acquire", watching, replies{one}, asks{setnx}, no, nil),
		talk("watching, acquire a held one", watching, replies{none, other}, asks{setnx, get}, no, held),
		talk("watching, take over", watching, replies{none, old, ok, old, ok, queued, replies{ok}}, asks{setnx, get, watches, get, multi, set, executes}, no, nil),
		talk("watching, take what has gone meanwhile", watching, replies{none, nil, ok, nil, ok, queued, replies{ok}}, asks{setnx, get, watches, get, multi, set, executes}, no, nil),
		talk("watching, take over too late", watching, replies{none, old, ok, other}, asks{setnx, get, watches, get}, no, held),
		talk("watching, take over while another does", watching, replies{none, old, ok, old, ok, queued, nil, ok, other},
			asks{setnx, get, watches, get, multi, set, executes, watches, get}, no, held),
		talk("watching, a reply too many", watching, replies{none, old, ok, old, ok, queued, replies{ok, ok}}, asks{setnx, get, watches, get, multi, set, executes}, no, strategy.ErrUnknown),
		talk("extend", extend, replies{mine, ok}, asks{get, extended}, no, nil),
		talk("extend for less", extend, replies{longer, ok}, asks{get, "SET a 1700000099999:t XX"}, no, nil),
		talk("extend one that goes meanwhile", extend, replies{mine, nil}, asks{get, extended}, no, lost),
		talk("extend one that is gone", extend, replies{nil}, asks{get}, no, lost),
		talk("extend another's", extend, replies{other}, asks{get}, no, byOther),
		talk("extend another's that has lapsed", extend, replies{old}, asks{get}, no, lost),
		talk("extend one that has lapsed", extend, replies{lapsed}, asks{get}, no, strategy.ErrLost),
		talk("watching, extend", extendWatching, replies{ok, mine, ok, queued, replies{ok}}, asks{watches, get, multi, extended, executes}, no, nil),
		talk("watching, extend another's", extendWatching, replies{ok, other}, asks{watches, get}, no, byOther),
		talk("adopt", adopt, replies{other, ok}, asks{get, extended}, no, nil),
		talk("adopt another's", adopt, replies{mine}, asks{get}, no, &strategy.LostError{Name: "a", Holder: "t"}),
		talk("release", release, replies{mine, one}, asks{get, del}, nil, nil),
		talk("release one that goes meanwhile", release, replies{mine, none}, asks{get, del}, nil, lost),
		talk("release another's", release, replies{other}, asks{get}, nil, byOther),
		talk("release one that has lapsed", release, replies{lapsed}, asks{get}, nil, strategy.ErrLost),
		talk("watching, release", releaseWatching, replies{ok, mine, ok, queued, replies{one}}, asks{watches, get, multi, del, executes}, nil, nil),
		talk("release blindly", blind, replies{one}, asks{del}, nil, nil),
		talk("release blindly one that is gone", blind, replies{none}, asks{del}, nil, lost),
		talk("without order, undo one that has lapsed", undoUnordered, replies{lapsed}, asks{get}, nil, nil),
		talk("without order, undo one that is not there", undoUnordered, replies{nil}, asks{get}, nil, strategy.ErrUnknown),
		talk("undo", undo, replies{mine, one}, asks{get, del}, nil, nil),
		talk("undo one that is another's", undo, replies{other}, asks{get}, nil, nil),
		talk("undo one that has lapsed", undo, replies{lapsed}, asks{get}, nil, nil),
		talk("inspect", inspect, replies{other}, asks{get}, strategy.Info{Held: true, Token: "other", TTL: time.Millisecond}, nil),
		talk("inspect one that has lapsed", inspect, replies{old}, asks{get}, strategy.Info{}, nil),
		talk("inspect one that is free", inspect, replies{nil}, asks{get}, strategy.Info{}, nil),
		talk("inspect the earliest stamp", inspect, replies{[]byte("100000000000:t")}, asks{get}, strategy.Info{}, nil),
		talk("inspect what is no stamp yet", inspect, replies{[]byte("99999999999:t")}, asks{get}, strategy.Info{}, strategy.ErrRefused),
		talk("inspect the farthest stamp", inspect, replies{[]byte("1731622400000:t")}, asks{get}, strategy.Info{Held: true, Token: "t", TTL: 366 * 24 * time.Hour}, nil),
		talk("inspect what is farther", inspect, replies{[]byte("1731622400001:t")}, asks{get}, strategy.Info{}, strategy.ErrRefused),
	)
	hides := func(what string, reply any, want error, may bool) {
		n := &locktest.Dialog{Replies: replies{none, old, reply}}
		g, err := on(n).Acquire(t.Context(), c)
		if !errors.Is(err, want) || (g.State != nil) != may {
			t.Errorf("take over with %s = %+v, %v, want %v, and a state: %t", what, g, err, want, may)
		}
	}
	hides("no answer to GETSET", strategy.ErrUnknown, strategy.ErrUnknown, true)
	hides("garbage in the key", stranger, strategy.ErrUnknown, true)
	hides("GETSET forbidden", strategy.ErrRefused, strategy.ErrRefused, false)
}

// TestClockSetBack: a clock that says 1970 between two requests stamps nothing.
func TestClockSetBack(t *testing.T) {
	asked := 0
	clock := setnxgetset.WithClock(func() time.Time {
		if asked++; asked > 2 { // one for the SETNX, one to read the reply to GET
			return time.Unix(100, 0)
		}
		return time.UnixMilli(1_700_000_000_000)
	})
	n := &locktest.Dialog{Replies: []any{int64(0), []byte("1700000000000:other"), nil}}
	if _, err := setnxgetset.On(n, clock).Acquire(t.Context(), locktest.AClaim()); err == nil || len(n.Asked) != 2 {
		t.Errorf("Acquire() = %v after %v, want an error and no GETSET", err, n.Asked)
	}
}

// TestEarliestStamp: the earliest stamp is of March 1973, and a millisecond less is no stamp.
func TestEarliestStamp(t *testing.T) {
	for ms, granted := range map[int64]bool{100_000_000_000: true, 99_999_999_999: false} {
		clock := setnxgetset.WithClock(func() time.Time { return time.UnixMilli(ms).Add(-time.Minute) })
		_, err := setnxgetset.On(&locktest.Dialog{Replies: []any{int64(1)}}, clock).Acquire(t.Context(), locktest.AClaim())
		if (err == nil) != granted {
			t.Errorf("Acquire() until %d = %v, want a grant: %t", ms, err, granted)
		}
	}
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return setnxgetset.On(n) })
}

func TestGrantsOnceConfirmed(t *testing.T) {
	on := func(n driver.Node, a strategy.Acks) driver.Protocol {
		return setnxgetset.On(n).(driver.Acknowledger).Acknowledged(a)
	}
	locktest.GrantsOnceConfirmed(t, on, "SETNX", int64(1))
}
