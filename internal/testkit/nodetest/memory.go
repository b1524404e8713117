package nodetest

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// InMemory checks what turns on a moment: on a server in memory, in virtual time.
func InMemory(t *testing.T, s Subject) {
	for name, property := range map[string]func(t *testing.T, s Subject){
		"DoneContextSendsNothing":   doneContextSendsNothing,
		"ArgumentsAreSentAsText":    argumentsAreSentAsText,
		"BrokenRepliesAreUnknown":   brokenRepliesAreUnknown,
		"SilentPool":                silentPool,
		"ReplicaIsLeftOnceASecond":  replicaIsLeftOnceASecond,
		"SessionLearnsOfAReplica":   sessionLearnsOfAReplica,
		"CloseWaitsForASession":     closeWaitsForASession,
		"CloseWaitsForItsListeners": closeWaitsForItsListeners,
	} {
		t.Run(name, func(t *testing.T) { property(t, s) })
	}
}

// Bubble runs a test in virtual time.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// inMemory is a Node of a server in memory.
func (s Subject) inMemory(t *testing.T, serve func(c *Conn, cmd []string)) (driver.Node, *Server) {
	t.Helper()
	f := NewInMemory(t, serve)
	f.Protocol = s.newest()
	return s.Connect(t, f), f
}

type word string

// Each client writes arguments in the same words.
func argumentsAreSentAsText(t *testing.T, s Subject) {
	Bubble(t, func(t *testing.T) {
		n, f := s.inMemory(t, (*Conn).Plain)
		args := []any{"text", []byte("b\x00\r\n"), 7, int64(-8), uint8(3), 0.25, true, false, nil, word("own"), 250 * time.Millisecond}
		const texts = "text b\x00\r\n 7 -8 3 0.25 1 0  own 250ms"
		script := driver.NewScript("one", "return 1")
		_, bare := n.Do(t.Context(), Soon(), "TIME", "")
		_, key := n.Do(t.Context(), Soon(), "GET", "k")
		_, emptyKey := n.Do(t.Context(), Soon(), "SET", "", "v")
		_, did := n.Do(t.Context(), Soon(), "MSET", "k", args...)
		_, ran := n.Eval(t.Context(), Soon(), script, []string{"a", "b"}, args...)
		lent := n.Session(t.Context(), Soon(), "k", func(c driver.Conn) error {
			_, err := c.Do("SADD", append([]any{"k"}, args...)...)
			return err
		})
		for sent, err := range map[string]error{
			"TIME": bare, "GET k": key, "SET  v": emptyKey, "MSET k " + texts: did, "SADD k " + texts: lent,
			"EVALSHA " + script.Hash() + " 2 a b " + texts: ran,
		} {
			if !slices.ContainsFunc(f.Log(), func(line string) bool { _, cmd, _ := strings.Cut(line, " "); return cmd == sent }) || err != nil {
				t.Errorf("%q: %v, and the server has seen %q", sent, err, f.Log())
			}
		}
	})
}

