// Sessions: their connections go back clean, and keep the order.
package rueidisnode

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// The next session does not find what one leaves behind on its connection.
func TestSessionLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	o := optionsOf(t, srv)
	o.BlockingPoolSize = 1
	n := newNode(t, o)
	n.unordered.Store(true) // or the pipe would have the one connection that there is
	leave := func(cmds ...string) {
		t.Helper()
		func() {
			defer func() { recover() }()
			n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
				for _, cmd := range cmds {
					var args []any
					if cmd == "WATCH" {
						args = []any{"k"}
					}
					if _, err := c.Do(cmd, args...); err != nil {
						t.Error(err)
					}
				}
				panic("fn's")
			})
		}()
		redistest.Do(t, srv, "SET", "k", "changed")
		err := n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
			for _, cmd := range []string{"MULTI", "PING"} {
				if _, err := c.Do(cmd); err != nil {
					return err
				}
			}
			reply, err := c.Do("EXEC")
			if reply == nil {
				t.Errorf("after %v: EXEC = nil, %v: the WATCH was left", cmds, err)
			}
			return err
		})
		if err != nil {
			t.Errorf("after %v: %v", cmds, err)
		}
	}
	leave("WATCH")
	leave("MULTI")
	leave("WATCH", "MULTI")
	if list := fmt.Sprintf("%s", redistest.Do(t, srv, "CLIENT", "LIST")); strings.Count(list, "lib-name=rueidis")+strings.Count(list, "cmd=exec") == 0 {
		t.Errorf("CLIENT LIST = %s: no connection is left in the pool, so this proves nothing", list)
	}
}

func TestSessionWaitsForTheClientUntilDue(t *testing.T) {
	t.Parallel()
	o := optionsOf(t, redistest.Shared(t))
	o.BlockingPoolSize = 1
	n := newNode(t, o)
	n.Session(t.Context(), soon(), "k", func(driver.Conn) error {
		began := time.Now()
		for i := range client.MostLeft + 1 {
			due := time.Now().Add(5 * time.Millisecond)
			if i == client.MostLeft {
				due = soon() // it does not wait
			}
			err := n.Session(t.Context(), due, "k", nil)
			want(t, "Session of a busy client", err, strategy.ErrUnsent)
			if i < client.MostLeft != errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("session %d = %v, want a time-out of the first %d", i, err, client.MostLeft)
			}
		}
		if took := time.Since(began); took > generous/2 {
			t.Errorf("%d sessions took %v", client.MostLeft+1, took)
		}
		return nil
	})
	verdict.Eventually(t, "a session of a free client, when those who gave up have come back", func() bool {
		return n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }) == nil
	})
}

// A session whose command got no reply is killed before anything else is sent, and neither
// it nor the cleaning up outlasts due.
func TestUnconfirmedSessionIsKilledFirst(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1, redistest.Config{})
	verdict.Conclusive(t, func() verdict.Slow { return unconfirmedSession(t, r) })
}

func unconfirmedSession(t *testing.T, r *rig.Rig) verdict.Slow {
	link := r.Nodes[0].Link()
	var s spy
	n := newNode(t, s.options(rueidis.ClientOption{InitAddress: []string{link.Addr()}}))
	echo(t, n, "before")
	var id string
	held := false
	began := time.Now()
	due := began.Add(300 * time.Millisecond)
	err := n.Session(t.Context(), due, "k", func(c driver.Conn) error {
		reply, err := c.Do("CLIENT", "ID")
		id = fmt.Sprint(reply)
		if err != nil {
			return err
		}
		if _, err := c.Do("WATCH", "k"); err != nil {
			return err
		}
		link.Hold(rig.Both)
		_, err = c.Do("SET", "k", "late")
		if held = !errors.Is(err, strategy.ErrUnsent); !held {
			return err
		}
		want(t, "command without a reply", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		_, again := c.Do("SET", "k", "later")
		want(t, "command after it", again, strategy.ErrUnsent)
		return err
	})
	if !held {
		link.Heal()
		return verdict.Slowf("the session's time ended before the network was held up: %v", err)
	}
	if took := time.Since(began); took > generous/2 {
		t.Errorf("Session took %v", took)
	}
	want(t, "Session", err, strategy.ErrUnknown)
	link.Heal()
	verdict.Eventually(t, "an undo", func() bool {
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "DEL", "k")
		return err == nil
	})
	all := strings.Join(s.said(), "")
	kill, undo := strings.Index(all, "KILL\r\n$2\r\nID\r\n$"+fmt.Sprint(len(id))+"\r\n"+id), strings.Index(all, "DEL\r\n")
	if kill < 0 || undo < kill {
		t.Errorf("said %q, want CLIENT KILL ID %s before DEL", all, id)
	}
	if got := redistest.Do(t, r.Nodes[0].Server(), "EXISTS", "k"); got != int64(0) {
		t.Errorf("EXISTS k = %v, want 0: what the session left unconfirmed came after the undo", got)
	}
	return ""
}

// And the other way round: a session is not overtaken by what came before it.
func TestSessionComesAfterWhatTimedOut(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, optionsOf(t, srv))
	echo(t, n, "before")
	redistest.Skip(t, srv.Freeze(t.Context()), "that a session comes after what timed out")
	var err error
	verdict.Eventually(t, "a SET is sent to the frozen server", func() bool {
		_, err = n.Do(t.Context(), time.Now().Add(100*time.Millisecond), "SET", "k", "first")
		return !errors.Is(err, strategy.ErrUnsent) // a machine that is slow sends nothing in time
	})
	want(t, "SET on a frozen server", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
	set := func(c driver.Conn) error { _, err := c.Do("SET", "k", "second"); return err }
	err = n.Session(t.Context(), time.Now().Add(100*time.Millisecond), "k", set)
	want(t, "Session that cannot be in order in time", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	verdict.Eventually(t, "a session", func() bool {
		return n.Session(t.Context(), time.Now().Add(time.Second), "k", set) == nil
	})
	if got := fmt.Sprintf("%s", redistest.Do(t, srv, "GET", "k")); got != "second" {
		t.Errorf("k = %s, want second", got)
	}
	if len(n.pipe.toKill) != 0 {
		t.Errorf("%d connections are still to be killed", len(n.pipe.toKill))
	}
}

func TestSessionTakesNoSubscription(t *testing.T) {
	t.Parallel()
	err := shared(t).Session(t.Context(), soon(), "k", func(c driver.Conn) error {
		_, err := c.Do("SUBSCRIBE", "x")
		return err
	})
	want(t, "SUBSCRIBE in a session", err, strategy.ErrUnsent)
}
