// Package goredisnode makes a [driver.Node] of a client of github.com/redis/go-redis/v9, for
// the New of each strategy:
//
//	locks, err := fairqueue.New(goredisnode.New(client), strategy.Options{})
//
// The client stays the user's: its pool, its hooks, its credentials, its TLS are what locks
// use, and Close does not close it.
//
// # What the client must be
//
// A *redis.Client, also one of redis.NewFailoverClient; a *redis.ClusterClient; or a struct that embeds one
// of them. [New] refuses any other client, and says why.
//
// Its Options.ContextTimeoutEnabled must be true: without it go-redis does not hand the time-out of an
// operation to the connection, and a request to a server that is silent goes on for ReadTimeout after its
// caller has left. If the rest of the program should not have that setting, call [NewDerived] in place of
// New.
//
// A hook of a *redis.Client (AddHook), and the method Process of a struct around it, see each command and
// script of a lock. They do not see subscriptions, nor what needs a connection for itself
// ([strategy.Options].Acks, WATCH): so they must not change what a command says. They may refuse it. If they
// send it twice, the second is refused. Of a *redis.ClusterClient only the hooks of its nodes (OnNewNode)
// see commands.
//
// MaxRetries may have any value. If an answer is lost, go-redis sends the command again, and would
// then find the lock held by its own token. This package keeps go-redis from that: it refuses a
// second attempt to write a command. It does not use client-side caching.
//
// # What is different from redigo
//
// Each command has a connection of the pool to itself. When one is not answered, and another
// follows on another connection, the server may read the second before the first. So
// [driver.Node].Ordered is false, for good, and that costs:
//
//   - An acquire whose answer was lost is undone as soon as its lock is found. If it is not
//     found, the request may still arrive: the engine looks again until a TTL has passed, or
//     until [strategy.Strategy.Close]. Callers do not wait for that. On redigo the first look is enough.
//   - If the request arrives after the last look, the lock stays until its TTL ends.
//   - Where docs/learn/faults.md has an acquire, or its answer, that is lost or late, the undo may take up
//     to a TTL. The verdicts there stay the same: exclusion, loss and fences do not rest on order, and
//     no caller waits for the undo.
//
// A new connection costs up to three round trips after the dial, within the call that needs it
// first. If that call runs out of time, another connection is made in the background, so that a
// later call finds it ready.
//
// Requests that callers make at the same time use a connection each, and not one packet. All these
// connections are the pool's. If the rest of the program uses all of them (PoolSize), locks cannot
// send, and a renewal comes too late. In docs/learn/faults.md "pool exhausted" is then ○ for all
// strategies.
//
// A call whose ctx is cancelled after its request has left ends with the reply, or at its due
// time, as go-redis does not interrupt a read. Close waits for that.
//
// # Connections that are not used any more
//
// A request that is not answered in time, or whose connection ends before the reply, says the same of all
// connections of its age: a firewall has dropped them. So the Node closes those of the pool that are at rest,
// also those of the rest of the program, and the next request goes over a new one. A caller whose own ctx has
// ended early closes none but that of its request.
//
// go-redis looks whether a connection has ended before it lends it. Over TLS it cannot. So there a request
// comes behind a PING if the server has not answered for a second.
//
// After a fail-over, connections may lead to what is a replica now. A request that is refused with READONLY
// has changed nothing: the Node closes the connections at rest, ends the subscriptions, and sends the request
// again, until a new connection leads to a replica, too. For the next second a refusal is the caller's at once.
// A session begins with HELLO, which tells the server's role. That is one round trip.
//
// # Cluster
//
// A key is served by the master of its slot. MOVED and ASK are followed, up to three times for
// one command: the server has not run it. All other refusals (CLUSTERDOWN, TRYAGAIN,
// CROSSSLOT) are the caller's, in the server's words. A session (WATCH, WAIT) follows MOVED
// before it begins, never in the middle, and not ASK: while a slot is being moved, and the
// lock is not on its old master any more, what needs one is refused.
//
// # Subscriptions
//
// One connection, outside of the pool, is for all subscriptions of a Node; of a cluster, one to
// each master that has some. go-redis would connect and subscribe again by itself when it
// breaks, and say nothing of the messages that were lost meanwhile. This package prevents that: the
// subscription ends with an error. It also ends when the server turns out to be a replica, and when
// the channel's slot has moved.
package goredisnode

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// node is a server, or a cluster, behind a client of go-redis.
type node struct {
	rediskit.Users

	to         route
	password   string          // as far as the client's options say it
	life       context.Context // ends with Close, and then mu is held
	end        context.CancelFunc
	endDerived func() error // closes a client of the node's own, if it has one
	sub        *subscription.Subscriber

	mu       sync.Mutex
	warming  map[*redis.Client]bool
	answered map[*redis.Client]time.Time // see answers
	returns  uint64                      // see Probe
	calls    sync.WaitGroup

	leaving        sync.Mutex // nobody asks again before the old connections are closed
	leftAt         time.Time  // when a replica was left last
	replicaAgainAt time.Time  // when a new connection led to a replica last
}

