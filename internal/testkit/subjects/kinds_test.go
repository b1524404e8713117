// A key of one kind is refused by all algorithms of other kinds, in every operation, and stays as it is.
package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

// A kind is what lies at a lock's key.
type kind struct {
	name string
	put  func(k *kinds, key string)
	of   []string // the packages whose lock it may be
	bare bool     // it may also be the lock of all whose lock is a string with a token alone: see kinds.bare
	says string   // what a refusal says, if not that the type is wrong
}

const owner = "the holder"

func allKinds() []kind {
	lock := func(p func(*kinds) driver.Protocol, shares ...int32) func(*kinds, string) {
		return func(k *kinds, key string) {
			for i, share := range shares {
				c := k.claim(key, []string{owner, "another"}[i])
				c.Share, c.Grant = share, driver.Grant{}
				if _, err := p(k).Acquire(k.t.Context(), c); err != nil {
					k.t.Fatal(err)
				}
			}
		}
	}
	of := func(variant string) func(*kinds) driver.Protocol {
		return func(k *kinds) driver.Protocol { return plainly(variant).On([]driver.Node{nodeOn(k.t, k.s)}) }
	}
	permits := func(k *kinds) driver.Protocol { return semaphore.On(nodeOn(k.t, k.s), 5) }
	lapsed := func(put func(*kinds, string)) func(*kinds, string) { // the first to end
		return func(k *kinds, key string) {
			put(k, key)
			k.do("ZADD", key, 1000, k.members(key)[0])
		}
	}
	foreign := func(cmd string, args ...any) func(*kinds, string) {
		return func(k *kinds, key string) {
			k.do(cmd, append([]any{key}, args...)...)
			k.do("PEXPIRE", key, time.Hour.Milliseconds())
		}
	}
	stamp := fmt.Sprintf("%d:%s", time.Now().Add(time.Hour).UnixMilli(), owner)
	const (
		noStamp    = "holds no timestamp lock: "
		semaphores = "holds the permits of a semaphore"
		readWrite  = "holds a read-write lock"
	)
	return []kind{
		{"a token", lock(of("setnxpx"), 0), nil, true, noStamp},
		{"a foreign string", foreign("SET", "tomorrow at noon"), nil, true, noStamp},
		{"a stamp", foreign("SET", stamp), []string{"setnxgetset"}, true, ""},
		{"a re-entrant lock", lock(of("reentrant"), 0), []string{"reentrant"}, false, ""},
		{"a permit", lock(of("semaphore"), 1), []string{"semaphore"}, false, semaphores},
		{"permits, and some have lapsed", lapsed(lock(permits, 2, 1)), []string{"semaphore"}, false, semaphores},
		{"a reader", lock(of("rwlock"), 1), []string{"rwlock"}, false, readWrite},
		{"two readers, and one has lapsed", lapsed(lock(of("rwlock"), 1, 1)), []string{"rwlock"}, false, readWrite},
		{"a writer", lock(of("rwlock"), 0), []string{"rwlock"}, false, readWrite},
		{"a writer that has lapsed", lapsed(lock(of("rwlock"), 0)), []string{"rwlock"}, false, readWrite},
		{"a list", foreign("RPUSH", "a", "b"), nil, false, ""},
		{"a set", foreign("SADD", "a"), nil, false, ""},
		{"a stream", foreign("XADD", "*", "a", "b"), nil, false, ""},
		{"a foreign hash", foreign("HSET", "a", "b"), nil, false, "holds no re-entrant lock: a field is unknown or has a bad value: a"},
		{"a foreign sorted set", foreign("ZADD", 1, "a", 9e15, "b"), nil, false, "holds no lock: one of its members is a"},
		{"a foreign sorted set with a like word", foreign("ZADD", 9e15, "a.write:a"), nil, false, "holds no lock: one of its members is a.write:a"},
		{"a foreign sorted set of great scores", foreign("ZADD", 9e15, "a:b"), nil, false, "holds no lock: one of its members is a:b"},
	}
}

// kinds are a server's.
type kinds struct {
	t *testing.T
	s *redistest.Server
}

func (k *kinds) do(cmd string, args ...any) any {
	k.t.Helper()
	return redistest.Do(k.t, k.s, cmd, args...)
}

// members are those of a sorted set.
func (k *kinds) members(key string) (members []string) {
	for _, m := range k.do("ZRANGE", key, 0, -1).([]any) {
		members = append(members, string(m.([]byte)))
	}
	return members
}

// claim is one that was granted a lock.
func (k *kinds) claim(key, token string) driver.Claim {
	return driver.Claim{
		Name: "x", Key: key, Token: token, Owner: token, TTL: time.Hour, FenceTTL: 2 * time.Hour, Due: time.Now().Add(time.Minute),
		Grant: driver.Grant{Start: time.Now(), TTL: time.Hour, Fence: 1},
	}
}

