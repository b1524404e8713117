// Which rights a Redis user needs, held to what AllRights lists.
package subjects

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// variantOf is the variant of a set of rights, with the one that is no subject.
func variantOf(name string) Variant {
	if name == "redlock-unguarded" {
		v := plainly("redlock-3")
		v.Name, v.Guarded, v.On = name, false, quorum(redlock.WithoutGuard())
		return v
	}
	return plainly(name)
}

// A user is one of the ACL's on some servers, made for the test.
type user struct {
	name    string
	servers []*redistest.Server
	old     bool // its scripts find no redis.acl_check_cmd, as before Redis 7.0
}

const userPassword = "s3cret-of-the-user"

// may makes a user that may do what rules say, and nothing else; or skips the test.
func may(t *testing.T, servers []*redistest.Server, name, rules string) user {
	t.Helper()
	u := user{name: name, servers: servers}
	for _, s := range servers {
		args := []any{"SETUSER", name, "reset", "on", ">" + userPassword}
		for r := range strings.FieldsSeq(rules) {
			args = append(args, ruleOf(s, r))
		}
		c := s.Pool().Get()
		_, err := c.Do("ACL", args...)
		c.Close()
		if err != nil {
			t.Skipf("NOT PROVEN: which rights locks need: %v", err)
		}
	}
	return u
}

// ruleOf is a rule as a server has it: Valkey's DELIFEQ is DELEX on Redis.
func ruleOf(s *redistest.Server, rule string) string {
	if rule == "+delifeq" && strings.HasPrefix(s.Version(), "Redis ") {
		return "+delex"
	}
	return rule
}

// pools dial as the user.
func (u user) pools(t *testing.T) []*redis.Pool {
	var pools []*redis.Pool
	for _, s := range u.servers {
		p := &redis.Pool{Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", s.Addr(), redis.DialUsername(u.name), redis.DialPassword(userPassword))
		}}
		t.Cleanup(func() { p.Close() })
		pools = append(pools, p)
	}
	return pools
}

// open returns v's strategy as the user.
func (u user) open(t *testing.T, v Variant, o strategy.Options) strategy.Strategy {
	t.Helper()
	s, err := v.open(u.pools(t), o, v.On, func(_ int, n driver.Node) driver.Node {
		if u.old {
			return oldNode{n}
		}
		return n
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // some may not even undo
	return s
}

// An oldNode hides from scripts what Redis 6.2 has not got.
type oldNode struct{ driver.Node }

func (n oldNode) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	const hidden = "local redis = setmetatable({}, {__index = function(_, k) if k ~= 'acl_check_cmd' then return redis[k] end end}) "
	return n.Node.Eval(ctx, due, driver.NewScript(s.Name(), hidden+s.Source()), keys, args...)
}

// denied returns what the servers say to have refused the user.
func (u user) denied(t *testing.T) (all []string) {
	t.Helper()
	for _, s := range u.servers {
		entries, err := redis.Values(redistest.Do(t, s, "ACL", "LOG", 10_000), nil) // without a number it is only the last ten
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			fields, _ := redis.Values(e, nil)
			entry := map[string]string{}
			for i := 0; i+1 < len(fields); i += 2 {
				entry[fmt.Sprintf("%s", fields[i])] = fmt.Sprintf("%s", fields[i+1])
			}
			if entry["username"] == u.name {
				all = append(all, entry["reason"]+" "+strings.ToLower(entry["object"]))
			}
		}
	}
	return all
}

// serversFor returns servers of the test's own: what they deny is this test's.
func serversFor(t *testing.T, v Variant) []*redistest.Server {
	t.Helper()
	servers, err := v.Farm(t).Nodes(t.Context(), v.Servers)
	redistest.Must(t, err)
	if _, err := Bootstrap(t.Context(), []Variant{v}, servers); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		do(t.Context(), s.Pool(), "CONFIG", "SET", "acllog-max-len", 10_000) //nolint:errcheck // tests run side by side: what one is denied stays in the log
	}
	return servers
}

// unhurried is for what must succeed, or be refused, on a slow machine, too.
var unhurried = strategy.Options{TTL: 2 * time.Minute, OpTimeout: time.Minute}

