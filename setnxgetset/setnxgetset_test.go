// Tests each request of each operation, and what the stamps mean.
package setnxgetset_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, &yourNode) }

// TestConformance holds the variants to what every lock must do, and confirms their weaknesses: the loser of a GETSET, say, leaves its
// value (LoserChangesNothing).
func TestConformance(t *testing.T) { subjects.Run(t, "setnxgetset") }

func TestNoClock(t *testing.T) {
	_, err := setnxgetset.New(locktest.OneReply{}, strategy.Options{}, setnxgetset.WithClock(nil))
	if err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("New() with Clock(nil) = %v, want an error that says what is allowed", err)
	}
}

// TestBackoff: ServiceStack's ceilings.
func TestBackoff(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		-1: 200, 0: 200, 1: 200, 2: 400, 3: 800, 4: 1600, 5: 3200, 6: 6400, 7: 12800, 8: 20_000, 9: 20_000, 1 << 40: 20_000,
	} {
		if got := setnxgetset.Backoff(attempt); got != want*time.Millisecond {
			t.Errorf("Backoff(%d) = %v, want %v", attempt, got, want*time.Millisecond)
		}
	}
}

// TestNoStamp: what is no stamp is an error to everybody, and is left alone. It is neither held, which would mean waiting for
// ever, nor lapsed. The error has the value in short: it may be a token.
func TestNoStamp(t *testing.T) {
	now := time.Now()
	for _, value := range []string{
		"", ":", "token", ":token", "0", "0:token", "-1", "-1:token", "123", "123:token",
		fmt.Sprint(now.Unix()), fmt.Sprint(now.Add(time.Hour).Unix(), ":token"), // seconds
		fmt.Sprint(now.UnixMicro()), fmt.Sprint(now.UnixNano(), ":token"),
		fmt.Sprint("-", now.UnixMilli()), fmt.Sprint("+", now.UnixMilli()), fmt.Sprint(" ", now.UnixMilli()),
		fmt.Sprint(now.UnixMilli(), " "), fmt.Sprint(now.UnixMilli(), ":"), fmt.Sprint(now.UnixMilli(), ".5"),
		fmt.Sprintf("%q", fmt.Sprint(now.UnixMilli())), // as JSON, which ServiceStack's take-over writes
		fmt.Sprintf("0x%x", now.UnixMilli()), "1_700_000_000_000", "1e12", "１７０００００００００００",
		"9223372036854775807", "9223372036854775808:token", "18446744073709551616", strings.Repeat("9", 400),
		"9999999999999:token", fmt.Sprint(now.Add(2 * 366 * 24 * time.Hour).UnixMilli()), // for ever, nearly
		"\x00\xff", "5d2c8a8e-8c5c-4c3c-9f43-0d3b8c1f6f11", // the token of a SET NX PX
	} {
		_, err := setnxgetset.On(locktest.OneReply{Reply: []byte(value)}).Inspect(t.Context(), locktest.AClaim())
		if !errors.Is(err, strategy.ErrRefused) || errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Inspect() of %q = %v, want ErrRefused", value, err)
		} else if value != "" && strings.Contains(err.Error(), fmt.Sprintf("%q", value)) {
			t.Errorf("Inspect() of %q = %v, want the value in short", value, err)
		}
	}
}

// TestGarbage: what Redis never answers is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	c := locktest.AClaim()
	plain := func(n driver.Node) driver.Protocol { return setnxgetset.On(n) }
	blind := func(n driver.Node) driver.Protocol { return setnxgetset.On(n, setnxgetset.WithBlindRelease()) }
	locktest.Garbage(t, plain, c, map[string][]any{"Acquire": {nil, []byte("OK"), []byte("QUEUED"), []byte{}, int64(2)}})
	locktest.Garbage(t, blind, c, map[string][]any{"Release": {int64(2), []byte("QUEUED")}})
	// A proxy that lets no transaction through, and says OK to everything.
	for _, reply := range []any{[]byte("OK"), []byte("QUEUED"), int64(1), nil, []any{[]byte("OK")}} {
		_, err := setnxgetset.On(locktest.OneReply{Reply: reply}, setnxgetset.WithWatchTakeOver()).Extend(t.Context(), c)
		if err == nil || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() on %#v = %v, want an error that is not ErrLost", reply, err)
		}
	}
}

