package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Node is one Redis server, or a cluster, as a [Protocol] sees it: what the New of each package in clients returns,
// and what the New of each algorithm takes. To use another client, implement Node. From v1 on, a minor version may add methods:
// a decorator embeds Node.
//
// Replies are nil, int64, []byte, or []any of these. Every failure is a
// *[strategy.ServerError] that says which of three things is true: the server refused
// ([strategy.ErrRefused]), the command never left ([strategy.ErrUnsent]), or nobody knows
// ([strategy.ErrUnknown]). A Node never sends a command again that it may have sent, unless the server
// has answered that it did nothing.
//
// Servers change places while connections live: after a fail-over, a connection may lead to what is a
// replica now. Only a primary's answer counts. A command that is refused with READONLY (rediskit.ReadOnly) has
// changed nothing. The Node then leaves all its connections to that server, makes a new one, and sends the
// command once more, within the same due. The caller gets the refusal only if the server at the end of
// the new connection gives it, too. A Node does this once a second at most; a refusal in between is the
// caller's at once. A server that tells a probe that it is no primary counts as one that refuses ([Node].Probe).
//
// A connection at rest that the server has closed costs no call: before a Node writes to it, it looks
// whether the connection has ended, and makes another. After a request that was not answered in time the
// next one goes to a new connection, because whatever silenced the first may silence all others of its age.
//
// A call ends at due at the latest, and soon after ctx does: a client that cannot
// interrupt a read may end it with the next reply, or at due. If ctx is done
// already no byte is sent. All methods are safe for concurrent use.
type Node interface {
	// Name says which server this is, for errors: an address, never a password.
	Name() string

	// Do sends one command. key is its first argument, apart so that a client
	// of a cluster can route by it.
	Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error)

	// Eval runs a script, by hash where the server knows it. A script that the
	// server has forgotten (SCRIPT FLUSH, restart, fail-over) is sent in full;
	// callers never see NOSCRIPT. Eval neither changes nor keeps keys and args: several
	// nodes may get the same.
	Eval(ctx context.Context, due time.Time, s *Script, keys []string, args ...any) (any, error)

	// Session runs fn on a connection that nobody else uses meanwhile, for
	// commands whose state lives in the connection: WATCH and MULTI, WAIT.
	// The connection is clean again, or closed, when Session returns. None of its commands is sent
	// again, also not after READONLY. So before fn runs, the Node asks the server of this connection
	// whether it is a primary (rediskit.Demoted), and takes another connection if it is not.
	Session(ctx context.Context, due time.Time, key string, fn func(Conn) error) error

	// Subscribe returns once the server has confirmed the subscription, so no later message is
	// missed. fn gets every message, one at a time. It does not block, and does not call stop. A
	// subscription that breaks ends with a single fn(nil, err); the caller decides whether to
	// subscribe again. So ends a subscription to a server that has turned out to be a replica: a release
	// at the new primary counts only who listens there. After stop has returned, fn is not called again.
	// ctx bounds only the confirmation.
	//
	// In a cluster, subscribe at the server of the channel's slot. A subscriber at another server gets
	// the messages, too, but scripts do not count it, and grant the lock to the next in the queue.
	Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error)

	// Ordered reports whether commands on one key take effect in the order of
	// the calls, also after a call has timed out. If so, a release that found
	// nothing proves that no earlier acquire can still take effect. It may turn
	// from true to false (the server forbids what the promise needs), never back;
	// ask after the reply, not before the call.
	Ordered() bool

	// Probe asks the server for a sign of life and for its role, and ends at due. It sends HELLO without arguments; a
	// server that is no primary (rediskit.Demoted) counts as one that refuses with READONLY: the Node makes a new connection,
	// and its subscriptions end. Probe returns how often the server has come back so far: how often a connection was made
	// in the place of one that was lost, or that led to a replica. A number that grows although the server was not away
	// costs a renewal and does no harm.
	Probe(ctx context.Context, due time.Time) (returns uint64)

	// Use says that one more strategy uses the Node: several may share it, and [Users] counts them. An error says what is
	// wrong with the client, and that the Node is not used: the algorithm's New returns it.
	Use() error

	// Close says that one strategy less uses the Node. When none is left it ends every call under way and gives
	// back the connections.
	Close() error
}

// Unnamed is the name of every [Node] whose server has not reported its address yet.
const Unnamed = "redis"

// BadNode is what a client's New returns if its client cannot be used: err says why, and what is allowed. It is the error of
// each algorithm's New on that node, and of every call.
func BadNode(err error) Node { return &badNode{err} }

type badNode struct{ err error }

func (n *badNode) unsent() error {
	return &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnsent, Err: n.err}
}

func (n *badNode) Name() string { return Unnamed }

func (n *badNode) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return nil, n.unsent()
}

func (n *badNode) Eval(context.Context, time.Time, *Script, []string, ...any) (any, error) {
	return nil, n.unsent()
}

func (n *badNode) Session(context.Context, time.Time, string, func(Conn) error) error {
	return n.unsent()
}

func (n *badNode) Subscribe(context.Context, string, func([]byte, error)) (func(), error) {
	return nil, n.unsent()
}

func (n *badNode) Ordered() bool                           { return true }
func (n *badNode) Probe(context.Context, time.Time) uint64 { return 0 }
func (n *badNode) Use() error                              { return n.err }
func (n *badNode) Close() error                            { return nil }

// NodeOf is n, or a [BadNode], if n is nil or its algorithm has a fault of its own. For an algorithm's On.
func NodeOf(n Node, fault error) Node {
	if n == nil {
		fault = errors.Join(errors.New("locks: the node is nil: allowed is what the New of a client returns"), fault)
	}
	if fault != nil {
		return BadNode(fault)
	}
	return n
}

// Apply sets an algorithm's own options. None may be nil.
func Apply[P any, O ~func(*P)](p *P, options []O) (fault error) {
	for i, set := range options {
		if set == nil {
			fault = errors.Join(fault, fmt.Errorf("locks: option %d is nil: allowed are what functions of the algorithm's package return", i+1))
			continue
		}
		set(p)
	}
	return fault
}

// Users counts the strategies that use a [Node]. For authors of one, to embed.
type Users struct{ left atomic.Int64 }

// Use is [Node].Use of a client that can be used.
func (u *Users) Use() error {
	u.left.Add(1)
	return nil
}

// Leave takes one away, and reports whether none is left: then Close closes the Node.
func (u *Users) Leave() bool { return u.left.Add(-1) <= 0 }

// A Conn is a connection that [Node].Session lends.
type Conn interface {
	// Do sends one command and waits for its reply, as Node.Do does.
	Do(cmd string, args ...any) (any, error)
}

// SiblingKey names a key that belongs to key and lies in the same slot of a Redis Cluster:
// lock:{name}:suffix, or, for a key without a hash tag, {key}:suffix: with a colon at its end. A key
// that has a } but no hash tag has no such sibling: such an Options.Key works on a single Redis only.
//
// Different keys, or suffixes, have different siblings, if no suffix contains a colon: what follows the
// last colon, or, where that is the end, the last but one, is the suffix; and only keys without a hash
// tag have siblings that end in a colon.
func SiblingKey(key, suffix string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if end := strings.IndexByte(rest, '}'); end > 0 {
			return key + ":" + suffix
		}
	}
	return "{" + key + "}:" + suffix + ":"
}