// New makes a Node of a client. It does no I/O. A client that cannot be used is an error of the strategy's
// New, which says what is allowed. The client is the caller's to close, after the Node.
func New(client redis.UniversalClient) driver.Node {
	to, set, err := routeOf(client)
	if err == nil && !set.contexts {
		err = errors.New("goredis: the client's Options.ContextTimeoutEnabled is false, so a request that is not answered " +
			"goes on after its time-out: set it, or call goredisnode.NewDerived in place of New")
	}
	if err != nil {
		return driver.BadNode(err)
	}
	n := &node{to: to, password: set.password, warming: map[*redis.Client]bool{}, answered: map[*redis.Client]time.Time{}}
	n.life, n.end = context.WithCancel(context.Background())
	n.sub = subscription.New(&listening{n})
	return n
}

// NewDerived makes a Node of a client that it derives from the caller's: the options are the same, but
// ContextTimeoutEnabled is true. It does no I/O. The caller's client does not change, and is the caller's to
// close, after the Node.
//
// A client that is derived from a *redis.Client shares its connections. One that is derived from a
// *redis.ClusterClient has connections of its own, in pools of the same sizes, and is closed with the Node.
//
// The derived client has none of the hooks that were added to the caller's, and calls no method of a struct
// around it. To trace or count the requests of locks, add hooks in prepare, which is called with the derived
// client once:
//
//	node := goredisnode.NewDerived(client, func(c redis.UniversalClient) { redisotel.InstrumentTracing(c) })
//
// Two kinds of clients cannot be derived, which is an error of the strategy's New: those with a ReadTimeout
// or WriteTimeout of -2, and those of a cluster with ClusterSlots.
func NewDerived(client redis.UniversalClient, prepare ...func(redis.UniversalClient)) driver.Node {
	_, _, err := routeOf(client)
	if err != nil {
		return driver.BadNode(err)
	}
	own, end, err := derived(client)
	if err != nil {
		return driver.BadNode(err)
	}
	for _, add := range prepare {
		if add == nil {
			return driver.BadNode(errors.New("goredis: a function that is to prepare the derived client is nil"))
		}
		add(own)
	}
	n := New(own)
	n.(*node).endDerived = end
	return n
}

// Name returns the address that the client was given; of a cluster, all of them, and "redis"
// where it is Sentinel who tells the address.
func (n *node) Name() string { return n.to.name() }

// Ordered is false: see the package's documentation.
func (n *node) Ordered() bool { return false }

// Do sends one command. An empty key without further arguments sends the bare command, such
// as TIME; of a cluster, any master answers that.
func (n *node) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	all := make([]any, 1, 2+len(args)) // the first is the command's place
	if key != "" || len(args) > 0 {
		all = append(all, key)
	}
	return n.send(ctx, due, key, cmd, appendPlain(all, args))
}

// Eval runs a script by its hash, and in full if the server does not know it. A NOSCRIPT has
// changed nothing, so the second request cannot double the first; it is a call of its own,
// which is not made when ctx or due have ended meanwhile.
func (n *node) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	reply, err := n.eval(ctx, due, "EVALSHA", s.HashArg(), keys, args)
	if rediskit.NoScript(err) {
		return n.eval(ctx, due, "EVAL", s.Source(), keys, args)
	}
	return reply, err
}

func (n *node) eval(ctx context.Context, due time.Time, cmd string, script any, keys []string, args []any) (any, error) {
	all := make([]any, 3, 3+len(keys)+len(args))
	all[1], all[2] = script, len(keys)
	for _, k := range keys {
		all = append(all, k)
	}
	first := ""
	if len(keys) > 0 {
		first = keys[0]
	}
	return n.send(ctx, due, first, cmd, appendPlain(all, args))
}