// FuzzStamp: no value makes anything but a refusal, a holder for a year at most, or a
// lapsed lock of what it looks.
func FuzzStamp(f *testing.F) {
	for _, value := range []string{"", ":", "1700000000000", "1700000000000:t", "99999999999999999999:t", "-1:t", "1e12"} {
		f.Add(value, int64(1_700_000_000_000))
	}
	f.Add("9223372036854775807", int64(-1<<62))
	f.Fuzz(func(t *testing.T, value string, ms int64) {
		clock := setnxgetset.WithClock(func() time.Time { return time.UnixMilli(ms) })
		p := setnxgetset.On(locktest.OneReply{Reply: []byte(value)}, clock)
		info, err := p.Inspect(t.Context(), driver.Claim{Name: "a", Key: "a"})
		switch {
		case err != nil && !errors.Is(err, strategy.ErrRefused):
			t.Errorf("Inspect() of %q = %v, want ErrRefused", value, err)
		case info.Held && (info.TTL <= 0 || info.TTL > 366*24*time.Hour || info.Token == "" || !strings.HasSuffix(value, info.Token)):
			t.Errorf("Inspect() of %q at %d = %+v", value, ms, info)
		}
	})
}

// unordered is a node that keeps no order among commands.
type unordered struct{ driver.Node }

func (unordered) Ordered() bool { return false }

