package engine

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/waitline"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// lines are the wait lines of a process. One mutex guards them all.
type lines struct {
	id string // this process's, in the servers' queues

	mu    sync.Mutex
	byKey map[lineKey]*line // nil: one caller makes its first attempt, and nobody else has come
	held  time.Time         // when the servers last said to anybody that a lock is held
}

// A lineKey distinguishes the lines for one key.
type lineKey struct {
	key   string
	whose string // the only waiter's, by name; or entrance; empty: the line is for all waiters
}

// entrance is the line before those of only one waiter.
const entrance = "entrance"

// firstLine is where callers of t come first.
func (t *target) firstLine() lineKey {
	if t.c.queued() {
		return lineKey{t.key, entrance}
	}
	return lineKey{key: t.key}
}

// A line is the waiters of one process for one lock. Only its head asks the servers, so what a lock
// costs them does not depend on how many wait. The next head inherits what the last one has learned,
// its subscription, and its entry in the servers' queue.
//
// A caller that finds no line asks at once (a first attempt). Those who come meanwhile stand in line until it is answered. If the
// lock is held, the one who has asked is their head.
//
// While a lease that came through the line holds the lock, nobody asks: the line is blocked until that
// lease is over. If several may hold the lock, nothing blocks it.
//
// Where each waiter has its own place in the servers' queue, it waits in a line of its own. Before, it makes a first
// attempt: at the entrance several callers may do so at a time.
type line struct {
	all *lines
	lineKey
	id string // in the servers' queues
	subscription

	// Guarded by all.mu.
	waiters   waitline.Line[*waiter]
	asking    int          // first attempts under way
	room      int          // at the entrance: how many may be; elsewhere 0
	refused   bool         // the servers' queue has no place for it
	failures  int          // attempts in a row that the servers failed
	holder    *lease       // came through the line, and blocks it
	turn      time.Time    // when this process's turn began: see handOverLimit; zero: it is over
	handed    int          // how often the lock was handed over in this turn
	releasing bool         // a release is under way, and then the head asks
	entry     *queueEntry  // what the servers know of the line; nil: nothing
	check     *holderCheck // looks at holder when its time comes; nil: nothing does

	known sync.Mutex
	why   reason // why the last to ask did not get the lock, or who got it
}

// A waiter is one Acquire in a line.
type waiter struct {
	*target
	ln         *line
	named      string           // the owner that its ctx names
	owner      string           // the owner as which it may re-enter; empty: none
	unsure     bool             // owner may hold the lock already: ask
	head       chan struct{}    // closed when it is the head and has to ask
	granted    chan *lease      // the lock, for which it has not asked; it has left the line; holds one
	ownerHolds chan struct{}    // owner has got the lock; holds one
	failed     chan error       // how the servers failed the head; holds one
	over       <-chan time.Time // the deadline of its ctx has come
	left       bool

	failing time.Time // since when the servers fail its attempts, or when that was reported last; zero: they do not
}

// A queueEntry is what the servers know of a line: the claim for which Acquire asks, and which waits in
// their queue. It belongs to the line: the next head inherits it.
type queueEntry struct {
	c       *core
	owner   string        // as which a waiter may re-enter by it; empty: none
	claim   driver.Claim  // its Token is kept while it queues; without a place each attempt has one of its own
	queued  bool          // it has its place
	passing bool          // under way with a release, which takes in the answer
	offset  time.Duration // queued: our monotonic clock less the servers' clock, at least
}

// suits reports whether w can have the lock by this entry.
func (e *queueEntry) suits(w *waiter) bool { return e.c == w.c && e.owner == w.owner }

// claimOf is the entry's claim, made by w.
func (e *queueEntry) claimOf(w *waiter) driver.Claim {
	c := e.claim
	c.Owner = cmp.Or(w.named, c.Token)
	return c
}

