// Tests how replies of Redis are read, and what the small helpers of protocols and nodes make of them.
package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// node is a server that answers INFO, or fails.
type node struct {
	driver.Node
	reply any
	err   error
}

func (node) Name() string { return "redis:6379" }
func (n node) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return n.reply, n.err
}

// Gone: a loss for a release; for an undo success, if nothing can arrive any more.
func TestGone(t *testing.T) {
	t.Parallel()
	granted := driver.Grant{Start: time.Now()}
	for _, tt := range []struct {
		ordered bool
		c       driver.Claim
		want    error
	}{
		{false, driver.Claim{}, strategy.ErrLost},
		{true, driver.Claim{Grant: granted}, strategy.ErrLost},
		{true, driver.Claim{Undo: true}, nil},
		{false, driver.Claim{Undo: true, Grant: granted}, nil},
		{false, driver.Claim{Undo: true}, strategy.ErrUnknown},
	} {
		tt.c.Name = name
		err := driver.Gone("redis:6379", tt.ordered, tt.c, "other")
		what := fmt.Sprintf("Gone(ordered %v, undo %v, granted %v)", tt.ordered, tt.c.Undo, !tt.c.Grant.IsZero())
		if tt.want == nil {
			is(t, what, err)
			continue
		}
		is(t, what, err, tt.want)
		var lost *strategy.LostError
		if tt.want == strategy.ErrLost && (!errors.As(err, &lost) || *lost != strategy.LostError{Name: name, Holder: "other"}) {
			t.Errorf("%s = %#v, want a LostError that names the other", what, err)
		}
	}
}

func TestBadReply(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{nil, int64(7), []byte("what"), []any{nil, []byte("x")}, []byte(strings.Repeat("x", 1e6))} {
		err := driver.BadReply("redis:6379", reply)
		is(t, "BadReply", err, strategy.ErrUnknown)
		if n := len(err.Error()); n > 300 || !strings.Contains(err.Error(), "redis:6379") {
			t.Errorf("BadReply = %d bytes: %.300q, want a short text that names the server", n, err)
		}
	}
	if err := driver.BadReply("redis:6379", []byte("what")); !strings.Contains(err.Error(), `"what"`) {
		t.Errorf("BadReply = %q, want the reply in it", err)
	}
}

