// The pipe: whose reply is whose, what is known when there is none, dials, limits of the pool.
package redigonode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestNewWantsAPoolThatDials(t *testing.T) {
	t.Parallel()
	for _, pool := range []*redis.Pool{nil, {}} {
		if err := New(pool).Use(); err == nil || !strings.Contains(err.Error(), "Dial") {
			t.Errorf("New(%v).Use() = %v, want that it needs Dial", pool, err)
		}
	}
}

func TestRepliesBecomeTheContractsTypes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "SAY" {
				c.Say("%s", cmd[1])
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		for _, c := range []struct {
			said string
			want any
			kind error
		}{
			{"+OK\r\n", []byte("OK"), nil},
			{"+QUEUED\r\n", []byte("QUEUED"), nil},
			{":-7\r\n", int64(-7), nil},
			{"$-1\r\n", nil, nil},
			{"*-1\r\n", nil, nil},
			{"$2\r\nab\r\n", []byte("ab"), nil},
			{"*3\r\n+OK\r\n:1\r\n*1\r\n$1\r\nx\r\n", []any{[]byte("OK"), int64(1), []any{[]byte("x")}}, nil},
			{"-ERR no\r\n", nil, strategy.ErrRefused},
			{"-LOADING Redis is loading\r\n", nil, strategy.ErrRefused},
			{"-OOM no memory\r\n", nil, strategy.ErrRefused},
			{"-NOPERM no\r\n", nil, strategy.ErrRefused},
			{"-MOVED 1 a:1\r\n", nil, strategy.ErrRefused},
			{"-CLUSTERDOWN no\r\n", nil, strategy.ErrRefused},
			{"-BUSY script\r\n", nil, strategy.ErrRefused},
			{"-WRONGTYPE no\r\n", nil, strategy.ErrRefused},
			// The other element took effect: "nothing has changed" would be a lie.
			{"*2\r\n+OK\r\n-ERR half\r\n", nil, strategy.ErrUnknown},
			{"*1\r\n*2\r\n+OK\r\n-ERR deep\r\n", nil, strategy.ErrUnknown},
		} {
			r, err := n.Do(t.Context(), soon(), "SAY", c.said)
			if c.kind != nil {
				want(t, fmt.Sprintf("reply %q", c.said), err, c.kind)
				words := strings.Trim(c.said[strings.Index(c.said, "-")+1:], "\r\n")
				if !strings.Contains(err.Error(), words) {
					t.Errorf("reply %q = %v, want the server's words", c.said, err)
				}
				continue
			}
			if err != nil || fmt.Sprintf("%T %v", r, r) != fmt.Sprintf("%T %v", c.want, c.want) {
				t.Errorf("reply %q = %T %v, %v, want %T %v", c.said, r, r, err, c.want, c.want)
			}
		}
		if got := f.Dialled(); got != 1 {
			t.Errorf("connections = %d, want 1: a refusal does not cost one", got)
		}
		if n.Name() != f.Addr {
			t.Errorf("Name = %q, want %q", n.Name(), f.Addr)
		}
	})
}

// holding is a server that answers HOLD when told to.
func holding(t *testing.T) (f *nodetest.Server, held chan *nodetest.Conn) {
	held = make(chan *nodetest.Conn, 100)
	f = nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] == "HOLD" {
			held <- c
			return
		}
		c.Plain(cmd)
	})
	return f, held
}

// call calls HOLD and gives its outcome to the channel.
func hold(n *node, ctx context.Context, due time.Time) <-chan error {
	c := make(chan error, 1)
	go func() {
		r, err := n.Do(ctx, due, "HOLD", "k")
		if err == nil {
			err = fmt.Errorf("reply %q", r)
		}
		c <- err
	}()
	return c
}

func TestFollowerLeavesAndTheConnectionStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		leader := hold(n, t.Context(), soon())
		c := receive(t, "HOLD by the leader", held)

		cause := errors.New("follower's reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		follower := hold(n, ctx, soon())
		receive(t, "HOLD by the follower", held)
		cancel(cause)
		want(t, "cancelled follower", receive(t, "follower's return", follower), strategy.ErrUnknown, cause)

		late := hold(n, t.Context(), time.Now().Add(300*time.Millisecond))
		want(t, "follower at its due", receive(t, "late follower's return", late), strategy.ErrUnknown, os.ErrDeadlineExceeded)

		receive(t, "HOLD by the late follower", held)
		for i := range 3 { // replies of those who have left must not become anybody else's
			c.Bulk(fmt.Sprint("held ", i))
		}
		if err := receive(t, "leader's return", leader); err.Error() != `reply "held 0"` {
			t.Errorf("leader = %v, want its own reply", err)
		}
		echo(t, n, "own")
		if f.Dialled() != 1 {
			t.Errorf("%d connections, want 1", f.Dialled())
		}
	})
}

func TestLeaderLeavesAtTheNextReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		first := hold(n, t.Context(), soon())
		c := receive(t, "first HOLD", held)
		ctx2, leave := context.WithCancel(t.Context())
		second := hold(n, ctx2, soon())
		receive(t, "second HOLD", held)
		cause := errors.New("leader's reason")
		ctx3, cancel := context.WithCancelCause(t.Context())
		third := hold(n, ctx3, soon())
		receive(t, "third HOLD", held)

		leave()
		want(t, "second", receive(t, "second's return", second), strategy.ErrUnknown, context.Canceled)
		c.Bulk("1")
		if err := receive(t, "first's return", first); err.Error() != `reply "1"` {
			t.Errorf("first = %v, want its own reply", err)
		}
		verdict.Eventually(t, "the third reads", func() bool { return isReading(n) })
		cancel(cause)
		c.Bulk("2")
		want(t, "leader whose context ended", receive(t, "third's return", third), strategy.ErrUnknown, cause)

		// Nobody waits now; the next caller reads what is left, and then its own.
		c.Bulk("3")
		echo(t, n, "own")
		if f.Dialled() != 1 {
			t.Errorf("%d connections, want 1", f.Dialled())
		}
	})
}

