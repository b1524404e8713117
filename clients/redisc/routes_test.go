// Tests to which servers requests and sessions go, in what order, and what their callers learn: on a cluster
// in memory.
package rediscnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// The key of the tables is k, in slot 7629.
const (
	movedB = "-MOVED 7629 b:1"
	askB   = "-ASK 7629 b:1"
)

var one = driver.NewScript("one", "return 1")

// call is a request or session that is due a second later.
type call func(ctx context.Context, f *fake, due time.Time) (any, error)

func getK(ctx context.Context, f *fake, due time.Time) (any, error) {
	return f.Do(ctx, due, "GET", "k")
}

// eval runs a script on these keys.
func eval(keys ...string) call {
	return func(ctx context.Context, f *fake, due time.Time) (any, error) {
		return f.Eval(ctx, due, one, keys, "arg")
	}
}

// session sends commands on one connection, and has in mind what the last was answered, also with a refusal.
func session(cmds ...string) call {
	return func(ctx context.Context, f *fake, due time.Time) (reply any, err error) {
		var last error
		err = f.Session(ctx, due, "k", func(c driver.Conn) error {
			for _, cmd := range cmds {
				var args []any
				words := strings.Fields(cmd)
				for _, w := range words[1:] {
					args = append(args, w)
				}
				reply, last = c.Do(words[0], args...)
			}
			return nil
		})
		return reply, errors.Join(err, last)
	}
}

// subscribe is a subscription that is stopped again.
func subscribe(ctx context.Context, f *fake, _ time.Time) (any, error) {
	stop, err := f.Subscribe(ctx, "k", func([]byte, error) {})
	if err == nil {
		stop()
	}
	return nil, err
}

// within gives a call another time.
func within(limit time.Duration, c call) call {
	return func(ctx context.Context, f *fake, due time.Time) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return c(ctx, f, due)
	}
}

func past(c call) call {
	return func(ctx context.Context, f *fake, _ time.Time) (any, error) { return c(ctx, f, time.Now()) }
}

func cancelled(c call) call {
	return func(ctx context.Context, f *fake, due time.Time) (any, error) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return c(ctx, f, due)
	}
}

func closed(c call) call {
	return func(ctx context.Context, f *fake, due time.Time) (any, error) {
		f.Close() //nolint:errcheck // it has none
		return c(ctx, f, due)
	}
}

// A route is one call: what the servers say, what they are asked, and what the caller gets.
type route struct {
	name    string
	call    call
	says    []say
	layouts []string
	startup []string
	log     string  // what is asked; "many": whatever
	reply   string  // empty: none
	is      []error // what the error is
	words   string  // and has in it
	node    string  // and whom it names
	elapsed time.Duration
	moved   bool // the order is lost
}

// slowly: it takes four seconds until the layout is there, and as many for the next, as its server is not.
var slowly = []say{
	{to: "a:1 CLUSTER", reply: slots("0-16383 x:1"), after: 4 * time.Second, times: 1},
	{to: "a:1 CLUSTER", reply: slots("0-16383 b:1"), after: 4*time.Second - askEvery, times: 1},
}

