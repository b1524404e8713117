// The strategy as its users see it, which the suite shows, and what it asks of a server.
package reentrant_test

import (
	"strings"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "reentrant") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "reentrant") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	locks, err := reentrant.New(redigonode.New(s.Pool()), o)
	return locktest.Opened(t, locks, err)
}

// TestAllocations: the lease, the token and its box, the arguments of two requests, the counter's key among them, the fence in the
// reply, and a context for the release that its caller does not end.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), strategy.Options{}), 8)
}

func TestErrorsAreTold(t *testing.T) { locktest.ErrorsAreTold(t, reentrant.On) }

func TestRenewsTogether(t *testing.T) { locktest.RenewsTogether(t, reentrant.On, 50) }

func TestGrantsOnceConfirmed(t *testing.T) {
	locktest.GrantsOnceConfirmed(t, reentrant.On, "EVALSHA", int64(7))
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	c, seen := locktest.AClaim(), locktest.AClaim()
	again := c
	again.Again, seen.Grant.Fence = true, 7
	ctx, on, talk := t.Context(), locktest.On(reentrant.On), locktest.One
	const keys = "a {a}:fence: "
	other := []byte("other")
	held := &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second}
	lost, byOther := &strategy.LostError{Name: "a"}, &strategy.LostError{Name: "a", Holder: "other"}
	none, granted := driver.Grant{}, driver.Grant{Fence: 7, Owner: "me", State: "t"}
	locktest.Talks(t,
		talk("acquire", on.Acquire(ctx, c), "acquire "+keys+"me t 60000 0 86400000", int64(7), granted, nil),
		talk("acquire a held one", on.Acquire(ctx, c), "acquire "+keys+"me t 60000 0 86400000", []any{other, int64(1000)}, none, held),
		talk("re-enter", on.Acquire(ctx, again), "acquire "+keys+"me t 60000 1 86400000", int64(7), granted, nil),
		talk("re-enter what is free", on.Acquire(ctx, again), "acquire "+keys+"me t 60000 1 86400000", nil, none, &strategy.HeldError{Name: "a"}),
		talk("extend", on.Extend(ctx, c), "extend a t 60000", int64(1), none, nil),
		talk("extend another's", on.Extend(ctx, c), "extend a t 60000", []any{other}, none, byOther),
		talk("extend a hold that is over", on.Extend(ctx, c), "extend a t 60000", []any{[]byte("me")}, none, strategy.ErrLost),
		talk("release", on.Release(ctx, c), "release a t {a}:free:", int64(1), nil, nil),
		talk("release another's", on.Release(ctx, c), "release a t {a}:free:", other, nil, byOther),
		talk("release one that is gone", on.Release(ctx, c), "release a t {a}:free:", nil, nil, lost),
		talk("undo one that is gone", on.Undo(ctx, c), "release a t {a}:free:", nil, nil, nil),
		talk("release by force", on.ForceRelease(ctx, seen), "force a me 7 {a}:free:", int64(1), nil, nil),
		talk("release another's by force", on.ForceRelease(ctx, seen), "force a me 7 {a}:free:", other, nil, byOther),
		talk("adopt", on.Adopt(ctx, c, "from"), "adopt "+keys+"from 60000 t me 86400000", []any{int64(7), []byte("me")}, granted, nil),
		talk("adopt another's", on.Adopt(ctx, c, "from"), "adopt "+keys+"from 60000 t me 86400000", other, none, byOther),
		talk("inspect", on.Inspect(ctx, c), "inspect "+strings.TrimSpace(keys), []any{int64(7), other, []byte("t"), int64(2), int64(1000)},
			strategy.Info{Held: true, Owner: "other", Token: "t", Holds: 2, TTL: time.Second, Fence: 7}, nil),
		talk("inspect one that is free", on.Inspect(ctx, c), "inspect "+strings.TrimSpace(keys), []any{int64(7)}, strategy.Info{Fence: 7}, nil),
		talk("inspect one that nobody has had", on.Inspect(ctx, c), "inspect "+strings.TrimSpace(keys), []any{int64(0)}, strategy.Info{}, nil),
	)
}

// TestGarbage: what no script returns is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	text, n := []byte("x"), int64(9)
	locktest.Garbage(t, reentrant.On, locktest.AClaim(), map[string][]any{
		"Acquire": {nil, []byte("OK"), int64(0), []any{n}, []any{n, n}, []any{text}, []any{text, text}, []any{text, int64(-1)}, []any{text, n, n, n, text}},
		"Extend":  {int64(2), []any{int64(2)}, []any{int64(1), int64(1)}},
		"Release": {int64(0)},
		"Adopt":   {int64(1), []any{int64(0), text}, []any{n, []byte("")}, []any{text, n}, []any{n, n}, []any{text, text}},
		"Inspect": {
			nil, []any{text}, []any{int64(-1)}, []any{n, text},
			[]any{n, text, nil, n, n}, []any{n, text, text, nil, n}, []any{n, text, text, n, nil}, []any{n, nil, text, n, n},
		},
	})
}
