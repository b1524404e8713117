// What the protocol does about time-outs, late answers, undoing and subscriptions that break: on fake servers,
// in the virtual time of a synctest bubble.
package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// In this file time is that of a synctest bubble, and the servers are fakes: what the
// protocol does about time-outs, late answers and subscriptions that break is exact.

// A fake is one server: one key and one channel.
type fake struct {
	name string

	mu        sync.Mutex
	token     string
	until     time.Time
	fenced    bool // it keeps the counter n; its clock says nothing of fences
	n         int64
	forgot    bool          // its counter remembers nothing
	down      bool          // refuses connections
	refuses   bool          // every script
	hangs     time.Duration // until it answers
	lost      []func()      // requests that hang: their caller may be gone
	unordered bool
	listeners []func([]byte, error)
	asked     int
	ran       []string
}

// distantFake is a server whose requests take some time on their way.
type distantFake struct {
	*fake
	delay time.Duration
}

func (f distantFake) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	time.Sleep(f.delay)
	return f.fake.Eval(ctx, due, s, keys, args...)
}

func newFakes(n int) (fakes []*fake, nodes []driver.Node) {
	for i := range n {
		f := &fake{name: fmt.Sprintf("fake %d", i+1)}
		fakes, nodes = append(fakes, f), append(nodes, f)
	}
	return fakes, nodes
}

func (f *fake) fail(kind error) error {
	return &strategy.ServerError{Node: f.name, Kind: kind, Err: errors.New("as the test has it")}
}

func (f *fake) Name() string  { return f.name }
func (f *fake) Ordered() bool { return !f.unordered }
func (f *fake) Use() error    { return nil }
func (f *fake) Close() error  { return nil }

func (f *fake) Probe(context.Context, time.Time) uint64 { return 0 }

func (f *fake) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return nil, f.fail(strategy.ErrRefused)
}

func (f *fake) Session(context.Context, time.Time, string, func(driver.Conn) error) error {
	return f.fail(strategy.ErrUnsent)
}

func (f *fake) Eval(ctx context.Context, due time.Time, s *driver.Script, _ []string, args ...any) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.down || ctx.Err() != nil { // a client sends nothing for a caller who has gone
		return nil, f.fail(strategy.ErrUnsent)
	}
	if f.refuses {
		return nil, f.fail(strategy.ErrRefused)
	}
	if f.hangs > 0 {
		f.lost = append(f.lost, func() { f.serve(s.Name(), args) })
		wait := min(f.hangs, time.Until(due))
		f.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		f.mu.Lock()
		return nil, f.fail(strategy.ErrUnknown)
	}
	return f.serve(s.Name(), args), nil
}

// serve is the scripts, with mu held.
func (f *fake) serve(script string, args []any) any {
	now := time.Now()
	f.ran = append(f.ran, script)
	if f.token != "" && !now.Before(f.until) {
		f.token = ""
	}
	if script == "writeback" && args[0] == "" { // a quorum has noted it
		f.n = max(f.n, args[1].(int64))
		return int64(1)
	}
	if script != "acquire" && (script != "join" || f.token != "") && f.token != args[0] {
		if f.token == "" {
			return nil
		}
		return []byte(f.token)
	}
	switch script {
	case "join":
		if f.token != "" {
			return []byte(f.token)
		}
		f.token, f.until = args[0].(string), now.Add(time.Duration(args[1].(int64))*time.Millisecond)
	case "acquire":
		switch f.token {
		case "":
			f.token, f.until = args[0].(string), now.Add(time.Duration(args[1].(int64))*time.Millisecond)
			if f.fenced {
				remembers := int64(1)
				if f.forgot {
					remembers = 0
				}
				return []any{int64(1), f.n, remembers, int64(0), []byte("memory")}
			}
			return int64(1)
		case args[0]:
			return int64(0)
		}
		return []any{[]byte(f.token), f.until.Sub(now).Milliseconds(), int64(0)}
	case "extend":
		if until := now.Add(time.Duration(args[1].(int64)) * time.Millisecond); until.After(f.until) {
			f.until = until // it never shortens
		}
	case "writeback":
		f.n = max(f.n, args[1].(int64))
	case "adopt":
		f.token, f.until = args[2].(string), now.Add(time.Duration(args[1].(int64))*time.Millisecond)
	case "release":
		f.token = ""
		if args[1] != "" {
			f.publish(args[0].(string))
		}
	}
	return int64(1)
}

// publish tells the listeners, each in its own goroutine, as a connection's reader is.
func (f *fake) publish(token string) {
	for _, fn := range f.listeners {
		go fn([]byte(token), nil)
	}
}

func (f *fake) Subscribe(ctx context.Context, _ string, fn func([]byte, error)) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, f.fail(strategy.ErrUnsent)
	}
	if f.hangs > 0 {
		f.mu.Unlock()
		var err error
		select {
		case <-time.After(f.hangs):
		case <-ctx.Done():
			err = f.fail(strategy.ErrUnknown)
		}
		f.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	i := len(f.listeners)
	f.listeners = append(f.listeners, fn)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if i < len(f.listeners) { // or it broke
			f.listeners[i] = func([]byte, error) {}
		}
	}, nil
}

