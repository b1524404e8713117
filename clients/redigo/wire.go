package redigonode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/client"
)

// probeAfter is for how long an unused connection is trusted. Routers forget
// connections and servers close them, and then a request gets no answer, or the
// wrong one from the network; a PING that fails costs nothing but a new dial.
const probeAfter = 10 * time.Second

const (
	// graceStep is for how long the end of a request's time is put off where something has come that nobody has read.
	graceStep = 2 * time.Millisecond

	// maxGraces is how often that is done until the next reply: a server that sends a reply byte by byte must not
	// get all the time that it wants.
	maxGraces = 100
)

// A wire is one connection of the pipe, and what is under way on it.
type wire struct {
	conn redis.ConnWithTimeout
	id   client.Identity
	born time.Time

	peeker peeker // the writer's

	// Guarded by the pipe's lock.
	flight       fifo // sent or about to be, in the order of the bytes
	writer       *op
	reader       *op
	reading      *op       // the reader, while its caller reads
	lastReply    time.Time // when the last reply came
	replied      bool      // one has come: it is not fresh from the dial
	busy         bool      // the last batch had several callers, or met others under way
	sentAt       time.Time // busy: when the last batch was sent
	lastInFlight int       // how many were under way with the last batch
	retired      bool      // takes no more ops, and is closed when the last is answered
	toReplica    bool      // retired because it leads to a replica
	closed       bool      // given up or closed
	cause        error     // why it was given up
	writerDue    time.Time // when a writer at work is to be freed; zero: there is none
	graces       int       // see unread
	graceUntil   time.Time // see unread

	gathering bool // the writer has yielded for others to come

	server op // stands for the goroutine, where that is the reader

	// The writer's alone, to be used again.
	together []*op
	args     []any
}

// written ends the writer's duty.
func (w *wire) written() { w.writer, w.writerDue, w.gathering = nil, time.Time{}, false }

// leastHalf is how many ops at least go before the others: each request has a price, too.
const leastHalf = 4

// gathered reports whether n ops are enough to be sent, although the writer still waits for
// others.
func (w *wire) gathered(n int) bool {
	return w.gathering && !w.retired && n >= max(w.lastInFlight/2, leastHalf)
}

// served is the op whose time bounds the read that is under way; nil: there is none, or the op that the reader's
// goroutine is to read for has not been sent.
func (w *wire) served() *op {
	if w.reader != &w.server {
		return w.reading
	}
	for _, o := range w.flight.waiting() {
		switch o.progress.Load() {
		case sent:
			return o
		case queued, sending: // the writer's time bounds it
			return nil
		}
	}
	return nil
}

// unread reports whether something has come on the connection that its reader has not taken. Where the process is
// short of CPU, or was stopped, a request's time can be over before anybody had a turn to read the reply. A reply that was
// seen once may be in its reader's hands, so it counts until it is delivered; so does what was read together with the one
// before.
func (w *wire) unread(now time.Time) bool {
	if now.Before(w.graceUntil) {
		return true
	}
	if w.flight.empty() || w.graces == maxGraces || w.graces == 0 && !w.peeker.readable() {
		return false
	}
	w.graces, w.graceUntil = w.graces+1, now.Add(graceStep)
	return true
}

// oldest is the op in flight whose caller has waited longest.
func (w *wire) oldest() *op {
	for _, o := range w.flight.waiting() {
		if !o.abandoned && !o.finished {
			return o
		}
	}
	return nil
}

// unconfirmed reports whether the server may have something of ours still to do.
// While a writer sends a batch it may, or may soon, until the connection is closed.
func (w *wire) unconfirmed() bool {
	if w.writer != nil && !w.flight.empty() {
		return true
	}
	for _, o := range w.flight.waiting() {
		if p := o.progress.Load(); p == sending || p == sent {
			return true
		}
	}
	return false
}

// abandoned reports whether there is an op in flight whose caller has left.
func (w *wire) hasAbandoned() bool {
	return slices.ContainsFunc(w.flight.waiting(), func(o *op) bool {
		return o.abandoned && o.progress.Load() != dropped
	})
}

