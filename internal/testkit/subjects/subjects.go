// Package subjects is the one list of this module's strategies, as the conformance
// suite and the command line see them. A new algorithm is a new folder and an entry
// here.
package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/ifeq"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// A Variant is a strategy with its own options fixed.
type Variant struct {
	Name    string // of the package, and what is special about it
	Package string
	Summary string // in half a sentence

	Servers int  // how many it needs, each on its own
	Dead    int  // how many more it is given, at addresses where nobody answers
	Aside   bool // too much like another one to be compared: for the suite alone

	// Commands are those of which it needs one, and Edition a server that has it. Empty: any server does.
	Commands []string
	Edition  string

	// On is the algorithm on Servers + Dead nodes.
	On func([]driver.Node) driver.Protocol

	// Dial is, for a lock that is not in Redis, the algorithm on servers at these addresses, and closes the client. On is nil then.
	Dial func(addrs []string) (p driver.Protocol, closes func() error, err error)

	// Skewed is On with the contender's wall clock put forward by that much. nil: the
	// algorithm takes no clock from its contenders, which internal/layout holds.
	Skewed func(nodes []driver.Node, ahead time.Duration) driver.Protocol

	// Permits is a lock of so many permits on a node, and ReadWriter one to read and to write, whose writers are
	// On's. nil: the algorithm has no such lock.
	Permits    func(n driver.Node, permits int, o strategy.Options) (strategy.Semaphore, error)
	ReadWriter func(n driver.Node, o strategy.Options) (strategy.ReadWriter, error)

	// Foreign is a value that is no lock of this kind; empty: any string might be one,
	// and a list is taken.
	Foreign string

	Guarded   bool // servers that may have forgotten locks do not vote at once: see Bootstrap
	Fenced    bool
	Fair      bool
	Reentrant bool
	// Except is what it is known to lack, and why; see conformance.Subject.
	Except map[string]string
}

// Several reports whether several may hold the lock at a time.
func (v Variant) Several() bool { return v.Permits != nil || v.ReadWriter != nil }

