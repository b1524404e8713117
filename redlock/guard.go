package redlock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

// GuardKey is the key of the restart guard on each server: a hash of some hundred bytes
// without a TTL. No lock is called so, as [strategy.DefaultKey] has a brace in it. What
// deletes it (FLUSHALL, a restart without data) is what it is to detect.
const GuardKey = "lock:redlock:guard"

var (
	//go:embed guard.lua
	guardLua string
	//go:embed check.lua
	checkLua string
	//go:embed prime.lua
	primeLua string

	check = driver.NewScript("check", guardLua+checkLua)
	prime = driver.NewScript("prime", guardLua+primeLua)
)

// WithoutGuard lets every server vote at once, also one that has just come back without
// its data: then two may hold the lock (see the package's doc). For servers that never
// come back before the longest TTL has passed, whoever sees to that. Either all users
// of a lock have the guard, or none is protected.
func WithoutGuard() Option {
	return func(p *protocol) { p.unguarded = true }
}

// MaxTTL is the longest TTL that anybody uses on these servers: for so long a server
// that may have forgotten locks does not vote. Whole milliseconds, strategy.MinTTL to
// strategy.MaxTTL; a longer [strategy.Options].TTL is refused. Default: the longest TTL
// that this strategy has used, or has heard of from a server, where others have left
// theirs. That is best effort: where TTLs differ, say the same MaxTTL everywhere, for
// the server that a client with a short TTL finds empty has nobody else to ask. (It votes
// too early then; and when the longer TTL is heard of, it stops voting again, for the rest.)
//
// A server remembers the longest that it was told of for as long as it has its memory: one
// lock of a day makes each of its later restarts cost a day.
func MaxTTL(d time.Duration) Option {
	return func(p *protocol) { p.maxTTL = &d }
}

// Why a server does not vote: [GuardError].Reason.
const (
	ReasonEmpty     = "empty"     // it has no guard: it is new, or what it knew is gone
	ReasonRestarted = "restarted" // it was restarted, or promoted, since it began to vote: it may know less
)

// A GuardError says why a server does not vote yet, and for how long. The server refuses
// ([strategy.ErrRefused]) until everything that it may have forgotten has expired.
type GuardError struct {
	Reason string        // ReasonEmpty or ReasonRestarted
	For    time.Duration // until it votes, by its clock; 0: it does, but has forgotten what it had granted to whoever asks
}

func (e *GuardError) Error() string {
	why := "it was restarted or promoted, and may have forgotten locks"
	if e.Reason == ReasonEmpty {
		why = "it is new or was emptied, and may have forgotten locks"
	}
	if e.For <= 0 {
		return "it votes with another memory than before: " + why
	}
	return fmt.Sprintf("it does not vote for %v: %s", e.For, why)
}

// guarded makes a *GuardError of a reply, if it is one: {"guard", why, ms, longest TTL}.
func (p *protocol) guarded(n driver.Node, reply any) error {
	r, _ := reply.([]any)
	if len(r) != 4 {
		return nil
	}
	mark, _ := r[0].([]byte)
	why, _ := r[1].([]byte)
	ms, ok := r[2].(int64)
	longest, ok2 := r[3].(int64)
	if string(mark) != "guard" || !ok || !ok2 {
		return nil
	}
	p.hear(longest)
	return &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrRefused,
		Err: &GuardError{Reason: string(why), For: time.Duration(max(ms, 0)) * time.Millisecond}}
}

// longest is the longest TTL in use that this client knows of, in milliseconds.
func (p *protocol) longest(ttl time.Duration) int64 {
	p.hear(ttl.Milliseconds())
	if p.maxTTL != nil {
		p.hear(p.maxTTL.Milliseconds())
	}
	return p.known.Load()
}

// hear notes that somebody uses a TTL of so many milliseconds. One that nobody can use
// must not spread from a server that has it for whatever reason.
func (p *protocol) hear(ms int64) {
	ms = min(ms, strategy.MaxTTL.Milliseconds())
	for {
		known := p.known.Load()
		if ms <= known || p.known.CompareAndSwap(known, ms) {
			return
		}
	}
}

