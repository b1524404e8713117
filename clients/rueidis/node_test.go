package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/strategy"
)

func TestNewWantsAClient(t *testing.T) {
	if n, err := New(nil); err == nil || !strings.Contains(err.Error(), "rueidis.NewClient") {
		t.Errorf("New(nil) = %v, %v, want an error that says how to make a client", n, err)
	}
}

func TestNameIsTheAddress(t *testing.T) {
	s := redistest.Shared(t)
	if got := shared(t).Name(); got != s.Addr() {
		t.Errorf("Name() = %s, want %s", got, s.Addr())
	}
	n := shared(t)
	n.fixed = "" // as with Sentinel
	if got := n.Name(); got != Unnamed {
		t.Errorf("Name() = %s before the first request, want %s", got, Unnamed)
	}
	echo(t, n, "x")
	if got := n.Name(); !strings.Contains(got, ":") {
		t.Errorf("Name() = %s after the first request, want the server's own address", got)
	}
}

// What RESP3 says becomes what the contract knows, and RESP2 says the same in other words.
func TestRepliesBecomeTheContractsTypes(t *testing.T) {
	t.Parallel()
	resp2 := optionsOf(t, redistest.Shared(t))
	resp2.AlwaysRESP2, resp2.DisableCache = true, true
	three, two := shared(t), newNode(t, resp2)
	const resp3 = "redis.setresp(3) "
	for _, tt := range []struct {
		lua        string
		want, old  any // old: in RESP2, where it differs
		onlyThree  bool
		wantFailed error
	}{
		{lua: "return 42", want: int64(42)},
		{lua: "return 'text'", want: "text"},
		{lua: "return ''", want: ""},
		{lua: "return redis.status_reply('FINE')", want: "FINE"},
		{lua: "return false", want: nil},
		{lua: "return nil", want: nil},
		{lua: "return {1, 'a', {false, {}}}", want: []any{int64(1), "a", []any{nil, []any{}}}},
		{lua: "return string.rep('x', 100000)", want: strings.Repeat("x", 100000)},
		{lua: "return '\\0\\r\\n\\255'", want: "\x00\r\n\xff"},
		{lua: resp3 + "return {double = 0.5}", want: "0.5"},
		{lua: resp3 + "return true", want: int64(1)},
		{lua: resp3 + "return {map = {b = 2, a = {double = 1.5}}}", want: []any{"a", "1.5", "b", int64(2)}, onlyThree: true},
		{lua: resp3 + "return {set = {a = true}}", want: []any{"a"}},
		{lua: resp3 + "return {big_number = '123456789012345678901234567890'}", want: "123456789012345678901234567890"},
		{lua: resp3 + "return {verbatim_string = {format = 'txt', string = 'a:b'}}", want: "a:b"},
		{lua: resp3 + "return {verbatim_string = {format = 'txt', string = ''}}", want: ""},
		{lua: "return redis.error_reply('WRONGTYPE no')", wantFailed: strategy.ErrRefused},
	} {
		for name, n := range map[string]*Node{"RESP3": three, "RESP2": two} {
			if name == "RESP2" && tt.onlyThree {
				continue // there the order of a map is Lua's
			}
			reply, err := n.Do(t.Context(), soon(), "EVAL", tt.lua, 0)
			if tt.wantFailed != nil {
				want(t, name+": "+tt.lua, err, tt.wantFailed)
				continue
			}
			if got := fmt.Sprintf("%#v", readable(reply)); err != nil || got != fmt.Sprintf("%#v", tt.want) {
				t.Errorf("%s: %s = %.200s, %v, want %.200s", name, tt.lua, got, err, fmt.Sprintf("%#v", tt.want))
			}
		}
	}
	// And what the strategies' Check reads.
	reply, err := three.Do(t.Context(), soon(), "INFO", "server")
	if text, ok := reply.([]byte); err != nil || !ok || !strings.HasPrefix(string(text), "# Server") {
		t.Errorf("INFO = %.30q, %v, want a text that begins with # Server", reply, err)
	}
}

// readable has strings for []byte, and fails on what the contract does not know.
func readable(reply any) any {
	switch r := reply.(type) {
	case nil, int64:
		return r
	case []byte:
		return string(r)
	case []any:
		all := make([]any, len(r))
		for i, e := range r {
			all[i] = readable(e)
		}
		return all
	}
	return fmt.Sprintf("a %T, which is none of the contract's", reply)
}

