package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// Semaphore returns a strategy on m whose locks have so many permits.
func (m *Memory) Semaphore(permits int, o strategy.Options) (strategy.Semaphore, error) {
	if permits < 1 {
		return nil, fmt.Errorf("locks: a semaphore of %d permits: allowed are 1 and more", permits)
	}
	return newSemaphore(m.shares(nil, permits), o)
}

// ReadWriter returns a strategy on m whose locks many may hold to read, or one to write.
func (m *Memory) ReadWriter(o strategy.Options) (strategy.ReadWriter, error) {
	return newReadWriter(m.shares(nil, 0), o)
}

// semaphore adds to the engine's strategy what only a semaphore can do.
type semaphore struct {
	strategy.Strategy
	p permitSetter
}

type permitSetter interface {
	driver.Protocol
	setPermits(ctx context.Context, c driver.Claim, permits int) error
}

func newSemaphore(p permitSetter, o strategy.Options) (strategy.Semaphore, error) {
	s, err := engine.New(p, o)
	if err != nil {
		return nil, err
	}
	return semaphore{s, p}, nil
}

func (s semaphore) With(o strategy.Options) (strategy.Strategy, error) {
	made, err := s.Strategy.With(o)
	if err != nil {
		return nil, err
	}
	return semaphore{made, s.p}, nil
}

func (s semaphore) NewWeightedLock(name string, permits int) strategy.Lock {
	return engine.NewShare(s.Strategy, name, permits)
}

func (s semaphore) SetPermits(ctx context.Context, name string, permits int) error {
	if permits < 0 {
		return fmt.Errorf("locks: SetPermits of %q to %d: allowed are 0 and more", name, permits)
	}
	return engine.Ask(ctx, s.Strategy, name, func(ctx context.Context, c driver.Claim) error {
		return s.p.setPermits(ctx, c, permits)
	})
}

// readWriter adds to the engine's strategy what only a lock to read and to write can do.
type readWriter struct{ strategy.Strategy }

func newReadWriter(p driver.Protocol, o strategy.Options) (strategy.ReadWriter, error) {
	s, err := engine.New(p, o)
	if err != nil {
		return nil, err
	}
	return readWriter{s}, nil
}

func (s readWriter) With(o strategy.Options) (strategy.Strategy, error) {
	made, err := s.Strategy.With(o)
	if err != nil {
		return nil, err
	}
	return readWriter{made}, nil
}

// reading is the share of a claim to read; to write it is zero.
const reading = 1

func (s readWriter) NewRLock(name string) strategy.Lock {
	return engine.NewShare(s.Strategy, name, reading)
}

func (s readWriter) Downgrade(ctx context.Context, write strategy.Lease) (strategy.Lease, error) {
	return engine.Exchange(ctx, s.Strategy, write, reading)
}

// shares is the protocol of locks on a Memory that several may hold. It renews and watches as that of locks of one
// holder. It has Pass, too, for which the engine has no use here.
type shares struct {
	gatedMemory
	permits int // of a lock whose number is not set; 0: a lock to read and to write
	next    turn
}

// A turn returns the place in the queue, from 0, of the claim that joins the holders next; negative: none does. The
// lock has that many permits. wrote says that there was a writer when the request came.
type turn func(l *memoryLock, queue []driver.Claim, permits int, wrote bool) int

func (m *Memory) shares(g Gate, permits int) shares {
	if permits == 0 {
		return shares{gatedMemory{m, g}, 0, inPhases}
	}
	return shares{gatedMemory{m, g}, permits, inOrder}
}

// inOrder is the turn of the first in the queue, if as many permits are free as it wants, or if it wants more than
// there are.
func inOrder(l *memoryLock, queue []driver.Claim, permits int, _ bool) int {
	if len(queue) == 0 {
		return -1
	}
	if wants := weight(queue[0].Share); wants <= permits && wants > permits-l.taken() {
		return -1
	}
	return 0
}

