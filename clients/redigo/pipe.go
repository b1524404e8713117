package redigonode

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A pipe carries the ops of all callers over one connection. Two duties are there for
// all, each done by one at a time:
//
// The writer, a caller, sends everything queued. Before it starts it yields, so that others
// that are ready to call can join, and yields again if some have: then one packet carries
// many commands. But when half of the callers that were under way together have come, the last
// of these sends in its place. So the callers form two halves, more or less: the server works
// for one while the other prepares. Otherwise each would wait for the other.
//
// The reader hands every reply to its op. A single caller reads for itself: to be woken
// by another goroutine costs more than the reply. Where callers come together it is the
// other way round: each caller that leaves with its reply would have to wake the next
// to read. So a goroutine reads for all, for as long as somebody waits. If neither is
// at work, the caller of the oldest op ("leader") reads.
//
// Everybody else sleeps and may leave at any time. An op that is still queued when
// its caller leaves is never sent; of one that was sent the outcome is unknown, and
// the reader reads its reply and drops it.
//
// One timer, for check, is there for all who sleep: a timer of its own for each op
// costs about as much as all else that is done for it.
type pipe struct {
	n   *node
	ops sync.Pool // of *op, to be used again

	mu     sync.Mutex
	closed bool
	wire   *wire // where ops go now; nil: to be dialled
	queue  []*op // not sent; those whose caller left are skipped
	spare  []*op // the buffer for what is being sent
	toKill client.Abandoned
	dials  dials

	returns client.Returns

	// Dials that failed in a row, why the last did, and until when that is answer
	// enough: a server that is just coming up must not be stormed.
	failures  int
	failure   error
	notBefore time.Time

	sleepers   op          // the ring of those asleep
	checkTimer *time.Timer // runs check
	nextCheck  time.Time   // when; zero: it is not set

	work sync.WaitGroup // readers, closing of connections
}

func (p *pipe) init(n *node) {
	p.n = n
	p.sleepers.prev, p.sleepers.next = &p.sleepers, &p.sleepers
	p.checkTimer = time.AfterFunc(time.Hour, p.check) // scheduleCheck resets it
}

func lost(err error) error { return fmt.Errorf("%w: %w", errLost, err) }

var (
	errLost     = errors.New("connection lost")
	errGivenUp  = errors.New("connection given up, as a request got no reply")
	errStuck    = errors.New("connection given up, as the server took no more bytes")
	errReplaced = errors.New("connection replaced")
)

// do runs one op. After a return other than an ordinary reply the op may still be
// referred to, and is left to the garbage collector.
func (p *pipe) do(ctx context.Context, o *op) (any, error) {
	if err := timeup.Why(ctx, o.due); err != nil {
		return nil, p.n.unsent(err)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, p.n.unsent(strategy.ErrClosed)
	}
	p.queue = append(p.queue, o)
	if w := p.wire; w != nil && w.gathered(len(p.queue)) && timeup.Why(ctx, o.due) == nil {
		w.writer = o // see gather for the one before
		p.limitWriter(w, o)
		p.send(w)
	} else {
		p.assign()
	}
	for !o.finished {
		switch o.role {
		case writer:
			p.write(ctx, o)
		case reader:
			p.read(ctx, o)
		case none:
			if p.sleep(ctx, o) == done {
				return p.result(ctx, o)
			}
		}
		if err := timeup.Why(ctx, o.due); err != nil && !o.finished && !p.unread(ctx, o) {
			kind := p.leave(o)
			p.mu.Unlock()
			return nil, p.n.failed(kind, err)
		}
	}
	p.mu.Unlock()
	return p.result(ctx, o)
}

// sleep waits, without the lock, until something changed for o or its time is up;
// it returns with the lock, unless o is done.
func (p *pipe) sleep(ctx context.Context, o *op) signal {
	o.joinSleepers(&p.sleepers)
	p.scheduleCheck(o.due)
	p.mu.Unlock()
	s := recheck
	select {
	case s = <-o.signals:
	case <-ctx.Done():
	}
	if s == done {
		return done
	}
	p.mu.Lock()
	o.leaveSleepers()
	for len(o.signals) > 0 { // signals are sent under the lock: none comes now
		<-o.signals
	}
	return s
}

// scheduleCheck has check run at that time, or before.
func (p *pipe) scheduleCheck(at time.Time) {
	if p.nextCheck.IsZero() || at.Before(p.nextCheck) {
		p.nextCheck = at
		p.checkTimer.Reset(remaining(at))
	}
}

