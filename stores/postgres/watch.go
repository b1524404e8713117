package postgres

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
)

// Watch hears of direct grants to the claim's line; without a line, of releases that find nobody in the queue. Each is sent
// by the step that grants, or releases, when its transaction commits.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	ctx, cancel := context.WithDeadline(ctx, c.Due)
	defer cancel()
	n := p.names.of(c.Key)
	channel, read := n.freed, readFreed
	if c.Line != "" {
		channel, read = n.line(c.Line), readLine
	}
	return p.subscribe(ctx, channel, func(msg []byte, err error) {
		if err != nil {
			fn(driver.Notification{})
		} else if heard, ok := read(string(msg)); ok {
			fn(heard)
		}
	})
}

// readFreed reads a message to those who wait without a place: the token that was released.
func readFreed(msg string) (n driver.Notification, ok bool) {
	token, err := hex.DecodeString(msg)
	return driver.Notification{Holder: string(token)}, err == nil && len(token) > 0
}

// readLine reads a message to a line: see queue.sql.
func readLine(msg string) (n driver.Notification, ok bool) {
	words := strings.Split(msg, " ")
	ok = true
	number := func(i int, most int64) int64 {
		v, err := strconv.ParseInt(words[i], 10, 64)
		ok = ok && err == nil && 0 < v && v <= most
		return v
	}
	mostMs := contract.MaxTTL.Milliseconds()
	switch {
	case words[0] == "next" && len(words) == 2:
		n.Next = time.Duration(number(1, mostMs)) * time.Millisecond
		return n, ok
	case words[0] == "grant" && len(words) == 6:
		n.Grant.Fence = uint64(number(1, mostFence))
		n.Grant.Fences = int(number(2, driver.MaxFences))
		n.Grant.TTL = time.Duration(number(3, mostMs)) * time.Millisecond
		n.Grant.ServerTime = micros(number(4, mostMicros))
		token, err := hex.DecodeString(words[5])
		n.Token = string(token)
		return n, ok && err == nil && n.Token != "" && n.Grant.Fence%driver.MaxFences == 0
	}
	return n, false
}

const (
	mostFence  = 1<<63 - driver.MaxFences
	mostMicros = (1<<63 - 1) / 1000
)
