// Package holderset is what algorithms share whose lock several may hold at a time: the Lua that keeps the holders in
// a sorted set, and how its replies are read.
package holderset

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/algorithm/queue"
	"github.com/lockstrategies/locks/strategy"
)

var (
	// Lua reads and changes the holders of a lock.
	//
	//go:embed holders.lua
	Lua string

	// Alone grants a lock that is free, before Lua. It needs [fences.Numbers] before it.
	//
	//go:embed alone.lua
	Alone string

	// Extend is the script that renews. It needs Lua before it, and the algorithm's held_members.
	//
	//go:embed extend.lua
	Extend string

	// Inspect is the script that looks. It needs Lua and [queue.Entries] before it.
	//
	//go:embed inspect.lua
	Inspect string
)

// A Protocol is the part of a protocol that does not depend on what is held: Extend, ExtendAll and Probe, and how
// replies are read.
type Protocol struct {
	driver.Node // Close is the node's
	Names       *keycache.Cache
	Renewal     *driver.Script // ends with [Extend]
}

// Extend lets the hold last for its TTL from now, if it still counts.
func (p *Protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return p.bulk().Extend(ctx, c)
}

// ExtendAll does the same for many holds, up to a hundred in a request.
func (p *Protocol) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	p.bulk().ExtendAll(ctx, cs, done)
}

func (p *Protocol) bulk() rediskit.BulkScript {
	return rediskit.BulkScript{Node: p, Script: p.Renewal, Most: 100, Refused: p.lost}
}

// Prove is what has an acquire prove the user's rights, until one has; after that it is empty.
func Prove(l *keycache.Lock) string {
	if l.Proven.Load() {
		return ""
	}
	return "1"
}

// Proved notes that an acquire of c that ended with err has proved the user's rights. One for a holder proves none.
func Proved(l *keycache.Lock, c driver.Claim, err error) {
	if err == nil && !c.Repeated && !l.Proven.Load() {
		l.Proven.Store(true)
	}
}

// Acquired reads the reply of an acquire: a fence, or who holds the lock.
func (p *Protocol) Acquired(c driver.Claim, reply any) (driver.Grant, error) {
	if fence, ok := reply.(int64); ok {
		return p.granted(fence)
	}
	if g, held, ok := queue.HeldReply(c, reply); ok {
		return g, held
	}
	return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
}

// Adopted reads the reply of an adopt: a fence, or nil.
func (p *Protocol) Adopted(c driver.Claim, reply any) (driver.Grant, error) {
	if fence, ok := reply.(int64); ok {
		return p.granted(fence)
	}
	return driver.Grant{}, p.lost(c, reply)
}

func (p *Protocol) granted(fence int64) (driver.Grant, error) {
	if fence <= 0 {
		return driver.Grant{}, rediskit.BadReply(p.Name(), fence)
	}
	return driver.Grant{Fence: uint64(fence)}, nil
}

func (p *Protocol) lost(c driver.Claim, reply any) error {
	return rediskit.LostReply(p.Name(), c, reply)
}

// Inspected runs a script that ends with [Inspect], and reads its reply. The keys are the lock, its fence counter and its
// queues.
func (p *Protocol) Inspected(ctx context.Context, c driver.Claim, inspect *driver.Script, keys ...string) (strategy.Info, error) {
	reply, err := p.Eval(ctx, c.Due, inspect, keys)
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 5 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	held, ok := r[0].(int64)
	ms, ok2 := r[2].(int64)
	waiting, ok3 := r[4].([]any)
	token, ok4 := r[1].([]byte)
	if !ok || !ok2 || !ok3 || held != 0 && !ok4 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	fence, err := rediskit.FenceReply(p.Name(), keys[1], r[3])
	if err != nil {
		return strategy.Info{}, err
	}
	info := strategy.Info{Queue: queue.Tokens(waiting), Fence: fence}
	if held != 0 {
		info.Held, info.Token, info.Owner, info.Holds, info.TTL = true, string(token), string(token), int(held), rediskit.RemainingTTL(ms)
	}
	return info, nil
}
