// Sessions: their connections go back clean, and keep the order with the pipe.
package redigonode

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// The node undoes what is left open, and uses the connection again.
func TestSessionsConnectionGoesBackClean(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	pool := plainPool(t, srv, 1)
	n := newNode(t, pool)
	key := "session:" + t.Name()
	if _, err := n.Do(t.Context(), soon(), "SET", key, "a", "PX", 60000); err != nil {
		t.Fatal(err)
	}
	for _, open := range []string{"WATCH", "MULTI"} {
		if err := n.Session(t.Context(), soon(), key, func(c driver.Conn) error {
			if open == "MULTI" {
				_, err := c.Do(open)
				return err
			}
			_, err := c.Do(open, key)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	c := pool.Get()
	defer c.Close()
	if r, err := redis.String(c.Do("GET", key)); r != "a" || err != nil {
		t.Errorf("GET after sessions = %q, %v, want a, nil: the connection is not clean", r, err)
	}
	if got := pool.ActiveCount(); got != 1 {
		t.Errorf("%d connections in the pool, want 1", got)
	}
}

func TestSessionReturnsItsConnectionOnPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		pool.MaxActive = 1
		n := newNode(t, pool)
		func() {
			defer func() { recover() }()
			n.Session(t.Context(), soon(), "k", func(driver.Conn) error { panic("fn's") })
		}()
		if pool.IdleCount() != 1 {
			t.Errorf("%d idle connections after a panic, want 1", pool.IdleCount())
		}
		// And an exhausted pool sent nothing.
		err := n.Session(t.Context(), soon(), "k", func(driver.Conn) error {
			return n.Session(t.Context(), soon(), "k", nil)
		})
		want(t, "Session of an exhausted pool", err, strategy.ErrUnsent, redis.ErrPoolExhausted)
	})
}

func TestSessionWaitsForThePoolUntilDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		pool.MaxActive, pool.Wait = 1, true
		n := newNode(t, pool)
		n.Session(t.Context(), soon(), "k", func(driver.Conn) error {
			err := n.Session(t.Context(), time.Now().Add(20*time.Millisecond), "k", nil)
			want(t, "Session of a busy pool", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
			return nil
		})
		if err := n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }); err != nil {
			t.Errorf("Session of a free pool = %v", err)
		}
	})
}

func TestSessionLeavesAHangingDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := &redis.Pool{MaxIdle: 1, Dial: func() (redis.Conn, error) {
			<-let
			return dial(f)
		}}
		n := newNode(t, pool)
		for i := range client.MostLeft + 1 {
			err := n.Session(t.Context(), time.Now().Add(5*time.Millisecond), "k", nil)
			want(t, "Session while dials hang", err, strategy.ErrUnsent)
			if i < client.MostLeft != errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("session %d = %v", i, err)
			}
		}
		close(let)
		n.gets.Wait(generous)
		if err := n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := pool.ActiveCount() - pool.IdleCount(); n != 0 {
			t.Errorf("%d connections that came late were not given back, want none", n)
		}
	})
}

// The order includes sessions: the connection of a command of theirs that got no reply is killed
// before the pipe sends anything more.
func TestUnconfirmedSessionIsKilledFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, held := holding(t)
		n := newNode(t, poolOf(f))
		echo(t, n, "before")
		err := n.Session(t.Context(), time.Now().Add(100*time.Millisecond), "k", func(c driver.Conn) error {
			_, err := c.Do("HOLD", "k")
			want(t, "command without a reply", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
			_, again := c.Do("SET", "k")
			want(t, "command after it", again, strategy.ErrUnsent)
			return err
		})
		receive(t, "HOLD", held)
		want(t, "Session", err, strategy.ErrUnknown)
		echo(t, n, "undo")
		wantSeen(t, f, "1 ECHO before", "2 HOLD k", "3 CLIENT KILL ID 2 ADDR client:2", "3 ECHO undo")
	})
}

