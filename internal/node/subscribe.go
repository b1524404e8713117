package node

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/callback"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

const (
	// confirmLimit bounds Subscribe where its ctx does not.
	confirmLimit = 5 * time.Second

	// pingEvery is how often a connection with subscriptions is made to show that it
	// lives, and pongLimit how long the answer may take. Nothing else would tell a
	// quiet channel from a dead server.
	pingEvery = 3 * time.Second
	pongLimit = 2 * time.Second
)

// A subscriber keeps one connection for all subscriptions of a Node. While there is
// one, a goroutine reads; commands are written by a goroutine that ends with them,
// so that no caller that subscribes or stops waits for the network in a place that it
// cannot leave.
//
// When the last subscription has ended, the reader ends with the server's word on
// it, and the connection stays, at rest: waiters come in bursts, and a dial costs
// three round trips or more.
type subscriber struct {
	n                    *Node
	pingEvery, pongLimit time.Duration // constant; tests shorten them

	mu     sync.Mutex
	closed bool
	line   *line
	work   sync.WaitGroup // readers, writers, closing
}

func (s *subscriber) init(n *Node) { s.n, s.pingEvery, s.pongLimit = n, pingEvery, pongLimit }

// A line is one connection for subscriptions. All is guarded by the subscriber's
// lock, but that conn is read by one goroutine and written by another.
type line struct {
	conn    redis.ConnWithTimeout // nil: still being dialled
	dials   dials
	born    time.Time
	used    time.Time
	reused  bool // it was at rest, and has not answered since
	gone    bool
	reading bool
	writing bool
	ping    *time.Timer

	topics callback.Topics
	out    []*request // to be written
	owed   []*request // enqueued or written and not answered, in order
}

// A request is a command on a line. Each is answered once, and in order; messages
// come in between.
type request struct {
	cmd   string
	topic *callback.Topic // nil: PING
}

// errStale says that a connection at rest turned out to be dead before it carried
// anything: a new one is worth a try.
var errStale = errors.New("the connection had died at rest")

// Subscribe subscribes fn to a channel and returns once the server has confirmed
// it; at the latest after five seconds. Any number may listen to one channel. fn
// runs on the goroutine that reads for all.
//
// stop waits for a call of fn under way, so that none is seen after it. Called from
// inside fn it cannot wait for itself: it returns at once, and this call is the last.
func (n *Node) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, n.unsent(context.Cause(ctx))
	}
	limit := time.After(confirmLimit)
	for {
		stop, err = n.sub.listen(ctx, limit, channel, fn)
		if !errors.Is(err, errStale) {
			return stop, err
		}
	}
}

// listen is one try of Subscribe.
func (s *subscriber) listen(ctx context.Context, limit <-chan time.Time, channel string, fn func([]byte, error)) (func(), error) {
	l := callback.Listen(fn)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, s.n.unsent(strategy.ErrClosed)
	}
	ln := s.open()
	t := s.join(ln, channel, l)
	s.mu.Unlock()

	stop := func() {
		l.Silence()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.part(ln, t, l)
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
	s.part(ln, t, l)
	return nil, s.n.failed(doubt(t), why)
}

// open returns the line, a new one if there is none that can be trusted.
func (s *subscriber) open() *line {
	if ln := s.line; ln != nil && ln.conn != nil && !ln.reading && s.stale(ln) {
		s.drop(ln)
	}
	if s.line == nil {
		s.line = &line{topics: callback.Topics{}}
	}
	if s.line.conn == nil {
		s.dial(s.line)
	}
	return s.line
}

// stale applies the pool's limits to a line at rest.
func (s *subscriber) stale(ln *line) bool {
	p := s.n.pool
	return p.IdleTimeout > 0 && time.Since(ln.used) > p.IdleTimeout ||
		p.MaxConnLifetime > 0 && time.Since(ln.born) > p.MaxConnLifetime
}

// join adds a listener, and subscribes if it is the first.
func (s *subscriber) join(ln *line, channel string, l *callback.Listener) *callback.Topic {
	t, fresh := ln.topics.Join(channel, l)
	if fresh {
		s.request(ln, "SUBSCRIBE", t)
	}
	return t
}

// part removes a listener, and unsubscribes if it was the last.
func (s *subscriber) part(ln *line, t *callback.Topic, l *callback.Listener) {
	if !ln.gone && ln.topics.Part(t, l) {
		s.request(ln, "UNSUBSCRIBE", t)
	}
}

// request enqueues a command and sees to it that somebody writes it and somebody
// reads the answer.
func (s *subscriber) request(ln *line, cmd string, t *callback.Topic) {
	r := &request{cmd: cmd, topic: t}
	ln.out = append(ln.out, r)
	ln.owed = append(ln.owed, r)
	s.run(ln)
}

// run has a line with requests written and read.
func (s *subscriber) run(ln *line) {
	if ln.conn == nil || ln.gone {
		return
	}
	if !ln.writing {
		ln.writing = true
		s.work.Go(func() { s.write(ln) })
	}
	if !ln.reading {
		ln.reading = true
		ln.ping.Reset(s.pingEvery)
		s.work.Go(func() { s.read(ln) })
	}
}

