// Tests what the helpers for Check make of a server's answers: what is forbidden is named with what to allow,
// and what is allowed gives no error. A real server's answers are in internal/testkit/subjects.
package rediskit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// told is a node that answers each command and each script as a test says, and keeps what it was asked.
type told struct {
	driver.Node
	answer func(cmd string) (any, error)
	asked  []string
}

func (*told) Name() string { return "redis:6379" }

func (n *told) ask(cmd string, rest ...any) (any, error) {
	n.asked = append(n.asked, strings.TrimSpace(fmt.Sprintln(append([]any{cmd}, rest...)...)))
	return n.answer(cmd)
}

func (n *told) Do(_ context.Context, _ time.Time, cmd, key string, args ...any) (any, error) {
	return n.ask(cmd, append([]any{key}, args...)...)
}

func (n *told) Eval(_ context.Context, _ time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	return n.ask(s.Name(), append([]any{strings.Join(keys, " ")}, args...)...)
}

func refusal(kind error, words string) error {
	return &strategy.ServerError{Node: "redis:6379", Kind: kind, Err: errors.New(words)}
}

// saysAll checks an error's words; none: there is no error.
func saysAll(t *testing.T, call string, err error, words ...string) {
	t.Helper()
	if len(words) == 0 {
		is(t, call, err)
	}
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%s = %v, want it to say %q", call, err, w)
		}
	}
}

func TestCheckScripts(t *testing.T) {
	t.Parallel()
	texts := func(words ...string) []any {
		reply := make([]any, len(words))
		for i, w := range words {
			reply[i] = []byte(w)
		}
		return reply
	}
	nothing := texts()
	forbidden := refusal(strategy.ErrRefused, "NOPERM no eval")
	needed := []rediskit.Right{{Key: "k1", Commands: []string{"GET", "PUBLISH"}, Channel: "c1"}, {Key: "k2", Commands: []string{"SET"}}}
	for what, tt := range map[string]struct {
		rights, noLua func() (any, error)
		is            error
		asked         int
		want          []string
	}{
		"all is allowed": {asked: 3},
		"commands": {
			rights: func() (any, error) { return texts("GET", "", "PUBLISH", "no such command"), nil }, asked: 2, is: strategy.ErrRefused,
			want: []string{"may not run GET (allow +get on k1, k2)", "PUBLISH: no such command (allow +publish on the channel c1, "},
		},
		"the script":          {rights: func() (any, error) { return nil, forbidden }, asked: 2, is: strategy.ErrRefused, want: []string{"NOPERM no eval (allow +evalsha and +eval on k1, k2)"}},
		"no answer":           {rights: func() (any, error) { return nil, unreachable() }, asked: 1, is: strategy.ErrUnsent},
		"EVAL":                {noLua: func() (any, error) { return nil, forbidden }, asked: 3, is: strategy.ErrRefused, want: []string{"allow +eval: the server forgets scripts"}},
		"EVAL of no Lua":      {noLua: func() (any, error) { return nil, refusal(strategy.ErrRefused, "ERR Error compiling") }, asked: 3},
		"EVAL has no answer":  {noLua: func() (any, error) { return nil, refusal(strategy.ErrUnsent, "NOPERM in a proxy") }, asked: 3},
		"EVAL refused dumbly": {noLua: func() (any, error) { return nil, &strategy.ServerError{Kind: strategy.ErrRefused} }, asked: 3},
		"EVAL fails oddly":    {noLua: func() (any, error) { return nil, errors.New("NOPERM ") }, asked: 3},
		"an odd reply":        {rights: func() (any, error) { return int64(1), nil }, asked: 1, is: strategy.ErrUnknown},
		"half a reply":        {rights: func() (any, error) { return texts("GET"), nil }, asked: 1, is: strategy.ErrUnknown},
		"no command in it":    {rights: func() (any, error) { return []any{nil, []byte("")}, nil }, asked: 1, is: strategy.ErrUnknown},
		"no reason in it":     {rights: func() (any, error) { return []any{[]byte("GET"), nil}, nil }, asked: 1, is: strategy.ErrUnknown},
	} {
		t.Run(what, func(t *testing.T) {
			n := &told{answer: func(script string) (any, error) {
				switch {
				case script == "rights" && tt.rights != nil:
					return tt.rights()
				case script == "no Lua" && tt.noLua != nil:
					return tt.noLua()
				}
				return nothing, nil
			}}
			err := rediskit.CheckScripts(bg, time.Time{}, n, needed...)
			if tt.is != nil {
				is(t, "CheckScripts", err, tt.is)
			} else {
				is(t, "CheckScripts", err)
			}
			if len(tt.want) > 0 {
				saysAll(t, "CheckScripts", err, tt.want...)
			}
			if err != nil && strings.Count(err.Error(), "NOPERM no eval") > 1 {
				t.Errorf("CheckScripts = %v, want the server's words once", err)
			}
			equal(t, "requests", len(n.asked), tt.asked)
			equal(t, "the first request", n.asked[0], "rights k1 c1 GET PUBLISH")
		})
	}
	n := &told{}
	is(t, "CheckScripts that need nothing", rediskit.CheckScripts(bg, time.Time{}, n))
	equal(t, "requests for nothing", len(n.asked), 0)
}

