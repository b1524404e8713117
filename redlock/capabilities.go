package redlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

// What the protocol can do beside Acquire, Extend and Release, which are the lock.
var _ interface {
	driver.Validator
	driver.Notifier
	driver.Adopter
	driver.Inspector
	driver.Checker
} = (*protocol)(nil)

// faultOf says what is wrong with nodes, as far as can be told without asking them.
func faultOf(nodes []driver.Node) error {
	if len(nodes) == 0 {
		return errors.New("locks: redlock has no servers: allowed are one or more, best an odd number, each once")
	}
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("locks: redlock's node %d is nil: allowed are servers", i+1)
		}
		for j, other := range nodes[:i] {
			same := n.Name() == other.Name() && n.Name() != node.Unnamed
			if same || reflect.ValueOf(n).Comparable() && reflect.ValueOf(other).Comparable() && n == other {
				return fmt.Errorf("locks: redlock's nodes %d and %d are both %s: allowed is each server once", j+1, i+1, n.Name())
			}
		}
	}
	return nil
}

// Validate looks at the nodes and the settings.
func (p *protocol) Validate(o strategy.Options) error {
	if p.fault != nil {
		return p.fault
	}
	if d := p.nodeTimeout; d != nil && *d < time.Millisecond {
		return fmt.Errorf("locks: redlock.NodeTimeout is %v: allowed are 1ms and more", *d)
	}
	if d, most := p.minValidity, o.TTL-driver.Drift(o.TTL); d != nil && (*d < 0 || *d >= most) {
		return fmt.Errorf("locks: redlock.MinValidity is %v: allowed are 0 to less than %v, which is the TTL less the clocks' drift", *d, most)
	}
	return p.validateGuard(o)
}

// Close ends what nobody waits for any more, and closes the nodes.
func (p *protocol) Close() error {
	errs := make([]error, len(p.nodes))
	var all sync.WaitGroup
	for i, n := range p.nodes {
		all.Go(func() { errs[i] = n.Close() })
	}
	all.Wait()
	p.requests.Wait()
	return errors.Join(errs...)
}

// Adopt puts the claim's token in the place of from on all nodes, and has the lock if
// a quorum still had from, in time.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	g, err := p.take(ctx, c, (*tally).decided, func(ctx context.Context, due time.Time, n driver.Node) (any, error) {
		reply, err := n.Eval(ctx, due, adopt, p.keys(c), from, c.TTL.Milliseconds(), c.Token, p.longest(c.TTL))
		if holder, held := reply.([]byte); err == nil && (held || reply == nil) {
			return nil, &strategy.LostError{Name: c.Name, Holder: string(holder)}
		}
		return reply, err
	})
	return g, p.changed(err, p.all, "given back, if it was adopted, as too few others were")
}

// changed makes an error of too few nodes say of those among some that agreed, or were not
// waited for, that they may not be what they were: "not sent" of the others alone would
// mean that nothing has changed.
func (p *protocol) changed(err error, some []int, what string) error {
	var none *strategy.QuorumError
	if errors.As(err, &none) {
		for _, i := range some {
			if e := none.Nodes[i].Err; e == nil || e == errPending {
				none.Nodes[i].Err = &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrUnknown, Err: errors.New(what)}
			}
		}
	}
	return err
}

// Inspect asks all nodes. The lock is held if a quorum shows one token.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	due := p.due(c)
	keys := []string{c.Key}
	if p.fences {
		keys = append(keys, counter(c))
	}
	fences := make([]uint64, len(p.nodes)) // each is written before its node's answer is noted
	t := p.ask(ctx, newBallot(len(p.nodes), unknown), p.all, due, func(ctx context.Context, i int) error {
		reply, err := p.nodes[i].Eval(ctx, due, inspect, keys)
		if err != nil {
			return err
		}
		if r, _ := reply.([]any); len(r) == 3 {
			token, held := r[0].([]byte)
			ms, ok := r[1].(int64)
			fence, ok2 := r[2].(int64)
			fences[i] = uint64(max(fence, 0))
			switch {
			case !ok || !ok2:
			case !held:
				return nil
			default:
				return &strategy.HeldError{Name: c.Name, Holder: string(token), TTL: driver.RemainingTTL(ms)}
			}
		}
		return driver.BadReply(p.nodes[i].Name(), reply)
	}, (*tally).complete)

	token, most := t.leader()
	failed := len(p.nodes) - t.yes - t.held
	info := strategy.Info{Fence: slices.Max(fences)} // that of whoever holds it is noted by a quorum
	switch {
	case most >= p.quorum:
		info.Held, info.Token, info.TTL = true, token, t.keeps(token)
	case most+failed >= p.quorum: // it may be held, or not
		return strategy.Info{}, &strategy.QuorumError{Name: c.Name, Need: p.quorum, Nodes: p.answers(c, t)}
	}
	return info, nil
}

// Check looks at every server, runs scripts there that change nothing, and tells which of
// them do not vote yet, why and for how long, and whether two of them are one.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	c, err := driver.CheckClaim(o)
	if err != nil {
		return err
	}
	due := c.Due
	errs := []error{p.each(func(n driver.Node) error {
		if err := driver.CheckNode(ctx, due, n); err != nil {
			return err
		}
		if err := checkAlone(ctx, due, n); err != nil {
			return err
		}
		if err := driver.CheckScripts(ctx, due, n, p.rights(c, o.Wait)...); err != nil {
			return err
		}
		if _, err := n.Eval(ctx, due, inspect, []string{c.Key}); err != nil {
			return err
		}
		return p.checkVote(ctx, due, n, o.TTL)
	}), driver.CheckWatch(ctx, c, o.Wait, p)}
	var guard *GuardError
	if errors.As(errs[0], &guard) { // whoever checks before the first lock would wait for ever
		errs = append(errs, errors.New("a server begins to wait when it is first asked for a lock, which Check does not do; redlock.Prime lets those that are known to be new vote at once"))
	}
	names := p.names()
	ids := p.identities(ctx, due)
	for i, id := range ids {
		if j := slices.Index(ids[:i], id); id != "" && j >= 0 {
			errs = append(errs, fmt.Errorf("%s and %s are one server: give each server once", names[j], names[i]))
		}
	}
	return errors.Join(errs...)
}