// deliver hands a reply to the op that it belongs to: the oldest that was sent. It
// reports whether there is one. The time is one at which the reply had not come. Only the reader calls it.
func (w *wire) deliver(reply any, err error, at time.Time) bool {
	w.forgetDropped()
	if w.flight.empty() || w.flight.waiting()[0].progress.Load() == queued {
		return false
	}
	w.lastReply, w.replied, w.graces = at, true, 0
	if w.peeker.more() {
		w.graces = 1
	}
	if n := w.flight.waiting()[0].sharing(); n > 1 {
		return w.deliverJoint(n, reply, err)
	}
	w.answer(w.flight.pop(), reply, err)
	return true
}

// answer hands an op its reply.
func (w *wire) answer(o *op, reply any, err error) {
	o.resend = w.toReplica && !o.resent && isReadOnly(reply, err)
	o.answer(reply, err)
}

// forgetDropped takes out the oldest ops, up to the first that is or will be sent.
func (w *wire) forgetDropped() {
	for !w.flight.empty() && w.flight.waiting()[0].progress.Load() == dropped {
		w.flight.pop()
	}
}

// send writes a batch and returns how many of its ops it began to write. The
// others were not touched: no byte of theirs has left.
func (w *wire) send(batch []*op) (n int, err error) {
	for n < len(batch) {
		o := batch[n]
		if o.lead != nil {
			joined, err := w.sendJoint(batch[n:])
			if n += joined; err != nil {
				return n, err
			}
			continue
		}
		n++
		if !o.progress.CompareAndSwap(queued, sending) {
			continue // its caller has left
		}
		if err := w.conn.Send(o.cmd, o.args...); err != nil {
			return n, err
		}
		o.progress.Store(sent)
	}
	return n, w.conn.Flush()
}

// readReply reads one reply.
func readReply(conn redis.ConnWithTimeout, limit time.Duration) (reply any, err error) {
	defer nonsense(&err)
	return conn.ReceiveWithTimeout(limit)
}

// nonsense is deferred where a reply is read. redigo panics at lengths that no memory has: whatever spoke, it was no
// Redis, and the callers of all that is in flight must learn it.
func nonsense(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("not a reply of Redis: %v", r)
	}
}

// withinLifetime reports whether the pool's MaxConnLifetime allows to use the connection.
func (w *wire) withinLifetime(pool *redis.Pool) bool {
	return pool.MaxConnLifetime == 0 || time.Since(w.born) < pool.MaxConnLifetime
}

// healthy decides whether a connection that was at rest since used can be relied on: it has
// not ended, and passes the pool's tests. If a session got no answer meanwhile, it has a moment to show that it lives: what
// has silenced the session's connection, has perhaps silenced this one, too. Only the writer calls it, when nothing is in flight, so
// that it has the connection for itself; limitWriter bounds it by due.
func (w *wire) healthy(ctx context.Context, due, used time.Time, pool *redis.Pool, silent *client.Silence) bool {
	idle := time.Since(used)
	soon := time.Now().Add(client.Patience)
	switch {
	case w.peeker.readable(): // the end, or a farewell: nobody has asked for anything
		return false
	case !w.replied && idle < probeAfter: // nor does the pool test what it has just dialled
	case silent.Since(used) && soon.Before(due) && !w.answers(soon):
		return false
	case pool.IdleTimeout > 0 && idle > pool.IdleTimeout:
		return false
	case pool.TestOnBorrow == nil && pool.TestOnBorrowContext == nil:
		return idle < probeAfter || w.answers(due)
	case pool.TestOnBorrow != nil && pool.TestOnBorrow(w.conn, used) != nil:
		return false
	case pool.TestOnBorrowContext != nil:
		// Not the caller's own end: that says nothing about the connection.
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), due)
		defer cancel()
		return pool.TestOnBorrowContext(ctx, w.conn, used) == nil
	}
	return true
}

// answers asks the connection for a sign of life. A refusal is one, too.
func (w *wire) answers(due time.Time) bool {
	_, err := w.conn.DoWithTimeout(remaining(due), "PING")
	return err == nil || isReply(err)
}