// breaks ends the subscriptions, as a lost connection does.
func (f *fake) breaks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fn := range f.listeners {
		go fn(nil, f.fail(strategy.ErrUnknown))
	}
	f.listeners = nil
}

// set changes a fake.
func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// count is how often it has been asked.
func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func claim(token string) driver.Claim {
	return driver.Claim{Name: "n", Key: "lock:{n}", Token: token, Owner: token, TTL: 10 * time.Second, Due: time.Now().Add(time.Second)}
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// heard collects notices.
type heard struct {
	mu  sync.Mutex
	all []driver.Notification
}

func (h *heard) note(n driver.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, n)
}

func (h *heard) want(t *testing.T, when string, want ...driver.Notification) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.all, func(a, b driver.Notification) int { return strings.Compare(a.Holder, b.Holder) })
	if fmt.Sprint(h.all) != fmt.Sprint(want) {
		t.Errorf("notices %s = %v, want %v", when, h.all, want)
	}
	h.all = nil
}

const longestPause = 50 * time.Millisecond

func watch(t *testing.T, p driver.Protocol, h *heard) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // a watch outlives the call that began it
	stop, err := p.(driver.Notifier).Watch(ctx, claim(""), h.note)
	if err != nil {
		t.Fatalf("Watch() = %v, want nil", err)
	}
	return stop
}

// returning is a fake that has come back so often.
type returning struct {
	*fake
	returns uint64
}

func (r returning) Probe(_ context.Context, due time.Time) uint64 {
	time.Sleep(time.Until(due)) // it answers at the last moment
	return r.returns
}

// TestProbe: the returns of all servers count, and they are asked at the same time.
func TestProbe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, _ := newFakes(3)
		p := redlock.On([]driver.Node{returning{fakes[0], 1}, returning{fakes[1], 2}, returning{fakes[2], 4}})
		start := time.Now()
		if n := p.(driver.Prober).Probe(t.Context(), start.Add(time.Second)); n != 7 {
			t.Errorf("Probe() = %d, want 7", n)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("Probe() took %v, want 1s", took)
		}
	})
}

// TestWatch: one release is one notice, soon after the first server tells of it; what a
// server tells later is passed on again.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(5)
		fakes[4].hangs = 500 * time.Millisecond // joins late
		p := redlock.On(nodes)
		var h heard
		start := time.Now()
		stop := watch(t, p, &h)
		if took := time.Since(start); took != 0 {
			t.Errorf("Watch() took %v, want no time: a quorum has confirmed", took)
		}
		a := driver.Notification{Holder: "a"}
		for _, f := range fakes[:4] {
			f.set(func(f *fake) { f.publish("a") })
		}
		time.Sleep(longestPause)
		h.want(t, "of a release that four servers tell of", a)
		fakes[0].set(func(f *fake) { f.publish("a") })
		time.Sleep(longestPause)
		h.want(t, "of one that told later", a)
		fakes[0].set(func(f *fake) { f.publish("a") })
		fakes[1].set(func(f *fake) { f.publish("b") })
		time.Sleep(longestPause)
		h.want(t, "of two releases at once", a, driver.Notification{Holder: "b"})
		time.Sleep(time.Second)
		fakes[4].set(func(f *fake) { f.publish("a") })
		time.Sleep(longestPause)
		h.want(t, "of the one that joined late", a)

		fakes[0].breaks()
		fakes[1].breaks()
		h.want(t, "when two of five have broken")
		fakes[2].set(func(f *fake) { f.publish("b") })
		fakes[3].breaks()
		h.want(t, "when three have", driver.Notification{})
		fakes[4].set(func(f *fake) { f.publish("c") })
		time.Sleep(longestPause)
		h.want(t, "after that")
		stop()
	})
}

// TestWatchStops: nothing is heard after stop, and nothing goes on.
func TestWatchStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		fakes[2].hangs = time.Hour
		p := redlock.On(nodes)
		var h heard
		stop := watch(t, p, &h)
		fakes[0].set(func(f *fake) { f.publish("a") })
		start := time.Now()
		stop() // the bubble ends only if all goroutines do
		if took := time.Since(start); took != 0 {
			t.Errorf("stop() took %v, want no time: a server that hangs is not waited for", took)
		}
		fakes[1].set(func(f *fake) { f.publish("a") })
		time.Sleep(longestPause)
		h.want(t, "after stop")
		for i, f := range fakes[:2] {
			if len(f.listeners) != 1 {
				t.Errorf("server %d had %d subscriptions, want 1", i+1, len(f.listeners))
			}
		}
	})
}

// A leaves counts the subscriptions that are left. It may confirm them when they are broken, or have been called
// off.
type leaves struct {
	*fake
	late, broken bool
	left         *atomic.Int64
}

func (f leaves) Subscribe(ctx context.Context, _ string, fn func([]byte, error)) (func(), error) {
	if f.broken {
		fn(nil, f.fail(strategy.ErrUnknown))
	}
	if f.late {
		<-ctx.Done()
		time.Sleep(time.Millisecond)
	}
	return func() { f.left.Add(1) }, nil
}

