package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

// patience is for what comes at once, unless it never comes.
const patience = 30 * time.Second

// A queued is a claim, and what its line hears.
type queued struct {
	strategy.Claim
	told chan strategy.Notice
}

// line is a claim like c for another owner, with a line of its own that listens.
func line(t *testing.T, p strategy.Protocol, c strategy.Claim, owner, token string) queued {
	t.Helper()
	q := queued{c, make(chan strategy.Notice, 10)}
	q.Owner, q.Token, q.Line = owner, token, fmt.Sprintf("line-%x", owner[:min(len(owner), 20)]+token)
	stop, err := p.(strategy.Notifier).Watch(t.Context(), q.Claim, func(n strategy.Notice) { q.told <- n })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return q
}

// enqueue lets the claim take its place behind holder.
func (q queued) enqueue(t *testing.T, p strategy.Protocol, holder string) {
	t.Helper()
	g, err := p.Acquire(t.Context(), q.Claim)
	wantPlace(t, "Acquire()", g, err, holder)
}

// wantPlace is what a claim has to be told that queues.
func wantPlace(t *testing.T, call string, g strategy.Grant, err error, holder string) {
	t.Helper()
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != holder || held.TTL <= 0 || held.TTL > time.Minute {
		t.Fatalf("%s = %v, want a HeldError by %q, and for how long", call, err, holder)
	}
	if !g.Queued || g.ServerTime == 0 {
		t.Fatalf("%s = %+v, want a place in the queue, and the server's time", call, g)
	}
}

// granted is what the line is told next, which has to be of its claim's direct grant.
func (q queued) granted(t *testing.T) strategy.Grant {
	t.Helper()
	select {
	case n := <-q.told:
		if n.Token != q.Token {
			t.Fatalf("%q was told %+v, want that it has the lock", q.Owner, n)
		}
		return n.Grant
	case <-time.After(patience):
		t.Fatalf("%q was told nothing", q.Owner)
	}
	return strategy.Grant{}
}

func (q queued) next(t *testing.T) {
	t.Helper()
	select {
	case n := <-q.told:
		if n.Next <= 0 {
			t.Fatalf("%q was told %+v, want that it is next", q.Owner, n)
		}
	case <-time.After(patience):
		t.Fatalf("%q was told nothing", q.Owner)
	}
}

func queueOf(c strategy.Claim) string { return strategy.SiblingKey(c.Key, "queue") }

func length(t *testing.T, s *redistest.Server, c strategy.Claim) int64 {
	t.Helper()
	return redistest.Do(t, s, "LLEN", queueOf(c)).(int64)
}

// wantHold holds the hash to one hold of the claim's: all its fields, and its TTL.
func wantHold(t *testing.T, s *redistest.Server, c strategy.Claim, fence uint64, most time.Duration) {
	t.Helper()
	hash, err := redis.StringMap(redistest.Do(t, s, "HGETALL", c.Key), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(hash) != 3 || hash["owner"] != c.Owner || hash["fence"] != fmt.Sprint(fence) || hash["hold:"+c.Token] == "" {
		t.Errorf("the hash is %q, want the owner %q, the fence %d and the hold %q", hash, c.Owner, fence, c.Token)
	}
	if left := pttl(t, s, c.Name); left <= 0 || left > most {
		t.Errorf("PTTL = %v, want up to %v", left, most)
	}
	counter, err := redis.Uint64(redistest.Do(t, s, "GET", c.Key+":fence"), nil)
	if err != nil || counter != fence {
		t.Errorf("the counter is %d, %v, want %d, the last fence", counter, err, fence)
	}
}

func wantFree(t *testing.T, s *redistest.Server, c strategy.Claim) {
	t.Helper()
	if n := redistest.Do(t, s, "EXISTS", c.Key, queueOf(c)); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0: neither a lock nor a queue", n)
	}
}

func releaseClaim(t *testing.T, p strategy.Protocol, c strategy.Claim) {
	t.Helper()
	if err := p.Release(t.Context(), c); err != nil {
		t.Fatalf("Release() by %q = %v, want nil", c.Owner, err)
	}
}

// take makes the claim the holder of a lock that is free.
func take(t *testing.T, p strategy.Protocol, c strategy.Claim) strategy.Grant {
	t.Helper()
	g, err := p.Acquire(t.Context(), c)
	if err != nil {
		t.Fatalf("Acquire() by %q = %v, want nil", c.Owner, err)
	}
	return g
}

