// Tests what the algorithm is known not to guarantee, each weakness shown by a schedule that forces it.
package setnxgetset_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/strategy"
)

// The weaknesses that the package doc names, seen on Redis. The conformance suite shows
// some of them too; here they go on to their end.

// TestDeleteAndSet: the race that GETSET was found for, played with plain commands.
func TestDeleteAndSet(t *testing.T) {
	s := redistest.Shared(t)
	key := strategy.DefaultKey(locktest.Unique(t))
	defer redistest.Do(t, s, "DEL", key)
	lapsed := time.Now().Add(-time.Second).UnixMilli()
	ahead := time.Now().Add(time.Minute).UnixMilli()
	c1, c2 := s.Pool().Get(), s.Pool().Get()
	defer c1.Close()
	defer c2.Close()
	both := func() (first, second bool) { // have seen the stamp pass
		t.Helper()
		redistest.Do(t, s, "SET", key, lapsed)
		for _, c := range []redis.Conn{c1, c2} {
			if stamp, err := redis.Int64(c.Do("GET", key)); err != nil || stamp != lapsed {
				t.Fatalf("GET = %d, %v, want %d", stamp, err, lapsed)
			}
		}
		return false, false
	}

	first, second := both()
	for i, c := range []redis.Conn{c1, c2} {
		if _, err := c.Do("DEL", key); err != nil { // c2's hits c1's new lock
			t.Fatal(err)
		}
		got, err := redis.Bool(c.Do("SETNX", key, ahead+int64(i)))
		if err != nil {
			t.Fatal(err)
		}
		first, second = first || i == 0 && got, second || i == 1 && got
	}
	if !first || !second {
		t.Errorf("DEL and SETNX: first %v, second %v, want both to hold it: that is the race", first, second)
	}

	first, second = both()
	for i, c := range []redis.Conn{c1, c2} {
		old, err := redis.Int64(c.Do("GETSET", key, ahead+int64(i)))
		if err != nil {
			t.Fatal(err)
		}
		got := old <= time.Now().UnixMilli()
		first, second = first || i == 0 && got, second || i == 1 && got
	}
	if !first || second {
		t.Errorf("GETSET: first %v, second %v, want the first alone to hold it", first, second)
	}
}

