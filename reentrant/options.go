package reentrant

import (
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// Acknowledged makes what grants or prolongs a lock count only once replicas, or the
// append-only file, have confirmed it. Then fewer fail-overs, or power cuts, forget a lock: see
// [strategy.Acks], also for what it cannot do. It costs two more round trips each time, over
// connections of the pool.
func Acknowledged(a strategy.Acks) Option {
	return func(p *protocol) { p.acks = &a }
}

// on returns the same algorithm on another node.
func (p protocol) on(n driver.Node) *protocol {
	p.Node = n
	return &p
}
