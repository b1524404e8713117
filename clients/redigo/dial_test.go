// Dials, and when a connection at rest is relied on.
package redigonode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
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
			if another(&d, patience-1) || !another(&d, 1) {
				t.Errorf("another dial does not begin when one has hung for %v", patience)
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
		if another(&d, time.Until(newest.began.Add(dialLimit))-1) || !another(&d, 1) {
			t.Errorf("next to %d cancelled dials another does not begin %v after the last", maxCancelled, dialLimit)
		}
		d.abandon()
	})
}

// Dials that hang for ever, in a Dial that knows no context, do not keep the node from the server once that is
// back. Close waits a while for them, and what they bring later is closed.
func TestHangingDials(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		var closed atomic.Bool
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if c.Plain(cmd); closed.Load() {
				t.Errorf("%q was asked of a late connection", cmd)
			}
		})
		var begun atomic.Int32
		var late sync.WaitGroup
		late.Add(maxDials + 2)
		n := New(&redis.Pool{Dial: func() (redis.Conn, error) {
			if begun.Add(1) <= maxDials+2 {
				defer late.Done()
				<-let
			}
			return dial(f)
		}}).(*node)
		ask := func() error {
			_, err := n.Do(t.Context(), time.Now().Add(leastPatience/4), "ECHO", "x")
			return err
		}
		start := time.Now()
		for time.Since(start) < (maxDials+2)*leastPatience {
			want(t, "Do while dials hang", ask(), strategy.ErrUnsent, os.ErrDeadlineExceeded)
		}
		if got := begun.Load(); got != maxDials {
			t.Errorf("%d dials at once, want %d", got, maxDials)
		}
		for ask() != nil {
			if time.Since(start) > generous/2 {
				t.Fatalf("no answer after %v and %d dials", time.Since(start), begun.Load())
			}
		}
		start = time.Now()
		if err := n.Close(); err != nil || time.Since(start) != closeGrace {
			t.Errorf("Close = %v after %v, want nil after %v", err, time.Since(start), closeGrace)
		}
		closed.Store(true)
		close(let)
		late.Wait()
		if synctest.Wait(); f.Dialled() != maxDials+3 || f.Open() != 0 {
			t.Errorf("%d of %d connections are open, want none of %d", f.Open(), f.Dialled(), maxDials+3)
		}
	})
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
		"session": func(t *testing.T, n *node) error { return lend(t.Context(), n, soon()) },
	} {
		bubbled(t, name, func(t *testing.T) {
			f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
			pool := poolOf(f)
			dial, dialled := pool.DialContext, make(chan context.Context, 10)
			pool.DialContext = func(ctx context.Context) (redis.Conn, error) { dialled <- ctx; return dial(ctx) }
			if err := ask(t, newNode(t, pool)); err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); (<-dialled).Err() == nil {
				t.Error("the context of a dial that has ended goes on")
			}
			if name == "session" {
				return // which ends when due
			}
			ended := false
			n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
				<-ctx.Done()
				time.Sleep(closeGrace / 2)
				ended = true
				return nil, ctx.Err()
			}})
			go ask(t, n)
			synctest.Wait()
			start := time.Now()
			n.Close()
			if took := time.Since(start); !ended || took != closeGrace/2 {
				t.Errorf("Close returned after %v, the dial's end: %v, want %v, true", took, ended, closeGrace/2)
			}
		})
	}
	bubbled(t, "silent server", func(t *testing.T) {
		n, _ := nodeOn(t, func(*nodetest.Conn, []string) {})
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
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if c.ID == 1 {
				<-let
			}
			c.Plain(cmd)
		})
		_, err := n.Do(t.Context(), time.Now().Add(leastPatience), "ECHO", "x")
		want(t, "Do while the dial hangs", err, strategy.ErrUnsent)
		echo(t, n, "x")
		close(let)
		if synctest.Wait(); f.Dialled() != 2 || f.Open() != 1 {
			t.Errorf("%d of %d connections are open, want 1 of 2", f.Open(), f.Dialled())
		}
	})
}

