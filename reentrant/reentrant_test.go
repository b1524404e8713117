// The strategy as its users see it: re-entry, lost replies, and users who may not do everything.
package reentrant_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, &yourNode) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "reentrant") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "reentrant") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	locks, err := reentrant.New(redigonode.New(s.Pool()), o)
	return locktest.Opened(t, locks, err)
}

func as(t *testing.T, owner string) context.Context { return strategy.WithOwner(t.Context(), owner) }

func pttl(t *testing.T, s *redistest.Server, name string) time.Duration {
	t.Helper()
	return time.Duration(redistest.Do(t, s, "PTTL", strategy.DefaultKey(name)).(int64)) * time.Millisecond
}

// fields returns the hash, without the times.
func fields(t *testing.T, s *redistest.Server, name string) []string {
	t.Helper()
	names, err := redis.Strings(redistest.Do(t, s, "HKEYS", strategy.DefaultKey(name)), nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// protocol returns the algorithm on s, and a claim for it.
func protocol(t *testing.T, s *redistest.Server, name, owner, token string) (driver.Protocol, driver.Claim) {
	t.Helper()
	return reentrant.On(locktest.Node(t, s)), driver.Claim{Name: name, Key: strategy.DefaultKey(name), Owner: owner, Token: token, TTL: time.Minute, Due: time.Now().Add(time.Minute)}
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	if err := locktest.TryAs(t, t.Context(), locks, "warm").Extend(t.Context()); err != nil { // dials, and loads the scripts
		t.Fatal(err)
	}
	for range 2 {
		locktest.Release(t, locktest.TryAs(t, t.Context(), locks, "warmer"))
	}
	count := func(what string, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, 1, f) }
	var outer, inner strategy.Lease
	count("Acquire", func() error { outer = locktest.TryAs(t, as(t, "me"), locks, "counted"); return nil })
	count("re-entry", func() error { inner = locktest.TryAs(t, as(t, "me"), locks, "counted"); return nil })
	count("a held TryAcquire", func() error { return locktest.Held(t, locks, "counted") })
	count("Extend", func() error { return outer.Extend(t.Context()) })
	count("an inner Release", func() error { return inner.Release(t.Context()) })
	count("the last Release", func() error { return outer.Release(t.Context()) })
}

// TestOnTheWire: the hash is what the package doc says it is.
func TestOnTheWire(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{})
	name, owner := locktest.Unique(t), "hold:\x00\xff owner"
	outer := locktest.TryAs(t, as(t, owner), locks, name)
	inner := locktest.TryAs(t, as(t, owner), locks, name)
	want := []string{"fence", "hold:" + inner.Token(), "hold:" + outer.Token(), "owner"}
	slices.Sort(want)
	if got := fields(t, s, name); !slices.Equal(got, want) {
		t.Errorf("the hash has the fields %q, want %q", got, want)
	}
	if got, _ := redis.String(redistest.Do(t, s, "HGET", strategy.DefaultKey(name), "owner"), nil); got != owner {
		t.Errorf("owner = %q, want %q", got, owner)
	}
	if got, _ := redis.Uint64(redistest.Do(t, s, "HGET", strategy.DefaultKey(name), "fence"), nil); got != locktest.Fence(t, outer) {
		t.Errorf("fence = %d, want %d", got, locktest.Fence(t, outer))
	}
	locktest.Release(t, outer)
	locktest.Release(t, inner)
	if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
		t.Errorf("EXISTS = %v after the last release, want 0", n)
	}
}

