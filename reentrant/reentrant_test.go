package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/reentrant"
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
func TestConformance(t *testing.T) { subjects.Run(t, "reentrant") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "reentrant") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	return opened(t, func() (strategy.Strategy, error) { return reentrant.New(s.Pool(), o) })
}

func opened(t *testing.T, f func() (strategy.Strategy, error)) strategy.Strategy {
	t.Helper()
	locks, err := f()
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

// unique is a lock's name that nobody else uses.
func unique(t *testing.T) string { return fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano()) }

func as(t *testing.T, owner string) context.Context { return strategy.WithOwner(t.Context(), owner) }

func acquire(t *testing.T, ctx context.Context, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(ctx)
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want nil", err)
	}
	return lease
}

func release(t *testing.T, l strategy.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

func fence(t *testing.T, l strategy.Lease) uint64 {
	t.Helper()
	n, ok := l.Fence()
	if !ok {
		t.Fatal("Fence() = 0, false, want a fence")
	}
	return n
}

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
	n, err := node.New(s.Pool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return reentrant.On(n), driver.Claim{Name: name, Key: strategy.DefaultKey(name), Owner: owner, Token: token, TTL: time.Minute, Due: time.Now().Add(time.Minute)}
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	if err := acquire(t, t.Context(), locks, "warm").Extend(t.Context()); err != nil { // dials, and loads the scripts
		t.Fatal(err)
	}
	for range 2 {
		release(t, acquire(t, t.Context(), locks, "warmer"))
	}
	count := func(what string, f func()) {
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
		if got := after - before; got != 1 {
			t.Errorf("round trips of %s = %d, want 1", what, got)
		}
	}
	var outer, inner strategy.Lease
	count("Acquire", func() { outer = acquire(t, as(t, "me"), locks, "counted") })
	count("re-entry", func() { inner = acquire(t, as(t, "me"), locks, "counted") })
	count("a held TryAcquire", func() {
		if _, err := locks.NewLock("counted").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
			t.Errorf("TryAcquire() = %v, want ErrHeld", err)
		}
	})
	count("Extend", func() {
		if err := outer.Extend(t.Context()); err != nil {
			t.Error(err)
		}
	})
	count("an inner Release", func() { release(t, inner) })
	count("the last Release", func() { release(t, outer) })
}

// TestOnTheWire: the hash is what the package doc says it is.
func TestOnTheWire(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{})
	name, owner := unique(t), "hold:\x00\xff owner"
	outer := acquire(t, as(t, owner), locks, name)
	inner := acquire(t, as(t, owner), locks, name)
	want := []string{"fence", "hold:" + inner.Token(), "hold:" + outer.Token(), "owner"}
	slices.Sort(want)
	if got := fields(t, s, name); !slices.Equal(got, want) {
		t.Errorf("the hash has the fields %q, want %q", got, want)
	}
	if got, _ := redis.String(redistest.Do(t, s, "HGET", strategy.DefaultKey(name), "owner"), nil); got != owner {
		t.Errorf("owner = %q, want %q", got, owner)
	}
	if got, _ := redis.Uint64(redistest.Do(t, s, "HGET", strategy.DefaultKey(name), "fence"), nil); got != fence(t, outer) {
		t.Errorf("fence = %d, want %d", got, fence(t, outer))
	}
	release(t, outer)
	release(t, inner)
	if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
		t.Errorf("EXISTS = %v after the last release, want 0", n)
	}
}

