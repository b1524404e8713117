// Package subscription keeps the subscriptions of a client's node: one connection to each server, for all
// channels that are listened to there. A [Client] makes the connections; all else is the same for every client.
//
// The rules are those of driver.Node.Subscribe. A subscription ends with its connection, because nobody knows what
// was published meanwhile. When the last one of a server has ended, the connection stays, at rest: waiters come in
// bursts, and a dial costs three round trips or more.
package subscription

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// ConfirmLimit bounds Subscribe where its ctx does not, and the making of a connection.
const ConfirmLimit = 5 * time.Second

const (
	// PingEvery is the usual time after which a connection with subscriptions is made to show that it lives, and
	// PongLimit how long the answer may take. Nothing else would tell a quiet channel from a dead server.
	PingEvery = 3 * time.Second
	PongLimit = 2 * time.Second
)

var (
	// ErrReplaced ends subscriptions to a server that has turned out to be a replica.
	ErrReplaced = errors.New("connection given up, as the server is a replica")

	// ErrMoved ends a subscription to a channel whose slot has another master now.
	ErrMoved = errors.New("the slot has moved to another server")

	// errAgain says that a connection was no good before it had carried anything: it had died at rest, or led to a
	// replica, or to a server that has lost the slot. Another is worth a try.
	errAgain = errors.New("the connection had died at rest")
)

// A Client is what differs between clients.
type Client interface {
	// Home is the server at which a channel is to be listened to. Servers are equal (==) if they are the same. The
	// error is Subscribe's.
	Home(ctx context.Context, channel string) (server any, err error)

	// Dial makes a connection to the link's server. It returns soon after ctx ends, which also happens when the link
	// ends. Failed makes the caller's error of its error: nothing was sent.
	Dial(ctx context.Context, ln *Link) (Conn, error)

	// Stale reports whether a connection at rest is too old to be used again, or was used too long ago.
	Stale(born, used time.Time) bool

	// Failed is a caller's error; server is nil where it is not known yet.
	Failed(server any, kind, err error) error
}

// A Conn is a connection for subscriptions. Close may be called while it is in use, and ends that.
type Conn interface {
	// Write sends requests in their order. A connection that is no Reader waits for the answers and returns
	// them: nil, or the server's refusal, for each request. Any other error ends the connection; ErrNotSent in it says
	// that nothing has left.
	Write(requests []*Request) (answers []error, err error)
	Close()
}

// A Reader is a Conn that is read by the Subscriber.
type Reader interface {
	Conn

	// Read waits for what comes next, for limit at most. Any error ends the connection.
	Read(limit time.Duration) (Event, error)
}

// ErrNotSent is in an error of Write.
var ErrNotSent = errors.New("nothing was sent")

// The commands of a Request, and what an Event answers.
const (
	Subscribe   = "SUBSCRIBE"
	Unsubscribe = "UNSUBSCRIBE"
	Ping        = "PING"
)

// A Request is a command to be sent. Each is answered once, and in order; messages come in between.
type Request struct {
	Cmd     string
	Channel string // empty: PING

	topic *topic
}

// An Event is what comes on a connection: a message, a refusal, or another answer.
type Event struct {
	Message bool
	Refusal error
	Cmd     string // what is answered; empty: the connection does not say
	Channel string // the message's, or that of the answer, if Cmd is not empty
	Payload []byte
}

func (e Event) answers(r *Request) bool {
	return e.Refusal != nil || e.Cmd == "" || e.Cmd == r.Cmd && e.Channel == r.Channel
}

// A Subscriber keeps the subscriptions of a node. For each connection in use a goroutine reads; requests are written by
// a goroutine that ends with them. So no caller that subscribes or stops waits for the network in a place that it
// cannot leave.
type Subscriber struct {
	client Client

	PingEvery, PongLimit time.Duration // constant in use: [PingEvery], [PongLimit], unless the client or a test sets others

	mu     sync.Mutex
	closed bool
	links  map[any]*Link  // by server
	work   sync.WaitGroup // dials, readers, writers, closing, and who hears of an end
}

// New makes a Subscriber, which asks for signs of life at the usual times.
func New(c Client) *Subscriber {
	return &Subscriber{client: c, PingEvery: PingEvery, PongLimit: PongLimit, links: map[any]*Link{}}
}

// A Link is the connection to one server, or the making of it. All is guarded by the Subscriber's lock.
type Link struct {
	Server  any
	Channel string // the first: where there are several servers, it leads to this one

	sub    *Subscriber
	conn   Conn            // nil: still being dialled
	ctx    context.Context // the dial's
	cancel context.CancelFunc
	born   time.Time
	used   time.Time // when something came last
	rested bool      // it was at rest, and has not answered since
	ended  bool
	active bool // something is subscribed, or to be answered
	writes bool // a goroutine does
	ping   *time.Timer

	topics topics
	out    []*Request // to be written
	asked  []*Request // enqueued or written and not answered, in order
}

