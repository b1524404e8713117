// The strategy as its users see it: what it costs, what it refuses, and what becomes of a user who may not
// do everything.
package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, &yourNode) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "fairqueue") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "fairqueue") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options, options ...fairqueue.Option) strategy.Strategy {
	t.Helper()
	locks, err := fairqueue.New(redigonode.New(s.Pool()), o, options...)
	return locktest.Opened(t, locks, err)
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	if err := locktest.Try(t, locks, "warm").Release(t.Context()); err != nil { // dials, and loads the scripts
		t.Fatal(err)
	}
	if err := locktest.Try(t, locks, "warm").Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	count := func(what string, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, 1, f) }
	var lease strategy.Lease
	count("Acquire", func() error { lease = locktest.Try(t, locks, "counted"); return nil })
	count("a held TryAcquire", func() error { return locktest.Held(t, locks, "counted") })
	if err := lease.Extend(t.Context()); err != nil { // loads the script
		t.Fatal(err)
	}
	count("Extend", func() error { return lease.Extend(t.Context()) })
	count("Release", func() error { return lease.Release(t.Context()) })
}

// TestKeysWithoutTag: locks whose keys differ by braces alone have nothing to do with each other. Their
// queues were one once: a release of one lock made a waiter for the other, which was held, its holder.
func TestKeysWithoutTag(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	process := func() strategy.Strategy {
		return open(t, s, strategy.Options{TTL: time.Minute, Key: func(name string) string { return name }})
	}
	holder := locktest.Try(t, process(), "a")
	waiting := make(chan strategy.Lease)
	waiter := process()
	go func() {
		defer close(waiting)
		lease, err := waiter.NewLock("a").Acquire(t.Context())
		if err != nil {
			t.Errorf("Acquire() = %v, want nil", err)
			return
		}
		waiting <- lease
	}()
	verdict.Eventually(t, "the waiter is in the queue", func() bool {
		return redistest.Do(t, s, "LLEN", driver.SiblingKey("a", "queue")) == int64(1)
	})
	locktest.Release(t, locktest.Try(t, process(), "{a}"))
	if got := redistest.Do(t, s, "GET", "{a}"); got != nil {
		t.Errorf("{a} is held by %s after its release, want nobody: nobody waits for it", got)
	}
	select {
	case <-waiting:
		t.Fatal("the waiter has a, which is held")
	default:
	}
	locktest.Release(t, holder)
	if lease := <-waiting; lease != nil {
		locktest.Release(t, lease)
	}
}

// TestAllocations: its lease, its token and its claims.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), strategy.Options{}), 10)
}

func TestFencesExpire(t *testing.T) {
	locktest.FencesExpire(t, func(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy { return open(t, s, o) })
}

func TestWithoutFences(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{}, fairqueue.WithoutFences())
	lease := locktest.Try(t, locks, "a")
	if n, ok := lease.Fence(); ok {
		t.Errorf("Fence() = %d, true, want none", n)
	}
	token, err := lease.Detach()
	if err != nil {
		t.Fatal(err)
	}
	if lease, err = locks.Adopt(t.Context(), "a", token); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := redistest.Do(t, s, "DBSIZE"); n != int64(0) {
		t.Errorf("DBSIZE = %v, want 0: no counter is left", n)
	}
}

