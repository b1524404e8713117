// Package memory is the lock server in memory: lockstest.Memory, and what package lockstest is built on. Its users know
// of a [Server] and of the network before it, that is of [Op], [Request], [Fault] and the errors. The rest, such as
// [Server.Change], is for locks that go wrong on purpose.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A Server is a lock server in memory and the protocol that speaks to it: see lockstest.Memory.
type Server struct {
	// Reentrant lets the owner of a lock in again. Each hold has a TTL of its own; the
	// lock is held until the last has ended. Errors and notifications then name the
	// holder by its owner. Set Reentrant before the first request.
	Reentrant bool

	mu        sync.Mutex
	ahead     time.Duration // how far the server's clock is ahead of package time
	intercept Fault
	locks     map[string]*Lock // by key
	fences    map[string]fence // by key; they outlive the locks
	watches   map[string][]*watch
	queues    map[string][]driver.Claim // claims that wait, by key; the first comes next
	expiries  map[string]time.Time      // of the queues, by the server's clock
	limits    map[string]int            // how many permits, by key, where that was set
	requests  map[Op]int
	arriving  map[string]int // acquires that may still take effect, by token
}

// A Lock is a key. It is there until its time has come, or for ever if it is
// not a lock at all.
type Lock struct {
	kind  kind
	Owner string
	Fence uint64
	Holds []Hold // in the order of their grants; more than one only if re-entrant, or if several may hold it
}

type kind int

const (
	notALock kind = iota // what SET is to LPUSH
	ofOneHolder
	ofPermits
	toReadAndWrite
)

type fence struct {
	last uint64
	ends time.Time // by the server's clock; zero: never
}

// A Hold is one holder's part of a lock.
type Hold struct {
	Token string
	Until time.Time // by the server's clock; whole milliseconds
	Share int32     // see driver.Claim
	Fence uint64    // of a lock that several may hold; otherwise the lock has it
}

// Hold returns the token's, if it has one.
func (l *Lock) Hold(token string) *Hold {
	for i := range l.Holds {
		if l.Holds[i].Token == token {
			return &l.Holds[i]
		}
	}
	return nil
}

// End takes the token's hold away.
func (l *Lock) End(token string) {
	l.Holds = slices.DeleteFunc(l.Holds, func(h Hold) bool { return h.Token == token })
}

// last is the hold that ends last.
func (l *Lock) last() Hold { return slices.MaxFunc(l.Holds, byEnd) }

// byEnd compares the ends of two holds; of the same millisecond, their tokens.
func byEnd(a, b Hold) int {
	return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Token, b.Token))
}

type watch struct {
	line string // hears of direct grants to that line; empty: of releases
	mu   sync.Mutex
	fn   func(driver.Notification) // nil: stopped or broken
}

// Op is a kind of request to a [Server].
type Op string

// The requests. A bulk renewal is one request.
const (
	OpAcquire      Op = "acquire"
	OpExtend       Op = "extend"
	OpExtendAll    Op = "extend all"
	OpAdopt        Op = "adopt"
	OpRelease      Op = "release"
	OpUndo         Op = "undo"
	OpForceRelease Op = "force release"
	OpPass         Op = "pass"
	OpWatch        Op = "watch"
	OpInspect      Op = "inspect"
	OpCheck        Op = "check"
	OpPermits      Op = "set permits"
)

// A Request is what an [Fault] gets to see.
type Request struct {
	Op     Op
	Claims []driver.Claim // one, but for OpExtendAll, and OpPass: the holder, and the next one; none for OpCheck
}

// A Fault is the network between strategies and a [Server]. It decides for each request when and whether it arrives, by
// calling serve at most once, and what the caller gets, by what it returns: see lockstest.Fault.
type Fault func(ctx context.Context, r Request, serve func() error) error

const name = "memory"

// Unknown is the error of a request whose reply was lost.
func Unknown() error {
	return &strategy.ServerError{Node: name, Kind: strategy.ErrUnknown, Err: errors.New("the reply was lost")}
}

// Unsent is the error of a request that reached nobody.
func Unsent() error {
	return &strategy.ServerError{Node: name, Kind: strategy.ErrUnsent, Err: errors.New("unreachable")}
}

// Refused is the error of a request to which the server said no, in these words.
func Refused(words string) error {
	return &strategy.ServerError{Node: name, Kind: strategy.ErrRefused, Err: errors.New(words)}
}

