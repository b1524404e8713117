// The strategy as its users see it: what it sends, what it does on servers that lack its commands or
// have no memory left, and what it shares with luascript.
package ifeq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/ifeq"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "ifeq") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "ifeq") }

// farm has servers that know the commands.
func farm(t *testing.T) *redistest.Farm {
	t.Helper()
	f, err := redistest.ForTests(t).Having(t.Context(), "valkey-9.1", "DELEX", "DELIFEQ")
	redistest.Skip(t, err, "what ifeq does on a server that has its commands")
	return f
}

// ownServer is such a server for this test alone.
func ownServer(t *testing.T) *redistest.Server {
	t.Helper()
	return redistest.OwnOf(t, farm(t), redistest.Config{})
}

func open(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	locks, err := ifeq.New(redigonode.New(s.Pool()), o)
	return locktest.Opened(t, locks, err)
}

// TestRequests: each request of each operation, and what becomes of its reply.
func TestRequests(t *testing.T) {
	c := locktest.AClaim()
	// on is the protocol on a node of which it knows the dialect.
	on := func(n driver.Node) driver.Protocol {
		p := ifeq.On(n)
		d := n.(*locktest.Dialog)
		asked, replies := d.Asked, d.Replies
		d.Replies = []any{int64(1)}
		p.Release(t.Context(), c)
		d.Asked, d.Replies = asked, replies
		return p
	}
	acquire := func(n driver.Node) (any, error) { return on(n).Acquire(t.Context(), c) }
	afterRelease := func(n driver.Node) (any, error) {
		p := on(n)
		p.Release(t.Context(), c)
		return p.Acquire(t.Context(), c)
	}
	first := func(n driver.Node) (any, error) { return ifeq.On(n).Acquire(t.Context(), c) }
	extend := func(n driver.Node) (any, error) { return on(n).Extend(t.Context(), c) }
	release := func(n driver.Node) (any, error) { return nil, locktest.Err(on(n).Release(t.Context(), c)) }
	adopt := func(n driver.Node) (any, error) { return on(n).Adopt(t.Context(), c, "from") }
	inspect := func(n driver.Node) (any, error) { return on(n).Inspect(t.Context(), c) }

	const set, extended, adopted = "SET a t NX GET PX 60000", "SET a t IFEQ t GET PX 60000", "SET a t IFEQ from GET PX 60000"
	const get, pttl, delex, delifeq = "GETEX a", "PTTL a", "DELEX a IFEQ t", "DELIFEQ a t"
	const watch, multi, pexpire, exec = "WATCH a", "MULTI", "PEXPIRE a 60000", "EXEC"
	ok, queued, mine, from, other := []byte("OK"), []byte("QUEUED"), []byte("t"), []byte("from"), []byte("other")
	refused := func(words string) error {
		return &strategy.ServerError{Node: "fake", Kind: strategy.ErrRefused, Err: errors.New(words)}
	}
	unknown := refused("ERR unknown command 'DELEX', with args beginning with: 'a' 'IFEQ' 't'")
	wordless := &strategy.ServerError{Node: "fake", Kind: strategy.ErrRefused}
	full := refused("OOM command not allowed when used memory > 'maxmemory'.")
	announced := "017f22e2-79b0-7e11-98c4-dc0c0c07398f"
	lost, lostToOther := &strategy.LostError{Name: "a"}, &strategy.LostError{Name: "a", Holder: "other"}
	held := func(holder string, ttl time.Duration) error {
		return &strategy.HeldError{Name: "a", Holder: holder, TTL: ttl}
	}
	none, silent := driver.Grant{}, driver.Grant{Silent: true}
	type replies = []any
	type asks = []string
	talk := func(name string, do func(driver.Node) (any, error), r replies, a asks, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Replies: r, Asked: a, Got: got, Err: err}
	}
	locktest.Talks(t,
		talk("acquire", acquire, replies{nil}, asks{set}, none, nil),
		talk("acquire first, Redis 8.4", first, replies{int64(0), nil}, asks{delex, set}, none, nil),
		talk("acquire one held by another library", acquire, replies{other, int64(1000)}, asks{set, pttl}, silent, held("other", time.Second)),
		talk("acquire one held by luascript", acquire, replies{[]byte(announced), int64(1000)}, asks{set, pttl}, none, held(announced, time.Second)),
		talk("acquire one without expiry", acquire, replies{other, int64(-1)}, asks{set, pttl}, silent, held("other", -1)),
		talk("acquire one whose TTL nobody tells", acquire, replies{other, strategy.ErrUnknown}, asks{set, pttl}, silent, held("other", 0)),
		talk("acquire what is no lock", acquire, replies{strategy.ErrRefused}, asks{set}, none, strategy.ErrRefused),
		talk("extend", extend, replies{mine}, asks{extended}, none, nil),
		talk("extend another's", extend, replies{other}, asks{extended}, none, lostToOther),
		talk("extend one that is gone", extend, replies{nil}, asks{extended}, none, lost),
		talk("adopt another's", adopt, replies{other}, asks{adopted}, none, lostToOther),
		talk("adopt one that is gone", adopt, replies{nil}, asks{adopted}, none, lost),
		talk("extend, refused without words", extend, replies{wordless}, asks{extended}, none, wordless),
		talk("adopt without memory", adopt, replies{full}, asks{adopted}, none, full),
		talk("release another's", release, replies{int64(0), other}, asks{delex, get}, nil, lostToOther),
		talk("release one that is gone", release, replies{int64(0), nil}, asks{delex, get}, nil, lost),
		talk("release, and nobody says who the holder is", release, replies{int64(0), strategy.ErrUnknown}, asks{delex, get}, nil, strategy.ErrUnknown),
		talk("inspect", inspect, replies{mine, int64(1000)}, asks{get, pttl}, strategy.Info{Held: true, Token: "t", TTL: time.Second}, nil),
		talk("inspect one that is free", inspect, replies{nil}, asks{get}, strategy.Info{}, nil),
	)
	// In these a reply that cannot be used leads to the next request.
	for _, talk := range []locktest.Talk{
		talk("acquire first, Valkey 9.0", first, replies{unknown, int64(0), nil}, asks{delex, delifeq, set}, none, nil),
		talk("acquire first, an old server", first, replies{unknown, unknown}, asks{delex, delifeq}, none, strategy.ErrUnsupported),
		talk("release after a fail-over to Valkey 9.0", release, replies{unknown, int64(1), int64(0)}, asks{delex, delifeq, "PUBLISH {a}:free: t"}, nil, nil),
		talk("release after a fail-over to an old server", release, replies{unknown, unknown}, asks{delex, delifeq}, nil, strategy.ErrUnsupported),
		talk("acquire after a fail-over to an old server", afterRelease, replies{unknown, unknown, unknown, unknown}, asks{delex, delifeq, delex, delifeq}, none, strategy.ErrUnsupported),
		talk("release, and the message is lost", release, replies{int64(1), strategy.ErrUnknown}, asks{delex, "PUBLISH {a}:free: t"}, nil, nil),
		talk("adopt", adopt, replies{from, int64(1)}, asks{adopted, "PUBLISH {a}:free: from"}, none, nil),
		talk("adopt, and the message is lost", adopt, replies{from, strategy.ErrUnknown}, asks{adopted, "PUBLISH {a}:free: from"}, none, nil),
		talk("extend without memory", extend, replies{full, ok, mine, ok, queued, replies{int64(1)}}, asks{extended, watch, get, multi, pexpire, exec}, none, nil),
		talk("extend without memory, written meanwhile", extend, replies{full, ok, mine, ok, queued, nil, ok, other},
			asks{extended, watch, get, multi, pexpire, exec, watch, get}, none, lostToOther),
		talk("extend another's without memory", extend, replies{full, ok, other}, asks{extended, watch, get}, none, lostToOther),
		talk("extend one that is gone without memory", extend, replies{full, ok, nil}, asks{extended, watch, get}, none, lost),
		talk("extend without memory, and PEXPIRE finds nothing", extend, replies{full, ok, mine, ok, queued, replies{int64(0)}},
			asks{extended, watch, get, multi, pexpire, exec}, none, strategy.ErrUnknown),
		talk("extend without memory, executed at once", extend, replies{full, ok, mine, ok, int64(1)}, asks{extended, watch, get, multi, pexpire}, none, strategy.ErrUnknown),
		talk("extend without memory, WATCH forbidden", extend, replies{full, strategy.ErrRefused}, asks{extended, watch}, none, strategy.ErrRefused),
	} {
		locktest.Play(t, talk)
	}
	for i, cut := range []replies{{full}, {full, ok}, {full, ok, mine}, {full, ok, mine, ok}, {full, ok, mine, ok, queued}} {
		asked := asks{extended, watch, get, multi, pexpire, exec}[:i+2]
		locktest.Play(t, talk("extend without memory, no answer to "+asked[i+1], extend, append(cut, strategy.ErrUnknown), asked, none, strategy.ErrUnknown))
	}
}

