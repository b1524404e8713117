// Faults of locks of one holder: see TestMutants.
package conformance

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

func forgetDue(c *driver.Claim) { c.Due = time.Time{} }

func goroutineID() string {
	buf := make([]byte, 64)
	return string(bytes.Fields(buf[:runtime.Stack(buf, false)])[1])
}

var commonMutants = []mutant{
	odd("looks at the timer of a context alone", "DeadlinePassed", func(s *Subject) {
		s.acquires(func(ctx context.Context, l strategy.Lock, try bool, _ func() (strategy.Strategy, error)) (strategy.Lease, error) {
			if try {
				return l.TryAcquire(endless{ctx})
			}
			return l.Acquire(endless{ctx})
		})
	}),
	odd("each call is a process of its own", "Burst", func(s *Subject) {
		s.acquires(func(ctx context.Context, l strategy.Lock, _ bool, open func() (strategy.Strategy, error)) (strategy.Lease, error) {
			own, err := open()
			if err != nil {
				return nil, err
			}
			lease, err := own.NewLock(l.Name()).Acquire(ctx)
			if err != nil {
				own.Close() // which ends its undos
			}
			return lease, err
		})
	}),
	odd("few may wait", "Burst", func(s *Subject) {
		var waiting atomic.Int64
		s.acquires(func(ctx context.Context, l strategy.Lock, _ bool, _ func() (strategy.Strategy, error)) (strategy.Lease, error) {
			defer waiting.Add(-1)
			if waiting.Add(1) > 20 {
				return nil, &strategy.HeldError{Name: l.Name()}
			}
			return l.Acquire(ctx)
		})
	}),
	odd("owners may not re-enter, and it says that they may", "Reentry", func(s *Subject) { s.Reentrant = true }),
	odd("owners may re-enter, and it says that they may not", "Reentry", func(s *Subject) {
		*s = subjectOn(&memory.Server{Reentrant: true}, s.Name)
		s.Reentrant = false
	}),
	odd("issues fences, and says it does not", "FenceRises", func(s *Subject) { s.Fenced = false }),

	lock("release does nothing", "ReleaseFrees ReleaseAnywhere ReleaseDetached CancelRacesGrant LeavesNothing",
		onEnd(func(*move) error { return nil })),
	lock("one lock for all names", "NamesIndependent OddNames", onClaims(func(c *driver.Claim) { c.Key = "lock" })),
	lock("does not tell capitals", "OddNames", onClaims(func(c *driver.Claim) { c.Key = strings.ToLower(c.Key) })),
	lock("ends names at their first NUL", "OddNames", onClaims(func(c *driver.Claim) { c.Key, _, _ = strings.Cut(c.Key, "\x00") })),
	lock("never expires", "Expires FailedTryChangesNothing WokenAtExpiry ExtendRestarts ExpiryLeavesNothing",
		onClaims(func(c *driver.Claim) { c.TTL = time.Hour })),
	lock("expires early", "DeadlineIsSafe KeptAlive", onClaims(func(c *driver.Claim) { c.TTL /= 4 })),
	lock("ignores Due", "TimeOut", onClaims(forgetDue)),
	lock("ignores Due on extend", "TimeOut", changing(forgetDue, extend)),
	lock("ignores Due on release", "TimeOut", changing(forgetDue, ends...)),
	lock("ignores Due on adopt", "TimeOut", changing(forgetDue, adopt)),
	lock("ignores Due on inspect", "TimeOut", changing(forgetDue, inspect)),
	lock("ignores Due on pass", "TimeOutInLine", changing(forgetDue, memory.OpPass)),
	lock("ignores Due on watch", "WaiterWithoutAnswer", changing(forgetDue, watch)),

	lock("looks, then takes", "Contention NoLostUpdate OneTakesOver", on(acquire, func(m *move) (driver.Grant, error) {
		if holder := m.holder(); holder != "" {
			return driver.Grant{}, m.held(holder)
		}
		time.Sleep(time.Millisecond) // others look meanwhile
		return m.Set(m.c, m.until()), nil
	})),
	lock("forgets the token on release", "ReleaseOnlyOwn ReleaseAtomic ForceRelease", onEnd(func(m *move) (err error) {
		m.Gate("DEL", func() { err = m.Evict(m.ctx, m.c.Key) })
		return err
	})),
	lock("compares, then deletes", "ReleaseAtomic", onEnd(func(m *move) (err error) {
		var holder string
		m.Gate("GET", func() { holder = m.holder() })
		if holder != m.c.Token {
			return m.lost(holder)
		}
		m.Gate("DEL", func() { err = m.Evict(m.ctx, m.c.Key) })
		return err
	})),
	lock("takes the lock away, then looks whose it was", "ReleaseOnlyOwn", onEnd(func(m *move) (err error) {
		back := m.c
		m.Gate("GETDEL", func() { back.Token, err = m.holder(), m.Evict(m.ctx, m.c.Key) })
		if back.Token == m.c.Token || err != nil {
			return err
		}
		m.Gate("SET NX", func() {
			if back.Token != "" && m.holder() == "" {
				m.Set(back, m.until())
			}
		})
		return m.lost(back.Token)
	})),
	lockOf("belongs to the goroutine that acquired it", "ReleaseAnywhere", func() faults {
		var holder sync.Map
		return on(acquire, func(m *move) (driver.Grant, error) {
			holder.Store(m.c.Token, goroutineID())
			return m.rightly()
		}).and(onEnd(func(m *move) error {
			if id, _ := holder.Load(m.c.Token); id != goroutineID() {
				return m.lost("")
			}
			return m.right()
		}))
	}),
	lock("an operator releases any holder", "ForceRelease", on(memory.OpForceRelease, func(m *move) (g driver.Grant, err error) {
		return g, m.Evict(m.ctx, m.c.Key)
	})),
	lock("every undo succeeds at once", "LateRequestUndone", after(memory.OpUndo, func(m *move) { m.err = nil })),
	lock("leaves in the queue what is undone", "ForgedGrant", before(memory.OpUndo, func(m *move) { m.c.Line = "" })),
	lock("calls a broken key lost", "WrongType", afterEach(func(m *move) {
		if errors.Is(m.err, strategy.ErrRefused) {
			m.err = m.lost("")
		}
	}, ends...)),
	lock("renews after the release", "RenewalStops", afterEach(func(m *move) {
		time.AfterFunc(5*time.Millisecond, func() { m.Extend(context.Background(), m.c) })
	}, ends...)),
	lock("leaves a goroutine for each release", "NoGoroutines", beforeEach(func(m *move) {
		go time.Sleep(time.Hour)
	}, ends...)),
	lock("makes a successor the holder for a TTL", "DeadSuccessor", afterEach((*move).count, ends...)),
	lock("makes a waiter the holder that does not listen", "UnsubscribedWaiter", onEnd(func(m *move) error {
		var unsubscribed []driver.Claim
		m.Requeue(m.c.Key, func(queue []driver.Claim, listens func(driver.Claim) bool, held bool) []driver.Claim {
			if len(queue) > 0 && !listens(queue[0]) && held {
				queue, unsubscribed = nil, queue
			}
			return queue
		})
		err := m.right()
		if unsubscribed != nil {
			m.Set(unsubscribed[0], time.Now().Add(driver.SuccessorTTL(unsubscribed[0].TTL)))
			m.Requeue(m.c.Key, func([]driver.Claim, func(driver.Claim) bool, bool) []driver.Claim { return unsubscribed[1:] })
		}
		return err
	})),
	lock("serves last the waiter that came first, and says it is fair", "FairAcrossProcesses", onEach(func(m *move) (driver.Grant, error) {
		reverse := func() {
			m.Requeue(m.c.Key, func(queue []driver.Claim, _ func(driver.Claim) bool, _ bool) []driver.Claim {
				slices.Reverse(queue)
				return queue
			})
		}
		reverse()
		defer reverse()
		return m.rightly()
	}, memory.OpRelease, memory.OpUndo, memory.OpPass)),

	lock("forgets the token on extend", "ExtendOnlyOwn", before(extend, func(m *move) {
		if holder := m.holder(); holder != "" {
			m.c.Token = holder
		}
	})),
	lock("extends, then compares", "FailedTryChangesNothing", on(extend, func(m *move) (g driver.Grant, err error) {
		if m.count(); m.holder() != m.c.Token {
			err = m.lost(m.holder())
		}
		return g, err
	})),
	lock("compares, then extends", "ExtendAtomic", on(extend, func(m *move) (g driver.Grant, err error) {
		var holder string
		m.Gate("GET", func() { holder = m.holder() })
		if holder != m.c.Token {
			return g, m.lost(holder)
		}
		m.Gate("PEXPIRE", m.count)
		return g, nil
	})),
	lock("counts a renewal from its reply", "DeadlineFromRequest", after(extend, func(m *move) {
		m.grant.Start = time.Now()
	})),
	lock("extend adds up", "ExtendRestarts", on(extend, func(m *move) (driver.Grant, error) {
		info, _ := m.Server.Inspect(m.ctx, m.c)
		g, err := m.rightly()
		m.Count(m.c.Key, m.until().Add(info.TTL))
		return g, err
	})),
	lock("extend does nothing", "ExtendRestarts KeptAlive Do MaxHold", on(extend, func(m *move) (g driver.Grant, err error) {
		if m.holder() != m.c.Token {
			err = m.lost("")
		}
		return g, err
	})),
	lock("extend makes the lock again", "ExtendNeverRecreates", on(extend, func(m *move) (driver.Grant, error) {
		if m.holder() == "" {
			return m.Set(m.c, m.until()), nil
		}
		return m.rightly()
	})),
	lock("never admits a loss", "ForgedGrant LossNoticed ExtendOnlyOwn ExtendNeverRecreates", after(extend, admitNoLoss)),
	lockOf("renews nothing any more once a lock was lost", "RenewsAfterLoss", func() faults {
		var lost atomic.Bool
		return on(extend, func(m *move) (driver.Grant, error) {
			if lost.Load() {
				return driver.Grant{}, nil
			}
			g, err := m.rightly()
			if errors.Is(err, strategy.ErrLost) {
				lost.Store(true)
			}
			return g, err
		})
	}),
	lock("a late renewal brings the lock back", "LossWithoutNetwork", on(extend, func(m *move) (driver.Grant, error) {
		m.Gate("SET PX", func() { m.Set(m.c, time.Now().Add(time.Hour)) })
		return driver.Grant{}, memory.Unsent()
	})),
	lock("renews the fence as well", "FenceKept", after(extend, func(m *move) {
		m.grant.Fence += 1000
	})),
	{"extend revives an expired row", []string{"LateExtension"}, func() Subject {
		var rows sync.Map // the last token, by key; also of an expired lock
		m := &memory.Server{}
		s := spoilt(m, "revives", after(acquire, func(m *move) {
			if m.err == nil {
				rows.Store(m.c.Key, m.c.Token)
			}
		}).and(on(extend, func(m *move) (g driver.Grant, err error) {
			forgetDue(&m.c) // the answer is waited for
			m.Gate("UPDATE", func() {
				if row, _ := rows.Load(m.c.Key); row == m.c.Token && m.holder() == "" {
					g = m.Set(m.c, m.until())
				} else {
					g, err = m.Server.Extend(m.ctx, m.c)
				}
			})
			return g, err
		})))
		s.Evict = func(ctx context.Context, key string) error { // and so ExtendNeverRecreates sees nothing of it
			rows.Delete(key)
			return m.Evict(ctx, key)
		}
		return s
	}},

	lock("forgets the token on adopt", "AdoptOnlyHeld AdoptOnce", on(adopt, func(m *move) (driver.Grant, error) {
		if holder := m.holder(); holder != "" {
			m.from = holder
		}
		return m.rightly()
	})),
	{"adopts in silence", []string{"AdoptionWakes"}, func() Subject {
		m := &memory.Server{}
		s := subjectOn(m, "silent")
		s.speaks(func(g Gate) driver.Protocol {
			return noQueue{faulty{memory.Shares{Gated: memory.Gated{Server: m, Gate: g}}, on(adopt, func(m *move) (g driver.Grant, err error) {
				m.Silently(m.c.Key, func() { g, err = m.rightly() })
				return g, err
			})}}
		})
		return s
	}},
	lock("adopts without renewing", "Adopt", on(adopt, func(m *move) (driver.Grant, error) {
		until := m.Until(m.c.Key)
		g, err := m.rightly()
		if err == nil {
			m.Count(m.c.Key, until)
		}
		return g, err
	})),
	lock("adopts without a new token", "AdoptOnce", on(adopt, func(m *move) (driver.Grant, error) {
		m.op, m.c.Token = extend, m.from
		return m.rightly()
	})),
	lock("hands the fence on with the token", "FenceRises", after(adopt, func(m *move) {
		m.grant.Fence-- // as it was
	})),

	lock("does not report that a watch broke", "BrokenWatch", onNews(func(n driver.Notification, hears func(driver.Notification)) {
		if !n.Broken() {
			hears(n)
		}
	})),
	lock("tells nobody of releases", "WokenByRelease WokenByNotification NoMissedRelease FirstComeFirstServed WaitersAreCheap",
		onNews(func(driver.Notification, func(driver.Notification)) {})),
	lock("leaves its subscriptions", "LeavesNothing", after(watch, staySubscribed)),
	lock("listens only later than it says", "NoMissedRelease", on(watch, func(m *move) (g driver.Grant, err error) {
		ready := make(chan func(), 1)
		time.AfterFunc(30*time.Millisecond, func() {
			stop, err := m.Server.Watch(m.ctx, m.c, m.hears)
			if err != nil {
				stop = func() {}
			}
			ready <- stop
		})
		m.Gate("SUBSCRIBE", func() {})
		m.stop = func() { (<-ready)() }
		return g, nil
	})),
	lockOf("says that locks are held for as long as the last message says", "ForgedDelay", func() faults {
		var next atomic.Int64
		return onNews(func(n driver.Notification, hears func(driver.Notification)) {
			next.Store(max(next.Load(), int64(n.Next)))
			hears(n)
		}).and(after(acquire, func(m *move) {
			var held *strategy.HeldError
			if errors.As(m.err, &held) {
				held.TTL = max(held.TTL, time.Duration(next.Load()))
			}
		}))
	}),
	lock("reserves one fence and says that it has many", "HandedOn", on(acquire, func(m *move) (driver.Grant, error) {
		m.c.Fences = 1
		g, err := m.rightly()
		g.Fences = 16
		return g, err
	}).and(onNews(func(n driver.Notification, hears func(driver.Notification)) {
		n.Grant.Fences = 16
		hears(n)
	}))),

	lock("pass drops the place", "PassKeepsPlaces", on(memory.OpPass, func(m *move) (driver.Grant, error) {
		m.next.Line = ""
		g, err := m.rightly()
		if errors.Is(err, strategy.ErrHeld) {
			g.Place = 1
		}
		return g, err
	})),
	lock("inspects with its own TTL", "Inspect", after(inspect, func(m *move) {
		if m.info.Held {
			m.info.TTL = -1
		}
	})),
	lock("inspects by force", "Inspect", on(inspect, func(m *move) (driver.Grant, error) {
		defer m.Evict(m.ctx, m.c.Key)
		return m.rightly()
	})),

	lock("counts from the reply, however late that comes", "DeadlineFromRequest LateGrant", on(acquire, func(m *move) (driver.Grant, error) {
		forgetDue(&m.c)
		g, err := m.rightly()
		g.Start = time.Now()
		return g, err
	})),
	lockOf("a caller that asks again hears that the lock is held", "WokenAtExpiry", func() faults {
		var asked sync.Map
		return on(acquire, func(m *move) (driver.Grant, error) {
			if _, again := asked.LoadOrStore(m.c.Token, true); again && m.holder() == "" {
				return driver.Grant{Place: 1, Kept: true}, &strategy.HeldError{Name: m.c.Name, TTL: time.Second}
			}
			return m.rightly()
		})
	}),
	lock("a holder that asks again hears that the lock is held", "LongQueue", on(acquire, func(m *move) (driver.Grant, error) {
		if m.c.Repeated && m.holder() == m.c.Token {
			return driver.Grant{}, &strategy.HeldError{Name: m.c.Name, Holder: m.c.Token, TTL: time.Until(m.Until(m.c.Key))}
		}
		return m.rightly()
	})),
	lock("who asks again goes to the end of the queue", "AskingAgain", on(acquire, func(m *move) (g driver.Grant, err error) {
		m.Gate("acquire", func() {
			m.Requeue(m.c.Key, func(queue []driver.Claim, _ func(driver.Claim) bool, held bool) []driver.Claim {
				return slices.DeleteFunc(queue, func(x driver.Claim) bool { return held && x.Token == m.c.Token })
			})
			g, err = m.Server.Acquire(m.ctx, m.c)
		})
		return g, err
	})),
	lock("makes a holder of a claim that asks again", "ForgedGrant", after(acquire, func(m *move) {
		if m.c.Repeated && errors.Is(m.err, strategy.ErrHeld) {
			m.grant, m.err = driver.Grant{Fence: 1}, nil
		}
	})),
	lock("the loser makes the lock last longer", "FailedTryChangesNothing", after(acquire, func(m *move) {
		if errors.Is(m.err, strategy.ErrHeld) {
			m.count()
		}
	})),
	lock("the loser leaves its token", "FailedTryChangesNothing", after(acquire, func(m *move) {
		if errors.Is(m.err, strategy.ErrHeld) {
			m.Set(m.c, m.until()) // GETSET
		}
	})),
	lock("sets, then sets the expiry", "NoDeadlock", on(acquire, func(m *move) (g driver.Grant, err error) {
		m.Gate("SETNX", func() {
			if holder := m.holder(); holder != "" {
				err = m.held(holder)
				return
			}
			g = m.Set(m.c, time.Now().Add(time.Hour))
		})
		if err == nil {
			m.Gate("EXPIRE", m.count)
		}
		return g, err
	})),
	lock("says that locks are held for hours", "WokenAtExpiry", after(acquire, func(m *move) {
		var held *strategy.HeldError
		if errors.As(m.err, &held) {
			held.TTL = time.Hour
		}
	})),
	lock("keeps what it granted to those who had gone", "CancelRacesGrant", on(acquire, func(m *move) (driver.Grant, error) {
		ctx := m.ctx
		m.ctx = context.WithoutCancel(ctx)
		g, err := m.rightly()
		time.Sleep(200 * time.Microsecond)
		if ctx.Err() != nil && err == nil {
			err = context.Cause(ctx)
		}
		return g, err
	})),
	lock("calls a broken key held", "WrongType", after(acquire, func(m *move) {
		if errors.Is(m.err, strategy.ErrRefused) {
			m.err = m.held("")
		}
	})),
	lock("does not issue fences, and says it does", "FenceRises FenceKept FenceOrders",
		onEach(func(m *move) (driver.Grant, error) { return driver.Grant{}, m.right() }, acquire, extend)),
	lockOf("draws the fence before the lock", "FenceOrders", func() faults {
		var drawn atomic.Uint64
		return on(acquire, func(m *move) (driver.Grant, error) {
			fence := drawn.Add(1)
			if fence%2 == 1 {
				time.Sleep(time.Second) // the next draws a greater one and overtakes
			}
			g, err := m.rightly()
			g.Fence = fence
			return g, err
		})
	}),
	lock("grants newcomers the lock first, and says it is fair", "NoBarging", on(acquire, func(m *move) (driver.Grant, error) {
		var waiting []driver.Claim
		m.Requeue(m.c.Key, func(queue []driver.Claim, _ func(driver.Claim) bool, held bool) []driver.Claim {
			if waiting = queue; !held {
				return nil
			}
			return queue
		})
		defer m.Requeue(m.c.Key, func(now []driver.Claim, _ func(driver.Claim) bool, _ bool) []driver.Claim {
			if len(waiting) > 0 {
				return waiting
			}
			return now
		})
		return m.rightly()
	})),
}

