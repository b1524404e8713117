// Tests what Acknowledged makes of a protocol: each grant and renewal waits for replicas or the append-only
// file, one that they do not confirm is unknown, and Check says what the server cannot confirm.
package rediskit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// An answer is what a server says to a command with these arguments.
type answer func(args []any) (any, error)

// says is one answer to all.
func says(reply any, err error) answer { return func([]any) (any, error) { return reply, err } }

func refuses(words string) answer { return says(nil, refusal(strategy.ErrRefused, words)) }

// primary is a server with replicas, and a node of it. It notes what it is asked.
type primary struct {
	driver.Node
	answers map[string]answer // by command; others are answered with nil, and a WAIT by all who are waited for
	after   error             // of each session, although its commands were answered
	at      string            // the key of the session
	log     []string          // "session", and what came over its connection, or past that
}

func (*primary) Name() string                            { return "n" }
func (*primary) Use() error                              { return nil }
func (*primary) Close() error                            { return nil }
func (*primary) Probe(context.Context, time.Time) uint64 { return 0 }

func (p *primary) Do(_ context.Context, _ time.Time, cmd, key string, args ...any) (any, error) {
	p.log = append(p.log, "past")
	return connection{p}.Do(cmd, append([]any{key}, args...)...)
}

func (p *primary) Session(_ context.Context, _ time.Time, key string, fn func(driver.Conn) error) error {
	p.log, p.at = append(p.log, "session"), key
	return cmp.Or(fn(connection{p}), p.after)
}

type connection struct{ *primary }

func (c connection) Do(cmd string, args ...any) (any, error) {
	if words := fmt.Sprintf("%s %q", cmd, args); cmd == "LOOK" {
		c.log = append(c.log, words)
	} else if c.log = append(c.log, cmd); strings.HasPrefix(cmd, "WAIT") {
		c.log = append(c.log, strings.TrimSpace(fmt.Sprintln(args...)))
	}
	switch say := c.answers[cmd]; {
	case say != nil:
		return say(args)
	case cmd == "WAIT":
		return int64(args[0].(int)), nil
	case cmd == "WAITAOF":
		return []any{int64(args[0].(int)), int64(args[1].(int))}, nil
	}
	return nil, nil
}

// wantAsked fails the test unless the server was asked that since it was last looked at.
func (p *primary) wantAsked(t *testing.T, want string) {
	t.Helper()
	equal(t, "asked", strings.Join(p.log, " "), want)
	p.log = nil
}

// simple is an algorithm on one node: each call is a command, and an answer that is a text says who has the lock.
type simple struct {
	driver.Node
	driver.Unsupported
}

func (s simple) ask(ctx context.Context, c driver.Claim, cmd string) (driver.Grant, error) {
	reply, err := s.Do(ctx, c.Due, cmd, c.Key)
	if holder, ok := reply.(string); ok {
		err = &strategy.LostError{Name: c.Name, Holder: holder}
	}
	return driver.Grant{Fence: 7}, err
}

func (s simple) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return s.ask(ctx, c, "TAKE")
}

func (s simple) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return s.ask(ctx, c, "KEEP")
}

func (s simple) Adopt(ctx context.Context, c driver.Claim, _ string) (driver.Grant, error) {
	return s.ask(ctx, c, "PASS")
}

func (s simple) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, s.Undo(ctx, c)
}

func (s simple) Undo(ctx context.Context, c driver.Claim) error {
	_, err := s.ask(ctx, c, "FREE")
	return err
}

func (s simple) Check(ctx context.Context, _ strategy.Options) error {
	_, err := s.Do(ctx, time.Time{}, "LOOK", "")
	return err
}

// bulky is a simple one that extends many at once, but has no answer for k9.
type bulky struct{ simple }

func (b bulky) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	for i, c := range cs {
		if g, err := b.Extend(ctx, c); c.Key != "k9" {
			done(i, g, err)
		}
	}
}

// curious is a simple one that asks several things, with a key and without, and by a script.
type curious struct{ simple }

func (p curious) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	_, err := p.Eval(ctx, c.Due, driver.NewScript("s", "lua"), []string{c.Key, "k"}, "x")
	_, err2 := p.Do(ctx, c.Due, "LOOK", "")
	_, err3 := p.Do(ctx, c.Due, "LOOK", c.Key)
	_, err4 := p.Do(ctx, c.Due, "LOOK", "", "x")
	return driver.Grant{}, errors.Join(err, err2, err3, err4)
}

// telling is a simple one that tells of releases, and one that is both.
type (
	telling struct{ simple }
	both    struct{ bulky }
)

