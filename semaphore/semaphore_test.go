// The semaphore as its users see it, which the suite shows, and what it asks of a server.
package semaphore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

func TestConformance(t *testing.T) { subjects.Run(t, "semaphore") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "semaphore") }

func open(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	locks, err := semaphore.New(redigonode.New(s.Pool()), 1, o)
	return locktest.Opened(t, locks, err)
}

// five is a semaphore of five permits.
func five(n driver.Node) driver.Protocol { return semaphore.On(n, 5) }

// fiveOn is five with its engine, and with names as keys.
func fiveOn(t *testing.T, n driver.Node) strategy.Semaphore {
	t.Helper()
	locks, err := semaphore.New(n, 5, strategy.Options{Key: func(name string) string { return name }})
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// TestAllocations: its lease, its token, its keys and its claims.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), strategy.Options{}), 12)
}

// TestNumbers: numbers of permits that are not allowed. Nothing is sent.
func TestNumbers(t *testing.T) {
	n := &locktest.Dialog{} // it answers nothing
	locks := fiveOn(t, n)
	made := func(permits int) error { return locktest.Err(semaphore.New(n, permits, strategy.Options{})) }
	for want, err := range map[string]error{
		"a semaphore of 0 permits: allowed are 1 to 1000000":            made(0),
		"a semaphore of 1000001 permits: allowed are 1 to 1000000":      made(semaphore.MaxPermits + 1),
		`a share of 1001 of the lock "a": allowed are 1 to 1000`:        locktest.Err(locks.NewMultiPermitLock("a", semaphore.MaxShare+1).TryAcquire(t.Context())),
		`SetPermits of "a" to -1: allowed are 1 to 1000000, and 0 for`:  locks.SetPermits(t.Context(), "a", -1),
		`SetPermits of "a" to 1000001: allowed are 1 to 1000000, and 0`: locks.SetPermits(t.Context(), "a", semaphore.MaxPermits+1),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an error = %v, want that it says %q", err, want)
		}
	}
	if err := made(semaphore.MaxPermits); err != nil || n.Asked != nil {
		t.Errorf("New() with as many permits as may be = %v, and the server was asked %q, want nil, and nothing", err, n.Asked)
	}
}

// TestShares: no hold keeps another out, and each is for itself.
func TestShares(t *testing.T) {
	if p := five(locktest.OneReply{}).(driver.Sharer); p.Excludes(1, 1) || p.Groups(1) {
		t.Errorf("Excludes() = %t, Groups() = %t, want false", p.Excludes(1, 1), p.Groups(1))
	}
}

// TestWith: other options make a semaphore, too, of as many permits.
func TestWith(t *testing.T) {
	n := &locktest.Dialog{Replies: []any{int64(1)}}
	locks := fiveOn(t, n)
	made, err := locks.With(func(o *strategy.Options) { o.FenceTTL = time.Hour })
	if err != nil {
		t.Fatal(err)
	}
	err = made.(strategy.Semaphore).SetPermits(t.Context(), "a", 7)
	if err != nil || n.Asked[0] != "limit a {a}:waiters: {a}:fence: {a}:permits: 5 3600000 7 {a}:free:" {
		t.Errorf("SetPermits() = %v, asks %q, want the five permits and the hour", err, n.Asked)
	}
	if made, err := locks.With(func(o *strategy.Options) { o.TTL = time.Millisecond }); err == nil || made != nil {
		t.Errorf("With() a TTL of 1ms = %v, %v, want nil and an error that says what is allowed", made, err)
	}
}

// TestGrantsHeard: a line hears of direct grants to it, and who does not queue of releases.
func TestGrantsHeard(t *testing.T) {
	c := locktest.AClaim()
	if heard := locktest.Heard(t, five, c, "{a}:free:", "other"); heard.Holder != "other" {
		t.Errorf("heard %+v of a release, want whose", heard)
	}
	c.Line = "l"
	if g := locktest.Heard(t, five, c, "{a}:waiters::l", "grant 1700000000000042 16 1000 1700000000 42 t").Grant; g.Fence == 0 || g.Fences != 16 {
		t.Errorf("heard of the grant %+v, want sixteen fences", g)
	}
}

func TestErrorsAreTold(t *testing.T) { locktest.ErrorsAreTold(t, five) }

func TestRenewsTogether(t *testing.T) { locktest.RenewsTogether(t, five, 100) }

