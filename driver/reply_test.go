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
		"maxmemory:1000\r\n": nil,
		"role:slave\r\n":     {"is a slave", "primary"},
		"loading:1\r\n":      {"is loading"},
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
	is(t, "CheckNode of an unreachable server", driver.CheckNode(bg, time.Time{}, node{err: unreachable()}), strategy.ErrUnsent)
	is(t, "CheckNode of a strange server", driver.CheckNode(bg, time.Time{}, node{reply: int64(1)}), strategy.ErrUnknown)
}

func unreachable() error {
	return &strategy.ServerError{Node: "redis:6379", Kind: strategy.ErrUnsent, Err: errors.New("refused")}
}

func TestScript(t *testing.T) {
	t.Parallel()
	s := driver.NewScript("one", "return 1")
	equal(t, "Name", s.Name(), "one")
	equal(t, "Source", s.Source(), "return 1")
	equal(t, "Hash", s.Hash(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db") // SCRIPT LOAD "return 1"
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
