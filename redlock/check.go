package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// This protocol also validates its settings and notifies its waiters.
var _ interface {
	driver.Protocol
	driver.Validator
	driver.Notifier
} = (*protocol)(nil)

// Check looks at every server, and runs scripts there that leave nothing behind. It names the servers
// that do not vote yet, why and for how long, and two nodes that are one server.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	c := rediskit.CheckClaim(o)
	due := c.Due
	if !p.unguarded {
		p.learnTTL(LongestTTL(ctx, due, p.nodes).Milliseconds()) // with its first lock this client learns it, too
	}
	var empty, others atomic.Bool // whether a server does not vote because it is empty, and whether another has a guard
	errs := []error{p.each(func(n driver.Node) error {
		if err := rediskit.CheckNode(ctx, due, n); err != nil {
			return err
		}
		if err := checkNoCluster(ctx, due, n); err != nil {
			return err
		}
		if err := rediskit.LoadScripts(ctx, due, n, p.Scripts()...); err != nil {
			return err
		}
		if err := rediskit.CheckScripts(ctx, due, n, p.rights(c, o.Wait)...); err != nil {
			return err
		}
		if _, err := n.Eval(ctx, due, inspect, []string{c.Key}); err != nil {
			return err
		}
		err := p.checkVote(ctx, due, n, o.TTL)
		var guard *GuardError
		switch {
		case errors.As(err, &guard) && guard.Reason == ReasonEmpty:
			empty.Store(true)
		case err == nil || guard != nil:
			others.Store(true)
		}
		return err
	}), rediskit.CheckWatch(ctx, c, o.Wait, p)}
	switch {
	case empty.Load() && others.Load():
		errs = append(errs, errors.New(emptiedWaits))
	case empty.Load():
		errs = append(errs, errors.New(bootstrapHelps))
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

// Scripts are all that this algorithm sends.
func (p *protocol) Scripts() []*driver.Script {
	return []*driver.Script{acquire, extend, release, writeback, join, adopt, inspect, check, bootstrap}
}

// rights are what the scripts cannot do without. PUBLISH is one of them only if Options.Wait is
// WaitNotification: without it releases stand, and all waiters wake at the holder's TTL.
func (p *protocol) rights(c driver.Claim, w strategy.Wait) []rediskit.Right {
	lock := rediskit.Right{Key: c.Key, Commands: []string{"GET", "GETEX", "SET", "DEL", "PTTL", "PEXPIRE"}}
	if w == strategy.WaitNotification {
		lock.Channel, lock.Commands = channel(c), append(lock.Commands, "PUBLISH")
	}
	if p.unguarded {
		return []rediskit.Right{lock}
	}
	// Before Redis 7.0 commands can only be tried by running them, and the guard is in use: so its commands
	// are tried on the lock's key, which nobody uses. check.lua tries INFO.
	lock.Commands = append(lock.Commands, "TIME", "HMGET", "HSET")
	rights := []rediskit.Right{lock, {Key: GuardKey}}
	if p.fences {
		fence := rediskit.Right{Key: counter(c), Commands: []string{"HGET", "HMGET", "HSET", "PEXPIREAT"}}
		if c.FenceTTL == 0 {
			fence.Commands[3] = "PERSIST" // takes back what a process with another FenceTTL has set
		}
		rights = append(rights, fence)
	}
	return rights
}

// checkNoCluster refuses a server of a cluster. A server that may not say whether it is one passes.
func checkNoCluster(ctx context.Context, due time.Time, n driver.Node) error {
	reply, err := n.Do(ctx, due, "INFO", "cluster")
	if err != nil && !errors.Is(err, strategy.ErrRefused) {
		return err
	}
	if text, _ := reply.([]byte); strings.Contains(string(text), "cluster_enabled:1") {
		return fmt.Errorf("%s: %w", n.Name(), errCluster)
	}
	return nil
}

// each runs f for every node at once, and names those that fail.
func (p *protocol) each(f func(driver.Node) error) error {
	errs := make([]error, len(p.nodes))
	onAll(p.nodes, func(i int, n driver.Node) { errs[i] = f(n) })
	names := p.names() // a node may know its address now
	for i, err := range errs {
		if err != nil {
			errs[i] = named(names[i], err)
		}
	}
	return errors.Join(errs...)
}

// Probe asks all nodes at the same time, and sums what they return.
func (p *protocol) Probe(ctx context.Context, due time.Time) uint64 {
	var sum atomic.Uint64
	onAll(p.nodes, func(_ int, n driver.Node) { sum.Add(n.Probe(ctx, due)) })
	return sum.Load()
}

// onAll runs f for every node at once, and waits for all.
func onAll(nodes []driver.Node, f func(i int, n driver.Node)) {
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { f(i, n) })
	}
	all.Wait()
}