func TestProvesRights(t *testing.T) {
	const keys, acquires = " a {a}:waiters: {a}:fence: {a}:permits: ", "5 86400000 60000 t 1"
	locktest.ProvesRights(t, five, "acquire"+keys+acquires+"   1", "acquire"+keys+acquires, "release"+keys+"5 86400000 t  {a}:free:")
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	with := locktest.AClaim
	plain := locktest.AClaim()
	queues := with(func(c *driver.Claim) { c.Line = "line" })
	again := with(func(c *driver.Claim) { c.Line, c.Repeated = "line", true })
	unheard := with(func(c *driver.Claim) { c.Repeated = true })
	heavy := with(func(c *driver.Claim) { c.Line, c.Share = "line", 3 })
	fences := with(func(c *driver.Claim) { c.Fences = 16 })
	holds := with(func(c *driver.Claim) { c.Holds = 3 })
	passesFences := with(func(c *driver.Claim) { c.Line, c.Fences = "line", 16 })
	short := with(func(c *driver.Claim) { c.Line, c.TTL, c.FenceTTL = "line", 500*time.Millisecond, 0 })
	ctx, on, talk := t.Context(), locktest.On(five), locktest.One
	acquire := func(c driver.Claim) locktest.Doing { return on.Acquire(ctx, c) }
	release := func(c driver.Claim) locktest.Doing { return on.Release(ctx, c) }
	undo := func(c driver.Claim) locktest.Doing { return on.Undo(ctx, c) }
	pass := func(next driver.Claim) locktest.Doing {
		next.Token = "next"
		return on.Pass(ctx, plain, next)
	}
	extend, force := on.Extend(ctx, plain), on.ForceRelease(ctx, plain)
	adopt, inspect := on.Adopt(ctx, plain, "from"), on.Inspect(ctx, plain)
	set := func(permits int) locktest.Doing {
		return func(n driver.Node) (any, error) { return nil, fiveOn(t, n).SetPermits(ctx, "a", permits) }
	}
	const (
		keys     = "a {a}:waiters: {a}:fence: {a}:permits:"
		acquires = "acquire " + keys + " 5 86400000 60000 t "
		releases = "release " + keys + " 5 86400000 t "
		passes   = "pass " + keys + " 5 86400000 60000 next "
		adopts   = "adopt " + keys + " 5 86400000 from 60000 t"
		inspects = "inspect a {a}:fence: {a}:waiters:"
	)
	other, none := []byte("other"), driver.Grant{}
	granted, held := driver.Grant{Fence: 7}, &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second, Taken: 4, Permits: 5}
	lost := &strategy.LostError{Name: "a"}
	placed := []any{other, int64(1000), int64(4), int64(5), int64(3), int64(5), int64(2), int64(1)}
	place := driver.Grant{ServerTime: 3*time.Second + 5*time.Microsecond, Place: 2, Kept: true}
	locktest.Talks(t,
		talk("acquire", acquire(plain), acquires+"1   1", int64(7), granted, nil),
		talk("acquire a held one", acquire(plain), acquires+"1   1", []any{other, int64(1000), int64(4), int64(5)}, none, held),
		talk("queue", acquire(queues), acquires+"1 line 1000 1 t  1", placed, place, held),
		talk("queue again", acquire(again), acquires+"1 line 1000 1 t 1 1", int64(7), granted, nil),
		talk("ask again without a line", acquire(unheard), acquires+"1   1", int64(7), granted, nil),
		talk("acquire with fences", acquire(fences), acquires+"1   1 16 1", []any{int64(7), int64(5), int64(1)}, driver.Grant{Fence: 7, Fences: 5, Holds: 1}, nil),
		talk("acquire with fences, and there is one", acquire(fences), acquires+"1   1 16 1", int64(7), granted, nil),
		talk("acquire several holds", acquire(holds), acquires+"1   1 1 3", []any{int64(7), int64(1), int64(2)}, driver.Grant{Fence: 7, Fences: 1, Holds: 2}, nil),
		talk("acquire several holds, and get one", acquire(holds), acquires+"1   1 1 3", int64(7), granted, nil),
		talk("undo several holds", undo(holds), releases+" {a}:free: 3", int64(1), nil, nil),
		talk("acquire several", acquire(heavy), acquires+"3 line 1000 3 t  1", int64(7), granted, nil),
		talk("acquire for half a second", acquire(short), "acquire "+keys+" 5 0 500 t 1 line 500 1 t  1", int64(7), granted, nil),
		talk("pass", pass(queues), passes+"1 line 1000 1 next  t {a}:free:", int64(7), granted, nil),
		talk("pass, and it queues", pass(again), passes+"1 line 1000 1 next 1 t {a}:free:", placed, place, held),
		talk("pass with fences", pass(passesFences), passes+"1 line 1000 1 next  t {a}:free: 16", []any{int64(7), int64(16), int64(1)}, driver.Grant{Fence: 7, Fences: 16, Holds: 1}, nil),
		talk("pass several", pass(heavy), passes+"3 line 1000 3 next  t {a}:free:", int64(7), granted, nil),
		talk("pass what is gone", pass(queues), passes+"1 line 1000 1 next  t {a}:free:", nil, none, lost),
		talk("extend", extend, "extend a t 60000", int64(1), none, nil),
		talk("extend what is gone", extend, "extend a t 60000", []any{nil}, none, lost),
		talk("release", release(plain), releases+" {a}:free:", int64(1), nil, nil),
		talk("release who was in the queue", release(heavy), releases+" {a}:free:", int64(1), nil, nil),
		talk("release what is gone", release(plain), releases+" {a}:free:", nil, nil, lost),
		talk("release by force", force, releases+" {a}:free:", int64(1), nil, nil),
		talk("undo", undo(heavy), releases+"line 1000 3 t {a}:free:", int64(1), nil, nil),
		talk("undo what is not there", undo(queues), releases+"line 1000 1 t {a}:free:", nil, nil, nil),
		talk("adopt", adopt, adopts, int64(7), granted, nil),
		talk("adopt what is gone", adopt, adopts, nil, none, lost),
		talk("inspect", inspect, inspects, []any{int64(3), other, int64(1000), []byte("7"), []any{[]byte("first"), nil, []byte("second")}},
			strategy.Info{Held: true, Token: "other", Owner: "other", Holds: 3, TTL: time.Second, Fence: 7, Queue: []string{"first", "second"}}, nil),
		talk("inspect one that is free", inspect, inspects, []any{int64(0), nil, int64(0), []byte("7"), []any{}}, strategy.Info{Fence: 7}, nil),
		talk("inspect one that nobody has had", inspect, inspects, []any{int64(0), nil, int64(0), nil, []any{}}, strategy.Info{}, nil),
		talk("inspect one that ends now", inspect, inspects, []any{int64(1), other, int64(0), nil, []any{}},
			strategy.Info{Held: true, Token: "other", Owner: "other", Holds: 1, TTL: time.Millisecond}, nil),
		talk("set", set(semaphore.MaxPermits), "limit "+keys+" 5 86400000 1000000 {a}:free:", int64(1), nil, nil),
		talk("set no longer", set(0), "limit "+keys+" 5 86400000 0 {a}:free:", int64(1), nil, nil),
	)
}

