package nodetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// calls are the ways to have a Node send something in the time that it is given.
var calls = map[string]func(n driver.Node, ctx context.Context, due time.Time) error{
	"Do": func(n driver.Node, ctx context.Context, due time.Time) error {
		_, err := n.Do(ctx, due, "SET", "k", "v")
		return err
	},
	"Eval": func(n driver.Node, ctx context.Context, due time.Time) error {
		_, err := n.Eval(ctx, due, driver.NewScript("one", "return 1"), []string{"k"})
		return err
	},
	"Session": func(n driver.Node, ctx context.Context, due time.Time) error {
		return n.Session(ctx, due, "k", func(c driver.Conn) error { // some connect with the first command
			_, err := c.Do("EXEC")
			return err
		})
	},
	"Subscribe": func(n driver.Node, ctx context.Context, _ time.Time) error {
		_, err := n.Subscribe(ctx, "c", func([]byte, error) {})
		return err
	},
}

// A context that is done, a due time in the past: nothing is sent, not even a dial for it.
func doneContextSendsNothing(t *testing.T, s Subject) {
	for what, warm := range map[string]bool{"new": false, "warm": true} {
		t.Run(what, func(t *testing.T) { Bubble(t, func(t *testing.T) { s.sendsNothingLate(t, warm) }) })
	}
}

func (s Subject) sendsNothingLate(t *testing.T, warm bool) {
	cause := errors.New("enough")
	done, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	n, f := s.inMemory(t, (*Conn).Plain)
	if warm {
		Echo(t, n, "before")
		_, stop := Subscribe(t, n, "c")
		defer stop()
		redistest.Must(t, n.Session(t.Context(), Soon(), "k", func(driver.Conn) error { return nil }))
	}
	synctest.Wait()
	dialled, log := f.Dialled(), f.all()
	for what, call := range calls {
		Want(t, what+" with a done context", call(n, done, Soon()), strategy.ErrUnsent, cause)
		if what != "Subscribe" { // which has no due time
			Want(t, what+" past due", call(n, t.Context(), time.Now().Add(-time.Second)), strategy.ErrUnsent, os.ErrDeadlineExceeded)
			Want(t, what+" when due", call(n, t.Context(), time.Now()), strategy.ErrUnsent, os.ErrDeadlineExceeded)
		}
	}
	err := n.Session(done, Soon(), "k", func(driver.Conn) error { t.Error("fn was called"); return nil })
	Want(t, "Session with a done context", err, strategy.ErrUnsent, cause)
	_, err = n.Subscribe(done, "c", never(t))
	Want(t, "Subscribe with a done context", err, strategy.ErrUnsent, cause)
	synctest.Wait()
	if after := f.all()[len(log):]; len(after) > 0 || f.Dialled() != dialled {
		t.Errorf("the server saw %q, and %d more connections, want nothing", after, f.Dialled()-dialled)
	}
}