// isReading reports whether a caller has, or is about to have, begun to read.
func isReading(n *node) bool {
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	return n.pipe.wire.reader != nil
}

// A reply that is there is the truth, also when the context has ended meanwhile.
func TestLeaderKeepsItsReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		ctx, cancel := context.WithCancel(t.Context())
		out := hold(n, ctx, soon())
		c := receive(t, "HOLD", held)
		verdict.Eventually(t, "the caller reads", func() bool { return isReading(n) })
		cancel()
		c.Bulk("reply")
		if err := receive(t, "return", out); err.Error() != `reply "reply"` {
			t.Errorf("HOLD = %v, want its reply", err)
		}
	})
}

func TestQueuedCallThatLeftIsNeverSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			<-let
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		ctx, cancel := context.WithCancelCause(t.Context())
		first, got := make(chan error, 1), make(chan error, 1)
		go func() { _, err := n.Do(t.Context(), soon(), "ECHO", "first"); first <- err }()
		verdict.Eventually(t, "a dial", func() bool { return f.Dialled() == 1 })
		go func() { _, err := n.Do(ctx, soon(), "SET", "never"); got <- err }()
		verdict.Eventually(t, "two in the queue", func() bool {
			n.pipe.mu.Lock()
			defer n.pipe.mu.Unlock()
			return len(n.pipe.queue) == 2
		})
		cause := errors.New("waited enough")
		cancel(cause)
		want(t, "Do while dialling", receive(t, "return", got), strategy.ErrUnsent, cause)
		_, err := n.Do(t.Context(), time.Now().Add(20*time.Millisecond), "SET", "never")
		want(t, "Do while dialling, due", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		close(let)
		receive(t, "the call that stayed", first)
		echo(t, n, "later") // the flight is in step, too
		wantSeen(t, f, "1 ECHO first", "1 ECHO later")
	})
}

// Rule 1: what was given up is dead before anything else is sent.
func TestGivenUpConnectionIsKilledFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		out := hold(n, t.Context(), time.Now().Add(50*time.Millisecond))
		receive(t, "HOLD", held)
		follower := hold(n, t.Context(), soon())
		receive(t, "the follower's HOLD", held)
		want(t, "leader without a reply", receive(t, "return", out), strategy.ErrUnknown, os.ErrDeadlineExceeded)
		want(t, "follower", receive(t, "follower's return", follower), strategy.ErrUnknown, errGivenUp)
		echo(t, n, "undo")
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO undo")

		// Done once, it is not done again: the next loss is of 2 alone.
		out = hold(n, t.Context(), time.Now().Add(50*time.Millisecond))
		receive(t, "HOLD", held)
		want(t, "leader without a reply", receive(t, "return", out), strategy.ErrUnknown)
		echo(t, n, "again")
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO undo",
			"2 HOLD k", "3 CLIENT KILL ID 2 ADDR client:2", "3 ECHO again")
		if !n.Ordered() {
			t.Error("Ordered = false, want true: every KILL was obeyed")
		}
	})
}

func wantSeen(t *testing.T, f *nodetest.Server, want ...string) {
	t.Helper()
	if got := f.Log(); !slices.Equal(got, want) {
		t.Fatalf("server saw\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// A connection that dies while it kills has confirmed nothing.
func TestKillIsRepeatedUntilConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		held := make(chan *nodetest.Conn, 10)
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case cmd[0] == "HOLD":
				held <- c
			case c.ID == 2 && strings.Contains(strings.Join(cmd, " "), "KILL ID 1 ADDR client"):
				c.Close()
			default:
				c.Plain(cmd)
			}
		})
		n := newNode(t, poolOf(f))
		out := hold(n, t.Context(), soon())
		receive(t, "HOLD", held).Close() // the server's end says nothing about a proxy's
		want(t, "cut off leader", receive(t, "return", out), strategy.ErrUnknown, io.EOF)
		_, err := n.Do(t.Context(), soon(), "ECHO", "early")
		want(t, "Do on a connection that died killing", err, strategy.ErrUnsent)
		echo(t, n, "undo")
		wantSeen(t, f, "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "3 CLIENT KILL ID 1 ADDR client:1", "3 ECHO undo")
	})
}

// A dial that is older than the loss may be answered after it: it has to kill, too.
func TestOlderDialKillsToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		held := make(chan *nodetest.Conn, 10)
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case cmd[0] == "HOLD":
				held <- c
				return
			case c.ID == 1:
				<-let
			case c.ID > 2: // only the first dial is ever answered
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		_, err := n.Do(t.Context(), time.Now().Add(leastPatience), "SET", "k")
		want(t, "Do while the first dial hangs", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		verdict.Eventually(t, "a second dial", func() bool {
			_, err = n.Do(t.Context(), time.Now().Add(leastPatience), "PING", "")
			return err == nil
		})
		out := hold(n, t.Context(), time.Now().Add(100*time.Millisecond))
		receive(t, "HOLD", held)
		want(t, "leader without a reply", receive(t, "return", out), strategy.ErrUnknown)
		close(let)
		echo(t, n, "undo")
		wantSeen(t, f, "2 PING", "2 HOLD k", "1 CLIENT KILL ID 2 ADDR client:2", "1 ECHO undo")
	})
}