// Probe asks the server for its role by HELLO, and once that is answered returns how many connections of the
// pool have ended. go-redis counts no more than that: a connection that was closed because of its age counts
// like one that was lost, or led to a replica. Of a cluster it is always 0.
func (n *node) Probe(ctx context.Context, due time.Time) (returns uint64) {
	to, one := n.to.(single)
	if !one {
		return 0
	}
	call, err := n.begin(ctx, due)
	if err == nil {
		call.client = to.client
		var conn *redis.Conn
		if conn, err = call.lend(); err == nil {
			conn.Close() //nolint:errcheck // it cannot fail
		}
		call.done()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || errors.Is(err, strategy.ErrRefused) {
		n.returns = uint64(to.client.PoolStats().StaleConns)
	}
	return n.returns
}

// maxRedirects is how often one command follows MOVED or ASK.
const maxRedirects = 3

// send sends a command to the server of the key.
func (n *node) send(ctx context.Context, due time.Time, key, name string, args []any) (any, error) {
	call, err := n.begin(ctx, due)
	if err != nil {
		return nil, err
	}
	defer call.done()

	client, err := n.to.at(call.ctx, key)
	if err != nil {
		return nil, call.unsent(err)
	}
	on := n.to.through(client)
	for redirects := 0; ; redirects++ {
		call.client = client
		call.probeIdle()
		reply, err := call.run(on, name, args)
		if ofReplica(err) && !n.to.many() {
			reply, err = call.resend(on, name, args, err)
		}
		if err != nil && call.late() {
			n.warm(client)
		}
		if err == nil || redirects == maxRedirects {
			return reply, err
		}
		next, asking := n.to.redirect(call.ctx, key, err)
		if next == nil {
			return reply, err
		}
		client, on = next, next
		if asking {
			on = afterAsking{next}
		} else {
			n.moved()
		}
	}
}

// warmLimit is how long a connection may take to become ready behind its callers.
const warmLimit = 2 * time.Second

// warm makes a connection ready in the background, where a call has run out of time and there
// is none: go-redis greets a server within the first call that a new connection has, in up to
// three round trips, and begins again with the next call. Where that takes longer than calls may
// take, none would ever get through.
func (n *node) warm(client *redis.Client) {
	if client.PoolStats().IdleConns > 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.warming[client] {
		return
	}
	n.warming[client] = true
	n.calls.Go(func() {
		ctx, cancel := context.WithTimeout(n.life, warmLimit)
		defer cancel()
		c := &call{n: n, client: client, user: ctx, ctx: ctx, due: time.Now().Add(warmLimit)}
		c.run(client, "PING", []any{nil}) //nolint:errcheck // if it failed, the next call will say so
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.warming, client)
	})
}

// A call is one operation under way.
type call struct {
	n      *node
	client *redis.Client // of the server that is asked; nil: not known yet
	user   context.Context
	ctx    context.Context // ends with user, at due and with the Node
	due    time.Time
	stop   func() bool
	end    context.CancelFunc
}

// begin begins a call, unless ctx, due or the Node have ended.
func (n *node) begin(ctx context.Context, due time.Time) (*call, error) {
	c := &call{n: n, user: ctx, due: due}
	if why := timeup.Why(ctx, due); why != nil {
		return nil, c.failed(strategy.ErrUnsent, why)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isClosed() {
		return nil, c.failed(strategy.ErrUnsent, strategy.ErrClosed)
	}
	n.calls.Add(1)
	c.ctx, c.end = context.WithDeadline(ctx, due)
	c.stop = context.AfterFunc(n.life, c.end)
	return c, nil
}

func (c *call) done() {
	c.stop()
	c.end()
	c.n.calls.Done()
}

// Close says that one user less is there. When none is left it lets no call begin. Calls under way that wait
// for a connection end at once; those that wait for a reply end with it, or at their due time, and Close
// waits for them. If calls have run out of time before, Close also waits up to 2 s for a connection that is
// being made. It ends subscriptions, and their connection. The caller's client stays open. Close must not be called
// from inside a function that was given to Session or Subscribe. A second call changes nothing.
func (n *node) Close() error {
	if !n.Leave() {
		return nil
	}
	n.mu.Lock()
	n.end()
	n.mu.Unlock()
	n.sub.Close()
	n.calls.Wait()
	n.sub.Wait()
	if n.endDerived != nil {
		return n.endDerived()
	}
	return nil
}

func (n *node) isClosed() bool { return n.life.Err() != nil }
