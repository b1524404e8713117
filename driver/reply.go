package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// Protocols read replies with these functions. Only CheckNode and the watchers need a Redis.

// Gone is what a protocol's Release returns when the token that it was to remove is not there. holder
// is the token that is there; empty: none.
//
// The caller of a release gets ErrLost. An undo has succeeded if the acquire can no longer arrive:
// the servers have answered it (the claim has a grant), or they carry out requests in order, so that
// the release came after it ([Node].Ordered). Otherwise the engine has to ask again. server is a name
// for errors.
func Gone(server string, ordered bool, c Claim, holder string) error {
	switch {
	case !c.Undo:
		return &strategy.LostError{Name: c.Name, Holder: holder}
	case !c.Grant.IsZero() || ordered:
		return nil
	default:
		return &strategy.ServerError{Node: server, Kind: strategy.ErrUnknown, Err: ErrAcquireMayArrive}
	}
}

// ErrAcquireMayArrive is the cause of the error of an undo that came too early; see [Gone].
var ErrAcquireMayArrive = errors.New("the lock is not there, but the request that timed out may still arrive")

// BadReply is the error for a reply that a protocol cannot read. The server did something, but nobody
// knows what, so it is [strategy.ErrUnknown].
func BadReply(server string, reply any) error {
	if b, ok := reply.([]byte); ok {
		reply = string(b)
	}
	return &strategy.ServerError{Node: server, Kind: strategy.ErrUnknown, Err: fmt.Errorf("a reply that no lock of this kind gives: %.100q", fmt.Sprint(reply))}
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
func HeldReply(c Claim, reply any) (held *strategy.HeldError, ok bool) {
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

// LostReply reads the reply of a script that did not find c's token in the key: nil, the lock is gone;
// a token, another holds it; {error}, the server's words about this one of many locks.
func LostReply(server string, c Claim, reply any) error {
	switch r := reply.(type) {
	case nil:
		return &strategy.LostError{Name: c.Name}
	case []byte:
		return &strategy.LostError{Name: c.Name, Holder: string(r)}
	case []any:
		if len(r) == 1 {
			return &strategy.ServerError{Node: server, Kind: strategy.ErrRefused, Err: fmt.Errorf("%s", r[0])}
		}
	}
	return BadReply(server, reply)
}

// ReleaseReply reads the reply of a script that releases c: 1, released; nil, the lock is gone; a token,
// another holds it. [Gone] says what the last two mean for a release, and for an undo.
func ReleaseReply(server string, ordered bool, c Claim, reply any) error {
	switch r := reply.(type) {
	case nil:
		return Gone(server, ordered, c, "")
	case []byte:
		return Gone(server, ordered, c, string(r))
	case int64:
		if r == 1 {
			return nil
		}
	}
	return BadReply(server, reply)
}

// FenceReply reads a fence counter: the reply of GET.
func FenceReply(server, counter string, reply any) (fence uint64, err error) {
	text, ok := reply.([]byte)
	if !ok {
		return 0, nil
	}
	if fence, err = strconv.ParseUint(string(text), 10, 64); err != nil {
		err = fmt.Errorf("the counter %s holds no fence: %.50q", counter, text)
		return 0, &strategy.ServerError{Node: server, Kind: strategy.ErrRefused, Err: err}
	}
	return fence, nil
}

// WatchChannel is the Watch of a protocol on one node that publishes a lock's holder on a channel, in
// the step that releases the lock.
func WatchChannel(ctx context.Context, n Node, c Claim, channel string, fn func(Notification)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	return n.Subscribe(ctx, channel, Announcements(fn))
}

// Announcements turns the messages of a channel into notifications for fn: a message is the holder
// that has released, an error is the end of the subscription. It ignores an empty message.
func Announcements(fn func(Notification)) func(msg []byte, err error) {
	return func(msg []byte, err error) {
		if err != nil || len(msg) > 0 {
			fn(Notification{Holder: string(msg)})
		}
	}
}
