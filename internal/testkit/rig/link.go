package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// Direction says which way bytes go. It is a set: Both is Requests and Replies.
type Direction int

const (
	Requests Direction = 1 << iota // to the server
	Replies                        // to the contender
	Both     = Requests | Replies
)

// Link is one contender's network to a node: a TCP proxy on loopback, which can be
// broken in each direction, for all its connections at once. Faults add up until Heal.
// It knows nothing of what the bytes mean.
//
// Bytes that it got before a fault begins may be on their way already. Bytes that it gets
// after the word has returned meet the fault.
type Link struct {
	node   *Node         // whose link it is; nil: it is in no rig
	target func() string // address of the server
	port   int
	end    func() // gives the port back

	mu       sync.Mutex
	err      error // why it does not listen, though it should
	listener net.Listener
	refused  bool
	down     bool // the server is dead
	closed   bool
	held     Direction
	cut      Direction
	delay    map[Direction]time.Duration
	changed  chan struct{} // closed and replaced when any of these changes
	conns    map[*passage]bool
	pools    []*redis.Pool

	running sync.WaitGroup
	life    context.Context // ends with the link
	die     context.CancelFunc
}

// A passage is one connection through a link.
type passage struct {
	client net.Conn
	server net.Conn      // nil until it was dialled
	dead   chan struct{} // closed when both are
	holed  Direction     // bytes of these directions have vanished, or will
	ended  Direction     // these have passed on the end of the stream
}

// A piece is what was read at once: bytes, or the end of the stream.
type piece struct {
	bytes []byte
	err   error     // io.EOF: the other side has no more to say; any other: it has hung up
	read  time.Time // when
}

const (
	dialLimit = 5 * time.Second
	exactly   = 2 * time.Millisecond // the last of a delay, which nothing cuts short
	pieceSize = 16 << 10
	maxPieces = 256 // on the way in one direction; more stay where they are
)

// OpenLink is a link to a server that is in no rig, on a port that was reserved for it. release gives that back.
func OpenLink(port int, release func(), target string) *Link {
	l := openLink(port, func() string { return target })
	l.end = release
	l.setDown(false)
	return l
}

func newLink(n *Node) *Link {
	port, release, err := n.farm.ReservePort()
	l := openLink(port, func() string { return n.Server().Addr() })
	l.node, l.end = n, release
	if err != nil {
		l.err, l.end = fmt.Errorf("rig: %w", err), func() {}
	}
	return l
}

// openLink makes a link that does not listen yet.
func openLink(port int, target func() string) *Link {
	l := &Link{
		target: target, port: port, end: func() {}, down: true,
		delay: map[Direction]time.Duration{}, changed: make(chan struct{}), conns: map[*passage]bool{},
	}
	l.life, l.die = context.WithCancel(context.Background())
	return l
}

// Addr is the host:port that leads to the server.
func (l *Link) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)) }

// URL is redis://[user:password@]host:port[/database] of the server, through the link, for
// other clients: what Pool dials.
func (l *Link) URL() string {
	c := l.node.config
	u := url.URL{Scheme: "redis", Host: l.Addr()}
	if c.Password != "" {
		u.User = url.UserPassword(c.User, c.Password)
	}
	if c.Database != 0 {
		u.Path = "/" + strconv.Itoa(c.Database)
	}
	return u.String()
}

// Pool is a pool of connections through the link, with the contender's user and the
// database. Each call gives another one; all end with the link.
func (l *Link) Pool() *redis.Pool { return l.PoolOf(0, false) }

// PoolOf is Pool with n connections at most, 0 being no limit: with wait, who finds
// none waits for one, without, that is an error.
func (l *Link) PoolOf(n int, wait bool) *redis.Pool {
	p := &redis.Pool{MaxActive: n, Wait: wait, MaxIdle: 16, IdleTimeout: time.Minute, DialContext: l.dial}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pools = append(l.pools, p)
	return p
}