// unread reports whether o's reply may have come already, and its caller is to wait until it has been read.
func (p *pipe) unread(ctx context.Context, o *op) bool {
	return p.wire != nil && o.progress.Load() == sent && !timeup.Over(ctx) && p.wire.unread(time.Now())
}

// check wakes those whose due time has come. It gives up a connection on which the
// writer has not come back by then: the server takes no more bytes, or does not answer a
// probe. It also gives up one on which the reader has had no reply to its op, or the reader's
// goroutine to the op that is its next. Closing the connection frees each of them. All that waits
// for as long as there is something to read.
func (p *pipe) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextCheck = time.Time{}
	now := time.Now()
	var next time.Time
	w := p.wire
	passed := func(at time.Time, sent bool) bool {
		if !at.After(now) {
			if !sent || w == nil || !w.unread(now) {
				return true
			}
			at = w.graceUntil
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	if w != nil {
		if !w.writerDue.IsZero() && passed(w.writerDue, true) && !w.gathering { // a writer that yields comes back
			p.giveUp(w, errStuck)
		} else if o := w.served(); o != nil && passed(o.due, true) {
			p.n.silent.Note()
			p.giveUp(w, errGivenUp)
		}
	}
	for o := p.sleepers.next; o != &p.sleepers; o = o.next {
		if passed(o.due, o.progress.Load() == sent) {
			o.wake()
		}
	}
	p.assign()
	if !next.IsZero() {
		p.scheduleCheck(next)
	}
}

// result is what the caller gets to know, from an op that is its own again.
func (p *pipe) result(ctx context.Context, o *op) (any, error) {
	reply, err, kind := o.reply, o.err, o.kind
	if kind != nil {
		return nil, p.n.failed(kind, timeup.With(ctx, o.due, p.n.hungUpOn(o.cmd, err))) // the reader's own end, or one at the same moment
	}
	var again *op
	if o.resend {
		again = p.newOp(o.cmd, o.due)
		again.args = append(again.args, o.args...)
		again.script, again.resent = o.script, true
	}
	if o.reuse {
		p.recycle(o)
	}
	if again != nil {
		return p.do(ctx, again)
	}
	return p.n.answered(reply, err)
}

// leave takes o's caller out before the reply, and says what is known of the op.
func (p *pipe) leave(o *op) (kind error) {
	o.abandoned = true
	kind = strategy.ErrUnknown
	if o.progress.CompareAndSwap(queued, dropped) {
		kind = strategy.ErrUnsent
	}
	p.resign(o)
	p.assign()
	return kind
}

// resign gives back a role.
func (p *pipe) resign(o *op) {
	switch {
	case o.role == writer && o.on.writer == o:
		o.on.written()
	case o.role == reader && o.on.reader == o:
		o.on.reader = nil
	}
}

// assign finds somebody for every duty that is vacant. It is called, with the lock
// held, after everything that can make one so.
func (p *pipe) assign() {
	p.settle()
	w := p.wire
	if next := p.nextQueued(); next != nil {
		switch {
		case w == nil && time.Now().Before(p.notBefore):
			p.failQueue(p.failure)
		case w == nil:
			p.dial(time.Until(next.due))
		case w.writer == nil && !w.retired:
			w.writer = next
			next.grant(writer, w)
		}
	}
	if w == nil || w.reader != nil {
		return
	}
	// The writer reads, too, once it has written, if it is the oldest: with a
	// single caller nobody has to be woken for either.
	switch next := w.oldest(); {
	case next == nil:
	case w.busy:
		w.reader = &w.server
		p.work.Go(func() { p.serve(w) })
	case next != w.writer:
		w.reader = next
		next.grant(reader, w)
	}
}

// nextQueued forgets the queued ops whose caller has left and returns the first of
// the others.
func (p *pipe) nextQueued() *op {
	left := 0
	for left < len(p.queue) && p.queue[left].abandoned {
		left++
	}
	if p.queue = slices.Delete(p.queue, 0, left); len(p.queue) == 0 {
		return nil
	}
	return p.queue[0]
}

// settle closes a retired connection once its last reply has come. If nobody waits for the
// replies that are missing, new ops must not wait for them: then settle gives the connection
// up, unless a caller whose ctx has ended is in the middle of reading.
func (p *pipe) settle() {
	w := p.wire
	switch {
	case w == nil || !w.retired || w.writer != nil:
	case w.flight.empty():
		p.discard(w)
	case (w.reader == nil || w.reader == &w.server) && w.oldest() == nil:
		p.giveUp(w, errReplaced)
	}
}

// write does the writer's duty: o's caller sends what is queued.
func (p *pipe) write(ctx context.Context, o *op) {
	w := o.on
	o.role = none
	p.limitWriter(w, o)
	w.forgetDropped()
	atRest, used := w.flight.empty() && w.reader == nil, w.lastReply // a reader may wait for what was dropped
	// With nobody else about, yielding wakes an idle processor for nothing, and
	// moves this goroutine to it: that costs several round trips.
	alone := atRest && !w.busy && len(p.queue) == 1
	p.mu.Unlock()

	fit := w.withinLifetime(p.n.pool) && (!atRest || p.tested(ctx, o, w, used))

	p.mu.Lock()
	if fit && !alone && !w.closed && !w.retired {
		if !p.gather(ctx, w, o) {
			return
		}
		if timeup.Why(ctx, o.due) != nil { // meanwhile: o's caller leaves, and another writes
			w.written()
			return
		}
	}
	if !fit || w.closed || w.retired {
		w.written()
		w.retired = true
		if !fit {
			p.returns.Lost()
		}
		p.assign()
		return
	}
	p.send(w)
}

// limitWriter has check free o's caller, who writes, when its time is up.
func (p *pipe) limitWriter(w *wire, o *op) {
	w.writerDue = o.due
	p.scheduleCheck(o.due)
}

// gather waits for other callers whose ops can go with o's, for as long as some come and the
// connection and o's caller can still send them. It reports whether o's caller must still send
// them. If not, another caller has sent them, and o's caller waits like any other.
func (p *pipe) gather(ctx context.Context, w *wire, o *op) bool {
	w.gathering = true
	for before := 0; len(p.queue) > before && w.writer == o; {
		before = len(p.queue)
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
		if w.closed || w.retired || timeup.Why(ctx, o.due) != nil {
			break
		}
	}
	return w.writer == o
}

// tested runs the pool's tests for o's caller. They are the user's: if one
// panics, its caller must not keep the writer's duty, or everybody waits for it.
func (p *pipe) tested(ctx context.Context, o *op, w *wire, used time.Time) (ok bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		w.written()
		w.retired = true
		p.leave(o)
	}()
	ok = w.healthy(ctx, o.due, used, p.n.pool, &p.n.silent)
	returned = true
	return ok
}

