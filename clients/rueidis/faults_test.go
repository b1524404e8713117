// Tests what a Node does when servers freeze, die, or are read only, and callers leave.
package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

var release = driver.NewScript("release", `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

// The ghost: an acquire that timed out is read by the server after its undo, and leaves a key
// that nobody owns.
const (
	ghostTries = 4
	ghostOp    = 250 * time.Millisecond // the operation time-out
)

func TestNoGhost(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*ghosts{
		"plain":           {},
		"AUTH and SELECT": {config: redistest.Config{Password: "s3cret", Database: 3}},
		"ready second":    {ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.start(t)
			for i := range ghostTries {
				if g.try(t, i) {
					t.Errorf("try %d: the key is there after its undo", i)
				}
				if !g.n.Ordered() {
					t.Fatal("Ordered = false, want true")
				}
			}
		})
	}
}

// An acquire that a slow network brings after its undo was answered on another connection finds
// its own connection dead. Without the KILL it takes the lock, which shows that this test can fail.
func TestLateBytesFindTheirConnectionDead(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{true, false} {
		srv := redistest.Own(t, redistest.Config{})
		var s spy
		n := newNode(t, s.options(optionsOf(t, srv)))
		n.unordered.Store(!ordered)
		echo(t, n, "before")
		old := s.last()
		old.hold()
		_, err := n.Do(t.Context(), time.Now().Add(50*time.Millisecond), "SET", "k", "tok", "NX", "PX", 60000)
		want(t, "SET that is stuck on its way", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		reply, err := n.Eval(t.Context(), soon(), release, []string{"k"}, "tok")
		if err != nil || reply != int64(0) {
			t.Fatalf("undo = %v, %v, want 0: nothing is there yet", reply, err)
		}
		old.deliver()
		echo(t, n, "after")
		if got, ghost := redistest.Do(t, srv, "EXISTS", "k"), map[bool]int64{true: 0, false: 1}[ordered]; got != ghost {
			t.Errorf("ordered %v: EXISTS = %v after the late SET, want %d", ordered, got, ghost)
		}
		if n.Ordered() != ordered {
			t.Errorf("Ordered = %v, want %v", n.Ordered(), ordered)
		}
	}
}

type ghosts struct {
	config redistest.Config
	ready  bool // a connection that is there already comes next

	srv *redistest.Server
	spy spy
	n   *node
}

func (g *ghosts) start(t *testing.T) {
	g.srv = redistest.Own(t, g.config)
	g.n = newNode(t, g.spy.options(optionsOf(t, g.srv)))
}

// try acquires on a frozen server, undoes that as the engine does, and reports whether the
// key is there when it must not be.
func (g *ghosts) try(t *testing.T, i int) bool {
	t.Helper()
	ctx := t.Context()
	key := fmt.Sprintf("ghost:%d", i)
	if _, err := g.n.Do(ctx, soon(), "GET", key); err != nil {
		t.Fatal(err)
	}
	if g.ready { // the client's pool has one more
		before := g.spy.dialled()
		if err := g.n.Session(ctx, soon(), key, func(c driver.Conn) error { _, err := c.Do("PING"); return err }); err != nil {
			t.Fatal(err)
		}
		verdict.Eventually(t, "the session's connection is back", func() bool { return g.spy.dialled() >= before })
	}
	redistest.Skip(t, g.srv.Freeze(ctx), "no ghost keys after a freeze")
	if g.ready {
		// An empty line gets no answer, but puts the connection first in the line of those
		// that the server finds readable when it thaws.
		g.spy.mu.Lock()
		for _, c := range g.spy.conns {
			c.Conn.Write([]byte("\r\n"))
		}
		g.spy.mu.Unlock()
	}
	_, err := g.n.Do(ctx, time.Now().Add(ghostOp), "SET", key, "tok", "NX", "PX", 5000)
	want(t, "SET on a frozen server", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)

	begun, undone := make(chan struct{}, 1000), make(chan struct{})
	go func() {
		defer close(undone)
		for {
			begun <- struct{}{}
			if g.undo(ctx, key) == nil || ctx.Err() != nil {
				return
			}
		}
	}()
	for range 1 + i%2 { // the thaw comes in the first undo, which is when it is worst, or in the second
		receive(t, "an undo", begun)
	}
	if err := g.srv.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the undo", undone)
	// The bytes that lay in a socket at the thaw have been read by the time another connection has had an answer.
	redistest.Do(t, g.srv, "PING")
	return redistest.Do(t, g.srv, "EXISTS", key) == int64(1)
}

func (g *ghosts) undo(ctx context.Context, key string) error {
	_, err := g.n.Eval(ctx, time.Now().Add(ghostOp), release, []string{key}, "tok")
	return err
}

// A frozen server: a call ends at its due time, one that was sent unknown, one that waits for
// a connection unsent, and one whose context ends before that as soon as it does.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, optionsOf(t, srv))
	echo(t, n, "before")
	redistest.Skip(t, srv.Freeze(t.Context()), "what a frozen server is to its callers")
	const op = 200 * time.Millisecond
	timed := func(what string, ctx context.Context, within time.Duration, kinds ...error) {
		t.Helper()
		var err error
		verdict.Eventually(t, what, func() bool {
			began := time.Now()
			_, err = n.Do(ctx, began.Add(within), "SET", "k", "v")
			if took := time.Since(began); took > op+generous/2 {
				t.Errorf("%s took %v, want no longer than its time or its context", what, took)
			}
			return kinds[0] != strategy.ErrUnknown || !errors.Is(err, strategy.ErrUnsent) // a machine that is slow sends nothing in time
		})
		want(t, what, err, kinds...)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s = %v, which says that the caller's context ended", what, err)
		}
	}
	timed("SET that was sent", t.Context(), op, strategy.ErrUnknown, os.ErrDeadlineExceeded)
	timed("SET that waits for a connection", t.Context(), op, strategy.ErrUnsent, os.ErrDeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	timed("SET whose caller leaves", ctx, generous, strategy.ErrUnsent, context.Canceled)
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	verdict.Eventually(t, "an answer", func() bool {
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "ECHO", "after")
		return err == nil
	})
	if !n.Ordered() {
		t.Error("Ordered = false, want true")
	}
}

// Callers who leave a request that was sent do so at once where others wait with them, and
// the connection serves those who stay.
func TestCallersLeaveAndOthersStay(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	var s spy
	n := newNode(t, s.options(optionsOf(t, srv)))
	echo(t, n, "before")
	redistest.Skip(t, srv.Freeze(t.Context()), "that callers leave in time")
	line := s.last()
	call := func(ctx context.Context, due time.Time, text string) <-chan error {
		out := make(chan error, 1)
		go func() {
			reply, err := n.Do(ctx, due, "ECHO", text)
			if err == nil && fmt.Sprintf("%s", reply) != text {
				err = fmt.Errorf("ECHO %s = %s", text, reply)
			}
			out <- err
		}()
		return out
	}
	sends := func(text string) {
		t.Helper()
		verdict.Eventually(t, text+" is sent", func() bool { return strings.Contains(saidOn(line), text) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	alone := call(t.Context(), soon(), "alone")
	sends("alone")
	leaver := call(ctx, soon(), "leaver")
	late := call(t.Context(), time.Now().Add(50*time.Millisecond), "late")
	want(t, "the one whose time is up before it is sent", receive(t, "its end", late), strategy.ErrUnsent, os.ErrDeadlineExceeded)
	cancel()
	want(t, "the one whose context ends before it is sent", receive(t, "its end", leaver), strategy.ErrUnsent, context.Canceled)
	stays := call(t.Context(), soon(), "stays")
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, out := range map[string]<-chan error{"alone": alone, "stays": stays} {
		if err := receive(t, what, out); err != nil {
			t.Errorf("%s = %v", what, err)
		}
	}
	if said := saidOn(line); strings.Contains(said, "leaver") || strings.Contains(said, "late") {
		t.Errorf("said %q, want nothing of those who had left", said)
	}
	if s.dialled() != 2 {
		t.Errorf("%d connections, want the client's own and the pipe", s.dialled())
	}

	// Those who leave in the middle of a batch.
	if err := srv.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	alone = call(t.Context(), soon(), "first")
	sends("first")
	leaver, stays = call(ctx, soon(), "goes"), call(t.Context(), soon(), "remains")
	verdict.Eventually(t, "two wait", func() bool { n.pipe.mu.Lock(); defer n.pipe.mu.Unlock(); return len(n.pipe.queue) == 2 })
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel() // before, in or after the batch: what it hears must be true
	if err := receive(t, "goes", leaver); err != nil && !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("goes = %v", err)
	}
	if err := errors.Join(receive(t, "first", alone), receive(t, "remains", stays)); err != nil {
		t.Error(err)
	}
}

func TestDeadServerIsDialledOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	var s spy
	n := newNode(t, s.options(optionsOf(t, srv)))
	echo(t, n, "before")
	redistest.Skip(t, srv.Kill(t.Context()), "how often a dead server is dialled")
	n.Do(t.Context(), soon(), "SET", "k", "v") // it may have left before that was known
	tried := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.tries }
	before := tried()
	_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
	want(t, "SET to a dead server", err, strategy.ErrUnsent)
	if got := tried() - before; got != 1 {
		t.Errorf("%d dials for a request to a dead server, want 1", got)
	}
}

// A connection that died at rest costs nobody a request, once it was idle for a while.
func TestConnectionThatDiedAtRest(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, optionsOf(t, srv))
	echo(t, n, "before")
	redistest.Skip(t, srv.Restart(t.Context()), "that a restart is passed over")
	n.pipe.lent.used = time.Now().Add(-2 * probeAfter)
	echo(t, n, "after")
}

// A reply that is cut off in the middle is unknown, whatever its length; the next request is
// answered on a new connection.
func TestConnectionCutInTheMiddleOfAReply(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	var s spy
	n := newNode(t, s.options(optionsOf(t, srv)))
	for i, reply := range []string{"short", strings.Repeat("long", 10000)} {
		for _, after := range []int64{1, 3, int64(len(reply)) / 2, int64(len(reply))} {
			echo(t, n, "before")
			s.cutAfter.Store(after)
			key := fmt.Sprint("k", i)
			_, err := n.Do(t.Context(), soon(), "EVAL", "redis.call('INCR', KEYS[1]) return ARGV[1]", 1, key, reply)
			s.repair()
			want(t, fmt.Sprintf("a reply cut off after %d bytes", after), err, strategy.ErrUnknown)
		}
		echo(t, n, "after")
		// It was sent once each time, and never again.
		if got := fmt.Sprintf("%s", redistest.Do(t, srv, "GET", fmt.Sprint("k", i))); got != "4" {
			t.Errorf("counted %s, want 4", got)
		}
	}
	// A script's reply likewise, through EVALSHA.
	count := driver.NewScript("count", "return redis.call('INCR', KEYS[1])")
	if _, err := n.Eval(t.Context(), soon(), count, []string{"c"}); err != nil {
		t.Fatal(err)
	}
	s.cutAfter.Store(1)
	_, err := n.Eval(t.Context(), soon(), count, []string{"c"})
	s.repair()
	want(t, "a script's reply cut off", err, strategy.ErrUnknown)
	if reply, err := n.Eval(t.Context(), soon(), count, []string{"c"}); err != nil || reply != int64(3) {
		t.Errorf("count = %v, %v, want 3", reply, err)
	}
}

// The reply to an acquire is lost: that is unknown, and what it has left is undone long before
// its TTL, though the server heard of it on another connection.
func TestLostReplyOnAcquireIsUndone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1, redistest.Config{})
	for what, breaks := range map[string]func(*rig.Link){
		"cut":  func(l *rig.Link) { l.Cut(rig.Replies) },
		"held": func(l *rig.Link) { l.Hold(rig.Replies) },
		"late": func(l *rig.Link) { l.Hold(rig.Both) },
	} {
		t.Run(what, func(t *testing.T) {
			link := r.Nodes[0].Link()
			n := newNode(t, quick(rueidis.ClientOption{InitAddress: []string{link.Addr()}}))
			locks, err := fairqueue.New(n, strategy.Options{TTL: time.Minute, OpTimeout: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer locks.Close()
			lock := locks.NewLock(what)
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			breaks(link)
			_, err = lock.TryAcquire(t.Context())
			if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
				t.Errorf("TryAcquire = %v, want unknown", err)
			}
			if what != "late" {
				if got := redistest.Do(t, r.Nodes[0].Server(), "EXISTS", "lock:{"+what+"}"); got != int64(1) {
					t.Fatal("the lock was not taken: this proves nothing")
				}
			}
			link.Heal()
			other := newNode(t, optionsOf(t, r.Nodes[0].Server()))
			verdict.Eventually(t, "the lock is free", func() bool {
				reply, err := other.Do(t.Context(), soon(), "EXISTS", "lock:{"+what+"}")
				return err == nil && reply == int64(0) && !n.pipe.unsettled()
			})
			if !n.Ordered() {
				t.Error("Ordered = false, want true")
			}
			if lease, err = lock.TryAcquire(t.Context()); err != nil {
				t.Errorf("TryAcquire after that = %v", err)
			} else if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where the server forbids the KILL there is no order: an acquire that comes after its undo
// leaves a lock that nobody holds, and it is undone all the same, long before its TTL.
func TestLateAcquireIsUndoneWithoutOrder(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	var s spy
	n := newNode(t, s.options(optionsOf(t, srv)))
	n.unordered.Store(true)
	locks, err := fairqueue.New(n, strategy.Options{TTL: time.Minute, OpTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lock := locks.NewLock("late")
	lease, err := lock.TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, before := s.last(), s.dialled()
	old.hold()
	_, err = lock.TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("TryAcquire = %v, want unknown", err)
	}
	verdict.Eventually(t, "an undo that finds nothing", func() bool {
		return s.dialled() > before && strings.Contains(saidOn(s.last()), "EVALSHA")
	})
	held := func() bool { return redistest.Do(t, srv, "EXISTS", "lock:{late}") == int64(1) }
	if held() {
		t.Fatal("the lock was taken before its time")
	}
	old.deliver()
	began := time.Now()
	if !held() {
		t.Log("the late acquire was undone before anybody could look")
	}
	verdict.Eventually(t, "the lock is free", func() bool { return !held() })
	t.Logf("a lock that nobody held was there for %v of its TTL of a minute", time.Since(began))
	for range 2 { // and it stays free
		lease, err := lock.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A fail-over makes a server a replica: its connections are left, as the address may lead to
// the new master by now; not more than once a second.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1, redistest.Config{})
	var s spy
	n := newNode(t, s.options(rueidis.ClientOption{InitAddress: []string{r.Nodes[0].Link().Addr()}}))
	echo(t, n, "before")
	h, stop := nodetest.Subscribe(t, n, "c")
	defer stop()
	if err := r.Nodes[0].ReadOnly(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		want(t, what+" on a server that is read-only", err, strategy.ErrRefused)
		if !strings.Contains(fmt.Sprint(err), "READONLY") {
			t.Errorf("%s = %v, want the server's words", what, err)
		}
	}
	lt := n.pipe.lent
	_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
	refused("SET", err)
	if n.pipe.lent == lt {
		t.Error("the connection is not left")
	}
	if got := receive(t, "the subscription's end", h.Ends); !errors.Is(got, subscription.ErrReplaced) {
		t.Errorf("heard %v, want that the server is a replica", got)
	}
	set := func(c driver.Conn) error { _, err := c.Do("SET", "k", "v"); return err }
	refused("SET in a session", n.Session(t.Context(), soon(), "k", set))
	before := s.dialled()
	if err := r.Nodes[0].Writable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Session(t.Context(), soon(), "k", set); err != nil {
		t.Errorf("SET in a session = %v", err)
	}
	if s.dialled() == before {
		t.Error("the session's connection to a replica was lent again")
	}
	if _, err := n.Do(t.Context(), soon(), "SET", "k", "v"); err != nil {
		t.Errorf("SET on a new connection = %v", err)
	}
}