func TestRemainingTTL(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64 / int64(ms) // a Duration can say
	for reply, want := range map[int64]time.Duration{
		-1: -1, math.MinInt64: -1, 0: ms, 1: ms, 1500: 1500 * ms,
		most: time.Duration(most) * ms, most + 1: time.Duration(most) * ms, math.MaxInt64: time.Duration(most) * ms,
	} {
		equal(t, fmt.Sprintf("RemainingTTL(%d)", reply), driver.RemainingTTL(reply), want)
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
	} {
		err := driver.CheckNode(bg, time.Time{}, node{reply: []byte(info)})
		if len(want) == 0 {
			is(t, fmt.Sprintf("CheckNode of %q", info), err)
		}
		for _, w := range want {
			if !strings.Contains(fmt.Sprint(err), w) || !strings.Contains(fmt.Sprint(err), "redis:6379") {
				t.Errorf("CheckNode of %q = %v, want the server and %q", info, err, w)
			}
		}
	}
	is(t, "CheckNode of a server that does not tell", driver.CheckNode(bg, time.Time{}, node{err: refusal(strategy.ErrRefused, "NOPERM")}))
	is(t, "CheckNode of an unreachable server", driver.CheckNode(bg, time.Time{}, node{err: unreachable()}), strategy.ErrUnsent)
	is(t, "CheckNode of a strange server", driver.CheckNode(bg, time.Time{}, node{reply: int64(1)}), strategy.ErrUnknown)
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
		if held, ok := driver.HeldReply(c, odd); ok || held != nil {
			t.Errorf("HeldReply(%v) = %v, want none", odd, held)
		}
	}
	held, ok := driver.HeldReply(c, []any{[]byte("h"), int64(7)})
	if want := (strategy.HeldError{Name: name, Holder: "h", TTL: 7 * ms}); !ok || *held != want {
		t.Errorf("HeldReply = %+v, %v, want %+v", held, ok, want)
	}

	type read func(reply any) error
	lost := func(reply any) error { return driver.LostReply(server, c, reply) }
	released := func(reply any) error { return driver.ReleaseReply(server, true, c, reply) }
	undone := func(reply any) error {
		return driver.ReleaseReply(server, true, driver.Claim{Name: name, Undo: true}, reply)
	}
	fence := func(reply any) error { _, err := driver.FenceReply(server, "counter", reply); return err }
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
		"released":                  {released, int64(1), nil, ""},
		"released: another number":  {released, int64(2), strategy.ErrUnknown, ""},
		"released: gone":            {released, nil, strategy.ErrLost, "the key is gone"},
		"released: taken":           {released, []byte("other"), strategy.ErrLost, `now held by "…er"`},
		"released: an odd reply":    {released, []any{}, strategy.ErrUnknown, ""},
		"undone: gone":              {undone, nil, nil, ""},
		"undone: taken":             {undone, []byte("other"), nil, ""},
		"a counter without a fence": {fence, []byte("x"), strategy.ErrRefused, `the counter counter holds no fence: "x"`},
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
	n, err := driver.FenceReply(server, "counter", []byte("18446744073709551615"))
	is(t, "FenceReply", err)
	equal(t, "FenceReply", n, uint64(math.MaxUint64))
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
	_, err := driver.WatchChannel(bg, n, driver.Claim{Due: due}, "free", func(x driver.Notification) { heard = append(heard, x) })
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

// TestSiblingKey: a sibling lies in its key's slot: that of the first hash tag that is not empty.
func TestSiblingKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"lock:{n}": "lock:{n}:s", "n": "{n}:s:", "a{}b": "{a{}b}:s:", "a{b": "{a{b}:s:", "a}b": "{a}b}:s:", "{n}": "{n}:s", "{ab}{c}": "{ab}{c}:s",
	} {
		equal(t, "SiblingKey of "+key, driver.SiblingKey(key, "s"), want)
	}
}

// TestRemains: the mark comes off, whether or not there is an error below it, also deep in another error.
func TestRemains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err, want error
		remains   bool
	}{
		{nil, nil, false}, {errNonsense, errNonsense, false}, {driver.Remains(nil), nil, true}, {driver.Remains(errNonsense), errNonsense, true},
	} {
		err, remains := driver.Unmark(tt.err)
		if err != tt.want || remains != tt.remains {
			t.Errorf("Unmark(%v) = %v, %v, want %v, %v", tt.err, err, remains, tt.want, tt.remains)
		}
	}
	if _, remains := driver.Unmark(fmt.Errorf("more: %w", driver.Remains(errNonsense))); !remains {
		t.Error("Unmark of a wrapped mark = false, want true")
	}
	equal(t, "words", driver.Remains(nil).Error(), "something may remain with a server that did not answer")
	equal(t, "words", driver.Remains(errNonsense).Error(), errNonsense.Error())
}

