package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Memory is a lock server in memory and the protocol that speaks to it, for unit
// tests: of code that uses locks, and of the engine. The zero
// value is an empty server. Strategies made from one Memory contend with each
// other as processes do that share a server:
//
//	var server conformance.Memory
//	a, err := engine.New(&server, strategy.Options{})
//	b, err := engine.New(&server, strategy.Options{})
//
// It does everything that a [driver.Protocol] may do: fences, notifications, a queue with
// direct grants, renewal in bulk, Inspect and Check. To test without one of these, hide it:
//
//	engine.New(struct{ driver.Protocol }{&server}, o) // a protocol and nothing else
//
// Locks that several may hold come from [Memory.Semaphore] and [Memory.ReadWriter]. They need names of their own: on one
// name they and locks of one holder do not mix.
//
// Time is that of package time, and nothing runs in the background, so Memory is
// at home inside a testing/synctest bubble. Package lockstest makes tests of code that uses locks shorter.
type Memory struct {
	// Reentrant lets the owner of a lock in again. Each hold has a TTL of its own; the
	// lock is held until the last has ended. Errors and notifications then name the
	// holder by its owner. Set Reentrant before the first request.
	Reentrant bool

	mu        sync.Mutex
	intercept Interceptor
	locks     map[string]*memoryLock // by key
	fences    map[string]uint64      // by key; they outlive the locks
	watches   map[string][]*memoryWatch
	queues    map[string][]driver.Claim // claims that wait, by key; the first comes next
	limits    map[string]int            // how many permits, by key, where that was set
	requests  map[Op]int
	arriving  map[string]int // acquires that may still take effect, by token
}

// memoryLock is a key. It is there until its time has come, or for ever if it is
// not a lock at all.
type memoryLock struct {
	foreign bool // not a lock: what SET is to LPUSH
	owner   string
	fence   uint64
	holds   []memoryHold // in the order of their grants; more than one only if re-entrant, or if several may hold it
}

type memoryHold struct {
	token string
	until time.Time
	share int32  // see driver.Claim
	fence uint64 // of a lock that several may hold; otherwise the lock has it
}

// hold returns the token's, if it has one.
func (l *memoryLock) hold(token string) *memoryHold {
	for i := range l.holds {
		if l.holds[i].token == token {
			return &l.holds[i]
		}
	}
	return nil
}

// end takes the token's hold away.
func (l *memoryLock) end(token string) {
	l.holds = slices.DeleteFunc(l.holds, func(h memoryHold) bool { return h.token == token })
}

// until is when the last of the holds ends.
func (l *memoryLock) until() time.Time {
	var last time.Time
	for _, h := range l.holds {
		if h.until.After(last) {
			last = h.until
		}
	}
	return last
}

type memoryWatch struct {
	line string // hears of direct grants to that line; empty: of releases
	mu   sync.Mutex
	fn   func(driver.Notification) // nil: stopped or broken
}

// Op is a kind of request to a [Memory].
type Op string

// The requests. A bulk renewal is one request.
const (
	OpAcquire   Op = "acquire"
	OpExtend    Op = "extend"
	OpExtendAll Op = "extend all"
	OpAdopt     Op = "adopt"
	OpRelease   Op = "release"
	OpPass      Op = "pass"
	OpWatch     Op = "watch"
	OpInspect   Op = "inspect"
	OpCheck     Op = "check"
	OpPermits   Op = "set permits"
)

// A Request is what an [Interceptor] gets to see.
type Request struct {
	Op     Op
	Claims []driver.Claim // one, but for OpExtendAll, and OpPass: the holder, and the next one; none for OpCheck
}

// An Interceptor is the network between strategies and a [Memory]. It decides for
// each request when and whether it arrives, by calling serve at most once, and
// what the caller gets, by what it returns. All faults are made of this:
//
//	time.Sleep(d); return serve()                // slow there
//	err := serve(); time.Sleep(d); return err    // slow back
//	serve(); return conformance.Unknown()        // the reply is lost
//	return conformance.Unknown()                 // the request is lost
//	return conformance.Unsent()                  // nobody there
//	return conformance.Refused("READONLY")       // the server says no
//
// The caller waits no longer than the request's time-out. When that comes, or ctx
// ends, the caller gets ErrUnknown. The request goes on, and may take effect later, as
// with a server that was frozen and thaws. The interceptor's ctx does not end with that
// time-out: to lose a request, return, and do not wait for it.
type Interceptor func(ctx context.Context, r Request, serve func() error) error

