// Each property convicts the faults that are named after it, on locks in memory that make one mistake
// each; and there is no property without such a fault. Time is fake.
package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// A faulty is a Memory that makes one of its moves wrongly.
type faulty struct {
	gatedMemory
	moves
}

// moves replaces those that are not nil. Each gets the sound protocol.
type moves struct {
	acquire func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error)
	extend  func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error)
	adopt   func(p gatedMemory, ctx context.Context, c driver.Claim, from string) (driver.Grant, error)
	release func(p gatedMemory, ctx context.Context, c driver.Claim) error
	watch   func(p gatedMemory, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error)
	inspect func(p gatedMemory, ctx context.Context, c driver.Claim) (strategy.Info, error)
	pass    func(p gatedMemory, ctx context.Context, c, next driver.Claim) (driver.Grant, error)
}

func (f faulty) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if f.acquire == nil {
		return f.gatedMemory.Acquire(ctx, c)
	}
	return f.acquire(f.gatedMemory, ctx, c)
}

func (f faulty) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if f.extend == nil {
		return f.gatedMemory.Extend(ctx, c)
	}
	return f.extend(f.gatedMemory, ctx, c)
}

func (f faulty) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	for i, c := range cs {
		g, err := f.Extend(ctx, c)
		done(i, g, err)
	}
}

func (f faulty) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	if f.adopt == nil {
		return f.gatedMemory.Adopt(ctx, c, from)
	}
	return f.adopt(f.gatedMemory, ctx, c, from)
}

func (f faulty) Release(ctx context.Context, c driver.Claim) error {
	if f.release == nil {
		return f.gatedMemory.Release(ctx, c)
	}
	return f.release(f.gatedMemory, ctx, c)
}

func (f faulty) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	if f.watch == nil {
		return f.gatedMemory.Watch(ctx, c, fn)
	}
	return f.watch(f.gatedMemory, ctx, c, fn)
}

func (f faulty) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	if f.inspect == nil {
		return f.gatedMemory.Inspect(ctx, c)
	}
	return f.inspect(f.gatedMemory, ctx, c)
}

func (f faulty) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	if f.pass == nil {
		return f.gatedMemory.Pass(ctx, c, next)
	}
	return f.pass(f.gatedMemory, ctx, c, next)
}

// noQueue hides the queue: its Pass is not that of a [driver.Queuer].
type noQueue struct{ faulty }

func (noQueue) Pass() {}

// onAll makes every move with claims changed by f.
func onAll(f func(*driver.Claim)) moves {
	return moves{
		acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			f(&c)
			return p.Acquire(ctx, c)
		},
		extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			f(&c)
			return p.Extend(ctx, c)
		},
		release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			f(&c)
			return p.Release(ctx, c)
		},
	}
}

// set overwrites what is at the claim's key.
func (m *Memory) set(c driver.Claim, until time.Time) driver.Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &memoryLock{owner: c.Owner, holds: []memoryHold{{token: c.Token, until: until}}, fence: m.nextFences(c.Key, 1)}
	m.put(c.Key, l)
	return m.grant(l)
}

// at returns the token at key; empty: the key is free.
func (m *Memory) at(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(key); l != nil && len(l.holds) > 0 {
		return l.holds[0].token
	}
	return ""
}

// until returns until when the server counts for what is at key.
func (m *Memory) until(key string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(key); l != nil {
		return l.until()
	}
	return time.Time{}
}

// counts makes the server count ttl from now for whatever is at key.
func (m *Memory) counts(key string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(key); l != nil {
		for i := range l.holds {
			l.holds[i].until = until
		}
	}
}

func goroutineID() string {
	buf := make([]byte, 64)
	return string(bytes.Fields(buf[:runtime.Stack(buf, false)])[1])
}

// A mutant is a lock with one fault, and the properties that must convict it, each
// on its own.
type mutant struct {
	name     string
	killed   []string
	moves    func(t *testing.T) moves
	claims   func(*Subject) // changed claims
	reenters bool           // its server lets owners in again
	noQueue  bool           // its server keeps no queue
}

// mutants are all that must be convicted.
var mutants = slices.Concat(commonMutants, clockMutants, reentryMutants, sharingMutants)

// always are moves that need no state.
func always(m moves) func(*testing.T) moves { return func(*testing.T) moves { return m } }