// send sends what is queued, with the lock held but for the sending.
func (p *pipe) send(w *wire) {
	batch := join(p.spare[:0], p.queue, p.n.mayJoin())
	clear(p.queue)
	p.queue, p.spare = p.queue[:0], nil
	if w.busy = len(batch) > 1 || !w.flight.empty(); w.busy {
		w.sentAt = time.Now()
	}
	w.flight.push(batch...) // before the bytes: a reply must find its op
	w.lastInFlight, w.gathering = len(w.flight.waiting()), false
	p.mu.Unlock()

	n, err := w.send(batch)

	p.mu.Lock()
	w.written()
	p.unsend(w, batch[n:])
	if err != nil || w.closed {
		p.giveUp(w, lost(err))
	}
	clear(batch)
	p.spare = batch[:0]
	p.assign()
}

// unsend puts ops that the writer did not get to back to the head of the queue. No
// byte of theirs has left, so they go out on the next connection.
func (p *pipe) unsend(w *wire, rest []*op) {
	w.flight.cut(len(rest))
	if p.closed {
		for _, o := range rest {
			o.fail(strategy.ErrUnsent, strategy.ErrClosed)
		}
		return
	}
	p.queue = slices.Insert(p.queue, 0, rest...)
}

// read does the reader's duty: o's caller hands out replies until it has its own,
// or has to leave. A redigo connection does not survive a time-out, so when no
// reply comes by the reader's due time check gives the connection up.
func (p *pipe) read(ctx context.Context, o *op) {
	w := o.on
	o.role = none
	for !w.closed && !o.finished && ctx.Err() == nil {
		now := time.Now()
		if !now.Before(o.due) && !w.unread(now) {
			break // the connection is alive: others may go on with it
		}
		w.reading = o
		p.scheduleCheck(o.due)
		p.mu.Unlock()
		reply, err := readReply(w.conn, 0)
		p.mu.Lock()
		w.reading = nil
		p.receive(w, reply, err, now)
	}
	if w.reader == o {
		w.reader = nil
	}
	p.assign()
}

