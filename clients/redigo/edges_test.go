// The node's rules at their limits, one nanosecond or one element to either side; and what comes
// when nobody has asked for it.
package redigonode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// another reports whether a dial may begin after a pause.
func another(d *dials, after time.Duration) bool {
	time.Sleep(after)
	a, _ := d.begin(0)
	return a != nil
}

// A further dial begins when the last has hung for its patience; of four the oldest is cancelled
// for it, and only when that has had the longest patience.
func TestDialsBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it takes longer than what bubble allows
		for asked, patience := range map[time.Duration]time.Duration{
			0: leastPatience, leastPatience + 1: leastPatience + 1, mostPatience - 1: mostPatience - 1, time.Hour: mostPatience,
		} {
			var d dials
			if a, _ := d.begin(asked); a == nil || a.patience != patience {
				t.Errorf("patience after begin(%v) = %v, want %v", asked, a.patience, patience)
			}
			if another(&d, patience-1) {
				t.Errorf("a dial begins next to one that has hung for less than %v", patience)
			}
			if !another(&d, 1) {
				t.Errorf("no dial begins next to one that has hung for %v", patience)
			}
			d.abandon()
		}

		var d dials
		for range maxDials {
			if !another(&d, leastPatience) {
				t.Fatalf("%d dials began, want %d", len(d.list), maxDials)
			}
		}
		oldest := d.list[0]
		if another(&d, time.Until(oldest.began.Add(mostPatience))-1) {
			t.Errorf("a dial begins next to %d, the oldest of which has not hung for %v", maxDials, mostPatience)
		}
		if !another(&d, 1) || !oldest.abandoned || len(d.list) != maxDials || len(d.cancelled) != 1 || d.cancelled[0] != oldest {
			t.Fatalf("%d dials, %d cancelled, oldest cancelled: %v, want %d, 1, true", len(d.list), len(d.cancelled), oldest.abandoned, maxDials)
		}
		for n := 2; n <= maxCancelled; n++ {
			if !another(&d, mostPatience) || len(d.cancelled) != n {
				t.Fatalf("%d cancelled dials hang, want %d", len(d.cancelled), n)
			}
		}
		d.remove(d.cancelled[0])
		if !another(&d, mostPatience) {
			t.Error("no dial begins though a cancelled one has returned")
		}
		newest := d.list[maxDials-1]
		if another(&d, time.Until(newest.began.Add(dialLimit))-1) {
			t.Errorf("a dial begins next to %d cancelled ones before %v are over", maxCancelled, dialLimit)
		}
		if !another(&d, 1) {
			t.Errorf("no dial begins next to %d cancelled ones, %v after the last", maxCancelled, dialLimit)
		}
		d.abandon()
	})
}

