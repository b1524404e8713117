package contender_test

// Contenders in processes of their own: each command, each history, each end.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	if contender.Child(append(subjects.All(), spoilt()...)...) {
		os.Exit(int(exitCode.Load()))
	}
	redistest.Main(m)
}

// exitCode is what a child ends with: as under the race detector, when there was one.
var exitCode atomic.Int64

// spoilt are variants of this test's own: those of which a child dies, and a lock of three permits.
func spoilt() []subjects.Variant {
	spoil := func(name string, by func(driver.Protocol) driver.Protocol) subjects.Variant {
		return subjects.Variant{Name: name, Servers: 1, On: func(nodes []driver.Node) driver.Protocol {
			return by(luascript.On(nodes[0]))
		}}
	}
	return []subjects.Variant{
		{Name: "three permits", Servers: 1, On: func(nodes []driver.Node) driver.Protocol { return semaphore.On(nodes[0], 3) }},
		spoil("panics", func(p driver.Protocol) driver.Protocol { return panics{p} }),
		spoil("ends badly", func(p driver.Protocol) driver.Protocol { return endsBadly{p} }),
	}
}

type panics struct{ driver.Protocol }

func (panics) Acquire(context.Context, driver.Claim) (driver.Grant, error) { panic("planted") }

type endsBadly struct{ driver.Protocol }

func (endsBadly) Close() error {
	exitCode.Store(66)
	return &strategy.ServerError{Kind: strategy.ErrUnknown, Err: errors.New("planted")}
}

// limit is for what takes milliseconds on an idle machine.
const limit = time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

var names atomic.Int64

// fresh is a name that no other test has, nor this one when it is run again.
func fresh(what string) string { return fmt.Sprintf("%s %d %d", what, os.Getpid(), names.Add(1)) }

