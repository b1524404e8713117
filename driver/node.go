package driver

import (
	"context"
	"strings"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Node is one Redis server as a [Protocol] sees it. Each strategy's New makes one from a
// *redis.Pool. To use another client, implement Node and give it to the strategy's On.
//
// Replies are nil, int64, []byte, or []any of these. Every failure is a
// *[strategy.ServerError] that says which of three things is true: the server refused
// ([strategy.ErrRefused]), the command never left ([strategy.ErrUnsent]), or nobody knows
// ([strategy.ErrUnknown]). A Node never retries a command that it may have sent.
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
	// The connection is clean again, or closed, when Session returns.
	Session(ctx context.Context, due time.Time, key string, fn func(Conn) error) error

	// Subscribe returns once the server has confirmed the subscription, so no later message is
	// missed. fn gets every message, one at a time. It does not block, and does not call stop. A
	// subscription that breaks ends with a single fn(nil, err); the caller decides whether to
	// subscribe again. After stop has returned, fn is not called again. ctx bounds only the
	// confirmation.
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

	// Close ends every call under way and gives back the connections.
	Close() error
}

// A Conn is a connection that [Node].Session lends.
type Conn interface {
	// Do sends one command and waits for its reply, as Node.Do does.
	Do(cmd string, args ...any) (any, error)
}

// ErrorReply is the error for a server's error reply: it has refused, and nothing has changed
// ([strategy.ErrRefused]). There is one exception: a Redis Cluster ends a script in its middle if that
// meets a key it has just deleted while the slot moves ([strategy.ErrUnknown]). node is the server's
// name. For authors of a [Node].
func ErrorReply(node string, reply error) error {
	kind := strategy.ErrRefused
	if strings.Contains(reply.Error(), "attempted to access a non local key") {
		kind = strategy.ErrUnknown
	}
	return &strategy.ServerError{Node: node, Kind: kind, Err: reply}
}

// ReadOnly reports whether a server's error reply says that the server is a replica, to which nobody can
// write. Redis 7.0 says so in the first word, also from within a script. Redis 6.2 raises the same as
// "ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY …", and a script
// that catches it has all that follows the first colon. For authors of a [Node].
func ReadOnly(reply error) bool {
	return strings.HasPrefix(reply.Error(), "READONLY ") || strings.Contains(reply.Error(), ": -READONLY ")
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
