package strategy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Strategy is an algorithm with its servers, ready to give locks. It is safe
// for concurrent use.
type Strategy struct {
	p     Protocol
	bulk  BulkExtender // p, if it is one
	queue Queuer       // p, if it is one and Options.Wait is WaitQueue
	o     Options
	asked Wait // o.Wait as the user gave it
	*house

	announces bool // its releases are published: see newToken
}

// house is what a Strategy shares with those made from it by With.
type house struct {
	id     string    // this process's, in the servers' queues
	built  time.Time // what monotonic time is counted from
	agenda agenda    // renewals and deadlines
	memos  *memos

	closing chan struct{} // closed when Close begins: whoever waits leaves

	mu     sync.Mutex
	lines  map[string]*line // waiters of this process, by key
	active int              // requests under way, and clean-ups in the background
	idle   sync.Cond        // active is 0
	closed bool             // no further request begins
	done   bool             // nor any clean-up
	undone error            // what could not be undone before Close
}

// New puts the machinery around an algorithm. Users call the New of a strategy's
// own package. It does no I/O: see [Strategy.Check].
func New(p Protocol, o Options) (*Strategy, error) {
	if p == nil {
		return nil, errors.New("locks: the protocol is nil: allowed is what a strategy's On returns")
	}
	id, err := newToken("", false)
	if err != nil {
		return nil, err
	}
	h := newHouse()
	h.id, h.closing, h.lines, h.memos = id, make(chan struct{}), map[string]*line{}, new(memos)
	return (&Strategy{p: p, house: h}).With(o)
}

// newHouse is one with all that leases need.
func newHouse() *house {
	h := &house{built: time.Now()}
	h.idle.L = &h.mu
	return h
}

