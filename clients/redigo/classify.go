package redigonode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/strategy"
)

func (n *node) unsent(err error) error  { return n.failed(strategy.ErrUnsent, err) }
func (n *node) unknown(err error) error { return n.failed(strategy.ErrUnknown, err) }

func (n *node) failed(kind, err error) error {
	return &strategy.ServerError{Node: n.Name(), Kind: kind, Err: err}
}

// hungUpOn adds to a loss what may have caused it, where the server hangs up on commands that it does not know.
func (n *node) hungUpOn(cmd string, err error) error {
	if n.hangsUp.Load() && errors.Is(err, io.EOF) {
		return fmt.Errorf("%w (perhaps a proxy that does not know %s, or another command under way)", err, cmd)
	}
	return err
}

// answered turns what redigo says of an answered command into what the contract
// says. err is a redis.Error or nil: the server spoke.
func (n *node) answered(reply any, err error) (any, error) {
	if err != nil {
		return nil, rediskit.ErrorReply(n.Name(), err)
	}
	if said, ok := reply.(redis.Error); ok { // one of the answers to a joint script
		return nil, rediskit.ErrorReply(n.Name(), said)
	}
	plain, err := client.Plain(reply)
	if err != nil {
		return nil, n.unknown(err)
	}
	return plain, nil
}

// isReply tells a server's error reply from a broken connection.
func isReply(err error) bool {
	_, ok := err.(redis.Error) // not errors.As: redigo returns it bare, and inside anything else it is no reply
	return ok
}

// isReadOnly reports whether an op was refused because the server is a replica.
func isReadOnly(reply any, err error) bool {
	if e, ok := reply.(redis.Error); ok {
		err = e
	}
	return err != nil && rediskit.ReadOnly(err)
}

// saysReadOnly is isReadOnly for a reply that may be that of several ops.
func saysReadOnly(reply any, err error) bool {
	answers, _ := reply.([]any)
	return isReadOnly(reply, err) || slices.ContainsFunc(answers, func(a any) bool { return isReadOnly(a, nil) })
}

// unexpected says what came: a reply, or an error reply.
func unexpected(reply any, err error) string {
	if err != nil {
		return err.Error()
	}
	return rediskit.Describe(reply)
}

// remaining is how long to wait for due, and never 0, which redigo takes for
// "without limit".
func remaining(due time.Time) time.Duration {
	return max(time.Until(due), time.Nanosecond)
}

// plain copies an argument into what the writer can send without asking anybody:
// the command is written by another caller's goroutine, perhaps after this call
// has returned, and there neither a caller's buffer nor a caller's method belongs.
func plain(arg any) any {
	switch a := arg.(type) {
	case string, int, int64, float64, bool, nil:
		return arg
	case []byte:
		return bytes.Clone(a)
	case redis.Argument:
		v := a.RedisArg()
		if _, again := v.(redis.Argument); again { // redigo prints it, too
			return fmt.Sprint(v)
		}
		return plain(v)
	}
	return fmt.Sprint(arg)
}