func (telling) Watch(context.Context, driver.Claim, func(driver.Notification)) (func(), error) {
	return func() {}, nil
}
func (telling) Reenters() bool { return true }
func (both) Watch(context.Context, driver.Claim, func(driver.Notification)) (func(), error) {
	return func() {}, nil
}
func (both) Reenters() bool                  { return false }
func (both) Validate(strategy.Options) error { return errNonsense }

var errNonsense = errors.New("nonsense")

func simply(n driver.Node) rediskit.Confirmable  { return simple{Node: n} }
func bulkily(n driver.Node) rediskit.Confirmable { return bulky{simple{Node: n}} }

var one = strategy.Acks{Replicas: 1}

// unconfirmed checks that nobody could have confirmed what err is about.
func unconfirmed(t *testing.T, call string, err error, got strategy.Acks) {
	t.Helper()
	is(t, call, err, strategy.ErrUnknown)
	isNot(t, call, err, strategy.ErrHeld, strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrLost)
	var acks *strategy.AcksError
	if !errors.As(err, &acks) {
		t.Fatalf("%s = %v, want an AcksError", call, err)
	}
	equal(t, call+": who has confirmed", acks.Got, got)
}

// A call that grants or prolongs goes over a session, and waits there for three quarters of its time. Nothing else does.
func TestAcksAreWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &primary{}
		c := driver.Claim{Key: "k", Due: time.Now().Add(op)}
		w := rediskit.Acknowledged(p, strategy.Acks{Replicas: 2}, simply)
		g, err := w.Acquire(bg, c)
		is(t, "Acquire", err)
		equal(t, "Fence", g.Fence, 7)
		p.wantAsked(t, "session TAKE WAIT 2 750")
		p.answers = map[string]answer{"WAIT": says(int64(3), nil)} // more than needed
		_, err = w.Extend(bg, c)
		is(t, "Extend", err)
		p.wantAsked(t, "session KEEP WAIT 2 750")
		_, err = w.Adopt(bg, c, "")
		is(t, "Adopt", err)
		p.wantAsked(t, "session PASS WAIT 2 750")
		_, err = w.Release(bg, c)
		is(t, "Release", err)
		p.wantAsked(t, "past FREE")

		c.Due = time.Now().Add(ms) // 0 milliseconds would be for ever
		w = rediskit.Acknowledged(p, strategy.Acks{Replicas: 1, AOF: true}, simply)
		_, err = w.Acquire(bg, c)
		is(t, "Acquire", err)
		p.wantAsked(t, "session TAKE WAITAOF 1 1 1")

		w = rediskit.Acknowledged(p, one, func(n driver.Node) rediskit.Confirmable { return curious{simple{Node: n}} })
		p.answers["EVALSHA"] = refuses("NOSCRIPT No matching script.")
		p.answers["EVAL"] = func(args []any) (any, error) {
			equal(t, "arguments of EVAL", fmt.Sprint(args), "[lua 2 k k x]")
			return nil, nil
		}
		_, err = w.Extend(bg, c)
		is(t, "Extend by several commands", err)
		p.wantAsked(t, `session EVALSHA EVAL LOOK [] LOOK ["k"] LOOK ["" "x"] WAIT 1 1`)
	})
}