// A connection is trusted without a test while it is within its lifetime, not idle for long, or fresh.
func TestWhatIsTrusted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		now := time.Now()
		if w := (&wire{born: now.Add(1 - time.Hour)}); !w.withinLifetime(&redis.Pool{MaxConnLifetime: time.Hour}) || !w.withinLifetime(&redis.Pool{}) {
			t.Error("withinLifetime just below MaxConnLifetime = false, want true")
		}
		if w := (&wire{born: now.Add(-time.Hour)}); w.withinLifetime(&redis.Pool{MaxConnLifetime: time.Hour}) {
			t.Error("withinLifetime at MaxConnLifetime = true, want false")
		}
		asked := 0
		var last context.Context
		tested := func(redis.Conn, time.Time) error { asked++; return nil }
		testedToo := func(ctx context.Context, _ redis.Conn, _ time.Time) error { asked, last = asked+1, ctx; return nil }
		for name, c := range map[string]struct {
			replied bool
			idle    time.Duration
			pool    *redis.Pool
			want    bool
			ask     int
		}{
			"fresh":                {idle: probeAfter - 1, pool: &redis.Pool{TestOnBorrow: tested}, want: true},
			"fresh no more":        {idle: probeAfter, pool: &redis.Pool{TestOnBorrow: tested}, want: true, ask: 1},
			"just used":            {replied: true, idle: probeAfter - 1, want: true},
			"used, tested":         {replied: true, pool: &redis.Pool{TestOnBorrow: tested}, want: true, ask: 1},
			"used, tested by ctx":  {replied: true, pool: &redis.Pool{TestOnBorrowContext: testedToo}, want: true, ask: 1},
			"used, tested twice":   {replied: true, pool: &redis.Pool{TestOnBorrow: tested, TestOnBorrowContext: testedToo}, want: true, ask: 2},
			"idle at the limit":    {replied: true, idle: time.Second, pool: &redis.Pool{IdleTimeout: time.Second}, want: true},
			"idle above the limit": {replied: true, idle: time.Second + 1, pool: &redis.Pool{IdleTimeout: time.Second}},
		} {
			asked = 0
			w := &wire{replied: c.replied}
			if got := w.healthy(t.Context(), now.Add(time.Hour), now.Add(-c.idle), cmp.Or(c.pool, &redis.Pool{})); got != c.want || asked != c.ask {
				t.Errorf("%s: healthy = %v after %d tests, want %v after %d", name, got, asked, c.want, c.ask)
			}
		}
		if last.Err() == nil {
			t.Error("the context of TestOnBorrowContext goes on")
		}
		l := &listening{&node{pool: &redis.Pool{IdleTimeout: time.Second, MaxConnLifetime: time.Hour}}}
		for name, c := range map[string]struct {
			born, used time.Time
			stale      bool
		}{
			"at both limits": {now.Add(-time.Hour), now.Add(-time.Second), false},
			"idle too long":  {now, now.Add(-time.Second - 1), true},
			"too old":        {now.Add(-time.Hour - 1), now, true},
		} {
			if got := l.Stale(c.born, c.used); got != c.stale {
				t.Errorf("%s: Stale = %v, want %v", name, got, c.stale)
			}
		}
	})
}

// A queue that never empties keeps its order, and its memory does not grow.
func TestFifoThatNeverEmpties(t *testing.T) {
	t.Parallel()
	var f fifo
	pushed, popped := 0, 0
	all := make([]op, 100_000)
	for pushed < len(all) {
		for range min(3, len(all)-pushed) {
			f.push(&all[pushed])
			pushed++
		}
		for len(f.waiting()) > 500 {
			if f.pop() != &all[popped] {
				t.Fatalf("pop %d is another than what was pushed then", popped)
			}
			popped++
		}
	}
	if c := cap(f.ops); c > 8192 {
		t.Errorf("500 waiting ops take room for %d", c)
	}
	var short fifo
	for i := range all {
		short.push(&all[i])
		if short.pop() != &all[i] || !short.empty() {
			t.Fatalf("pop %d is another than what was pushed", i)
		}
	}
	if c := cap(short.ops); c > 8 {
		t.Errorf("a queue of one op has room for %d", c)
	}
	f.cut(1000)
	if !f.empty() {
		t.Errorf("%d wait after more were cut than there are, want none", len(f.waiting()))
	}
}

// An op uses again what its last use had, unless that was huge.
func TestRecycledArguments(t *testing.T) {
	t.Parallel()
	for n, kept := range map[int]bool{64: true, 65: false} {
		o := &op{args: make([]any, 0, n), cmd: "SET", abandoned: true, finished: true, reuse: true, script: &driver.Script{}}
		new(pipe).recycle(o)
		if (cap(o.args) > 0) != kept || o.cmd != "" || o.abandoned || o.finished || o.reuse || o.script != nil || o.progress.Load() != queued {
			t.Errorf("recycled with room for %d arguments: %d, %+v, want it kept: %v, and the rest empty", n, cap(o.args), o, kept)
		}
	}
}

// An op that the writer did not get to send when the node was closed is unsent.
func TestUnsendWhenClosed(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		first, rest, behind := &op{}, &op{}, &op{}
		p, w := &pipe{closed: closed, queue: []*op{behind}}, &wire{}
		w.flight.push(first, rest)
		p.unsend(w, []*op{rest})
		if len(w.flight.waiting()) != 1 {
			t.Errorf("closed %v: %d in flight, want 1: what was sent", closed, len(w.flight.waiting()))
		}
		if rest.finished != closed || closed && (!errors.Is(rest.kind, strategy.ErrUnsent) || !errors.Is(rest.err, strategy.ErrClosed)) {
			t.Errorf("closed %v: the rest is over: %v, %v, %v", closed, rest.finished, rest.kind, rest.err)
		}
		if first := p.queue[0]; (first == rest) == closed {
			t.Errorf("closed %v: the rest is first in the queue: %v", closed, first == rest)
		}
	}
}