// TestLapsedHolds: they do not count any more, and writes drop them.
func TestLapsedHolds(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	name := locktest.Unique(t)
	key := strategy.DefaultKey(name)
	lapse := func(l strategy.Lease) { redistest.Do(t, s, "HSET", key, "hold:"+l.Token(), 1000) }

	outer := locktest.TryAs(t, as(t, "me"), locks, name)
	dead := locktest.TryAs(t, as(t, "me"), locks, name)
	lapse(dead)
	var lost *strategy.LostError
	if err := dead.Extend(t.Context()); !errors.As(err, &lost) || lost.Holder != "" || lost.Err == nil {
		t.Errorf("Extend() of a hold that lapsed = %v, want a LostError that names no other holder, and a reason", err)
	}
	if info, err := locks.Inspect(t.Context(), name); err != nil || info.Holds != 1 || info.Token != outer.Token() {
		t.Errorf("Inspect() = %+v, %v, want one hold, the outer", info, err)
	}
	if err := outer.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	if got := fields(t, s, name); len(got) != 3 {
		t.Errorf("the hash has the fields %q, want that of the dead hold dropped", got)
	}
	inner := locktest.TryAs(t, as(t, "me"), locks, name)
	lapse(inner)
	if err := inner.Release(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Release() of a hold that lapsed = %v, want ErrLost", err)
	}
	lapse(outer)
	if info, err := locks.Inspect(t.Context(), name); err != nil || info.Held {
		t.Errorf("Inspect() = %+v, %v, want a free lock: all its holds have lapsed", info, err)
	}
	next := locktest.TryAs(t, as(t, "another"), locks, name)
	if got := fields(t, s, name); len(got) != 3 {
		t.Errorf("the hash has the fields %q, want those of the new owner alone", got)
	}
	if locktest.Fence(t, next) <= locktest.Fence(t, outer) {
		t.Errorf("fence = %d, want more than %d", locktest.Fence(t, next), locktest.Fence(t, outer))
	}
	locktest.Release(t, next)
}

// TestBulk: renewals go fifty to a request, each with an answer of its own, also
// where several are holds of one lock.
func TestBulk(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	p, c := protocol(t, s, "", "me", "")
	claims := make([]driver.Claim, 250)
	for i := range claims {
		c := c
		c.Name = strconv.Itoa(i / 2) // two holds each
		c.Key, c.Token, c.TTL = strategy.DefaultKey(c.Name), "t"+strconv.Itoa(i), 20*time.Second
		g, err := p.Acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		g.Start = time.Now()
		c.Grant, c.TTL = g, time.Minute
		claims[i] = c
	}
	deleted, taken, spoiled, ended := 7, 107, 207, 11
	redistest.Do(t, s, "DEL", claims[deleted].Key)
	redistest.Do(t, s, "HSET", claims[taken].Key, "owner", "another")
	redistest.Do(t, s, "HDEL", claims[taken].Key, "hold:"+claims[taken].Token)
	redistest.Do(t, s, "DEL", claims[spoiled].Key)
	redistest.Do(t, s, "RPUSH", claims[spoiled].Key, "no lock")
	redistest.Do(t, s, "HDEL", claims[ended].Key, "hold:"+claims[ended].Token)

	answers, scripts := locktest.RenewAll(t, s, p, claims)
	if scripts != 5 {
		t.Errorf("requests for %d renewals = %d, want 5", len(claims), scripts)
	}
	for i, err := range answers {
		var lost *strategy.LostError
		switch i {
		case deleted, deleted - 1:
			if !errors.As(err, &lost) || lost.Holder != "" {
				t.Errorf("renewal of one that is gone = %v, want a LostError without holder", err)
			}
		case taken:
			if !errors.As(err, &lost) || lost.Holder != "another" {
				t.Errorf("renewal of one that was taken = %v, want a LostError with its holder", err)
			}
		case ended:
			if !errors.As(err, &lost) || lost.Holder != "" || lost.Err == nil {
				t.Errorf("renewal of one hold that is gone = %v, want a LostError without another holder", err)
			}
		case spoiled, spoiled - 1:
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("renewal of a list = %v, want ErrRefused and WRONGTYPE", err)
			}
		default:
			if err != nil {
				t.Errorf("renewal %d = %v, want nil", i, err)
			}
			if got := pttl(t, s, claims[i].Name); got < 30*time.Second {
				t.Errorf("PTTL of renewal %d = %v, want about a minute", i, got)
			}
		}
	}
}