// TestQueue: who queues is made the holder, in its turn, by whatever ends a hold.
func TestQueue(t *testing.T) {
	s := redistest.Shared(t)
	start := func(t *testing.T) (strategy.Protocol, strategy.Claim) {
		t.Parallel()
		return protocol(t, s, unique(t), "me", "mine")
	}
	pass := func(t *testing.T, p strategy.Protocol, c, next strategy.Claim) (strategy.Grant, error) {
		t.Helper()
		return p.(strategy.Queuer).Pass(t.Context(), c, next)
	}

	// Owners and tokens are any bytes: an entry is read by lengths.
	for what, name := range map[string]struct{ owner, token string }{
		"DirectGrant":        {"you", "yours"},
		"GrantToBlanks":      {" ", " "},
		"GrantToNumbers":     {"7 8 9", "1 2 3"},
		"GrantToLines":       {"you\nand\r\n you ", "token\n 5 of\n\nyours"},
		"GrantToAnyBytes":    {"\x00\xff %s%d\x00", "\xfe\x00 \x00token"},
		"GrantToLongestName": {strings.Repeat("o ", strategy.MaxNameLen/2), strings.Repeat("t ", 200)},
	} {
		t.Run(what, func(t *testing.T) {
			p, c := start(t)
			first := take(t, p, c)
			q := line(t, p, c, name.owner, name.token)
			q.enqueue(t, p, "me")
			q.enqueue(t, p, "me") // asked twice, it has one place
			if n := length(t, s, c); n != 1 {
				t.Errorf("LLEN = %d, want 1", n)
			}
			if left := redistest.Do(t, s, "PTTL", queueOf(c)).(int64); left <= 0 {
				t.Errorf("PTTL of the queue = %d, want an expiry", left)
			}
			releaseClaim(t, p, c)
			g := q.granted(t)
			if g.Fence <= first.Fence || g.Fences > 1 || g.TTL != strategy.HeirTTL(c.TTL) || g.ServerTime == 0 {
				t.Errorf("told of %+v, want one fence above %d, the heir's TTL, and the server's time", g, first.Fence)
			}
			wantHold(t, s, q.Claim, g.Fence, time.Second)
			if n := redistest.Do(t, s, "EXISTS", queueOf(c)); n != int64(0) {
				t.Errorf("EXISTS of the queue = %v, want 0", n)
			}

			again, err := p.Acquire(t.Context(), q.Claim) // as who has not heard of it does
			if err != nil || again.Fence != g.Fence || again.Owner != name.owner {
				t.Errorf("Acquire() again = %+v, %v, want the hold with the fence %d", again, err, g.Fence)
			}
			wantHold(t, s, q.Claim, g.Fence, time.Minute)
			if left := pttl(t, s, c.Name); left <= time.Second {
				t.Errorf("PTTL = %v, want the whole TTL", left)
			}
			releaseClaim(t, p, q.Claim)
			wantFree(t, s, c)
		})
	}

	t.Run("InnerRelease", func(t *testing.T) {
		p, c := start(t)
		inner := c
		inner.Token = "inner"
		take(t, p, c)
		take(t, p, inner)
		q := line(t, p, c, "you", "yours")
		q.enqueue(t, p, "me")
		releaseClaim(t, p, c)
		if n := length(t, s, c); n != 1 {
			t.Errorf("LLEN = %d after an inner release, want 1: the lock is held", n)
		}
		releaseClaim(t, p, inner)
		wantHold(t, s, q.Claim, q.granted(t).Fence, time.Second)
	})

	t.Run("Force", func(t *testing.T) {
		p, c := start(t)
		inner := c
		inner.Token = "inner"
		c.Grant = take(t, p, c)
		take(t, p, inner)
		q := line(t, p, c, "you", "yours")
		q.enqueue(t, p, "me")
		c.Force = true
		releaseClaim(t, p, c)
		wantHold(t, s, q.Claim, q.granted(t).Fence, time.Second)
	})

	t.Run("DeadHeir", func(t *testing.T) {
		p, c := start(t)
		take(t, p, c)
		dead := queued{Claim: c}
		dead.Owner, dead.Token, dead.Line = "dead", "deads", "nobody-listens"
		live, behind := line(t, p, c, "live", "lives"), line(t, p, c, "behind", "behinds")
		dead.enqueue(t, p, "me")
		redistest.Do(t, s, "RPUSH", queueOf(c), "no entry", "l 5 5 token", "l 5 9 token owner", live.Line+" 1000 0  owner")
		live.enqueue(t, p, "me")
		behind.enqueue(t, p, "me")
		releaseClaim(t, p, c)
		wantHold(t, s, live.Claim, live.granted(t).Fence, time.Second)
		behind.next(t)
		if n := length(t, s, c); n != 1 {
			t.Errorf("LLEN = %d, want 1, of who is behind", n)
		}
	})

	t.Run("AllDead", func(t *testing.T) {
		p, c := start(t)
		take(t, p, c)
		dead := queued{Claim: c}
		dead.Owner, dead.Token, dead.Line = "dead", "deads", "nobody-listens"
		dead.enqueue(t, p, "me")
		waiter := c
		told := make(chan strategy.Notice, 10)
		stop, err := p.(strategy.Notifier).Watch(t.Context(), waiter, func(n strategy.Notice) { told <- n })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		releaseClaim(t, p, c)
		wantFree(t, s, c)
		select {
		case n := <-told:
			if n.Holder != "me" {
				t.Errorf("who does not queue was told %+v, want that me has released", n)
			}
		case <-time.After(patience):
			t.Error("who does not queue was told nothing")
		}
	})

	for what, end := range map[string]func(c strategy.Claim){
		"NoBargingAfterExpiry": func(c strategy.Claim) { redistest.Do(t, s, "DEL", c.Key) },
		"NoBargingAfterLapse":  func(c strategy.Claim) { redistest.Do(t, s, "HSET", c.Key, "hold:"+c.Token, 1000) },
	} {
		t.Run(what, func(t *testing.T) {
			p, c := start(t)
			take(t, p, c)
			first, second := line(t, p, c, "first", "firsts"), line(t, p, c, "second", "seconds")
			first.enqueue(t, p, "me")
			second.enqueue(t, p, "me")
			end(c)
			again := c
			again.Owner, again.Token, again.Again = "second", "enters", true
			var held *strategy.HeldError
			if _, err := p.Acquire(t.Context(), again); !errors.As(err, &held) || held.Holder != "" || length(t, s, c) != 2 {
				t.Errorf("Acquire() again = %v, want a HeldError without holder, and the queue as it was", err)
			}
			newcomer := c
			newcomer.Owner, newcomer.Token = "newcomer", "newcomers"
			if _, err := p.Acquire(t.Context(), newcomer); !errors.As(err, &held) || held.Holder != "first" {
				t.Fatalf("Acquire() by a newcomer = %v, want a HeldError: the first in the queue holds the lock", err)
			}
			g := first.granted(t)
			wantHold(t, s, first.Claim, g.Fence, time.Second)
			second.next(t)

			end(first.Claim)
			newcomer.Owner = "second" // whose turn it is: it enters beside
			if got, err := p.Acquire(t.Context(), newcomer); err != nil || got.Fence != second.granted(t).Fence || got.Fence <= g.Fence {
				t.Errorf("Acquire() by the next one's owner = %+v, %v, want its fence", got, err)
			}
			if names := fields(t, s, c.Name); len(names) != 4 {
				t.Errorf("the hash has the fields %q, want two holds", names)
			}
		})
	}

	t.Run("FirstAsks", func(t *testing.T) { // and is not told what its reply says
		p, c := start(t)
		take(t, p, c)
		first, second := line(t, p, c, "first", "firsts"), line(t, p, c, "second", "seconds")
		first.enqueue(t, p, "me")
		second.enqueue(t, p, "me")
		redistest.Do(t, s, "DEL", c.Key)
		g := take(t, p, first.Claim)
		wantHold(t, s, first.Claim, g.Fence, time.Minute)
		if n := length(t, s, c); n != 1 {
			t.Errorf("LLEN = %d, want 1: the first has left the queue", n)
		}
		releaseClaim(t, p, first.Claim)
		second.granted(t)
		if n := len(first.told); n != 0 {
			t.Errorf("the first was told %+v, want nothing", <-first.told)
		}
	})

	t.Run("QueuedEnters", func(t *testing.T) { // its owner has got the lock elsewhere
		p, c := start(t)
		take(t, p, c)
		q := line(t, p, c, "you", "yours")
		q.enqueue(t, p, "me")
		redistest.Do(t, s, "HSET", c.Key, "owner", "you")
		if g := take(t, p, q.Claim); g.Owner != "you" {
			t.Errorf("Acquire() = %+v, want the owner's", g)
		}
		if n := length(t, s, c); n != 0 {
			t.Errorf("LLEN = %d, want 0: it waits no more", n)
		}
	})

	t.Run("Withdrawn", func(t *testing.T) {
		p, c := start(t)
		g := take(t, p, c)
		q := line(t, p, c, "you", "yours")
		q.enqueue(t, p, "me")
		q.Undo, q.Grant.Start = true, time.Now()
		releaseClaim(t, p, q.Claim)
		if n := redistest.Do(t, s, "EXISTS", queueOf(c)); n != int64(0) {
			t.Errorf("EXISTS of the queue = %v, want 0: nobody queues", n)
		}
		wantHold(t, s, c, g.Fence, time.Minute)
	})

	t.Run("WithdrawnTooLate", func(t *testing.T) { // the lock goes on to who is behind
		p, c := start(t)
		take(t, p, c)
		q, behind := line(t, p, c, "you", "yours"), line(t, p, c, "behind", "behinds")
		q.enqueue(t, p, "me")
		behind.enqueue(t, p, "me")
		releaseClaim(t, p, c)
		q.granted(t)
		q.Undo = true
		releaseClaim(t, p, q.Claim)
		behind.next(t)
		wantHold(t, s, behind.Claim, behind.granted(t).Fence, time.Second)
	})

	t.Run("PassBehindOthers", func(t *testing.T) {
		p, c := start(t)
		take(t, p, c)
		other, next := line(t, p, c, "other", "others"), line(t, p, c, "next", "nexts")
		other.enqueue(t, p, "me")
		g, err := pass(t, p, c, next.Claim)
		wantPlace(t, "Pass()", g, err, "other")
		wantHold(t, s, other.Claim, other.granted(t).Fence, time.Second)
		releaseClaim(t, p, other.Claim)
		wantHold(t, s, next.Claim, next.granted(t).Fence, time.Second)
		releaseClaim(t, p, next.Claim)
		wantFree(t, s, c)
	})

	t.Run("PassToNext", func(t *testing.T) { // nobody else queues who listens
		p, c := start(t)
		first := take(t, p, c)
		dead := queued{Claim: c}
		dead.Owner, dead.Token, dead.Line = "dead", "deads", "nobody-listens"
		dead.enqueue(t, p, "me")
		next := line(t, p, c, "me", "nexts") // the same owner: a tenure of its own, all the same
		g, err := pass(t, p, c, next.Claim)
		if err != nil || g.Fence <= first.Fence || g.Owner != "me" {
			t.Fatalf("Pass() = %+v, %v, want a fence above %d", g, err, first.Fence)
		}
		wantHold(t, s, next.Claim, g.Fence, time.Minute)
		if left := pttl(t, s, c.Name); left <= time.Second {
			t.Errorf("PTTL = %v, want the whole TTL", left)
		}
		releaseClaim(t, p, next.Claim)
		wantFree(t, s, c)
	})

	t.Run("PassWhileHeld", func(t *testing.T) { // by the owner's other holds
		p, c := start(t)
		inner := c
		inner.Token, inner.TTL = "inner", 20*time.Second
		first := take(t, p, c)
		take(t, p, inner)
		next := line(t, p, c, "next", "nexts")
		g, err := pass(t, p, c, next.Claim)
		wantPlace(t, "Pass()", g, err, "me")
		wantHold(t, s, inner, first.Fence, 20*time.Second)

		sibling := line(t, p, c, "me", "siblings")
		if g, err := pass(t, p, inner, sibling.Claim); !errors.Is(err, strategy.ErrHeld) {
			t.Fatalf("Pass() of the last hold = %+v, %v, want ErrHeld: another queues", g, err)
		}
		wantHold(t, s, next.Claim, next.granted(t).Fence, time.Second)
		if n := length(t, s, c); n != 1 {
			t.Errorf("LLEN = %d, want 1, of the sibling", n)
		}
	})

	t.Run("PassReenters", func(t *testing.T) { // next is of the owner that has other holds
		p, c := start(t)
		inner := c
		inner.Token = "inner"
		first := take(t, p, c)
		take(t, p, inner)
		other, next := line(t, p, c, "other", "others"), line(t, p, c, "me", "nexts")
		other.enqueue(t, p, "me")
		if g, err := pass(t, p, c, next.Claim); err != nil || g.Fence != first.Fence || g.Owner != "me" {
			t.Errorf("Pass() = %+v, %v, want the fence of the first hold", g, err)
		}
		want := []string{"fence", "hold:inner", "hold:nexts", "owner"}
		if got := fields(t, s, c.Name); !slices.Equal(got, want) {
			t.Errorf("the hash has the fields %q, want %q", got, want)
		}
	})

	t.Run("PassOfNone", func(t *testing.T) { // nothing changes
		p, c := start(t)
		next := line(t, p, c, "next", "nexts")
		var lost *strategy.LostError
		if _, err := pass(t, p, c, next.Claim); !errors.As(err, &lost) || lost.Holder != "" {
			t.Errorf("Pass() of a lock that nobody holds = %v, want a LostError", err)
		}
		wantFree(t, s, c)
		holder := c
		holder.Owner, holder.Token = "you", "yours"
		g := take(t, p, holder)
		if _, err := pass(t, p, c, next.Claim); !errors.As(err, &lost) || lost.Holder != "you" {
			t.Errorf("Pass() of another's lock = %v, want a LostError", err)
		}
		wantHold(t, s, holder, g.Fence, time.Minute)
		if n := length(t, s, c); n != 0 {
			t.Errorf("LLEN = %d, want 0", n)
		}
		redistest.Do(t, s, "SET", c.Key+":fence", "seven")
		if _, err := pass(t, p, holder, next.Claim); !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("Pass() with a counter that is none = %v, want ErrRefused", err)
		}
		releaseClaim(t, p, holder) // which it still can
		wantFree(t, s, c)
		redistest.Do(t, s, "DEL", c.Key+":fence")
	})

	t.Run("NoQueue", func(t *testing.T) { // the lock does not depend on it
		p, c := start(t)
		redistest.Do(t, s, "SET", queueOf(c), "no list")
		defer redistest.Do(t, s, "DEL", queueOf(c))
		take(t, p, c)
		q := line(t, p, c, "you", "yours")
		g, err := p.Acquire(t.Context(), q.Claim)
		if !errors.Is(err, strategy.ErrHeld) || g.Queued {
			t.Errorf("Acquire() = %+v, %v, want ErrHeld, and no place", g, err)
		}
		if g, err = pass(t, p, c, q.Claim); err != nil {
			t.Fatalf("Pass() = %v, want nil", err)
		}
		wantHold(t, s, q.Claim, g.Fence, time.Minute)
		q.Undo = true
		releaseClaim(t, p, q.Claim)
		if n := redistest.Do(t, s, "EXISTS", c.Key); n != int64(0) {
			t.Errorf("EXISTS = %v, want 0: released", n)
		}
		if got := content(t, s, queueOf(c)); !strings.Contains(got, "no list") {
			t.Errorf("the key in the queue's place is %s, want it left alone", got)
		}
	})
}