func TestRefusedIdentityOrKillEndsOrder(t *testing.T) {
	t.Parallel()
	for _, refuse := range []string{"CLIENT INFO", "ADDR 0.0.0.0:0", "ADDR client:1"} {
		t.Run(refuse, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				held := make(chan *nodetest.Conn, 10)
				f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
					switch {
					case strings.Contains(strings.Join(cmd, " "), refuse):
						c.Say("-NOPERM this user has no permissions\r\n")
					case cmd[0] == "HOLD":
						held <- c
					default:
						c.Plain(cmd)
					}
				})
				n := newNode(t, poolOf(f))
				if !n.Ordered() {
					t.Fatal("Ordered = false before anything was refused")
				}
				out := hold(n, t.Context(), time.Now().Add(500*time.Millisecond))
				receive(t, "HOLD", held)
				want(t, "leader without a reply", receive(t, "return", out), strategy.ErrUnknown)
				echo(t, n, "works")
				if n.Ordered() {
					t.Error("Ordered = true, want false")
				}
				if n.pipe.toKill != nil {
					t.Errorf("%d connections are still to be killed, want none", len(n.pipe.toKill))
				}
			})
		})
	}
}

// An error that only speaks of the server's state is no refusal.
func TestPassingRefusalFailsTheDialOnly(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"-BUSY Redis is busy running a script", "-DENIED protected", "-ERR max number of clients reached"} {
		bubbled(t, said, func(t *testing.T) {
			first := func(c *nodetest.Conn, cmd []string) {
				if c.ID == 1 {
					c.Say("%s\r\n", said)
					if said == "-DENIED protected" {
						time.Sleep(time.Millisecond) // the client reads that first
						c.Close()
					}
					return
				}
				c.Plain(cmd)
			}
			_, err := newNode(t, poolOf(nodetest.NewInMemory(t, first))).Subscribe(t.Context(), "c", func([]byte, error) {})
			want(t, "Subscribe", err, strategy.ErrUnsent)
			f := nodetest.NewInMemory(t, first)
			n := newNode(t, poolOf(f))
			_, err = n.Do(t.Context(), soon(), "SET", "k")
			want(t, "Do", err, strategy.ErrUnsent)
			if !strings.Contains(err.Error(), said[1:]) {
				t.Errorf("Do = %v, want the server's words", err)
			}
			echo(t, n, "now")
			if !n.Ordered() {
				t.Error("Ordered = false, want true")
			}
		})
	}
}

func TestCutConnectionIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for cut := range len("$3\r\nabc\r\n") {
			f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
				if c.ID == 1 && cmd[0] == "GET" {
					c.Say("%s", "$3\r\nabc\r\n"[:cut])
					c.Close()
					return
				}
				c.Plain(cmd)
			})
			n := newNode(t, poolOf(f))
			_, err := n.Do(t.Context(), soon(), "GET", "k")
			want(t, fmt.Sprintf("GET cut after %d bytes", cut), err, strategy.ErrUnknown)
			echo(t, n, "next")
		}
	})
}

// A reply that belongs to nobody would shift every later one to the wrong caller.
func TestUnexpectedReplyBelongsToNobody(t *testing.T) {
	t.Parallel()
	var p pipe
	left, unsent, later := p.newOp("LEFT", soon()), p.newOp("UNSENT", soon()), p.newOp("SENT", soon())
	left.progress.Store(dropped)
	later.progress.Store(sent)
	w := &wire{}
	w.flight.push(left, unsent, later)
	if w.deliver("x", nil, time.Now()) {
		t.Error("deliver before the first op was sent = true, want false")
	}
	unsent.progress.Store(dropped) // its caller leaves; the writer goes on
	if !w.deliver("x", nil, time.Now()) || later.reply != "x" {
		t.Errorf("deliver gave %v to the op that was sent, want x", later.reply)
	}
	if w.deliver("y", nil, time.Now()) {
		t.Error("deliver with nothing in flight = true, want false")
	}
}

// brittle breaks when it is to send FAIL.
type brittle struct{ redis.ConnWithTimeout }

func (b brittle) Send(cmd string, args ...any) error {
	if cmd == "FAIL" {
		b.Close()
		return io.ErrClosedPipe
	}
	return b.ConnWithTimeout.Send(cmd, args...)
}

// An op that the writer did not get to send goes out on the next connection.
func TestRestOfABatchIsSentElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			<-let
			c, err := dial(f)
			if err != nil {
				return nil, err
			}
			return brittle{c.(redis.ConnWithTimeout)}, nil
		}})
		outs := map[string]chan error{}
		for i, cmd := range []string{"ECHO", "FAIL", "TYPE"} {
			out := make(chan error, 1)
			outs[cmd] = out
			go func() { _, err := n.Do(t.Context(), soon(), cmd, "x"); out <- err }()
			verdict.Eventually(t, "one more in the queue", func() bool {
				n.pipe.mu.Lock()
				defer n.pipe.mu.Unlock()
				return len(n.pipe.queue) == i+1
			})
		}
		close(let)
		want(t, "what was written to a connection that broke", receive(t, "ECHO's return", outs["ECHO"]), strategy.ErrUnknown)
		want(t, "what broke it", receive(t, "FAIL's return", outs["FAIL"]), strategy.ErrUnknown)
		if err := receive(t, "TYPE's return", outs["TYPE"]); err != nil {
			t.Errorf("what was not written = %v, want nil: it goes elsewhere", err)
		}
		wantSeen(t, f, "2 CLIENT KILL ID 1 ADDR client:1", "2 TYPE x")
	})
}

// stalling does not flush before it may, once stall is set.
type stalling struct {
	redis.ConnWithTimeout
	stall        atomic.Bool
	reached, may chan struct{}
}

func (s *stalling) Flush() error {
	if s.stall.CompareAndSwap(true, false) {
		s.reached <- struct{}{}
		<-s.may
	}
	return s.ConnWithTimeout.Flush()
}

