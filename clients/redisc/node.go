// Package rediscnode makes a [driver.Node] of a Redis Cluster, for programs that use redigo
// and mna/redisc: each lock lies on the master that serves its slot, and follows it when slots
// are moved to another master, or a replica takes over.
//
//	node := rediscnode.New(&redisc.Cluster{StartupNodes: []string{"redis-0:6379", "redis-1:6379"}})
//	locks, err := fairqueue.New(node, strategy.Options{})
//
// All keys of one lock lie in one slot. So a cluster makes room for many locks; it does not make
// any of them safer than a single server with replicas does. See "What it does not give".
//
// # How it sends
//
// The Node uses the settings of the Cluster: StartupNodes, DialOptions, CreatePool. It dials
// itself, and keeps for each master what package clients/redigo keeps for its one server: a pipelined
// connection for requests, one for subscriptions, and a pool from which sessions borrow. A
// redisc connection for each call would keep no order between an acquire whose reply was lost
// and the release that undoes it; and redisc's retrying connection does not say whether a request
// that it gives up was sent.
//
// The Node asks the cluster which server has which slot (CLUSTER SLOTS) before the first request.
// It asks again when a server says that a slot is not its own any more (MOVED), and when it does not
// reach a server. If the user may not call CLUSTER SLOTS, the Node learns it slot by slot.
//
//   - MOVED and ASK are refusals that have changed nothing. They are followed until due.
//   - TRYAGAIN says that the keys of a lock are just being moved, one by one. It has changed
//     nothing either, and the request is sent again, at growing intervals, until due; then the
//     caller gets [strategy.ErrRefused].
//   - If the cluster ends a script in the middle, because a key that the script deleted now lies
//     elsewhere, that is [strategy.ErrUnknown].
//   - The caller gets CLUSTERDOWN and every other refusal at once, in the server's words.
//   - A master that becomes a replica sends requests on (MOVED). A probe finds it where nobody asks for its keys.
//   - If a server is not reached ([strategy.ErrUnsent]), the Node asks which server has taken over,
//     and sends the request there if one has.
//   - What may have been sent is never sent again: that is [strategy.ErrUnknown].
//
// Locks in several slots are never one request: those that are renewed together are renewed one
// by one, and what callers of a process ask for at the same moment shares a packet, not a command.
//
// # What it does not give
//
// A fail-over of the cluster forgets what the replica had not heard of, like any fail-over: then two
// hold the lock. The cluster chooses the replica that has heard most. That makes the gap smaller and
// does not close it; so do Options.Acks. A master that is cut off from the others, with clients, serves for
// cluster-node-timeout, and what it grants in that time is forgotten. For a lock that survives
// the loss of a Redis take redlock on servers that are independent. The nodes of one cluster are
// not: redlock refuses them.
package rediscnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

var _ driver.Node = (*node)(nil)

// node is a Redis Cluster. Its methods are those of [driver.Node].
type node struct {
	rediskit.Users

	cluster *redisc.Cluster
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	work    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	servers map[string]*server // by address
	layout  layout
	subs    map[*subscription]bool
	returns uint64 // see Probe
}

// A server is one node of the cluster, by the address at which it announces itself.
type server struct {
	addr string
	driver.Node
	pool    *redis.Pool
	users   sync.WaitGroup // calls under way
	returns uint64         // what its last probe returned
}

// New makes a Node of a cluster's settings, and does no I/O. The cluster stays the caller's:
// Close does not close it, nor need it be used for anything else. Close ends what New's
// Node has dialled. Settings that cannot be used are an error of the strategy's New.
func New(cluster *redisc.Cluster) driver.Node {
	if err := faultOf(cluster); err != nil {
		return driver.BadNode(err)
	}
	n := &node{cluster: cluster, servers: map[string]*server{}, subs: map[*subscription]bool{}}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	return n
}

func faultOf(cluster *redisc.Cluster) error {
	if cluster == nil {
		return errors.New("locks: the *redisc.Cluster is nil")
	}
	if len(cluster.StartupNodes) == 0 {
		return errors.New("locks: the redisc.Cluster has no StartupNodes: give host:port of one node or more")
	}
	for _, addr := range cluster.StartupNodes {
		if _, _, err := splitAddr(addr); err != nil {
			return fmt.Errorf("locks: StartupNodes of the redisc.Cluster: %w", err)
		}
	}
	return nil
}

// Name is the cluster's, by its first startup node. Errors name the server that they are about.
func (n *node) Name() string { return "cluster of " + n.cluster.StartupNodes[0] }

// Ordered reports whether commands on one key take effect in the order of the calls, also after
// a call has timed out. It is true at first: a slot is one server's, on which requests keep
// their order, and a connection that was given up is killed before the next is used. It turns
// false, for good, when a slot has changed its server, because nobody asks the old server any more
// what it still has to read; and when a server forbids what order needs (CLIENT KILL).
//
// When it is false an acquire whose reply was lost is undone until its token is found, or for
// one TTL: that is one request now and then, in the background.
func (n *node) Ordered() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.layout.changed {
		return false
	}
	for _, s := range n.servers {
		if !s.Ordered() {
			return false
		}
	}
	return true
}

