// Package broken has locks that go wrong on purpose, each by one mistake, of the kind that locks in the field make. With
// them whatever judges locks shows that it convicts: the suite, the lab's matrix of faults, and its nemesis.
package broken

import (
	"context"
	"io"

	"github.com/lockstrategies/locks/driver"
)

// A Lock is a mistake, and how to make it of a correct protocol, or of a correct node.
type Lock struct {
	Name     string   // "… that undoes nothing"
	Breaks   []string // the properties of package conformance that convict its Protocol, each on its own
	Protocol func(driver.Protocol) driver.Protocol
	Node     func(driver.Node) driver.Node // nil: none; not nil, with a Protocol: both
}

// A Protocol is another one with something in place of its moves; nil: nothing. It hides what
// else the other can do, so its waiters poll.
type Protocol struct {
	driver.Protocol
	Acquires, Extends func(context.Context, driver.Claim) (driver.Grant, error)
	Releases          func(context.Context, driver.Claim) (driver.Outcome, error)
	Undoes            func(context.Context, driver.Claim) error
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

func (p *Protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	if p.Releases != nil {
		return p.Releases(ctx, c)
	}
	return p.Protocol.Release(ctx, c)
}

func (p *Protocol) Undo(ctx context.Context, c driver.Claim) error {
	if p.Undoes != nil {
		return p.Undoes(ctx, c)
	}
	return p.Protocol.Undo(ctx, c)
}

// Close closes the other, if it can be closed.
func (p *Protocol) Close() error {
	if c, ok := p.Protocol.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