// A dial that hangs when a replica is left may lead there, too: it is given up.
func TestDialsToAReplicaAreGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let, f := make(chan struct{}), nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		hang := make(chan context.Context, 2) // those of the pipe's dial, and of the subscriber's: they are not heeded
		n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
			select {
			case hang <- ctx:
				<-let
			default:
			}
			return dial(f)
		}})
		subscribed := make(chan error, 1)
		go func() {
			_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
			subscribed <- err
		}()
		asked := begin(n, t.Context(), soon(), "ECHO", "x")
		synctest.Wait()
		start := time.Now()
		n.leave()
		if err := receive(t, "Subscribe's return", subscribed); err != nil {
			t.Errorf("Subscribe = %v, want nil: on another connection", err)
		}
		wantReply(t, begin(n, t.Context(), soon(), "ECHO", "y"), "y")
		wantReply(t, asked, "x")
		first, second := <-hang, <-hang
		if took := time.Since(start); took > 0 || first.Err() == nil || second.Err() == nil {
			t.Errorf("after %v the contexts of the dials say %v, %v, want their ends at once", took, first.Err(), second.Err())
		}
		close(let)
		if synctest.Wait(); f.Dialled() != 4 || f.Open() != 2 {
			t.Errorf("%d of %d connections are open, want 2 of 4", f.Open(), f.Dialled())
		}
	})
}

// However many ask, a server that is down, or just coming up, is dialled some ten times a second, and used soon
// after it is back.
func TestFailedDialsArePaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, down := nodetest.NewInMemory(t, (*nodetest.Conn).Plain), errors.New("down")
		up, dials := false, 0
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
			if dials++; !up {
				return nil, down
			}
			return dial(f)
		}})
		ask := func() {
			t.Helper()
			_, err := n.Do(t.Context(), soon(), "ECHO", "x")
			want(t, "Do while the server is down", err, strategy.ErrUnsent, down)
		}
		for range 500 {
			ask()
			time.Sleep(time.Millisecond)
		}
		// At once, after 1 ms, and then after pauses of 4, 8, 16, 32, 64, 100, 100, 100 ms.
		if dials != 10 {
			t.Errorf("%d dials within 500 ms, want 10", dials)
		}
		up = true
		time.Sleep(mostDialPause)
		echo(t, n, "back")

		// Then the first failure is the first again: the next call dials, too.
		up = false
		f.Cut()
		_, err := n.Do(t.Context(), soon(), "ECHO", "x")
		want(t, "Do on a connection that was cut", err, strategy.ErrUnknown)
		dials = 0
		ask()
		if ask(); dials != 2 {
			t.Errorf("%d dials for 2 calls after the server was back, want 2", dials)
		}
	})
}

func TestNoPasswordInErrors(t *testing.T) {
	t.Parallel()
	n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New(`parse "redis://me:s3cret@h:x/": bad`) }})
	_, did := n.Do(t.Context(), soon(), "SET", "k")
	_, subscribed := n.Subscribe(t.Context(), "c", nil)
	for what, err := range map[string]error{"Do": did, "Subscribe": subscribed, "Session": lend(t.Context(), n, soon())} {
		if want(t, what, err, strategy.ErrUnsent); strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s = %v, which tells the password", what, err)
		}
	}
}

// A Dial that returns nothing, or what cannot be bounded in time, is an error and no panic.
func TestDialReturnsNonsense(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	for text, conn := range map[string]redis.Conn{"returned no connection": nil, "lacks the methods": bare{closed: &closed}} {
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { return conn, nil }})
		_, err := n.Do(t.Context(), soon(), "PING", "")
		if want(t, "Do", err, strategy.ErrUnsent); !strings.Contains(err.Error(), text) {
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

func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	for _, h := range []*hooked{
		{send: func(redis.ConnWithTimeout, string, ...any) error { return io.ErrClosedPipe }},
		{
			send:  func(redis.ConnWithTimeout, string, ...any) error { return nil },
			flush: func(redis.ConnWithTimeout) error { return io.ErrClosedPipe },
		},
	} {
		if _, err := ask(h, soon(), clientInfo); err != io.ErrClosedPipe {
			t.Errorf("ask = %v, want %v", err, io.ErrClosedPipe)
		}
		_, err := listener{conn: h}.Write([]*subscription.Request{{Cmd: subscription.Ping}})
		if !errors.Is(err, errLost) || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Write = %v, want %v: %v", err, errLost, io.ErrClosedPipe)
		}
	}
}

