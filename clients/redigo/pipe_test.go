// The pipe: whose reply is whose, what is known when there is none, and what is killed before the next.
package redigonode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
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

func TestFollowerLeavesAndTheConnectionStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f, held := holding(t)
		leader := hold(n, t.Context(), soon())
		c := receive(t, "HOLD by the leader", held)
		cause := errors.New("follower's reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		follower := hold(n, ctx, soon())
		receive(t, "HOLD by the follower", held)
		cancel(cause)
		wantFailed(t, "cancelled follower", follower, strategy.ErrUnknown, cause)
		late := hold(n, t.Context(), time.Now().Add(300*time.Millisecond))
		wantFailed(t, "follower at its due", late, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		receive(t, "HOLD by the late follower", held)
		for i := range 3 { // replies of those who have left must not become anybody else's
			c.Bulk(fmt.Sprint("held ", i))
		}
		wantReply(t, leader, "held 0")
		echo(t, n, "own")
		wantDials(t, f, 1)
	})
}

func TestLeaderLeavesAtTheNextReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f, held := holding(t)
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
		wantFailed(t, "second", second, strategy.ErrUnknown, context.Canceled)
		c.Bulk("1")
		wantReply(t, first, "1")
		synctest.Wait() // the third reads
		cancel(cause)
		c.Bulk("2")
		wantFailed(t, "leader whose context ended", third, strategy.ErrUnknown, cause)
		// Nobody waits now; the next caller reads what is left, and then its own.
		c.Bulk("3")
		echo(t, n, "own")
		wantDials(t, f, 1)
	})
}

// Each leaves when due, in whichever order they came.
func TestEachLeavesWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _, held := holding(t)
		hold(n, t.Context(), soon())
		receive(t, "HOLD", held)
		start, out := time.Now(), make(chan [2]time.Duration, 3)
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

// An op that is queued when its caller leaves is never sent; the answer of the dial is of use to those who have stayed.
func TestQueuedCallThatLeftIsNeverSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			<-let
			c.Plain(cmd)
		})
		first := begin(n, t.Context(), soon(), "ECHO", "first")
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		got := begin(n, ctx, soon(), "SET", "never")
		synctest.Wait()
		cause := errors.New("waited enough")
		cancel(cause)
		wantFailed(t, "Do while dialling", got, strategy.ErrUnsent, cause)
		_, err := n.Do(t.Context(), time.Now().Add(20*time.Millisecond), "SET", "never")
		want(t, "Do while dialling, due", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		close(let)
		wantReply(t, first, "first")
		echo(t, n, "later") // the flight is in step, too
		wantSeen(t, f, "1 ECHO first", "1 ECHO later")
	})
}

// Rule 1: what was given up is dead before anything else is sent.
func TestGivenUpConnectionIsKilledFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f, held := holding(t)
		out := hold(n, t.Context(), time.Now().Add(50*time.Millisecond))
		receive(t, "HOLD", held)
		follower := hold(n, t.Context(), soon())
		receive(t, "the follower's HOLD", held)
		wantFailed(t, "leader without a reply", out, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		wantFailed(t, "follower", follower, strategy.ErrUnknown, errGivenUp)
		echo(t, n, "undo")
		seen := []string{"1 HOLD k", "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO undo"}
		wantSeen(t, f, seen...)

		// Done once, it is not done again: the next loss is of 2 alone.
		out = hold(n, t.Context(), time.Now().Add(50*time.Millisecond))
		wantFailed(t, "leader without a reply", out, strategy.ErrUnknown)
		echo(t, n, "again")
		wantSeen(t, f, append(seen, "2 HOLD k", "3 CLIENT KILL ID 2 ADDR client:2", "3 ECHO again")...)
		if !n.Ordered() {
			t.Error("Ordered = false, want true: every KILL was obeyed")
		}
	})
}