// Subscribe subscribes fn to a channel and returns once the server has confirmed it; at the latest after
// ConfirmLimit. Any number may listen to one channel. fn hears messages on the goroutine that reads for all.
//
// stop waits for a call of fn under way, so that none is seen after it.
func (s *Subscriber) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	if ended := timeup.Cause(ctx); ended != nil {
		return nil, s.client.Failed(nil, strategy.ErrUnsent, ended)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ConfirmLimit, timeup.Err)
	defer cancel()
	for {
		server, err := s.client.Home(ctx, channel)
		if err != nil {
			return nil, err
		}
		stop, err = s.listen(ctx, server, channel, fn)
		if err != errAgain {
			return stop, err
		}
	}
}

// listen is one try of Subscribe.
func (s *Subscriber) listen(ctx context.Context, server any, channel string, fn func([]byte, error)) (stop func(), err error) {
	l := listenerOf(fn)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, s.client.Failed(server, strategy.ErrUnsent, strategy.ErrClosed)
	}
	ln := s.open(server, channel)
	t, fresh := ln.topics.join(channel, l)
	if fresh {
		ln.request(Subscribe, t)
	}
	s.mu.Unlock()

	stop = func() {
		l.silence()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !ln.ended && ln.topics.part(t, l) {
			ln.request(Unsubscribe, t)
		}
	}
	select {
	case err := <-l.ready:
		if err != nil {
			return nil, err
		}
		return stop, nil
	case <-ctx.Done():
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.client.Failed(server, t.sent(), context.Cause(ctx))
	}
}

// open returns the link to a server, a new one if there is none that can be trusted.
func (s *Subscriber) open(server any, channel string) *Link {
	for _, ln := range s.links {
		if ln.conn != nil && !ln.active && s.client.Stale(ln.born, ln.used) {
			ln.drop()
		}
	}
	ln := s.links[server]
	if ln != nil && ln.conn == nil && timeup.Over(ln.ctx) { // its dial has no time left
		ln.end(timeup.Err)
		ln = nil
	}
	if ln == nil {
		ln = &Link{Server: server, Channel: channel, sub: s, topics: topics{}}
		s.links[server] = ln
		ln.ctx, ln.cancel = context.WithTimeoutCause(context.Background(), ConfirmLimit, timeup.Err)
		s.work.Go(ln.dial)
	}
	return ln
}

