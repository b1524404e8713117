// Tests what Acknowledged makes of a protocol: each grant and renewal waits for replicas or the append-only
// file, one that they do not confirm is undone, and Check says what the server cannot confirm.
package rediskit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// primary is a server with replicas, and a node of it: a map of locks, whose commands
// are TAKE, KEEP, PASS and FREE, and a script that keeps many.
type primary struct {
	driver.Node

	mu     sync.Mutex
	held   map[string]string // token by key
	moved  map[string]bool   // keys that a cluster has elsewhere than the others
	log    []string          // "session", and what came over connections and past them
	refuse map[string]string // words, by command
	unsent string            // a command that reaches no server
	fsync  string            // "": always; "unknown": it has no such setting
	info   string

	// confirm answers WAIT and WAITAOF; nil: all that was asked for, at once.
	confirm func(limit time.Duration) (any, error)
	// before is called before each command of a session, after it when that is over.
	before func(cmd string) error
	after  func(error) error
}

func (p *primary) Name() string  { return "n" }
func (p *primary) Ordered() bool { return true }
func (p *primary) Use() error    { return nil }
func (p *primary) Close() error  { return nil }

func (p *primary) Probe(context.Context, time.Time) uint64 { return 0 }

func (p *primary) Do(_ context.Context, _ time.Time, cmd, key string, args ...any) (any, error) {
	p.note("past " + cmd)
	return p.serve(key, cmd, append([]any{key}, args...))
}

func (p *primary) Eval(_ context.Context, _ time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	p.note("past script")
	all := []any{s.Hash(), len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	return p.serve(keys[0], "EVALSHA", append(all, args...))
}

func (p *primary) Session(_ context.Context, _ time.Time, key string, fn func(driver.Conn) error) error {
	p.note("session")
	err := fn(connection{p, key})
	if p.after != nil {
		return p.after(err)
	}
	return err
}

// connection is to where the key lies.
type connection struct {
	p   *primary
	key string
}

func (c connection) Do(cmd string, args ...any) (any, error) {
	if c.p.before != nil {
		if err := c.p.before(cmd); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(cmd, "WAIT") {
		if cmd == "LOOK" {
			c.p.note(fmt.Sprintf("LOOK %q", args))
			return nil, nil
		}
		c.p.note(cmd)
		return c.p.serve(c.key, cmd, args)
	}
	c.p.note(strings.TrimSpace(fmt.Sprintln(append([]any{cmd}, args...)...)))
	c.p.mu.Lock()
	confirm, words := c.p.confirm, c.p.refuse[cmd]
	c.p.mu.Unlock()
	limit := time.Duration(args[len(args)-1].(int64)) * ms
	switch {
	case words != "":
		return nil, says(words)
	case confirm != nil:
		return confirm(limit)
	case cmd == "WAITAOF":
		return []any{int64(args[0].(int)), int64(args[1].(int))}, nil
	}
	return int64(args[0].(int)), nil
}

func says(words string) error {
	return &strategy.ServerError{Node: "n", Kind: strategy.ErrRefused, Err: errors.New(words)}
}

// serve does what the command says, over a connection to where the key called here lies.
func (p *primary) serve(here, cmd string, args []any) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsent == cmd {
		return nil, unreachable()
	}
	if words := p.refuse[cmd]; words != "" {
		return nil, says(words)
	}
	text := func(i int) string { return fmt.Sprint(args[i]) }
	key := text(0)
	token, held := p.held[key]
	switch cmd {
	case "TAKE":
		if held {
			return []byte(token), nil
		}
		p.held[key] = text(1)
	case "KEEP":
		if token != text(1) {
			return []byte(token), nil
		}
	case "PASS":
		if token != text(1) {
			return []byte(token), nil
		}
		p.held[key] = text(2)
	case "FREE":
		if token != text(1) {
			return []byte(token), nil
		}
		delete(p.held, key)
	case "EVALSHA", "EVAL":
		if cmd == "EVAL" && text(0) != "lua" {
			return nil, says("ERR this is not the script")
		}
		// hash or source, number of keys, keys, tokens, the TTL
		n := args[1].(int)
		answers := make([]any, n)
		for i := range n {
			switch key := text(2 + i); {
			case p.moved[key] && n > 1:
				return nil, says("CROSSSLOT Keys in request don't hash to the same slot")
			case p.moved[key] && key != here:
				return nil, says("MOVED 1 elsewhere:6379")
			}
			if p.held[text(2+i)] == text(2+n+i) {
				answers[i] = int64(1)
			}
		}
		return answers, nil
	case "CONFIG":
		if p.fsync == "unknown" {
			return []any{}, nil
		}
		return []any{[]byte("appendfsync"), []byte(cmp.Or(p.fsync, "always"))}, nil
	case "INFO":
		return []byte(p.info), nil
	}
	return nil, nil
}

func (p *primary) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, what)
}