// A connection that dies while it kills has confirmed nothing.
func TestKillIsRepeatedUntilConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "HOLD" || c.ID == 2 && strings.Contains(strings.Join(cmd, " "), "KILL ID 1 ADDR client") {
				c.Close() // the server's end says nothing about a proxy's
				return
			}
			c.Plain(cmd)
		})
		wantFailed(t, "cut off leader", hold(n, t.Context(), soon()), strategy.ErrUnknown, io.EOF)
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
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case cmd[0] == "HOLD" || c.ID > 2: // only the first dial is ever answered
				return
			case c.ID == 1:
				<-let
			}
			c.Plain(cmd)
		})
		_, err := n.Do(t.Context(), time.Now().Add(leastPatience), "SET", "k")
		want(t, "Do while the first dial hangs", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		if _, err = n.Do(t.Context(), time.Now().Add(leastPatience), "PING", ""); err != nil {
			t.Fatalf("PING over a second dial = %v, want nil", err)
		}
		wantFailed(t, "leader without a reply", hold(n, t.Context(), time.Now().Add(100*time.Millisecond)), strategy.ErrUnknown)
		close(let)
		echo(t, n, "undo")
		wantSeen(t, f, "2 PING", "2 HOLD k", "1 CLIENT KILL ID 2 ADDR client:2", "1 ECHO undo")
	})
}

// A kill that is refused ends the order, and is not tried again.
func TestRefusedKillEndsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case strings.HasSuffix(strings.Join(cmd, " "), "ADDR client:1"):
				c.Say("-NOPERM this user has no permissions\r\n")
			case cmd[0] != "HOLD":
				c.Plain(cmd)
			}
		})
		wantFailed(t, "leader without a reply", hold(n, t.Context(), time.Now().Add(time.Second)), strategy.ErrUnknown)
		if !n.Ordered() {
			t.Error("Ordered = false before anything was refused")
		}
		echo(t, n, "works")
		if n.Ordered() || n.pipe.toKill != nil {
			t.Errorf("Ordered = %v, %d connections are still to be killed, want false, none", n.Ordered(), len(n.pipe.toKill))
		}
	})
}

// An error that only speaks of the server's state is no refusal; nor is one behind which the server hangs up.
func TestPassingRefusalFailsTheDialOnly(t *testing.T) {
	t.Parallel()
	for said, hangsUp := range map[string]bool{"-BUSY Redis is busy running a script": false, "-DENIED protected": true, "-ERR go away": true} {
		bubbled(t, said, func(t *testing.T) {
			first := func(c *nodetest.Conn, cmd []string) {
				if c.ID > 1 {
					c.Plain(cmd)
					return
				}
				if c.Say("%s\r\n", said); hangsUp {
					time.Sleep(time.Millisecond) // the client reads that first
					c.Close()
				}
			}
			if n, f := nodeOn(t, first); said != "-ERR go away" { // which forbids CLIENT INFO, that a subscription can do without
				_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
				want(t, "Subscribe", err, strategy.ErrUnsent)
				if time.Sleep(time.Second); f.Open() > 0 {
					t.Error("the connection for subscriptions is open")
				}
			}
			n, _ := nodeOn(t, first)
			_, err := n.Do(t.Context(), soon(), "SET", "k")
			if want(t, "Do", err, strategy.ErrUnsent); !strings.Contains(err.Error(), said[1:]) {
				t.Errorf("Do = %v, want the server's words", err)
			}
			if echo(t, n, "now"); !n.Ordered() {
				t.Error("Ordered = false, want true")
			}
		})
	}
}

// A reply that nobody has asked for ends the pipe's connection, and the error has it.
func TestUnaskedReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := nodeOn(t, (*nodetest.Conn).Plain)
		echo(t, n, "x")
		locked(n, func(p *pipe) {
			w := p.wire
			p.receive(w, nil, redis.Error("ERR by the way"), time.Now())
			if !w.closed || !errors.Is(w.cause, errLost) || !strings.Contains(w.cause.Error(), "ERR by the way") {
				t.Errorf("closed = %v, %v, want the end, with the server's words", w.closed, w.cause)
			}
		})
		echo(t, n, "next")
	})
}

// A greeting at which redigo panics does not come from Redis: callers learn it, and the node goes on with another connection.
func TestNonsenseInTheGreeting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if c.ID == 1 && cmd[0] == "CLIENT" {
				c.Say("*999999999999999\r\n")
				return
			}
			c.Plain(cmd)
		})
		_, err := n.Do(t.Context(), soon(), "ECHO", "x")
		want(t, "Do", err, strategy.ErrUnsent)
		echo(t, n, "after")
	})
}

