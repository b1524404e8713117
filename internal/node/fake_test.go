package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/strategy"
)

// generous is for what must happen, not for what must happen soon.
const generous = 20 * time.Second

// A fake is a server that does to its clients what the test says.
type fake struct {
	t    *testing.T
	addr string

	mu    sync.Mutex
	serve func(c *fakeConn, cmd []string) // answers a command
	conns []*fakeConn
	over  bool     // the test is: who comes now is too late to be cut off with the others
	log   []string // "2 SET k v": by the number of the connection
}

type fakeConn struct {
	*fake
	net.Conn
	id int // 1, 2, … in the order of accepting
}

// newFake starts a server that answers by serve, which may call plain for the rest.
func newFake(t *testing.T, serve func(c *fakeConn, cmd []string)) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, addr: ln.Addr().String(), serve: serve}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			if f.over {
				nc.Close()
			}
			c := &fakeConn{fake: f, Conn: nc, id: len(f.conns) + 1}
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			wg.Go(c.run)
		}
	})
	t.Cleanup(func() {
		ln.Close()
		f.mu.Lock()
		f.over = true
		f.mu.Unlock()
		f.cut()
		wg.Wait()
	})
	return f
}

func (c *fakeConn) run() {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		cmd, err := readCommand(r)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.log = append(c.log, fmt.Sprint(c.id, " ", strings.Join(cmd, " ")))
		serve := c.serve
		c.mu.Unlock()
		serve(c, cmd)
	}
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

// say writes raw RESP.
func (c *fakeConn) say(format string, args ...any) { fmt.Fprintf(c, format, args...) }

func (c *fakeConn) bulk(s string) { c.say("$%d\r\n%s\r\n", len(s), s) }

// plain answers as a healthy server would: ECHO with its argument, most with OK.
func (c *fakeConn) plain(cmd []string) {
	switch strings.ToUpper(strings.Join(cmd[:min(2, len(cmd))], " ")) {
	case "CLIENT INFO":
		c.bulk(fmt.Sprintf("id=%d addr=client:%d laddr=%s fd=8 name=\n", c.id, c.id, c.addr))
		return
	case "CLIENT KILL":
		c.say(":0\r\n")
		return
	}
	switch strings.ToUpper(cmd[0]) {
	case "ECHO":
		c.bulk(cmd[1])
	case "SUBSCRIBE", "UNSUBSCRIBE":
		c.say("*3\r\n")
		c.bulk(strings.ToLower(cmd[0]))
		c.bulk(cmd[1])
		c.say(":1\r\n")
	default:
		c.say("+OK\r\n")
	}
}

func (f *fake) pool() *redis.Pool {
	return &redis.Pool{
		MaxIdle: 4,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", f.addr)
		},
	}
}

// seen returns the log without the commands by which a connection is set up.
func (f *fake) seen(all bool) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var s []string
	for _, l := range f.log {
		if all || !strings.Contains(l, "CLIENT INFO") && !strings.Contains(l, "ADDR 0.0.0.0:0") {
			s = append(s, l)
		}
	}
	return s
}

func (f *fake) dialled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// cut closes all connections.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
}

func soon() time.Time { return time.Now().Add(generous) }

// want fails the test unless err is a *ServerError that is all of targets.
func want(t *testing.T, what string, err error, targets ...error) {
	t.Helper()
	var se *strategy.ServerError
	if !errors.As(err, &se) {
		t.Fatalf("%s = %v (%T), want a *strategy.ServerError", what, err, err)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("%s = %v, want %v", what, err, target)
		}
	}
	for _, kind := range []error{strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrUnknown} {
		if errors.Is(err, kind) != (kind == se.Kind) {
			t.Fatalf("%s = %v, want nothing but %v", what, err, se.Kind)
		}
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(generous); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", generous, what)
		}
	}
}

func echo(t *testing.T, n *Node, text string) {
	t.Helper()
	r, err := n.Do(t.Context(), soon(), "ECHO", text)
	if b, ok := r.([]byte); err != nil || !ok || string(b) != text {
		t.Fatalf("ECHO %s = %q, %v, want %q, nil", text, r, err, text)
	}
}

// receive returns what comes from c, and fails the test if nothing does.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(generous):
		t.Fatalf("not within %v: %s", generous, what)
		panic("unreachable")
	}
}