// TestWatchLeaves: stop also leaves a subscription that is confirmed while it ends.
func TestWatchLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		var left atomic.Int64
		nodes[2] = leaves{fake: fakes[2], late: true, left: &left}
		watch(t, redlock.On(nodes), &heard{})()
		if n := left.Load(); n != 1 {
			t.Errorf("%d subscriptions that were confirmed late are left after stop, want 1", n)
		}
	})
}

// TestWatchWithoutQuorum: a watch ends, and says so, if too few subscriptions last until a quorum has confirmed. One that is
// broken when it is confirmed takes nothing from the others.
func TestWatchWithoutQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		var left atomic.Int64
		var h heard
		for i, f := range fakes[:2] {
			nodes[i] = leaves{fake: f, broken: true, left: &left}
		}
		fakes[2].hangs = time.Millisecond
		stop := watch(t, redlock.On(nodes), &h)
		h.want(t, "of a watch that hears nothing", driver.Notification{})
		stop()

		fakes[0].hangs, fakes[1].hangs = time.Millisecond, time.Millisecond
		nodes[0], nodes[1], nodes[2] = fakes[0], fakes[1], leaves{fake: fakes[2], broken: true, late: true, left: &left}
		stop = watch(t, redlock.On(nodes), &h)
		time.Sleep(time.Minute)
		h.want(t, "of a watch that a quorum hears")
		stop()
	})
}

// TestWatchInTime: a waiter that has gone asks nothing of the servers.
func TestWatchInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := redlock.On(nodes).(driver.Notifier).Watch(ctx, claim(""), func(driver.Notification) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("Watch() with a context that is done = %v, want that", err)
		}
		for i, f := range fakes {
			if len(f.listeners) > 0 {
				t.Errorf("server %d has %d subscriptions, want none", i+1, len(f.listeners))
			}
		}
	})
}

// TestWatchNeedsAQuorum: what a minority would tell may be missed.
func TestWatchNeedsAQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		fakes[1].down, fakes[2].hangs = true, time.Hour
		var left atomic.Int64
		nodes[0] = leaves{fake: fakes[0], left: &left}
		p := redlock.On(nodes)
		start := time.Now()
		_, err := p.(driver.Notifier).Watch(t.Context(), claim(""), func(driver.Notification) {})
		is(t, "Watch()", err, strategy.ErrNoQuorum)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Watch() took %v, want until Due", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err = p.(driver.Notifier).Watch(ctx, claim(""), func(driver.Notification) {})
		is(t, "Watch() that is called off", err, context.Canceled)
		if n := left.Load(); n != 2 {
			t.Errorf("of two watches that failed %d subscriptions are left, want 2", n)
		}
	})
}

// TestNodeTimeout: no node is waited for longer than its time-out, and only where its
// answer matters.
func TestNodeTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(5)
		took := func(what string, want time.Duration, f func()) {
			t.Helper()
			start := time.Now()
			f()
			if got := time.Since(start); got != want {
				t.Errorf("%s took %v, want %v", what, got, want)
			}
		}
		p := redlock.On(nodes)
		fakes[0].hangs, fakes[1].hangs = time.Hour, time.Hour
		var g driver.Grant
		var out driver.Outcome
		var err error
		took("Acquire() with a minority hung", 0, func() { g, err = p.Acquire(t.Context(), claim("a")) })
		if err != nil {
			t.Fatalf("Acquire() = %v, want nil", err)
		}
		took("Acquire() by another", 0, func() { _, err = redlock.On(nodes[2:]).Acquire(t.Context(), claim("b")) })
		is(t, "Acquire()", err, strategy.ErrHeld)
		c := claim("a")
		c.Grant = g
		time.Sleep(time.Second) // the stragglers are over
		c.Due = time.Now().Add(time.Second)
		took("Extend() with a minority hung", 0, func() { _, err = p.Extend(t.Context(), c) })
		is(t, "Extend()", err)
		time.Sleep(time.Second)
		c.Due = time.Now().Add(time.Second)
		took("Release() with a minority hung", 50*time.Millisecond, func() { out, err = p.Release(t.Context(), c) })
		if err != nil || !out.Partial {
			t.Errorf("Release() = %+v, %v, want that some may remain", out, err)
		}

		g, err = p.Acquire(t.Context(), claim("c"))
		is(t, "Acquire()", err)
		c = claim("c")
		c.Grant = g
		for _, f := range fakes[:2] {
			f.set(func(f *fake) { f.hangs = 0 })
		}
		took("Release() behind requests to a minority that has been silent", 0, func() { _, err = p.Release(t.Context(), c) })
		is(t, "Release()", err)
		for _, f := range fakes[:2] {
			f.set(func(f *fake) { f.hangs = time.Hour })
		}

		g, err = p.Acquire(t.Context(), claim("d"))
		is(t, "Acquire()", err)
		c = claim("d")
		c.Grant = g
		time.Sleep(time.Second)
		fakes[2].set(func(f *fake) { f.hangs = time.Hour })
		c.Due = time.Now().Add(time.Second)
		took("Extend() with a majority hung", 50*time.Millisecond, func() { _, err = p.Extend(t.Context(), c) })
		is(t, "Extend()", err, strategy.ErrNoQuorum)
		time.Sleep(time.Second)
		c.Due = time.Now().Add(time.Second)
		took("Release() with a majority hung", 50*time.Millisecond, func() { _, err = p.Release(t.Context(), c) })
		is(t, "Release()", err, strategy.ErrNoQuorum)
		fakes[2].set(func(f *fake) { f.hangs = 0 })

		for _, f := range fakes[:3] {
			f.set(func(f *fake) { f.down = true })
		}
		fakes[3].hangs = time.Hour
		took("Acquire() with a majority down", 50*time.Millisecond, func() { _, err = p.Acquire(t.Context(), claim("c")) })
		is(t, "Acquire()", err, strategy.ErrNoQuorum)
		if fakes[4].token != "" {
			t.Errorf("the server that is up has %q, want nothing", fakes[4].token)
		}
		p.(interface{ Close() error }).Close()
	})
}

