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
	"github.com/lockstrategies/locks/internal/testkit/enginetest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

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
	hangs     time.Duration // until it answers
	lost      []func()      // requests that hang: their caller may be gone
	unordered bool
	listeners []func([]byte, error)
	ran       []string
	returns   uint64 // so often has it come back
	fault     error  // of Use and Close
	used      int    // less how often it was closed

	// before, if there is one, comes before a script. Its reply or error, if there is one, takes the place of the script's.
	before func(ctx context.Context, due time.Time, script string) (any, error)
	// subscribed, if there is one, takes the place of a subscription.
	subscribed func(ctx context.Context, fn func([]byte, error)) (leave func(), err error)
}

// late is a before: requests to run the script, or any, take so long on their way.
func late(script string, by time.Duration) func(context.Context, time.Time, string) (any, error) {
	return func(_ context.Context, due time.Time, s string) (any, error) {
		if script == "" || s == script {
			if time.Sleep(min(by, time.Until(due))); !time.Now().Before(due) {
				return nil, &strategy.ServerError{Node: "fake", Kind: strategy.ErrUnknown, Err: errors.New("it is late")}
			}
		}
		return nil, nil
	}
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

func (f *fake) Use() error {
	if f.fault == nil {
		f.used++
	}
	return f.fault
}

func (f *fake) Close() error {
	f.set(func(f *fake) { f.used-- })
	return f.fault
}

func (f *fake) Probe(_ context.Context, due time.Time) uint64 {
	time.Sleep(time.Until(due)) // it answers at the last moment
	return f.returns
}

func (f *fake) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return nil, f.fail(strategy.ErrRefused)
}

func (f *fake) Session(context.Context, time.Time, string, func(driver.Conn) error) error {
	return f.fail(strategy.ErrUnsent)
}

func (f *fake) Eval(ctx context.Context, due time.Time, s *driver.Script, _ []string, args ...any) (any, error) {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before != nil {
		if reply, err := before(ctx, due, s.Name()); reply != nil || err != nil {
			return reply, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down || ctx.Err() != nil { // a client sends nothing for a caller who has gone
		return nil, f.fail(strategy.ErrUnsent)
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
	if f.subscribed != nil {
		return f.subscribed(ctx, fn)
	}
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

// has is the token that a fake has.
func (f *fake) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.token
}

// did is which scripts it has run.
func (f *fake) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ran)
}

// have checks that each of the fakes has the token.
func have(t *testing.T, when string, token string, fakes ...*fake) {
	t.Helper()
	for _, f := range fakes {
		if got := f.has(); got != token {
			t.Errorf("%s %s has %q, want %q", when, f.name, got, token)
		}
	}
}

// forget, hang and work change fakes.
func forget(fakes ...*fake) {
	for _, f := range fakes {
		f.set(func(f *fake) { f.token = "" })
	}
}

func hang(fakes ...*fake) {
	for _, f := range fakes {
		f.set(func(f *fake) { f.hangs = time.Hour })
	}
}

func work(fakes ...*fake) {
	for _, f := range fakes {
		f.set(func(f *fake) { f.hangs, f.down = 0, false })
	}
}

// granted is a claim that p has been granted.
func granted(t *testing.T, p driver.Protocol, token string) driver.Claim {
	t.Helper()
	c := claim(token)
	var err error
	c.Grant, err = p.Acquire(t.Context(), c)
	is(t, "Acquire()", err)
	synctest.Wait()
	return c
}

// soon is the claim for a call that begins now.
func soon(c driver.Claim) driver.Claim {
	c.Due = time.Now().Add(time.Second)
	return c
}

// holding opens a lock on fakes, all of which have granted it if they can.
func holding(t *testing.T, nodes []driver.Node) strategy.Lease {
	t.Helper()
	s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
	is(t, "New()", err)
	t.Cleanup(func() { s.Close() })
	lease, err := s.NewLock("n").TryAcquire(t.Context())
	is(t, "TryAcquire()", err)
	synctest.Wait()
	return lease
}

func claim(token string) driver.Claim {
	return driver.Claim{Name: "n", Key: "lock:{n}", Token: token, Owner: token, TTL: 10 * time.Second, Due: time.Now().Add(time.Second)}
}

var bubble = enginetest.Bubble

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

// TestUnusable: the error says which node cannot be used. Those before it are given up again, and no other. Nor is the
// error of a node's Close lost.
func TestUnusable(t *testing.T) {
	for i := range 3 {
		fakes, nodes := newFakes(3)
		fault := errors.New("its client is nil")
		s, err := redlock.New(nodes, strategy.Options{})
		is(t, "New()", err)
		fakes[i].fault = fault
		is(t, "Close()", s.Close(), fault)
		_, err = redlock.New(nodes, strategy.Options{})
		if want := fmt.Sprintf("(node %d of 3)", i+1); !errors.Is(err, fault) || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want %v %s", err, fault, want)
		}
		for _, f := range fakes {
			if f.used != 0 {
				t.Errorf("node %d fails: %s has been used %d times more than it was closed, want 0", i+1, f.name, f.used)
			}
		}
	}
}

