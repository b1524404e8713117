// Package lockstest is for unit tests of code that uses locks: a [strategy.Strategy] in one line, on a lock server in
// memory, whose locks are held, are lost or fail when the test says so.
//
//	locks := lockstest.New(t)
//	service := Service{Locks: locks}
//	release := locks.Hold("invoice/42")           // another process has the lock
//	locks.Lose("invoice/42")                      // the holder loses it, and knows
//	locks.Advance(time.Minute)                    // the holder was paused past its TTL, and does not know
//	locks.Fail(lockstest.Unreachable)             // until locks.Fail(nil)
//	locks.FailNext(lockstest.LostReply)           // one request
//	locks.AssertFree()                            // also done at the end of the test
//	permits := locks.Semaphore(2, strategy.Options{}) // of another process
//
// The server does what Redis with package fairqueue does, and package conformance tests that. Time is that of package
// time: in a bubble of testing/synctest, time.Sleep moves it for the server and all processes alike, and waiting takes
// no time.
package lockstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// Locks is the Strategy of a process with default options, and the server in memory that it uses. With gives other
// options. All methods may be called from any goroutine, but Process and Semaphore only from that of the test. Hold and
// Lose name a lock as NewLock does; if it has an Options.Key of its own, they know it once a call to acquire it has
// returned.
type Locks struct {
	strategy.Strategy

	t      testing.TB
	server Memory

	mu     sync.Mutex
	opened []strategy.Strategy
	known  map[string]known  // by key
	keys   map[string]string // of a name: the last that it had
	holds  int               // how often Hold was called
	fault  Fault
	script []Fault
}

// known is what Locks keeps of a lock.
type known struct {
	name   string
	p      driver.Protocol
	leases []strategy.Lease // of a semaphore all; otherwise the last one
}

// any reports whether a lease is over in that way; nil: whether one is not over.
func (k known) any(over error) bool {
	return slices.ContainsFunc(k.leases, func(l strategy.Lease) bool { return errors.Is(l.Err(), over) })
}

// New returns the locks of one test. At the end of the test failures end, all strategies are closed, and the test fails
// if a lock is still held: see [Locks.AssertFree]. In a bubble of testing/synctest t is the bubble's.
func New(t testing.TB) *Locks {
	t.Helper()
	l := &Locks{t: t, known: map[string]known{}, keys: map[string]string{}}
	l.server.Intercept(l.intercept)
	l.Strategy = l.Process(strategy.Options{})
	t.Cleanup(func() {
		t.Helper()
		l.Fail(nil)
		for _, s := range l.opened {
			if err := s.Close(); err != nil {
				t.Errorf("lockstest: Close: %v", err)
			}
		}
		if !t.Failed() { // a test that gave up has not released its locks
			l.AssertFree()
		}
	})
	return l
}

// Process returns the Strategy of another process that uses the same server. Bad options end the test.
func (l *Locks) Process(o strategy.Options) strategy.Strategy {
	l.t.Helper()
	s, err := engine.New(&l.server, o)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.open(s, &l.server)
}

// Semaphore returns the semaphore of another process on the same server, which has so many permits for each lock. Bad
// options end the test. To play holders of permits use one more Semaphore: Hold is for a lock of one holder.
func (l *Locks) Semaphore(permits int, o strategy.Options) strategy.Semaphore {
	l.t.Helper()
	s, err := l.server.Semaphore(permits, o)
	if err != nil {
		l.t.Fatal(err)
	}
	return semaphore{l.open(s, l.server.Shares(nil, permits)), s}
}

func (l *Locks) open(s strategy.Strategy, p driver.Protocol) process {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened = append(l.opened, s)
	return process{s, l, p}
}

// holder marks the tokens of Hold.
const holder = ":lockstest.Hold"

// Hold makes another process the holder of a free lock, until release is called. Others get strategy.ErrHeld, or wait;
// release lets the first waiter in. If the lock is not free, the test fails, and release does nothing.
//
// The holder needs no renewal. Its TTL is 24 h: Lose ends it, and so does an Advance of more.
func (l *Locks) Hold(name string) (release func()) {
	l.t.Helper()
	l.mu.Lock()
	l.holds++
	token := fmt.Sprintf("00000000-0000-4000-8000-%012x%s", l.holds, holder)
	l.mu.Unlock()
	c := driver.Claim{Name: name, Key: l.key(name), Token: token, Owner: token, TTL: contract.MaxTTL}
	if _, err := l.server.Acquire(pastFaults, c); err != nil {
		l.t.Errorf("lockstest: Hold(%q): %v: allowed is a lock that is free", name, err)
	}
	return func() {
		l.server.Release(pastFaults, c) //nolint:errcheck // it may have been lost, or never held
	}
}

