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
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
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

// check is what Check says to the user.
func (u user) check(t *testing.T, v Variant, o strategy.Options) error {
	t.Helper()
	s, err := v.New(u.pools(t), o)
	return locktest.Opened(t, s, err).Check(t.Context())
}

// subject is the variant as the user has it. The hooks that look, evict and forge may do all.
func (u user) subject(t *testing.T, v Variant) conformance.Subject {
	s, by := v.SubjectOn(u.pools(t)), v.Subject(u.servers)
	s.Evict, s.Spoil, s.Leftovers, s.Forge, s.ChildEnv = by.Evict, by.Spoil, by.Leftovers, by.Forge, by.ChildEnv
	return s
}

var (
	// essential are properties of the suite for which the least rights suffice.
	essential = []string{
		"Exclusive", "ReleaseFrees", "ReleaseOnlyOwn", "ExtendRestarts", "KeptAlive", "OneTakesOver", "CancelledWaiting",
		"LateRequestUndone", "Detach", "Adopt", "FenceRises",
	}
	// woken are those for which a waiter has to be notified.
	woken = []string{
		"WokenByRelease", "NoMissedRelease", "AdoptionWakes", "AskingAgain", "Contention", "NoLostUpdate", "ReadersAndWriters", "Downgrade",
		"PermitsUnderContention",
	}
	// looks are those for which the TTL of a lock has to be read.
	looks = []string{"Inspect", "ForceRelease", "WokenAtExpiry"}
)

// keeps holds the variant, as the user has it, to properties, side by side: mostly they wait.
func (u user) keeps(t *testing.T, v Variant, properties ...string) {
	t.Helper()
	s := u.subject(t, v)
	var trials sync.WaitGroup
	for _, p := range conformance.Properties() {
		if !slices.Contains(properties, p.Name) {
			continue
		}
		trials.Go(func() {
			if r := conformance.Check(t.Context(), s, p); r.Status != conformance.Kept && r.Status != conformance.Skipped {
				t.Error(r)
			}
		})
	}
	trials.Wait()
}

// before7 is the variant on servers whose scripts find no redis.acl_check_cmd, as those before Redis 7.0.
func before7(v Variant) Variant {
	on := v.On
	v.On = func(nodes []driver.Node) driver.Protocol {
		var old []driver.Node
		for _, n := range nodes {
			old = append(old, oldNode{n})
		}
		return on(old)
	}
	return v
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
				all.lacksNothing(t, v)
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
				may(t, servers, "least-of-"+r.Variant, r.Line(false)).keeps(t, v, essential...)
			})
		})
	}
}

// TestRightsBefore7: also where a script can only find out by trying, Check says what is
// missing, and leaves nothing behind.
func TestRightsBefore7(t *testing.T) {
	for _, name := range []string{"luascript", "fairqueue", "semaphore", "rwlock", "reentrant", "redlock-fenced"} {
		t.Run(name, func(t *testing.T) {
			v := before7(variantOf(name))
			servers := serversFor(t, v)
			r, err := RightsOf(name)
			if err != nil {
				t.Fatal(err)
			}
			may(t, servers, "old-all-of-"+name, r.Line(true)).lacksNothing(t, v)
			for i, p := range r.Parts {
				if p.Cost != "" && p.Wait == strategy.WaitBest {
					continue
				}
				t.Run("without "+p.Rule, func(t *testing.T) {
					rest := r
					rest.Parts = slices.Delete(slices.Clone(r.Parts), i, i+1)
					u := may(t, servers, fmt.Sprintf("old-no-%d-of-%s", i, name), rest.Line(true))
					err := u.check(t, v, unhurriedBy(p.Wait))
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
		primary, _ := pair(t, own)
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
		s, err := v.New(u.pools(t), o)
		if err := locktest.Opened(t, s, err).Check(t.Context()); err != nil {
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
		if err := without.check(t, v, o); !errors.Is(err, strategy.ErrRefused) || !says(err, "+"+cmd) {
			t.Errorf("%s: Check() = %v, want that %s is forbidden", v.Name, err, cmd)
		}
	}
}

// lacksNothing holds that everything works for the user, and that no server refuses anything.
func (u user) lacksNothing(t *testing.T, v Variant) {
	t.Helper()
	u.keeps(t, v, slices.Concat(essential, woken, looks)...)
	for _, w := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll, strategy.WaitNotification, strategy.WaitQueue} {
		s, err := v.New(u.pools(t), unhurriedBy(w))
		if err != nil {
			continue // it has not that way to wait
		}
		if err := locktest.Opened(t, s, nil).Check(t.Context()); err != nil {
			t.Errorf("Check() with Options.Wait %v = %v, want nil", w, err)
		}
	}
	if refused := u.denied(t); len(refused) > 0 {
		t.Errorf("the servers have refused %q, want nothing", refused)
	}
}

// lacking holds what becomes of a user without one part.
func lacking(t *testing.T, v Variant, u user, p Part) {
	t.Helper()
	err := u.check(t, v, unhurried)
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
		if err := u.check(t, v, unhurriedBy(w)); !errors.Is(err, strategy.ErrRefused) || !says(err, p.Rule) {
			t.Errorf("Check() with Wait %v = %v, want ErrRefused, and %q", w, err, p.Rule)
		}
	}
	u.keeps(t, v, essential...)
	if p.Rule != "+pttl" {
		u.keeps(t, v, looks...)
	} else if _, err := u.inspects(t, v); !says(err, p.Rule) {
		t.Errorf("Inspect() = %v, want %q", err, p.Rule)
	}
	if p.Rule == "+lpos" {
		u.keeps(t, v, "AskingAgain")
	}
	if !slices.Contains([]string{"+publish", "+lindex", "+lpop"}, p.Rule) {
		u.keeps(t, v, "WokenByRelease") // if by nothing else, by asking again soon
	}
	if slices.Contains([]string{"+unwatch", "+discard", "+client|kill", "+ping", "+watch", "+multi", "+pexpire", "+exec"}, p.Rule) {
		return // asked for only where something has gone wrong
	}
	if p.Wait != strategy.WaitBest {
		return // Check has said that it is needed
	}
	for range 10 {
		if len(u.denied(t)) > 0 {
			return
		}
		u.keeps(t, v, "WokenByRelease") // again: on a slow machine a release may find nobody in the queue yet
	}
	t.Errorf("nothing was refused: %s is not needed at all", p.Rule)
}

// inspects looks at a lock that is held.
func (u user) inspects(t *testing.T, v Variant) (strategy.Info, error) {
	t.Helper()
	s, err := v.New(u.pools(t), unhurried)
	name := "inspected-by-" + u.name
	lease := locktest.Try(t, locktest.Opened(t, s, err), name)
	defer locktest.Release(t, lease)
	return s.Inspect(t.Context(), name)
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
		s := u.subject(t, v)
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