// waiting waits until so many lines queue for the lock.
func waiting(t *testing.T, s *redistest.Server, name string, n int64) {
	t.Helper()
	key := strategy.SiblingKey(strategy.DefaultKey(name), "queue")
	for limit := time.Now().Add(patience); redistest.Do(t, s, "LLEN", key) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("LLEN = %v, want %d", redistest.Do(t, s, "LLEN", key), n)
		}
	}
}

type outcome struct {
	lease *strategy.Lease
	err   error
}

func acquiring(ctx context.Context, s *strategy.Strategy, name string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		lease, err := s.Lock(name).Acquire(ctx)
		done <- outcome{lease, err}
	}()
	return done
}

func await(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(patience):
		t.Fatal("Acquire() does not return")
	}
	return outcome{}
}

// TestDirectGrantBetweenProcesses: from one process to another, and there from one to the
// next; and all of them call the holder by its owner.
func TestDirectGrantBetweenProcesses(t *testing.T) {
	s := redistest.Shared(t)
	o := strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second}
	a, b := open(t, s, o), open(t, s, o)
	name := unique(t)
	outer := acquire(t, as(t, "me"), a, name)
	inner := acquire(t, as(t, "me"), a, name)
	first := acquiring(as(t, "first"), b, name)
	waiting(t, s, name, 1)
	brief, giveUp := context.WithCancel(as(t, "brief"))
	defer giveUp()
	second := acquiring(brief, b, name) // behind the first
	release(t, outer)
	waiting(t, s, name, 1)
	release(t, inner)
	got := await(t, first)
	if got.err != nil {
		t.Fatalf("Acquire() = %v, want nil", got.err)
	}
	if got.lease.Owner() != "first" || fence(t, got.lease) <= fence(t, outer) {
		t.Errorf("the heir is %q with the fence %d, want first, and more than %d", got.lease.Owner(), fence(t, got.lease), fence(t, outer))
	}
	var held *strategy.HeldError
	if _, err := a.Lock(name).TryAcquire(as(t, "me")); !errors.As(err, &held) || held.Holder != "first" {
		t.Errorf("TryAcquire() = %v, want a HeldError: held by first", err)
	}
	giveUp()
	// Whether it is answered before it gives up is a matter of luck.
	if o := await(t, second); !errors.Is(o.err, context.Canceled) ||
		!errors.Is(o.err, strategy.ErrUnknown) && (!errors.As(o.err, &held) || held.Holder != "first") {
		t.Errorf("Acquire() behind the heir = %v, want a HeldError: held by first, or ErrUnknown; and why it ended", o.err)
	}
	for limit := time.Now().Add(patience); pttl(t, s, name) <= time.Second; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the heir's TTL is not extended")
		}
	}
	if err := got.lease.Err(); err != nil {
		t.Errorf("Err() = %v, want nil", err)
	}
	again := acquire(t, as(t, "first"), a, name) // its owner enters from elsewhere
	third := acquiring(t.Context(), a, name)
	waiting(t, s, name, 1)
	release(t, got.lease)
	release(t, again)
	if got = await(t, third); got.err != nil {
		t.Fatalf("Acquire() = %v, want nil", got.err)
	}
	release(t, got.lease)
	key := strategy.DefaultKey(name)
	if n := redistest.Do(t, s, "EXISTS", key, strategy.SiblingKey(key, "queue")); n != int64(0) {
		t.Errorf("EXISTS = %v, want 0: neither a lock nor a queue", n)
	}
}

