package goredis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// generous is for what must happen, not for what must happen soon.
const generous = 20 * time.Second

// A fake is a server that does to its clients what the test says.
type fake struct {
	t     *testing.T
	addr  string
	serve func(c *fakeConn, cmd []string) // answers a command
	greet time.Duration                   // how long it takes to answer HELLO

	mu    sync.Mutex
	conns []*fakeConn
	over  bool
	log   []string // commands but those that greet
}

type fakeConn struct {
	*fake
	net.Conn
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
			c := &fakeConn{fake: f, Conn: nc}
			f.mu.Lock()
			if f.over {
				nc.Close()
			}
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

// cut ends all connections.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
}

// seen counts the commands that begin so.
func (f *fake) seen(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func (f *fake) options() *redis.Options {
	return &redis.Options{Addr: f.addr, ContextTimeoutEnabled: true}
}

func (c *fakeConn) run() {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		cmd, err := readCommand(r)
		if err != nil {
			return
		}
		cmd[0] = strings.ToUpper(cmd[0])
		if slices.Contains([]string{"HELLO", "CLIENT"}, cmd[0]) {
			if cmd[0] == "HELLO" {
				time.Sleep(c.greet)
			}
			c.say("-ERR unknown command\r\n")
			continue
		}
		c.mu.Lock()
		c.log = append(c.log, strings.Join(cmd, " "))
		c.mu.Unlock()
		c.serve(c, cmd)
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
func (c *fakeConn) say(resp string) { io.WriteString(c, resp) } //nolint:errcheck // who is gone does not hear

// plain answers as a Redis would that has nothing.
func (c *fakeConn) plain(cmd []string) {
	switch cmd[0] {
	case "SUBSCRIBE", "UNSUBSCRIBE":
		for _, ch := range cmd[1:] {
			kind := strings.ToLower(cmd[0])
			c.say(fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n", len(kind), kind, len(ch), ch))
		}
	case "PING":
		c.say("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	default:
		c.say("+OK\r\n")
	}
}

// want checks what an error is.
func want(t *testing.T, call string, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("%s = %v, want %v", call, err, target)
		}
	}
}

// receive waits for what must come.
func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(generous):
		t.Fatalf("%s does not come", what)
		panic("unreachable")
	}
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for limit := time.Now().Add(generous); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}
