// Faults of locks that several may hold: see TestMutants.
package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// faultyShares is shares that makes one of its moves wrongly.
type faultyShares struct {
	memory.Shares
	sharesMoves
}

// sharesMoves replaces those that are not nil. Each gets the correct protocol.
type sharesMoves struct {
	acquire func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error)
	extend  func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error)
	adopt   func(p memory.Shares, ctx context.Context, c driver.Claim, from string) (driver.Grant, error)
	release func(p memory.Shares, ctx context.Context, op memory.Op, c driver.Claim) error
	set     func(p memory.Shares, ctx context.Context, c driver.Claim, permits int) error
	watch   func(p memory.Shares, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error)
	pick    func(correct memory.Pick) memory.Pick
	apart   func(held, asked int32) bool
}

func (f faultyShares) Excludes(held, asked int32) bool {
	if f.apart == nil {
		return f.Shares.Excludes(held, asked)
	}
	return f.apart(held, asked)
}

func (f faultyShares) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if f.acquire == nil {
		return f.Shares.Acquire(ctx, c)
	}
	return f.acquire(f.Shares, ctx, c)
}

// Pass makes both of its moves wrongly, in two steps.
func (f faultyShares) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	if f.acquire == nil && f.sharesMoves.release == nil {
		return f.Shares.Pass(ctx, c, next)
	}
	if err := f.finish(ctx, memory.OpRelease, c); err != nil {
		return driver.Grant{}, err
	}
	return f.Acquire(ctx, next)
}

func (f faultyShares) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if f.extend == nil {
		return f.Shares.Extend(ctx, c)
	}
	return f.extend(f.Shares, ctx, c)
}

func (f faultyShares) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	for i, c := range cs {
		g, err := f.Extend(ctx, c)
		done(i, g, err)
	}
}

func (f faultyShares) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	if f.adopt == nil {
		return f.Shares.Adopt(ctx, c, from)
	}
	return f.adopt(f.Shares, ctx, c, from)
}

func (f faultyShares) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, f.finish(ctx, memory.OpRelease, c)
}

func (f faultyShares) Undo(ctx context.Context, c driver.Claim) error {
	return f.finish(ctx, memory.OpUndo, c)
}

func (f faultyShares) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, f.finish(ctx, memory.OpForceRelease, c)
}

func (f faultyShares) finish(ctx context.Context, op memory.Op, c driver.Claim) error {
	if f.sharesMoves.release == nil {
		return f.Shares.Finish(ctx, op, c)
	}
	return f.sharesMoves.release(f.Shares, ctx, op, c)
}

func (f faultyShares) SetPermits(ctx context.Context, c driver.Claim, permits int) error {
	if f.set == nil {
		return f.Shares.SetPermits(ctx, c, permits)
	}
	return f.set(f.Shares, ctx, c, permits)
}

func (f faultyShares) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	if f.watch == nil {
		return f.Shares.Watch(ctx, c, fn)
	}
	return f.watch(f.Shares, ctx, c, fn)
}

// shared makes a subject of locks with these faults: permits, and to read and to write.
func shared(faults sharesMoves) func(*Subject) {
	return func(s *Subject) {
		m := &memory.Server{}
		on := func(permits int) faultyShares {
			p := m.Shares(nil, permits)
			if faults.pick != nil {
				p.Next = faults.pick(p.Next)
			}
			return faultyShares{p, faults}
		}
		*s = semaphoresOn(m, s.Name)
		s.OpenPermits = func(permits int, o strategy.Options) (strategy.Semaphore, error) {
			return memory.NewSemaphore(on(permits), o)
		}
		s.OpenRW = func(o strategy.Options) (strategy.ReadWriter, error) { return memory.NewReadWriter(on(0), o) }
	}
}

// onShares changes what an Acquire asks for.
func onShares(f func(c *driver.Claim)) func(*Subject) {
	return shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
		f(&c)
		return p.Acquire(ctx, c)
	}})
}

// releasing makes releases serve the queue in another order.
func releasing(t func(correct memory.Pick) memory.Pick) func(*Subject) {
	return shared(sharesMoves{release: func(p memory.Shares, ctx context.Context, op memory.Op, c driver.Claim) error {
		p.Next = t(p.Next)
		return p.Finish(ctx, op, c)
	}})
}

// nobody picks nobody.
func nobody(*memory.Lock, []driver.Claim, int, bool) int { return -1 }

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