// TestQueueOutOfMemory: a release makes an heir also when Redis takes no writes.
func TestQueueOutOfMemory(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	p, c := protocol(t, s, unique(t), "me", "mine")
	take(t, p, c)
	first, second := line(t, p, c, "first", "firsts"), line(t, p, c, "second", "seconds")
	first.enqueue(t, p, "me")
	second.enqueue(t, p, "me")
	conn := s.Pool().Get()
	defer conn.Close()
	if _, err := conn.Do("CONFIG", "SET", "maxmemory", 1); err != nil {
		t.Skipf("NOT PROVEN: that a release makes an heir when Redis is out of memory: %v", err)
	}
	late := line(t, p, c, "late", "lates")
	if g, err := p.Acquire(t.Context(), late.Claim); !errors.Is(err, strategy.ErrHeld) || g.Queued {
		t.Errorf("Acquire() = %+v, %v, want ErrHeld, and no place: there is no memory for it", g, err)
	}
	releaseClaim(t, p, c)
	g := first.granted(t)
	wantHold(t, s, first.Claim, g.Fence, time.Second)
	second.next(t)
	force := first.Claim
	force.Force, force.Grant = true, g
	releaseClaim(t, p, force)
	wantHold(t, s, second.Claim, second.granted(t).Fence, time.Second)
	g, err := p.(strategy.Queuer).Pass(t.Context(), second.Claim, late.Claim)
	if err != nil {
		t.Fatalf("Pass() = %v, want nil", err)
	}
	wantHold(t, s, late.Claim, g.Fence, time.Minute)
	releaseClaim(t, p, late.Claim)
	wantFree(t, s, c)
}