// A reply that nobody has asked for ends the pipe's connection, and the error has it; on the line for
// subscriptions, where a farewell may come, it ends nothing.
func TestUnaskedReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var sub *nodetest.Conn
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "SUBSCRIBE" {
				sub = c
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		h, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		sub.Say("-ERR by the way\r\n")
		sub.Message("c", "on")
		if got := receive(t, "a message", h.Msgs); got != "on" || len(h.Ends) > 0 {
			t.Errorf("heard %q, and %d ends, want the message alone", got, len(h.Ends))
		}
		echo(t, n, "x")
		n.pipe.mu.Lock()
		w := n.pipe.wire
		n.pipe.receive(w, nil, redis.Error("ERR by the way"), time.Now())
		closed, cause := w.closed, w.cause
		n.pipe.mu.Unlock()
		if !closed || !errors.Is(cause, errLost) || !strings.Contains(cause.Error(), "ERR by the way") {
			t.Errorf("closed = %v, %v, want the end, with the server's words", closed, cause)
		}
		echo(t, n, "next")
	})
}

// A session's connection that cannot be cleaned is not lent again; and a server that has no time
// to say who it is lends none.
func TestSessionIsRefusedItsOwnCommands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var forbidden string
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if strings.HasPrefix(strings.Join(cmd, " "), forbidden) && forbidden != "" {
				c.Say("-%s no\r\n", map[string]string{"UNWATCH": "NOPERM", "CLIENT INFO": "BUSY"}[forbidden])
				return
			}
			c.Plain(cmd)
		})
		pool := poolOf(f)
		n := newNode(t, pool)
		watch := func(c driver.Conn) error { _, err := c.Do("WATCH", "k"); return err }
		if err := n.Session(t.Context(), soon(), "k", watch); err != nil || pool.IdleCount() != 1 {
			t.Fatalf("Session = %v, %d idle connections, want nil, 1", err, pool.IdleCount())
		}
		forbidden = "UNWATCH"
		if err := n.Session(t.Context(), soon(), "k", watch); err != nil || pool.IdleCount() != 0 {
			t.Errorf("Session that may not UNWATCH = %v, %d idle connections, want nil, 0", err, pool.IdleCount())
		}
		forbidden = "CLIENT INFO"
		err := n.Session(t.Context(), soon(), "k", watch)
		want(t, "Session on a busy server", err, strategy.ErrUnsent)
		if !strings.Contains(err.Error(), "BUSY no") || !n.Ordered() {
			t.Errorf("Session = %v, Ordered = %v, want the server's words, and the order kept", err, n.Ordered())
		}
		if n := pool.ActiveCount() - pool.IdleCount(); n != 0 {
			t.Errorf("%d connections were not given back, want none", n)
		}
	})
}

// A Dial that returns nothing, or what cannot be bounded in time, is an error and no panic.
func TestDialReturnsNonsense(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	for text, conn := range map[string]redis.Conn{"returned no connection": nil, "lacks the methods": bare{closed: &closed}} {
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { return conn, nil }})
		_, err := n.Do(t.Context(), soon(), "PING", "")
		want(t, "Do", err, strategy.ErrUnsent)
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Do = %v, want %q in it", err, text)
		}
	}
	if !closed.Load() {
		t.Error("the connection that lacks methods is open")
	}
}

// bare has no methods of redis.ConnWithTimeout.
type bare struct {
	redis.Conn
	closed *atomic.Bool
}

func (b bare) Close() error { b.closed.Store(true); return nil }
func (bare) Err() error     { return nil }

// endless is an argument that is made of another, for ever.
type endless struct{}

func (e endless) RedisArg() any { return e }

func TestArgumentOfAnArgument(t *testing.T) {
	t.Parallel()
	if got := plain(endless{}); got != "{}" {
		t.Errorf("plain(endless{}) = %v, want {}, as redigo prints it", got)
	}
}