// TestBulk: renewals go 256 to a request, each with an answer of its own.
func TestBulk(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	n := redigonode.New(s.Pool())
	defer n.Close()
	p := fairqueue.On(n)
	due := time.Now().Add(time.Minute)
	claims := make([]driver.Claim, 600)
	for i := range claims {
		name := strconv.Itoa(i)
		c := driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: "t" + name, TTL: 20 * time.Second, Due: due}
		g, err := p.Acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		g.Start = time.Now()
		c.Grant, c.TTL = g, time.Minute
		claims[i] = c
	}
	deleted, taken, spoiled := 7, 107, 207
	redistest.Do(t, s, "DEL", claims[deleted].Key)
	redistest.Do(t, s, "SET", claims[taken].Key, "another")
	redistest.Do(t, s, "DEL", claims[spoiled].Key)
	redistest.Do(t, s, "RPUSH", claims[spoiled].Key, "no lock")

	answers, scripts := locktest.RenewAll(t, s, p, claims)
	if scripts != 3 {
		t.Errorf("requests for %d renewals = %d, want 3", len(claims), scripts)
	}
	for i, err := range answers {
		var lost *strategy.LostError
		switch i {
		case deleted:
			if !errors.As(err, &lost) || lost.Holder != "" {
				t.Errorf("renewal of one that is gone = %v, want a LostError without holder", err)
			}
		case taken:
			if !errors.As(err, &lost) || lost.Holder != "another" {
				t.Errorf("renewal of one that was taken = %v, want a LostError with its holder", err)
			}
		case spoiled:
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

// TestForbiddenToReadMany: a user who may GET and not MGET renews all the same.
func TestForbiddenToReadMany(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := locktest.As(t, s, "one", "that a user without MGET can renew", "-mget")
	lease := locktest.Try(t, open(t, s, strategy.Options{TTL: time.Minute}), "a")
	n := locktest.NodeOn(t, pool)
	claim := func(name, token string) driver.Claim {
		return driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: token, TTL: time.Hour, Due: time.Now().Add(time.Minute)}
	}
	answers := make([]error, 2)
	fairqueue.On(n).(driver.BulkExtender).ExtendAll(t.Context(), []driver.Claim{claim("a", lease.Token()), claim("b", "t")},
		func(i int, _ driver.Grant, err error) { answers[i] = err })
	if answers[0] != nil || !errors.Is(answers[1], strategy.ErrLost) {
		t.Errorf("answers = %v, want nil and ErrLost", answers)
	}
	if ms := redistest.Do(t, s, "PTTL", strategy.DefaultKey("a")).(int64); ms < 120_000 {
		t.Errorf("PTTL = %d ms, want about an hour", ms)
	}
}

// TestForbiddenToPublish: the notification is a hint, so a release without it stands.
func TestForbiddenToPublish(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := locktest.As(t, s, "mute", "that a user without channels can release", "resetchannels")
	refused := make(chan struct{}, 100)
	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{TTL: time.Minute, Observe: func(e strategy.Event) {
		if e.Kind == strategy.EventHeld {
			refused <- struct{}{}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lease := locktest.Try(t, locks, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // generous, and far below the TTL
	defer cancel()
	waiting := make(chan error)
	go func() { // it may not subscribe either, and so asks again and again
		lease, err := locks.NewLock("a").Acquire(ctx)
		if err == nil {
			err = lease.Release(t.Context())
		}
		waiting <- err
	}()
	for range 3 { // it waits, and goes on asking
		select {
		case <-refused:
		case err := <-waiting:
			t.Fatalf("Acquire() = %v while the lock is held, want it to wait", err)
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("Acquire() without channels = %v, want nil", err)
	}
}

func TestCheck(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"); err != nil {
		t.Skipf("NOT PROVEN: that Check sees an evicting server: %v", err)
	}
	if err := locks.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("Check() of a server that evicts = %v, want an error that says noeviction", err)
	}
	redistest.Do(t, s, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	redistest.Do(t, s, "REPLICAOF", "127.0.0.1", "1")
	if err := locks.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("Check() of a replica = %v, want an error that says primary", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := fairqueue.New(nil, strategy.Options{}); err == nil {
		t.Error("New(nil) = nil, want an error")
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("unused") }}
	if _, err := fairqueue.New(redigonode.New(pool), strategy.Options{TTL: time.Millisecond}); err == nil {
		t.Error("New() with a TTL of 1ms = nil, want an error that says what is allowed")
	}
}

// TestSilent: a refused contender learns whether the holder's release wakes it.
func TestSilent(t *testing.T) {
	ours, marked := token.New("", false), token.New("", true)
	const strangers = "a stranger"
	for _, tt := range []struct {
		line, holder string
		silent       bool
	}{
		{"", ours, false}, {"line", ours, false},
		{"", marked, false}, {"line", marked, true},
		{"", strangers, true}, {"line", strangers, true},
	} {
		p := fairqueue.On(locktest.OneReply{Reply: []any{[]byte(tt.holder), int64(1000)}})
		g, err := p.Acquire(t.Context(), driver.Claim{Name: "n", Key: "n", Token: ours, Line: tt.line})
		if !errors.Is(err, strategy.ErrHeld) || g.Silent != tt.silent {
			t.Errorf("Acquire with line %q of a lock held by %s = %+v, %v, want ErrHeld, and Silent: %t", tt.line, tt.holder, g, err, tt.silent)
		}
	}
}

// TestHeldTells: what a refused contender learns.
func TestHeldTells(t *testing.T) {
	locks := open(t, redistest.Shared(t), strategy.Options{TTL: time.Minute, Label: "host-1/7"})
	name := fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
	lease := locktest.Try(t, locks, name)
	defer lease.Release(context.Background())
	_, err := locks.NewLock(name).TryAcquire(t.Context())
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != lease.Token() || held.TTL <= 0 || held.TTL > time.Minute {
		t.Errorf("TryAcquire() = %v, want a HeldError with token %q and up to a minute", err, lease.Token())
	}
	info, err := locks.Inspect(t.Context(), name)
	if err != nil || !info.Held || info.Token != lease.Token() || info.Label != "host-1/7" || info.Fence != locktest.Fence(t, lease) {
		t.Errorf("Inspect() = %+v, %v, want the lease's token, label and fence", info, err)
	}
}

// TestLeastPermissions: a user who may touch the lock's own keys, and nothing else,
// can do everything.
func TestLeastPermissions(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := locktest.As(t, s, "narrow", "that the lock's own key is all that is needed", "resetkeys", "~job:*", "~{job:*", "resetchannels")
	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{Key: func(n string) string { return "job:" + n }}, fairqueue.WithoutFences())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	lease := locktest.Try(t, locks, "a")
	if info, err := locks.Inspect(t.Context(), "a"); err != nil || info.Token != lease.Token() {
		t.Errorf("Inspect() = %+v, %v, want the lease's token", info, err)
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestUnreleasable: a user who may not release is not granted what he could only leave to
// its TTL.
func TestUnreleasable(t *testing.T) {
	s := redistest.Own(t, redistest.Config{User: "locker", Password: "secret"})
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("EVAL", "return redis.acl_check_cmd('DEL', 'a') and 1", 0); err != nil {
		t.Skipf("NOT PROVEN: that a lock which cannot be released is not granted (Redis 7.0): %v", err)
	}
	locks, err := fairqueue.New(redigonode.New(s.Pool()), strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	refused := func(t *testing.T, name string) {
		t.Helper()
		_, err := locks.NewLock(name).TryAcquire(t.Context())
		if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "+del") {
			t.Errorf("TryAcquire() = %v, want ErrRefused, and what to allow", err)
		}
		if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
			t.Errorf("EXISTS = %v, want 0", n)
		}
	}
	t.Run("FromTheFirst", func(t *testing.T) {
		redistest.Do(t, s, "ACL", "SETUSER", "locker", "-del")
		refused(t, "a")
		redistest.Do(t, s, "ACL", "SETUSER", "locker", "+del")
	})
	t.Run("NorGrantsToOthers", func(t *testing.T) { // the lock has expired, and a process queues
		redistest.Do(t, s, "ACL", "SETUSER", "locker", "-del")
		queue := strategy.DefaultKey("c") + ":queue"
		redistest.Do(t, s, "RPUSH", queue, "line 60000 1 successor")
		listen(t, s, queue+":line")
		refused(t, "c")
		if n := redistest.Do(t, s, "LLEN", queue); n != int64(1) {
			t.Errorf("entries in the queue = %v, want 1: refused, but changed", n)
		}
		redistest.Do(t, s, "ACL", "SETUSER", "locker", "+del")
	})
	t.Run("Later", func(t *testing.T) { // it learns so from the release that is forbidden
		lease := locktest.Try(t, locks, "b")
		redistest.Do(t, s, "ACL", "SETUSER", "locker", "-del")
		if err := lease.Release(t.Context()); !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("Release() = %v, want ErrRefused", err)
		}
		redistest.Do(t, s, "GETDEL", strategy.DefaultKey("b")) // DEL is forbidden
		refused(t, "b")
	})
}

// TestUnreadable: nor is a user who may not read the token, and so could not release either.
func TestUnreadable(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := locktest.As(t, s, "blind", "that a lock which cannot be read is not granted", "-get")
	for name, options := range map[string][]fairqueue.Option{"Fenced": nil, "Unfenced": {fairqueue.WithoutFences()}} {
		t.Run(name, func(t *testing.T) {
			locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{}, options...)
			if err != nil {
				t.Fatal(err)
			}
			defer locks.Close()
			if _, err = locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) {
				t.Errorf("TryAcquire() = %v, want ErrRefused", err)
			}
			if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
				t.Errorf("EXISTS = %v, want 0", n)
			}
		})
	}
}

// listen subscribes to a channel until the test ends.
func listen(t *testing.T, s *redistest.Server, channel string) {
	t.Helper()
	c := s.Pool().Get()
	t.Cleanup(func() { c.Close() })
	heard := redis.PubSubConn{Conn: c}
	if err := heard.Subscribe(channel); err != nil {
		t.Fatal(err)
	}
	if _, ok := heard.Receive().(redis.Subscription); !ok {
		t.Fatal("no subscription")
	}
}

// restricted returns the protocol for a user who may do everything but what rules forbid.
func restricted(t *testing.T, s *redistest.Server, rules ...any) driver.Protocol {
	t.Helper()
	return fairqueue.On(locktest.NodeOn(t, locktest.As(t, s, "restricted", "what happens where rights are missing", append([]any{"resetkeys"}, rules...)...)))
}

// TestNothingHalfDone: a script that is refused leaves the lock as it was, and a release goes on
// where the queue cannot be served.
func TestNothingHalfDone(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	claim := func(token string) driver.Claim {
		return driver.Claim{Name: "a", Key: "a", Token: token, TTL: time.Minute, Due: time.Now().Add(time.Minute), Line: "next"}
	}
	refused := func(t *testing.T, what string, err error, holder any) {
		t.Helper()
		if !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("%s() = %v, want ErrRefused", what, err)
		}
		if got := redistest.Do(t, s, "GET", "a"); fmt.Sprintf("%s", got) != fmt.Sprintf("%s", holder) {
			t.Errorf("holder after %s = %s, want %s", what, got, holder)
		}
	}
	released := func(t *testing.T, p driver.Protocol) {
		t.Helper()
		if _, err := p.Release(t.Context(), claim("holder")); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
		if got := redistest.Do(t, s, "GET", "a"); got != nil {
			t.Errorf("holder after Release = %s, want none", got)
		}
	}
	held := func(t *testing.T) { redistest.Do(t, s, "SET", "a", "holder", "PX", 60_000) }
	queued := func(t *testing.T, entry string) {
		redistest.Do(t, s, "RPUSH", "{a}:queue:", entry)
		listen(t, s, "{a}:queue::line")
	}

	t.Run("CounterThatCannotBeWritten", func(t *testing.T) {
		redistest.Do(t, s, "FLUSHALL")
		p := restricted(t, s, "~*", "-set", "(+set ~a)")
		_, err := p.Acquire(t.Context(), claim("contender"))
		refused(t, "Acquire", err, nil)
		held(t)
		_, err = p.(driver.Queuer).Pass(t.Context(), claim("holder"), claim("contender"))
		refused(t, "Pass", err, "holder")
		_, err = p.Adopt(t.Context(), claim("contender"), "holder")
		refused(t, "Adopt", err, "holder")
		queued(t, "line 60000 1 successor")
		released(t, p)
	})
	t.Run("CounterOfAnotherType", func(t *testing.T) {
		redistest.Do(t, s, "FLUSHALL")
		p := restricted(t, s, "~*")
		redistest.Do(t, s, "RPUSH", "{a}:fence:", "no counter")
		held(t)
		queued(t, "line 60000 1 successor")
		released(t, p)
	})
	t.Run("GrantThatCannotBePublished", func(t *testing.T) {
		redistest.Do(t, s, "FLUSHALL")
		p := restricted(t, s, "~*", "-publish")
		redistest.Do(t, s, "SET", "{a}:fence:", "seven") // the successor wants no fence, the contender wants one
		queued(t, "line 60000 0 successor")
		_, err := p.Acquire(t.Context(), claim("contender"))
		refused(t, "Acquire", err, nil)
	})
}