// Intercept puts f in front of the requests that begin from now on; nil takes it away.
func (m *Server) Intercept(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intercept = f
}

// Requests returns how many requests of these kinds have left so far, whether they
// arrived or not; without kinds, how many of all.
func (m *Server) Requests(ops ...Op) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for op, k := range m.requests {
		if len(ops) == 0 || slices.Contains(ops, op) {
			n += k
		}
	}
	return n
}

// Evict takes key away from its holder without a notification, as an expiry does.
func (m *Server) Evict(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.locks, key)
	return nil
}

// Advance moves the server's clock, and no other, on by d: every hold that is there now ends that much
// earlier, or, if d is negative, later. As with an expiry, nobody is notified.
func (m *Server) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += d
}

// now is the time by the server's clock. The caller holds mu.
func (m *Server) now() time.Time { return time.Now().Add(m.ahead) }

// ends is when a TTL that begins now ends. As servers do, it drops what is less than a millisecond. The caller
// holds mu.
func (m *Server) ends(ttl time.Duration) time.Time {
	return m.now().Truncate(time.Millisecond).Add(ttl)
}

// left is the TTL that the server reports of a hold. The caller holds mu.
func (m *Server) left(h Hold) time.Duration {
	return rediskit.RemainingTTL(h.Until.Sub(m.now().Truncate(time.Millisecond)).Milliseconds())
}

// serverTime is what the server's clock shows: whole microseconds. The caller holds mu.
func (m *Server) serverTime() time.Duration {
	return time.Duration(m.now().UnixMicro()) * time.Microsecond
}

// Spoil makes key something that is not a lock, until it is evicted.
func (m *Server) Spoil(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, &Lock{})
	return nil
}

// Leftovers returns what the server keeps of key but the fence.
func (m *Server) Leftovers(_ context.Context, key string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var left []string
	if m.find(key) != nil { // first: an expired queue goes with it
		left = append(left, "key "+key)
	}
	if n := len(m.queues[key]); n > 0 {
		left = append(left, fmt.Sprintf("%d claims in the queue for %s", n, key))
	}
	if n := len(m.watches[key]); n > 0 {
		left = append(left, fmt.Sprintf("%d watches of %s", n, key))
	}
	return left, nil
}

// BreakWatches ends all watches, as the loss of their connection does.
func (m *Server) BreakWatches() {
	m.mu.Lock()
	broken := m.watches
	m.watches = nil
	m.mu.Unlock()
	for _, ws := range broken {
		for _, w := range ws {
			w.tell(driver.Notification{})
		}
	}
}

// Forge sends a notification to all watches of key, as somebody does who may publish. A grant gets the
// server's time, added to its own, and if it has none a fence.
func (m *Server) Forge(_ context.Context, key string, n driver.Notification) error {
	m.mu.Lock()
	if n.Token != "" {
		n.Grant.ServerTime += m.serverTime()
		if n.Grant.Fence == 0 {
			n.Grant.Fence = m.lastFence(key) + 1
		}
	}
	m.mu.Unlock()
	m.Tell(key, n)
	return nil
}

// A Gate stands before the server. It is called for every request, and calls send once, when the request may leave: see
// conformance.Gate.
type Gate = func(request string, send func())

// Gated returns a protocol on m whose requests pass g. The gate may be a bad network, as that of conformance.GateNode.
func (m *Server) Gated(g Gate) driver.Protocol { return Gated{m, g} }

// Acquire grants the lock if it is free and nobody queues for it, or, if Reentrant, the
// claim's owner's. A claim with a Line that is refused takes a place in the queue.
func (m *Server) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	m.arrives(c.Token, 1)
	return ask(m, ctx, Request{OpAcquire, []driver.Claim{c}}, func() { m.arrives(c.Token, -1) }, func() (driver.Grant, error) {
		m.mu.Lock()
		tell := nothing
		defer func() {
			m.mu.Unlock()
			tell()
		}()
		if m.find(c.Key) == nil && c.Again {
			return driver.Grant{}, &strategy.HeldError{Name: c.Name}
		}
		if m.find(c.Key) == nil {
			tell = m.grantNext(c.Key, c.Token)
		}
		g, err := m.acquire(c)
		if err == nil && m.dequeue(c) {
			tell = m.tellFirst(c.Key, c.TTL)
		}
		return g, err
	})
}

