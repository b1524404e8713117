// Tests how long an undo is repeated, how often, how many at a time, and what Close and Err say of it.
package undo

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/strategy"
)

// server is a protocol whose Release answers as a test says.
type server struct {
	driver.Protocol
	answer func(n int) error
	asked  int
	last   time.Time // when it was asked last
}

func (s *server) Release(_ context.Context, c driver.Claim) error {
	s.asked++
	s.last = time.Now()
	if !c.Undo || !c.Due.Equal(s.last.Add(op)) {
		return errors.New("the claim is not marked as an undo, or has no time of its own")
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
	r.Undo(s, c, op)
	time.Sleep(30 * time.Hour)
	if n := r.Group.Active(); n != 0 || s.asked >= enough {
		t.Errorf("after 30h: %d under way after %d requests, want none, and less than %d", n, s.asked, enough)
	}
	if r.Group.Close(); r.Err() != nil {
		t.Errorf("Err() = %v, want nil", r.Err())
	}
	return s.last.Sub(start)
}

// TestUndo: a release is repeated until the servers confirm it, or a TTL has passed since an acquire
// could have taken effect.
func TestUndo(t *testing.T) {
	granted := driver.Claim{Grant: driver.Grant{Start: time.Unix(1, 0)}}
	for name, tt := range map[string]struct {
		claim driver.Claim
		due   time.Duration
		n     func(int) error
		took  time.Duration
		asked int
	}{
		"confirmed at once":                  {granted, 0, func(int) error { return nil }, 0, 1},
		"confirmed at the third":             {granted, 0, func(n int) error { return map[bool]error{true: refused()}[n < 3] }, op / 2, 3},
		"granted, never confirmed":           {granted, 0, func(int) error { return unsent() }, ttl, 33},
		"granted, due later":                 {granted, 3 * op, func(int) error { return refused() }, ttl + 3*op, 17},
		"forced, never confirmed":            {driver.Claim{Force: true}, 0, func(int) error { return unsent() }, ttl, 33},
		"refused: the servers answered":      {driver.Claim{}, 0, func(int) error { return refused() }, ttl, 16},
		"it may still arrive":                {driver.Claim{}, 0, func(int) error { return driver.ErrAcquireMayArrive }, ttl, 16},
		"the servers are silent":             {driver.Claim{}, 0, func(int) error { return unsent() }, strategy.MaxTTL, 0},
		"one of several is silent":           {granted, 0, func(int) error { return driver.Remains(unsent()) }, strategy.MaxTTL, 0},
		"one may have it, another is silent": {granted, 0, func(int) error { return driver.Remains(nil) }, strategy.MaxTTL, 0},
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

// TestClose: Close leaves one last try, and Err says what could not be undone.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(int) error { return unsent() }}
		r := &Retrier{Group: lifecycle.New()}
		r.Undo(s, driver.Claim{Name: "n", Token: "abc", TTL: ttl, Due: time.Now()}, op)
		synctest.Wait()
		r.Group.Close()
		if err := r.Err(); s.asked != 2 || !errors.Is(err, strategy.ErrUnsent) || !strings.Contains(err.Error(), `lock "n": token "…c" may hold it`) {
			t.Errorf("after Close: %d tries, Err() = %v; want 2, and what remains", s.asked, err)
		}
	})
}

// slow is a server that is silent for as long as it is asked to be, and counts who asks it at the same time.
type slow struct {
	driver.Protocol
	silent time.Duration // from the first request on

	mu    sync.Mutex
	began time.Time
	asked int
	under map[string]int // by key
	most  map[string]int // after the first op
}

func (s *slow) Release(_ context.Context, c driver.Claim) error {
	s.mu.Lock()
	if s.asked++; s.asked == 1 {
		s.began = time.Now()
	}
	silent := time.Since(s.began) < s.silent
	s.under[c.Key]++
	if time.Since(s.began) >= op {
		s.most[c.Key] = max(s.most[c.Key], s.under[c.Key])
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
	for range 20 {
		for _, key := range []string{"a", "b"} {
			r.Undo(s, driver.Claim{Name: key, Key: key, TTL: ttl, Due: time.Now()}, op)
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
		if n := r.Group.Active(); s.most["a"] != 1 || s.most["b"] != 1 || n != 0 || s.asked > 2*(20+20+20) {
			t.Errorf("up to %v ask again at a time, %d requests, and %d under way 2s after the server's silence, want one, 120 at most, and none", s.most, s.asked, n)
		}
		if r.Group.Close(); r.Err() != nil || len(r.turns) != 0 {
			t.Errorf("Err() = %v, and %d keys are kept, want none", r.Err(), len(r.turns))
		}
	})
}

// TestCloseOutOfTurn: Close does not wait for turns.
func TestCloseOutOfTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := undoing(time.Hour)
		time.Sleep(3 * op)
		s.mu.Lock()
		asked, closed := s.asked, time.Now()
		s.mu.Unlock()
		r.Group.Close()
		if took := time.Since(closed); took > 2*op || s.asked-asked < 38 || s.asked-asked > 40 || strings.Count(r.Err().Error(), "may hold it") != 40 {
			t.Errorf("Close took %v and %d requests, and says\n%v\nwant 2s at most, one last request of each, and 40 claims", took, s.asked-asked, r.Err())
		}
	})
}
