package strategy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// What every protocol that speaks to Redis needs, beside its algorithm.

// Gone is what a protocol's Release returns when the token that it was to remove
// is not there; holder is the token that is, empty if none.
//
// For a caller's release that is ErrLost. For an undo it is success, if the
// acquire can no longer arrive: it was answered (the claim bears a grant), or the
// node keeps order, so that the release came after it. On any other node "not
// found" may be too early an answer, and the machinery must ask again.
func Gone(n Node, c Claim, holder string) error {
	switch {
	case !c.Undo:
		return &LostError{Name: c.Name, Holder: holder}
	case !c.Grant.IsZero() || n.Ordered():
		return nil
	default:
		return &ServerError{Node: n.Name(), Kind: ErrUnknown, Err: errAcquireMayArrive}
	}
}

var errAcquireMayArrive = errors.New("the lock is not there, but the request that timed out may still arrive")

// BadReply is the error for a reply that a protocol cannot read: the server did
// something, but nobody knows what.
func BadReply(n Node, reply any) error {
	if b, ok := reply.([]byte); ok {
		reply = string(b)
	}
	return &ServerError{Node: n.Name(), Kind: ErrUnknown, Err: fmt.Errorf("a reply that no lock of this kind gives: %.100q", fmt.Sprint(reply))}
}

// RemainingTTL reads a reply of PTTL for a key that exists: milliseconds, or -1 for
// a key without expiry. A key in its last millisecond (0) still exists; one that
// lives longer than a Duration can say gets the longest.
func RemainingTTL(ms int64) time.Duration {
	switch {
	case ms < 0:
		return -1
	case ms == 0:
		return time.Millisecond
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// CheckNode tells whether a Redis can be relied on to keep locks: it answers, is a
// primary, has loaded its data, and does not evict keys. What a server does not
// tell of itself is not held against it.
func CheckNode(ctx context.Context, due time.Time, n Node) error {
	reply, err := n.Do(ctx, due, "INFO", "default")
	if errors.Is(err, ErrRefused) {
		return nil // it answers, and tells nothing of itself
	}
	if err != nil {
		return err
	}
	text, ok := reply.([]byte)
	if !ok {
		return BadReply(n, reply)
	}
	info := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	var faults []error
	if role := info["role"]; role != "" && role != "master" {
		faults = append(faults, fmt.Errorf("%s: is a %s: give the address of the primary", n.Name(), role))
	}
	if info["loading"] == "1" {
		faults = append(faults, fmt.Errorf("%s: is loading its data: try again when it has", n.Name()))
	}
	if limit, policy := info["maxmemory"], info["maxmemory_policy"]; limit != "" && limit != "0" && policy != "noeviction" && policy != "" {
		faults = append(faults, fmt.Errorf("%s: may evict locks (maxmemory-policy %s): set it to noeviction", n.Name(), policy))
	}
	return errors.Join(faults...)
}

// CheckLock is the Check of a protocol on one node: [CheckNode], whether it may do what it
// needs to with the keys of a [CheckClaim], and a look at that lock.
func CheckLock(ctx context.Context, o Options, n Node, p Inspector, may func(Claim) error) error {
	c, err := CheckClaim(o)
	if err != nil {
		return err
	}
	if err := CheckNode(ctx, c.Due, n); err != nil {
		return err
	}
	if err := may(c); err != nil {
		return err
	}
	_, err = p.Inspect(ctx, c)
	return err
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

// HeldReply reads {holder, TTL in ms}, or {holder, TTL, seconds, microseconds, 1 if it has
// taken its place}: what a script says that finds a lock held. ok is false for any other reply.
func HeldReply(c Claim, reply any) (g Grant, held *HeldError, ok bool) {
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
	return g, &HeldError{Name: c.Name, Holder: string(holder), TTL: RemainingTTL(ms)}, true
}

// serverTime is what TIME says: seconds, at most maxSeconds, and microseconds.
func serverTime(sec, us int64) time.Duration {
	return time.Duration(min(sec, maxSeconds))*time.Second + time.Duration(us)*time.Microsecond
}

const maxSeconds = int64(math.MaxInt64/time.Second) - 1

// WatchQueue is the Watch of a [Queuer] on one node that tells lines what "grant fence
// fences ms seconds microseconds token" and "next ms" say, on the channel queue:line. What
// it cannot read, it does not pass on.
func WatchQueue(ctx context.Context, n Node, c Claim, queue string, fn func(Notice)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	return n.Subscribe(ctx, queue+":"+c.Line, func(told []byte, err error) {
		if err != nil {
			fn(Notice{})
		} else if notice, ok := readNotice(string(told)); ok {
			fn(notice)
		}
	})
}

func readNotice(told string) (n Notice, ok bool) {
	word, rest, _ := strings.Cut(told, " ")
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
	mostMs := uint64(MaxTTL.Milliseconds())
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

// WatchChannel is the Watch of a protocol on one node that publishes the holder of a lock
// in the step that releases it. A message that is empty is none of such.
func WatchChannel(ctx context.Context, n Node, c Claim, channel string, fn func(Notice)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	return n.Subscribe(ctx, channel, func(holder []byte, err error) {
		switch {
		case err != nil:
			fn(Notice{})
		case len(holder) > 0:
			fn(Notice{Holder: string(holder)})
		}
	})
}
