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
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/strategy"
)

// A faulty is a server in memory that makes one of its moves wrongly.
type faulty struct {
	memory.Gated
	moves
}

// moves replaces those that are not nil. Each gets the correct protocol.
type moves struct {
	acquire func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error)
	extend  func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error)
	adopt   func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error)
	release func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error
	watch   func(p memory.Gated, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error)
	inspect func(p memory.Gated, ctx context.Context, c driver.Claim) (strategy.Info, error)
	pass    func(p memory.Gated, ctx context.Context, c, next driver.Claim) (driver.Grant, error)
}

func (f faulty) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if f.acquire == nil {
		return f.Gated.Acquire(ctx, c)
	}
	return f.acquire(f.Gated, ctx, c)
}

func (f faulty) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if f.extend == nil {
		return f.Gated.Extend(ctx, c)
	}
	return f.extend(f.Gated, ctx, c)
}

func (f faulty) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	for i, c := range cs {
		g, err := f.Extend(ctx, c)
		done(i, g, err)
	}
}

func (f faulty) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	if f.adopt == nil {
		return f.Gated.Adopt(ctx, c, from)
	}
	return f.adopt(f.Gated, ctx, c, from)
}

func (f faulty) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, f.finish(ctx, memory.OpRelease, c)
}

func (f faulty) Undo(ctx context.Context, c driver.Claim) error {
	return f.finish(ctx, memory.OpUndo, c)
}

func (f faulty) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, f.finish(ctx, memory.OpForceRelease, c)
}

func (f faulty) finish(ctx context.Context, op memory.Op, c driver.Claim) error {
	if f.release == nil {
		return f.Gated.Finish(ctx, op, c)
	}
	return f.release(f.Gated, ctx, op, c)
}

func (f faulty) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	if f.watch == nil {
		return f.Gated.Watch(ctx, c, fn)
	}
	return f.watch(f.Gated, ctx, c, fn)
}

func (f faulty) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	if f.inspect == nil {
		return f.Gated.Inspect(ctx, c)
	}
	return f.inspect(f.Gated, ctx, c)
}

func (f faulty) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	if f.pass == nil {
		return f.Gated.Pass(ctx, c, next)
	}
	return f.pass(f.Gated, ctx, c, next)
}

// noQueue hides the queue: its Pass is not that of a [driver.Queuer].
type noQueue struct{ faulty }

func (noQueue) Pass() {}

// onAll makes every move with claims changed by f.
func onAll(f func(*driver.Claim)) moves {
	return moves{
		acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			f(&c)
			return p.Acquire(ctx, c)
		},
		extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			f(&c)
			return p.Extend(ctx, c)
		},
		release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			f(&c)
			return p.Finish(ctx, op, c)
		},
	}
}

func goroutineID() string {
	buf := make([]byte, 64)
	return string(bytes.Fields(buf[:runtime.Stack(buf, false)])[1])
}

// timed is a strategy whose locks know of no deadline.
type timed struct{ strategy.Strategy }

type timedLock struct{ strategy.Lock }

func (s timed) NewLock(name string) strategy.Lock { return timedLock{s.Strategy.NewLock(name)} }

func (l timedLock) TryAcquire(ctx context.Context) (strategy.Lease, error) {
	return l.Lock.TryAcquire(endless{ctx})
}

func (l timedLock) Acquire(ctx context.Context) (strategy.Lease, error) {
	return l.Lock.Acquire(endless{ctx})
}

// endless is a context without its deadline.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Time{}, false }

// A mutant is a lock with one fault, and the properties that must convict it, each
// on its own.
type mutant struct {
	name     string
	killed   []string
	moves    func(t *testing.T) moves
	claims   func(*Subject) // changed claims
	reenters bool           // its server grants owners their lock again
	noQueue  bool           // its server keeps no queue
}

// mutants are all that must be convicted.
var mutants = slices.Concat(protocolMutants(), commonMutants, clockMutants, reentryMutants, sharingMutants, movingMutants)

// protocolMutants are those of the library, on a server in memory.
func protocolMutants() (all []mutant) {
	for _, lock := range broken.Protocols() {
		all = append(all, mutant{name: lock.Name, killed: lock.Breaks, claims: func(s *Subject) {
			m := &memory.Server{}
			*s = subjectOn(m, lock.Name)
			s.OpenGated = func(o strategy.Options, g Gate) (strategy.Strategy, error) {
				return engine.New(lock.Protocol(m.Gated(g)), o)
			}
			s.Open = func(o strategy.Options) (strategy.Strategy, error) { return s.OpenGated(o, open) }
		}})
	}
	return all
}