// With returns a Strategy with other options on the same connections. What o
// leaves zero is the default, not s's; except Key, which stays s's, because those
// who disagree on what a name means do not exclude each other. Close it once, on any
// of them: that closes all.
func (s *Strategy) With(o Options) (*Strategy, error) {
	if o.Key == nil {
		o.Key = s.o.Key
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if v, ok := s.p.(Validator); ok {
		if err := v.Validate(o); err != nil {
			return nil, err
		}
	}
	asked := o.Wait
	if o.Wait, err = waitOn(s.p, o.Wait); err != nil {
		return nil, err
	}
	made := &Strategy{p: s.p, o: o, asked: asked, house: s.house}
	made.bulk, _ = s.p.(BulkExtender)
	_, notifies := s.p.(Notifier)
	_, queues := s.p.(Queuer)
	made.announces = notifies && !queues
	if o.Wait == WaitQueue {
		made.queue = s.p.(Queuer)
	}
	return made, nil
}

// waitOn is how to wait for p's locks, if w is what is wished.
func waitOn(p Protocol, w Wait) (Wait, error) {
	_, notifies := p.(Notifier)
	_, queues := p.(Queuer)
	switch {
	case w == WaitBest && queues:
		return WaitQueue, nil
	case w == WaitBest && notifies:
		return WaitNotice, nil
	case w == WaitBest:
		return WaitPoll, nil
	case w == WaitNotice && !notifies, w == WaitQueue && !queues && !notifies:
		return w, fmt.Errorf("locks: Options.Wait is %v: %w by this algorithm; allowed are WaitBest and WaitPoll", w, ErrUnsupported)
	case w == WaitQueue && !queues:
		return w, fmt.Errorf("locks: Options.Wait is %v: %w by this algorithm; allowed are WaitBest, WaitNotice and WaitPoll", w, ErrUnsupported)
	}
	return w, nil
}

// Lock returns the lock of that name: 1 … [MaxNameLen] bytes, any bytes. If the
// name is not allowed, every call on the lock says so. It does no I/O; locks of
// one name are the same lock.
func (s *Strategy) Lock(name string) Lock {
	return s.lock(name)
}

func (s *Strategy) lock(name string) *lock {
	l := &lock{s: s, name: name}
	if name == "" || len(name) > MaxNameLen {
		l.err = fmt.Errorf("locks: the lock's name has %d bytes: allowed are 1 to %d", len(name), MaxNameLen)
		return l
	}
	if l.key = s.o.Key(name); l.key == "" {
		l.err = fmt.Errorf("locks: Options.Key gave an empty key for the name %q", name)
	}
	return l
}

// Check asks the servers whether they can be relied on: reachable, a primary, not set up to
// evict locks, and allowing their user all that locks need. It takes no lock, and leaves
// nothing behind; what rights it asks for it asks on keys of a name that begins with "check:"
// and is used once. nil means yes; the error says what to change.
//
// What locks can do without is not asked for: to wait in a queue or for a notice, unless
// Options.Wait names that, and what keeps commands in order (see [Node]).
func (s *Strategy) Check(ctx context.Context) error {
	checker, ok := s.p.(Checker)
	if !ok {
		return fmt.Errorf("locks: Check: %w by this algorithm", ErrUnsupported)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	o := s.o
	o.Wait = s.asked
	return checker.Check(ctx, o)
}

// Inspect reads who holds the lock of that name. It changes nothing, and what it
// says may be over when it returns.
func (s *Strategy) Inspect(ctx context.Context, name string) (Info, error) {
	inspector, ok := s.p.(Inspector)
	if !ok {
		return Info{}, fmt.Errorf("locks: Inspect: %w by this algorithm", ErrUnsupported)
	}
	c, err := s.operatorClaim(ctx, name)
	if err != nil {
		return Info{}, err
	}
	c.TTL = 0 // nobody is to count anything
	if err := s.enter(); err != nil {
		return Info{}, err
	}
	defer s.leave()
	info, err := inspector.Inspect(ctx, c)
	if err != nil {
		return Info{}, err
	}
	info.Name, info.Key = name, c.Key
	info.Label, info.Since = readToken(info.Token)
	if info.Held && info.Owner == "" {
		info.Owner, info.Holds = info.Token, 1
	}
	return info, nil
}

// ForceRelease takes the lock from the holder that Inspect saw, however often it has
// re-entered. If another holds it by now, or nobody, the error is ErrLost and nothing has changed. The holder
// learns of it at its next renewal, or at its deadline: until then it believes
// that it holds the lock, and only a fence keeps the two apart.
//
// After ErrUnknown nobody knows whether the lock was taken away: inspect again.
func (s *Strategy) ForceRelease(ctx context.Context, seen Info) error {
	if !seen.Held {
		return fmt.Errorf("locks: ForceRelease of %q: allowed is what Inspect saw of a lock that is held", seen.Name)
	}
	c, err := s.operatorClaim(ctx, seen.Name)
	if err != nil {
		return err
	}
	c.Token, c.Owner, c.Grant.Fence, c.Force = seen.Token, seen.Owner, seen.Fence, true
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	err, remains := unmark(s.p.Release(ctx, c))
	if remains {
		s.undo(c)
	}
	return err
}

// Adopt makes a lease of a token that [Lease.Detach] gave, perhaps in another
// process: in one step it renews the lock and gives the hold a token (and a fence)
// of its own, so a token can be adopted once, and the lease counts from here. If the
// token is not the holder any more, or the answer comes after its validity, the
// error is ErrLost: the caller does not hold the lock. After ErrRefused and ErrUnsent
// the lock is what it was. After ErrUnknown nobody has adopted it: if the servers
// did what was asked, that is undone in the background, and the lock is free.
//
// Whoever brings the token of a lease that is still in use takes the lock from it.
func (s *Strategy) Adopt(ctx context.Context, name, token string) (*Lease, error) {
	start := time.Now()
	lease, err := s.adopt(ctx, name, token, start)
	if err != nil {
		s.missed(ctx, name, start, err)
	}
	return lease, err
}

func (s *Strategy) adopt(ctx context.Context, name, token string, start time.Time) (*Lease, error) {
	if token == "" {
		return nil, errors.New("locks: Adopt with an empty token: allowed is what Lease.Detach returned")
	}
	adopter, ok := s.p.(Adopter)
	if !ok {
		return nil, fmt.Errorf("locks: Adopt: %w by this algorithm", ErrUnsupported)
	}
	c, err := s.lock(name).claim(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	c.Due = start.Add(s.o.OpTimeout)
	g, err := adopter.Adopt(ctx, c, token)
	if err != nil {
		err, remains := unmark(err)
		if c.Grant.State = g.State; remains || errors.Is(err, ErrUnknown) {
			s.undo(c)
		}
		return nil, endedBy(ctx, err)
	}
	lease := newLease(s, c, g, start)
	if err := lease.Err(); err != nil {
		s.undo(lease.claim) // renewed too late to be of use: nobody else will release it
		return nil, err
	}
	if s.isClosed() { // Close came meanwhile: nobody would renew it
		s.undo(lease.claim)
		return nil, ErrClosed
	}
	lease.begin(ctx, 1, start)
	return lease, nil
}

// operatorClaim is a claim without a token of its own.
func (s *Strategy) operatorClaim(ctx context.Context, name string) (Claim, error) {
	l := s.lock(name)
	if l.err != nil {
		return Claim{}, l.err
	}
	if ctx.Err() != nil {
		return Claim{}, fmt.Errorf("lock %q: %w", name, contextError(ctx))
	}
	return Claim{Name: name, Key: l.key, TTL: s.o.TTL, Due: time.Now().Add(s.o.OpTimeout)}, nil
}

// Close ends everything: whoever waits in Acquire gets ErrClosed, renewal stops,
// clean-ups under way get a last try, and the connections that New made are
// closed (the user's pool is not). It waits until no goroutine is left. Locks that
// are still held are not released, because their work may still go on: they lapse
// with their TTL, and [Lease.Lost] tells. Further calls do nothing.
//
// The error says which acquires or releases of unknown outcome could not be
// undone; their keys go with their TTL.
func (s *Strategy) Close() error {
	s.mu.Lock()
	first := !s.closed
	if first {
		s.closed = true
		close(s.closing)
	}
	for s.active > 0 { // each ends within about one operation time-out
		s.idle.Wait()
	}
	s.done = true
	err := s.undone
	rest := slices.Collect(maps.Values(s.lines)) // on leases that are held still
	clear(s.lines)
	for _, ln := range rest {
		ln.unlook()
	}
	s.mu.Unlock()
	for _, ln := range rest {
		ln.unlisten()
	}
	if !first {
		return nil
	}
	if closer, ok := s.p.(io.Closer); ok {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// enter counts a request that Close must wait for.
func (h *house) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	h.active++
	return nil
}

func (h *house) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active--; h.active == 0 {
		h.idle.Broadcast()
	}
}

// isClosed tells whether a request would be refused, because Close has begun.
func (s *Strategy) isClosed() bool {
	if w, ok := s.p.(wholes); ok {
		return w.u.closed() != nil
	}
	return s.house.isClosed()
}

func (h *house) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// background runs f on a goroutine that Close waits for. It does so also while
// Close is waiting, for what must be cleaned up then; not after.
func (h *house) background(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return
	}
	h.active++
	go func() {
		defer h.leave()
		f()
	}()
}

// undo ends a claim whose end nobody knows, in the background: it repeats the
// release until the servers confirm, or until one TTL has passed since an acquire
// could have taken effect last: then the key is gone by itself.
func (s *Strategy) undo(c Claim) {
	c.Undo = true
	s.background(func() {
		began := time.Now()
		until := began.Add(c.TTL)
		if due := c.Due.Add(c.TTL); due.After(until) {
			until = due
		}
		for last := false; ; {
			c.Due = time.Now().Add(s.o.OpTimeout)
			err := s.p.Release(context.Background(), c) // Remains(nil) is an error: go on
			now := time.Now()
			answered := errors.Is(err, ErrRefused) || errors.Is(err, errAcquireMayArrive)
			_, remains := unmark(err)
			if !answered && (remains || c.Grant.IsZero() && !c.Force) {
				// A server that stands still has not begun to count: it may execute
				// the acquire when it goes on, and only then does the TTL begin. So may
				// one of several, though the others have granted the lock.
				until = now.Add(min(c.TTL, MaxTTL-now.Sub(began)))
			}
			if err == nil || !now.Before(until) {
				return
			}
			if last {
				s.couldNotUndo(c, err)
				return
			}
			select {
			case <-time.After(min(undoPause(s.o.OpTimeout, now.Sub(began), answered), until.Sub(now))):
			case <-s.closing:
				last = true
			}
		}
	})
}

// undoPause is short against the operation time-out: a server that thaws must not
// keep a ghost for longer than that. It grows with the time that has gone by, for a
// TTL can be a day, and a server gone for good; and more when the server has
// answered, so that only a straggler is waited for.
func undoPause(opTimeout, gone time.Duration, answered bool) time.Duration {
	if answered {
		return max(opTimeout/4, 5*time.Millisecond, gone/4)
	}
	return max(opTimeout/4, 5*time.Millisecond, gone/16)
}

func (s *Strategy) couldNotUndo(c Claim, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undone = errors.Join(s.undone, fmt.Errorf("lock %q: token %q may hold it until its TTL ends: %w", c.Name, c.Token, err))
}

// missed tells that a call ends without the lock that it asked for.
func (s *Strategy) missed(ctx context.Context, name string, asked time.Time, err error) {
	s.observe(Event{Kind: EventMissed, Context: ctx, Name: name, Took: time.Since(asked), Err: err})
}

func (s *Strategy) observe(e Event) {
	if s.o.Observe != nil {
		s.o.Observe(e)
	}
}
