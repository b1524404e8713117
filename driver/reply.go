package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// How protocols read replies. Only CheckNode and the watchers need a Redis.

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

// Tokens reads a reply that is a list of tokens, in their order; nil: there are none.
func Tokens(reply any) (tokens []string) {
	list, _ := reply.([]any)
	for _, t := range list {
		if token, ok := t.([]byte); ok {
			tokens = append(tokens, string(token))
		}
	}
	return tokens
}

// HeldReply reads the reply of a script that found a lock held: {holder, TTL in ms}, or {holder, TTL,
// seconds, microseconds, 1 if the claim has its place}. ok is false for any other reply.
func HeldReply(c Claim, reply any) (g Grant, held *strategy.HeldError, ok bool) {
	r, _ := reply.([]any)
	if len(r) != 2 && len(r) != 5 {
		return Grant{}, nil, false
	}
	holder, ok := r[0].([]byte)
	ms, ok2 := r[1].(int64)
	if !ok || !ok2 {
		return Grant{}, nil, false
	}
	if len(r) == 5 {
		sec, ok := r[2].(int64)
		us, ok2 := r[3].(int64)
		queued, ok3 := r[4].(int64)
		if !ok || !ok2 || !ok3 {
			return Grant{}, nil, false
		}
		g = Grant{ServerTime: serverTime(sec, us), Queued: queued == 1}
	}
	return g, &strategy.HeldError{Name: c.Name, Holder: string(holder), TTL: RemainingTTL(ms)}, true
}

// serverTime is what TIME says: seconds, at most maxSeconds, and microseconds.
func serverTime(sec, us int64) time.Duration {
	return time.Duration(min(sec, maxSeconds))*time.Second + time.Duration(us)*time.Microsecond
}

const maxSeconds = int64(math.MaxInt64/time.Second) - 1

// WatchQueue is the Watch of a [Queuer] on one node. On the channel queue:line it reads "grant fence
// fences ms seconds microseconds token" and "next ms". It ignores any other message.
func WatchQueue(ctx context.Context, n Node, c Claim, queue string, fn func(Notification)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	return n.Subscribe(ctx, queue+":"+c.Line, func(msg []byte, err error) {
		if err != nil {
			fn(Notification{})
		} else if notification, ok := readNotification(string(msg)); ok {
			fn(notification)
		}
	})
}

func readNotification(msg string) (n Notification, ok bool) {
	word, rest, _ := strings.Cut(msg, " ")
	number := func(most uint64) (v uint64) {
		var text string
		text, rest, _ = strings.Cut(rest, " ")
		v, err := strconv.ParseUint(text, 10, 64)
		if ok = ok && err == nil && v <= most; !ok {
			return 0
		}
		return v
	}
	ok = true
	mostMs := uint64(strategy.MaxTTL.Milliseconds())
	switch word {
	case "next":
		n.Next = time.Duration(number(mostMs)) * time.Millisecond
		return n, ok && n.Next > 0
	case "grant":
		n.Grant.Fence = number(math.MaxInt64)
		n.Grant.Fences = int(number(MaxFences))
		n.Grant.TTL = time.Duration(number(mostMs)) * time.Millisecond
		n.Grant.ServerTime = serverTime(int64(number(uint64(maxSeconds))), int64(number(999_999)))
		n.Token = rest
		return n, ok && n.Token != "" && n.Grant.TTL > 0
	}
	return n, false
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