// acquire is Acquire where nobody who queues comes first. The caller holds mu.
func (m *Server) acquire(c driver.Claim) (driver.Grant, error) {
	l := m.find(c.Key)
	n := 0 // fences that are reserved
	switch {
	case l == nil:
		fence, reserved := m.nextFences(c)
		l, n = &Lock{kind: ofOneHolder, Owner: c.Owner, Fence: fence}, reserved
		m.put(c.Key, l)
	case l.kind != ofOneHolder:
		return driver.Grant{}, errForeign
	case l.Hold(c.Token) != nil && !m.Reentrant: // queued, and granted meanwhile: the last number issued is its own
		l.Fence = m.lastFence(c.Key)
	case l.Hold(c.Token) != nil:
	case !m.Reentrant || l.Owner != c.Owner:
		held := &strategy.HeldError{Name: c.Name, Holder: m.holder(l), TTL: m.left(l.last())}
		g := driver.Grant{ServerTime: m.serverTime()}
		if c.Line != "" {
			g.Kept = m.enqueue(c, len(m.queues[c.Key]))
			g.Place = int32(m.queued(c) + 1)
			m.prolong(c, g.Place, held.TTL)
		}
		return g, held
	}
	if h := l.Hold(c.Token); h != nil { // asked twice: counts once
		h.Until = latest(h.Until, m.ends(c.TTL))
	} else {
		l.Holds = append(l.Holds, Hold{Token: c.Token, Until: m.ends(c.TTL)})
	}
	g := m.grant(l)
	g.Fences = n
	return g, nil
}

// Pass is Release of c, and Acquire of next behind those who queue already.
func (m *Server) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	m.arrives(next.Token, 1)
	return ask(m, ctx, Request{OpPass, []driver.Claim{c, next}}, func() { m.arrives(next.Token, -1) }, func() (driver.Grant, error) {
		m.mu.Lock()
		tell := nothing
		defer func() {
			m.mu.Unlock()
			tell()
		}()
		l, err := m.heldBy(c)
		if err != nil {
			return driver.Grant{}, err
		}
		if l.End(c.Token); len(l.Holds) == 0 {
			delete(m.locks, c.Key)
			tell = m.grantNext(c.Key, "")
		}
		next.Repeated = false // as pass.lua of fairqueue, it does not look for a place that the claim may have
		return m.acquire(next)
	})
}

// enqueue gives c the place behind so many, unless it has one. The caller holds mu.
func (m *Server) enqueue(c driver.Claim, behind int) (kept bool) {
	if c.Repeated && m.queued(c) >= 0 {
		return true
	}
	if m.queues == nil {
		m.queues, m.expiries = map[string][]driver.Claim{}, map[string]time.Time{}
	}
	m.queues[c.Key] = slices.Insert(m.queues[c.Key], behind, c)
	return false
}

// prolong lets the queue last until the n-th place in it has asked again, as enqueue.lua does. left is the holder's TTL. The
// caller holds mu.
func (m *Server) prolong(c driver.Claim, n int32, left time.Duration) {
	m.expiries[c.Key] = latest(m.expiries[c.Key], m.ends(left+time.Duration(n+1)*c.TTL+time.Second))
}

// queued returns how many come before c in the queue; negative: it has no place. The caller holds mu.
func (m *Server) queued(c driver.Claim) int {
	return slices.IndexFunc(m.queues[c.Key], entryOf(c))
}

// entryOf finds c in the queue. As in the scripts of real servers, an entry is a line, the TTL of a direct grant, what is
// asked for, and a Token: a claim that differs in one of them is not there.
func entryOf(c driver.Claim) func(driver.Claim) bool {
	entry := func(c driver.Claim) driver.Claim {
		return driver.Claim{Line: c.Line, TTL: driver.SuccessorTTL(c.TTL), Fences: max(c.Fences, 1), Holds: max(c.Holds, 1), Share: c.Share, Token: c.Token}
	}
	return func(x driver.Claim) bool { return entry(x) == entry(c) }
}

// dequeue takes c's place away, and reports whether c was the first. The caller holds mu.
func (m *Server) dequeue(c driver.Claim) (first bool) {
	first = m.queued(c) == 0
	q := slices.DeleteFunc(m.queues[c.Key], entryOf(c))
	if len(q) == 0 {
		delete(m.queues, c.Key)
		delete(m.expiries, c.Key)
	} else {
		m.queues[c.Key] = q
	}
	return first
}