// clockMutants are locks that mind their contenders' clocks, or lose races for an
// expired lock badly, as those did that came before SET NX PX.
var clockMutants = []mutant{
	odd("lets the contender's clock say what has expired", "ClockAhead", skewedBy(func(m *move, ahead time.Duration) (driver.Grant, error) {
		if !time.Now().Add(ahead).Before(m.Until(m.c.Key)) {
			m.Evict(m.ctx, m.c.Key)
		}
		return m.rightly()
	})),
	odd("lets the holder's clock say when it expires", "ClockBehind", skewedBy(func(m *move, ahead time.Duration) (driver.Grant, error) {
		g, err := m.rightly()
		if err == nil {
			m.Count(m.c.Key, m.until().Add(ahead))
		}
		return g, err
	})),
	lock("sees it expired, then overwrites", "TakeOverRace", lookThen(func(m *move) (driver.Grant, error) {
		return m.Set(m.c, m.until()), nil
	})),
	lock("sees it expired, then swaps", "LoserChangesNothing", lookThen(func(m *move) (driver.Grant, error) {
		old := m.holder()
		g := m.Set(m.c, m.until()) // GETSET
		if old != "" {
			return driver.Grant{}, m.held(old)
		}
		return g, nil
	})),
	lockOf("takes what is gone for held, having swapped", "NoGhost", func() faults {
		var released sync.Map // by key
		look := lookThen(func(m *move) (driver.Grant, error) {
			g := m.Set(m.c, m.until())
			if _, ok := released.Load(m.c.Key); ok {
				return driver.Grant{}, m.held("")
			}
			return g, nil
		})
		return on(acquire, func(m *move) (driver.Grant, error) {
			released.Delete(m.c.Key)
			return look[acquire](m)
		}).and(beforeEach(func(m *move) {
			released.Store(m.c.Key, true)
		}, ends...))
	}),
}

