// Faults of locks that several may hold: see TestMutants.
package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// faultyShares is a faulty lock that several may hold.
type faultyShares struct {
	faulty
	apart func(held, asked int32) bool // which exclude each other; nil: as it is right
}

func (f faultyShares) MaxShare() int           { return f.right.MaxShare() }
func (f faultyShares) Groups(share int32) bool { return f.right.Groups(share) }

func (f faultyShares) Excludes(held, asked int32) bool {
	if f.apart == nil {
		return f.right.Excludes(held, asked)
	}
	return f.apart(held, asked)
}

// Pass does its two parts wrongly, in two steps, if it has no fault of its own.
func (f faultyShares) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	if f.faults[memory.OpPass] != nil || f.faults[acquire] == nil && f.faults[memory.OpRelease] == nil {
		return f.faulty.Pass(ctx, c, next)
	}
	if _, err := f.Release(ctx, c); err != nil {
		return driver.Grant{}, err
	}
	return f.Acquire(ctx, next)
}

func (f faultyShares) SetPermits(ctx context.Context, c driver.Claim, n int) error {
	_, err := f.meets(&move{op: permits, ctx: ctx, c: c, permits: n})
	return err
}

// shared is a lock with these faults: of permits, and to read and to write.
func shared(name, killed string, f faults) mutant { return sharedApart(name, killed, f, nil) }

func sharedApart(name, killed string, f faults, apart func(held, asked int32) bool) mutant {
	return mutant{name, strings.Fields(killed), func() Subject {
		m := &memory.Server{}
		of := func(permits int) faultyShares { return faultyShares{faulty{m.Shares(nil, permits), f}, apart} }
		s := semaphoresOn(m, name)
		s.OpenPermits = func(permits int, o strategy.Options) (strategy.Semaphore, error) {
			return memory.NewSemaphore(of(permits), o)
		}
		s.OpenRW = func(o strategy.Options) (strategy.ReadWriter, error) { return memory.NewReadWriter(of(0), o) }
		return s
	}}
}

// picking serves the queue in another order: with each of these requests, or, if there are none, always.
func picking(next func(correct memory.Pick) memory.Pick, ops ...memory.Op) faults {
	if len(ops) == 0 {
		ops = append([]memory.Op{acquire, adopt, memory.OpPass, permits}, ends...)
	}
	return onEach(func(m *move) (driver.Grant, error) {
		m.Next = next(m.Next)
		return m.rightly()
	}, ops...)
}

func nobody(memory.Pick) memory.Pick {
	return func(*memory.Lock, []driver.Claim, int, bool) int { return -1 }
}

// anybody picks the first in the queue whom the correct one would pick if there were no others.
func anybody(correct memory.Pick) memory.Pick {
	return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
		for i := range queue {
			if correct(l, queue[i:i+1], permits, wrote) == 0 {
				return i
			}
		}
		return -1
	}
}

// itself picks c, if the correct one would do so without the others.
func itself(correct memory.Pick, c driver.Claim) memory.Pick {
	return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
		i := slices.IndexFunc(queue, func(x driver.Claim) bool { return x.Token == c.Token })
		if i < 0 || correct(l, queue[i:i+1], permits, wrote) < 0 {
			return -1
		}
		return i
	}
}

// last picks the last in the queue, if the correct one would do so without the others.
func last(correct memory.Pick) memory.Pick {
	return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
		i := len(queue) - 1
		if i < 0 || correct(l, queue[i:], permits, wrote) < 0 {
			return -1
		}
		return i
	}
}

// readersFirst picks those who want to read, unless somebody writes who keeps them out.
func readersFirst(keepsOut func(*memory.Lock) bool) func(memory.Pick) memory.Pick {
	return func(correct memory.Pick) memory.Pick {
		return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
			reads := func(c driver.Claim) bool { return c.Share == memory.Reading }
			if i := slices.IndexFunc(queue, reads); i >= 0 && !keepsOut(l) {
				return i
			}
			return correct(l, queue, permits, wrote)
		}
	}
}

