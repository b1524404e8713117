// Package nodetest has what the tests of every [driver.Node] share: a server that does to its
// clients what a test says, words for waiting and for errors, and a suite of what holds for
// each of them, whatever client it is made of:
//
//	func TestNode(t *testing.T) { nodetest.Run(t, subject) }
package nodetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Server is one that does to its clients what the test says.
type Server struct {
	Addr string

	// Protocol is the newest RESP that it speaks. Where that is not 3 it refuses HELLO 3.
	Protocol int
	// Greet is how long it takes to answer HELLO.
	Greet time.Duration

	mu    sync.Mutex
	serve func(c *Conn, cmd []string)
	conns []*Conn
	over  bool // the test is: a client that comes now is too late to be cut off with the others
	log   []string
	work  sync.WaitGroup
}

// A Conn is a client's connection, as its server has it.
type Conn struct {
	net.Conn
	ID int // 1, 2, … in the order of accepting

	server *Server
	resp3  bool
	over   bool
	heard  map[string]bool // the channels
}

// NewServer starts a server that answers by serve, which may call Plain for the rest. The
// greetings of a client (HELLO 3, CLIENT SETINFO) do not get to serve. It ends with the test.
func NewServer(t testing.TB, serve func(c *Conn, cmd []string)) *Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewInMemory(t, serve)
	s.Addr = ln.Addr().String()
	s.work.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			s.accept(nc)
		}
	})
	t.Cleanup(func() { ln.Close() })
	return s
}

// NewInMemory is [NewServer] without a network, for tests under testing/synctest: only Dial
// leads to it.
func NewInMemory(t testing.TB, serve func(c *Conn, cmd []string)) *Server {
	s := &Server{Addr: memory, serve: serve}
	t.Cleanup(func() {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.Cut()
		s.work.Wait()
	})
	return s
}

// Dial connects to the server.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	if s.Addr != memory {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	}
	client, server := net.Pipe()
	s.accept(newBuffered(server))
	return &socket{Conn: client}, ctx.Err()
}

// A socket learns from a read that the other side has hung up, not from a write or a deadline.
type socket struct {
	net.Conn
	closed atomic.Bool
}

func (s *socket) SetReadDeadline(at time.Time) error {
	s.Conn.SetReadDeadline(at) //nolint:errcheck // the read tells
	return nil
}

func (s *socket) Write(text []byte) (int, error) {
	n, err := s.Conn.Write(text)
	if err == io.ErrClosedPipe && !s.closed.Load() {
		return len(text), nil
	}
	return n, err
}

func (s *socket) Close() error {
	s.closed.Store(true)
	return s.Conn.Close()
}

// memory is where a server is that has no network.
const memory = "memory:1"

// A buffered connection takes what is written at once, as a socket does.
type buffered struct {
	net.Conn
	out   chan []byte
	ended chan struct{}
	end   sync.Once
}

func newBuffered(c net.Conn) *buffered {
	b := &buffered{Conn: c, out: make(chan []byte, 1000), ended: make(chan struct{})}
	go func() {
		for {
			select {
			case text := <-b.out:
				c.Write(text) //nolint:errcheck // of a client that has hung up
			case <-b.ended:
				return
			}
		}
	}()
	return b
}

func (b *buffered) Write(text []byte) (int, error) {
	select {
	case b.out <- slices.Clone(text):
		return len(text), nil
	case <-b.ended:
		return 0, net.ErrClosed
	}
}

func (b *buffered) Close() error {
	b.end.Do(func() { close(b.ended) })
	return b.Conn.Close()
}

func (s *Server) accept(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		nc.Close()
		return
	}
	c := &Conn{Conn: nc, ID: len(s.conns) + 1, server: s, heard: map[string]bool{}}
	s.conns = append(s.conns, c)
	s.work.Go(c.run)
}

func (c *Conn) run() {
	defer func() {
		c.Close()
		c.server.mu.Lock()
		c.over = true
		c.server.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		cmd, err := readCommand(r)
		if err != nil {
			return
		}
		cmd[0] = strings.ToUpper(cmd[0])
		c.server.note(c.ID, cmd)(c, cmd)
	}
}

// note writes a command down, and returns what answers it.
func (s *Server) note(id int, cmd []string) func(*Conn, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprint(id, " ", strings.Join(cmd, " ")))
	if greets(cmd) {
		return (*Conn).greet
	}
	return s.serve
}

func readCommand(r *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	if err != nil {
		return nil, err
	}
	cmd := make([]string, n)
	for i := range cmd {
		size, err := number()
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		cmd[i] = string(b[:size])
	}
	return cmd, nil
}

// greets tells what a client begins with from what a Node asks.
func greets(cmd []string) bool {
	return len(cmd) > 1 && cmd[0] == "HELLO" || len(cmd) > 1 && cmd[0] == "CLIENT" &&
		slices.Contains([]string{"SETINFO", "SETNAME", "TRACKING", "MAINT_NOTIFICATIONS"}, strings.ToUpper(cmd[1]))
}