// onClaims changes all claims but those that adopt.
func onClaims(f func(c *driver.Claim)) faults {
	return changing(f, append([]memory.Op{acquire, extend}, ends...)...)
}

// onNews has f decide what of a message a waiter hears.
func onNews(f func(n driver.Notification, hears func(driver.Notification))) faults {
	return on(watch, func(m *move) (driver.Grant, error) {
		hears := m.hears
		m.hears = func(n driver.Notification) { f(n, hears) }
		return m.rightly()
	})
}

// admitNoLoss takes a loss for an extension.
func admitNoLoss(m *move) {
	if errors.Is(m.err, strategy.ErrLost) {
		m.err = nil
	}
}

// staySubscribed goes on listening.
func staySubscribed(m *move) { m.stop = func() {} }

// lookThen looks whether the lock is free, and takes it in a second request.
func lookThen(take fault) faults {
	return on(acquire, func(m *move) (g driver.Grant, err error) {
		var holder string
		m.Gate("GET", func() { holder = m.holder() })
		if holder != "" {
			return driver.Grant{}, m.held(holder)
		}
		m.Gate("SET", func() { g, err = take(m) })
		return g, err
	})
}

// skewedBy has acquires depend on their contenders' clocks.
func skewedBy(f func(m *move, ahead time.Duration) (driver.Grant, error)) func(*Subject) {
	return func(s *Subject) {
		m := &memory.Server{}
		s.OpenSkewed = func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
			skewed := on(acquire, func(m *move) (driver.Grant, error) { return f(m, ahead) })
			return engine.New(faulty{memory.Shares{Gated: memory.Gated{Server: m, Gate: open}}, skewed}, o)
		}
		s.Open = func(o strategy.Options) (strategy.Strategy, error) { return s.OpenSkewed(o, 0) }
	}
}

