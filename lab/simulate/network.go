package simulate

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/rig"
)

// latency is how long bytes are on their way at most, where nothing is broken. It differs from one write to the
// next, so few things happen at the same moment: then a seed has the same order of events each time, as far as
// Go's scheduler lets it.
const latency = 500 * time.Microsecond

// A Link is one process's network to one server, in memory. Its methods are those of a [rig.Link].
type Link struct {
	accept func(net.Conn) error // gives the other end of a new connection to the server

	mu      sync.Mutex
	chance  *rand.Rand
	held    rig.Direction // bytes wait
	cut     rig.Direction // bytes vanish
	delay   map[rig.Direction]time.Duration
	refuses bool
	streams map[*stream]bool
	paused  bool // the process is: what it has not read waits, and what it writes
	dead    bool // the process is
}

func newLink(seed, number uint64, accept func(net.Conn) error) *Link {
	return &Link{accept: accept, chance: rand.New(rand.NewPCG(seed, number)), delay: map[rig.Direction]time.Duration{}, streams: map[*stream]bool{}}
}

// Dial makes a connection.
func (l *Link) Dial() (net.Conn, error) {
	requests, replies, err := l.open()
	if err != nil {
		return nil, err
	}
	client, server := conn{in: replies, out: requests}, conn{in: requests, out: replies}
	if err := l.accept(server); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

func (l *Link) open() (requests, replies *stream, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses || l.dead {
		return nil, nil, syscall.ECONNREFUSED
	}
	requests = &stream{Link: l, direction: rig.Requests, change: sync.NewCond(&l.mu)}
	replies = &stream{Link: l, direction: rig.Replies, change: sync.NewCond(&l.mu)}
	l.streams[requests], l.streams[replies] = true, true
	return requests, replies, nil
}

// Hold makes bytes wait until Heal.
func (l *Link) Hold(d rig.Direction) { l.set(func() { l.held |= d }) }

// Cut makes bytes vanish. Heal resets the connections that lived through it.
func (l *Link) Cut(d rig.Direction) { l.set(func() { l.cut |= d }) }

// Delay makes bytes arrive that much later, in order.
func (l *Link) Delay(d rig.Direction, by time.Duration) {
	l.set(func() {
		for _, one := range []rig.Direction{rig.Requests, rig.Replies} {
			if d&one != 0 {
				l.delay[one] = by
			}
		}
	})
}

// Tear ends all connections in the middle of what is on its way.
func (l *Link) Tear() {
	l.set(func() {
		for s := range l.streams {
			if len(s.chunks) > 0 {
				next := s.chunks[0]
				s.chunks = []chunk{{next.bytes[:len(next.bytes)/2], next.arrive}}
			}
			s.end(syscall.ECONNRESET)
		}
	})
}

// Reset ends all connections, with all that is on its way.
func (l *Link) Reset() { l.set(l.reset) }

func (l *Link) reset() {
	for s := range l.streams {
		s.chunks = nil
		s.end(syscall.ECONNRESET)
	}
}

// Refuse ends all connections, and new ones are refused.
func (l *Link) Refuse() {
	l.set(func() {
		l.refuses = true
		l.reset()
	})
}

// pause makes all wait that the process sends and gets.
func (l *Link) pause(paused bool) { l.set(func() { l.paused = paused }) }

// die ends the connections of a process that was killed: what it has sent still arrives. birth is the next one's.
func (l *Link) die() {
	l.set(func() {
		l.dead = true
		for s := range l.streams {
			if s.direction == rig.Replies {
				s.chunks = nil
			}
			s.end(io.EOF)
		}
	})
}

func (l *Link) birth() { l.set(func() { l.dead, l.paused = false, false }) }

// Close ends the link.
func (l *Link) Close() { l.Refuse() }

// Heal ends all faults.
func (l *Link) Heal() {
	l.set(func() {
		if l.cut != 0 {
			l.reset() // a stream with a hole must not go on
		}
		l.held, l.cut, l.refuses = 0, 0, false
		clear(l.delay)
	})
}

// set changes something, and those who read look again.
func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	for s := range l.streams {
		s.change.Broadcast()
	}
}

// A stream is one direction of a connection. The link's mutex guards it.
type stream struct {
	*Link
	direction rig.Direction
	change    *sync.Cond
	chunks    []chunk // on their way
	ended     error   // what comes after them
	deadline  time.Time
}

// A chunk is what one Write has sent.
type chunk struct {
	bytes  []byte
	arrive time.Time
}

// end ends the stream. What has ended stays so.
func (s *stream) end(why error) {
	if s.ended == nil {
		s.ended = why
	}
	s.change.Broadcast()
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return 0, syscall.EPIPE
	case s.cut&s.direction != 0:
		return len(b), nil
	}
	at := time.Now().Add(s.delay[s.direction] + time.Duration(s.chance.Int64N(int64(latency))))
	if n := len(s.chunks); n > 0 && at.Before(s.chunks[n-1].arrive) {
		at = s.chunks[n-1].arrive
	}
	s.chunks = append(s.chunks, chunk{append([]byte(nil), b...), at})
	s.change.Broadcast()
	return len(b), nil
}

// read waits for what arrives next, until the deadline.
func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		now, wake := time.Now(), s.deadline
		held := s.held&s.direction != 0 || s.paused
		switch {
		case !s.deadline.IsZero() && !now.Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.chunks) == 0 && s.ended != nil:
			delete(s.streams, s)
			return 0, s.ended
		case len(s.chunks) > 0 && !held:
			if c := &s.chunks[0]; !now.Before(c.arrive) {
				n := copy(b, c.bytes)
				if c.bytes = c.bytes[n:]; len(c.bytes) == 0 {
					s.chunks = s.chunks[1:]
				}
				return n, nil
			} else if wake.IsZero() || c.arrive.Before(wake) {
				wake = c.arrive
			}
		}
		if wake.IsZero() {
			s.change.Wait()
			continue
		}
		t := time.AfterFunc(wake.Sub(now), s.wake)
		s.change.Wait()
		t.Stop()
	}
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change.Broadcast()
}

// A conn is one end of a connection.
type conn struct{ in, out *stream }

func (c conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions. What was sent still arrives.
func (c conn) Close() error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.chunks = nil
	c.in.end(net.ErrClosed)
	delete(c.in.streams, c.in)
	c.out.end(io.EOF)
	return nil
}

func (c conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.deadline = t
	c.in.change.Broadcast()
	return nil
}

func (c conn) SetDeadline(t time.Time) error  { return c.SetReadDeadline(t) }
func (conn) SetWriteDeadline(time.Time) error { return nil } // a write never waits
func (conn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (conn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
