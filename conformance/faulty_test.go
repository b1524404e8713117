// Each property convicts the faults that are named after it, on locks in memory that make one mistake
// each; and there is no property without such a fault. Time is fake.
package conformance

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/strategy"
)

// A mutant is a lock with one fault, and the properties that must convict it, each on its own.
type mutant struct {
	name    string
	killed  []string
	subject func() Subject
}

// mutants are all that must be convicted.
var mutants = slices.Concat(protocolMutants(), commonMutants, clockMutants, reentryMutants, sharingMutants, movingMutants, quorumMutants)

// TestMutants: each property convicts the mutants that are named after it.
func TestMutants(t *testing.T) {
	for _, x := range mutants {
		for _, name := range x.killed {
			t.Run(x.name+"/"+name, func(t *testing.T) {
				p := named(t, name)
				var end verdict
				synctest.Test(t, func(t *testing.T) {
					end = holdTrial(t.Context(), x.subject(), p, usual)
					time.Sleep(time.Hour) // what a lock has left behind ends
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
	for _, p := range Properties() {
		kills := slices.ContainsFunc(mutants, func(x mutant) bool { return slices.Contains(x.killed, p.Name) })
		switch listed := slices.Contains(elsewhere, p.Name); {
		case !kills && !listed:
			t.Errorf("%s convicts no mutant: add a fault that it finds, or delete it", p.Name)
		case kills && listed:
			t.Errorf("%s convicts a mutant here: take it off the list", p.Name)
		}
	}
}

// faults are what a lock does wrongly, by request. Any other request is met rightly.
type faults map[memory.Op]fault

// A fault is what becomes of a request.
type fault func(m *move) (driver.Grant, error)

const (
	acquire = memory.OpAcquire
	extend  = memory.OpExtend
	adopt   = memory.OpAdopt
	watch   = memory.OpWatch
	inspect = memory.OpInspect
	permits = memory.OpPermits
)

// ends are the requests that end a hold.
var ends = []memory.Op{memory.OpRelease, memory.OpUndo, memory.OpForceRelease}

func on(op memory.Op, f fault) faults { return onEach(f, op) }

func onEach(f fault, ops ...memory.Op) faults {
	all := faults{}
	for _, op := range ops {
		all[op] = f
	}
	return all
}

// before has f change what the correct lock is asked.
func before(op memory.Op, f func(m *move)) faults { return beforeEach(f, op) }

func beforeEach(f func(m *move), ops ...memory.Op) faults {
	return onEach(func(m *move) (driver.Grant, error) {
		f(m)
		return m.rightly()
	}, ops...)
}

// after has f change what the correct lock has answered.
func after(op memory.Op, f func(m *move)) faults { return afterEach(f, op) }

func afterEach(f func(m *move), ops ...memory.Op) faults {
	return onEach(func(m *move) (driver.Grant, error) {
		m.grant, m.err = m.rightly()
		f(m)
		return m.grant, m.err
	}, ops...)
}

// onEnd is a fault of whatever ends a hold.
func onEnd(f func(m *move) error) faults {
	return onEach(func(m *move) (driver.Grant, error) { return driver.Grant{}, f(m) }, ends...)
}

// changing makes requests with claims that f has changed.
func changing(f func(c *driver.Claim), ops ...memory.Op) faults {
	return beforeEach(func(m *move) { f(&m.c) }, ops...)
}

func (a faults) and(b faults) faults {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// A move is a request, and the correct lock, by which it can be met.
type move struct {
	memory.Shares // of a lock of one holder its Gated alone
	op            memory.Op
	ctx           context.Context
	c             driver.Claim

	next    driver.Claim              // pass
	from    string                    // adopt
	permits int                       // set permits
	hears   func(driver.Notification) // watch
	stop    func()                    // watch: the answer, as is info
	info    strategy.Info             // inspect

	grant driver.Grant // the answer: see after
	err   error
}

// rightly meets the request as the correct lock does.
func (m *move) rightly() (g driver.Grant, err error) {
	var p interface {
		driver.Queuer
		driver.Protocol
		Finish(ctx context.Context, op memory.Op, c driver.Claim) error
	} = m.Gated
	if m.Next != nil {
		p = m.Shares
	}
	switch m.op {
	case acquire:
		return p.Acquire(m.ctx, m.c)
	case extend:
		return p.Extend(m.ctx, m.c)
	case adopt:
		return p.Adopt(m.ctx, m.c, m.from)
	case memory.OpPass:
		return p.Pass(m.ctx, m.c, m.next)
	case watch:
		m.stop, err = p.Watch(m.ctx, m.c, m.hears)
	case inspect:
		m.info, err = p.Inspect(m.ctx, m.c)
	case permits:
		err = m.SetPermits(m.ctx, m.c, m.permits)
	default:
		err = p.Finish(m.ctx, m.op, m.c)
	}
	return g, err
}

// right is rightly for requests that are granted nothing.
func (m *move) right() error {
	_, err := m.rightly()
	return err
}

func (m *move) held(by string) error { return &strategy.HeldError{Name: m.c.Name, Holder: by} }
func (m *move) lost(to string) error { return &strategy.LostError{Name: m.c.Name, Holder: to} }

// holder has the token that is at the claim's key; empty: none.
func (m *move) holder() string { return m.At(m.c.Key) }

// count makes the server count the claim's TTL from now on for whatever is at its key.
func (m *move) count() { m.Count(m.c.Key, m.until()) }

func (m *move) until() time.Time { return time.Now().Add(m.c.TTL) }

// faulty is a lock in memory that has faults.
type faulty struct {
	right memory.Shares
	faults
}

func (f faulty) meets(m *move) (driver.Grant, error) {
	m.Shares = f.right
	if f.faults[m.op] == nil {
		return m.rightly()
	}
	return f.faults[m.op](m)
}

func (f faulty) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return f.meets(&move{op: acquire, ctx: ctx, c: c})
}

func (f faulty) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return f.meets(&move{op: extend, ctx: ctx, c: c})
}

func (f faulty) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	for i, c := range cs {
		g, err := f.Extend(ctx, c)
		done(i, g, err)
	}
}

func (f faulty) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return f.meets(&move{op: adopt, ctx: ctx, c: c, from: from})
}

func (f faulty) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	return f.meets(&move{op: memory.OpPass, ctx: ctx, c: c, next: next})
}

func (f faulty) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, f.ends(ctx, memory.OpRelease, c)
}

func (f faulty) Undo(ctx context.Context, c driver.Claim) error {
	return f.ends(ctx, memory.OpUndo, c)
}

func (f faulty) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, f.ends(ctx, memory.OpForceRelease, c)
}