// TestRequests: each request of each operation, and what becomes of its reply.
func TestRequests(t *testing.T) {
	type replies = []any
	type asks = []string
	talk := func(name string, do locktest.Doing, r replies, a asks, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Replies: r, Asked: a, Got: got, Err: err}
	}
	clock := setnxgetset.WithClock(func() time.Time { return time.UnixMilli(1_700_000_000_000) })
	with := func(options ...setnxgetset.Option) locktest.On {
		return func(n driver.Node) driver.Protocol { return setnxgetset.On(n, append(options, clock)...) }
	}
	ctx, c := t.Context(), locktest.AClaim()
	on, watch, rash := with(), with(setnxgetset.WithWatchTakeOver()), with(setnxgetset.WithBlindRelease())
	acquire, extend, release := on.Acquire(ctx, c), on.Extend(ctx, c), on.Release(ctx, c)
	adopt, inspect := on.Adopt(ctx, c, "other"), on.Inspect(ctx, c)
	watching, extendWatching, releaseWatching := watch.Acquire(ctx, c), watch.Extend(ctx, c), watch.Release(ctx, c)
	blind, force, undo := rash.Release(ctx, c), rash.ForceRelease(ctx, c), rash.Undo(ctx, c)
	undoUnordered := func(n driver.Node) (any, error) { return on.Undo(ctx, c)(unordered{n}) }
	const (
		stamped                  = "1700000060000:t"
		setnx, getset, set       = "SETNX a " + stamped, "GETSET a " + stamped, "SET a " + stamped
		extended                 = "SET a " + stamped + " XX"
		get, del                 = "GETEX a", "DEL a"
		watches, multi, executes = "WATCH a", "MULTI", "EXEC"
	)
	one, none := int64(1), int64(0)
	ok, queued := []byte("OK"), []byte("QUEUED")
	mine, lapsed, stranger := []byte(stamped), []byte("1700000000000:t"), []byte("yesterday")
	digits, longer := []byte("1700000000000"), []byte("1700000099999:t")
	other, old := []byte("1700000000001:other"), []byte("1700000000000:other") // in its last millisecond, and over
	held := &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Millisecond}
	lost, byOther := &strategy.LostError{Name: "a"}, &strategy.LostError{Name: "a", Holder: "other"}
	no := driver.Grant{}
	locktest.Talks(t,
		talk("acquire", acquire, replies{one}, asks{setnx}, no, nil),
		talk("acquire a held one", acquire, replies{none, other}, asks{setnx, get}, no, held),
		talk("acquire one of a client without tokens", acquire, replies{none, []byte("1700000000001")}, asks{setnx, get}, no,
			&strategy.HeldError{Name: "a", Holder: "1700000000001", TTL: time.Millisecond}),
		talk("take over from a client without tokens", acquire, replies{none, digits, digits}, asks{setnx, get, getset}, no, nil),
		talk("acquire one that has gone meanwhile", acquire, replies{none, nil}, asks{setnx, get}, no, &strategy.HeldError{Name: "a"}),
		talk("acquire what is no lock", acquire, replies{none, stranger}, asks{setnx, get}, no, strategy.ErrRefused),
		talk("take over", acquire, replies{none, old, old}, asks{setnx, get, getset}, no, nil),
		talk("take over one that has gone meanwhile", acquire, replies{none, old, nil}, asks{setnx, get, getset}, no, nil),
		talk("take over too late", acquire, replies{none, old, other}, asks{setnx, get, getset}, no, &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Minute}),
		talk("watching, acquire", watching, replies{one}, asks{setnx}, no, nil),
		talk("watching, acquire a held one", watching, replies{none, other}, asks{setnx, get}, no, held),
		talk("watching, take over", watching, replies{none, old, ok, old, ok, queued, replies{ok}}, asks{setnx, get, watches, get, multi, set, executes}, no, nil),
		talk("watching, take what has gone meanwhile", watching, replies{none, nil, ok, nil, ok, queued, replies{ok}}, asks{setnx, get, watches, get, multi, set, executes}, no, nil),
		talk("watching, take over too late", watching, replies{none, old, ok, other}, asks{setnx, get, watches, get}, no, held),
		talk("watching, take over while another does", watching, replies{none, old, ok, old, ok, queued, nil, ok, other},
			asks{setnx, get, watches, get, multi, set, executes, watches, get}, no, held),
		talk("watching, a reply too many", watching, replies{none, old, ok, old, ok, queued, replies{ok, ok}}, asks{setnx, get, watches, get, multi, set, executes}, no, strategy.ErrUnknown),
		talk("extend", extend, replies{mine, ok}, asks{get, extended}, no, nil),
		talk("extend for less", extend, replies{longer, ok}, asks{get, "SET a 1700000099999:t XX"}, no, nil),
		talk("extend one that goes meanwhile", extend, replies{mine, nil}, asks{get, extended}, no, lost),
		talk("extend one that is gone", extend, replies{nil}, asks{get}, no, lost),
		talk("extend another's", extend, replies{other}, asks{get}, no, byOther),
		talk("extend another's that has lapsed", extend, replies{old}, asks{get}, no, lost),
		talk("extend one that has lapsed", extend, replies{lapsed}, asks{get}, no, strategy.ErrLost),
		talk("watching, extend", extendWatching, replies{ok, mine, ok, queued, replies{ok}}, asks{watches, get, multi, extended, executes}, no, nil),
		talk("watching, extend another's", extendWatching, replies{ok, other}, asks{watches, get}, no, byOther),
		talk("adopt", adopt, replies{other, ok}, asks{get, extended}, no, nil),
		talk("adopt another's", adopt, replies{mine}, asks{get}, no, &strategy.LostError{Name: "a", Holder: "t"}),
		talk("release", release, replies{mine, one}, asks{get, del}, nil, nil),
		talk("release one that goes meanwhile", release, replies{mine, none}, asks{get, del}, nil, lost),
		talk("release another's", release, replies{other}, asks{get}, nil, byOther),
		talk("release one that has lapsed", release, replies{lapsed}, asks{get}, nil, strategy.ErrLost),
		talk("watching, release", releaseWatching, replies{ok, mine, ok, queued, replies{one}}, asks{watches, get, multi, del, executes}, nil, nil),
		talk("release blindly", blind, replies{one}, asks{del}, nil, nil),
		talk("release blindly one that is gone", blind, replies{none}, asks{del}, nil, lost),
		talk("release by force, which is never blind", force, replies{other}, asks{get}, nil, byOther),
		talk("without order, undo one that has lapsed", undoUnordered, replies{lapsed}, asks{get}, nil, nil),
		talk("without order, undo one that is not there", undoUnordered, replies{nil}, asks{get}, nil, strategy.ErrUnknown),
		talk("undo", undo, replies{mine, one}, asks{get, del}, nil, nil),
		talk("undo one that is another's", undo, replies{other}, asks{get}, nil, nil),
		talk("undo one that has lapsed", undo, replies{lapsed}, asks{get}, nil, nil),
		talk("inspect", inspect, replies{other}, asks{get}, strategy.Info{Held: true, Token: "other", TTL: time.Millisecond}, nil),
		talk("inspect one that has lapsed", inspect, replies{old}, asks{get}, strategy.Info{}, nil),
		talk("inspect one that is free", inspect, replies{nil}, asks{get}, strategy.Info{}, nil),
		talk("inspect the earliest stamp", inspect, replies{[]byte("100000000000:t")}, asks{get}, strategy.Info{}, nil),
		talk("inspect what is no stamp yet", inspect, replies{[]byte("99999999999:t")}, asks{get}, strategy.Info{}, strategy.ErrRefused),
		talk("inspect the farthest stamp", inspect, replies{[]byte("1731622400000:t")}, asks{get}, strategy.Info{Held: true, Token: "t", TTL: 366 * 24 * time.Hour}, nil),
		talk("inspect what is farther", inspect, replies{[]byte("1731622400001:t")}, asks{get}, strategy.Info{}, strategy.ErrRefused),
	)
	hides := func(what string, reply any, want error, may bool) {
		n := &locktest.Dialog{Replies: replies{none, old, reply}}
		g, err := on(n).Acquire(t.Context(), c)
		if !errors.Is(err, want) || (g.State != nil) != may {
			t.Errorf("take over with %s = %+v, %v, want %v, and a state: %t", what, g, err, want, may)
		}
		// To undo it might free the lock of a winner that it hides, so its value is left to lapse.
		undone := c
		undone.Grant = g
		for value, want := range map[string]error{stamped: strategy.ErrRefused, string(lapsed): nil, string(other): nil} {
			n := &locktest.Dialog{Replies: replies{[]byte(value)}}
			if err := on(n).Undo(t.Context(), undone); may && (!errors.Is(err, want) || len(n.Asked) > 1) {
				t.Errorf("after %s Undo() where the key holds %s asks %q, and returns %v, want %v", what, value, n.Asked, err, want)
			}
		}
	}
	hides("no answer to GETSET", strategy.ErrUnknown, strategy.ErrUnknown, true)
	hides("garbage in the key", stranger, strategy.ErrUnknown, true)
	hides("GETSET forbidden", strategy.ErrRefused, strategy.ErrRefused, false)
}