// dump is all that the server has of a lock, and when it expires.
func (k *kinds) dump(key string) string {
	const keys = `local dump = {}
		for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
			table.insert(dump, key .. ' until ' .. tostring(redis.call('PEXPIRETIME', key)) .. ': ' .. redis.sha1hex(redis.call('DUMP', key)))
		end
		table.sort(dump)
		return table.concat(dump, ', ')`
	return string(k.do("EVAL", keys, 0, "*"+literal(key)+"*").([]byte))
}

// An operation is what an algorithm does for a claim.
type operation struct {
	name string
	do   func(ctx context.Context, c driver.Claim) error
	// held is what it answers next to another's lock of its own form; errWrites: there it writes.
	held error
}

var errWrites = errors.New("it writes")

func (k *kinds) operations(v Variant, p driver.Protocol) []operation {
	acquire := func(name string, held error, change func(*driver.Claim)) operation {
		return operation{name, func(ctx context.Context, c driver.Claim) error {
			c.Grant = driver.Grant{}
			change(&c)
			_, err := p.Acquire(ctx, c)
			return err
		}, held}
	}
	adopt := func(name string, held error, share int32) operation {
		return operation{name, func(ctx context.Context, c driver.Claim) error {
			from := c.Token
			c.Token, c.Owner, c.Share = "the adopter", "the adopter", share
			_, err := p.Adopt(ctx, c, from)
			return err
		}, held}
	}
	all := []operation{
		acquire("Acquire", strategy.ErrHeld, func(*driver.Claim) {}),
		acquire("Acquire with a place in the queue", errWrites, func(c *driver.Claim) { c.Line = "line" }),
		{"Extend", func(ctx context.Context, c driver.Claim) error { _, err := p.Extend(ctx, c); return err }, strategy.ErrLost},
		{"Undo", p.Undo, nil},
		{"Undo of what was not answered", func(ctx context.Context, c driver.Claim) error {
			c.Line, c.Grant = "line", driver.Grant{}
			return p.Undo(ctx, c)
		}, nil},
		{"ForceRelease", func(ctx context.Context, c driver.Claim) error { return locktest.Err(p.ForceRelease(ctx, c)) }, strategy.ErrLost},
		adopt("Adopt", strategy.ErrLost, 0),
		{"Inspect", func(ctx context.Context, c driver.Claim) error {
			info, err := p.Inspect(ctx, c)
			if err == nil && info.Held {
				err = strategy.ErrHeld
			}
			return err
		}, strategy.ErrHeld},
	}
	if v.Except["WrongType"] == "" {
		all = append(all, operation{"Release", func(ctx context.Context, c driver.Claim) error { return locktest.Err(p.Release(ctx, c)) }, strategy.ErrLost})
	}
	if bulk, ok := p.(driver.BulkExtender); ok {
		all = append(all, operation{"ExtendAll", func(ctx context.Context, c driver.Claim) (failed error) {
			bulk.ExtendAll(ctx, []driver.Claim{c}, func(_ int, _ driver.Grant, err error) { failed = err })
			return failed
		}, strategy.ErrLost})
	}
	if queuer, ok := p.(driver.Queuer); ok {
		all = append(all, operation{"Pass", func(ctx context.Context, c driver.Claim) error {
			next := k.claim(c.Key, "the next")
			next.Line = "line"
			_, err := queuer.Pass(ctx, c, next)
			return err
		}, strategy.ErrLost})
	}
	if v.Reentrant {
		all = append(all, acquire("Acquire once more", errWrites, func(c *driver.Claim) { c.Again = true }))
	}
	if v.Permits != nil {
		all = append(all, acquire("Acquire of several permits", errWrites, func(c *driver.Claim) { c.Share = 3 }),
			operation{"SetPermits", func(ctx context.Context, c driver.Claim) error {
				locks, err := v.Permits(nodeOn(k.t, k.s), 5, strategy.Options{Key: func(string) string { return c.Key }})
				if err != nil {
					return err
				}
				defer locks.Close()
				return locks.SetPermits(ctx, c.Name, 7)
			}, errWrites})
	}
	if v.ReadWriter != nil {
		all = append(all, acquire("Acquire to read", errWrites, func(c *driver.Claim) { c.Share = 1 }), adopt("a downgrade", errWrites, 1))
	}
	return all
}

// isWrongType reports whether an error says that the type is wrong, and how to find out what is there. DELEX of Redis 8.4
// has words of its own for it.
func isWrongType(words string) bool {
	return strings.Contains(words, "says what is there") &&
		(strings.Contains(words, "WRONGTYPE ") || strings.Contains(words, "ERR Key should be of string type"))
}