// Lose takes a lock from its holder, as an operator does, and lets the first waiter in. When Lose returns, the holder
// knows: the lease's Lost is closed, its contexts have ended, and Err is strategy.ErrLost. If nobody holds the lock, the
// test fails. Of a semaphore it takes the permits of the hold that ends first.
func (l *Locks) Lose(name string) {
	l.t.Helper()
	c := driver.Claim{Name: name, Key: l.key(name)}
	l.mu.Lock()
	k := l.known[c.Key]
	l.mu.Unlock()
	if k.p == nil { // held by Hold alone
		k.p = &l.server
	}
	info, err := k.p.Inspect(pastFaults, c)
	if err != nil || !info.Held {
		l.t.Errorf("lockstest: Lose(%q): nobody holds it: allowed is a lock that is held", name)
		return
	}
	c.Token = info.Token
	k.p.Release(pastFaults, c) //nolint:errcheck // its holder may have just released it
	_, several := k.p.(driver.Sharer)
	for _, lease := range k.leases {
		if several && lease.Token() != c.Token {
			continue
		}
		// It finds that the lock is lost. On a machine that is too slow for the operation time-out it asks again.
		for err := lease.Extend(pastFaults); errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent); {
			err = lease.Extend(pastFaults)
		}
	}
}

// Advance moves the server's clock on by d, and no other clock. So it plays holders that were paused for d: a lock
// whose TTL is over is free, and its holder does not know until its next renewal or its deadline. Then another process
// can acquire the lock, with a greater fence, before the paused holder writes. A caller that waits already asks again
// when the holder's TTL is over by the caller's own clock. If d is negative, the server's clock is set back.
func (l *Locks) Advance(d time.Duration) { l.server.Advance(d) }

// AssertFree fails the test for each lock that is held now, and names its holder. A lock that Hold holds counts as
// free, and so does one whose lease is lost: nobody can release it, and its TTL ends it. After strategy.ErrUnknown the
// engine releases in the background: in a bubble call synctest.Wait first.
func (l *Locks) AssertFree() {
	l.t.Helper()
	l.mu.Lock()
	all := maps.Clone(l.known)
	l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		k := all[key]
		info, err := k.p.Inspect(pastFaults, driver.Claim{Name: k.name, Key: key})
		lost := k.any(strategy.ErrLost) && !k.any(nil)
		if err == nil && info.Held && !lost && !strings.HasSuffix(info.Token, holder) {
			l.t.Errorf("lockstest: lock %q is still held by %q for up to %v: release its lease, or end it with Lose",
				k.name, strategy.ShortToken(info.Token), info.TTL.Round(time.Millisecond))
		}
	}
}

// key is the lock's on the server.
func (l *Locks) key(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key, ok := l.keys[name]; ok {
		return key
	}
	return strategy.DefaultKey(name)
}

// learn notes the lock, and the lease that a call has returned for it.
func (l *Locks) learn(p driver.Protocol, lock strategy.Lock, lease strategy.Lease, err error) (strategy.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.known[lock.Key()]
	k.name = lock.Name()
	if err == nil || k.p == nil { // a semaphore that asks for a lock of one holder is refused
		k.p = p
	}
	if _, several := p.(driver.Sharer); err == nil && !several {
		k.leases = nil
	}
	if err == nil {
		k.leases = append(k.leases, lease)
	}
	l.known[lock.Key()], l.keys[lock.Name()] = k, lock.Key()
	return lease, err
}

// process is the Strategy of a process whose locks and leases are noted.
type process struct {
	strategy.Strategy
	l *Locks
	p driver.Protocol
}

func (p process) NewLock(name string) strategy.Lock { return lock{p.Strategy.NewLock(name), p} }

func (p process) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	made, err := p.Strategy.With(change)
	if err != nil {
		return nil, err
	}
	return process{made, p.l, p.p}, nil
}

func (p process) Adopt(ctx context.Context, name, token string) (strategy.Lease, error) {
	lease, err := p.Strategy.Adopt(ctx, name, token)
	return p.l.learn(p.p, p.Strategy.NewLock(name), lease, err)
}

// semaphore is a process whose locks have permits.
type semaphore struct {
	process
	s strategy.Semaphore
}

func (s semaphore) NewMultiPermitLock(name string, permits int) strategy.Lock {
	return lock{s.s.NewMultiPermitLock(name, permits), s.process}
}

func (s semaphore) SetPermits(ctx context.Context, name string, permits int) error {
	return s.s.SetPermits(ctx, name, permits)
}

func (s semaphore) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	made, err := s.s.With(change)
	if err != nil {
		return nil, err
	}
	return semaphore{process{made, s.l, s.p}, made.(strategy.Semaphore)}, nil
}

type lock struct {
	strategy.Lock
	p process
}

func (k lock) TryAcquire(ctx context.Context) (strategy.Lease, error) {
	lease, err := k.Lock.TryAcquire(ctx)
	return k.p.l.learn(k.p.p, k.Lock, lease, err)
}

func (k lock) Acquire(ctx context.Context) (strategy.Lease, error) {
	lease, err := k.Lock.Acquire(ctx)
	return k.p.l.learn(k.p.p, k.Lock, lease, err)
}
