// Tests how replies of Redis are read, and what the small helpers of protocols and nodes make of them.
package rediskit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// node is a server that answers INFO, or fails.
type node struct {
	driver.Node
	reply   any
	err     error
	ordered bool
}

func (node) Name() string    { return "redis:6379" }
func (n node) Ordered() bool { return n.ordered }
func (n node) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return n.reply, n.err
}

// Undone: a lock that is not there is undone, if nothing can arrive any more. Every other error is the release's.
func TestUndone(t *testing.T) {
	t.Parallel()
	granted := driver.Claim{Grant: driver.Grant{Start: time.Now()}}
	lost := &strategy.LostError{Name: name, Holder: "other"}
	for _, tt := range []struct {
		ordered   bool
		c         driver.Claim
		err, want error
	}{
		{false, driver.Claim{}, nil, nil},
		{true, granted, errNonsense, errNonsense},
		{true, driver.Claim{}, lost, nil},
		{false, granted, lost, nil},
		{false, driver.Claim{}, lost, strategy.ErrUnknown},
	} {
		err := rediskit.Undone(node{ordered: tt.ordered}, tt.c, tt.err)
		what := fmt.Sprintf("Undone(ordered %v, granted %v, %v)", tt.ordered, !tt.c.Grant.IsZero(), tt.err)
		if tt.want == nil {
			is(t, what, err)
			continue
		}
		if is(t, what, err, tt.want); errors.Is(err, driver.ErrAcquireMayArrive) != (tt.want == strategy.ErrUnknown) {
			t.Errorf("%s = %v, want that the acquire may still arrive only if nobody knows", what, err)
		}
	}
}

func TestRemainingTTL(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64 / int64(ms) // a Duration can say
	for reply, want := range map[int64]time.Duration{
		-1: -1, math.MinInt64: -1, 0: ms, 1: ms, 1500: 1500 * ms,
		most: time.Duration(most) * ms, most + 1: time.Duration(most) * ms, math.MaxInt64: time.Duration(most) * ms,
	} {
		equal(t, fmt.Sprintf("RemainingTTL(%d)", reply), rediskit.RemainingTTL(reply), want)
	}
}

func TestCheckNode(t *testing.T) {
	t.Parallel()
	for info, want := range map[string][]string{
		"": nil,
		"# Replication\r\nrole:master\r\nloading:0\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n": nil,
		"role:master\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n":                             nil,
		"maxmemory:1000\r\n":               nil,
		"maxmemory_policy:allkeys-lru\r\n": nil,
		"role:slave\r\n":                   {"is a slave", "primary"},
		"loading:1\r\n":                    {"is loading"},
		"maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n":                          {"allkeys-lru", "noeviction"},
		"role:slave\r\nloading:1\r\nmaxmemory:1\r\nmaxmemory_policy:volatile-lru\r\n": {"is a slave", "is loading", "volatile-lru"},

		"used_memory:999\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n":                                 nil,
		"used_memory:1000\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n":                                {"is full (used_memory 1000, maxmemory 1000)", "raise maxmemory"},
		"used_memory:1001\r\nmem_not_counted_for_evict:2\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n": nil, // buffers of replicas
		"used_memory:1002\r\nmem_not_counted_for_evict:2\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n": {"is full"},
		"used_memory:1001\r\nmem_not_counted_for_evict:x\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n": {"is full"},
		"used_memory:x\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n":                                   nil,
		"used_memory:1000\r\nmaxmemory:x\r\nmaxmemory_policy:noeviction\r\n":                                   nil,
		"used_memory:1000\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n":                                   nil, // no limit
	} {
		err := rediskit.CheckNode(bg, time.Time{}, node{reply: []byte(info)})
		if len(want) == 0 {
			is(t, fmt.Sprintf("CheckNode of %q", info), err)
		}
		for _, w := range want {
			if !strings.Contains(fmt.Sprint(err), w) || !strings.Contains(fmt.Sprint(err), "redis:6379") {
				t.Errorf("CheckNode of %q = %v, want the server and %q", info, err, w)
			}
		}
	}
	is(t, "CheckNode of a server that does not tell", rediskit.CheckNode(bg, time.Time{}, node{err: refusal(strategy.ErrRefused, "NOPERM")}))
	is(t, "CheckNode of an unreachable server", rediskit.CheckNode(bg, time.Time{}, node{err: unreachable()}), strategy.ErrUnsent)
	is(t, "CheckNode of a strange server", rediskit.CheckNode(bg, time.Time{}, node{reply: int64(1)}), strategy.ErrUnknown)
}