var commonMutants = []mutant{
	{
		name: "grants always", killed: []string{"Exclusive"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrHeld) {
				err = nil
			}
			return g, err
		}}),
	},
	{
		name: "try waits", killed: []string{"TryDoesNotWait"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			for {
				g, err := p.Acquire(ctx, c)
				if !errors.Is(err, strategy.ErrHeld) {
					return g, err
				}
				time.Sleep(time.Millisecond)
			}
		}}),
	},
	{
		name: "release does nothing", killed: []string{"ReleaseFrees", "ReleaseAnywhere", "ReleaseDetached", "CancelRacesGrant", "LeavesNothing"},
		moves: always(moves{release: func(gatedMemory, context.Context, driver.Claim) error { return nil }}),
	},
	{
		name: "one lock for all names", killed: []string{"NamesIndependent", "OddNames"},
		moves: always(onAll(func(c *driver.Claim) { c.Key = "lock" })),
	},
	{
		name: "lets owners in again, and says it does not", killed: []string{"Reentry"},
		reenters: true,
		claims:   func(s *Subject) { s.Reentrant = false },
	},
	{
		name: "does not let owners in again, and says it does", killed: []string{"Reentry"},
		claims: func(s *Subject) { s.Reentrant = true },
	},
	{
		name: "looks, then takes", killed: []string{"Contention", "NoLostUpdate", "OneTakesOver"},
		moves: always(moves{acquire: func(p gatedMemory, _ context.Context, c driver.Claim) (driver.Grant, error) {
			if holder := p.at(c.Key); holder != "" {
				return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: holder}
			}
			time.Sleep(time.Millisecond) // others look meanwhile
			return p.set(c, time.Now().Add(c.TTL)), nil
		}}),
	},
	{
		name: "forgets the token on release", killed: []string{"ReleaseOnlyOwn", "ReleaseAtomic", "ForceRelease"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) (err error) {
			p.gate("DEL", func() { err = p.Evict(ctx, c.Key) })
			return err
		}}),
	},
	{
		name: "hides that it came too late to release", killed: []string{"ReleaseAfterLoss"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			err := p.Release(ctx, c)
			if errors.Is(err, strategy.ErrLost) {
				err = nil
			}
			return err
		}}),
	},
	{
		name: "compares, then deletes", killed: []string{"ReleaseAtomic"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) (err error) {
			var holder string
			p.gate("GET", func() { holder = p.at(c.Key) })
			if holder != c.Token {
				return &strategy.LostError{Name: c.Name, Holder: holder}
			}
			p.gate("DEL", func() { err = p.Evict(ctx, c.Key) })
			return err
		}}),
	},
	{
		name: "belongs to the goroutine that acquired it", killed: []string{"ReleaseAnywhere"},
		moves: func(*testing.T) moves {
			var holder sync.Map
			return moves{
				acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					holder.Store(c.Token, goroutineID())
					return p.Acquire(ctx, c)
				},
				release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
					if id, _ := holder.Load(c.Token); id != goroutineID() {
						return &strategy.LostError{Name: c.Name}
					}
					return p.Release(ctx, c)
				},
			}
		},
	},
	{
		name: "forgets the token on extend", killed: []string{"ExtendOnlyOwn"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if holder := p.at(c.Key); holder != "" {
				c.Token = holder
			}
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "forgets the token on adopt", killed: []string{"AdoptOnlyHeld", "AdoptOnce"},
		moves: always(moves{adopt: func(p gatedMemory, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			if holder := p.at(c.Key); holder != "" {
				from = holder
			}
			return p.Adopt(ctx, c, from)
		}}),
	},
	{
		name: "adopts in silence", killed: []string{"AdoptionWakes"}, noQueue: true,
		moves: always(moves{adopt: func(p gatedMemory, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			p.mu.Lock()
			deaf := p.watches[c.Key]
			delete(p.watches, c.Key)
			p.mu.Unlock()
			defer func() {
				p.mu.Lock()
				p.watches[c.Key] = append(p.watches[c.Key], deaf...)
				p.mu.Unlock()
			}()
			return p.Adopt(ctx, c, from)
		}}),
	},
	{
		name: "compares, then extends", killed: []string{"ExtendAtomic"},
		moves: always(moves{extend: func(p gatedMemory, _ context.Context, c driver.Claim) (driver.Grant, error) {
			var holder string
			p.gate("GET", func() { holder = p.at(c.Key) })
			if holder != c.Token {
				return driver.Grant{}, &strategy.LostError{Name: c.Name, Holder: holder}
			}
			p.gate("PEXPIRE", func() { p.counts(c.Key, time.Now().Add(c.TTL)) })
			return driver.Grant{}, nil
		}}),
	},
	{
		name: "an operator releases any holder", killed: []string{"ForceRelease"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			if c.Grant.IsZero() && !c.Undo {
				return p.Evict(ctx, c.Key)
			}
			return p.Release(ctx, c)
		}}),
	},
	{
		name: "never expires", killed: []string{"Expires", "FailedTryChangesNothing", "WokenAtExpiry", "ExtendRestarts", "ExpiryLeavesNothing"},
		moves: always(onAll(func(c *driver.Claim) { c.TTL = time.Hour })),
	},
	{
		name: "expires early", killed: []string{"DeadlineIsSafe", "KeptAlive"},
		moves: always(onAll(func(c *driver.Claim) { c.TTL /= 4 })),
	},
	{
		name: "counts from the reply, however late that comes", killed: []string{"DeadlineFromRequest", "LateGrant"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			c.Due = time.Time{}
			g, err := p.Acquire(ctx, c)
			g.Start = time.Now()
			return g, err
		}}),
	},
	{
		name: "ignores Due", killed: []string{"TimeOut"},
		moves: always(onAll(func(c *driver.Claim) { c.Due = time.Time{} })),
	},
	{
		name: "ignores Due on extend", killed: []string{"TimeOut"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			c.Due = time.Time{}
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "ignores Due on release", killed: []string{"TimeOut"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			c.Due = time.Time{}
			return p.Release(ctx, c)
		}}),
	},
	{
		name: "ignores Due on adopt", killed: []string{"TimeOut"},
		moves: always(moves{adopt: func(p gatedMemory, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			c.Due = time.Time{}
			return p.Adopt(ctx, c, from)
		}}),
	},
	{
		name: "ignores Due on inspect", killed: []string{"TimeOut"},
		moves: always(moves{inspect: func(p gatedMemory, ctx context.Context, c driver.Claim) (strategy.Info, error) {
			c.Due = time.Time{}
			return p.Inspect(ctx, c)
		}}),
	},
	{
		name: "ignores Due on pass", killed: []string{"TimeOutInLine"},
		moves: always(moves{pass: func(p gatedMemory, ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
			c.Due = time.Time{}
			return p.Pass(ctx, c, next)
		}}),
	},
	{
		name: "ignores Due on watch", killed: []string{"UnansweredWaiter"},
		moves: always(moves{watch: func(p gatedMemory, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			c.Due = time.Time{}
			return p.Watch(ctx, c, fn)
		}}),
	},
	{
		name: "calls a server that does not answer held", killed: []string{"TimeOut", "Persist"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrUnknown) {
				err = &strategy.HeldError{Name: c.Name}
			}
			return g, err
		}}),
	},
	{
		name: "every undo succeeds at once", killed: []string{"LateRequestUndone"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			err := p.Release(ctx, c)
			if c.Undo {
				err = nil
			}
			return err
		}}),
	},
	{
		// Its Evict deletes the row, so ExtendNeverRecreates sees nothing of it.
		name: "extend revives an expired row", killed: []string{"LateExtension"},
		claims: func(s *Subject) {
			m := &Memory{}
			var rows sync.Map // the last token, by key; also of an expired lock
			faults := moves{
				acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					g, err := p.Acquire(ctx, c)
					if err == nil {
						rows.Store(c.Key, c.Token)
					}
					return g, err
				},
				extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (g driver.Grant, err error) {
					c.Due = time.Time{} // the answer is waited for
					p.gate("UPDATE", func() {
						if row, _ := rows.Load(c.Key); row == c.Token && p.at(c.Key) == "" {
							g = p.set(c, time.Now().Add(c.TTL))
						} else {
							g, err = p.Memory.Extend(ctx, c)
						}
					})
					return g, err
				},
			}
			*s = m.subject(s.Name)
			s.misled(m, faults, false)
			s.Evict = func(ctx context.Context, key string) error {
				rows.Delete(key)
				return m.Evict(ctx, key)
			}
		},
	},
	{
		name: "does not report that a watch broke", killed: []string{"BrokenWatch"},
		moves: always(moves{watch: func(p gatedMemory, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			return p.Watch(ctx, c, func(n driver.Notification) {
				if !n.Broken() {
					fn(n)
				}
			})
		}}),
	},
	{
		name: "pass drops the place", killed: []string{"PassKeepsPlaces"},
		moves: always(moves{pass: func(p gatedMemory, ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
			next.Line = ""
			g, err := p.Pass(ctx, c, next)
			if errors.Is(err, strategy.ErrHeld) {
				g.Place = 1
			}
			return g, err
		}}),
	},
	{
		name: "a caller that asks again hears that the lock is held", killed: []string{"WokenAtExpiry"},
		moves: func(*testing.T) moves {
			var asked sync.Map
			return moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				_, again := asked.LoadOrStore(c.Token, true)
				if again && p.at(c.Key) == "" {
					return driver.Grant{Place: 1, Kept: true}, &strategy.HeldError{Name: c.Name, TTL: time.Second}
				}
				return p.Acquire(ctx, c)
			}}
		},
	},
	{
		name: "a holder that asks again hears that the lock is held", killed: []string{"LongQueue"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if c.Asked && p.at(c.Key) == c.Token {
				return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: c.Token, TTL: time.Until(p.until(c.Key))}
			}
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "who asks again goes to the end of the queue", killed: []string{"AskingAgain"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (g driver.Grant, err error) {
			p.gate("acquire", func() {
				if p.at(c.Key) != "" {
					p.mu.Lock()
					p.dequeue(c)
					p.mu.Unlock()
				}
				g, err = p.Memory.Acquire(ctx, c)
			})
			return g, err
		}}),
	},
	{
		name: "does not tell the server's time", killed: []string{"LongQueue"},
		moves: always(moves{
			acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				g, err := p.Acquire(ctx, c)
				g.ServerTime = 0
				return g, err
			},
			watch: func(p gatedMemory, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
				return p.Watch(ctx, c, func(n driver.Notification) {
					n.Grant.ServerTime = 0
					fn(n)
				})
			},
		}),
	},
	{
		name: "makes a waiter the holder that does not listen", killed: []string{"DeafWaiter"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			p.mu.Lock()
			queue := p.queues[c.Key]
			deaf := len(queue) > 0 && p.listening(queue[0]) == nil && p.find(c.Key) != nil
			if deaf {
				delete(p.queues, c.Key)
			}
			p.mu.Unlock()
			err := p.Release(ctx, c)
			if deaf {
				p.set(queue[0], time.Now().Add(driver.SuccessorTTL(queue[0].TTL)))
				p.mu.Lock()
				p.queues[c.Key] = queue[1:]
				p.mu.Unlock()
			}
			return err
		}}),
	},
	{
		name: "counts a renewal from its reply", killed: []string{"DeadlineFromRequest"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			g.Start = time.Now()
			return g, err
		}}),
	},
	{
		name: "the loser makes the lock last longer", killed: []string{"FailedTryChangesNothing"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrHeld) {
				p.counts(c.Key, time.Now().Add(c.TTL))
			}
			return g, err
		}}),
	},
	{
		name: "the loser leaves its token", killed: []string{"FailedTryChangesNothing"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrHeld) {
				p.set(c, time.Now().Add(c.TTL)) // GETSET
			}
			return g, err
		}}),
	},
	{
		name: "extend adds up", killed: []string{"ExtendRestarts"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			info, _ := p.Memory.Inspect(ctx, c)
			g, err := p.Extend(ctx, c)
			p.counts(c.Key, time.Now().Add(info.TTL+c.TTL))
			return g, err
		}}),
	},
	{
		name: "extend does nothing", killed: []string{"ExtendRestarts", "KeptAlive", "Do", "MaxHold"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if p.at(c.Key) != c.Token {
				return driver.Grant{}, &strategy.LostError{Name: c.Name}
			}
			return driver.Grant{}, nil
		}}),
	},
	{
		name: "extend makes the lock again", killed: []string{"ExtendNeverRecreates"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if p.at(c.Key) == "" {
				return p.set(c, time.Now().Add(c.TTL)), nil
			}
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "sets, then sets the expiry", killed: []string{"NoDeadlock"},
		moves: always(moves{acquire: func(p gatedMemory, _ context.Context, c driver.Claim) (g driver.Grant, err error) {
			p.gate("SETNX", func() {
				if holder := p.at(c.Key); holder != "" {
					err = &strategy.HeldError{Name: c.Name, Holder: holder}
					return
				}
				g = p.set(c, time.Now().Add(time.Hour))
			})
			if err == nil {
				p.gate("EXPIRE", func() { p.counts(c.Key, time.Now().Add(c.TTL)) })
			}
			return g, err
		}}),
	},
	{
		name: "tells nobody of releases", killed: []string{"WokenByRelease", "WokenByNotification", "NoMissedRelease", "FirstComeFirstServed", "WaitersAreCheap"},
		moves: always(moves{watch: func(p gatedMemory, ctx context.Context, c driver.Claim, _ func(driver.Notification)) (func(), error) {
			return p.Watch(ctx, c, func(driver.Notification) {})
		}}),
	},
	{
		name: "listens only later than it says", killed: []string{"NoMissedRelease"},
		moves: always(moves{watch: func(p gatedMemory, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			ready := make(chan func(), 1)
			time.AfterFunc(30*time.Millisecond, func() {
				stop, err := p.Memory.Watch(ctx, c, fn)
				if err != nil {
					stop = func() {}
				}
				ready <- stop
			})
			p.gate("SUBSCRIBE", func() {})
			return func() { (<-ready)() }, nil
		}}),
	},
	{
		name: "says that locks are held for hours", killed: []string{"WokenAtExpiry"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			var held *strategy.HeldError
			if errors.As(err, &held) {
				held.TTL = time.Hour
			}
			return g, err
		}}),
	},
	{
		name: "keeps what it granted to those who had gone", killed: []string{"CancelRacesGrant"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(context.WithoutCancel(ctx), c)
			time.Sleep(200 * time.Microsecond)
			if ctx.Err() != nil && err == nil {
				err = context.Cause(ctx)
			}
			return g, err
		}}),
	},
	{
		name: "calls a broken key held", killed: []string{"WrongType"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrRefused) {
				err = &strategy.HeldError{Name: c.Name}
			}
			return g, err
		}}),
	},
	{
		name: "calls a broken key lost", killed: []string{"WrongType"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			err := p.Release(ctx, c)
			if errors.Is(err, strategy.ErrRefused) {
				err = &strategy.LostError{Name: c.Name}
			}
			return err
		}}),
	},
	{
		name: "renews after the release", killed: []string{"RenewalStops"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			err := p.Release(ctx, c)
			time.AfterFunc(5*time.Millisecond, func() { p.Extend(context.Background(), c) })
			return err
		}}),
	},
	{
		name: "never admits a loss", killed: []string{"LossNoticed", "ExtendOnlyOwn", "ExtendNeverRecreates"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			if errors.Is(err, strategy.ErrLost) {
				err = nil
			}
			return g, err
		}}),
	},
	{
		name: "renews nothing any more once a lock was lost", killed: []string{"RenewsAfterLoss"},
		moves: func(*testing.T) moves {
			var lost atomic.Bool
			return moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				if lost.Load() {
					return driver.Grant{}, nil
				}
				g, err := p.Extend(ctx, c)
				if errors.Is(err, strategy.ErrLost) {
					lost.Store(true)
				}
				return g, err
			}}
		},
	},
	{
		name: "a late renewal brings the lock back", killed: []string{"LossWithoutNetwork"},
		moves: always(moves{extend: func(p gatedMemory, _ context.Context, c driver.Claim) (driver.Grant, error) {
			p.gate("SET PX", func() { p.set(c, time.Now().Add(time.Hour)) })
			return driver.Grant{}, Unsent()
		}}),
	},
	{
		name: "adopts without renewing", killed: []string{"Adopt"},
		moves: always(moves{adopt: func(p gatedMemory, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			until := p.until(c.Key)
			g, err := p.Adopt(ctx, c, from)
			if err == nil {
				p.counts(c.Key, until)
			}
			return g, err
		}}),
	},
	{
		name: "adopts without a new token", killed: []string{"AdoptOnce"},
		moves: always(moves{adopt: func(p gatedMemory, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			c.Token = from
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "inspects with its own TTL", killed: []string{"Inspect"},
		moves: always(moves{inspect: func(p gatedMemory, ctx context.Context, c driver.Claim) (strategy.Info, error) {
			info, err := p.Inspect(ctx, c)
			if info.Held {
				info.TTL = -1
			}
			return info, err
		}}),
	},
	{
		name: "inspects by force", killed: []string{"Inspect"},
		moves: always(moves{inspect: func(p gatedMemory, ctx context.Context, c driver.Claim) (strategy.Info, error) {
			info, err := p.Inspect(ctx, c)
			p.Evict(ctx, c.Key)
			return info, err
		}}),
	},
	{
		// Every grant has the fence 1. Nobody queues, so there is no direct grant.
		name: "repeats a fence", killed: []string{"FenceRises", "FenceOrders"},
		moves: always(moves{
			acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				c.Line = ""
				g, err := p.Acquire(ctx, c)
				g.Fence = min(g.Fence, 1)
				return g, err
			},
			pass: func(p gatedMemory, ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				next.Line = ""
				g, err := p.Pass(ctx, c, next)
				g.Fence = min(g.Fence, 1)
				return g, err
			},
		}),
	},
	{
		name: "does not issue fences, and says it does", killed: []string{"FenceRises", "FenceKept", "FenceOrders"},
		moves: always(moves{
			acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				_, err := p.Acquire(ctx, c)
				return driver.Grant{}, err
			},
			extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				_, err := p.Extend(ctx, c)
				return driver.Grant{}, err
			},
		}),
	},
	{
		name: "issues fences, and says it does not", killed: []string{"FenceRises"},
		claims: func(s *Subject) { s.Fenced = false },
	},
	{
		name: "hands the fence on with the token", killed: []string{"FenceRises"},
		moves: always(moves{adopt: func(p gatedMemory, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			g, err := p.Adopt(ctx, c, from)
			g.Fence-- // as it was
			return g, err
		}}),
	},
	{
		name: "renews the fence as well", killed: []string{"FenceKept"},
		moves: always(moves{extend: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			g.Fence += 1000
			return g, err
		}}),
	},
	{
		name: "draws the fence before the lock", killed: []string{"FenceOrders"},
		moves: func(*testing.T) moves {
			var drawn atomic.Uint64
			return moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				fence := drawn.Add(1)
				if fence%2 == 1 {
					time.Sleep(time.Second) // the next draws a greater one and overtakes
				}
				g, err := p.Acquire(ctx, c)
				g.Fence = fence
				return g, err
			}}
		},
	},
	{
		name: "does not tell capitals", killed: []string{"OddNames"},
		moves: always(onAll(func(c *driver.Claim) { c.Key = strings.ToLower(c.Key) })),
	},
	{
		name: "ends names at their first NUL", killed: []string{"OddNames"},
		moves: always(onAll(func(c *driver.Claim) { c.Key, _, _ = strings.Cut(c.Key, "\x00") })),
	},
	{
		name: "leaves its subscriptions", killed: []string{"LeavesNothing"},
		moves: always(moves{watch: func(p gatedMemory, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			_, err := p.Watch(ctx, c, fn)
			return func() {}, err
		}}),
	},
	{
		name: "leaves a goroutine for each release", killed: []string{"NoGoroutines"},
		moves: func(t *testing.T) moves {
			ctx := t.Context()
			return moves{release: func(p gatedMemory, rctx context.Context, c driver.Claim) error {
				go func() { <-ctx.Done() }()
				return p.Release(rctx, c)
			}}
		},
	},
	{
		name: "lets in newcomers, and says it is fair", killed: []string{"NoBarging"},
		moves: always(moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			p.mu.Lock()
			waiting := p.queues[c.Key]
			if p.find(c.Key) == nil {
				delete(p.queues, c.Key)
			}
			p.mu.Unlock()
			defer func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if len(waiting) > 0 {
					p.queues[c.Key] = waiting
				}
			}()
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "makes a successor the holder for a TTL", killed: []string{"DeadSuccessor"},
		moves: always(moves{release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
			err := p.Release(ctx, c)
			p.counts(c.Key, time.Now().Add(c.TTL))
			return err
		}}),
	},
	{
		name: "reserves one fence and says that it has many", killed: []string{"HandedOn"},
		moves: always(moves{
			acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				c.Fences = 1
				g, err := p.Acquire(ctx, c)
				g.Fences = 16
				return g, err
			},
			watch: func(p gatedMemory, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
				return p.Watch(ctx, c, func(n driver.Notification) {
					n.Grant.Fences = 16
					fn(n)
				})
			},
		}),
	},
	{
		name: "serves last the waiter that came first, and says it is fair", killed: []string{"FairAcrossProcesses"},
		claims: func(s *Subject) {
			m := &Memory{}
			s.Open = func(o strategy.Options) (strategy.Strategy, error) {
				return engine.New(lastFirst{gatedMemory{m, open}}, o)
			}
			s.OpenGated, s.Fair = nil, true
		},
	},
}

