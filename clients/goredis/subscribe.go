package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/strategy"
)

// idleLimit is for how long a connection without subscriptions is trusted.
const idleLimit = time.Minute

// Subscribe returns after five seconds at the latest. fn hears messages on the goroutine that reads for all.
//
// In a cluster a message reaches every node, but PUBLISH counts only the subscribers at its own
// node, and scripts go by that count. So the connection leads to the master of the channel's slot, and a
// subscription ends when that slot has another master: see moved.
func (n *node) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	return n.sub.Subscribe(ctx, channel, fn)
}

// listening is what subscriptions need of the node. A server is a *redis.Client.
type listening struct{ n *node }

func (l *listening) Home(ctx context.Context, channel string) (server any, err error) {
	due, _ := ctx.Deadline()
	call, err := l.n.begin(ctx, due)
	if err != nil {
		return nil, err
	}
	defer call.done()
	at, err := l.n.to.at(call.ctx, channel)
	if err != nil {
		return nil, call.unsent(err)
	}
	return at, nil
}

// Dial leaves the connection to the first command: go-redis makes none without one.
func (l *listening) Dial(ctx context.Context, ln *subscription.Link) (subscription.Conn, error) {
	at := ln.Server.(*redis.Client)
	return &listener{n: l.n, at: at, ctx: ctx, ps: at.Subscribe(ctx), made: make(chan struct{})}, nil
}

func (l *listening) Stale(_, used time.Time) bool { return time.Since(used) > idleLimit }

func (l *listening) Failed(server any, kind, err error) error {
	name := l.n.Name()
	if at, known := server.(*redis.Client); known {
		name = l.n.to.nameOf(at)
	}
	if kind == strategy.ErrRefused && redis.IsAuthError(err) {
		kind, err = strategy.ErrUnsent, unauthenticated(err)
	}
	return &strategy.ServerError{Node: name, Kind: kind, Err: client.Discreet(err, l.n.password)}
}

// A listener is a PubSub, which is one connection.
type listener struct {
	n   *node
	at  *redis.Client
	ctx context.Context // bounds the dial
	ps  *redis.PubSub

	first sync.Once
	made  chan struct{} // closed when the connection is there, or will not be
	err   error         // why not; constant once made is closed
}

// severed is a context that has ended. A PubSub that has a connection uses it whatever the
// context is. A PubSub that has lost it would dial and subscribe again; with this context it cannot.
var severed = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (c *listener) Close() {
	c.ps.Close() //nolint:errcheck // nothing of it is used any more
	c.first.Do(func() { close(c.made) })
}

func (c *listener) Write(requests []*subscription.Request) (answers []error, err error) {
	c.first.Do(func() {
		err = c.dial(requests[0])
		requests = requests[1:]
	})
	for _, r := range requests {
		if err == nil {
			err = c.send(severed, r)
		}
	}
	return nil, lost(err)
}

// dial sends the first request. If that fails, go-redis does not say whether the request has left; but then no server
// has let us in.
func (c *listener) dial(r *subscription.Request) error {
	defer close(c.made)
	if err := c.send(c.ctx, r); err != nil {
		c.err = fmt.Errorf("%w: %w", subscription.ErrNotSent, c.n.greeted(c.ctx, c.at, err))
	}
	return c.err
}

func (c *listener) send(ctx context.Context, r *subscription.Request) error {
	switch r.Cmd {
	case subscription.Subscribe:
		return c.ps.Subscribe(ctx, r.Channel)
	case subscription.Unsubscribe:
		return c.ps.Unsubscribe(ctx, r.Channel)
	}
	c.n.moved() // go-redis learns of moves in other ways than by redirects, too
	return c.ps.Ping(ctx)
}

// Read reads one reply or message, once the connection is there. go-redis panics at what no Redis says.
func (c *listener) Read(limit time.Duration) (e subscription.Event, err error) {
	if <-c.made; c.err != nil {
		return e, c.err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not a message of Redis: %v", r)
		}
	}()
	said, err := c.ps.ReceiveTimeout(severed, limit)
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return subscription.Event{Refusal: refusal}, nil
	}
	if err != nil {
		return e, lost(err)
	}
	switch said := said.(type) {
	case *redis.Message:
		return subscription.Event{Message: true, Channel: said.Channel, Payload: []byte(said.Payload)}, nil
	case *redis.Subscription:
		return subscription.Event{Cmd: strings.ToUpper(said.Kind), Channel: said.Channel}, nil
	}
	return subscription.Event{Cmd: subscription.Ping}, nil
}

// leaveSubscriptions ends those to a server that has turned out to be a replica.
func (n *node) leaveSubscriptions() {
	n.sub.Leave(func(subscription.Conn) bool { return true })
}

// moved ends the subscriptions to channels whose slots have another master now. It is called when a command has been
// redirected, and with each PING.
func (n *node) moved() {
	n.sub.Move(func(server any, channel string) bool {
		at, err := n.to.at(n.life, channel) // by what go-redis knows: it asks nobody
		return err == nil && at != server
	})
}
