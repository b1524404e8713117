package rediscnode

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/strategy"
)

// confirmLimit bounds Subscribe where its ctx does not.
const confirmLimit = 5 * time.Second

// A subscription is one call of Subscribe.
type subscription struct {
	n    *node
	slot int
	addr string
	fn   func([]byte, error)
	end  func() // ends it at the server; set before the subscription is known to anybody
	over atomic.Bool
	told chan struct{} // closed once over, when fn has heard of it, if it has to
}

// Subscribe subscribes at the master of the channel's slot, and nowhere else. A message reaches the
// whole cluster, but a release counts the subscribers at its own server, to see whether its successor
// lives. When the slot moves the subscription ends, as if its connection had broken. stop must not be
// called from inside fn.
func (n *node) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	due := time.Now().Add(confirmLimit)
	if at, ok := ctx.Deadline(); ok {
		due = at
	}
	slot := redisc.Slot(channel)
	for tries := 1; ; tries++ {
		s, err := n.owner(ctx, due, slot)
		if err != nil {
			return nil, err
		}
		sub := &subscription{n: n, slot: slot, addr: s.addr, fn: fn, told: make(chan struct{})}
		sub.end, err = s.Subscribe(ctx, channel, sub.hear)
		kept := err == nil && n.note(sub)
		s.users.Done() // now the server may close: note has settled whether fn hears of that
		switch {
		case err != nil:
			if again, err := n.again(ctx, due, slot, tries, s, redirect{}, s.named(err)); !again {
				return nil, err
			}
		case kept:
			return sub.stop, nil
		default: // it moved meanwhile
			sub.end()
		}
	}
}

// note keeps the subscription in mind, unless its slot has moved already. It leaves out one that has
// ended by itself: fn has heard of the end, and Subscribe must not put another in its place.
func (n *node) note(sub *subscription) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.misplaced(sub) {
		return false
	}
	if !sub.over.Load() {
		n.subs[sub] = true
	}
	return true
}

// misplaced reports, once, that the slot of a live subscription is another server's now. The caller
// that gets true ends the subscription. The caller holds n.mu.
func (n *node) misplaced(sub *subscription) bool {
	at := n.layout.owners[sub.slot]
	return at != "" && at != sub.addr && sub.over.CompareAndSwap(false, true)
}

func (n *node) forget(sub *subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.subs, sub)
}

// hear is what the server's subscription calls.
func (sub *subscription) hear(msg []byte, err error) {
	switch {
	case err == nil:
		sub.fn(msg, nil)
	case sub.over.CompareAndSwap(false, true):
		close(sub.told)
		sub.n.forget(sub)
		sub.fn(nil, err)
	}
}

// stop ends the subscription. When it has returned, fn is not called again.
func (sub *subscription) stop() {
	if sub.over.CompareAndSwap(false, true) {
		close(sub.told)
		sub.n.forget(sub)
	}
	<-sub.told
	sub.end() // waits for the call of fn that is under way
}

// breakMoved ends the subscriptions whose slot is another server's now, because that server does not
// count them. The caller holds n.mu.
func (n *node) breakMoved() {
	if n.closed {
		return // Close tells them
	}
	for sub := range n.subs {
		if n.misplaced(sub) {
			delete(n.subs, sub)
			n.work.Go(sub.tellMoved)
		}
	}
}

func (sub *subscription) tellMoved() {
	defer close(sub.told)
	sub.end() // waits for a message that is on its way to fn
	sub.fn(nil, &strategy.ServerError{Node: sub.addr, Kind: strategy.ErrUnknown, Err: errMoved})
}
