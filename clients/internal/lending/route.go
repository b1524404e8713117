package lending

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// TryAgainAfter is how long a command waits that a cluster has refused while its keys are on
// their way from one master to another.
const TryAgainAfter = 10 * time.Millisecond

// route sends a command by the client's own pipelines, which follow MOVED and ASK. TRYAGAIN has
// changed nothing either, and is followed here until ctx or due end.
func (n *Node) route(ctx context.Context, due time.Time, cmd Command) (any, error) {
	if !n.calls.Enter() {
		return nil, n.unsent(strategy.ErrClosed)
	}
	defer n.calls.Leave()
	for {
		reply, err := n.routeOnce(ctx, due, cmd)
		if !isTryAgain(err) || time.Until(due) < TryAgainAfter {
			return reply, err
		}
		pause := time.NewTimer(TryAgainAfter)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, err
		case <-n.calls.Life().Done():
			return nil, err
		}
	}
}

func isTryAgain(err error) bool {
	var said *strategy.ServerError
	return errors.As(err, &said) && said.Kind == strategy.ErrRefused && strings.HasPrefix(said.Err.Error(), "TRYAGAIN ")
}

// routeOnce leaves in time, which the client may not: it waits for others' dials, and for a
// place in a pipeline that is full.
func (n *Node) routeOnce(ctx context.Context, due time.Time, cmd Command) (any, error) {
	bounded, cancel := context.WithDeadlineCause(ctx, due, timeup.Err)
	defer cancel()
	var begun atomic.Bool // the one that sets it decides whether the command is sent
	got := make(chan Reply, 1)
	n.work.Go(func() {
		if begun.CompareAndSwap(false, true) {
			got <- n.client.Do(bounded, cmd)
		}
	})
	select {
	case r := <-got:
		return n.routed(ctx, due, r)
	case <-n.calls.Life().Done():
		return nil, n.failed(kindOf(!begun.CompareAndSwap(false, true)), strategy.ErrClosed)
	case <-bounded.Done():
		return nil, n.failed(kindOf(!begun.CompareAndSwap(false, true)), context.Cause(bounded))
	}
}

// kindOf is what is known of a request that may have been sent, or has not.
func kindOf(maybeSent bool) error {
	if maybeSent {
		return strategy.ErrUnknown
	}
	return strategy.ErrUnsent
}

// routed reads what the client brings: a reply, or the reason why no reply came. If the last server
// could not be reached, no server has done anything: those before it have said that they do not serve
// the key.
func (n *Node) routed(ctx context.Context, due time.Time, r Reply) (any, error) {
	if r.Broken == nil {
		return n.answered(r)
	}
	if r.unreached() {
		return nil, n.unsent(client.Discreet(r.Broken, ""))
	}
	if why := timeup.Why(ctx, due); why != nil {
		return nil, n.unknown(why)
	}
	return nil, n.unknown(lost(r.Broken))
}

// unreached reports whether the client had no connection: no server listens, or no node has the slot.
// A refused login proves nothing: when the client has to log in again (AuthCredentialsFn), requests in
// flight get that error, too. Nor does a dial inside of another error, which may be
// AuthCredentialsFn's own.
func (r Reply) unreached() bool {
	op, ok := r.Broken.(*net.OpError)
	return ok && op.Op == "dial" || r.NoSlot
}