// TestOnlyAgain: a claim that is to re-enter takes no lock that is free.
func TestOnlyAgain(t *testing.T) {
	s := redistest.Shared(t)
	p, c := protocol(t, s, locktest.Unique(t), "me", "t")
	c.Again = true
	var held *strategy.HeldError
	if _, err := p.Acquire(t.Context(), c); !errors.As(err, &held) || held.Holder != "" {
		t.Errorf("Acquire() again of a free lock = %v, want a HeldError without holder", err)
	}
	if n := redistest.Do(t, s, "EXISTS", c.Key, c.Key+":fence"); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0: nothing was to be taken", n)
	}
	c.Again = false
	first, err := p.Acquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	again := c
	again.Token, again.Again = "u", true
	if g, err := p.Acquire(t.Context(), again); err != nil || g.Fence != first.Fence || g.Owner != "me" {
		t.Errorf("Acquire() again = %+v, %v, want the same fence and owner", g, err)
	}
	again.Owner = "another"
	if _, err := p.Acquire(t.Context(), again); !errors.As(err, &held) || held.Holder != "me" {
		t.Errorf("Acquire() again by another = %v, want a HeldError: held by me", err)
	}
	redistest.Do(t, s, "DEL", c.Key)
}

// lossy is a node on which the replies to some scripts are lost.
type lossy struct {
	driver.Node
	lose  func(script string) bool
	calls atomic.Int32
}

func (n *lossy) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	reply, err := n.Node.Eval(ctx, due, s, keys, args...)
	if n.lose(s.Name()) {
		n.calls.Add(1)
		return nil, &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnknown, Err: errors.New("the reply was lost")}
	}
	return reply, err
}

// TestLostReplies: what the engine repeats, or undoes, touches no other hold.
func TestLostReplies(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	for _, script := range []string{"acquire", "release", "adopt"} {
		t.Run(script, func(t *testing.T) {
			name := locktest.Unique(t)
			n := redigonode.New(s.Pool())
			var left atomic.Int32
			losing := &lossy{Node: n, lose: func(name string) bool { return name == script && left.Add(-1) >= 0 }}
			unlucky, err := reentrant.New(losing, strategy.Options{TTL: time.Minute})
			locktest.Opened(t, unlucky, err)
			outer := locktest.TryAs(t, as(t, "me"), locks, name)
			switch script {
			case "acquire":
				left.Store(1)
				_, err = unlucky.NewLock(name).TryAcquire(as(t, "me"))
			case "release":
				inner := locktest.TryAs(t, as(t, "me"), unlucky, name)
				left.Store(3) // it is repeated, and repeated
				err = inner.Release(t.Context())
			case "adopt":
				inner := locktest.TryAs(t, as(t, "me"), locks, name)
				token, e := inner.Detach()
				if e != nil {
					t.Fatal(e)
				}
				left.Store(1)
				_, err = unlucky.Adopt(t.Context(), name, token)
			}
			if !errors.Is(err, strategy.ErrUnknown) {
				t.Errorf("%s = %v, want ErrUnknown", script, err)
			}
			verdict.Eventually(t, "the outer hold is the only one: the other is undone", func() bool {
				info, err := locks.Inspect(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				return info.Holds == 1 && left.Load() <= 0
			})
			if err := unlucky.Close(); err != nil { // waits for what is repeated
				t.Errorf("Close() = %v, want nil", err)
			}
			if err := outer.Extend(t.Context()); err != nil {
				t.Errorf("Extend() of the outer hold = %v, want nil", err)
			}
			locktest.Release(t, outer)
			if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
				t.Errorf("EXISTS = %v after the last release, want 0", n)
			}
		})
	}
}

