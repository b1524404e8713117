// Package rueidisnode makes a [driver.Node] of a client of github.com/redis/rueidis, for
// the New of each strategy:
//
//	locks, err := fairqueue.New(rueidisnode.New(client), strategy.Options{})
//
// # One server, or Sentinel
//
// Do and Eval share one connection, which the client lends for good: what is called while
// others wait for their replies is sent next, in one packet, and the order of the calls is
// the order of the effects. When the Node gives that connection up, nobody knows what the server
// will still read from it. So the Node kills it (CLIENT KILL) before the next connection carries
// anything: an undo on the new connection cannot overtake the acquire that it undoes. If the
// server forbids that, [driver.Node].Ordered is false.
//
// The client reads that connection also at rest, so that the Node learns when the server closes it: the next request goes
// over another. A request is lost with the connection ([strategy.ErrUnknown]) if it comes before the client's reader has
// run; with AlwaysRESP2, if it comes within a second of the connection's last reply, as nothing reads then.
//
// After a fail-over, connections may lead to what is a replica now. The Node asks for the role of each connection that
// the client lends. What a replica refuses with READONLY has changed nothing: the Node leaves the connection, ends the
// subscriptions, and sends it again over another, once a second at most.
//
// The client's own pipelines would not do: it has up to four to a server, and gives commands
// to them at random.
//
// # Cluster
//
// On a cluster Do and Eval go through the client's own pipelines: it knows which master has
// the key, and follows MOVED and ASK; TRYAGAIN, which has changed nothing either, is asked again
// until due. The order of the effects is not known there, so [driver.Node].Ordered is false from the
// start. A lock's keys share a hash tag, so they share a slot.
//
// A rueidis client with a ConnLifetime sends a command again, on a new connection, if it had
// no reply for a second after the old one's time was up. The server may have had it already. A
// token is fresh for every attempt, so that grants no lock twice; but leave ConnLifetime at zero on
// a cluster. Elsewhere it does not matter: what is lent has no such end.
//
// # What the client's options mean here
//
// Nothing is sent twice that may have been sent: rueidis retries only commands that are
// marked as read-only, and none is marked so here, whatever DisableRetry says.
//
// Dialer.Timeout bounds the making of a connection. Callers leave in their own time, but
// while a server's address swallows packets, no second attempt begins before the first has
// ended. So set it to a second or two; the default is five. Dialer.KeepAlive and
// ConnWriteTimeout say how soon the client's own PING finds that a quiet server is dead. By
// default a subscription to a server that has gone without a word ends after eleven seconds; until
// then waiters wake by the holder's remaining TTL. Where a firewall drops connections without a word, a request
// that is not answered costs one attempt: the next goes over a new connection, as idle ones then have 50 ms to
// answer. Not on a cluster: there requests are lost until the client's PING has found its pipeline, and its idle
// connections, dead, twelve seconds by default. With a ConnWriteTimeout of a second that takes three, so a lease
// whose TTL is ten seconds is kept.
//
// A Node takes two connections of the client's BlockingPoolSize, one for requests and one for
// subscriptions, and one more for each session: take-overs of setnxgetset.WithWatchTakeOver, and
// Options.Acks. On a cluster requests take none, and subscriptions one to each master. A user
// of the server needs, in addition to what the strategy sends, CLIENT INFO and CLIENT KILL for the
// order. On a cluster it also needs CLUSTER MYID, without which each channel has its own connection.
// And it needs EXISTS on keys called like the channels, without which a subscription stays where it
// was when its slot moves.
package rueidisnode

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

var _ driver.Node = (*node)(nil)

// node is what a rueidis client leads to: one Redis server, the master that Sentinel names,
// or a cluster. It is safe for concurrent use.
type node struct {
	rediskit.Users

	client    rueidis.Client
	cluster   bool
	fixed     string                 // the address, where there is one
	learned   atomic.Pointer[string] // the server's own word for it
	unordered atomic.Bool            // the server forbids what order needs; for good

	pipe   pipe
	sub    *subscription.Subscriber
	calls  *client.Gate // sessions, and calls to a cluster
	silent client.Silence
	idle   idleConns      // connections that were given back, and may be lent again
	work   client.Hanging // whatever runs next to the callers
}

// New makes a Node of a client and does no I/O. The client stays the caller's: Close does not
// close it. Close the Node, or the strategy that has it, before the client: connections that
// are lent outlive the client's Close.
//
// No client (nil) is an error of the strategy's New.
func New(c rueidis.Client) driver.Node {
	if c == nil {
		return driver.BadNode(errors.New("locks: the rueidis.Client is nil: make one with rueidis.NewClient"))
	}
	n := &node{client: c, cluster: c.Mode() == rueidis.ClientModeCluster, calls: client.NewGate()}
	n.fixed = addressOf(c, n.cluster)
	n.unordered.Store(n.cluster)
	n.pipe.n = n
	n.sub = newSubscriber(n)
	return n
}

// addressOf is the address that the user gave, if it is the server's for good.
func addressOf(client rueidis.Client, cluster bool) string {
	var addrs []string
	if client.Mode() != rueidis.ClientModeSentinel {
		for addr := range client.Nodes() {
			addrs = append(addrs, addr)
		}
	}
	switch slices.Sort(addrs); {
	case cluster && len(addrs) > 0:
		return "cluster of " + addrs[0]
	case len(addrs) == 1:
		return addrs[0]
	}
	return "" // Sentinel may name another, and of several only one is the master
}