// Whatever the protocol has, the contract's types are nil, int64, []byte, and []any of these.
func repliesAreOfTheContractsTypes(t *testing.T, s Subject) {
	type list = []any
	text := func(s string) []byte { return []byte(s) }
	replies := map[string]any{
		"return 7":                            int64(7),
		"return -7":                           int64(-7),
		"return 'text'":                       text("text"),
		"return ''":                           []byte{},
		"return '\\0\\r\\n\\255'":             text("\x00\r\n\xff"),
		"return string.rep('x', 100000)":      text(strings.Repeat("x", 100000)),
		"return redis.status_reply('FINE')":   text("FINE"),
		"return false":                        nil,
		"return nil":                          nil,
		"return true":                         int64(1),
		"return {1, 'x', {false, {}}}":        list{int64(1), text("x"), list{nil, list{}}},
		"return {}":                           list{},
		"return {redis.status_reply('FINE')}": list{text("FINE")},
	}
	const resp3 = "redis.setresp(3) return "
	for lua, reply := range map[string]any{
		"{double = 0.5}":     text("0.5"),
		"true":               int64(1),
		"{map = {a = 1}}":    list{text("a"), int64(1)},
		"{set = {a = true}}": list{text("a")},
		"{big_number = '123456789012345678901234567890'}":      text("123456789012345678901234567890"),
		"{verbatim_string = {format = 'txt', string = 'a:b'}}": text("a:b"),
		"{verbatim_string = {format = 'txt', string = ''}}":    []byte{},
	} {
		replies[resp3+lua] = reply
	}
	if err := kills(redistest.Shared(t)); err != nil {
		t.Skipf("NOT PROVEN: what becomes of Redis' replies: %v", err)
	}
	s.each(t, func(t *testing.T, protocol int) {
		n := s.Open(t, Options{URL: redistest.Shared(t).URL(), Protocol: protocol})
		for lua, reply := range replies {
			did, err := n.Do(t.Context(), Soon(), "EVAL", lua, 0)
			ran, err2 := n.Eval(t.Context(), Soon(), driver.NewScript("reply", lua), nil)
			if err := errors.Join(err, err2); err != nil || !reflect.DeepEqual(did, reply) || !reflect.DeepEqual(ran, reply) {
				t.Errorf("%s = %.200q and %.200q, %v, want %.200q", lua, did, ran, err, reply)
			}
		}
		// And what the strategies ask.
		got, err := n.Do(t.Context(), Soon(), "CONFIG", "GET", "maxmemory-policy")
		if pair, ok := got.([]any); err != nil || !ok || len(pair) != 2 {
			t.Errorf("CONFIG GET = %v, %v, want a pair", got, err)
		}
		got, err = n.Do(t.Context(), Soon(), "TIME", "")
		if pair, ok := got.([]any); err != nil || !ok || len(pair) != 2 {
			t.Errorf("TIME = %v, %v, want seconds and microseconds", got, err)
		}
		got, err = n.Do(t.Context(), Soon(), "INFO", "server")
		if text, ok := got.([]byte); err != nil || !ok || !strings.HasPrefix(string(text), "# Server") || !strings.Contains(string(text), "_version:") {
			t.Errorf("INFO = %.40q, %v, want a text that begins with # Server, and tells a version", got, err)
		}
	})
}

// An error reply has changed nothing, unless it ends a script in the middle.
func errorRepliesAreOfTheirKind(t *testing.T, s Subject) {
	const half = "Script attempted to access a non local key in a cluster node"
	s.each(t, func(t *testing.T, protocol int) {
		n := s.Open(t, Options{URL: redistest.Shared(t).URL(), Protocol: protocol})
		for words, kind := range map[string]error{
			"ERR no":                              strategy.ErrRefused,
			"WRONGTYPE no":                        strategy.ErrRefused,
			"NOPERM this user has no permissions": strategy.ErrRefused,
			"OOM no memory":                       strategy.ErrRefused,
			"BUSY script":                         strategy.ErrRefused,
			"MOVED 3999 127.0.0.1:6381":           strategy.ErrRefused,
			"CLUSTERDOWN no":                      strategy.ErrRefused,
			"ERR " + half + ", on":                strategy.ErrUnknown,
			"ERR A" + half[len("Script a"):] + " script: on @user_script:9.": strategy.ErrUnknown, // Valkey 9.1
			"ERR Script attempted to access a slot not served":               strategy.ErrUnknown, // Redis 8, Valkey 8
			"ERR Error running script: @user_script:9: Lua s" + half[1:]:     strategy.ErrUnknown,
		} {
			_, err := n.Do(t.Context(), Soon(), "EVAL", "return redis.error_reply(ARGV[1])", 0, words)
			Want(t, words, err, kind)
			wantWords(t, words, err, strings.TrimPrefix(words, "ERR ")) // some clients take that off
		}
		if _, err := n.Do(t.Context(), Soon(), "LPUSH", t.Name(), "x"); err != nil {
			t.Fatal(err)
		}
		_, err := n.Do(t.Context(), Soon(), "GET", t.Name())
		Want(t, "GET of a list", err, strategy.ErrRefused)
		wantWords(t, "GET of a list", err, "WRONGTYPE")
		wantWords(t, "GET of a list", err, n.Name())
	})
}

// Where no server is, the node sends nothing, and says why.
func nobodyThere(t *testing.T, s Subject) {
	n := s.Open(t, Options{URL: "redis://127.0.0.1:1"})
	for what, call := range calls {
		err := call(n, t.Context(), Soon())
		Want(t, what, err, strategy.ErrUnsent)
		wantWords(t, what, err, "refused")
	}
}

