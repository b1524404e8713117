package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Node is one Redis server, or a cluster: what the New of each package in clients returns, and what the New of each algorithm
// takes. To use another client, implement Node. From v1 on, a minor version may add methods: a decorator embeds Node.
//
// Replies are nil, int64, []byte, or []any of these. Every failure is a *[strategy.ServerError]: the server refused
// ([strategy.ErrRefused]), the command never left ([strategy.ErrUnsent]), or nobody knows ([strategy.ErrUnknown]). A Node sends
// a command again only if nothing of it was sent, or if the server has answered that it did nothing.
//
// A call ends at due at the latest, and soon after ctx does: a client that cannot interrupt a read may end it with the next
// reply, or at due. If ctx is done already no byte is sent. All methods are safe for concurrent use.
//
// Only a primary's answer counts, and after a fail-over a connection may lead to a replica. When a server refuses a command with
// READONLY (rediskit.ReadOnly), the Node leaves all its connections to that server, makes a new one, and sends the command once
// more, within the same due. It does so once a second at most. All other refusals are the caller's.
//
// A connection at rest that the server has closed costs no call: before a Node writes, it looks whether the connection has
// ended, and makes another. After a request that was not answered in time the next one goes to a new connection.
type Node interface {
	// Name says which server this is, for errors: an address, never a password.
	Name() string

	// Do sends one command. key is its first argument, by which a client of a cluster finds the server.
	Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error)

	// Eval runs a script, by hash if the server knows it, and otherwise in full: callers never see NOSCRIPT. It neither changes
	// nor keeps keys and args.
	Eval(ctx context.Context, due time.Time, s *Script, keys []string, args ...any) (any, error)

	// Session runs fn on a connection that nobody else uses meanwhile, for commands whose state lives in the connection: WATCH
	// and MULTI, WAIT. Afterwards the connection is clean, or closed. None of its commands is sent again. So before fn runs, the
	// Node asks the server whether it is a primary (rediskit.Demoted), and takes another connection if it is not.
	Session(ctx context.Context, due time.Time, key string, fn func(Conn) error) error

	// Subscribe returns once the server has confirmed the subscription, so no later message is missed; ctx bounds only that. fn
	// gets every message, one at a time. It does not block, and does not call stop. If the subscription breaks, or if its server
	// has turned out to be a replica, fn(nil, err) is the last call. After stop has returned, fn is not called again. In a cluster,
	// subscribe at the server of the channel's slot: a script counts only who listens there.
	Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error)

	// Ordered reports whether commands on one key take effect in the order of the calls, also after a call has timed out. If so,
	// a release that found nothing proves that no earlier acquire can still take effect. It may turn from true to false, never
	// back: ask after the reply, not before the call.
	Ordered() bool

	// Probe asks the server for a sign of life and for its role (HELLO), and ends at due. If it is no primary (rediskit.Demoted),
	// the Node makes a new connection, as after READONLY, and its subscriptions end. Probe returns how often the server has come
	// back so far: how often a connection was made in the place of one that was lost, or that led to a replica.
	Probe(ctx context.Context, due time.Time) (returns uint64)

	// Use says that one more strategy uses the Node: several may share it, and rediskit.Users counts them. An error says what is
	// wrong with the client; the algorithm's New returns it, and does not use the Node.
	Use() error

	// Close says that one strategy less uses the Node. The last one ends every call under way, and gives back the connections.
	Close() error
}

// Unnamed is the name of a [Node] whose address is not known yet.
const Unnamed = "server"

// BadNode is what a client's New returns if its client cannot be used: err says why, and what is allowed. It is the error of
// [Node].Use, and every call fails with it.
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

// Apply sets an algorithm's own options. The fault names each that is nil.
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

// A Conn is a connection that [Node].Session lends.
type Conn interface {
	// Do sends one command and waits for its reply, as Node.Do does.
	Do(cmd string, args ...any) (any, error)
}

// SiblingKey names another key of the same lock, in the same slot of a Redis Cluster: lock:{name}:suffix, or {key}:suffix: for a
// key without a hash tag. (A key that has a } but no hash tag has no such sibling, and works on a single Redis only.) Different
// keys or suffixes have different siblings, if no suffix has a colon.
func SiblingKey(key, suffix string) string {
	// No two are the same. The suffix stands behind the last colon, or, if the sibling ends in one, behind the last but one; and
	// only siblings of keys without a hash tag end in a colon.
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if end := strings.IndexByte(rest, '}'); end > 0 {
			return key + ":" + suffix
		}
	}
	return "{" + key + "}:" + suffix + ":"
}