// Half of those who were under way together go before the others: the last of them sends
// for all who have come, the writer that has yielded among them, and nobody besides it.
func TestHalf(t *testing.T) {
	t.Parallel()
	bubbled(t, "LastSends", func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		conn := &stalling{reached: make(chan struct{}), may: make(chan struct{})}
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			c, err := dial(f)
			if err != nil {
				return nil, err
			}
			conn.ConnWithTimeout = c.(redis.ConnWithTimeout)
			return conn, nil
		}})
		echo(t, n, "warm")
		p, first := &n.pipe, n.pipe.newOp("ECHO", soon())
		first.add("0")
		p.mu.Lock()
		w := p.wire
		p.queue = append(p.queue, first)
		w.writer, first.on = first, w
		p.limitWriter(w, first)
		w.gathering, w.lastInFlight = true, 2*leastHalf // as while the writer yields
		p.mu.Unlock()

		out := make(chan error, leastHalf)
		come := func(text string, due time.Time) {
			go func() { _, err := n.Do(t.Context(), due, "ECHO", text); out <- err }()
		}
		seen := []string{"1 ECHO warm", "1 ECHO 0"}
		for i := 1; i < leastHalf-1; i++ {
			come(strconv.Itoa(i), soon())
			seen = append(seen, "1 ECHO "+strconv.Itoa(i))
			verdict.Eventually(t, "one more in the queue", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return len(p.queue) == i+1
			})
		}
		last := soon().Add(time.Second)
		conn.stall.Store(true)
		come("last", last)
		seen = append(seen, "1 ECHO last")
		receive(t, "the last one's packet", conn.reached)

		p.mu.Lock()
		if w.writer == nil || w.writer == first || !w.writerDue.Equal(last) {
			t.Error("the last one is not the writer, or its time is not bounded")
		}
		if w.gathered(1000) {
			t.Error("others may send next to the last one")
		}
		if p.gather(t.Context(), w, first) {
			t.Error("the writer before sends next to the last one")
		}
		w.gathering = false
		p.mu.Unlock()
		close(conn.may)
		for range leastHalf - 1 {
			if err := receive(t, "a reply", out); err != nil {
				t.Error(err)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if !first.finished || first.kind != nil {
			t.Errorf("the writer before has %v, %v, want its reply", first.reply, first.err)
		}
		if w.writer != nil || !w.writerDue.IsZero() {
			t.Error("somebody is still to write")
		}
		wantSeen(t, f, seen...)
	})
	for name, c := range map[string]struct {
		w    *wire
		n    int
		want bool
	}{
		"Half":       {&wire{gathering: true, lastInFlight: 100}, 50, true},
		"Less":       {&wire{gathering: true, lastInFlight: 100}, 49, false},
		"Few":        {&wire{gathering: true, lastInFlight: 2}, leastHalf - 1, false},
		"NoneWrites": {&wire{lastInFlight: 100}, 60, false},
		"Retired":    {&wire{gathering: true, lastInFlight: 100, retired: true}, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.w.gathered(c.n); got != c.want {
				t.Errorf("%d of %d are enough: %v, want %v", c.n, c.w.lastInFlight, got, c.want)
			}
		})
	}
}

// A writer waits for as long as others come, while it and its connection can still send for them.
func TestGather(t *testing.T) {
	const others = 50
	for name, c := range map[string]struct {
		closed, retired bool
		due             time.Time
		waits           bool
	}{
		"All":     {due: soon(), waits: true},
		"Late":    {due: time.Now().Add(-time.Second)},
		"Closed":  {closed: true, due: soon()},
		"Retired": {retired: true, due: soon()},
	} {
		t.Run(name, func(t *testing.T) {
			// On one processor who yields mostly runs again after those who were ready: so one comes at
			// each yield.
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			most := 0
			for range 1000 {
				if most > others/5 {
					break
				}
				o := &op{due: c.due}
				p, w := &pipe{queue: []*op{o}}, &wire{closed: c.closed, retired: c.retired, writer: o, lastInFlight: 4 * others}
				var come sync.WaitGroup
				p.mu.Lock()
				come.Go(func() {
					for range others {
						p.mu.Lock()
						p.queue = append(p.queue, &op{})
						p.mu.Unlock()
						runtime.Gosched()
					}
				})
				if !p.gather(t.Context(), w, o) || !w.gathering {
					t.Errorf("gather = false, or others do not see that it waits: %v", w.gathering)
				}
				most = max(most, len(p.queue)-1)
				p.mu.Unlock()
				come.Wait()
			}
			if waits := most > others/5; waits != c.waits {
				t.Errorf("of %d others one after the other, it waited for %d at most; to wait for many is %v, want %v", others, most, waits, c.waits)
			}
		})
	}
	// Its time may be over before it runs again, which says nothing of the connection.
	t.Run("Guarded", func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		for _, gathering := range []bool{true, false} {
			n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { return dial(f) }})
			echo(t, n, "warm")
			p := &n.pipe
			p.mu.Lock()
			w := p.wire
			w.writer, w.writerDue, w.gathering = &op{}, time.Now().Add(-time.Second), gathering
			p.mu.Unlock()
			p.check()
			p.mu.Lock()
			if w.closed == gathering {
				t.Errorf("check at a writer whose time is over, and who gathers: %v, gives up the connection: %v, want %v", gathering, w.closed, !gathering)
			}
			w.written()
			p.mu.Unlock()
		}
	})
}

// What a writer is about to send counts as sent: it may leave before the close.
func TestConnectionWithABatchIsUnconfirmed(t *testing.T) {
	t.Parallel()
	o := new(pipe).newOp("SET", soon())
	w := &wire{writer: o}
	if w.unconfirmed() {
		t.Error("unconfirmed before there is a batch = true, want false: a probe has no effect")
	}
	w.flight.push(o)
	if !w.unconfirmed() {
		t.Error("unconfirmed with a batch = false, want true")
	}
	w.writer = nil
	o.progress.Store(dropped)
	if w.unconfirmed() {
		t.Error("unconfirmed with nothing sent = true, want false")
	}
}

