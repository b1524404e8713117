// Sessions: their connections go back clean, and keep the order with the pipe.
package redigonode

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// doing is a session of one command.
func doing(n *node, ctx context.Context, due time.Time, cmd string) error {
	return n.Session(ctx, due, "k", func(c driver.Conn) error { _, err := c.Do(cmd, "k"); return err })
}

// A session waits for the pool until it is due, and gives the connection back also when fn panics.
func TestSessionOfABusyPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for wait, why := range map[bool]error{false: redis.ErrPoolExhausted, true: os.ErrDeadlineExceeded} {
			n, _ := nodeOn(t, (*nodetest.Conn).Plain)
			n.pool.MaxActive, n.pool.Wait = 1, wait
			func() {
				defer func() { recover() }()
				n.Session(t.Context(), soon(), "k", func(driver.Conn) error {
					want(t, "a session in a session", lend(t.Context(), n, time.Now().Add(20*time.Millisecond)), strategy.ErrUnsent, why)
					panic("fn's")
				})
			}()
			if err := lend(t.Context(), n, soon()); err != nil || n.pool.IdleCount() != 1 {
				t.Errorf("Session of a free pool = %v, %d idle connections after it, want nil, 1", err, n.pool.IdleCount())
			}
		}
	})
}

// A connection that comes when its session has left goes back to the pool.
func TestSessionLeavesAHangingDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let, f := make(chan struct{}), nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) { <-let; return dial(f) }})
		for range 2 {
			err := lend(t.Context(), n, time.Now().Add(5*time.Millisecond))
			want(t, "Session while dials hang", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		}
		close(let)
		if synctest.Wait(); n.pool.IdleCount() != 2 {
			t.Errorf("%d idle connections, want the 2 that came late", n.pool.IdleCount())
		}
	})
}

// The order includes sessions: the connection of a command of theirs that got no reply is killed
// before the pipe sends anything more.
func TestUnconfirmedSessionIsKilledFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f, _ := holding(t)
		echo(t, n, "before")
		want(t, "Session", n.Session(t.Context(), time.Now().Add(100*time.Millisecond), "k", func(c driver.Conn) error {
			_, err := c.Do("HOLD", "k")
			want(t, "command without a reply", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
			_, again := c.Do("SET", "k")
			want(t, "command after it", again, strategy.ErrUnsent)
			return err
		}), strategy.ErrUnknown)
		echo(t, n, "undo")
		wantSeen(t, f, "1 ECHO before", "2 HOLD k", "3 CLIENT KILL ID 2 ADDR client:2", "3 ECHO undo")
	})
}

// And the other way round: a session is not overtaken by what came before it.
func TestSessionComesAfterWhatTimedOut(t *testing.T) {
	t.Parallel()
	bubbled(t, "connection given up", func(t *testing.T) {
		n, f, _ := holding(t)
		wantFailed(t, "leader without a reply", hold(n, t.Context(), time.Now().Add(time.Second)), strategy.ErrUnknown)
		want(t, "Session when due", doing(n, t.Context(), time.Now(), "SET"), strategy.ErrUnsent)
		for range 2 { // the second time it is settled
			if err := doing(n, t.Context(), soon(), "SET"); err != nil {
				t.Fatal(err)
			}
		}
		wantSeen(t, f, "1 HOLD k", "2 CLIENT KILL ID 1 ADDR client:1", "2 PING", "3 SET k", "3 SET k")
	})
	bubbled(t, "connection that lives", func(t *testing.T) { // a follower left, its reply is to come
		n, f, held := holding(t)
		c := leaveBehind(t, n, held)
		done := make(chan error, 1)
		go func() { done <- doing(n, t.Context(), soon(), "SET") }()
		synctest.Wait()
		// The server in memory has answered the PING, which the node takes for the second HOLD's.
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "1 PING")
		c.Say("+PONG\r\n")
		if err := receive(t, "Session", done); err != nil {
			t.Error(err)
		}
		wantSeen(t, f, "1 HOLD k", "1 HOLD k", "1 PING", "2 SET k")

		// Nothing of a session is sent if that does not come in time.
		leaveBehind(t, n, held)
		for _, what := range []string{"Session after a PING without a reply", "Session on a silent server"} {
			err := doing(n, t.Context(), time.Now().Add(time.Second), "SET")
			want(t, what, err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
			f.Serve(func(*nodetest.Conn, []string) {})
		}
	})
	for said, begins := range map[string]bool{"-NOPERM no\r\n": true, "": false} { // a refusal is an answer
		bubbled(t, "PING is answered "+said, func(t *testing.T) {
			n, f, held := holding(t)
			leaveBehind(t, n, held)
			f.Serve(func(c *nodetest.Conn, cmd []string) {
				switch {
				case cmd[0] != "PING":
					c.Plain(cmd)
				case said == "":
					c.Close()
				default:
					c.Bulk("second")
					c.Say("%s", said)
				}
			})
			err := doing(n, t.Context(), soon(), "SET")
			if began := f.Seen("SET") == 1; began != begins || (err == nil) != begins || err != nil && !errors.Is(err, strategy.ErrUnsent) {
				t.Errorf("Session = %v, fn called: %v, want an error: %v", err, began, !begins)
			}
		})
	}
}