// tellFirst notifies the first in the queue that it is first, and how long another is the holder. The
// caller holds mu, and calls tell without it.
func (m *Server) tellFirst(key string, next time.Duration) (tell func()) {
	if q := m.queues[key]; len(q) > 0 {
		return m.tellNext(q[0], next)
	}
	return nothing
}

// tellNext notifies c, which queues, that it is the first, likewise.
func (m *Server) tellNext(c driver.Claim, next time.Duration) (tell func()) {
	if w := m.listening(c); w != nil {
		return func() { w.tell(driver.Notification{Next: next}) }
	}
	return nothing
}

// grantNext makes the first claim in the queue for a free key whose line still listens its holder,
// unless that is the claim that asks: its token is asks. The caller holds mu, and calls tell without
// it.
func (m *Server) grantNext(key, asks string) (tell func()) {
	for len(m.queues[key]) > 0 {
		c := m.queues[key][0]
		if c.Token == asks {
			return nothing
		}
		m.dequeue(c)
		w := m.listening(c)
		if w == nil {
			continue
		}
		ttl := driver.SuccessorTTL(c.TTL)
		fence, n := m.nextFences(c)
		l := &Lock{kind: ofOneHolder, Owner: c.Owner, Fence: fence, Holds: []Hold{{Token: c.Token, Until: m.ends(ttl)}}}
		m.put(key, l)
		g := m.grant(l)
		g.TTL, g.ServerTime, g.Fences = ttl, m.serverTime(), n
		next := m.tellFirst(key, ttl)
		return func() {
			w.tell(driver.Notification{Token: c.Token, Grant: g})
			next()
		}
	}
	return nothing
}

func nothing() {}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// listening returns the watch of the claim's line; nil if it has none. The caller holds mu.
func (m *Server) listening(c driver.Claim) *watch {
	for _, w := range m.watches[c.Key] {
		if w.line == c.Line && w.listening() {
			return w
		}
	}
	return nil
}

// Reenters says whether the owner of a lock gets in again.
func (m *Server) Reenters() bool { return m.Reentrant }

// Extend makes the server count again, if the token still holds.
func (m *Server) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return ask(m, ctx, Request{OpExtend, []driver.Claim{c}}, nil, func() (driver.Grant, error) { return m.extend(c) })
}

// ExtendAll extends all in one request.
func (m *Server) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	type answer struct {
		g   driver.Grant
		err error
	}
	kept := slices.Clone(cs) // the request may be under way when ctx has ended this call
	answers, err := ask(m, ctx, Request{OpExtendAll, kept}, nil, func() ([]answer, error) {
		as := make([]answer, len(kept))
		for i, c := range kept {
			as[i].g, as[i].err = m.extend(c)
		}
		return as, nil
	})
	for i := range cs {
		if err != nil {
			done(i, driver.Grant{}, err)
		} else {
			done(i, answers[i].g, answers[i].err)
		}
	}
}

func (m *Server) extend(c driver.Claim) (driver.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.heldBy(c)
	if err != nil {
		return driver.Grant{}, err
	}
	h := l.Hold(c.Token)
	h.Until = latest(h.Until, m.ends(c.TTL)) // a request that was delayed shortens nothing
	return m.grant(l), nil
}

// grant is what l's holder gets to know.
func (m *Server) grant(l *Lock) driver.Grant {
	g := driver.Grant{Fence: l.Fence}
	if m.Reentrant {
		g.Owner = l.Owner
	}
	return g
}

// Adopt puts the claim's token in another's place, with a new fence and the claim's owner, and notifies the watches
// that the old owner does not hold the lock any more. If it is one hold of several, these keep their fence and owner.
func (m *Server) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	m.arrives(c.Token, 1)
	return ask(m, ctx, Request{OpAdopt, []driver.Claim{c}}, func() { m.arrives(c.Token, -1) }, func() (driver.Grant, error) {
		m.mu.Lock()
		tell := nothing
		defer func() {
			m.mu.Unlock()
			tell()
		}()
		held := c
		held.Token = from
		l, err := m.heldBy(held)
		if err != nil {
			return driver.Grant{}, err
		}
		*l.Hold(from) = Hold{Token: c.Token, Until: m.ends(c.TTL)}
		if len(l.Holds) == 1 {
			tell = m.tellReleased(c.Key, l.Owner)
			c.Fences = 1
			l.Owner = c.Owner
			l.Fence, _ = m.nextFences(c)
		}
		return m.grant(l), nil
	})
}