// received returns what has come since it was last asked, in one line.
func (p *primary) received() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := strings.Join(p.log, ", ")
	p.log = nil
	return log
}

func (p *primary) give(key, token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[key] = token
}

func (p *primary) holder() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[key]
}

// fewer makes only n replicas confirm from now on, and the append-only file if local is 1.
func (p *primary) fewer(n, local int64) {
	p.answer(func(limit time.Duration) (any, error) {
		time.Sleep(limit)
		return n, nil
	})
	if local >= 0 {
		p.answer(func(limit time.Duration) (any, error) {
			time.Sleep(limit)
			return []any{local, n}, nil
		})
	}
}

func (p *primary) answer(confirm func(time.Duration) (any, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confirm = confirm
}

// simple is an algorithm on one node.
type simple struct{ driver.Node }

func (s simple) move(ctx context.Context, c driver.Claim, fails func(holder string) error, cmd string, args ...any) (driver.Grant, error) {
	reply, err := s.Do(ctx, c.Due, cmd, c.Key, args...)
	if holder, ok := reply.([]byte); ok && err == nil {
		err = fails(string(holder))
	}
	return driver.Grant{}, err
}

func (s simple) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return s.move(ctx, c, func(h string) error { return &strategy.HeldError{Name: c.Name, Holder: h} }, "TAKE", c.Token)
}

func (s simple) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return s.move(ctx, c, func(h string) error { return &strategy.LostError{Name: c.Name, Holder: h} }, "KEEP", c.Token)
}

func (s simple) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return s.move(ctx, c, func(h string) error { return &strategy.LostError{Name: c.Name, Holder: h} }, "PASS", from, c.Token)
}

func (s simple) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	_, err := s.move(ctx, c, func(h string) error { return &strategy.LostError{Name: c.Name, Holder: h} }, "FREE", c.Token)
	return driver.Outcome{}, err
}

func (s simple) Undo(ctx context.Context, c driver.Claim) error {
	_, err := s.Release(ctx, c)
	return rediskit.Undone(s, c, err)
}

func (s simple) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return s.Release(ctx, c)
}

func (s simple) Inspect(context.Context, driver.Claim) (strategy.Info, error) {
	return strategy.Info{}, nil
}

func (s simple) Check(ctx context.Context, _ strategy.Options) error {
	_, err := s.Do(ctx, time.Time{}, "LOOK", "")
	return err
}

// bulky is a simple one that extends many at once.
type bulky struct{ simple }

func (b bulky) script() rediskit.BulkScript {
	return rediskit.BulkScript{Node: b.Node, Script: driver.NewScript("extend", "lua"), Most: 2, Refused: func(c driver.Claim, _ any) error {
		return &strategy.LostError{Name: c.Name}
	}}
}

func (b bulky) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return b.script().Extend(ctx, c)
}

func (b bulky) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	b.script().ExtendAll(ctx, cs, done)
}

// forgetful is a bulky one that answers the first claim alone.
type forgetful struct{ bulky }

func (f forgetful) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	f.bulky.ExtendAll(ctx, cs[:1], done)
}

// curious is a simple one that looks around.
type curious struct{ simple }

func (p curious) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	_, err := p.Do(ctx, c.Due, "LOOK", "")
	_, err2 := p.Do(ctx, c.Due, "LOOK", c.Key)
	_, err3 := p.Do(ctx, c.Due, "LOOK", "", "x")
	return driver.Grant{}, errors.Join(err, err2, err3)
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

func simply(n driver.Node) rediskit.Confirmable  { return simple{n} }
func bulkily(n driver.Node) rediskit.Confirmable { return bulky{simple{n}} }

var one = strategy.Acks{Replicas: 1}

// acked is a strategy on p whose grants need those acknowledgements.
func acked(t *testing.T, p *primary, a strategy.Acks) strategy.Strategy {
	t.Helper()
	p.held = map[string]string{}
	return open(t, rediskit.Acknowledged(p, a, simply), strategy.Options{})
}

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