// TestTTLRule: the key lives exactly as long as the longest of its holds.
func TestTTLRule(t *testing.T) {
	s := redistest.Shared(t)
	long := open(t, s, strategy.Options{TTL: 10 * time.Minute})
	short, err := long.With(strategy.Options{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	name := unique(t)
	within := func(what string, least, most time.Duration) {
		t.Helper()
		if got := pttl(t, s, name); got <= least || got > most {
			t.Errorf("PTTL %s = %v, want more than %v and up to %v", what, got, least, most)
		}
	}
	outer := acquire(t, as(t, "me"), short, name)
	within("of the outer", 0, time.Minute)
	inner := acquire(t, as(t, "me"), long, name)
	within("with a longer inner", 5*time.Minute, 10*time.Minute)
	release(t, inner)
	within("after its release", 0, time.Minute)

	inner = acquire(t, as(t, "me"), long, name)
	if err := outer.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	within("after a shorter renewal", 5*time.Minute, 10*time.Minute)
	release(t, outer)
	within("after the shorter's release", 5*time.Minute, 10*time.Minute)

	token, err := inner.Detach()
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := short.Adopt(t.Context(), name, token)
	if err != nil {
		t.Fatal(err)
	}
	within("after an adoption for less", 0, time.Minute)
	release(t, adopted)
}

// TestLapsedHolds: they count no more, and writes drop them.
func TestLapsedHolds(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	name := unique(t)
	key := strategy.DefaultKey(name)
	lapse := func(l strategy.Lease) { redistest.Do(t, s, "HSET", key, "hold:"+l.Token(), 1000) }

	outer := acquire(t, as(t, "me"), locks, name)
	dead := acquire(t, as(t, "me"), locks, name)
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
	inner := acquire(t, as(t, "me"), locks, name)
	lapse(inner)
	if err := inner.Release(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Release() of a hold that lapsed = %v, want ErrLost", err)
	}
	lapse(outer)
	if info, err := locks.Inspect(t.Context(), name); err != nil || info.Held {
		t.Errorf("Inspect() = %+v, %v, want a free lock: all its holds have lapsed", info, err)
	}
	next := acquire(t, as(t, "another"), locks, name)
	if got := fields(t, s, name); len(got) != 3 {
		t.Errorf("the hash has the fields %q, want those of the new owner alone", got)
	}
	if fence(t, next) <= fence(t, outer) {
		t.Errorf("fence = %d, want more than %d", fence(t, next), fence(t, outer))
	}
	release(t, next)
}

// TestHoldBeyondItsKey: a hold counts no longer than its key is there, whatever its field
// says. Those who wait are not told of a later end, and no other hold's release or
// renewal lets the key live until then.
func TestHoldBeyondItsKey(t *testing.T) {
	s := redistest.Shared(t)
	name := unique(t)
	p, c := protocol(t, s, name, "me", "mine")
	defer redistest.Do(t, s, "DEL", c.Key, c.Key+":fence")
	redistest.Do(t, s, "HSET", c.Key, "owner", "me", "fence", 7, "hold:t", "9999999999999999")
	redistest.Do(t, s, "PEXPIRE", c.Key, 600000)

	stranger := c
	stranger.Owner, stranger.Token = "you", "yours"
	_, err := p.Acquire(t.Context(), stranger)
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.TTL <= 0 || held.TTL > 10*time.Minute {
		t.Errorf("Acquire() = %v, want ErrHeld for 10 minutes at most, as long as the key is there", err)
	}
	if _, err := p.Acquire(t.Context(), c); err != nil {
		t.Fatalf("Acquire() by the owner = %v, want nil", err)
	}
	if left := pttl(t, s, name); left <= 0 || left > 10*time.Minute {
		t.Errorf("PTTL = %v after re-entry, want 10 minutes at most", left)
	}
	if err := p.Release(t.Context(), c); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
	if left := pttl(t, s, name); left <= 0 || left > 10*time.Minute {
		t.Errorf("PTTL = %v after the release, want 10 minutes at most", left)
	}
}

// TestNoLock: a key that is none of ours is refused, clearly, and left alone.
func TestNoLock(t *testing.T) {
	s := redistest.Shared(t)
	for what, make := range map[string][][]any{
		"a user's hash":         {{"HSET", "name", "Ann", "age", 42}, {"PEXPIRE", 600000}},
		"no owner":              {{"HSET", "fence", 7, "hold:t", 9999999999999}, {"PEXPIRE", 600000}},
		"no fence":              {{"HSET", "owner", "me", "hold:t", 9999999999999}, {"PEXPIRE", 600000}},
		"a fence that is none":  {{"HSET", "owner", "me", "fence", "x", "hold:t", 9999999999999}, {"PEXPIRE", 600000}},
		"a fence never issued":  {{"HSET", "owner", "me", "fence", 0, "hold:t", 9999999999999}, {"PEXPIRE", 600000}},
		"an owner of no name":   {{"HSET", "owner", "", "fence", 7, "hold:t", 9999999999999}, {"PEXPIRE", 600000}},
		"a time that is none":   {{"HSET", "owner", "me", "fence", 7, "hold:t", "soon"}, {"PEXPIRE", 600000}},
		"a time out of range":   {{"HSET", "owner", "me", "fence", 7, "hold:t", "99999999999999999999"}, {"PEXPIRE", 600000}},
		"a count":               {{"HSET", "owner", "me", "fence", 7, "count", 1}, {"PEXPIRE", 600000}},
		"one field too many":    {{"HSET", "owner", "me", "fence", 7, "hold:t", 9999999999999, "x", "y"}, {"PEXPIRE", 600000}},
		"without expiry":        {{"HSET", "owner", "me", "fence", 7, "hold:t", 9999999999999}},
		"luascript's, a string": {{"SET", "token"}, {"PEXPIRE", 600000}},
		"a list":                {{"RPUSH", "x"}},
	} {
		t.Run(what, func(t *testing.T) {
			name := unique(t)
			p, c := protocol(t, s, name, "me", "t")
			for _, command := range make {
				redistest.Do(t, s, command[0].(string), append([]any{c.Key}, command[1:]...)...)
			}
			defer redistest.Do(t, s, "DEL", c.Key)
			before := content(t, s, c.Key)
			refused := func(call string, err error) {
				t.Helper()
				if !errors.Is(err, strategy.ErrRefused) || errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
					t.Errorf("%s = %v, want ErrRefused and nothing else", call, err)
				}
				if !strings.Contains(fmt.Sprint(err), "NOLOCK") && !strings.Contains(fmt.Sprint(err), "WRONGTYPE") {
					t.Errorf("%s = %v, want it to say that the key is no lock", call, err)
				}
			}
			_, err := p.Acquire(t.Context(), c)
			refused("Acquire()", err)
			_, err = p.Extend(t.Context(), c)
			refused("Extend()", err)
			refused("Release()", p.Release(t.Context(), c))
			force := c
			force.Force, force.Grant.Fence = true, 7
			refused("Release() by force", p.Release(t.Context(), force))
			other := c
			other.Token = "u"
			_, err = p.(driver.Adopter).Adopt(t.Context(), other, c.Token)
			refused("Adopt()", err)
			_, err = p.(driver.Inspector).Inspect(t.Context(), c)
			refused("Inspect()", err)
			if after := content(t, s, c.Key); !reflect.DeepEqual(after, before) {
				t.Errorf("the key has changed: %q, want %q", after, before)
			}
			if what != "without expiry" && what != "a list" && pttl(t, s, name) <= 0 {
				t.Errorf("the key has lost its expiry")
			}
			if n := redistest.Do(t, s, "EXISTS", c.Key+":fence"); n != int64(0) {
				t.Errorf("a counter was made, want none: no lock was taken")
			}
		})
	}
}

// TestFenceSurvivesItsCounter: the server's clock is the floor. Re-entry needs no counter.
func TestFenceSurvivesItsCounter(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{})
	name := unique(t)
	counter := strategy.DefaultKey(name) + ":fence"
	first := acquire(t, as(t, "me"), locks, name)
	redistest.Do(t, s, "SET", counter, "seven")
	if again := acquire(t, as(t, "me"), locks, name); fence(t, again) != fence(t, first) {
		t.Errorf("fence on re-entry = %d, want %d", fence(t, again), fence(t, first))
	} else {
		release(t, again)
	}
	release(t, first)
	_, err := locks.NewLock(name).TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "holds no fence") {
		t.Errorf("TryAcquire() = %v, want ErrRefused because the counter holds no fence", err)
	}
	if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0: refused, but taken", n)
	}
	redistest.Do(t, s, "DEL", counter)
	second := acquire(t, t.Context(), locks, name)
	if fence(t, second) <= fence(t, first) {
		t.Errorf("fence without the counter = %d, want more than %d", fence(t, second), fence(t, first))
	}
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	redistest.Do(t, s, "SET", counter, ahead)
	release(t, second)
	third := acquire(t, t.Context(), locks, name)
	if got := fence(t, third); got != ahead+1 {
		t.Errorf("fence = %d, want %d", got, ahead+1)
	}
	token, err := third.Detach()
	if err != nil {
		t.Fatal(err)
	}
	heir, err := locks.Adopt(t.Context(), name, token)
	if err != nil {
		t.Fatal(err)
	}
	if got := fence(t, heir); got != ahead+2 {
		t.Errorf("fence of the heir = %d, want %d", got, ahead+2)
	}
	release(t, heir)
	last := acquire(t, t.Context(), locks, name)
	if got := fence(t, last); got != ahead+3 {
		t.Errorf("fence after the heir = %d, want %d: no two holds share one", got, ahead+3)
	}
	release(t, last)
	redistest.Do(t, s, "SET", counter, "9007199254740991") // one more is 2^53, where numbers are not exact any more
	if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("TryAcquire() after the last fence = %v, want ErrRefused", err)
	}
	redistest.Do(t, s, "DEL", counter)
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
		c.Key, c.Token, c.TTL = strategy.DefaultKey(c.Name), "t"+strconv.Itoa(i), time.Second*10
		g, err := p.Acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		g.Start = time.Now()
		c.Grant, c.TTL = g, time.Minute
		claims[i] = c
	}
	gone, taken, spoiled, ended := 7, 107, 207, 11
	redistest.Do(t, s, "DEL", claims[gone].Key)
	redistest.Do(t, s, "HSET", claims[taken].Key, "owner", "another")
	redistest.Do(t, s, "HDEL", claims[taken].Key, "hold:"+claims[taken].Token)
	redistest.Do(t, s, "DEL", claims[spoiled].Key)
	redistest.Do(t, s, "RPUSH", claims[spoiled].Key, "no lock")
	redistest.Do(t, s, "HDEL", claims[ended].Key, "hold:"+claims[ended].Token)

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
	if scripts := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; scripts != 5 {
		t.Errorf("requests for %d renewals = %d, want 5", len(claims), scripts)
	}
	if n := int(calls.Load()); n != len(claims) {
		t.Errorf("answers = %d, want %d", n, len(claims))
	}
	for i, err := range answers {
		var lost *strategy.LostError
		switch i {
		case gone, gone - 1:
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

// TestExtendNeverShortens: a renewal that was stuck on its way, and asked for less
// than a later one got, must not take from the holder what it relies on.
func TestExtendNeverShortens(t *testing.T) {
	s := redistest.Shared(t)
	p, c := protocol(t, s, unique(t), "me", "t")
	g, err := p.Acquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.Grant = g
	late := c
	late.TTL = time.Second
	if _, err := p.Extend(t.Context(), late); err != nil {
		t.Errorf("Extend() by less = %v, want nil", err)
	}
	if _, err := p.Acquire(t.Context(), late); err != nil { // the acquire, once more
		t.Errorf("Acquire() with the same token = %v, want nil", err)
	}
	if got := pttl(t, s, c.Name); got < 30*time.Second {
		t.Errorf("PTTL = %v, want about a minute", got)
	}
	if info, err := p.(driver.Inspector).Inspect(t.Context(), c); err != nil || info.Holds != 1 || info.TTL < 30*time.Second {
		t.Errorf("Inspect() = %+v, %v, want one hold of about a minute", info, err)
	}
	if err := p.Release(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// A stalled node's server stands still in the middle of a script, before it keeps a hold.
type stalled struct {
	driver.Node
	t *testing.T
}

func (n stalled) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	const keep = "local function keep(key, lock, token, ends)\n"
	if !strings.Contains(s.Source(), keep) {
		n.t.Fatalf("%s does not keep a hold: stop it elsewhere", s.Name())
	}
	// Servers differ in whether time passes within a script.
	const pause = "local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end\n" +
		"local began = ms()\nfor i = 1, 1000000 do if ms() > began + 60 then break end end\n"
	return n.Node.Eval(ctx, due, driver.NewScript(s.Name(), strings.Replace(s.Source(), keep, keep+pause, 1)), keys, args...)
}

// TestStoodStill: a server that stands still in the middle of a script, for longer than the
// TTL, deletes the key when it goes on. What the script writes then would be a lock without
// owner and expiry, which nobody ever gets again.
func TestStoodStill(t *testing.T) {
	s := redistest.Shared(t)
	n, err := node.New(s.Pool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	late := reentrant.On(stalled{n, t})
	for name, move := range map[string]func(c driver.Claim) error{
		"Extended": func(c driver.Claim) error {
			_, err := late.Extend(t.Context(), c)
			return err
		},
		"Reentered": func(c driver.Claim) error {
			c.Token = "another"
			_, err := late.Acquire(t.Context(), c)
			return err
		},
		"Adopted": func(c driver.Claim) error {
			from := c.Token
			c.Token = "another"
			_, err := late.(driver.Adopter).Adopt(t.Context(), c, from)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := protocol(t, s, unique(t), "owner", "token")
			c.TTL = 50 * time.Millisecond
			if _, err := p.Acquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			t.Logf("%v", move(c))
			for limit := time.Now().Add(10 * time.Second); redistest.Do(t, s, "EXISTS", c.Key) != int64(0); time.Sleep(time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatalf("long after its TTL the key has %q", redistest.Do(t, s, "HKEYS", c.Key))
				}
			}
		})
	}
}

// TestOnlyAgain: a claim that is to re-enter takes no lock that is free.
func TestOnlyAgain(t *testing.T) {
	s := redistest.Shared(t)
	p, c := protocol(t, s, unique(t), "me", "t")
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
			name := unique(t)
			n, err := node.New(s.Pool())
			if err != nil {
				t.Fatal(err)
			}
			var left atomic.Int32
			losing := &lossy{Node: n, lose: func(name string) bool { return name == script && left.Add(-1) >= 0 }}
			unlucky := opened(t, func() (strategy.Strategy, error) {
				return engine.New(reentrant.On(losing), strategy.Options{TTL: time.Minute})
			})
			outer := acquire(t, as(t, "me"), locks, name)
			switch script {
			case "acquire":
				left.Store(1)
				_, err = unlucky.NewLock(name).TryAcquire(as(t, "me"))
			case "release":
				inner := acquire(t, as(t, "me"), unlucky, name)
				left.Store(3) // it is repeated, and repeated
				err = inner.Release(t.Context())
			case "adopt":
				inner := acquire(t, as(t, "me"), locks, name)
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
			limit := time.Now().Add(30 * time.Second)
			for {
				info, err := locks.Inspect(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if info.Holds == 1 && left.Load() <= 0 {
					break
				}
				if time.Now().After(limit) {
					t.Fatalf("Inspect() = %+v, want one hold: the other is undone", info)
				}
				time.Sleep(5 * time.Millisecond)
			}
			if err := unlucky.Close(); err != nil { // waits for what is repeated
				t.Errorf("Close() = %v, want nil", err)
			}
			if err := outer.Extend(t.Context()); err != nil {
				t.Errorf("Extend() of the outer hold = %v, want nil", err)
			}
			release(t, outer)
			if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
				t.Errorf("EXISTS = %v after the last release, want 0", n)
			}
		})
	}
}