// serve does the reader's duty in a goroutine of its own until nobody waits. When everybody has left it stays for the
// reply that it waits for, which check bounds, too.
func (p *pipe) serve(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !w.closed && w.busy && w.oldest() != nil {
		p.mu.Unlock()
		reply, err := readReply(w.conn, 0)
		p.mu.Lock()
		p.receive(w, reply, err, w.sentAt)
		if w.oldest() == nil && !w.closed {
			// Those who have just been answered are about to ask again: to be
			// there saves them from starting another.
			p.mu.Unlock()
			runtime.Gosched()
			p.mu.Lock()
		}
	}
	w.reader = nil
	p.assign()
}

// receive hands on what the reader read; at is a time when it had not come.
func (p *pipe) receive(w *wire, reply any, err error, at time.Time) {
	if !w.closed && saysReadOnly(reply, err) {
		p.leaveReplica()
	}
	switch {
	case err != nil && !isReply(err):
		p.giveUp(w, lost(err))
	case !w.closed && !w.deliver(reply, err, at):
		p.giveUp(w, fmt.Errorf("%w: an unexpected reply: %s", errLost, unexpected(reply, err)))
	}
}

// leaveReplica ends the use of all connections: a fail-over has made the server a replica, and its name or its
// balancer may lead to the new primary by now. An op that the replica refuses on the pipe's connection is sent
// once more, on the next.
func (p *pipe) leaveReplica() {
	if !p.returns.Leave() {
		return
	}
	p.dials.restart()
	if p.wire != nil {
		p.wire.retired, p.wire.toReplica = true, true
	}
	p.n.leaveSubscriptions()
}

// giveUp ends the use of a connection. Of what was sent and not answered nobody
// knows the outcome now; the server may even read it later. So it is marked for
// being killed, before anything is sent on another connection.
//
// A writer that is at work calls it again when it comes back, for what it sent
// meanwhile. It puts back what it did not get to send; see unsend.
func (p *pipe) giveUp(w *wire, cause error) {
	if !w.closed {
		if w.id.Known() && w.unconfirmed() && !p.n.unordered.Load() {
			p.toKill = append(p.toKill, w.id)
		}
		w.cause = cause
		p.returns.Lost()
		p.discard(w)
	}
	for _, o := range w.flight.waiting() {
		if o.progress.Load() != queued {
			o.fail(strategy.ErrUnknown, w.cause)
		}
	}
}

// discard closes a connection, in a goroutine as closing may wait for the network.
func (p *pipe) discard(w *wire) {
	w.closed = true
	if p.wire == w {
		p.wire = nil
	}
	p.work.Go(func() { w.conn.Close() })
}

// killFirst has a connection outside of the pipe killed before the pipe carries another
// op: that goes on with a new connection, as only a new one is used to kill.
func (p *pipe) killFirst(id client.Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n.unordered.Load() {
		return
	}
	p.toKill = append(p.toKill, id)
	if p.wire != nil {
		p.wire.retired = true
	}
}

// unsettled reports whether the server may still do something of a call that has
// ended without its reply.
func (p *pipe) unsettled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.toKill) > 0 || p.wire != nil && p.wire.hasAbandoned()
}

// dialled takes over a connection if it is needed, and says whether it did. If
// others have to be killed first it returns them instead, and is called again.
func (p *pipe) dialled(a *attempt, w *wire, killed []client.Identity) (first []client.Identity, taken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toKill.Killed(killed)
	if p.n.unordered.Load() {
		p.toKill = nil
	}
	needed := !p.closed && !a.abandoned && p.wire == nil
	if needed && len(p.toKill) > 0 {
		return slices.Clone(p.toKill), false
	}
	p.dials.remove(a)
	if needed {
		p.wire = w
		p.n.follow(w.id.Server)
		p.failures, p.failure, p.notBefore = 0, nil, time.Time{}
		p.returns.Made()
	}
	p.assign()
	return nil, needed
}

// dialFailed tells those who wait for a connection why there is none.
func (p *pipe) dialFailed(a *attempt, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dials.remove(a)
	if p.wire == nil && !a.abandoned {
		if p.failures++; p.failures > 1 {
			pause := min(time.Millisecond<<min(p.failures, 10), mostDialPause)
			p.failure, p.notBefore = err, time.Now().Add(pause)
		}
		p.failQueue(err)
	}
}

func (p *pipe) failQueue(err error) {
	for _, o := range p.queue {
		o.fail(strategy.ErrUnsent, err)
	}
	p.queue = nil
}

func (p *pipe) close() {
	p.mu.Lock()
	p.closed = true
	p.failQueue(strategy.ErrClosed)
	if p.wire != nil {
		p.giveUp(p.wire, strategy.ErrClosed)
	}
	under := p.dials.abandon()
	p.checkTimer.Stop()
	p.mu.Unlock()

	await(under)
	p.work.Wait()
}
