// Tests callers that have a goroutine read for them.
package redigonode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// servedCallers are two callers in flight, for whom a goroutine reads: that it does began
// when the one before them was answered.
type servedCallers struct {
	n              *node
	f              *nodetest.Server
	c              *nodetest.Conn
	held           chan *nodetest.Conn
	second, third  <-chan error
	cancel2, leave context.CancelCauseFunc // of the second, of the third
}

func serveCallers(t *testing.T, due2, due3 time.Duration) *servedCallers {
	t.Helper()
	f, held := holding(t)
	w := &servedCallers{n: newNode(t, poolOf(f)), f: f, held: held}
	first := hold(w.n, t.Context(), soon())
	w.c = receive(t, "first HOLD", held)
	ctx2, cancel2 := context.WithCancelCause(t.Context())
	w.cancel2, w.second = cancel2, hold(w.n, ctx2, time.Now().Add(due2))
	receive(t, "second HOLD", held)
	ctx3, cancel3 := context.WithCancelCause(t.Context())
	w.leave, w.third = cancel3, hold(w.n, ctx3, time.Now().Add(due3))
	receive(t, "third HOLD", held)
	w.c.Bulk("1")
	if err := receive(t, "first's return", first); err.Error() != `reply "1"` {
		t.Fatalf("first = %v, want its own reply", err)
	}
	if synctest.Wait(); !isServed(w.n) {
		t.Fatal("no goroutine reads for two callers")
	}
	return w
}

// isServed reports whether a goroutine reads.
func isServed(n *node) bool {
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	w := n.pipe.wire
	return w != nil && w.reader == &w.server
}

func TestServedCallersGetTheirReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := serveCallers(t, generous, generous)
		w.c.Bulk("2")
		w.c.Bulk("3")
		for i, out := range []<-chan error{w.second, w.third} {
			if err, own := receive(t, "return", out), fmt.Sprintf("reply %q", fmt.Sprint(i+2)); err.Error() != own {
				t.Errorf("caller %d = %v, want %s", i+2, err, own)
			}
		}
		verdict.Eventually(t, "nobody waits, and nobody reads", func() bool { return !isReading(w.n) })

		// A caller alone is its own reader again.
		for range 2 {
			echo(t, w.n, "alone")
		}
		out := hold(w.n, t.Context(), soon())
		receive(t, "HOLD", w.held)
		verdict.Eventually(t, "the caller reads", func() bool { return isReading(w.n) })
		if isServed(w.n) {
			t.Error("a goroutine reads for a single caller")
		}
		w.c.Bulk("4")
		receive(t, "return", out)
		if w.f.Dialled() != 1 {
			t.Errorf("%d connections, want 1", w.f.Dialled())
		}
	})
}

// A caller that is served leaves at once, even the oldest one. The goroutine ends with the last
// reply.
func TestServedCallersLeaveAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := serveCallers(t, generous, generous)
		why2, why3 := errors.New("second's reason"), errors.New("third's reason")
		w.cancel2(why2)
		want(t, "the oldest", receive(t, "second's return", w.second), strategy.ErrUnknown, why2)
		w.leave(why3)
		want(t, "the other", receive(t, "third's return", w.third), strategy.ErrUnknown, why3)

		w.c.Bulk("2") // and no other reply: now nobody is read for
		verdict.Eventually(t, "the goroutine ends", func() bool { return !isReading(w.n) })
		w.c.Bulk("3")
		echo(t, w.n, "own")
		if w.f.Dialled() != 1 {
			t.Errorf("%d connections, want 1", w.f.Dialled())
		}
	})
}

// The oldest that is served has no reply by its due time: as with a leader, the
// connection is given up for all, and killed before anything else is sent.
func TestServedConnectionIsGivenUpWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := serveCallers(t, 300*time.Millisecond, generous)
		want(t, "the oldest", receive(t, "second's return", w.second), strategy.ErrUnknown, os.ErrDeadlineExceeded)
		want(t, "the other", receive(t, "third's return", w.third), strategy.ErrUnknown, errGivenUp)
		echo(t, w.n, "undo")
		wantSeen(t, w.f, "1 HOLD k", "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO undo")
	})
}

// The goroutine does not wait for ever for replies that nobody wants.
func TestServedConnectionIsGivenUpWhenAllHaveLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := serveCallers(t, 300*time.Millisecond, 300*time.Millisecond)
		w.cancel2(nil)
		w.leave(nil)
		want(t, "second", receive(t, "second's return", w.second), strategy.ErrUnknown)
		want(t, "third", receive(t, "third's return", w.third), strategy.ErrUnknown)
		verdict.Eventually(t, "the connection is given up, or was never read", func() bool {
			w.n.pipe.mu.Lock()
			defer w.n.pipe.mu.Unlock()
			return w.n.pipe.wire == nil || w.n.pipe.wire.reader == nil
		})
		readers := make(chan struct{})
		go func() { w.n.pipe.work.Wait(); close(readers) }()
		receive(t, "the goroutine's end", readers)
	})
}

// A connection that is to be replaced does not stay for replies that nobody wants.
func TestRetiredServedConnectionIsKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := serveCallers(t, generous, generous)
		w.cancel2(nil)
		receive(t, "second's return", w.second)
		w.leave(nil)
		receive(t, "third's return", w.third)
		w.n.pipe.mu.Lock()
		w.n.pipe.wire.retired = true
		w.n.pipe.mu.Unlock()
		echo(t, w.n, "next")
		wantSeen(t, w.f, "1 HOLD k", "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO next")
	})
}

// One who is served and whose time is up leaves; the connection stays while its oldest
// has time.
func TestLateServedCallerLeavesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := serveCallers(t, generous, 300*time.Millisecond)
		want(t, "the younger", receive(t, "third's return", w.third), strategy.ErrUnknown, os.ErrDeadlineExceeded)
		w.c.Bulk("2")
		if err := receive(t, "second's return", w.second); err.Error() != `reply "2"` {
			t.Errorf("the oldest = %v, want its own reply", err)
		}
		if w.f.Dialled() != 1 {
			t.Errorf("%d connections, want 1", w.f.Dialled())
		}
	})
}

func TestCloseWhileServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := serveCallers(t, generous, generous)
		wire := w.n.pipe.wire
		closed := make(chan error, 1)
		go func() { closed <- w.n.Close() }()
		if err := receive(t, "Close", closed); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
		if wire.reader != nil { // without the lock: it has ended, or this is a race
			t.Error("Close has returned before the goroutine")
		}
		want(t, "second", receive(t, "second's return", w.second), strategy.ErrUnknown, strategy.ErrClosed)
		want(t, "third", receive(t, "third's return", w.third), strategy.ErrUnknown, strategy.ErrClosed)
	})
}
