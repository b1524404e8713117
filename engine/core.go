package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/engine/internal/scheduler"
	"github.com/lockstrategies/locks/engine/internal/undo"
	"github.com/lockstrategies/locks/strategy"
)

// core is what the mechanisms of one strategy know: its algorithm, its options, and what it shares
// with the strategies made from it by With.
type core struct {
	p         driver.Protocol
	bulk      driver.BulkExtender // p, if it is one
	queue     driver.Queuer       // p, if it is one and Options.Wait is WaitQueue
	reenters  bool                // p lets owners in again
	announces bool                // p publishes each release to waiters that subscribe
	o         strategy.Options
	*shared
}

type shared struct {
	group   *lifecycle.Group
	undos   undo.Retrier
	renewal *scheduler.Scheduler[*lease] // renewals and deadlines
}

// enter begins a request that Close waits for.
func (s *shared) enter() error {
	if !s.group.Enter() {
		return strategy.ErrClosed
	}
	return nil
}

func (s *shared) leave() { s.group.Leave() }

// undo ends, in the background, a claim whose end nobody knows.
func (c *core) undo(claim driver.Claim) { c.undos.Undo(c.p, claim, c.o.OpTimeout) }

func (c *core) observe(e strategy.Event) {
	if c.o.Observe != nil {
		c.o.Observe(e)
	}
}

// endedBy adds to the error of a request that ctx cut short why ctx ended, if it does not say so.
func endedBy(ctx context.Context, err error) error {
	cut := ctx.Err() != nil && (errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent))
	if !cut || errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: %w", err, contextError(ctx))
}

// contextError returns why ctx ended: its error, and its cause if that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
