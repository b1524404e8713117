package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/internal/callback"
	"github.com/lockstrategies/locks/strategy"
)

const (
	// confirmLimit bounds Subscribe where its ctx does not, and the dial of its connection.
	confirmLimit = 5 * time.Second

	// pingEvery is how often a connection with subscriptions is made to show that it lives,
	// and pongLimit how long the answer may take. Nothing else would tell a quiet channel
	// from a dead server.
	pingEvery = 3 * time.Second
	pongLimit = 2 * time.Second

	// leaveAfter is for how long a connection to a server that has become a replica is kept,
	// so that not every refusal costs a new one.
	leaveAfter = time.Second

	// restLimit is for how long a connection without subscriptions is trusted.
	restLimit = time.Minute
)

// A subscriber keeps one PubSub, which is one connection, for all subscriptions at a server.
// While there is one, a goroutine reads; commands are written by a goroutine that ends with
// them, so that nobody who subscribes or stops waits for the network.
//
// In a cluster a message reaches every node, but PUBLISH counts only the subscribers at its own
// node, and scripts go by that count. So the line leads to the master of the channel's slot, and a
// subscription ends when that slot has another master: see moved. The subscriber looks for that when a
// command has been redirected, and with each PING, because go-redis learns of moves in other ways, too.
//
// When the last subscription has ended, the reader ends with the server's word on it, and the
// connection stays, at rest: waiters come in bursts, and a dial costs several round trips.
type subscriber struct {
	n                    *node
	pingEvery, pongLimit time.Duration // constant; tests shorten them

	mu     sync.Mutex
	closed bool
	lines  map[*redis.Client]*line
	work   sync.WaitGroup // readers, writers, closing
}

func (s *subscriber) init(n *node) {
	s.n, s.pingEvery, s.pongLimit = n, pingEvery, pongLimit
	s.lines = map[*redis.Client]*line{}
}

// A line is one connection for subscriptions. All is guarded by the subscriber's lock, but
// that a PubSub may be read by one goroutine while others write.
type line struct {
	at *redis.Client
	ps *redis.PubSub

	// ctx is what commands are written with, by one goroutine at a time: the first one, which dials, has
	// confirmLimit for it; all that follow have severed.
	ctx    context.Context
	cancel context.CancelFunc

	connected bool
	unsent    bool // the first command was not: there is no connection
	born      time.Time
	used      time.Time
	reused    bool // it was at rest, and has not answered since
	gone      bool
	reading   bool
	writing   bool
	ping      *time.Timer

	topics callback.Topics
	out    []*request // to be written
	owed   []*request // enqueued or written and not answered, in order
}

// severed is a context that has ended. A PubSub that has a connection uses it whatever the
// context is. A PubSub that has lost it would dial and subscribe again; with this context it cannot.
var severed = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// A request is a command on a line. Each is answered once, and in order; messages come in
// between.
type request struct {
	cmd   string
	topic *callback.Topic // nil: PING
}

var (
	// errStale says that a connection was no good before it had carried anything, as it had died at
	// rest, or belongs to a server that has lost the slot: another is worth a try.
	errStale = errors.New("the connection had died at rest")

	errMoved    = errors.New("the slot has moved to another server")
	errReplaced = errors.New("connection given up, as the server is a replica")
)

// Subscribe subscribes fn to a channel and returns once the server has confirmed it; at the
// latest after five seconds. Any number may listen to one channel. fn hears messages on the goroutine
// that reads for all.
//
// stop waits for a call of fn under way, so that none is seen after it. Called from inside fn
// it cannot wait for itself: it returns at once, and this call is the last.
func (n *node) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	call, err := n.begin(ctx, time.Now().Add(confirmLimit))
	if err != nil {
		return nil, err
	}
	defer call.done()
	for {
		at, err := n.to.at(call.ctx, channel)
		if err != nil {
			return nil, call.unsent(err)
		}
		call.node = n.to.nameOf(at)
		stop, err = n.sub.listen(call, at, channel, fn)
		if !errors.Is(err, errStale) {
			return stop, err
		}
	}
}

// listen is one try of Subscribe.
func (s *subscriber) listen(c *call, at *redis.Client, channel string, fn func([]byte, error)) (func(), error) {
	l := callback.Listen(fn)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, c.failed(strategy.ErrUnsent, strategy.ErrClosed)
	}
	ln := s.open(at)
	t := s.join(ln, channel, l)
	s.mu.Unlock()

	stop := func() {
		l.Silence()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.part(ln, t, l)
	}
	select {
	case err := <-l.Ready():
		if err != nil {
			return nil, err
		}
		return stop, nil
	case <-c.ctx.Done():
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, c.failed(ln.doubt(t), c.why(c.ctx.Err()))
	}
}