// Name returns the address that the client was given. With Sentinel, and with replicas next
// to the server, it is the address at which the server sees itself reached, and [driver.Unnamed] until
// it has said so. That of a cluster begins with "cluster of".
func (n *node) Name() string {
	if n.fixed != "" {
		return n.fixed
	}
	if s := n.learned.Load(); s != nil {
		return *s
	}
	return driver.Unnamed
}

// Ordered reports whether commands on one key take effect in the order of the calls, also
// after a call has timed out. It turns false, for good, when the server refuses to tell a
// connection who it is (CLIENT INFO, Redis 6.2) or to kill one that was given up (CLIENT
// KILL). Of a cluster it is false from the start.
//
// If it is false, an undo that finds nothing proves nothing: the engine repeats it until it finds
// the token, or a TTL has passed since the server gave a sign of life. So after a lost reply a lock
// that nobody holds may appear in between, and keep others out for that time. There are never two
// holders.
func (n *node) Ordered() bool { return !n.unordered.Load() }

// Do sends one command. An empty key without further arguments sends the bare command, such
// as TIME. On a cluster a command without a key goes to any node.
//
// A caller that is alone reads for itself, and cannot be interrupted meanwhile: when its ctx
// ends it returns with the reply, at due at the latest.
func (n *node) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	if err := allowed(cmd); err != nil {
		return nil, n.unsent(err)
	}
	words := make([]string, 0, 1+len(args))
	if key != "" || len(args) > 0 {
		words = append(words, key)
	}
	return n.send(ctx, due, command{key, cmd, appendPlain(words, args)})
}

// Eval runs a script by its hash, and in full if the server does not know it. A NOSCRIPT has
// changed nothing, so the second request cannot double the first; it is a call of its own,
// which is not made when ctx or due have ended meanwhile.
//
// All keys have to lie in one slot of a cluster; it refuses others, and nothing has changed.
func (n *node) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	reply, err := n.send(ctx, due, n.script("EVALSHA", s.Hash(), keys, args))
	if rediskit.NoScript(err) {
		return n.send(ctx, due, n.script("EVAL", s.Source(), keys, args))
	}
	return reply, err
}

func (n *node) script(cmd, script string, keys []string, args []any) command {
	words := make([]string, 0, 2+len(keys)+len(args))
	words = append(words, script, plain(len(keys)))
	words = append(words, keys...)
	first := ""
	if len(keys) > 0 {
		first = keys[0]
	}
	return command{first, cmd, appendPlain(words, args)}
}

// A command can be sent more than once. What the client makes of it cannot: the client takes that back.
type command struct {
	key   string
	name  string
	words []string
}

// command makes the client's command. The slot is that of the first key: the builder would
// panic at keys of several slots, where the server refuses them.
func (n *node) command(c command) rueidis.Completed {
	built := n.client.B().Arbitrary(c.name).Args(c.words...).Build()
	if n.cluster && c.key != "" {
		built = built.SetSlot(c.key)
	}
	return built
}

func (n *node) send(ctx context.Context, due time.Time, c command) (any, error) {
	if err := timeup.Why(ctx, due); err != nil {
		return nil, n.unsent(err)
	}
	if n.cluster {
		return n.route(ctx, due, n.command(c))
	}
	return n.pipe.do(ctx, &op{command: c, due: due})
}

// Probe asks the server for its role by HELLO, and returns how often another connection for requests took the
// place of one that was lost, or led to a replica. Of a cluster the client does not report that: it is always 0.
func (n *node) Probe(ctx context.Context, due time.Time) (returns uint64) {
	if n.cluster {
		return 0
	}
	for range 2 { // the first may find the connection lost, or a replica, the second makes another
		hello, err := n.Do(ctx, due, "HELLO", "")
		if !errors.Is(err, strategy.ErrUnknown) && !(err == nil && rediskit.Demoted(hello) && n.pipe.abandon()) {
			break
		}
	}
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	return n.pipe.returns.Count
}

// closeGrace is how long Close waits for connections that are being made or closed: rueidis
// can be interrupted in neither, and closing takes it a second if the server does not answer.
const closeGrace = 2 * time.Second

// Close says that one user less is there. When none is left it ends what is under way: requests that were sent
// are [strategy.ErrUnknown], others [strategy.ErrUnsent], and both are [strategy.ErrClosed]. The connections are
// closed. Sessions end with the reply to the command that they wait for, or at
// their due time, and Close waits for them; for connections under way it waits two seconds at
// most, and then leaves them to close themselves. Close must not be called from inside a function that
// was given to Session or Subscribe. A second call changes nothing. The error is nil.
func (n *node) Close() error {
	if !n.Leave() {
		return nil
	}
	n.calls.Close() // first: no other connection can undo what they leave unconfirmed
	n.pipe.close()
	n.sub.Close()
	n.calls.Wait()
	n.work.Go(n.sub.Wait)
	n.work.Wait(closeGrace)
	return nil
}