// An error reply has changed nothing, unless it ends a script in the middle.
func TestWhatAnErrorReplyMeans(t *testing.T) {
	t.Parallel()
	n := shared(t)
	for words, kind := range map[string]error{
		"NOPERM this user has no permissions":                                  strategy.ErrRefused,
		"MOVED 3999 127.0.0.1:6381":                                            strategy.ErrRefused,
		"ERR Script attempted to access a non local key in a cluster node, on": strategy.ErrUnknown,
		"ERR Error running script: @user_script:9: Lua script attempted to access a non local key in a cluster node": strategy.ErrUnknown,
	} {
		_, err := n.Do(t.Context(), soon(), "EVAL", "return redis.error_reply(ARGV[1])", "0", words)
		want(t, words, err, kind)
	}
}

type shout string

func (s shout) String() string { return strings.ToUpper(string(s)) }

func TestArguments(t *testing.T) {
	t.Parallel()
	n := shared(t)
	script := strategy.NewScript("args", "return {KEYS[1], KEYS[2], unpack(ARGV)}")
	reply, err := n.Eval(t.Context(), soon(), script, []string{"{k}1", "{k}2"},
		"s", []byte("b\x00"), 7, int64(-8), 0.25, true, false, nil, shout("loud"), 250*time.Millisecond)
	const wanted = `[{k}1 {k}2 s b` + "\x00" + ` 7 -8 0.25 1 0  LOUD 250ms]`
	if got := fmt.Sprintf("%s", reply); err != nil || got != wanted {
		t.Errorf("arguments = %q, %v, want %q", got, err, wanted)
	}
	for _, cmd := range []string{"", "SUBSCRIBE", "psubscribe", "UNSUBSCRIBE"} {
		_, err := n.Do(t.Context(), soon(), cmd, "k")
		want(t, "Do "+cmd, err, strategy.ErrUnsent)
	}
	// No key, and an empty one.
	if reply, err := n.Do(t.Context(), soon(), "PING", ""); err != nil || fmt.Sprintf("%s", reply) != "PONG" {
		t.Errorf("PING = %s, %v", reply, err)
	}
	if reply, err := n.Do(t.Context(), soon(), "EVAL", "return ARGV[1]", 1, "", "x"); err != nil || fmt.Sprintf("%s", reply) != "x" {
		t.Errorf("EVAL with an empty key = %s, %v", reply, err)
	}
}