// TestProbe: the returns of all servers count, and they are asked at the same time.
func TestProbe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		fakes[0].returns, fakes[1].returns, fakes[2].returns = 1, 2, 4
		start := time.Now()
		if n := redlock.On(nodes).(driver.Prober).Probe(t.Context(), start.Add(time.Second)); n != 7 {
			t.Errorf("Probe() = %d, want 7", n)
		}
		enginetest.Since(t, "Probe()", start, time.Second)
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

		var left atomic.Int64
		fakes[2].subscribed = leaving(&left, false, true)
		watch(t, p, &h)()
		if n := left.Load(); n != 1 {
			t.Errorf("%d subscriptions that were confirmed late are left after stop, want 1", n)
		}
	})
}

// leaving is a subscription that counts how often it is left. It may be confirmed when it is broken, or has been called
// off.
func leaving(left *atomic.Int64, broken, late bool) func(context.Context, func([]byte, error)) (func(), error) {
	return func(ctx context.Context, fn func([]byte, error)) (func(), error) {
		if broken {
			fn(nil, errors.New("broken"))
		}
		if late {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
		}
		return func() { left.Add(1) }, nil
	}
}

// TestWatchWithoutQuorum: a watch ends, and says so, if too few subscriptions last until a quorum has confirmed. One that is
// broken when it is confirmed takes nothing from the others. Messages of a minority may be missed.
func TestWatchWithoutQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		p := redlock.On(nodes)
		var left atomic.Int64
		var h heard
		fakes[0].subscribed, fakes[1].subscribed = leaving(&left, true, false), leaving(&left, true, false)
		fakes[2].hangs = time.Millisecond
		stop := watch(t, p, &h)
		h.want(t, "of a watch that hears nothing", driver.Notification{})
		stop()

		fakes[0].subscribed, fakes[1].subscribed, fakes[2].subscribed = nil, nil, leaving(&left, true, true)
		fakes[0].hangs, fakes[1].hangs = time.Millisecond, time.Millisecond
		stop = watch(t, p, &h)
		time.Sleep(time.Minute)
		h.want(t, "of a watch that a quorum hears")
		stop()

		left.Store(0)
		hang(fakes[2])
		fakes[0].subscribed, fakes[1].down, fakes[2].subscribed = leaving(&left, false, false), true, nil
		start := time.Now()
		_, err := p.(driver.Notifier).Watch(t.Context(), claim(""), h.note)
		is(t, "Watch()", err, strategy.ErrNoQuorum)
		enginetest.Since(t, "Watch()", start, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		for range 2 { // the second has gone before it asks
			_, err = p.(driver.Notifier).Watch(ctx, claim(""), h.note)
			is(t, "Watch() that is called off", err, context.Canceled)
		}
		if n := left.Load(); n != 2 {
			t.Errorf("of two watches that failed %d subscriptions are left, want 2", n)
		}
	})
}