// Once the server has made the move, whatever becomes of the WAIT, nobody may take it for confirmed, or for not made. Before
// that the error is the move's.
func TestAcksFail(t *testing.T) {
	t.Parallel()
	file, both := strategy.Acks{AOF: true}, strategy.Acks{Replicas: 1, AOF: true}
	why := errors.New("called off")
	for what, c := range map[string]struct {
		acks strategy.Acks
		wait answer
		got  strategy.Acks
		says string
	}{
		"too few":            {strategy.Acks{Replicas: 2}, says(int64(1), nil), one, "n: outcome unknown: done, but too few confirmed it in time: 1 of 2 replicas"},
		"not the file":       {both, says([]any{int64(0), int64(1)}, nil), one, "not the append-only file"},
		"the file alone":     {both, says([]any{int64(1), int64(0)}, nil), file, "the append-only file, 0 of 1 replicas"},
		"refused":            {one, refuses("NOPERM"), strategy.Acks{}, "NOPERM"},
		"not sent":           {one, says(nil, &strategy.ServerError{Kind: strategy.ErrUnsent, Err: why}), strategy.Acks{}, "called off"},
		"no answer":          {one, says(nil, &strategy.ServerError{Kind: strategy.ErrUnknown}), strategy.Acks{}, ""},
		"odd":                {one, says([]byte("QUEUED"), nil), strategy.Acks{}, "QUEUED"},
		"none":               {one, says(nil, nil), strategy.Acks{}, ""},
		"none of the file":   {file, says(nil, nil), strategy.Acks{}, ""},
		"the file: refused":  {file, refuses("NOPERM"), strategy.Acks{}, "NOPERM"},
		"the file: a number": {file, says(int64(1), nil), strategy.Acks{}, ""},
		"the file: one":      {file, says([]any{int64(1)}, nil), strategy.Acks{}, ""},
		"the file: half":     {file, says([]any{int64(1), nil}, nil), strategy.Acks{}, ""},
		"the file: a half":   {file, says([]any{nil, int64(1)}, nil), strategy.Acks{}, ""},
	} {
		p := &primary{answers: map[string]answer{map[bool]string{false: "WAIT", true: "WAITAOF"}[c.acks.AOF]: c.wait}}
		_, err := rediskit.Acknowledged(p, c.acks, simply).Acquire(bg, driver.Claim{Key: "k"})
		unconfirmed(t, "Acquire, "+what, err, c.got)
		saysAll(t, "Acquire, "+what, err, c.says)
		equal(t, "the reason can be found", errors.Is(err, why), what == "not sent")
	}
	p := &primary{after: unreachable()}
	w := rediskit.Acknowledged(p, one, simply)
	_, err := w.Acquire(bg, driver.Claim{Key: "k"})
	unconfirmed(t, "Acquire whose session fails after the fact", err, one)
	saysAll(t, "Acquire whose session fails after the fact", err, "nobody knows which servers have confirmed it: redis:6379: not sent: refused")
	p.log, p.after = nil, nil

	p.answers = map[string]answer{"TAKE": says("another", nil)}
	_, err = w.Acquire(bg, driver.Claim{Key: "k"})
	is(t, "Acquire of a lock that another has", err, strategy.ErrLost)
	p.answers["TAKE"] = says(nil, unreachable())
	_, err = w.Acquire(bg, driver.Claim{Key: "k"})
	is(t, "Acquire that is not sent", err, strategy.ErrUnsent)
	isNot(t, "Acquire that is not sent", err, strategy.ErrUnknown)
	p.wantAsked(t, "session TAKE session TAKE") // and no WAIT
}

// Many are extended in one session, with one WAIT for all that were, until the first of them is due.
func TestAcksOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &primary{answers: map[string]answer{}}
		w := rediskit.Acknowledged(p, one, bulkily).(driver.BulkExtender)
		cs := bulkClaims(3)
		for i, due := range []time.Duration{3 * op, op, 2 * op} {
			cs[i].Due = time.Now().Add(due)
		}
		wants := func(what, asked string, kinds ...error) {
			t.Helper()
			for i, err := range extendAll(t, w, cs) {
				if kinds[i] == strategy.ErrUnknown {
					unconfirmed(t, what, err, strategy.Acks{})
				} else if kinds[i] != nil {
					is(t, what, err, kinds[i])
					isNot(t, what, err, strategy.ErrUnknown)
				} else {
					is(t, what, err)
				}
			}
			p.wantAsked(t, asked)
		}
		wants("all", "session KEEP KEEP KEEP WAIT 1 750", nil, nil, nil)
		lost := map[any]bool{"k1": true}
		p.answers["KEEP"] = func(args []any) (any, error) {
			if lost[args[0]] {
				return "another", nil
			}
			return nil, nil
		}
		wants("one is lost", "session KEEP KEEP KEEP WAIT 1 750", nil, strategy.ErrLost, nil)
		p.answers["WAIT"] = says(int64(0), nil)
		wants("nobody confirms", "session KEEP KEEP KEEP WAIT 1 750", strategy.ErrUnknown, strategy.ErrLost, strategy.ErrUnknown)
		lost["k0"], lost["k2"] = true, true
		wants("all are lost", "session KEEP KEEP KEEP", strategy.ErrLost, strategy.ErrLost, strategy.ErrLost)
		p.answers["KEEP"] = refuses("LOADING")
		wants("refused", "session KEEP KEEP KEEP", strategy.ErrRefused, strategy.ErrRefused, strategy.ErrRefused)

		// Of a cluster, a connection reaches one server: a lock that is elsewhere gets a session of its own, at the end.
		clear(p.answers)
		p.answers["KEEP"] = func(args []any) (any, error) {
			if args[0] == "k1" && p.at != "k1" {
				return nil, refusal(strategy.ErrRefused, "MOVED 1 elsewhere:6379")
			}
			return nil, nil
		}
		wants("elsewhere", "session KEEP KEEP KEEP WAIT 1 750 session KEEP WAIT 1 750", nil, nil, nil)

		// A holder that has lost its lock learns it before the others' renewals are confirmed. A claim for which the
		// protocol has no answer gets none: the engine sees to that.
		var told []int
		p.answers["KEEP"] = func(args []any) (any, error) {
			if args[0] == "k1" {
				return "another", nil
			}
			return nil, nil
		}
		p.answers["WAIT"] = func([]any) (any, error) {
			equal(t, "told before the WAIT", fmt.Sprint(told), "[1]")
			return int64(1), nil
		}
		w.ExtendAll(bg, append(cs, driver.Claim{Key: "k9", Due: cs[0].Due}), func(i int, _ driver.Grant, err error) { told = append(told, i) })
		equal(t, "told in all", fmt.Sprint(told), "[1 0 2]")

		p.log = nil
		w = rediskit.Acknowledged(full{p}, one, bulkily).(driver.BulkExtender)
		wants("without a connection", "", strategy.ErrUnsent, strategy.ErrUnsent, strategy.ErrUnsent)
		cs = nil
		wants("none", "")
	})
}

