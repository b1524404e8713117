// Package election is the recipe of docs/election.md: leader election over the contract of
// package strategy, to be copied.
package election

import (
	"context"
	"errors"

	"github.com/lockstrategies/locks/strategy"
)

// Lead campaigns for l until it has it, calls reign, resigns when that returns, and
// campaigns again, until ctx ends or there is an error other than a loss.
func Lead(ctx context.Context, l strategy.Lock, reign func(context.Context, strategy.Lease) error) error {
	for {
		err := strategy.Do(ctx, l, reign) // campaign, lead, resign
		if err != nil && !errors.Is(err, strategy.ErrLost) {
			return err
		}
	}
}