// placed takes in that the entry has its place, asked for at start. It was answered, so no request of
// it can arrive after it is withdrawn.
func (e *queueEntry) placed(start time.Time, offset time.Duration) {
	e.queued, e.offset, e.claim.Grant.Start = true, offset, start
}

// join takes the last place in line, for a waiter whose ctx names an owner. nil: there is no line, or room at the
// entrance, so the caller makes its first attempt, and then calls answered.
func (ls *lines) join(t *target, named string) *waiter {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	key := t.firstLine()
	ln, there := ls.byKey[key]
	switch {
	case !there:
		ls.byKey[key] = nil // a line costs allocations, and mostly nobody else comes
		return nil
	case ln == nil:
		ln = ls.open(key, 1)
	}
	if ln.asking < ln.room {
		ln.asking++
		return nil
	}
	w := ln.newWaiter(t, named)
	ln.waiters.Join(w)
	ln.callHead()
	w.unsure = w.owner != "" && !ln.waiters.Called(w) // from now on it hears of it: see tellOwner
	return w
}

// open makes a line, next to so many first attempts. The caller holds mu.
func (ls *lines) open(key lineKey, asking int) *line {
	ln := &line{all: ls, lineKey: key, id: cmp.Or(key.whose, ls.id), asking: asking, subscription: subscription{wake: make(chan struct{}, 1)}}
	if key.whose == entrance {
		ln.room = firstRoom
	}
	ls.byKey[key] = ln
	return ln
}

func (ln *line) newWaiter(t *target, named string) *waiter {
	w := &waiter{
		target: t, ln: ln, named: named, head: make(chan struct{}),
		granted: make(chan *lease, 1), ownerHolds: make(chan struct{}, 1), failed: make(chan error, 1),
	}
	if t.c.reenters {
		w.owner = named
	}
	return w
}

// firstRoom is the room at the entrance before an answer has come.
const firstRoom = 8

// adapt makes more room at the entrance for those who wait there, or less, after a first attempt that took so long of
// at most limit. Quick answers double the room in the time of one. Slow ones show that requests wait for each other, in
// the client's pool or at the server; and so would the first renewal of a direct grant. The caller holds all.mu.
func (ln *line) adapt(elapsed, limit time.Duration) {
	switch {
	case ln.room == 0: // it is no entrance
	case elapsed > limit/8:
		ln.room = max(ln.asking, 1)
	case ln.waiters.Len() > 0:
		ln.room++
	}
}

// sinceHeld is how long ago the servers last said that a lock is held.
func (ls *lines) sinceHeld() time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return time.Since(ls.held)
}

// callHead makes the head ask, unless the line is blocked; at the entrance, as many as there is room for. The caller
// holds all.mu.
func (ln *line) callHead() {
	for ln.asking < ln.room && ln.waiters.Len() > 0 {
		w := ln.waiters.First()
		ln.waiters.Leave(w)
		ln.asking++
		close(w.head)
	}
	if ln.room == 0 && !ln.blocked() {
		ln.waiters.Call(func(w *waiter) { close(w.head) })
	}
}

// blocked reports whether nobody needs to ask, because the lock comes to the line by itself. The caller holds all.mu.
func (ln *line) blocked() bool {
	return ln.asking > 0 || ln.holder != nil || ln.releasing || ln.entry != nil && ln.entry.passing
}

// heldBy returns the lease that blocks the line; nil: none.
func (ln *line) heldBy() *lease {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	return ln.holder
}

// tellOwner tells all waiters of owner that it has got the lock: they need not wait for its release.
func (ls *lines) tellOwner(key, owner string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.byKey[lineKey{key: key}]
	if ln == nil {
		return
	}
	for _, w := range ln.waiters.All() {
		if w.owner != owner {
			continue
		}
		select {
		case w.ownerHolds <- struct{}{}:
		default: // it knows
		}
	}
}

