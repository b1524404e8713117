// The strategy as its users see it, which the suite shows, and what it asks of a server.
package fairqueue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, &yourNode) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "fairqueue") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "fairqueue") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	locks, err := fairqueue.New(redigonode.New(s.Pool()), o)
	return locktest.Opened(t, locks, err)
}

// fenced and unfenced are the algorithm as it is, and without fences.
func fenced(n driver.Node) driver.Protocol   { return fairqueue.On(n) }
func unfenced(n driver.Node) driver.Protocol { return fairqueue.On(n, fairqueue.WithoutFences()) }

// TestAllocations: its lease, its token and its claims.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), strategy.Options{}), 10)
}

// TestCounterRights: without fences a user needs no right to write the counter.
func TestCounterRights(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := locktest.As(t, s, "reader", "which rights Check asks for", "-set", "(+set ~lock:{*})")
	for _, options := range [][]fairqueue.Option{nil, {fairqueue.WithoutFences()}} {
		locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{}, options...)
		err = locktest.Opened(t, locks, err).Check(t.Context())
		if options != nil && err != nil || options == nil && (!errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "}:fence")) {
			t.Errorf("Check() of a user who may not SET the counter, with %d options = %v, want that it is refused without one", len(options), err)
		}
	}
}

// TestGrantsHeard: a line hears of direct grants to it, with fences or without, and who does not queue of releases.
func TestGrantsHeard(t *testing.T) {
	c := locktest.AClaim()
	if heard := locktest.Heard(t, fenced, c, "{a}:free:", "other"); heard.Holder != "other" {
		t.Errorf("heard %+v of a release, want whose", heard)
	}
	c.Line = "l"
	with := locktest.Heard(t, fenced, c, "{a}:queue::l", "grant 1700000000000042 16 1000 1700000000 42 t").Grant
	without := locktest.Heard(t, unfenced, c, "{a}:queue::l", "grant 0 0 1000 1700000000 42 t").Grant
	if with.Fence == 0 || with.Fences != 16 || without.Fence != 0 || with.TTL != time.Second || without.TTL != time.Second {
		t.Errorf("heard of the grants %+v and, without fences, %+v, want sixteen and none, for a second", with, without)
	}
}

func TestErrorsAreTold(t *testing.T) { locktest.ErrorsAreTold(t, fenced) }

func TestRenewsTogether(t *testing.T) { locktest.RenewsTogether(t, fenced, 256) }

func TestProvesRights(t *testing.T) {
	const keys = " a {a}:queue: {a}:fence: "
	locktest.ProvesRights(t, fenced, "acquire"+keys+"60000 1 86400000  1 t", "acquire"+keys+"60000 1 86400000   t", "release"+keys+" 86400000 t {a}:free:")
}

