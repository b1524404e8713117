package engine

import (
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// withDefaults fills in what is zero and refuses what is not allowed.
func withDefaults(o strategy.Options) (strategy.Options, error) {
	const minTTL, maxTTL = contract.MinTTL, contract.MaxTTL
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.TTL < minTTL || o.TTL > maxTTL || o.TTL%time.Millisecond != 0 {
		return o, fmt.Errorf("locks: Options.TTL is %v: allowed are whole milliseconds from %v to %v, and 0 for 10s", o.TTL, minTTL, maxTTL)
	}
	if o.MaxHold != 0 && o.MaxHold < o.TTL {
		return o, fmt.Errorf("locks: Options.MaxHold is %v: allowed are 0 (no bound) and the TTL of %v or more", o.MaxHold, o.TTL)
	}
	if o.FenceTTL == 0 {
		o.FenceTTL = max(24*time.Hour, 2*o.TTL)
	}
	if o.FenceTTL > 0 && (o.FenceTTL < 2*o.TTL || o.FenceTTL%time.Millisecond != 0) {
		return o, fmt.Errorf("locks: Options.FenceTTL is %v: allowed are whole milliseconds from twice the TTL of %v on, 0 for the greater of 24h and that, and less than 0 for ever", o.FenceTTL, o.TTL)
	}
	if o.OpTimeout == 0 {
		o.OpTimeout = min(o.TTL/6, time.Second)
	}
	if o.OpTimeout < time.Millisecond || o.OpTimeout >= o.TTL {
		return o, fmt.Errorf("locks: Options.OpTimeout is %v: allowed are 1ms to less than the TTL of %v, and 0 for the smaller of TTL/6 and 1s", o.OpTimeout, o.TTL)
	}
	if o.Key == nil {
		o.Key = strategy.DefaultKey
	}
	if len(o.Label) > contract.MaxLabelLen {
		return o, fmt.Errorf("locks: Options.Label has %d bytes: allowed are %d", len(o.Label), contract.MaxLabelLen)
	}
	if o.Backoff == nil {
		o.Backoff = contract.Backoff
	}
	if o.Wait < strategy.WaitBest || o.Wait > strategy.WaitQueue {
		return o, fmt.Errorf("locks: Options.Wait is %d: allowed are WaitBest, WaitPoll, WaitNotification and WaitQueue", int(o.Wait))
	}
	return o, nil
}

// keepsQueue reports whether p's servers keep a queue of those who wait.
func keepsQueue(p driver.Protocol) bool {
	_, queues := p.(driver.Queuer)
	_, shares := p.(driver.Sharer)
	return queues || shares
}

// waitOn is how to wait for p's locks, if w is what the user asks for.
func waitOn(p driver.Protocol, w strategy.Wait) (strategy.Wait, error) {
	_, notifies := p.(driver.Notifier)
	queues := keepsQueue(p)
	allowed := ""
	switch {
	case w == strategy.WaitBest && queues:
		return strategy.WaitQueue, nil
	case w == strategy.WaitBest && notifies:
		return strategy.WaitNotification, nil
	case w == strategy.WaitBest:
		return strategy.WaitPoll, nil
	case w == strategy.WaitQueue && !queues && notifies:
		allowed = "WaitBest, WaitNotification and WaitPoll"
	case w == strategy.WaitQueue && !queues, w == strategy.WaitNotification && !notifies:
		allowed = "WaitBest and WaitPoll"
	default:
		return w, nil
	}
	return w, fmt.Errorf("locks: Options.Wait is %v: %w by this algorithm; allowed are %s", w, strategy.ErrUnsupported, allowed)
}
