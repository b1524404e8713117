package undo

import (
	"context"
	"errors"
	"strings"
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
}

func (s *server) Release(_ context.Context, c driver.Claim) error {
	s.asked++
	if !c.Undo {
		return errors.New("the claim is not marked as an undo")
	}
	return s.answer(s.asked)
}

func refused() error { return &strategy.ServerError{Kind: strategy.ErrRefused} }
func unsent() error  { return &strategy.ServerError{Kind: strategy.ErrUnsent} }

const ttl, op = 10 * time.Second, time.Second

// run undoes a claim and returns how long that took.
func run(t *testing.T, s *server, c driver.Claim) (r *Retrier, took time.Duration) {
	t.Helper()
	r = &Retrier{Group: lifecycle.New()}
	c.Name, c.TTL, c.Due = "n", ttl, time.Now()
	start := time.Now()
	r.Undo(s, c, op)
	for r.Group.Active() > 0 {
		time.Sleep(time.Millisecond)
	}
	return r, time.Since(start).Round(10 * time.Millisecond)
}

// TestUndo: a release is repeated until the servers confirm it, or a TTL has passed since an acquire
// could have taken effect.
func TestUndo(t *testing.T) {
	granted := driver.Claim{Grant: driver.Grant{Start: time.Unix(1, 0)}}
	for name, tt := range map[string]struct {
		claim driver.Claim
		n     func(int) error
		took  time.Duration
	}{
		"confirmed at once":             {granted, func(int) error { return nil }, 0},
		"confirmed at the third":        {granted, func(n int) error { return map[bool]error{true: refused()}[n < 3] }, op / 2},
		"granted, never confirmed":      {granted, func(int) error { return unsent() }, ttl},
		"refused: the servers answered": {driver.Claim{}, func(int) error { return refused() }, ttl},
		"it may still arrive":           {driver.Claim{}, func(int) error { return driver.ErrAcquireMayArrive }, ttl},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, took := run(t, &server{answer: tt.n}, tt.claim)
				if took != tt.took || r.Err() != nil {
					t.Errorf("it took %v, and Err() = %v; want %v, nil", took, r.Err(), tt.took)
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
			return nil
		}}
		if _, took := run(t, s, driver.Claim{}); took < time.Minute {
			t.Errorf("it took %v, want until the server goes on after 1m", took)
		}
	})
}

// TestClose: Close leaves one last try, and Err says what could not be undone.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(int) error { return unsent() }}
		r := &Retrier{Group: lifecycle.New()}
		r.Undo(s, driver.Claim{Name: "n", Token: "abc", TTL: ttl, Due: time.Now()}, op)
		synctest.Wait()
		r.Group.Close()
		if err := r.Err(); s.asked != 2 || !errors.Is(err, strategy.ErrUnsent) || !strings.Contains(err.Error(), `lock "n": token "abc" may hold it`) {
			t.Errorf("after Close: %d tries, Err() = %v; want 2, and what remains", s.asked, err)
		}
	})
}