// Close cancels what is being dialled, or set up, and waits for it; and a dial's context ends with it.
func TestDialsEnd(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(t *testing.T, n *node) error{
		"pipe": func(t *testing.T, n *node) error { _, err := n.Do(t.Context(), soon(), "ECHO", "x"); return err },
		"subscriber": func(t *testing.T, n *node) error {
			_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
			return err
		},
		"session": func(t *testing.T, n *node) error {
			return n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil })
		},
	} {
		if name != "session" { // which ends when due
			bubbled(t, name+" cancelled", func(t *testing.T) {
				var ended atomic.Bool
				n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
					<-ctx.Done()
					time.Sleep(closeGrace / 2)
					ended.Store(true)
					return nil, ctx.Err()
				}})
				go ask(t, n)
				synctest.Wait()
				start := time.Now()
				n.Close()
				if took := time.Since(start); !ended.Load() || took != closeGrace/2 {
					t.Errorf("Close returned after %v, the dial's end: %v, want %v, true", took, ended.Load(), closeGrace/2)
				}
			})
		}
		bubbled(t, name+" ends its context", func(t *testing.T) {
			f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
			pool := poolOf(f)
			dial, dialled := pool.DialContext, make(chan context.Context, 10)
			pool.DialContext = func(ctx context.Context) (redis.Conn, error) { dialled <- ctx; return dial(ctx) }
			if err := ask(t, newNode(t, pool)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if (<-dialled).Err() == nil {
				t.Error("the context of a dial that has ended goes on")
			}
		})
	}
	bubbled(t, "silent server", func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(*nodetest.Conn, []string) {})
		n := newNode(t, poolOf(f))
		go n.Do(t.Context(), soon(), "ECHO", "x")
		go n.Subscribe(t.Context(), "c", nil)
		synctest.Wait()
		start := time.Now()
		n.Close()
		if took := time.Since(start); took > 0 {
			t.Errorf("Close took %v, want it to close the connection that is asked who it is", took)
		}
	})
	bubbled(t, "late", func(t *testing.T) { // when another has taken its place
		let := make(chan struct{})
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if c.ID == 1 {
				<-let
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		_, err := n.Do(t.Context(), time.Now().Add(leastPatience), "ECHO", "x")
		want(t, "Do while the dial hangs", err, strategy.ErrUnsent)
		echo(t, n, "x")
		close(let)
		synctest.Wait()
		if f.Dialled() != 2 || f.Open() != 1 {
			t.Errorf("%d of %d connections are open, want 1 of 2", f.Open(), f.Dialled())
		}
	})
}

// broken takes nothing, or sends nothing.
type broken struct {
	redis.ConnWithTimeout
	send, flush error
}

func (b broken) Send(string, ...any) error { return b.send }
func (b broken) Flush() error              { return b.flush }

func TestAskOfABrokenConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []broken{{send: io.ErrClosedPipe}, {flush: io.ErrClosedPipe}} {
		if _, err := ask(c, soon(), []string{"CLIENT", "INFO"}); err != io.ErrClosedPipe {
			t.Errorf("ask = %v, want %v", err, io.ErrClosedPipe)
		}
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"1", 1, false}, {1, 1, true}, {1, 2, false}, {0, "", false},
		{int64(1), int64(1), true}, {int64(1), int64(2), false}, {int64(0), 0, false}, {1.5, 1.5, false},
	} {
		if got := same(c.a, c.b); got != c.want {
			t.Errorf("same(%T %v, %T %v) = %v, want %v", c.a, c.a, c.b, c.b, got, c.want)
		}
	}
}

// Calls that were to share a command on a connection that broke may have to go alone on the next.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	batch := []*op{{script: tell, args: []any{"", 0}}, {script: tell, args: []any{"", 0}}, {script: tell, args: []any{"", 0}}}
	if join(nil, batch, true); batch[1].lead != batch[0] || batch[0].nextSharing != batch[1] {
		t.Error("ops of a joint script do not share a command")
	}
	if got := join(nil, batch[1:], false); len(got) != 2 || got[0].lead != nil || got[0].nextSharing != nil {
		t.Errorf("join where none may = %d ops, the first led by %p, want 2, alone", len(got), got[0].lead)
	}
}