// TestNodeTimeout: no node is waited for longer than its time-out, and only where its answer matters.
func TestNodeTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const timeout = 50 * time.Millisecond
		fakes, nodes := newFakes(5)
		p := redlock.On(nodes)
		defer p.(interface{ Close() error }).Close()
		took := func(what string, want time.Duration, call func() error, errs ...error) {
			t.Helper()
			start := time.Now()
			err := call()
			is(t, what, err, errs...)
			enginetest.Since(t, what, start, want)
		}
		var c driver.Claim
		acquire := func() (err error) {
			c = claim("a")
			c.Grant, err = p.Acquire(t.Context(), c)
			return err
		}
		extend := func() error { _, err := p.Extend(t.Context(), soon(c)); return err }
		release := func() error { _, err := p.Release(t.Context(), soon(c)); return err }
		hang(fakes[:2]...)
		took("Acquire() with a minority hung", 0, acquire)
		byAnother := func() error { _, err := redlock.On(nodes[2:]).Acquire(t.Context(), claim("b")); return err }
		took("Acquire() by another", 0, byAnother, strategy.ErrHeld)
		time.Sleep(time.Second) // the stragglers are over
		took("Extend() with a minority hung", 0, extend)
		time.Sleep(time.Second)
		took("Release() with a minority hung", timeout, release)

		took("Acquire()", 0, acquire)
		work(fakes[:2]...)
		took("Release() behind requests to a minority that has been silent", 0, release)
		hang(fakes[:2]...)

		took("Acquire()", 0, acquire)
		time.Sleep(time.Second)
		hang(fakes[2])
		took("Extend() with a majority hung", timeout, extend, strategy.ErrNoQuorum)
		time.Sleep(time.Second)
		took("Release() with a majority hung", timeout, release, strategy.ErrNoQuorum)
		forget(fakes...)

		work(fakes[2])
		for _, f := range fakes[:3] {
			f.set(func(f *fake) { f.down = true })
		}
		hang(fakes[3])
		took("Acquire() with a majority down", timeout, acquire, strategy.ErrNoQuorum)
		have(t, "after an attempt that failed", "", fakes[4])
	})
}

// TestFirstVote: a client's first requests dial, which may take longer than an answer does later. Nor do several callers
// at the same moment fail by that. Nor do later ones whose connections are gone, on servers that are far away.
func TestFirstVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const roundTrip = 30 * time.Millisecond
		fakes, nodes := newFakes(5)
		var dials sync.Map // what has been dialled
		dial := 300 * time.Millisecond
		for _, f := range fakes {
			f.before = func(ctx context.Context, due time.Time, _ string) (any, error) {
				if _, made := dials.Load(f); !made { // who gives up leaves the dial to the next
					select {
					case <-time.After(dial):
						dials.Store(f, true)
					case <-time.After(time.Until(due)):
						return nil, f.fail(strategy.ErrUnsent)
					case <-ctx.Done():
						return nil, f.fail(strategy.ErrUnsent)
					}
				}
				time.Sleep(roundTrip)
				return nil, nil
			}
		}
		locks, err := redlock.New(nodes, strategy.Options{OpTimeout: 800 * time.Millisecond})
		is(t, "New()", err)
		hold := func() strategy.Lease {
			l, err := locks.NewLock("a").Acquire(t.Context())
			is(t, "Acquire()", err)
			return l
		}
		start := time.Now()
		var all sync.WaitGroup
		for range 13 {
			all.Go(func() { is(t, "Release()", hold().Release(t.Context())) })
		}
		all.Wait()
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("all have had the lock after %v, want soon after the dials", took)
		}
		is(t, "Release()", hold().Release(t.Context()))
		dials.Clear()
		dial = 3 * roundTrip // so the quorum takes four
		l := hold()
		hang(fakes[:3]...)
		start = time.Now()
		is(t, "Release()", l.Release(t.Context()), strategy.ErrNoQuorum)
		enginetest.Since(t, "Release() on servers that hang", start, 400*time.Millisecond) // half of the operation's time-out
		is(t, "Close()", locks.Close())
	})
}

// TestUndoEnds: what a server had that is gone for good goes by itself, and is not undone for ever; nor is anything asked of
// servers that can have nothing. In the background a server that is slow gets its time.
func TestUndoEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		asked := 0 // of the first
		fakes[0].before = func(context.Context, time.Time, string) (any, error) { asked++; return nil, nil }
		p := redlock.On(nodes)
		c := granted(t, p, "a")
		fakes[0].down = true
		if out, err := p.Release(t.Context(), c); err != nil || !out.Partial {
			t.Errorf("Release() = %+v, %v, want Partial", out, err)
		}
		is(t, "Undo()", p.Undo(t.Context(), c), strategy.ErrUnsent)
		time.Sleep(c.TTL + driver.Drift(c.TTL) + time.Millisecond)
		is(t, "Undo() after the TTL", p.Undo(t.Context(), soon(c)))

		asked = 0
		_, err := p.Release(t.Context(), granted(t, p, "b"))
		is(t, "Release()", err)
		if asked != 1 {
			t.Errorf("a server that is down was asked %d times, want 1: it has nothing to release", asked)
		}
		work(fakes[0])
		fakes[0].set(func(f *fake) { f.before = late("release", 200*time.Millisecond) })
		is(t, "Undo() on a slow server", p.Undo(t.Context(), granted(t, p, "c")))
	})
}

