// Package subjects is the one list of this module's strategies, as the conformance
// suite and the command line see them. A new algorithm is a new folder and an entry
// here.
package subjects

import (
	"context"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// A Variant is a strategy with its own options fixed.
type Variant struct {
	Name    string // of the package, and what is special about it
	Package string
	Summary string // in half a sentence

	// On is the algorithm on a node.
	On func(strategy.Node) strategy.Protocol

	Fenced bool
	// Except is what it is known to lack, and why; see conformance.Subject.
	Except map[string]string
}

// All returns the variants in teaching order: each mends what the one before lacks.
func All() []Variant {
	return []Variant{
		{
			Name:    "setnxpx-blind",
			Package: "setnxpx",
			Summary: "SET NX PX, released by DEL",
			On:      func(n strategy.Node) strategy.Protocol { return setnxpx.On(n, setnxpx.BlindRelease()) },
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
			On:      func(n strategy.Node) strategy.Protocol { return setnxpx.On(n) },
			Except: map[string]string{
				"ReleaseAtomic": "GET, compare, DEL are two steps: the lock can change hands between them",
				"ExtendAtomic":  "GET, compare, PEXPIRE are two steps: the lock can change hands between them",
			},
		},
		{
			Name:    "luascript",
			Package: "luascript",
			Summary: "SET NX PX, compared and deleted in one script",
			On:      func(n strategy.Node) strategy.Protocol { return luascript.On(n) },
			Fenced:  true,
		},
	}
}

// New returns the variant's strategy on the Redis that pool dials, as the New of
// its package does.
func (v Variant) New(pool *redis.Pool, o strategy.Options) (*strategy.Strategy, error) {
	n, err := node.New(pool)
	if err != nil {
		return nil, err
	}
	return strategy.New(v.On(n), o)
}

// Subject is the variant on a server, for the conformance suite.
func (v Variant) Subject(s *redistest.Server) conformance.Subject {
	pool := s.Pool()
	return conformance.Subject{
		Name: v.Name,
		Open: func(o strategy.Options) (*strategy.Strategy, error) { return v.New(pool, o) },
		OpenGated: func(o strategy.Options, g conformance.Gate) (*strategy.Strategy, error) {
			n, err := node.New(pool)
			if err != nil {
				return nil, err
			}
			return strategy.New(v.On(conformance.GateNode(n, g)), o)
		},
		Evict: func(ctx context.Context, key string) error {
			return do(ctx, pool, "DEL", key)
		},
		Spoil: func(ctx context.Context, key string) error {
			return do(ctx, pool, "HSET", key, "not", "a lock")
		},
		Leftovers: func(ctx context.Context, key string) ([]string, error) {
			return leftovers(ctx, pool, key)
		},
		// A child process opens the same server as a given one.
		ChildEnv: []string{"REDIS_ADDRS=" + s.URL(), "REDIS_KIND=" + string(redistest.Given)},
		Fenced:   v.Fenced,
		Except:   v.Except,
	}
}

// Of returns the variants of one package on a server.
func Of(pkg string, s *redistest.Server) []conformance.Subject {
	var subjects []conformance.Subject
	for _, v := range All() {
		if v.Package == pkg {
			subjects = append(subjects, v.Subject(s))
		}
	}
	return subjects
}

func do(ctx context.Context, pool *redis.Pool, cmd string, args ...any) error {
	c, err := pool.GetContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = redis.DoContext(c, ctx, cmd, args...)
	return err
}

// leftovers finds the keys and channels that belong to a lock: those whose name has
// the lock's in it. The fence counter is meant to stay.
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
			if k != strategy.SiblingKey(key, "fence") {
				left = append(left, "key "+k)
			}
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