// All returns the variants in teaching order: each adds what the one before lacks.
func All() []Variant {
	const (
		stamped = "the contender's clock is compared with the holder's stamp"
		swapped = "the loser's GETSET overwrites the winner's value"

		unexpiring = "the key has no TTL, so it stays until somebody takes it over"
	)
	return []Variant{
		stamps(Variant{
			Name:    "setnxgetset-blind",
			Summary: "SETNX and a stamp, taken over by GETSET, released by DEL",
			Except: map[string]string{
				"ClockAhead":          stamped,
				"ClockBehind":         stamped,
				"ExpiryLeavesNothing": unexpiring,
				"LoserChangesNothing": swapped,
				"ReleaseOnlyOwn":      "DEL does not compare",
				"ReleaseAfterLoss":    "DEL does not say whose lock it was",
				"ReleaseAtomic":       "DEL does not compare",
				"ForceRelease":        "DEL does not say whose lock it was",
				"WrongType":           "DEL deletes whatever is there",
				"ExtendAtomic":        "GET, compare, SET are two steps: the lock can change hands between them",
			},
		}, setnxgetset.WithBlindRelease()),
		stamps(Variant{
			Name:    "setnxgetset",
			Summary: "SETNX and a stamp, taken over by GETSET, released by GET, compare, DEL",
			Except: map[string]string{
				"ClockAhead":          stamped,
				"ClockBehind":         stamped,
				"ExpiryLeavesNothing": unexpiring,
				"LoserChangesNothing": swapped,
				"ReleaseAtomic":       "GET, compare, DEL are two steps: the lock can change hands between them",
				"ExtendAtomic":        "GET, compare, SET are two steps: the lock can change hands between them",
			},
		}),
		stamps(Variant{
			Name:    "setnxgetset-watch",
			Summary: "SETNX and a stamp, taken over and released in transactions",
			Except: map[string]string{
				"ClockAhead":          stamped,
				"ClockBehind":         stamped,
				"ExpiryLeavesNothing": unexpiring,
			},
		}, setnxgetset.WithWatchTakeOver()),
		{
			Name:    "setnxpx-blind",
			Package: "setnxpx",
			Summary: "SET NX PX, released by DEL",
			Servers: 1,
			On:      one(func(n driver.Node) driver.Protocol { return setnxpx.On(n, setnxpx.WithBlindRelease()) }),
			Except: map[string]string{
				"ReleaseOnlyOwn":   "DEL does not compare",
				"ReleaseAfterLoss": "DEL does not say whose lock it was",
				"ReleaseAtomic":    "DEL does not compare",
				"ForceRelease":     "DEL does not say whose lock it was",
				"WrongType":        "DEL deletes whatever is there",
				"ExtendAtomic":     "GET, compare, PEXPIRE are two steps: the lock can change hands between them",
			},
		},
		{
			Name:    "setnxpx",
			Package: "setnxpx",
			Summary: "SET NX PX, released by GET, compare, DEL",
			Servers: 1,
			On:      one(func(n driver.Node) driver.Protocol { return setnxpx.On(n) }),
			Except: map[string]string{
				"ReleaseAtomic": "GET, compare, DEL are two steps: the lock can change hands between them",
				"ExtendAtomic":  "GET, compare, PEXPIRE are two steps: the lock can change hands between them",
			},
		},
		{
			Name:     "ifeq",
			Package:  "ifeq",
			Summary:  "SET NX PX, released by a command that compares: Redis 8.4, Valkey 9.0",
			Servers:  1,
			Aside:    true,
			Commands: []string{"DELEX", "DELIFEQ"},
			Edition:  "valkey-9.1",
			On:       one(func(n driver.Node) driver.Protocol { return ifeq.On(n) }),
		},
		{
			Name:    "luascript",
			Package: "luascript",
			Summary: "SET NX PX, compared and deleted in one script",
			Servers: 1,
			On:      one(func(n driver.Node) driver.Protocol { return luascript.On(n) }),
			Fenced:  true,
		},
		{
			Name:    "fairqueue",
			Package: "fairqueue",
			Summary: "the same, with a queue: a release grants the lock to the next",
			Servers: 1,
			On:      one(func(n driver.Node) driver.Protocol { return fairqueue.On(n) }),
			Fenced:  true,
			Fair:    true,
		},
		{
			Name:    "semaphore",
			Package: "semaphore",
			Summary: "a sorted set of permits, here of one, with a queue",
			Servers: 1,
			On:      one(func(n driver.Node) driver.Protocol { return semaphore.On(n, 1) }),
			Permits: func(n driver.Node, permits int, o strategy.Options) (strategy.Semaphore, error) {
				return semaphore.New(n, permits, o)
			},
			Fenced: true,
			Fair:   true,
		},
		{
			Name:    "rwlock",
			Package: "rwlock",
			Summary: "a sorted set of readers, or of one writer, with a queue of each",
			Servers: 1,
			On:      one(func(n driver.Node) driver.Protocol { return rwlock.On(n) }),
			ReadWriter: func(n driver.Node, o strategy.Options) (strategy.ReadWriter, error) {
				return rwlock.New(n, o)
			},
			Fenced: true,
			Fair:   true,
		},
		{
			Name:      "reentrant",
			Package:   "reentrant",
			Summary:   "a hash with a field for each hold of its owner",
			Servers:   1,
			On:        one(func(n driver.Node) driver.Protocol { return reentrant.On(n) }),
			Fenced:    true,
			Reentrant: true,
		},
		{
			Name:    "redlock-1",
			Package: "redlock",
			Summary: "RedLock on one server",
			Servers: 1,
			Aside:   true,
			Guarded: true,
			On:      quorum(),
		},
		{
			Name:    "redlock-3",
			Package: "redlock",
			Summary: "RedLock on three servers",
			Servers: 3,
			Aside:   true,
			Guarded: true,
			On:      quorum(),
		},
		{
			Name:    "redlock-2-dead",
			Package: "redlock",
			Summary: "RedLock on five servers, two of them down",
			Servers: 3,
			Dead:    2,
			Aside:   true,
			Guarded: true,
			On:      quorum(),
		},
		{
			Name:    "redlock-fenced",
			Package: "redlock",
			Summary: "RedLock on five servers, with fences",
			Servers: 5,
			Aside:   true,
			Guarded: true,
			Fenced:  true,
			On:      quorum(redlock.WithFences()),
		},
		{
			Name:    "redlock",
			Package: "redlock",
			Summary: "SET NX PX on five servers, most of which must grant it",
			Servers: 5,
			Guarded: true,
			On:      quorum(),
		},
	}
}