// always are moves that need no state.
func always(m moves) func(*testing.T) moves { return func(*testing.T) moves { return m } }

var commonMutants = []mutant{
	{
		name: "looks at the timer of a context alone", killed: []string{"DeadlinePassed"},
		claims: func(s *Subject) {
			open := s.OpenGated
			s.OpenGated = func(o strategy.Options, g Gate) (strategy.Strategy, error) {
				correct, err := open(o, g)
				return timed{correct}, err
			}
		},
	},
	{
		name: "release does nothing", killed: []string{"ReleaseFrees", "ReleaseAnywhere", "ReleaseDetached", "CancelRacesGrant", "LeavesNothing"},
		moves: always(moves{release: func(memory.Gated, context.Context, memory.Op, driver.Claim) error { return nil }}),
	},
	{
		name: "one lock for all names", killed: []string{"NamesIndependent", "OddNames"},
		moves: always(onAll(func(c *driver.Claim) { c.Key = "lock" })),
	},
	{
		name: "owners may re-enter, and it says that they may not", killed: []string{"Reentry"},
		reenters: true,
		claims:   func(s *Subject) { s.Reentrant = false },
	},
	{
		name: "owners may not re-enter, and it says that they may", killed: []string{"Reentry"},
		claims: func(s *Subject) { s.Reentrant = true },
	},
	{
		name: "looks, then takes", killed: []string{"Contention", "NoLostUpdate", "OneTakesOver"},
		moves: always(moves{acquire: func(p memory.Gated, _ context.Context, c driver.Claim) (driver.Grant, error) {
			if holder := p.At(c.Key); holder != "" {
				return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: holder}
			}
			time.Sleep(time.Millisecond) // others look meanwhile
			return p.Set(c, time.Now().Add(c.TTL)), nil
		}}),
	},
	{
		name: "forgets the token on release", killed: []string{"ReleaseOnlyOwn", "ReleaseAtomic", "ForceRelease"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) (err error) {
			p.Gate("DEL", func() { err = p.Evict(ctx, c.Key) })
			return err
		}}),
	},
	{
		name: "compares, then deletes", killed: []string{"ReleaseAtomic"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) (err error) {
			var holder string
			p.Gate("GET", func() { holder = p.At(c.Key) })
			if holder != c.Token {
				return &strategy.LostError{Name: c.Name, Holder: holder}
			}
			p.Gate("DEL", func() { err = p.Evict(ctx, c.Key) })
			return err
		}}),
	},
	{
		name: "takes the lock away, then looks whose it was", killed: []string{"ReleaseOnlyOwn"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) (err error) {
			back := c
			p.Gate("GETDEL", func() { back.Token, err = p.At(c.Key), p.Evict(ctx, c.Key) })
			if back.Token == c.Token || err != nil {
				return err
			}
			p.Gate("SET NX", func() {
				if back.Token != "" && p.At(c.Key) == "" {
					p.Set(back, time.Now().Add(c.TTL))
				}
			})
			return &strategy.LostError{Name: c.Name, Holder: back.Token}
		}}),
	},
	{
		name: "belongs to the goroutine that acquired it", killed: []string{"ReleaseAnywhere"},
		moves: func(*testing.T) moves {
			var holder sync.Map
			return moves{
				acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					holder.Store(c.Token, goroutineID())
					return p.Acquire(ctx, c)
				},
				release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
					if id, _ := holder.Load(c.Token); id != goroutineID() {
						return &strategy.LostError{Name: c.Name}
					}
					return p.Finish(ctx, op, c)
				},
			}
		},
	},
	{
		name: "forgets the token on extend", killed: []string{"ExtendOnlyOwn"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if holder := p.At(c.Key); holder != "" {
				c.Token = holder
			}
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "extends, then compares", killed: []string{"FailedTryChangesNothing"},
		moves: always(moves{extend: func(p memory.Gated, _ context.Context, c driver.Claim) (driver.Grant, error) {
			p.Count(c.Key, time.Now().Add(c.TTL))
			if holder := p.At(c.Key); holder != c.Token {
				return driver.Grant{}, &strategy.LostError{Name: c.Name, Holder: holder}
			}
			return driver.Grant{}, nil
		}}),
	},
	{
		name: "forgets the token on adopt", killed: []string{"AdoptOnlyHeld", "AdoptOnce"},
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			if holder := p.At(c.Key); holder != "" {
				from = holder
			}
			return p.Adopt(ctx, c, from)
		}}),
	},
	{
		name: "adopts in silence", killed: []string{"AdoptionWakes"}, noQueue: true,
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (g driver.Grant, err error) {
			p.Silently(c.Key, func() { g, err = p.Adopt(ctx, c, from) })
			return g, err
		}}),
	},
	{
		name: "compares, then extends", killed: []string{"ExtendAtomic"},
		moves: always(moves{extend: func(p memory.Gated, _ context.Context, c driver.Claim) (driver.Grant, error) {
			var holder string
			p.Gate("GET", func() { holder = p.At(c.Key) })
			if holder != c.Token {
				return driver.Grant{}, &strategy.LostError{Name: c.Name, Holder: holder}
			}
			p.Gate("PEXPIRE", func() { p.Count(c.Key, time.Now().Add(c.TTL)) })
			return driver.Grant{}, nil
		}}),
	},
	{
		name: "an operator releases any holder", killed: []string{"ForceRelease"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			if op == memory.OpForceRelease {
				return p.Evict(ctx, c.Key)
			}
			return p.Finish(ctx, op, c)
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
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			c.Due = time.Time{}
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "ignores Due on release", killed: []string{"TimeOut"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			c.Due = time.Time{}
			return p.Finish(ctx, op, c)
		}}),
	},
	{
		name: "ignores Due on adopt", killed: []string{"TimeOut"},
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			c.Due = time.Time{}
			return p.Adopt(ctx, c, from)
		}}),
	},
	{
		name: "ignores Due on inspect", killed: []string{"TimeOut"},
		moves: always(moves{inspect: func(p memory.Gated, ctx context.Context, c driver.Claim) (strategy.Info, error) {
			c.Due = time.Time{}
			return p.Inspect(ctx, c)
		}}),
	},
	{
		name: "ignores Due on pass", killed: []string{"TimeOutInLine"},
		moves: always(moves{pass: func(p memory.Gated, ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
			c.Due = time.Time{}
			return p.Pass(ctx, c, next)
		}}),
	},
	{
		name: "ignores Due on watch", killed: []string{"WaiterWithoutAnswer"},
		moves: always(moves{watch: func(p memory.Gated, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			c.Due = time.Time{}
			return p.Watch(ctx, c, fn)
		}}),
	},
	{
		name: "every undo succeeds at once", killed: []string{"LateRequestUndone"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			err := p.Finish(ctx, op, c)
			if op == memory.OpUndo {
				err = nil
			}
			return err
		}}),
	},
	{
		// Its Evict deletes the row, so ExtendNeverRecreates sees nothing of it.
		name: "extend revives an expired row", killed: []string{"LateExtension"},
		claims: func(s *Subject) {
			m := &memory.Server{}
			var rows sync.Map // the last token, by key; also of an expired lock
			faults := moves{
				acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					g, err := p.Acquire(ctx, c)
					if err == nil {
						rows.Store(c.Key, c.Token)
					}
					return g, err
				},
				extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (g driver.Grant, err error) {
					c.Due = time.Time{} // the answer is waited for
					p.Gate("UPDATE", func() {
						if row, _ := rows.Load(c.Key); row == c.Token && p.At(c.Key) == "" {
							g = p.Set(c, time.Now().Add(c.TTL))
						} else {
							g, err = p.Server.Extend(ctx, c)
						}
					})
					return g, err
				},
			}
			*s = subjectOn(m, s.Name)
			s.misled(m, faults, false)
			s.Evict = func(ctx context.Context, key string) error {
				rows.Delete(key)
				return m.Evict(ctx, key)
			}
		},
	},
	{
		name: "does not report that a watch broke", killed: []string{"BrokenWatch"},
		moves: always(moves{watch: func(p memory.Gated, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			return p.Watch(ctx, c, func(n driver.Notification) {
				if !n.Broken() {
					fn(n)
				}
			})
		}}),
	},
	{
		name: "pass drops the place", killed: []string{"PassKeepsPlaces"},
		moves: always(moves{pass: func(p memory.Gated, ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
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
			return moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				_, again := asked.LoadOrStore(c.Token, true)
				if again && p.At(c.Key) == "" {
					return driver.Grant{Place: 1, Kept: true}, &strategy.HeldError{Name: c.Name, TTL: time.Second}
				}
				return p.Acquire(ctx, c)
			}}
		},
	},
	{
		name: "a holder that asks again hears that the lock is held", killed: []string{"LongQueue"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if c.Repeated && p.At(c.Key) == c.Token {
				return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: c.Token, TTL: time.Until(p.Until(c.Key))}
			}
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "who asks again goes to the end of the queue", killed: []string{"AskingAgain"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (g driver.Grant, err error) {
			p.Gate("acquire", func() {
				p.Requeue(c.Key, func(queue []driver.Claim, _ func(driver.Claim) bool, held bool) []driver.Claim {
					return slices.DeleteFunc(queue, func(x driver.Claim) bool { return held && x.Token == c.Token })
				})
				g, err = p.Server.Acquire(ctx, c)
			})
			return g, err
		}}),
	},
	{
		name: "makes a holder of a claim that asks again", killed: []string{"ForgedGrant"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if c.Repeated && errors.Is(err, strategy.ErrHeld) {
				return driver.Grant{Fence: 1}, nil
			}
			return g, err
		}}),
	},
	{
		name: "leaves in the queue what is undone", killed: []string{"ForgedGrant"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			if op == memory.OpUndo {
				c.Line = ""
			}
			return p.Finish(ctx, op, c)
		}}),
	},
	{
		name: "says that locks are held for as long as the last message says", killed: []string{"ForgedDelay"},
		moves: func(*testing.T) moves {
			var next atomic.Int64
			return moves{
				watch: func(p memory.Gated, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
					return p.Watch(ctx, c, func(n driver.Notification) {
						next.Store(max(next.Load(), int64(n.Next)))
						fn(n)
					})
				},
				acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					g, err := p.Acquire(ctx, c)
					var held *strategy.HeldError
					if errors.As(err, &held) {
						held.TTL = max(held.TTL, time.Duration(next.Load()))
					}
					return g, err
				},
			}
		},
	},
	{
		name: "makes a waiter the holder that does not listen", killed: []string{"UnsubscribedWaiter"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			var unsubscribed []driver.Claim
			p.Requeue(c.Key, func(queue []driver.Claim, listens func(driver.Claim) bool, held bool) []driver.Claim {
				if len(queue) > 0 && !listens(queue[0]) && held {
					queue, unsubscribed = nil, queue
				}
				return queue
			})
			err := p.Finish(ctx, op, c)
			if unsubscribed != nil {
				p.Set(unsubscribed[0], time.Now().Add(driver.SuccessorTTL(unsubscribed[0].TTL)))
				p.Requeue(c.Key, func([]driver.Claim, func(driver.Claim) bool, bool) []driver.Claim { return unsubscribed[1:] })
			}
			return err
		}}),
	},
	{
		name: "counts a renewal from its reply", killed: []string{"DeadlineFromRequest"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			g.Start = time.Now()
			return g, err
		}}),
	},
	{
		name: "the loser makes the lock last longer", killed: []string{"FailedTryChangesNothing"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrHeld) {
				p.Count(c.Key, time.Now().Add(c.TTL))
			}
			return g, err
		}}),
	},
	{
		name: "the loser leaves its token", killed: []string{"FailedTryChangesNothing"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrHeld) {
				p.Set(c, time.Now().Add(c.TTL)) // GETSET
			}
			return g, err
		}}),
	},
	{
		name: "extend adds up", killed: []string{"ExtendRestarts"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			info, _ := p.Server.Inspect(ctx, c)
			g, err := p.Extend(ctx, c)
			p.Count(c.Key, time.Now().Add(info.TTL+c.TTL))
			return g, err
		}}),
	},
	{
		name: "extend does nothing", killed: []string{"ExtendRestarts", "KeptAlive", "Do", "MaxHold"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if p.At(c.Key) != c.Token {
				return driver.Grant{}, &strategy.LostError{Name: c.Name}
			}
			return driver.Grant{}, nil
		}}),
	},
	{
		name: "extend makes the lock again", killed: []string{"ExtendNeverRecreates"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if p.At(c.Key) == "" {
				return p.Set(c, time.Now().Add(c.TTL)), nil
			}
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "sets, then sets the expiry", killed: []string{"NoDeadlock"},
		moves: always(moves{acquire: func(p memory.Gated, _ context.Context, c driver.Claim) (g driver.Grant, err error) {
			p.Gate("SETNX", func() {
				if holder := p.At(c.Key); holder != "" {
					err = &strategy.HeldError{Name: c.Name, Holder: holder}
					return
				}
				g = p.Set(c, time.Now().Add(time.Hour))
			})
			if err == nil {
				p.Gate("EXPIRE", func() { p.Count(c.Key, time.Now().Add(c.TTL)) })
			}
			return g, err
		}}),
	},
	{
		name: "each call is a process of its own", killed: []string{"Burst"},
		claims: func(s *Subject) {
			gated := s.OpenGated
			s.OpenGated = func(o strategy.Options, g Gate) (strategy.Strategy, error) {
				correct, err := gated(o, g)
				return crowd{correct, func(ctx context.Context, name string) (strategy.Lease, error) {
					own, err := gated(o, g)
					if err != nil {
						return nil, err
					}
					l, err := own.NewLock(name).Acquire(ctx)
					if err != nil {
						own.Close() // which ends its undos
					}
					return l, err
				}}, err
			}
		},
	},
	{
		name: "few may wait", killed: []string{"Burst"},
		claims: func(s *Subject) {
			gated := s.OpenGated
			s.OpenGated = func(o strategy.Options, g Gate) (strategy.Strategy, error) {
				correct, err := gated(o, g)
				var waiting atomic.Int64
				return crowd{correct, func(ctx context.Context, name string) (strategy.Lease, error) {
					defer waiting.Add(-1)
					if waiting.Add(1) > 20 {
						return nil, &strategy.HeldError{Name: name}
					}
					return correct.NewLock(name).Acquire(ctx)
				}}, err
			}
		},
	},
	{
		name: "tells nobody of releases", killed: []string{"WokenByRelease", "WokenByNotification", "NoMissedRelease", "FirstComeFirstServed", "WaitersAreCheap"},
		moves: always(moves{watch: func(p memory.Gated, ctx context.Context, c driver.Claim, _ func(driver.Notification)) (func(), error) {
			return p.Watch(ctx, c, func(driver.Notification) {})
		}}),
	},
	{
		name: "listens only later than it says", killed: []string{"NoMissedRelease"},
		moves: always(moves{watch: func(p memory.Gated, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			ready := make(chan func(), 1)
			time.AfterFunc(30*time.Millisecond, func() {
				stop, err := p.Server.Watch(ctx, c, fn)
				if err != nil {
					stop = func() {}
				}
				ready <- stop
			})
			p.Gate("SUBSCRIBE", func() {})
			return func() { (<-ready)() }, nil
		}}),
	},
	{
		name: "says that locks are held for hours", killed: []string{"WokenAtExpiry"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrRefused) {
				err = &strategy.HeldError{Name: c.Name}
			}
			return g, err
		}}),
	},
	{
		name: "calls a broken key lost", killed: []string{"WrongType"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			err := p.Finish(ctx, op, c)
			if errors.Is(err, strategy.ErrRefused) {
				err = &strategy.LostError{Name: c.Name}
			}
			return err
		}}),
	},
	{
		name: "renews after the release", killed: []string{"RenewalStops"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			err := p.Finish(ctx, op, c)
			time.AfterFunc(5*time.Millisecond, func() { p.Extend(context.Background(), c) })
			return err
		}}),
	},
	{
		name: "never admits a loss", killed: []string{"ForgedGrant", "LossNoticed", "ExtendOnlyOwn", "ExtendNeverRecreates"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
			return moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
		moves: always(moves{extend: func(p memory.Gated, _ context.Context, c driver.Claim) (driver.Grant, error) {
			p.Gate("SET PX", func() { p.Set(c, time.Now().Add(time.Hour)) })
			return driver.Grant{}, memory.Unsent()
		}}),
	},
	{
		name: "adopts without renewing", killed: []string{"Adopt"},
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			until := p.Until(c.Key)
			g, err := p.Adopt(ctx, c, from)
			if err == nil {
				p.Count(c.Key, until)
			}
			return g, err
		}}),
	},
	{
		name: "adopts without a new token", killed: []string{"AdoptOnce"},
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			c.Token = from
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "inspects with its own TTL", killed: []string{"Inspect"},
		moves: always(moves{inspect: func(p memory.Gated, ctx context.Context, c driver.Claim) (strategy.Info, error) {
			info, err := p.Inspect(ctx, c)
			if info.Held {
				info.TTL = -1
			}
			return info, err
		}}),
	},
	{
		name: "inspects by force", killed: []string{"Inspect"},
		moves: always(moves{inspect: func(p memory.Gated, ctx context.Context, c driver.Claim) (strategy.Info, error) {
			info, err := p.Inspect(ctx, c)
			p.Evict(ctx, c.Key)
			return info, err
		}}),
	},
	{
		name: "does not issue fences, and says it does", killed: []string{"FenceRises", "FenceKept", "FenceOrders"},
		moves: always(moves{
			acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				_, err := p.Acquire(ctx, c)
				return driver.Grant{}, err
			},
			extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			g, err := p.Adopt(ctx, c, from)
			g.Fence-- // as it was
			return g, err
		}}),
	},
	{
		name: "renews the fence as well", killed: []string{"FenceKept"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			g.Fence += 1000
			return g, err
		}}),
	},
	{
		name: "draws the fence before the lock", killed: []string{"FenceOrders"},
		moves: func(*testing.T) moves {
			var drawn atomic.Uint64
			return moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
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
		moves: always(moves{watch: func(p memory.Gated, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			_, err := p.Watch(ctx, c, fn)
			return func() {}, err
		}}),
	},
	{
		name: "leaves a goroutine for each release", killed: []string{"NoGoroutines"},
		moves: func(t *testing.T) moves {
			ctx := t.Context()
			return moves{release: func(p memory.Gated, rctx context.Context, op memory.Op, c driver.Claim) error {
				go func() { <-ctx.Done() }()
				return p.Finish(rctx, op, c)
			}}
		},
	},
	{
		name: "grants newcomers the lock first, and says it is fair", killed: []string{"NoBarging"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			var waiting []driver.Claim
			p.Requeue(c.Key, func(queue []driver.Claim, _ func(driver.Claim) bool, held bool) []driver.Claim {
				if waiting = queue; !held {
					return nil
				}
				return queue
			})
			defer p.Requeue(c.Key, func(now []driver.Claim, _ func(driver.Claim) bool, _ bool) []driver.Claim {
				if len(waiting) > 0 {
					return waiting
				}
				return now
			})
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "makes a successor the holder for a TTL", killed: []string{"DeadSuccessor"},
		moves: always(moves{release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			err := p.Finish(ctx, op, c)
			p.Count(c.Key, time.Now().Add(c.TTL))
			return err
		}}),
	},
	{
		name: "reserves one fence and says that it has many", killed: []string{"HandedOn"},
		moves: always(moves{
			acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				c.Fences = 1
				g, err := p.Acquire(ctx, c)
				g.Fences = 16
				return g, err
			},
			watch: func(p memory.Gated, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
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
			m := &memory.Server{}
			s.Open = func(o strategy.Options) (strategy.Strategy, error) {
				return engine.New(lastFirst{memory.Gated{Server: m, Gate: open}}, o)
			}
			s.OpenGated, s.Fair = nil, true
		},
	},
}

// subject is the mutant, ready for trial.
func (x mutant) subject(t *testing.T) Subject {
	m := &memory.Server{Reentrant: x.reenters}
	s := subjectOn(m, x.name)
	if x.moves != nil {
		s.misled(m, x.moves(t), x.noQueue)
	}
	if x.claims != nil {
		x.claims(&s)
	}
	return s
}

// misled makes the subject's moves on m wrong.
func (s *Subject) misled(m *memory.Server, faults moves, hidden bool) {
	gated := func(o strategy.Options, g Gate) (strategy.Strategy, error) {
		p := faulty{memory.Gated{Server: m, Gate: g}, faults}
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

// A crowd is a strategy whose locks acquire in a way of their own.
type crowd struct {
	strategy.Strategy
	acquire func(ctx context.Context, name string) (strategy.Lease, error)
}

func (c crowd) NewLock(name string) strategy.Lock { return crowdLock{c.Strategy.NewLock(name), c} }

type crowdLock struct {
	strategy.Lock
	c crowd
}

func (l crowdLock) Acquire(ctx context.Context) (strategy.Lease, error) {
	return l.c.acquire(ctx, l.Name())
}

// lastFirst serves waiters in the order opposite to that in which they came.
type lastFirst struct{ memory.Gated }

func (p lastFirst) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	defer p.reversed(c.Key)()
	return p.Gated.Release(ctx, c)
}

func (p lastFirst) Undo(ctx context.Context, c driver.Claim) error {
	defer p.reversed(c.Key)()
	return p.Gated.Undo(ctx, c)
}

func (p lastFirst) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	defer p.reversed(c.Key)()
	return p.Gated.Pass(ctx, c, next)
}

// reversed turns the queue for key round, and round again when it is called.
func (p lastFirst) reversed(key string) (back func()) {
	reverse := func() {
		p.Requeue(key, func(queue []driver.Claim, _ func(driver.Claim) bool, _ bool) []driver.Claim {
			slices.Reverse(queue)
			return queue
		})
	}
	reverse()
	return reverse
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