// An op ends once, and not at all for a caller who has left. It is used again only if nobody else
// may have it.
func TestFinish(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		progress int32
		kind     error
		reuse    bool
	}{{sent, nil, true}, {sending, nil, false}, {sent, strategy.ErrUnknown, false}, {queued, strategy.ErrUnsent, false}} {
		o := &op{cmd: "SET"}
		o.progress.Store(c.progress)
		o.finish("first", nil, c.kind)
		o.finish("second", io.EOF, strategy.ErrUnsent)
		if o.reply != "first" || o.err != nil || o.kind != c.kind || o.reuse != c.reuse {
			t.Errorf("progress %d, kind %v: finish leaves %v, %v, %v, reuse %v, want first, nil, %[2]v, %v",
				c.progress, c.kind, o.reply, o.err, o.kind, o.reuse, c.reuse)
		}
		if c.kind == nil {
			p := &pipe{n: &node{}}
			o.reply = nil
			p.result(t.Context(), o)
			if again := o.cmd == ""; again != c.reuse {
				t.Errorf("progress %d: used again: %v, want %v", c.progress, again, c.reuse)
			}
		}
	}
	left := &op{abandoned: true}
	if left.finish("late", nil, nil); left.finished || left.reply != nil {
		t.Errorf("finish of an op whose caller left = %v, %v, want nothing", left.finished, left.reply)
	}
}

// Duties go on when a caller that has one leaves, and when the goroutine ends.
func TestDutiesAreHandedOn(t *testing.T) {
	t.Parallel()
	stage := func() (p *pipe, w *wire, first, second *op) {
		p, w = &pipe{n: &node{}}, &wire{}
		p.wire, first, second = w, &op{on: w}, &op{}
		first.progress.Store(sent)
		second.progress.Store(sent)
		w.flight.push(first, second)
		return p, w, first, second
	}
	p, w, first, second := stage()
	w.reader, first.role = first, reader
	if p.leave(first); w.reader != second || second.role != reader {
		t.Error("a reader has left, and the next does not read")
	}
	p, w, first, _ = stage()
	w.reader = &w.server // and the last batch was of one caller
	if p.serve(w); w.reader != first || first.role != reader {
		t.Error("the goroutine that reads has ended, and the oldest does not read")
	}
	p, w, first, _ = stage()
	p.wire, w.closed, w.reader, first.role = nil, true, first, reader
	first.progress.Store(queued) // it goes out on the next connection
	if p.read(t.Context(), first); first.role != none || w.reader != nil {
		t.Errorf("role %v on a connection that has ended, want none", first.role)
	}
	p, _, first, second = stage()
	live := &op{}
	first.abandoned, second.abandoned = true, true
	p.queue = []*op{first, second, live}
	if got := p.nextQueued(); got != live || len(p.queue) != 1 {
		t.Errorf("nextQueued = %p of %d, want the one whose caller waits, alone in the queue", got, len(p.queue))
	}
}

// A writer whose time is over when it has waited for others sends nothing.
func TestWriterWhoseTimeIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, poolOf(nodetest.NewInMemory(t, (*nodetest.Conn).Plain)))
		echo(t, n, "warm")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p, o, other := &n.pipe, &op{due: soon()}, &op{due: soon()}
		p.mu.Lock()
		defer p.mu.Unlock()
		w := p.wire
		w.busy, w.writer, o.on, p.queue = true, o, w, []*op{o, other}
		p.write(ctx, o)
		if len(p.queue) != 2 || !w.flight.empty() || w.writer != nil {
			t.Errorf("%d ops in the queue, %d in flight, want 2, 0, and nobody to write", len(p.queue), len(w.flight.waiting()))
		}
		p.queue = nil
	})
}

// Each leaves when due, in whichever order they came.
func TestEachLeavesWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		hold(n, t.Context(), soon())
		receive(t, "HOLD", held)
		start := time.Now()
		out := make(chan [2]time.Duration, 3)
		for due := time.Second; due <= 3*time.Second; due += time.Second {
			go func() {
				n.Do(t.Context(), start.Add(due), "HOLD", "k")
				out <- [2]time.Duration{due, time.Since(start)}
			}()
			receive(t, "HOLD", held)
		}
		for range cap(out) {
			if got := receive(t, "a return", out); got[0] != got[1] {
				t.Errorf("a caller due after %v left after %v", got[0], got[1])
			}
		}
	})
}

// stuck takes no more bytes, when told so, until it is closed, which takes a while.
type stuck struct {
	redis.ConnWithTimeout
	now  atomic.Bool
	free chan struct{}
}

