// Package lending makes a [driver.Node] of a client that lends connections: of rueidis, or of valkey-go, which began as a
// copy of it. The documentation of clients/rueidis says what the Node does.
package lending

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A Client is what the Node needs of its client.
type Client interface {
	// Cluster reports whether it is a cluster's.
	Cluster() bool

	// Addrs are the servers' addresses; none: Sentinel tells them.
	Addrs() []string

	// Do sends a command by the client's own pipelines, which follow MOVED and ASK.
	Do(ctx context.Context, cmd Command) Reply

	// Dedicate lends a connection, which release gives back. The first command decides to which server of a cluster it
	// leads.
	Dedicate() (conn Conn, release func())
}

// A Conn is a connection that is lent.
type Conn interface {
	// DoMulti sends commands in one packet.
	DoMulti(ctx context.Context, cmds ...Command) []Reply

	// Hear has the client read the connection also at rest, and fn called with the messages. end hears of the connection's
	// end.
	Hear(fn func(channel, msg string)) (end <-chan error)

	Close()
}

// A Command is a command's name and its arguments.
type Command struct {
	Name  string
	Words []string
	Slot  string // a key, by which a cluster's client finds the server; empty: any server will do
}

// A Reply is what has come of a command. Only one of the errors is set.
type Reply struct {
	Value   any   // of the types of [driver.Node]
	Refusal error // the server's
	Odd     error // in the midst of a reply: next to an error in an array (EXEC) other commands took effect
	Broken  error // there is no reply
	NoSlot  bool  // because no server has the slot: nothing was sent
}

var _ driver.Node = (*Node)(nil)

// A Node is what a client leads to: one Redis server, the master that Sentinel names, or a cluster. It is safe for concurrent
// use. Tests of the clients use what is exported beyond [driver.Node].
type Node struct {
	rediskit.Users

	client    Client
	cluster   bool
	fixed     string                 // the address, where there is one
	learned   atomic.Pointer[string] // the server's own word for it
	Unordered atomic.Bool            // the server forbids what order needs; for good

	pipe   pipe
	Sub    *subscription.Subscriber
	calls  *client.Gate // sessions, and calls to a cluster
	Silent client.Silence
	idle   idleConns      // connections that were given back, and may be lent again
	work   client.Hanging // whatever runs next to the callers
}

// New makes a Node of a client, and does no I/O.
func New(c Client) *Node {
	n := &Node{client: c, cluster: c.Cluster(), calls: client.NewGate()}
	n.fixed = addressOf(c.Addrs(), n.cluster)
	n.Unordered.Store(n.cluster)
	n.pipe.n = n
	n.Sub = newSubscriber(n)
	return n
}

// addressOf is the address that the user gave, if it is the server's for good.
func addressOf(addrs []string, cluster bool) string {
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
func (n *Node) Name() string {
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
func (n *Node) Ordered() bool { return !n.Unordered.Load() }

// Do sends one command. An empty key without further arguments sends the bare command, such
// as TIME. On a cluster a command without a key goes to any node.
//
// A caller that is alone reads for itself, and cannot be interrupted meanwhile: when its ctx
// ends it returns with the reply, at due at the latest.
func (n *Node) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	if err := allowed(cmd); err != nil {
		return nil, n.unsent(err)
	}
	words := make([]string, 0, 1+len(args))
	if key != "" || len(args) > 0 {
		words = append(words, key)
	}
	return n.send(ctx, due, Command{cmd, appendPlain(words, args), key})
}

// Eval runs a script by its hash, and in full if the server does not know it. A NOSCRIPT has
// changed nothing, so the second request cannot double the first; it is a call of its own,
// which is not made when ctx or due have ended meanwhile.
//
// All keys have to lie in one slot of a cluster; it refuses others, and nothing has changed.
func (n *Node) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	reply, err := n.send(ctx, due, n.script("EVALSHA", s.Hash(), keys, args))
	if rediskit.NoScript(err) {
		return n.send(ctx, due, n.script("EVAL", s.Source(), keys, args))
	}
	return reply, err
}

// script has the slot of the first key: the server refuses keys of several slots.
func (n *Node) script(cmd, script string, keys []string, args []any) Command {
	words := make([]string, 0, 2+len(keys)+len(args))
	words = append(words, script, plain(len(keys)))
	words = append(words, keys...)
	first := ""
	if len(keys) > 0 {
		first = keys[0]
	}
	return Command{cmd, appendPlain(words, args), first}
}

func (n *Node) send(ctx context.Context, due time.Time, cmd Command) (any, error) {
	if err := timeup.Why(ctx, due); err != nil {
		return nil, n.unsent(err)
	}
	if n.cluster {
		return n.route(ctx, due, cmd)
	}
	cmd.Slot = ""
	return n.pipe.do(ctx, &op{Command: cmd, due: due})
}

// Probe asks the server for its role by HELLO, and returns how often another connection for requests took the
// place of one that was lost, or led to a replica. Of a cluster the client does not report that: it is always 0.
func (n *Node) Probe(ctx context.Context, due time.Time) (returns uint64) {
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

// CloseGrace is how long Close waits for connections that are being made or closed: the client
// can be interrupted in neither, and closing takes it a second if the server does not answer.
const CloseGrace = 2 * time.Second

// Close says that one user less is there. When none is left it ends what is under way: requests that were sent
// are [strategy.ErrUnknown], others [strategy.ErrUnsent], and both are [strategy.ErrClosed]. The connections are
// closed. Sessions end with the reply to the command that they wait for, or at
// their due time, and Close waits for them; for connections under way it waits two seconds at
// most, and then leaves them to close themselves. Close must not be called from inside a function that
// was given to Session or Subscribe. A second call changes nothing. The error is nil.
func (n *Node) Close() error {
	if !n.Leave() {
		return nil
	}
	n.calls.Close() // first: no other connection can undo what they leave unconfirmed
	n.pipe.close()
	n.Sub.Close()
	n.calls.Wait()
	n.work.Go(n.Sub.Wait)
	n.work.Wait(CloseGrace)
	return nil
}