// An op that the writer did not get to send goes out on the next connection.
func TestRestOfABatchIsSentElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let, f := make(chan struct{}), nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, hook(f, func(h *hooked) {
			<-let
			h.send = func(c redis.ConnWithTimeout, cmd string, args ...any) error {
				if cmd == "FAIL" {
					c.Close()
					return io.ErrClosedPipe
				}
				return c.Send(cmd, args...)
			}
		}))
		outs := map[string]<-chan error{}
		for _, cmd := range []string{"ECHO", "FAIL", "TYPE"} {
			outs[cmd] = begin(n, t.Context(), soon(), cmd, "x")
			synctest.Wait()
		}
		close(let)
		wantFailed(t, "what was written to a connection that broke", outs["ECHO"], strategy.ErrUnknown)
		wantFailed(t, "what broke it", outs["FAIL"], strategy.ErrUnknown)
		wantReply(t, outs["TYPE"], "OK") // what was not written goes elsewhere
		wantSeen(t, f, "2 CLIENT KILL ID 1 ADDR client:1", "2 TYPE x")
	})
}

// Half of those who were under way together go before the others: the last of them sends
// for all who have come, the writer that has yielded among them, and nobody next to it.
func TestHalf(t *testing.T) {
	t.Parallel()
	bubbled(t, "LastSends", func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		reached, may, stall := make(chan struct{}), make(chan struct{}), false
		n := newNode(t, hook(f, func(h *hooked) {
			h.flush = func(c redis.ConnWithTimeout) error {
				if stall {
					stall = false
					reached <- struct{}{}
					<-may
				}
				return c.Flush()
			}
		}))
		echo(t, n, "warm")
		first := n.pipe.newOp("ECHO", soon())
		first.add("0")
		var w *wire
		locked(n, func(p *pipe) {
			w = p.wire
			p.queue = append(p.queue, first)
			w.writer, first.on = first, w
			p.limitWriter(w, first)
			w.gathering, w.lastInFlight = true, 2*leastHalf // as while the writer yields
		})
		var outs []<-chan error
		seen := []string{"1 ECHO warm", "1 ECHO 0"}
		come := func(i int, due time.Time) {
			outs = append(outs, begin(n, t.Context(), due, "ECHO", strconv.Itoa(i)))
			seen = append(seen, "1 ECHO "+strconv.Itoa(i))
		}
		for i := 1; i < leastHalf-1; i++ {
			come(i, soon())
			synctest.Wait()
		}
		last := soon().Add(time.Second)
		stall = true
		come(leastHalf-1, last)
		receive(t, "the last one's packet", reached)
		locked(n, func(p *pipe) {
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
		})
		close(may)
		for i, out := range outs {
			wantReply(t, out, strconv.Itoa(i+1))
		}
		locked(n, func(p *pipe) {
			if !first.finished || first.kind != nil {
				t.Errorf("the writer before has %v, %v, want its reply", first.reply, first.err)
			}
			if w.writer != nil || !w.writerDue.IsZero() {
				t.Error("somebody is still to write")
			}
		})
		wantSeen(t, f, seen...)
	})
	for _, c := range []struct {
		w      *wire
		n      int
		enough bool
	}{
		{&wire{gathering: true, lastInFlight: 100}, 50, true},
		{&wire{gathering: true, lastInFlight: 100}, 49, false},
		{&wire{gathering: true, lastInFlight: 2}, leastHalf - 1, false},
		{&wire{lastInFlight: 100}, 60, false},
		{&wire{gathering: true, lastInFlight: 100, retired: true}, 60, false},
	} {
		if got := c.w.gathered(c.n); got != c.enough {
			t.Errorf("%d of %d, gathering %v, retired %v: enough = %v, want %v", c.n, c.w.lastInFlight, c.w.gathering, c.w.retired, got, c.enough)
		}
	}
}