// TestReleaseLapses: a lock whose time ends while servers do not answer its release is lost, and no unknown outcome.
func TestReleaseLapses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		p := redlock.On(nodes)
		c := granted(t, p, "a")
		time.Sleep(c.TTL + driver.Drift(c.TTL)) // then the servers' TTL is over, but for an instant
		hang(fakes...)
		_, err := p.Release(t.Context(), soon(c))
		is(t, "Release()", err, strategy.ErrLost)
		isNot(t, "Release()", err, strategy.ErrUnknown)
	})
}

// TestLostExtension: a server that has extended, and whose answer was lost, has the token for longer than it was heard to.
func TestLostExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		p := redlock.On(nodes)
		c := granted(t, p, "a")
		time.Sleep(8 * time.Second)
		hang(fakes[0])
		_, err := p.Extend(t.Context(), soon(c))
		is(t, "Extend()", err)
		fakes[0].set(func(f *fake) {
			f.hangs = 0
			for _, serve := range f.lost {
				serve()
			}
		})
		time.Sleep(5 * time.Second) // the TTL that it granted is over, and the one of the extension is not
		have(t, "after an extension", "a", fakes[0])
		_, err = p.Release(t.Context(), soon(c))
		is(t, "Release()", err)
		have(t, "after the release", "", fakes[0])
	})
}

// TestLateVotes: what a server that was silent grants late is undone, however the attempt or the lease ended.
func TestLateVotes(t *testing.T) {
	const ttl, delay = 10 * time.Second, 20 * time.Millisecond
	acquire := func(t *testing.T, s strategy.Strategy, want ...error) (strategy.Lease, error) {
		lease, err := s.NewLock("n").TryAcquire(t.Context())
		is(t, "TryAcquire()", err, want...)
		return lease, err
	}
	for _, c := range []struct {
		what  string
		use   func(t *testing.T, s strategy.Strategy, fakes []*fake)
		quiet time.Duration // until the vote
	}{
		// A server that has not answered at all has not begun to count, and may grant its vote when the TTL is long over.
		{"OfALeaseThatWasReleased", func(t *testing.T, s strategy.Strategy, fakes []*fake) {
			lease, _ := acquire(t, s)
			is(t, "Release()", lease.Release(t.Context()))
			fakes[4].set(func(f *fake) { f.down = true })
		}, time.Minute},
		{"OfALeaseThatLapsed", func(t *testing.T, s strategy.Strategy, _ []*fake) {
			lease, _ := acquire(t, s)
			<-lease.Lost()
		}, 5 * time.Second},
		{"OfALateQuorum", func(t *testing.T, s strategy.Strategy, fakes []*fake) {
			for _, f := range fakes {
				f.before = late("acquire", 2*delay)
			}
			acquire(t, s, strategy.ErrLost)
		}, time.Second},
		// Nor must the advice about servers that do not vote hide what others may grant late.
		{"OfAnAttemptWithoutVotes", func(t *testing.T, s strategy.Strategy, fakes []*fake) {
			for _, f := range fakes[:4] { // all that answer: next to a vote, which may come first, there is no such advice
				f.before = doesNotVote
			}
			if _, err := acquire(t, s, strategy.ErrNoQuorum, strategy.ErrUnknown); !strings.Contains(err.Error(), "redlock.Bootstrap") {
				t.Errorf("TryAcquire() = %v, want the advice to bootstrap", err)
			}
		}, time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				fakes, nodes := newFakes(5)
				hang(fakes[4])
				s, err := redlock.New(nodes, strategy.Options{TTL: ttl}, redlock.WithMinValidity(ttl-driver.Drift(ttl)-delay))
				is(t, "New()", err)
				defer s.Close()
				c.use(t, s, fakes)
				time.Sleep(c.quiet)
				fakes[4].set(func(f *fake) {
					f.hangs, f.down = 0, false
					f.lost[0]() // the request to acquire
				})
				if fakes[4].has() == "" {
					t.Fatal("the server has nothing, want the late vote")
				}
				time.Sleep(5 * time.Second) // less than a TTL
				have(t, "5 s after its late vote", "", fakes[4])
			})
		})
	}
}