// A reader whose time is up leaves, though it was given the duty meanwhile, and the
// connection stays.
func TestLateReaderLeavesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		echo(t, n, "warm")
		o, ahead := n.pipe.newOp("HOLD", time.Now()), n.pipe.newOp("HOLD", soon())
		n.pipe.mu.Lock()
		w := n.pipe.wire
		n.pipe.queue = append(n.pipe.queue, ahead, o)
		w.writer, w.reader = ahead, ahead // or a goroutine would read for both
		ahead.on = w
		n.pipe.write(t.Context(), ahead)
		w.busy = false
		ahead.abandoned = true
		w.reader = nil
		n.pipe.assign()
		if w.reader != o {
			t.Error("the oldest that waits is not the reader")
		}
		n.pipe.read(t.Context(), o)
		if w.closed {
			t.Error("a reader that came too late gave the connection up")
		}
		n.pipe.leave(o)
		o.due = soon() // or check might run between the two replies, and give the connection up for want of this one
		n.pipe.mu.Unlock()
		c := receive(t, "HOLD", held)
		c.Say("+1\r\n+2\r\n")
		echo(t, n, "own")
		if f.Dialled() != 1 {
			t.Errorf("%d connections, want 1", f.Dialled())
		}
	})
}

func TestNoScriptIsInvisible(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			switch cmd[0] {
			case "EVALSHA":
				c.Say("-NOSCRIPT No matching script.\r\n")
			case "EVAL":
				c.Say(":1\r\n")
			default:
				c.Plain(cmd)
			}
		})
		n := newNode(t, poolOf(f))
		if r, err := n.Eval(t.Context(), soon(), release, []string{"k"}, "tok"); r != int64(1) || err != nil {
			t.Errorf("Eval = %v, %v, want 1, nil", r, err)
		}
		wantSeen(t, f, "1 EVALSHA "+release.Hash()+" 1 k tok", "1 EVAL "+release.Source()+" 1 k tok")
	})
}

func TestScriptIsNotSentForACallerWhoseContextEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		held := make(chan *nodetest.Conn, 1)
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "EVALSHA" {
				held <- c
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan error, 1)
		go func() { _, err := n.Eval(ctx, soon(), release, []string{"k"}, "tok"); out <- err }()
		c := receive(t, "EVALSHA", held)
		verdict.Eventually(t, "the caller reads", func() bool { return isReading(n) })
		cancel()
		c.Say("-NOSCRIPT No matching script.\r\n")
		want(t, "Eval", receive(t, "return", out), strategy.ErrUnsent, context.Canceled)
		wantSeen(t, f, "1 EVALSHA "+release.Hash()+" 1 k tok")
	})
}

func TestFailedDialIsUnsentWithTheReason(t *testing.T) {
	t.Parallel()
	reason := errors.New("no route")
	var dials atomic.Int32
	n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { dials.Add(1); return nil, reason }})
	for range 2 {
		_, err := n.Do(t.Context(), soon(), "SET", "k")
		want(t, "Do", err, strategy.ErrUnsent, reason)
	}
	if got := dials.Load(); got != 2 {
		t.Errorf("2 calls dialled %d times, want 2", got)
	}
	if n.Name() != "redis" {
		t.Errorf("Name = %q before any connection, want redis", n.Name())
	}
}

func TestNoPasswordInErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New(`parse "redis://me:s3cret@h:x/": invalid port`),
		errors.New(`parse "redis://me:s3/cr?et@h": bad`),
		redis.Error("ERR unknown command 'AUTH', with args beginning with: 's3cret' "),
	} {
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { return nil, err }})
		_, got := n.Do(t.Context(), soon(), "SET", "k")
		want(t, "Do", got, strategy.ErrUnsent)
		wantDiscreet(t, got)
		wantDiscreet(t, n.Session(t.Context(), soon(), "k", nil))
		_, got = n.Subscribe(t.Context(), "c", nil)
		wantDiscreet(t, got)
	}
}

// wantDiscreet fails the test if err, or anything that it wraps, tells the password.
func wantDiscreet(t *testing.T, err error) {
	t.Helper()
	if strings.Contains(err.Error(), "s3") {
		t.Errorf("error %v tells the password", err)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if e.Unwrap() != nil {
			wantDiscreet(t, e.Unwrap())
		}
	case interface{ Unwrap() []error }:
		for _, e := range e.Unwrap() {
			wantDiscreet(t, e)
		}
	}
}

func TestHangingDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { t.Errorf("%q was asked of a late connection", cmd) })
		var begun atomic.Int32
		var returned sync.WaitGroup
		returned.Add(maxDials)
		n := New(&redis.Pool{Dial: func() (redis.Conn, error) {
			defer returned.Done()
			begun.Add(1)
			<-let // nothing ends it, as AUTH to a frozen server
			return dial(f)
		}})
		for end := time.Now().Add((maxDials + 2) * leastPatience); time.Now().Before(end); {
			start := time.Now()
			_, err := n.Do(t.Context(), start.Add(leastPatience/4), "SET", "k")
			want(t, "Do while dials hang", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		}
		if got := begun.Load(); got != maxDials {
			t.Errorf("%d dials at once, want %d", got, maxDials)
		}
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		if err := receive(t, "Close", closed); err != nil {
			t.Errorf("Close = %v", err)
		}
		close(let)
		returned.Wait()
		verdict.Eventually(t, "every late connection is closed", func() bool { return f.Dialled() == maxDials && f.Open() == 0 })
	})
}

func TestAnswerOfAPendingDialIsUsedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			<-let
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		_, err := n.Do(t.Context(), time.Now().Add(10*time.Millisecond), "SET", "k")
		want(t, "Do", err, strategy.ErrUnsent)
		got := make(chan error, 1)
		go func() { _, err := n.Do(t.Context(), soon(), "ECHO", "x"); got <- err }()
		close(let)
		if err := receive(t, "ECHO", got); err != nil {
			t.Error(err)
		}
	})
}