// TestForbidden: whichever command an ACL forbids, no key is ever left without expiry,
// no lock is taken that could not be given back, and what is refused leaves the holds
// as they were.
func TestForbidden(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	for _, command := range []string{"get", "time", "hgetall", "pttl", "set", "del", "hdel", "hset", "pexpireat", "publish"} {
		t.Run(command, func(t *testing.T) {
			pool := locktest.As(t, s, "no-"+command, "that a lock is safe from ACLs", "-"+command)
			bound, err := reentrant.New(redigonode.New(pool), strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second})
			locktest.Opened(t, bound, err)
			key := strategy.DefaultKey(command)
			lease, err := bound.NewLock(command).TryAcquire(t.Context())
			if command == "publish" {
				if err != nil {
					t.Fatalf("TryAcquire() = %v, want nil: the notice is a hint", err)
				}
				locktest.Release(t, lease)
				return
			}
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "run") { // "can't run this command", "no permissions to run"
				t.Errorf("TryAcquire() = %v, want ErrRefused, and that the user may not run it", err)
			}
			if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
				t.Errorf("EXISTS = %v, want 0: refused, but taken", n)
			}

			// And where the lock is held already, by two of the same owner.
			outer, other := locktest.TryAs(t, as(t, "me"), locks, command), locktest.TryAs(t, as(t, "me"), locks, command)
			sound := func(after string, holds ...int) {
				t.Helper()
				info, err := locks.Inspect(t.Context(), command)
				if err != nil || !slices.Contains(holds, info.Holds) || info.TTL <= 0 || info.TTL > time.Minute {
					t.Errorf("Inspect() after %s = %+v, %v, want holds %v and a TTL", after, info, err, holds)
				}
				if err := outer.Extend(t.Context()); err != nil {
					t.Errorf("Extend() of the outer hold after %s = %v, want nil", after, err)
				}
			}
			_, err = bound.NewLock(command).TryAcquire(as(t, "me"))
			refused := errors.Is(err, strategy.ErrRefused)
			switch {
			case refused:
				sound("re-entry was refused", 2)
			case err != nil:
				t.Errorf("re-entry = %v, want nil or ErrRefused", err)
			default:
				sound("re-entry", 3)
			}
			token, err := other.Detach()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bound.Adopt(t.Context(), command, token); err != nil {
				if !errors.Is(err, strategy.ErrRefused) {
					t.Errorf("Adopt() = %v, want nil or ErrRefused", err)
				}
				if adopted, err := locks.Adopt(t.Context(), command, token); err != nil {
					t.Errorf("Adopt() after one that was refused = %v, want nil: nothing had changed", err)
				} else {
					sound("adoption", 2, 3)
					locktest.Release(t, adopted)
				}
			}
			sound("all that", 1, 2, 3)
		})
	}
}

// TestForbiddenToRelease: whichever command an ACL forbids, a release that is refused leaves
// the holds as they were, one that is not refused has ended its hold, and the key never loses
// its expiry.
func TestForbiddenToRelease(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	for _, command := range []string{"time", "hgetall", "pttl", "del", "hdel", "pexpireat", "publish"} {
		pool := locktest.As(t, s, "unfree-"+command, "that a lock is safe from ACLs", "-"+command)
		bound := reentrant.On(locktest.NodeOn(t, pool))
		for _, holds := range []int{1, 2} {
			for _, force := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d holds/force=%v", command, holds, force), func(t *testing.T) {
					p, c := protocol(t, s, locktest.Unique(t), "me", "mine")
					for i := range holds {
						other := c
						if i > 0 {
							other.Token = "other"
						}
						g, err := p.Acquire(t.Context(), other)
						if err != nil {
							t.Fatal(err)
						}
						c.Grant = g
					}
					release := bound.Release
					if force {
						release = bound.ForceRelease
					}
					_, err := release(t.Context(), c)
					left := holds
					switch {
					case err == nil && force:
						left = 0
					case err == nil:
						left--
					case !errors.Is(err, strategy.ErrRefused):
						t.Errorf("Release() = %v, want nil or ErrRefused", err)
					}
					info, err := p.Inspect(t.Context(), c)
					if err != nil || info.Holds != left {
						t.Errorf("Inspect() = %+v, %v, want %d holds", info, err, left)
					}
					if ttl := redistest.Do(t, s, "PTTL", c.Key); ttl == int64(-1) {
						t.Error("the key has no expiry")
					}
				})
			}
		}
	}
}

