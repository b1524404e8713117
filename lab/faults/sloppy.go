package faults

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
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/lab/flawed"
	"github.com/lockstrategies/locks/strategy"
)

// A Sloppy lock makes one mistake, of the kind that locks in the field make. It shows
// that a play which acquits a strategy would convict it of that.
type Sloppy struct {
	Name string // "… that undoes nothing"

	protocol func(driver.Protocol) driver.Protocol
	node     func(driver.Node) driver.Node
	trusts   func(nodes []driver.Node, struck int) []driver.Node

	blunt  bool // it is convicted without any fault: for plays of which a lock can make nothing worse
	memory bool // its servers keep no file
	deaf   bool // its server's replica hears nothing

	variant string // this one takes the place of the column that it is a variant of
}

// keptInMemory is what most servers are set up for: a cache.
var keptInMemory = Sloppy{Name: "is kept in memory alone", memory: true}

// waitsForNoReplica lets a server die when its replica has not heard of the lock.
var waitsForNoReplica = Sloppy{Name: "outruns its replica", deaf: true}

// takesWrittenForSynced does not wait for the disk.
var takesWrittenForSynced = Sloppy{Name: "takes what is written for what is synced", node: func(n driver.Node) driver.Node {
	return &forgetful{Node: n, session: func(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
		return n.Session(ctx, due, key, func(c driver.Conn) error { return fn(hasty{c}) })
	}}
}}

// hasty is a connection on which nobody waits for a sync.
type hasty struct{ driver.Conn }

func (c hasty) Do(cmd string, args ...any) (any, error) {
	if cmd == "WAITAOF" {
		return []any{int64(1), int64(0)}, nil
	}
	return c.Conn.Do(cmd, args...)
}

// votesAtOnce does not ask a server whether it may have forgotten something.
var votesAtOnce = Sloppy{Name: "lets every server vote at once", variant: "redlock-unguarded"}

// givesItsKeyATTL leaves it to the server when a lock ends that is the contenders' to end.
var givesItsKeyATTL = Sloppy{Name: "gives its key a TTL besides the stamp", node: func(n driver.Node) driver.Node {
	return &forgetful{Node: n, do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
		reply, err := n.Do(ctx, due, cmd, key, args...)
		if cmd == "SETNX" && reply == int64(1) {
			_, err = n.Do(ctx, due, "PEXPIRE", key, 10_000) // ample, and less than what clocks jump by
		}
		return reply, err
	}}
}}

// isImpatient takes a network for as fast as it is on good days.
var isImpatient = Sloppy{Name: "gives a server a twentieth of the time", node: func(n driver.Node) driver.Node {
	soon := func(due time.Time) time.Time { return time.Now().Add(time.Until(due) / 20) }
	return &forgetful{Node: n,
		do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
			return n.Do(ctx, soon(due), cmd, key, args...)
		},
		eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
			return n.Eval(ctx, soon(due), s, keys, args...)
		},
	}
}}

