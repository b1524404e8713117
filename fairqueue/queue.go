package fairqueue

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// What the queue says, and what is said to it: see queue.lua.

// entry is c's in the queue. Empty: c does not queue.
func (p *protocol) entry(c driver.Claim) string {
	if c.Line == "" {
		return ""
	}
	ms := driver.SuccessorTTL(c.TTL).Milliseconds()
	return c.Line + " " + strconv.FormatInt(ms, 10) + " " + strconv.Itoa(p.many(c)) + " " + c.Token
}

// heldReply reads {holder, TTL in ms}, or {holder, TTL, seconds, microseconds, 1 if the claim has its
// place}. ok is false for any other reply.
func heldReply(c driver.Claim, reply any) (g driver.Grant, held *strategy.HeldError, ok bool) {
	r, _ := reply.([]any)
	if len(r) == 5 {
		sec, ok := r[2].(int64)
		us, ok2 := r[3].(int64)
		queued, ok3 := r[4].(int64)
		if !ok || !ok2 || !ok3 {
			return driver.Grant{}, nil, false
		}
		g.ServerTime, g.Queued = serverTime(sec, us), queued == 1
		reply = r[:2]
	}
	if held, ok = driver.HeldReply(c, reply); ok {
		announced, ours := token.Announced(held.Holder)
		g.Silent = !ours || announced && c.Line != "" // its release will not serve the queue
	}
	return g, held, ok
}

// serverTime is what TIME says: seconds, at most maxSeconds, and microseconds.
func serverTime(sec, us int64) time.Duration {
	return time.Duration(min(sec, maxSeconds))*time.Second + time.Duration(us)*time.Microsecond
}

const maxSeconds = int64(math.MaxInt64/time.Second) - 1

// watchQueue is the Watch of a [driver.Queuer] on one node. On the channel queue:line it reads "grant fence
// fences ms seconds microseconds token" and "next ms". It ignores any other message.
func watchQueue(ctx context.Context, n driver.Node, c driver.Claim, queue string, fn func(driver.Notification)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	return n.Subscribe(ctx, queue+":"+c.Line, func(msg []byte, err error) {
		if err != nil {
			fn(driver.Notification{})
		} else if notification, ok := readNotification(string(msg)); ok {
			fn(notification)
		}
	})
}

func readNotification(msg string) (n driver.Notification, ok bool) {
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
		n.Grant.Fences = int(number(driver.MaxFences))
		n.Grant.TTL = time.Duration(number(mostMs)) * time.Millisecond
		n.Grant.ServerTime = serverTime(int64(number(uint64(maxSeconds))), int64(number(999_999)))
		n.Token = rest
		return n, ok && n.Token != "" && n.Grant.TTL > 0
	}
	return n, false
}

// tokens reads a list of tokens, in their order; nil: there are none.
func tokens(reply any) (all []string) {
	list, _ := reply.([]any)
	for _, t := range list {
		if text, ok := t.([]byte); ok {
			all = append(all, string(text))
		}
	}
	return all
}
