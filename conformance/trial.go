package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A trial is one run of one property's check. As with testing.T, the check ends
// where it fails: what fails says so and exits the check's goroutine. So a check
// reads as the story that it tells, and only that goroutine may call what can fail.
type trial struct {
	Subject
	ctx      context.Context
	cancel   context.CancelFunc
	name     string        // of a lock that nobody else uses
	ttl      time.Duration // where an expiry must be lived through: short
	patience time.Duration
	rec      recorder
	last     bool  // it is not held again with more time
	timers   gauge // of this process
	answers  gauge // of the servers, in the last trial

	mu         sync.Mutex
	contenders []*contender
	holds      []*hold
	grounds    []*Ground
	limited    []*contender  // have set how many permits their lock has
	lag        time.Duration // see relies
	end        verdict
}

// verdict is how a trial ended.
type verdict struct {
	err     error
	shown   bool   // err is the lock's doing, not that of a server that failed
	skip    string // what was missing
	slow    bool   // the script was not played in time
	late    bool   // skip: because the machine was late each time
	history History
}

// shortTTL is long against what a busy machine takes for a few requests. Where it
// was not long enough, the trial is held again with four times as much. See also Subject.TTL.
const shortTTL = 300 * time.Millisecond

// onTime is how late timers and servers are at most where slowness is the lock's doing, and not the machine's.
const onTime = 100 * time.Millisecond

// stall is how late the machine may be in a trial that relies on no short time, before its failure
// says nothing.
const stall = 2 * time.Second

func holdTrial(ctx context.Context, s Subject, p Property, limits limits) verdict {
	for scale := time.Duration(1); ; scale *= 4 {
		t := &trial{
			Subject: s, name: "conformance " + rand.Text(), ttl: max(shortTTL, s.TTL) * scale,
			patience: cmp.Or(s.Patience*(scale+3)/4, limits.patience), lag: stall, last: scale == 16,
		}
		end := t.run(ctx, p.check, limits.watchdog*(scale+3)/4)
		switch late := max(t.timers.worst(), t.answers.worst()); {
		case !end.slow:
			return end
		case !t.last:
		case late > onTime:
			return verdict{skip: fmt.Sprintf("INCONCLUSIVE: the machine was up to %v late: %v", late, end.err), late: true, history: end.history}
		default:
			end.err = fmt.Errorf("the machine was on time, and yet each time: %w", end.err)
			return end
		}
	}
}

func (t *trial) run(ctx context.Context, check func(*trial), limit time.Duration) verdict {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.ctx, t.cancel = ctx, cancel
	t.rec.began, t.rec.observe = time.Now(), t.Observe
	defer t.timers.start(lateTimer)()
	if t.last && t.Evict != nil {
		defer t.answers.start(t.lateAnswer)()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.cleanUp()
		defer func() {
			if p := recover(); p != nil {
				t.ended(verdict{err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())})
			}
		}()
		check(t)
	}()
	watchdog := time.NewTimer(limit)
	defer watchdog.Stop()
	for over := false; !over; {
		select {
		case <-done:
			over = true
			continue
		case <-watchdog.C:
		}
		if quiet := t.rec.quiet(); quiet < limit && time.Since(t.rec.began) < 10*limit {
			watchdog.Reset(limit - quiet) // it is slow, and goes on
			continue
		}
		over = true
		t.failed(verdict{err: fmt.Errorf("the trial hangs: nothing has happened for %v; goroutines:\n%s", limit, stacks())})
		cancel()
		select { // what listens to its context ends now
		case <-done:
		case <-time.After(limit / 10):
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end.history = t.rec.history()
	return t.end
}

// ended notes how the trial ended. The first word counts.
func (t *trial) ended(e verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end.err == nil && t.end.skip == "" {
		t.end = e
	}
}

// failf says that the lock lacks the property; of a trial that was called off it
// says nothing.
func (t *trial) failf(format string, args ...any) {
	t.unlessCalledOff()
	t.failed(verdict{err: fmt.Errorf(format, args...), shown: true})
	runtime.Goexit()
}

// failed is ended, unless the machine may have made the trial fail: it was later than the script
// allows, or a lock that was to last for the whole trial has lapsed.
func (t *trial) failed(v verdict) {
	t.mu.Lock()
	lag, holds := t.lag, t.holds
	t.mu.Unlock()
	if late := t.timers.worst(); late > lag {
		v = verdict{err: fmt.Errorf("the machine was %v late: %w", late, v.err), slow: true}
	}
	for _, h := range holds {
		if h.c.o.TTL >= shorter.TTL && h.lapsed() {
			v = verdict{err: fmt.Errorf("the deadline of %s's lock came: %w", h.c.who, v.err), slow: true}
		}
	}
	t.ended(v)
}

// relies says that a failure counts only if the machine was at most so late.
func (t *trial) relies(lag time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lag = min(t.lag, lag)
}

// A gauge measures how late something is: so late may be anything else.
type gauge struct {
	mu   sync.Mutex
	most time.Duration
}

// start measures, over and over, until stop is called.
func (g *gauge) start(late func(context.Context) time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			g.note(late(ctx))
		}
	}()
	return func() { cancel(); <-ended }
}