// stamps completes a variant of package setnxgetset.
func stamps(v Variant, options ...setnxgetset.Option) Variant {
	v.Package, v.Servers = "setnxgetset", 1
	v.Foreign = "tomorrow at noon" // a list is not the only thing that is no stamp
	v.On = one(func(n driver.Node) driver.Protocol { return setnxgetset.On(n, options...) })
	v.Skewed = func(nodes []driver.Node, ahead time.Duration) driver.Protocol {
		clock := func() time.Time { return time.Now().Add(ahead) }
		return setnxgetset.On(nodes[0], append(slices.Clone(options), setnxgetset.WithClock(clock))...)
	}
	return v
}

// quorum is RedLock with a time-out for each node that a busy machine keeps, where the
// race detector slows down both sides: the operation's. The suite is not about speed.
func quorum(options ...redlock.Option) func([]driver.Node) driver.Protocol {
	options = append(options, redlock.WithNodeTimeout(time.Minute))
	return func(nodes []driver.Node) driver.Protocol { return redlock.On(nodes, options...) }
}

// one is On for algorithms on one node.
func one(on func(driver.Node) driver.Protocol) func([]driver.Node) driver.Protocol {
	return func(nodes []driver.Node) driver.Protocol { return on(nodes[0]) }
}

// New returns the variant's strategy on the Redis servers that the pools dial, as the
// New of its package does.
func (v Variant) New(pools []*redis.Pool, o strategy.Options) (strategy.Strategy, error) {
	return v.open(pools, o, v.On, func(_ int, n driver.Node) driver.Node { return n })
}

// open is New with something around each node.
func (v Variant) open(pools []*redis.Pool, o strategy.Options, on func([]driver.Node) driver.Protocol, around func(i int, n driver.Node) driver.Node) (strategy.Strategy, error) {
	nodes, err := v.nodes(pools)
	if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		nodes[i] = around(i, n)
	}
	return engine.New(on(nodes), o)
}

// nodes are what the pools dial, and the dead ones.
func (v Variant) nodes(pools []*redis.Pool) (nodes []driver.Node, err error) {
	if len(pools) != v.Servers {
		return nil, fmt.Errorf("subjects: %s takes %d servers, not %d", v.Name, v.Servers, len(pools))
	}
	return locktest.Nodes(slices.Concat(pools, v.deadPools())...), nil
}

// deadPools dial addresses where nobody answers: no two the same.
func (v Variant) deadPools() []*redis.Pool {
	pools := make([]*redis.Pool, v.Dead)
	for i := range pools {
		addr := fmt.Sprintf("127.0.0.1:%d", i+1) // tcpmux and compressnet, if anything
		pools[i] = &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	}
	return pools
}

// Environment is that in which another process opens these servers, as given ones.
func Environment(servers ...*redistest.Server) []string {
	var urls []string
	for _, s := range servers {
		urls = append(urls, strings.ReplaceAll(s.URL(), ",", "%2C")) // a comma in a password separates nothing
	}
	return []string{"REDIS_ADDRS=" + strings.Join(urls, ","), "REDIS_KIND=" + string(redistest.Given)}
}

// Subject is the variant on its servers, for the conformance suite.
func (v Variant) Subject(servers []*redistest.Server) conformance.Subject {
	var pools []*redis.Pool
	for _, s := range servers {
		pools = append(pools, s.Pool())
	}
	s := v.SubjectOn(pools)
	s.ChildEnv = Environment(servers...)
	if servers[0].Version() == redistest.Imitation { // it has no CLIENT KILL
		s.BreakWatches = nil
	}
	return s
}

