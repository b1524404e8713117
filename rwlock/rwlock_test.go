// The lock as its users see it, which the suite shows, and what it asks of a server.
package rwlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

// TestConformance holds the strategy to what every lock must do, by its writers, and to what readers rely on.
func TestConformance(t *testing.T) { subjects.Run(t, "rwlock") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "rwlock") }

// TestWith: other options make a lock to read and to write, too.
func TestWith(t *testing.T) {
	t.Parallel()
	n := &locktest.Dialog{} // it answers nothing
	locks, err := rwlock.New(n, strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := locks.With(func(o *strategy.Options) { o.TTL = 2 * time.Minute })
	if both, ok := made.(strategy.ReadWriter); err != nil || !ok || both.NewRLock("a").Name() != "a" {
		t.Errorf("With() = %v, %v, want a lock to read and to write", made, err)
	}
	made, err = locks.With(func(o *strategy.Options) { o.TTL = -1 })
	if _, err2 := rwlock.New(n, strategy.Options{TTL: -1}); err == nil || made != nil || err2 == nil {
		t.Errorf("With() and New() with a negative TTL = %v, %v, %v, want nil and errors", made, err, err2)
	}
}

// TestShares: only readers hold the lock together, and get in together.
func TestShares(t *testing.T) {
	t.Parallel()
	p := rwlock.On(locktest.OneReply{}).(driver.Sharer)
	if p.MaxShare() != 1 || !p.Excludes(0, 0) || !p.Excludes(0, 1) || !p.Excludes(1, 0) || p.Excludes(1, 1) || p.Groups(0) || !p.Groups(1) {
		t.Error("another hold than that of a reader next to readers is shared")
	}
}

// TestGrantsHeard: the message of a direct grant says for how many readers it is, or how many fences a writer has.
func TestGrantsHeard(t *testing.T) {
	t.Parallel()
	for channel, want := range map[string]driver.Claim{"{a}:readers::l": {Share: 1, Holds: 3}, "{a}:writers::l": {Fences: 3}} {
		c := locktest.AClaim()
		c.Line, c.Share = "l", want.Share
		heard := locktest.Heard(t, rwlock.On, c, channel, "grant 1700000000000042 3 1000 1700000000 42 t")
		if heard.Token != "t" || heard.Grant.Holds != want.Holds || heard.Grant.Fences != want.Fences || heard.Grant.Fence == 0 {
			t.Errorf("heard %+v on the channel %s, want a fence, %d holds and %d fences", heard, channel, want.Holds, want.Fences)
		}
	}
	if heard := locktest.Heard(t, rwlock.On, locktest.AClaim(), "{a}:free:", "other"); heard.Holder != "other" {
		t.Errorf("heard %+v of a release, want whose", heard)
	}
}

func TestErrorsAreTold(t *testing.T) { locktest.ErrorsAreTold(t, rwlock.On) }

func TestRenewsTogether(t *testing.T) { locktest.RenewsTogether(t, rwlock.On, 100) }

func TestProvesRights(t *testing.T) {
	const keys, acquires = " a {a}:readers: {a}:writers: {a}:fence: ", "86400000 60000 t write 1"
	locktest.ProvesRights(t, rwlock.On, "acquire"+keys+acquires+"    1", "acquire"+keys+acquires, "release"+keys+"86400000 t  {a}:free:")
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	t.Parallel()
	with := locktest.AClaim
	c := locktest.AClaim()
	line := with(func(c *driver.Claim) { c.Line = "l" })
	reader := with(func(c *driver.Claim) { c.Line, c.Share, c.Repeated = "l", 1, true })
	readers := with(func(c *driver.Claim) { c.Line, c.Share, c.Holds = "l", 1, 9 })
	joins := with(func(c *driver.Claim) { c.Share, c.Joins = 1, "b" })
	writer := with(func(c *driver.Claim) { c.Line, c.Fences = "l", 16 })
	ctx, on, talk := t.Context(), locktest.On(rwlock.On), locktest.One
	acquire := func(c driver.Claim) locktest.Doing { return on.Acquire(ctx, c) }
	undo := func(c driver.Claim) locktest.Doing { return on.Undo(ctx, c) }
	pass := func(next driver.Claim) locktest.Doing {
		next.Token = "next"
		return on.Pass(ctx, c, next)
	}
	const keys = " a {a}:readers: {a}:writers: {a}:fence: "
	const acquires, passes, looks = "acquire" + keys + "86400000 60000 t ", "pass" + keys + "86400000 60000 next ", "inspect a {a}:fence: {a}:readers: {a}:writers:"
	seven, nine, none := int64(7), []any{int64(7), int64(9)}, driver.Grant{}
	one, several, together := driver.Grant{Fence: 7}, driver.Grant{Fence: 7, Fences: 9}, driver.Grant{Fence: 7, Holds: 9}
	other, lost := []byte("other"), &strategy.LostError{Name: "a"}
	held := &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second}
	place := driver.Grant{ServerTime: 3*time.Second + 5*time.Microsecond, Place: 2}
	locktest.Talks(t,
		talk("to write", acquire(c), acquires+"write 1    1", seven, one, nil),
		talk("with a line", acquire(line), acquires+"write 1 l 1000 1 t   1", seven, one, nil),
		talk("to read, again", acquire(reader), acquires+"read 1 l 1000 1 t 1  1", seven, one, nil),
		talk("nine readers", acquire(readers), acquires+"read 9 l 1000 9 t   1", nine, together, nil),
		talk("nine readers, of which one is admitted", acquire(readers), acquires+"read 9 l 1000 9 t   1", []any{int64(7), int64(1)}, driver.Grant{Fence: 7, Holds: 1}, nil),
		talk("joins a reader", acquire(joins), acquires+"read 1   b 1", seven, one, nil),
		talk("sixteen fences", acquire(writer), acquires+"write 16 l 1000 16 t   1", nine, several, nil),
		talk("a held one", acquire(c), acquires+"write 1    1", []any{other, int64(1000)}, none, held),
		talk("pass", pass(writer), passes+"write 16 l 1000 16 next  t {a}:free:", nine, several, nil),
		talk("pass to one that waits", pass(reader), passes+"read 1 l 1000 1 next 1 t {a}:free:", seven, one, nil),
		talk("pass what is lost", pass(line), passes+"write 1 l 1000 1 next  t {a}:free:", nil, none, lost),
		talk("pass, and it waits", pass(line), passes+"write 1 l 1000 1 next  t {a}:free:", []any{other, int64(1000), int64(3), int64(5), int64(2), int64(0)}, place, held),
		talk("release", on.Release(ctx, readers), "release"+keys+"86400000 t  {a}:free:", int64(1), nil, nil),
		talk("release what is gone", on.Release(ctx, c), "release"+keys+"86400000 t  {a}:free:", nil, nil, lost),
		talk("release by force", on.ForceRelease(ctx, c), "release"+keys+"86400000 t  {a}:free:", int64(1), nil, nil),
		talk("undo", undo(reader), "release"+keys+"86400000 t l 1000 1 t {a}:free: 1", int64(1), nil, nil),
		talk("undo nine", undo(readers), "release"+keys+"86400000 t l 1000 9 t {a}:free: 9", int64(1), nil, nil),
		talk("extend", on.Extend(ctx, c), "extend a t 60000", int64(1), none, nil),
		talk("adopt", on.Adopt(ctx, c, "from"), "adopt"+keys+"86400000 from 60000 t 0 {a}:free:", seven, one, nil),
		talk("downgrade", on.Adopt(ctx, joins, "from"), "adopt"+keys+"86400000 from 60000 t 1 {a}:free:", seven, one, nil),
		talk("adopt what is gone", on.Adopt(ctx, c, "from"), "adopt"+keys+"86400000 from 60000 t 0 {a}:free:", nil, none, lost),
		talk("inspect", on.Inspect(ctx, c), looks, []any{int64(3), other, int64(1000), []byte("7"), []any{[]byte("first")}},
			strategy.Info{Held: true, Token: "other", Owner: "other", Holds: 3, TTL: time.Second, Fence: 7, Queue: []string{"first"}}, nil),
	)
}

// TestGarbage: what no script returns is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	t.Parallel()
	c, text, n := locktest.AClaim(), []byte("x"), int64(9)
	locktest.Garbage(t, rwlock.On, c, map[string][]any{
		"Acquire": {nil, int64(0), text, []any{text, text}, []any{n, text, n, nil, nil}},
		"Release": {int64(0)},
		"Adopt":   {int64(0), []any{text, text}},
		"Inspect": {
			int64(0), text, []any{text, text}, []any{n, text, n, nil, nil}, []any{text, text, n, nil, []any{}}, []any{n, text, nil, nil, []any{}}, []any{n, nil, n, nil, []any{}},
		},
	})
	c.Share, c.Holds = 1, 9
	locktest.Garbage(t, rwlock.On, c, map[string][]any{"Acquire": {[]any{int64(7), int64(0)}, []any{int64(7), int64(10)}, []any{int64(0), n}, []any{int64(7), nil}}})
	if _, err := rwlock.On(locktest.OneReply{Reply: []any{n, text, n, []byte("seven"), []any{}}}).Inspect(t.Context(), c); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() of a counter that holds no fence = %v, want ErrRefused", err)
	}
}