// advised adds to an error of too few votes what can be done where the guard is the
// reason for that.
func (p *protocol) advised(err error) error {
	var none *strategy.QuorumError
	if !errors.As(err, &none) || none.Held != nil {
		return err
	}
	guarded := 0
	for _, a := range none.Nodes {
		var g *GuardError
		if errors.As(a.Err, &g) {
			guarded++
		}
	}
	if guarded <= len(p.nodes)-p.quorum {
		return err
	}
	return fmt.Errorf("%w; wait so long, or, if they are known to be new, let them vote at once by redlock.Prime", err)
}

// validateGuard looks at the guard's settings, and at what rests on it.
func (p *protocol) validateGuard(o strategy.Options) error {
	d := p.maxTTL
	switch {
	case p.unguarded && p.fences:
		return errors.New("locks: redlock.WithFences beside WithoutGuard: allowed is one of them, for without the guard nobody knows whether a server has forgotten fences")
	case p.unguarded && d != nil:
		return errors.New("locks: redlock.MaxTTL beside WithoutGuard: allowed is one of them, for the guard is what MaxTTL is about")
	case d == nil:
	case *d < strategy.MinTTL || *d > strategy.MaxTTL || *d%time.Millisecond != 0:
		return fmt.Errorf("locks: redlock.MaxTTL is %v: allowed are whole milliseconds from %v to %v", *d, strategy.MinTTL, strategy.MaxTTL)
	case o.TTL > *d:
		return fmt.Errorf("locks: Options.TTL is %v: allowed are TTLs up to redlock.MaxTTL, which is %v", o.TTL, *d)
	}
	return nil
}

// checkVote tells whether a node votes, without changing that.
func (p *protocol) checkVote(ctx context.Context, due time.Time, n driver.Node, ttl time.Duration) error {
	if p.unguarded {
		return nil
	}
	reply, err := n.Eval(ctx, due, check, []string{GuardKey}, p.longest(ttl))
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	}
	if err := p.guarded(n, reply); err != nil {
		return err
	}
	return driver.BadReply(n.Name(), reply)
}

// Prime lets the servers of a new cluster vote at once, where the restart guard would
// have them wait for [MaxTTL]: it cannot tell a server that is new from one that has
// lost its data. Call it once, when the cluster is set up, and not whenever a program
// starts: it would let in a server that has just forgotten its locks.
//
// Whoever calls it vouches that none of the servers that do not vote yet has forgotten
// a lock that may be held, and that no store remembers a fence that they have issued. On
// one that votes already it changes nothing; locks that are there stay.
//
// Each server is asked for 10 s at most, in the database that its pool selects. The error
// has, by name, those that were not primed or may not be; the others are. It may be called
// again, and has to be if the first client with a longer TTL ([MaxTTL]) comes so soon that
// a server has not been there for so long: that one waits anew.
func Prime(ctx context.Context, pools []*redis.Pool) error {
	nodes, err := dialled(pools)
	if err != nil {
		return err
	}
	defer func() {
		for _, n := range nodes {
			n.Close()
		}
	}()
	return PrimeNodes(ctx, nodes)
}

// PrimeNodes is [Prime] for nodes, which it does not close.
func PrimeNodes(ctx context.Context, nodes []driver.Node) error {
	p := &protocol{nodes: nodes, fault: faultOf(nodes)}
	if p.fault != nil {
		return p.fault
	}
	due := time.Now().Add(10 * time.Second)
	return p.each(func(n driver.Node) error {
		reply, err := n.Eval(ctx, due, prime, []string{GuardKey})
		if _, ok := reply.(int64); !ok && err == nil {
			err = driver.BadReply(n.Name(), reply)
		}
		return err
	})
}

// dialled makes nodes of pools.
func dialled(pools []*redis.Pool) ([]driver.Node, error) {
	nodes := make([]driver.Node, len(pools))
	for i, pool := range pools {
		for j, other := range pools[:i] {
			if pool == other {
				return nil, fmt.Errorf("locks: redlock's pools %d and %d are one: allowed is one for each server", j+1, i+1)
			}
		}
		n, err := node.New(pool)
		if err != nil {
			return nil, fmt.Errorf("%w (number %d of %d)", err, i+1, len(pools))
		}
		nodes[i] = n
	}
	return nodes, nil
}
