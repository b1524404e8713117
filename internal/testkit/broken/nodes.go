package broken

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// LooksBeforeItTakes asks whether the lock is free, and then takes it whatever is there: GET,
// and then SET.
var LooksBeforeItTakes = Lock{
	Name: "asks whether the lock is free, and then takes it",
	Node: func(n driver.Node) driver.Node {
		// Two requests, of which the second takes what the first found free.
		free := func(ctx context.Context, due time.Time, key string) bool {
			there, err := n.Do(ctx, due, "EXISTS", key)
			return err == nil && there == int64(0)
		}
		return &node{Node: n,
			do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
				switch {
				case cmd == "SETNX" && free(ctx, due, key):
					_, err := n.Do(ctx, due, "SET", key, args...)
					return int64(1), err
				case cmd == "SET" && slices.Contains(args, any("NX")) && free(ctx, due, key):
					args = slices.DeleteFunc(slices.Clone(args), func(a any) bool { return a == "NX" })
				}
				return n.Do(ctx, due, cmd, key, args...)
			},
			eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
				if s.Name() == "acquire" && free(ctx, due, keys[0]) {
					s = driver.NewScript("overwrite", "redis.call('DEL', KEYS[1])\n"+s.Source())
				}
				return n.Eval(ctx, due, s, keys, args...)
			},
		}
	},
}

// ReleasesAnything deletes the key of any holder: it takes what it wrote for what is there.
var ReleasesAnything = Lock{
	Name: "releases without a look",
	Node: func(n driver.Node) driver.Node {
		var mu sync.Mutex
		var wrote any
		var comparing comparing
		do := func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
			if comparing.releases(cmd, args) {
				_, err := n.Do(ctx, due, "DEL", key)
				return int64(1), err
			}
			reply, err := n.Do(ctx, due, cmd, key, args...)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case cmd == "SETNX" && reply == int64(1), cmd == "SET" && reply != nil:
				wrote = []byte(fmt.Sprint(args[0]))
			case cmd == "GETEX" && err == nil && wrote != nil:
				reply = wrote
			}
			return reply, err
		}
		return &node{Node: n, do: do, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
			if s.Name() == "release" {
				_, err := n.Do(ctx, due, "DEL", keys[0])
				return int64(1), err
			}
			return n.Eval(ctx, due, s, keys, args...)
		}}
	},
}

// comparing tells which commands that compare and delete are releases: the first of them, which finds out
// what the server knows, has a token that was never set.
type comparing struct{ set sync.Map }

func (c *comparing) releases(cmd string, args []any) bool {
	switch cmd {
	case "SET":
		c.set.Store(args[0], true)
	case "DELEX", "DELIFEQ":
		_, set := c.set.Load(args[len(args)-1])
		return set
	}
	return false
}

// ReleasesNothing lets every lock lapse.
var ReleasesNothing = Lock{
	Name: "leaves its locks to their TTL",
	Node: func(n driver.Node) driver.Node {
		var comparing comparing
		do := func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
			if comparing.releases(cmd, args) {
				return int64(1), nil
			}
			return n.Do(ctx, due, cmd, key, args...)
		}
		return &node{Node: n, do: do, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
			if s.Name() == "release" {
				return int64(1), nil
			}
			return n.Eval(ctx, due, s, keys, args...)
		}}
	},
}

// GivesItsKeyATTL leaves it to the server when a lock ends that is the contenders' to end.
var GivesItsKeyATTL = Lock{
	Name: "gives its key a TTL besides the stamp",
	Node: func(n driver.Node) driver.Node {
		return &node{Node: n, do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
			reply, err := n.Do(ctx, due, cmd, key, args...)
			if cmd == "SETNX" && reply == int64(1) {
				_, err = n.Do(ctx, due, "PEXPIRE", key, 10_000) // ample, and less than what clocks jump by
			}
			return reply, err
		}}
	},
}

// LeavesItsEndToTheServer takes nothing over: when a lock ends is up to the server alone,
// which has to drop the key when the stamp has passed.
var LeavesItsEndToTheServer = Lock{
	Name: "leaves its end to the server, and takes nothing over",
	Node: func(n driver.Node) driver.Node {
		return &node{Node: n, do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
			if cmd == "GETSET" {
				return nil, &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrRefused, Err: errors.New("it is not taken over")}
			}
			reply, err := n.Do(ctx, due, cmd, key, args...)
			if cmd == "SETNX" && reply == int64(1) || cmd == "SET" && reply != nil {
				stamp, _, _ := strings.Cut(fmt.Sprint(args[0]), ":")
				if end, malformed := strconv.ParseInt(stamp, 10, 64); malformed == nil {
					_, err = n.Do(ctx, due, "PEXPIRE", key, time.Until(time.UnixMilli(end)).Milliseconds())
				}
			}
			return reply, err
		}}
	},
}