// A connection that died at rest is found out by a PING, not by an op.
func TestIdleConnectionIsProbed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if c.ID == 1 && cmd[0] == "PING" {
				c.Close()
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		echo(t, n, "one")
		echo(t, n, "two")
		age(n, probeAfter)
		echo(t, n, "three")
		wantSeen(t, f, "1 ECHO one", "1 ECHO two", "1 PING", "2 ECHO three")
		age(n, probeAfter)
		echo(t, n, "four")
		wantSeen(t, f, "1 ECHO one", "1 ECHO two", "1 PING", "2 ECHO three", "2 PING", "2 ECHO four")
	})
}

// So is one at rest on which an op waits in vain: its caller left before it was sent, and no reply has come since.
func TestIdleConnectionIsProbedAfterADroppedOp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, poolOf(f))
		echo(t, n, "one")
		left := n.pipe.newOp("ECHO", soon())
		left.abandoned = true
		left.progress.Store(dropped)
		n.pipe.mu.Lock()
		n.pipe.wire.flight.push(left)
		n.pipe.mu.Unlock()
		age(n, probeAfter)
		echo(t, n, "two")
		wantSeen(t, f, "1 ECHO one", "1 PING", "1 ECHO two")
	})
}

// A probe would read on the connection. So none is sent while a reader waits there for an op that was dropped.
func TestNoProbeNextToAReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, poolOf(f))
		echo(t, n, "one")
		n.pipe.mu.Lock()
		n.pipe.wire.reader = &n.pipe.wire.server // which does not read here, so nobody takes the reply
		n.pipe.mu.Unlock()
		age(n, probeAfter)
		_, err := n.Do(t.Context(), time.Now().Add(50*time.Millisecond), "ECHO", "two")
		want(t, "Do", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		wantSeen(t, f, "1 ECHO one", "1 ECHO two")
	})
}

// A probe that is not answered does not keep its caller.
func TestProbeEndsWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] != "PING" {
				c.Plain(cmd)
			}
		})
		n := newNode(t, poolOf(f))
		echo(t, n, "one")
		age(n, probeAfter)
		_, err := n.Do(t.Context(), time.Now().Add(50*time.Millisecond), "ECHO", "never")
		want(t, "Do", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		echo(t, n, "two")
		wantSeen(t, f, "1 ECHO one", "1 PING", "2 ECHO two")
	})
}

// age makes the node's connection look unused for d.
func age(n *node, d time.Duration) {
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	n.pipe.wire.lastReply = time.Now().Add(-d)
	n.pipe.wire.born = n.pipe.wire.born.Add(-d)
}

func TestPoolsLimitsAreHonoured(t *testing.T) {
	t.Parallel()
	bad := errors.New("not good enough")
	for name, set := range map[string]func(p *redis.Pool){
		"IdleTimeout":     func(p *redis.Pool) { p.IdleTimeout = time.Minute },
		"MaxConnLifetime": func(p *redis.Pool) { p.MaxConnLifetime = time.Minute },
		"TestOnBorrow": func(p *redis.Pool) {
			p.TestOnBorrow = func(c redis.Conn, used time.Time) error {
				if _, err := c.Do("ROLE"); err != nil || time.Since(used) > time.Minute {
					return bad
				}
				return nil
			}
		},
		"TestOnBorrowContext": func(p *redis.Pool) {
			p.TestOnBorrowContext = func(ctx context.Context, c redis.Conn, used time.Time) error {
				if _, ok := ctx.Deadline(); !ok || time.Since(used) > time.Minute {
					return bad
				}
				return nil
			}
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
			pool := poolOf(f)
			set(pool)
			n := newNode(t, pool)
			echo(t, n, "one")
			echo(t, n, "two")
			if f.Dialled() != 1 {
				t.Fatalf("%d connections, want 1", f.Dialled())
			}
			age(n, 2*time.Minute)
			echo(t, n, "three")
			if f.Dialled() != 2 {
				t.Errorf("%d connections, want 2", f.Dialled())
			}
		})
	}
}

// A user's test that panics harms its caller only.
func TestPanickingTestOnBorrow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		var panics atomic.Bool
		pool.TestOnBorrow = func(redis.Conn, time.Time) error {
			if panics.Swap(false) {
				panic("the user's")
			}
			return nil
		}
		n := newNode(t, pool)
		echo(t, n, "one")
		panics.Store(true)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			n.Do(t.Context(), soon(), "ECHO", "never")
		}()
		echo(t, n, "two")
		wantSeen(t, f, "1 ECHO one", "2 ECHO two")
	})
}

// A writer that is about to send must not do so on a connection that is retired by
// then: what was retired for has to come first.
func TestWriterSeesThatItsConnectionIsRetired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		var n *node
		var once sync.Once
		pool.TestOnBorrow = func(redis.Conn, time.Time) error { // it runs just then
			once.Do(func() { n.pipe.killFirst(client.Identity{ID: "77", Addr: "session:1"}) })
			return nil
		}
		n = newNode(t, pool)
		echo(t, n, "one")
		echo(t, n, "two")
		echo(t, n, "three")
		wantSeen(t, f, "1 ECHO one", "2 CLIENT KILL ID 77 ADDR session:1", "2 ECHO two", "2 ECHO three")
	})
}

// An old connection that is busy takes no new ops, and is closed with its last reply.
func TestRetiredConnectionDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		pool := poolOf(f)
		pool.MaxConnLifetime = time.Hour
		n := newNode(t, pool)
		out := hold(n, t.Context(), soon())
		c := receive(t, "HOLD", held)
		age(n, 2*time.Hour)
		got := make(chan error, 1)
		go func() { _, err := n.Do(t.Context(), soon(), "ECHO", "next"); got <- err }()
		verdict.Eventually(t, "retired", func() bool {
			n.pipe.mu.Lock()
			defer n.pipe.mu.Unlock()
			return n.pipe.wire.retired
		})
		c.Bulk("answer")
		if err := receive(t, "HOLD's return", out); err.Error() != `reply "answer"` {
			t.Errorf("HOLD = %v, want its reply", err)
		}
		if err := receive(t, "ECHO's return", got); err != nil {
			t.Error(err)
		}
		wantSeen(t, f, "1 HOLD k", "2 ECHO next") // and no KILL: every request got its reply
	})
}