// Release takes the token's hold away and, if it was the last, notifies the watches.
func (m *Server) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, m.Finish(ctx, OpRelease, c)
}

// Undo is Release, and gives up the claim's place in the queue.
func (m *Server) Undo(ctx context.Context, c driver.Claim) error {
	return m.Finish(ctx, OpUndo, c)
}

// ForceRelease is Release; if Reentrant, it takes all holds of the owner away.
func (m *Server) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, m.Finish(ctx, OpForceRelease, c)
}

// Finish is Release, Undo or ForceRelease, as op says.
func (m *Server) Finish(ctx context.Context, op Op, c driver.Claim) error {
	_, err := ask(m, ctx, Request{op, []driver.Claim{c}}, nil, func() (struct{}, error) { return struct{}{}, m.finish(op, c) })
	return err
}

func (m *Server) finish(op Op, c driver.Claim) error {
	m.mu.Lock()
	tell := nothing
	first := op == OpUndo && m.dequeue(c)
	of := m.heldBy
	if op == OpForceRelease && m.Reentrant {
		of = m.heldByOwner
	}
	l, err := of(c)
	if err != nil {
		if first {
			tell = m.tellFirst(c.Key, time.Millisecond) // to ask how long the holder has
		}
		if op == OpUndo && errors.Is(err, strategy.ErrLost) {
			err = m.notThere(c)
		}
		m.mu.Unlock()
		tell()
		return err
	}
	holder := m.holder(l)
	if l.End(c.Token); op == OpForceRelease {
		l.Holds = nil
	}
	released := nothing
	if len(l.Holds) == 0 {
		delete(m.locks, c.Key)
		if tell = m.grantNext(c.Key, ""); m.locks[c.Key] == nil {
			released = m.tellReleased(c.Key, holder)
		}
	}
	m.mu.Unlock()
	tell()
	released()
	return nil
}

// notThere is the answer to an undo of a claim that is not there. The caller holds mu.
func (m *Server) notThere(c driver.Claim) error {
	if c.Grant.IsZero() && m.arriving[c.Token] > 0 {
		return &strategy.ServerError{Node: name, Kind: strategy.ErrUnknown, Err: driver.ErrAcquireMayArrive}
	}
	return nil
}

// tellReleased notifies the watches without a line that holder has released the lock. The caller holds mu,
// and calls tell without it.
func (m *Server) tellReleased(key, holder string) (tell func()) {
	told := slices.Clone(m.watches[key])
	return func() {
		for _, w := range told {
			if w.line == "" {
				w.tell(driver.Notification{Holder: holder})
			}
		}
	}
}

// Watch notifies fn of releases of the claim's key, or, for a line, of direct grants to it.
func (m *Server) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	w := &watch{line: c.Line, fn: fn}
	stop = func() {
		m.mu.Lock()
		left := slices.DeleteFunc(m.watches[c.Key], func(x *watch) bool { return x == w })
		if len(left) > 0 {
			m.watches[c.Key] = left
		} else {
			delete(m.watches, c.Key)
		}
		m.mu.Unlock()
		w.mu.Lock() // waits for a notification that is being delivered
		defer w.mu.Unlock()
		w.fn = nil
	}
	_, err = ask(m, ctx, Request{OpWatch, []driver.Claim{c}}, nil, func() (struct{}, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.watches == nil {
			m.watches = map[string][]*watch{}
		}
		if w.listening() { // the caller may have given up
			m.watches[c.Key] = append(m.watches[c.Key], w)
		}
		return struct{}{}, nil
	})
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (w *watch) listening() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fn != nil
}

func (w *watch) tell(n driver.Notification) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fn == nil {
		return
	}
	w.fn(n)
	if n.Broken() {
		w.fn = nil // broken: that was the last
	}
}

// Inspect reports who holds the claim's key, and which claims queue for it.
func (m *Server) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return m.inspect(ctx, c, ofOneHolder, func(l *Lock, info *strategy.Info) {
		info.Token, info.TTL = l.Holds[0].Token, m.left(l.last())
		if m.Reentrant {
			first := slices.MinFunc(l.Holds, func(a, b Hold) int { return strings.Compare(a.Token, b.Token) })
			info.Token, info.Owner, info.Holds, info.Fence = first.Token, l.Owner, len(l.Holds), l.Fence
		}
	})
}