// open returns the line to a server, a new one if there is none that can be trusted.
func (s *subscriber) open(at *redis.Client) *line {
	for _, ln := range s.lines {
		if ln.connected && !ln.reading && time.Since(ln.used) > restLimit {
			s.drop(ln)
		}
	}
	ln := s.lines[at]
	if ln == nil {
		ln = &line{at: at, ps: at.Subscribe(severed), topics: callback.Topics{}}
		ln.ctx, ln.cancel = context.WithTimeout(s.n.life, confirmLimit)
		ln.ping = time.AfterFunc(s.pingEvery, func() { s.poke(ln) })
		s.lines[at] = ln
	}
	return ln
}

// join adds a listener, and subscribes if it is the first.
func (s *subscriber) join(ln *line, channel string, l *callback.Listener) *callback.Topic {
	t, fresh := ln.topics.Join(channel, l)
	if fresh {
		s.request(ln, "subscribe", t)
	}
	return t
}

// part removes a listener, and unsubscribes if it was the last.
func (s *subscriber) part(ln *line, t *callback.Topic, l *callback.Listener) {
	if !ln.gone && ln.topics.Part(t, l) {
		s.request(ln, "unsubscribe", t)
	}
}

// request enqueues a command and sees to it that somebody writes it and somebody reads the
// answer.
func (s *subscriber) request(ln *line, cmd string, t *callback.Topic) {
	r := &request{cmd: cmd, topic: t}
	ln.out = append(ln.out, r)
	ln.owed = append(ln.owed, r)
	s.run(ln)
}

func (s *subscriber) run(ln *line) {
	if !ln.writing {
		ln.writing = true
		s.work.Go(func() { s.write(ln) })
	}
	if ln.connected && !ln.reading {
		ln.reading = true
		ln.ping.Reset(s.pingEvery)
		s.work.Go(func() { s.read(ln) })
	}
}

// write writes what is enqueued, and ends. The first command makes the connection.
func (s *subscriber) write(ln *line) {
	for {
		s.mu.Lock()
		batch := ln.out
		ln.out = nil
		if len(batch) == 0 || ln.gone {
			ln.writing = false
			s.mu.Unlock()
			return
		}
		for _, r := range batch {
			if r.topic != nil {
				r.topic.Written = true
			}
		}
		s.mu.Unlock()
		for _, r := range batch {
			if err := r.send(ln.ctx, ln.ps); err != nil {
				s.broken(ln, err)
				break
			}
			if !ln.connected {
				s.connected(ln)
			}
		}
	}
}

func (s *subscriber) connected(ln *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln.ctx = severed
	ln.connected, ln.born, ln.used = true, time.Now(), time.Now()
	s.run(ln)
}

func (r *request) send(ctx context.Context, ps *redis.PubSub) error {
	switch r.cmd {
	case "subscribe":
		return ps.Subscribe(ctx, r.topic.Channel)
	case "unsubscribe":
		return ps.Unsubscribe(ctx, r.topic.Channel)
	}
	return ps.Ping(ctx)
}

// poke makes the server say something.
func (s *subscriber) poke(ln *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln.gone || !ln.reading {
		return
	}
	s.follow(ln)
	s.request(ln, "ping", nil)
	ln.ping.Reset(s.pingEvery)
}

// read reads until nothing is subscribed and nothing is owed, or the line breaks.
func (s *subscriber) read(ln *line) {
	for {
		msg, hear, err := s.next(ln)
		if err != nil {
			s.broken(ln, err)
			return
		}
		for _, l := range hear {
			l.Call(msg, nil)
		}
		if s.rests(ln) {
			return
		}
	}
}

// next takes what comes next.
func (s *subscriber) next(ln *line) (msg []byte, hear []*callback.Listener, err error) {
	said, err := receive(ln.ps, s.pingEvery+s.pongLimit)
	var refusal redis.Error
	if err != nil && !errors.As(err, &refusal) {
		return nil, nil, err
	}
	msg, hear, ok := s.take(ln, said, refusal)
	if !ok {
		return nil, nil, fmt.Errorf("an answer that nobody has asked for: %.100q", fmt.Sprint(said, refusal))
	}
	return msg, hear, nil
}

// receive reads one reply or message. go-redis panics at what no Redis says.
func receive(ps *redis.PubSub, limit time.Duration) (said any, err error) {
	defer func() {
		if r := recover(); r != nil {
			said, err = nil, fmt.Errorf("not a message of Redis: %v", r)
		}
	}()
	return ps.ReceiveTimeout(severed, limit)
}

