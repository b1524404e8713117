// Tests callers that have a goroutine read for them.
package redigonode

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// servedCallers are two callers in flight, for whom a goroutine reads: that it does began
// when the one before them was answered.
type servedCallers struct {
	n              *node
	f              *nodetest.Server
	c              *nodetest.Conn
	second, third  <-chan error
	cancel2, leave context.CancelCauseFunc // of the second, of the third
}

// served runs a test on callers who are due after these times.
func served(t *testing.T, due2, due3 time.Duration, test func(t *testing.T, w *servedCallers)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		n, f, held := holding(t)
		w := &servedCallers{n: n, f: f}
		first := hold(n, t.Context(), soon())
		w.c = receive(t, "first HOLD", held)
		ctx2, cancel2 := context.WithCancelCause(t.Context())
		w.cancel2, w.second = cancel2, hold(n, ctx2, time.Now().Add(due2))
		receive(t, "second HOLD", held)
		ctx3, cancel3 := context.WithCancelCause(t.Context())
		w.leave, w.third = cancel3, hold(n, ctx3, time.Now().Add(due3))
		receive(t, "third HOLD", held)
		w.c.Bulk("1")
		wantReply(t, first, "1")
		if synctest.Wait(); !isServed(n) {
			t.Fatal("no goroutine reads for two callers")
		}
		test(t, w)
	})
}

// isServed reports whether a goroutine reads.
func isServed(n *node) (is bool) {
	locked(n, func(p *pipe) { is = p.wire != nil && p.wire.reader == &p.wire.server })
	return is
}

func TestServedCallersGetTheirReplies(t *testing.T) {
	served(t, generous, generous, func(t *testing.T, w *servedCallers) {
		w.c.Bulk("2")
		w.c.Bulk("3")
		wantReply(t, w.second, "2")
		wantReply(t, w.third, "3")
		if synctest.Wait(); isServed(w.n) {
			t.Error("a goroutine reads though nobody waits")
		}
		// A caller alone is its own reader again.
		for range 2 {
			echo(t, w.n, "alone")
		}
		out := hold(w.n, t.Context(), soon())
		if synctest.Wait(); isServed(w.n) {
			t.Error("a goroutine reads for a single caller")
		}
		w.c.Bulk("4")
		wantReply(t, out, "4")
		wantDials(t, w.f, 1)
	})
}

// A caller that is served leaves at once, even the oldest one. The goroutine ends with the last
// reply.
func TestServedCallersLeaveAtOnce(t *testing.T) {
	served(t, generous, generous, func(t *testing.T, w *servedCallers) {
		why2, why3 := errors.New("second's reason"), errors.New("third's reason")
		w.cancel2(why2)
		wantFailed(t, "the oldest", w.second, strategy.ErrUnknown, why2)
		w.leave(why3)
		wantFailed(t, "the other", w.third, strategy.ErrUnknown, why3)
		w.c.Bulk("2") // and no other reply: now nobody is read for
		if synctest.Wait(); isServed(w.n) {
			t.Error("the goroutine has not ended")
		}
		w.c.Bulk("3")
		echo(t, w.n, "own")
		wantDials(t, w.f, 1)
	})
}

// The oldest that is served has no reply by its due time: as with a leader, the
// connection is given up for all, and killed before anything else is sent.
func TestServedConnectionIsGivenUpWhenDue(t *testing.T) {
	served(t, 300*time.Millisecond, generous, func(t *testing.T, w *servedCallers) {
		wantFailed(t, "the oldest", w.second, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		wantFailed(t, "the other", w.third, strategy.ErrUnknown, errGivenUp)
		echo(t, w.n, "undo")
		wantSeen(t, w.f, "1 HOLD k", "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO undo")
	})
}

// The goroutine does not wait for ever for replies that nobody wants.
func TestServedConnectionIsGivenUpWhenAllHaveLeft(t *testing.T) {
	served(t, 300*time.Millisecond, 300*time.Millisecond, func(t *testing.T, w *servedCallers) {
		w.cancel2(nil)
		w.leave(nil)
		wantFailed(t, "second", w.second, strategy.ErrUnknown)
		wantFailed(t, "third", w.third, strategy.ErrUnknown)
		w.n.pipe.work.Wait() // for the goroutine's end
	})
}

// A connection that is to be replaced does not stay for replies that nobody wants.
func TestRetiredServedConnectionIsKilled(t *testing.T) {
	served(t, generous, generous, func(t *testing.T, w *servedCallers) {
		w.cancel2(nil)
		receive(t, "second's return", w.second)
		w.leave(nil)
		receive(t, "third's return", w.third)
		locked(w.n, func(p *pipe) { p.wire.retired = true })
		echo(t, w.n, "next")
		wantSeen(t, w.f, "1 HOLD k", "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO next")
	})
}

// One who is served and whose time is up leaves; the connection stays while its oldest
// has time.
func TestLateServedCallerLeavesTheConnection(t *testing.T) {
	served(t, generous, 300*time.Millisecond, func(t *testing.T, w *servedCallers) {
		wantFailed(t, "the younger", w.third, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		w.c.Bulk("2")
		wantReply(t, w.second, "2")
		wantDials(t, w.f, 1)
	})
}

func TestCloseWhileServed(t *testing.T) {
	served(t, generous, generous, func(t *testing.T, w *servedCallers) {
		wire := w.n.pipe.wire
		if err := w.n.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
		if wire.reader != nil { // without the lock: it has ended, or this is a race
			t.Error("Close has returned before the goroutine")
		}
		wantFailed(t, "second", w.second, strategy.ErrUnknown, strategy.ErrClosed)
		wantFailed(t, "third", w.third, strategy.ErrUnknown, strategy.ErrClosed)
	})
}

// The goroutine that reads answers for the oldest that was sent, while no other reads.
func TestServed(t *testing.T) {
	t.Parallel()
	w, o, later := &wire{}, &op{}, &op{}
	o.progress.Store(sent)
	later.progress.Store(sent)
	w.flight.push(o, later)
	if w.reader = o; w.served() != nil {
		t.Error("a caller reads, and the goroutine is said to serve")
	}
	w.reader = &w.server
	for progress, want := range map[int32]*op{queued: nil, sending: nil, sent: o, dropped: later} {
		if o.progress.Store(progress); w.served() != want {
			t.Errorf("progress %d: served = %p, want %p", progress, w.served(), want)
		}
	}
}