// sharesThePool has no connection but those that the rest of its program lets it have.
var sharesThePool = Sloppy{Name: "takes its connections from the pool", node: func(n driver.Node) driver.Node {
	lent := func(ctx context.Context, due time.Time, key, cmd string, args ...any) (reply any, err error) {
		err = n.Session(ctx, due, key, func(conn driver.Conn) (err error) {
			reply, err = conn.Do(cmd, args...)
			return err
		})
		return reply, err
	}
	return &forgetful{Node: n,
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
}}

// takesHalfForMost counts votes, and miscounts.
var takesHalfForMost = Sloppy{Name: "takes half of the votes for most", protocol: func(p driver.Protocol) driver.Protocol {
	return flawed.Granting(p, func(g driver.Grant, err error) (driver.Grant, error) {
		if votes := (*strategy.QuorumError)(nil); errors.As(err, &votes) {
			agreed, answered := 0, 0
			for _, n := range votes.Nodes {
				if n.Err == nil {
					agreed++
				}
				if n.Err == nil || errors.Is(n.Err, strategy.ErrHeld) {
					answered++
				}
			}
			if agreed > 0 && 2*agreed >= answered {
				return driver.Grant{}, nil
			}
		}
		return g, err
	})
}}

// trustsOneServer does not ask the others.
var trustsOneServer = Sloppy{Name: "trusts one server", trusts: func(nodes []driver.Node, struck int) []driver.Node {
	return nodes[struck : struck+1]
}}

// leavesItsEndToTheServer takes nothing over: when a lock ends is up to the server alone,
// which has to drop the key when the stamp has passed.
var leavesItsEndToTheServer = Sloppy{Name: "leaves its end to the server, and takes nothing over", node: func(n driver.Node) driver.Node {
	return &forgetful{Node: n, do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
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
}}

// looksBeforeItTakes asks whether the lock is free, and then takes it whatever is there: GET,
// and then SET.
var looksBeforeItTakes = Sloppy{Name: "asks whether the lock is free, and then takes it", node: func(n driver.Node) driver.Node {
	// Two requests, of which the second takes what the first found free.
	free := func(ctx context.Context, due time.Time, key string) bool {
		there, err := n.Do(ctx, due, "EXISTS", key)
		return err == nil && there == int64(0)
	}
	return &forgetful{Node: n,
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
}}

// grantsWhatIsHeld takes "held" for an answer that can be argued with.
var grantsWhatIsHeld = Sloppy{Name: "grants what is held", blunt: true, protocol: func(p driver.Protocol) driver.Protocol {
	return flawed.Granting(p, func(g driver.Grant, err error) (driver.Grant, error) {
		if errors.Is(err, strategy.ErrHeld) {
			return driver.Grant{}, nil
		}
		return g, err
	})
}}

// takesSilenceForYes believes that what it did not hear about went well.
var takesSilenceForYes = Sloppy{Name: "takes no answer for a yes", protocol: func(p driver.Protocol) driver.Protocol {
	return flawed.Granting(p, func(g driver.Grant, err error) (driver.Grant, error) {
		if errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent) {
			return driver.Grant{}, nil
		}
		return g, err
	})
}}

// undoesNothing leaves behind what it does not know the end of.
var undoesNothing = Sloppy{Name: "undoes nothing", protocol: func(p driver.Protocol) driver.Protocol {
	return &flawed.Protocol{Protocol: p, Releases: func(ctx context.Context, c driver.Claim) error {
		if c.Undo {
			return nil
		}
		return p.Release(ctx, c)
	}}
}, node: func(n driver.Node) driver.Node { // where a protocol itself undoes
	var unknown sync.Map
	return &forgetful{Node: n, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
		tokens := tokensIn(args)
		if s.Name() == "release" && slices.ContainsFunc(tokens, func(t string) bool { _, lost := unknown.Load(t); return lost }) {
			return nil, nil
		}
		reply, err := n.Eval(ctx, due, s, keys, args...)
		if s.Name() == "acquire" && errors.Is(err, strategy.ErrUnknown) {
			for _, t := range tokens {
				unknown.Store(t, true)
			}
		}
		return reply, err
	}}
}}

// tokensIn are the tokens among a script's arguments.
func tokensIn(args []any) (tokens []string) {
	for _, a := range args {
		t, _ := a.(string)
		if _, drawn := token.Parse(t); !drawn.IsZero() {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// countsFromTheReply is as young as its last answer.
var countsFromTheReply = Sloppy{Name: "counts the TTL from the reply", protocol: func(p driver.Protocol) driver.Protocol {
	young := func(g driver.Grant, err error) (driver.Grant, error) {
		g.Start = time.Now()
		return g, err
	}
	return flawed.Extending(flawed.Granting(p, young), young)
}}

// extendsAnything takes every answer to a renewal for a yes.
var extendsAnything = Sloppy{Name: "takes any answer for an extension", protocol: func(p driver.Protocol) driver.Protocol {
	return flawed.Extending(p, func(g driver.Grant, err error) (driver.Grant, error) {
		if err != nil {
			return driver.Grant{}, nil
		}
		return g, nil
	})
}}

// releasesAnything deletes the key of any holder: it takes what it wrote for what is there.
var releasesAnything = Sloppy{Name: "releases without a look", node: func(n driver.Node) driver.Node {
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
		case cmd == "GET" && err == nil && wrote != nil:
			reply = wrote
		}
		return reply, err
	}
	return &forgetful{Node: n, do: do, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
		if s.Name() == "release" {
			_, err := n.Do(ctx, due, "DEL", keys[0])
			return int64(1), err
		}
		return n.Eval(ctx, due, s, keys, args...)
	}}
}}

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

// releasesNothing lets every lock lapse.
var releasesNothing = Sloppy{Name: "leaves its locks to their TTL", blunt: true, node: func(n driver.Node) driver.Node {
	var comparing comparing
	do := func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
		if comparing.releases(cmd, args) {
			return int64(1), nil
		}
		return n.Do(ctx, due, cmd, key, args...)
	}
	return &forgetful{Node: n, do: do, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
		if s.Name() == "release" {
			return int64(1), nil
		}
		return n.Eval(ctx, due, s, keys, args...)
	}}
}}

// knowsScriptsByHash does not send a script that the server has forgotten.
var knowsScriptsByHash = Sloppy{Name: "sends scripts once", node: func(n driver.Node) driver.Node {
	var known sync.Map
	return &forgetful{Node: n, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
		if _, sent := known.LoadOrStore(s.Hash(), true); !sent {
			return n.Eval(ctx, due, s, keys, args...)
		}
		all := []any{len(keys)}
		for _, k := range keys {
			all = append(all, k)
		}
		return n.Do(ctx, due, "EVALSHA", s.Hash(), append(all, args...)...)
	}}
}}

// neverDialsAgain gives a server up with the first connection that breaks.
var neverDialsAgain = Sloppy{Name: "gives a server up at its first failure", node: func(n driver.Node) driver.Node {
	var mu sync.Mutex
	var gone error
	ask := func(call func() (any, error)) (any, error) {
		mu.Lock()
		err := gone
		mu.Unlock()
		if err != nil {
			return nil, err
		}
		reply, err := call()
		if errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent) {
			mu.Lock()
			gone = &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnsent, Err: errors.New("given up")}
			mu.Unlock()
		}
		return reply, err
	}
	return &forgetful{Node: n,
		do: func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
			return ask(func() (any, error) { return n.Do(ctx, due, cmd, key, args...) })
		},
		eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
			return ask(func() (any, error) { return n.Eval(ctx, due, s, keys, args...) })
		},
	}
}}

// forgetful is a node of which a part is replaced.
type forgetful struct {
	driver.Node
	do   func(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error)
	eval func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error)

	session func(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error
}

func (n *forgetful) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	if n.session != nil {
		return n.session(ctx, due, key, fn)
	}
	return n.Node.Session(ctx, due, key, fn)
}

func (n *forgetful) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	if n.do != nil {
		return n.do(ctx, due, cmd, key, args...)
	}
	return n.Node.Do(ctx, due, cmd, key, args...)
}

func (n *forgetful) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	if n.eval != nil {
		return n.eval(ctx, due, s, keys, args...)
	}
	return n.Node.Eval(ctx, due, s, keys, args...)
}