func unhurriedBy(w strategy.Wait) strategy.Options {
	o := unhurried
	o.Wait = w
	return o
}

// drill does with a lock what there is to be done, and fails the test where that fails. Some users can
// only wait for the end of a TTL, so it is short; a machine for which it is too short plays again.
func drill(t *testing.T, v Variant, u user, name string) {
	t.Helper()
	round := 0
	verdict.Conclusive(t, func() verdict.Slow {
		round++
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		longest, err := drillOnce(ctx, t, v, u, fmt.Sprint(name, "-", round))
		if err == nil {
			return ""
		}
		if longest > drillTTL/3 { // three steps at most go between two renewals
			return verdict.Slowf("a hold of %v took %v: %v", drillTTL, longest, err)
		}
		t.Error(err)
		return ""
	})
	crowd(t, u.open(t, v, unhurried), name)
}

const drillTTL = 2 * time.Second

// drillOnce returns also the time that the longest step took.
func drillOnce(ctx context.Context, t *testing.T, v Variant, u user, name string) (longest time.Duration, failed error) {
	t.Helper()
	o := strategy.Options{TTL: drillTTL, OpTimeout: drillTTL / 2}
	first, second := u.open(t, v, o), u.open(t, v, o) // as two processes
	began := time.Now()
	done := func(what string, err error) {
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s() = %w, want nil", what, err))
		}
		longest, began = max(longest, time.Since(began)), time.Now()
	}
	done("Check", first.Check(ctx))
	lease, err := first.NewLock(name).TryAcquire(ctx)
	if done("TryAcquire", err); err != nil {
		return longest, failed
	}
	if _, ok := lease.Fence(); ok != v.Fenced {
		t.Errorf("Fence() is there: %v, want %v", ok, v.Fenced)
	}
	_, err = second.NewLock(name).TryAcquire(ctx)
	if errors.Is(err, strategy.ErrHeld) {
		err = nil
	} else {
		err = fmt.Errorf("%w, want ErrHeld", err)
	}
	done("TryAcquire of a held lock", err)
	done("Extend", lease.Extend(ctx))
	err = wait(ctx, second, o, plain(name), func(leave func()) { leave() })
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	done("Acquire of a waiter that gives up", err)
	done("Extend", lease.Extend(ctx))
	err = wait(ctx, second, o, plain(name), func(func()) { done("Release", lease.Release(ctx)) })
	began = time.Now() // the waiter may have waited for the end of the TTL
	done("Acquire that waits, or its Release", err)
	if v.ReadWriter != nil {
		lease, err := first.NewLock(name).Acquire(ctx)
		if done("Acquire to write", err); err != nil {
			return longest, failed
		}
		reader := func(s strategy.Strategy) strategy.Lock { return s.(engine.Strategy).NewShare(name, 1) }
		err = wait(ctx, second, o, reader, func(func()) { done("Release", lease.Release(ctx)) })
		began = time.Now()
		done("Acquire to read that waits, or its Release", err)
	}

	lease, err = first.NewLock(name).Acquire(ctx)
	began = time.Now() // likewise, for a place that was given up
	if done("Acquire", err); err != nil {
		return longest, failed
	}
	token, err := lease.Detach()
	if err == nil {
		lease, err = second.Adopt(ctx, name, token)
	}
	if done("Detach and Adopt", err); err != nil {
		return longest, failed
	}
	done("Release of what was adopted", lease.Release(ctx))
	return longest, failed
}

// crowd has callers of one process ask at the same time, each for a lock of its own.
func crowd(t *testing.T, s strategy.Strategy, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for range 4 { // with the first it is found out whether the user may release
				lease, err := s.NewLock(fmt.Sprint(name, "-", i)).Acquire(ctx)
				if err == nil {
					err = lease.Release(ctx)
				}
				if err != nil {
					t.Errorf("Acquire() or Release() next to others = %v, want nil", err)
				}
			}
		})
	}
	callers.Wait()
}

