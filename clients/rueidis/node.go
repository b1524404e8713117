// Package rueidisnode makes a [driver.Node] of a client of github.com/redis/rueidis, for
// the New of each strategy:
//
//	locks, err := fairqueue.New(rueidisnode.New(client), strategy.Options{})
//
// # One server, or Sentinel
//
// Do and Eval share one connection, which the client lends for good: what is called while
// others wait for their replies is sent next, in one packet, and the order of the calls is
// the order of the effects. When the Node gives that connection up, nobody knows what the server
// will still read from it. So the Node kills it (CLIENT KILL) before the next connection carries
// anything: an undo on the new connection cannot overtake the acquire that it undoes. If the
// server forbids that, [driver.Node].Ordered is false.
//
// The client reads that connection also at rest, so that the Node learns when the server closes it: the next request goes
// over another. A request is lost with the connection ([strategy.ErrUnknown]) if it comes before the client's reader has
// run; with AlwaysRESP2, if it comes within a second of the connection's last reply, as nothing reads then.
//
// After a fail-over, connections may lead to what is a replica now. The Node asks for the role of each connection that
// the client lends. What a replica refuses with READONLY has changed nothing: the Node leaves the connection, ends the
// subscriptions, and sends it again over another, once a second at most.
//
// The client's own pipelines would not do: it has up to four to a server, and gives commands
// to them at random.
//
// # Cluster
//
// On a cluster Do and Eval go through the client's own pipelines: it knows which master has
// the key, and follows MOVED and ASK; TRYAGAIN, which has changed nothing either, is asked again
// until due. The order of the effects is not known there, so [driver.Node].Ordered is false from the
// start. A lock's keys share a hash tag, so they share a slot.
//
// A rueidis client with a ConnLifetime sends a command again, on a new connection, if it had
// no reply for a second after the old one's time was up. The server may have had it already. A
// token is fresh for every attempt, so that grants no lock twice; but leave ConnLifetime at zero on
// a cluster. Elsewhere it does not matter: what is lent has no such end.
//
// # What the client's options mean here
//
// Nothing is sent twice that may have been sent: rueidis retries only commands that are
// marked as read-only, and none is marked so here, whatever DisableRetry says.
//
// Dialer.Timeout bounds the making of a connection. Callers leave in their own time, but
// while a server's address swallows packets, no second attempt begins before the first has
// ended. So set it to a second or two; the default is five. Dialer.KeepAlive and
// ConnWriteTimeout say how soon the client's own PING finds that a quiet server is dead. By
// default a subscription to a server that has gone without a word ends after eleven seconds; until
// then waiters wake by the holder's remaining TTL. Where a firewall drops connections without a word, a request
// that is not answered costs one attempt: the next goes over a new connection, as idle ones then have 50 ms to
// answer. Not on a cluster: there requests are lost until the client's PING has found its pipeline, and its idle
// connections, dead, twelve seconds by default. With a ConnWriteTimeout of a second that takes three, so a lease
// whose TTL is ten seconds is kept.
//
// A Node takes two connections of the client's BlockingPoolSize, one for requests and one for
// subscriptions, and one more for each session: take-overs of setnxgetset.WithWatchTakeOver, and
// Options.Acks. On a cluster requests take none, and subscriptions one to each master. A user
// of the server needs, in addition to what the strategy sends, CLIENT INFO and CLIENT KILL for the
// order. On a cluster it also needs CLUSTER MYID, without which each channel has its own connection.
// And it needs EXISTS on keys called like the channels, without which a subscription stays where it
// was when its slot moves.
package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
)

// New makes a Node of a client and does no I/O. The client stays the caller's: Close does not
// close it. Close the Node, or the strategy that has it, before the client: connections that
// are lent outlive the client's Close.
//
// No client (nil) is an error of the strategy's New.
func New(c rueidis.Client) driver.Node {
	if c == nil {
		return driver.BadNode(errors.New("locks: the rueidis.Client is nil: make one with rueidis.NewClient"))
	}
	return lending.New(lender{c})
}

