// Package redigonode makes a [driver.Node] of a *redis.Pool of github.com/gomodule/redigo, for the New of each strategy:
//
//	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{})
//
// Do and Eval share one pipelined connection: what is called while another
// request is on its way rides in the same packet, and the order of the calls is
// the order of the effects. When the Node gives that connection up, nobody knows what
// the server will still read from it. So the Node kills it (CLIENT KILL) before the next
// connection carries anything: an undo on the new connection cannot overtake the acquire
// that it undoes. If the server forbids that, [driver.Node].Ordered is false. Calls that travel together and ask the same
// joint script ([driver.NewJointScript]) are one command.
//
// Both connections of a Node, for requests and for subscriptions, are dialled with
// the pool's own settings but outside of it: they take no place of MaxActive. Only
// Session borrows from the pool.
package redigonode

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/strategy"
)

var _ driver.Node = (*node)(nil)

// node is one Redis server behind a pool.
type node struct {
	rediskit.Users

	pool      *redis.Pool
	name      atomic.Pointer[string] // the address at which the server sees itself reached, once it has said so
	dialled   atomic.Pointer[string] // the address to which the pool has connected last
	unordered atomic.Bool            // the server forbids what order needs; for good
	hangsUp   atomic.Bool            // it hangs up on commands that it does not know; for good
	silent    client.Silence
	cluster   atomic.Bool // it is a cluster: several locks lie in several slots; for good

	pipe  pipe
	sub   *subscription.Subscriber
	dials client.Hanging // of sub
	gate  *client.Gate   // of sessions
	gets  client.Hanging // calls of the pool's Get
}

// New makes a Node of a pool and does no I/O. It takes the pool's settings (address, password, TLS, database). The pool
// stays the caller's: Close does not close it. A pool that cannot be used is an error of the strategy's New.
func New(pool *redis.Pool) driver.Node {
	if pool == nil {
		return driver.BadNode(errors.New("locks: the *redis.Pool is nil: allowed is one with Dial or DialContext"))
	}
	if pool.Dial == nil && pool.DialContext == nil {
		return driver.BadNode(errors.New("locks: the redis.Pool has neither Dial nor DialContext"))
	}
	n := &node{pool: pool, gate: client.NewGate()}
	n.pipe.init(n)
	n.sub = subscription.New(&listening{n})
	return n
}

// Name returns the address to which the pool connects. With a pool that has no DialContext, or one that does not hand its
// context on, it is the address at which the server sees itself reached, and [driver.Unnamed] until the server has said so.
func (n *node) Name() string {
	for _, known := range []*atomic.Pointer[string]{&n.dialled, &n.name} {
		if s := known.Load(); s != nil {
			return *s
		}
	}
	return driver.Unnamed
}

// Ordered reports whether commands on one key take effect in the order of the
// calls, also after a call has timed out. It turns false, for good, when the
// server refuses to tell a connection who it is (CLIENT INFO, Redis 6.2) or to
// kill one that was given up (CLIENT KILL). A proxy that ends each connection on which
// it gets CLIENT refuses both.
func (n *node) Ordered() bool { return !n.unordered.Load() }

// Do sends one command. An empty key without further arguments sends the bare
// command, such as TIME.
//
// A caller that is alone reads for itself, and cannot be interrupted meanwhile: when its
// ctx ends, it returns with the next reply, at due at the latest.
func (n *node) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	o := n.pipe.newOp(cmd, due)
	if key != "" || len(args) > 0 {
		o.add(key)
	}
	for _, a := range args {
		o.add(plain(a))
	}
	return n.pipe.do(ctx, o)
}

// Eval runs a script by its hash, and in full if the server does not know it. A
// NOSCRIPT has changed nothing, so the second request cannot double the first; it
// is a call of its own, which is not made when ctx or due have ended meanwhile.
//
// Calls of one joint script that travel in the same packet share a command, unless the
// server turns out to be a cluster, or does not say what it is. A call that is refused because
// of another's keys is sent again, alone.
func (n *node) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	reply, err := n.eval(ctx, due, s, "EVALSHA", s.HashArg(), keys, args)
	if rediskit.NoScript(err) {
		return n.eval(ctx, due, s, "EVAL", s.Source(), keys, args)
	}
	return reply, err
}

func (n *node) eval(ctx context.Context, due time.Time, s *driver.Script, cmd string, script any, keys []string, args []any) (any, error) {
	o := n.scriptOp(cmd, script, due, keys, args)
	if _, joint := s.Joint(); joint {
		o.script = s
	}
	reply, err := n.pipe.do(ctx, o)
	if n.mustGoAlone(err) {
		return n.pipe.do(ctx, n.scriptOp(cmd, script, due, keys, args))
	}
	return reply, err
}

func (n *node) scriptOp(cmd string, script any, due time.Time, keys []string, args []any) *op {
	o := n.pipe.newOp(cmd, due)
	o.args = slices.Grow(o.args, 2+len(keys)+len(args)) // hundreds, where locks are renewed in bulk
	o.add(script)
	o.add(len(keys))
	for _, k := range keys {
		o.addKey(k)
	}
	for _, a := range args {
		o.add(plain(a))
	}
	return o
}

// Probe asks the server for its role (HELLO), and returns how often a connection for requests was made in the
// place of one that was lost, or too old, or led to a replica. Nobody reads a connection at rest, so without
// Probe only the next request would find any of that.
func (n *node) Probe(ctx context.Context, due time.Time) (returns uint64) {
	cmd, key := "HELLO", ""
	if n.hangsUp.Load() {
		cmd, key = "EXISTS", anyKey
	}
	for range 2 { // the first may find the connection lost, or a replica; the second makes another
		hello, err := n.Do(ctx, due, cmd, key)
		switch {
		case rediskit.Demoted(hello):
			n.leave()
		case !errors.Is(err, strategy.ErrUnknown):
			return n.returns()
		}
	}
	return n.returns()
}

func (n *node) returns() uint64 {
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	return n.pipe.returns.Count
}

// leave ends the use of all connections to a server that has turned out to be a replica.
func (n *node) leave() {
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	n.pipe.leaveReplica()
}

// Close says that one user less is there. When none is left it ends what is under way: requests that
// were sent are [strategy.ErrUnknown], others [strategy.ErrUnsent], and both are [strategy.ErrClosed]. It closes the
// Node's connections and waits for its goroutines and for sessions, which end with
// the reply to the command they wait for, or at their due time. A Dial of the
// user's that hangs is left to itself and closes what it has dialled when it
// returns. Close must not be called from inside a function that was given to
// Session or Subscribe. A second call changes nothing.
func (n *node) Close() error {
	if !n.Leave() {
		return nil
	}
	n.gate.Close() // first: no other connection can undo what they leave unconfirmed
	n.pipe.close()
	n.sub.Close()
	n.sub.Wait()
	n.dials.Wait(closeGrace)
	n.gate.Wait()
	return nil
}
