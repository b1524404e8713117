// Tests how long an undo is repeated, how often, how many at a time, and what Close says of it.
package undo

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// server is a protocol whose Undo answers as a test says.
type server struct {
	driver.Protocol
	answer func(n int) error
	asked  int
	last   time.Time // when it was asked last
}

func (s *server) Undo(_ context.Context, c driver.Claim) error {
	s.asked++
	s.last = time.Now()
	if !c.Due.Equal(s.last.Add(op)) {
		return errors.New("the claim has no time of its own")
	}
	if s.asked == enough {
		return nil
	}
	return s.answer(s.asked)
}

// enough is more often than any test expects a server to be asked.
const enough = 10000

func refused() error { return &strategy.ServerError{Kind: strategy.ErrRefused} }
func unsent() error  { return &strategy.ServerError{Kind: strategy.ErrUnsent} }

const ttl, op = 10 * time.Second, time.Second

// run undoes a claim that was due that much later than now, and returns how long that took.
func run(t *testing.T, s *server, c driver.Claim, due time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	r := &Retrier{Group: lifecycle.New()}
	c.Name, c.TTL, c.Due = "n", ttl, start.Add(due)
	failed := 0
	r.Undo(s, c, op, func(driver.Claim, time.Duration, error) { failed++ })
	time.Sleep(30 * time.Hour)
	if n := r.Group.Active(); n != 0 || s.asked >= enough {
		t.Errorf("after 30h: %d under way after %d requests, want none, and less than %d", n, s.asked, enough)
	}
	if r.Group.Close(); failed != 0 {
		t.Errorf("failed %d times, want none: Close has ended nothing", failed)
	}
	return s.last.Sub(start)
}

// TestUndo: an undo is repeated until the servers confirm it, or a TTL has passed since an acquire
// could have taken effect.
func TestUndo(t *testing.T) {
	granted := driver.Claim{Grant: driver.Grant{Start: time.Unix(1, 0)}}
	partial := driver.Claim{Grant: driver.Grant{Start: time.Unix(1, 0), Partial: true}}
	for name, tt := range map[string]struct {
		claim driver.Claim
		due   time.Duration
		n     func(int) error
		took  time.Duration
		asked int
	}{
		"confirmed at once":             {granted, 0, func(int) error { return nil }, 0, 1},
		"confirmed at the third":        {granted, 0, func(n int) error { return map[bool]error{true: refused()}[n < 3] }, op / 2, 3},
		"granted, never confirmed":      {granted, 0, func(int) error { return unsent() }, ttl, 33},
		"granted, due later":            {granted, 3 * op, func(int) error { return refused() }, ttl + 3*op, 17},
		"refused: the servers answered": {driver.Claim{}, 0, func(int) error { return refused() }, ttl, 16},
		"it may still arrive":           {driver.Claim{}, 0, func(int) error { return driver.ErrAcquireMayArrive }, ttl, 16},
		"the servers are silent":        {driver.Claim{}, 0, func(int) error { return unsent() }, contract.MaxTTL, 0},
		"one of several is silent":      {partial, 0, func(int) error { return unsent() }, contract.MaxTTL, 0},
		"one of several, all answer":    {partial, 0, func(int) error { return refused() }, ttl, 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answer: tt.n}
				if took := run(t, s, tt.claim, tt.due); took != tt.took || tt.asked != 0 && s.asked != tt.asked {
					t.Errorf("it took %v and %d requests, want %v and %d", took, s.asked, tt.took, tt.asked)
				}
			})
		})
	}
}

// TestPausedServer: a paused server has not begun to count, so the TTL counts from its last silence.
func TestPausedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &server{answer: func(int) error {
			if time.Since(start) < time.Minute {
				return unsent()
			}
			return refused()
		}}
		if took := run(t, s, driver.Claim{}, 0); took < time.Minute || took > time.Minute+ttl {
			t.Errorf("it took %v, want until a TTL after the server's last silence, within 1m", took)
		}
	})
}

// TestPause: the first pause is a quarter of the operation time-out, 5 ms at least. Later ones grow, faster
// if the servers answer.
func TestPause(t *testing.T) {
	for _, tt := range []struct {
		op, passed     time.Duration
		answered, mute time.Duration
	}{
		{op, 0, op / 4, op / 4},
		{op, 16 * op, 4 * op, op},
		{time.Millisecond, 0, 5 * time.Millisecond, 5 * time.Millisecond},
	} {
		if got := pause(tt.op, tt.passed, true); got != tt.answered {
			t.Errorf("pause(%v, %v, answered) = %v, want %v", tt.op, tt.passed, got, tt.answered)
		}
		if got := pause(tt.op, tt.passed, false); got != tt.mute {
			t.Errorf("pause(%v, %v, no answer) = %v, want %v", tt.op, tt.passed, got, tt.mute)
		}
	}
}