// A script is sent by its hash, and in full where the server has forgotten it; it runs once.
func noScriptIsInvisible(t *testing.T, s Subject) {
	n, srv := s.exclusive(t)
	count := driver.NewScript("count", "return redis.call('INCR', KEYS[1])")
	for i := range 50 {
		if i%2 == 0 {
			redistest.Do(t, srv, "SCRIPT", "FLUSH")
		}
		if got, err := n.Eval(t.Context(), Soon(), count, []string{"n"}); err != nil || got != int64(i+1) {
			t.Fatalf("Eval %d = %v, %v, want %d: once each", i, got, err, i+1)
		}
	}
	asked, err := srv.Calls(t.Context())
	redistest.Skip(t, err, "how often a script is sent in full")
	if asked["eval"] != 25 || asked["evalsha"] != 50 {
		t.Errorf("%d EVAL, %d EVALSHA, want 25 and 50", asked["eval"], asked["evalsha"])
	}

	// Among callers who come together.
	script := driver.NewScript("echo", "return ARGV[1]")
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := range 100 {
				if c == 0 && i%5 == 0 {
					if _, err := n.Do(t.Context(), Soon(), "SCRIPT", "FLUSH"); err != nil {
						t.Error(err)
					}
				}
				value := fmt.Sprintf("%d-%d", c, i)
				r, err := n.Eval(t.Context(), Soon(), script, []string{"k"}, value)
				if b, _ := r.([]byte); err != nil || string(b) != value {
					t.Errorf("Eval(%s) = %q, %v", value, r, err)
				}
			}
		})
	}
	wg.Wait()
	before := asked
	if asked, err = srv.Calls(t.Context()); err != nil {
		t.Fatal(err)
	}
	full, hashed := asked["eval"]-before["eval"], asked["evalsha"]-before["evalsha"]
	if full == 0 || full > hashed/2 {
		t.Errorf("%d EVAL and %d EVALSHA, want some EVAL and mostly EVALSHA", full, hashed)
	}
}

// Many callers, some of whom leave: everybody gets his own reply, and nobody another's.
func cancellationsMixNothingUp(t *testing.T, s Subject) {
	n := s.shared(t)
	Echo(t, n, "before")
	var wg sync.WaitGroup
	var answered, left atomic.Int32
	for c := range 16 {
		wg.Go(func() {
			for i := range 200 {
				text := fmt.Sprint(c, "-", i)
				ctx, cancel := context.WithCancel(t.Context())
				due := Soon()
				switch rand.IntN(4) {
				case 0:
					time.AfterFunc(rand.N(200*time.Microsecond), cancel)
				case 1:
					due = time.Now().Add(rand.N(300 * time.Microsecond))
				}
				reply, err := n.Do(ctx, due, "ECHO", text)
				cancel()
				switch b, _ := reply.([]byte); {
				case err == nil && string(b) == text:
					answered.Add(1)
				case err == nil:
					t.Errorf("ECHO %s = %q", text, reply)
				case errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent):
					left.Add(1)
				default:
					t.Errorf("ECHO %s = %v, want unknown or unsent", text, err)
				}
			}
		})
	}
	wg.Wait()
	if answered.Load() == 0 || left.Load() == 0 {
		t.Errorf("%d answered, %d left: this proves nothing", answered.Load(), left.Load())
	}
	// The request of one who left may still be under way: then its connection is given up, with
	// what was sent next. After that nobody is in the way.
	if _, err := n.Do(t.Context(), Soon(), "PING", ""); err != nil && !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("PING = %v, want nil or unknown", err)
	}
	Echo(t, n, "after")
	s.wantOrder(t, n)
}

// A right that a user lacks costs the order at most, or the error has the server's words.
func rightsThatAreMissing(t *testing.T, s Subject) {
	srv := redistest.Own(t, redistest.Config{})
	if err := kills(srv); err != nil {
		t.Skipf("NOT PROVEN: what a user may not do, and what that costs: %v", err)
	}
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
		n := s.Open(t, Options{URL: "redis://" + user + ":pw@" + srv.Addr()})
		Echo(t, n, user)
		if want := c.ordered && s.Ordered; n.Ordered() != want {
			t.Errorf("%s: Ordered = %v, want %v", user, n.Ordered(), want)
		}
		_, err := n.Subscribe(t.Context(), "shut", never(t))
		Want(t, "Subscribe to a forbidden channel", err, strategy.ErrRefused)
		wantWords(t, "Subscribe to a forbidden channel", err, "NOPERM")
		_, stop := Subscribe(t, n, "open")
		stop()
		if err := n.Session(t.Context(), Soon(), "k", func(c driver.Conn) error {
			_, err := c.Do("WATCH", "k")
			return err
		}); err != nil {
			t.Errorf("%s: Session = %v", user, err)
		}
	}
}

