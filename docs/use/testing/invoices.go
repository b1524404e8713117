// Package invoices is a small service that holds locks, for docs/use/testing.md: its tests show how to test
// such code without Redis.
package invoices

import (
	"context"
	"errors"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// Locks is what the service needs of a [strategy.Strategy].
type Locks interface {
	NewLock(name string) strategy.Lock
}

// Service pays invoices, each by one process at a time.
type Service struct {
	Locks Locks
	Send  func(ctx context.Context, id string, fence uint64) error
}

// ErrBusy says that somebody else is paying the invoice.
var ErrBusy = errors.New("somebody else is paying it")

// Pay waits for 2 s for the lock of the invoice.
func (s *Service) Pay(ctx context.Context, id string) error {
	err := strategy.DoWithin(ctx, s.Locks.NewLock("invoice/"+id), 2*time.Second,
		func(ctx context.Context, lease strategy.Lease) error {
			return s.send(ctx, id, lease)
		})
	if errors.Is(err, strategy.ErrHeld) {
		return ErrBusy
	}
	return err
}

// send needs the lock. So it asks for the lease.
func (s *Service) send(ctx context.Context, id string, lease strategy.Lease) error {
	fence, ok := lease.Fence()
	if !ok {
		return errors.New("the bank wants a fence")
	}
	return s.Send(ctx, id, fence)
}