// rights are what it cannot do without on any of the servers, and what it takes to wait in
// the way that was asked for. Of the guard there is one key for all locks.
func (p *protocol) rights(c driver.Claim, w strategy.Wait) []driver.Right {
	lock := driver.Right{Key: c.Key, Commands: []string{"GET", "SET", "DEL", "PTTL", "PEXPIRE"}}
	if w == strategy.WaitNotification {
		lock.Channel, lock.Commands = channel(c), append(lock.Commands, "PUBLISH")
	}
	if p.unguarded {
		return []driver.Right{lock}
	}
	// What is done with the guard is tried with another key: it is in use. INFO check.lua asks for.
	lock.Commands = append(lock.Commands, "TIME", "HMGET", "HSET")
	rights := []driver.Right{lock, {Key: GuardKey}}
	if p.fences {
		rights = append(rights, driver.Right{Key: counter(c), Commands: []string{"HGET", "HMGET", "HSET"}})
	}
	return rights
}

// errCluster is why no node of a cluster has a vote: the keys that a vote is made of lie in
// several slots there, and nodes that agree on who serves a slot do not fail independently.
var errCluster = errors.New("it belongs to a Redis Cluster: RedLock takes servers that know nothing of each other")

// clustered says what is behind the refusal of a node of a cluster.
func clustered(err error) error {
	var said *strategy.ServerError
	if err == nil || !errors.As(err, &said) || said.Kind != strategy.ErrRefused || said.Err == nil {
		return err
	}
	if driver.SeveralSlots(err) || strings.HasPrefix(said.Err.Error(), "MOVED ") {
		return &strategy.ServerError{Node: said.Node, Kind: said.Kind, Err: fmt.Errorf("%w: %w", errCluster, said.Err)}
	}
	return err
}

// checkAlone tells whether a server belongs to a cluster. What it does not tell is not held
// against it.
func checkAlone(ctx context.Context, due time.Time, n driver.Node) error {
	reply, err := n.Do(ctx, due, "INFO", "cluster")
	if err != nil && !errors.Is(err, strategy.ErrRefused) {
		return err
	}
	if text, _ := reply.([]byte); strings.Contains(string(text), "cluster_enabled:1") {
		return fmt.Errorf("%s: %w", n.Name(), errCluster)
	}
	return nil
}

// each runs f for every node, side by side, and names those that fail.
func (p *protocol) each(f func(driver.Node) error) error {
	errs := make([]error, len(p.nodes))
	var all sync.WaitGroup
	for i, n := range p.nodes {
		all.Go(func() { errs[i] = f(n) })
	}
	all.Wait()
	names := p.names() // now they may have told
	for i, err := range errs {
		if err != nil {
			errs[i] = named(names[i], err)
		}
	}
	return errors.Join(errs...)
}

// identities are the servers' own: new with each start. Empty where one does not tell.
func (p *protocol) identities(ctx context.Context, due time.Time) []string {
	ids := make([]string, len(p.nodes))
	var all sync.WaitGroup
	for i, n := range p.nodes {
		all.Go(func() {
			reply, _ := n.Do(ctx, due, "INFO", "server")
			text, _ := reply.([]byte)
			for line := range strings.Lines(string(text)) {
				if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
					ids[i] = id
				}
			}
		})
	}
	all.Wait()
	return ids
}

// twinError refuses an attempt of which node i had the token before it was asked: two
// votes would be one server's. It names the other one, too, if the servers tell.
func (p *protocol) twinError(ctx context.Context, c driver.Claim, i int) error {
	names, other := p.names(), "another of the nodes"
	ids := p.identities(ctx, p.due(c))
	for j, id := range ids {
		if j != i && id != "" && id == ids[i] {
			other = names[j]
		}
	}
	return &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrRefused,
		Err: fmt.Errorf("%s and %s are one server under two names, which would vote twice: give each server once", names[i], other)}
}

// names are what the nodes are called in errors: by address, once that is known, and
// with their number where that does not tell them apart.
func (p *protocol) names() []string {
	names, times := make([]string, len(p.nodes)), map[string]int{}
	for i, n := range p.nodes {
		names[i] = n.Name()
		times[names[i]]++
	}
	for i, name := range names {
		switch {
		case name == node.Unnamed:
			names[i] = fmt.Sprintf("node %d", i+1)
		case times[name] > 1:
			names[i] = fmt.Sprintf("node %d (%s)", i+1, name)
		}
	}
	return names
}

// named puts a node's name before what it said, unless it is there.
func named(name string, err error) error {
	if strings.HasPrefix(err.Error(), name+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

var errNotThere = errors.New("it is not there: not granted, or gone since")

// answers is what each node said, for a QuorumError.
func (p *protocol) answers(c driver.Claim, t *tally) []strategy.NodeAnswer {
	names := p.names()
	answers := make([]strategy.NodeAnswer, len(names))
	for i, err := range t.errs {
		if err == errAbsent {
			err = &strategy.LostError{Name: c.Name, Err: errNotThere}
		}
		answers[i] = strategy.NodeAnswer{Node: names[i], Err: err}
	}
	return answers
}