const memoryName = "memory"

// Unknown is the error of a request whose reply was lost.
func Unknown() error {
	return &strategy.ServerError{Node: memoryName, Kind: strategy.ErrUnknown, Err: errors.New("the reply was lost")}
}

// Unsent is the error of a request that reached nobody.
func Unsent() error {
	return &strategy.ServerError{Node: memoryName, Kind: strategy.ErrUnsent, Err: errors.New("unreachable")}
}

// Refused is the error of a request to which the server said no, in these words.
func Refused(words string) error {
	return &strategy.ServerError{Node: memoryName, Kind: strategy.ErrRefused, Err: errors.New(words)}
}

// Intercept puts f in front of the requests that begin from now on; nil takes it away.
func (m *Memory) Intercept(f Interceptor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intercept = f
}

// Requests returns how many requests of these kinds have left so far, whether they
// arrived or not; without kinds, how many of all.
func (m *Memory) Requests(ops ...Op) int {
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
func (m *Memory) Evict(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.locks, key)
	return nil
}

// Advance moves the server's clock, and no other, on by d: every hold that is there now ends that much
// earlier, or, if d is negative, later. As with an expiry, nobody is notified.
func (m *Memory) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.locks {
		for i := range l.holds {
			l.holds[i].until = l.holds[i].until.Add(-d)
		}
	}
}

// Spoil makes key something that is not a lock, until it is evicted.
func (m *Memory) Spoil(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, &memoryLock{foreign: true})
	return nil
}