// inspect has look report the holders of a lock of this kind, if there are any.
func (m *Server) inspect(ctx context.Context, c driver.Claim, kind kind, look func(*Lock, *strategy.Info)) (strategy.Info, error) {
	return ask(m, ctx, Request{OpInspect, []driver.Claim{c}}, nil, func() (strategy.Info, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		l := m.find(c.Key)
		if l != nil && l.kind != kind {
			return strategy.Info{}, errForeign
		}
		info := strategy.Info{Held: l != nil, Fence: m.lastFence(c.Key)}
		for _, q := range m.queues[c.Key] {
			info.Queue = append(info.Queue, q.Token)
		}
		if l != nil {
			look(l, &info)
		}
		return info, nil
	})
}

// Check finds nothing wrong, unless the request fails.
func (m *Server) Check(ctx context.Context, _ strategy.Options) error {
	_, err := ask(m, ctx, Request{Op: OpCheck}, nil, func() (struct{}, error) { return struct{}{}, nil })
	return err
}

var errForeign = Refused("the key is no lock of this kind")

// find returns what is at key now, and drops what has expired. The caller holds mu.
func (m *Server) find(key string) *Lock {
	now := m.now().Truncate(time.Millisecond) // the millisecond in which something ends still belongs to it
	if ends, ok := m.expiries[key]; ok && now.After(ends) {
		delete(m.queues, key)
		delete(m.expiries, key)
	}
	l := m.locks[key]
	if l == nil || l.kind == notALock {
		return l
	}
	l.Holds = slices.DeleteFunc(l.Holds, func(h Hold) bool { return now.After(h.Until) })
	if len(l.Holds) == 0 {
		delete(m.locks, key)
		return nil
	}
	return l
}

// holder is the holder that others hear of. The caller holds mu.
func (m *Server) holder(l *Lock) string {
	if m.Reentrant {
		return l.Owner
	}
	return l.Holds[0].Token
}

// heldBy returns the lock that c's token holds. The caller holds mu.
func (m *Server) heldBy(c driver.Claim) (*Lock, error) {
	l := m.find(c.Key)
	switch {
	case l == nil:
		return nil, &strategy.LostError{Name: c.Name}
	case l.kind == notALock:
		return nil, errForeign
	case l.Hold(c.Token) == nil && m.Reentrant && l.Owner == c.Owner:
		return nil, &strategy.LostError{Name: c.Name} // the owner's other holds are not this one
	case l.Hold(c.Token) == nil:
		return nil, &strategy.LostError{Name: c.Name, Holder: m.holder(l)}
	}
	return l, nil
}

// heldByOwner returns the lock that c's owner holds since the grant whose fence c has. The caller holds mu.
func (m *Server) heldByOwner(c driver.Claim) (*Lock, error) {
	l := m.find(c.Key)
	switch {
	case l == nil:
		return nil, &strategy.LostError{Name: c.Name}
	case l.kind == notALock:
		return nil, errForeign
	case l.Owner != c.Owner || l.Fence != c.Grant.Fence:
		return nil, &strategy.LostError{Name: c.Name, Holder: l.Owner}
	}
	return l, nil
}

// put is for callers that hold mu.
func (m *Server) put(key string, l *Lock) {
	if m.locks == nil {
		m.locks = map[string]*Lock{}
	}
	m.locks[key] = l
}

// lastFence is the last number issued; 0: there was none, or it has expired. The caller holds mu.
func (m *Server) lastFence(key string) uint64 {
	if f := m.fences[key]; f.ends.IsZero() || !m.now().Truncate(time.Millisecond).After(f.ends) {
		return f.last
	}
	return 0
}

// nextFences issues the numbers of a grant to c, as numbers.lua does: the first of them, and how many they are. Only one
// is issued where none is stored. But it does not issue fewer when numbers run ahead of the clock, because in a bubble
// many holds come and go in the same microsecond. The caller holds mu.
func (m *Server) nextFences(c driver.Claim) (first uint64, n int) {
	if n = max(c.Fences, 1); m.lastFence(c.Key) == 0 {
		n = 1
	}
	return m.issue(c, n), n
}

