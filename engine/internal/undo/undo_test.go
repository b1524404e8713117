// Tests how long an undo is repeated, how often, and how many at a time. (For Close see engine's tests, too.)
package undo

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

const ttl, op = 10 * time.Second, time.Second

// enough is more often than any test expects a server to be asked.
const enough = 10000

// server is a protocol whose Undo answers as a test says. It counts who asks for a key at the same time.
type server struct {
	driver.Protocol
	answer func(n int, began time.Time) error

	mu          sync.Mutex
	asked       int
	began, last time.Time      // when it was asked first, and last
	under       map[string]int // by key
	most        int            // after the first op
	both        bool           // a request of each key was under way at a time, likewise
}

func (s *server) Undo(_ context.Context, c driver.Claim) error {
	s.mu.Lock()
	s.asked++
	s.last = time.Now()
	if s.asked == 1 {
		s.began, s.under = s.last, map[string]int{}
	}
	n, began := s.asked, s.began
	s.under[c.Key]++
	if s.last.Sub(began) >= op {
		s.most = max(s.most, s.under[c.Key])
		s.both = s.both || s.under["a"] > 0 && s.under["b"] > 0
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.under[c.Key]--
	}()
	switch {
	case !c.Due.Equal(time.Now().Add(op)):
		return errors.New("the claim has no time of its own")
	case n == enough:
		return nil
	}
	return s.answer(n, began)
}

func confirmed(int, time.Time) error { return nil }
func refused(int, time.Time) error   { return &strategy.ServerError{Kind: strategy.ErrRefused} }
func unsent(int, time.Time) error    { return &strategy.ServerError{Kind: strategy.ErrUnsent} }

// TestUndo: an undo is repeated until the servers confirm it, or a TTL has passed since an acquire could have taken effect. A
// paused server has not begun to count, so the TTL counts from its last silence.
func TestUndo(t *testing.T) {
	granted := driver.Grant{Start: time.Unix(1, 0)}
	partial := driver.Grant{Start: time.Unix(1, 0), Partial: true}
	arrives := func(int, time.Time) error { return driver.ErrAcquireMayArrive }
	third := func(n int, began time.Time) error {
		if n < 3 {
			return refused(n, began)
		}
		return nil
	}
	paused := func(n int, began time.Time) error {
		if time.Since(began) < time.Minute {
			return unsent(n, began)
		}
		return refused(n, began)
	}
	for name, tt := range map[string]struct {
		grant  driver.Grant
		due    time.Duration // from now
		answer func(int, time.Time) error
		took   time.Duration
		asked  int           // 0: however often
		slack  time.Duration // it may take that much less
	}{
		"confirmed at once":             {granted, 0, confirmed, 0, 1, 0},
		"confirmed at the third":        {granted, 0, third, op / 2, 3, 0},
		"granted, never confirmed":      {granted, 0, unsent, ttl, 33, 0},
		"granted, due later":            {granted, 3 * op, refused, ttl + 3*op, 17, 0},
		"refused: the servers answered": {driver.Grant{}, 0, refused, ttl, 16, 0},
		"it may still arrive":           {driver.Grant{}, 0, arrives, ttl, 16, 0},
		"the servers are silent":        {driver.Grant{}, 0, unsent, contract.MaxTTL, 0, 0},
		"one of several is silent":      {partial, 0, unsent, contract.MaxTTL, 0, 0},
		"one of several, all answer":    {partial, 0, refused, ttl, 16, 0},
		"silent for a minute":           {driver.Grant{}, 0, paused, time.Minute + ttl, 0, ttl},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, start := &server{answer: tt.answer}, time.Now()
				r := &Retrier{Group: lifecycle.New()}
				r.Undo(s, driver.Claim{TTL: ttl, Due: start.Add(tt.due), Grant: tt.grant}, op, func(driver.Claim, time.Duration, error) {
					t.Error("it has failed, want not: Close has ended nothing")
				})
				time.Sleep(30 * time.Hour)
				if n := r.Group.Active(); n != 0 {
					t.Errorf("%d under way after 30h, want none", n)
				}
				took := s.last.Sub(start)
				if took > tt.took || took < tt.took-tt.slack || tt.asked != 0 && s.asked != tt.asked || s.asked >= enough {
					t.Errorf("it took %v and %d requests, want %v and %d", took, s.asked, tt.took, tt.asked)
				}
				r.Group.Close()
			})
		})
	}
}

// TestOneAtATime: all undos ask at once at first. Of those that ask a silent server again, there is one at a time for each key,
// and when it answers, all have asked it soon. They do not wait for each other once Close has begun.
func TestOneAtATime(t *testing.T) {
	for name, closes := range map[string]bool{"the server answers": false, "Close": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answer: func(n int, began time.Time) error {
					if closes || time.Since(began) < 20*op {
						time.Sleep(op)
						return unsent(n, began)
					}
					time.Sleep(time.Millisecond)
					return nil
				}}
				r := &Retrier{Group: lifecycle.New()}
				failed := make(chan error, 100)
				for i := range 40 {
					key := []string{"a", "b"}[i%2]
					c := driver.Claim{Key: key, Token: strconv.Itoa(i), TTL: ttl, Due: time.Now()}
					r.Undo(s, c, op, func(_ driver.Claim, _ time.Duration, err error) { failed <- err })
				}
				time.Sleep(op / 2)
				s.mu.Lock()
				if s.under["a"] != 20 || s.under["b"] != 20 {
					t.Errorf("%v ask at first, want all 20 of each key", s.under)
				}
				s.mu.Unlock()
				if closes {
					time.Sleep(2*op + op/2)
					s.mu.Lock()
					asked, closed := s.asked, time.Now()
					s.mu.Unlock()
					r.Group.Close()
					if took, last := time.Since(closed), s.asked-asked; took > 2*op || last < 38 || last > 40 || len(failed) != 40 {
						t.Errorf("Close took %v and %d requests, and %d undos have failed; want 2s at most, one last request of each, and 40",
							took, last, len(failed))
					}
					return
				}
				time.Sleep(20*op + op + op/2)
				s.mu.Lock()
				defer s.mu.Unlock()
				if n := r.Group.Active(); s.most != 1 || !s.both || n != 0 || s.asked > 2*(20+20+20) {
					t.Errorf("up to %d ask again at a time, of both keys: %v, %d requests, and %d under way 2s after the server's silence; "+
						"want one, true, 120 at most, and none", s.most, s.both, s.asked, n)
				}
				if r.Group.Close(); len(failed) != 0 || len(r.limiters) != 0 {
					t.Errorf("%d undos have failed, and %d keys are kept, want none", len(failed), len(r.limiters))
				}
			})
		})
	}
}