// dial starts a dial of ln, unless enough are under way.
func (s *subscriber) dial(ln *line) {
	a, ctx := ln.dials.begin(mostPatience)
	if a == nil {
		return
	}
	go func() {
		defer close(a.ended)
		defer a.cancel()
		conn, err := dialPool(ctx, s.n.pool)
		if err != nil {
			s.dialFailed(ln, a, err)
		} else if !s.dialled(ln, a, conn) {
			conn.Close()
		}
	}()
}

// dialled puts a connection to use, and reports whether it did.
func (s *subscriber) dialled(ln *line, a *attempt, conn redis.ConnWithTimeout) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln.gone || ln.conn != nil {
		return false
	}
	ln.conn, ln.born, ln.used = conn, a.began, time.Now()
	ln.ping = time.AfterFunc(s.pingEvery, func() { s.poke(ln) })
	s.run(ln)
	return true
}

func (s *subscriber) dialFailed(ln *line, a *attempt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln.dials.remove(a)
	if ln.gone || ln.conn != nil || a.abandoned {
		return
	}
	s.drop(ln)
	ln.topics.End(func(*callback.Topic) error { return s.n.unsent(err) })
}

// write writes what is enqueued, and ends.
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
		if err := writeAll(ln.conn, batch); err != nil {
			s.broken(ln, err)
		}
	}
}

func writeAll(conn redis.Conn, batch []*request) error {
	for _, r := range batch {
		var args []any
		if r.topic != nil {
			args = []any{r.topic.Channel}
		}
		if err := conn.Send(r.cmd, args...); err != nil {
			return err
		}
	}
	return conn.Flush()
}

// poke makes the server say something.
func (s *subscriber) poke(ln *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln.gone || !ln.reading {
		return
	}
	s.request(ln, "PING", nil)
	ln.ping.Reset(s.pingEvery)
}

// read reads until nothing is subscribed and nothing is owed, or the line breaks.
func (s *subscriber) read(ln *line) {
	for {
		reply, err := readReply(ln.conn, s.pingEvery+s.pongLimit)
		if err != nil && !isReply(err) {
			s.broken(ln, err)
			return
		}
		msg, hear := s.take(ln, reply, err)
		for _, l := range hear {
			l.Call(msg, nil)
		}
		if len(hear) > 0 {
			runtime.Gosched() // the caller that this has woken goes first: it has waited, and the next read has time
		}
		if s.rests(ln) {
			return
		}
	}
}

// take takes in what came. It returns a message with the listeners that must hear it.
func (s *subscriber) take(ln *line, reply any, err error) (msg []byte, hear []*callback.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln.used = time.Now()
	ln.reused = false
	if parts, ok := reply.([]any); ok && len(parts) == 3 && text(parts[0]) == "message" {
		msg, _ = parts[2].([]byte)
		if t := ln.topics[text(parts[1])]; t != nil && t.Confirmed() {
			hear = t.Listeners()
		}
		return msg, hear
	}
	if len(ln.owed) == 0 {
		return nil, nil // a word that nobody asked for; if it is a farewell the end comes next
	}
	r := ln.owed[0]
	ln.owed = ln.owed[1:]
	if r.cmd == "SUBSCRIBE" {
		if err != nil {
			err = s.n.refused(err)
		}
		ln.topics.Confirm(r.topic, err)
	}
	return nil, nil
}

func text(v any) string { b, _ := v.([]byte); return string(b) }

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
	live := s.end(ln, err)
	s.mu.Unlock()
	for _, l := range live {
		l.Call(nil, s.n.unknown(lost(err)))
	}
}

// leave ends a line to a server that has turned out to be a replica: a holder that
// releases at the new master does not know of the waiters that listen here. The subscribers hear
// of the end, and subscribe again. Not more than one dial per second.
func (s *subscriber) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.line
	if s.closed || ln == nil || ln.conn == nil || time.Since(ln.born) < time.Second {
		return
	}
	s.work.Go(func() { s.broken(ln, errReplaced) })
}

// end takes a line out of use. It tells those who wait for a confirmation, and
// returns those who had theirs.
func (s *subscriber) end(ln *line, err error) (live []*callback.Listener) {
	if ln.gone {
		return nil
	}
	s.drop(ln)
	return ln.topics.End(func(t *callback.Topic) error {
		if ln.reused && !s.closed {
			return errStale
		}
		return s.n.failed(doubt(t), lost(err))
	})
}

// doubt is what is known of a subscription that was not confirmed.
func doubt(t *callback.Topic) error {
	if t.Written {
		return strategy.ErrUnknown
	}
	return strategy.ErrUnsent
}

// drop closes a line.
func (s *subscriber) drop(ln *line) {
	ln.gone = true
	ln.dials.abandon()
	if s.line == ln {
		s.line = nil
	}
	if ln.conn != nil {
		s.work.Go(func() { ln.conn.Close() })
	}
}

func (s *subscriber) close() {
	s.mu.Lock()
	s.closed = true
	var live []*callback.Listener
	var under []*attempt
	if ln := s.line; ln != nil {
		under = slices.Concat(ln.dials.list, ln.dials.deaf)
		live = s.end(ln, strategy.ErrClosed)
	}
	s.mu.Unlock()
	for _, l := range live {
		l.Call(nil, s.n.unknown(strategy.ErrClosed))
	}
	await(under)
	s.work.Wait()
}
