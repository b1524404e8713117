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

// single makes a quorum of a lock on one server. The lock is certain for its TTL, from before the call on.
type single struct{ lock }

func (s single) Acquire(servers []*redis.Server, c *redis.Claim) int {
	return certain(s.lock.Acquire(servers[0], *c), c)
}

func (s single) Extend(servers []*redis.Server, c *redis.Claim) int {
	return certain(s.lock.Extend(servers[0], *c), c)
}

func (s single) Release(servers []*redis.Server, c *redis.Claim) bool {
	return s.lock.Release(servers[0], *c)
}

func certain(granted bool, c *redis.Claim) int {
	if granted {
		return c.TTL
	}
	return 0
}

// protocol is a lock of an exercise for one client, as package engine wants it.
type protocol struct {
	driver.Unsupported
	lock    quorum
	nodes   []driver.Node
	ahead   time.Duration // the client's clock
	permits int
	reentry bool
	tells   func(c driver.Claim, notes ...string) // is called with each claim
}

// lost is an error of a lock that says no when it extends or releases.
func lost(name string) error {
	return &strategy.LostError{Name: name, Err: errors.New("the lock's answer was no")}
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

// servers are those of one call. Of the time for it some is left, to give back votes in.
func (p protocol) servers(ctx context.Context, c driver.Claim, call string) (all []*redis.Server, claim *redis.Claim) {
	p.tells(c)
	due := c.Due.Add(-time.Until(c.Due) / 10)
	for _, n := range p.nodes {
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

// granted is a grant that is certain for this time, in milliseconds.
func (p protocol) granted(c driver.Claim, start time.Time, certain int, voted []int) driver.Grant {
	g := driver.Grant{Start: start, TTL: time.Duration(certain) * time.Millisecond, State: voted}
	if len(p.nodes) > 1 {
		g.Start = time.Now() // they have been counted from now
	}
	if p.reentry {
		g.Owner = c.Owner
	}
	return g
}

func (p protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	start := time.Now()
	servers, claim := p.servers(ctx, c, "acquire")
	certain := p.lock.Acquire(servers, claim)
	most, err := failed(c.Name, servers)
	var g driver.Grant
	if certain > 0 {
		g, err = p.granted(c, start, certain, claim.Voted), nil
	} else if !most {
		err = &strategy.HeldError{Name: c.Name}
	}
	for _, r := range servers {
		g.Partial = g.Partial || r.Err() != nil && r.Sent()
	}
	if certain > 0 || len(p.nodes) == 1 {
		return g, err
	}
	again, _ := p.servers(ctx, c, "release") // a refusal: the votes go back
	p.lock.Release(again, claim)
	for i, r := range again {
		g.Partial = g.Partial || r.Err() != nil && servers[i].Sent()
	}
	if time.Since(start) > c.TTL/2 && !most {
		err = &strategy.LostError{Name: c.Name, Lapsed: true}
	}
	return g, err
}

func (p protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	start := time.Now()
	servers, claim := p.servers(ctx, c, "extend")
	certain := p.lock.Extend(servers, claim)
	most, err := failed(c.Name, servers)
	switch {
	case certain > 0:
		g := p.granted(c, start, certain, claim.Voted)
		g.Partial = err != nil
		return g, nil
	case most:
		return driver.Grant{}, err
	}
	return driver.Grant{}, lost(c.Name)
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
		return o, lost(c.Name)
	}
}

func (p protocol) Undo(ctx context.Context, c driver.Claim) error {
	if c.Grant.IsZero() {
		ctx = unrecorded(ctx) // it would hide the attempts that it comes between
	} else {
		p.tells(c, "no answer came in time: the engine releases it")
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