func plain(name string) func(strategy.Strategy) strategy.Lock {
	return func(s strategy.Strategy) strategy.Lock { return s.NewLock(name) }
}

// wait acquires a lock that is held, and releases it. It calls meanwhile when it waits.
func wait(ctx context.Context, s strategy.Strategy, o strategy.Options, lock func(strategy.Strategy) strategy.Lock, meanwhile func(leave func())) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	waits := make(chan struct{}, 2)
	o.Observe = func(e strategy.Event) {
		if e.Kind == strategy.EventHeld {
			select {
			case waits <- struct{}{}:
			default:
			}
		}
	}
	s, err := s.With(func(to *strategy.Options) { *to = o })
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		lease, err := lock(s).Acquire(ctx)
		if err == nil {
			err = lease.Release(ctx)
		}
		ended <- err
	}()
	select {
	case <-waits: // at first
	case err := <-ended: // it has not waited
		return err
	}
	select {
	case <-waits: // it has subscribed, and asked again
	case <-time.After(o.TTL / 4): // or it may not, and sleeps
	}
	meanwhile(leave)
	return <-ended
}

// asksAgain waits for a holder that keeps the lock for longer than its TTL, so that the waiter asks again.
func asksAgain(t *testing.T, v Variant, u user, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := strategy.Options{TTL: drillTTL, OpTimeout: drillTTL / 2}
	verdict.Conclusive(t, func() verdict.Slow {
		lease, err := u.open(t, v, o).NewLock(name).TryAcquire(ctx)
		if err == nil {
			err = lease.KeepAlive(0)
		}
		if err != nil {
			t.Errorf("TryAcquire() or KeepAlive() = %v, want nil", err)
			return ""
		}
		asked := 0
		watched := o
		watched.Observe = func(e strategy.Event) {
			if e.Kind == strategy.EventHeld {
				if asked++; asked == 3 { // at first, for a place, and again
					go lease.Release(ctx) //nolint:errcheck // seen below
				}
			}
		}
		got, err := u.open(t, v, watched).NewLock(name).Acquire(ctx)
		if err != nil {
			t.Errorf("Acquire() = %v, want nil", err)
			return ""
		}
		got.Release(ctx) //nolint:errcheck // as it may be late
		if asked < 3 {
			return verdict.Slowf("a lock that is kept alive was lost: %v", lease.Err())
		}
		return ""
	})
}

// inspects sees and ends another's lock.
func inspects(t *testing.T, v Variant, u user, name string) error {
	t.Helper()
	s := u.open(t, v, unhurried)
	lease, err := s.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		return err
	}
	defer lease.Release(t.Context()) //nolint:errcheck // it may be gone
	info, err := s.Inspect(t.Context(), name)
	if err != nil {
		return err
	}
	return s.ForceRelease(t.Context(), info)
}