// full is a node whose pool has no connection to lend.
type full struct{ *primary }

func (full) Session(context.Context, time.Time, string, func(driver.Conn) error) error {
	return unreachable()
}

// An acknowledged protocol can do what the protocol can, and nothing else. It refuses Acks that are nonsense, and what the protocol
// refuses.
func TestAcksCapabilities(t *testing.T) {
	t.Parallel()
	p := &primary{}
	can := func(w driver.Protocol) string {
		var s []string
		if _, ok := w.(driver.BulkExtender); ok {
			s = append(s, "bulk")
		}
		if _, ok := w.(driver.Notifier); ok {
			s = append(s, "notices")
		}
		if w.(driver.Reenterer).Reenters() {
			s = append(s, "re-entry")
		}
		return strings.Join(s, ", ")
	}
	equal(t, "simple", can(rediskit.Acknowledged(p, one, simply)), "")
	equal(t, "bulky", can(rediskit.Acknowledged(p, one, bulkily)), "bulk")
	equal(t, "telling", can(rediskit.Acknowledged(p, one, func(n driver.Node) rediskit.Confirmable { return telling{simple{Node: n}} })), "notices, re-entry")
	everything := rediskit.Acknowledged(p, one, func(n driver.Node) rediskit.Confirmable { return both{bulky{simple{Node: n}}} })
	equal(t, "both", can(everything), "bulk, notices")
	is(t, "Validate", everything.(driver.Validator).Validate(strategy.Options{}), errNonsense)
	for _, n := range []int{0, contract.MaxReplicas, -1, contract.MaxReplicas + 1} {
		err := rediskit.Acknowledged(p, strategy.Acks{Replicas: n, AOF: true}, simply).(driver.Validator).Validate(strategy.Options{})
		if n < 0 || n > contract.MaxReplicas {
			saysAll(t, fmt.Sprint(n, " replicas"), err, "allowed are")
		} else {
			is(t, fmt.Sprint(n, " replicas"), err)
		}
	}
}