// TestKinds: of a lock that may be the algorithm's, another's is held; all else is refused.
func TestKinds(t *testing.T) {
	realOnly(t)
	for _, v := range All() {
		if v.Name == "redlock-fenced" { // on one server
			v.Servers, v.On = 1, quorum(redlock.WithFences())
		}
		if v.Servers != 1 {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			k := &kinds{t, redistest.OwnOf(t, v.Farm(t), redistest.Config{})}
			if _, err := Bootstrap(t.Context(), []Variant{v}, []*redistest.Server{k.s}); err != nil {
				t.Fatal(err)
			}
			p := v.On([]driver.Node{nodeOn(t, k.s)})
			bare := k.bare(p)
			for i, other := range allKinds() {
				if slices.Contains(other.of, v.Package) {
					continue // its own
				}
				alike := bare && other.bare
				key := strategy.DefaultKey(fmt.Sprint("kind ", i))
				other.put(k, key)
				for _, op := range k.operations(v, p) {
					switch {
					case !alike:
						k.refuses(op, other, key)
					case op.held != errWrites:
						k.leaves(op, other, key, "a stranger", func(err error) bool { return err == op.held || errors.Is(err, op.held) })
					}
				}
			}
		})
	}
}

// bare reports whether a lock of p is a string with a token alone. Such algorithms share keys: each takes such a lock of
// another, or any other string, for held.
func (k *kinds) bare(p driver.Protocol) bool {
	c := k.claim(strategy.DefaultKey("the form of a lock"), owner)
	c.Grant = driver.Grant{}
	if _, err := p.Acquire(k.t.Context(), c); err != nil {
		k.t.Fatal(err)
	}
	if fmt.Sprint(k.do("TYPE", c.Key)) != "string" {
		return false
	}
	return string(k.do("GET", c.Key).([]byte)) == owner
}

// refuses: an operation is refused, also to who names a holder as the key has it.
func (k *kinds) refuses(op operation, other kind, key string) {
	tokens := []string{"a stranger", owner}
	if fmt.Sprintf("%s", k.do("TYPE", key)) == "zset" {
		tokens = append(tokens, k.members(key)...)
	}
	for _, token := range tokens {
		k.leaves(op, other, key, token, func(err error) bool {
			words := fmt.Sprint(err)
			return errors.Is(err, strategy.ErrRefused) && (isWrongType(words) || other.says != "" && strings.Contains(words, other.says))
		})
	}
}

// leaves: an operation ends as it should, and changes nothing.
func (k *kinds) leaves(op operation, other kind, key, token string, right func(error) bool) {
	before := k.dump(key)
	if err := op.do(k.t.Context(), k.claim(key, token)); !right(err) {
		k.t.Errorf("%s of %s by %q = %v, want %v, or a refusal that says WRONGTYPE or %q", op.name, other.name, token, err, op.held, other.says)
	}
	if after := k.dump(key); after != before {
		k.t.Errorf("%s of %s by %q has left\n%s, want what was there before\n%s", op.name, other.name, token, after, before)
		k.do("DEL", key)
		other.put(k, key)
	}
}

// TestKindsOfWaiters: who waits for a lock of one kind, of which the key is gone, is neither served nor passed over by an
// algorithm of another kind: it would hold what it has not asked for.
func TestKindsOfWaiters(t *testing.T) {
	realOnly(t)
	queueing := []string{"fairqueue", "semaphore", "rwlock"}
	k := &kinds{t, redistest.Own(t, redistest.Config{})}
	for _, of := range queueing {
		for _, by := range queueing {
			if of == by {
				continue
			}
			key := strategy.DefaultKey(of + " by " + by)
			waits := plainly(of).On([]driver.Node{nodeOn(t, k.s)})
			for _, token := range []string{owner, "the waiter"} {
				c := k.claim(key, token)
				c.Line, c.Grant = "line", driver.Grant{}
				if _, err := waits.Acquire(t.Context(), c); err != nil && !errors.Is(err, strategy.ErrHeld) {
					t.Fatal(err)
				}
			}
			queue := func() string {
				k.do("DEL", key, driver.SiblingKey(key, "fence"))
				return k.dump(key)
			}
			before, p, c := queue(), plainly(by).On([]driver.Node{nodeOn(t, k.s)}), k.claim(key, "another")
			if _, err := p.Acquire(t.Context(), c); err != nil {
				t.Errorf("Acquire() by %s, where waiters of %s are left = %v", by, of, err)
			}
			if _, err := p.Release(t.Context(), c); err != nil {
				t.Errorf("Release() by %s, where waiters of %s are left = %v", by, of, err)
			}
			if after := queue(); before == "" || after != before {
				t.Errorf("%s has changed the queue of %s from %q to %q", by, of, before, after)
			}
		}
	}
}

// realOnly skips a test on an imitation, whose scripts and types are not Redis'.
func realOnly(t testing.TB) {
	if redistest.ForTests(t).Kind() == redistest.Embedded {
		t.Skip("NOT PROVEN: what values of other kinds do to locks: this is no Redis")
	}
}

func nodeOn(t *testing.T, s *redistest.Server) driver.Node {
	t.Helper()
	return locktest.NodeOn(t, s.Pool())
}
