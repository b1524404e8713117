package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
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

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "fairqueue") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "fairqueue") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options, own ...fairqueue.Option) strategy.Strategy {
	t.Helper()
	locks, err := fairqueue.New(s.Pool(), o, own...)
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

func acquire(t *testing.T, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want nil", err)
	}
	return lease
}

func fence(t *testing.T, l strategy.Lease) uint64 {
	t.Helper()
	n, ok := l.Fence()
	if !ok {
		t.Fatal("Fence() = 0, false, want a fence")
	}
	return n
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	if err := acquire(t, locks, "warm").Release(t.Context()); err != nil { // dials, and loads the scripts
		t.Fatal(err)
	}
	if err := acquire(t, locks, "warm").Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	count := func(what string, want int64, f func()) {
		t.Helper()
		before, err := s.RoundTrips(t.Context())
		if err != nil {
			redistest.Skip(t, err, "how many round trips a lock costs")
		}
		f()
		after, err := s.RoundTrips(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := after - before; got != want {
			t.Errorf("round trips of %s = %d, want %d", what, got, want)
		}
	}
	var lease strategy.Lease
	count("Acquire", 1, func() { lease = acquire(t, locks, "counted") })
	count("a held TryAcquire", 1, func() {
		if _, err := locks.NewLock("counted").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
			t.Errorf("TryAcquire() = %v, want ErrHeld", err)
		}
	})
	if err := lease.Extend(t.Context()); err != nil { // loads the script
		t.Fatal(err)
	}
	count("Extend", 1, func() {
		if err := lease.Extend(t.Context()); err != nil {
			t.Error(err)
		}
	})
	count("Release", 1, func() {
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// raced is how many allocations more the race detector costs a pair.
var raced float64

// TestAllocations: a pair of one caller makes no more than its lease, its token and its claims
// take. The race detector adds some.
func TestAllocations(t *testing.T) {
	locks := open(t, redistest.Shared(t), strategy.Options{})
	lock := locks.NewLock(t.Name() + strconv.Itoa(int(time.Now().UnixNano())))
	n := testing.AllocsPerRun(500, func() {
		lease, err := lock.TryAcquire(t.Context())
		if err == nil {
			err = lease.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if want := 10.0; n > want+raced {
		t.Errorf("allocations = %v, want %v at most", n, want+raced)
	}
}

// TestFenceSurvivesItsCounter: the server's clock is the floor.
func TestFenceSurvivesItsCounter(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	first := acquire(t, locks, "a")
	older := fence(t, first)
	redistest.Do(t, s, "FLUSHALL")
	second := acquire(t, locks, "a")
	if newer := fence(t, second); newer <= older {
		t.Errorf("fence after FLUSHALL = %d, want more than %d", newer, older)
	}
	if err := first.Release(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("first.Release() = %v, want ErrLost", err)
	}
	// The counter also rises when the clock stands still, or was ahead before.
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	redistest.Do(t, s, "SET", "lock:{a}:fence", ahead)
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := acquire(t, locks, "a")
	if got, want := fence(t, third), ahead+1; got != want {
		t.Errorf("fence = %d, want %d", got, want)
	}
	token, err := third.Detach()
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := locks.Adopt(t.Context(), "a", token)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fence(t, adopted), ahead+2; got != want {
		t.Errorf("fence of the adopted hold = %d, want %d", got, want)
	}
	if err := adopted.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := fence(t, acquire(t, locks, "a")), ahead+3; got != want {
		t.Errorf("fence after the adopted hold = %d, want %d: no two holds share one", got, want)
	}
}

// TestBadCounter: a counter that holds no fence is an error, and no lock is taken.
func TestBadCounter(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{})
	for what, value := range map[string]string{
		"a word": "seven", "negative": "-1", "2^53-1": "9007199254740991", "2^53": "9007199254740992", "infinite": "inf", "not a number": "nan",
	} {
		t.Run(what, func(t *testing.T) {
			name := t.Name() + strconv.Itoa(int(time.Now().UnixNano()))
			key := strategy.DefaultKey(name)
			redistest.Do(t, s, "SET", key+":fence", value)
			defer redistest.Do(t, s, "DEL", key+":fence")
			_, err := locks.NewLock(name).TryAcquire(t.Context())
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "holds no fence") {
				t.Errorf("TryAcquire() = %v, want ErrRefused because the counter holds no fence", err)
			}
			if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
				t.Errorf("EXISTS %s = %v, want 0: refused, but taken", key, n)
			}
		})
	}
	t.Run("a list", func(t *testing.T) {
		name := t.Name() + strconv.Itoa(int(time.Now().UnixNano()))
		key := strategy.DefaultKey(name)
		redistest.Do(t, s, "RPUSH", key+":fence", "x")
		defer redistest.Do(t, s, "DEL", key+":fence")
		if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("TryAcquire() = %v, want ErrRefused", err)
		}
		if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
			t.Errorf("EXISTS %s = %v, want 0: refused, but taken", key, n)
		}
	})
}

func TestWithoutFences(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{}, fairqueue.WithoutFences())
	lease := acquire(t, locks, "a")
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
	n, err := node.New(s.Pool())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	p := fairqueue.On(n)
	due := time.Now().Add(time.Minute)
	claims := make([]driver.Claim, 600)
	for i := range claims {
		name := strconv.Itoa(i)
		c := driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: "t" + name, TTL: time.Second, Due: due}
		g, err := p.Acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		g.Start = time.Now()
		c.Grant, c.TTL = g, time.Minute
		claims[i] = c
	}
	gone, taken, spoiled := 7, 107, 207
	redistest.Do(t, s, "DEL", claims[gone].Key)
	redistest.Do(t, s, "SET", claims[taken].Key, "another")
	redistest.Do(t, s, "DEL", claims[spoiled].Key)
	redistest.Do(t, s, "RPUSH", claims[spoiled].Key, "no lock")

	if _, err := p.Extend(t.Context(), claims[0]); err != nil { // loads the script
		t.Fatal(err)
	}
	before, err := s.Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answers := make([]error, len(claims))
	var calls atomic.Int32
	p.(driver.BulkExtender).ExtendAll(t.Context(), claims, func(i int, _ driver.Grant, err error) {
		answers[i] = err
		calls.Add(1)
	})
	after, err := s.Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	scripts := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]
	if want := int64(3); scripts != want {
		t.Errorf("requests for %d renewals = %d, want %d", len(claims), scripts, want)
	}
	if n := int(calls.Load()); n != len(claims) {
		t.Errorf("answers = %d, want %d", n, len(claims))
	}
	for i, err := range answers {
		var lost *strategy.LostError
		switch i {
		case gone:
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

// TestOutOfMemory: what only renews or releases works when Redis takes no writes.
func TestOutOfMemory(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	lease := acquire(t, locks, "a")
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("CONFIG", "SET", "maxmemory", 1); err != nil {
		t.Skipf("NOT PROVEN: that locks are released when Redis is out of memory: %v", err)
	}
	_, err := locks.NewLock("b").TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("TryAcquire() = %v, want ErrRefused and OOM", err)
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestForbiddenToReadMany: a user who may GET and not MGET renews all the same.
func TestForbiddenToReadMany(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("ACL", "SETUSER", "one", "on", ">secret", "~*", "&*", "+@all", "-mget"); err != nil {
		t.Skipf("NOT PROVEN: that a user without MGET can renew: %v", err)
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername("one"), redis.DialPassword("secret"))
	}}
	defer pool.Close()
	lease := acquire(t, open(t, s, strategy.Options{TTL: time.Minute}), "a")
	n, err := node.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
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
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels"); err != nil {
		t.Skipf("NOT PROVEN: that a user without channels can release: %v", err)
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername("mute"), redis.DialPassword("secret"))
	}}
	defer pool.Close()
	refused := make(chan struct{}, 100)
	locks, err := fairqueue.New(pool, strategy.Options{TTL: time.Minute, Observe: func(e strategy.Event) {
		if e.Kind == strategy.EventHeld {
			refused <- struct{}{}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lease := acquire(t, locks, "a")
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
	if _, err := fairqueue.New(pool, strategy.Options{TTL: time.Millisecond}); err == nil {
		t.Error("New() with a TTL of 1ms = nil, want an error that says what is allowed")
	}
}

// TestHeldTells: what a refused contender learns.
func TestHeldTells(t *testing.T) {
	locks := open(t, redistest.Shared(t), strategy.Options{TTL: time.Minute, Label: "host-1/7"})
	name := fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
	lease := acquire(t, locks, name)
	defer lease.Release(context.Background())
	_, err := locks.NewLock(name).TryAcquire(t.Context())
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != lease.Token() || held.TTL <= 0 || held.TTL > time.Minute {
		t.Errorf("TryAcquire() = %v, want a HeldError with token %q and up to a minute", err, lease.Token())
	}
	info, err := locks.Inspect(t.Context(), name)
	if err != nil || !info.Held || info.Token != lease.Token() || info.Label != "host-1/7" || info.Fence != fence(t, lease) {
		t.Errorf("Inspect() = %+v, %v, want the lease's token, label and fence", info, err)
	}
}

// TestExtendNeverShortens: a renewal that was stuck on its way, and asked for less
// than a later one got, must not take from the holder what it relies on.
func TestExtendNeverShortens(t *testing.T) {
	s := redistest.Shared(t)
	n, err := node.New(s.Pool())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	p := fairqueue.On(n)
	name := fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
	c := driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: "t", TTL: time.Minute, Due: time.Now().Add(time.Minute)}
	if c.Grant, err = p.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Grant.Start = time.Now()
	late := c
	late.TTL = time.Second
	if _, err := p.Extend(t.Context(), late); err != nil {
		t.Errorf("Extend() by less = %v, want nil", err)
	}
	if ms := redistest.Do(t, s, "PTTL", c.Key).(int64); ms < 30_000 {
		t.Errorf("PTTL = %d ms, want about a minute", ms)
	}
	if err := p.Release(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// TestLeastPermissions: a user who may touch the lock's own keys, and nothing else,
// can do everything.
func TestLeastPermissions(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("ACL", "SETUSER", "narrow", "on", ">secret", "~job:*", "~{job:*", "+@all", "resetchannels"); err != nil {
		t.Skipf("NOT PROVEN: that the lock's own key is all that is needed: %v", err)
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername("narrow"), redis.DialPassword("secret"))
	}}
	defer pool.Close()
	locks, err := fairqueue.New(pool, strategy.Options{Key: func(n string) string { return "job:" + n }}, fairqueue.WithoutFences())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	lease := acquire(t, locks, "a")
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
	locks, err := fairqueue.New(s.Pool(), strategy.Options{})
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
		lease := acquire(t, locks, "b")
		redistest.Do(t, s, "ACL", "SETUSER", "locker", "-del")
		if err := lease.Release(t.Context()); !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("Release() = %v, want ErrRefused", err)
		}
		redistest.Do(t, s, "SET", strategy.DefaultKey("b"), "gone", "PX", 1)
		for end := time.Now().Add(20 * time.Second); redistest.Do(t, s, "EXISTS", strategy.DefaultKey("b")) != int64(0); {
			if time.Now().After(end) {
				t.Fatal("the key does not expire")
			}
		}
		refused(t, "b")
	})
}