func TestAcks(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, p *primary){
		"Granted": func(t *testing.T, p *primary) {
			s := acked(t, p, strategy.Acks{Replicas: 2})
			start := time.Now()
			p.answer(func(time.Duration) (any, error) {
				time.Sleep(300 * ms)
				return int64(3), nil // more than needed
			})
			lease := take(t, s)
			since(t, "TryAcquire took", start, 300*ms)
			equal(t, "sent", p.received(), "session, TAKE, WAIT 2 750")
			equal(t, "deadline", lease.Deadline(), start.Add(valid)) // from the request, not from the confirmation
			is(t, "Extend", lease.Extend(bg))
			equal(t, "sent", p.received(), "session, KEEP, WAIT 2 750")
			release(t, lease)
			equal(t, "sent", p.received(), "past FREE")
		},
		"TooFew": func(t *testing.T, p *primary) {
			s := acked(t, p, strategy.Acks{Replicas: 2})
			p.fewer(1, -1)
			start := time.Now()
			_, err := s.NewLock(name).TryAcquire(bg)
			since(t, "TryAcquire took", start, 750*ms)
			unconfirmed(t, "TryAcquire", err, one)
			if want := "n: outcome unknown: done, but too few confirmed it in time: 1 of 2 replicas"; err == nil || err.Error() != want {
				t.Errorf("TryAcquire = %q, want %q", err, want)
			}
			synctest.Wait()
			equal(t, "holder", p.holder(), "") // undone
			equal(t, "sent", p.received(), "session, TAKE, WAIT 2 750, past FREE")
		},
		"Held": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			lease := take(t, s)
			p.fewer(0, -1)
			p.received()
			start := time.Now()
			_, err := s.NewLock(name).TryAcquire(bg)
			is(t, "TryAcquire", err, strategy.ErrHeld)
			since(t, "TryAcquire took", start, 0)
			equal(t, "sent", p.received(), "session, TAKE")
			release(t, lease)
		},
		"Lost": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			lease := take(t, s)
			p.give(key, "another")
			p.received()
			is(t, "Extend", lease.Extend(bg), strategy.ErrLost)
			equal(t, "sent", p.received(), "session, KEEP")
		},
		"Renewal": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			lease := take(t, s)
			deadline := lease.Deadline()
			p.fewer(0, -1)
			err := lease.Extend(bg)
			unconfirmed(t, "Extend", err, strategy.Acks{})
			equal(t, "deadline", lease.Deadline(), deadline)
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(ttl / 2)
			equal(t, "deadline", lease.Deadline(), deadline)
			unconfirmed(t, "Failing", lease.RenewalErr(), strategy.Acks{})
			is(t, "Err", lease.Err())
			p.answer(nil)
			time.Sleep(ttl)
			is(t, "Err", lease.Err())
			is(t, "Failing", lease.RenewalErr())
			release(t, lease)
		},
		// A grant that too few have confirmed counts beyond the deadline, and must be undone.
		"Lapsed": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			lease := take(t, s)
			is(t, "KeepAlive", lease.KeepAlive(0))
			p.fewer(0, -1)
			time.Sleep(valid)
			is(t, "Err", lease.Err(), strategy.ErrLost)
			time.Sleep(op)
			equal(t, "holder", p.holder(), "")
		},
		"Adopted": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			token, err := take(t, s).Detach()
			is(t, "Detach", err)
			p.received()
			lease, err := s.Adopt(bg, name, token)
			is(t, "Adopt", err)
			equal(t, "sent", p.received(), "session, PASS, WAIT 1 750")
			token, err = lease.Detach()
			is(t, "Detach", err)
			p.fewer(0, -1)
			_, err = s.Adopt(bg, name, token)
			unconfirmed(t, "Adopt", err, strategy.Acks{})
			synctest.Wait()
			equal(t, "holder", p.holder(), "")
		},
		"AOF": func(t *testing.T, p *primary) {
			s := acked(t, p, strategy.Acks{Replicas: 1, AOF: true})
			lease := take(t, s)
			equal(t, "sent", p.received(), "session, TAKE, WAITAOF 1 1 750")
			release(t, lease)
			for _, few := range []strategy.Acks{{Replicas: 1}, {AOF: true}} {
				local := int64(0)
				if few.AOF {
					local = 1
				}
				p.fewer(int64(few.Replicas), local)
				_, err := s.NewLock(name).TryAcquire(bg)
				unconfirmed(t, "TryAcquire", err, few)
				if few.AOF == strings.Contains(err.Error(), "not the append-only file") {
					t.Errorf("TryAcquire = %v, want what is missing", err)
				}
				synctest.Wait()
				equal(t, "holder", p.holder(), "")
			}
		},
		// The lock is there, so whatever becomes of the WAIT it is undone, and nobody is
		// told that nothing has changed.
		"WaitFails": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			for what, confirm := range map[string]func(time.Duration) (any, error){
				"refused":  func(time.Duration) (any, error) { return nil, says("NOPERM") },
				"not sent": func(time.Duration) (any, error) { return nil, unreachable() },
				"no answer": func(time.Duration) (any, error) {
					return nil, &strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown}
				},
				"odd":  func(time.Duration) (any, error) { return []byte("QUEUED"), nil },
				"none": func(time.Duration) (any, error) { return nil, nil },
			} {
				p.answer(confirm)
				_, err := s.NewLock(name).TryAcquire(bg)
				unconfirmed(t, "TryAcquire, WAIT "+what, err, strategy.Acks{})
				synctest.Wait()
				equal(t, "holder, WAIT "+what, p.holder(), "")
				equal(t, "sent, WAIT "+what, p.received(), "session, TAKE, WAIT 1 750, past FREE")
			}
			s = acked(t, p, strategy.Acks{AOF: true})
			for _, odd := range []any{nil, int64(1), []any{int64(1)}, []any{int64(1), nil}, []any{nil, int64(1)}} {
				p.answer(func(time.Duration) (any, error) { return odd, nil })
				_, err := s.NewLock(name).TryAcquire(bg)
				unconfirmed(t, fmt.Sprint("TryAcquire, WAITAOF ", odd), err, strategy.Acks{})
				synctest.Wait()
				equal(t, "holder", p.holder(), "")
			}
		},
		"ContextEnds": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			ctx, cancel := context.WithCancelCause(bg)
			why := errors.New("called off")
			p.before = func(cmd string) error {
				if cmd == "WAIT" {
					cancel(why)
					return &strategy.ServerError{Node: "n", Kind: strategy.ErrUnsent, Err: context.Cause(ctx)}
				}
				return nil
			}
			_, err := s.NewLock(name).TryAcquire(ctx)
			unconfirmed(t, "TryAcquire", err, strategy.Acks{})
			is(t, "TryAcquire", err, why, context.Canceled)
			synctest.Wait()
			equal(t, "holder", p.holder(), "")
		},
		"SessionFails": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			p.after = func(error) error { return unreachable() } // after the fact
			_, err := s.NewLock(name).TryAcquire(bg)
			unconfirmed(t, "TryAcquire", err, one)
			saysAll(t, "TryAcquire", err, "nobody knows which servers have confirmed it: redis:6379: not sent: refused")
			synctest.Wait()
			equal(t, "holder", p.holder(), "")
		},
		"NotSent": func(t *testing.T, p *primary) {
			s := acked(t, p, one)
			p.before = func(string) error { return unreachable() }
			_, err := s.NewLock(name).TryAcquire(bg)
			is(t, "TryAcquire", err, strategy.ErrUnsent)
			isNot(t, "TryAcquire", err, strategy.ErrUnknown)
			synctest.Wait()
			equal(t, "sent", p.received(), "session")
		},
		// 0 milliseconds would be for ever.
		"Limit": func(t *testing.T, p *primary) {
			p.held = map[string]string{}
			s := open(t, rediskit.Acknowledged(p, one, simply), strategy.Options{TTL: 10 * ms, OpTimeout: ms})
			lease := take(t, s)
			equal(t, "sent", p.received(), "session, TAKE, WAIT 1 1")
			release(t, lease)
		},
		"Bulk": func(t *testing.T, p *primary) {
			p.held = map[string]string{}
			s := open(t, rediskit.Acknowledged(p, one, bulkily), strategy.Options{})
			var leases []strategy.Lease
			for i := range 5 {
				lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
				is(t, "TryAcquire", err)
				is(t, "KeepAlive", lease.KeepAlive(0))
				leases = append(leases, lease)
			}
			deadline := leases[0].Deadline()
			p.received()
			p.give(strategy.DefaultKey("3"), "another")
			time.Sleep(ttl / 2)
			equal(t, "sent", p.received(), "session, EVALSHA, EVALSHA, EVALSHA, WAIT 1 750") // two in each
			for i, lease := range leases {
				if i == 3 {
					is(t, "Err of the lost one", lease.Err(), strategy.ErrLost)
					continue
				}
				is(t, "Err", lease.Err())
				if !lease.Deadline().After(deadline) {
					t.Errorf("deadline = %v, want it moved", lease.Deadline())
				}
			}
			p.fewer(0, -1)
			deadline = leases[0].Deadline()
			time.Sleep(ttl/2 + op)
			equal(t, "deadline", leases[0].Deadline(), deadline)
			unconfirmed(t, "Failing", leases[4].RenewalErr(), strategy.Acks{})
			p.answer(nil)
			for i, lease := range leases {
				if i != 3 {
					release(t, lease)
				}
			}
		},
		// A holder that has lost its lock learns it before the others' renewals are confirmed.
		"BulkLoss": func(t *testing.T, p *primary) {
			p.held = map[string]string{"k0": "t0", "k1": "another", "k2": "t2"}
			var told []int
			var before []int // the WAIT
			p.before = func(cmd string) error {
				if cmd == "WAIT" {
					before = slices.Clone(told)
				}
				return nil
			}
			w := rediskit.Acknowledged(p, one, bulkily)
			w.(driver.BulkExtender).ExtendAll(bg, bulkClaims(3), func(i int, _ driver.Grant, err error) {
				told = append(told, i)
				if i == 1 {
					is(t, "ExtendAll of the lost one", err, strategy.ErrLost)
				} else {
					is(t, "ExtendAll", err)
				}
			})
			equal(t, "told before the WAIT", fmt.Sprint(before), "[1]")
			equal(t, "told in all", fmt.Sprint(told), "[1 0 2]")
		},
		// One renewal has to be confirmed although the last of them wrote nothing; none, although there is none.
		"BulkMostlyLost": func(t *testing.T, p *primary) {
			p.held = map[string]string{"k0": "t0", "k1": "another"}
			w := rediskit.Acknowledged(p, one, bulkily)
			errs := answersOf(t, w, bulkClaims(2))
			is(t, "ExtendAll", errs[0])
			is(t, "ExtendAll of the lost one", errs[1], strategy.ErrLost)
			equal(t, "sent", p.received(), "session, EVALSHA, WAIT 1 1")
			p.fewer(0, -1)
			errs = answersOf(t, w, bulkClaims(2))
			unconfirmed(t, "ExtendAll", errs[0], strategy.Acks{})
			is(t, "ExtendAll of the lost one", errs[1], strategy.ErrLost)
			isNot(t, "ExtendAll of the lost one", errs[1], strategy.ErrUnknown)
			p.held["k0"] = "another"
			p.received()
			for _, err := range answersOf(t, w, bulkClaims(2)) {
				is(t, "ExtendAll of lost ones", err, strategy.ErrLost)
			}
			equal(t, "sent for lost ones", p.received(), "session, EVALSHA")
			p.refuse = map[string]string{"EVALSHA": "LOADING"}
			for _, err := range answersOf(t, w, bulkClaims(2)) {
				is(t, "ExtendAll", err, strategy.ErrRefused)
			}
			equal(t, "sent to a server that refuses", p.received(), "session, EVALSHA")
		},
		// The servers are waited for until the first of the claims is due.
		"BulkDue": func(t *testing.T, p *primary) {
			p.held = map[string]string{"k0": "t0", "k1": "t1", "k2": "t2"}
			cs := bulkClaims(3)
			for i, due := range []time.Duration{3 * op, op, 2 * op} {
				cs[i].Due = time.Now().Add(due)
			}
			answersOf(t, rediskit.Acknowledged(p, one, bulkily), cs)
			equal(t, "sent", p.received(), "session, EVALSHA, EVALSHA, WAIT 1 750")
		},
		// A claim for which the protocol has no answer gets none: the engine sees to that.
		"BulkWithoutAnswer": func(t *testing.T, p *primary) {
			p.held = map[string]string{"k0": "t0", "k1": "t1"}
			told := ""
			w := rediskit.Acknowledged(p, one, func(n driver.Node) rediskit.Confirmable { return forgetful{bulky{simple{n}}} })
			w.(driver.BulkExtender).ExtendAll(bg, bulkClaims(2), func(i int, _ driver.Grant, err error) { told += fmt.Sprint(i, err) })
			equal(t, "told", told, "0 <nil>")
		},
		// Of a cluster, a connection reaches one server.
		"BulkElsewhere": func(t *testing.T, p *primary) {
			p.held = map[string]string{"k0": "t0", "k1": "t1", "k2": "t2"}
			p.moved = map[string]bool{"k1": true}
			w := rediskit.Acknowledged(p, one, bulkily)
			for _, err := range answersOf(t, w, bulkClaims(3)) {
				is(t, "ExtendAll", err)
			}
			if log := p.received(); strings.Count(log, "session") != 2 || !strings.HasSuffix(log, "session, EVALSHA, WAIT 1 1") {
				t.Errorf("sent %s, want a session of its own for the one that is elsewhere, at the end", log)
			}
		},
		"BulkUnsent": func(t *testing.T, p *primary) {
			p.before = func(string) error { return unreachable() }
			w := rediskit.Acknowledged(p, one, bulkily)
			for _, err := range answersOf(t, w, bulkClaims(3)) {
				is(t, "ExtendAll", err, strategy.ErrUnsent)
			}
			p.after = func(error) error { return unreachable() }
			w = rediskit.Acknowledged(full{p}, one, bulkily)
			for _, err := range answersOf(t, w, bulkClaims(3)) {
				is(t, "ExtendAll without a connection", err, strategy.ErrUnsent)
			}
			equal(t, "answers for none", len(answersOf(t, w, nil)), 0)
		},
		// A protocol may send several commands, with a key or without.
		"Several": func(t *testing.T, p *primary) {
			w := rediskit.Acknowledged(p, one, func(n driver.Node) rediskit.Confirmable { return curious{simple{n}} })
			_, err := w.Extend(bg, bulkClaims(1)[0])
			is(t, "Extend", err)
			equal(t, "sent", p.received(), `session, LOOK [], LOOK ["k0"], LOOK ["" "x"], WAIT 1 1`)
		},
		"ForgottenScript": func(t *testing.T, p *primary) {
			p.held = map[string]string{"k0": "t0"}
			p.refuse = map[string]string{"EVALSHA": "NOSCRIPT No matching script."}
			w := rediskit.Acknowledged(p, one, bulkily)
			_, err := w.Extend(bg, bulkClaims(1)[0])
			is(t, "Extend", err)
			equal(t, "sent", p.received(), "session, EVALSHA, EVAL, WAIT 1 1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { test(t, &primary{}) })
		})
	}
}

