package fairqueue

import (
	"context"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// Check is that of a protocol of scripts.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return rediskit.CheckScripted(ctx, o, p, func(c driver.Claim) []rediskit.Right { return p.rights(c, o.Wait) })
}

// Scripts are all that this algorithm sends.
func (p *protocol) Scripts() []*driver.Script {
	return []*driver.Script{acquire, release, pass, extend, inspect, adopt}
}

// rights are what the scripts cannot do without, and what the way to wait needs that the user
// asked for. EXISTS and MGET only save time: where they are forbidden, GET and SET serve.
func (p *protocol) rights(c driver.Claim, w strategy.Wait) []rediskit.Right {
	l := p.names.Of(c.Key)
	// The scripts name all three in KEYS, so the user needs them even where no command is needed.
	lock := rediskit.Right{Key: c.Key, Commands: []string{"GET", "GETEX", "SET", "DEL", "PTTL", "PEXPIRE", "TIME"}}
	queue := rediskit.Right{Key: queueKey(l)}
	counter := rediskit.Right{Key: counterKey(l)}
	switch w {
	case strategy.WaitNotification:
		lock.Channel, lock.Commands = l.Channel(), append(lock.Commands, "PUBLISH")
	case strategy.WaitQueue:
		queue.Channel = lineChannel(l, c.Token) // a check has no line; the token is as good an id
		queue.Commands = []string{"LINDEX", "LPOP", "LPOS", "LREM", "RPUSH", "PTTL", "PEXPIRE", "PUBLISH"}
	}
	if p.fences {
		counter.Commands = []string{"GET", "SET"}
	}
	return []rediskit.Right{lock, queue, counter}
}
