package lending

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/strategy"
)

// CheckSlotsEvery is how often a server of a cluster is asked whether it still has the slots of the channels that are
// subscribed there.
const CheckSlotsEvery = subscription.PingEvery

// Subscribe returns after five seconds at the latest. fn hears messages on the goroutine that reads for all.
//
// On a cluster there is a connection to each master. A message reaches every node of a cluster, but a script counts
// only the subscribers at its own node, and makes no other waiter the successor. So a subscription ends when its
// slot has moved. The client follows MOVED without a word, so the node has to ask: see checkSlots.
//
// The client's own Receive subscribes again without a word when the connection breaks, and what was
// published in between is lost.
func (n *Node) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	return n.Sub.Subscribe(ctx, channel, fn)
}

func newSubscriber(n *Node) *subscription.Subscriber {
	s := subscription.New(&listening{n})
	if s.PingEvery = CheckSlotsEvery; !n.cluster {
		s.PingEvery = math.MaxInt64 // the client does that
	}
	return s
}

// listening is what subscriptions need of the node. A server is its name; of one server, or with Sentinel, that is empty.
type listening struct{ n *Node }

// Home asks which master of a cluster has the channel's slot, each time, as slots move.
func (l *listening) Home(ctx context.Context, channel string) (server any, err error) {
	n := l.n
	if !n.cluster {
		return "", nil
	}
	if !n.calls.Enter() {
		return nil, n.unsent(strategy.ErrClosed)
	}
	defer n.calls.Leave()
	lt, err := n.borrow(ctx, time.Now().Add(subscription.ConfirmLimit), channel)
	if err != nil {
		return nil, n.unsent(err)
	}
	defer n.giveBack(lt)
	if lt.server == "" {
		return "where " + channel + " is", nil // the server does not say which it is: a connection for each channel
	}
	return lt.server, nil
}

func (l *listening) Failed(_ any, kind, err error) error { return l.n.failed(kind, err) }

// Stale is false, as the client watches the connection.
func (l *listening) Stale(_, _ time.Time) bool { return false }

// Dial has the client call with what comes on the connection.
func (l *listening) Dial(ctx context.Context, ln *subscription.Link) (subscription.Conn, error) {
	key := ""
	if l.n.cluster {
		key = ln.Channel
	}
	due, _ := ctx.Deadline()
	lt, err := l.n.borrow(ctx, due, key)
	if err != nil {
		return nil, err
	}
	end := lt.Hear(func(channel, msg string) { ln.Hear(channel, []byte(msg)) })
	l.n.work.Go(func() {
		if err := <-end; err != nil {
			ln.Break(lost(err))
		}
	})
	return &listener{l.n, ln, lt}, nil
}

// A listener is a connection for subscriptions, which the client reads.
type listener struct {
	n    *Node
	ln   *subscription.Link
	lent *lent
}

func (c *listener) Close() { c.n.discard(c.lent) }

func (c *listener) Write(requests []*subscription.Request) ([]error, error) {
	answers := make([]error, len(requests))
	var cmds []Command
	var at []int // of each command, where its answer belongs
	for i, r := range requests {
		if r.Cmd != subscription.Ping {
			cmds, at = append(cmds, commandOf(r.Cmd, r.Channel)), append(at, i)
		} else if err := c.checkSlots(); err != nil {
			return nil, err
		}
	}
	replies, err := c.ask(cmds)
	for i, r := range replies {
		answers[at[i]] = r.Refusal
	}
	return answers, err
}

func (c *listener) ask(cmds []Command) ([]Reply, error) {
	replies, err := c.lent.ask(context.Background(), time.Now().Add(subscription.ConfirmLimit), cmds...)
	if err != nil {
		return nil, lost(err)
	}
	return replies, nil
}

// checkSlots asks the server for keys in the slots of the channels. If the server says that a slot has moved,
// the subscriptions there end, because this server does not count them. The client learns of the move by the same answers.
func (c *listener) checkSlots() error {
	var cmds []Command
	channels := c.ln.Channels()
	for _, channel := range channels {
		cmds = append(cmds, commandOf("EXISTS", channel))
	}
	replies, err := c.ask(cmds)
	if err != nil {
		return err
	}
	moved := map[string]bool{}
	for i, channel := range channels {
		err := replies[i].Refusal
		moved[channel] = err != nil && strings.HasPrefix(err.Error(), "MOVED ")
	}
	c.n.Sub.Move(func(server any, channel string) bool { return server == c.ln.Server && moved[channel] })
	return nil
}

// leaveSubscriptions ends those to a server that has turned out to be a replica. A cluster's client finds its masters by
// itself, and a connection that is being made is asked for its role.
func (n *Node) leaveSubscriptions() {
	n.Sub.Leave(func(conn subscription.Conn) bool { return conn != nil && !n.cluster })
}
