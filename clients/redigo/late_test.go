//go:build unix

// Tests replies that have come in time, and are read late: the process was short of CPU, or stopped.
package redigonode

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

// A heldBack connection keeps its readers, or its writers, from going on until the check looks at it after their time
// is over.
type heldBack struct {
	*net.TCPConn
	until  time.Time
	all    int // how many bytes the replies have
	reads  atomic.Bool
	writes atomic.Bool
	first  sync.Once
	peeked chan struct{}
}

func (h *heldBack) wait(held *atomic.Bool) {
	if !held.Load() {
		return
	}
	select {
	case <-h.peeked:
	case <-time.After(generous / 4):
	}
}

func (h *heldBack) Read(b []byte) (int, error) {
	h.wait(&h.reads)
	return h.TCPConn.Read(b)
}

func (h *heldBack) Write(b []byte) (int, error) {
	defer h.wait(&h.writes)
	return h.TCPConn.Write(b)
}

func (h *heldBack) SyscallConn() (syscall.RawConn, error) {
	raw, err := h.TCPConn.SyscallConn()
	return peeks{raw, h}, err
}

type peeks struct {
	syscall.RawConn
	h *heldBack
}

// Control is what looks. The first look after the end of the time waits for all replies, so that they have come before.
func (l peeks) Control(peek func(fd uintptr)) error {
	late := !l.h.until.IsZero() && !time.Now().Before(l.h.until)
	if late {
		l.h.first.Do(func() {
			arrived(l.RawConn, l.h.all)
			close(l.h.peeked)
		})
	}
	return l.RawConn.Control(peek)
}

// arrived returns when that many bytes lie in the socket.
func arrived(raw syscall.RawConn, bytes int) {
	for came, buf := 0, make([]byte, bytes); came < bytes; runtime.Gosched() {
		raw.Control(func(fd uintptr) { //nolint:errcheck // the test has not closed it
			came, _, _ = syscall.Recvfrom(int(fd), buf, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
	}
}

// TestReplyIsReadLate: a reply that has come counts, also if nobody could read it before its caller's time was over.
func TestReplyIsReadLate(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		callers int
		hold    func(h *heldBack, on bool)
	}{
		"a caller reads":    {1, func(h *heldBack, on bool) { h.reads.Store(on) }},
		"a goroutine reads": {3, func(h *heldBack, on bool) { h.reads.Store(on) }},
		"a caller writes":   {1, func(h *heldBack, on bool) { h.writes.Store(on) }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
			var h *heldBack
			n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
				nc, err := f.Dial(ctx)
				if err != nil {
					return nil, err
				}
				h = &heldBack{TCPConn: nc.(*net.TCPConn), peeked: make(chan struct{})}
				return redis.NewConn(h, 0, 0), nil
			}})
			echo(t, n, "warm")
			n.pipe.mu.Lock() // no check meanwhile
			h.until, h.all = time.Now().Add(100*time.Millisecond), c.callers*len("$6\r\nlate 0\r\n")
			n.pipe.mu.Unlock()
			c.hold(h, true)
			out := make(chan error, c.callers)
			for i := range c.callers {
				go func() {
					text := fmt.Sprint("late ", i)
					reply, err := n.Do(t.Context(), h.until, "ECHO", text)
					if err == nil && fmt.Sprintf("%s", reply) != text {
						err = fmt.Errorf("ECHO %s = %s", text, reply)
					}
					out <- err
				}()
			}
			for range c.callers {
				if err := receive(t, "a return", out); err != nil {
					t.Errorf("a call = %v, want its reply, which had come", err)
				}
			}
			c.hold(h, false)
			echo(t, n, "after")
			if f.Dialled() != 1 {
				t.Errorf("%d connections, want 1", f.Dialled())
			}
		})
	}
}

// always is a connection on which something has come, whenever one looks.
type always struct{ syscall.RawConn }

func (always) Control(func(uintptr)) error { return net.ErrClosed }

// TestLooksAreLimited: a server that sends a reply byte by byte does not get all the time that it wants, and each reply
// has its own. Where nothing is in flight nobody looks.
func TestLooksAreLimited(t *testing.T) {
	t.Parallel()
	now, w := time.Now(), &wire{peeker: peeker{raw: always{}}}
	if w.unread(now) {
		t.Error("unread = true with nothing in flight")
	}
	ops := []*op{{}, {}}
	for _, o := range ops {
		o.progress.Store(sent)
	}
	w.flight.push(ops...)
	for reply := range ops {
		for i := range maxGraces {
			if !w.unread(now) || !w.unread(now.Add(graceStep-1)) {
				t.Fatalf("reply %d, grace %d: unread = false", reply, i)
			}
			now = now.Add(graceStep)
		}
		if w.unread(now) {
			t.Errorf("reply %d: unread = true after %d graces", reply, maxGraces)
		}
		if reply == 0 {
			w.deliver("OK", nil, now)
		}
	}
}

// TestReaderIsForgotten: the time of one that has its reply bounds nothing any more.
func TestReaderIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, poolOf(f))
		for range 2 {
			if _, err := n.Do(t.Context(), time.Now().Add(time.Second), "ECHO", "x"); err != nil {
				t.Errorf("ECHO = %v, want nil", err)
			}
			time.Sleep(2 * time.Second)
		}
		if got := f.Dialled(); got != 1 {
			t.Errorf("%d connections, want 1", got)
		}
	})
}

// once is a connection on which something had come at the first look, and has been read since.
type once struct {
	syscall.RawConn
	looked bool
}

func (o *once) Control(func(uintptr)) error {
	if o.looked {
		return nil
	}
	o.looked = true
	return net.ErrClosed
}

// TestReplyInItsReadersHands: what has been read counts until it is delivered.
func TestReplyInItsReadersHands(t *testing.T) {
	t.Parallel()
	now, w := time.Now(), &wire{peeker: peeker{raw: &once{}}}
	ops := []*op{{}, {}}
	for _, o := range ops {
		o.progress.Store(sent)
	}
	w.flight.push(ops...)
	for range 3 {
		if !w.unread(now) {
			t.Fatal("unread = false before the reply is delivered")
		}
		now = now.Add(graceStep)
	}
	w.deliver("OK", nil, now)
	if now = now.Add(graceStep); w.unread(now) {
		t.Error("unread = true after the reply was delivered")
	}
}

// TestRepliesReadTogether: a reply that was read together with the one before it counts until it is delivered.
func TestRepliesReadTogether(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	n := newNode(t, poolOf(f))
	echo(t, n, "warm")
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	w := n.pipe.wire
	lates := []*op{{cmd: "ECHO", args: []any{"late"}}, {cmd: "ECHO", args: []any{"late"}}}
	w.flight.push(lates...)
	if _, err := w.send(lates); err != nil {
		t.Fatal(err)
	}
	arrived(w.peeker.raw, len(lates)*len("$4\r\nlate\r\n"))
	now := time.Now()
	for i := range lates {
		if !w.unread(now) {
			t.Fatalf("%d replies delivered: unread = false, want true", i)
		}
		reply, err := readReply(w.conn, 0)
		w.deliver(reply, err, now)
		now = now.Add(graceStep)
	}
	if w.unread(now) {
		t.Error("all replies delivered: unread = true, want false")
	}
}
