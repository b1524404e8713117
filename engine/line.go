package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// lines are the wait lines of a process. One mutex guards them all.
type lines struct {
	id string // this process's

	mu    sync.Mutex
	byKey map[lineKey]*line // nil: one caller makes its first attempt, and nobody else has come
}

// A lineKey distinguishes the lines for one key: those who may hold a lock together wait apart from the others.
type lineKey struct {
	key   string
	group bool // see driver.Sharer
}

// A line is the waiters of one process for one lock, first come, first served. Only the first, its head, asks the servers, so what a lock
// costs them does not depend on how many wait. The next head inherits what the last one has learned, its subscription, and its
// entry in the servers' queue.
//
// A caller that finds no line asks at once (a first attempt). Those who come meanwhile stand in line until it is answered. If
// the lock is held, the one who has asked is their head.
//
// Everything in it is guarded by all.mu. A function that changes it does so in change.
type line struct {
	all *lines
	lineKey
	id      string // in the servers' queues
	waiters []*waiter
	state   state
	head    *waiter  // who acts for the line; nil in asking: a caller that makes its first attempt
	effects []func() // to be run when the mutex is given up

	why     reason        // why the last to ask did not get the lock, or who got it
	entry   *queueEntry   // what the servers know of the line; nil: nothing
	full    bool          // the servers' queue has no place for it
	holder  *lease        // holding: it came through the line, and keeps all others out
	watch   *time.Timer   // see watchHolder; nil: it does not run
	watched time.Duration // the TTL for which it began
	turn    *turn         // the process's turn, which goes on if the next attempt is granted; nil: it is over
	room    bool          // what a lease gave back while a request was under way may be free
	joins   string        // the token of a hold of a group, which the next claim joins; empty: none
	failed  int           // attempts in a row that the servers failed
	subscription
}

// A state is what a line does for its first waiter.
type state uint8

const (
	idle    state = iota // nothing: the first waiter, if there is one, becomes the head
	waiting              // the head acts: it sleeps until it has reason to ask
	asking               // an attempt is under way
	holding              // a lease of this process keeps all others out, until its release is answered: nobody asks
	passing              // a lease is being released by a request that asks for the first waiter, too
)

// An event is what changes a line's state.
type event uint8

const (
	asks     event = iota // an attempt begins
	granted               // somebody got the lock, and keeps all others out
	admitted              // somebody got the lock, and others may hold it, too
	refused               // the lock is held: the head goes on waiting
	passes                // the holder's release begins, by a request that asks for the first waiter, too
	leaves                // the head does
	ends                  // what the line did is over: the lease has ended, or the lock is where nobody here knows
)

// transitions are the states after each event. An event that is not in it changes nothing.
var transitions = map[state]map[event]state{
	waiting: {asks: asking, granted: holding, admitted: idle, passes: passing, leaves: idle},
	asking:  {granted: holding, admitted: idle, refused: waiting, leaves: idle, ends: idle},
	holding: {passes: passing, ends: idle},
	passing: {granted: holding, admitted: idle, refused: waiting, ends: idle},
}

func (s state) on(e event) state {
	if next, ok := transitions[s][e]; ok {
		return next
	}
	return s
}

func (ln *line) on(e event) { ln.state = ln.state.on(e) }

// open makes a line next to a first attempt. The caller holds mu.
func (ls *lines) open(key lineKey) *line {
	ln := &line{all: ls, lineKey: key, id: ls.id, state: asking}
	if key.group {
		ln.id += "+" // it waits in a queue of its own
	}
	ls.byKey[key] = ln
	return ln
}

// change lets f change the line, and settles what follows.
func (ln *line) change(f func()) {
	ln.all.mu.Lock()
	defer ln.unlock()
	f()
}

// unlock settles what follows from a change, gives up the mutex, and then does what needs none.
func (ln *line) unlock() {
	ln.settle()
	effects := ln.effects
	ln.effects = nil
	ln.all.mu.Unlock()
	for _, do := range effects {
		do()
	}
}

// later has something done when the mutex is given up.
func (ln *line) later(do func()) { ln.effects = append(ln.effects, do) }

// settle withdraws an entry that the first waiter cannot use, makes that waiter the head, and drops the line when it has nothing to
// do.
func (ln *line) settle() {
	if e := ln.entry; e != nil && ln.state != passing && ln.state != asking && (len(ln.waiters) == 0 || !e.suits(ln.waiters[0])) {
		ln.entry = nil
		ln.later(func() { e.c.undo(e.claim) })
	}
	switch {
	case ln.state == waiting && len(ln.waiters) == 0:
		ln.state = idle
	case ln.state == idle && len(ln.waiters) > 0:
		ln.state = waiting
	}
	if ln.state == waiting && ln.head != ln.waiters[0] {
		ln.head = ln.waiters[0]
		ln.head.wake()
	}
	if ln.state == idle && ln.all.byKey[ln.lineKey] == ln {
		delete(ln.all.byKey, ln.lineKey)
		ln.unsubscribe()
	}
	ln.watchHolder()
}

