//go:build unix

// Tests what is seen on a connection before it is read: an end at rest, and replies that have come in time, and are read
// late because the process was short of CPU, or stopped.
package redigonode

import (
	"context"
	"fmt"
	"io"
	"log"
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

// An end is seen whatever carries redigo's connection, also through a wrapper; silence is no end.
func TestPeek(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	type own struct{ redis.Conn }
	type unbuffered struct { // as redigo may be some day
		redis.Conn
		conn net.Conn
	}
	for name, c := range map[string]struct {
		wrap func(redis.Conn) redis.Conn
		seen bool
	}{
		"plain":          {func(c redis.Conn) redis.Conn { return c }, true},
		"logging":        {func(c redis.Conn) redis.Conn { return redis.NewLoggingConn(c, log.New(io.Discard, "", 0), "") }, true},
		"within another": {func(c redis.Conn) redis.Conn { return own{&own{c}} }, true},
		"unbuffered": {func(c redis.Conn) redis.Conn {
			nc, _ := within(c)
			return &unbuffered{c, nc}
		}, true},
		"without a conn":  {func(redis.Conn) redis.Conn { return own{} }, false},
		"of other's make": {func(redis.Conn) redis.Conn { return bare{} }, false},
	} {
		dialled, err := redis.Dial("tcp", f.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer dialled.Close()
		conn := c.wrap(dialled)
		var s peeker
		s.begin(conn)
		if s.readable() || (s.raw != nil) != c.seen {
			t.Errorf("%s: readable = %v, seen: %v, want false, %v", name, s.readable(), s.raw != nil, c.seen)
		}
		if !c.seen {
			continue
		}
		if _, err := conn.Do("PING"); err != nil || s.readable() { // by now it has nothing to read
			t.Errorf("%s: PING = %v, readable = %v, want nil, false", name, err, s.readable())
		}
		if f.HangUp(t); !s.readable() {
			t.Errorf("%s: the server has hung up, and readable = false", name)
		}
		if conn.Close(); !s.readable() {
			t.Errorf("%s: it is closed, and readable = false", name)
		}
	}
	if nc, buffer := within(nil); nc != nil || buffer != nil {
		t.Errorf("within(nil) = %v, %v, want nil, nil", nc, buffer)
	}
}

// A heldBack connection keeps its readers, or its writers, from going on until the check looks at it after their time
// is over. That look waits for all replies, so that they have come before.
type heldBack struct {
	*net.TCPConn
	until         time.Time
	all           int // how many bytes the replies have
	reads, writes atomic.Bool
	first         sync.Once
	peeked        chan struct{}
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
	return looks{raw, func() error {
		if !h.until.IsZero() && !time.Now().Before(h.until) {
			h.first.Do(func() {
				arrived(raw, h.all)
				close(h.peeked)
			})
		}
		return nil
	}}, err
}

// looks calls before at each look at a connection; an error of it says that something has come.
type looks struct {
	syscall.RawConn
	before func() error
}

func (l looks) Control(peek func(fd uintptr)) error {
	if err := l.before(); err != nil || l.RawConn == nil {
		return err
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

// A reply that has come counts, also if nobody could read it before its caller's time was over.
func TestReplyIsReadLate(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		callers int
		hold    func(h *heldBack) *atomic.Bool
	}{
		"a caller reads":    {1, func(h *heldBack) *atomic.Bool { return &h.reads }},
		"a goroutine reads": {3, func(h *heldBack) *atomic.Bool { return &h.reads }},
		"a caller writes":   {1, func(h *heldBack) *atomic.Bool { return &h.writes }},
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
			locked(n, func(*pipe) { // no check meanwhile
				h.until, h.all = time.Now().Add(100*time.Millisecond), c.callers*len("$6\r\nlate 0\r\n")
			})
			c.hold(h).Store(true)
			var outs []<-chan error
			for i := range c.callers {
				outs = append(outs, begin(n, t.Context(), h.until, "ECHO", fmt.Sprint("late ", i)))
			}
			for i, out := range outs {
				wantReply(t, out, fmt.Sprint("late ", i))
			}
			c.hold(h).Store(false)
			echo(t, n, "after")
			wantDials(t, f, 1)
		})
	}
}

// Bytes that have come count for a while: a server that sends a reply byte by byte does not get all the time that it wants, and
// each reply has its own. Bytes that were read count until it is delivered. Where nothing is in flight nobody looks.
func TestLooksAreLimited(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{true, false} { // or at the first look only
		looked, now := false, time.Now()
		w := &wire{peeker: peeker{raw: looks{before: func() error {
			if looked && !always {
				return nil
			}
			looked = true
			return net.ErrClosed
		}}}}
		if w.unread(now) {
			t.Error("unread = true with nothing in flight")
		}
		ops := []*op{{}, {}}
		for _, o := range ops {
			o.progress.Store(sent)
		}
		w.flight.push(ops...)
		for i := range maxGraces {
			if !w.unread(now) || !w.unread(now.Add(graceStep-1)) {
				t.Fatalf("always %v: grace %d: unread = false", always, i)
			}
			now = now.Add(graceStep)
		}
		if w.unread(now) {
			t.Errorf("always %v: unread = true after %d graces", always, maxGraces)
		}
		w.deliver("OK", nil, now)
		if w.unread(now) != always {
			t.Errorf("always %v: unread = %v after a reply was delivered", always, !always)
		}
	}
}

// A reply that was read together with the one before it counts until it is delivered.
func TestRepliesReadTogether(t *testing.T) {
	t.Parallel()
	n := newNode(t, poolOf(nodetest.NewServer(t, (*nodetest.Conn).Plain)))
	echo(t, n, "warm")
	locked(n, func(p *pipe) {
		w, now := p.wire, time.Now()
		lates := []*op{{cmd: "ECHO", args: []any{"late"}}, {cmd: "ECHO", args: []any{"late"}}}
		w.flight.push(lates...)
		if _, err := w.send(lates); err != nil {
			t.Fatal(err)
		}
		arrived(w.peeker.raw, len(lates)*len("$4\r\nlate\r\n"))
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
	})
}

// The time of a reader that has its reply bounds nothing any more.
func TestReaderIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := nodeOn(t, (*nodetest.Conn).Plain)
		for range 2 {
			wantReply(t, begin(n, t.Context(), time.Now().Add(time.Second), "ECHO", "x"), "x")
			time.Sleep(2 * time.Second)
		}
		wantDials(t, f, 1)
	})
}
