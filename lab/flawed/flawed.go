// Package flawed makes locks that go wrong on purpose, so that a test can show what it finds.
package flawed

import (
	"context"
	"io"

	"github.com/lockstrategies/locks/driver"
)

// A Protocol is another one with something in place of its moves; nil: nothing. It hides what
// else the other can do, so its waiters poll.
type Protocol struct {
	driver.Protocol
	Acquires, Extends func(context.Context, driver.Claim) (driver.Grant, error)
	Releases          func(context.Context, driver.Claim) error
}

// Granting is p with something else in place of what its acquires come to.
func Granting(p driver.Protocol, instead func(driver.Grant, error) (driver.Grant, error)) *Protocol {
	return &Protocol{Protocol: p, Acquires: func(ctx context.Context, c driver.Claim) (driver.Grant, error) {
		return instead(p.Acquire(ctx, c))
	}}
}

// Extending is p with something else in place of what its extensions come to.
func Extending(p driver.Protocol, instead func(driver.Grant, error) (driver.Grant, error)) *Protocol {
	return &Protocol{Protocol: p, Extends: func(ctx context.Context, c driver.Claim) (driver.Grant, error) {
		return instead(p.Extend(ctx, c))
	}}
}

func (p *Protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if p.Acquires != nil {
		return p.Acquires(ctx, c)
	}
	return p.Protocol.Acquire(ctx, c)
}

func (p *Protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if p.Extends != nil {
		return p.Extends(ctx, c)
	}
	return p.Protocol.Extend(ctx, c)
}

func (p *Protocol) Release(ctx context.Context, c driver.Claim) error {
	if p.Releases != nil {
		return p.Releases(ctx, c)
	}
	return p.Protocol.Release(ctx, c)
}

// Close closes the other, if it can be closed.
func (p *Protocol) Close() error {
	if c, ok := p.Protocol.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
