package redlock

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on the Redis servers that the pools dial: one pool for each server. An odd
// number is best, because four servers survive no more failures than three. It takes the pools' settings
// and dials two connections of its own to each server. The caller closes the pools. New does no I/O.
// [strategy.Strategy.Check] does, and also finds two pools for one server.
func New(pools []*redis.Pool, o strategy.Options, own ...Option) (strategy.Strategy, error) {
	nodes, err := dialled(pools)
	if err != nil {
		return nil, err
	}
	return engine.New(On(nodes, own...), o)
}

// On returns the algorithm on any nodes: for other clients, decorators and tests. Closing the
// protocol closes the nodes.
func On(nodes []driver.Node, own ...Option) driver.Protocol {
	p := &protocol{nodes: slices.Clone(nodes), quorum: len(nodes)/2 + 1}
	p.silent = make([]atomic.Bool, len(nodes))
	for i := range nodes {
		p.all = append(p.all, i)
	}
	p.fault = faultOf(p.nodes)
	for i, set := range own {
		if set == nil {
			p.fault = errors.Join(p.fault, fmt.Errorf("locks: redlock's option %d is nil: allowed are what its functions return", i+1))
			continue
		}
		set(p)
	}
	return p
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// NodeTimeout bounds each request to each server. A server that does not answer delays a lock by no
// more than that in each round of requests, and only where its answer matters. An attempt has one
// round, and one more to give votes back if they were too few; with fences there is one between. An
// extension and a release have one. NodeTimeout must cover a round trip; so that the first attempt
// does not fail, it must also cover a dial. Options.OpTimeout bounds it. Default TTL/20, but at
// least 5 ms and at most 50 ms.
func NodeTimeout(d time.Duration) Option {
	return func(p *protocol) { p.nodeTimeout = &d }
}

// MinValidity is how much of a lock's validity must be left when the quorum has been found. With less
// the attempt fails, and the votes are given back. Default TTL/10.
func MinValidity(d time.Duration) Option {
	return func(p *protocol) { p.minValidity = &d }
}

// due is when a request that begins now has to be answered.
func (p *protocol) due(c driver.Claim) time.Time {
	d := 50 * time.Millisecond
	switch {
	case p.nodeTimeout != nil:
		d = *p.nodeTimeout
	case c.TTL > 0: // not Inspect's
		d = min(max(c.TTL/20, 5*time.Millisecond), d)
	}
	if due := time.Now().Add(d); due.Before(c.Due) {
		return due
	}
	return c.Due
}

// leastValidity is the validity that an attempt must leave.
func (p *protocol) leastValidity(ttl time.Duration) time.Duration {
	if p.minValidity != nil {
		return *p.minValidity
	}
	return ttl / 10
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

// Close ends the requests of stragglers, and closes the nodes.
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

// keys are those of the scripts that grant: the lock's, the guard's, the fence counter's. There are no
// fences without the guard.
func (p *protocol) keys(c driver.Claim) []string {
	if p.fences {
		return append(p.guardedKeys(c), counter(c))
	}
	return p.guardedKeys(c)
}

// guardedKeys are the lock's, and the guard's if there is one.
func (p *protocol) guardedKeys(c driver.Claim) []string {
	if p.unguarded {
		return []string{c.Key}
	}
	return []string{c.Key, GuardKey}
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

// faultOf says what is wrong with nodes, as far as that shows without asking them.
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
			if same || reflect.ValueOf(n).Comparable() && n == other {
				return fmt.Errorf("locks: redlock's nodes %d and %d are both %s: allowed is each server once", j+1, i+1, n.Name())
			}
		}
	}
	return nil
}
