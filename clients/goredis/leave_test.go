// Tests which connections of the pool a node trusts: none of the same age after one was silent or broke, none to
// a server that has become a replica, and over TLS none that was idle before it has answered.
package goredisnode

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

const refusal = "READONLY You can't write against a read only replica."

// old answers by serve on the first connections, and as usual on those that are made later.
func old(conns int, serve func(c *nodetest.Conn, cmd []string)) func(*nodetest.Conn, []string) {
	return func(c *nodetest.Conn, cmd []string) {
		if c.ID <= conns {
			serve(c, cmd)
			return
		}
		c.Plain(cmd)
	}
}

func mute(*nodetest.Conn, []string) {}

// demoted answers as a replica.
func demoted(c *nodetest.Conn, cmd []string) {
	switch cmd[0] {
	case "SET":
		c.Say("-%s\r\n", refusal)
	case "HELLO":
		c.Hello("replica")
	default:
		c.Plain(cmd)
	}
}

func set(ctx context.Context, n *node, due time.Time) error {
	return second(n.Do(ctx, due, "SET", "k", "v"))
}

// TestServerHangsUp: a session whose first question a server does not answer asks once more, and then gives up.
func TestServerHangsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked atomic.Int32
		n, _ := inMemory(t, func(c *nodetest.Conn, _ []string) {
			asked.Add(1)
			c.Close()
		})
		err := n.Session(t.Context(), soon(), "k", func(driver.Conn) error { t.Error("the session begins"); return nil })
		want(t, "Session", err, strategy.ErrUnsent)
		if asked.Load() != 2 {
			t.Errorf("the session has asked %d times, want 2", asked.Load())
		}
	})
}

// A breaker is a limiter that lets nothing through while it is true.
type breaker struct{ atomic.Bool }

func (b *breaker) Allow() error {
	if b.Load() {
		return errors.New("too many failures")
	}
	return nil
}

func (b *breaker) ReportResult(error) {}

// TestBrokenPool: so it is if a connection ends in the middle of a request, whatever the client's limiter says then.
func TestBrokenPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		limiter := &breaker{}
		n.to.(single).client.Options().Limiter = limiter
		idle(t, n, 5)
		f.Serve(old(5, func(c *nodetest.Conn, cmd []string) { limiter.Store(true); c.Close() }))
		want(t, "SET", set(t.Context(), n, soon()), strategy.ErrUnknown)
		limiter.Store(false)
		if err := set(t.Context(), n, soon()); err != nil {
			t.Errorf("the next SET = %v, want nil on a new connection", err)
		}
	})
}

// TestImpatientCaller: a caller whose own time was too short says nothing of the connections.
func TestImpatientCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		idle(t, n, 5)
		f.Serve(mute)
		at := time.Now().Add(time.Millisecond)
		ctx, cancel := context.WithDeadline(t.Context(), at)
		defer cancel()
		for i, ctx := range []context.Context{ctx, &boundedContext{t.Context(), at.Add(time.Millisecond)}} { // the second's timer is late
			want(t, "SET", set(ctx, n, time.Now().Add(time.Second)), strategy.ErrUnknown)
			synctest.Wait()
			if got := f.Open(); got != 4-i {
				t.Errorf("%d connections are open, want %d: go-redis closes that of the request", got, 4-i)
			}
		}
	})
}

