// Package wait lets time pass.
package wait

import (
	"context"
	"time"
)

// For returns when d has passed or ctx ends. It says whether d has passed.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
