package goredisnode

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/transaction"
	"github.com/lockstrategies/locks/strategy"
)

// Session lends a connection of the pool to fn. If the pool has none until due, the error is
// ErrUnsent. The session looks at ctx between commands; a command that has been sent ends with its
// reply, or at due. When a command is not answered, the connection is closed, and the next commands
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
	call.node = n.to.nameOf(client)
	s := &session{call: call, conn: lent(client)}
	defer func() { // also when fn panics
		s.giveBack()
		if call.late() {
			n.warm(client)
		}
	}()
	return fn(s)
}

// lent is a connection of the client's pool. Client.Conn alone would be a data race: when it connects, it
// writes the client's options under a lock of its own. A client with a time-out has options of its own.
func lent(client *redis.Client) *redis.Conn {
	return client.WithTimeout(client.Options().ReadTimeout).Conn()
}

// settled follows MOVED before a session begins, because inside the session it would be too late. On a
// cluster it asks for the key. It does not follow ASK: if the lock is still on the old master, the
// session can do its work there.
func (n *node) settled(c *call, client *redis.Client, key string) (*redis.Client, error) {
	for range maxRedirects {
		if _, leads := n.to.(cluster); !leads {
			return client, nil
		}
		c.node = n.to.nameOf(client)
		_, err := c.run(client, "EXISTS", []any{nil, key})
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
		n.sub.moved()
	}
	return client, nil
}

// A session is a lent connection. It is fn's alone, and not safe for concurrent use.
type session struct {
	call *call
	conn *redis.Conn

	left transaction.State // to undo
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
		s.spoil() // also where go-redis thinks it could go on, next to a reply that it has half read
	}
	return reply, err
}

// giveBack returns the connection to the pool, clean; go-redis would not clean it. Where that
// fails, past due for one, the connection is closed.
func (s *session) giveBack() {
	s.over = true
	if cmd := s.left.End(); cmd != "" {
		if _, err := s.call.run(s.conn, cmd, []any{nil}); err != nil {
			s.spoil()
		}
	}
	s.conn.Close() //nolint:errcheck // it gives back, or closes, and cannot fail
}

// spoil keeps the connection out of the pool: after a command that is not written, or not answered,
// go-redis closes the connection.
func (s *session) spoil() {
	cmd := newCommand(s.call, "PING", []any{nil})
	cmd.progress.Store(dropped)
	process(s.conn, cmd) //nolint:errcheck // it is to fail
}