// TestFirstVote: a client's first requests dial, which may take longer than an answer does later. Nor do several callers
// at the same moment fail by that. Nor do later ones whose connections are gone, on servers that are far away.
func TestFirstVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(5)
		var dials sync.Map // what is under way, or was
		dial := 300 * time.Millisecond
		for i, n := range nodes {
			nodes[i] = dialling{n.(*fake), &dials, &dial}
		}
		locks, err := redlock.New(nodes, strategy.Options{OpTimeout: 800 * time.Millisecond})
		is(t, "New()", err)
		start := time.Now()
		var all sync.WaitGroup
		for range 13 {
			all.Go(func() {
				l, err := locks.NewLock("a").Acquire(t.Context())
				is(t, "Acquire()", err)
				is(t, "Release()", l.Release(t.Context()))
			})
		}
		all.Wait()
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("all have had the lock after %v, want soon after the dials", took)
		}
		l, err := locks.NewLock("a").Acquire(t.Context())
		is(t, "Acquire()", err)
		is(t, "Release()", l.Release(t.Context()))
		dials.Clear()
		dial = 3 * roundTrip // so the quorum takes four
		l, err = locks.NewLock("a").Acquire(t.Context())
		is(t, "Acquire() by new connections", err)
		for _, f := range fakes[:3] {
			f.set(func(f *fake) { f.hangs = time.Hour })
		}
		start = time.Now()
		is(t, "Release()", l.Release(t.Context()), strategy.ErrNoQuorum)
		if took := time.Since(start); took != 400*time.Millisecond {
			t.Errorf("Release() on servers that hang took %v, want half of the operation's time-out", took)
		}
		is(t, "Close()", locks.Close())
	})
}

// dialling is a server that is far away, and to which a connection takes that long to make. A request that gives up before
// leaves that to the next one, as a client does whose dial has a deadline.
type dialling struct {
	*fake
	made  *sync.Map
	takes *time.Duration
}

const roundTrip = 30 * time.Millisecond

func (d dialling) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	if _, made := d.made.Load(d.name); !made {
		dial := time.NewTimer(*d.takes)
		defer dial.Stop()
		select {
		case <-dial.C:
			d.made.Store(d.name, true)
		case <-time.After(time.Until(due)):
			return nil, d.fail(strategy.ErrUnsent)
		case <-ctx.Done():
			return nil, d.fail(strategy.ErrUnsent)
		}
	}
	time.Sleep(roundTrip)
	return d.fake.Eval(ctx, due, s, keys, args...)
}

// TestUndoUnordered: on a server that keeps no order, what is not there may come yet.
func TestUndoUnordered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		fakes[2].unordered, fakes[2].hangs = true, time.Hour
		p := redlock.On(nodes)
		g, err := p.Acquire(t.Context(), claim("a"))
		is(t, "Acquire()", err)
		time.Sleep(time.Second)
		fakes[2].set(func(f *fake) { f.hangs = 0 })
		c := claim("a")
		c.Grant = g
		if out, err := p.Release(t.Context(), c); err != nil || !out.Partial {
			t.Errorf("Release() = %+v, %v, want Partial: the vote may come yet", out, err)
		}
		for range 2 {
			is(t, "Undo()", p.Undo(t.Context(), c), strategy.ErrUnknown)
		}
		fakes[2].set(func(f *fake) { f.lost[0]() }) // now it comes
		if fakes[2].token != "a" {
			t.Fatalf("the server has %q, want the late vote", fakes[2].token)
		}
		is(t, "Undo() at last", p.Undo(t.Context(), c))
		if err := p.Undo(t.Context(), c); err != nil || fakes[2].token != "" {
			t.Errorf("Undo() = %v, and the server has %q, want nil and nothing", err, fakes[2].token)
		}
	})
}