// TestNotification: the release that ends the last hold publishes the owner, an operator's
// does, too, and an inner release publishes nothing.
func TestNotification(t *testing.T) {
	s := redistest.Shared(t)
	p, c := protocol(t, s, locktest.Unique(t), "me", "outer")
	told := make(chan driver.Notification, 10)
	stop, err := p.(driver.Notifier).Watch(t.Context(), c, func(n driver.Notification) { told <- n })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	hold := func(c driver.Claim) driver.Claim {
		t.Helper()
		g, err := p.Acquire(t.Context(), c)
		if err != nil {
			t.Fatalf("Acquire() = %v, want nil", err)
		}
		c.Grant = g
		return c
	}
	free := func(c driver.Claim) {
		t.Helper()
		if _, err := p.Release(t.Context(), c); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	}
	want := func(owner string) {
		t.Helper()
		select {
		case n := <-told:
			if n.Holder != owner {
				t.Errorf("notification = %+v, want that of %q", n, owner)
			}
		case <-time.After(time.Minute):
			t.Errorf("no notification after a minute, want that of %q", owner)
		}
	}
	outer, inner := hold(c), c
	inner.Token = "inner"
	inner = hold(inner)
	free(outer)
	redistest.Do(t, s, "PUBLISH", c.Key+":free", "the inner release comes before this")
	want("the inner release comes before this")
	free(inner)
	want("me")
	if _, err := p.ForceRelease(t.Context(), hold(c)); err != nil {
		t.Errorf("ForceRelease() = %v, want nil", err)
	}
	want("me")
}

