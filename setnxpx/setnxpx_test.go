// The strategy as its users see it, which the suite shows, and what it asks of a server.
package setnxpx_test

import (
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

// TestConformance holds both variants to what every lock must do, and confirms
// their weaknesses.
func TestConformance(t *testing.T) { subjects.Run(t, "setnxpx") }

// comparing and blind are the algorithm as it is, and with a release that does not compare.
func comparing(n driver.Node) driver.Protocol { return setnxpx.On(n) }
func blind(n driver.Node) driver.Protocol     { return setnxpx.On(n, setnxpx.WithBlindRelease()) }

func TestErrorsAreTold(t *testing.T) { locktest.ErrorsAreTold(t, comparing) }

func TestGrantsOnceConfirmed(t *testing.T) {
	locktest.GrantsOnceConfirmed(t, comparing, "SET", []byte("OK"))
}

// TestRequests: each request of each operation, and what becomes of its reply.
func TestRequests(t *testing.T) {
	type replies = []any
	type asks = []string
	talk := func(name string, do locktest.Doing, r replies, a asks, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Replies: r, Asked: a, Got: got, Err: err}
	}
	ctx, c, on, rash := t.Context(), locktest.AClaim(), locktest.On(comparing), locktest.On(blind)
	acquire, extend, release := on.Acquire(ctx, c), on.Extend(ctx, c), on.Release(ctx, c)
	adopt, inspect := on.Adopt(ctx, c, "from"), on.Inspect(ctx, c)
	blindly, force, undo := rash.Release(ctx, c), rash.ForceRelease(ctx, c), rash.Undo(ctx, c)
	const set, extended, adopted = "SET a t NX PX 60000", "PEXPIRE a 60000", "SET a t XX PX 60000"
	const get, del, pttl = "GETEX a", "DEL a", "PTTL a"
	ok, mine, other := []byte("OK"), []byte("t"), []byte("other")
	lost, byOther := &strategy.LostError{Name: "a"}, &strategy.LostError{Name: "a", Holder: "other"}
	none := driver.Grant{}
	locktest.Talks(t,
		talk("acquire", acquire, replies{ok}, asks{set}, none, nil),
		talk("acquire a held one", acquire, replies{nil, other, int64(1000)}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second}),
		talk("acquire one without expiry", acquire, replies{nil, other, int64(-1)}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other", TTL: -1}),
		talk("acquire one that goes meanwhile", acquire, replies{nil, other, int64(-2)}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other"}),
		talk("acquire one whose TTL nobody knows", acquire, replies{nil, other, strategy.ErrRefused}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other"}),
		talk("acquire one whose TTL makes no sense", acquire, replies{nil, other, []byte("1")}, asks{set, get, pttl}, none, &strategy.HeldError{Name: "a", Holder: "other"}),
		talk("acquire one that has gone meanwhile", acquire, replies{nil, nil}, asks{set, get}, none, &strategy.HeldError{Name: "a"}),
		talk("acquire what is no lock", acquire, replies{nil, strategy.ErrRefused}, asks{set, get}, none, strategy.ErrRefused),
		talk("acquire one whose holder nobody tells", acquire, replies{nil, strategy.ErrUnknown}, asks{set, get}, none, &strategy.HeldError{Name: "a"}),
		talk("extend", extend, replies{mine, int64(1)}, asks{get, extended}, none, nil),
		talk("extend another's", extend, replies{other}, asks{get}, none, byOther),
		talk("extend one that is gone", extend, replies{nil}, asks{get}, none, lost),
		talk("extend one that goes meanwhile", extend, replies{mine, int64(0)}, asks{get, extended}, none, lost),
		talk("adopt", adopt, replies{[]byte("from"), ok}, asks{get, adopted}, none, nil),
		talk("adopt one that goes meanwhile", adopt, replies{[]byte("from"), nil}, asks{get, adopted}, none, lost),
		talk("adopt another's", adopt, replies{mine}, asks{get}, none, &strategy.LostError{Name: "a", Holder: "t"}),
		talk("release", release, replies{mine, int64(1)}, asks{get, del}, nil, nil),
		talk("release another's", release, replies{other}, asks{get}, nil, byOther),
		talk("release one that is gone", release, replies{nil}, asks{get}, nil, lost),
		talk("release one that goes meanwhile", release, replies{mine, int64(0)}, asks{get, del}, nil, lost),
		talk("release blindly", blindly, replies{int64(1)}, asks{del}, nil, nil),
		talk("release blindly one that is gone", blindly, replies{int64(0)}, asks{del}, nil, lost),
		talk("release by force, which is never blind", force, replies{other}, asks{get}, nil, byOther),
		talk("undo, which is never blind", undo, replies{other}, asks{get}, nil, nil),
		talk("inspect", inspect, replies{mine, int64(1000)}, asks{get, pttl}, strategy.Info{Held: true, Token: "t", TTL: time.Second}, nil),
		talk("inspect a foreign one without a token", inspect, replies{[]byte{}, int64(-1)}, asks{get, pttl}, strategy.Info{Held: true, TTL: -1}, nil),
		talk("inspect one that is free", inspect, replies{nil}, asks{get}, strategy.Info{}, nil),
		talk("inspect one that goes meanwhile", inspect, replies{mine, int64(-2)}, asks{get, pttl}, strategy.Info{}, nil),
	)
}

// TestGarbage: only OK to SET is a grant, and only a number says whether DEL has released.
func TestGarbage(t *testing.T) {
	c := locktest.AClaim()
	locktest.Garbage(t, comparing, c, map[string][]any{"Acquire": {[]byte("QUEUED"), []byte{}, int64(0), int64(1)}})
	locktest.Garbage(t, blind, c, map[string][]any{"Release": {int64(2), []byte("OK")}})
}