// Leftovers returns what the server keeps of key but the fence.
func (m *Memory) Leftovers(_ context.Context, key string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var left []string
	if m.find(key) != nil {
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
func (m *Memory) BreakWatches() {
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

// Gated returns a protocol on m whose requests pass g; see [Subject].OpenGated. The gate may be a bad
// network, as that of [GateNode].
func (m *Memory) Gated(g Gate) driver.Protocol { return gatedMemory{m, g} }

// Acquire grants the lock if it is free and nobody queues for it, or, if Reentrant, the
// claim's owner's. A claim with a Line that is refused takes a place in the queue.
func (m *Memory) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
func (m *Memory) acquire(c driver.Claim) (driver.Grant, error) {
	now := time.Now()
	l := m.find(c.Key)
	first := l == nil
	switch {
	case first:
		l = &memoryLock{owner: c.Owner, fence: m.nextFences(c.Key, c.Fences)}
		m.put(c.Key, l)
	case l.foreign:
		return driver.Grant{}, errForeign
	case l.hold(c.Token) != nil: // queued, and granted meanwhile
	case !m.Reentrant || l.owner != c.Owner:
		held := &strategy.HeldError{Name: c.Name, Holder: m.holder(l), TTL: l.until().Sub(now)}
		place, kept := m.enqueue(c)
		return driver.Grant{ServerTime: serverTime(now), Place: place, Kept: kept}, held
	}
	l.end(c.Token) // asked twice: counts once
	l.holds = append(l.holds, memoryHold{token: c.Token, until: now.Add(c.TTL)})
	g := m.grant(l)
	if first {
		g.Fences = max(c.Fences, 1)
	}
	return g, nil
}

// Pass is Release of c, and Acquire of next behind those who queue already.
func (m *Memory) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	m.arrives(next.Token, 1)
	return ask(m, ctx, Request{OpPass, []driver.Claim{c, next}}, func() { m.arrives(next.Token, -1) }, func() (driver.Grant, error) {
		m.mu.Lock()
		tell := nothing
		defer func() {
			m.mu.Unlock()
			tell()
		}()
		l, err := m.own(c)
		if err != nil {
			return driver.Grant{}, err
		}
		if l.end(c.Token); len(l.holds) == 0 {
			delete(m.locks, c.Key)
			tell = m.grantNext(c.Key, "")
		}
		return m.acquire(next)
	})
}

// enqueue gives c a place, if it has a line. It returns the place, and whether c had it before. The
// caller holds mu.
func (m *Memory) enqueue(c driver.Claim) (place int32, kept bool) {
	if c.Line == "" {
		return 0, false
	}
	if i := m.queued(c); c.Asked && i >= 0 {
		return int32(i + 1), true
	}
	m.joinQueue(c)
	return int32(len(m.queues[c.Key])), false
}

// joinQueue gives c the last place. The caller holds mu.
func (m *Memory) joinQueue(c driver.Claim) {
	if m.queues == nil {
		m.queues = map[string][]driver.Claim{}
	}
	m.queues[c.Key] = append(m.queues[c.Key], c)
}

// queued returns how many come before c in the queue; negative: it has no place. The caller holds mu.
func (m *Memory) queued(c driver.Claim) int {
	return slices.IndexFunc(m.queues[c.Key], entryOf(c))
}

// entryOf finds c in the queue. As in the scripts of real servers, an entry is a line and a token, so a claim that
// does not name its line has none.
func entryOf(c driver.Claim) func(driver.Claim) bool {
	return func(x driver.Claim) bool { return x.Token == c.Token && x.Line == c.Line }
}

// dequeue takes c's place away, and reports whether c was the first. The caller holds mu.
func (m *Memory) dequeue(c driver.Claim) (first bool) {
	first = m.queued(c) == 0
	q := slices.DeleteFunc(m.queues[c.Key], entryOf(c))
	if len(q) == 0 {
		delete(m.queues, c.Key)
	} else {
		m.queues[c.Key] = q
	}
	return first
}

// tellFirst notifies the first in the queue that it is first, and how long another is the holder. The
// caller holds mu, and calls tell without it.
func (m *Memory) tellFirst(key string, next time.Duration) (tell func()) {
	if q := m.queues[key]; len(q) > 0 {
		if w := m.listening(q[0]); w != nil {
			return func() { w.tell(driver.Notification{Next: next}) }
		}
	}
	return nothing
}

// grantNext makes the first claim in the queue for a free key whose line still listens its holder,
// unless that is the claim that asks: its token is asks. The caller holds mu, and calls tell without
// it.
func (m *Memory) grantNext(key, asks string) (tell func()) {
	now := time.Now()
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
		l := &memoryLock{owner: c.Owner, fence: m.nextFences(key, c.Fences), holds: []memoryHold{{token: c.Token, until: now.Add(ttl)}}}
		m.put(key, l)
		g := m.grant(l)
		g.TTL, g.ServerTime, g.Fences = ttl, serverTime(now), max(c.Fences, 1)
		next := m.tellFirst(key, ttl)
		return func() {
			w.tell(driver.Notification{Token: c.Token, Grant: g})
			next()
		}
	}
	return nothing
}

func nothing() {}

func serverTime(now time.Time) time.Duration { return time.Duration(now.UnixNano()) }

// listening returns the watch of the claim's line; nil if it has none. The caller holds mu.
func (m *Memory) listening(c driver.Claim) *memoryWatch {
	for _, w := range m.watches[c.Key] {
		if w.line == c.Line && w.listening() {
			return w
		}
	}
	return nil
}

// Reenters says whether the owner of a lock gets in again.
func (m *Memory) Reenters() bool { return m.Reentrant }

// Extend makes the server count again, if the token still holds.
func (m *Memory) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return ask(m, ctx, Request{OpExtend, []driver.Claim{c}}, nil, func() (driver.Grant, error) { return m.extend(c) })
}

// ExtendAll extends all in one request.
func (m *Memory) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
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

func (m *Memory) extend(c driver.Claim) (driver.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.own(c)
	if err != nil {
		return driver.Grant{}, err
	}
	l.hold(c.Token).until = time.Now().Add(c.TTL)
	return m.grant(l), nil
}