// TestOnServers: the same on a server, which counts the round trips.
func TestOnServers(t *testing.T) {
	s := ownServer(t)
	locks := open(t, s, strategy.Options{})
	locktest.Release(t, locktest.Try(t, locks, "a")) // dials, and finds the dialect
	var lease strategy.Lease
	count := func(what string, want int64, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, want, f) }
	count("Acquire", 1, func() (err error) { lease, err = locks.NewLock("a").TryAcquire(t.Context()); return })
	count("a held TryAcquire", 2, func() error { return locktest.Held(t, locks, "a") })
	count("Extend", 1, func() error { return lease.Extend(t.Context()) })
	count("Release", 2, func() error { return lease.Release(t.Context()) })
}

// TestFullMemory: holders keep their locks while Redis refuses to write, and nobody gets a new one.
func TestFullMemory(t *testing.T) {
	s := ownServer(t)
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	lease := locktest.Try(t, locks, "a")
	redistest.Do(t, s, "PEXPIRE", strategy.DefaultKey("a"), 30_000)
	redistest.Do(t, s, "CONFIG", "SET", "maxmemory", 1)
	if _, err := locks.NewLock("b").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("TryAcquire() = %v, want ErrRefused for OOM", err)
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	if ttl, _ := redis.Int(redistest.Do(t, s, "PTTL", strategy.DefaultKey("a")), nil); ttl <= 30_000 {
		t.Errorf("the lock lasts for %d ms, want the TTL of a minute again", ttl)
	}
	locktest.Release(t, lease)
}