// dial makes the link's connection.
func (ln *Link) dial() {
	s, began := ln.sub, time.Now()
	conn, err := s.client.Dial(ln.ctx, ln)
	if err != nil {
		ln.Break(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln.ended {
		s.work.Go(conn.Close)
		return
	}
	ln.conn, ln.born, ln.used = conn, began, time.Now()
	ln.ping = time.AfterFunc(s.PingEvery, ln.pingDue)
	ln.run()
}

// request enqueues a command and sees to it that somebody writes it and somebody reads the answer.
func (ln *Link) request(cmd string, t *topic) {
	r := &Request{Cmd: cmd, topic: t}
	if t != nil {
		r.Channel = t.channel
	}
	ln.out = append(ln.out, r)
	ln.asked = append(ln.asked, r)
	ln.run()
}

// run has a link with requests written and read.
func (ln *Link) run() {
	if ln.conn == nil || len(ln.asked) == 0 {
		return
	}
	if !ln.writes {
		ln.writes = true
		ln.sub.work.Go(ln.write)
	}
	if ln.active {
		return
	}
	ln.active = true
	ln.ping.Reset(ln.sub.PingEvery)
	if r, ok := ln.conn.(Reader); ok {
		ln.sub.work.Go(func() { ln.read(r) })
	}
}

// write writes what is enqueued, and ends.
func (ln *Link) write() {
	for {
		batch := ln.batch()
		if batch == nil {
			return
		}
		answers, err := ln.conn.Write(batch)
		if err != nil {
			ln.Break(err)
			continue
		}
		for _, refusal := range answers {
			ln.take(Event{Refusal: refusal})
		}
		if answers != nil {
			ln.idle()
		}
	}
}

// batch is what is to be written; nil: the writer ends.
func (ln *Link) batch() []*Request {
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	batch := ln.out
	ln.out = nil
	if len(batch) == 0 || ln.ended {
		ln.writes = false
		return nil
	}
	for _, r := range batch {
		if r.topic != nil {
			r.topic.written = true
		}
	}
	return batch
}

// pingDue makes the server say something.
func (ln *Link) pingDue() {
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	if ln.ended || !ln.active {
		return
	}
	ln.request(Ping, nil)
	ln.ping.Reset(ln.sub.PingEvery)
}

// read reads until nothing is subscribed and nothing is to be answered, or the link breaks.
func (ln *Link) read(conn Reader) {
	for {
		e, err := conn.Read(ln.sub.PingEvery + ln.sub.PongLimit)
		switch {
		case err != nil:
		case e.Message:
			ln.Hear(e.Channel, e.Payload)
			runtime.Gosched() // the caller that this has woken goes first: it has waited, and the next read has time
		case !ln.take(e):
			err = fmt.Errorf("an answer that nobody has asked for: %s %.100q", e.Cmd, e.Channel)
		}
		if err != nil {
			ln.Break(err)
			return
		}
		if ln.idle() {
			return
		}
	}
}

// Hear passes a message on, also one that comes before its subscription is known to be confirmed.
func (ln *Link) Hear(channel string, msg []byte) {
	ln.sub.mu.Lock()
	ln.used, ln.rested = time.Now(), false
	var hear []*listener
	if t := ln.topics[channel]; t != nil && !ln.ended {
		hear = t.listeners
	}
	ln.sub.mu.Unlock()
	for _, l := range hear {
		l.call(msg, nil)
	}
}

// take takes in an answer. It is false for one that is out of order: the client has then connected again behind our
// back, and subscribed a second time.
func (ln *Link) take(e Event) bool {
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	if ln.ended {
		return true
	}
	ln.used, ln.rested = time.Now(), false
	if len(ln.asked) == 0 {
		return e.Refusal != nil // a farewell: the end comes next
	}
	r := ln.asked[0]
	if !e.answers(r) {
		return false
	}
	ln.asked = ln.asked[1:]
	if r.Cmd == Subscribe {
		err := e.Refusal
		if err != nil {
			err = ln.sub.client.Failed(ln.Server, strategy.ErrRefused, err)
		}
		ln.topics.confirm(r.topic, err)
	}
	return true
}

// idle reports whether there is nothing left to hear.
func (ln *Link) idle() bool {
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	if len(ln.topics) > 0 || len(ln.asked) > 0 {
		return false
	}
	ln.active, ln.rested = false, true
	return true
}

// Break ends a link and all that was subscribed on it.
func (ln *Link) Break(why error) {
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	ln.end(why)
}

// end is Break. The caller holds the lock.
func (ln *Link) end(why error) {
	if ln.ended {
		return
	}
	s := ln.sub
	ln.drop()
	_, live := ln.topics.leave(func(string) bool { return true }, func(t *topic) error {
		if (ln.rested || why == ErrReplaced) && !s.closed {
			return errAgain
		}
		kind := t.sent()
		if errors.Is(why, ErrNotSent) {
			kind = strategy.ErrUnsent
		}
		return s.client.Failed(ln.Server, kind, why)
	})
	ln.tell(live, why)
}

// drop takes a link out of use.
func (ln *Link) drop() {
	ln.ended = true
	ln.cancel()
	delete(ln.sub.links, ln.Server)
	if ln.conn != nil {
		ln.ping.Stop()
		ln.sub.work.Go(ln.conn.Close)
	}
}

// tell tells those whose subscriptions are over. The caller, who holds the lock, does not wait for them.
func (ln *Link) tell(live []*listener, why error) {
	for _, l := range live {
		ln.sub.work.Go(func() { l.call(nil, ln.sub.client.Failed(ln.Server, strategy.ErrUnknown, why)) })
	}
}

// Leave ends the links whose connection leads to a server that has turned out to be a replica. conn is nil where it is
// being made. A holder that releases at the new primary does not know of the waiters that listen at the replica. Each
// hears of the end, and subscribes again.
func (s *Subscriber) Leave(leads func(conn Conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.links {
		if leads(ln.conn) {
			ln.end(ErrReplaced)
		}
	}
}

// Move ends the subscriptions to channels that are elsewhere now, because a server counts, for a script, only the
// subscribers of its own. Each hears of the end, and subscribes again.
func (s *Subscriber) Move(elsewhere func(server any, channel string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.links {
		left, live := ln.topics.leave(func(channel string) bool { return elsewhere(ln.Server, channel) }, func(*topic) error { return errAgain })
		for _, t := range left {
			ln.request(Unsubscribe, t)
		}
		ln.tell(live, ErrMoved)
	}
}

// Channels are those that are subscribed on the link, or about to be.
func (ln *Link) Channels() []string {
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	return slices.Collect(maps.Keys(ln.topics))
}

// Connections says how many there are, and how many of these are at rest.
func (s *Subscriber) Connections() (all, atRest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.links {
		if ln.conn != nil {
			all++
			if !ln.active {
				atRest++
			}
		}
	}
	return all, atRest
}

// Close ends all, and lets nobody subscribe. Wait for what is under way then.
func (s *Subscriber) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, ln := range s.links {
		ln.end(strategy.ErrClosed)
	}
}

// Wait waits until nothing goes on after Close: no dial, no read, no call of a function that listened.
func (s *Subscriber) Wait() { s.work.Wait() }