// Do sends one command to the master of key's slot; without a key, to some master.
func (n *node) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	return n.route(ctx, due, redisc.Slot(key), request{
		plain: func(s *server) (any, error) { return s.Do(ctx, due, cmd, key, args...) },
		asked: func(c driver.Conn) (any, error) { return c.Do(cmd, append([]any{key}, args...)...) },
	})
}

// Eval runs a script on the master of its keys' slot. Keys in several slots are refused before
// anything is sent, as by a server: with CROSSSLOT.
func (n *node) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	slot := 0
	for i, key := range keys {
		switch its := redisc.Slot(key); {
		case i == 0:
			slot = its
		case its != slot:
			return nil, n.failed(strategy.ErrRefused, errSeveralSlots)
		}
	}
	return n.route(ctx, due, slot, request{
		plain: func(at *server) (any, error) { return at.Eval(ctx, due, s, keys, args...) },
		asked: func(c driver.Conn) (any, error) {
			// In full: ASKING admits the next command alone.
			all := make([]any, 0, 2+len(keys)+len(args))
			all = append(all, s.Source(), len(keys))
			for _, key := range keys {
				all = append(all, key)
			}
			return c.Do("EVAL", append(all, args...)...)
		},
	})
}

// Probe asks the masters in use whether they were away, and are masters still. If one was, or is not, it
// asks the cluster who has the slots now.
func (n *node) Probe(ctx context.Context, due time.Time) (returns uint64) {
	var all sync.WaitGroup
	for _, s := range n.masters() {
		all.Go(func() {
			defer s.users.Done()
			n.returned(s, s.Probe(ctx, due))
		})
	}
	all.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.returns
}

func (n *node) returned(s *server, returns uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if returns > s.returns {
		n.returns, s.returns = n.returns+returns-s.returns, returns
		n.ask()
	}
}

// masters are the servers in use that have a slot. The caller gives each back with users.Done.
func (n *node) masters() (all []*server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := map[string]bool{}
	for _, addr := range n.layout.owners {
		if s := n.servers[addr]; s != nil && !seen[addr] {
			seen[addr] = true
			s.users.Add(1)
			all = append(all, s)
		}
	}
	return all
}

var errSeveralSlots = errors.New("CROSSSLOT Keys in request don't hash to the same slot")

// Close says that one user less is there. When none is left it ends what is under way, as it does for one server:
// requests that were sent are [strategy.ErrUnknown], others [strategy.ErrUnsent], and both are [strategy.ErrClosed]. It
// waits for the Node's goroutines and sessions. It must not be called from inside a function
// that was given to Session or Subscribe. A second call changes nothing.
func (n *node) Close() error {
	if !n.Leave() {
		return nil
	}
	n.mu.Lock()
	n.closed = true
	for _, s := range n.servers {
		n.work.Go(s.close)
	}
	n.mu.Unlock()
	n.cancel(strategy.ErrClosed)
	n.work.Wait()
	return nil
}

func (s *server) close() {
	s.Node.Close() //nolint:errcheck // neither has any
	s.pool.Close()
}

// at returns the server at an address, which the caller gives back with users.Done.
func (n *node) at(addr string) (*server, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, strategy.ErrClosed
	}
	s := n.servers[addr]
	if s == nil {
		var err error
		if s, err = n.newServer(addr); err != nil {
			return nil, err
		}
		n.servers[addr] = s
	}
	s.users.Add(1)
	return s, nil
}

func (n *node) newServer(addr string) (*server, error) {
	pool := &redis.Pool{
		MaxIdle:     8,
		IdleTimeout: 2 * time.Minute,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, n.cluster.DialOptions...)
		},
	}
	if create := n.cluster.CreatePool; create != nil {
		var err error
		if pool, err = create(addr, n.cluster.DialOptions...); err != nil {
			return nil, fmt.Errorf("CreatePool for %s: %w", addr, err)
		}
	}
	one := redigonode.New(pool)
	if err := one.Use(); err != nil {
		return nil, fmt.Errorf("CreatePool for %s: %w", addr, err)
	}
	return &server{addr: addr, Node: one, pool: pool}, nil
}

// retire ends the use of servers that the cluster has not any more. The caller holds n.mu.
func (n *node) retire(removed func(addr string) bool) {
	for addr, s := range n.servers {
		if !removed(addr) {
			continue
		}
		delete(n.servers, addr)
		n.work.Go(func() {
			s.users.Wait() // no new user comes: the map does not have it any more
			s.close()
		})
	}
}

func (n *node) failed(kind, err error) error {
	return &strategy.ServerError{Node: n.Name(), Kind: kind, Err: err}
}

// named puts the address into an error of a server that has not reported its own.
func (s *server) named(err error) error {
	var failed *strategy.ServerError
	if errors.As(err, &failed) && failed.Node == driver.Unnamed {
		named := *failed
		named.Node = s.addr
		return &named
	}
	return err
}

// splitAddr splits host:port at the last colon, as Redis writes IPv6 without brackets.
func splitAddr(addr string) (host, port string, err error) {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 || i == len(addr)-1 {
		return "", "", fmt.Errorf("%q is no address: want host:port", addr)
	}
	return strings.Trim(addr[:i], "[]"), addr[i+1:], nil
}

// candidates are the servers to ask about the cluster: those that are known, then the startup nodes.
func (n *node) candidates() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, addr := range slices.Concat(n.layout.addrs, n.cluster.StartupNodes) {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}