// A done context, a due time in the past: nothing is sent, not even a dial for it.
func TestDoneContextSendsNothing(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	past := time.Now().Add(-time.Second)
	script := strategy.NewScript("x", "return 1")
	for _, warm := range []bool{false, true} {
		var s spy
		n := newNode(t, s.options(optionsOf(t, redistest.Shared(t))))
		if warm {
			echo(t, n, "before")
			_, stop := subscribe(t, n, t.Name())
			defer stop()
			if err := n.Session(t.Context(), soon(), "k", func(strategy.Conn) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		before := s.said()
		for what, call := range map[string]func(ctx context.Context, due time.Time) error{
			"Do": func(ctx context.Context, due time.Time) error {
				_, err := n.Do(ctx, due, "SET", "k", "v")
				return err
			},
			"Eval": func(ctx context.Context, due time.Time) error {
				_, err := n.Eval(ctx, due, script, []string{"k"})
				return err
			},
			"Session": func(ctx context.Context, due time.Time) error {
				return n.Session(ctx, due, "k", func(strategy.Conn) error { t.Error("fn was called"); return nil })
			},
		} {
			want(t, what+" with a done context", call(done, soon()), strategy.ErrUnsent, why)
			want(t, what+" when due", call(t.Context(), past), strategy.ErrUnsent, os.ErrDeadlineExceeded)
		}
		_, err := n.Subscribe(done, "c", func([]byte, error) { t.Error("fn was called") })
		want(t, "Subscribe with a done context", err, strategy.ErrUnsent, why)
		if after := s.said(); len(after) != len(before) || strings.Join(after, "") != withoutPings(before, after) {
			t.Errorf("warm %v: said %q, want nothing after %q", warm, after, before)
		}
	}
}

// withoutPings is what was said before, with the client's own pings that came since.
func withoutPings(before, after []string) string {
	var all strings.Builder
	for i := range before {
		all.WriteString(before[i])
		if rest, ok := strings.CutPrefix(after[i], before[i]); ok && strings.Trim(strings.ReplaceAll(rest, "*1\r\n$4\r\nPING\r\n", ""), " ") == "" {
			all.WriteString(rest)
		}
	}
	return all.String()
}

func TestNoScriptIsInvisible(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, optionsOf(t, srv))
	count := strategy.NewScript("count", "return redis.call('INCR', KEYS[1])")
	for i := range int64(6) {
		if i%2 == 0 {
			redistest.Do(t, srv, "SCRIPT", "FLUSH")
		}
		if reply, err := n.Eval(t.Context(), soon(), count, []string{"n"}); err != nil || reply != i+1 {
			t.Errorf("Eval = %v, %v, want %d", reply, err, i+1)
		}
	}
	calls, err := srv.Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if calls["eval"] != 3 || calls["evalsha"] != 6 {
		t.Errorf("%d EVAL, %d EVALSHA, want 3 and 6: it is sent by hash where the server knows it", calls["eval"], calls["evalsha"])
	}
}

// Many callers, some of whom leave: everybody gets his own reply, and nobody another's.
func TestCancellationsMixNothingUp(t *testing.T) {
	t.Parallel()
	n := shared(t)
	var wg sync.WaitGroup
	var answered, left atomic.Int32
	for c := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			for i := range 200 {
				text := fmt.Sprint(c, "-", i)
				ctx, cancel := context.WithCancel(t.Context())
				due := soon()
				switch rng.IntN(4) {
				case 0:
					time.AfterFunc(time.Duration(rng.IntN(200))*time.Microsecond, cancel)
				case 1:
					due = time.Now().Add(time.Duration(rng.IntN(300)) * time.Microsecond)
				}
				reply, err := n.Do(ctx, due, "ECHO", text)
				switch {
				case err == nil && fmt.Sprintf("%s", reply) == text:
					answered.Add(1)
				case err == nil:
					t.Errorf("ECHO %s = %s", text, reply)
				case errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent):
					left.Add(1)
				default:
					t.Errorf("ECHO %s = %v, want unknown or unsent", text, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if answered.Load() == 0 || left.Load() == 0 {
		t.Errorf("%d answered, %d left: this proves nothing", answered.Load(), left.Load())
	}
	if !n.Ordered() {
		t.Error("Ordered = false, want true")
	}
	echo(t, n, "after")
}

// Callers who come together travel together.
func TestCallersShareAPacket(t *testing.T) {
	t.Parallel()
	var s spy
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, s.options(optionsOf(t, srv)))
	echo(t, n, "first")
	redistest.Skip(t, srv.Freeze(t.Context()), "that callers share a packet")
	line := s.last()
	var wg sync.WaitGroup
	wg.Go(func() { n.Do(t.Context(), soon(), "ECHO", "alone") })
	eventually(t, "the first is sent", func() bool { return strings.Contains(saidOn(line), "alone") })
	for i := range 10 {
		wg.Go(func() {
			text := fmt.Sprint("crowd", i)
			if reply, err := n.Do(t.Context(), soon(), "ECHO", text); err != nil || fmt.Sprintf("%s", reply) != text {
				t.Errorf("ECHO %s = %s, %v", text, reply, err)
			}
		})
	}
	eventually(t, "ten wait", func() bool {
		n.line.mu.Lock()
		defer n.line.mu.Unlock()
		return len(n.line.queue) == 10
	})
	if strings.Contains(saidOn(line), "crowd") {
		t.Error("the crowd was sent before the one before it was answered")
	}
	ctx := context.Background()
	if err := srv.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if s.dialled() != 2 { // the client's own, and the line's
		t.Errorf("%d connections, want 2", s.dialled())
	}
}

func saidOn(c *spied) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.String()
}

func TestACL(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	for user, c := range map[string]struct {
		rule    string
		ordered bool
	}{
		"nokill":   {"-client|kill", false},
		"noinfo":   {"-client|info", false},
		"noclient": {"-client", false},
		"all":      {"+@all", true},
	} {
		redistest.Do(t, srv, "ACL", "SETUSER", user, "on", ">pw", "~*", "resetchannels", "&open*", "+@all", c.rule)
		// Without CLIENT the client's cache cannot be.
		n := newNode(t, rueidis.ClientOption{InitAddress: []string{srv.Addr()}, Username: user, Password: "pw", DisableCache: true})
		echo(t, n, user)
		if n.Ordered() != c.ordered {
			t.Errorf("%s: Ordered = %v, want %v", user, n.Ordered(), c.ordered)
		}
		_, err := n.Subscribe(t.Context(), "shut", func([]byte, error) { t.Error("fn was called") })
		want(t, "Subscribe to a forbidden channel", err, strategy.ErrRefused)
		if !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("Subscribe = %v, want the server's words", err)
		}
		stop, err := n.Subscribe(t.Context(), "open", func([]byte, error) {})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if err := n.Session(t.Context(), soon(), "k", func(c strategy.Conn) error {
			_, err := c.Do("WATCH", "k")
			return err
		}); err != nil {
			t.Errorf("%s: Session = %v", user, err)
		}
	}
}