// TestUndoEnds: what a server had that is gone for good goes by itself, and is not
// undone for ever; nor is anything asked of servers that can have nothing.
func TestUndoEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		p := redlock.On(nodes)
		g, err := p.Acquire(t.Context(), claim("a"))
		is(t, "Acquire()", err)
		synctest.Wait()
		fakes[0].down = true
		c := claim("a")
		c.Grant = g
		if out, err := p.Release(t.Context(), c); err != nil || !out.Partial {
			t.Errorf("Release() = %+v, %v, want Partial", out, err)
		}
		is(t, "Undo()", p.Undo(t.Context(), c), strategy.ErrUnsent)
		time.Sleep(c.TTL + driver.Drift(c.TTL) + time.Millisecond)
		c.Due = time.Now().Add(time.Second)
		is(t, "Undo() after the TTL", p.Undo(t.Context(), c))

		before := fakes[0].asked
		g, err = p.Acquire(t.Context(), claim("b"))
		is(t, "Acquire()", err)
		synctest.Wait()
		c = claim("b")
		c.Grant = g
		_, err = p.Release(t.Context(), c)
		is(t, "Release()", err)
		if asked := fakes[0].asked - before; asked != 1 {
			t.Errorf("a server that is down was asked %d times, want 1: it has nothing to release", asked)
		}
	})
}

// TestReleaseLapses: a lock whose time ends while servers do not answer its release is lost, and no unknown outcome.
func TestReleaseLapses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		p := redlock.On(nodes)
		c := claim("a")
		g, err := p.Acquire(t.Context(), c)
		is(t, "Acquire()", err)
		synctest.Wait()
		time.Sleep(c.TTL + driver.Drift(c.TTL)) // then the servers' TTL is over, but for an instant
		for _, f := range fakes {
			f.set(func(f *fake) { f.hangs = 500 * time.Millisecond })
		}
		c.Grant, c.Due = g, time.Now().Add(time.Second)
		_, err = p.Release(t.Context(), c)
		is(t, "Release()", err, strategy.ErrLost)
		isNot(t, "Release()", err, strategy.ErrUnknown)
	})
}

// TestAdoptUnreachable: an adoption that finds no quorum is undone where it was made,
// and says that nobody knows what is left.
func TestAdoptUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		late := distantFake{fakes[2], time.Millisecond} // its answer makes a quorum that does not have the lock
		fakes[1].down = true
		_, err := redlock.On([]driver.Node{nodes[0], nodes[1], late}).Adopt(t.Context(), claim("b"), "a")
		is(t, "Adopt() of a lock that is free", err, strategy.ErrLost)
		isNot(t, "Adopt() of a lock that is free", err, strategy.ErrNoQuorum)
		synctest.Wait()
		fakes[1].down = false

		p := redlock.On(nodes)
		_, err = p.Acquire(t.Context(), claim("a"))
		is(t, "Acquire()", err)
		synctest.Wait()
		fakes[0].down, fakes[1].down = true, true
		_, err = p.Adopt(t.Context(), claim("b"), "a")
		is(t, "Adopt()", err, strategy.ErrNoQuorum, strategy.ErrUnknown)
		isNot(t, "Adopt()", err, strategy.ErrLost)
		if fakes[2].token == "b" {
			t.Error("the server that adopted has it still, want it given back")
		}
	})
}