// TestOutOfMemory: what only renews or releases works when Redis takes no writes, and so
// does re-entry; a new owner is refused.
func TestOutOfMemory(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	outer := acquire(t, as(t, "me"), locks, "a")
	inner := acquire(t, as(t, "me"), locks, "a")
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("CONFIG", "SET", "maxmemory", 1); err != nil {
		t.Skipf("NOT PROVEN: that locks are released when Redis is out of memory: %v", err)
	}
	_, err := locks.NewLock("b").TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("TryAcquire() = %v, want ErrRefused and OOM", err)
	}
	if n := redistest.Do(t, s, "EXISTS", "lock:{b}", "lock:{b}:fence"); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0: refused, but something was written", n)
	}
	if err := outer.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	third := acquire(t, as(t, "me"), locks, "a")
	release(t, inner)
	release(t, third)
	if err := outer.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	release(t, outer)
	if n := redistest.Do(t, s, "EXISTS", "lock:{a}"); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0: released", n)
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
			c := s.Pool().Get()
			defer c.Close()
			if _, err := c.Do("ACL", "SETUSER", "no-"+command, "on", ">secret", "~*", "&*", "+@all", "-"+command); err != nil {
				t.Skipf("NOT PROVEN: that a lock is safe from ACLs: %v", err)
			}
			pool := &redis.Pool{Dial: func() (redis.Conn, error) {
				return redis.Dial("tcp", s.Addr(), redis.DialUsername("no-"+command), redis.DialPassword("secret"))
			}}
			defer pool.Close()
			bound := opened(t, func() (strategy.Strategy, error) {
				return reentrant.New(pool, strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second})
			})
			key := strategy.DefaultKey(command)
			lease, err := bound.NewLock(command).TryAcquire(t.Context())
			if command == "publish" {
				if err != nil {
					t.Fatalf("TryAcquire() = %v, want nil: the notice is a hint", err)
				}
				release(t, lease)
				return
			}
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "run") { // "can't run this command", "no permissions to run"
				t.Errorf("TryAcquire() = %v, want ErrRefused, and that the user may not run it", err)
			}
			if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
				t.Errorf("EXISTS = %v, want 0: refused, but taken", n)
			}

			// And where the lock is held already, by two of the same owner.
			outer, other := acquire(t, as(t, "me"), locks, command), acquire(t, as(t, "me"), locks, command)
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
					release(t, adopted)
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
		conn := s.Pool().Get()
		_, err := conn.Do("ACL", "SETUSER", "unfree-"+command, "on", ">secret", "~*", "&*", "+@all", "-"+command)
		conn.Close()
		if err != nil {
			t.Skipf("NOT PROVEN: that a lock is safe from ACLs: %v", err)
		}
		pool := &redis.Pool{Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", s.Addr(), redis.DialUsername("unfree-"+command), redis.DialPassword("secret"))
		}}
		t.Cleanup(func() { pool.Close() })
		n, err := node.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		bound := reentrant.On(n)
		for _, holds := range []int{1, 2} {
			for _, force := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d holds/force=%v", command, holds, force), func(t *testing.T) {
					p, c := protocol(t, s, unique(t), "me", "mine")
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
					c.Force = force
					err := bound.Release(t.Context(), c)
					left := holds
					switch {
					case err == nil && force:
						left = 0
					case err == nil:
						left--
					case !errors.Is(err, strategy.ErrRefused):
						t.Errorf("Release() = %v, want nil or ErrRefused", err)
					}
					info, err := p.(driver.Inspector).Inspect(t.Context(), c)
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
	p, c := protocol(t, s, unique(t), "me", "outer")
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
		if err := p.Release(t.Context(), c); err != nil {
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
		case <-time.After(10 * time.Second):
			t.Errorf("no notification after 10 s, want that of %q", owner)
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
	forced := hold(c)
	forced.Force = true
	free(forced)
	want("me")
}

// content is all that a key holds.
func content(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	switch kind := fmt.Sprint(redistest.Do(t, s, "TYPE", key)); kind {
	case "hash":
		return fmt.Sprintf("%s %q", kind, redistest.Do(t, s, "HGETALL", key))
	case "list":
		return fmt.Sprintf("%s %q", kind, redistest.Do(t, s, "LRANGE", key, 0, -1))
	default:
		return fmt.Sprintf("%s %q", kind, redistest.Do(t, s, "GET", key))
	}
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
	if _, err := reentrant.New(pool, strategy.Options{TTL: time.Millisecond}); err == nil {
		t.Error("New() with a TTL of 1ms = nil, want an error that says what is allowed")
	}
}

// TestHeldTells: what a refused contender and an operator learn.
func TestHeldTells(t *testing.T) {
	locks := open(t, redistest.Shared(t), strategy.Options{TTL: time.Minute, Label: "host-1/7"})
	name := unique(t)
	lease := acquire(t, as(t, "request 7"), locks, name)
	defer lease.Release(context.Background())
	_, err := locks.NewLock(name).TryAcquire(t.Context())
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != "request 7" || held.TTL <= 0 || held.TTL > time.Minute {
		t.Errorf("TryAcquire() = %v, want a HeldError by request 7 and up to a minute", err)
	}
	info, err := locks.Inspect(t.Context(), name)
	if err != nil || !info.Held || info.Token != lease.Token() || info.Owner != "request 7" || info.Holds != 1 || info.Label != "host-1/7" || info.Fence != fence(t, lease) {
		t.Errorf("Inspect() = %+v, %v, want the lease's token, owner, label and fence", info, err)
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
		_, err := reentrant.On(oneReply{reply: reply}).Acquire(t.Context(), c)
		unknown("Acquire()", reply, err)
	}
	for _, reply := range []any{int64(2), int64(-1), []any{}, []any{int64(2)}, []any{int64(1), int64(1)}} {
		_, err := reentrant.On(oneReply{reply: reply}).Extend(t.Context(), c)
		unknown("Extend()", reply, err)
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}} {
		unknown("Release()", reply, reentrant.On(oneReply{reply: reply}).Release(t.Context(), c))
	}
	for _, reply := range []any{int64(1), []any{}, []any{int64(0), []byte("x")}, []any{int64(7), []byte("")}, []any{[]byte("x"), int64(7)}} {
		_, err := reentrant.On(oneReply{reply: reply}).(driver.Adopter).Adopt(t.Context(), c, "u")
		unknown("Adopt()", reply, err)
	}
	for _, reply := range []any{
		nil, []any{}, []any{[]byte("7")}, []any{int64(-1)}, []any{int64(7), []byte("x")},
		[]any{int64(7), []byte("x"), nil, int64(1), int64(1)}, []any{int64(7), []byte("x"), []byte("t"), nil, int64(1)},
		[]any{int64(7), []byte("x"), []byte("t"), int64(1), nil}, []any{int64(7), nil, []byte("t"), int64(1), int64(1)},
	} {
		_, err := reentrant.On(oneReply{reply: reply}).(driver.Inspector).Inspect(t.Context(), c)
		unknown("Inspect()", reply, err)
	}
}
