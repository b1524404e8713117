package nodetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// A fail-over makes the server of all connections a replica, and leaves them open; new ones lead to the
// new primary.

// Demoted checks what every Node does then.
func Demoted(t *testing.T, s Subject) {
	for name, property := range map[string]func(t *testing.T, s Subject){
		"DemotionCostsNoCall": demotionCostsNoCall,
		"ReplicaRefuses":      replicaRefuses,
		"ProbeFindsAReplica":  probeFindsAReplica,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			property(t, s)
		})
	}
}

const refusal = "READONLY You can't write against a read only replica."

// A demotable server is a primary to connections that were made after the last demotion.
type demotable struct {
	*Server
	replicas atomic.Int64 // how many connections lead to a replica
}

// open is a Node of such a server, which refuses to write in these words.
func (d *demotable) open(t *testing.T, s Subject, protocol int, words string) driver.Node {
	t.Helper()
	var n driver.Node
	n, d.Server = s.on(t, protocol, func(c *Conn, cmd []string) {
		switch replica := int64(c.ID) <= d.replicas.Load(); {
		case replica && slices.Contains([]string{"SET", "EVAL", "EVALSHA", "EXEC"}, cmd[0]):
			c.Say("-%s\r\n", words)
		case replica && cmd[0] == "HELLO":
			c.Hello("replica")
		default:
			c.Plain(cmd)
		}
	})
	return n
}

// warm has the Node make some connections of each kind.
func (d *demotable) warm(t *testing.T, n driver.Node) (Heard, func()) {
	t.Helper()
	Echo(t, n, "warm")
	if err := nested(t.Context(), n, warmSessions); err != nil {
		t.Fatal(err)
	}
	return Subscribe(t, n, "c")
}

const warmSessions = 3

// nested opens sessions inside each other.
func nested(ctx context.Context, n driver.Node, depth int) error {
	return n.Session(ctx, Soon(), "k", func(c driver.Conn) error {
		if _, err := c.Do("GET", "k"); err != nil || depth == 1 {
			return err
		}
		return nested(ctx, n, depth-1)
	})
}

// demote makes a replica of the server at the end of every connection.
func (d *demotable) demote() { d.replicas.Store(int64(d.Dialled())) }

// What a replica refuses is asked once more at the new primary: no caller hears of it. Subscribers hear
// of the end of theirs.
func demotionCostsNoCall(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		for what, call := range calls {
			if what == "Subscribe" {
				continue
			}
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				var d demotable
				n := d.open(t, s, protocol, refusal)
				h, stop := d.warm(t, n)
				defer stop()
				d.demote()
				if err := call(n, t.Context(), Soon()); err != nil {
					t.Errorf("%s = %v, want nil: the new primary's answer", what, err)
				}
				if what == "Session" { // its connection may be new: a client takes the others back a moment after their use
					verdict.Eventually(t, "a session meets an old connection", func() bool {
						if err := nested(t.Context(), n, 2*warmSessions); err != nil {
							t.Errorf("nested sessions = %v, want nil", err)
						}
						return len(h.Ends) > 0
					})
				}
				Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown)
				for range 10 { // whatever else is called next
					for what, call := range calls {
						if err := call(n, t.Context(), Soon()); err != nil {
							t.Fatalf("%s after the demotion = %v, want nil", what, err)
						}
					}
				}
			})
		}
	})
}

// A server that stays a replica is refused in its words, also where a script has met with them.
func replicaRefuses(t *testing.T, s Subject) {
	for name, words := range map[string]string{
		"Redis 7":     refusal,
		"Redis 6":     "ERR Error running script (call to f_0123): @user_script:1: @user_script: 1: -" + refusal,
		"Redis 7 Lua": refusal + " script: 0123, on @user_script:1.",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d demotable
			n := d.open(t, s, s.newest(), words)
			h, stop := d.warm(t, n)
			defer stop()
			d.replicas.Store(1 << 40)
			_, err := n.Do(t.Context(), Soon(), "SET", "k", "v")
			Want(t, "SET", err, strategy.ErrRefused)
			wantWords(t, "SET", err, "READONLY")
			Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown)
			before := d.on("SUBSCRIBE")
			_, stop = Subscribe(t, n, "c")
			stop()
			if got := d.on("SUBSCRIBE"); got != before+1 {
				t.Errorf("subscribed on %d connections, want %d: the old one, and another", got, before+1)
			}
		})
	}
}

// A probe finds the replica where nobody writes, and counts its primary's return.
func probeFindsAReplica(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		var d demotable
		n := d.open(t, s, protocol, refusal)
		probe := func() uint64 { return n.Probe(t.Context(), Soon()) }
		h, stop := d.warm(t, n)
		defer stop()
		before := probe()
		d.demote()
		verdict.Eventually(t, "the probe reports a return", func() bool { return probe() > before })
		Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown)
		asked := d.Seen("SET")
		if _, err := n.Do(t.Context(), Soon(), "SET", "k", "v"); err != nil || d.Seen("SET") != asked+1 {
			t.Errorf("SET = %v, sent %d times, want nil, once: to the new primary", err, d.Seen("SET")-asked)
		}
		verdict.Eventually(t, "the number does not change any more", func() bool { was := before; before = probe(); return before == was })
	})
}