// subject is the mutant, ready for trial.
func (x mutant) subject(t *testing.T) Subject {
	m := &Memory{Reentrant: x.reenters}
	s := m.subject(x.name)
	if x.moves != nil {
		s.misled(m, x.moves(t), x.noQueue)
	}
	if x.claims != nil {
		x.claims(&s)
	}
	return s
}

// misled makes the subject's moves on m wrong.
func (s *Subject) misled(m *Memory, faults moves, hidden bool) {
	gated := func(o strategy.Options, g Gate) (strategy.Strategy, error) {
		p := faulty{gatedMemory{m, g}, faults}
		if hidden {
			return engine.New(noQueue{p}, o)
		}
		return engine.New(p, o)
	}
	s.OpenGated = gated
	s.Open = func(o strategy.Options) (strategy.Strategy, error) { return gated(o, open) }
}

// TestMutants: each property convicts the mutants that are named after it.
func TestMutants(t *testing.T) {
	properties := map[string]Property{}
	for _, p := range Properties() {
		properties[p.Name] = p
	}
	for _, x := range slices.Concat(mutants, quorumMutants) {
		for _, name := range x.killed {
			p, ok := properties[name]
			if !ok {
				t.Fatalf("mutant %q is to be killed by %q: there is no such property", x.name, name)
			}
			t.Run(x.name+"/"+name, func(t *testing.T) {
				var end verdict
				synctest.Test(t, func(t *testing.T) {
					end = holdTrial(t.Context(), x.subject(t), p, usual)
				})
				switch {
				case end.skip != "":
					t.Errorf("skipped (%s), want convicted", end.skip)
				case end.err == nil:
					t.Errorf("acquitted, want convicted\n%v", end.history)
				case !end.shown && !end.slow:
					t.Errorf("the trial could not be held: %v, want it to show the fault\n%v", end.err, end.history)
				default:
					t.Logf("convicted: %v\n%v", end.err, end.history)
				}
			})
		}
	}
}

