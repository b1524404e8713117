// Package queue is what algorithms share whose servers keep a queue of those who wait: what is written to
// the queue, and what is heard of it. See queue.lua and enqueue.lua.
package queue

import (
	"context"
	_ "embed"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

var (
	// Entries reads entries and notifies lines.
	//
	//go:embed queue.lua
	Entries string

	// Enqueue gives an entry its place.
	//
	//go:embed enqueue.lua
	Enqueue string
)

// Entry is c's in the queue, for what it asks. Empty: c does not queue.
func Entry(c driver.Claim, count int) string {
	if c.Line == "" {
		return ""
	}
	ms := driver.SuccessorTTL(c.TTL).Milliseconds()
	return c.Line + " " + strconv.FormatInt(ms, 10) + " " + strconv.Itoa(count) + " " + c.Token
}

// Asked is what tells a script that c's entry may be in the queue; empty: it is not.
func Asked(c driver.Claim) string {
	if c.Repeated && c.Line != "" {
		return "1"
	}
	return ""
}

// HeldReply reads {holder, TTL in ms}, or {holder, TTL, seconds, microseconds, the claim's place, 1 if it
// had that before}. ok is false for any other reply.
func HeldReply(c driver.Claim, reply any) (g driver.Grant, held *strategy.HeldError, ok bool) {
	r, _ := reply.([]any)
	if len(r) == 6 {
		var n [4]int64
		for i := range n {
			if n[i], ok = r[2+i].(int64); !ok || n[i] < 0 {
				return driver.Grant{}, nil, false
			}
		}
		g.ServerTime, g.Place, g.Kept = serverTime(n[0], n[1]), int32(min(n[2], math.MaxInt32)), n[3] == 1
		reply = r[:2]
	}
	held, ok = rediskit.HeldReply(c, reply)
	return g, held, ok
}

// serverTime is what TIME says: seconds, at most maxSeconds, and microseconds.
func serverTime(sec, us int64) time.Duration {
	return time.Duration(min(sec, maxSeconds))*time.Second + time.Duration(us)*time.Microsecond
}

const maxSeconds = int64(math.MaxInt64/time.Second) - 1

// Channel is where a line hears of direct grants.
func Channel(queue, line string) string { return queue + ":" + line }

// Watch is the Watch of a protocol on one node for a claim with a Line. On the line's channel it reads "grant
// fence fences ms seconds microseconds token" and "next ms". It ignores any other message. fenced says whether holds
// have fences.
//
// Anybody who may publish can have sent a message. Of a grant that no script makes it passes on the token alone, so that
// the waiter asks.
func Watch(ctx context.Context, n driver.Node, c driver.Claim, channel string, fenced bool, fn func(driver.Notification)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	return n.Subscribe(ctx, channel, func(msg []byte, err error) {
		if err != nil {
			fn(driver.Notification{})
		} else if notification, ok := readNotification(string(msg)); ok {
			if g := &notification.Grant; (g.Fence > 0) != fenced || g.Fence > mostFence(g.ServerTime) {
				*g = driver.Grant{}
			}
			fn(notification)
		}
	})
}

// mostFence is the greatest fence that scripts issue when the server's clock shows now: see numbers.lua. They run ahead of
// the clock's microseconds by 512, and by one for each hold of the same microsecond. If the clock was set back, fences are
// greater, and waiters ask.
func mostFence(now time.Duration) uint64 { return uint64(now.Microseconds()) + 1000 }

func readNotification(msg string) (n driver.Notification, ok bool) {
	word, rest, _ := strings.Cut(msg, " ")
	ok = true
	// number takes the next word off rest. If that is no number, or more than most, ok is false from then on.
	number := func(most uint64) uint64 {
		var text string
		text, rest, _ = strings.Cut(rest, " ")
		v, err := strconv.ParseUint(text, 10, 64)
		ok = ok && err == nil && v <= most
		return v
	}
	mostMs := uint64(contract.MaxTTL.Milliseconds())
	switch word {
	case "next":
		n.Next = time.Duration(number(mostMs)) * time.Millisecond
		return n, ok && n.Next > 0
	case "grant":
		n.Grant.Fence = number(math.MaxInt64)
		n.Grant.Fences = int(number(driver.MaxFences))
		n.Grant.TTL = time.Duration(number(mostMs)) * time.Millisecond
		n.Grant.ServerTime = serverTime(int64(number(uint64(maxSeconds))), int64(number(999_999)))
		n.Token = rest
		return n, ok && n.Token != "" && n.Grant.TTL > 0
	}
	return n, false
}

// Tokens reads the tokens in the queue, in its order; nil: nobody queues.
func Tokens(queue []any) (all []string) {
	for _, t := range queue {
		if text, ok := t.([]byte); ok {
			all = append(all, string(text))
		}
	}
	return all
}