// loser opens a contender that, having seen a lock lapsed, lets step happen before it
// swaps.
func loser(t *testing.T, s *redistest.Server, o strategy.Options, step func(), options ...setnxgetset.Option) strategy.Strategy {
	t.Helper()
	n := redigonode.New(s.Pool())
	gate := func(request string, send func()) {
		if strings.HasPrefix(request, "GETSET") {
			step()
		}
		send()
	}
	locks, err := setnxgetset.New(conformance.GateNode(n, gate), o, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// TestLoserHidesTheWinner: the loser of a GETSET is refused, but its value stays. The
// winner's own release says ErrLost though nobody else holds the lock, and the lock
// stays until the loser's stamp has passed.
func TestLoserHidesTheWinner(t *testing.T) {
	s := redistest.Shared(t)
	var wall clock
	o := strategy.Options{TTL: time.Minute}
	a := open(t, s, o, wall.option())
	name := locktest.Unique(t)
	locktest.Try(t, a, name) // and dies
	wall.forward(2 * time.Minute)

	var winner strategy.Lease
	b := loser(t, s, o, func() { winner = locktest.Try(t, a, name) }, wall.option())
	_, err := b.NewLock(name).TryAcquire(t.Context())
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != winner.Token() || held.TTL != time.Minute {
		t.Fatalf("TryAcquire() of the loser = %v, want a HeldError by the winner, for as long as its own stamp says", err)
	}
	info, err := a.Inspect(t.Context(), name)
	if err != nil || !info.Held || info.Token == winner.Token() {
		t.Errorf("Inspect() = %+v, %v, want held by the loser's token", info, err)
	}
	var lost *strategy.LostError
	if err := winner.Release(t.Context()); !errors.As(err, &lost) || lost.Holder != info.Token {
		t.Errorf("Release() of the winner = %v, want a LostError that calls the loser the holder", err)
	}
	if _, err := a.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("TryAcquire() = %v, want ErrHeld: the loser's stamp is ahead, though nobody holds the lock", err)
	}
	wall.forward(2 * time.Minute)
	if err := locktest.Try(t, a, name).Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestLoserCutsTheWinnerShort: the loser's stamp may come before the winner's: where
// TTLs differ, or when its GETSET was long on its way. Then a third takes the lock while
// the winner holds it.
func TestLoserCutsTheWinnerShort(t *testing.T) {
	s := redistest.Shared(t)
	for what, c := range map[string]struct {
		ttl    time.Duration // of the loser; the winner's is an hour
		onWay  time.Duration
		passes time.Duration // until the loser's stamp has passed
	}{
		"the loser's TTL is shorter":         {ttl: time.Minute, passes: 2 * time.Minute},
		"the loser's GETSET came with delay": {ttl: time.Hour, onWay: 30 * time.Minute, passes: 40 * time.Minute},
	} {
		var wall clock
		a := open(t, s, strategy.Options{TTL: time.Hour}, wall.option())
		name := locktest.Unique(t)
		key := strategy.DefaultKey(name)
		redistest.Do(t, s, "SET", key, time.Now().Add(-time.Second).UnixMilli())
		var winner strategy.Lease
		b := loser(t, s, strategy.Options{TTL: c.ttl}, func() {
			wall.forward(c.onWay)
			winner = locktest.Try(t, a, name)
		}, wall.option())
		if _, err := b.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
			t.Fatalf("%s: TryAcquire() of the loser = %v, want ErrHeld", what, err)
		}
		wall.forward(c.passes)
		third := locktest.Try(t, a, name)
		if winner.Err() != nil || third.Err() != nil {
			t.Errorf("%s: winner.Err() = %v, third.Err() = %v, want nil: both hold it", what, winner.Err(), third.Err())
		}
		redistest.Do(t, s, "DEL", key)
	}
}

// TestClocksDecide: a clock that is ahead steals a lock that is held, and a lock by a
// clock that is behind is stolen at once. Both then believe that they hold it.
func TestClocksDecide(t *testing.T) {
	s := redistest.Shared(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var right, early, late clock
			early.forward(time.Hour)
			late.forward(-time.Hour)
			at := func(c *clock) strategy.Strategy {
				return open(t, s, strategy.Options{TTL: time.Minute}, append(slices.Clone(m.options), c.option())...)
			}
			for what, c := range map[string]struct{ holder, thief *clock }{
				"the thief's clock is ahead":   {&right, &early},
				"the holder's clock is behind": {&late, &right},
			} {
				name := locktest.Unique(t)
				robbed := locktest.Try(t, at(c.holder), name)
				thief := locktest.Try(t, at(c.thief), name)
				if robbed.Err() != nil || thief.Err() != nil {
					t.Errorf("%s: Err() = %v and %v, want nil: both hold it", what, robbed.Err(), thief.Err())
				}
				if err := robbed.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
					t.Errorf("%s: Extend() = %v, want ErrLost", what, err)
				}
				if err := thief.Release(t.Context()); err != nil {
					t.Errorf("%s: Release() = %v, want nil", what, err)
				}
			}
		})
	}
}

// TestBlindReleaseFreesAStranger: a DEL that comes late frees the next holder, and
// says that all is well.
func TestBlindReleaseFreesAStranger(t *testing.T) {
	s := redistest.Shared(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var wall clock
			o := strategy.Options{TTL: time.Minute}
			blind := open(t, s, o, append(slices.Clone(m.options), setnxgetset.WithBlindRelease(), wall.option())...)
			other := open(t, s, o, append(slices.Clone(m.options), wall.option())...)
			name := locktest.Unique(t)
			late := locktest.Try(t, blind, name)
			wall.forward(2 * time.Minute) // while its process was stopped
			stranger := locktest.Try(t, other, name)
			if err := late.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil: it does not know", err)
			}
			third := locktest.Try(t, other, name)
			if stranger.Err() != nil || third.Err() != nil {
				t.Errorf("Err() = %v and %v, want nil: both hold it", stranger.Err(), third.Err())
			}
			if err := third.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
		})
	}
}

// mute does what it is asked and loses the replies to one command.
type mute struct {
	driver.Node
	cmd  string
	off  atomic.Bool
	undo error // why Close has ended an undo
}

var errMute = &strategy.ServerError{Node: "mute", Kind: strategy.ErrUnknown, Err: errors.New("the reply was lost")}

func (n *mute) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	reply, err := n.Node.Do(ctx, due, cmd, key, args...)
	if cmd == n.cmd && err == nil && !n.off.Load() {
		return nil, errMute
	}
	return reply, err
}