func (l *Link) dial(ctx context.Context) (redis.Conn, error) {
	if err := l.failure(); err != nil {
		return nil, err // it says more than that nobody listens
	}
	c := l.node.config
	return redis.DialContext(ctx, "tcp", l.Addr(),
		redis.DialUsername(c.User), redis.DialPassword(c.Password), redis.DialDatabase(c.Database),
		redis.DialConnectTimeout(2*time.Second), redis.DialReadTimeout(3*time.Second), redis.DialWriteTimeout(3*time.Second))
}

// Hold makes bytes wait on the way. After Heal they arrive, in order, also those of
// contenders that have hung up meanwhile: delay, congestion.
func (l *Link) Hold(d Direction) { l.change(func() { l.held |= d }) }

// Delay makes every byte arrive that much later than it was sent, in order. 0: no later.
func (l *Link) Delay(d Direction, by time.Duration) {
	l.change(func() {
		for _, one := range []Direction{Requests, Replies} {
			if d&one != 0 {
				l.delay[one] = by
			}
		}
	})
}

// Cut makes bytes vanish, with the ends of connections. Connections stay, half-open; new
// ones are accepted, and nothing comes of them. All that lived through it are reset by
// Heal, since a stream with a hole must not go on.
func (l *Link) Cut(d Direction) {
	l.change(func() {
		l.cut |= d
		for p := range l.conns {
			p.holed |= d
		}
	})
}

// Reset ends all connections by RST, with whatever is on the way in them. New ones work;
// one that is opened at that very moment may be refused.
func (l *Link) Reset() { l.change(l.resetAll) }

// Refuse ends all connections by RST, and new ones are refused until Heal.
func (l *Link) Refuse() {
	l.change(func() {
		l.refused = true
		l.resetAll()
	})
}

// Heal ends all faults: what was held arrives, what has holes is reset, and new
// connections work.
func (l *Link) Heal() { l.change(l.heal) }

func (l *Link) heal() {
	if l.cut != 0 {
		l.stopListening()
	}
	l.refused, l.held, l.cut = false, 0, 0
	clear(l.delay)
	for p := range l.conns {
		if p.holed != 0 {
			l.hangUp(p)
		}
	}
}

// setDown is for the node: the server is dead, or removed.
func (l *Link) setDown(down bool) { l.change(func() { l.down = down }) }

// Close ends the link, its connections and its pools.
func (l *Link) Close() {
	l.mu.Lock()
	first := !l.closed
	pools := l.pools
	l.mu.Unlock()
	l.change(func() {
		l.closed = true
		l.resetAll()
	})
	l.die()
	l.running.Wait()
	if !first {
		return
	}
	for _, p := range pools {
		p.Close()
	}
	l.end()
	if l.node != nil {
		l.node.forget(l)
	}
}

// failure tells why the link does not listen, though it should.
func (l *Link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// change makes one change, and wakes all whom it may concern.
func (l *Link) change(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	l.listen()
	close(l.changed)
	l.changed = make(chan struct{})
}

// listen opens or closes the listener, as the state wants it. For callers that hold mu.
func (l *Link) listen() {
	want := !l.closed && !l.refused && !l.down
	switch {
	case !want:
		l.stopListening()
	case l.listener == nil && l.port != 0:
		ln, err := (&net.ListenConfig{}).Listen(l.life, "tcp", l.Addr())
		if err != nil {
			l.err = fmt.Errorf("rig: link: %w", err)
			return
		}
		l.err, l.listener = nil, ln
		l.running.Go(func() { l.accept(ln) })
	}
}

func (l *Link) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free, perhaps
			select {
			case <-l.life.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		p := &passage{client: c, dead: make(chan struct{})}
		l.mu.Lock()
		if l.listener != ln {
			l.mu.Unlock()
			abort(c)
			return
		}
		p.holed = l.cut
		l.conns[p] = true
		l.running.Go(func() { l.connect(p) })
		l.mu.Unlock()
	}
}