func (f faulty) ends(ctx context.Context, op memory.Op, c driver.Claim) error {
	_, err := f.meets(&move{op: op, ctx: ctx, c: c})
	return err
}

func (f faulty) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	m := &move{op: watch, ctx: ctx, c: c, hears: fn}
	_, err := f.meets(m)
	return m.stop, err
}

func (f faulty) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	m := &move{op: inspect, ctx: ctx, c: c}
	_, err := f.meets(m)
	return m.info, err
}

func (f faulty) Check(ctx context.Context, o strategy.Options) error { return f.right.Check(ctx, o) }
func (f faulty) Reenters() bool                                      { return f.right.Reenters() }

// lock is one with faults that have no state.
func lock(name, killed string, f faults) mutant {
	return lockOf(name, killed, func() faults { return f })
}

// lockOf is one with faults of its own in each trial.
func lockOf(name, killed string, f func() faults) mutant {
	return mutant{name, strings.Fields(killed), func() Subject { return spoilt(&memory.Server{}, name, f()) }}
}

// owned is lock, on a server that grants owners their lock again; ownedOf is lockOf there.
func owned(name, killed string, f faults) mutant {
	return ownedOf(name, killed, func() faults { return f })
}

func ownedOf(name, killed string, f func() faults) mutant {
	return mutant{name, strings.Fields(killed), func() Subject { return spoilt(&memory.Server{Reentrant: true}, name, f()) }}
}

func spoilt(m *memory.Server, name string, f faults) Subject {
	s := subjectOn(m, name)
	s.speaks(func(g Gate) driver.Protocol { return faulty{memory.Shares{Gated: memory.Gated{Server: m, Gate: g}}, f} })
	return s
}

// odd is a correct lock, of whose Subject something is changed.
func odd(name, killed string, change func(s *Subject)) mutant {
	return mutant{name, strings.Fields(killed), func() Subject {
		s := subjectOn(&memory.Server{}, name)
		change(&s)
		return s
	}}
}

// protocolMutants are the locks of package broken, on a server in memory.
func protocolMutants() (all []mutant) {
	for _, lock := range broken.Protocols() {
		all = append(all, mutant{lock.Name, lock.Breaks, func() Subject {
			m := &memory.Server{}
			s := subjectOn(m, lock.Name)
			s.speaks(func(g Gate) driver.Protocol { return lock.Protocol(m.Gated(g)) })
			return s
		}})
	}
	return all
}