// TakesWrittenForSynced does not wait for the disk.
var TakesWrittenForSynced = Lock{
	Name: "takes what is written for what is synced",
	Node: func(n driver.Node) driver.Node {
		return &node{Node: n, session: func(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
			return n.Session(ctx, due, key, func(c driver.Conn) error { return fn(hasty{c}) })
		}}
	},
}

// hasty is a connection on which nobody waits for a sync.
type hasty struct{ driver.Conn }

func (c hasty) Do(cmd string, args ...any) (any, error) {
	if cmd == "WAITAOF" {
		return []any{int64(1), int64(0)}, nil
	}
	return c.Conn.Do(cmd, args...)
}

// KnowsScriptsByHash does not send a script that the server has forgotten.
var KnowsScriptsByHash = Lock{
	Name: "sends scripts once",
	Node: func(n driver.Node) driver.Node {
		var known sync.Map
		return &node{Node: n, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
			if _, sent := known.LoadOrStore(s.Hash(), true); !sent {
				return n.Eval(ctx, due, s, keys, args...)
			}
			all := []any{len(keys)}
			for _, k := range keys {
				all = append(all, k)
			}
			return n.Do(ctx, due, "EVALSHA", s.Hash(), append(all, args...)...)
		}}
	},
}

// IsImpatient takes a network for as fast as it is on good days.
var IsImpatient = Lock{
	Name: "gives a server a twentieth of the time",
	Node: func(n driver.Node) driver.Node {
		soon := func(due time.Time) time.Time { return time.Now().Add(time.Until(due) / 20) }
		return &node{Node: n,
			do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
				return n.Do(ctx, soon(due), cmd, key, args...)
			},
			eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
				return n.Eval(ctx, soon(due), s, keys, args...)
			},
		}
	},
}

// SharesThePool has no connection but those that the rest of its program lets it have.
var SharesThePool = Lock{
	Name: "takes its connections from the pool",
	Node: func(n driver.Node) driver.Node {
		lent := func(ctx context.Context, due time.Time, key, cmd string, args ...any) (reply any, err error) {
			err = n.Session(ctx, due, key, func(conn driver.Conn) (err error) {
				reply, err = conn.Do(cmd, args...)
				return err
			})
			return reply, err
		}
		return &node{Node: n,
			do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
				return lent(ctx, due, key, cmd, append([]any{key}, args...)...)
			},
			eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
				all := []any{s.Source(), len(keys)}
				for _, k := range keys {
					all = append(all, k)
				}
				return lent(ctx, due, keys[0], "EVAL", append(all, args...)...)
			},
		}
	},
}

// NeverDialsAgain gives a server up with the first connection that breaks.
var NeverDialsAgain = Lock{
	Name: "gives a server up at its first failure",
	Node: func(n driver.Node) driver.Node {
		var mu sync.Mutex
		var cut error
		ask := func(call func() (any, error)) (any, error) {
			mu.Lock()
			err := cut
			mu.Unlock()
			if err != nil {
				return nil, err
			}
			reply, err := call()
			if errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent) {
				mu.Lock()
				cut = &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnsent, Err: errors.New("given up")}
				mu.Unlock()
			}
			return reply, err
		}
		return &node{Node: n,
			do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
				return ask(func() (any, error) { return n.Do(ctx, due, cmd, key, args...) })
			},
			eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
				return ask(func() (any, error) { return n.Eval(ctx, due, s, keys, args...) })
			},
		}
	},
}

// node is a node of which a part is replaced.
type node struct {
	driver.Node
	do   func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error)
	eval func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error)

	session func(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error
}

func (n *node) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	if n.session != nil {
		return n.session(ctx, due, key, fn)
	}
	return n.Node.Session(ctx, due, key, fn)
}

func (n *node) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	if n.do != nil {
		return n.do(ctx, due, cmd, key, args...)
	}
	return n.Node.Do(ctx, due, cmd, key, args...)
}

func (n *node) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	if n.eval != nil {
		return n.eval(ctx, due, s, keys, args...)
	}
	return n.Node.Eval(ctx, due, s, keys, args...)
}

// LooksAtNoRole does not ask its servers, while it waits, whether they are primaries.
var LooksAtNoRole = Lock{
	Name: "does not look whether its server is still the primary",
	Node: func(n driver.Node) driver.Node {
		return unprobed{n}
	},
}

type unprobed struct{ driver.Node }

func (unprobed) Probe(context.Context, time.Time) uint64 { return 0 }