func (c *Conn) greet(cmd []string) {
	if cmd[0] == "HELLO" {
		time.Sleep(c.server.Greet)
	}
	switch {
	case c.server.Protocol != 3:
		c.Say("-ERR unknown command '%s'\r\n", cmd[0])
	case cmd[0] == "HELLO":
		c.server.mu.Lock()
		c.resp3 = cmd[1] == "3"
		c.server.mu.Unlock()
		c.Say("%%2\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n")
	default:
		c.Say("+OK\r\n")
	}
}

// Say writes raw RESP.
func (c *Conn) Say(format string, args ...any) { fmt.Fprintf(c, format, args...) }

// Bulk writes a text.
func (c *Conn) Bulk(s string) { c.Say("$%d\r\n%s\r\n", len(s), s) }

// Plain answers as a healthy server would that has nothing: ECHO with its argument, most with OK.
func (c *Conn) Plain(cmd []string) {
	switch strings.ToUpper(strings.Join(cmd[:min(2, len(cmd))], " ")) {
	case "CLIENT INFO":
		c.Bulk(fmt.Sprintf("id=%d addr=client:%d laddr=%s fd=8 name=\n", c.ID, c.ID, c.server.Addr))
		return
	case "CLIENT KILL":
		c.Say(":0\r\n")
		return
	}
	switch cmd[0] {
	case "ECHO":
		c.Bulk(cmd[1])
	case "PING":
		c.pong()
	case "HELLO":
		c.Hello("master")
	case "SUBSCRIBE", "UNSUBSCRIBE":
		for _, channel := range cmd[1:] {
			c.hear(strings.ToLower(cmd[0]), channel)
		}
	default:
		c.Say("+OK\r\n")
	}
}

// Hello answers HELLO: who the server is.
func (c *Conn) Hello(role string) {
	begin, proto := "*6", 2
	if c.mark() == ">" {
		begin, proto = "%3", 3
	}
	c.Say("%s\r\n$5\r\nproto\r\n:%d\r\n$4\r\nrole\r\n$%d\r\n%s\r\n$7\r\nmodules\r\n*0\r\n", begin, proto, len(role), role)
}

func (c *Conn) pong() {
	if c.listens() && c.mark() == "*" {
		c.Say("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		return
	}
	c.Say("+PONG\r\n")
}

func (c *Conn) hear(kind, channel string) {
	c.server.mu.Lock()
	if kind == "subscribe" {
		c.heard[channel] = true
	} else {
		delete(c.heard, channel)
	}
	count := len(c.heard)
	c.server.mu.Unlock()
	c.Say("%s3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:%d\r\n", c.mark(), len(kind), kind, len(channel), channel, count)
}

// URL is where clients find it.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Message has the connection hear a message.
func (c *Conn) Message(channel, msg string) {
	c.Say("%s3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", c.mark(), len(channel), channel, len(msg), msg)
}

// mark begins what was not asked for.
func (c *Conn) mark() string {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.resp3 {
		return ">"
	}
	return "*"
}

// ended reports whether the client has hung up, or was cut off.
func (c *Conn) ended() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.over
}

// listens reports whether it is for messages.
func (c *Conn) listens() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return len(c.heard) > 0
}

// Serve has commands answered by serve from now on.
func (s *Server) Serve(serve func(c *Conn, cmd []string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = serve
}

// Log is what was asked, but for what sets a connection up: "2 SET k v", by the number of the
// connection.
func (s *Server) Log() []string {
	return slices.DeleteFunc(s.all(), func(line string) bool {
		_, cmd, _ := strings.Cut(line, " ")
		return cmd == "CLIENT INFO" || cmd == "HELLO" || strings.Contains(cmd, "ADDR 0.0.0.0:0") || greets(strings.Fields(cmd))
	})
}

// all is Log with what sets a connection up.
func (s *Server) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Seen counts the commands that begin so, on all connections.
func (s *Server) Seen(prefix string) (n int) {
	for _, line := range s.Log() {
		if _, cmd, _ := strings.Cut(line, " "); strings.HasPrefix(cmd, prefix) {
			n++
		}
	}
	return n
}

// on counts the connections on which something was asked that begins so.
func (s *Server) on(prefix string) int {
	asked := map[string]bool{}
	for _, line := range s.Log() {
		if id, cmd, _ := strings.Cut(line, " "); strings.HasPrefix(cmd, prefix) {
			asked[id] = true
		}
	}
	return len(asked)
}

// Dialled counts the connections that were made.
func (s *Server) Dialled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Open counts the connections that have not ended.
func (s *Server) Open() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if !c.over {
			n++
		}
	}
	return n
}

// Cut ends all connections.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}