// SubjectOn is Subject on servers that are reached through pools of one's own. It has no
// ChildEnv.
func (v Variant) SubjectOn(pools []*redis.Pool) conformance.Subject {
	onAll := func(f func(*redis.Pool) error) error {
		for _, pool := range pools {
			if err := f(pool); err != nil {
				return err
			}
		}
		return nil
	}
	s := conformance.Subject{
		Name: v.Name,
		Open: func(o strategy.Options) (strategy.Strategy, error) { return v.New(pools, o) },
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return v.open(pools, o, v.On, func(_ int, n driver.Node) driver.Node { return conformance.GateNode(n, g) })
		},
		OpenSkewed: func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
			on := v.On
			if v.Skewed != nil {
				on = func(nodes []driver.Node) driver.Protocol { return v.Skewed(nodes, ahead) }
			}
			return v.open(pools, o, on, func(_ int, n driver.Node) driver.Node { return n })
		},
		Nodes: v.Servers + v.Dead,
		Down:  v.Dead, // they come last
		OpenNodes: func(o strategy.Options, gates []conformance.Gate) (strategy.Strategy, error) {
			return v.open(pools, o, v.On, func(i int, n driver.Node) driver.Node { return conformance.GateNode(n, gates[i]) })
		},
		Evict: func(ctx context.Context, key string) error {
			return onAll(func(p *redis.Pool) error { return do(ctx, p, "DEL", key) })
		},
		BreakWatches: func(ctx context.Context, _ string) error {
			return onAll(func(p *redis.Pool) error { return do(ctx, p, "CLIENT", "KILL", "TYPE", "pubsub") })
		},
		Forge: func(ctx context.Context, key string, n driver.Notification) error {
			return onAll(func(p *redis.Pool) error { return forge(ctx, p, key, n) })
		},
		Spoil: func(ctx context.Context, key string) error {
			if v.Foreign != "" {
				return onAll(func(p *redis.Pool) error { return do(ctx, p, "SET", key, v.Foreign) })
			}
			return onAll(func(p *redis.Pool) error { return do(ctx, p, "EVAL", spoil, 1, key) })
		},
		Leftovers: func(ctx context.Context, key string) (left []string, err error) {
			err = onAll(func(p *redis.Pool) error {
				here, err := leftovers(ctx, p, key)
				left = append(left, here...)
				return err
			})
			return left, err
		},
		Fenced:    v.Fenced,
		Fair:      v.Fair,
		Reentrant: v.Reentrant,
		Except:    v.Except,
	}
	if v.Permits != nil {
		s.OpenPermits = func(permits int, o strategy.Options) (strategy.Semaphore, error) {
			nodes, err := v.nodes(pools)
			if err != nil {
				return nil, err
			}
			return v.Permits(nodes[0], permits, o)
		}
	}
	if v.ReadWriter != nil {
		s.OpenRW = func(o strategy.Options) (strategy.ReadWriter, error) {
			nodes, err := v.nodes(pools)
			if err != nil {
				return nil, err
			}
			return v.ReadWriter(nodes[0], o)
		}
	}
	return s
}

// Run holds the suite on the variants of one package. With names, it is these variants alone.
func Run(t *testing.T, pkg string, names ...string) {
	t.Helper()
	for _, v := range All() {
		if v.Package == pkg && (len(names) == 0 || slices.Contains(names, v.Name)) {
			v.Run(t)
		}
	}
}

// Run holds the suite on the variant, on servers that it shares with other tests. It is skipped where it cannot have them,
// or fails where they were demanded.
func (v Variant) Run(t *testing.T) {
	t.Helper()
	farm := v.Farm(t)
	servers, err := farm.Nodes(t.Context(), v.Servers)
	if err != nil {
		t.Run(v.Name, func(t *testing.T) { redistest.Must(t, err) })
		return
	}
	if _, err := Bootstrap(t.Context(), []Variant{v}, servers); err != nil { // not undone: others may be at it
		t.Fatal(err)
	}
	s := v.Subject(servers)
	s.OpenGround = v.ground(farm)
	conformance.Run(t, s)
}

// Farm has servers for the variant: the tests' own, or, where those lack the Commands, of the Edition.
func (v Variant) Farm(t testing.TB) *redistest.Farm {
	t.Helper()
	f := redistest.ForTests(t)
	if len(v.Commands) > 0 {
		newer, err := f.Having(t.Context(), v.Edition, v.Commands...)
		redistest.Skip(t, err, "what "+v.Name+" does")
		f = newer
	}
	return f
}