func TestCheckCommands(t *testing.T) {
	t.Parallel()
	n := &told{answer: func(cmd string) (any, error) {
		if cmd == "SET" {
			return nil, refusal(strategy.ErrRefused, "NOPERM")
		}
		return nil, nil
	}}
	err := rediskit.CheckCommands(bg, time.Time{}, n, "k", []any{"GET"}, []any{"SET", "x", "XX"}, []any{"DEL"})
	is(t, "CheckCommands", err, strategy.ErrRefused)
	saysAll(t, "CheckCommands", err, "NOPERM (allow +set on k)")
	equal(t, "requests", strings.Join(n.asked, ", "), "GET k, SET k x XX, DEL k")
	n.answer = func(cmd string) (any, error) {
		if cmd == "DEL" {
			return nil, refusal(strategy.ErrRefused, "NOPERM del")
		}
		return nil, refusal(strategy.ErrRefused, "NOPERM no such key")
	}
	err = rediskit.CheckCommands(bg, time.Time{}, n, "k", []any{"GET"}, []any{"DEL"}, []any{"SET", "x", "XX"})
	saysAll(t, "CheckCommands of a key that is forbidden", err, "NOPERM no such key (allow +get, +set on k)\n", "NOPERM del (allow +del on k)")
	n.answer = func(cmd string) (any, error) {
		if cmd == "PUBLISH" {
			return nil, refusal(strategy.ErrRefused, "NOPERM No permissions to access a channel")
		}
		return nil, refusal(strategy.ErrRefused, "NOPERM this user has no permissions to access one of the keys used as arguments")
	}
	c := rediskit.CheckClaim(strategy.Options{Key: strategy.DefaultKey})
	err = rediskit.CheckCommands(bg, time.Time{}, n, c.Key, []any{"GET"}, []any{"DEL"}, []any{"PUBLISH"})
	saysAll(t, "CheckCommands of a user without rules for keys", err, "arguments (allow the keys ~lock:{*})\n", "channel (allow the channels &lock:{*})")
	err = rediskit.CheckScripts(bg, time.Time{}, n, rediskit.Right{Key: c.Key}, rediskit.Right{Key: c.Key + ":queue:" + c.Token})
	saysAll(t, "CheckScripts of a user without rules for keys", err, "(allow the keys ~lock:{*}, ~lock:{*}:queue:*)")
	n.answer = func(string) (any, error) { return nil, nil }
	is(t, "CheckCommands", rediskit.CheckCommands(bg, time.Time{}, n, "k", []any{"GET"}))
	n.answer = func(string) (any, error) { return nil, unreachable() }
	err = rediskit.CheckCommands(bg, time.Time{}, n, "k", []any{"GET"})
	is(t, "CheckCommands without a server", err, strategy.ErrUnsent)
	if strings.Contains(err.Error(), "allow") {
		t.Errorf("CheckCommands without a server = %v, want no advice about rights", err)
	}
}