// TestUndone: what a server may have, it is asked to give back, for as long as it may.
func TestUndone(t *testing.T) {
	// In the background a server that is slow gets its time.
	t.Run("OfASlowServer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			nodes[0] = tardyOn{fakes[0], "release", 200 * time.Millisecond}
			p := redlock.On(nodes)
			c := claim("a")
			var err error
			c.Grant, err = p.Acquire(t.Context(), c)
			is(t, "Acquire()", err)
			synctest.Wait()
			is(t, "Undo()", p.Undo(t.Context(), c))
		})
	})

	// Servers never shorten, so what was asked to last for a
	// moment more may last for as long as it was asked to before.
	t.Run("OfAShortExtension", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			p := redlock.On(nodes)
			c := claim("a")
			var err error
			c.Grant, err = p.Acquire(t.Context(), c)
			is(t, "Acquire()", err)
			synctest.Wait()
			c.TTL = 100 * time.Millisecond // as much as the maximum hold leaves
			_, err = p.Extend(t.Context(), c)
			is(t, "Extend()", err)
			synctest.Wait()
			fakes[0].set(func(f *fake) { f.down = true })
			if out, err := p.Release(t.Context(), c); err != nil || !out.Partial {
				t.Errorf("Release() = %+v, %v, want Partial", out, err)
			}
			time.Sleep(time.Second)
			fakes[0].set(func(f *fake) { f.down = false })
			c.Due = time.Now().Add(time.Second)
			is(t, "Undo()", p.Undo(t.Context(), c))
			if fakes[0].token != "" {
				t.Errorf("the server that was down has %q, want nothing", fakes[0].token)
			}
		})
	})

	// A server that has extended, and whose answer was lost, has the
	// token for longer than it was heard to.
	t.Run("OfALostExtension", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			p := redlock.On(nodes)
			c := claim("a")
			var err error
			c.Grant, err = p.Acquire(t.Context(), c)
			is(t, "Acquire()", err)
			time.Sleep(8 * time.Second)
			fakes[0].set(func(f *fake) { f.hangs = time.Hour })
			c.Due = time.Now().Add(time.Second)
			_, err = p.Extend(t.Context(), c)
			is(t, "Extend()", err)
			fakes[0].set(func(f *fake) {
				for _, serve := range f.lost {
					serve()
				}
				f.hangs = 0
			})
			time.Sleep(5 * time.Second) // the TTL that it granted is over, and the one of the extension is not
			if fakes[0].has() == "" {
				t.Fatal("the server has dropped the token, want it extended")
			}
			c.Due = time.Now().Add(time.Second)
			_, err = p.Release(t.Context(), c)
			is(t, "Release()", err)
			if got := fakes[0].has(); got != "" {
				t.Errorf("the server whose answer was lost has %q after the release, want nothing", got)
			}
		})
	})

	// A caller who has gone leaves no vote behind, whichever round it was in. Requests that have not left are not sent.
	for _, c := range []struct {
		what  string
		took  [3]time.Duration // of each server's answers, in its turn
		after time.Duration    // the caller goes
	}{
		{"OfACallerWhoGoesInTheVote", [3]time.Duration{time.Millisecond, 3 * time.Millisecond, 3 * time.Millisecond}, 2 * time.Millisecond},
		{"OfACallerWhoGoesInTheWriteBack", [3]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, 1500 * time.Microsecond},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				fakes, nodes := newFakes(3)
				for i, f := range fakes {
					f.fenced = true
					nodes[i] = distantFake{f, c.took[i]}
				}
				cause := errors.New("gone")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(c.after, func() { cancel(cause) })
				_, err := redlock.On(nodes, redlock.WithFences()).Acquire(ctx, claim("a"))
				is(t, "Acquire()", err, strategy.ErrNoQuorum)
				voted := 0
				for _, f := range fakes {
					if slices.Contains(f.did(), "acquire") {
						voted++
					}
					if got := f.has(); got != "" {
						t.Errorf("%s has %q, want nothing", f.name, got)
					}
				}
				if voted == 0 {
					t.Error("no server has voted, want one that has to give its vote back")
				}
			})
		})
	}

	// A lease that has lost its majority knows it before a minority is free for others.
	t.Run("OfALostLease", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var lease atomic.Value // a strategy.Lease
			var early atomic.Int64
			fakes, nodes := newFakes(5)
			for i, f := range fakes {
				nodes[i] = watchedFake{f, func(script string) {
					if script == "release" && lease.Load().(strategy.Lease).Err() == nil {
						early.Add(1)
					}
				}}
			}
			s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
			is(t, "New()", err)
			defer s.Close()
			l, err := s.NewLock("n").TryAcquire(t.Context())
			is(t, "TryAcquire()", err)
			lease.Store(l)
			synctest.Wait()
			forget(fakes[:3]...)
			is(t, "Extend()", l.Extend(t.Context()), strategy.ErrLost)
			synctest.Wait()
			for _, f := range fakes {
				if got := f.has(); got != "" {
					t.Errorf("%s has %q, want nothing", f.name, got)
				}
			}
			if n := early.Load(); n > 0 {
				t.Errorf("%d servers were asked to release while the lease believed to be held, want none", n)
			}
		})
	})

	// Nor must the advice about servers that do not vote hide what others may grant late.
	t.Run("OfAnAttemptWithoutVotes", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			for i := range 3 {
				nodes[i] = guardedFake{fakes[i]}
			}
			for _, f := range fakes[3:] {
				f.hangs = time.Hour
			}
			s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
			is(t, "New()", err)
			defer s.Close()
			_, err = s.NewLock("n").TryAcquire(t.Context())
			is(t, "TryAcquire()", err, strategy.ErrNoQuorum, strategy.ErrUnknown)
			if !strings.Contains(err.Error(), "redlock.Bootstrap") {
				t.Errorf("TryAcquire() = %v, want the advice to bootstrap", err)
			}
			time.Sleep(time.Second)
			for _, f := range fakes[3:] {
				f.set(func(f *fake) {
					f.hangs = 0
					f.lost[0]() // the request to acquire
				})
				if f.has() == "" {
					t.Fatal("the server has nothing, want the late vote")
				}
			}
			time.Sleep(5 * time.Second) // less than a TTL
			for _, f := range fakes[3:] {
				if got := f.has(); got != "" {
					t.Errorf("%s has %q, want its late vote undone", f.name, got)
				}
			}
		})
	})

	// A quorum that came too late is given back; what another server may grant late is undone, too.
	t.Run("OfALateQuorum", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			const ttl, delay = 10 * time.Second, 20 * time.Millisecond
			fakes, nodes := newFakes(5)
			for i := range nodes {
				nodes[i] = distantFake{fakes[i], delay}
			}
			fakes[4].hangs = time.Hour
			s, err := redlock.New(nodes, strategy.Options{TTL: ttl}, redlock.WithMinValidity(ttl-driver.Drift(ttl)-delay/2))
			is(t, "New()", err)
			defer s.Close()
			_, err = s.NewLock("n").TryAcquire(t.Context())
			is(t, "TryAcquire()", err, strategy.ErrLost)
			time.Sleep(time.Second)
			fakes[4].set(func(f *fake) {
				f.hangs = 0
				f.lost[0]() // the request to acquire
			})
			if fakes[4].has() == "" {
				t.Fatal("the server has nothing, want the late vote")
			}
			time.Sleep(5 * time.Second) // less than a TTL
			if got := fakes[4].has(); got != "" {
				t.Errorf("the server that was silent has %q, want its late vote undone", got)
			}
		})
	})

	// A lease that lapses is released by nobody; what a server may grant late is undone.
	t.Run("OfALeaseThatLapsed", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			fakes[4].hangs = time.Hour
			s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
			is(t, "New()", err)
			defer s.Close()
			lease, err := s.NewLock("n").TryAcquire(t.Context())
			is(t, "TryAcquire()", err)
			<-lease.Lost()
			time.Sleep(5 * time.Second)
			fakes[4].set(func(f *fake) {
				f.hangs = 0
				f.lost[0]()
			})
			if fakes[4].has() == "" {
				t.Fatal("the server has nothing, want the late vote")
			}
			time.Sleep(5 * time.Second) // less than a TTL
			if got := fakes[4].has(); got != "" {
				t.Errorf("the server that was silent has %q, want its late vote undone", got)
			}
		})
	})

	// A server that has not answered at all has not begun to count, and
	// may grant its vote when the TTL is long over; it is undone then.
	t.Run("OfALateVote", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
			is(t, "New()", err)
			defer s.Close()
			fakes[0].hangs = time.Hour
			lease, err := s.NewLock("n").TryAcquire(t.Context())
			is(t, "TryAcquire()", err)
			is(t, "Release()", lease.Release(t.Context()))
			fakes[0].set(func(f *fake) { f.down = true })
			time.Sleep(time.Minute)
			fakes[0].set(func(f *fake) {
				f.down, f.hangs = false, 0
				f.lost[0]() // the request to acquire, of all that have hung
			})
			if fakes[0].has() == "" {
				t.Fatal("the server has nothing, want the late vote")
			}
			time.Sleep(5 * time.Second) // less than a TTL
			if got := fakes[0].has(); got != "" {
				t.Errorf("the server that was silent for a minute has %q, want its late vote undone", got)
			}
		})
	})
}