// The node's name is the address to which the pool connects: servers in containers on several hosts may all see the same
// address of their own. Where the pool does not tell, it is what the server says; also with blanks in it.
func TestName(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if strings.Join(cmd, " ") == "CLIENT INFO" {
			c.Bulk(fmt.Sprintf("id=%d addr=172.17.0.1:%d laddr=/a b:0 fd=8 name=", c.ID, c.ID))
			return
		}
		c.Plain(cmd)
	})
	n := newNode(t, poolOf(f))
	if echo(t, n, "x"); n.Name() != f.Addr {
		t.Errorf("Name = %q, want %q, to which the pool connects", n.Name(), f.Addr)
	}
	n = newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", f.Addr) }})
	if n.Name() != driver.Unnamed {
		t.Errorf("Name = %q before any connection, want the name of one without an address", n.Name())
	}
	if echo(t, n, "x"); n.Name() != "/a b:0" {
		t.Errorf("Name = %q, want /a b:0, as the server says", n.Name())
	}
	if n.introduced(""); n.Name() != "/a b:0" {
		t.Errorf("Name = %q when another connection says nothing, want /a b:0 still", n.Name())
	}
	// A server that lets nobody in says nothing.
	shut := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) { c.Say("-WRONGPASS invalid\r\n") })
	n = newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", shut.Addr, redis.DialPassword("no"))
	}})
	_, err := n.Do(t.Context(), soon(), "GET", "k")
	if want := shut.Addr + ": not sent: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Do = %v, want the address first: %s", err, want)
	}
}

// A connection is trusted without a test while it is within its lifetime, not idle for long, or fresh.
func TestWhatIsTrusted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		now := time.Now()
		old := &redis.Pool{MaxConnLifetime: time.Hour}
		for age, fit := range map[time.Duration]bool{time.Hour - 1: true, time.Hour: false} {
			w := &wire{born: now.Add(-age)}
			if w.withinLifetime(old) != fit || !w.withinLifetime(&redis.Pool{}) {
				t.Errorf("withinLifetime after %v is not %v, or not true without a limit", age, fit)
			}
		}
		asked := 0
		var last context.Context
		bad := errors.New("not good enough")
		tested := func(_ redis.Conn, used time.Time) error {
			if asked++; time.Since(used) > time.Minute {
				return bad
			}
			return nil
		}
		testedToo := func(ctx context.Context, c redis.Conn, used time.Time) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the context of TestOnBorrowContext has no end")
			}
			last = ctx
			return tested(c, used)
		}
		for name, c := range map[string]struct {
			replied bool
			idle    time.Duration
			pool    *redis.Pool
			want    bool
			ask     int
		}{
			"fresh":                   {idle: probeAfter - 1, pool: &redis.Pool{TestOnBorrow: tested}, want: true},
			"fresh until now":         {idle: probeAfter, pool: &redis.Pool{TestOnBorrow: tested}, want: true, ask: 1},
			"just used":               {replied: true, idle: probeAfter - 1, want: true},
			"used, tested":            {replied: true, pool: &redis.Pool{TestOnBorrow: tested}, want: true, ask: 1},
			"used, tested by ctx":     {replied: true, pool: &redis.Pool{TestOnBorrowContext: testedToo}, want: true, ask: 1},
			"used, tested twice":      {replied: true, pool: &redis.Pool{TestOnBorrow: tested, TestOnBorrowContext: testedToo}, want: true, ask: 2},
			"fails the test":          {replied: true, idle: time.Hour, pool: &redis.Pool{TestOnBorrow: tested}, ask: 1},
			"fails the test with ctx": {replied: true, idle: time.Hour, pool: &redis.Pool{TestOnBorrowContext: testedToo}, ask: 1},
			"idle at the limit":       {replied: true, idle: time.Second, pool: &redis.Pool{IdleTimeout: time.Second}, want: true},
			"idle above the limit":    {replied: true, idle: time.Second + 1, pool: &redis.Pool{IdleTimeout: time.Second}},
		} {
			asked = 0
			w := &wire{replied: c.replied}
			if got := w.healthy(t.Context(), now.Add(time.Hour), now.Add(-c.idle), cmp.Or(c.pool, &redis.Pool{}), new(client.Silence)); got != c.want || asked != c.ask {
				t.Errorf("%s: healthy = %v after %d tests, want %v after %d", name, got, asked, c.want, c.ask)
			}
		}
		if last.Err() == nil {
			t.Error("the context of TestOnBorrowContext goes on")
		}
		l := &listening{&node{pool: &redis.Pool{IdleTimeout: time.Second, MaxConnLifetime: time.Hour}}}
		for name, c := range map[string]struct {
			age, idle time.Duration
			stale     bool
		}{"at both limits": {time.Hour, time.Second, false}, "idle too long": {0, time.Second + 1, true}, "too old": {time.Hour + 1, 0, true}} {
			if got := l.Stale(now.Add(-c.age), now.Add(-c.idle)); got != c.stale {
				t.Errorf("%s: Stale = %v, want %v", name, got, c.stale)
			}
		}
	})
}