// TestUnreadable: nor is a user who may not read the token, and so could not release either.
func TestUnreadable(t *testing.T) {
	s := redistest.Own(t, redistest.Config{User: "locker", Password: "secret"})
	redistest.Do(t, s, "ACL", "SETUSER", "locker", "-get")
	for name, own := range map[string][]fairqueue.Option{"Fenced": nil, "Unfenced": {fairqueue.WithoutFences()}} {
		t.Run(name, func(t *testing.T) {
			locks, err := fairqueue.New(s.Pool(), strategy.Options{}, own...)
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
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("ACL", append([]any{"SETUSER", "restricted", "reset", "on", ">secret", "&*", "+@all"}, rules...)...); err != nil {
		t.Skipf("NOT PROVEN: what happens where rights are missing: %v", err)
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername("restricted"), redis.DialPassword("secret"))
	}}
	n, err := node.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(); pool.Close() })
	return fairqueue.On(n)
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
		if err := p.Release(t.Context(), claim("holder")); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
		if got := redistest.Do(t, s, "GET", "a"); got != nil {
			t.Errorf("holder after Release = %s, want none", got)
		}
	}
	held := func(t *testing.T) { redistest.Do(t, s, "SET", "a", "holder", "PX", 60_000) }
	queued := func(t *testing.T, entry string) {
		redistest.Do(t, s, "RPUSH", "{a}:queue", entry)
		listen(t, s, "{a}:queue:line")
	}

	t.Run("CounterThatCannotBeWritten", func(t *testing.T) {
		redistest.Do(t, s, "FLUSHALL")
		p := restricted(t, s, "~*", "-set", "(+set ~a)")
		_, err := p.Acquire(t.Context(), claim("contender"))
		refused(t, "Acquire", err, nil)
		held(t)
		_, err = p.(driver.Queuer).Pass(t.Context(), claim("holder"), claim("contender"))
		refused(t, "Pass", err, "holder")
		_, err = p.(driver.Adopter).Adopt(t.Context(), claim("contender"), "holder")
		refused(t, "Adopt", err, "holder")
		queued(t, "line 60000 1 successor")
		released(t, p)
	})
	t.Run("CounterOfAnotherType", func(t *testing.T) {
		redistest.Do(t, s, "FLUSHALL")
		p := restricted(t, s, "~*")
		redistest.Do(t, s, "RPUSH", "{a}:fence", "no counter")
		held(t)
		queued(t, "line 60000 1 successor")
		released(t, p)
	})
	t.Run("GrantThatCannotBePublished", func(t *testing.T) {
		redistest.Do(t, s, "FLUSHALL")
		p := restricted(t, s, "~*", "-publish")
		redistest.Do(t, s, "SET", "{a}:fence", "seven") // the successor wants no fence, the contender wants one
		queued(t, "line 60000 0 successor")
		_, err := p.Acquire(t.Context(), claim("contender"))
		refused(t, "Acquire", err, nil)
	})
}