// take takes in what came. It returns a message with the listeners that must hear it. ok is false
// for an answer that is out of order: go-redis has then connected again, and it answers a second
// SUBSCRIBE.
func (s *subscriber) take(ln *line, said any, refusal redis.Error) (msg []byte, hear []*callback.Listener, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln.used = time.Now()
	ln.reused = false
	if m, is := said.(*redis.Message); is {
		if t := ln.topics[m.Channel]; t != nil && t.Confirmed() {
			hear = t.Listeners()
		}
		return []byte(m.Payload), hear, true
	}
	if len(ln.owed) == 0 {
		return nil, nil, refusal != nil // a farewell: the end comes next
	}
	r := ln.owed[0]
	if refusal == nil && !r.answeredBy(said) {
		return nil, nil, false
	}
	ln.owed = ln.owed[1:]
	if r.cmd == "subscribe" {
		var err error
		if refusal != nil {
			err = s.failed(ln, strategy.ErrRefused, refusal)
		}
		ln.topics.Confirm(r.topic, err)
	}
	return nil, nil, true
}

func (r *request) answeredBy(said any) bool {
	switch said := said.(type) {
	case *redis.Subscription:
		return said.Kind == r.cmd && said.Channel == r.topic.Channel
	case *redis.Pong:
		return r.cmd == "ping"
	}
	return false
}

// rests ends the reader when there is nothing left to hear.
func (s *subscriber) rests(ln *line) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ln.topics) > 0 || len(ln.owed) > 0 {
		return false
	}
	ln.reading = false
	ln.reused = true
	return true
}

// broken ends a line and all that was subscribed on it.
func (s *subscriber) broken(ln *line, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln.unsent = !ln.connected
	s.end(ln, err)
}

// tell tells those whose subscriptions are over. The caller, who holds mu, does not wait for them.
func (s *subscriber) tell(ln *line, live []*callback.Listener, why error) {
	for _, l := range live {
		s.work.Go(func() { l.Call(nil, s.failed(ln, strategy.ErrUnknown, why)) })
	}
}

// leave ends the lines to a server that has turned out to be a replica: a holder releases at the new
// master, which does not know of the waiters that listen here. Each hears of the end, and subscribes again.
func (s *subscriber) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.lines {
		if ln.connected && time.Since(ln.born) > leaveAfter {
			s.end(ln, errReplaced)
		}
	}
}

// moved ends the subscriptions to channels whose slots have another master now, because that one does
// not count the waiters that listen here. Each hears of the end, and subscribes again.
func (s *subscriber) moved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.lines {
		s.follow(ln)
	}
}

// follow is moved for one line. The caller holds mu.
func (s *subscriber) follow(ln *line) {
	left, live := ln.topics.Leave(func(channel string) bool {
		at, err := s.n.to.at(s.n.life, channel) // by what go-redis knows: it asks nobody
		return err == nil && at != ln.at
	}, func(*callback.Topic) error { return errStale })
	for _, t := range left {
		s.request(ln, "unsubscribe", t)
	}
	s.tell(ln, live, errMoved)
}

// end takes a line out of use, and tells all who wait for a confirmation on it or have theirs. The
// caller holds mu.
func (s *subscriber) end(ln *line, err error) {
	if ln.gone {
		return
	}
	s.drop(ln)
	live := ln.topics.End(func(t *callback.Topic) error {
		if ln.reused && !s.closed {
			return errStale
		}
		return s.failed(ln, ln.doubt(t), discreet(lost(err)))
	})
	s.tell(ln, live, lost(err))
}

// doubt is what is known of a subscription that was not confirmed. While the first command makes
// the connection, go-redis does not say whether that command has left.
func (ln *line) doubt(t *callback.Topic) error {
	if t.Written && !ln.unsent {
		return strategy.ErrUnknown
	}
	return strategy.ErrUnsent
}

// drop closes a line.
func (s *subscriber) drop(ln *line) {
	ln.gone = true
	ln.cancel()
	delete(s.lines, ln.at)
	s.work.Go(func() { ln.ps.Close() }) //nolint:errcheck // nothing of it is used any more
}

func (s *subscriber) close() {
	s.mu.Lock()
	s.closed = true
	for _, ln := range s.lines {
		s.end(ln, strategy.ErrClosed)
	}
	s.mu.Unlock()
	s.work.Wait()
}

func (s *subscriber) failed(ln *line, kind, err error) error {
	return &strategy.ServerError{Node: s.n.to.nameOf(ln.at), Kind: kind, Err: err}
}