func (n *mute) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	return n.Node.Session(ctx, due, key, func(c driver.Conn) error { return fn(muteConn{c, n}) })
}

type muteConn struct {
	driver.Conn
	n *mute
}

func (c muteConn) Do(cmd string, args ...any) (any, error) {
	reply, err := c.Conn.Do(cmd, args...)
	if cmd == c.n.cmd && err == nil && !c.n.off.Load() {
		return nil, errMute
	}
	return reply, err
}

// withoutReplies opens a contender whose replies to cmd are lost.
func withoutReplies(t *testing.T, s *redistest.Server, cmd string, options ...setnxgetset.Option) (strategy.Strategy, *mute) {
	t.Helper()
	n := redigonode.New(s.Pool())
	m := &mute{Node: n, cmd: cmd}
	locks, err := setnxgetset.New(m, strategy.Options{TTL: time.Minute, Observe: func(e strategy.Event) {
		if e.Kind == strategy.EventUndoFailed {
			m.undo = e.Err
		}
	}}, options...)
	if err != nil {
		t.Fatal(err)
	}
	return locks, m
}

// TestUnconfirmedGetSet: whether it won or lost, nobody knows. To undo it might free the
// lock of a winner that it hides, so its value is left to lapse.
func TestUnconfirmedGetSet(t *testing.T) {
	s := redistest.Shared(t)
	var wall clock
	name := locktest.Unique(t)
	key := strategy.DefaultKey(name)
	redistest.Do(t, s, "SET", key, time.Now().Add(-time.Second).UnixMilli())
	locks, m := withoutReplies(t, s, "GETSET", wall.option())
	if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
		t.Fatalf("TryAcquire() = %v, want ErrUnknown", err)
	}
	// Close gives the undo a last try, and an event reports that it failed.
	if err := locks.Close(); err != nil || !errors.Is(m.undo, strategy.ErrRefused) {
		t.Errorf("Close() = %v, and the undo failed with %v; want nil, and ErrRefused", err, m.undo)
	}
	other := open(t, s, strategy.Options{TTL: time.Minute}, wall.option())
	if _, err := other.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("TryAcquire() = %v, want ErrHeld: the value is left to lapse", err)
	}
	wall.forward(2 * time.Minute)
	if err := locktest.Try(t, other, name).Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestUnconfirmedGetSetLapses: the undoing ends by itself when the value has lapsed.
func TestUnconfirmedGetSetLapses(t *testing.T) {
	s := redistest.Shared(t)
	var wall clock
	name := locktest.Unique(t)
	key := strategy.DefaultKey(name)
	defer redistest.Do(t, s, "DEL", key)
	redistest.Do(t, s, "SET", key, time.Now().Add(-time.Second).UnixMilli())
	locks, _ := withoutReplies(t, s, "GETSET", wall.option())
	if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnknown) {
		t.Fatalf("TryAcquire() = %v, want ErrUnknown", err)
	}
	wall.forward(2 * time.Minute)
	if err := locks.Close(); err != nil {
		t.Errorf("Close() = %v, want nil: nothing can come of it any more", err)
	}
}

// TestUnconfirmedIsUndone: a SETNX, and a transaction, that were not answered have hit
// nobody, and are undone.
func TestUnconfirmedIsUndone(t *testing.T) {
	s := redistest.Shared(t)
	for _, c := range []struct {
		cmd     string
		lapsed  bool
		options []setnxgetset.Option
	}{
		{"SETNX", false, nil},
		{"SETNX", false, []setnxgetset.Option{setnxgetset.WithWatchTakeOver()}},
		{"EXEC", true, []setnxgetset.Option{setnxgetset.WithWatchTakeOver()}},
	} {
		name := locktest.Unique(t)
		key := strategy.DefaultKey(name)
		if c.lapsed {
			redistest.Do(t, s, "SET", key, time.Now().Add(-time.Second).UnixMilli())
		}
		locks, m := withoutReplies(t, s, c.cmd, c.options...)
		if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
			t.Fatalf("%s: TryAcquire() = %v, want ErrUnknown", c.cmd, err)
		}
		m.off.Store(true)
		if err := locks.Close(); err != nil {
			t.Errorf("%s: Close() = %v, want nil", c.cmd, err)
		}
		if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
			t.Errorf("%s: the lock is left, want it undone", c.cmd)
		}
	}
}