func (s *stuck) Flush() error {
	if s.now.Load() {
		<-s.free
		return io.ErrClosedPipe
	}
	return s.ConnWithTimeout.Flush()
}

func (s *stuck) Close() error {
	if s.now.Load() {
		time.Sleep(time.Second)
		close(s.free)
	}
	return s.ConnWithTimeout.Close()
}

// A connection that takes no more bytes is given up when its writer is due, and others do not wait for
// its end.
func TestStuckWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		var first *stuck
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			c, err := dial(f)
			if first == nil {
				first = &stuck{ConnWithTimeout: c.(redis.ConnWithTimeout), free: make(chan struct{})}
				return first, err
			}
			return c, err
		}})
		echo(t, n, "warm")
		first.now.Store(true)
		start, out := time.Now(), make(chan error, 1)
		go func() { _, err := n.Do(t.Context(), start.Add(100*time.Millisecond), "SET", "k"); out <- err }()
		synctest.Wait()
		if _, err := n.Do(t.Context(), start.Add(time.Second/2), "ECHO", "x"); err != nil || time.Since(start) != 100*time.Millisecond {
			t.Errorf("ECHO behind a writer that is stuck = %v after %v, want nil when that is due", err, time.Since(start))
		}
		want(t, "SET", receive(t, "SET's return", out), strategy.ErrUnknown)
		wantSeen(t, f, "1 ECHO warm", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO x")
	})
}

// slow takes a command SLOW when it may, and anything although it is closed.
type slow struct {
	redis.ConnWithTimeout
	reached, may chan struct{}
}

func (s slow) Send(cmd string, args ...any) error {
	if cmd == "SLOW" {
		close(s.reached)
		<-s.may
	}
	if cmd == "CLIENT" {
		return s.ConnWithTimeout.Send(cmd, args...)
	}
	return nil
}

func (s slow) Flush() error {
	select {
	case <-s.reached:
		return nil
	default:
		return s.ConnWithTimeout.Flush()
	}
}

// An op sent to a connection that had been given up meanwhile is unknown at once.
func TestGivenUpWhileWriting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		let, conn := make(chan struct{}), slow{reached: make(chan struct{}), may: make(chan struct{})}
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			<-let
			c, err := dial(f)
			conn.ConnWithTimeout = c.(redis.ConnWithTimeout)
			return conn, err
		}})
		start, outs := time.Now(), make(chan error, 2)
		for _, cmd := range []string{"SLOW", "SET"} {
			go func() { _, err := n.Do(t.Context(), soon(), cmd, "k"); outs <- err }()
			synctest.Wait()
		}
		close(let)
		<-conn.reached
		n.pipe.mu.Lock()
		n.pipe.giveUp(n.pipe.wire, errReplaced)
		n.pipe.mu.Unlock()
		close(conn.may)
		for range 2 {
			want(t, "Do", receive(t, "a return", outs), strategy.ErrUnknown, errReplaced)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("the callers left after %v, want at once", took)
		}
	})
}

// Who leaves a follower behind: its HOLD is in flight, and nobody waits.
func leaveBehind(t *testing.T, n *node, held chan *nodetest.Conn) *nodetest.Conn {
	t.Helper()
	first := hold(n, t.Context(), soon())
	c := receive(t, "first HOLD", held)
	ctx, cancel := context.WithCancel(t.Context())
	second := hold(n, ctx, soon())
	receive(t, "second HOLD", held)
	cancel()
	receive(t, "second's return", second)
	c.Bulk("first")
	receive(t, "first's return", first)
	return c
}

// A session begins when the server has answered for what was left behind, and a refusal is an answer.
func TestSessionBehindWhatWasLeft(t *testing.T) {
	t.Parallel()
	for said, begins := range map[string]bool{"-NOPERM no\r\n": true, "": false} {
		bubbled(t, said, func(t *testing.T) {
			held := make(chan *nodetest.Conn, 10)
			n := newNode(t, poolOf(nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
				switch {
				case cmd[0] == "HOLD":
					held <- c
				case cmd[0] == "PING" && said == "":
					c.Close()
				case cmd[0] == "PING":
					c.Bulk("second")
					c.Say("%s", said)
				default:
					c.Plain(cmd)
				}
			})))
			leaveBehind(t, n, held)
			began := false
			err := n.Session(t.Context(), soon(), "k", func(driver.Conn) error { began = true; return nil })
			if began != begins || (err == nil) != begins || err != nil && !errors.Is(err, strategy.ErrUnsent) {
				t.Errorf("Session = %v, fn called: %v, want an error: %v", err, began, !begins)
			}
		})
	}
}

