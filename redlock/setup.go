package redlock

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on nodes: one for each server, each what the New of a client returns. An odd number is best,
// because four servers survive no more failures than three. New does no I/O. [strategy.Strategy.Check] does, and also finds
// two nodes for one server. Close closes the nodes that no other strategy uses; the clients stay the caller's.
func New(nodes []driver.Node, o strategy.Options, options ...Option) (strategy.Strategy, error) {
	return engine.New(On(nodes, options...), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(nodes []driver.Node, options ...Option) driver.Protocol {
	p := &protocol{nodes: slices.Clone(nodes), quorum: len(nodes)/2 + 1}
	p.silent = make([]atomic.Bool, len(nodes))
	for i := range nodes {
		p.all = append(p.all, i)
	}
	p.fault = errors.Join(faultOf(p.nodes), driver.Apply(p, options))
	return p
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// WithNodeTimeout bounds each request to each server. A server that does not answer delays a lock by no
// more than that in each round of requests, and only where its answer matters. An attempt has one
// round, and one more to give votes back if they were too few; with fences there is one between. An
// extension and a release have one. It must cover a round trip; so that the first attempt
// does not fail, it must also cover a dial. Options.OpTimeout bounds it. Default TTL/20, but at
// least 5 ms and at most 50 ms; where servers are far away, four times what the last quorum took, and at most
// half of Options.OpTimeout, for a request may have to dial. It is that half until a quorum has answered for the
// first time.
func WithNodeTimeout(d time.Duration) Option {
	return func(p *protocol) { p.nodeTimeout = &d }
}

// WithMinValidity is how much of a lock's validity must be left when the quorum has been found. With less
// the attempt fails, and the votes are given back. Default TTL/10.
func WithMinValidity(d time.Duration) Option {
	return func(p *protocol) { p.minValidity = &d }
}

// due is when a request that begins now has to be answered.
func (p *protocol) due(c driver.Claim) time.Time {
	d, half := 50*time.Millisecond, time.Until(c.Due)/2 // half of the time is left to give votes back
	pace := time.Duration(p.pace.Load())
	switch {
	case p.nodeTimeout != nil:
		d = *p.nodeTimeout
	case pace == 0: // the requests dial
		d = half
	default:
		if c.TTL > 0 { // not Inspect's
			d = min(max(c.TTL/20, 5*time.Millisecond), d)
		}
		d = max(d, min(4*pace, half)) // of servers that are far away, a dial and a request are four round trips
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
		return fmt.Errorf("locks: redlock.WithNodeTimeout is %v: allowed are 1ms and more", *d)
	}
	if d, most := p.minValidity, o.TTL-driver.Drift(o.TTL); d != nil && (*d < 0 || *d >= most) {
		return fmt.Errorf("locks: redlock.WithMinValidity is %v: allowed are 0 to less than %v, which is the TTL less the clocks' drift", *d, most)
	}
	return p.validateGuard(o)
}

// Use is that of all nodes.
func (p *protocol) Use() error {
	for i, n := range p.nodes {
		if err := n.Use(); err != nil {
			for _, used := range p.nodes[:i] {
				used.Close() //nolint:errcheck // it has asked nothing yet
			}
			return fmt.Errorf("%w (node %d of %d)", err, i+1, len(p.nodes))
		}
	}
	return nil
}

// Close ends the requests of stragglers, and closes the nodes.
func (p *protocol) Close() error {
	errs := make([]error, len(p.nodes))
	onAll(p.nodes, func(i int, n driver.Node) { errs[i] = n.Close() })
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

// faultOf says what is wrong with nodes, as far as that shows without asking them.
func faultOf(nodes []driver.Node) error {
	if len(nodes) == 0 {
		return errors.New("locks: redlock has no servers: allowed are one or more, best an odd number, each once")
	}
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("locks: redlock's node %d is nil: allowed is what the New of a client returns", i+1)
		}
		for j, other := range nodes[:i] {
			if reflect.ValueOf(n).Comparable() && n == other { // not by the name: through one proxy all may have the same
				return fmt.Errorf("locks: redlock's nodes %d and %d are both %s: allowed is each server once", j+1, i+1, n.Name())
			}
		}
	}
	return nil
}
