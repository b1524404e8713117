package node

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

func (n *Node) refused(err error) error { return n.failed(strategy.ErrRefused, err) }
func (n *Node) unsent(err error) error  { return n.failed(strategy.ErrUnsent, err) }
func (n *Node) unknown(err error) error { return n.failed(strategy.ErrUnknown, err) }

func (n *Node) failed(kind, err error) error {
	return &strategy.ServerError{Node: n.Name(), Kind: kind, Err: err}
}

// answered turns what redigo says of an answered command into what the contract
// says. err is a redis.Error or nil: the server spoke.
func (n *Node) answered(reply any, err error) (any, error) {
	if err != nil {
		return nil, driver.ErrorReply(n.Name(), err)
	}
	switch r := reply.(type) {
	case nil, int64, []byte:
		return reply, nil
	case string: // a status; the contract has no strings
		return []byte(r), nil
	case redis.Error:
		return nil, driver.ErrorReply(n.Name(), r)
	case []any:
		if err := n.array(r); err != nil {
			return nil, err
		}
		return reply, nil
	}
	return nil, n.unknown(fmt.Errorf("a reply of type %T", reply))
}

// array does the same for the elements. An error among them (EXEC) came next to
// commands that took effect, so "nothing has changed" would be a lie: what is true
// of the whole is that its outcome is unknown.
func (n *Node) array(rs []any) error {
	for i, r := range rs {
		e, err := n.answered(r, nil)
		if err != nil {
			var said redis.Error
			if errors.As(err, &said) {
				return n.unknown(fmt.Errorf("element %d of the reply: %w", i, said))
			}
			return err
		}
		rs[i] = e
	}
	return nil
}

// isReply tells a server's error reply from a broken connection.
func isReply(err error) bool {
	_, ok := err.(redis.Error) // not errors.As: redigo returns it bare, and inside anything else it is no reply
	return ok
}

func isReadOnly(err error) bool {
	return isReply(err) && driver.ReadOnly(err)
}

// firstOf is what came: a reply, or an error reply.
func firstOf(err error, reply any) any {
	if err != nil {
		return err
	}
	return reply
}

// passing are the refusals that speak of the server's state, not of what it
// forbids: they prove nothing about what it will allow later.
func passing(err error) bool {
	for _, p := range []string{"BUSY ", "LOADING ", "MASTERDOWN ", "ERR max number of clients", "NOAUTH "} {
		if strings.HasPrefix(err.Error(), p) {
			return true
		}
	}
	return false
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
		return plainValue(a.RedisArg())
	}
	return fmt.Sprint(arg)
}

// plainValue is what redigo makes of the value of a redis.Argument.
func plainValue(v any) any {
	if _, again := v.(redis.Argument); again {
		return fmt.Sprint(v)
	}
	return plain(v)
}

var (
	userinfo = regexp.MustCompile(`://[^\s"]*@`)
	echoed   = regexp.MustCompile(`(?s),? with args beginning with:.*`)
)

// discreet keeps passwords out of what a dial says: URLs are quoted whole in
// parse errors, and a server without AUTH quotes its arguments. It does not wrap an error
// that it had to change, because the original still says it.
func discreet(err error) error {
	s := userinfo.ReplaceAllString(err.Error(), "://***@")
	s = echoed.ReplaceAllString(s, "")
	if s == err.Error() {
		return err
	}
	return errors.New(s)
}