// TestHandOver: in two processes with many waiters each, the holder has the lock alone, by a greater fence
// than all before; holds are handed over by one request; and nobody sleeps until a TTL ends, which is
// longer than the test may last.
func TestHandOver(t *testing.T) {
	s := redistest.Shared(t)
	var adopted atomic.Int64
	counting := func() strategy.Strategy {
		locks, err := reentrant.New(conformance.GateNode(locktest.Node(t, s), func(request string, send func()) {
			if request == "script adopt" {
				adopted.Add(1)
			}
			send()
		}), strategy.Options{TTL: time.Hour, OpTimeout: time.Minute})
		return locktest.Opened(t, locks, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	name := locktest.Unique(t)
	var inside atomic.Int64
	var last atomic.Uint64
	verdict.Conclusive(t, func() verdict.Slow {
		var all sync.WaitGroup
		for range 2 {
			locks := counting()
			for range 16 {
				all.Go(func() {
					for range 5 {
						err := strategy.Do(ctx, locks.NewLock(name), func(ctx context.Context, l strategy.Lease) error {
							if inside.Add(1) > 1 {
								t.Error("two holders at once")
							}
							fence := locktest.Fence(t, l)
							if before := last.Swap(fence); fence <= before {
								t.Errorf("fence = %d, want more than %d", fence, before)
							}
							inside.Add(-1)
							return nil
						})
						if err != nil {
							t.Errorf("Do() = %v, want nil", err)
						}
					}
				})
			}
		}
		all.Wait()
		if adopted.Load() == 0 {
			return verdict.Slowf("no release was sent within the turn of its process")
		}
		return ""
	})
}

// TestCheck: it looks at the server, and runs a script.
func TestCheck(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	if n := redistest.Do(t, s, "DBSIZE"); n != int64(0) {
		t.Errorf("DBSIZE = %v, want 0: Check changes nothing", n)
	}
	conn := s.Pool().Get()
	defer conn.Close()
	if _, err := conn.Do("REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Skipf("NOT PROVEN: that Check sees a replica: %v", err)
	}
	if err := locks.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("Check() of a replica = %v, want an error that says primary", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := reentrant.New(nil, strategy.Options{}); err == nil {
		t.Error("New(nil) = nil, want an error")
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("unused") }}
	if _, err := reentrant.New(redigonode.New(pool), strategy.Options{TTL: time.Millisecond}); err == nil {
		t.Error("New() with a TTL of 1ms = nil, want an error that says what is allowed")
	}
}

// TestHeldTells: what a refused contender and an operator learn.
func TestHeldTells(t *testing.T) {
	locks := open(t, redistest.Shared(t), strategy.Options{TTL: time.Minute, Label: "host-1/7"})
	name := locktest.Unique(t)
	lease := locktest.TryAs(t, as(t, "request 7"), locks, name)
	defer lease.Release(context.Background())
	_, err := locks.NewLock(name).TryAcquire(t.Context())
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != "request 7" || held.TTL <= 0 || held.TTL > time.Minute {
		t.Errorf("TryAcquire() = %v, want a HeldError by request 7 and up to a minute", err)
	}
	info, err := locks.Inspect(t.Context(), name)
	if err != nil || !info.Held || info.Token != lease.Token() || info.Owner != "request 7" || info.Holds != 1 || info.Label != "host-1/7" || info.Fence != locktest.Fence(t, lease) {
		t.Errorf("Inspect() = %+v, %v, want the lease's token, owner, label and fence", info, err)
	}
}

// TestGarbage: what our scripts never return is neither a grant, nor held, nor lost:
// nobody knows.
func TestGarbage(t *testing.T) {
	c := driver.Claim{Name: "a", Key: "a", Owner: "me", Token: "t"}
	unknown := func(call string, reply any, err error) {
		t.Helper()
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("%s on %#v = %v, want ErrUnknown", call, reply, err)
		}
	}
	for _, reply := range []any{nil, []byte("OK"), int64(-1), int64(0), []any{}, []any{int64(1)}, []any{int64(7), int64(1)}, []any{[]byte("x")}, []any{[]byte("x"), []byte("y")}, []any{[]byte("x"), int64(-1)}, []any{[]byte("x"), int64(9), int64(9), int64(9), []byte("1")}, "text"} {
		_, err := reentrant.On(locktest.OneReply{Reply: reply}).Acquire(t.Context(), c)
		unknown("Acquire()", reply, err)
	}
	for _, reply := range []any{int64(2), int64(-1), []any{}, []any{int64(2)}, []any{int64(1), int64(1)}} {
		_, err := reentrant.On(locktest.OneReply{Reply: reply}).Extend(t.Context(), c)
		unknown("Extend()", reply, err)
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}} {
		unknown("Release()", reply, locktest.Err(reentrant.On(locktest.OneReply{Reply: reply}).Release(t.Context(), c)))
	}
	for _, reply := range []any{int64(1), []any{}, []any{int64(0), []byte("x")}, []any{int64(7), []byte("")}, []any{[]byte("x"), int64(7)}} {
		_, err := reentrant.On(locktest.OneReply{Reply: reply}).Adopt(t.Context(), c, "u")
		unknown("Adopt()", reply, err)
	}
	for _, reply := range []any{
		nil, []any{}, []any{[]byte("7")}, []any{int64(-1)}, []any{int64(7), []byte("x")},
		[]any{int64(7), []byte("x"), nil, int64(1), int64(1)}, []any{int64(7), []byte("x"), []byte("t"), nil, int64(1)},
		[]any{int64(7), []byte("x"), []byte("t"), int64(1), nil}, []any{int64(7), nil, []byte("t"), int64(1), int64(1)},
	} {
		_, err := reentrant.On(locktest.OneReply{Reply: reply}).Inspect(t.Context(), c)
		unknown("Inspect()", reply, err)
	}
}

