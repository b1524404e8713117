// What leads to another master of a cluster, and what does not: MOVED, ASK, silence. The masters are in
// memory, and the test says who serves what.
package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// The masters' addresses; nobody has the third. go-redis takes 127.0.0.1 for that of whom it has asked.
const (
	addrA   = "10.0.0.1:1"
	addrB   = "10.0.0.2:1"
	nowhere = "10.0.0.9:1"
)

// twoMasters are a cluster of which one serves the slot of the key k, and the other all else.
type twoMasters struct {
	*node
	client *redis.ClusterClient
	at     map[string]*nodetest.Server

	mu    sync.Mutex
	owner string
	err   error // of who asks for the slots
	loads int   // how often they were asked for
}

// newMasters answers by the functions; a nil one as usual. The first one has the key.
func newMasters(t *testing.T, a, b func(c *nodetest.Conn, cmd []string)) *twoMasters {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Second) }) // go-redis waits after it has asked for the slots
	m := &twoMasters{owner: addrA, at: map[string]*nodetest.Server{}}
	for addr, serve := range map[string]func(*nodetest.Conn, []string){addrA: a, addrB: b} {
		if serve == nil {
			serve = (*nodetest.Conn).Plain
		}
		m.at[addr] = nodetest.NewInMemory(t, serve)
	}
	o := clusterOptions([]string{addrA, addrB})
	o.ClusterSlots = m.slots
	o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return m.at[addr].Dial(ctx)
	}
	m.client = redis.NewClusterClient(o)
	closeWith(t, m.client)
	m.node = nodeOf(t, m.client)
	return m
}

func (m *twoMasters) slots(context.Context) ([]redis.ClusterSlot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	other := map[string]string{addrA: addrB, addrB: addrA}[m.owner]
	return []redis.ClusterSlot{
		{Start: 0, End: 7628, Nodes: []redis.ClusterNode{{Addr: other}}},
		{Start: 7629, End: 7629, Nodes: []redis.ClusterNode{{Addr: m.owner}}},
		{Start: 7630, End: 16383, Nodes: []redis.ClusterNode{{Addr: other}}},
	}, m.err
}

// owned has another own the key from now on.
func (m *twoMasters) owned(by string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner, m.err = by, err
}

func (m *twoMasters) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loads
}

// log is what both were asked, "a GET k".
func (m *twoMasters) log() string {
	var all []string
	for name, addr := range map[string]string{"a": addrA, "b": addrB} {
		for _, line := range m.at[addr].Log() {
			_, cmd, _ := strings.Cut(line, " ")
			all = append(all, name+" "+cmd)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// refusing refuses some commands in these words, unless they are empty, and answers all else as usual.
func refusing(words string, cmds ...string) func(*nodetest.Conn, []string) {
	return func(c *nodetest.Conn, cmd []string) {
		if words != "" && slices.Contains(cmds, cmd[0]) {
			c.Say("-%s\r\n", words)
			return
		}
		c.Plain(cmd)
	}
}

// wantNode fails the test unless an error names who was asked.
func wantNode(t *testing.T, err error, node string) {
	t.Helper()
	var said *strategy.ServerError
	if errors.As(err, &said); said == nil || said.Node != node {
		t.Errorf("%v, want it of %s", err, node)
	}
}

func TestRedirects(t *testing.T) {
	moved, ask := "MOVED 7629 ", "ASK 7629 "
	for name, c := range map[string]struct {
		a, b             string // what they say
		command, session string // what they see of each, and
		refuses, ends    string // who refuses the command, and ends the session; empty: nobody
	}{
		"nothing": {"", "", "a SET k v", "a EXISTS k, a SET k v", "", ""},
		"refused": {"CLUSTERDOWN no", "", "a SET k v", "a EXISTS k, a SET k v", addrA, addrA},
		"moved":   {moved + addrB, "", "a SET k v, b SET k v", "a EXISTS k, b EXISTS k, b SET k v", "", ""},
		"moved by a name": {moved + nowhere, "",
			"a SET k v, b SET k v", "a EXISTS k, b EXISTS k, b SET k v", "", ""},
		"moved to and fro": {moved + addrB, moved + addrA,
			"a SET k v, a SET k v, b SET k v, b SET k v", "a EXISTS k, a EXISTS k, b EXISTS k, b SET k v", addrB, addrB},
		"moved, then asked": {moved + addrB, ask + nowhere,
			"a SET k v, b SET k v", "a EXISTS k, b EXISTS k, b SET k v", addrB, addrB},
		"asked":            {ask + addrB, "", "a SET k v, b ASKING, b SET k v", "a EXISTS k, a SET k v", "", addrA},
		"asked to nowhere": {ask + nowhere, "", "a SET k v", "a EXISTS k, a SET k v", addrA, addrA},
	} {
		masters := func(t *testing.T) (m *twoMasters) {
			m = newMasters(t, func(conn *nodetest.Conn, cmd []string) {
				if strings.HasSuffix(c.a, nowhere) {
					m.owned(addrB, nil)
				}
				if cmd[0] == "HELLO" {
					t.Error("the master was asked for its role, which a redirect tells")
				}
				refusing(c.a, "EXISTS", "SET")(conn, cmd)
			}, refusing(c.b, "EXISTS", "SET"))
			return m
		}
		t.Run(name+", command", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := masters(t)
				m.wantSeen(t, second(m.Do(t.Context(), soon(), "SET", "k", "v")), c.refuses, c.command)
			})
		})
		t.Run(name+", session", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := masters(t)
				err := m.Session(t.Context(), soon(), "k", func(c driver.Conn) error { return second(c.Do("SET", "k", "v")) })
				m.wantSeen(t, err, c.ends, c.session)
			})
		})
	}
}