// A connection that died at rest is found out by a PING, not by an op; the pool's time is for others, too. So is one on
// which an op waits in vain: its caller left before it was sent, and no reply has come since.
func TestIdleConnectionIsProbed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if c.ID == 1 && cmd[0] == "PING" {
				c.Close()
				return
			}
			c.Plain(cmd)
		})
		echo(t, n, "one")
		age(n, probeAfter)
		echo(t, n, "two")
		wantSeen(t, f, "1 ECHO one", "1 PING", "2 ECHO two")
		age(n, probeAfter)
		echo(t, n, "three")
		left := &op{abandoned: true}
		left.progress.Store(dropped)
		locked(n, func(p *pipe) { p.wire.flight.push(left) })
		age(n, probeAfter)
		echo(t, n, "four")
		wantSeen(t, f, "1 ECHO one", "1 PING", "2 ECHO two", "2 PING", "2 ECHO three", "2 PING", "2 ECHO four")
	})
}

// A probe would read on the connection. So none is sent while a reader waits there for an op that was dropped.
func TestNoProbeNextToAReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := nodeOn(t, (*nodetest.Conn).Plain)
		echo(t, n, "one")
		locked(n, func(p *pipe) { p.wire.reader = &p.wire.server }) // which does not read here, so nobody takes the reply
		age(n, probeAfter)
		_, err := n.Do(t.Context(), time.Now().Add(50*time.Millisecond), "ECHO", "two")
		want(t, "Do", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		wantSeen(t, f, "1 ECHO one", "1 ECHO two")
	})
}

// The pool's test is the user's, and runs just before a connection that was at rest is written to: one that panics harms
// its caller only, and a connection that is retired meanwhile takes no op, because what it was retired for comes first.
func TestDuringTheTest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		during func(n *node)
		seen   []string
	}{
		"panic": {func(*node) { panic("the user's") }, []string{"1 ECHO one", "2 ECHO three"}},
		"retired": {
			func(n *node) { n.pipe.killFirst(client.Identity{ID: "77", Addr: "session:1"}) },
			[]string{"1 ECHO one", "2 CLIENT KILL ID 77 ADDR session:1", "2 ECHO two", "2 ECHO three"},
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			n, f := nodeOn(t, (*nodetest.Conn).Plain)
			var once sync.Once
			n.pool.TestOnBorrow = func(redis.Conn, time.Time) error {
				once.Do(func() { c.during(n) })
				return nil
			}
			echo(t, n, "one")
			func() {
				defer func() {
					if recovered := recover(); (recovered != nil) != (name == "panic") {
						t.Errorf("the panic is %v", recovered)
					}
				}()
				echo(t, n, "two")
			}()
			echo(t, n, "three")
			wantSeen(t, f, c.seen...)
		})
	}
}