// join takes the last place in line, for a waiter whose ctx names an owner. nil: there is no line, so the caller makes its
// first attempt, and then calls firstAnswered.
func (ls *lines) join(t *target, named string) *waiter {
	ls.mu.Lock()
	key := t.lineKey()
	ln, there := ls.byKey[key]
	if !there {
		ls.byKey[key] = nil // a line costs allocations, and mostly nobody else comes
		ls.mu.Unlock()
		return nil
	}
	if ln == nil {
		ln = ls.open(key)
	}
	w := newWaiter(t, ln, named)
	ln.waiters = append(ln.waiters, w)
	w.unsure = w.owner != "" // from now on it hears of it: see tellOwner
	ln.unlock()
	return w
}

// out takes w out of the line.
func (ln *line) out(w *waiter) {
	if i := slices.Index(ln.waiters, w); i >= 0 {
		ln.waiters = slices.Delete(ln.waiters, i, i+1)
	}
	if ln.head == w {
		ln.head = nil
	}
}

// got takes in that w has got the lock by l. (gotHolds is for a grant of several holds.) If l keeps all others out, its release serves the line next;
// t is the process's turn. Otherwise the next head asks: at once if there may be room, and else when the turn is over, as what this
// process holds comes to it until then. w is nil if that was a first attempt.
func (ln *line) got(w *waiter, l *lease, t *turn, room bool) {
	ln.out(w)
	l.turn = t
	if !l.c.alone(l.claim.Share) {
		if ln.group && l.claim.Joins == "" {
			ln.joins = l.claim.Token
		}
		if room || ln.room || ln.group {
			ln.why.ask, ln.room = true, false
		} else {
			why := grantedTo(l)
			why.turn = t.began.Add(handOverLimit)
			ln.learn(why)
		}
		ln.on(admitted)
		return
	}
	l.turn.line, ln.holder, ln.turn = ln, l, nil
	ln.on(granted)
}

// learn takes in why the lock is not available.
func (ln *line) learn(why reason) {
	why.n = ln.why.n + 1
	ln.why = why
}

// unblock lets the line go on that l has kept others out for: l does not hold the lock any more, or does not release it.
func (l *lease) unblock() {
	if l.turn == nil || l.turn.line == nil {
		return
	}
	ln := l.turn.line
	ln.change(func() {
		if ln.holder == l {
			ln.unhold()
			ln.on(ends)
		}
	})
}

// unhold takes away the line's holder, whose lease is over: the next head asks who has the lock now. Until that is
// answered the line knows at least that its own process had the lock.
func (ln *line) unhold() {
	if ln.why.ask = true; ln.why.err == nil {
		ln.why.held = &strategy.HeldError{Name: ln.holder.claim.Name}
		ln.why.err = ln.why.held
	}
	ln.holder = nil
}

// tellOwner tells all waiters of owner that it has got the lock: they need not wait for its release.
func (ls *lines) tellOwner(key, owner string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.byKey[lineKey{key: key}]
	if ln == nil {
		return
	}
	for _, w := range ln.waiters {
		if w.owner == owner {
			w.ownerHolds = true
			w.wake()
		}
	}
}

// report takes in whether the servers failed who asked last. After two failures in a row it informs
// the others: they need not each wait for a time-out. One failure may be a lost packet: the next head
// asks. A refusal of a share may be for that share alone.
func (ln *line) report(c *core, err error) {
	if !isServers(err) || c.maxShare > 0 && errors.Is(err, strategy.ErrRefused) {
		ln.failed = 0
		return
	}
	if ln.failed++; ln.failed < 2 {
		return
	}
	for _, w := range ln.waiters {
		if w.c.o.OpTimeout <= c.o.OpTimeout { // who waits longer for an answer may get one
			w.failed = err
			w.wake()
		}
	}
}

// close ends the lines' subscriptions. No waiter is left in them, but leases may still be held.
func (ls *lines) close() {
	ls.mu.Lock()
	var all []*line
	for _, ln := range ls.byKey {
		if ln != nil {
			all = append(all, ln)
		}
	}
	ls.mu.Unlock()
	for _, ln := range all {
		ln.change(ln.unsubscribe)
	}
}

// watchHolder looks at the line's holder when its TTL is over, and from then on when its deadline comes. So a lease that nobody uses
// any more does not keep the line waiting for ever. One timer serves for the next holders, too, unless their TTL is shorter.
func (ln *line) watchHolder() {
	switch {
	case ln.state == idle && ln.watch != nil:
		ln.watch.Stop()
		ln.watch = nil
	case ln.holder == nil:
	case ln.watch == nil:
		ln.watched = ln.holder.claim.TTL
		ln.watch = time.AfterFunc(ln.watched, ln.lookAtHolder)
	case ln.holder.claim.TTL < ln.watched:
		ln.watched = ln.holder.claim.TTL
		ln.watch.Reset(ln.watched)
	}
}

// lookAtHolder is what the timer runs.
func (ln *line) lookAtHolder() {
	ln.all.mu.Lock()
	holder, again := ln.holder, ln.watched
	ln.all.mu.Unlock()
	if holder != nil && holder.Err() == nil { // at its deadline Err unblocks the line
		again = max(time.Until(holder.Deadline()), time.Millisecond)
	}
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	if ln.watch == nil {
		return
	}
	ln.watch.Reset(again)
}