// Bootstrap tells servers to vote at once, for those of the variants that would have a server
// wait that may have forgotten locks. A server that has a guard is in use for such locks,
// and left alone: it votes, or knows why it does not. A program that starts servers, or gets
// some, calls it once, before the first lock. told are those to UndoBootstrap when all is over.
func Bootstrap(ctx context.Context, variants []Variant, servers []*redistest.Server) (told []*redistest.Server, err error) {
	guarded := 0
	for _, v := range variants {
		if v.Guarded && v.Servers <= len(servers) {
			guarded = max(guarded, v.Servers)
		}
	}
	var pools []*redis.Pool
	for _, s := range servers[:guarded] {
		there, err := exists(ctx, s.Pool(), redlock.GuardKey)
		if err != nil {
			return nil, err
		}
		if !there {
			told, pools = append(told, s), append(pools, s.Pool())
		}
	}
	if len(told) == 0 {
		return nil, nil
	}
	return told, locktest.OnNodes(pools, func(nodes []driver.Node) error { return redlock.Bootstrap(ctx, nodes) })
}

// UndoBootstrap leaves servers without what Bootstrap has told them.
func UndoBootstrap(ctx context.Context, told []*redistest.Server) error {
	var errs []error
	for _, s := range told {
		errs = append(errs, do(ctx, s.Pool(), "DEL", redlock.GuardKey))
	}
	return errors.Join(errs...)
}

func exists(ctx context.Context, pool *redis.Pool, key string) (bool, error) {
	c, err := pool.GetContext(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	return redis.Bool(redis.DoContext(c, ctx, "EXISTS", key))
}

// spoil puts a list where a lock may be, even the lock of a vote that came too late.
const spoil = `redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'not a lock')`

func do(ctx context.Context, pool *redis.Pool, cmd string, args ...any) error {
	c, err := pool.GetContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = redis.DoContext(c, ctx, cmd, args...)
	return err
}

// forge publishes what n says on all channels of a lock, as messages to a line and as those of a release: see
// internal/algorithm/queue.
func forge(ctx context.Context, pool *redis.Pool, key string, n driver.Notification) error {
	c, err := pool.GetContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	now, err := redis.Int64s(redis.DoContext(c, ctx, "TIME"))
	if err != nil {
		return err
	}
	message := n.Holder
	switch at := time.Duration(now[0])*time.Second + time.Duration(now[1])*time.Microsecond + n.Grant.ServerTime; {
	case n.Token != "":
		fence := n.Grant.Fence
		if fence == 0 {
			fence = uint64(at.Microseconds())
		}
		message = fmt.Sprintf("grant %d %d %d %d %d %s", fence, max(n.Grant.Fences, int(n.Grant.Holds)), n.Grant.TTL.Milliseconds(), at/time.Second, at%time.Second/time.Microsecond, n.Token)
	case n.Next > 0:
		message = fmt.Sprintf("next %d", n.Next.Milliseconds())
	}
	channels, err := redis.Strings(redis.DoContext(c, ctx, "PUBSUB", "CHANNELS", "*"+literal(key)+"*"))
	for _, channel := range channels {
		if _, err := redis.DoContext(c, ctx, "PUBLISH", channel, message); err != nil {
			return err
		}
	}
	return err
}

// leftovers finds the keys and channels that belong to a lock: those whose name has
// the lock's in it. A fence counter that expires is none.
func leftovers(ctx context.Context, pool *redis.Pool, key string) ([]string, error) {
	c, err := pool.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var left []string
	pattern := "*" + literal(key) + "*"
	for cursor := "0"; ; {
		page, err := redis.Values(redis.DoContext(c, ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
		if err != nil {
			return nil, err
		}
		var keys []string
		if _, err := redis.Scan(page, &cursor, &keys); err != nil {
			return nil, err
		}
		for _, k := range keys {
			if k == driver.SiblingKey(key, "fence") {
				ends, err := redis.Int64(redis.DoContext(c, ctx, "PTTL", k))
				if err != nil {
					return nil, err
				}
				if ends != -1 {
					continue
				}
			}
			left = append(left, "key "+k)
		}
		if cursor == "0" {
			break
		}
	}
	channels, err := redis.Strings(redis.DoContext(c, ctx, "PUBSUB", "CHANNELS", pattern))
	if err != nil {
		return nil, err
	}
	for _, ch := range channels {
		left = append(left, fmt.Sprintf("a subscription to %s", ch))
	}
	return left, nil
}

// literal makes a glob pattern that matches s and nothing else.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