// The same when nobody waits for the missing reply: then it is given up.
func TestRetiredConnectionWithoutReaderIsKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		first := hold(n, t.Context(), soon())
		c := receive(t, "first HOLD", held)
		ctx, cancel := context.WithCancel(t.Context())
		second := hold(n, ctx, soon())
		receive(t, "second HOLD", held)
		cancel()
		want(t, "second", receive(t, "second's return", second), strategy.ErrUnknown)
		c.Bulk("first")
		receive(t, "first's return", first) // now one is in flight, and nobody reads
		n.pipe.mu.Lock()
		n.pipe.wire.retired = true
		n.pipe.mu.Unlock()
		echo(t, n, "next")
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO next")
	})
}

// A replica is left at once, for a connection that carries what it refused; but one that stays a replica
// is left once a second.
func TestReplicaIsLeftOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const refusal = "-READONLY You can't write against a read only replica.\r\n"
		replicas := 1
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if c.ID <= replicas && cmd[0] == "SET" {
				c.Say(refusal)
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		set := func(key string, kinds ...error) {
			t.Helper()
			_, err := n.Do(t.Context(), soon(), "SET", key)
			if len(kinds) > 0 {
				want(t, "SET "+key, err, kinds...)
			} else if err != nil {
				t.Errorf("SET %s = %v, want nil", key, err)
			}
		}
		set("a")
		replicas = 3
		time.Sleep(client.LeaveEvery - 1)
		set("b", strategy.ErrRefused)
		time.Sleep(time.Nanosecond)
		set("c", strategy.ErrRefused)
		set("d", strategy.ErrRefused)
		time.Sleep(client.LeaveEvery)
		set("e")
		wantSeen(t, f, "1 SET a", "2 SET a", "2 SET b", "2 SET c", "3 SET c", "3 SET d", "3 SET e", "4 SET e")
		if got := n.returns(); got != 3 {
			t.Errorf("%d returns, want 3: one for each replica that was left", got)
		}
	})
}

// A dial that hangs when a replica is left may lead there, too: it is given up.
func TestDialsToAReplicaAreGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool, dialled := poolOf(f), 0
		dial := pool.DialContext
		pool.DialContext = func(ctx context.Context) (redis.Conn, error) {
			if dialled++; dialled == 1 {
				<-let // it leads to the replica, and knows no context
			}
			return dial(context.WithoutCancel(ctx))
		}
		n := newNode(t, pool)
		subscribed := make(chan error, 1)
		go func() {
			_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
			subscribed <- err
		}()
		synctest.Wait()
		n.leave()
		if err := receive(t, "Subscribe's return", subscribed); err != nil {
			t.Errorf("Subscribe = %v, want nil: on another connection", err)
		}
		close(let)
		synctest.Wait()
		wantSeen(t, f, "1 SUBSCRIBE c")
		if f.Dialled() != 2 || f.Open() != 1 {
			t.Errorf("%d of %d connections are open, want 1 of 2", f.Open(), f.Dialled())
		}
	})
}

func TestWrappedConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		var out bytes.Buffer
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			c, err := dial(f)
			if err != nil {
				return nil, err
			}
			return redis.NewLoggingConn(c, log.New(&out, "", 0), "redis"), nil
		}})
		echo(t, n, "through a logging connection")

		type bare struct{ redis.Conn }
		n = newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			c, err := dial(f)
			return bare{c}, err
		}})
		_, err := n.Do(t.Context(), soon(), "SET", "k")
		want(t, "Do without ConnWithTimeout", err, strategy.ErrUnsent)
		if !strings.Contains(err.Error(), "ConnWithTimeout") {
			t.Errorf("Do = %v, want what the connection lacks", err)
		}
	})
}

// An op is used again for another command, and has nothing of the last one's.
func TestOpForgetsItsLastCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { c.Plain(cmd) })
		n := newNode(t, poolOf(f))
		s := driver.NewScript("", "return 1")
		evals := []struct {
			keys []string
			args []any
		}{
			{[]string{"a", "b", "c"}, []any{"x", []byte("y"), 1}},
			{[]string{"a", "b", "c"}, []any{"z"}},
			{[]string{"a", "x"}, nil},
			{[]string{"a", "x", "c", "y"}, []any{int64(2), "b"}},
			{[]string{"a"}, []any{"x"}},
		}
		for _, e := range evals {
			if _, err := n.Eval(t.Context(), soon(), s, e.keys, e.args...); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, l := range f.Log() {
			if rest, ok := strings.CutPrefix(l, "1 EVALSHA "+s.Hash()+" "); ok {
				got = append(got, rest)
			}
		}
		want := []string{"3 a b c x y 1", "3 a b c z", "2 a x", "4 a x c y 2 b", "1 a x"}
		if !slices.Equal(got, want) {
			t.Errorf("server saw %q, want %q", got, want)
		}
	})
}

type shout string

func (s shout) RedisArg() any { return strings.ToUpper(string(s)) }