func (g *gauge) note(late time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = max(g.most, late)
}

func (g *gauge) worst() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

func lateTimer(ctx context.Context) time.Duration {
	const tick = 20 * time.Millisecond
	due := time.Now().Add(tick)
	passed(ctx, tick)
	return time.Since(due)
}

// lateAnswer is how long the servers take for what is not the lock's doing.
func (t *trial) lateAnswer(ctx context.Context) time.Duration {
	asked := time.Now()
	t.Evict(ctx, strategy.DefaultKey(t.name+", which nobody holds")) //nolint:errcheck // only the time counts
	elapsed := time.Since(asked)
	passed(ctx, onTime)
	return elapsed
}

// unlessCalledOff ends a trial whose story nobody waits for any more.
func (t *trial) unlessCalledOff() {
	if t.ctx.Err() != nil {
		t.ended(verdict{err: fmt.Errorf("called off: %w", context.Cause(t.ctx))})
		runtime.Goexit()
	}
}

// brokef says that the trial could not be held.
func (t *trial) brokef(format string, args ...any) {
	t.unlessCalledOff()
	t.failed(verdict{err: fmt.Errorf(format, args...)})
	runtime.Goexit()
}

// tooSlow says that time ran out before the script was played.
func (t *trial) tooSlow(what string) {
	t.ended(verdict{err: fmt.Errorf("no time was left: %s", what), slow: true})
	runtime.Goexit()
}

// needs skips the trial if the subject lacks something.
func (t *trial) needs(has bool, missing string) {
	if !has {
		t.ended(verdict{skip: missing})
		runtime.Goexit()
	}
}

// cleanUp gives back what the trial holds.
func (t *trial) cleanUp() {
	t.cancel() // for those that wait still
	t.mu.Lock()
	holds, contenders, limited, grounds := t.holds, t.contenders, t.limited, t.grounds
	t.mu.Unlock()
	for _, c := range contenders {
		if c.net != nil {
			c.net.restore()
		}
	}
	for _, h := range slices.Backward(holds) {
		h.lease.Release(t.ctx)
	}
	for _, c := range limited {
		c.unlimit()
	}
	for _, c := range contenders {
		c.s.Close()
	}
	for _, g := range grounds {
		if err := g.Close(); err != nil {
			t.ended(verdict{err: fmt.Errorf("Ground.Close: %w", err)})
		}
	}
	if t.Evict == nil {
		return
	}
	// What was left to expire may be without expiry at the servers, as a lock that
	// lapses by its holder's stamp is: take it away, it is nobody else's.
	names := map[string]bool{t.name: true}
	for _, h := range holds {
		names[h.lease.Name()] = true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.patience)
	defer cancel()
	for name := range names {
		if t.Evict(ctx, strategy.DefaultKey(name)) != nil {
			return // a server that fails: there is nothing more to be done
		}
	}
}