// TestRangeWithoutFences: without fences no range of them is reserved, whichever script grants.
func TestRangeWithoutFences(t *testing.T) {
	c := driver.Claim{Name: "a", Key: "a", Token: "t", Line: "line", TTL: time.Second, Due: time.Now().Add(time.Minute)}
	g, err := fairqueue.On(oneReply{reply: int64(0)}, fairqueue.WithoutFences()).Acquire(t.Context(), c)
	if err != nil || g.Fence != 0 || g.Fences != 0 {
		t.Errorf("Acquire() = %+v, %v, want a grant without fences", g, err)
	}
	pass := fairqueue.On(oneReply{reply: []any{int64(0), int64(0)}}, fairqueue.WithoutFences()).(driver.Queuer)
	if g, err = pass.Pass(t.Context(), c, c); err != nil || g.Fence != 0 || g.Fences != 0 {
		t.Errorf("Pass() = %+v, %v, want a grant without fences", g, err)
	}
}

// oneReply is a node that answers everything in the same way.
type oneReply struct {
	driver.Node
	reply any
}

func (n oneReply) Name() string  { return "fake" }
func (n oneReply) Ordered() bool { return true }
func (n oneReply) Eval(context.Context, time.Time, *driver.Script, []string, ...any) (any, error) {
	return n.reply, nil
}

// TestGarbage: what release.lua and its like never return is neither a grant, nor
// held, nor lost: nobody knows.
func TestGarbage(t *testing.T) {
	for _, reply := range []any{nil, int64(-1), int64(0), []byte("OK"), []any{}, []any{int64(1)}, []any{[]byte("x")}, []any{[]byte("x"), []byte("y")}, "text"} {
		p := fairqueue.On(oneReply{reply: reply})
		g, err := p.Acquire(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{int64(2), int64(-1), []any{}, []any{int64(2)}, []any{int64(1), int64(1)}} {
		p := fairqueue.On(oneReply{reply: reply})
		_, err := p.Extend(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}} {
		err := fairqueue.On(oneReply{reply: reply}).Release(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Release() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	for _, reply := range []any{nil, []any{}, []any{int64(1), int64(1), nil, []any{}}, []any{[]byte("t"), nil, nil, []any{}}, []any{[]byte("t"), []byte("1"), nil, nil}} {
		info, err := fairqueue.On(oneReply{reply: reply}).(driver.Inspector).Inspect(t.Context(), driver.Claim{Name: "a", Key: "a"})
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Inspect() on %#v = %+v, %v, want ErrUnknown", reply, info, err)
		}
	}
}
