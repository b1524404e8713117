package lending

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

func (n *Node) refused(err error) error { return n.failed(strategy.ErrRefused, err) }
func (n *Node) unsent(err error) error  { return n.failed(strategy.ErrUnsent, err) }
func (n *Node) unknown(err error) error { return n.failed(strategy.ErrUnknown, err) }

func (n *Node) failed(kind, err error) error {
	return &strategy.ServerError{Node: n.Name(), Kind: kind, Err: err}
}

// answered turns a reply into what the contract says: the server spoke. With an error in the midst of a reply, the outcome of
// the whole is unknown.
func (n *Node) answered(r Reply) (any, error) {
	switch {
	case r.Refusal != nil:
		return nil, rediskit.ErrorReply(n.Name(), r.Refusal)
	case r.Odd != nil:
		return nil, n.unknown(r.Odd)
	}
	return r.Value, nil
}

// ofReplica reports whether the server has refused to write.
func (r Reply) ofReplica() bool { return r.Refusal != nil && rediskit.ReadOnly(r.Refusal) }

func (r Reply) isCount() bool { _, ok := r.Value.(int64); return ok }

// appendPlain adds arguments as the strings that are sent.
func appendPlain(words []string, args []any) []string {
	for _, a := range args {
		words = append(words, plain(a))
	}
	return words
}

func plain(arg any) string {
	switch a := arg.(type) {
	case string:
		return a
	case []byte:
		return string(a)
	case bool:
		if a {
			return "1"
		}
		return "0"
	case nil:
		return ""
	}
	return fmt.Sprint(arg)
}

// allowed keeps the client from panicking: its builder takes neither nothing nor subscriptions
// as a command.
func allowed(cmd string) error {
	if cmd == "" {
		return errors.New("no command: give its name")
	}
	if strings.HasSuffix(strings.ToUpper(cmd), "SUBSCRIBE") {
		return fmt.Errorf("%s is not allowed as a command: call Subscribe", cmd)
	}
	return nil
}

// ErrLost says that a connection has ended before the reply.
var ErrLost = errors.New("connection lost")

// lost is what broke a connection. The contexts that the client is given are ours, so what it
// says of their ends must not pass for an end of the caller's.
func lost(err error) error {
	if isTimeout(err) {
		return timeup.Err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
}