// An old connection that is busy takes no new ops, and is closed with its last reply.
func TestRetiredConnectionDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f, held := holding(t)
		n.pool.MaxConnLifetime = time.Hour
		out := hold(n, t.Context(), soon())
		c := receive(t, "HOLD", held)
		age(n, 2*time.Hour)
		got := begin(n, t.Context(), soon(), "ECHO", "next")
		synctest.Wait()
		c.Bulk("answer")
		wantReply(t, out, "answer")
		wantReply(t, got, "next")
		wantSeen(t, f, "1 HOLD k", "2 ECHO next") // and no KILL: every request got its reply
	})
}

// The same when nobody waits for the missing reply: then it is given up.
func TestRetiredConnectionWithoutReaderIsKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f, held := holding(t)
		leaveBehind(t, n, held)
		locked(n, func(p *pipe) { p.wire.retired = true })
		echo(t, n, "next")
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO next")
	})
}

// A proxy that does not know CLIENT and HELLO is of use, without order; who has hung up once is asked again.
func TestProxy(t *testing.T) {
	t.Parallel()
	unknown := func(_ *nodetest.Conn, cmd []string) bool { return cmd[0] == "CLIENT" || cmd[0] == "HELLO" }
	never := func(*nodetest.Conn, []string) bool { return false }
	for name, c := range map[string]struct {
		hangsUp, refuses func(c *nodetest.Conn, cmd []string) bool
		kind             error // nil: it answers
		ordered          bool
		dials            int
	}{
		"hangs up":               {unknown, never, nil, false, 3},
		"hangs up once":          {func(c *nodetest.Conn, cmd []string) bool { return c.ID == 1 }, never, nil, true, 3},
		"hangs up on everything": {func(*nodetest.Conn, []string) bool { return true }, never, strategy.ErrUnsent, true, 2},
		"refuses":                {never, unknown, nil, false, 1},
	} {
		bubbled(t, name, func(t *testing.T) {
			n, f := nodeOn(t, func(conn *nodetest.Conn, cmd []string) {
				switch {
				case c.hangsUp(conn, cmd):
					conn.Close()
				case c.refuses(conn, cmd):
					conn.Say("-ERR unsupported command\r\n")
				default:
					conn.Plain(cmd)
				}
			})
			if _, err := n.Do(t.Context(), soon(), "ECHO", "x"); c.kind != nil {
				want(t, "Do", err, c.kind, errHungUp)
			} else if err != nil {
				t.Fatalf("Do = %v, want nil", err)
			}
			if n.Ordered() != c.ordered || f.Dialled() != c.dials {
				t.Errorf("Ordered = %v after %d dials, want %v after %d", n.Ordered(), f.Dialled(), c.ordered, c.dials)
			}
			if c.kind != nil {
				return
			}
			if synctest.Wait(); f.Open() != 1 {
				t.Errorf("%d connections are open, want 1", f.Open())
			}
			before := n.Probe(t.Context(), soon())
			if got := n.Probe(t.Context(), soon()); got != before {
				t.Errorf("Probe = %d, want %d as before: it loses no connection", got, before)
			}
			if err := doing(n, t.Context(), soon(), "GET"); err != nil {
				t.Errorf("Session = %v, want nil", err)
			}
			_, stop := nodetest.Subscribe(t, n, "c")
			stop()
			f.Cut()
			if got := n.Probe(t.Context(), soon()); got != before+1 {
				t.Errorf("Probe = %d after a loss, want %d", got, before+1)
			}
			echo(t, n, "again")
			wantDials(t, f, c.dials+3) // a session's, a subscription's, and one in place of the lost
			const hint = "perhaps a proxy that does not know CLIENT"
			if _, err := n.Do(t.Context(), soon(), "CLIENT", "LIST"); name == "hangs up" && !strings.Contains(err.Error(), hint) {
				t.Errorf("CLIENT LIST = %v, want %q in it", err, hint)
			}
		})
	}
}