// TestClose: Close leaves one last try, and who asked for the undo learns that it has failed.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(int) error { return unsent() }}
		r := &Retrier{Group: lifecycle.New()}
		var failed []error
		r.Undo(s, driver.Claim{Name: "n", Token: "abc", TTL: ttl, Due: time.Now()}, op, func(c driver.Claim, took time.Duration, err error) {
			if failed = append(failed, err); c.Token != "abc" || took != op/8 {
				t.Errorf("failed: %q after %v, want abc after %v", c.Token, took, op/8)
			}
		})
		time.Sleep(op / 8)
		r.Group.Close()
		if s.asked != 2 || len(failed) != 1 || !errors.Is(failed[0], strategy.ErrUnsent) {
			t.Errorf("after Close: %d tries, failed: %v; want 2, and once not sent", s.asked, failed)
		}
	})
}

// slow is a server that is silent for as long as it is asked to be, and counts who asks it at the same time.
type slow struct {
	driver.Protocol
	silent time.Duration // from the first request on
	failed atomic.Int32  // undos

	mu    sync.Mutex
	began time.Time
	asked int
	under map[string]int // by key
	most  map[string]int // after the first op
	both  bool           // a request of each key was under way at a time, likewise
}

func (s *slow) Undo(_ context.Context, c driver.Claim) error {
	s.mu.Lock()
	if s.asked++; s.asked == 1 {
		s.began = time.Now()
	}
	silent := time.Since(s.began) < s.silent
	s.under[c.Key]++
	if time.Since(s.began) >= op {
		s.most[c.Key] = max(s.most[c.Key], s.under[c.Key])
		s.both = s.both || s.under["a"] > 0 && s.under["b"] > 0
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.under[c.Key]--
	}()
	if silent {
		time.Sleep(op)
		return unsent()
	}
	time.Sleep(time.Millisecond)
	return nil
}

// undoing undoes 20 claims of each of two keys.
func undoing(silent time.Duration) (*slow, *Retrier) {
	s := &slow{silent: silent, under: map[string]int{}, most: map[string]int{}}
	r := &Retrier{Group: lifecycle.New()}
	for i := range 20 {
		for _, key := range []string{"a", "b"} {
			r.Undo(s, driver.Claim{Name: key, Key: key, Token: strconv.Itoa(i), TTL: ttl, Due: time.Now()}, op, func(driver.Claim, time.Duration, error) { s.failed.Add(1) })
		}
	}
	return s, r
}

// TestOneAtATime: all undos ask at once at first. Of those that ask a silent server again, there is one at a
// time for each key, and when it answers, all have asked it soon.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := undoing(20 * op)
		time.Sleep(op / 2)
		s.mu.Lock()
		if s.under["a"] != 20 || s.under["b"] != 20 {
			t.Errorf("%v ask at first, want all 20 of each key", s.under)
		}
		s.mu.Unlock()
		time.Sleep(20*op + op + op/2)
		if n := r.Group.Active(); s.most["a"] != 1 || s.most["b"] != 1 || !s.both || n != 0 || s.asked > 2*(20+20+20) {
			t.Errorf("up to %v ask again at a time, of both keys: %v, %d requests, and %d under way 2s after the server's silence, want one, true, 120 at most, and none", s.most, s.both, s.asked, n)
		}
		if r.Group.Close(); s.failed.Load() != 0 || len(r.limiters) != 0 {
			t.Errorf("%d undos have failed, and %d keys are kept, want none", s.failed.Load(), len(r.limiters))
		}
	})
}

// TestCloseWithoutLimit: undos do not wait for each other once Close has begun.
func TestCloseWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := undoing(time.Hour)
		time.Sleep(3 * op)
		s.mu.Lock()
		asked, closed := s.asked, time.Now()
		s.mu.Unlock()
		r.Group.Close()
		if took := time.Since(closed); took > 2*op || s.asked-asked < 38 || s.asked-asked > 40 || s.failed.Load() != 40 {
			t.Errorf("Close took %v and %d requests, and %d undos have failed; want 2s at most, one last request of each, and 40", took, s.asked-asked, s.failed.Load())
		}
	})
}
