// A connection that has ended at rest is seen as such before anything is written to it.
package redigonode

import (
	"io"
	"log"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

// TestPeek: an end is seen whatever carries redigo's connection, also through a wrapper; silence is no end.
func TestPeek(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	dial := func(t *testing.T) redis.Conn {
		c, err := redis.Dial("tcp", f.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	type own struct{ redis.Conn }
	for name, c := range map[string]struct {
		wrap func(redis.Conn) redis.Conn
		seen bool
	}{
		"plain":           {func(c redis.Conn) redis.Conn { return c }, true},
		"logging":         {func(c redis.Conn) redis.Conn { return redis.NewLoggingConn(c, log.New(io.Discard, "", 0), "") }, true},
		"within another":  {func(c redis.Conn) redis.Conn { return own{&own{c}} }, true},
		"without a conn":  {func(redis.Conn) redis.Conn { return own{} }, false},
		"of other's make": {func(redis.Conn) redis.Conn { return bare{} }, false},
	} {
		conn := c.wrap(dial(t))
		var s peeker
		s.begin(conn)
		if s.readable() || (s.raw != nil) != c.seen {
			t.Errorf("%s: readable = %v, seen: %v, want false, %v", name, s.readable(), s.raw != nil, c.seen)
		}
		if c.seen {
			if _, err := conn.Do("PING"); err != nil || s.readable() { // by now it has nothing to read
				t.Errorf("%s: PING = %v, readable = %v, want nil, false", name, err, s.readable())
			}
			f.HangUp(t)
			if !s.readable() {
				t.Errorf("%s: the server has hung up, and readable = false", name)
			}
			conn.Close()
			if !s.readable() {
				t.Errorf("%s: it is closed, and readable = false", name)
			}
		}
	}
	if nc, buffer := within(nil); nc != nil || buffer != nil {
		t.Errorf("within(nil) = %v, %v, want nil, nil", nc, buffer)
	}
}
