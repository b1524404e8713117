package exercises

import (
	"context"
	"errors"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lab/exercises/redis"
	"github.com/lockstrategies/locks/strategy"
)

// A lock is one of an exercise, on one server.
type lock interface {
	Acquire(r *redis.Server, c redis.Claim) bool
	Extend(r *redis.Server, c redis.Claim) bool
	Release(r *redis.Server, c redis.Claim) bool
}

// A quorum is a lock of an exercise on several servers. Acquire and Extend return for how many milliseconds the lock is
// certain.
type quorum interface {
	Acquire(servers []*redis.Server, c *redis.Claim) int
	Extend(servers []*redis.Server, c *redis.Claim) int
	Release(servers []*redis.Server, c *redis.Claim) bool
}

// single makes a quorum of a lock on one server.
type single struct{ lock }

func (s single) Acquire(servers []*redis.Server, c *redis.Claim) int {
	return certain(s.lock.Acquire, servers, c)
}

func (s single) Extend(servers []*redis.Server, c *redis.Claim) int {
	return certain(s.lock.Extend, servers, c)
}

func (s single) Release(servers []*redis.Server, c *redis.Claim) bool {
	return s.lock.Release(servers[0], *c)
}

// certain is the TTL, less what the call has taken.
func certain(call func(*redis.Server, redis.Claim) bool, servers []*redis.Server, c *redis.Claim) int {
	start := time.Now()
	if !call(servers[0], *c) {
		return 0
	}
	return c.TTL - int(time.Since(start).Milliseconds())
}

// protocol is a lock of an exercise for one client, as package engine wants it.
type protocol struct {
	driver.Unsupported
	lock    quorum
	nodes   []driver.Node
	ahead   time.Duration // the client's clock
	permits int
	reentry bool
	tells   func(driver.Claim) // is called with each claim
}

// Reenters is part of [driver.Reenterer].
func (p protocol) Reenters() bool { return p.reentry }

// Close ends the connections.
func (p protocol) Close() (err error) {
	for _, n := range p.nodes {
		err = errors.Join(err, n.Close())
	}
	return err
}

// servers are those of one call. Each has its part of the time for all of them, because the locks ask one after the other.
func (p protocol) servers(ctx context.Context, c driver.Claim, call string) (all []*redis.Server, claim *redis.Claim) {
	p.tells(c)
	left := time.Until(c.Due)
	for i, n := range p.nodes {
		due := c.Due.Add(-left * time.Duration(len(p.nodes)-1-i) / time.Duration(len(p.nodes)))
		all = append(all, redis.New(ctx, n, due, call))
	}
	voted, _ := c.Grant.State.([]int)
	return all, &redis.Claim{
		Key: c.Key, Token: c.Token, TTL: int(c.TTL.Milliseconds()), Owner: c.Owner, Permits: p.permits, Voted: voted,
		Now: int(time.Now().Add(p.ahead).UnixMilli()),
	}
}

// failed reports whether most servers have failed, and why some have.
func failed(name string, servers []*redis.Server) (most bool, err error) {
	quorum := &strategy.QuorumError{Name: name, Need: len(servers)/2 + 1}
	n := 0
	for _, r := range servers {
		quorum.Nodes = append(quorum.Nodes, strategy.NodeAnswer{Node: r.Name(), Err: r.Err()})
		if r.Err() != nil {
			err = r.Err()
			n++
		}
	}
	if n > 0 && len(servers) > 1 {
		err = quorum
	}
	return n >= quorum.Need, err
}

func (p protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	servers, claim := p.servers(ctx, c, "acquire")
	certain := p.lock.Acquire(servers, claim)
	most, err := failed(c.Name, servers)
	g := driver.Grant{State: claim.Voted}
	for _, r := range servers {
		g.Partial = g.Partial || r.Err() != nil && r.Sent()
	}
	if certain > 0 {
		g.Start, g.TTL = time.Now(), time.Duration(certain)*time.Millisecond
		if p.reentry {
			g.Owner = c.Owner
		}
		return g, nil
	}
	if len(p.nodes) > 1 {
		again, _ := p.servers(ctx, c, "release")
		p.lock.Release(again, claim)
	}
	if most {
		return g, err
	}
	return g, &strategy.HeldError{Name: c.Name}
}

func (p protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	servers, claim := p.servers(ctx, c, "extend")
	certain := p.lock.Extend(servers, claim)
	most, err := failed(c.Name, servers)
	switch {
	case certain > 0:
		g := c.Grant
		g.Start, g.TTL, g.Partial = time.Now(), time.Duration(certain)*time.Millisecond, err != nil
		return g, nil
	case most:
		return driver.Grant{}, err
	}
	return driver.Grant{}, &strategy.LostError{Name: c.Name}
}

func (p protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	servers, claim := p.servers(ctx, c, "release")
	released := p.lock.Release(servers, claim)
	most, err := failed(c.Name, servers)
	switch o := (driver.Outcome{Partial: err != nil}); {
	case released:
		return o, nil
	case most:
		return o, err
	default:
		return o, &strategy.LostError{Name: c.Name}
	}
}

func (p protocol) Undo(ctx context.Context, c driver.Claim) error {
	if c.Grant.IsZero() {
		ctx = unrecorded(ctx) // it would hide the attempts that it comes between
	}
	servers, claim := p.servers(ctx, c, "release")
	p.lock.Release(servers, claim)
	_, err := failed(c.Name, servers)
	for _, n := range p.nodes {
		if err == nil {
			err = rediskit.Undone(n, c, &strategy.LostError{Name: c.Name})
		}
	}
	return err
}

// semaphore is a lock of several permits, of which each acquisition takes one.
type semaphore struct{ engine.Strategy }

func (s semaphore) NewMultiPermitLock(name string, _ int) strategy.Lock { return s.NewLock(name) }

func (semaphore) SetPermits(context.Context, string, int) error { return strategy.ErrUnsupported }