// issue issues so many numbers, and returns the first. The caller holds mu.
func (m *Server) issue(c driver.Claim, n int) (first uint64) {
	first = max(m.lastFence(c.Key)+1, uint64(m.now().UnixMicro()))
	f := fence{last: first + uint64(n) - 1}
	if c.FenceTTL > 0 {
		f.ends = time.UnixMilli(int64(f.last / 1000)).Add(c.FenceTTL)
	}
	if m.fences == nil {
		m.fences = map[string]fence{}
	}
	m.fences[c.Key] = f
	return first
}

func (m *Server) arrives(token string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.arriving == nil {
		m.arriving = map[string]int{}
	}
	if m.arriving[token] += n; m.arriving[token] == 0 {
		delete(m.arriving, token)
	}
}

// ask brings a request to the server, past the interceptor, and its answer back.
// ended, if not nil, is called when the request can have no effect any more.
func ask[T any](m *Server, ctx context.Context, r Request, ended func(), serve func() (T, error)) (T, error) {
	var none T
	if ended == nil {
		ended = func() {}
	}
	var due time.Time
	if len(r.Claims) > 0 {
		due = r.Claims[0].Due
	}
	if !due.IsZero() && !time.Now().Before(due) {
		ended()
		return none, &strategy.ServerError{Node: name, Kind: strategy.ErrUnsent, Err: context.DeadlineExceeded}
	}
	if over := timeup.Cause(ctx); over != nil {
		ended()
		return none, &strategy.ServerError{Node: name, Kind: strategy.ErrUnsent, Err: over}
	}
	m.mu.Lock()
	if m.requests == nil {
		m.requests = map[Op]int{}
	}
	m.requests[r.Op]++
	intercept := m.intercept
	m.mu.Unlock()
	if gate, ok := ctx.Value(gateKey{}).(Gate); ok {
		intercept = behind(gate, intercept)
	}
	if intercept == nil {
		defer ended()
		return serve()
	}

	type reply struct {
		answer T
		err    error
	}
	replies := make(chan reply, 1)
	go func() {
		defer ended()
		var a reply
		a.err = intercept(ctx, r, func() error {
			a.answer, a.err = serve()
			return a.err
		})
		replies <- a
	}()
	var timeout <-chan time.Time
	if !due.IsZero() {
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case a := <-replies:
		return a.answer, a.err
	case <-timeout:
		return none, &strategy.ServerError{Node: name, Kind: strategy.ErrUnknown, Err: context.DeadlineExceeded}
	case <-ctx.Done():
		return none, &strategy.ServerError{Node: name, Kind: strategy.ErrUnknown, Err: context.Cause(ctx)}
	}
}

// Gated has its gate, if it has one, stand before each request.
type Gated struct {
	*Server
	Gate Gate
}

type gateKey struct{}

func (g Gated) through(ctx context.Context) context.Context {
	if g.Gate == nil {
		return ctx
	}
	return context.WithValue(ctx, gateKey{}, g.Gate)
}

// behind is the interceptor behind the gate.
func behind(gate Gate, intercept Fault) Fault {
	return func(ctx context.Context, r Request, serve func() error) error {
		err := Unsent()
		request := string(r.Op)
		if len(r.Claims) > 0 {
			request += " " + r.Claims[0].Key
		}
		gate(request, func() {
			if intercept != nil {
				err = intercept(ctx, r, serve)
			} else {
				err = serve()
			}
		})
		return err
	}
}

func (g Gated) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return g.Server.Acquire(g.through(ctx), c)
}

func (g Gated) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return g.Server.Extend(g.through(ctx), c)
}

func (g Gated) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	g.Server.ExtendAll(g.through(ctx), cs, done)
}

func (g Gated) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return g.Server.Adopt(g.through(ctx), c, from)
}

func (g Gated) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return g.Server.Release(g.through(ctx), c)
}

func (g Gated) Undo(ctx context.Context, c driver.Claim) error {
	return g.Server.Undo(g.through(ctx), c)
}

func (g Gated) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return g.Server.ForceRelease(g.through(ctx), c)
}

// Finish is Release, Undo or ForceRelease, as op says.
func (g Gated) Finish(ctx context.Context, op Op, c driver.Claim) error {
	return g.Server.Finish(g.through(ctx), op, c)
}

func (g Gated) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	return g.Server.Pass(g.through(ctx), c, next)
}

func (g Gated) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	return g.Server.Watch(g.through(ctx), c, fn)
}

func (g Gated) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return g.Server.Inspect(g.through(ctx), c)
}

func (g Gated) Check(ctx context.Context, o strategy.Options) error {
	return g.Server.Check(g.through(ctx), o)
}
