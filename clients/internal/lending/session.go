package lending

import (
	"context"
	"errors"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// Session lends a connection of the client's to fn. If none is available until due, the error is
// ErrUnsent. A command of fn's ends at due. The session looks at ctx between commands, because
// the client cannot always be interrupted inside one.
//
// On one server a session is in the order of the calls, too. Before it, a PING makes sure that
// what Do and Eval left unconfirmed has been done, or never will be. Then the session asks its
// connection for its identity, and the server for its role: a session at a replica is refused.
// If one of its commands gets no reply, the Node kills that connection before it sends anything else.
// On a cluster it is the connection to the master that has the key. If the key has moved, the server
// refuses the commands with MOVED, and the client looks for the new master.
func (n *Node) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	if err := timeup.Why(ctx, due); err != nil {
		return n.unsent(err)
	}
	if !n.calls.Enter() {
		return n.unsent(strategy.ErrClosed)
	}
	defer n.calls.Leave()

	if err := n.settle(ctx, due); err != nil {
		return n.unsent(err)
	}
	lt, err := n.borrow(ctx, due, key)
	if err != nil {
		return n.unsent(err)
	}
	if lt.replica {
		n.discard(lt)
		n.pipe.abandon()
		return n.refused(errors.New("READONLY the server is a replica"))
	}
	s := &session{n: n, ctx: ctx, due: due, lent: lt}
	defer s.giveBack() // also when fn panics
	return fn(s)
}

// settle waits until the server can do nothing more of what Do and Eval left unconfirmed. The answer
// to a PING shows that: it comes after their answers, or from a connection that has killed theirs. A
// refusal is an answer, too.
func (n *Node) settle(ctx context.Context, due time.Time) error {
	if !n.pipe.unsettled() {
		return nil
	}
	_, err := n.Do(ctx, due, "PING", "")
	return client.Settled(err)
}

// borrow is lend, left at due, with ctx, or at Close, even when the client knows none of these. A connection
// that comes too late goes back.
func (n *Node) borrow(ctx context.Context, due time.Time, key string) (*lent, error) {
	timed, cancel := context.WithDeadlineCause(ctx, due, timeup.Err)
	defer cancel()
	bounded, end := context.WithCancelCause(timed)
	defer context.AfterFunc(n.calls.Life(), func() { end(strategy.ErrClosed) })()
	lt, err := client.Call(bounded, &n.work, func(ctx context.Context) (*lent, error) { return n.lend(ctx, key) }, n.giveBack)
	if err != nil && err == context.Cause(timed) && !time.Now().Before(due) { // lend may find that out later
		n.Silent.Note()
	}
	return lt, err
}

// A session is a lent connection. It is fn's alone, and not safe for concurrent use.
type session struct {
	n    *Node
	ctx  context.Context
	due  time.Time
	lent *lent

	left    client.State // to undo
	broken  error        // an earlier command's end
	replica bool         // the server has turned out to be one
	over    bool
}

// Do sends one command and waits for its reply until the session's due time.
func (s *session) Do(cmd string, args ...any) (any, error) {
	if err := s.mayDo(cmd); err != nil {
		return nil, s.n.unsent(err)
	}
	s.left.Note(cmd)
	replies, err := s.lent.ask(s.ctx, s.due, Command{Name: cmd, Words: appendPlain(nil, args)})
	if err != nil {
		s.n.pipe.killFirst(s.lent.id)
		if isTimeout(err) && !time.Now().Before(s.due) {
			s.n.Silent.Note()
		}
		s.broken = lost(err)
		return nil, s.n.unknown(timeup.With(s.ctx, s.due, s.broken))
	}
	if replies[0].ofReplica() { // see pipe.exchange
		s.replica = true
		s.n.pipe.abandon()
	}
	return s.n.answered(replies[0])
}

func (s *session) mayDo(cmd string) error {
	if s.over {
		return errors.New("the session is over")
	}
	if err := timeup.Why(s.ctx, s.due); err != nil {
		return err
	}
	if s.n.calls.IsClosed() {
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
		_, s.broken = s.lent.ask(context.Background(), s.due, Command{Name: cmd})
	}
	if s.broken != nil || s.replica {
		s.n.discard(s.lent)
	} else {
		s.n.giveBack(s.lent)
	}
}
