package node

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/internal/transaction"
	"github.com/lockstrategies/locks/strategy"
)

// maxStuck is how many borrowings that their callers gave up may hang in the
// pool's Dial before further sessions are refused: each is a goroutine.
const maxStuck = 16

// sessions lends the pool's connections.
type sessions struct {
	n *Node

	mu     sync.Mutex
	closed bool
	stuck  int
	open   sync.WaitGroup
}

func (ss *sessions) init(n *Node) { ss.n = n }

// Session lends a connection of the pool to fn. If the pool has none until due, the error
// is ErrUnsent. A command of fn's ends at due. The session looks at ctx between commands,
// because redigo cannot be interrupted inside one.
//
// A session is in the order of the calls, too. Before it, a PING makes sure that what
// Do and Eval left unanswered has been done, or never will be. Then the session asks its
// connection for its identity, which also finds dead connections while nothing is lost by
// that. If one of its commands goes unanswered, the Node kills that connection before it
// sends anything else.
func (n *Node) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	if err := timeup.Why(ctx, due); err != nil {
		return n.unsent(err)
	}
	if !n.sessions.enter() {
		return n.unsent(strategy.ErrClosed)
	}
	defer n.sessions.open.Done()

	if err := n.settle(ctx, due); err != nil {
		return n.unsent(err)
	}
	s, err := n.sessions.borrow(ctx, due)
	if err != nil {
		return n.unsent(err)
	}
	defer s.giveBack() // also when fn panics
	return fn(s)
}

// settle waits until the server can do nothing more of what Do and Eval left
// unanswered. The answer to a PING shows that: it comes after their answers, or from a
// connection that has killed theirs. A refusal is an answer, too.
func (n *Node) settle(ctx context.Context, due time.Time) error {
	if !n.pipe.unsettled() {
		return nil
	}
	_, err := n.Do(ctx, due, "PING", "")
	var failed *strategy.ServerError
	if errors.As(err, &failed) && failed.Kind != strategy.ErrRefused {
		return failed.Err // not its kind: nothing of the session was sent
	}
	return nil
}

func (ss *sessions) enter() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return false
	}
	ss.open.Add(1)
	return true
}

func (ss *sessions) isClosed() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.closed
}

// close lets no session begin, and none send another command.
func (ss *sessions) close() {
	ss.mu.Lock()
	ss.closed = true
	ss.mu.Unlock()
}

func (ss *sessions) wait() { ss.open.Wait() }

// borrow gets a connection that lives. One that died in the pool is put back, which
// closes it, and the next is tried.
func (ss *sessions) borrow(ctx context.Context, due time.Time) (*session, error) {
	for others := ss.n.pool.IdleCount(); ; others-- {
		conn, err := ss.get(ctx, due)
		if err != nil {
			return nil, discreet(err)
		}
		s := &session{n: ss.n, ctx: ctx, due: due, conn: conn}
		if err = s.identify(); err == nil {
			return s, nil
		}
		conn.Close()
		// It lives, but not for us; or it was a new one.
		if isReply(err) || others <= 0 || timeup.Why(ctx, due) != nil {
			return nil, timeup.With(ctx, due, err)
		}
	}
}

// get is pool.GetContext, left at due or with ctx even when the pool's Dial knows
// neither. A connection that comes too late goes back to the pool.
func (ss *sessions) get(ctx context.Context, due time.Time) (redis.Conn, error) {
	if !ss.mayHang() {
		return nil, errors.New("too many connections hang while being dialled")
	}
	type result struct {
		conn redis.Conn
		err  error
	}
	bounded, cancel := context.WithDeadline(ctx, due)
	got := make(chan result)
	left := make(chan struct{})
	go func() {
		defer cancel()
		conn, err := ss.n.pool.GetContext(bounded)
		select {
		case got <- result{conn, err}:
		case <-left:
			conn.Close()
			ss.unstuck()
		}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return nil, timeup.With(ctx, due, r.err)
		}
		return r.conn, nil
	case <-bounded.Done():
		ss.mu.Lock()
		ss.stuck++
		ss.mu.Unlock()
		close(left)
		return nil, cmp.Or(timeup.Why(ctx, due), timeup.Err)
	}
}

func (ss *sessions) mayHang() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.stuck < maxStuck
}

func (ss *sessions) unstuck() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.stuck--
}

// A session is a lent connection. It is fn's alone, and not safe for concurrent use.
type session struct {
	n    *Node
	ctx  context.Context
	due  time.Time
	conn redis.Conn
	id   identity

	left    transaction.State // to undo
	replica bool              // the server has turned out to be one
}

// identify learns the connection's identity. See Session.
func (s *session) identify() error {
	if s.n.unordered.Load() {
		return nil
	}
	reply, err := redis.DoWithTimeout(s.conn, remaining(s.due), "CLIENT", "INFO")
	if err != nil && (!isReply(err) || passing(err)) {
		return err
	}
	if s.id = s.n.introduced(reply); !s.id.known() {
		s.n.unordered.Store(true)
	}
	return nil
}

// Do sends one command and waits for its reply until the session's due time.
func (s *session) Do(cmd string, args ...any) (any, error) {
	if err := s.mayDo(); err != nil {
		return nil, s.n.unsent(err)
	}
	s.left.Note(cmd)
	reply, err := redis.DoWithTimeout(s.conn, remaining(s.due), cmd, args...)
	if err != nil && !isReply(err) {
		s.n.pipe.doom(s.id)
		return nil, s.n.unknown(timeup.With(s.ctx, s.due, lost(err)))
	}
	if saysReadOnly(reply, err) { // see pipe.receive
		s.replica = true
		s.n.sub.leave()
	}
	return s.n.answered(reply, err)
}

func (s *session) mayDo() error {
	if err := timeup.Why(s.ctx, s.due); err != nil {
		return err
	}
	if s.n.sessions.isClosed() {
		return strategy.ErrClosed
	}
	return s.conn.Err() // an earlier command broke it, or the session is over
}

// giveBack returns the connection to the pool, clean. The pool would clean it too,
// but without a time-out: it would wait for ever for a server that is frozen. A
// connection to a server that is a replica ends, or the pool would lend it again.
func (s *session) giveBack() {
	cmd, due := s.left.End(), s.due
	if s.replica {
		cmd, due = "PING", time.Time{}
	}
	if cmd != "" { // past due this fails at once, and the pool closes the connection
		if _, err := redis.DoWithTimeout(s.conn, remaining(due), cmd); isReply(err) {
			// Forbidden: its next user would find it in a transaction. The pool keeps none
			// that is broken, and this breaks it, as nothing is to be received.
			redis.ReceiveWithTimeout(s.conn, time.Nanosecond) //nolint:errcheck // that is what it is for
		}
	}
	s.conn.Close()
}