// A watchedFake tells of a script before it runs.
type watchedFake struct {
	*fake
	before func(script string)
}

func (f watchedFake) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	f.before(s.Name())
	return f.fake.Eval(ctx, due, s, keys, args...)
}

// A guardedFake does not vote.
type guardedFake struct{ *fake }

func (f guardedFake) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	if s.Name() == "acquire" {
		return []any{[]byte("guard"), []byte(redlock.ReasonEmpty), int64(5000), int64(10000)}, nil
	}
	return f.fake.Eval(ctx, due, s, keys, args...)
}

// TestLapsed: the votes of a minority that went on being extended when the majority was
// gone are given back when the lease is lost.
func TestLapsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(5)
		s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
		is(t, "New()", err)
		defer s.Close()
		lease, err := s.NewLock("n").TryAcquire(t.Context())
		is(t, "TryAcquire()", err)
		synctest.Wait()
		for _, f := range fakes[2:] {
			f.set(func(f *fake) { f.down = true })
		}
		is(t, "KeepAlive()", lease.KeepAlive(0))
		<-lease.Lost()
		synctest.Wait()
		for _, f := range fakes[:2] {
			if f.token != "" {
				t.Errorf("%s has %q after the deadline, want nothing", f.name, f.token)
			}
		}
	})
}

// TestMinorityRefuses: errors of a minority, of whatever kind, end nothing, however long
// they last.
func TestMinorityRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(5)
		lease := holding(t, nodes)
		is(t, "KeepAlive()", lease.KeepAlive(0))
		fakes[0].set(func(f *fake) { f.refuses = true })
		fakes[1].set(func(f *fake) { f.hangs = time.Hour })
		time.Sleep(time.Hour)
		if lease.Err() != nil || lease.RenewalErr() != nil {
			t.Errorf("Err() = %v, Failing() = %v after an hour, want nil: a majority extends it", lease.Err(), lease.RenewalErr())
		}
		fakes[2].set(func(f *fake) { f.refuses = true })
		<-lease.Lost()
		is(t, "Err() when a majority refuses", lease.Err(), strategy.ErrLost)
		for _, f := range fakes {
			f.set(func(f *fake) { f.refuses, f.hangs = false, 0 })
		}
	})
}

// TestLostGivesBack: what a minority has of a lock that is lost is given back, also by a
// server that could not be reached at first, and those who wait for its holder are notified.
func TestLostGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(5)
		p := redlock.On(nodes)
		s, err := engine.New(p, strategy.Options{TTL: 10 * time.Second})
		is(t, "New()", err)
		defer s.Close()
		var h heard
		defer watch(t, p, &h)()
		lease, err := s.NewLock("n").TryAcquire(t.Context())
		is(t, "TryAcquire()", err)
		synctest.Wait()
		for _, f := range fakes[:3] {
			f.set(func(f *fake) { f.token = "" })
		}
		fakes[3].set(func(f *fake) { f.down = true })
		is(t, "Extend()", lease.Extend(t.Context()), strategy.ErrLost)
		time.Sleep(longestPause)
		h.want(t, "of the loss", driver.Notification{Holder: lease.Token()})
		fakes[3].set(func(f *fake) { f.down = false })
		time.Sleep(time.Second)
		synctest.Wait()
		for _, f := range fakes {
			if f.token != "" {
				t.Errorf("%s has %q of a lock that is lost, want nothing", f.name, f.token)
			}
		}
	})
}