// Nothing is dialled, and nothing begins, for a caller that comes too late or is refused at the first word.
func TestSessionThatCannotBegin(t *testing.T) {
	t.Parallel()
	cause := errors.New("gone")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, c := range map[string]struct {
		ctx    context.Context
		closed bool
		want   error
	}{"done context": {over, false, cause}, "closed": {t.Context(), true, strategy.ErrClosed}} {
		bubbled(t, name, func(t *testing.T) {
			f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
			n := newNode(t, poolOf(f))
			if c.closed {
				n.Close()
			}
			err := n.Session(c.ctx, soon(), "k", func(driver.Conn) error { t.Error("fn was called"); return nil })
			want(t, "Session", err, strategy.ErrUnsent, c.want)
			synctest.Wait()
			if f.Dialled() > 0 {
				t.Errorf("%d connections, want none", f.Dialled())
			}
		})
	}
	bubbled(t, "hung up on", func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { c.Close() })
		err := newNode(t, poolOf(f)).Session(t.Context(), soon(), "k", nil)
		want(t, "Session", err, strategy.ErrUnsent)
		if f.Dialled() != 1 {
			t.Errorf("%d connections, want 1: it was new", f.Dialled())
		}
	})
	bubbled(t, "silence", func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {})
		pool := poolOf(f)
		n := newNode(t, pool)
		first, second := pool.Get(), pool.Get()
		first.Close() // it waits in the pool, and may be dead
		second.Close()
		err := n.Session(t.Context(), time.Now().Add(time.Second), "k", nil)
		want(t, "Session", err, strategy.ErrUnsent, timeup.Err)
	})
	bubbled(t, "cancelled", func(t *testing.T) {
		n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil, ctx.Err()
		}})
		defer time.Sleep(2 * time.Second) // the dial ends in the bubble
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		want(t, "Session", n.Session(ctx, soon(), "k", nil), strategy.ErrUnsent, cause)
	})
}

// Where the server does not say who a connection is no session asks again, and a command without an
// answer costs the pipe nothing.
func TestSessionsWithoutOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case cmd[0] == "CLIENT":
				asked++
				c.Say("-NOPERM no\r\n")
			case cmd[0] != "HOLD":
				c.Plain(cmd)
			}
		})
		n := newNode(t, poolOf(f))
		var kept driver.Conn
		if err := n.Session(t.Context(), soon(), "k", func(c driver.Conn) error { kept = c; return nil }); err != nil || n.Ordered() {
			t.Fatalf("Session = %v, Ordered = %v, want nil, false", err, n.Ordered())
		}
		_, err := kept.Do("SET", "k")
		want(t, "a command after the session's end", err, strategy.ErrUnsent)
		echo(t, n, "before")
		err = n.Session(t.Context(), time.Now().Add(time.Second), "k", func(c driver.Conn) error { _, err := c.Do("HOLD", "k"); return err })
		want(t, "Session", err, strategy.ErrUnknown, timeup.Err)
		echo(t, n, "after")
		wantSeen(t, f, "2 ECHO before", "1 HOLD k", "2 ECHO after")
		if asked != 1 {
			t.Errorf("%d questions to the server who a connection is, want 1", asked)
		}
	})
}

// mute takes no SUBSCRIBE.
type mute struct{ redis.ConnWithTimeout }

func (m mute) Send(cmd string, args ...any) error {
	if cmd == "SUBSCRIBE" {
		return io.ErrClosedPipe
	}
	return m.ConnWithTimeout.Send(cmd, args...)
}