// And the other way round: a session is not overtaken by what came before it.
func TestSessionComesAfterWhatTimedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		set := func(c driver.Conn) error { _, err := c.Do("SET", "k"); return err }

		f, held := holding(t)
		n := newNode(t, poolOf(f))
		out := hold(n, t.Context(), time.Now().Add(time.Second))
		receive(t, "HOLD", held)
		want(t, "leader without a reply", receive(t, "return", out), strategy.ErrUnknown)
		err := n.Session(t.Context(), time.Now(), "k", set)
		want(t, "Session when due", err, strategy.ErrUnsent)
		if err := n.Session(t.Context(), soon(), "k", set); err != nil {
			t.Fatal(err)
		}
		if err := n.Session(t.Context(), soon(), "k", set); err != nil { // now it is settled
			t.Fatal(err)
		}
		wantSeen(t, f, "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 PING", "3 SET k", "3 SET k")

		// The same on a connection that lives: a follower left, its reply is to come.
		f, held = holding(t)
		n = newNode(t, poolOf(f))
		first := hold(n, t.Context(), soon())
		c := receive(t, "first HOLD", held)
		ctx, cancel := context.WithCancel(t.Context())
		second := hold(n, ctx, soon())
		receive(t, "second HOLD", held)
		cancel()
		receive(t, "second's return", second)
		c.Bulk("first")
		receive(t, "first's return", first)
		done := make(chan error, 1)
		go func() { done <- n.Session(t.Context(), soon(), "k", set) }()
		verdict.Eventually(t, "a PING", func() bool { return slices.Contains(f.Log(), "1 PING") })
		// The fake has answered the PING, which the node takes for the second HOLD's.
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "1 PING")
		c.Say("+PONG\r\n")
		if err := receive(t, "Session", done); err != nil {
			t.Error(err)
		}
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "1 PING", "2 SET k")

		// Nothing of a session is sent if that does not come in time.
		first = hold(n, t.Context(), soon())
		receive(t, "first HOLD", held)
		ctx, cancel = context.WithCancel(t.Context())
		second = hold(n, ctx, soon())
		receive(t, "second HOLD", held)
		cancel()
		receive(t, "second's return", second)
		c.Bulk("first")
		receive(t, "first's return", first)
		err = n.Session(t.Context(), time.Now().Add(time.Second), "k", set)
		want(t, "Session after a PING without a reply", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		f.Serve(func(*nodetest.Conn, []string) {})
		err = n.Session(t.Context(), time.Now().Add(time.Second), "k", set)
		want(t, "Session on a silent server", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
	})
}

func TestSessionPassesOverDeadConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		n := newNode(t, pool)
		a, b := pool.Get(), pool.Get()
		a.Do("PING")
		b.Do("PING")
		a.Close()
		b.Close()
		f.Cut()
		if err := n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
			_, err := c.Do("SET", "k")
			return err
		}); err != nil {
			t.Errorf("Session = %v, want nil on a new connection", err)
		}
		if f.Dialled() != 3 {
			t.Errorf("%d connections, want 3", f.Dialled())
		}
	})
}

// Whatever is not answered on one of many connections that a firewall drops, the next call goes over a new one.
func TestSilentPool(t *testing.T) {
	set := func(t *testing.T, n *node) error {
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "SET", "k")
		return err
	}
	session := func(t *testing.T, n *node) error {
		return n.Session(t.Context(), time.Now().Add(time.Second), "k", func(c driver.Conn) error {
			_, err := c.Do("SET", "k")
			return err
		})
	}
	within := func(t *testing.T, n *node) error { // the silence begins when the session has begun
		return n.Session(t.Context(), time.Now().Add(time.Second), "k", func(c driver.Conn) error {
			_, err := c.Do("MUTE")
			return err
		})
	}
	for name, calls := range map[string][2]func(*testing.T, *node) error{
		"command, command": {set, set},
		"command, session": {set, session},
		"session, session": {session, session},
		"within, session":  {within, session},
	} {
		bubbled(t, name, func(t *testing.T) {
			var old atomic.Int32
			f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
				if c.ID > int(old.Load()) && cmd[0] != "MUTE" {
					c.Plain(cmd)
				}
			})
			pool := poolOf(f)
			pool.MaxIdle = 12
			n := newNode(t, pool)
			echo(t, n, "warm")
			var idle []redis.Conn
			for range pool.MaxIdle {
				idle = append(idle, pool.Get())
			}
			for _, c := range idle {
				c.Close()
			}
			if name != "within, session" {
				old.Store(int32(f.Dialled()))
			} else {
				time.AfterFunc(time.Second/2, func() { old.Store(int32(f.Dialled())) })
			}
			if err := calls[0](t, n); !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
				t.Errorf("the first call = %v, want no answer", err)
			}
			for range 3 {
				if err := calls[1](t, n); err != nil {
					t.Errorf("a call after that = %v, want nil on a new connection", err)
				}
			}
		})
	}
}

// When the server is frozen, a session ends when it is due, not when the server goes on, and its connection is
// not used again.
func TestSessionOnAFrozenServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	pool := plainPool(t, srv, 1)
	n := newNode(t, pool)
	verdict.Conclusive(t, func() verdict.Slow {
		frozen := false
		err := n.Session(t.Context(), time.Now().Add(300*time.Millisecond), "k", func(c driver.Conn) error {
			if _, err := c.Do("WATCH", "k"); err != nil {
				return err
			}
			redistest.Skip(t, srv.Freeze(t.Context()), "that a session ends when due")
			frozen = true
			return nil
		})
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if !frozen {
			return verdict.Slowf("the session was over before the server was frozen: %v", err)
		}
		if pool.IdleCount() != 0 {
			t.Error("a connection with a WATCH went back to the pool")
		}
		if err := srv.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		return ""
	})
}

func TestCloseEndsSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, poolOf(f))
		in, closed := make(chan struct{}), make(chan struct{})
		out := make(chan error, 1)
		go func() {
			out <- n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
				close(in)
				for n.gate.IsClosed() == false {
					time.Sleep(time.Millisecond)
				}
				select {
				case <-closed:
					t.Error("Close returned while a session was open")
				default:
				}
				_, err := c.Do("SET", "k")
				return err
			})
		}()
		receive(t, "fn", in)
		n.Close()
		close(closed)
		want(t, "Session", receive(t, "Session's return", out), strategy.ErrUnsent, strategy.ErrClosed)
	})
}