// A connection that is lost at rest, or a server that is away for a while, is found by a probe.
func probeTellsOfAReturn(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		n, f := s.on(t, protocol, (*Conn).Plain)
		probe := func() uint64 { return n.Probe(t.Context(), Soon()) }
		Echo(t, n, "here")
		before := probe()
		if got := probe(); got != before {
			t.Errorf("Probe = %d of a server that was not away, want %d as before", got, before)
		}
		for range 2 {
			f.Cut()
			verdict.Eventually(t, "the node reports the return", func() bool { return probe() > before })
			verdict.Eventually(t, "and nothing more", func() bool { was := before; before = probe(); return before == was })
		}
	})
}

func serverKilledAndRestarted(t *testing.T, s Subject) {
	n, srv := s.exclusive(t)
	Echo(t, n, "before")
	redistest.Skip(t, srv.Kill(t.Context()), "what a killed server leaves")
	_, err := n.Do(t.Context(), Soon(), "SET", "k", "v")
	if !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("SET to a dead server = %v, want unknown or unsent", err)
	}
	_, err = n.Do(t.Context(), Soon(), "SET", "k", "v")
	Want(t, "next SET to a dead server", err, strategy.ErrUnsent)
	wantWords(t, "next SET to a dead server", err, "refused")
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	Echo(t, n, "after")
	s.wantOrder(t, n)
}

// After Close nothing begins, and subscribers hear of the end.
func closedRefuses(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		n, f := s.on(t, protocol, (*Conn).Plain)
		Echo(t, n, "before")
		h, stop := Subscribe(t, n, "c")
		stopped, stopEarly := Subscribe(t, n, "c")
		stopEarly()
		for range 2 {
			if err := n.Close(); err != nil {
				t.Errorf("Close = %v, want nil", err)
			}
		}
		Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown, strategy.ErrClosed)
		stop()
		if !h.Silent() || !stopped.Silent() {
			t.Error("a subscription that had ended, or was stopped, heard more")
		}
		asked := len(f.Log())
		for what, call := range calls {
			Want(t, what+" after Close", call(n, t.Context(), Soon()), strategy.ErrUnsent, strategy.ErrClosed)
		}
		if after := f.Log()[asked:]; len(after) > 0 {
			t.Errorf("the server saw %q after Close, want nothing", after)
		}
	})
}

// NothingIsLeftRunning checks that no goroutine is the Node's while nobody calls or listens, nor
// after Close. It looks at all goroutines: a test that calls it must not be parallel.
func NothingIsLeftRunning(t *testing.T, s Subject) {
	none := func() bool { return running(s.Package) == 0 }
	verdict.Eventually(t, "a quiet start", none)
	n := s.shared(t)
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := range 20 {
				text := fmt.Sprint(c, "-", i)
				reply, err := n.Do(t.Context(), Soon(), "ECHO", text)
				if b, _ := reply.([]byte); err != nil || string(b) != text {
					t.Errorf("ECHO %s = %q, %v", text, reply, err)
				}
			}
		})
	}
	wg.Wait()
	verdict.Eventually(t, "no goroutine while idle", none)
	_, stop := Subscribe(t, n, t.Name())
	if none() {
		t.Error("nothing runs while subscribed: the count proves nothing")
	}
	stop()
	if !s.Reads {
		verdict.Eventually(t, "no goroutine after the last subscription", none)
	}
	if err := n.Session(t.Context(), Soon(), "k", func(driver.Conn) error { return nil }); err != nil {
		t.Error(err)
	}
	if !s.Reads {
		verdict.Eventually(t, "no goroutine after a session", none)
	}
	Subscribe(t, n, t.Name())
	n.Close()
	verdict.Eventually(t, "no goroutine after Close", none)
}

// running counts the goroutines that methods of the package's types run in, or of what all clients share, but those of tests.
func running(pkg string) (count int) {
	node := regexp.MustCompile(`(` + pkg + `|internal/subscription)\.\(\*|internal/client\.Call`)
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		if _, by, _ := strings.Cut(g, "created by "); node.MatchString(g) && !strings.HasPrefix(by, "testing.") {
			count++
		}
	}
	return count
}

// Several strategies may share a Node: it goes on until the last of them has closed it.
func sharedUntilTheLastIsClosed(t *testing.T, s Subject) {
	n, _ := s.on(t, s.newest(), (*Conn).Plain)
	for range 3 {
		n.Use()
	}
	for range 2 {
		if err := n.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
		Echo(t, n, "goes on")
	}
	n.Close() //nolint:errcheck // as above
	_, err := n.Do(t.Context(), Soon(), "ECHO", "over")
	Want(t, "ECHO after the last Close", err, strategy.ErrUnsent, strategy.ErrClosed)
}
