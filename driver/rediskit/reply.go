// Package rediskit helps authors of algorithms and of clients that speak to Redis. It reads replies ([HeldReply], [BadReply],
// [ErrorReply] and their siblings), builds a Check ([CheckLock]), renews many locks in one request ([BulkScript]), waits for
// replicas ([Acknowledged]), and listens ([WatchChannel]). The contract is package driver.
package rediskit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Protocols read replies with these functions. Only CheckNode and the watchers need a Redis.

// Undone is the end of an Undo that releases c: err is how the release ended. A token that was not there is undone if the
// acquire can no longer arrive: the server has answered it (the claim has a grant), or it carries out requests in order, so
// that the release came after it ([driver.Node].Ordered). Otherwise the engine has to ask again.
func Undone(n driver.Node, c driver.Claim, err error) error {
	switch {
	case !errors.Is(err, strategy.ErrLost):
		return err
	case !c.Grant.IsZero() || n.Ordered():
		return nil
	default:
		return &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnknown, Err: driver.ErrAcquireMayArrive}
	}
}

// BadReply is the error for a reply that a protocol cannot read. The server did something, but nobody
// knows what, so it is [strategy.ErrUnknown].
func BadReply(server string, reply any) error {
	return &strategy.ServerError{Node: server, Kind: strategy.ErrUnknown, Err: errors.New("a reply that no lock of this kind gives: " + Describe(reply))}
}

// Describe says in a short text what a reply is: its kind, its length, and how it begins. It looks into two levels of
// arrays, however deep a server has nested them.
func Describe(reply any) string { return describe(reply, 2) }

func describe(reply any, levels int) string {
	const most = 3 // elements
	switch r := reply.(type) {
	case nil, int64:
		return fmt.Sprint(r)
	case []byte:
		if len(r) > 20 {
			return fmt.Sprintf("%.20q… (%d bytes)", r, len(r))
		}
		return fmt.Sprintf("%q", r)
	case []any:
		if levels == 0 {
			return fmt.Sprintf("[%d elements]", len(r))
		}
		var parts []string
		for _, element := range r[:min(len(r), most)] {
			parts = append(parts, describe(element, levels-1))
		}
		if len(r) > most {
			parts = append(parts, fmt.Sprintf("… (%d elements)", len(r)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("a %T", reply)
}

// RemainingTTL reads a reply of PTTL for a key that exists: milliseconds, or -1 for a key without
// expiry. A key in its last millisecond (0) still exists.
func RemainingTTL(ms int64) time.Duration {
	switch {
	case ms < 0:
		return -1
	case ms == 0:
		return time.Millisecond
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// HeldReply reads {holder, TTL in ms or -1}: the reply of a script that found a lock held. ok is false
// for any other reply.
func HeldReply(c driver.Claim, reply any) (held *strategy.HeldError, ok bool) {
	r, _ := reply.([]any)
	if len(r) != 2 {
		return nil, false
	}
	holder, ok := r[0].([]byte)
	ms, ok2 := r[1].(int64)
	if !ok || !ok2 {
		return nil, false
	}
	return &strategy.HeldError{Name: c.Name, Holder: string(holder), TTL: RemainingTTL(ms)}, true
}

// LostReply reads the reply of a script that did not find c's token in the key: nil, nobody holds the lock;
// a token, another holds it; {error}, the server's words about this one of many locks.
func LostReply(server string, c driver.Claim, reply any) error {
	switch r := reply.(type) {
	case nil:
		return &strategy.LostError{Name: c.Name}
	case []byte:
		return &strategy.LostError{Name: c.Name, Holder: string(r)}
	case []any:
		if len(r) == 1 {
			if words, ok := r[0].([]byte); ok {
				return ErrorReply(server, errors.New(string(words)))
			}
		}
	}
	return BadReply(server, reply)
}

// ReleaseReply reads the reply of a script that releases c: 1, released; nil, nobody holds the lock; a token,
// another holds it. For an undo see [Undone].
func ReleaseReply(server string, c driver.Claim, reply any) error {
	switch r := reply.(type) {
	case nil:
		return &strategy.LostError{Name: c.Name}
	case []byte:
		return &strategy.LostError{Name: c.Name, Holder: string(r)}
	case int64:
		if r == 1 {
			return nil
		}
	}
	return BadReply(server, reply)
}

// Run runs a script on c's key, and reads its reply. 1: it has done what it is for; the error is nil. {holder, TTL in ms or
// -1}: a *[strategy.HeldError]. nil, the key is gone, or a token, another holds it: a *[strategy.LostError]. After any other
// reply nobody knows: see [BadReply].
func Run(ctx context.Context, n driver.Node, c driver.Claim, s *driver.Script, args ...any) error {
	reply, err := n.Eval(ctx, c.Due, s, []string{c.Key}, args...)
	if err != nil {
		return err
	}
	if held, ok := HeldReply(c, reply); ok {
		return held
	}
	return ReleaseReply(n.Name(), c, reply)
}

// FenceReply reads a fence counter: the reply of GET.
func FenceReply(server, counter string, reply any) (fence uint64, err error) {
	text, ok := reply.([]byte)
	if !ok {
		return 0, nil
	}
	if fence, err = strconv.ParseUint(string(text), 10, 64); err != nil {
		err = fmt.Errorf("FENCE the counter %s holds no fence: %.50q", counter, text)
		return 0, &strategy.ServerError{Node: server, Kind: strategy.ErrRefused, Err: err}
	}
	return fence, nil
}

// WatchChannel is the Watch of a protocol on one node that publishes a lock's holder on a channel, in
// the step that releases the lock.
func WatchChannel(ctx context.Context, n driver.Node, c driver.Claim, channel string, fn func(driver.Notification)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	return n.Subscribe(ctx, channel, Announcements(fn))
}

// Announcements turns the messages of a channel into notifications for fn: a message is the holder
// that has released, an error is the end of the subscription. It ignores an empty message.
func Announcements(fn func(driver.Notification)) func(msg []byte, err error) {
	return func(msg []byte, err error) {
		if err != nil || len(msg) > 0 {
			fn(driver.Notification{Holder: string(msg)})
		}
	}
}