func TestGrantsOnceConfirmed(t *testing.T) {
	locktest.GrantsOnceConfirmed(t, fenced, "EVALSHA", int64(7))
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	with := locktest.AClaim
	plain := locktest.AClaim()
	queues := with(func(c *driver.Claim) { c.Line, c.Fences = "line", 256 })
	again := with(func(c *driver.Claim) { c.Line, c.Fences, c.Repeated = "line", 256, true })
	const (
		keys     = "a {a}:queue: {a}:fence:"
		held     = "acquire " + keys + " 60000 1 86400000  1 t"
		queued   = "acquire " + keys + " 60000 256 86400000 line 1000 256 t 1 t"
		releases = "release " + keys + "  86400000 t {a}:free:"
		passes   = "pass " + keys + " t t 60000 256 line 1000 256 t 86400000"
		adopts   = "adopt a {a}:fence: from 60000 t 86400000 {a}:free:"
	)
	ours, marked, stranger := token.New("", false), token.New("", true), "a stranger"
	heldBy := func(holder string) error { return &strategy.HeldError{Name: "a", Holder: holder, TTL: time.Second} }
	reply := func(holder string) any { return []any{[]byte(holder), int64(1000)} }
	other, lost := []byte("other"), &strategy.LostError{Name: "a", Holder: "other"}
	queue, waits := []any{[]byte("first"), nil, []byte("second")}, []string{"first", "second"}
	placed := []any{[]byte(ours), int64(1000), int64(3), int64(5), int64(2), int64(1)}
	place := driver.Grant{ServerTime: 3*time.Second + 5*time.Microsecond, Place: 2, Kept: true}
	none, granted, most := driver.Grant{}, driver.Grant{Fence: 7, Fences: 1}, driver.Grant{Fence: 7, Fences: driver.MaxFences}
	ctx, on, talk := t.Context(), locktest.On(fenced), locktest.One
	locktest.Talks(t,
		talk("acquire", on.Acquire(ctx, plain), held, int64(7), granted, nil),
		talk("queue", on.Acquire(ctx, queues), queued, []any{int64(7), int64(driver.MaxFences)}, most, nil),
		talk("queue, and have one fence", on.Acquire(ctx, queues), queued, int64(7), granted, nil),
		talk("queue again", on.Acquire(ctx, again), queued+" 1", int64(7), granted, nil),
		talk("have a place", on.Acquire(ctx, queues), queued, placed, place, heldBy(ours)),

		// The reply says if the holder's release wakes waiters.
		talk("held by ours", on.Acquire(ctx, plain), held, reply(ours), none, heldBy(ours)),
		talk("held by ours, and it queues", on.Acquire(ctx, queues), queued, reply(ours), none, heldBy(ours)),
		talk("held by luascript", on.Acquire(ctx, plain), held, reply(marked), none, heldBy(marked)),
		talk("held by luascript, and it queues", on.Acquire(ctx, queues), queued, reply(marked), driver.Grant{Silent: true}, heldBy(marked)),
		talk("held by a stranger", on.Acquire(ctx, plain), held, reply(stranger), driver.Grant{Silent: true}, heldBy(stranger)),
		talk("held by a stranger, and it queues", on.Acquire(ctx, queues), queued, reply(stranger), driver.Grant{Silent: true}, heldBy(stranger)),

		talk("release", on.Release(ctx, queues), releases, int64(1), nil, nil),
		talk("release another's", on.Release(ctx, plain), releases, other, nil, lost),
		talk("release by force", on.ForceRelease(ctx, plain), releases, int64(1), nil, nil),
		talk("undo", on.Undo(ctx, queues), "release "+keys+" line 1000 256 t 86400000 t {a}:free:", int64(1), nil, nil),
		talk("pass", on.Pass(ctx, plain, queues), passes, []any{int64(7), int64(256)}, most, nil),
		talk("pass, and it waits", on.Pass(ctx, plain, queues), passes, placed, place, heldBy(ours)),
		talk("pass another's", on.Pass(ctx, plain, queues), passes, other, none, lost),
		talk("extend", on.Extend(ctx, plain), "extend a t 60000", int64(1), none, nil),
		talk("extend another's", on.Extend(ctx, plain), "extend a t 60000", []any{other}, none, lost),
		talk("adopt", on.Adopt(ctx, plain, "from"), adopts, int64(7), granted, nil),
		talk("adopt another's", on.Adopt(ctx, plain, "from"), adopts, other, none, lost),
		talk("inspect", on.Inspect(ctx, plain), "inspect "+keys, []any{other, int64(1000), []byte("7"), queue},
			strategy.Info{Held: true, Token: "other", TTL: time.Second, Fence: 7, Queue: waits}, nil),
		talk("inspect one that is free", on.Inspect(ctx, plain), "inspect "+keys, []any{nil, int64(-2), []byte("7"), queue}, strategy.Info{Fence: 7, Queue: waits}, nil),
		talk("inspect one that nobody has had", on.Inspect(ctx, plain), "inspect "+keys, []any{nil, int64(-2), nil, []any{}}, strategy.Info{}, nil),
	)
	on = unfenced
	locktest.Talks(t,
		talk("acquire without fences", on.Acquire(ctx, queues), "acquire "+keys+" 60000 0 86400000 line 1000 0 t 1 t", int64(0), none, nil),
		talk("pass without fences", on.Pass(ctx, plain, queues), "pass "+keys+" t t 60000 0 line 1000 0 t 86400000", []any{int64(0), int64(0)}, none, nil),
		talk("adopt without fences", on.Adopt(ctx, plain, "from"), "adopt a from 60000 t 86400000 {a}:free:", int64(0), none, nil),
		talk("inspect without fences", on.Inspect(ctx, plain), "inspect a {a}:queue:", []any{other, int64(1000), nil, []any{}},
			strategy.Info{Held: true, Token: "other", TTL: time.Second}, nil),
	)
}

// TestGarbage: what no script returns is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	text, n, c := []byte("x"), int64(9), locktest.AClaim()
	locktest.Garbage(t, fenced, c, map[string][]any{
		"Acquire": {
			nil, int64(0), []byte("OK"), []any{n}, []any{text}, []any{text, text},
			[]any{n, int64(-1)}, []any{n, int64(driver.MaxFences + 1)}, []any{n, text}, []any{n, n, n, n, n, int64(1)},
			[]any{text, n, nil, n, n, n}, []any{text, n, n, nil, n, n}, []any{text, n, n, n, nil, n}, []any{text, n, n, n, n, nil},
			[]any{text, n, int64(-1), n, n, n}, []any{text, n, n, n, int64(-1), n}, []any{text, n, n, n, n},
		},
		"Pass":    {int64(0), []any{n}},
		"Extend":  {int64(2), []any{int64(2)}, []any{int64(1), int64(1)}},
		"Release": {int64(0)},
		"Adopt":   {int64(0)},
		"Inspect": {nil, []any{n, n, nil, []any{}}, []any{text, nil, nil, []any{}}, []any{text, n, nil, nil}, []any{text, text, nil, []any{}}},
	})
	if _, err := fenced(locktest.OneReply{Reply: []any{nil, int64(-2), []byte("no number"), []any{}}}).Inspect(t.Context(), c); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() of a counter that is no number = %v, want ErrRefused", err)
	}
}