// doesNotVote is a before.
func doesNotVote(_ context.Context, _ time.Time, script string) (any, error) {
	if script == "acquire" {
		return []any{[]byte("guard"), []byte(redlock.ReasonEmpty), int64(5000), int64(10000)}, nil
	}
	return nil, nil
}

// TestValidityLessDrift: what is left is counted from before the first request to the last reply that it
// takes, less the drift of the clocks, to the millisecond. The drift of 1 s is 12 ms.
func TestValidityLessDrift(t *testing.T) {
	least := redlock.WithMinValidity
	for _, c := range []struct {
		script string
		own    []redlock.Option
		most   time.Duration // that it may take
	}{
		{"acquire", []redlock.Option{least(0)}, 988 * time.Millisecond},
		{"acquire", []redlock.Option{least(300 * time.Millisecond)}, 688 * time.Millisecond},
		{"acquire", nil, 888 * time.Millisecond}, // the default leaves a tenth of the TTL
		{"writeback", []redlock.Option{redlock.WithFences()}, 888 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c.script, len(c.own), c.most), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				fakes, nodes := newFakes(3)
				p := redlock.On(nodes, append(c.own, redlock.WithNodeTimeout(time.Minute))...)
				for by, want := range map[time.Duration]error{c.most: nil, c.most + time.Millisecond: strategy.ErrLost} {
					for _, f := range fakes {
						f.set(func(f *fake) { f.fenced, f.before = c.script == "writeback", late(c.script, by) })
					}
					a := claim("a")
					a.TTL, a.Due = time.Second, time.Now().Add(time.Minute)
					start := time.Now()
					g, err := p.Acquire(t.Context(), a)
					if want == nil {
						is(t, "Acquire()", err)
						if !g.Start.Equal(start) || g.TTL != a.TTL {
							t.Errorf("Acquire() counts %v from %v on, want %v from %v, before the first request", g.TTL, g.Start, a.TTL, start)
						}
						time.Sleep(time.Minute)
						continue
					}
					var lapsed *strategy.LostError
					if !errors.As(err, &lapsed) || !lapsed.Lapsed {
						t.Errorf("Acquire() = %v, want a *LostError that says Lapsed", err)
					}
					have(t, "after an attempt that was too late", "", fakes...)
				}
			})
		})
	}
}

// fencing are nodes with counters that answer after this time.
func fencing(n int, answer time.Duration) (fakes []*fake, nodes []driver.Node) {
	fakes, nodes = newFakes(n)
	for _, f := range fakes {
		f.fenced, f.before = true, late("", answer)
	}
	return fakes, nodes
}