// A lender is a client, and a loan one of its connections, in the words of package lending.
type (
	lender struct{ rueidis.Client }
	loan   struct{ rueidis.DedicatedClient }
)

func (c lender) Cluster() bool { return c.Mode() == rueidis.ClientModeCluster }

func (c lender) Addrs() []string {
	if c.Mode() == rueidis.ClientModeSentinel {
		return nil
	}
	return slices.Collect(maps.Keys(c.Nodes()))
}

func (c lender) Do(ctx context.Context, cmd lending.Command) lending.Reply {
	return replyOf(c.Client.Do(ctx, build(c.B(), cmd)))
}

func (c lender) Dedicate() (lending.Conn, func()) {
	dedicated, release := c.Client.Dedicate()
	return loan{dedicated}, release
}

func (c loan) DoMulti(ctx context.Context, cmds ...lending.Command) []lending.Reply {
	built := make(rueidis.Commands, len(cmds))
	for i, cmd := range cmds {
		built[i] = build(c.B(), cmd)
	}
	replies := make([]lending.Reply, len(cmds))
	for i, r := range c.DedicatedClient.DoMulti(ctx, built...) {
		replies[i] = replyOf(r)
	}
	return replies
}

func (c loan) Hear(fn func(channel, msg string)) (end <-chan error) {
	return c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { fn(m.Channel, m.Message) }})
}

// build makes the client's command, which can be sent once: the client takes it back. It tells the slot and no keys, because
// the builder panics at keys of several slots, where the server refuses them.
func build(b rueidis.Builder, cmd lending.Command) rueidis.Completed {
	switch cmd.Name {
	case subscription.Subscribe:
		return b.Subscribe().Channel(cmd.Words...).Build()
	case subscription.Unsubscribe:
		return b.Unsubscribe().Channel(cmd.Words...).Build()
	}
	built := b.Arbitrary(cmd.Name).Args(cmd.Words...).Build()
	if cmd.Slot != "" {
		built = built.SetSlot(cmd.Slot)
	}
	return built
}

func replyOf(r rueidis.RedisResult) (reply lending.Reply) {
	if err := r.NonRedisError(); err != nil {
		return lending.Reply{Broken: err, NoSlot: errors.Is(err, rueidis.ErrNoSlot)}
	}
	m, err := r.ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return lending.Reply{Refusal: err}
	}
	reply.Value, reply.Odd = plainReply(m)
	return reply
}

// plainReply makes nil, int64, []byte and []any of what RESP3 has besides them: of a map a
// list of keys and values, of a boolean 1 or 0, of other scalars their text.
func plainReply(m rueidis.RedisMessage) (any, error) {
	switch {
	case m.IsNil():
		return nil, nil
	case m.IsInt64():
		return m.ToInt64()
	case m.IsBool():
		if yes, _ := m.ToBool(); yes {
			return int64(1), nil
		}
		return int64(0), nil
	case m.IsArray():
		all, _ := m.ToArray() // it is one
		return plainReplies(all)
	case m.IsMap():
		pairs, err := m.ToMap()
		if err != nil {
			return nil, err
		}
		var all []any
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			value, err := plainReply(pairs[key])
			if err != nil {
				return nil, err
			}
			all = append(all, []byte(key), value)
		}
		return all, nil
	}
	text, err := m.ToString()
	if err != nil { // an error among others, or a type that no reply has
		return nil, err
	}
	if !m.IsString() && len(text) >= 4 && text[3] == ':' {
		text = text[4:] // a verbatim string, which begins with its format
	}
	return []byte(text), nil
}

func plainReplies(all []rueidis.RedisMessage) (any, error) {
	replies := make([]any, len(all))
	for i, m := range all {
		reply, err := plainReply(m)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		replies[i] = reply
	}
	return replies, nil
}
