// The strategy as its users see it, which the suite shows, and what it asks of a server.
package luascript_test

import (
	"errors"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "luascript") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "luascript") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	locks, err := luascript.New(redigonode.New(s.Pool()), o)
	return locktest.Opened(t, locks, err)
}

// fenced and unfenced are the algorithm as it is, and without fences.
func fenced(n driver.Node) driver.Protocol   { return luascript.On(n) }
func unfenced(n driver.Node) driver.Protocol { return luascript.On(n, luascript.WithoutFences()) }

// TestAllocations: a lease, a token, the arguments of two requests, and their replies.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), strategy.Options{}), 9)
}

// TestCounterRights: without fences a user needs no right to a counter.
func TestCounterRights(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	narrow := locktest.As(t, s, "narrow", "that a lock without fences needs no right to a counter", "resetkeys", "~lock:{*}")
	for _, options := range [][]luascript.Option{nil, {luascript.WithoutFences()}} {
		locks, err := luascript.New(redigonode.New(narrow), strategy.Options{}, options...)
		if err = locktest.Opened(t, locks, err).Check(t.Context()); (err == nil) != (options != nil) {
			t.Errorf("Check() of a user without the counter, with %d options = %v, want nil without fences alone", len(options), err)
		}
	}
}

func TestErrorsAreTold(t *testing.T) { locktest.ErrorsAreTold(t, fenced) }

func TestRenewsTogether(t *testing.T) { locktest.RenewsTogether(t, fenced, 256) }

func TestGrantsOnceConfirmed(t *testing.T) {
	locktest.GrantsOnceConfirmed(t, fenced, "EVALSHA", int64(7))
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	c := locktest.AClaim()
	other, marked := []byte("other"), token.New("", true)
	lost := &strategy.LostError{Name: "a", Holder: "other"}
	heldBy := func(holder string) error { return &strategy.HeldError{Name: "a", Holder: holder, TTL: time.Second} }
	ctx, talk, silent := t.Context(), locktest.One, driver.Grant{Silent: true} // its release is not announced
	for _, x := range []struct {
		on            locktest.On
		keys          string
		reply, most   any
		counted       any
		granted, many driver.Grant
	}{
		{fenced, "a {a}:fence:", int64(7), []any{int64(7), int64(driver.MaxFences)}, []byte("7"), driver.Grant{Fence: 7, Fences: 1}, driver.Grant{Fence: 7, Fences: driver.MaxFences}},
		{unfenced, "a", int64(0), int64(0), nil, driver.Grant{}, driver.Grant{}},
	} {
		acquire, extend, release := x.on.Acquire(ctx, c), x.on.Extend(ctx, c), x.on.Release(ctx, c)
		adopt, inspect := x.on.Adopt(ctx, c, "from"), x.on.Inspect(ctx, c)
		acquires, adopts := "acquire "+x.keys+" t 60000 86400000 1", "adopt "+x.keys+" from t 60000 86400000 {a}:free:"
		locktest.Talks(t,
			talk("acquire", acquire, acquires, x.reply, x.granted, nil),
			talk("acquire for as many holds as may be", acquire, acquires, x.most, x.many, nil),
			talk("acquire a held one", acquire, acquires, []any{other, int64(1000)}, silent, heldBy("other")),
			talk("acquire one held by its like", acquire, acquires, []any{[]byte(marked), int64(1000)}, driver.Grant{}, heldBy(marked)),
			talk("extend", extend, "extend a t 60000", []any{int64(1)}, driver.Grant{}, nil),
			talk("extend another's", extend, "extend a t 60000", []any{other}, driver.Grant{}, lost),
			talk("release", release, "release a t {a}:free:", int64(1), nil, nil),
			talk("release another's", release, "release a t {a}:free:", other, nil, lost),
			talk("adopt", adopt, adopts, x.reply, x.granted, nil),
			talk("adopt another's", adopt, adopts, other, driver.Grant{}, lost),
			talk("inspect", inspect, "inspect "+x.keys, []any{other, int64(1000), x.counted}, strategy.Info{Held: true, Token: "other", TTL: time.Second, Fence: x.granted.Fence}, nil),
			talk("inspect one that is free", inspect, "inspect "+x.keys, []any{nil, int64(-2), x.counted}, strategy.Info{Fence: x.granted.Fence}, nil),
		)
	}
}

// TestGarbage: what no script returns is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	text, n := []byte("x"), int64(1)
	c := locktest.AClaim()
	locktest.Garbage(t, fenced, c, map[string][]any{
		"Acquire": {
			nil, int64(0), []byte("OK"), []any{n}, []any{n, int64(0)}, []any{n, int64(-1)}, []any{n, int64(driver.MaxFences + 1)},
			[]any{int64(0), int64(2)}, []any{int64(-1), int64(2)}, []any{n, n, n}, []any{n, text}, []any{text}, []any{text, text},
		},
		"Extend":  {int64(2), []any{int64(2)}, []any{n, n}},
		"Release": {int64(0)},
		"Adopt":   {int64(0)},
		"Inspect": {nil, []any{n, n, nil}, []any{text, nil, nil}, []any{text, n, nil, nil}},
	})
	locktest.Garbage(t, unfenced, c, map[string][]any{"Acquire": {nil, n, []any{int64(0), int64(2)}, text}})
	if _, err := fenced(locktest.OneReply{Reply: []any{nil, int64(-2), []byte("no number")}}).Inspect(t.Context(), c); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() of a counter that is no number = %v, want ErrRefused", err)
	}
}
