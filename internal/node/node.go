// Package node makes a [driver.Node] of a redigo pool.
//
// Do and Eval share one pipelined connection: what is called while another
// request is on its way rides in the same packet, and the order of the calls is
// the order of the effects. When the Node gives that connection up, nobody knows what
// the server will still read from it. So the Node kills it (CLIENT KILL) before the next
// connection carries anything: an undo on the new connection cannot overtake the acquire
// that it undoes. If the server forbids that, [Node.Ordered] is false. Calls that travel together and ask the same
// joint script ([driver.NewJointScript]) are one command.
//
// Both connections of a Node, for requests and for subscriptions, are dialled with
// the pool's own settings but outside of it: they take no place of MaxActive. Only
// Session borrows from the pool.
package node

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

var _ interface {
	driver.Node
	driver.Prober
} = (*Node)(nil)

// A Node is one Redis server behind a pool.
type Node struct {
	pool      *redis.Pool
	name      atomic.Pointer[string] // the server's address, once the server has reported it
	unordered atomic.Bool            // the server forbids what order needs; for good
	apart     atomic.Bool            // it is a cluster: several locks lie in several slots; for good

	pipe     pipe
	sub      subscriber
	sessions sessions
}

// New makes a Node of a pool and does no I/O. The pool stays the caller's: Close
// does not close it.
func New(pool *redis.Pool) (*Node, error) {
	if pool == nil {
		return nil, errors.New("locks: the *redis.Pool is nil")
	}
	if pool.Dial == nil && pool.DialContext == nil {
		return nil, errors.New("locks: the redis.Pool has neither Dial nor DialContext")
	}
	n := &Node{pool: pool}
	n.pipe.init(n)
	n.sub.init(n)
	n.sessions.init(n)
	return n, nil
}

// Unnamed is the name of every Node whose server has not reported its address yet.
const Unnamed = "redis"

// Name returns the address at which the server sees itself reached, and [Unnamed]
// until it has said so.
func (n *Node) Name() string {
	if s := n.name.Load(); s != nil {
		return *s
	}
	return Unnamed
}

// Ordered reports whether commands on one key take effect in the order of the
// calls, also after a call has timed out. It turns false, for good, when the
// server refuses to tell a connection who it is (CLIENT INFO, Redis 6.2) or to
// kill one that was given up (CLIENT KILL).
func (n *Node) Ordered() bool { return !n.unordered.Load() }

// Do sends one command. An empty key without further arguments sends the bare
// command, such as TIME.
//
// A caller that is alone reads for itself, and cannot be interrupted meanwhile: when its
// ctx ends, it returns with the next reply, at due at the latest.
func (n *Node) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
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
func (n *Node) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	reply, err := n.eval(ctx, due, s, "EVALSHA", s.HashArg(), keys, args)
	if s.Missing(err) {
		return n.eval(ctx, due, s, "EVAL", s.Source(), keys, args)
	}
	return reply, err
}

func (n *Node) eval(ctx context.Context, due time.Time, s *driver.Script, cmd string, script any, keys []string, args []any) (any, error) {
	o := n.scriptOp(cmd, script, due, keys, args)
	if _, joint := s.Joint(); joint {
		o.script = s
	}
	reply, err := n.pipe.do(ctx, o)
	if n.alone(err) {
		return n.pipe.do(ctx, n.scriptOp(cmd, script, due, keys, args))
	}
	return reply, err
}

func (n *Node) scriptOp(cmd string, script any, due time.Time, keys []string, args []any) *op {
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

// Probe sends a PING, and returns how often a connection for requests was made in the place of one that
// was lost, or too old. Nobody reads a connection at rest, so without Probe only the next request would
// find a loss.
func (n *Node) Probe(ctx context.Context, due time.Time) (returns uint64) {
	for range 2 { // the first may find the connection lost, the second makes another
		if _, err := n.Do(ctx, due, "PING", ""); !errors.Is(err, strategy.ErrUnknown) {
			break
		}
	}
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	return n.pipe.returns
}

// Close ends what is under way: requests that were sent are [strategy.ErrUnknown],
// others [strategy.ErrUnsent], and both are [strategy.ErrClosed]. It closes the
// Node's connections and waits for its goroutines and for sessions, which end with
// the reply to the command they wait for, or at their due time. A Dial of the
// user's that hangs is left to itself and closes what it has dialled when it
// returns. Close must not be called from inside a function that was given to
// Session or Subscribe. A second call changes nothing.
func (n *Node) Close() error {
	n.sessions.close() // first: what they leave unanswered has no other connection to go to
	n.pipe.close()
	n.sub.close()
	n.sessions.wait()
	return nil
}