// A writer waits for as long as others come, while it and its connection can still send for them.
func TestGather(t *testing.T) {
	// On one processor who yields mostly runs again after those who were ready: so one comes at each yield.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const others = 50
	for name, c := range map[string]struct {
		closed, retired bool
		due             time.Time
		waits           bool
	}{
		"all":     {due: soon(), waits: true},
		"late":    {due: time.Now().Add(-time.Second)},
		"closed":  {closed: true, due: soon()},
		"retired": {retired: true, due: soon()},
	} {
		most := 0
		for tries := 0; tries < 1000 && most <= others/5; tries++ {
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
				t.Errorf("%s: gather = false, or others do not see that it waits: %v", name, w.gathering)
			}
			most = max(most, len(p.queue)-1)
			p.mu.Unlock()
			come.Wait()
		}
		if waits := most > others/5; waits != c.waits {
			t.Errorf("%s: of %d who came one after the other it waited for %d at most, want it to wait for many: %v", name, others, most, c.waits)
		}
	}
}

// A writer whose time is over when it has waited for others sends nothing.
func TestWriterWhoseTimeIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := nodeOn(t, (*nodetest.Conn).Plain)
		echo(t, n, "warm")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		locked(n, func(p *pipe) {
			w, o, other := p.wire, &op{due: soon()}, &op{due: soon()}
			w.busy, w.writer, o.on, p.queue = true, o, w, []*op{o, other}
			p.write(ctx, o)
			if len(p.queue) != 2 || !w.flight.empty() || w.writer != nil {
				t.Errorf("%d ops in the queue, %d in flight, want 2, 0, and nobody to write", len(p.queue), len(w.flight.waiting()))
			}
			p.queue = nil
		})
	})
}

// A connection that takes no further bytes is given up when its writer is due, and others do not wait for its end.
func TestStuckWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, stuck, free, conns := nodetest.NewInMemory(t, (*nodetest.Conn).Plain), false, make(chan struct{}), 0
		n := newNode(t, hook(f, func(h *hooked) {
			if conns++; conns > 1 {
				return
			}
			h.flush = func(c redis.ConnWithTimeout) error {
				if stuck {
					<-free
					return io.ErrClosedPipe
				}
				return c.Flush()
			}
			h.close = func(c redis.ConnWithTimeout) error {
				time.Sleep(time.Second)
				close(free)
				return c.Close()
			}
		}))
		echo(t, n, "warm")
		stuck = true
		start := time.Now()
		out := begin(n, t.Context(), start.Add(100*time.Millisecond), "SET", "k")
		synctest.Wait()
		if _, err := n.Do(t.Context(), start.Add(time.Second/2), "ECHO", "x"); err != nil || time.Since(start) != 100*time.Millisecond {
			t.Errorf("ECHO behind a writer that is stuck = %v after %v, want nil when that is due", err, time.Since(start))
		}
		wantFailed(t, "SET", out, strategy.ErrUnknown)
		wantSeen(t, f, "1 ECHO warm", "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO x")
	})
}

// An op sent to a connection that had been given up meanwhile is unknown at once.
func TestGivenUpWhileWriting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let, f, givenUp := make(chan struct{}), nodetest.NewInMemory(t, (*nodetest.Conn).Plain), false
		var n *node
		n = newNode(t, hook(f, func(h *hooked) { // it takes anything, although it is closed
			<-let
			h.send = func(c redis.ConnWithTimeout, cmd string, args ...any) error {
				if cmd == "CLIENT" {
					return c.Send(cmd, args...)
				}
				if !givenUp {
					locked(n, func(p *pipe) { p.giveUp(p.wire, errReplaced) })
				}
				givenUp = true
				return nil
			}
			h.flush = func(c redis.ConnWithTimeout) error {
				if givenUp {
					return nil
				}
				return c.Flush()
			}
		}))
		start := time.Now()
		first := begin(n, t.Context(), soon(), "SET", "first")
		synctest.Wait()
		second := begin(n, t.Context(), soon(), "SET", "second")
		synctest.Wait()
		close(let)
		wantFailed(t, "what was being written", first, strategy.ErrUnknown, errReplaced)
		wantFailed(t, "what was written then", second, strategy.ErrUnknown, errReplaced)
		if took := time.Since(start); took > 0 {
			t.Errorf("the callers left after %v, want at once", took)
		}
	})
}