// A session's connection that cannot be cleaned is not lent again, in time or at all; and a server that has no time
// to say who it is lends none.
func TestSessionIsRefusedItsOwnCommands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var forbidden string
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if strings.HasPrefix(strings.Join(cmd, " "), forbidden) && forbidden != "" {
				c.Say("-%s no\r\n", map[string]string{"UNWATCH": "NOPERM", "CLIENT INFO": "BUSY"}[forbidden])
				return
			}
			c.Plain(cmd)
		})
		watch := func(what string, idle int) {
			t.Helper()
			if err := doing(n, t.Context(), soon(), "WATCH"); err != nil || n.pool.IdleCount() != idle {
				t.Errorf("%s = %v, %d idle connections, want nil, %d", what, err, n.pool.IdleCount(), idle)
			}
		}
		watch("Session", 1)
		forbidden = "UNWATCH"
		watch("Session that may not UNWATCH", 0)
		forbidden = "CLIENT INFO"
		err := doing(n, t.Context(), soon(), "WATCH")
		if want(t, "Session on a busy server", err, strategy.ErrUnsent); !strings.Contains(err.Error(), "BUSY no") || !n.Ordered() {
			t.Errorf("Session = %v, Ordered = %v, want the server's words, and the order kept", err, n.Ordered())
		}
		forbidden = ""
		due := time.Now().Add(time.Second)
		if err := n.Session(t.Context(), due, "k", func(c driver.Conn) error {
			_, err := c.Do("WATCH", "k")
			f.Serve(func(*nodetest.Conn, []string) {})
			return err
		}); err != nil || time.Now().After(due) {
			t.Errorf("Session whose server freezes = %v, %v after its due time, want nil in time", err, time.Since(due))
		}
		if n.pool.ActiveCount() != 0 {
			t.Errorf("%d connections are there, want none", n.pool.ActiveCount())
		}
	})
}

// A connection on which redigo has met with nonsense is not lent again, though the server has not hung up.
func TestNonsenseInASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "GET" {
				c.Say("*2\r\n$9223372036854775000\r\n")
				return
			}
			c.Plain(cmd)
		})
		want(t, "Session", doing(n, t.Context(), soon(), "GET"), strategy.ErrUnknown, errLost)
		if idle := n.pool.IdleCount(); idle != 0 {
			t.Errorf("%d idle connections, want none", idle)
		}
	})
}

// Nothing begins for a caller who is refused at the first word.
func TestSessionThatCannotBegin(t *testing.T) {
	t.Parallel()
	bubbled(t, "hung up on", func(t *testing.T) {
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) { c.Close() })
		want(t, "Session", lend(t.Context(), n, soon()), strategy.ErrUnsent)
		wantDials(t, f, 1) // it was new
	})
	bubbled(t, "silence", func(t *testing.T) {
		n, _ := nodeOn(t, func(c *nodetest.Conn, cmd []string) {})
		first, second := n.pool.Get(), n.pool.Get()
		first.Close() // it waits in the pool, and may be dead
		second.Close()
		want(t, "Session", lend(t.Context(), n, time.Now().Add(time.Second)), strategy.ErrUnsent, timeup.Err)
	})
	bubbled(t, "cancelled", func(t *testing.T) {
		n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil, ctx.Err()
		}})
		defer time.Sleep(2 * time.Second) // the dial ends in the bubble
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		want(t, "Session", lend(ctx, n, soon()), strategy.ErrUnsent, cause)
	})
}

// Where the server does not say who a connection is no session asks again, and a command without an
// answer costs the pipe no more than a PING.
func TestSessionsWithoutOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case cmd[0] == "CLIENT":
				asked++
				c.Say("-NOPERM no\r\n")
			case cmd[0] != "HOLD":
				c.Plain(cmd)
			}
		})
		if err := lend(t.Context(), n, soon()); err != nil || n.Ordered() {
			t.Fatalf("Session = %v, Ordered = %v, want nil, false", err, n.Ordered())
		}
		echo(t, n, "before")
		want(t, "Session", doing(n, t.Context(), time.Now().Add(time.Second), "HOLD"), strategy.ErrUnknown, timeup.Err)
		echo(t, n, "after")
		wantSeen(t, f, "2 ECHO before", "1 HOLD k", "2 PING", "2 ECHO after")
		if asked != 1 {
			t.Errorf("%d questions to the server who a connection is, want 1", asked)
		}
	})
}