// grant is what l's holder gets to know.
func (m *Memory) grant(l *memoryLock) driver.Grant {
	g := driver.Grant{Fence: l.fence}
	if m.Reentrant {
		g.Owner = l.owner
	}
	return g
}

// Adopt puts the claim's token in another's place, with a new fence and the claim's owner, and notifies the watches
// that the old owner does not hold the lock any more. If it is one hold of several, these keep their fence and owner.
func (m *Memory) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
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
		l, err := m.own(held)
		if err != nil {
			return driver.Grant{}, err
		}
		*l.hold(from) = memoryHold{token: c.Token, until: time.Now().Add(c.TTL)}
		if len(l.holds) == 1 {
			tell = m.tellReleased(c.Key, l.owner)
			l.owner, l.fence = c.Owner, m.nextFences(c.Key, 1)
		}
		return m.grant(l), nil
	})
}

// Release takes the token's hold away and, if it was the last, notifies the watches. With
// Force it takes all holds away.
func (m *Memory) Release(ctx context.Context, c driver.Claim) error {
	_, err := ask(m, ctx, Request{OpRelease, []driver.Claim{c}}, nil, func() (struct{}, error) {
		return struct{}{}, m.release(c)
	})
	return err
}

func (m *Memory) release(c driver.Claim) error {
	m.mu.Lock()
	tell := nothing
	first := c.Undo && m.dequeue(c)
	l, err := m.own(c)
	if err != nil {
		if first {
			tell = m.tellFirst(c.Key, time.Millisecond) // to ask how long the holder has
		}
		if c.Undo && errors.Is(err, strategy.ErrLost) {
			err = nil // it has no effect …
			if m.arriving[c.Token] > 0 {
				err = Unknown() // … yet
			}
		}
		m.mu.Unlock()
		tell()
		return err
	}
	holder := m.holder(l)
	if l.end(c.Token); c.Force {
		l.holds = nil
	}
	released := nothing
	if len(l.holds) == 0 {
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

// tellReleased notifies the watches without a line that holder has released the lock. The caller holds mu,
// and calls tell without it.
func (m *Memory) tellReleased(key, holder string) (tell func()) {
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
func (m *Memory) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	w := &memoryWatch{line: c.Line, fn: fn}
	stop = func() {
		m.mu.Lock()
		left := slices.DeleteFunc(m.watches[c.Key], func(x *memoryWatch) bool { return x == w })
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
			m.watches = map[string][]*memoryWatch{}
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

func (w *memoryWatch) listening() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fn != nil
}

func (w *memoryWatch) tell(n driver.Notification) {
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
func (m *Memory) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return ask(m, ctx, Request{OpInspect, []driver.Claim{c}}, nil, func() (strategy.Info, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		info := strategy.Info{Fence: m.fences[c.Key]}
		for _, q := range m.queues[c.Key] {
			info.Queue = append(info.Queue, q.Token)
		}
		switch l := m.find(c.Key); {
		case l == nil:
		case l.foreign:
			return strategy.Info{}, errForeign
		default:
			info.Held, info.Token, info.TTL, info.Fence = true, l.holds[0].token, time.Until(l.until()), l.fence
			if m.Reentrant {
				info.Owner, info.Holds = l.owner, len(l.holds)
			}
		}
		return info, nil
	})
}

// Check finds nothing wrong, unless the request fails.
func (m *Memory) Check(ctx context.Context, _ strategy.Options) error {
	_, err := ask(m, ctx, Request{Op: OpCheck}, nil, func() (struct{}, error) { return struct{}{}, nil })
	return err
}

var errForeign = Refused("the key is not a lock")

// find returns what is at key now. The caller holds mu.
func (m *Memory) find(key string) *memoryLock {
	l := m.locks[key]
	if l == nil || l.foreign {
		return l
	}
	now := time.Now()
	l.holds = slices.DeleteFunc(l.holds, func(h memoryHold) bool { return !now.Before(h.until) })
	if len(l.holds) == 0 {
		delete(m.locks, key)
		return nil
	}
	return l
}

// holder is the holder that others hear of. The caller holds mu.
func (m *Memory) holder(l *memoryLock) string {
	if m.Reentrant {
		return l.owner
	}
	return l.holds[0].token
}

// own returns the lock that c holds: its token, or, with Force, its owner since the
// grant whose fence it has. The caller holds mu.
func (m *Memory) own(c driver.Claim) (*memoryLock, error) {
	l := m.find(c.Key)
	switch {
	case l == nil:
		return nil, &strategy.LostError{Name: c.Name}
	case l.foreign:
		return nil, errForeign
	case m.Reentrant && c.Force:
		if l.owner != c.Owner || l.fence != c.Grant.Fence {
			return nil, &strategy.LostError{Name: c.Name, Holder: l.owner}
		}
	case l.hold(c.Token) == nil && m.Reentrant && l.owner == c.Owner:
		return nil, &strategy.LostError{Name: c.Name} // the owner's other holds are not this one
	case l.hold(c.Token) == nil:
		return nil, &strategy.LostError{Name: c.Name, Holder: m.holder(l)}
	}
	return l, nil
}

// put is for callers that hold mu.
func (m *Memory) put(key string, l *memoryLock) {
	if m.locks == nil {
		m.locks = map[string]*memoryLock{}
	}
	m.locks[key] = l
}

// nextFences returns the first of n. The caller holds mu.
func (m *Memory) nextFences(key string, n int) uint64 {
	if m.fences == nil {
		m.fences = map[string]uint64{}
	}
	first := m.fences[key] + 1
	m.fences[key] += uint64(max(n, 1))
	return first
}

func (m *Memory) arrives(token string, n int) {
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
func ask[T any](m *Memory, ctx context.Context, r Request, ended func(), serve func() (T, error)) (T, error) {
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
		return none, &strategy.ServerError{Node: memoryName, Kind: strategy.ErrUnsent, Err: context.DeadlineExceeded}
	}
	if ctx.Err() != nil {
		ended()
		return none, &strategy.ServerError{Node: memoryName, Kind: strategy.ErrUnsent, Err: context.Cause(ctx)}
	}
	m.mu.Lock()
	if m.requests == nil {
		m.requests = map[Op]int{}
	}
	m.requests[r.Op]++
	intercept := m.intercept
	m.mu.Unlock()
	if gate, ok := ctx.Value(gateKey{}).(Gate); ok {
		intercept = gate.intercept(intercept)
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
		return none, &strategy.ServerError{Node: memoryName, Kind: strategy.ErrUnknown, Err: context.DeadlineExceeded}
	case <-ctx.Done():
		return none, &strategy.ServerError{Node: memoryName, Kind: strategy.ErrUnknown, Err: context.Cause(ctx)}
	}
}

// gatedMemory has its gate, if it has one, stand before each request.
type gatedMemory struct {
	*Memory
	gate Gate
}

type gateKey struct{}

func (g gatedMemory) through(ctx context.Context) context.Context {
	if g.gate == nil {
		return ctx
	}
	return context.WithValue(ctx, gateKey{}, g.gate)
}

// intercept is the interceptor behind the gate.
func (gate Gate) intercept(intercept Interceptor) Interceptor {
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

func (g gatedMemory) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return g.Memory.Acquire(g.through(ctx), c)
}

func (g gatedMemory) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return g.Memory.Extend(g.through(ctx), c)
}

func (g gatedMemory) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	g.Memory.ExtendAll(g.through(ctx), cs, done)
}

func (g gatedMemory) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return g.Memory.Adopt(g.through(ctx), c, from)
}

func (g gatedMemory) Release(ctx context.Context, c driver.Claim) error {
	return g.Memory.Release(g.through(ctx), c)
}

func (g gatedMemory) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	return g.Memory.Pass(g.through(ctx), c, next)
}

func (g gatedMemory) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	return g.Memory.Watch(g.through(ctx), c, fn)
}

func (g gatedMemory) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return g.Memory.Inspect(g.through(ctx), c)
}

func (g gatedMemory) Check(ctx context.Context, o strategy.Options) error {
	return g.Memory.Check(g.through(ctx), o)
}