// sharingMutants are faults of locks that several may hold.
var sharingMutants = []mutant{
	shared("extends the permits of strangers", "ForgedGrant", after(extend, admitNoLoss)),
	shared("one permit too many", "PermitsBound PermitsLowered PermitsForAll", picking(func(correct memory.Pick) memory.Pick {
		return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
			return correct(l, queue, permits+1, wrote)
		}
	})),
	shared("one holder, whatever the number", "PermitsBound PermitsUnderContention PermitsRaised ReadersTogether", picking(func(correct memory.Pick) memory.Pick {
		return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
			if len(l.Holds) > 0 {
				return -1
			}
			return correct(l, queue, permits, wrote)
		}
	})),
	shared("looks who holds, then takes", "PermitsUnderContention ReadersAndWriters", before(acquire, func(m *move) {
		looked := &memory.Lock{}
		m.Change(m.c.Key, func(l *memory.Lock) { looked.Holds = slices.Clone(l.Holds) })
		<-time.After(time.Millisecond) // others look meanwhile
		correct := itself(m.Next, m.c)
		m.Next = func(_ *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
			return correct(looked, queue, permits, wrote)
		}
	})),
	shared("numbers of permits are ignored", "SeveralPermits TooManyPermits",
		changing(func(c *driver.Claim) { c.Share = min(c.Share, 1) }, acquire)),
	shared("a waiter for several has what is there", "SeveralPermits", after(acquire, func(m *move) {
		if errors.Is(m.err, strategy.ErrHeld) && m.c.Share > 1 {
			m.c.Share = 1
			m.grant, m.err = m.rightly()
		}
	})),
	shared("an attempt for several that is refused keeps what was there", "SeveralPermits", after(acquire, func(m *move) {
		if errors.Is(m.err, strategy.ErrHeld) && m.c.Share > 1 {
			m.c.Share, m.c.Token = 1, m.c.Token+":1"
			m.rightly()
		}
	})),
	shared("a release of several gives one back", "SeveralPermits PermitsApart PermitsLeaveNothing", beforeEach(func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) {
			if h := l.Hold(m.c.Token); h != nil && h.Share > 1 {
				rest := *h
				rest.Token, rest.Share = "the rest", h.Share-1
				l.Holds = append(l.Holds, rest)
			}
		})
	}, ends...)),
	shared("calls it held when too many are asked for", "TooManyPermits TooManyNow", after(acquire, func(m *move) {
		if errors.Is(m.err, strategy.ErrRefused) {
			m.err = m.held("")
		}
	})),
	shared("a waiter for more than there are now stays in the way", "TooManyNow", picking(func(correct memory.Pick) memory.Pick {
		return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
			if len(queue) > 0 && memory.PermitsOf(queue[0].Share) > permits-l.Taken() {
				return -1
			}
			return correct(l, queue, permits, wrote)
		}
	})),
	shared("serves last the waiter for permits that came first", "PermitsInOrder", picking(last)),
	shared("a release serves waiters out of order", "ManyPermitsNotOvertaken", picking(anybody, ends...)),
	shared("grants newcomers a share next to the holders", "ManyPermitsNotOvertaken WriterNotStarved", before(acquire, func(m *move) {
		m.Next = itself(m.Next, m.c)
	})),
	shared("a waiter that gives up leaves those behind it waiting", "ManyPermitsGiveUp WriterGivesUp", before(memory.OpUndo, func(m *move) {
		m.Next = nobody(m.Next)
	})),
	shared("more permits serve nobody", "PermitsRaised", picking(nobody, permits)),
	shared("fewer permits take some away", "PermitsLowered", before(permits, func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) { l.Holds = l.Holds[:min(m.permits, len(l.Holds))] })
	})),
	shared("fewer permits count for nothing", "PermitsLowered TooManyNow", before(permits, func(m *move) {
		m.permits = max(m.permits, m.Permits)
	})),
	shared("a process's own number counts, too", "PermitsForAll", before(acquire, func(m *move) {
		correct := m.Next
		m.Next = func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
			return correct(l, queue, min(permits, m.Permits), wrote)
		}
	})),
	shared("zero does not take the number back", "PermitsForAll", on(permits, func(m *move) (g driver.Grant, err error) {
		if m.permits != 0 {
			err = m.right()
		}
		return g, err
	})),
	shared("one holder of several never expires", "DeadPermits DeadReader", changing(func(c *driver.Claim) { c.TTL = time.Hour }, acquire)),
	shared("renewal is that of all, and so the dead are kept alive", "DeadPermits DeadReader", after(extend, countAll)),
	shared("the last to come sets the TTL of all", "DeadPermits DeadReader", after(acquire, countAll)),
	shared("a late release ends another hold", "PermitsOnlyOwn ReadersOnlyOwn", afterEach(func(m *move) {
		if errors.Is(m.err, strategy.ErrLost) {
			m.Change(m.c.Key, func(l *memory.Lock) { l.Holds = l.Holds[1:] })
		}
	}, ends...)),
	shared("a late renewal is another holder's", "PermitsOnlyOwn ReadersOnlyOwn", before(extend, func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) {
			if l.Hold(m.c.Token) == nil {
				m.c.Token = l.Holds[0].Token
			}
		})
	})),
	shared("a release ends the oldest hold", "PermitsApart", beforeEach(func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) { m.c.Token = l.Holds[0].Token })
	}, ends...)),
	shared("a release ends all holds", "PermitsBound PermitsApart PermitsLowered ReadersTogether", beforeEach(func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) {
			if l.Hold(m.c.Token) != nil {
				l.Holds = []memory.Hold{*l.Hold(m.c.Token)}
			}
		})
	}, ends...)),
	shared("several holders have one fence", "PermitFences WriterFences", after(acquire, func(m *move) {
		m.grant.Fence = min(m.grant.Fence, 1)
	})),
	shared("renewal tells the last fence of the lock", "PermitFences", after(extend, func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) { m.grant.Fence = l.Holds[len(l.Holds)-1].Fence })
	})),
	shared("subscriptions of those who waited for a share stay", "PermitsLeaveNothing ReadersLeaveNothing", after(watch, staySubscribed)),
	shared("a reader gets in next to a writer", "WriterAlone", picking(readersFirst(func(*memory.Lock) bool { return false }))),
	shared("a writer gets in next to readers", "ReadersTogether DeadReader ReadersOnlyOwn", picking(func(memory.Pick) memory.Pick {
		return func(l *memory.Lock, queue []driver.Claim, _ int, _ bool) int {
			if len(queue) == 0 || l.Writes() {
				return -1
			}
			return 0
		}
	})),
	shared("when readers have gone, readers come first", "WriterNotStarved ReadersNotStarved",
		picking(readersFirst((*memory.Lock).Writes), ends...)),
	shared("when a writer has gone, writers come first", "ReadersNotStarved", picking(func(correct memory.Pick) memory.Pick {
		return func(l *memory.Lock, queue []driver.Claim, permits int, _ bool) int {
			return correct(l, queue, permits, false)
		}
	}, ends...)),
	shared("when a writer has gone, one reader gets in", "ReadersNotStarved", picking(func(correct memory.Pick) memory.Pick {
		served := false
		return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
			if served {
				return -1
			}
			i := correct(l, queue, permits, wrote)
			served = i >= 0
			return i
		}
	}, ends...)),
	shared("a downgrade releases, then acquires", "Downgrade", on(adopt, func(m *move) (driver.Grant, error) {
		writes := m.c
		writes.Token = m.from
		if _, err := m.Release(m.ctx, writes); err != nil {
			return driver.Grant{}, err
		}
		return m.Acquire(m.ctx, m.c)
	})),
	shared("a downgrade lets nobody in", "Downgrade ReadersLeaveNothing", picking(nobody, adopt)),
	shared("a lease that was downgraded still writes", "Downgrade", changing(func(c *driver.Claim) { c.Share = 0 }, adopt)),
	shared("a downgrade ends with the write", "Downgrade", after(adopt, func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) { l.End(m.c.Token) })
	})),
	shared("a downgrade has the fence before the writer's", "WriterFences", after(adopt, func(m *move) {
		m.grant.Fence--
	})),
	shared("readers have no fence", "WriterFences", after(acquire, func(m *move) {
		if m.c.Share == memory.Reading {
			m.grant.Fence = 0
		}
	})),
	shared("the first reader has the last writer's fence", "WriterFences", after(acquire, func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) {
			if m.c.Share == memory.Reading && len(l.Holds) == 1 && m.err == nil {
				m.grant.Fence--
			}
		})
	})),
	shared("a reader's fence is ahead of the next writer's", "WriterFences", after(acquire, func(m *move) {
		if m.c.Share == memory.Reading {
			m.grant.Fence += 1e9 // µs: the next writer comes sooner
		}
	})),
	sharedApart("lets a writer wait for itself", "WithinItself", nil,
		func(held, asked int32) bool { return asked == memory.Reading && held != memory.Reading }),
	sharedApart("lets a reader wait for its own writer", "WithinItself", nil,
		func(held, asked int32) bool { return asked != memory.Reading && held == memory.Reading }),
	sharedApart("refuses a reader among its own readers", "WithinItself", nil, func(int32, int32) bool { return true }),
}