// full is a node whose pool has no connection to lend.
type full struct{ *primary }

func (full) Session(context.Context, time.Time, string, func(driver.Conn) error) error {
	return unreachable()
}

// answersOf returns what ExtendAll told of each claim.
func answersOf(t *testing.T, p driver.Protocol, cs []driver.Claim) []error {
	t.Helper()
	return extendAll(t, p.(driver.BulkExtender), cs)
}

func TestAcksAllowed(t *testing.T) {
	t.Parallel()
	for _, a := range []strategy.Acks{{Replicas: 1}, {AOF: true}, {Replicas: contract.MaxReplicas, AOF: true}} {
		_, err := engine.New(rediskit.Acknowledged(&primary{}, a, simply), strategy.Options{})
		is(t, fmt.Sprintf("New, %+v", a), err)
	}
	for _, a := range []strategy.Acks{{Replicas: -1}, {Replicas: -1, AOF: true}, {Replicas: contract.MaxReplicas + 1}} {
		_, err := engine.New(rediskit.Acknowledged(&primary{}, a, simply), strategy.Options{})
		if err == nil || !strings.Contains(err.Error(), "allowed are") {
			t.Errorf("New, %+v = %v, want what is allowed", a, err)
		}
	}
}

// An acknowledged protocol can do what the protocol can, and nothing else.
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
	equal(t, "telling", can(rediskit.Acknowledged(p, one, func(n driver.Node) rediskit.Confirmable { return telling{simple{n}} })), "notices, re-entry")
	everything := rediskit.Acknowledged(p, one, func(n driver.Node) rediskit.Confirmable { return both{bulky{simple{n}}} })
	equal(t, "both", can(everything), "bulk, notices")
	_, err := engine.New(everything, strategy.Options{})
	is(t, "New", err, errNonsense)
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
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := &primary{held: map[string]string{}, refuse: c.refuse, unsent: c.unsent, fsync: c.fsync, info: c.info}
				if c.got != nil {
					p.confirm = func(time.Duration) (any, error) { return c.got, nil }
				}
				s := open(t, rediskit.Acknowledged(p, c.acks, simply), c.o)
				err := s.Check(bg)
				if c.want == "" {
					is(t, "Check", err)
				} else if err == nil || !strings.Contains(err.Error(), c.want) || c.not != "" && strings.Contains(err.Error(), c.not) {
					t.Errorf("Check = %v, want %q and not %q", err, c.want, c.not)
				}
				equal(t, "locks", len(p.held), 0)
			})
		})
	}
}
