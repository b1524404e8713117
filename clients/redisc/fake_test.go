// A cluster in memory, for tests in a bubble (testing/synctest): its servers say what the test wants,
// and a time that has passed is exact.
package rediscnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

const (
	silence = "(silence)"
	hangUp  = "(hang up)"
	ever    = 1 << 30
)

// A say is what a server replies to a command: so many times, so long after it was asked. The command is
// an address and what the command begins with. A reply has no line end.
type say struct {
	to    string
	reply string
	times int
	after time.Duration
}

// A fake is a Node and its cluster. Where nothing else is said servers answer as healthy ones do, and all of
// them tell of the same layout.
type fake struct {
	*node
	t       *testing.T
	servers map[string]*nodetest.Server
	start   time.Time

	mu      sync.Mutex
	says    []say
	layouts []string                 // what CLUSTER SLOTS is answered with, in turn; the last stays
	heard   []string                 // what was asked: "a:1 GET k"
	came    []time.Duration          // and when
	dialled map[string]time.Duration // when first
	hung    chan time.Duration       // when a dial of hang:1 was given up

	listening map[string]*nodetest.Conn // who has subscribed last, by address
}

// bubble runs a test in a bubble. The cluster has a:1, b:1 and c:1, and a:1 has all slots. Nobody listens at
// any other address: no:1 has no pool either, nil:1 has a pool that is nil, and hang:1 does not answer.
func bubble(t *testing.T, test func(t *testing.T, f *fake), startup ...string) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{t: t, servers: map[string]*nodetest.Server{}, start: time.Now(), dialled: map[string]time.Duration{}, hung: make(chan time.Duration, 1), listening: map[string]*nodetest.Conn{}}
		f.layouts = []string{"0-16383 a:1"}
		for _, addr := range []string{"a:1", "b:1", "c:1"} {
			f.servers[addr] = nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) { f.answer(addr, c, cmd) })
		}
		if startup == nil {
			startup = []string{"a:1"}
		}
		n := New(&redisc.Cluster{StartupNodes: startup, CreatePool: f.pool}).(*node)
		f.node = n
		t.Cleanup(func() { n.Close() })
		test(t, f)
	})
}

// bubbled is bubble in a subtest.
func bubbled(t *testing.T, name string, test func(t *testing.T, f *fake), startup ...string) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, test, startup...) })
}

func (f *fake) pool(addr string, _ ...redis.DialOption) (*redis.Pool, error) {
	switch addr {
	case "no:1":
		return nil, errors.New("no pool")
	case "nil:1":
		return nil, nil
	}
	return &redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn, error) {
		f.mu.Lock()
		if _, again := f.dialled[addr]; !again {
			f.dialled[addr] = time.Since(f.start)
		}
		f.mu.Unlock()
		if addr == "hang:1" {
			<-ctx.Done()
			f.hung <- time.Since(f.start)
			return nil, ctx.Err()
		}
		s := f.servers[addr]
		if s == nil {
			return nil, errors.New("nobody listens at " + addr)
		}
		nc, err := s.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return redis.NewConn(nc, 0, 0), nil
	}}, nil
}

// say has servers reply so from now on.
func (f *fake) say(says ...say) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.says = append(f.says, says...)
}

// tell is what CLUSTER SLOTS is answered with from now on.
func (f *fake) tell(l string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.layouts = []string{l}
}

func (f *fake) answer(addr string, c *nodetest.Conn, cmd []string) {
	line := addr + " " + strings.Join(cmd, " ")
	said := f.next(line, cmd)
	if said.after > 0 {
		<-time.After(said.after)
	}
	switch {
	case said.reply == silence:
	case said.reply == hangUp:
		c.Close()
	case said.reply != "":
		c.Say("%s\r\n", said.reply)
	default:
		if cmd[0] == "SUBSCRIBE" {
			f.mu.Lock()
			f.listening[addr] = c
			f.mu.Unlock()
		}
		c.Plain(cmd)
	}
}

// next is the reply to a command; none: what a healthy server says.
func (f *fake) next(line string, cmd []string) say {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cmd[0] != "CLIENT" && cmd[0] != "HELLO" { // which a Node asks of each connection
		f.heard, f.came = append(f.heard, line), append(f.came, time.Since(f.start))
	}
	for i, s := range f.says {
		if s.times > 0 && strings.HasPrefix(line, s.to) {
			f.says[i].times--
			return s
		}
	}
	if cmd[0] == "CLUSTER" {
		told := f.layouts[0]
		f.layouts = f.layouts[min(1, len(f.layouts)-1):]
		return say{reply: slots(told)}
	}
	return say{}
}

// slots makes the reply of CLUSTER SLOTS: "0-99 master:1 replica:1, 200-299 other:1".
func slots(layout string) string {
	ranges := strings.Split(layout, ", ")
	b := &strings.Builder{}
	fmt.Fprintf(b, "*%d\r\n", len(ranges))
	for _, r := range ranges {
		words := strings.Fields(r)
		first, last, _ := strings.Cut(words[0], "-")
		fmt.Fprintf(b, "*%d\r\n:%s\r\n:%s\r\n", 1+len(words), first, last)
		for _, addr := range words[1:] {
			host, port, _ := splitAddr(addr)
			fmt.Fprintf(b, "*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
		}
	}
	return strings.TrimSuffix(b.String(), "\r\n")
}

// log is what was asked since the last call: "a:1 CLUSTER SLOTS, a:1 GET k".
func (f *fake) log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.heard, f.came = nil, nil }()
	return strings.Join(f.heard, ", ")
}

// when are the times at which a command came that begins so.
func (f *fake) when(prefix string) (at []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, line := range f.heard {
		if strings.HasPrefix(line, prefix) {
			at = append(at, f.came[i])
		}
	}
	return at
}

func (f *fake) elapsed() time.Duration { return time.Since(f.start) }

// get is a request.
func (f *fake) get(key string) (any, error) { return f.Do(f.t.Context(), soon(), "GET", key) }

// wantGet has a request answered.
func (f *fake) wantGet(t *testing.T, key string) {
	t.Helper()
	if _, err := f.get(key); err != nil {
		t.Fatalf("GET %s: %v", key, err)
	}
}

// ask has the Node ask the cluster.
func (f *fake) ask(t *testing.T) {
	t.Helper()
	if err := f.inquire(t.Context(), soon()); err != nil {
		t.Fatalf("CLUSTER SLOTS: %v", err)
	}
}

// keyOf is a key in the first or the second half of the slots.
func keyOf(half int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); redisc.Slot(key)/(redisc.HashSlots/2) == half {
			return key
		}
	}
}

func slotOf(key string) string { return fmt.Sprint(redisc.Slot(key)) }
