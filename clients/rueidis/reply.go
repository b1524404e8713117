package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

func (n *node) refused(err error) error { return n.failed(strategy.ErrRefused, err) }
func (n *node) unsent(err error) error  { return n.failed(strategy.ErrUnsent, err) }
func (n *node) unknown(err error) error { return n.failed(strategy.ErrUnknown, err) }

func (n *node) failed(kind, err error) error {
	return &strategy.ServerError{Node: n.Name(), Kind: kind, Err: err}
}

// answered turns a reply into what the contract says: the server spoke. An error inside an
// array (EXEC) came next to commands that took effect, so "nothing has changed" would be a
// lie: what is true of the whole is that its outcome is unknown.
func (n *node) answered(r rueidis.RedisResult) (any, error) {
	m, err := r.ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, rediskit.ErrorReply(n.Name(), err)
	}
	reply, err := plainReply(m)
	if err != nil {
		return nil, n.unknown(err)
	}
	return reply, nil
}

// plainReply makes nil, int64, []byte and []any of what RESP3 has besides them: of a map a
// list of keys and values, of a boolean 1 or 0, of other scalars their text.
func plainReply(m rueidis.RedisMessage) (any, error) {
	switch {
	case m.IsNil():
		return nil, nil
	case m.IsInt64():
		return m.ToInt64()
	case m.IsBool():
		if yes, _ := m.ToBool(); yes {
			return int64(1), nil
		}
		return int64(0), nil
	case m.IsArray():
		all, _ := m.ToArray() // it is one
		return plainReplies(all)
	case m.IsMap():
		pairs, err := m.ToMap()
		if err != nil {
			return nil, err
		}
		var all []any
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			value, err := plainReply(pairs[key])
			if err != nil {
				return nil, err
			}
			all = append(all, []byte(key), value)
		}
		return all, nil
	}
	text, err := m.ToString()
	if err != nil { // an error among others, or a type that no reply has
		return nil, err
	}
	if !m.IsString() && len(text) >= 4 && text[3] == ':' {
		text = text[4:] // a verbatim string, which begins with its format
	}
	return []byte(text), nil
}

func plainReplies(all []rueidis.RedisMessage) (any, error) {
	replies := make([]any, len(all))
	for i, m := range all {
		reply, err := plainReply(m)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		replies[i] = reply
	}
	return replies, nil
}

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

var errLost = errors.New("connection lost")

// lost is what broke a connection. The contexts that the client is given are ours, so what it
// says of their ends must not pass for an end of the caller's.
func lost(err error) error {
	if isTimeout(err) {
		return timeup.Err
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
}

func isReadOnly(err error) bool { return err != nil && rediskit.ReadOnly(err) }
