package lending

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

const (
	// ProbeAfter is for how long an unused connection is trusted. Routers forget
	// connections and servers close them, and then a request gets no answer; a PING that
	// fails costs nothing but a new connection.
	ProbeAfter = time.Second

	// BringLimit bounds the first words on a new connection.
	BringLimit = 5 * time.Second
)

// A pipe carries the ops of all callers over one connection, batch by batch: the next is sent
// when the last has been answered as a whole. So nothing is on its way when the connection is
// at rest, and all that a broken one leaves unconfirmed is one batch.
//
// A caller that is alone sends and reads for itself: to be woken by another goroutine costs
// more than the reply. Where callers come together a goroutine does it for all, for as long
// as somebody waits.
type pipe struct {
	n *Node

	mu     sync.Mutex
	closed bool
	busy   bool  // somebody sends a batch, or brings a connection
	queue  []*op // not sent, in the order of the calls
	flight []*op // the batch that is sent
	lent   *lent // nil: to be borrowed
	toKill client.Abandoned

	returns client.Returns
}

// An op is one command and its caller.
type op struct {
	Command
	due time.Time

	// Guarded by the pipe's lock.
	done      chan struct{} // closed when it is finished; nil: its caller sends for itself
	finished  bool          // reply, err and kind are set
	abandoned bool          // its caller has left
	resent    bool          // a replica had refused it, and it is sent once more
	reply     any
	err       error
	kind      error // nil: answered; otherwise err is the reason for this kind
}

func (o *op) finish(reply any, err, kind error) {
	if o.finished {
		return
	}
	o.finished, o.reply, o.err, o.kind = true, reply, err, kind
	if o.done != nil {
		close(o.done)
	}
}

// do runs one op.
func (l *pipe) do(ctx context.Context, o *op) (any, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, l.n.unsent(strategy.ErrClosed)
	}
	if l.ready() {
		batch := []*op{o}
		l.busy, l.flight = true, batch
		l.mu.Unlock()
		l.exchange(batch)
		l.mu.Lock()
		l.serveQueued()
	} else {
		o.done = make(chan struct{})
		l.queue = append(l.queue, o)
		if !l.busy {
			l.busy = true
			l.n.work.Go(l.serve)
		}
	}
	over := o.finished
	l.mu.Unlock()
	if over { // or it is in the queue, also if a replica has refused it
		return l.result(ctx, o)
	}

	bounded, cancel := context.WithDeadlineCause(ctx, o.due, timeup.Err)
	defer cancel()
	select {
	case <-o.done:
	case <-bounded.Done():
	}
	l.mu.Lock()
	if !o.finished {
		l.leave(o, context.Cause(bounded))
	}
	l.mu.Unlock()
	return l.result(ctx, o)
}

// ready reports whether a caller may send at once: nobody is before it, and the connection
// can be relied on.
func (l *pipe) ready() bool {
	return !l.busy && l.lent != nil && len(l.toKill) == 0 && !l.lent.retired && l.n.fresh(l.lent)
}

// serveQueued ends a caller's duty, and has those served who have come meanwhile.
func (l *pipe) serveQueued() {
	if l.busy = len(l.queue) > 0; l.busy {
		l.n.work.Go(l.serve)
	}
}

// leave takes o's caller out before the reply. An op that is still queued is never sent; of
// one that was sent nobody knows.
func (l *pipe) leave(o *op, why error) {
	o.abandoned = true
	kind := strategy.ErrUnknown
	if i := slices.Index(l.queue, o); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		kind = strategy.ErrUnsent
	}
	o.finish(nil, why, kind)
}

// result is what the caller gets to know of an op that is finished.
func (l *pipe) result(ctx context.Context, o *op) (any, error) {
	if o.kind == nil {
		return o.reply, o.err
	}
	why := o.err
	if !o.abandoned { // the caller's own end comes first, if it had one
		why = timeup.With(ctx, o.due, why)
	}
	return nil, l.n.failed(o.kind, why)
}

// serve sends what is queued until there is nothing left.
func (l *pipe) serve() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.busy = false
			l.mu.Unlock()
			return
		}
		due := latest(l.queue)
		l.mu.Unlock()

		err := l.bring(due)

		l.mu.Lock()
		batch := l.queue
		l.queue = nil
		if err != nil {
			for _, o := range batch {
				o.finish(nil, err, strategy.ErrUnsent)
			}
			l.mu.Unlock()
			continue
		}
		l.flight = batch
		l.mu.Unlock()
		l.exchange(batch)
	}
}

func latest(ops []*op) (due time.Time) {
	for _, o := range ops {
		if o.due.After(due) {
			due = o.due
		}
	}
	return due
}