// TestClockSetBack: a clock that says 1970 between two requests stamps nothing.
func TestClockSetBack(t *testing.T) {
	asked := 0
	clock := setnxgetset.WithClock(func() time.Time {
		if asked++; asked > 2 { // one for the SETNX, one to read the reply to GET
			return time.Unix(100, 0)
		}
		return time.UnixMilli(1_700_000_000_000)
	})
	n := &locktest.Dialog{Replies: []any{int64(0), []byte("1700000000000:other"), nil}}
	if _, err := setnxgetset.On(n, clock).Acquire(t.Context(), locktest.AClaim()); err == nil || len(n.Asked) != 2 {
		t.Errorf("Acquire() = %v after %v, want an error and no GETSET", err, n.Asked)
	}
}

// TestEarliestStamp: the earliest stamp is of March 1973, and a millisecond less is no stamp.
func TestEarliestStamp(t *testing.T) {
	for ms, granted := range map[int64]bool{100_000_000_000: true, 99_999_999_999: false} {
		clock := setnxgetset.WithClock(func() time.Time { return time.UnixMilli(ms).Add(-time.Minute) })
		_, err := setnxgetset.On(&locktest.Dialog{Replies: []any{int64(1)}}, clock).Acquire(t.Context(), locktest.AClaim())
		if (err == nil) != granted {
			t.Errorf("Acquire() until %d = %v, want a grant: %t", ms, err, granted)
		}
	}
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return setnxgetset.On(n) })
}

func TestGrantsOnceConfirmed(t *testing.T) {
	locktest.GrantsOnceConfirmed(t, func(n driver.Node) driver.Protocol { return setnxgetset.On(n) }, "SETNX", int64(1))
}
