// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.

package valkeynode

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/lockstrategies/locks/internal/callback"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

const (
	// confirmLimit bounds Subscribe where its ctx does not, and what is said on the connection.
	confirmLimit = 5 * time.Second

	// lookEvery is how often a server of a cluster is asked whether it still has the slots of the
	// channels that are subscribed there.
	lookEvery = 3 * time.Second
)

// A subscriber keeps one connection for all subscriptions of a Node, on a cluster one to each
// master. A message reaches every node of a cluster, but a script counts only the subscribers at its
// own node, and makes no other waiter the successor. So a subscription ends when its slot has moved.
// valkey-go follows MOVED without a word, so the subscriber has to ask: see look. valkey-go reads the
// connection, and calls the subscriber with each message. A goroutine that ends with the subscriptions
// writes the commands. When the last subscription has ended, the connection stays, at rest: waiters
// come in bursts.
//
// The client's own Receive subscribes again without a word when the connection breaks, and what was
// published in between is lost.
type subscriber struct {
	n         *Node
	lookEvery time.Duration // constant; tests shorten it

	mu     sync.Mutex
	closed bool
	lines  map[string]*hearing // by server; of one server, or with Sentinel, there is one
}

// A hearing is one connection for subscriptions. All is guarded by the subscriber's lock,
// but that lent is the writer's until it is done.
type hearing struct {
	server  string
	key     string // leads to the server; empty: any does
	lent    *lent  // nil: still being made
	gone    bool
	writing bool
	reused  bool // it was at rest, and has not answered since
	topics  callback.Topics
	out     []*request // to be written
	looks   bool       // lookDue will be called
	look    bool       // to be asked which slots are the server's
}

// A request is SUBSCRIBE, or UNSUBSCRIBE.
type request struct {
	topic *callback.Topic
	ends  bool
}

// errStale says that a connection was no good before it had carried anything, as it had died at
// rest, or leads to a server that has lost the slot: another is worth a try.
var errStale = errors.New("the connection had died at rest")

// Subscribe subscribes fn to a channel and returns once the server has confirmed it; at the
// latest after five seconds. Any number may listen to one channel. fn runs on the goroutine
// that reads for all.
//
// stop waits for a call of fn under way, so that none is seen after it. Called from inside fn
// it cannot wait for itself: it returns at once, and this call is the last.
func (n *Node) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, n.unsent(context.Cause(ctx))
	}
	limit := time.NewTimer(confirmLimit)
	defer limit.Stop()
	for {
		server, key, err := n.home(ctx, channel)
		if err != nil {
			return nil, n.unsent(err)
		}
		stop, err = n.sub.listen(ctx, limit.C, server, key, channel, fn)
		if !errors.Is(err, errStale) {
			return stop, err
		}
	}
}

// listen is one try of Subscribe.
func (s *subscriber) listen(ctx context.Context, limit <-chan time.Time, server, key, channel string, fn func([]byte, error)) (func(), error) {
	l := callback.Listen(fn)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, s.n.unsent(strategy.ErrClosed)
	}
	h := s.lines[server]
	if h == nil {
		h = &hearing{server: server, key: key, topics: callback.Topics{}}
		s.lines[server] = h
	}
	t := s.join(h, channel, l)
	s.mu.Unlock()

	stop := func() {
		l.Silence()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.part(h, t, l)
	}
	var why error
	select {
	case err := <-l.Ready():
		if err != nil {
			return nil, err
		}
		return stop, nil
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-limit:
		why = timeup.Err
	}
	l.Silence()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part(h, t, l)
	return nil, s.n.failed(doubt(t.Written), why)
}

// home is where a channel is to be listened to, and a key that leads there. Which master of a
// cluster has the channel's slot is asked each time, as slots move.
func (n *Node) home(ctx context.Context, channel string) (server, key string, err error) {
	if !n.cluster {
		return "", "", nil
	}
	if !n.calls.enter() {
		return "", "", strategy.ErrClosed
	}
	defer n.calls.open.Done()
	lt, err := n.borrow(ctx, time.Now().Add(confirmLimit), channel)
	if err != nil {
		return "", "", err
	}
	defer n.giveBack(lt)
	if lt.server == "" {
		return "where " + channel + " is", channel, nil // the server does not say which it is: a connection for each channel
	}
	return lt.server, channel, nil
}

// join adds a listener, and subscribes if it is the first.
func (s *subscriber) join(h *hearing, channel string, l *callback.Listener) *callback.Topic {
	t, fresh := h.topics.Join(channel, l)
	if fresh {
		s.request(h, &request{topic: t})
	}
	return t
}

// part removes a listener, and unsubscribes if it was the last.
func (s *subscriber) part(h *hearing, t *callback.Topic, l *callback.Listener) {
	if !h.gone && h.topics.Part(t, l) {
		s.request(h, &request{topic: t, ends: true})
	}
}

// request enqueues a command and sees to it that somebody writes it.
func (s *subscriber) request(h *hearing, r *request) {
	h.out = append(h.out, r)
	s.run(h)
}

func (s *subscriber) run(h *hearing) {
	if !h.writing {
		h.writing = true
		s.n.work.Go(func() { s.write(h) })
	}
}