func start(t *testing.T, s contender.Setup) *contender.Contender {
	t.Helper()
	c, err := contender.Start(within(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func store(t *testing.T) *contender.Store {
	t.Helper()
	s, err := contender.OpenStore()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// setup is for a lock that nothing but a test's own doing ends.
func setup(t *testing.T, name, variant string) contender.Setup {
	t.Helper()
	return contender.Setup{
		Name: name, Variant: variant, Addrs: []string{redistest.Shared(t).Addr()},
		TTL: time.Minute, OpTimeout: 20 * time.Second,
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSteps: each command does what the contract says of it, is in the history, and its
// error is the contract's.
func TestSteps(t *testing.T) {
	ctx, lock, cell := within(t), fresh("steps"), store(t)
	s := setup(t, "A", "luascript")
	s.Store = cell.Addr()
	a := start(t, s)
	s.Name = "B"
	b := start(t, s)

	h := must[*contender.Hold](t)(a.Acquire(ctx, contender.Bid{Lock: lock}))
	if _, err := b.Acquire(ctx, contender.Bid{Lock: lock, Try: true}); !errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
		t.Errorf("B asks once while A holds: %v, want ErrHeld", err)
	}
	late := "acquire held"
	if _, err := b.Acquire(ctx, contender.Bid{Lock: lock, Wait: 10 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("B waits for 10ms while A holds: %v, want that the time is over", err)
	} else if !errors.Is(err, strategy.ErrHeld) { // on a busy machine 10ms end before the server is asked, or answers
		late = "acquire " + string(history.ResultOf(err))
	}
	if v := must[string](t)(h.Read(ctx)); v != "" {
		t.Errorf("A reads %q, want nothing", v)
	}
	check(t, h.Write(ctx, "A was here"))
	check(t, h.Release(ctx))
	if err := h.Release(ctx); err == nil {
		t.Error("a second release says nothing, want an error")
	}
	h = must[*contender.Hold](t)(b.Acquire(ctx, contender.Bid{Lock: lock}))
	if v := must[string](t)(h.Read(ctx)); v != "A was here" {
		t.Errorf("B reads %q, want what A wrote", v)
	}
	check(t, h.Release(ctx))

	want := map[string][]string{
		"A": {"acquire ok", "read ok", "write ok", "release ok"},
		"B": {"acquire held", late, "acquire ok", "read ok", "release ok"},
	}
	for _, c := range []*contender.Contender{a, b} {
		var got []string
		for _, op := range must[[]history.Op](t)(c.Ops()) {
			got = append(got, fmt.Sprintf("%s %s", op.Kind, op.Result))
			if err := op.Check(); err != nil || op.Client != c.Name() || op.Key != lock {
				t.Errorf("%+v: %v, want client %s and key %q", op, err, c.Name(), lock)
			}
		}
		if !slices.Equal(got, want[c.Name()]) {
			t.Errorf("history of %s:\n%q, want\n%q", c.Name(), got, want[c.Name()])
		}
	}
}

// TestReentry: the owner is the bid's.
func TestReentry(t *testing.T) {
	ctx, lock := within(t), fresh("re-entry")
	c := start(t, setup(t, "A", "reentrant"))
	bid := contender.Bid{Lock: lock, Owner: "request 7", Try: true}
	outer := must[*contender.Hold](t)(c.Acquire(ctx, bid))
	inner := must[*contender.Hold](t)(c.Acquire(ctx, bid))
	ops := must[[]history.Op](t)(c.Ops())
	if ops[0].Hold == ops[1].Hold || ops[0].Fence != ops[1].Fence || ops[1].Owner != "request 7" {
		t.Errorf("%+v, want two holds of one owner, with one fence", ops)
	}
	bid.Owner = "request 8"
	if _, err := c.Acquire(ctx, bid); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("another owner asks: %v, want ErrHeld", err)
	}
	check(t, inner.Release(ctx))
	check(t, outer.Release(ctx))
}

// TestPermits: a bid is for as many permits as it says.
func TestPermits(t *testing.T) {
	ctx, lock := within(t), fresh("permits")
	c := start(t, setup(t, "A", "three permits"))
	two := must[*contender.Hold](t)(c.Acquire(ctx, contender.Bid{Lock: lock, Share: 2}))
	one := must[*contender.Hold](t)(c.Acquire(ctx, contender.Bid{Lock: lock}))
	if _, err := c.Acquire(ctx, contender.Bid{Lock: lock, Try: true}); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("a fourth permit: %v, want ErrHeld", err)
	}
	check(t, two.Release(ctx))
	check(t, one.Release(ctx))
	ops := must[[]history.Op](t)(c.Ops())
	for i, want := range []int{2, 0, 0, 2, 0} {
		if ops[i].Share != want {
			t.Errorf("%+v: share %d, want %d", ops[i], ops[i].Share, want)
		}
	}
	for _, v := range history.Judge(ops, history.Rules{Permits: 3, Fenced: true}) {
		t.Error(v)
	}
	if len(history.Judge(ops, history.Rules{Permits: 2, Fenced: true})) == 0 {
		t.Error("three of two permits are held, and no judge sees it")
	}
}

// TestReaders: two read at once, nobody writes meanwhile; and who has written goes on to read.
func TestReaders(t *testing.T) {
	ctx, lock := within(t), fresh("readers")
	s := setup(t, "A", "rwlock")
	s.Store = store(t).Addr()
	c := start(t, s)
	read, write := contender.Bid{Lock: lock, Share: 1, Try: true}, contender.Bid{Lock: lock, Try: true}
	w := must[*contender.Hold](t)(c.Acquire(ctx, write))
	must[string](t)(w.Read(ctx))
	check(t, w.Write(ctx, "written"))
	r1 := must[*contender.Hold](t)(w.Downgrade(ctx))
	r2 := must[*contender.Hold](t)(c.Acquire(ctx, read))
	for _, r := range []*contender.Hold{r1, r2, r1} {
		if v := must[string](t)(r.Read(ctx)); v != "written" {
			t.Errorf("a reader reads %q, want what was written", v)
		}
	}
	if _, err := c.Acquire(ctx, write); !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("one asks to write while two read: %v, want ErrHeld", err)
	}
	check(t, r1.Release(ctx))
	check(t, r2.Release(ctx))
	if _, err := w.Downgrade(ctx); err == nil {
		t.Error("a hold that has ended is made one to read, want an error")
	}
	ops := must[[]history.Op](t)(c.Ops())
	rules := history.Rules{ReadWrite: true, Fenced: true, Linger: time.Second}
	for _, v := range slices.Concat(history.Judge(ops, rules), history.LinearLock(ops, rules, limit), history.FencedRegister(ops, "", limit)) {
		t.Error(v)
	}
	if len(history.Exclusion(ops, history.Rules{})) == 0 {
		t.Error("two read at once, and a judge of exclusive locks sees nothing")
	}
	of := func(kind history.Kind, share int) (n int) {
		for _, op := range ops {
			if op.Kind == kind && op.Result == history.OK && op.Share == share {
				n++
			}
		}
		return n
	}
	if a, r, from := of(history.KindAcquire, 1), of(history.KindRelease, 0), ops[slices.IndexFunc(ops, func(op history.Op) bool { return op.From != "" })]; a != 2 || r != 1 || from.From != ops[0].Hold {
		t.Errorf("%v, want two acquisitions to read, one of them from the writer's hold, and one release of a writer", ops)
	}
}

// TestWorkOfReaders: most workers read, some write, and no judge has an objection.
func TestWorkOfReaders(t *testing.T) {
	ctx := within(t)
	work := contender.Workload{
		Locks: []string{fresh("work")}, Workers: 4, Patience: limit, Think: time.Millisecond, Rest: time.Millisecond,
		Renew: 5, ReadWrite: true, Write: 4, Downgrade: 2,
	}
	s := setup(t, "A", "rwlock")
	s.Store = store(t).Addr()
	c := start(t, s)
	check(t, c.Work(ctx, work))
	verdict.Eventually(t, "some downgrades, and two readers at once", func() bool {
		n, ops := 0, must[[]history.Op](t)(c.Ops())
		for _, op := range ops {
			if op.From != "" && op.Result == history.OK {
				n++
			}
		}
		return n >= 5 && len(history.Exclusion(ops, history.Rules{})) > 0
	})
	check(t, c.Rest(ctx))
	ops := must[[]history.Op](t)(c.Ops())
	rules := history.Rules{ReadWrite: true, Fenced: true, Linger: 10 * time.Second}
	for _, v := range slices.Concat(history.Judge(ops, rules), history.LinearLock(ops, rules, limit), history.FencedRegister(ops, "", limit)) {
		t.Error(v)
	}
}

// TestHangingHindersNobody: while one command waits, others are obeyed; and when its ctx
// ends it is given up.
func TestHangingHindersNobody(t *testing.T) {
	ctx, lock := within(t), fresh("hanging")
	s := setup(t, "A", "luascript")
	s.Store = store(t).Addr()
	c := start(t, s)
	h := must[*contender.Hold](t)(c.Acquire(ctx, contender.Bid{Lock: lock}))
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	done := make(chan error)
	go func() {
		_, err := c.Acquire(waiting, contender.Bid{Lock: lock})
		done <- err
	}()
	check(t, h.Write(ctx, "meanwhile"))
	giveUp()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("an acquire that is given up: %v, want context.Canceled", err)
	}
	check(t, h.Release(ctx))
	// A contender that gave up does not get it later.
	check(t, must[*contender.Hold](t)(c.Acquire(ctx, contender.Bid{Lock: lock})).Release(ctx))
}

// TestWork: workers exclude each other, lose no update, and leave when they should.
func TestWork(t *testing.T) {
	ctx, cell := within(t), store(t)
	work := contender.Workload{
		Locks: []string{fresh("work"), fresh("work")}, Workers: 3, Patience: limit,
		Think: time.Millisecond, Rest: time.Millisecond, Try: 4, Renew: 5, Reenter: 5,
	}
	var all []*contender.Contender
	for i := range 2 {
		s := setup(t, fmt.Sprintf("client %d", i+1), "reentrant")
		s.Store = cell.Addr()
		c := start(t, s)
		work.Seed = uint64(i)
		check(t, c.Work(ctx, work))
		if err := c.Work(ctx, work); err == nil {
			t.Error("a second work at the same time is begun, want an error")
		}
		all = append(all, c)
	}
	of := func(ops []history.Op, k history.Kind) (n int) {
		for _, op := range ops {
			if op.Kind == k && (op.Result == history.OK || op.Result == "") {
				n++
			}
		}
		return n
	}
	verdict.Eventually(t, "50 writes", func() bool {
		return of(must[[]history.Op](t)(all[0].Ops()), history.KindWrite) >= 50
	})
	var ops []history.Op
	for _, c := range all {
		check(t, c.Rest(ctx))
		check(t, c.Rest(ctx)) // Rest may be called again
		ops = append(ops, must[[]history.Op](t)(c.Ops())...)
	}
	for _, v := range history.Judge(ops, history.Rules{Reentrant: true, Fenced: true}) {
		t.Error(v)
	}
	last := map[string]history.Op{}
	for _, op := range ops {
		if op.End == history.Forever {
			t.Errorf("%+v: under way when all rest", op)
		}
		if op.Kind == history.KindWrite && op.Result == history.OK && op.Start >= last[op.Key].Start {
			last[op.Key] = op
		}
	}
	for _, lock := range work.Locks {
		if cell.Value(lock) != last[lock].Value || last[lock].Value == "" {
			t.Errorf("%q is stored, want what was written last: %+v", cell.Value(lock), last[lock])
		}
	}
	if of(ops, history.KindAcquire) != of(ops, history.KindRelease) || of(ops, history.KindRenew) == 0 {
		t.Errorf("%v, want as many releases as acquisitions, and some renewals", ops)
	}
}

// awaited waits until the contender's history has an operation of the kind, and returns it with
// the place of the first.
func awaited(t *testing.T, c *contender.Contender, k history.Kind) (ops []history.Op, at int) {
	t.Helper()
	verdict.Eventually(t, fmt.Sprintf("a %s in the history", k), func() bool {
		ops = must[[]history.Op](t)(c.Ops())
		at = slices.IndexFunc(ops, func(op history.Op) bool { return op.Kind == k })
		return at >= 0
	})
	return ops, at
}

// TestKeep: what is renewed in the background is in the history.
func TestKeep(t *testing.T) {
	ctx := within(t)
	s := setup(t, "A", "luascript")
	s.TTL, s.OpTimeout = 200*time.Millisecond, 100*time.Millisecond
	c := start(t, s)
	check(t, c.Work(ctx, contender.Workload{Locks: []string{fresh("keep")}, Workers: 1, Patience: limit, Keep: 1}))
	ops, i := awaited(t, c, history.KindRenew)
	j := slices.IndexFunc(ops, func(op history.Op) bool { return op.Hold == ops[i].Hold })
	if ops[j].Kind != history.KindAcquire || ops[i].Deadline <= ops[j].Deadline || ops[i].Start < ops[j].End {
		t.Errorf("%+v, want a renewal after %+v, to a later deadline", ops[i], ops[j])
	}
	check(t, c.Rest(ctx))
}

// TestOverstay: who stays until the lock is lost says when it learned of it.
func TestOverstay(t *testing.T) {
	ctx := within(t)
	s := setup(t, "A", "setnxpx")
	s.TTL, s.OpTimeout = 50*time.Millisecond, 40*time.Millisecond
	c := start(t, s)
	check(t, c.Work(ctx, contender.Workload{Locks: []string{fresh("overstay")}, Workers: 1, Patience: limit, Overstay: 1}))
	ops, i := awaited(t, c, history.KindLost)
	j := slices.IndexFunc(ops, func(op history.Op) bool {
		return op.Kind == history.KindAcquire && op.Hold == ops[i].Hold
	})
	if j < 0 || ops[i].End < ops[j].Deadline || ops[i].Start >= ops[j].Deadline { // noticed after it, last believed before
		t.Errorf("%+v, want a loss at the deadline of %+v", ops[i], ops)
	}
	check(t, c.Rest(ctx))
}

// TestPause: a paused process does nothing, holds nothing past its TTL, and goes on.
func TestPause(t *testing.T) {
	ctx, lock := within(t), fresh("pause")
	s := setup(t, "A", "luascript")
	s.TTL, s.OpTimeout, s.Store = 500*time.Millisecond, 400*time.Millisecond, store(t).Addr()
	a, b := start(t, s), start(t, setup(t, "B", "luascript"))
	h := must[*contender.Hold](t)(a.Acquire(ctx, contender.Bid{Lock: lock}))
	check(t, a.Pause(ctx))
	check(t, a.Stopped(ctx))
	rival := must[*contender.Hold](t)(b.Acquire(ctx, contender.Bid{Lock: lock})) // waits for A's TTL
	check(t, a.Thaw())
	if err := h.Write(ctx, "A's"); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("A writes, after its pause: %v, want ErrLost", err)
	}
	check(t, rival.Release(ctx))
}

// TestWriteAfterStop: a holder that looks before it writes, and is paused in between, writes
// late: without a fence it destroys what its successor wrote.
func TestWriteAfterStop(t *testing.T) {
	for _, variant := range []string{"setnxpx", "luascript"} {
		t.Run(variant, func(t *testing.T) {
			ctx, lock, cell := within(t), fresh("stop"), store(t)
			s := setup(t, "A", variant)
			s.Store, s.TTL, s.OpTimeout = cell.Addr(), 500*time.Millisecond, 400*time.Millisecond
			a := start(t, s)
			s = setup(t, "B", variant)
			s.Store = cell.Addr()
			b := start(t, s)
			h := must[*contender.Hold](t)(a.Acquire(ctx, contender.Bid{Lock: lock}))
			done := make(chan error, 1)
			go func() { done <- h.WriteAfterStop(ctx, "A's") }()
			check(t, a.Stopped(ctx))
			rival := must[*contender.Hold](t)(b.Acquire(ctx, contender.Bid{Lock: lock}))
			check(t, rival.Write(ctx, "B's"))
			check(t, a.Thaw())
			err := <-done
			if variant == "setnxpx" && (err != nil || cell.Value(lock) != "A's") {
				t.Errorf("A's late write: %v, and stored is %q, want A's", err, cell.Value(lock))
			}
			if variant == "luascript" && (!errors.Is(err, contender.ErrStale) || cell.Value(lock) != "B's") {
				t.Errorf("A's late write: %v, and stored is %q, want ErrStale and B's", err, cell.Value(lock))
			}
			ops := must[[]history.Op](t)(a.Ops())
			write := slices.IndexFunc(ops, func(op history.Op) bool { return op.Kind == history.KindWrite })
			if write < 0 || ops[write].Start >= ops[0].Deadline || ops[write].End <= ops[0].Deadline {
				t.Errorf("%+v: want a write that began before the deadline and ended after it", ops)
			}
		})
	}
}

// TestKill: what a killed process was doing is in its history, as unknown.
func TestKill(t *testing.T) {
	ctx, lock := within(t), fresh("kill")
	a, b := start(t, setup(t, "A", "luascript")), start(t, setup(t, "B", "luascript"))
	h := must[*contender.Hold](t)(a.Acquire(ctx, contender.Bid{Lock: lock}))
	done := make(chan error)
	go func() {
		_, err := b.Acquire(ctx, contender.Bid{Lock: lock})
		done <- err
	}()
	verdict.Eventually(t, "B's acquire in its history", func() bool { return len(must[[]history.Op](t)(b.Ops())) > 0 })
	check(t, b.Kill())
	if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the acquire of a killed process: %v, want that it has ended", err)
	}
	check(t, b.Kill())
	ops := must[[]history.Op](t)(b.Ops())
	if len(ops) != 1 || ops[0].Result != history.Unknown || ops[0].End != history.Forever {
		t.Errorf("history of the killed: %+v, want an acquire of unknown end", ops)
	}
	check(t, b.Close())
	if again := must[[]history.Op](t)(b.Ops()); !slices.Equal(again, ops) {
		t.Errorf("after Close: %+v, want %+v", again, ops)
	}
	if _, err := b.Acquire(ctx, contender.Bid{Lock: lock}); err == nil {
		t.Error("a killed contender obeys, want an error")
	}
	check(t, h.Release(ctx))
}