// A password that is wrong: nothing is sent, the server's words are told, the password is not.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{Password: "s3cret"})
	n := newNode(t, rueidis.ClientOption{InitAddress: []string{srv.Addr()}, Password: "wr0ng"})
	_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
	subscribed := func() error {
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) { t.Error("fn was called") })
		return err
	}
	session := func() error {
		return n.Session(t.Context(), soon(), "k", func(strategy.Conn) error { t.Error("fn was called"); return nil })
	}
	for what, err := range map[string]error{"Do": err, "Subscribe": subscribed(), "Session": session()} {
		want(t, what+" with a wrong password", err, strategy.ErrUnsent)
		if err != nil && (!strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "wr0ng")) {
			t.Errorf("%s = %v, want the server's words without the password", what, err)
		}
	}
	said := discreet(errors.New("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 's3cret'"))
	if strings.Contains(said.Error(), "s3cret") {
		t.Errorf("discreet = %v", said)
	}
}

// Close ends what is under way and gives back what was lent; the client stays the user's.
func TestClose(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	client := newClient(t, optionsOf(t, srv))
	n, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, n, "before")
	h, _ := subscribe(t, n, "c")
	redistest.Skip(t, srv.Freeze(t.Context()), "what Close does to calls under way")
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := n.Do(t.Context(), soon(), "ECHO", "sent"); first <- err }()
	eventually(t, "one is sent", func() bool { n.line.mu.Lock(); defer n.line.mu.Unlock(); return len(n.line.flight) == 1 })
	go func() { _, err := n.Do(t.Context(), soon(), "ECHO", "queued"); second <- err }()
	eventually(t, "one is queued", func() bool { n.line.mu.Lock(); defer n.line.mu.Unlock(); return len(n.line.queue) == 1 })
	began := time.Now()
	if err := n.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if took := time.Since(began); took > 2*closeGrace {
		t.Errorf("Close took %v", took)
	}
	want(t, "what was sent", receive(t, "its end", first), strategy.ErrUnknown, strategy.ErrClosed)
	want(t, "what was queued", receive(t, "its end", second), strategy.ErrUnsent, strategy.ErrClosed)
	if got := receive(t, "the subscription's end", h.msgs); !strings.HasPrefix(got, "error: ") {
		t.Errorf("heard %q, want the end", got)
	}
	if err := n.Close(); err != nil {
		t.Errorf("second Close = %v", err)
	}
	_, err = n.Do(t.Context(), soon(), "ECHO", "x")
	want(t, "Do after Close", err, strategy.ErrUnsent, strategy.ErrClosed)
	_, err = n.Subscribe(t.Context(), "c", func([]byte, error) {})
	want(t, "Subscribe after Close", err, strategy.ErrUnsent, strategy.ErrClosed)
	err = n.Session(t.Context(), soon(), "k", nil)
	want(t, "Session after Close", err, strategy.ErrUnsent, strategy.ErrClosed)

	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Errorf("PING by the user's client after Close = %v", err)
	}
}

// Nothing of ours runs while nobody calls or listens, nor after Close; and as many
// connections are the server's as before.
func TestNothingIsLeftRunning(t *testing.T) {
	srv := redistest.Own(t, redistest.Config{})
	client := newClient(t, optionsOf(t, srv))
	n, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	none := func() bool { return running() == 0 }
	eventually(t, "a quiet start", none)
	for range 4 {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() { n.Do(t.Context(), soon(), "ECHO", fmt.Sprint(i)) })
		}
		wg.Wait()
	}
	eventually(t, "no goroutine while idle", none)
	stop, err := n.Subscribe(t.Context(), t.Name(), func([]byte, error) {})
	if err != nil {
		t.Fatal(err)
	}
	if none() {
		t.Error("nothing runs while subscribed: the count proves nothing")
	}
	stop()
	if err := n.Session(t.Context(), soon(), "k", func(c strategy.Conn) error { return nil }); err != nil {
		t.Error(err)
	}
	n.Close()
	eventually(t, "no goroutine after Close", none)
	// The line and the session's went back to the client's pool; that with subscriptions
	// is closed.
	eventually(t, "no subscription is left", func() bool {
		return !strings.Contains(fmt.Sprintf("%s", redistest.Do(t, srv, "CLIENT", "LIST")), "sub=1")
	})
	// And whoever comes next has the connections of those who have gone.
	connections := func() int { return strings.Count(fmt.Sprintf("%s", redistest.Do(t, srv, "CLIENT", "LIST")), "\n") }
	before := connections()
	for i := range 5 {
		again, err := New(client)
		if err != nil {
			t.Fatal(err)
		}
		echo(t, again, "again")
		again.Close()
		if after := connections(); after > before {
			t.Errorf("node %d: %d connections, want %d", i, after, before)
		}
	}
}

func running() int {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	count := 0
	for _, g := range strings.Split(string(buf), "\n\n") {
		if _, by, _ := strings.Cut(g, "created by "); strings.Contains(g, "clients/rueidis.(*") && !strings.HasPrefix(by, "testing.") {
			count++
		}
	}
	return count
}