// An event that ends a line ends it at once; a line that has ended, or is idle, asks nothing more.
func TestLineEnds(t *testing.T) {
	t.Parallel()
	at := func(t *testing.T, what string, start time.Time) {
		t.Helper()
		if took := time.Since(start); took > 0 {
			t.Errorf("%s after %v, want at once", what, took)
		}
	}
	bubbled(t, "written to", func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			c, err := dial(f)
			return mute{c.(redis.ConnWithTimeout)}, err
		}})
		start := time.Now()
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
		want(t, "Subscribe", err, strategy.ErrUnknown, io.ErrClosedPipe)
		at(t, "Subscribe failed", start)
	})
	bubbled(t, "read from", func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, poolOf(f))
		h, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		start := time.Now()
		f.Cut()
		receive(t, "the end", h.Ends)
		at(t, "the end was heard", start)
	})
	bubbled(t, "at rest", func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if len(cmd) > 1 && cmd[1] == "cut" {
				c.Close()
				return
			}
			c.Plain(cmd)
		})
		pool := poolOf(f)
		pool.IdleTimeout = time.Minute / 2
		n := newNode(t, pool)
		_, stop := nodetest.Subscribe(t, n, "c")
		time.Sleep(pool.IdleTimeout + time.Second/2)
		stop()
		synctest.Wait()
		pings := f.Seen("PING")
		time.Sleep(2 * n.sub.PingEvery)
		synctest.Wait()
		if got := f.Seen("PING"); got != pings || !atRest(n) {
			t.Errorf("%d PINGs while nothing is subscribed, want none", got-pings)
		}
		time.Sleep(2 * n.sub.PingEvery)
		h, stop := nodetest.Subscribe(t, n, "c") // the line was in use until then
		defer stop()
		time.Sleep(2 * (n.sub.PingEvery + n.sub.PongLimit)) // PINGs keep it
		if f.Dialled() != 1 || len(h.Ends) > 0 {
			t.Errorf("%d connections, and the subscription has ended: %v, want 1, false", f.Dialled(), len(h.Ends) > 0)
		}
		_, err := n.Subscribe(t.Context(), "cut", func([]byte, error) {})
		want(t, "Subscribe on a line that has answered since", err, strategy.ErrUnknown)
		if got := f.Seen("SUBSCRIBE cut"); got != 1 {
			t.Errorf("%d tries, want 1", got)
		}
	})
}

// A line ends when requests go to another server than its own: it may lead to a replica that nobody asks
// any more.
func TestLineFollowsRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := "old:1"
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if strings.Join(cmd, " ") == "CLIENT INFO" {
				c.Bulk(fmt.Sprintf("id=%d addr=client:%d laddr=%s fd=8 name=\n", c.ID, c.ID, server))
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		h, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		again := func(at string) {
			t.Helper()
			server = at
			n.pipe.mu.Lock()
			if n.pipe.wire != nil {
				n.pipe.giveUp(n.pipe.wire, io.EOF)
			}
			n.pipe.mu.Unlock()
			echo(t, n, "x")
			synctest.Wait()
		}
		again("old:1")
		again("old:1")
		if !h.Silent() {
			t.Fatal("the line has ended, though requests go to its server")
		}
		again("new:1")
		if err := receive(t, "the end", h.Ends); !errors.Is(err, subscription.ErrReplaced) {
			t.Errorf("the end = %v, want %v", err, subscription.ErrReplaced)
		}
	})
}

// The goroutine that reads answers for the oldest that was sent, while no other reads.
func TestServed(t *testing.T) {
	t.Parallel()
	w, o := &wire{}, &op{}
	o.progress.Store(sent)
	w.flight.push(o)
	if w.reader = o; w.served() != nil {
		t.Error("a caller reads, and the goroutine is said to serve")
	}
	w.reader = &w.server
	later := &op{}
	later.progress.Store(sent)
	w.flight.push(later)
	for progress, want := range map[int32]*op{queued: nil, sending: nil, sent: o, dropped: later} {
		if o.progress.Store(progress); w.served() != want {
			t.Errorf("progress %d: served = %p, want %p", progress, w.served(), want)
		}
	}
}

// A caller that gets up twice, as it does if it is answered before it runs, leaves the ring of sleepers as it is.
func TestGetUpTwice(t *testing.T) {
	t.Parallel()
	var p pipe
	p.init(&node{})
	ring, a, b, c := &p.sleepers, &op{}, &op{}, &op{}
	a.joinSleepers(ring)
	b.joinSleepers(ring)
	a.leaveSleepers()
	b.leaveSleepers()
	c.joinSleepers(ring)
	b.leaveSleepers()
	if ring.next != c || ring.prev != c || c.next != ring || c.prev != ring {
		t.Error("the ring has another than the one who sleeps")
	}
}
