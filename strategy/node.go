package strategy

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// A Node is one Redis server as a [Protocol] sees it. Each strategy's New makes
// one from a *redis.Pool; other clients are adapted by implementing Node and
// handing it to the strategy's On.
//
// Replies are nil, int64, []byte, or []any of these. Every failure is a
// *[ServerError] that says which of three things is true: the server refused
// ([ErrRefused]), the command never left ([ErrUnsent]), or nobody knows
// ([ErrUnknown]). A Node never retries a command that it may have sent.
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
	// callers never see NOSCRIPT.
	Eval(ctx context.Context, due time.Time, s *Script, keys []string, args ...any) (any, error)

	// Session runs fn on a connection that nobody else uses meanwhile, for
	// commands whose state lives in the connection: WATCH and MULTI, WAIT.
	// The connection is clean again, or closed, when Session returns.
	Session(ctx context.Context, due time.Time, key string, fn func(Conn) error) error

	// Subscribe returns once the server has confirmed the subscription, so what
	// is published after that is heard. fn gets every message, one at a time; it
	// must not block. A subscription that breaks ends with a single fn(nil, err);
	// the caller decides whether to subscribe again. After stop has returned, fn
	// is not called again. ctx bounds only the confirmation.
	//
	// In a cluster it is the server of the channel's slot that has to be listened to: whoever
	// listens elsewhere hears, too, but scripts do not see him, and make others their heirs.
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

// A Conn is a connection of one's own, lent by [Node].Session.
type Conn interface {
	// Do sends one command and waits for its reply, as Node.Do does.
	Do(cmd string, args ...any) (any, error)
}

// A Script is Lua that runs on the server, atomically.
type Script struct {
	name, source, hash string
	arg                any // hash
	joint              bool
	shared             int
}

// NewScript makes a script from its source. The name is for errors and docs.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source)) // Redis names scripts by SHA-1; it protects nothing here
	hash := hex.EncodeToString(sum[:])
	return &Script{name: name, source: source, hash: hash, arg: hash}
}

// NewJointScript makes a script that serves several callers in one request, where a [Node]
// finds that they call it at the same time: what a request and a script cost at all is then
// spent once for all of them. A Node need not do so; each of its callers has its answer in
// either case, as from a script of its own.
//
// For n callers KEYS has the first key of each, then the second of each, and so on. ARGV has
// the first arguments, as many as shared says, once: who differs in them is not called
// together. Then come the others, in the order that the keys have. What the script returns for
// several callers is an array of what it returns for each; an error in it is one caller's, and
// says that for this one nothing was changed. [EachLua] makes it so.
func NewJointScript(name string, shared int, source string) *Script {
	s := NewScript(name, source)
	s.joint, s.shared = true, shared
	return s
}

// Joint reports whether the script serves several callers at once, and how many of their
// arguments they have in common. For those who write a [Node].
func (s *Script) Joint() (shared int, ok bool) { return s.shared, s.joint }

// Missing tells whether err is a server's word that it does not have the script: it has
// changed nothing, and the script is to be sent in full. For those who write a [Node].
func (s *Script) Missing(err error) bool {
	if err == nil {
		return false // soon: it is asked of every reply
	}
	var said *ServerError
	return errors.As(err, &said) && said.Kind == ErrRefused && said.Err != nil && strings.HasPrefix(said.Err.Error(), "NOSCRIPT ")
}

// ErrorReply is the failure that a server's error reply tells of: it has refused, and nothing
// has changed ([ErrRefused]). But a script that a Redis Cluster ends in its middle has changed
// something ([ErrUnknown]): one that meets a key that it has just deleted, and that lies
// elsewhere now, as its slot is moving. node is the server's name. For those who write a [Node].
func ErrorReply(node string, reply error) error {
	kind := ErrRefused
	if strings.Contains(reply.Error(), "attempted to access a non local key") {
		kind = ErrUnknown
	}
	return &ServerError{Node: node, Kind: kind, Err: reply}
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Source returns the Lua source.
func (s *Script) Source() string { return s.source }

// Hash returns the SHA-1 of the source in hexadecimal, as EVALSHA wants it.
func (s *Script) Hash() string { return s.hash }

// HashArg returns Hash as the argument of a command, which a string is not made without an
// allocation.
func (s *Script) HashArg() any { return s.arg }