// inPhases is the turn of readers and writers alternately: when a writer has gone, of all readers that wait, and when
// they have gone, of the first in the queue. That is a writer, because readers wait for writers alone.
func inPhases(l *memoryLock, queue []driver.Claim, _ int, wrote bool) int {
	reader := slices.IndexFunc(queue, func(c driver.Claim) bool { return c.Share == reading })
	switch {
	case len(queue) == 0 || l.writes():
		return -1
	case wrote && reader >= 0:
		return reader
	case reader == 0 || len(l.holds) == 0:
		return 0
	}
	return -1
}

func weight(share int32) int { return int(max(share, 1)) }

// taken is how many permits the holders have.
func (l *memoryLock) taken() (n int) {
	for _, h := range l.holds {
		n += weight(h.share)
	}
	return n
}

// writes reports whether one of the holders writes. A nil lock has none.
func (l *memoryLock) writes() bool {
	return l != nil && slices.ContainsFunc(l.holds, func(h memoryHold) bool { return h.share != reading })
}

// first is the hold that ends first; empty if nobody holds the lock.
func (l *memoryLock) first() memoryHold {
	if len(l.holds) == 0 {
		return memoryHold{}
	}
	return slices.MinFunc(l.holds, func(a, b memoryHold) int { return a.until.Compare(b.until) })
}

// MaxShare is how much of a lock one claim may ask for.
func (s shares) MaxShare() int {
	if s.permits == 0 {
		return reading
	}
	return 1000
}

// Acquire gives the claim the last place in the queue, from which it may get in at once. If it does not, and has
// no Line, it leaves the queue again.
func (s shares) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	kept := false
	return s.request(ctx, OpAcquire, c, func(l *memoryLock) error {
		kept = s.queued(c) >= 0
		if h := l.hold(c.Token); h != nil { // queued, and granted meanwhile
			h.until = time.Now().Add(c.TTL)
		} else if s.tooMany(c) {
			return Refused("more permits are asked for than there are")
		} else if !kept {
			s.joinQueue(c)
		}
		return nil
	}, func(l *memoryLock) (driver.Grant, error) {
		if h := l.hold(c.Token); h != nil {
			return driver.Grant{Fence: h.fence}, nil
		}
		now, place := time.Now(), int32(s.queued(c)+1)
		if c.Line == "" {
			place, kept = 0, false
			s.dequeue(c)
		}
		first := l.first()
		held := &strategy.HeldError{Name: c.Name, Holder: first.token, TTL: max(first.until.Sub(now), 0)}
		return driver.Grant{ServerTime: serverTime(now), Place: place, Kept: kept}, held
	})
}

// Adopt puts the claim's token in another's place, with a new fence. The hold keeps its share, unless the claim
// has one: that is how a writer becomes a reader.
func (s shares) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	var g driver.Grant
	return s.request(ctx, OpAdopt, c, func(l *memoryLock) error {
		h := l.hold(from)
		if h == nil {
			return &strategy.LostError{Name: c.Name}
		}
		if c.Share == 0 {
			c.Share = h.share
		}
		*h = s.newHold(l, c, c.TTL)
		g.Fence = h.fence
		return nil
	}, func(*memoryLock) (driver.Grant, error) { return g, nil })
}

// Release takes the token's hold away.
func (s shares) Release(ctx context.Context, c driver.Claim) error {
	_, err := s.request(ctx, OpRelease, c, func(l *memoryLock) error {
		if c.Undo {
			s.dequeue(c)
		}
		switch held := l.hold(c.Token) != nil; {
		case !held && !c.Undo:
			return &strategy.LostError{Name: c.Name}
		case !held && s.arriving[c.Token] > 0:
			return Unknown()
		}
		l.end(c.Token)
		return nil
	}, nil)
	return err
}

// setPermits sets how many permits the lock has; 0: as many as its process says.
func (s shares) setPermits(ctx context.Context, c driver.Claim, permits int) error {
	_, err := s.request(ctx, OpPermits, c, func(*memoryLock) error {
		if s.limits == nil {
			s.limits = map[string]int{}
		}
		if s.limits[c.Key] = permits; permits == 0 {
			delete(s.limits, c.Key)
		}
		return nil
	}, nil)
	return err
}

// Inspect reports the hold that ends first, how much of the lock is held, and which claims queue for it.
func (s shares) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	info, err := s.gatedMemory.Inspect(ctx, c)
	if err != nil || !info.Held {
		return info, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.find(c.Key); l != nil {
		first := l.first()
		info.Token, info.Owner, info.TTL, info.Holds, info.Fence = first.token, first.token, time.Until(first.until), l.taken(), s.fences[c.Key]
	}
	return info, nil
}