var routes = []route{
	{name: "its server is asked", call: getK, log: "a:1 CLUSTER SLOTS, a:1 GET k", reply: "OK"},
	{name: "a refusal is the caller's", call: getK, says: []say{{to: "a:1 GET", reply: "-ERR no", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k", is: []error{strategy.ErrRefused}, words: "ERR no", node: "memory:1"},
	{name: "a lost reply is the caller's", call: getK, says: []say{{to: "a:1 GET", reply: hangUp, times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k", is: []error{strategy.ErrUnknown}},
	{name: "done", call: cancelled(getK), is: []error{strategy.ErrUnsent, context.Canceled}},
	{name: "too late", call: past(getK), is: []error{strategy.ErrUnsent, os.ErrDeadlineExceeded}},
	{name: "closed", call: closed(getK), is: []error{strategy.ErrUnsent, strategy.ErrClosed}},

	{name: "moved", call: getK, says: []say{{to: "a:1 GET", reply: movedB, times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k, b:1 GET k", reply: "OK", moved: true},
	{name: "asked once", call: getK, says: []say{{to: "a:1 GET", reply: askB, times: ever}, {to: "b:1 GET", reply: "+there", times: 1}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k, b:1 ASKING, b:1 GET k", reply: "there"},
	{name: "asked once, and refused", call: getK, says: []say{{to: "a:1 GET", reply: askB, times: ever}, {to: "b:1 GET", reply: "-ERR no", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k, b:1 ASKING, b:1 GET k", is: []error{strategy.ErrRefused}, words: "ERR no"},
	{name: "asked once, and moved", call: getK, says: []say{{to: "a:1 GET", reply: askB, times: ever}, {to: "b:1 GET", reply: "-MOVED 7629 c:1", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k, b:1 ASKING, b:1 GET k, c:1 GET k", reply: "OK", moved: true},
	{name: "asked once, and not admitted", call: getK, says: []say{{to: "a:1 GET", reply: askB, times: ever}, {to: "b:1 ASKING", reply: "-ERR no", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k, b:1 ASKING, a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "ERR no", elapsed: askEvery},
	{name: "asked once, where there is no pool", call: getK, says: []say{{to: "a:1 GET", reply: "-ASK 7629 no:1", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k, a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "no pool", elapsed: askEvery},
	{name: "keys on their way for ever", call: getK, says: []say{{to: "a:1 GET", reply: "-TRYAGAIN later", times: ever, after: mostPause / 2}},
		log: "many", is: []error{strategy.ErrRefused, os.ErrDeadlineExceeded}, words: "TRYAGAIN", elapsed: time.Second},
	{name: "keys on their way, until the caller goes", call: within(time.Second/2, getK), says: []say{{to: "a:1 GET", reply: "-TRYAGAIN later", times: ever}},
		log: "many", is: []error{strategy.ErrRefused, context.DeadlineExceeded}, words: "TRYAGAIN", elapsed: time.Second / 2},

	{name: "another has taken over", call: getK, layouts: []string{"0-16383 x:1", "0-16383 b:1"},
		log: "a:1 CLUSTER SLOTS, a:1 CLUSTER SLOTS, b:1 GET k", reply: "OK", elapsed: askEvery, moved: true},
	{name: "nobody has taken over", call: getK, layouts: []string{"0-16383 x:1"}, log: "a:1 CLUSTER SLOTS, a:1 CLUSTER SLOTS",
		is: []error{strategy.ErrUnsent}, words: "nobody listens", node: "x:1", elapsed: askEvery},
	{name: "nobody serves the slot", call: getK, layouts: []string{"0-0 a:1"}, log: "a:1 CLUSTER SLOTS",
		is: []error{strategy.ErrUnsent}, words: "no node of the cluster serves slot 7629"},
	{name: "its server has no pool", call: getK, layouts: []string{"0-16383 no:1"}, log: "a:1 CLUSTER SLOTS",
		is: []error{strategy.ErrUnsent}, words: "CreatePool for no:1: no pool"},
	{name: "its server's pool is nil", call: getK, layouts: []string{"0-16383 nil:1"}, log: "a:1 CLUSTER SLOTS",
		is: []error{strategy.ErrUnsent}, words: "CreatePool for nil:1: locks: the *redis.Pool is nil"},

	{name: "who tells of the cluster has no pool", call: getK, startup: []string{"no:1"}, is: []error{strategy.ErrUnsent}, words: "CreatePool for no:1"},
	{name: "nobody tells", call: getK, startup: []string{"x:1", "y:1"}, is: []error{strategy.ErrUnsent}, words: "nobody listens at y:1"},
	{name: "some do not tell", call: getK, startup: []string{"x:1", "y:1", "a:1"}, log: "a:1 CLUSTER SLOTS, a:1 GET k", reply: "OK"},
	{name: "one is silent", call: getK, startup: []string{"a:1", "b:1"}, says: []say{{to: "a:1 CLUSTER", reply: silence, times: 1}}, layouts: []string{"0-16383 b:1"},
		log: "a:1 CLUSTER SLOTS, b:1 CLUSTER SLOTS, b:1 GET k", reply: "OK", elapsed: askNext},
	{name: "the only one is slow", call: getK, says: []say{{to: "a:1 CLUSTER", reply: slots("0-16383 b:1"), times: 1, after: 3 * askNext}},
		log: "a:1 CLUSTER SLOTS, b:1 GET k", reply: "OK", elapsed: 3 * askNext},
	{name: "it is no cluster", call: getK, says: []say{{to: "a:1 CLUSTER", reply: "-ERR This instance has cluster support disabled", times: ever}},
		log: "a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "cluster support disabled"},
	{name: "it tells nonsense", call: getK, says: []say{{to: "a:1 CLUSTER", reply: ":1", times: ever}},
		log: "a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "a:1: CLUSTER SLOTS: an unexpected reply: int64"},
	{name: "it may not tell", call: getK, says: []say{{to: "a:1 CLUSTER", reply: "-NOPERM no", times: ever}, {to: "a:1 GET", reply: movedB, times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k, b:1 GET k", reply: "OK"},

	{name: "no layout comes by then", call: getK, says: []say{{to: "a:1 CLUSTER", reply: silence, times: ever}},
		log: "a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "the server of the slot is not known", elapsed: time.Second},
	{name: "no layout comes before the caller goes", call: within(time.Second/2, getK), says: []say{{to: "a:1 CLUSTER", reply: silence, times: ever}},
		log: "a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "the server of the slot is not known", elapsed: time.Second / 2},
	{name: "what order needs is forbidden", call: getK, says: []say{{to: "a:1 CLIENT KILL", reply: "-NOPERM no", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 GET k", reply: "OK", moved: true},

	{name: "subscription: refused, and not tried again", call: subscribe, says: []say{{to: "a:1 SUBSCRIBE", reply: "-NOPERM no", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 SUBSCRIBE k", is: []error{strategy.ErrRefused}, words: "NOPERM"},
	{name: "subscription: not reached", call: subscribe, layouts: []string{"0-16383 x:1"},
		log: "a:1 CLUSTER SLOTS, a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "x:1: ", elapsed: askEvery},
	{name: "subscription: another has taken over", call: subscribe, layouts: []string{"0-16383 x:1", "0-16383 b:1"},
		log: "a:1 CLUSTER SLOTS, a:1 CLUSTER SLOTS, b:1 SUBSCRIBE k, b:1 UNSUBSCRIBE k", elapsed: askEvery, moved: true},
	{name: "subscription: nobody tells whose it is", call: subscribe, startup: []string{"x:1"}, is: []error{strategy.ErrUnsent}, words: "nobody listens"},
	{name: "subscription: five seconds without a deadline", call: subscribe, says: slowly, log: "many",
		is: []error{strategy.ErrUnsent}, elapsed: confirmLimit},
	{name: "subscription: until an early deadline", call: within(time.Second, subscribe), says: slowly, log: "many",
		is: []error{strategy.ErrUnsent}, elapsed: time.Second},
	{name: "subscription: until a late deadline", call: within(20*time.Second, subscribe), says: slowly, log: "many", elapsed: 8 * time.Second, moved: true},

	{name: "script", call: eval("{k}1", "{k}2"), log: "a:1 CLUSTER SLOTS, a:1 EVALSHA HASH 2 {k}1 {k}2 arg", reply: "OK"},
	{name: "script whose keys lie apart", call: eval("k", "j"), is: []error{strategy.ErrRefused}, words: "CROSSSLOT"},
	{name: "script asked once", call: eval("{k}1", "{k}2"), says: []say{{to: "a:1 EVAL", reply: askB, times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EVALSHA HASH 2 {k}1 {k}2 arg, b:1 ASKING, b:1 EVAL return 1 2 {k}1 {k}2 arg", reply: "OK"},
	{name: "script of the other half", call: eval(keyOf(1)), layouts: []string{"0-8191 a:1, 8192-16383 b:1"},
		log: "a:1 CLUSTER SLOTS, b:1 EVALSHA HASH 1 " + keyOf(1) + " arg", reply: "OK"},

	{name: "session", call: session("GET k"), log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, a:1 GET k", reply: "OK"},
	{name: "session: done", call: cancelled(session("GET k")), is: []error{strategy.ErrUnsent, context.Canceled}},
	{name: "session: too late", call: past(session("GET k")), is: []error{strategy.ErrUnsent, os.ErrDeadlineExceeded}},
	{name: "session: closed", call: closed(session("GET k")), is: []error{strategy.ErrUnsent, strategy.ErrClosed}},
	{name: "session: moved", call: session("GET k"), says: []say{{to: "a:1 EXISTS", reply: movedB, times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, b:1 EXISTS k, b:1 GET k", reply: "OK", moved: true},
	{name: "session: asked once", says: []say{{to: "a:1 EXISTS", reply: askB, times: ever}},
		call:  session("GET k", "multi", "SET k v", "EXEC", "GET k", "MULTI", "SET k w", "discard", "GET k"),
		reply: "OK", log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, b:1 ASKING, b:1 EXISTS k, b:1 ASKING, b:1 GET k, " +
			"b:1 ASKING, b:1 MULTI, b:1 SET k v, b:1 EXEC, b:1 ASKING, b:1 GET k, b:1 ASKING, b:1 MULTI, b:1 SET k w, b:1 DISCARD, b:1 ASKING, b:1 GET k"},
	{name: "session: asked once, and moved", call: session("GET k"), says: []say{{to: "a:1 EXISTS", reply: askB, times: ever}, {to: "b:1 EXISTS", reply: "-MOVED 7629 c:1", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, b:1 ASKING, b:1 EXISTS k, c:1 EXISTS k, c:1 GET k", reply: "OK", moved: true},
	{name: "session: asked once, and not admitted", call: session("GET k"), says: []say{{to: "a:1 EXISTS", reply: askB, times: ever}, {to: "b:1 ASKING", reply: "-ERR no", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, b:1 ASKING, a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, words: "ERR no", elapsed: askEvery},
	{name: "session: asked once, where there is no pool", call: session("GET k"), says: []say{{to: "a:1 EXISTS", reply: "-ASK 7629 no:1", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k", is: []error{strategy.ErrUnsent}, words: "no pool"},
	{name: "session: EXISTS is forbidden", call: session("GET k"), says: []say{{to: "a:1 EXISTS", reply: "-NOPERM no", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, a:1 GET k", reply: "OK"},
	{name: "session: EXISTS is lost", call: session("GET k"), says: []say{{to: "a:1 EXISTS", reply: hangUp, times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, a:1 CLUSTER SLOTS", is: []error{strategy.ErrUnsent}, elapsed: askEvery},
	{name: "session: nobody has taken over", call: session("GET k"), layouts: []string{"0-16383 x:1"}, log: "a:1 CLUSTER SLOTS, a:1 CLUSTER SLOTS",
		is: []error{strategy.ErrUnsent}, words: "nobody listens", node: "x:1", elapsed: askEvery},
	{name: "session: moved in its midst", call: session("GET k"), says: []say{{to: "a:1 GET", reply: movedB, times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, a:1 GET k", is: []error{strategy.ErrRefused}, words: "MOVED", moved: true},
	{name: "session: keys on their way for ever", call: session("GET k"), says: []say{{to: "a:1 GET", reply: "-TRYAGAIN later", times: ever, after: mostPause / 2}},
		log: "many", is: []error{strategy.ErrRefused, os.ErrDeadlineExceeded}, words: "TRYAGAIN", elapsed: time.Second},
	{name: "session: keys on their way in a transaction", call: session("multi", "GET k"), says: []say{{to: "a:1 GET", reply: "-TRYAGAIN later", times: ever}},
		log: "a:1 CLUSTER SLOTS, a:1 EXISTS k, a:1 multi, a:1 GET k, a:1 DISCARD", is: []error{strategy.ErrRefused}, words: "TRYAGAIN"},
}

func TestRoutes(t *testing.T) {
	for _, c := range routes {
		bubbled(t, c.name, func(t *testing.T, f *fake) {
			f.say(c.says...)
			if c.layouts != nil {
				f.layouts = c.layouts
			}
			reply, err := c.call(t.Context(), f, time.Now().Add(time.Second))
			if took := f.elapsed(); took != c.elapsed {
				t.Errorf("it took %v, want %v", took, c.elapsed)
			}
			synctest.Wait()
			log := strings.ReplaceAll(f.log(), one.Hash(), "HASH")
			if c.log != "many" && !strings.EqualFold(log, c.log) {
				t.Errorf("the servers were asked:\n%s, want:\n%s", log, c.log)
			}
			if said, _ := reply.([]byte); string(said) != c.reply {
				t.Errorf("the reply is %q, want %q", said, c.reply)
			}
			if (err == nil) != (c.is == nil) {
				t.Fatalf("the error is %v, want %v", err, c.is)
			}
			for _, is := range c.is {
				if !errors.Is(err, is) {
					t.Errorf("the error is %v, want %v", err, is)
				}
			}
			if err != nil && !strings.Contains(err.Error(), c.words) {
				t.Errorf("the error is %v, want %q in it", err, c.words)
			}
			var said *strategy.ServerError
			if errors.As(err, &said) && c.node != "" && said.Node != c.node {
				t.Errorf("the error names %s, want %s", said.Node, c.node)
			}
			if f.Ordered() == c.moved {
				t.Errorf("Ordered = %v, want %v", c.moved, !c.moved)
			}
		}, c.startup...)
	}
}

// TestNobodyAnswers: the servers that are asked about the cluster have five seconds.
func TestNobodyAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.say(say{to: "a:1 CLUSTER", reply: silence, times: ever}, say{to: "b:1 CLUSTER", reply: silence, times: ever})
		if _, err := f.get("k"); !errors.Is(err, strategy.ErrUnsent) || !errors.Is(err, os.ErrDeadlineExceeded) || f.elapsed() != askLimit {
			t.Errorf("GET: %v after %v, want ErrUnsent after %v, as the time is over", err, f.elapsed(), askLimit)
		}
	}, "a:1", "b:1")
}

// TestTryAgain: the request is sent again, after a pause each.
func TestTryAgain(t *testing.T) {
	for name, c := range map[string]call{"request": getK, "session": session("MULTI", "EXEC", "GET k"), "session, after DISCARD": session("MULTI", "DISCARD", "GET k")} {
		bubbled(t, name, func(t *testing.T, f *fake) {
			f.say(say{to: "a:1 GET", reply: "-TRYAGAIN later", times: 2})
			if _, err := c(t.Context(), f, soon()); err != nil {
				t.Error(err)
			}
			if at := f.when("a:1 GET"); len(at) != 3 || at[1] == at[0] || at[2] == at[1] {
				t.Errorf("GET came at %v, want three times, with pauses", at)
			}
		})
	}
}

// TestSentToAndFro: the first redirections are followed at once, later ones after a pause.
func TestSentToAndFro(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.say(say{to: "a:1 GET", reply: movedB, times: 2}, say{to: "b:1 GET", reply: "-MOVED 7629 a:1", times: 2})
		f.wantGet(t, "k")
		a, b := f.when("a:1 GET"), f.when("b:1 GET")
		if len(a) != 3 || len(b) != 2 || b[0] != a[0] || a[1] != a[0] || b[1] == a[0] {
			t.Errorf("a was asked at %v, b at %v, want three of them at once", a, b)
		}
	})
}

// TestTakenOverAgain: so it is where each server that has taken over is not reached either.
func TestTakenOverAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.layouts = []string{"0-16383 w:1", "0-16383 x:1", "0-16383 y:1", "0-16383 z:1", "0-16383 a:1"}
		f.wantGet(t, "k")
		got := []time.Duration{f.dialled["w:1"], f.dialled["x:1"], f.dialled["y:1"]}
		if want := []time.Duration{0, askEvery, 2 * askEvery}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("w, x and y were dialled at %v, want %v", got, want)
		}
		if z := f.dialled["z:1"]; z <= 3*askEvery || z > 3*askEvery+mostPause {
			t.Errorf("z was dialled at %v, want a pause after %v", z, 3*askEvery)
		}
	})
}

// TestPause: pauses grow, up to a limit, and leave time for an answer.
func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		for tries, most := range map[int]time.Duration{1: 2 * time.Millisecond, 3: 8 * time.Millisecond, 1000: mostPause} {
			for range 50 {
				began := time.Now()
				if err := pause(t.Context(), soon(), tries); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took == 0 || took > most {
					t.Fatalf("pause %d took %v, want at most %v", tries, took, most)
				}
				due := time.Now().Add(mostPause + most/2)
				if err, left := pause(t.Context(), due, tries), time.Until(due); err == nil && left < mostPause || err != nil && left > 0 {
					t.Fatalf("after pause %d (%v) there are %v left, want at least %v, or nothing", tries, err, left, mostPause)
				}
			}
		}
	})
}

// TestSessionRunsOnce: what fn returns is the caller's, also if it is a redirection.
func TestSessionRunsOnce(t *testing.T) {
	for name, says := range map[string][]say{"at home": nil, "asked once": {{to: "a:1 EXISTS", reply: askB, times: ever}}} {
		bubbled(t, name, func(t *testing.T, f *fake) {
			f.say(says...)
			calls := 0
			own := refused("MOVED 7629 c:1")
			err := f.Session(t.Context(), soon(), "k", func(driver.Conn) error { calls++; return own })
			if calls != 1 || !errors.Is(err, own) {
				t.Errorf("fn was called %d times, and Session = %v, want once, and %v", calls, err, own)
			}
		})
	}
}

// TestLearnt: what was learnt of one call is so for the next.
func TestLearnt(t *testing.T) {
	for name, c := range map[string]call{"request": getK, "session": session("GET k"), "script": eval("k")} {
		bubbled(t, name, func(t *testing.T, f *fake) {
			f.say(say{to: "a:1 CLUSTER", reply: "-NOPERM no", times: ever}, say{to: "a:1 GET", reply: movedB, times: ever}, say{to: "a:1 EVAL", reply: movedB, times: ever})
			for range 2 {
				c(t.Context(), f, soon()) //nolint:errcheck // the session's first is refused
			}
			if n := len(f.when("a:1 GET")) + len(f.when("a:1 EVALSHA")); n != 1 {
				t.Errorf("a was asked %d times, want once: it had said that the slot is b's", n)
			}
			<-time.After(time.Second)
			if n := len(f.when("a:1 CLUSTER")) + len(f.when("b:1 CLUSTER")); n != 1 {
				t.Errorf("CLUSTER SLOTS was asked %d times, want once: it is forbidden", n)
			}
		})
	}
}
