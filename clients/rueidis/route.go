package rueidisnode

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// tryAgainAfter is how long a command waits that a cluster has refused while its keys are on
// their way from one master to another.
const tryAgainAfter = 10 * time.Millisecond

// route sends a command by the client's own pipelines, which follow MOVED and ASK. TRYAGAIN has
// changed nothing either, and is followed here until ctx or due end.
func (n *node) route(ctx context.Context, due time.Time, cmd rueidis.Completed) (any, error) {
	if !n.calls.Enter() {
		return nil, n.unsent(strategy.ErrClosed)
	}
	defer n.calls.Leave()
	cmd = cmd.Pin() // it may be sent again
	for {
		reply, err := n.routeOnce(ctx, due, cmd)
		if !isTryAgain(err) || time.Until(due) < tryAgainAfter {
			return reply, err
		}
		pause := time.NewTimer(tryAgainAfter)
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
func (n *node) routeOnce(ctx context.Context, due time.Time, cmd rueidis.Completed) (any, error) {
	bounded, cancel := context.WithDeadlineCause(ctx, due, timeup.Err)
	defer cancel()
	var begun atomic.Bool // the one that sets it decides whether the command is sent
	got := make(chan rueidis.RedisResult, 1)
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
func (n *node) routed(ctx context.Context, due time.Time, r rueidis.RedisResult) (any, error) {
	err := r.NonRedisError()
	if err == nil {
		return n.answered(r)
	}
	if unreached(err) {
		return nil, n.unsent(client.Discreet(err, ""))
	}
	if why := timeup.Why(ctx, due); why != nil {
		return nil, n.unknown(why)
	}
	return nil, n.unknown(lost(err))
}

// unreached reports whether the client had no connection: no server listens, or no node has the slot.
// A refused login proves nothing: when the client has to log in again (AuthCredentialsFn), requests in
// flight get that error, too. Nor does a dial inside of another error, which may be
// AuthCredentialsFn's own.
func unreached(err error) bool {
	op, ok := err.(*net.OpError)
	return ok && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot)
}