// watcher is a Notifier that keeps how it was asked.
type watcher struct {
	err     error
	asked   []driver.Claim
	stopped int
}

func (w *watcher) Watch(_ context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	w.asked = append(w.asked, c)
	fn(driver.Notification{})
	return func() { w.stopped++ }, w.err
}

func TestCheckWatch(t *testing.T) {
	t.Parallel()
	for way, line := range map[strategy.Wait]string{strategy.WaitNotification: "", strategy.WaitQueue: "t"} {
		w := &watcher{}
		is(t, "CheckWatch", rediskit.CheckWatch(bg, driver.Claim{Key: "k", Token: "t"}, way, w))
		equal(t, "subscriptions, and ended", fmt.Sprint(len(w.asked), w.stopped), "1 1")
		equal(t, "line", w.asked[0].Line, line)
		w.err = refusal(strategy.ErrRefused, "NOPERM")
		err := rediskit.CheckWatch(bg, driver.Claim{Key: "k"}, way, w)
		is(t, "CheckWatch", err, strategy.ErrRefused)
		saysAll(t, "CheckWatch", err, way.String(), "the channels of k")
		equal(t, "ended", w.stopped, 1)
	}
	for _, way := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll} {
		is(t, "CheckWatch", rediskit.CheckWatch(bg, driver.Claim{}, way, &watcher{err: errNonsense}))
	}
}

// inspected is a protocol whose Inspect keeps the claim.
type inspected struct {
	driver.Protocol
	claim driver.Claim
	err   error
}

func (p *inspected) Inspect(_ context.Context, c driver.Claim) (strategy.Info, error) {
	p.claim = c
	return strategy.Info{}, p.err
}

// TestCheckLock: all checks and the inspection get one claim, of a lock that nobody has. The first error
// ends it.
func TestCheckLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := strategy.Options{TTL: ttl, OpTimeout: op, Key: func(n string) string { return "k:" + n }}
		var claims []driver.Claim
		keep := func(_ context.Context, c driver.Claim) error { claims = append(claims, c); return nil }
		p := &inspected{}
		is(t, "CheckLock", rediskit.CheckLock(bg, o, p, keep, keep))
		c := p.claim
		if len(claims) != 2 || claims[0].Token != c.Token || claims[1].Token != c.Token || c.Token == "" || c.Owner != c.Token {
			t.Errorf("claims %+v and %+v, want the same three times", claims, c)
		}
		equal(t, "name", c.Name, "check:"+c.Token)
		equal(t, "key", c.Key, "k:"+c.Name)
		equal(t, "TTL", c.TTL, ttl)
		equal(t, "due", c.Due, time.Now().Add(op))
		fails := func(context.Context, driver.Claim) error { return errNonsense }
		p = &inspected{err: unreachable()}
		is(t, "CheckLock", rediskit.CheckLock(bg, o, p, keep, fails), errNonsense)
		equal(t, "inspected after a failure", p.claim.Name, "")
		is(t, "CheckLock", rediskit.CheckLock(bg, o, p, keep), strategy.ErrUnsent)
	})
}

// scriptedOn is a protocol of scripts on a node that answers what a test says.
type scriptedOn struct {
	scripted
	*told
}

func (p scriptedOn) Inspect(context.Context, driver.Claim) (strategy.Info, error) {
	_, err := p.ask("inspect")
	return strategy.Info{}, err
}

func (p scriptedOn) Watch(context.Context, driver.Claim, func(driver.Notification)) (func(), error) {
	_, err := p.ask("watch")
	return func() {}, err
}

