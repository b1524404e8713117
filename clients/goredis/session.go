package goredisnode

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/strategy"
)

// Session lends a connection of the pool to fn. If the pool has none until due, the error is
// ErrUnsent. Unless the client is a cluster's, the session begins with a HELLO, and the connection leads to a
// primary, or the error is ErrRefused. The session looks at ctx between commands; a command that has been sent
// ends with its reply, or at due. When a command is not answered, the connection is closed, and the next commands
// on it are ErrUnsent.
func (n *node) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	call, err := n.begin(ctx, due)
	if err != nil {
		return err
	}
	defer call.done()

	client, err := n.to.at(call.ctx, key)
	if err != nil {
		return call.unsent(err)
	}
	if client, err = n.settled(call, client, key); err != nil {
		return err
	}
	call.client = client
	defer func() {
		if call.late() {
			n.warm(client)
		}
	}()
	conn, err := call.lend()
	if err != nil {
		return err
	}
	s := &session{call: call, conn: conn}
	defer s.giveBack() // also when fn panics
	return fn(s)
}

// lent is a connection of the client's pool. Client.Conn alone would be a data race: when it connects, it
// writes the client's options under a lock of its own.
func lent(client *redis.Client) *redis.Conn { return copyOf(client).Conn() }

// settled follows MOVED before a session begins, because inside the session it would be too late. On a
// cluster it asks for the key. It does not follow ASK: if the lock is still on the old master, the
// session can do its work there.
func (n *node) settled(c *call, client *redis.Client, key string) (*redis.Client, error) {
	for range maxRedirects {
		if !n.to.many() {
			return client, nil
		}
		c.client = client
		err := c.question(func() error { _, err := c.run(client, "EXISTS", []any{nil, key}); return err })
		var failed *strategy.ServerError
		if !errors.As(err, &failed) {
			return client, nil
		}
		if failed.Kind != strategy.ErrRefused {
			return nil, c.failed(strategy.ErrUnsent, failed.Err) // not its kind: nothing of the session was sent
		}
		next, asking := n.to.redirect(c.ctx, key, err)
		if next == nil || asking {
			return client, nil
		}
		client = next
		n.moved()
	}
	return client, nil
}

// A session is a lent connection. It is fn's alone, and not safe for concurrent use.
type session struct {
	call *call
	conn *redis.Conn

	left client.State // to undo
	over bool
}

// Do sends one command and waits for its reply until the session's due time.
func (s *session) Do(cmd string, args ...any) (any, error) {
	if s.over {
		return nil, s.call.unsent(errors.New("the session is over"))
	}
	cmd = strings.ToUpper(cmd)
	s.left.Note(cmd)
	reply, err := s.call.run(s.conn, cmd, appendPlain(make([]any, 1, 1+len(args)), args))
	if errors.Is(err, strategy.ErrUnknown) {
		s.call.breakConn(s.conn) // also where go-redis thinks it could go on, next to a reply that it has half read
	}
	return reply, err
}

// giveBack returns the connection to the pool, clean; go-redis would not clean it. Where that
// fails, past due for one, the connection is closed.
func (s *session) giveBack() {
	s.over = true
	if cmd := s.left.End(); cmd != "" {
		if _, err := s.call.run(s.conn, cmd, []any{nil}); err != nil {
			s.call.breakConn(s.conn)
		}
	}
	s.conn.Close() //nolint:errcheck // it gives back, or closes, and cannot fail
}