// wantSeen fails the test unless the masters have seen that, and one refuses if it has a name.
func (m *twoMasters) wantSeen(t *testing.T, err error, refuses, seen string) {
	t.Helper()
	if refuses != "" {
		want(t, "the outcome", err, strategy.ErrRefused)
		wantNode(t, err, refuses)
	} else if err != nil {
		t.Errorf("the outcome = %v, want nil", err)
	}
	if got := m.log(); got != seen {
		t.Errorf("the masters have seen %s, want %s", got, seen)
	}
}

// TestAskingIsRefused: what counts is the command's own outcome.
func TestAskingIsRefused(t *testing.T) {
	for words, kind := range map[string]error{"": nil, "OOM no": strategy.ErrRefused} {
		t.Run(words, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMasters(t, refusing("ASK 7629 "+addrB, "SET"), func(c *nodetest.Conn, cmd []string) {
					switch {
					case cmd[0] == "ASKING":
						c.Say("-ERR no\r\n")
					case words != "":
						c.Say("-%s\r\n", words)
					default:
						c.Plain(cmd)
					}
				})
				_, err := m.Do(t.Context(), soon(), "SET", "k", "v")
				if kind == nil && err != nil {
					t.Errorf("SET = %v, want nil", err)
				}
				if kind != nil {
					want(t, "SET", err, kind)
					if !strings.Contains(err.Error(), words) {
						t.Errorf("SET = %v, want %s", err, words)
					}
				}
			})
		})
	}
}

// TestSessionOfASilentMaster: the node sends nothing of the session, and its error says so.
func TestSessionOfASilentMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMasters(t, func(*nodetest.Conn, []string) {}, nil)
		err := m.Session(t.Context(), time.Now().Add(time.Second), "k", func(driver.Conn) error {
			t.Error("fn was called")
			return nil
		})
		want(t, "Session", err, strategy.ErrUnsent)
		wantNode(t, err, addrA)
	})
}

// TestSessionOfARestartedMaster: a session begins on a new connection if the master hangs up on the old one when it is asked.
func TestSessionOfARestartedMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var restarted atomic.Bool
		m := newMasters(t, func(c *nodetest.Conn, cmd []string) {
			if restarted.Load() && c.ID == 1 {
				c.Close()
				return
			}
			c.Plain(cmd)
		}, nil)
		session := func() error {
			return m.Session(t.Context(), soon(), "k", func(c driver.Conn) error { return second(c.Do("GET", "k")) })
		}
		redistest.Must(t, session())
		restarted.Store(true)
		if err := session(); err != nil {
			t.Errorf("Session = %v, want nil on a new connection", err)
		}
	})
}

// TestNoSlots: where nobody tells who serves a key, nothing is sent.
func TestNoSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMasters(t, nil, nil)
		m.owned(addrA, errors.New("nobody tells"))
		_, did := m.Do(t.Context(), soon(), "SET", "k", "v")
		_, heard := m.Subscribe(t.Context(), "k", nil)
		for what, err := range map[string]error{
			"Do":        did,
			"Subscribe": heard,
			"Session":   m.Session(t.Context(), soon(), "k", func(driver.Conn) error { t.Error("fn was called"); return nil }),
		} {
			want(t, what, err, strategy.ErrUnsent)
			if !strings.Contains(err.Error(), "nobody tells") {
				t.Errorf("%s = %v, want why", what, err)
			}
		}
		if m.log() != "" {
			t.Errorf("the masters have seen %s, want nothing", m.log())
		}
	})
}