// TestEndsByItself: a process that has ended by itself was not killed, though somebody kills it
// then, and no error of its own hides it.
func TestEndsByItself(t *testing.T) {
	ctx := within(t)
	c := must[*contender.Contender](t)(contender.Start(ctx, setup(t, "A", "panics")))
	if _, err := c.Acquire(ctx, contender.Bid{Lock: fresh("panics")}); !errors.Is(err, contender.ErrEnded) {
		t.Errorf("what panics: %v, want ErrEnded", err)
	}
	for i, end := range []func() error{c.Kill, c.Kill, c.Close} {
		if err := end(); !errors.Is(err, contender.ErrEnded) || !strings.Contains(err.Error(), "panic: planted") {
			t.Errorf("the end %d of it: %v, want ErrEnded, and the panic", i+1, err)
		}
	}
	c = must[*contender.Contender](t)(contender.Start(ctx, setup(t, "A", "ends badly")))
	if err := c.Close(); !errors.Is(err, strategy.ErrUnknown) || !errors.Is(err, contender.ErrEnded) || !strings.Contains(err.Error(), "exit status 66") {
		t.Errorf("Close: %v, want ErrUnknown, as it says, and ErrEnded with its status", err)
	}
}

// TestBadSetups: the error says what is allowed.
func TestBadSetups(t *testing.T) {
	for name, spoil := range map[string]func(*contender.Setup){
		"name":    func(s *contender.Setup) { s.Name = "" },
		"variant": func(s *contender.Setup) { s.Variant = "no such" },
		"servers": func(s *contender.Setup) { s.Addrs = append(s.Addrs, s.Addrs...) },
		"options": func(s *contender.Setup) { s.TTL = time.Microsecond },
	} {
		t.Run(name, func(t *testing.T) {
			s := setup(t, "A", "luascript")
			spoil(&s)
			c, err := contender.Start(within(t), s)
			if err == nil {
				c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "allowed") {
				t.Errorf("Start = %v, want an error that says what is allowed", err)
			}
		})
	}
}