// A protocol of scripts is checked step by step, and the first step that fails is the last.
func TestCheckScripted(t *testing.T) {
	t.Parallel()
	steps := []string{"INFO", "SCRIPT", "SCRIPT", "rights", "no", "watch", "inspect"} // "no Lua" asks whether scripts may run
	for _, fails := range []string{"INFO", "SCRIPT", "rights", "watch", "inspect", ""} {
		n := &told{answer: func(cmd string) (any, error) {
			switch cmd {
			case fails:
				return nil, unreachable()
			case "INFO":
				return []byte{}, nil
			}
			return []any{}, nil
		}}
		o := strategy.Options{TTL: ttl, OpTimeout: op, Key: strategy.DefaultKey, Wait: strategy.WaitNotification}
		needed := func(c driver.Claim) []rediskit.Right {
			return []rediskit.Right{{Key: c.Key, Commands: []string{"GET"}}}
		}
		err, want := rediskit.CheckScripted(bg, o, scriptedOn{told: n}, needed), steps
		if fails == "" {
			is(t, "CheckScripted", err)
		} else {
			is(t, "CheckScripted if "+fails+" fails", err, strategy.ErrUnsent)
			want = steps[:slices.Index(steps, fails)+1]
		}
		var asked []string
		for _, words := range n.asked {
			cmd, _, _ := strings.Cut(words, " ")
			asked = append(asked, cmd)
		}
		equal(t, "asked if "+fails+" fails", fmt.Sprint(asked), fmt.Sprint(want))
	}
}

// TestCheckClaim: a check keeps a fence for as long as a lock would.
func TestCheckClaim(t *testing.T) {
	t.Parallel()
	key := func(name string) string { return name }
	for fenceTTL, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, -1: 0} {
		c := rediskit.CheckClaim(strategy.Options{Key: key, FenceTTL: fenceTTL})
		equal(t, "FenceTTL", c.FenceTTL, want)
	}
}

// scripted is a protocol that sends a script.
type scripted struct{ driver.Protocol }

var scriptOne = driver.NewScript("one", "return 1")

func (scripted) Scripts() []*driver.Script { return []*driver.Script{scriptOne} }

// TestScripts: they are a protocol's own, and that of its Check; one that sends none has none.
func TestScripts(t *testing.T) {
	t.Parallel()
	if got := rediskit.Scripts(scripted{}); !slices.Equal(got, []*driver.Script{scriptOne, rediskit.Rights}) {
		t.Errorf("Scripts = %v, want one, and rights", got)
	}
	if got := rediskit.Scripts(struct{ driver.Protocol }{}); got != nil {
		t.Errorf("Scripts of a protocol that has none = %v", got)
	}
}

// TestLoadScripts: every script is loaded; a server that refuses that is asked once, and is no failure.
func TestLoadScripts(t *testing.T) {
	t.Parallel()
	a, b := driver.NewScript("a", "return 1"), driver.NewScript("b", "return 2")
	for what, c := range map[string]struct {
		err   error
		asked int
		is    error
	}{
		"loaded":    {nil, 3, nil},
		"forbidden": {refusal(strategy.ErrRefused, "NOPERM"), 1, nil},
		"no answer": {refusal(strategy.ErrUnsent, "gone"), 1, strategy.ErrUnsent},
	} {
		n := &told{answer: func(string) (any, error) { return []byte("sha"), c.err }}
		err := rediskit.LoadScripts(bg, time.Time{}, n, a, b)
		if !errors.Is(err, c.is) || len(n.asked) != c.asked {
			t.Errorf("%s: LoadScripts = %v after %d requests, want %v after %d", what, err, len(n.asked), c.is, c.asked)
		}
		if c.err == nil && (n.asked[1] != "SCRIPT LOAD return 1" || n.asked[2] != "SCRIPT LOAD return 2") {
			t.Errorf("%s: asked %q, want SCRIPT LOAD of both sources", what, n.asked)
		}
	}
}