// user is a pool of a user who may do all but some commands.
func user(t *testing.T, s *redistest.Server, name string, rules ...any) *redis.Pool {
	t.Helper()
	c := s.Pool().Get()
	defer c.Close()
	all := append([]any{"SETUSER", name, "on", ">secret", "~*", "&*", "+@all"}, rules...)
	if _, err := c.Do("ACL", all...); err != nil {
		t.Skipf("NOT PROVEN: what an ACL does to the queue: %v", err)
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername(name), redis.DialPassword("secret"))
	}}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// TestWithoutQueue: who may not use lists waits all the same, and is waited for.
func TestWithoutQueue(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	pool := user(t, s, "listless", "-@list")
	o := strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second}
	bound := opened(t, func() (*strategy.Strategy, error) { return reentrant.New(pool, o) })
	free := open(t, s, o)
	for name, contenders := range map[string][2]*strategy.Strategy{"waits": {free, bound}, "releases": {bound, bound}} {
		t.Run(name, func(t *testing.T) {
			lease := acquire(t, t.Context(), contenders[0], name)
			w := acquiring(t.Context(), contenders[1], name)
			release(t, lease)
			got := await(t, w)
			if got.err != nil {
				t.Fatalf("Acquire() = %v, want nil", got.err)
			}
			release(t, got.lease)
			key := strategy.DefaultKey(name)
			if n := redistest.Do(t, s, "EXISTS", key, strategy.SiblingKey(key, "queue")); n != int64(0) {
				t.Errorf("EXISTS = %v, want 0", n)
			}
		})
	}
}