// request changes the lock, lets in those whose turn it is then, and answers.
func (s shares) request(ctx context.Context, op Op, c driver.Claim, change func(l *memoryLock) error, answer func(l *memoryLock) (driver.Grant, error)) (driver.Grant, error) {
	arrives := func(n int) {
		if op == OpAcquire || op == OpAdopt {
			s.arrives(c.Token, n)
		}
	}
	arrives(1)
	return ask(s.Memory, s.through(ctx), Request{op, []driver.Claim{c}}, func() { arrives(-1) }, func() (g driver.Grant, err error) {
		s.mu.Lock()
		var told []func()
		defer func() {
			s.mu.Unlock()
			for _, tell := range told {
				tell()
			}
		}()
		wrote, before := s.locks[c.Key].writes(), s.firstInQueue(c.Key) // wrote: also a writer that has lapsed
		l := s.find(c.Key)
		switch {
		case l == nil:
			l = &memoryLock{}
		case l.foreign:
			return g, errForeign
		}
		err = change(l)
		told = s.serve(l, c, wrote)
		if err == nil && answer != nil {
			g, err = answer(l)
		}
		if s.put(c.Key, l); len(l.holds) == 0 {
			delete(s.locks, c.Key)
		}
		if first := s.firstInQueue(c.Key); before != "" && first != before {
			told = append(told, s.tellFirst(c.Key, max(time.Until(l.first().until), time.Millisecond)))
		}
		if op != OpAcquire {
			told = append(told, s.tellReleased(c.Key, c.Token))
		}
		return g, err
	})
}

// serve lets in those whose turn it is. The claim that asks gets an answer, the others are notified. One that does
// not listen leaves the queue, and so does one that wants more permits than there are now: it asks, and is refused.
// The caller holds mu, and calls told without it.
func (s shares) serve(l *memoryLock, asks driver.Claim, wrote bool) (told []func()) {
	for {
		queue := s.queues[asks.Key]
		i := s.next(l, queue, s.limit(asks.Key), wrote)
		if i < 0 {
			return told
		}
		c, w := queue[i], s.listening(queue[i])
		s.dequeue(c)
		switch {
		case c.Token == asks.Token:
			l.holds = append(l.holds, s.newHold(l, c, c.TTL))
		case w == nil:
		case s.tooMany(c):
			told = append(told, func() { w.tell(driver.Notification{Next: time.Millisecond}) })
		default:
			h := s.newHold(l, c, driver.SuccessorTTL(c.TTL))
			l.holds = append(l.holds, h)
			g := driver.Grant{Fence: h.fence, Fences: 1, TTL: driver.SuccessorTTL(c.TTL), ServerTime: serverTime(time.Now())}
			told = append(told, func() { w.tell(driver.Notification{Token: c.Token, Grant: g}) })
		}
	}
}

// newHold is c's for ttl. Its fence is new, but for a reader that finds the lock held: it has that of the holders. The
// caller holds mu.
func (s shares) newHold(l *memoryLock, c driver.Claim, ttl time.Duration) memoryHold {
	h := memoryHold{token: c.Token, until: time.Now().Add(ttl), share: c.Share, fence: s.fences[c.Key]}
	if s.permits > 0 || c.Share != reading || len(l.holds) == 0 {
		h.fence = s.nextFences(c.Key, 1)
	}
	return h
}

// limit is how many permits the lock has. The caller holds mu.
func (s shares) limit(key string) int {
	if n := s.limits[key]; n > 0 {
		return n
	}
	return s.permits
}

// tooMany reports whether c wants more permits than there are. The caller holds mu.
func (s shares) tooMany(c driver.Claim) bool {
	return s.permits > 0 && weight(c.Share) > s.limit(c.Key)
}

// firstInQueue is the token of the claim that waits for key in the first place; empty: nobody waits. The caller holds
// mu.
func (m *Memory) firstInQueue(key string) string {
	if len(m.queues[key]) == 0 {
		return ""
	}
	return m.queues[key][0].Token
}