// TestRangeWithoutFences: without fences no range of them is reserved, whichever script grants.
func TestRangeWithoutFences(t *testing.T) {
	c := driver.Claim{Name: "a", Key: "a", Token: "t", Line: "line", TTL: time.Second, Due: time.Now().Add(time.Minute)}
	g, err := fairqueue.On(locktest.OneReply{Reply: int64(0)}, fairqueue.WithoutFences()).Acquire(t.Context(), c)
	if err != nil || g.Fence != 0 || g.Fences != 0 {
		t.Errorf("Acquire() = %+v, %v, want a grant without fences", g, err)
	}
	pass := fairqueue.On(locktest.OneReply{Reply: []any{int64(0), int64(0)}}, fairqueue.WithoutFences()).(driver.Queuer)
	if g, err = pass.Pass(t.Context(), c, c); err != nil || g.Fence != 0 || g.Fences != 0 {
		t.Errorf("Pass() = %+v, %v, want a grant without fences", g, err)
	}
}

// TestGarbage: what release.lua and its like never return is neither a grant, nor
// held, nor lost: nobody knows.
func TestGarbage(t *testing.T) {
	text, n := []byte("x"), int64(9)
	for _, reply := range []any{
		nil, int64(-1), int64(0), []byte("OK"), []any{}, []any{n}, []any{text}, []any{text, []byte("y")}, "text",
		[]any{n, int64(-1)}, []any{n, int64(driver.MaxFences + 1)}, []any{n, text}, []any{n, n, n, n, n, int64(1)},
		[]any{text, n, nil, n, n, n}, []any{text, n, n, nil, n, n}, []any{text, n, n, n, nil, n}, []any{text, n, n, n, n, nil},
		[]any{text, n, int64(-1), n, n, n}, []any{text, n, n, n, int64(-1), n}, []any{text, n, n, n, n},
	} {
		p := fairqueue.On(locktest.OneReply{Reply: reply})
		g, err := p.Acquire(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{int64(2), int64(-1), []any{}, []any{int64(2)}, []any{int64(1), int64(1)}} {
		p := fairqueue.On(locktest.OneReply{Reply: reply})
		_, err := p.Extend(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}} {
		_, err := fairqueue.On(locktest.OneReply{Reply: reply}).Release(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Release() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	for _, reply := range []any{nil, []any{}, []any{int64(1), int64(1), nil, []any{}}, []any{[]byte("t"), nil, nil, []any{}}, []any{[]byte("t"), int64(1), nil, nil}, []any{[]byte("t"), []byte("1"), nil, []any{}}} {
		info, err := fairqueue.On(locktest.OneReply{Reply: reply}).Inspect(t.Context(), driver.Claim{Name: "a", Key: "a"})
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Inspect() on %#v = %+v, %v, want ErrUnknown", reply, info, err)
		}
	}
	bad := []any{nil, int64(-2), []byte("no number"), []any{}}
	if _, err := fairqueue.On(locktest.OneReply{Reply: bad}).Inspect(t.Context(), driver.Claim{Name: "a", Key: "a"}); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() of a counter that is no number = %v, want ErrRefused", err)
	}
}

// TestChannels: a line hears of direct grants to it, and everybody else of releases.
func TestChannels(t *testing.T) {
	for line, want := range map[string]string{"": "SUBSCRIBE {a}:free:", "line": "SUBSCRIBE {a}:queue::line"} {
		n, c := &locktest.Dialog{Replies: []any{nil}}, locktest.AClaim()
		c.Line = line
		stop, err := fairqueue.On(n).(driver.Queuer).Watch(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if stop(); len(n.Asked) != 1 || n.Asked[0] != want {
			t.Errorf("Watch() for the line %q asks %q, want %q", line, n.Asked, want)
		}
	}
}

// TestInspectTells: what a reply of inspect.lua says.
func TestInspectTells(t *testing.T) {
	queue := []any{[]byte("first"), nil, []byte("second")}
	for _, c := range []struct {
		reply []any
		want  strategy.Info
	}{
		{[]any{[]byte("t"), int64(1000), []byte("7"), queue}, strategy.Info{Held: true, Token: "t", TTL: time.Second, Fence: 7, Queue: []string{"first", "second"}}},
		{[]any{nil, int64(-2), []byte("7"), queue}, strategy.Info{Fence: 7, Queue: []string{"first", "second"}}},
		{[]any{nil, int64(-2), nil, []any{}}, strategy.Info{}},
	} {
		info, err := fairqueue.On(locktest.OneReply{Reply: c.reply}).Inspect(t.Context(), locktest.AClaim())
		if err != nil || !reflect.DeepEqual(info, c.want) {
			t.Errorf("Inspect() on %q = %+v, %v, want %+v", c.reply, info, err, c.want)
		}
	}
}

// TestCheckAsksForWhatIsUsed: which rights are missing depends on how waiters wait, and on fences.
func TestCheckAsksForWhatIsUsed(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	mute := []any{"-publish"}
	readCounter := []any{"-set", "(+set ~lock:{*})"} // may SET the lock alone
	for i, c := range []struct {
		rules   []any
		wait    strategy.Wait
		options []fairqueue.Option
		wanted  string // what the error says; empty: there is none
	}{
		{mute, strategy.WaitPoll, nil, ""},
		{mute, strategy.WaitNotification, nil, "publish"},
		{mute, strategy.WaitQueue, nil, "publish"},
		{readCounter, strategy.WaitPoll, nil, "}:fence"},
		{readCounter, strategy.WaitPoll, []fairqueue.Option{fairqueue.WithoutFences()}, ""},
	} {
		pool := locktest.As(t, s, fmt.Sprint("user-", i), "which rights Check asks for", c.rules...)
		locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{Wait: c.wait}, c.options...)
		err = locktest.Opened(t, locks, err).Check(t.Context())
		if c.wanted == "" && err != nil || c.wanted != "" && (!errors.Is(err, strategy.ErrRefused) || !strings.Contains(strings.ToLower(err.Error()), c.wanted)) {
			t.Errorf("Check() of a user with %v, who waits by %v, with %d options = %v, want an error only with, and about, %q", c.rules, c.wait, len(c.options), err, c.wanted)
		}
	}
}

// TestReserved: as many fences are granted as the script has reserved, up to as many as a claim may ask for. A fence alone,
// such as that of a claim that was granted the lock while it queued, is one.
func TestReserved(t *testing.T) {
	c := locktest.AClaim()
	c.Fences = driver.MaxFences
	for want, reply := range map[int]any{1: int64(7), driver.MaxFences: []any{int64(7), int64(driver.MaxFences)}} {
		g, err := fairqueue.On(locktest.OneReply{Reply: reply}).Acquire(t.Context(), c)
		if err != nil || g.Fence != 7 || g.Fences != want {
			t.Errorf("Acquire() of the reply %v = %+v, %v, want %d fences from 7 on", reply, g, err, want)
		}
	}
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return fairqueue.On(n) })
}

func TestGrantsOnceConfirmed(t *testing.T) {
	on := func(n driver.Node, a strategy.Acks) driver.Protocol {
		return fairqueue.On(n).(driver.Acknowledger).Acknowledged(a)
	}
	locktest.GrantsOnceConfirmed(t, on, "EVALSHA", int64(7))
}
