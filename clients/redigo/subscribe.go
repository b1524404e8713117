package redigonode

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/subscription"
)

// Subscribe returns after five seconds at the latest. fn hears messages on the goroutine that reads for all.
func (n *node) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	return n.sub.Subscribe(ctx, channel, fn)
}

// listening is what subscriptions need of the node.
type listening struct{ n *node }

func (l *listening) Home(context.Context, string) (server any, err error) { return nil, nil }

func (l *listening) Failed(_ any, kind, err error) error { return l.n.failed(kind, err) }

// Stale applies the pool's limits.
func (l *listening) Stale(born, used time.Time) bool {
	p := l.n.pool
	return p.IdleTimeout > 0 && time.Since(used) > p.IdleTimeout ||
		p.MaxConnLifetime > 0 && time.Since(born) > p.MaxConnLifetime
}

// Dial also asks the server for its address, before a subscription forbids that.
func (l *listening) Dial(ctx context.Context, _ *subscription.Link) (subscription.Conn, error) {
	dialled, err := client.Call(ctx, &l.n.dials, l.dial, listener.Close)
	if err != nil {
		return nil, err
	}
	return dialled, nil
}

func (l *listening) dial(ctx context.Context) (c listener, err error) {
	if c.conn, err = l.n.dialPool(ctx); err != nil || l.n.unordered.Load() {
		return c, err
	}
	defer context.AfterFunc(ctx, c.Close)() // ends the question
	due, _ := ctx.Deadline()
	replies, err := ask(c.conn, due, clientInfo)
	if err != nil {
		c.Close()
		return c, err
	}
	c.server = l.n.introduced(replies[0]).Server
	return c, nil
}

// A listener is a connection for subscriptions.
type listener struct {
	conn   redis.ConnWithTimeout
	server string // the server's own address; empty: not known
}

func (c listener) Close() { c.conn.Close() }

func (c listener) Write(requests []*subscription.Request) ([]error, error) {
	for _, r := range requests {
		var args []any
		if r.Channel != "" {
			args = []any{r.Channel}
		}
		if err := c.conn.Send(r.Cmd, args...); err != nil {
			return nil, lost(err)
		}
	}
	if err := c.conn.Flush(); err != nil {
		return nil, lost(err)
	}
	return nil, nil
}

// commands are the words by which a server answers.
var commands = map[string]string{
	"subscribe": subscription.Subscribe, "unsubscribe": subscription.Unsubscribe, "pong": subscription.Ping,
}

func (c listener) Read(limit time.Duration) (e subscription.Event, err error) {
	reply, err := readReply(c.conn, limit)
	switch {
	case isReply(err):
		return subscription.Event{Refusal: err}, nil
	case err != nil:
		return e, lost(err)
	case reply == "PONG": // nothing is subscribed any more
		return subscription.Event{Cmd: subscription.Ping}, nil
	}
	parts, _ := reply.([]any)
	if len(parts) < 2 {
		return e, lost(fmt.Errorf("an unexpected reply: %s", unexpected(reply, nil)))
	}
	word := text(parts[0])
	e.Message, e.Cmd, e.Channel = word == "message", commands[word], text(parts[1])
	if e.Message && len(parts) > 2 {
		e.Payload, _ = parts[2].([]byte)
	}
	return e, nil
}

func text(v any) string { b, _ := v.([]byte); return string(b) }

// follow ends a subscription to another server than the one to which requests go now: the address leads to that
// now, and the subscription's server may be a replica that nobody asks any more.
func (n *node) follow(server string) {
	n.sub.Leave(func(conn subscription.Conn) bool {
		c, ready := conn.(listener)
		return ready && c.server != "" && server != "" && c.server != server
	})
}

// leaveSubscriptions ends those to a server that has turned out to be a replica.
func (n *node) leaveSubscriptions() {
	n.sub.Leave(func(subscription.Conn) bool { return true })
}