// takesOver takes the lock of a holder that died.
func takesOver(t *testing.T, v Variant, u user, name string) {
	t.Helper()
	const ttl = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	verdict.Conclusive(t, func() verdict.Slow {
		began := time.Now()
		dead, err := u.open(t, v, strategy.Options{TTL: ttl, OpTimeout: ttl * 5 / 6}).NewLock(name).Acquire(ctx)
		if err == nil {
			_, err = dead.Detach()
		}
		if took := time.Since(began); err != nil && took > ttl/2 {
			return verdict.Slowf("within %v, with a TTL of %v: %v", took, ttl, err)
		}
		if err != nil {
			t.Errorf("Acquire() and Detach() = %v, want nil", err)
		}
		return ""
	})
	lease, err := u.open(t, v, strategy.Options{TTL: time.Minute, OpTimeout: 30 * time.Second}).NewLock(name).Acquire(ctx)
	if err != nil {
		t.Errorf("Acquire() of a dead holder's lock = %v, want nil", err)
		return
	}
	if err := lease.Release(ctx); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// says reports whether an error names what a rule would allow.
func says(err error, rule string) bool {
	what := strings.ToLower(strings.Trim(rule[1:], "*"))
	if _, kind, ok := strings.Cut(rule, "{*}"); ok && rule[0] == '~' {
		what = "}" + kind
	}
	if rule[0] == '&' {
		what = "channel"
	}
	return err != nil && strings.Contains(strings.ToLower(err.Error()), what)
}

// TestRights: with exactly the rights that are listed everything works, and no server
// refuses anything; without any one of them Check says which is missing, or, of those that
// locks can do without, they do.
func TestRights(t *testing.T) {
	for _, r := range AllRights() {
		t.Run(r.Variant, func(t *testing.T) {
			t.Parallel()
			v := variantOf(r.Variant)
			servers := serversFor(t, v)
			all := may(t, servers, "all-of-"+r.Variant, r.Line(true))
			t.Run("all", func(t *testing.T) {
				drill(t, v, all, r.Variant+"-all")
				takesOver(t, v, all, r.Variant+"-dead")
				asksAgain(t, v, all, r.Variant+"-again")
				if err := inspects(t, v, all, r.Variant+"-all-inspected"); err != nil {
					t.Errorf("Inspect() and ForceRelease() = %v, want nil", err)
				}
				for _, w := range waysOf(t, v, all) {
					if err := all.open(t, v, unhurriedBy(w)).Check(t.Context()); err != nil {
						t.Errorf("Check() with Options.Wait %v = %v, want nil", w, err)
					}
				}
				if refused := all.denied(t); len(refused) > 0 {
					t.Errorf("the servers have refused %q, want nothing", refused)
				}
			})
			for i, p := range r.Parts {
				t.Run("without "+p.Rule, func(t *testing.T) {
					t.Parallel() // mostly it waits for the end of a TTL
					rest := r
					rest.Parts = slices.Delete(slices.Clone(r.Parts), i, i+1)
					u := may(t, servers, fmt.Sprintf("no-%d-of-%s", i, r.Variant), rest.Line(true))
					lacking(t, v, u, p)
				})
			}
			t.Run("least", func(t *testing.T) {
				t.Parallel()
				u := may(t, servers, "least-of-"+r.Variant, r.Line(false))
				drill(t, v, u, r.Variant+"-least")
			})
		})
	}
}

// TestRightsBefore7: also where a script can only find out by trying, Check says what is
// missing, and leaves nothing behind.
func TestRightsBefore7(t *testing.T) {
	for _, name := range []string{"luascript", "fairqueue", "semaphore", "rwlock", "reentrant", "redlock-fenced"} {
		t.Run(name, func(t *testing.T) {
			v := variantOf(name)
			servers := serversFor(t, v)
			r, err := RightsOf(name)
			if err != nil {
				t.Fatal(err)
			}
			all := may(t, servers, "old-all-of-"+name, r.Line(true))
			all.old = true
			drill(t, v, all, name+"-old")
			for _, w := range waysOf(t, v, all) {
				if err := all.open(t, v, unhurriedBy(w)).Check(t.Context()); err != nil {
					t.Errorf("Check() with Options.Wait %v = %v, want nil", w, err)
				}
			}
			if refused := all.denied(t); len(refused) > 0 {
				t.Errorf("the servers have refused %q, want nothing", refused)
			}
			for i, p := range r.Parts {
				if p.Cost != "" && p.Wait == strategy.WaitBest {
					continue
				}
				t.Run("without "+p.Rule, func(t *testing.T) {
					rest := r
					rest.Parts = slices.Delete(slices.Clone(r.Parts), i, i+1)
					u := may(t, servers, fmt.Sprintf("old-no-%d-of-%s", i, name), rest.Line(true))
					u.old = true
					err := u.open(t, v, unhurriedBy(p.Wait)).Check(t.Context())
					if !errors.Is(err, strategy.ErrRefused) || !says(err, p.Rule) {
						t.Errorf("Check() = %v, want ErrRefused, and %q", err, p.Rule)
					}
				})
			}
			for _, s := range servers {
				keys, err := redis.Strings(redistest.Do(t, s, "KEYS", "*check:*"), nil)
				if len(keys) > 0 || err != nil {
					t.Errorf("KEYS = %q, %v, want none: Check leaves nothing", keys, err)
				}
			}
		})
	}
}

// TestForbiddenToTidy: a connection whose transaction may not be ended is not given back to the
// pool, where the next to have it would be in that transaction.
func TestForbiddenToTidy(t *testing.T) {
	v := plainly("setnxgetset-watch")
	servers := serversFor(t, v)
	u := may(t, servers, "untidy", lockKey+" +getex +setnx +del +watch +multi +exec +client|info +client|kill")
	pools := u.pools(t)
	pools[0].MaxIdle = 3
	s, err := v.New(pools, unhurried)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Check(t.Context()); !says(err, "+set") {
		t.Errorf("Check() = %v, want that SET is forbidden", err)
	}
	for range 4 {
		c := pools[0].Get()
		defer c.Close()
		if reply, err := c.Do("GETEX", "lock:{untidy}"); reply != nil || err != nil {
			t.Errorf("GETEX on a connection of the pool = %q, %v, want nothing: it is in a transaction", reply, err)
		}
	}
}

// TestRightsAcknowledged: which rights it takes besides a set to wait for replicas, or for the file.
func TestRightsAcknowledged(t *testing.T) {
	own := redistest.ForTests(t)
	t.Run("WAIT", func(t *testing.T) {
		primary, _ := pairOf(t, own)
		acknowledgedRights(t, primary, byOne, "+wait", "WAIT")
	})
	t.Run("WAITAOF", func(t *testing.T) {
		newer, err := own.Having(t.Context(), "redis-8.0", "WAITAOF")
		redistest.Skip(t, err, "which rights it takes to wait for an append-only file")
		primary := redistest.OwnOf(t, newer, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
		acknowledgedRights(t, primary, strategy.Acks{AOF: true}, "+waitaof", "WAITAOF")
	})
}

func acknowledgedRights(t *testing.T, primary *redistest.Server, a strategy.Acks, rule, cmd string) {
	o := strategy.Options{TTL: time.Minute, OpTimeout: 6 * time.Second}
	for _, v := range acknowledged(a) {
		if strings.HasSuffix(v.Name, "-blind") {
			continue
		}
		r, err := RightsOf(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		u := may(t, []*redistest.Server{primary}, "acks-"+v.Name, r.Line(false)+" "+rule)
		s := u.open(t, v, o)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("%s: Check() = %v, want nil", v.Name, err)
		}
		lease, err := s.NewLock(v.Name).TryAcquire(t.Context())
		if err == nil {
			err = errors.Join(lease.Extend(t.Context()), lease.Release(t.Context()))
		}
		if err != nil {
			t.Errorf("%s: TryAcquire, Extend, Release = %v, want nil", v.Name, err)
		}
		without := may(t, []*redistest.Server{primary}, "no-acks-"+v.Name, r.Line(false))
		if err := without.open(t, v, o).Check(t.Context()); !errors.Is(err, strategy.ErrRefused) || !says(err, "+"+cmd) {
			t.Errorf("%s: Check() = %v, want that %s is forbidden", v.Name, err, cmd)
		}
	}
}

// waysOf are the ways to wait that the variant has.
func waysOf(t *testing.T, v Variant, u user) (ways []strategy.Wait) {
	for _, w := range []strategy.Wait{strategy.WaitPoll, strategy.WaitNotification, strategy.WaitQueue} {
		s, err := v.New(u.pools(t), strategy.Options{Wait: w})
		if err == nil {
			s.Close()
			ways = append(ways, w)
		}
	}
	return ways
}

// lacking holds what becomes of a user without one part.
func lacking(t *testing.T, v Variant, u user, p Part) {
	t.Helper()
	name := "lacks-" + u.name
	s := u.open(t, v, unhurried)
	err := s.Check(t.Context())
	if p.Cost == "" {
		if rule := ruleOf(u.servers[0], p.Rule); !errors.Is(err, strategy.ErrRefused) || !says(err, rule) {
			t.Errorf("Check() = %v, want ErrRefused, and %q", err, rule)
		}
		return
	}
	if err != nil {
		t.Errorf("Check() = %v, want nil: %s", err, p.Cost)
	}
	needs := []strategy.Wait{p.Wait}
	if p.Rule == "+publish" { // also releases that find nobody in the queue
		needs = append(needs, strategy.WaitNotification)
	}
	for _, w := range needs {
		if w == strategy.WaitBest {
			continue
		}
		if err := u.open(t, v, unhurriedBy(w)).Check(t.Context()); !errors.Is(err, strategy.ErrRefused) || !says(err, p.Rule) {
			t.Errorf("Check() with Wait %v = %v, want ErrRefused, and %q", w, err, p.Rule)
		}
	}
	drill(t, v, u, name)
	if v.Package == "setnxgetset" {
		takesOver(t, v, u, name+"-dead")
	}
	if p.Rule == "+lpos" {
		asksAgain(t, v, u, name+"-again")
	}
	if err := inspects(t, v, u, name+"-inspected"); (err != nil) != (p.Rule == "+pttl") {
		t.Errorf("Inspect() and ForceRelease() = %v", err)
	} else if err != nil && !says(err, p.Rule) {
		t.Errorf("Inspect() = %v, want %q", err, p.Rule)
	}
	if slices.Contains([]string{"+unwatch", "+discard", "+client|kill", "+ping", "+watch", "+multi", "+pexpire", "+exec"}, p.Rule) {
		return // asked for only where something has gone wrong
	}
	if len(u.denied(t)) == 0 {
		t.Errorf("nothing was refused: %s is not needed at all", p.Rule)
	}
}

var update = flag.Bool("update", false, "write docs/data/rights.md again")

// TestSecurityPage: docs/data/rights.md has the sets, and docs/run/security.md quotes one of them.
func TestSecurityPage(t *testing.T) {
	const page, quoting, quoted = "../../../docs/data/rights.md", "../../../docs/run/security.md", "fairqueue"
	want := RightsPage()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s (%v) has\n%s\nwant\n%s", page, err, got, want)
	}
	r, err := RightsOf(quoted)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(quoting); err != nil || !strings.Contains(string(text), " "+r.Line(false)+"\n") {
		t.Errorf("%s (%v) has not the least rights of %s: %s", quoting, err, quoted, r.Line(false))
	}
}

// TestRightsOfAll: every variant has its set.
func TestRightsOfAll(t *testing.T) {
	for _, v := range All() {
		if _, err := RightsOf(v.Name); err != nil {
			t.Error(err)
		}
	}
}

// TestConformanceLeastRights holds the suite as a user that may do what is listed, and no
// more. No server has refused anything, so nothing of it went a longer way.
func TestConformanceLeastRights(t *testing.T) { leastRights(t, "fairqueue") }

// TestConformanceLeastRightsOfAll does so for the other strategies. make more runs it, make test does not.
func TestConformanceLeastRightsOfAll(t *testing.T) {
	leastRights(t, "setnxgetset", "setnxgetset-watch", "setnxpx", "ifeq", "luascript", "semaphore", "rwlock", "reentrant", "redlock-1", "redlock-fenced")
}

func leastRights(t *testing.T, names ...string) {
	const child = "LOCKS_SUBJECTS_USER" // set: the user that is there already
	for _, name := range names {
		v, as := plainly(name), "suite-of-"+name
		if existing := os.Getenv(child); existing != "" && existing != as {
			continue
		}
		r, err := RightsOf(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		servers := serversFor(t, v)
		u := user{name: as, servers: servers}
		if os.Getenv(child) == "" {
			u = may(t, servers, as, r.Line(true))
		}
		s, by := v.SubjectOn(u.pools(t)), v.Subject(servers) // what looks, evicts and forges may do all
		s.Evict, s.Spoil, s.Leftovers, s.Forge, s.ChildEnv = by.Evict, by.Spoil, by.Leftovers, by.Forge, by.ChildEnv
		s.Name += "-least"
		s.ChildEnv = append(s.ChildEnv, child+"="+as)
		conformance.Run(t, s)
		if os.Getenv(child) != "" {
			return
		}
		if refused := u.denied(t); len(refused) > 0 {
			t.Errorf("%s: the servers have refused %q, want nothing", v.Name, refused)
		}
	}
}