// TestLongOutage: a server that has been down for longer than the TTL has nothing to
// extend or to release, however long the lock is held: it is asked to join, once for each
// extension.
func TestLongOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
		is(t, "New()", err)
		defer s.Close()
		lease, err := s.NewLock("n").TryAcquire(t.Context())
		is(t, "TryAcquire()", err)
		synctest.Wait()
		is(t, "KeepAlive()", lease.KeepAlive(0))
		fakes[0].set(func(f *fake) { f.down = true })
		time.Sleep(time.Minute)
		synctest.Wait()
		before, others := fakes[0].count(), fakes[1].count()
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked, extended := fakes[0].count()-before, fakes[1].count()-others; asked != extended {
			t.Errorf("a server was asked %d times when it had been down for a minute, want %d: once for each extension", asked, extended)
		}
		before = fakes[0].count()
		is(t, "Release()", lease.Release(t.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked := fakes[0].count() - before; asked != 0 {
			t.Errorf("a server that is down was asked %d times when the lock was released, want 0", asked)
		}
	})
}

// The error of an operator who reaches only a minority does not say that nothing has changed.
func TestForceReleaseOfAMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		s, err := redlock.New(nodes, strategy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		lease, err := s.NewLock("n").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		seen := strategy.Info{Name: "n", Held: true, Token: lease.Token(), Owner: lease.Owner(), Holds: 1}
		for _, f := range fakes[1:] {
			f.mu.Lock()
			f.down = true
			f.mu.Unlock()
		}
		err = s.ForceRelease(t.Context(), seen)
		if !errors.Is(err, strategy.ErrNoQuorum) || !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("ForceRelease = %v, want ErrNoQuorum and ErrUnknown: one server has released it", err)
		}
	})
}

// tardyOn answers one script late, and well if that is in time.
type tardyOn struct {
	*fake
	script string
	by     time.Duration
}

func (n tardyOn) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	if s.Name() == n.script {
		if time.Sleep(min(n.by, time.Until(due))); !time.Now().Before(due) {
			return nil, n.fail(strategy.ErrUnknown)
		}
	}
	return n.fake.Eval(ctx, due, s, keys, args...)
}

// TestValidityLessDrift: what is left is counted from before the first request to the last reply that it
// takes, less the drift of the clocks, to the millisecond. The drift of 1 s is 12 ms.
func TestValidityLessDrift(t *testing.T) {
	least := redlock.WithMinValidity
	for _, c := range []struct {
		script string
		own    []redlock.Option
		by     time.Duration
		want   bool
	}{
		{"acquire", []redlock.Option{least(0)}, 988 * time.Millisecond, true},
		{"acquire", []redlock.Option{least(0)}, 989 * time.Millisecond, false},
		{"acquire", []redlock.Option{least(300 * time.Millisecond)}, 688 * time.Millisecond, true},
		{"acquire", []redlock.Option{least(300 * time.Millisecond)}, 689 * time.Millisecond, false},
		{"acquire", nil, 888 * time.Millisecond, true}, // the default leaves a tenth of the TTL
		{"acquire", nil, 889 * time.Millisecond, false},
		{"writeback", []redlock.Option{redlock.WithFences()}, 888 * time.Millisecond, true},
		{"writeback", []redlock.Option{redlock.WithFences()}, 889 * time.Millisecond, false},
	} {
		t.Run(fmt.Sprint(c.script, len(c.own), c.by), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				fakes, _ := newFakes(3)
				var nodes []driver.Node
				for _, f := range fakes {
					f.fenced = c.script == "writeback"
					nodes = append(nodes, tardyOn{f, c.script, c.by})
				}
				p := redlock.On(nodes, append(c.own, redlock.WithNodeTimeout(time.Minute))...)
				a := claim("a")
				a.TTL, a.Due = time.Second, time.Now().Add(time.Minute)
				start := time.Now()
				g, err := p.Acquire(t.Context(), a)
				if c.want {
					is(t, "Acquire()", err)
					if !g.Start.Equal(start) || g.TTL != a.TTL {
						t.Errorf("Acquire() counts %v from %v on, want %v from %v, before the first request", g.TTL, g.Start, a.TTL, start)
					}
					return
				}
				var late *strategy.LostError
				if !errors.As(err, &late) || !late.Lapsed {
					t.Errorf("Acquire() = %v, want a *LostError that says Lapsed", err)
				}
				for _, f := range fakes {
					if f.token != "" {
						t.Errorf("%s has %q, want what came too late given back", f.name, f.token)
					}
				}
			})
		})
	}
}