// TestForbiddenToGrant: whichever command an ACL forbids to who releases, nobody is told of
// a lock that he has not got, and what is refused leaves the hold as it was.
func TestForbiddenToGrant(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	for _, command := range []string{"get", "time", "hgetall", "pttl", "set", "del", "hdel", "hset", "pexpireat", "publish", "lindex", "lpop", "rpush", "lpos", "pexpire", "lrem"} {
		pool := user(t, s, "no-"+command, "-"+command)
		n, err := node.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		bound := reentrant.On(n)
		for how, move := range map[string]func(c, next strategy.Claim) error{
			"Release": func(c, _ strategy.Claim) error { return bound.Release(t.Context(), c) },
			"Force": func(c, _ strategy.Claim) error {
				c.Force = true
				return bound.Release(t.Context(), c)
			},
			"Pass": func(c, next strategy.Claim) error {
				_, err := bound.(strategy.Queuer).Pass(t.Context(), c, next)
				return err
			},
		} {
			for _, inner := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%v", command, how, inner), func(t *testing.T) {
					p, c := protocol(t, s, unique(t), "me", "mine")
					c.Grant = take(t, p, c)
					if inner {
						other := c
						other.Token = "inner"
						take(t, p, other)
					}
					q, next := line(t, p, c, "you", "yours"), line(t, p, c, "next", "nexts")
					q.enqueue(t, p, "me")
					err := move(c, next.Claim)
					switch {
					case errors.Is(err, strategy.ErrRefused):
						if _, err := p.Extend(t.Context(), c); err != nil {
							t.Errorf("Extend() after %s was refused = %v, want nil", how, err)
						}
					case err != nil && !errors.Is(err, strategy.ErrHeld):
						t.Errorf("%s = %v, want nil, ErrHeld or ErrRefused", how, err)
					}
					owner, _ := redis.String(redistest.Do(t, s, "HGET", c.Key, "owner"), nil)
					for key, what := range map[string]string{c.Key: "the lock", queueOf(c): "the queue"} {
						if left := redistest.Do(t, s, "PTTL", key); left == int64(-1) {
							t.Errorf("%s has no expiry", what)
						}
					}
					redistest.Do(t, s, "PUBLISH", queueOf(c)+":"+q.Line, "next 77") // behind all that it has been told
					for {
						select {
						case n := <-q.told:
							if n.Token != "" && owner != "you" {
								t.Errorf("told that it holds the lock, which is %q's", owner)
							}
							if n.Next != 77*time.Millisecond {
								continue
							}
						case <-time.After(patience):
							t.Error("told nothing")
						}
						return
					}
				})
			}
		}
	}
}

// TestForbiddenToQueue: who could not release the lock takes no place, so that nobody makes
// him the holder.
func TestForbiddenToQueue(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("EVAL", "return redis.acl_check_cmd('DEL', 'a') and 1", 0); err != nil {
		t.Skipf("NOT PROVEN: that who could not release a lock does not queue for it (Redis 7.0): %v", err)
	}
	for _, command := range []string{"del", "hdel", "hset", "pexpireat"} {
		t.Run(command, func(t *testing.T) {
			p, c := protocol(t, s, command, "me", "mine")
			take(t, p, c)
			q := line(t, p, c, "you", "yours")
			n, err := node.New(user(t, s, "no-"+command, "-"+command))
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			_, err = reentrant.On(n).Acquire(t.Context(), q.Claim)
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(fmt.Sprint(err), strings.ToUpper(command)) {
				t.Errorf("Acquire() = %v, want ErrRefused, and what is forbidden", err)
			}
			if n := length(t, s, c); n != 0 {
				t.Errorf("LLEN = %d, want 0", n)
			}
		})
	}
}