// sharingMutants are faults of locks that several may hold.
var sharingMutants = []mutant{
	{
		name: "extends the permits of strangers", killed: []string{"ForgedGrant"},
		claims: shared(sharesMoves{extend: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			if errors.Is(err, strategy.ErrLost) {
				err = nil
			}
			return g, err
		}}),
	},
	{
		name: "one permit too many", killed: []string{"PermitsBound", "PermitsLowered", "PermitsForAll"},
		claims: shared(sharesMoves{pick: func(correct memory.Pick) memory.Pick {
			return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				return correct(l, queue, permits+1, wrote)
			}
		}}),
	},
	{
		name: "one holder, whatever the number", killed: []string{"PermitsBound", "PermitsUnderContention", "PermitsRaised", "ReadersTogether"},
		claims: shared(sharesMoves{pick: func(correct memory.Pick) memory.Pick {
			return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				if len(l.Holds) > 0 {
					return -1
				}
				return correct(l, queue, permits, wrote)
			}
		}}),
	},
	{
		name: "looks who holds, then takes", killed: []string{"PermitsUnderContention", "ReadersAndWriters"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			looked := &memory.Lock{}
			p.Change(c.Key, func(l *memory.Lock) { looked.Holds = slices.Clone(l.Holds) })
			<-time.After(time.Millisecond) // others look meanwhile
			correct := itself(p.Next, c)
			p.Next = func(_ *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				return correct(looked, queue, permits, wrote)
			}
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "numbers of permits are ignored", killed: []string{"SeveralPermits", "TooManyPermits"},
		claims: onShares(func(c *driver.Claim) { c.Share = min(c.Share, 1) }),
	},
	{
		name: "a waiter for several has what is there", killed: []string{"SeveralPermits"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrHeld) && c.Share > 1 {
				c.Share = 1
				return p.Acquire(ctx, c)
			}
			return g, err
		}}),
	},
	{
		name: "an attempt for several that is refused keeps what was there", killed: []string{"SeveralPermits"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrHeld) && c.Share > 1 {
				c.Share, c.Token = 1, c.Token+":1"
				_, _ = p.Acquire(ctx, c)
			}
			return g, err
		}}),
	},
	{
		name: "a release of several gives one back", killed: []string{"SeveralPermits", "PermitsApart", "PermitsLeaveNothing"},
		claims: shared(sharesMoves{release: func(p memory.Shares, ctx context.Context, op memory.Op, c driver.Claim) error {
			p.Change(c.Key, func(l *memory.Lock) {
				if h := l.Hold(c.Token); h != nil && h.Share > 1 {
					rest := *h
					rest.Token, rest.Share = "the rest", h.Share-1
					l.Holds = append(l.Holds, rest)
				}
			})
			return p.Finish(ctx, op, c)
		}}),
	},
	{
		name: "calls it held when too many are asked for", killed: []string{"TooManyPermits", "TooManyNow"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if errors.Is(err, strategy.ErrRefused) {
				err = &strategy.HeldError{Name: c.Name}
			}
			return g, err
		}}),
	},
	{
		name: "a waiter for more than there are now stays in the way", killed: []string{"TooManyNow"},
		claims: shared(sharesMoves{pick: func(correct memory.Pick) memory.Pick {
			return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				if len(queue) > 0 && memory.PermitsOf(queue[0].Share) > permits-l.Taken() {
					return -1
				}
				return correct(l, queue, permits, wrote)
			}
		}}),
	},
	{
		name: "serves last the waiter for permits that came first", killed: []string{"PermitsInOrder"},
		claims: shared(sharesMoves{pick: last}),
	},
	{
		name: "a release serves waiters out of order", killed: []string{"ManyPermitsNotOvertaken"},
		claims: releasing(anybody),
	},
	{
		name: "grants newcomers a share next to the holders", killed: []string{"ManyPermitsNotOvertaken", "WriterNotStarved"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			p.Next = itself(p.Next, c)
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "a waiter that gives up leaves those behind it waiting", killed: []string{"ManyPermitsGiveUp", "WriterGivesUp"},
		claims: shared(sharesMoves{release: func(p memory.Shares, ctx context.Context, op memory.Op, c driver.Claim) error {
			if op == memory.OpUndo {
				p.Next = nobody
			}
			return p.Finish(ctx, op, c)
		}}),
	},
	{
		name: "more permits serve nobody", killed: []string{"PermitsRaised"},
		claims: shared(sharesMoves{set: func(p memory.Shares, ctx context.Context, c driver.Claim, permits int) error {
			p.Next = nobody
			return p.SetPermits(ctx, c, permits)
		}}),
	},
	{
		name: "fewer permits take some away", killed: []string{"PermitsLowered"},
		claims: shared(sharesMoves{set: func(p memory.Shares, ctx context.Context, c driver.Claim, permits int) error {
			p.Change(c.Key, func(l *memory.Lock) { l.Holds = l.Holds[:min(permits, len(l.Holds))] })
			return p.SetPermits(ctx, c, permits)
		}}),
	},
	{
		name: "fewer permits count for nothing", killed: []string{"PermitsLowered", "TooManyNow"},
		claims: shared(sharesMoves{set: func(p memory.Shares, ctx context.Context, c driver.Claim, permits int) error {
			return p.SetPermits(ctx, c, max(permits, p.Permits))
		}}),
	},
	{
		name: "a process's own number counts, too", killed: []string{"PermitsForAll"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			correct := p.Next
			p.Next = func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				return correct(l, queue, min(permits, p.Permits), wrote)
			}
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "zero does not take the number back", killed: []string{"PermitsForAll"},
		claims: shared(sharesMoves{set: func(p memory.Shares, ctx context.Context, c driver.Claim, permits int) error {
			if permits == 0 {
				return nil
			}
			return p.SetPermits(ctx, c, permits)
		}}),
	},
	{
		name: "one holder of several never expires", killed: []string{"DeadPermits", "DeadReader"},
		claims: onShares(func(c *driver.Claim) { c.TTL = time.Hour }),
	},
	{
		name: "renewal is that of all, and so the dead are kept alive", killed: []string{"DeadPermits", "DeadReader"},
		claims: shared(sharesMoves{extend: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			if err == nil {
				p.Count(c.Key, time.Now().Add(c.TTL))
			}
			return g, err
		}}),
	},
	{
		name: "the last to come sets the TTL of all", killed: []string{"DeadPermits", "DeadReader"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if err == nil {
				p.Count(c.Key, time.Now().Add(c.TTL))
			}
			return g, err
		}}),
	},
	{
		name: "a late release ends another hold", killed: []string{"PermitsOnlyOwn", "ReadersOnlyOwn"},
		claims: shared(sharesMoves{release: func(p memory.Shares, ctx context.Context, op memory.Op, c driver.Claim) error {
			err := p.Finish(ctx, op, c)
			if errors.Is(err, strategy.ErrLost) {
				p.Change(c.Key, func(l *memory.Lock) { l.Holds = l.Holds[1:] })
			}
			return err
		}}),
	},
	{
		name: "a late renewal is another holder's", killed: []string{"PermitsOnlyOwn", "ReadersOnlyOwn"},
		claims: shared(sharesMoves{extend: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			p.Change(c.Key, func(l *memory.Lock) {
				if l.Hold(c.Token) == nil {
					c.Token = l.Holds[0].Token
				}
			})
			return p.Extend(ctx, c)
		}}),
	},
	{
		name: "a release ends the oldest hold", killed: []string{"PermitsApart"},
		claims: shared(sharesMoves{release: func(p memory.Shares, ctx context.Context, op memory.Op, c driver.Claim) error {
			p.Change(c.Key, func(l *memory.Lock) { c.Token = l.Holds[0].Token })
			return p.Finish(ctx, op, c)
		}}),
	},
	{
		name: "a release ends all holds", killed: []string{"PermitsBound", "PermitsApart", "PermitsLowered", "ReadersTogether"},
		claims: shared(sharesMoves{release: func(p memory.Shares, ctx context.Context, op memory.Op, c driver.Claim) error {
			p.Change(c.Key, func(l *memory.Lock) {
				if l.Hold(c.Token) != nil {
					l.Holds = []memory.Hold{*l.Hold(c.Token)}
				}
			})
			return p.Finish(ctx, op, c)
		}}),
	},
	{
		name: "several holders have one fence", killed: []string{"PermitFences", "WriterFences"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			g.Fence = min(g.Fence, 1)
			return g, err
		}}),
	},
	{
		name: "renewal tells the last fence of the lock", killed: []string{"PermitFences"},
		claims: shared(sharesMoves{extend: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			p.Change(c.Key, func(l *memory.Lock) { g.Fence = l.Holds[len(l.Holds)-1].Fence })
			return g, err
		}}),
	},
	{
		name: "subscriptions of those who waited for a share stay", killed: []string{"PermitsLeaveNothing", "ReadersLeaveNothing"},
		claims: shared(sharesMoves{watch: func(p memory.Shares, ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
			_, err := p.Watch(ctx, c, fn)
			return func() {}, err
		}}),
	},
	{
		name: "a reader gets in next to a writer", killed: []string{"WriterAlone"},
		claims: shared(sharesMoves{pick: func(correct memory.Pick) memory.Pick {
			return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				if i := reader(queue); i >= 0 {
					return i
				}
				return correct(l, queue, permits, wrote)
			}
		}}),
	},
	{
		name: "a writer gets in next to readers", killed: []string{"ReadersTogether", "DeadReader", "ReadersOnlyOwn"},
		claims: shared(sharesMoves{pick: func(memory.Pick) memory.Pick {
			return func(l *memory.Lock, queue []driver.Claim, _ int, _ bool) int {
				if len(queue) == 0 || l.Writes() {
					return -1
				}
				return 0
			}
		}}),
	},
	{
		name: "when readers have gone, readers come first", killed: []string{"WriterNotStarved", "ReadersNotStarved"},
		claims: releasing(func(correct memory.Pick) memory.Pick {
			return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				if i := reader(queue); i >= 0 && !l.Writes() {
					return i
				}
				return correct(l, queue, permits, wrote)
			}
		}),
	},
	{
		name: "when a writer has gone, writers come first", killed: []string{"ReadersNotStarved"},
		claims: releasing(func(correct memory.Pick) memory.Pick {
			return func(l *memory.Lock, queue []driver.Claim, permits int, _ bool) int {
				return correct(l, queue, permits, false)
			}
		}),
	},
	{
		name: "when a writer has gone, one reader gets in", killed: []string{"ReadersNotStarved"},
		claims: releasing(func(correct memory.Pick) memory.Pick {
			served := false
			return func(l *memory.Lock, queue []driver.Claim, permits int, wrote bool) int {
				if served {
					return -1
				}
				i := correct(l, queue, permits, wrote)
				served = i >= 0
				return i
			}
		}),
	},
	{
		name: "a downgrade releases, then acquires", killed: []string{"Downgrade"},
		claims: downgrading(func(p memory.Shares, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			writes := c
			writes.Token = from
			if _, err := p.Release(ctx, writes); err != nil {
				return driver.Grant{}, err
			}
			return p.Acquire(ctx, c)
		}),
	},
	{
		name: "a downgrade lets nobody in", killed: []string{"Downgrade", "ReadersLeaveNothing"},
		claims: downgrading(func(p memory.Shares, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			p.Next = nobody
			return p.Adopt(ctx, c, from)
		}),
	},
	{
		name: "a lease that was downgraded still writes", killed: []string{"Downgrade"},
		claims: downgrading(func(p memory.Shares, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			c.Share = 0
			return p.Adopt(ctx, c, from)
		}),
	},
	{
		name: "a downgrade ends with the write", killed: []string{"Downgrade"},
		claims: downgrading(func(p memory.Shares, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			g, err := p.Adopt(ctx, c, from)
			p.Change(c.Key, func(l *memory.Lock) { l.End(c.Token) })
			return g, err
		}),
	},
	{
		name: "readers have no fence", killed: []string{"WriterFences"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if c.Share == memory.Reading {
				g.Fence = 0
			}
			return g, err
		}}),
	},
	{
		name: "the first reader has the last writer's fence", killed: []string{"WriterFences"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			p.Change(c.Key, func(l *memory.Lock) {
				if c.Share == memory.Reading && len(l.Holds) == 1 && err == nil {
					g.Fence--
				}
			})
			return g, err
		}}),
	},
	{
		name: "a reader's fence is ahead of the next writer's", killed: []string{"WriterFences"},
		claims: shared(sharesMoves{acquire: func(p memory.Shares, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Acquire(ctx, c)
			if c.Share == memory.Reading {
				g.Fence += 1e9 // µs: the next writer comes sooner
			}
			return g, err
		}}),
	},
	{
		name: "lets a writer wait for itself", killed: []string{"WithinItself"},
		claims: shared(sharesMoves{apart: func(held, asked int32) bool { return asked == memory.Reading && held != memory.Reading }}),
	},
	{
		name: "lets a reader wait for its own writer", killed: []string{"WithinItself"},
		claims: shared(sharesMoves{apart: func(held, asked int32) bool { return asked != memory.Reading && held == memory.Reading }}),
	},
	{
		name: "refuses a reader among its own readers", killed: []string{"WithinItself"},
		claims: shared(sharesMoves{apart: func(int32, int32) bool { return true }}),
	},
	{
		name: "a downgrade has the fence before the writer's", killed: []string{"WriterFences"},
		claims: downgrading(func(p memory.Shares, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			g, err := p.Adopt(ctx, c, from)
			g.Fence--
			return g, err
		}),
	},
}

// downgrading replaces what makes a writer a reader.
func downgrading(f func(p memory.Shares, ctx context.Context, c driver.Claim, from string) (driver.Grant, error)) func(*Subject) {
	return shared(sharesMoves{adopt: f})
}

// reader is the place of the first in the queue who wants to read; negative: nobody does.
func reader(queue []driver.Claim) int {
	return slices.IndexFunc(queue, func(c driver.Claim) bool { return c.Share == memory.Reading })
}