// Check says what the server cannot do, and what to change.
func TestAcksCheck(t *testing.T) {
	t.Parallel()
	file := strategy.Acks{AOF: true}
	for _, c := range []struct {
		what   string
		acks   strategy.Acks
		o      strategy.Options
		refuse map[string]string
		unsent string // a command that reaches no server
		got    any    // of the WAIT; nil: enough
		fsync  string
		info   string
		want   string // empty: nil
		not    string // what it does not say
	}{
		{what: "enough", acks: one},
		{what: "what the protocol finds", acks: one, refuse: map[string]string{"LOOK": "NOPERM look"}, want: "NOPERM look"},
		{what: "no server to publish at", acks: one, unsent: "PUBLISH", want: "not sent"},
		{what: "no server for its configuration", acks: file, unsent: "CONFIG", want: "not sent"},
		{what: "a server without that configuration", acks: file, fsync: "unknown"},
		{what: "no server that tells what it is", acks: file, fsync: "everysec", unsent: "INFO", o: strategy.Options{OpTimeout: 2 * time.Second}, want: "not sent"},
		{what: "who may not publish", acks: one, refuse: map[string]string{"PUBLISH": "NOPERM"}},
		{what: "too few", acks: strategy.Acks{Replicas: 2}, got: int64(1), want: "1 replicas confirm, Acks.Replicas is 2: connect as many, or demand fewer"},
		{what: "who may not wait", acks: one, refuse: map[string]string{"WAIT": "NOPERM this user"}, want: "NOPERM this user"},
		{what: "no WAIT", acks: one, refuse: map[string]string{"WAIT": "ERR unknown command 'WAIT', appendonly"}, want: "unknown command", not: "demand"},
		{what: "who may not wait for the file", acks: file, refuse: map[string]string{"WAITAOF": "NOPERM this user"}, want: "NOPERM this user", not: "demand"},
		{what: "a file", acks: file, fsync: "always"},
		{what: "files", acks: strategy.Acks{Replicas: 1, AOF: true}, fsync: "always"},
		{what: "an old server", acks: file, refuse: map[string]string{"WAITAOF": "ERR unknown command 'WAITAOF'"}, want: "needs WAITAOF, of Redis 7.2"},
		{what: "no file", acks: file, refuse: map[string]string{"WAITAOF": "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."}, want: "set appendonly to yes"},
		{what: "a replica without a file", acks: strategy.Acks{Replicas: 1, AOF: true}, got: []any{int64(1), int64(0)}, want: "with appendonly yes"},
		{what: "no fsync", acks: file, fsync: "no", want: "set it to always or everysec"},
		{what: "an fsync a second", acks: file, fsync: "everysec", want: "set it to always, or Options.OpTimeout to 2s"},
		{what: "an fsync a second, patiently", acks: file, fsync: "everysec", o: strategy.Options{OpTimeout: 2 * time.Second}},
		{what: "an fsync a second, with a short TTL", acks: file, fsync: "everysec", o: strategy.Options{TTL: 8 * time.Second, OpTimeout: 2 * time.Second}, want: "TTL to 9s"},
		{what: "an fsync a second, with the least TTL", acks: file, fsync: "everysec", o: strategy.Options{TTL: 9 * time.Second, OpTimeout: 2 * time.Second}},
		{what: "who may not look", acks: file, refuse: map[string]string{"CONFIG": "NOPERM"}},
		{what: "a Valkey that is hasty", acks: file, fsync: "everysec", info: "redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", o: strategy.Options{OpTimeout: 2 * time.Second}, want: "Valkey 9.1.2 confirms with appendfsync everysec what it has written and not synced"},
		{what: "an older Valkey", acks: file, fsync: "everysec", info: "valkey_version:8.2.0\r\n", o: strategy.Options{OpTimeout: 2 * time.Second}, want: "Valkey 8.2.0"},
		{what: "a Valkey of the next kind", acks: file, fsync: "everysec", info: "valkey_version:9.2.0\r\n", o: strategy.Options{OpTimeout: 2 * time.Second}},
		{what: "a Valkey that always syncs", acks: file, fsync: "always", info: "valkey_version:8.1.1\r\n"},
		{what: "a Valkey that nobody has looked at", acks: file, fsync: "everysec", info: "valkey_version:10.0.0\r\n", o: strategy.Options{OpTimeout: 2 * time.Second}},
		{what: "who may not look what it is", acks: file, fsync: "everysec", refuse: map[string]string{"INFO": "NOPERM"}, o: strategy.Options{OpTimeout: 2 * time.Second}},
	} {
		p := &primary{answers: map[string]answer{"CONFIG": says([]any{}, nil), "INFO": says([]byte(c.info), nil)}}
		if c.fsync != "unknown" {
			p.answers["CONFIG"] = says([]any{[]byte("appendfsync"), []byte(cmp.Or(c.fsync, "always"))}, nil)
		}
		if c.got != nil {
			p.answers["WAIT"], p.answers["WAITAOF"] = says(c.got, nil), says(c.got, nil)
		}
		for cmd, words := range c.refuse {
			p.answers[cmd] = refuses(words)
		}
		if c.unsent != "" {
			p.answers[c.unsent] = says(nil, unreachable())
		}
		o := strategy.Options{TTL: cmp.Or(c.o.TTL, ttl), OpTimeout: cmp.Or(c.o.OpTimeout, op), Key: strategy.DefaultKey}
		err := rediskit.Acknowledged(p, c.acks, simply).Check(bg, o)
		if c.want == "" {
			is(t, "Check, "+c.what, err)
		} else if err == nil || !strings.Contains(err.Error(), c.want) || c.not != "" && strings.Contains(err.Error(), c.not) {
			t.Errorf("Check, %s = %v, want %q and not %q", c.what, err, c.want, c.not)
		}
	}
}