// TestGarbage: what no script returns is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	text, n, none := []byte("x"), int64(9), []any{}
	c := locktest.AClaim()
	locktest.Garbage(t, five, c, map[string][]any{
		"Acquire": {
			nil, int64(0), []byte("OK"), []any{n}, []any{text}, []any{text, text}, []any{n, n}, []any{text, n, n, n, n},
			[]any{text, n, nil, n}, []any{text, n, n, nil}, []any{nil, n, n, n}, []any{text, n, n, n, n, n},
			[]any{text, n, n, n, nil, n, n, n}, []any{text, n, n, n, n, int64(-1), n, n}, []any{text, n, n, n, n, n, nil, n}, []any{text, n, n, n, n, n, n, nil},
			[]any{nil, n, n, n, n, n, n, n}, []any{text, n, nil, n, n, n, n, n},
		},
		"Pass":    {int64(0), []byte("OK"), []any{n, n}, []any{text, n, n, n, n}},
		"Extend":  {int64(2), []byte("OK"), []any{int64(2)}, []any{int64(1), int64(1)}, []any{[]any{}}},
		"Release": {int64(0)},
		"Adopt":   {int64(0)},
		"Inspect": {
			nil, int64(1), []any{n, text, n, nil}, []any{nil, text, n, nil, none}, []any{n, nil, n, nil, none}, []any{n, text, nil, nil, none},
			[]any{n, text, n, nil, nil}, []any{text, text, n, nil, none}, []any{n, n, n, nil, none}, []any{n, text, n, nil, none, none},
		},
	})
	c.Fences, c.Holds = 8, 4
	locktest.Garbage(t, five, c, map[string][]any{
		"Acquire": {
			[]any{nil, n, n}, []any{text, int64(8), int64(1)}, []any{n, n, int64(1)}, []any{n, int64(0), int64(1)}, []any{n, int64(1), int64(5)},
			[]any{n, int64(8), int64(0)}, []any{n, nil, int64(1)}, []any{n, int64(8), nil}, []any{int64(0), int64(8), int64(1)},
		},
	})
	if _, err := five(locktest.OneReply{Reply: []any{n, text, n, []byte("no number"), none}}).Inspect(t.Context(), c); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() of a counter that is no number = %v, want ErrRefused", err)
	}
	for _, reply := range []any{nil, int64(0), []byte("1"), none} {
		if err := fiveOn(t, locktest.OneReply{Reply: reply}).SetPermits(t.Context(), "a", 1); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("SetPermits() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
}
