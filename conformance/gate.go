package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A Gate stands before the servers. It is called for every request, and calls send
// once, when the request may leave; send returns when the request was answered or has
// failed. So a gate can make things happen between two requests of one call, and
// before a reply comes back. It may be called by several goroutines at once.
// A second send makes the request arrive twice, where that can be done, and does nothing
// elsewhere.
//
// A gate of [GateNode] can also be a bad network:
//
//	func(string, func()) {}                         // lost before it left: ErrUnsent
//	func(_ string, send func()) { <-thaw; send() }  // slow there, or frozen
//	func(_ string, send func()) { send(); <-thaw }  // slow back, or the reply is lost
//
// A caller waits for a gate no longer than for a server: when the request's time-out
// comes or its ctx ends, the caller leaves with ErrUnknown. A request that the gate sends
// after that still takes effect, as with a server that was frozen and thaws. Only a
// subscription, and a command of a Session, do not: their connection is gone by then.
type Gate func(request string, send func())

// GateNode makes every request to n pass g, on a goroutine of its own, while the caller
// waits; for [Subject].OpenGated of protocols on a node:
//
//	OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
//		return luascript.New(conformance.GateNode(node, g), o)
//	},
//
// Once a request has overtaken an earlier one on the same key, or leaves when its
// caller is gone, the node does not keep order any more, and Ordered says so.
func GateNode(n driver.Node, g Gate) driver.Node {
	return &gatedNode{Node: n, gate: g, waiting: map[string][]*passage{}}
}

type gatedNode struct {
	driver.Node
	gate Gate

	mu       sync.Mutex
	waiting  map[string][]*passage // called and not sent, by key, in order
	overtook bool
}

// A passage is a request at its gate.
type passage struct {
	request string
	key     string
	due     time.Time // zero: none
	fragile bool      // nothing of it leaves once its caller waits no longer
	single  bool      // nor does it arrive twice

	sent   chan struct{} // closed when send has returned
	passed chan struct{} // closed when the gate has

	// Guarded by the node's mu.
	leaves    bool // send was called
	abandoned bool // its caller waits no longer
	lost      bool // the gate returned without sending it
}

// lateLimit bounds a request whose caller waits no longer.
const lateLimit = 10 * time.Second

// pass brings a request past the gate, and its answer back.
func pass[T any](ctx context.Context, n *gatedNode, p passage, ask func(ctx context.Context, due time.Time) (T, error)) (T, error) {
	if timeup.Over(ctx) || !p.due.IsZero() && !time.Now().Before(p.due) {
		return ask(ctx, p.due) // it does not leave, so it comes to no gate
	}
	p.sent, p.passed = make(chan struct{}), make(chan struct{})
	var reply T // written before sent is closed, as is err
	var err error
	n.mu.Lock()
	n.waiting[p.key] = append(n.waiting[p.key], &p)
	n.mu.Unlock()
	go func() {
		defer close(p.passed)
		defer n.forget(&p)
		n.gate(p.request, func() {
			late, ok := n.leave(&p)
			if !ok {
				if n.again(&p) {
					r, e := ask(ctx, p.due)
					n.mu.Lock()
					defer n.mu.Unlock()
					if !p.abandoned { // nor has anybody looked at the first reply
						reply, err = r, e
					}
				}
				return
			}
			defer close(p.sent)
			if late {
				_, _ = ask(context.WithoutCancel(ctx), time.Now().Add(lateLimit)) // nobody hears of it
				return
			}
			reply, err = ask(ctx, p.due)
		})
	}()

	var timeout <-chan time.Time
	if !p.due.IsZero() {
		timer := time.NewTimer(time.Until(p.due))
		defer timer.Stop()
		timeout = timer.C
	}
	cause := error(context.DeadlineExceeded)
	select {
	case <-p.passed:
	case <-timeout:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	var none T
	switch leaves, passed := n.abandon(&p); {
	case leaves:
		<-p.sent // the node sees to it that this is soon
		if err != nil || passed || isClosed(p.passed) {
			return reply, err
		}
		if stop, ok := any(reply).(func()); ok {
			stop() // a subscription of which nobody will hear
		}
		return none, &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnknown, Err: cause}
	case passed:
		return none, &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnsent, Err: errGate}
	default:
		return none, &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnknown, Err: cause}
	}
}

var errGate = errors.New("the gate did not let it pass")

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// leave is called when a request is sent. It must not be if ok is false: it was sent
// before, or has nowhere to go. late says that its caller waits no longer.
func (n *gatedNode) leave(p *passage) (late, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.leaves || p.lost || p.abandoned && p.fragile {
		return false, false
	}
	p.leaves = true
	if n.waiting[p.key][0] != p || p.abandoned { // what its caller does next is under way with it
		n.overtook = true
	}
	n.strike(p)
	return p.abandoned, true
}

// again reports whether a request that was sent can be sent once more.
func (n *gatedNode) again(p *passage) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p.leaves && !p.abandoned && !p.single && isClosed(p.sent)
}

// abandon is called when the caller waits no longer.
func (n *gatedNode) abandon(p *passage) (leaves, passed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.abandoned = true
	if p.fragile {
		n.strike(p)
	}
	return p.leaves, isClosed(p.passed)
}

// forget is called when the gate has returned: what was not sent is lost.
func (n *gatedNode) forget(p *passage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.lost = !p.leaves
	n.strike(p)
}

// strike is for callers that hold mu.
func (n *gatedNode) strike(p *passage) {
	left := slices.DeleteFunc(n.waiting[p.key], func(other *passage) bool { return other == p })
	if len(left) > 0 {
		n.waiting[p.key] = left
	} else {
		delete(n.waiting, p.key)
	}
}

func (n *gatedNode) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	return pass(ctx, n, passage{request: cmd + " " + key, key: key, due: due}, func(ctx context.Context, due time.Time) (any, error) {
		return n.Node.Do(ctx, due, cmd, key, args...)
	})
}

func (n *gatedNode) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	var key string
	if len(keys) > 0 {
		key = keys[0] // of several locks the others are not kept in order: their scripts only renew
	}
	return pass(ctx, n, passage{request: "script " + s.Name(), key: key, due: due}, func(ctx context.Context, due time.Time) (any, error) {
		return n.Node.Eval(ctx, due, s, keys, args...)
	})
}

func (n *gatedNode) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	return n.Node.Session(ctx, due, key, func(c driver.Conn) error {
		return fn(gatedConn{c, func(cmd string, args []any) (any, error) {
			return pass(ctx, n, passage{request: cmd, key: key, due: due, fragile: true}, func(context.Context, time.Time) (any, error) {
				return c.Do(cmd, args...)
			})
		}})
	})
}

func (n *gatedNode) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	return pass(ctx, n, passage{request: "SUBSCRIBE " + channel, key: channel, fragile: true, single: true}, func(ctx context.Context, _ time.Time) (func(), error) {
		return n.Node.Subscribe(ctx, channel, fn)
	})
}

func (n *gatedNode) Ordered() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.overtook && n.Node.Ordered()
}

type gatedConn struct {
	driver.Conn
	pass func(cmd string, args []any) (any, error)
}

func (c gatedConn) Do(cmd string, args ...any) (any, error) { return c.pass(cmd, args) }