func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// eventually waits until ok, which must come some time.
func (t *trial) eventually(want string, ok func() bool) {
	for began := time.Now(); !ok(); {
		waited := time.Since(began)
		if waited > t.patience || t.ctx.Err() != nil {
			t.failf("still not so after %v: %s", t.patience, want)
		}
		t.sleep(min(max(waited/8, time.Millisecond), 200*time.Millisecond))
	}
}

// sleep passes time that the story needs to pass.
func (t *trial) sleep(d time.Duration) {
	t.pause(d)
	t.unlessCalledOff()
}

// pause is sleep for code that is not the check: gates, and what runs under a lock.
func (t *trial) pause(d time.Duration) { passed(t.ctx, d) }

// passed returns when so much time has passed, or when ctx ends.
func passed(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// late is closed when something has not happened within d that must, or when the trial is called
// off: then nobody waits for it any more.
func (t *trial) late(d time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(t.ctx, d)
	context.AfterFunc(ctx, cancel) // there is nobody else to call it
	return ctx.Done()
}

// await is what comes from a channel within d; if nothing does, the trial ends in these words.
func await[T any](t *trial, from <-chan T, d time.Duration, late string, args ...any) (got T) {
	select {
	case got = <-from:
	case <-t.late(d):
		t.failf(late, args...)
	}
	return got
}

// aside makes a call on a goroutine of its own.
func aside(f func() call) <-chan call {
	ended := make(chan call, 1)
	go func() { ended <- f() }()
	return ended
}

// evict takes the lock from its holder, who must not renew it meanwhile: where the lock lives on several
// servers, they lose it one after the other, and a renewal in between rightly brings it back.
func (t *trial) evict(name string) {
	t.needs(t.Evict != nil, "Subject.Evict is nil")
	if err := t.Evict(t.ctx, strategy.DefaultKey(name)); err != nil {
		t.brokef("Subject.Evict: %w", err)
	}
	t.rec.add("the lock is taken from its holder, as by expiry")
}

// breakWatches ends the subscriptions of those who wait for the lock.
func (t *trial) breakWatches() {
	if err := t.BreakWatches(t.ctx, strategy.DefaultKey(t.name)); err != nil {
		t.brokef("Subject.BreakWatches: %w", err)
	}
	t.rec.add("the subscriptions break")
}

// A contender wants locks. It has a Strategy of its own, as a process would have.
type contender struct {
	t       *trial
	who     string
	o       strategy.Options
	s       strategy.Strategy
	lock    strategy.Lock
	net     *network // if gated, or linked
	permits int      // so many at once; 0: it does not say
	reads   bool
}

// ample is for trials in which nothing expires.
var ample = strategy.Options{TTL: 30 * time.Second, OpTimeout: 10 * time.Second}

// shorter is ample, but for a holder whose TTL another's extension would make longer.
var shorter = strategy.Options{TTL: 20 * time.Second, OpTimeout: 10 * time.Second}

// brief is for trials in which something does.
func (t *trial) brief() strategy.Options {
	t.relies(t.ttl / 2)
	return strategy.Options{TTL: t.ttl, OpTimeout: t.ttl * 3 / 4}
}

// patient is for trials in which nothing expires before patience is at its end.
func (t *trial) patient() strategy.Options {
	return strategy.Options{TTL: 4 * t.patience, OpTimeout: t.patience}
}

func (t *trial) contender(who string, o strategy.Options) *contender {
	return t.enrol(&contender{who: who, o: o}, t.Open)
}

// skewed opens a contender whose wall clock is ahead, or, if negative, behind.
func (t *trial) skewed(who string, o strategy.Options, ahead time.Duration) *contender {
	t.needs(t.OpenSkewed != nil, "Subject.OpenSkewed is nil")
	return t.enrol(&contender{who: who, o: o}, func(o strategy.Options) (strategy.Strategy, error) {
		return t.OpenSkewed(o, ahead)
	})
}

func (t *trial) enrol(c *contender, open func(strategy.Options) (strategy.Strategy, error)) *contender {
	if t.Opens != nil {
		t.Opens(c.who)
	}
	var err error
	if c.s, err = open(c.o); err != nil {
		t.needs(!errors.Is(err, strategy.ErrUnsupported), "the protocol is no driver.Notifier: "+err.Error())
		t.brokef("Subject.Open: %w", err)
	}
	c.t, c.lock = t, c.s.NewLock(t.name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contenders = append(t.contenders, c)
	return c
}

// on returns the same contender for another lock.
func (c *contender) on(name string) *contender {
	other := *c
	other.lock = c.lockOf(c.s, name)
	return &other
}

// lockOf is the lock of that name as the contender wants to hold it.
func (c *contender) lockOf(s strategy.Strategy, name string) strategy.Lock {
	switch shared := s.(type) {
	case strategy.Semaphore:
		if c.permits > 0 {
			return shared.NewMultiPermitLock(name, c.permits)
		}
	case strategy.ReadWriter:
		if c.reads {
			return shared.NewRLock(name)
		}
	default:
		if c.permits > 0 || c.reads {
			c.t.brokef("With returns a %T, want what With was called on: a strategy.Semaphore, or a strategy.ReadWriter", s)
		}
	}
	return s.NewLock(name)
}

// wants is how the contender wants to hold the lock, for texts.
func (c *contender) wants() string {
	switch {
	case c.permits > 0:
		return fmt.Sprintf("%d permits", c.permits)
	case c.reads:
		return "to read"
	}
	return ""
}

// A call is a finished call on a lock.
type call struct {
	t       *trial
	c       *contender
	text    string
	err     error
	elapsed time.Duration
	hold    *hold // acquired by it
	of      *hold // made on it
	late    bool  // it ended after the deadline that of had when it began
}

// do makes a call and notes it.
func (c *contender) do(text string, f func() (strategy.Lease, error)) call {
	asked := time.Now()
	lease, err := f()
	k := call{t: c.t, c: c, text: c.who + "." + text, err: err, elapsed: time.Since(asked)}
	if lease != nil {
		k.hold = &hold{c: c, lease: lease, asked: asked, got: time.Now()}
		c.t.mu.Lock()
		c.t.holds = append(c.t.holds, k.hold)
		c.t.mu.Unlock()
	}
	c.t.rec.add("%s = %v", k.text, err)
	return k
}

func (c *contender) try() call { return c.tryWith(c.t.ctx) }

func (c *contender) tryWith(ctx context.Context) call {
	return c.do("TryAcquire("+c.wants()+")", func() (strategy.Lease, error) { return c.lock.TryAcquire(ctx) })
}

// acquire is Acquire, as long as patience lasts.
func (c *contender) acquire() call {
	ctx, cancel := context.WithTimeout(c.t.ctx, c.t.patience)
	defer cancel()
	return c.acquireWith(ctx)
}

func (c *contender) acquireWith(ctx context.Context) call {
	return c.do("Acquire("+c.wants()+")", func() (strategy.Lease, error) { return c.lock.Acquire(ctx) })
}

// want ends the trial unless the call ended as it should; nil for success. why
// says what makes it so.
func (k call) want(target error, why string) *hold {
	if matches(k.err, target) {
		return k.hold
	}
	if k.of != nil && target != strategy.ErrLost {
		k.t.unlessLapsed(k.of)
	}
	var server *strategy.ServerError
	if errors.As(k.err, &server) {
		// A request that failed says nothing about the lock. One may also be given up for
		// another on its connection that had no answer in time.
		if k.elapsed > k.c.o.OpTimeout/2 || errors.Is(k.err, strategy.ErrUnknown) {
			k.t.tooSlow(k.text + " = " + k.err.Error())
		}
		k.t.brokef("%s = %w, want %s: %s", k.text, k.err, nameOf(target), why)
	}
	if k.late && errors.Is(k.err, strategy.ErrLost) {
		k.t.tooSlow(k.text + " = " + k.err.Error() + ", after the deadline that it had")
	}
	var lost *strategy.LostError
	if errors.As(k.err, &lost) && lost.Lapsed && k.elapsed > k.c.o.TTL/2 {
		k.t.tooSlow(k.text + " = " + k.err.Error())
	}
	k.t.failf("%s = %w, want %s: %s", k.text, orNil{k.err}, nameOf(target), why)
	return nil
}

// wantHeldBy is want(ErrHeld) while h lasts. Once its deadline is over, nothing
// can be said.
func (k call) wantHeldBy(h *hold, why string) {
	if k.err == nil && !time.Now().Before(h.lease.Deadline()) {
		k.t.tooSlow(k.text + " = <nil> after the deadline of the holder")
	}
	k.want(strategy.ErrHeld, why)
}

func matches(err, target error) bool {
	if target == nil {
		return err == nil
	}
	return errors.Is(err, target)
}

// orNil prints a nil error, and wraps one that is not.
type orNil struct{ err error }

func (e orNil) Error() string { return fmt.Sprint(e.err) }
func (e orNil) Unwrap() error { return e.err }

func nameOf(err error) string {
	for name, known := range map[string]error{
		"<nil>": nil, "ErrHeld": strategy.ErrHeld, "ErrLost": strategy.ErrLost, "ErrReleased": strategy.ErrReleased,
		"ErrClosed": strategy.ErrClosed, "ErrRefused": strategy.ErrRefused, "ErrNoQuorum": strategy.ErrNoQuorum,
		"context.Canceled": context.Canceled, "context.DeadlineExceeded": context.DeadlineExceeded,
	} {
		if err == known {
			return name
		}
	}
	return fmt.Sprintf("%q", err)
}

// eventually asks until the lock is granted, which must come some time.
func (c *contender) eventually(why string) *hold {
	var got *hold
	c.t.eventually(why, func() bool {
		k := c.try()
		if !errors.Is(k.err, strategy.ErrHeld) {
			got = k.want(nil, why)
		}
		return got != nil
	})
	return got
}

// takenOverBy plays the common tragedy: the lock goes to b, and its first holder does not know.
func (c *contender) takenOverBy(b *contender) (late, successor *hold) {
	late = c.try().want(nil, "the lock is free")
	c.t.evict(c.lock.Name())
	successor = b.try().want(nil, "nobody holds the lock any more")
	return late, successor
}

// A hold is a lease with its holder.
type hold struct {
	c     *contender
	lease strategy.Lease
	asked time.Time   // before the request
	got   time.Time   // after the reply
	left  atomic.Bool // detached
}

// lapsed reports whether the deadline has come of a lock that its holder has not released.
func (h *hold) lapsed() bool {
	released := !h.left.Load() && errors.Is(h.lease.Err(), strategy.ErrReleased)
	return !released && !time.Now().Before(h.lease.Deadline())
}

func (h *hold) do(text string, f func() error) call {
	deadline := h.lease.Deadline()
	k := h.c.do(text, func() (strategy.Lease, error) { return nil, f() })
	k.of, k.late = h, !time.Now().Before(deadline)
	return k
}

func (h *hold) release() call {
	return h.do("Release()", func() error { return h.lease.Release(h.c.t.ctx) })
}

func (h *hold) extend() call {
	return h.do("Extend()", func() error { return h.lease.Extend(h.c.t.ctx) })
}

func (h *hold) err() call { return h.do("Err()", h.lease.Err) }

func (h *hold) keepAlive(maxHold time.Duration) {
	h.do(fmt.Sprintf("KeepAlive(%v)", maxHold), func() error { return h.lease.KeepAlive(maxHold) }).want(nil, "the lock is held")
}

// detach leaves the lock with the servers, as a holder that dies does.
func (h *hold) detach() string {
	var token string
	h.do("Detach()", func() (err error) { token, err = h.lease.Detach(); return err }).want(nil, "the lock is held")
	h.left.Store(true)
	return token
}

// waitLost waits for the loss and returns how it came about.
func (h *hold) waitLost(why string) *strategy.LostError {
	await(h.c.t, h.lease.Lost(), h.c.t.patience, "%s.Lost() is not closed after %v, want closed: %s", h.c.who, h.c.t.patience, why)
	k := h.err()
	k.want(strategy.ErrLost, "Lost is closed")
	var lost *strategy.LostError
	if !errors.As(k.err, &lost) {
		h.c.t.failf("%s = %w, want a *LostError", k.text, k.err)
	}
	return lost
}

// unlessLapsed ends the trial without a verdict if the holder's deadline came: on a
// machine that is too slow it may, though the lock is in order. With more time it
// will not; a renewal that does not work lets it come every time.
func (t *trial) unlessLapsed(h *hold) {
	if !time.Now().Before(h.lease.Deadline()) {
		t.tooSlow("the deadline of " + h.c.who + "'s lock came")
	}
}

// noticing returns the same contender, and what is closed at the first sign that it has found the lock held.
func (c *contender) noticing() (waiter *contender, held <-chan struct{}) {
	refused := make(chan struct{})
	var once sync.Once
	s, err := c.s.With(func(o *strategy.Options) {
		o.Observe = func(e strategy.Event) {
			if e.Kind == strategy.EventHeld {
				once.Do(func() { close(refused) })
			}
		}
	})
	if err != nil {
		c.t.brokef("With: %w", err)
	}
	other := *c
	other.lock = c.lockOf(s, c.lock.Name())
	return &other, refused
}

// A pending is an Acquire under way.
type pending struct {
	c      *contender
	cancel context.CancelCauseFunc
	done   chan struct{}
	k      call // when done
}

// start calls Acquire on a goroutine of its own. It returns when the contender
// waits for the lock, or is done.
func (c *contender) start() *pending {
	ctx, cancel := context.WithCancelCause(c.t.ctx)
	p := &pending{c: c, cancel: cancel, done: make(chan struct{})}
	waiter, held := c.noticing()
	go func() {
		defer close(p.done)
		defer cancel(nil)
		p.k = waiter.acquireWith(ctx)
	}()
	select {
	case <-held:
		c.t.rec.add("%s waits", c.who)
	case <-p.done:
	case <-c.t.late(c.t.patience):
		c.t.brokef("%s.Acquire has neither the lock nor an answer after %v", c.who, c.t.patience)
	}
	return p
}

func (p *pending) settles() *pending {
	p.c.settle()
	return p
}

// settle gives a waiter time to do what it does before it sleeps: listen, and ask
// again. So what comes next has to wake it. If the time is too short, the trial
// is less severe, not wrong. Where requests are counted, settle ends when no more come, or,
// as some waiters ask for ever, after a while.
func (c *contender) settle() {
	last := -1
	for range 8 {
		c.t.sleep(c.t.ttl / 4)
		if c.net == nil || c.requests() == last || c.t.ctx.Err() != nil {
			return
		}
		last = c.requests()
	}
}

// givesUp calls the wait off, and returns the call when that is over.
func (p *pending) givesUp() call {
	p.cancel(errors.New("called off"))
	return p.wait("its context is cancelled")
}

// wait returns the call when it is done, which must come some time.
func (p *pending) wait(why string) call {
	await(p.c.t, p.done, p.c.t.patience, "%s.Acquire() has not returned after %v, want: %s", p.c.who, p.c.t.patience, why)
	return p.k
}
