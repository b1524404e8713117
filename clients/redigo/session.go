package redigonode

import (
	"cmp"
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// Session lends a connection of the pool to fn. If the pool has none until due, the error
// is ErrUnsent. A command of fn's ends at due. The session looks at ctx between commands,
// because redigo cannot be interrupted inside one.
//
// A session is in the order of the calls, too. Before it, a PING makes sure that what
// Do and Eval left unconfirmed has been done, or never will be. Then the session asks its
// connection for the server's role and its own identity, which also finds dead connections
// while nothing is lost by that. If one of its commands gets no reply, the Node kills that connection before it
// sends anything else.
func (n *node) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	if err := timeup.Why(ctx, due); err != nil {
		return n.unsent(err)
	}
	if !n.gate.Enter() {
		return n.unsent(strategy.ErrClosed)
	}
	defer n.gate.Leave()

	if err := n.settle(ctx, due); err != nil {
		return n.unsent(err)
	}
	s, err := n.borrow(ctx, due)
	if err != nil {
		return n.unsent(err)
	}
	defer s.giveBack() // also when fn panics
	return fn(s)
}

// settle waits until the server can do nothing more of what Do and Eval left
// unconfirmed. The answer to a PING shows that: it comes after their answers, or from a
// connection that has killed theirs. A refusal is an answer, too.
func (n *node) settle(ctx context.Context, due time.Time) error {
	if !n.pipe.unsettled() {
		return nil
	}
	_, err := n.Do(ctx, due, "PING", "")
	return client.Settled(err)
}

// borrow gets a connection that lives and leads to a primary. One that died in the pool is put
// back, which closes it, and the next is tried. So is one that leads to a replica, unless it is new.
func (n *node) borrow(ctx context.Context, due time.Time) (*session, error) {
	for others := n.pool.IdleCount(); ; others-- {
		conn, err := n.get(ctx, due)
		if err != nil {
			return nil, client.Discreet(err, "")
		}
		s := &session{n: n, ctx: ctx, due: due, conn: conn}
		last, limit := others <= 0 || timeup.Why(ctx, due) != nil, due
		if early := time.Now().Add(client.Patience); !last && n.silent.Recent() && early.Before(due) {
			limit = early
		}
		if err = s.identify(limit); err == nil && (last || !s.unfit) {
			return s, nil
		}
		s.giveBack()
		if err != nil && !isReply(err) && !time.Now().Before(due) {
			n.silent.Note()
		}
		// It lives, but not for us; or it was a new one; or the time is over. Another that was taken then would come back too
		// late to be among the idle ones that the next session counts.
		if isReply(err) || last || timeup.Why(ctx, due) != nil {
			return nil, timeup.With(ctx, due, err)
		}
	}
}

// get is pool.GetContext, left at due or with ctx even when the pool's Dial knows
// neither. A connection that comes too late goes back to the pool.
func (n *node) get(ctx context.Context, due time.Time) (redis.Conn, error) {
	bounded, cancel := context.WithDeadlineCause(ctx, due, timeup.Err)
	defer cancel()
	conn, err := client.Call(bounded, &n.gets, n.pool.GetContext, func(late redis.Conn) { late.Close() })
	switch {
	case err == nil:
		return conn, nil
	case err == context.Cause(bounded): // left
		return nil, cmp.Or(timeup.Why(ctx, due), err)
	}
	return nil, timeup.With(ctx, due, err)
}

// A session is a lent connection. It is fn's alone, and not safe for concurrent use.
type session struct {
	n    *node
	ctx  context.Context
	due  time.Time
	conn redis.Conn
	id   client.Identity

	left  client.State // to undo
	lost  error        // an earlier command's end
	unfit bool         // it must not be lent again
}

// identify learns the server's role and the connection's identity. See Session.
func (s *session) identify(due time.Time) error {
	if s.n.hangsUp.Load() {
		return nil
	}
	cmds := [][]string{{"HELLO"}, clientInfo}
	if s.n.unordered.Load() {
		cmds = cmds[:1]
	}
	replies, err := ask(s.conn.(redis.ConnWithTimeout), due, cmds...) // as every connection of a pool is
	if err != nil {
		return err
	}
	if hello, err := s.n.answered(replies[0], nil); err == nil && rediskit.Demoted(hello) {
		s.leave()
	}
	if len(replies) > 1 {
		if s.id = s.n.introduced(replies[1]); !s.id.Known() {
			s.n.unordered.Store(true)
		}
	}
	return nil
}

// leave has nobody use the connection again: it leads to a replica.
func (s *session) leave() {
	s.unfit = true
	s.n.leave()
}

// Do sends one command and waits for its reply until the session's due time.
func (s *session) Do(cmd string, args ...any) (any, error) {
	if err := s.mayDo(); err != nil {
		return nil, s.n.unsent(err)
	}
	s.left.Note(cmd)
	reply, err := s.ask(cmd, args...)
	if err != nil && !isReply(err) {
		s.lost, s.unfit = lost(err), true
		s.n.pipe.killFirst(s.id)
		if !time.Now().Before(s.due) {
			s.n.silent.Note()
		}
		return nil, s.n.unknown(timeup.With(s.ctx, s.due, s.n.hungUpOn(cmd, s.lost)))
	}
	if saysReadOnly(reply, err) {
		s.leave()
	}
	return s.n.answered(reply, err)
}

func (s *session) ask(cmd string, args ...any) (reply any, err error) {
	defer nonsense(&err)
	return redis.DoWithTimeout(s.conn, remaining(s.due), cmd, args...)
}

func (s *session) mayDo() error {
	if err := timeup.Why(s.ctx, s.due); err != nil {
		return err
	}
	if s.n.gate.IsClosed() {
		return strategy.ErrClosed
	}
	return cmp.Or(s.lost, s.conn.Err()) // or the session is over
}

// giveBack returns the connection to the pool, clean. The pool would clean it too,
// but without a time-out: it would wait for ever for a server that is frozen. A
// connection to a server that is a replica ends, or the pool would lend it again.
func (s *session) giveBack() {
	if cmd := s.left.End(); cmd != "" && !s.unfit { // past due this fails at once, and the pool closes the connection
		_, err := s.ask(cmd)
		s.unfit = isReply(err) // forbidden: its next user would find it in a transaction
	}
	if s.unfit { // the pool keeps none that is broken, and this breaks it, as nothing is to be received
		redis.ReceiveWithTimeout(s.conn, time.Nanosecond) //nolint:errcheck // that is what it is for
	}
	s.conn.Close()
}