// write makes the connection if there is none, writes what is enqueued, and ends.
func (s *subscriber) write(h *hearing) {
	if h.lent == nil && !s.dial(h) {
		return
	}
	for {
		s.mu.Lock()
		batch := h.out
		h.out = nil
		switch {
		case h.gone, len(batch) == 0 && !h.look:
			h.writing = false
			s.mu.Unlock()
			return
		case len(batch) == 0:
			h.look = false
			channels := slices.Collect(maps.Keys(h.topics))
			s.mu.Unlock()
			s.look(h, channels)
			continue
		}
		cmds := make([]valkey.Completed, len(batch))
		for i, r := range batch {
			cmds[i] = h.command(r)
		}
		s.mu.Unlock()
		results, err := h.lent.ask(context.Background(), time.Now().Add(confirmLimit), cmds...)
		if err != nil {
			s.broken(h, lost(err))
			continue
		}
		s.mu.Lock()
		for i, r := range batch {
			if !r.ends {
				s.confirm(h, r.topic, results[i].Error())
			}
		}
		h.reused = len(h.topics) == 0
		s.lookLater(h)
		s.mu.Unlock()
	}
}

// lookLater has a server of a cluster asked soon, if there is something to ask. The caller holds mu.
func (s *subscriber) lookLater(h *hearing) {
	if !s.n.cluster || h.looks || len(h.topics) == 0 {
		return
	}
	h.looks = true
	time.AfterFunc(s.lookEvery, func() { s.lookDue(h) })
}

func (s *subscriber) lookDue(h *hearing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.looks = false; !h.gone {
		h.look = true
		s.run(h)
	}
}

// look asks the server for keys in the slots of the channels. If the server says that a slot has moved,
// the subscriptions there end, because this server does not count them. The subscribers hear of the end, and
// subscribe again. valkey-go learns of the move by the same answers.
func (s *subscriber) look(h *hearing, channels []string) {
	cmds := make([]valkey.Completed, len(channels))
	for i, channel := range channels {
		cmds[i] = h.lent.B().Arbitrary("EXISTS").Args(channel).Build()
	}
	results, err := h.lent.ask(context.Background(), time.Now().Add(confirmLimit), cmds...)
	if err != nil {
		s.broken(h, lost(err))
		return
	}
	moved := map[string]bool{}
	for i, channel := range channels {
		err := results[i].Error()
		moved[channel] = err != nil && strings.HasPrefix(err.Error(), "MOVED ")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left, live := h.topics.Leave(func(channel string) bool { return moved[channel] }, func(*callback.Topic) error { return errStale })
	for _, t := range left {
		s.request(h, &request{topic: t, ends: true})
	}
	s.n.work.Go(func() { s.tell(live, errMoved) })
	s.lookLater(h)
}

func (h *hearing) command(r *request) valkey.Completed {
	if r.ends {
		return h.lent.B().Unsubscribe().Channel(r.topic.Channel).Build()
	}
	r.topic.Written = true
	return h.lent.B().Subscribe().Channel(r.topic.Channel).Build()
}

// dial makes the connection, and has the client call with what comes on it.
func (s *subscriber) dial(h *hearing) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), confirmLimit, timeup.Err)
	defer cancel()
	lt, err := s.n.lend(ctx, h.key)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(h, err)
		return false
	}
	end := lt.SetPubSubHooks(valkey.PubSubHooks{OnMessage: func(m valkey.PubSubMessage) { s.hear(h, m) }})
	s.n.work.Go(func() {
		if err := <-end; err != nil {
			s.broken(h, lost(err))
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lent = lt; h.gone { // write will see that, too
		s.n.discard(lt)
	}
	return true
}

// hear passes a message on. One that comes between the server's confirmation and its
// arrival in confirm is heard, too.
func (s *subscriber) hear(h *hearing, m valkey.PubSubMessage) {
	s.mu.Lock()
	var all []*callback.Listener
	if t := h.topics[m.Channel]; t != nil && !h.gone {
		all = t.Listeners()
	}
	s.mu.Unlock()
	for _, l := range all {
		l.Call([]byte(m.Message), nil)
	}
}

// confirm ends the wait of a topic's listeners.
func (s *subscriber) confirm(h *hearing, t *callback.Topic, refusal error) {
	if h.gone {
		return
	}
	if refusal != nil {
		refusal = s.n.refused(refusal)
	}
	h.topics.Confirm(t, refusal)
}

// broken ends a connection and all that was subscribed on it.
func (s *subscriber) broken(h *hearing, err error) {
	s.mu.Lock()
	live := s.end(h, err)
	s.mu.Unlock()
	s.tell(live, err)
}

// tell tells those whose subscriptions are over.
func (s *subscriber) tell(live []*callback.Listener, why error) {
	for _, l := range live {
		l.Call(nil, s.n.unknown(why))
	}
}

// leave ends a connection to a server that has turned out to be a replica: a holder that
// releases at the new master does not know of the waiters that listen here. The subscribers
// hear of the end, and subscribe again. A cluster's client finds its masters by itself.
func (s *subscriber) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.lines[""]
	if h == nil || h.lent == nil || time.Since(h.lent.born) < leaveAfter {
		return
	}
	s.n.work.Go(func() { s.broken(h, errReplaced) })
}

// end takes a connection out of use. It tells those who wait for a confirmation, and returns
// those who had theirs.
func (s *subscriber) end(h *hearing, why error) (live []*callback.Listener) {
	if h.gone {
		return nil
	}
	h.gone = true
	delete(s.lines, h.server)
	if h.lent != nil {
		s.n.discard(h.lent)
	}
	return h.topics.End(func(t *callback.Topic) error {
		if h.reused && !s.closed {
			return errStale
		}
		return s.n.failed(doubt(t.Written), why)
	})
}

func (s *subscriber) close() {
	s.mu.Lock()
	s.closed = true
	var live []*callback.Listener
	for _, h := range s.lines {
		live = append(live, s.end(h, strategy.ErrClosed)...)
	}
	s.mu.Unlock()
	s.tell(live, strategy.ErrClosed)
}
