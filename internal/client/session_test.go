// When connections are relied on, and who may use them.
package client

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Silence
		if s.Recent() || s.Since(time.Time{}) {
			t.Error("there was silence before any")
		}
		s.Note()
		at := time.Now()
		if !s.Since(at) || s.Since(at.Add(1)) {
			t.Error("Since does not tell the moment of the silence")
		}
		if time.Sleep(WaryFor - 1); !s.Recent() {
			t.Errorf("Recent just before %v = false, want true", WaryFor)
		}
		if time.Sleep(time.Nanosecond); s.Recent() {
			t.Errorf("Recent after %v = true, want false", WaryFor)
		}
	})
}

func TestReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Returns
		wants := func(what string, want uint64) {
			t.Helper()
			if r.Made(); r.Count != want {
				t.Errorf("%s: %d returns, want %d", what, r.Count, want)
			}
		}
		wants("the first connection", 0)
		r.Lost()
		wants("one in the place of a lost one", 1)
		wants("another", 1)
		if !r.Leave() {
			t.Error("the first replica is not left")
		}
		wants("one in the place of a replica", 2)
		if time.Sleep(LeaveEvery - 1); r.Leave() {
			t.Error("a replica is left too soon after the other")
		}
		wants("nothing was left", 2)
		if time.Sleep(time.Nanosecond); !r.Leave() {
			t.Error("a replica is not left a second later")
		}
	})
}

func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		if !g.Enter() || g.IsClosed() || g.Life().Err() != nil {
			t.Error("a new gate is closed")
		}
		g.Close()
		g.Close()
		if g.Enter() || !g.IsClosed() || g.Life().Err() == nil {
			t.Error("a closed gate is open")
		}
		over := false
		go func() { g.Wait(); over = true }()
		if synctest.Wait(); over {
			t.Error("Wait does not wait for the call that is in")
		}
		g.Leave()
		if synctest.Wait(); !over {
			t.Error("Wait waits for nobody")
		}
	})
}

func TestSettled(t *testing.T) {
	why := errors.New("why")
	for kind, want := range map[error]error{strategy.ErrRefused: nil, strategy.ErrUnknown: why, strategy.ErrUnsent: why} {
		if got := Settled(fmt.Errorf("PING: %w", &strategy.ServerError{Kind: kind, Err: why})); got != want {
			t.Errorf("Settled(%v) = %v, want %v", kind, got, want)
		}
	}
	if got := Settled(nil); got != nil {
		t.Errorf("Settled(nil) = %v", got)
	}
}
