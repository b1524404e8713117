package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Gate stands before the servers. It is called for every request, by the
// goroutine that makes it, and calls send once, when the request may leave; send
// returns when the request was answered or has failed. So a gate can make things
// happen between two requests of one call, and before a reply comes back. A second
// send makes the request arrive twice, where that can be done, and does nothing elsewhere.
type Gate func(request string, send func())

// GateNode makes every request to n pass g; for [Subject].OpenGated of protocols
// on a node:
//
//	OpenGated: func(o strategy.Options, g conformance.Gate) (*strategy.Strategy, error) {
//		return strategy.New(luascript.On(conformance.GateNode(node, g)), o)
//	},
func GateNode(n strategy.Node, g Gate) strategy.Node { return gatedNode{n, g} }

type gatedNode struct {
	strategy.Node
	gate Gate
}

func (n gatedNode) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (reply any, err error) {
	n.gate(cmd+" "+key, func() { reply, err = n.Node.Do(ctx, due, cmd, key, args...) })
	return reply, err
}

func (n gatedNode) Eval(ctx context.Context, due time.Time, s *strategy.Script, keys []string, args ...any) (reply any, err error) {
	n.gate("script "+s.Name(), func() { reply, err = n.Node.Eval(ctx, due, s, keys, args...) })
	return reply, err
}

func (n gatedNode) Session(ctx context.Context, due time.Time, key string, fn func(strategy.Conn) error) error {
	return n.Node.Session(ctx, due, key, func(c strategy.Conn) error { return fn(gatedConn{c, n.gate}) })
}

func (n gatedNode) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	n.gate("SUBSCRIBE "+channel, func() { stop, err = n.Node.Subscribe(ctx, channel, fn) })
	return stop, err
}

type gatedConn struct {
	strategy.Conn
	gate Gate
}

func (c gatedConn) Do(cmd string, args ...any) (reply any, err error) {
	c.gate(cmd, func() { reply, err = c.Conn.Do(cmd, args...) })
	return reply, err
}

// requests is the gate of one contender. It counts, and lets a check step in.
type requests struct {
	rec *recorder
	who string

	mu   sync.Mutex
	n    int // requests so far
	from int // n when handler was set
	step func(i int, send func())
}

func (r *requests) pass(request string, send func()) {
	r.mu.Lock()
	r.n++
	i, step := r.n-r.from, r.step
	r.mu.Unlock()
	if step == nil {
		send()
		return
	}
	r.rec.add("%s sends request %d: %s", r.who, i, request)
	step(i, send)
}

// count returns how many requests the contender has made so far.
func (r *requests) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// each calls step for every request from now on, with its number from 1; nil: for
// none.
func (r *requests) each(step func(i int, send func())) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step, r.from = step, r.n
}

// before calls f before the k-th request from now on leaves.
func (r *requests) before(k int, f func()) {
	r.each(func(i int, send func()) {
		if i == k {
			f()
		}
		send()
	})
}

// after calls f when the k-th request from now on was answered, before the caller
// hears of it.
func (r *requests) after(k int, f func()) {
	r.each(func(i int, send func()) {
		send()
		if i == k {
			f()
		}
	})
}