// TestTooOld: a server without the commands grants nothing, and Check says which servers have them.
func TestTooOld(t *testing.T) {
	s := redistest.Shared(t)
	for _, command := range []string{"DELEX", "DELIFEQ"} {
		if known, err := redis.Values(redistest.Do(t, s, "COMMAND", "INFO", command), nil); err != nil || known[0] != nil {
			t.Skipf("NOT PROVEN: that ifeq refuses an old server: this one has %s (%v)", command, err)
		}
	}
	locks, name := open(t, s, strategy.Options{}), locktest.Unique(t)
	for what, err := range map[string]error{
		"Check":      locks.Check(t.Context()),
		"TryAcquire": func() error { _, err := locks.NewLock(name).TryAcquire(t.Context()); return err }(),
	} {
		if !errors.Is(err, strategy.ErrUnsupported) || !strings.Contains(err.Error(), "Redis 8.4, Valkey 9.0") {
			t.Errorf("%s() = %v, want ErrUnsupported and which servers have the commands", what, err)
		}
	}
	if n := redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)); n != int64(0) {
		t.Error("the lock is there, want that nothing has changed")
	}
}

// TestSharesTheWireFormat: luascript excludes this lock and is excluded by it, and each wakes the
// other's waiters.
func TestSharesTheWireFormat(t *testing.T) {
	s := ownServer(t)
	ours := open(t, s, strategy.Options{TTL: time.Hour})
	theirs, err := luascript.New(redigonode.New(s.Pool()), strategy.Options{TTL: time.Hour})
	locktest.Opened(t, theirs, err)
	for who, c := range map[string]struct{ holder, waiter strategy.Strategy }{"luascript": {ours, theirs}, "ifeq": {theirs, ours}} {
		lease := locktest.Try(t, c.holder, "a")
		_, err := c.waiter.NewLock("a").TryAcquire(t.Context())
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Holder != lease.Token() {
			t.Errorf("%s.TryAcquire() = %v, want a HeldError with the other's token", who, err)
		}
		next := make(chan error, 1)
		go func() {
			l, err := c.waiter.NewLock("a").Acquire(t.Context())
			if err == nil {
				err = l.Release(t.Context())
			}
			next <- err
		}()
		verdict.Eventually(t, "the waiter listens", func() bool {
			return redistest.Do(t, s, "PUBSUB", "NUMSUB", "lock:{a}:free").([]any)[1] == int64(1)
		})
		locktest.Release(t, lease)
		if err := <-next; err != nil { // it would sleep for an hour
			t.Errorf("the waiter of %s: %v", who, err)
		}
	}
}

// TestGarbage: what no SET answers is no grant.
func TestGarbage(t *testing.T) {
	for _, reply := range []any{int64(2), []any{}, []byte("OK")} {
		g, err := ifeq.On(locktest.OneReply{Reply: reply}).Acquire(t.Context(), driver.Claim{Name: "a", Key: "a", Token: "t"})
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return ifeq.On(n) })
}

func TestGrantsOnceConfirmed(t *testing.T) {
	on := func(n driver.Node) driver.Protocol { return ifeq.On(n) }
	locktest.GrantsOnceConfirmed(t, on, "SET", int64(0), nil) // DELEX first
}
