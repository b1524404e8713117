package broken

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
)

// editing is n with changed arguments of a script, or of several.
func editing(n driver.Node, edit func(context.Context, time.Time, []string, []any), scripts ...string) driver.Node {
	return &node{Node: n, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
		if slices.Contains(scripts, s.Name()) {
			args = slices.Clone(args)
			edit(ctx, due, keys, args)
		}
		return n.Eval(ctx, due, s, keys, args...)
	}}
}

// CountsSeveralPermitsAsOne asks for one permit, whatever its caller wants.
var CountsSeveralPermitsAsOne = Lock{
	Name: "counts several permits as one",
	Node: func(n driver.Node) driver.Node {
		return editing(n, func(_ context.Context, _ time.Time, _ []string, args []any) { args[4] = 1 }, "acquire", "pass")
	},
}

// ReleasesAnothersPermit gives back the permit that ends first.
var ReleasesAnothersPermit = Lock{
	Name: "releases another's permit",
	Node: func(n driver.Node) driver.Node {
		another := func(token int) func(context.Context, time.Time, []string, []any) {
			return func(ctx context.Context, due time.Time, keys []string, args []any) {
				first, err := redis.Strings(n.Do(ctx, due, "ZRANGE", keys[0], 0, 0))
				if err == nil && len(first) > 0 {
					args[token], _, _ = strings.Cut(strings.TrimPrefix(first[0], "permit:"), ":")
				}
			}
		}
		return editing(editing(n, another(2), "release"), another(7), "pass")
	},
}

// SharesExpiry lets every attempt and every renewal of one holder renew all, so that a dead holder stays.
func SharesExpiry(ttl time.Duration) Lock {
	return Lock{Name: "renews all with one", Node: func(n driver.Node) driver.Node {
		all := driver.NewScript("renew all", `
		local time = redis.call('TIME')
		local ends = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
		for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[1], ends, member) end
		return redis.call('PEXPIREAT', KEYS[1], ends)`)
		renew := func(ctx context.Context, due time.Time, keys []string, _ []any) {
			n.Eval(ctx, due, all, keys[:1], ttl.Milliseconds()) // where it fails, nothing is renewed
		}
		return editing(n, renew, "extend", "acquire", "pass")
	}}
}

// GrantsNextToHolders makes one in twenty who ask to read, or to write, a holder, also next to other holders.
func GrantsNextToHolders(mode string, ttl time.Duration) Lock {
	return Lock{Name: "lets one in twenty " + mode + " next to others", Node: func(n driver.Node) driver.Node {
		add := driver.NewScript("grant", `
		local time = redis.call('TIME')
		redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], ARGV[1])
		return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)
		return editing(n, func(ctx context.Context, due time.Time, keys []string, args []any) {
			if args[3] == mode && rand.IntN(20) == 0 {
				n.Eval(ctx, due, add, keys[:1], fmt.Sprint(mode, ":", args[2]), ttl.Milliseconds()) // or it fails
			}
		}, "acquire", "pass")
	}}
}

// DowngradesInTwo downgrades in two steps: others may get the lock in between.
func DowngradesInTwo(ttl time.Duration) Lock {
	return Lock{Name: "is free while it downgrades", Node: func(n driver.Node) driver.Node {
		return editing(n, func(ctx context.Context, due time.Time, keys []string, args []any) {
			member := fmt.Sprint("write:", args[1])
			ends, err := redis.String(n.Do(ctx, due, "ZSCORE", keys[0], member))
			if err != nil {
				return
			}
			n.Do(ctx, due, "ZREM", keys[0], member)
			time.Sleep(5 * time.Millisecond)
			n.Do(ctx, due, "ZADD", keys[0], ends, member)
			n.Do(ctx, due, "PEXPIRE", keys[0], ttl.Milliseconds())
		}, "adopt")
	}}
}

// AnyOf is a lock on several servers, by a protocol each, of which one is enough.
type AnyOf struct {
	driver.Unsupported
	Each []driver.Protocol
}

func (a AnyOf) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	i := rand.IntN(len(a.Each))
	g, err := a.Each[i].Acquire(ctx, c)
	g.State = i
	return g, err
}

func (a AnyOf) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return a.Each[c.Grant.State.(int)].Extend(ctx, c)
}

func (a AnyOf) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return a.Each[c.Grant.State.(int)].Release(ctx, c)
}

func (a AnyOf) Undo(ctx context.Context, c driver.Claim) error {
	return a.Each[c.Grant.State.(int)].Undo(ctx, c)
}

func (a AnyOf) Close() error {
	var errs []error
	for _, p := range a.Each {
		errs = append(errs, p.(io.Closer).Close())
	}
	return errors.Join(errs...)
}
