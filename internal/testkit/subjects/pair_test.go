// Package multilock on two locks on two servers, held to the conformance suite.
package subjects

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

// pairs are two servers, of which every lock takes one lock each, by multilock. For the
// suite such a pair is a lock as any other, so its claims are wrapped into a protocol. The
// suite's waiting is the engine's then, and All's own is tested elsewhere.
type pairs struct {
	servers [2]lockstest.Memory

	mu    sync.Mutex
	known map[string]string // of tokens of parts, those of the pairs
}

var suffixes = [2]string{" left", " right"} // of the keys

// open is a contender, whose requests to both servers pass around.
func (p *pairs) open(o strategy.Options, around func(*lockstest.Memory) driver.Protocol) (strategy.Strategy, error) {
	c := &twoLocks{pairs: p}
	for i, suffix := range suffixes {
		s, err := engine.New(around(&p.servers[i]), strategy.Options{
			TTL: o.TTL, OpTimeout: o.OpTimeout,
			Key: func(name string) string { return strategy.DefaultKey(name) + suffix },
		})
		if err != nil {
			return nil, err
		}
		c.sides[i] = s
	}
	return engine.New(c, o)
}

// both does f on both servers.
func (p *pairs) both(key string, f func(m *lockstest.Memory, key string) error) error {
	return errors.Join(f(&p.servers[0], key+suffixes[0]), f(&p.servers[1], key+suffixes[1]))
}

// twoLocks is one contender's protocol.
type twoLocks struct {
	driver.Unsupported
	*pairs
	sides [2]strategy.Strategy
}

func (p *twoLocks) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	all, err := multilock.New(p.sides[1].NewLock(c.Name), p.sides[0].NewLock(c.Name))
	if err != nil {
		return driver.Grant{}, err
	}
	lease, err := all.TryAcquire(ctx)
	if err != nil {
		return driver.Grant{}, p.errorOf(c, err)
	}
	p.mu.Lock()
	for _, part := range multilock.Parts(lease) {
		p.known[part.Token()] = c.Token
	}
	p.mu.Unlock()
	return grantOf(lease, c.TTL), nil
}

func grantOf(lease strategy.Lease, ttl time.Duration) driver.Grant {
	return driver.Grant{Start: lease.Deadline().Add(driver.Drift(ttl) - ttl), TTL: ttl, State: lease}
}

// errorOf is what was said of a part, said of the pair.
func (p *twoLocks) errorOf(c driver.Claim, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var held *strategy.HeldError
	var lost *strategy.LostError
	switch {
	case errors.As(err, &held):
		return &strategy.HeldError{Name: c.Name, Holder: p.known[held.Holder], TTL: held.TTL}
	case errors.As(err, &lost):
		for errors.As(lost.Err, &lost) { // of the part
		}
		return &strategy.LostError{Name: c.Name, Holder: p.known[lost.Holder]}
	}
	return err
}

func (p *twoLocks) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	lease := c.Grant.State.(strategy.Lease)
	if err := lease.Extend(ctx); err != nil {
		return driver.Grant{}, p.errorOf(c, err)
	}
	return grantOf(lease, c.TTL), nil
}

func (p *twoLocks) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.Undo(ctx, c)
}

func (p *twoLocks) Undo(ctx context.Context, c driver.Claim) error {
	lease, ok := c.Grant.State.(strategy.Lease)
	if !ok {
		return nil // not granted: All has left nothing, or undoes it
	}
	err := lease.Release(ctx)
	if errors.Is(err, strategy.ErrReleased) {
		return nil
	}
	if err != nil {
		return p.errorOf(c, err)
	}
	return nil
}

func (p *twoLocks) Close() error {
	return errors.Join(p.sides[0].Close(), p.sides[1].Close())
}

// TestAllConforms holds All to what every lock promises.
func TestAllConforms(t *testing.T) {
	p := &pairs{known: map[string]string{}}
	subject := conformance.Subject{
		Name: "all of two",
		Open: func(o strategy.Options) (strategy.Strategy, error) {
			return p.open(o, func(m *lockstest.Memory) driver.Protocol { return m })
		},
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return p.open(o, func(m *lockstest.Memory) driver.Protocol { return m.Gated(g) })
		},
		OpenSkewed: func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) { // as Memory takes no clock
			return p.open(o, func(m *lockstest.Memory) driver.Protocol { return m })
		},
		Evict: func(ctx context.Context, key string) error {
			return p.both(key, func(m *lockstest.Memory, key string) error { return m.Evict(ctx, key) })
		},
		Spoil: func(ctx context.Context, key string) error {
			return p.both(key, func(m *lockstest.Memory, key string) error { return m.Spoil(ctx, key) })
		},
		Leftovers: func(ctx context.Context, key string) (left []string, err error) {
			err = p.both(key, func(m *lockstest.Memory, key string) error {
				here, err := m.Leftovers(ctx, key)
				left = append(left, here...)
				return err
			})
			return left, err
		},
	}
	conformance.Run(t, subject)
}