// TestCheckNodeStrictly: who does not say what CheckNode looks for does not pass, and learns what to allow.
func TestCheckNodeStrictly(t *testing.T) {
	t.Parallel()
	const all = "role:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
	const unseen = "redis:6379: does not say whether it is a replica, may evict locks or is full: "
	for what, c := range map[string]struct {
		node
		want []string
	}{
		"all is said":      {node{reply: []byte(all)}, nil},
		"a replica":        {node{reply: []byte(strings.Replace(all, "master", "slave", 1))}, []string{"is a slave"}},
		"nothing":          {node{reply: []byte{}}, []string{unseen + "its INFO has no role"}},
		"no policy":        {node{reply: []byte("role:slave\r\nmaxmemory:0\r\n")}, []string{"is a slave", unseen + "its INFO has no maxmemory_policy"}},
		"no limit":         {node{reply: []byte("role:master\r\nmaxmemory_policy:noeviction\r\n")}, []string{unseen + "its INFO has no maxmemory"}},
		"forbidden":        {node{err: refusal(strategy.ErrRefused, "NOPERM User x has no permissions")}, []string{unseen + "allow +info"}},
		"no such command":  {node{err: refusal(strategy.ErrRefused, "ERR unknown command")}, []string{unseen, "ERR unknown command"}},
		"no answer":        {node{err: unreachable()}, []string{"refused"}},
		"a strange answer": {node{reply: int64(1)}, []string{"redis:6379"}},
	} {
		err := rediskit.CheckNodeStrictly(bg, time.Time{}, c.node)
		saysAll(t, "CheckNodeStrictly: "+what, err, c.want...)
		if n := strings.Count(fmt.Sprint(err), "its INFO has no "); n > 1 {
			t.Errorf("CheckNodeStrictly: %s = %v, want one field that is missing, not %d", what, err, n)
		}
	}
}

func unreachable() error {
	return &strategy.ServerError{Node: "redis:6379", Kind: strategy.ErrUnsent, Err: errors.New("refused")}
}

// TestReplies: each reply that a script may give is read as what it says, and any other as unknown.
func TestReplies(t *testing.T) {
	t.Parallel()
	const server = "redis:6379"
	c := driver.Claim{Name: name}
	for _, odd := range []any{nil, int64(1), []any{}, []any{[]byte("h")}, []any{[]byte("h"), []byte("1")}, []any{nil, int64(1)}, []any{[]byte("h"), int64(1), nil}} {
		if held, ok := rediskit.HeldReply(c, odd); ok || held != nil {
			t.Errorf("HeldReply(%v) = %v, want none", odd, held)
		}
	}
	held, ok := rediskit.HeldReply(c, []any{[]byte("h"), int64(7)})
	if want := (strategy.HeldError{Name: name, Holder: "h", TTL: 7 * ms}); !ok || *held != want {
		t.Errorf("HeldReply = %+v, %v, want %+v", held, ok, want)
	}

	type read func(reply any) error
	lost := func(reply any) error { return rediskit.LostReply(server, c, reply) }
	released := func(reply any) error { return rediskit.ReleaseReply(server, c, reply) }
	fence := func(reply any) error { _, err := rediskit.FenceReply(server, "counter", reply); return err }
	for what, tt := range map[string]struct {
		read  read
		reply any
		is    error
		says  string
	}{
		"lost: gone":                {lost, nil, strategy.ErrLost, "the key is gone"},
		"lost: taken":               {lost, []byte("other"), strategy.ErrLost, `now held by "…er"`},
		"lost: refused, of many":    {lost, []any{[]byte("WRONGTYPE")}, strategy.ErrRefused, "redis:6379: refused by the server: WRONGTYPE"},
		"lost: two words":           {lost, []any{[]byte("a"), []byte("b")}, strategy.ErrUnknown, ""},
		"lost: a number":            {lost, int64(1), strategy.ErrUnknown, ""},
		"released: another number":  {released, int64(2), strategy.ErrUnknown, ""},
		"released: an odd reply":    {released, []any{}, strategy.ErrUnknown, ""},
		"a counter without a fence": {fence, []byte("x"), strategy.ErrRefused, `FENCE the counter counter holds no fence: "x"`},
		"no counter":                {fence, nil, nil, ""},
	} {
		err := tt.read(tt.reply)
		if tt.is == nil {
			is(t, what, err)
		} else {
			is(t, what, err, tt.is)
			saysAll(t, what, err, tt.says)
		}
	}
	n, err := rediskit.FenceReply(server, "counter", []byte("18446744073709551615"))
	is(t, "FenceReply", err)
	equal(t, "FenceReply", n, uint64(math.MaxUint64))
}

// TestRun: a script gets the claim's key, and its reply is the outcome.
func TestRun(t *testing.T) {
	t.Parallel()
	s := driver.NewScript("s", "return 1")
	refused := &strategy.ServerError{Node: "n", Kind: strategy.ErrRefused}
	for what, tt := range map[string]struct {
		reply any
		err   error
		want  []error
	}{
		"done":     {int64(1), nil, nil},
		"held":     {[]any{[]byte("h"), int64(7)}, nil, []error{strategy.ErrHeld}},
		"gone":     {nil, nil, []error{strategy.ErrLost}},
		"taken":    {[]byte("other"), nil, []error{strategy.ErrLost}},
		"odd":      {int64(2), nil, []error{strategy.ErrUnknown}},
		"no reply": {nil, refused, []error{refused}},
	} {
		n := &told{answer: func(string) (any, error) { return tt.reply, tt.err }}
		is(t, what, rediskit.Run(bg, n, driver.Claim{Name: name, Key: key}, s, "a", 2), tt.want...)
		equal(t, what, fmt.Sprint(n.asked), "[s "+key+" a 2]")
	}
}