func TestFencesExpire(t *testing.T) {
	locktest.FencesExpire(t, open)
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	type doing = func(driver.Node) (any, error)
	talk := func(name string, do doing, asked string, reply, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Asked: []string{asked}, Replies: []any{reply}, Got: got, Err: err}
	}
	c := locktest.AClaim()
	acquire := func(n driver.Node) (any, error) { return reentrant.On(n).Acquire(t.Context(), c) }
	again := func(n driver.Node) (any, error) {
		c := c
		c.Again = true
		return reentrant.On(n).Acquire(t.Context(), c)
	}
	extend := func(n driver.Node) (any, error) { return reentrant.On(n).Extend(t.Context(), c) }
	release := func(n driver.Node) (any, error) { return nil, locktest.Err(reentrant.On(n).Release(t.Context(), c)) }
	undo := func(n driver.Node) (any, error) { return nil, reentrant.On(n).Undo(t.Context(), c) }
	force := func(n driver.Node) (any, error) {
		c := c
		c.Grant.Fence = 7
		return nil, locktest.Err(reentrant.On(n).ForceRelease(t.Context(), c))
	}
	adopt := func(n driver.Node) (any, error) {
		return reentrant.On(n).Adopt(t.Context(), c, "from")
	}
	inspect := func(n driver.Node) (any, error) {
		return reentrant.On(n).Inspect(t.Context(), c)
	}
	const keys = "a {a}:fence: "
	other := []byte("other")
	held := &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second}
	lost, byOther := &strategy.LostError{Name: "a"}, &strategy.LostError{Name: "a", Holder: "other"}
	none, granted := driver.Grant{}, driver.Grant{Fence: 7, Owner: "me", State: "t"}
	locktest.Talks(t,
		talk("acquire", acquire, "acquire "+keys+"me t 60000 0 86400000", int64(7), granted, nil),
		talk("acquire a held one", acquire, "acquire "+keys+"me t 60000 0 86400000", []any{other, int64(1000)}, none, held),
		talk("re-enter", again, "acquire "+keys+"me t 60000 1 86400000", int64(7), granted, nil),
		talk("re-enter what is free", again, "acquire "+keys+"me t 60000 1 86400000", nil, none, &strategy.HeldError{Name: "a"}),
		talk("extend", extend, "extend a t 60000", int64(1), none, nil),
		talk("extend another's", extend, "extend a t 60000", []any{other}, none, byOther),
		talk("extend a hold that is over", extend, "extend a t 60000", []any{[]byte("me")}, none, strategy.ErrLost),
		talk("release", release, "release a t {a}:free:", int64(1), nil, nil),
		talk("release another's", release, "release a t {a}:free:", other, nil, byOther),
		talk("release one that is gone", release, "release a t {a}:free:", nil, nil, lost),
		talk("undo one that is gone", undo, "release a t {a}:free:", nil, nil, nil),
		talk("release by force", force, "force a me 7 {a}:free:", int64(1), nil, nil),
		talk("release another's by force", force, "force a me 7 {a}:free:", other, nil, byOther),
		talk("adopt", adopt, "adopt "+keys+"from 60000 t me 86400000", []any{int64(7), []byte("me")}, granted, nil),
		talk("adopt another's", adopt, "adopt "+keys+"from 60000 t me 86400000", other, none, byOther),
		talk("inspect", inspect, "inspect "+strings.TrimSpace(keys), []any{int64(7), other, []byte("t"), int64(2), int64(1000)},
			strategy.Info{Held: true, Owner: "other", Token: "t", Holds: 2, TTL: time.Second, Fence: 7}, nil),
		talk("inspect one that is free", inspect, "inspect "+strings.TrimSpace(keys), []any{int64(7)}, strategy.Info{Fence: 7}, nil),
	)
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return reentrant.On(n) })
}

func TestGrantsOnceConfirmed(t *testing.T) {
	on := func(n driver.Node, a strategy.Acks) driver.Protocol {
		return reentrant.On(n).(driver.Acknowledger).Acknowledged(a)
	}
	locktest.GrantsOnceConfirmed(t, on, "EVALSHA", int64(7))
}

// TestAllocations: the lease, the token and its box, the arguments of two requests, the counter's key among them, the fence in the
// reply, and a context for the release that its caller does not end.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), strategy.Options{}), 8)
}