// noQueue hides the queue: its Pass is not that of a [driver.Queuer].
type noQueue struct{ faulty }

func (noQueue) Pass() {}

// endless is a context without its deadline.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Time{}, false }

// An acquiring is how a lock of a correct strategy is acquired wrongly; open opens another one.
type acquiring func(ctx context.Context, l strategy.Lock, try bool, open func() (strategy.Strategy, error)) (strategy.Lease, error)

// acquires has gated contenders acquire in another way.
func (s *Subject) acquires(ask acquiring) {
	gated := s.OpenGated
	s.OpenGated = func(o strategy.Options, g Gate) (strategy.Strategy, error) {
		open := func() (strategy.Strategy, error) { return gated(o, g) }
		correct, err := open()
		return askingStrategy{correct, func(ctx context.Context, l strategy.Lock, try bool) (strategy.Lease, error) {
			return ask(ctx, l, try, open)
		}}, err
	}
}

type askingStrategy struct {
	strategy.Strategy
	ask func(ctx context.Context, l strategy.Lock, try bool) (strategy.Lease, error)
}

func (s askingStrategy) NewLock(name string) strategy.Lock {
	return askingLock{s.Strategy.NewLock(name), s}
}

type askingLock struct {
	strategy.Lock
	s askingStrategy
}

func (l askingLock) TryAcquire(ctx context.Context) (strategy.Lease, error) {
	return l.s.ask(ctx, l.Lock, true)
}

func (l askingLock) Acquire(ctx context.Context) (strategy.Lease, error) {
	return l.s.ask(ctx, l.Lock, false)
}