// TestReload: a server that does not answer, or refuses to write, may no longer be the master, so the node has
// go-redis ask for the slots again.
func TestReload(t *testing.T) {
	for words, reloads := range map[string]bool{
		"":                    false,
		"-OOM no\r\n":         false,
		"-READONLY it\r\n":    true,
		"hang up":             true,
		"$9223372036854775\r": true,
	} {
		t.Run(fmt.Sprintf("%.9q", words), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMasters(t, func(c *nodetest.Conn, cmd []string) {
					switch {
					case cmd[0] != "SET" || words == "":
						c.Plain(cmd)
					case words[0] == '-':
						c.Say("%s", words)
					default:
						c.Close()
					}
				}, nil)
				m.Do(t.Context(), soon(), "SET", "k", "v") //nolint:errcheck // other tests check its error
				time.Sleep(time.Second)                    // go-redis asks soon, and once
				if got, want := m.asked(), map[bool]int{false: 1, true: 2}[reloads]; got != want {
					t.Errorf("the slots were asked for %d times, want %d", got, want)
				}
			})
		})
	}
}

// TestSubscriptionsMove: with a slot go its subscriptions, those that wait for a confirmation without a
// word; not with an ASK.
func TestSubscriptionsMove(t *testing.T) {
	for name, meet := range map[string]func(m *twoMasters) error{
		"command": func(m *twoMasters) error {
			_, err := m.Do(context.Background(), soon(), "SET", "k", "v")
			return err
		},
		"session": func(m *twoMasters) error {
			return m.Session(context.Background(), soon(), "k", func(driver.Conn) error { return nil })
		},
		"PING": func(m *twoMasters) error {
			m.client.ReloadState(context.Background())
			time.Sleep(subscription.PingEvery)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) { subscriptionsMove(t, meet) })
	}
}

// subscriptionsMove lets them move by what meets with it.
func subscriptionsMove(t *testing.T, meet func(m *twoMasters) error) {
	bubble(t, func(t *testing.T) {
		words := "ASK 7629 "
		m := newMasters(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case cmd[0] == "SET" || cmd[0] == "EXISTS":
				c.Say("-%s%s\r\n", words, addrB)
			case cmd[0] != "SUBSCRIBE" || cmd[1] != "{k}waits":
				c.Plain(cmd)
			}
		}, nil)
		m.sub.PongLimit = time.Hour // what waits keeps the PONG from its turn
		h, _ := nodetest.Subscribe(t, m.node, "k")
		redistest.Must(t, meet(m))
		synctest.Wait()
		if !h.Silent() {
			t.Fatal("the subscription has ended with an ASK")
		}
		waits := make(chan error, 1)
		go func() {
			_, err := m.Subscribe(context.Background(), "{k}waits", func([]byte, error) {})
			waits <- err
		}()
		synctest.Wait()
		words = "MOVED 7629 "
		m.owned(addrB, nil)
		redistest.Must(t, meet(m))
		synctest.Wait()
		if len(h.Ends) == 0 {
			t.Fatal("the subscription has not ended")
		}
		end := <-h.Ends
		want(t, "the end", end, strategy.ErrUnknown, subscription.ErrMoved)
		wantNode(t, end, addrA)
		if err := await(t, "the other", waits); err != nil {
			t.Errorf("Subscribe = %v, want nil at the other master", err)
		}
		synctest.Wait()
		all, _ := m.sub.Connections() // the one to a ends with its last channel, perhaps before it has said so
		if got := m.log(); all != 1 || !strings.Contains(got, "b SUBSCRIBE {k}waits") {
			t.Errorf("%d connections listen, want one; the masters have seen %s", all, got)
		}
		if !h.Silent() {
			t.Error("the subscription has heard more after its end")
		}
	})
}

// TestKeysOfACluster: each call goes to who serves its first key, a probe to nobody.
func TestKeysOfACluster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMasters(t, nil, nil)
		const key = "{k}first"
		script := driver.NewScript("one", "return 1")
		for range 5 {
			if _, err := m.Eval(t.Context(), soon(), script, []string{key}, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.Probe(t.Context(), soon()); got != 0 {
			t.Errorf("Probe = %d, want 0", got)
		}
		if got := m.at[addrA].Seen("EVALSHA"); got != 5 {
			t.Errorf("%d times at the first master, want 5", got)
		}
		if got := m.at[addrA].Seen("PING") + m.at[addrB].Seen("PING"); got != 0 {
			t.Errorf("%d PINGs, want none", got)
		}
		_, err := m.Subscribe(func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			m.at[addrA].Serve(func(*nodetest.Conn, []string) {})
			return ctx
		}(), "k", nil)
		want(t, "Subscribe", err, strategy.ErrUnknown)
		wantNode(t, err, addrA)
	})
}