// reportFailure takes in whether the servers failed who asked last. After two failures in a row it informs
// the others: they need not each wait for a time-out. One failure may be a lost packet: the next head
// asks. A refusal of a share may be for that share alone. The caller holds all.mu.
func (ln *line) reportFailure(c *core, err error) {
	if errors.Is(err, strategy.ErrHeld) {
		ln.all.held = time.Now()
	}
	if !isServers(err) || c.maxShare > 0 && errors.Is(err, strategy.ErrRefused) {
		ln.failures = 0
		return
	}
	if ln.failures++; ln.failures < 2 {
		return
	}
	for _, other := range ln.waiters.All() {
		select {
		case other.failed <- err:
		default: // it knows, and goes on waiting
		}
	}
}

// leave gives the place up, if that has not been done, and a lease that was given too late.
func (w *waiter) leave() {
	if w.left {
		return
	}
	w.left = true
	w.ln.change(func() {
		if !w.ln.waiters.Leave(w) && w.ln.room > 0 {
			w.ln.asking-- // there was room for it, and it does not ask
		}
	})
	select {
	case l := <-w.granted:
		l.giveBack()
	default:
	}
}

// change changes the line, and settles what follows.
func (ln *line) change(f func()) {
	ln.all.mu.Lock()
	f()
	after := ln.settle()
	ln.all.mu.Unlock()
	after()
}

// settle calls the next head, withdraws an entry that nobody can use, and drops the line when nobody
// waits and no lease holds the lock. The caller holds all.mu, and calls after without it.
func (ln *line) settle() (after func()) {
	e := ln.entry
	switch {
	case e == nil || e.passing: // the release that passes sees to it
	case ln.waiters.Len() == 0 || !e.suits(ln.waiters.First()):
		ln.entry = nil
	}
	unused := ln.waiters.Len() == 0 && !ln.blocked() && ln.all.byKey[ln.lineKey] == ln
	if unused {
		delete(ln.all.byKey, ln.lineKey)
	}
	ln.callHead()
	ln.watchHolder()
	withdrawn := e != nil && ln.entry == nil
	return func() {
		if withdrawn {
			e.c.undo(e.claim)
		}
		if unused {
			ln.subscription.close()
		}
	}
}

// close ends the lines' subscriptions. No waiter is left in them, but leases may still be held.
func (ls *lines) close() {
	ls.mu.Lock()
	all := slices.Collect(maps.Values(ls.byKey))
	ls.mu.Unlock()
	for _, ln := range all {
		if ln != nil {
			ln.subscription.close()
		}
	}
}

// unblock makes the line go on: its holder does not hold the lock any more, or does not release it.
func (ln *line) unblock() {
	ln.change(ln.endBlock)
}

// endBlock takes away the line's holder, whose lease is over: the next head asks who has the lock now. Until that is
// answered the line knows at least that its own process had the lock. The caller holds all.mu.
func (ln *line) endBlock() {
	ln.known.Lock()
	defer ln.known.Unlock()
	if ln.why.ask = true; ln.holder != nil && ln.why.err == nil {
		ln.why.held = &strategy.HeldError{Name: ln.holder.claim.Name}
		ln.why.err = ln.why.held
	}
	ln.holder = nil
}

// A holderCheck looks at a line's holder when its deadline comes, so that a lease that nobody uses any more does not
// block the line for ever.
type holderCheck struct {
	timer *time.Timer
	ttl   time.Duration // of the holder for which it began
}

// watchHolder keeps one check under way while there is a holder. It serves for the next holder, too,
// unless that one's TTL is shorter. The caller holds all.mu.
func (ln *line) watchHolder() {
	switch {
	case ln.holder != nil && (ln.check == nil || ln.holder.claim.TTL < ln.check.ttl):
		ln.startCheck(ln.holder.claim.TTL, ln.holder.claim.TTL)
	case ln.holder == nil && ln.waiters.Len() == 0:
		ln.stopCheck()
	}
}