// Whatever becomes of a reply, a client sends nothing again that may have been done; and the next request gets its own
// reply, on another connection.
func brokenRepliesAreUnknown(t *testing.T, s Subject) {
	for name, c := range map[string]struct {
		said string
		kind error
		sent int
	}{
		"none":              {"", strategy.ErrUnknown, 1},
		"a letter":          {"$", strategy.ErrUnknown, 1},
		"a length":          {"$5\r\n", strategy.ErrUnknown, 1},
		"a half":            {"$5\r\nab", strategy.ErrUnknown, 1},
		"all but its end":   {"$5\r\nabcde", strategy.ErrUnknown, 1},
		"no reply of Redis": {"what?\r\n", strategy.ErrUnknown, 1},
		"huge":              {"$9223372036854775000\r\n", strategy.ErrUnknown, 1},
		"huge array":        {"*999999999999999\r\n", strategy.ErrUnknown, 1},
		"loading":           {"-LOADING it\r\n", strategy.ErrRefused, 1},
		"try again":         {"-TRYAGAIN it\r\n", strategy.ErrRefused, 1},
		"moved":             {"-MOVED 1 127.0.0.1:1\r\n", strategy.ErrRefused, 1},
		"read only":         {"-READONLY it\r\n", strategy.ErrRefused, 2}, // on another connection
	} {
		if s.Crashes && strings.HasPrefix(name, "huge") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			Bubble(t, func(t *testing.T) {
				n, f := s.inMemory(t, func(conn *Conn, cmd []string) {
					if cmd[0] != "SET" && cmd[0] != "EVALSHA" {
						conn.Plain(cmd)
						return
					}
					conn.Say("%s", c.said)
					if c.kind == strategy.ErrUnknown {
						time.Sleep(time.Millisecond) // the client reads that first
						conn.Close()
					}
				})
				_, err := n.Do(t.Context(), Soon(), "SET", "done", "v")
				Want(t, "SET", err, c.kind)
				Echo(t, n, "after")
				time.Sleep(time.Minute) // until a replica may be left again
				_, err = n.Eval(t.Context(), Soon(), driver.NewScript("one", "return 1"), []string{"k"})
				Want(t, "Eval", err, c.kind)
				Echo(t, n, "after")
				err = n.Session(t.Context(), Soon(), "k", func(lent driver.Conn) error {
					_, err := lent.Do("SET", "lent", "v")
					if _, again := lent.Do("SET", "again", "v"); c.kind == strategy.ErrUnknown {
						Want(t, "another on a connection that broke", again, strategy.ErrUnsent)
					}
					return err
				})
				Want(t, "SET in a session", err, c.kind)
				Echo(t, n, "after")
				if f.Seen("SET done") != c.sent || f.Seen("EVALSHA") != c.sent || f.Seen("EVAL ") != 0 || f.Seen("SET lent") != 1 {
					t.Errorf("the server has seen %q, want each %d times, and once in a session", f.Log(), c.sent)
				}
				if c.kind == strategy.ErrUnknown && f.Seen("SET again") != 0 {
					t.Error("a session went on on another connection")
				}
			})
		})
	}
}

// Idle has a Node make that many connections for sessions, which are idle then.
func Idle(t testing.TB, n driver.Node, conns int) {
	t.Helper()
	if err := nested(t.Context(), n, conns); err != nil {
		t.Fatal(err)
	}
}

// Whatever is not answered on one of many connections that a firewall drops, the next call goes over a new one.
func silentPool(t *testing.T, s Subject) {
	type call func(t *testing.T, n driver.Node, silence func()) error
	set := func(t *testing.T, n driver.Node) error {
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "SET", "k", "v")
		return err
	}
	in := func(t *testing.T, n driver.Node, begun func()) error {
		return n.Session(t.Context(), time.Now().Add(time.Second*9/10), "k", func(c driver.Conn) error {
			begun()
			_, err := c.Do("SET", "k", "v")
			return err
		})
	}
	command := func(t *testing.T, n driver.Node, silence func()) error { silence(); return set(t, n) }
	session := func(t *testing.T, n driver.Node, silence func()) error { silence(); return in(t, n, func() {}) }
	rested := func(t *testing.T, n driver.Node, silence func()) error { // so long that the Node finds it before it sends anything
		time.Sleep(time.Minute)
		defer time.Sleep(10 * time.Second)
		return command(t, n, silence)
	}
	probe := func(t *testing.T, n driver.Node, silence func()) error {
		silence()
		n.Probe(t.Context(), time.Now().Add(time.Second))
		return &strategy.ServerError{Kind: strategy.ErrUnknown} // which Probe does not tell
	}
	for name, calls := range map[string][2]call{
		"command, command": {command, command},
		"idle, command":    {rested, command},
		"probe, command":   {probe, command},
		"session, command": {session, command},
		"command, session": {command, session},
		"session, session": {session, session},
		"within, session":  {in, session},
	} {
		t.Run(name, func(t *testing.T) {
			Bubble(t, func(t *testing.T) {
				var old atomic.Int32
				n, f := s.inMemory(t, func(c *Conn, cmd []string) {
					if c.ID > int(old.Load()) {
						c.Plain(cmd)
					}
				})
				Idle(t, n, 8)
				synctest.Wait()
				if err := set(t, n); err != nil {
					t.Fatal(err)
				}
				silence := func() { old.Store(int32(f.Dialled())) }
				if err := calls[0](t, n, silence); !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
					t.Errorf("the first call = %v, want no answer", err)
				}
				for range 3 {
					if err := calls[1](t, n, func() {}); err != nil {
						t.Errorf("a call after that = %v, want nil on a new connection", err)
					}
				}
			})
		})
	}
}

// leaveEvery is how often the connections to a replica are left.
const leaveEvery = time.Second