// TestSpare: more servers than it takes note a fence, if they voted in time.
func TestSpare(t *testing.T) {
	run := func(name string, f func(t *testing.T)) { t.Run(name, func(t *testing.T) { bubble(t, f) }) }

	run("FrozenAfterItsVote", func(t *testing.T) {
		fakes, nodes := fencing(5, time.Millisecond)
		fakes[2].before = late("writeback", time.Hour)
		fakes[3].before, fakes[4].before = late("", 2*time.Millisecond), late("", 2*time.Millisecond)
		s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second}, redlock.WithFences())
		is(t, "New()", err)
		defer s.Close()
		for range 3 {
			start := time.Now()
			lease, err := s.NewLock("n").TryAcquire(t.Context())
			if took := time.Since(start); err != nil || took > 5*time.Millisecond {
				t.Fatalf("TryAcquire() with one server frozen of five that voted = %v, after %v, want nil after two answers of 2ms", err, took)
			}
			is(t, "Release()", lease.Release(t.Context()))
			time.Sleep(time.Second)
		}
	})

	// A quorum of votes is not enough while it has no quorum of servers that remember: the last fence may be
	// on those that have not answered. They are waited for until the time-out.
	run("RemembersLate", func(t *testing.T) {
		fakes, nodes := fencing(5, 0)
		fakes[4].forgot = true
		const last = 1 << 52 // ahead of the clock
		fakes[0].n, fakes[0].before = last, late("", 4*longestPause)
		fakes[1].before = late("", time.Second)
		p := redlock.On(nodes, redlock.WithFences(), redlock.WithNodeTimeout(time.Minute))
		start := time.Now()
		g, err := p.Acquire(t.Context(), claim("a"))
		if err != nil || g.Fence != last+1 {
			t.Errorf("Acquire() = fence %d, %v, want %d, which the server knows that answers when the others have been silent for %v", g.Fence, err, last+1, 4*longestPause)
		}
		// Two answers, and the least wait for late votes, because the quorum was found at once.
		enginetest.Since(t, "Acquire()", start, 8*longestPause+time.Millisecond)
		time.Sleep(time.Second)
	})

	// A server that was silent is not waited for, nor asked any more when the fence is written back.
	run("SilentBefore", func(t *testing.T) {
		fakes, nodes := fencing(5, 0)
		var asked atomic.Int64 // for how long
		fakes[4].before = func(ctx context.Context, due time.Time, script string) (any, error) {
			start := time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(due)):
			}
			if script == "acquire" {
				asked.Store(int64(time.Since(start)))
			}
			return nil, fakes[4].fail(strategy.ErrUnknown)
		}
		p := redlock.On(nodes, redlock.WithFences())
		for _, want := range []time.Duration{time.Millisecond, 0} {
			c := claim("a")
			start := time.Now()
			var err error
			c.Grant, err = p.Acquire(t.Context(), c)
			is(t, "Acquire()", err)
			enginetest.Since(t, "Acquire()", start, want)
			p.Release(t.Context(), c) //nolint:errcheck // it remains on the server that is silent
		}
		enginetest.Equal(t, "how long the server was asked for its vote", asked.Load(), 0)
	})

	// Nor is a late vote waited for where the lock is held.
	run("Held", func(t *testing.T) {
		fakes, nodes := fencing(5, 0)
		p := redlock.On(nodes, redlock.WithFences())
		granted(t, p, "a")
		untilCalledOff := func(ctx context.Context, _ time.Time, script string) (any, error) {
			if script == "acquire" {
				<-ctx.Done()
			}
			return nil, nil
		}
		fakes[4].set(func(f *fake) { f.before = untilCalledOff })
		start := time.Now()
		_, err := p.Acquire(t.Context(), claim("b"))
		is(t, "Acquire()", err, strategy.ErrHeld)
		enginetest.Since(t, "Acquire()", start, time.Millisecond) // until the late vote is called off
		time.Sleep(time.Second)
	})

	// A voter that had forgotten its fences hears of this one also if the caller goes.
	run("HearsItLater", func(t *testing.T) {
		fakes, nodes := fencing(5, time.Millisecond)
		fakes[4].forgot = true
		ctx, cancel := context.WithCancel(t.Context())
		g, err := redlock.On(nodes, redlock.WithFences()).Acquire(ctx, claim("a"))
		cancel()
		is(t, "Acquire()", err)
		time.Sleep(time.Second)
		fakes[4].set(func(f *fake) { enginetest.Equal(t, "the fence of the server that had forgotten", uint64(f.n), g.Fence) })
	})

	// Every vote counts that comes by the time the wait for late votes ends, also one that comes
	// in the moment in which the quorum is found.
	run("VotesAtOnce", func(t *testing.T) {
		const answers = 10 * time.Millisecond
		_, nodes := fencing(9, answers)
		p := redlock.On(nodes, redlock.WithFences())
		for i := range 300 {
			start := time.Now()
			c := granted(t, p, fmt.Sprint(i))
			enginetest.Since(t, "Acquire() of nine nodes that answer at once", start, 2*answers)
			_, err := p.Release(t.Context(), c)
			is(t, "Release()", err)
		}
	})
}

// TestLongOutage: a server that has been down for longer than the TTL has nothing to release, however often the lock was
// extended meanwhile.
func TestLongOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		p := redlock.On(nodes)
		c := granted(t, p, "a")
		fakes[0].down = true
		for range 5 {
			time.Sleep(c.TTL / 3)
			_, err := p.Extend(t.Context(), soon(c))
			is(t, "Extend()", err)
			synctest.Wait()
		}
		if out, err := p.Release(t.Context(), soon(c)); err != nil || out.Partial {
			t.Errorf("Release() = %+v, %v, want that nothing is left", out, err)
		}
	})
}