func TestArgumentsAreTheCallersAgainAfterReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// From HOLD on the server answers nothing before an ECHO comes: a caller that is answered early
		// would have to read for the others.
		held, holding := make(chan *nodetest.Conn, 1), false
		var asked [][]string
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			asked = append(asked, cmd)
			if cmd[0] == "HOLD" {
				holding = true
				held <- c
			}
			if holding && cmd[0] != "ECHO" {
				return
			}
			holding = false
			for _, cmd := range asked {
				c.Plain(cmd)
			}
			asked = nil
		})
		n := newNode(t, poolOf(f))
		echo(t, n, "warm")
		buf := []byte("mine")
		kept := plain(buf)
		args := []any{buf, shout("loud"), 7, int64(8), 1.5, true, nil, time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		leader := hold(n, t.Context(), soon())
		receive(t, "HOLD", held)
		got := make(chan error, 1)
		go func() { _, err := n.Do(ctx, soon(), "SET", "k", args...); got <- err }()
		synctest.Wait() // it is sent, and waits for its reply
		cancel()
		if err := receive(t, "return", got); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("SET = %v, want ErrUnknown: it was sent", err)
		}
		copy(buf, "ours")
		if string(kept.([]byte)) != "mine" {
			t.Errorf("plain keeps %q, want a copy", kept)
		}
		clear(args)
		echo(t, n, "end")
		receive(t, "HOLD's return", leader)
		for _, l := range f.Log() {
			if strings.Contains(l, "SET") && l != "1 SET k mine LOUD 7 8 1.5 1  1s" {
				t.Errorf("server saw %q, want the arguments of the call", l)
			}
		}
		_, err := n.Do(t.Context(), soon(), "SET", "k", []byte("mine"), shout("loud"), 7, int64(8), 1.5, true, nil, time.Second)
		if err != nil || !slices.Contains(f.Log(), "1 SET k mine LOUD 7 8 1.5 1  1s") {
			t.Errorf("SET = %v; the server saw %q", err, f.Log())
		}
	})
}

func TestCloseEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		var outs []<-chan error
		for range 5 {
			outs = append(outs, hold(n, t.Context(), soon()))
			receive(t, "HOLD", held)
		}
		n.Close()
		for i, out := range outs {
			want(t, fmt.Sprint("call in flight ", i), receive(t, "return", out), strategy.ErrUnknown, strategy.ErrClosed)
		}

		f = nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { <-let })
		n = newNode(t, poolOf(f))
		out := hold(n, t.Context(), soon())
		verdict.Eventually(t, "a dial", func() bool { return f.Dialled() == 1 })
		n.Close()
		want(t, "queued call", receive(t, "return", out), strategy.ErrUnsent, strategy.ErrClosed)
		close(let)
	})
}

// TestDialsNextToUnresponsiveOnes: dials that hang for ever, in a Dial that knows no context,
// do not keep the node from the server once that is back.
func TestDialsNextToUnresponsiveOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { c.Plain(cmd) })
		release := make(chan struct{})
		var begun atomic.Int32
		n := New(&redis.Pool{Dial: func() (redis.Conn, error) {
			if begun.Add(1) <= maxDials+2 {
				<-release
				return nil, errors.New("too late")
			}
			return dial(f)
		}})
		for end := time.Now().Add(generous); ; {
			_, err := n.Do(t.Context(), time.Now().Add(leastPatience), "ECHO", "x")
			if err == nil {
				break
			}
			want(t, "Do while dials hang", err, strategy.ErrUnsent)
			if time.Now().After(end) {
				t.Fatalf("Do() = %v after %v and %d dials, want an answer", err, generous, begun.Load())
			}
		}
		close(release)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestNonsenseEndsTheConnection: a reply at which redigo panics is no reply of Redis.
// The waiting callers learn it, and the node goes on with another connection.
func TestNonsenseEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var nonsense atomic.Bool
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "ECHO" && nonsense.Load() {
				c.Say("*999999999999999\r\n")
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		nonsense.Store(true)
		_, err := n.Do(t.Context(), time.Now().Add(generous), "ECHO", "x")
		want(t, "Do on nonsense", err, strategy.ErrUnknown)
		nonsense.Store(false)
		if _, err := n.Do(t.Context(), time.Now().Add(generous), "ECHO", "x"); err != nil {
			t.Errorf("Do() after nonsense = %v, want nil", err)
		}

		// Also while dialling, where no caller is near.
		atDial := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { c.Say("$999999999999999\r\n") })
		_, err = newNode(t, poolOf(atDial)).Do(t.Context(), time.Now().Add(generous), "ECHO", "x")
		want(t, "Do on nonsense at dial", err, strategy.ErrUnsent)
	})
}

// TestFailedDialsArePaced: however many ask, a server that is down, or just coming
// up, is dialled some ten times a second, and used soon after it is back.
func TestFailedDialsArePaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { c.Plain(cmd) })
		down := errors.New("down")
		var up atomic.Bool
		var dials atomic.Int32
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			dials.Add(1)
			if !up.Load() {
				return nil, down
			}
			return dial(f)
		}})
		for range 500 {
			_, err := n.Do(t.Context(), soon(), "ECHO", "x")
			want(t, "Do while the server is down", err, strategy.ErrUnsent, down)
			time.Sleep(time.Millisecond)
		}
		// At once, after 1 ms, and then after pauses of 4, 8, 16, 32, 64, 100, 100, 100 ms.
		if got := dials.Load(); got != 10 {
			t.Errorf("%d dials within 500 ms, want 10", got)
		}
		up.Store(true)
		time.Sleep(mostDialPause)
		echo(t, n, "back")

		// Then the first failure is the first again: the next call dials, too.
		up.Store(false)
		f.Cut()
		_, err := n.Do(t.Context(), soon(), "ECHO", "x")
		want(t, "Do on a connection that was cut", err, strategy.ErrUnknown)
		before := dials.Load()
		for range 2 {
			_, err := n.Do(t.Context(), soon(), "ECHO", "x")
			want(t, "Do while the server is down", err, strategy.ErrUnsent, down)
		}
		if got := dials.Load() - before; got != 2 {
			t.Errorf("%d dials for 2 calls after the server was back, want 2", got)
		}
	})
}