// Where new connections lead to a replica, too, the refusal is the caller's: after a second attempt, and, within the next
// second, after the first. Subscriptions end when a replica is left.
func replicaIsLeftOnceASecond(t *testing.T, s Subject) {
	Bubble(t, func(t *testing.T) {
		var takes atomic.Int64 // to refuse a command
		n, f := s.inMemory(t, func(c *Conn, cmd []string) {
			switch cmd[0] {
			case "SET":
				time.Sleep(time.Duration(takes.Load()))
				c.Say("-%s\r\n", refusal)
			case "HELLO":
				c.Hello("replica")
			default:
				c.Plain(cmd)
			}
		})
		for i, c := range []struct {
			after, takes time.Duration
			left         bool
		}{{0, 0, true}, {0, 0, false}, {leaveEvery - 1, 0, false}, {1, 0, true}, {0, 0, false}, {leaveEvery, leaveEvery, true}} {
			time.Sleep(c.after)
			takes.Store(int64(c.takes))
			h, stop := Subscribe(t, n, "c")
			asked, conns := f.Seen("SET"), f.on("SET")
			_, err := n.Do(t.Context(), Soon(), "SET", "k", "v")
			Want(t, "SET", err, strategy.ErrRefused)
			wantWords(t, "SET", err, refusal)
			synctest.Wait()
			if again := f.Seen("SET")-asked == 2 && f.on("SET") > conns; again != c.left || f.Seen("SET")-asked > 2 {
				t.Errorf("%d: asked %d times, on %d connections more, want it sent again on another: %v", i, f.Seen("SET")-asked, f.on("SET")-conns, c.left)
			}
			if left := len(h.Ends) > 0; left != c.left {
				t.Errorf("%d: the subscription has ended: %v, want %v", i, left, c.left)
			}
			stop()
		}
	})
}

// A server that does not tell its role is found to be a replica by its refusal: the session's connection is not lent again,
// and subscriptions end.
func sessionLearnsOfAReplica(t *testing.T, s Subject) {
	Bubble(t, func(t *testing.T) {
		var replicas atomic.Int32
		n, f := s.inMemory(t, func(c *Conn, cmd []string) {
			switch {
			case cmd[0] == "HELLO":
				c.Say("-NOPERM no\r\n")
			case cmd[0] == "SET" && c.ID <= int(replicas.Load()):
				c.Say("-%s\r\n", refusal)
			default:
				c.Plain(cmd)
			}
		})
		h, _ := Subscribe(t, n, "c")
		Idle(t, n, 1)
		synctest.Wait() // its connection has been given back
		replicas.Store(int32(f.Dialled()))
		session := func() error {
			return n.Session(t.Context(), Soon(), "k", func(c driver.Conn) error { _, err := c.Do("SET", "k", "v"); return err })
		}
		Want(t, "SET in a session", session(), strategy.ErrRefused)
		Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown)
		synctest.Wait()
		redistest.Must(t, session())
	})
}

// Close waits for a session, which sends nothing any more.
func closeWaitsForASession(t *testing.T, s Subject) {
	Bubble(t, func(t *testing.T) {
		n, f := s.inMemory(t, (*Conn).Plain)
		let, ended, closed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
		go func() {
			ended <- n.Session(t.Context(), Soon(), "k", func(c driver.Conn) error {
				<-let
				_, err := c.Do("SET", "k", "v")
				return err
			})
		}()
		synctest.Wait()
		go func() { closed <- n.Close() }()
		time.Sleep(Generous / 2)
		if len(closed) > 0 {
			t.Error("Close has not waited for the session")
		}
		close(let)
		Want(t, "the session", Receive(t, "its end", ended), strategy.ErrUnsent, strategy.ErrClosed)
		redistest.Must(t, Receive(t, "the end of Close", closed))
		if f.Seen("SET") > 0 {
			t.Error("a command was sent after Close")
		}
	})
}

// Close waits until those who listen have heard of the end.
func closeWaitsForItsListeners(t *testing.T, s Subject) {
	Bubble(t, func(t *testing.T) {
		n, _ := s.inMemory(t, (*Conn).Plain)
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) { time.Sleep(time.Second) })
		redistest.Must(t, err)
		began := time.Now()
		if err := n.Close(); err != nil || time.Since(began) != time.Second {
			t.Errorf("Close = %v after %v, want nil after a second", err, time.Since(began))
		}
	})
}