func TestScript(t *testing.T) {
	t.Parallel()
	s := driver.NewScript("one", "return 1")
	equal(t, "Name", s.Name(), "one")
	equal(t, "Source", s.Source(), "return 1")
	equal(t, "Hash", s.Hash(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db") // SCRIPT LOAD "return 1"
	equal(t, "HashArg", s.HashArg(), any(s.Hash()))
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{refusal(strategy.ErrRefused, "NOSCRIPT No matching script."), true},
		{refusal(strategy.ErrRefused, "ERR NOSCRIPT "), false},
		{refusal(strategy.ErrUnknown, "NOSCRIPT No matching script."), false}, // who knows what else happened
		{&strategy.ServerError{Kind: strategy.ErrRefused}, false},
		{errors.New("NOSCRIPT "), false},
	} {
		equal(t, fmt.Sprintf("Missing(%v)", tt.err), s.Missing(tt.err), tt.want)
	}
	if shared, ok := s.Joint(); ok || shared != 0 {
		t.Errorf("Joint = %d, %v, want none", shared, ok)
	}
	if shared, ok := driver.NewJointScript("many", 2, "return 1").Joint(); !ok || shared != 2 {
		t.Errorf("Joint = %d, %v, want 2, true", shared, ok)
	}
}

// FuzzInfo: whatever INFO says, Check has an opinion, and a short one.
func FuzzInfo(f *testing.F) {
	for _, info := range []string{
		"", "role:master\r\n", "role:slave\r\nloading:1\r\n", "maxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n", ":\r\n::", "role", "role:\x00\xff",
	} {
		f.Add([]byte(info))
	}
	f.Fuzz(func(t *testing.T, info []byte) {
		err := driver.CheckNode(bg, time.Time{}, node{reply: info})
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("CheckNode of %q says %d bytes", info, len(err.Error()))
		}
	})
}

// prober is a node that was away so often.
type prober struct {
	node
	returns uint64
}

func (p prober) Probe(context.Context, time.Time) uint64 { return p.returns }

// TestProbeNodes: the nodes' returns are summed; a node that cannot tell has none.
func TestProbeNodes(t *testing.T) {
	t.Parallel()
	equal(t, "of no nodes", driver.ProbeNodes(bg, time.Time{}), 0)
	equal(t, "of three", driver.ProbeNodes(bg, time.Time{}, prober{returns: 2}, node{}, prober{returns: 3}), 5)
}

// TestReadOnly: a replica is known by its refusal, also where a script has met with it.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]bool{
		"READONLY You can't write against a read only replica.":                                                                               true,
		"READONLY You can't write against a read only replica. script: 0123, on @user_script:1.":                                              true,
		"ERR Error running script (call to f_0123): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica. ": true,
		"Error running script (call to f_0123): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.":      true, // as rueidis gives it
		"@user_script: 9: -READONLY You can't write against a read only replica.":                                                             true, // which a script has caught
		"ERR Error running script (call to f_0123): @user_script:9: @user_script: 9: -OOM command not allowed":                                false,
		"ERR unknown command 'READONLY '": false,
		"READONLYNESS":                    false,
		"":                                false,
	} {
		if got := driver.ReadOnly(errors.New(words)); got != want {
			t.Errorf("ReadOnly(%q) = %v, want %v", words, got, want)
		}
	}
}

// TestErrorReply: it has changed nothing, unless it ends a script in the middle.
func TestErrorReply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		words string
		kind  error
	}{
		"forbidden": {"NOPERM this user has no permissions", strategy.ErrRefused},
		"moved":     {"MOVED 3999 127.0.0.1:6381", strategy.ErrRefused},
		"try again": {"TRYAGAIN Multiple keys request", strategy.ErrRefused},
		"script":    {"ERR Error running script (call to f_0123)", strategy.ErrRefused},
		"memory":    {"ERR Error running script (call to f_0123): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.", strategy.ErrRefused},
		"Redis 7":   {"ERR Script attempted to access a non local key in a cluster node script: 0123, on @user_script:142.", strategy.ErrUnknown},
		"Redis 6":   {"ERR Error running script (call to f_0123): @user_script:9: Lua script attempted to access a non local key in a cluster node", strategy.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			said := errors.New(c.words)
			err := driver.ErrorReply("redis:6379", said)
			if !errors.Is(err, c.kind) || !errors.Is(err, said) || !strings.HasPrefix(err.Error(), "redis:6379: ") {
				t.Errorf("%v, want %v", err, c.kind)
			}
		})
	}
}