// TestDemoted: ten connections to what is a replica now cost one refusal, which no caller sees.
func TestDemoted(t *testing.T) {
	for what, first := range map[string]func(t *testing.T, n *node) error{
		"command": func(t *testing.T, n *node) error { return set(t.Context(), n, soon()) },
		"probe": func(t *testing.T, n *node) error {
			before := n.returns
			if got := n.Probe(t.Context(), soon()); got <= before {
				t.Errorf("Probe = %d, want more than %d", got, before)
			}
			return nil
		},
		"session": func(t *testing.T, n *node) error {
			return n.Session(t.Context(), soon(), "k", func(c driver.Conn) error { return second(c.Do("SET", "k", "v")) })
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n, f := inMemory(t, (*nodetest.Conn).Plain)
				h, _ := nodetest.Subscribe(t, n, "c")
				idle(t, n, 10)
				f.Serve(old(11, demoted))
				if err := first(t, n); err != nil {
					t.Errorf("%s = %v, want nil at the new primary", what, err)
				}
				want(t, "the end", await(t, "the end", h.Ends), strategy.ErrUnknown)
				if err := set(t.Context(), n, soon()); err != nil {
					t.Errorf("SET = %v, want nil", err)
				}
				synctest.Wait()
				refused := 0
				for _, line := range f.Log() {
					id, cmd, _ := strings.Cut(line, " ")
					if strings.HasPrefix(cmd, "SET") && id != "12" {
						refused++
					}
				}
				if f.Open() != 1 || refused > 1 {
					t.Errorf("%d connections are open, %d refusals, want one, and one at most", f.Open(), refused)
				}
			})
		})
	}
}

// TestDemotedInUse: connections that others give back after the replica was left cost no refusal that a
// caller sees, either.
func TestDemotedInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const others = 3
		let := make(chan struct{})
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		client := n.to.(single).client
		idle(t, n, others+1)
		f.Serve(old(others+1, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "GET" {
				<-let
			}
			demoted(c, cmd)
		}))
		read := make(chan error, others)
		for range others {
			go func() { read <- client.Get(t.Context(), "k").Err() }()
		}
		synctest.Wait()
		sets := 0
		client.AddHook(onSet(func() {
			if sets++; sets != 2 { // between the refusal and the second attempt
				return
			}
			close(let)
			for range others {
				if err := <-read; err != nil {
					t.Error(err)
				}
			}
		}))
		for range 2 {
			if err := set(t.Context(), n, soon()); err != nil {
				t.Errorf("SET = %v, want nil", err)
			}
		}
	})
}

// TestAnswersAreForgotten: a node does not remember all masters that a cluster ever had.
func TestAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	client := clientOf(t, &redis.Options{TLSConfig: &tls.Config{}, ContextTimeoutEnabled: true})
	n := nodeOf(t, client)
	for masters, want := range map[int]int{10: 11, 10_000: 1} {
		for range masters {
			n.answered[&redis.Client{}] = time.Now()
		}
		if n.answers(client); len(n.answered) != want {
			t.Errorf("%d masters of %d are known, want %d", len(n.answered), masters+1, want)
		}
		clear(n.answered)
	}
}

// TestRestOverTLS: go-redis looks whether a connection has ended, but cannot over TLS.
func TestRestOverTLS(t *testing.T) {
	for name, c := range map[string]struct {
		tls    *tls.Config
		rest   time.Duration
		checks bool
	}{
		"not long":    {&tls.Config{}, trusted, false},
		"long":        {&tls.Config{}, trusted + 1, true},
		"without TLS": {nil, trusted + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
				o := optionsOf(f)
				o.Addr, o.TLSConfig = "127.0.0.1:1", c.tls
				o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return f.Dial(ctx) }
				n := nodeOf(t, clientOf(t, o))
				idle(t, n, 3)
				time.Sleep(c.rest)
				if err := set(t.Context(), n, soon()); err != nil || (f.Seen("PING") > 0) != c.checks {
					t.Errorf("SET = %v after %d PINGs, want nil, and one: %v", err, f.Seen("PING"), c.checks)
				}
				if c.tls == nil {
					return
				}
				f.Cut()
				time.Sleep(trusted + 1)
				if err := set(t.Context(), n, soon()); err != nil {
					t.Errorf("SET = %v, want nil: a connection that had ended at rest costs nothing", err)
				}
				time.Sleep(trusted + 1)
				f.Serve(mute)
				want(t, "SET on a connection that had gone silent at rest", set(t.Context(), n, time.Now().Add(time.Second)), strategy.ErrUnsent)
			})
		})
	}
}