// connect brings a new connection to the server. One that the server does not take is
// reset.
func (l *Link) connect(p *passage) {
	limit, cancel := context.WithTimeout(l.life, dialLimit)
	defer cancel()
	s, err := (&net.Dialer{}).DialContext(limit, "tcp", l.target())
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || isClosed(p.dead) {
		if err == nil {
			abort(s)
		}
		l.hangUp(p)
		return
	}
	p.server = s
	l.pump(p, Requests, p.client, p.server)
	l.pump(p, Replies, p.server, p.client)
}

// pump brings to the connection to what from says. The reader goes ahead of the writer, so that a delay
// is one of time, not of rate.
func (l *Link) pump(p *passage, d Direction, from, to net.Conn) {
	way := make(chan piece, maxPieces)
	l.running.Go(func() {
		for {
			buf := make([]byte, pieceSize)
			n, err := from.Read(buf)
			if n > 0 && !offer(way, piece{bytes: buf[:n], read: time.Now()}, p.dead) {
				return
			}
			if err != nil {
				offer(way, piece{err: err, read: time.Now()}, p.dead)
				return
			}
		}
	})
	l.running.Go(func() {
		for {
			var next piece
			select {
			case next = <-way:
			case <-p.dead:
				return
			}
			if !l.passes(p, d, next) {
				continue
			}
			switch next.err {
			case nil:
				if _, err := to.Write(next.bytes); err != nil {
					l.lose(p)
					return
				}
			case io.EOF:
				l.finish(p, d, to)
				return
			default:
				l.lose(p)
				return
			}
		}
	})
}

func offer(way chan<- piece, x piece, dead <-chan struct{}) bool {
	select {
	case way <- x:
		return true
	case <-dead:
		return false
	}
}

// passes waits until the piece may go on, and reports whether it does.
func (l *Link) passes(p *passage, d Direction, x piece) bool {
	for {
		l.mu.Lock()
		vanishes, held, changed := p.holed&d != 0, l.held&d != 0, l.changed
		wait := time.Until(x.read.Add(l.delay[d]))
		l.mu.Unlock()
		switch {
		case vanishes || isClosed(p.dead):
			return false
		case !held && wait <= 0:
			return true
		case !held && wait <= exactly:
			sleep(wait)
			continue
		}
		var due <-chan time.Time
		if !held {
			due = time.After(wait - exactly)
		}
		select {
		case <-due:
		case <-changed:
		case <-p.dead:
			return false
		}
	}
}

// finish passes on that one side has no more to say. The other may have.
func (l *Link) finish(p *passage, d Direction, to net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClosed(p.dead) {
		return
	}
	if p.ended |= d; p.ended != Both {
		if t, ok := to.(*net.TCPConn); ok && t.CloseWrite() == nil {
			return
		}
		l.hangUp(p)
		return
	}
	p.client.Close()
	p.server.Close()
	close(p.dead)
	delete(l.conns, p)
}

// lose passes on that one side has hung up.
func (l *Link) lose(p *passage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUp(p)
}

// stopListening closes the listener, and with it connections that the kernel has accepted and
// nobody has looked at: they belong to what was before. For callers that hold mu, as are resetAll
// and hangUp.
func (l *Link) stopListening() {
	if l.listener != nil {
		redistest.EndListening(l.listener)
		l.listener = nil
	}
}

func (l *Link) resetAll() {
	l.stopListening()
	for p := range l.conns {
		l.hangUp(p)
	}
}

func (l *Link) hangUp(p *passage) {
	if isClosed(p.dead) {
		return
	}
	close(p.dead)
	delete(l.conns, p)
	abort(p.client)
	if p.server != nil {
		abort(p.server)
	}
}

// abort closes by RST, so that neither side takes it for an orderly end.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // of a connection that is gone already
	}
	c.Close()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