// exchange sends a batch and hands out the replies. The client reads them all or, when the
// connection breaks or the time is up, none: then the connection is given up. All may have left: then
// nothing is sent.
func (l *pipe) exchange(batch []*op) {
	lt := l.lent // the duty is this goroutine's: nobody else changes it
	cmds := make([]Command, len(batch))
	for i, o := range batch {
		cmds[i] = o.Command
	}
	replies, err := lt.ask(context.Background(), latest(batch), cmds...)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.flight = nil
	if err != nil {
		if isTimeout(err) {
			l.n.Silent.Note()
		}
		l.giveUp()
		for _, o := range batch {
			o.finish(nil, lost(err), strategy.ErrUnknown)
		}
		return
	}
	lt.used = time.Now()
	if slices.ContainsFunc(replies, Reply.ofReplica) {
		l.abandonNow()
	}
	var again []*op
	for i, o := range batch {
		if lt.retired && replies[i].ofReplica() && !o.resent && !o.abandoned && !l.closed {
			again = append(again, o)
			continue
		}
		reply, err := l.n.answered(replies[i])
		o.finish(reply, err, nil)
	}
	l.sendAgain(again)
}

// sendAgain has ops sent before all others, over another connection. The caller holds mu.
func (l *pipe) sendAgain(ops []*op) {
	for _, o := range ops {
		o.resent = true
		if o.done == nil {
			o.done = make(chan struct{})
		}
	}
	l.queue = append(ops, l.queue...)
}

// abandon ends the use of the connection, and the subscriptions, as the server has turned out to be a replica:
// the client may know the new primary by now, or the address leads to it. It reports whether it did so.
func (l *pipe) abandon() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.abandonNow()
}

// abandonNow is abandon. The caller holds mu. The next user of the connection drops it.
func (l *pipe) abandonNow() bool {
	if !l.returns.Leave() {
		return false
	}
	if l.lent != nil {
		l.lent.retired = true
	}
	l.n.leaveSubscriptions()
	return true
}

// giveUp ends the use of a connection with an unconfirmed batch. Nobody knows what became of
// it; the server may even read it later. So it is marked for being killed, before anything is
// sent on another connection.
func (l *pipe) giveUp() {
	l.toKill = append(l.toKill, l.lent.id) // take forgets it where there is no order
	l.returns.Lost()
	l.drop()
}

// drop closes the connection.
func (l *pipe) drop() {
	l.n.discard(l.lent)
	l.lent = nil
}

// bring makes sure that there is a connection that can be relied on, and that the connections given
// up before it are dead.
func (l *pipe) bring(due time.Time) error {
	l.mu.Lock()
	lt := l.lent
	left := lt != nil && lt.retired
	l.mu.Unlock()
	if limit := time.Now().Add(client.Patience); l.n.recentlySilent() && limit.Before(due) {
		due = limit
	}
	if lt != nil && (left || !l.n.fresh(lt) && !lt.answers(due)) {
		l.mu.Lock()
		l.returns.Lost()
		l.drop()
		l.mu.Unlock()
		lt = nil
	}
	if lt == nil {
		ctx, cancel := context.WithTimeoutCause(context.Background(), BringLimit, timeup.Err)
		defer cancel()
		made, err := l.n.lend(ctx, "")
		if err != nil {
			return err
		}
		lt = made
		lt.watch()
	}
	var killed []client.Identity
	for {
		first, taken := l.take(lt, killed)
		if taken {
			return nil
		}
		if l.isClosed() {
			l.n.discard(lt)
			return strategy.ErrClosed
		}
		if err := l.n.kill(lt, first); err != nil {
			l.mu.Lock()
			if l.lent == lt {
				l.lent = nil
			}
			l.mu.Unlock()
			l.n.discard(lt)
			return err
		}
		killed = first
	}
}

// take puts a connection to use, unless others have to be killed first: then it returns them.
func (l *pipe) take(lt *lent, killed []client.Identity) (first []client.Identity, taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.toKill.Killed(killed)
	if l.closed {
		return nil, false
	}
	if !l.n.Ordered() {
		l.toKill = nil
	}
	if len(l.toKill) > 0 {
		return slices.Clone(l.toKill), false
	}
	l.lent = lt
	l.returns.Made()
	return nil, true
}

func (l *pipe) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// killFirst has a connection outside of the pipe killed before the pipe carries another op.
func (l *pipe) killFirst(id client.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n.Ordered() {
		l.toKill = append(l.toKill, id)
	}
}

// unsettled reports whether the server may still do something of a call that has ended
// without its reply.
func (l *pipe) unsettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.n.Ordered() {
		return false
	}
	return len(l.toKill) > 0 || slices.ContainsFunc(l.flight, func(o *op) bool { return o.abandoned })
}

func (l *pipe) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, o := range l.queue {
		o.finish(nil, strategy.ErrClosed, strategy.ErrUnsent)
	}
	l.queue = nil
	for _, o := range l.flight {
		o.finish(nil, strategy.ErrClosed, strategy.ErrUnknown)
	}
	if l.lent != nil {
		l.n.discard(l.lent) // if somebody uses it, he drops it
	}
}

// Noticed reports whether the client's reader has met the end of the connection.
func (n *Node) Noticed() bool {
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	select {
	case <-n.pipe.lent.ended:
		return true
	default:
		return false
	}
}