// channel is a node that has one subscriber.
type channel struct {
	driver.Node
	name string
	ctx  context.Context
	due  time.Time
	tell func(msg []byte, err error)
}

func (n *channel) Subscribe(ctx context.Context, name string, fn func([]byte, error)) (func(), error) {
	n.ctx, n.name, n.tell = ctx, name, fn
	n.due, _ = ctx.Deadline()
	return func() {}, nil
}

// TestWatchChannel: a message is a holder that has released, an empty one is nothing, and an error is the
// end. The claim's due bounds the subscription alone.
func TestWatchChannel(t *testing.T) {
	t.Parallel()
	n := &channel{}
	due := time.Now().Add(time.Hour)
	var heard []driver.Notification
	_, err := rediskit.WatchChannel(bg, n, driver.Claim{Due: due}, "free", func(x driver.Notification) { heard = append(heard, x) })
	is(t, "WatchChannel", err)
	equal(t, "channel", n.name, "free")
	equal(t, "due", n.due, due)
	is(t, "its context afterwards", n.ctx.Err(), context.Canceled)
	n.tell([]byte("holder"), nil)
	n.tell(nil, nil)
	if len(heard) != 1 || heard[0].Holder != "holder" || heard[0].Broken() {
		t.Errorf("heard %+v, want a release", heard)
	}
	n.tell(nil, errNonsense)
	if len(heard) != 2 || !heard[1].Broken() {
		t.Errorf("heard %+v, want a release and the end", heard)
	}
	for _, n := range []driver.Notification{{Holder: "h"}, {Token: "t"}, {Next: 1}} {
		if n.Broken() {
			t.Errorf("%+v is the end of a subscription, want that it is not", n)
		}
	}
}

// TestDemoted: HELLO says whether the server is a primary; no other reply does.
func TestDemoted(t *testing.T) {
	hello := func(role string) any {
		return []any{[]byte("server"), []byte("redis"), []byte("proto"), int64(2), []byte("role"), []byte(role), []byte("modules"), []any{}}
	}
	for _, c := range []struct {
		reply any
		want  bool
	}{
		{hello("master"), false},
		{hello("replica"), true},
		{hello(""), true},
		{nil, false},
		{[]byte("PONG"), false},
		{[]any{[]byte("server"), []byte("role")}, false},
		{[]any{[]byte("role")}, false},
		{[]any{int64(1), []byte("replica")}, false},
	} {
		if got := rediskit.Demoted(c.reply); got != c.want {
			t.Errorf("Demoted(%q) = %v, want %v", c.reply, got, c.want)
		}
	}
}

// nested is an array in an array, and so on.
func nested(depth int) any {
	var reply any = int64(1)
	for range depth {
		reply = []any{reply}
	}
	return reply
}

// TestDescribe: a text about a reply is short, however long and deep the reply is.
func TestDescribe(t *testing.T) {
	t.Parallel()
	long := make([]any, 1_000_000)
	for want, reply := range map[string]any{
		"<nil>":                              nil,
		"7":                                  int64(7),
		`"what"`:                             []byte("what"),
		`"\x1b[1"`:                           []byte("\x1b[1"),
		`"xxxxxxxxxxxxxxxxxxxx"`:             []byte(strings.Repeat("x", 20)),
		`"xxxxxxxxxxxxxxxxxxxx"… (21 bytes)`: []byte(strings.Repeat("x", 21)),
		`"xxxxxxxxxxxxxxxxxxxx"… (1000000 bytes)`: []byte(strings.Repeat("x", 1_000_000)),
		`[1, "x", <nil>]`:  []any{int64(1), []byte("x"), nil},
		`[[[1 elements]]]`: nested(1_000_000),
		`[<nil>, <nil>, <nil>, … (1000000 elements)]`:       long,
		`[[<nil>, <nil>, <nil>, … (1000000 elements)], []]`: []any{long, []any{}},
		"a float64": 1.5,
	} {
		if got := rediskit.Describe(reply); got != want {
			t.Errorf("Describe = %.300s, want %s", got, want)
		}
	}
	for what, err := range map[string]error{
		"BadReply":     rediskit.BadReply("n", nested(1_000_000)),
		"LostReply":    rediskit.LostReply("n", driver.Claim{}, nested(1_000_000)),
		"ReleaseReply": rediskit.ReleaseReply("n", driver.Claim{}, nested(1_000_000)),
	} {
		if is(t, what, err, strategy.ErrUnknown); len(err.Error()) > 300 || !strings.HasPrefix(err.Error(), "n: ") {
			t.Errorf("%s = %.300s…, want a short text that names the server", what, err)
		}
	}
}