// What a writer is about to send counts as sent: it may leave before the close.
func TestConnectionWithABatchIsUnconfirmed(t *testing.T) {
	t.Parallel()
	o := &op{}
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

// A reader whose time is up leaves, though it was given the duty meanwhile, and the connection stays.
func TestLateReaderLeavesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f, held := holding(t)
		echo(t, n, "warm")
		o, ahead := n.pipe.newOp("HOLD", time.Now()), n.pipe.newOp("HOLD", soon())
		locked(n, func(p *pipe) {
			w := p.wire
			p.queue = append(p.queue, ahead, o)
			w.writer, w.reader = ahead, ahead // or a goroutine would read for both
			ahead.on = w
			p.write(t.Context(), ahead)
			w.busy, ahead.abandoned, w.reader = false, true, nil
			if p.assign(); w.reader != o {
				t.Error("the oldest that waits is not the reader")
			}
			if p.read(t.Context(), o); w.closed {
				t.Error("a reader that came too late gave the connection up")
			}
			p.leave(o)
			o.due = soon() // or check might run between the two replies, and give the connection up for want of this one
		})
		receive(t, "HOLD", held).Say("+1\r\n+2\r\n")
		echo(t, n, "own")
		wantDials(t, f, 1)
	})
}

// A reply that is there is the truth, also when the context has ended meanwhile; but what is to be sent then is not.
func TestScriptIsNotSentForACallerWhoseContextEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "EVALSHA" {
				time.Sleep(time.Millisecond) // its caller reads by then
				cancel()
				c.Say("-NOSCRIPT No matching script.\r\n")
				return
			}
			c.Plain(cmd)
		})
		_, err := n.Eval(ctx, soon(), release, []string{"k"}, "tok")
		want(t, "Eval", err, strategy.ErrUnsent, context.Canceled)
		wantSeen(t, f, "1 EVALSHA "+release.Hash()+" 1 k tok")
	})
}

type shout string

func (s shout) RedisArg() any { return strings.ToUpper(string(s)) }

// endless is an argument that is made of another, for ever.
type endless struct{}

func (e endless) RedisArg() any { return e }

// Another caller may write the command when the call has returned: by then its arguments are the caller's again.
func TestArgumentsAreTheCallersAgainAfterReturn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ arg, want any }{{shout("loud"), "LOUD"}, {endless{}, "{}"}} { // as redigo prints them
		if got := plain(c.arg); got != c.want {
			t.Errorf("plain(%v) = %v, want %v", c.arg, got, c.want)
		}
	}
	buf := []byte("mine")
	kept := plain(buf).([]byte)
	if copy(buf, "ours"); string(kept) != "mine" {
		t.Errorf("plain keeps %q, want a copy", kept)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _, held := holding(t)
		var outs []<-chan error
		for range 5 {
			outs = append(outs, hold(n, t.Context(), soon()))
			receive(t, "HOLD", held)
		}
		n.Close()
		for _, out := range outs {
			wantFailed(t, "call in flight", out, strategy.ErrUnknown, strategy.ErrClosed)
		}

		n, _ = nodeOn(t, func(*nodetest.Conn, []string) {})
		out := hold(n, t.Context(), soon())
		synctest.Wait()
		n.Close()
		wantFailed(t, "queued call", out, strategy.ErrUnsent, strategy.ErrClosed)
	})
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
	if got := p.nextQueued(); got != live || !slices.Equal(p.queue, []*op{live}) {
		t.Errorf("nextQueued = %p of %d, want the one whose caller waits, alone in the queue", got, len(p.queue))
	}
}

// An op ends once, and not at all for a caller who has left. It is used again only if nobody else may have it.
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
			o.reply = nil
			(&pipe{n: &node{}}).result(t.Context(), o)
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

// A queue that never empties keeps its order, and its memory does not grow.
func TestFifoThatNeverEmpties(t *testing.T) {
	t.Parallel()
	var f fifo
	all := make([]op, 100_000)
	for waiting, most := range map[int]int{0: 8, 500: 8192} {
		f = fifo{}
		for pushed, popped := 0, 0; pushed < len(all); pushed++ {
			if f.push(&all[pushed]); len(f.waiting()) <= waiting {
				continue
			}
			if f.pop() != &all[popped] {
				t.Fatalf("pop %d is another than what was pushed then", popped)
			}
			popped++
		}
		if c := cap(f.ops); c > most || f.empty() != (waiting == 0) {
			t.Errorf("%d waiting ops take room for %d, want at most %d", waiting, c, most)
		}
	}
	f.cut(1000)
	if !f.empty() {
		t.Errorf("%d wait after more were cut than there are, want none", len(f.waiting()))
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