// lastFirst serves waiters in the order opposite to that in which they came.
type lastFirst struct{ gatedMemory }

func (p lastFirst) Release(ctx context.Context, c driver.Claim) error {
	defer p.reversed(c.Key)()
	return p.gatedMemory.Release(ctx, c)
}

func (p lastFirst) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	defer p.reversed(c.Key)()
	return p.gatedMemory.Pass(ctx, c, next)
}

// reversed turns the queue for key round, and round again when it is called.
func (p lastFirst) reversed(key string) (back func()) {
	turn := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		slices.Reverse(p.queues[key])
	}
	turn()
	return turn
}

// TestEveryPropertyConvicts: a property that convicts no mutant might be a check that cannot
// fail. testdata/shown-by-sources.txt lists the properties that no faulty protocol can violate,
// because the engine keeps them, or because the trial takes several processes. lab/mutants
// holds itself to that list.
func TestEveryPropertyConvicts(t *testing.T) {
	list, err := os.ReadFile("testdata/shown-by-sources.txt")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.Fields(string(list))
	killers := map[string]bool{}
	for _, x := range slices.Concat(mutants, quorumMutants) {
		for _, name := range x.killed {
			killers[name] = true
		}
	}
	for _, p := range Properties() {
		switch listed := slices.Contains(elsewhere, p.Name); {
		case !killers[p.Name] && !listed:
			t.Errorf("%s convicts no mutant: add a fault that it finds, or delete it", p.Name)
		case killers[p.Name] && listed:
			t.Errorf("%s convicts a mutant here: take it off the list", p.Name)
		}
	}
}