// startCheck replaces the check. The caller holds all.mu.
func (ln *line) startCheck(after, ttl time.Duration) {
	ln.stopCheck()
	c := &holderCheck{ttl: ttl}
	c.timer = time.AfterFunc(after, func() { ln.checkHolder(c) })
	ln.check = c
}

// stopCheck ends the check. The caller holds all.mu.
func (ln *line) stopCheck() {
	if ln.check != nil {
		ln.check.timer.Stop()
		ln.check = nil
	}
}

// checkHolder runs when the time of c has come, and starts the next check for the holder's deadline.
func (ln *line) checkHolder(c *holderCheck) {
	holder := ln.heldBy()
	again := time.Duration(0)
	if holder != nil && holder.Err() == nil { // at its deadline Err unblocks the line
		again = time.Until(holder.Deadline())
	}
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	if ln.check != c {
		return // another has replaced it
	}
	if ln.check = nil; ln.holder != nil {
		ln.startCheck(max(again, time.Millisecond), ln.holder.claim.TTL)
	}
}

// queued reports whether each waiter has a place of its own in the servers' queue: see [driver.Sharer].
func (c *core) queued() bool { return c.maxShare > 0 && c.queues }

// awaited is whose release a waiter waits for; empty: any. Where several hold the lock, the release of any may do. A
// waiter that does not queue hears only of the last holder that the queue served.
func (c *core) awaited(held *strategy.HeldError) string {
	if c.maxShare > 0 || keepsQueue(c.p) && !c.queues {
		return ""
	}
	return held.Holder
}

// A reason says why a waiter did not get the lock.
type reason struct {
	err    error               // nil: not known, so ask
	at     time.Time           // when that was answered
	held   *strategy.HeldError // nil: err is not ErrHeld
	until  time.Time           // held, with a TTL: when that ends
	longer time.Duration       // it may sleep this much longer, because it is not the first in the servers' queue
	silent bool                // the holder's release will not be announced
	ask    bool                // a later attempt got no answer, so ask
}

// reasonOf is what an attempt has learned.
//
// The first in the servers' queue asks when the holder's TTL ends. If that waiter has died, too,
// another has to ask: the n-th does so after a random time of up to n - 1 TTLs. So all of them together ask
// a few times per TTL, however many they are.
func (c *core) reasonOf(err error, g driver.Grant) reason {
	r := reason{err: err, at: time.Now(), silent: g.Silent}
	if errors.As(err, &r.held) && r.held.TTL > 0 {
		r.until = time.Now().Add(r.held.TTL)
	}
	if g.Place > 1 {
		r.longer = rand.N(min(time.Duration(g.Place-1), contract.MaxTTL/c.o.TTL) * c.o.TTL)
	}
	return r
}

// latest is until when a message can let a waiter sleep: until the last answer did, or for a TTL from then. Anybody who
// may publish can have sent it.
func (r reason) latest(ttl time.Duration) time.Time {
	said, most := r.until.Add(r.longer), r.at.Add(ttl)
	if said.After(most) {
		return said
	}
	return most
}

// grantedTo is the reason that the next in line has without asking: the last head got the lock.
func grantedTo(l *lease) reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.claim.Grant
	until := g.Start.Add(g.TTL)
	held := &strategy.HeldError{Name: l.claim.Name, Holder: l.holder(), TTL: max(time.Until(until), 0)}
	return reason{err: held, at: time.Now(), held: held, until: until}
}

func (ln *line) reason() reason {
	ln.known.Lock()
	defer ln.known.Unlock()
	return ln.why
}

func (ln *line) learn(why reason) {
	ln.known.Lock()
	defer ln.known.Unlock()
	ln.why = why
}

// distrustReason is called when an attempt got no answer, or when the lock has changed hands. A waiter may
// still report the last reason, but must not sleep on it.
func (ln *line) distrustReason() {
	ln.known.Lock()
	defer ln.known.Unlock()
	ln.why.ask = true
}
