// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.

package valkeynode

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/internal/transaction"
	"github.com/lockstrategies/locks/strategy"
)

// maxStuck is how many borrowings that their callers gave up may hang in the client before
// further sessions are refused: each is a goroutine, and perhaps a connection.
const maxStuck = 16

// calls are those that Close waits for.
type calls struct {
	mu     sync.Mutex
	closed chan struct{}
	open   sync.WaitGroup
}

func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return false
	}
	c.open.Add(1)
	return true
}

func (c *calls) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// close lets no call begin, and no session send another command.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isClosed() {
		close(c.closed)
	}
}

// Session lends a connection of the client's to fn. If none is available until due, the error is
// ErrUnsent. A command of fn's ends at due. The session looks at ctx between commands, because
// valkey-go cannot always be interrupted inside one.
//
// On one server a session is in the order of the calls, too. Before it, a PING makes sure that
// what Do and Eval left unanswered has been done, or never will be. Then the session asks its
// connection for its identity. If one of its commands goes unanswered, the Node kills that
// connection before it sends anything else. On a cluster it is the connection to the master that
// has the key. If the key has moved, the server refuses the commands with MOVED, and the client
// looks for the new master.
func (n *Node) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	if err := timeup.Why(ctx, due); err != nil {
		return n.unsent(err)
	}
	if !n.calls.enter() {
		return n.unsent(strategy.ErrClosed)
	}
	defer n.calls.open.Done()

	if err := n.settle(ctx, due); err != nil {
		return n.unsent(err)
	}
	lt, err := n.borrow(ctx, due, key)
	if err != nil {
		return n.unsent(err)
	}
	s := &session{n: n, ctx: ctx, due: due, lent: lt}
	defer s.giveBack() // also when fn panics
	return fn(s)
}

// settle waits until the server can do nothing more of what Do and Eval left unanswered. The answer
// to a PING shows that: it comes after their answers, or from a connection that has killed theirs. A
// refusal is an answer, too.
func (n *Node) settle(ctx context.Context, due time.Time) error {
	if !n.line.unsettled() {
		return nil
	}
	_, err := n.Do(ctx, due, "PING", "")
	var failed *strategy.ServerError
	if errors.As(err, &failed) && failed.Kind != strategy.ErrRefused {
		return failed.Err // not its kind: nothing of the session was sent
	}
	return nil
}

// borrow is lend, left at due or with ctx even when the client knows neither. A connection
// that comes too late goes back.
func (n *Node) borrow(ctx context.Context, due time.Time, key string) (*lent, error) {
	if n.stuck.Load() >= maxStuck {
		return nil, errors.New("too many connections hang while being made")
	}
	type result struct {
		lent *lent
		err  error
	}
	bounded, cancel := context.WithDeadlineCause(ctx, due, timeup.Err)
	got, left := make(chan result), make(chan struct{})
	n.work.Go(func() {
		defer cancel()
		lt, err := n.lend(bounded, key)
		select {
		case got <- result{lt, err}:
		case <-left:
			if lt != nil {
				n.giveBack(lt)
			}
			n.stuck.Add(-1)
		}
	})
	leave := func(why error) (*lent, error) {
		n.stuck.Add(1)
		close(left)
		return nil, why
	}
	select {
	case r := <-got:
		return r.lent, r.err
	case <-n.calls.closed:
		return leave(strategy.ErrClosed)
	case <-bounded.Done():
		return leave(context.Cause(bounded))
	}
}

// A session is a lent connection. It is fn's alone, and not safe for concurrent use.
type session struct {
	n    *Node
	ctx  context.Context
	due  time.Time
	lent *lent

	left    transaction.State // to undo
	broken  error             // an earlier command's end
	replica bool              // the server has turned out to be one
	over    bool
}

// Do sends one command and waits for its reply until the session's due time.
func (s *session) Do(cmd string, args ...any) (any, error) {
	if err := s.mayDo(cmd); err != nil {
		return nil, s.n.unsent(err)
	}
	s.left.Note(cmd)
	results, err := s.lent.ask(s.ctx, s.due, s.command(cmd, args))
	if err != nil {
		s.n.line.doom(s.lent.id)
		s.broken = lost(err)
		return nil, s.n.unknown(timeup.With(s.ctx, s.due, s.broken))
	}
	if saysReadOnly(results[0]) { // see line.exchange
		s.replica = true
		s.n.sub.leave()
	}
	return s.n.answered(results[0])
}

// command has no slot: the connection leads to the right master already.
func (s *session) command(cmd string, args []any) valkey.Completed {
	return s.lent.B().Arbitrary(cmd).Args(appendPlain(nil, args)...).Build()
}

func (s *session) mayDo(cmd string) error {
	if s.over {
		return errors.New("the session is over")
	}
	if err := timeup.Why(s.ctx, s.due); err != nil {
		return err
	}
	if s.n.calls.isClosed() {
		return strategy.ErrClosed
	}
	if s.broken != nil {
		return s.broken
	}
	return allowed(cmd)
}

// giveBack returns the connection to the client, clean, or closes it. The client would end a
// transaction too, but it leaves WATCH; and it would lend one to a replica again.
func (s *session) giveBack() {
	s.over = true
	if cmd := s.left.End(); cmd != "" && s.broken == nil && !s.replica { // past due this fails at once
		_, s.broken = s.lent.ask(context.Background(), s.due, s.command(cmd, nil))
	}
	if s.broken != nil || s.replica {
		s.n.discard(s.lent)
	} else {
		s.n.giveBack(s.lent)
	}
}
