package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/enginetest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// The tests of this package share these helpers; some of them serve those of driver, too. Time is that of a synctest
// bubble. lockstest.Memory is the server; it answers at once unless an interceptor says otherwise.

const (
	name = enginetest.Name
	key  = enginetest.Key
	ms   = time.Millisecond

	ttl   = enginetest.TTL
	drift = enginetest.Drift
	valid = enginetest.Valid
	op    = enginetest.Op
)

var (
	bg = context.Background()

	bubble  = enginetest.Bubble
	take    = enginetest.Take
	release = enginetest.Release
	is      = enginetest.Is
	isNot   = enginetest.IsNot
	since   = enginetest.Since
)

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	enginetest.Equal(t, what, got, want)
}

// open makes a strategy, closes it after the test, and looks for what it leaves.
func open(t *testing.T, p driver.Protocol, o strategy.Options) engine.Strategy {
	t.Helper()
	s, err := engine.New(p, o)
	if err != nil {
		t.Fatalf("New(%+v) = %v", o, err)
	}
	t.Cleanup(func() {
		s.Close()
		if n := engine.UnderWay(s); n != 0 {
			t.Errorf("under way after Close = %d, want 0", n)
		}
		if n := engine.Waiting(s, key); n != 0 {
			t.Errorf("waiting after Close = %d, want 0", n)
		}
	})
	return s
}

// bubbles plays a test for each row of a table, in a bubble of its own.
func bubbles[R any](t *testing.T, table map[string]R, play func(t *testing.T, row R)) {
	t.Helper()
	for what, row := range table {
		t.Run(what, func(t *testing.T) { bubble(t, func(t *testing.T) { play(t, row) }) })
	}
}

// bubblesOf is bubbles for rows that say what they are.
func bubblesOf[R any](t *testing.T, rows []R, play func(t *testing.T, row R)) {
	t.Helper()
	table := map[string]R{}
	for _, row := range rows {
		table[fmt.Sprint(row)] = row
	}
	bubbles(t, table, play)
}

// ways are the ways of waiting in which each waiter hears nothing, hears of releases, or queues.
var ways = []strategy.Wait{strategy.WaitPoll, strategy.WaitNotification, strategy.WaitQueue}

func closed[T any](ch <-chan T) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// holds returns the token that holds key at the server, without a request; empty: nobody.
func holds(m *lockstest.Memory, key string) string {
	m.Intercept(nil)
	info, err := m.Inspect(bg, driver.Claim{Key: key})
	if err != nil {
		return err.Error()
	}
	return info.Token
}

// Interceptors: what may happen to a request.

func lostRequest(context.Context, lockstest.Request, func() error) error {
	return lockstest.Unknown()
}

func lostReply(_ context.Context, _ lockstest.Request, serve func() error) error {
	serve()
	return lockstest.Unknown()
}

func unsent(context.Context, lockstest.Request, func() error) error { return lockstest.Unsent() }

func refused(context.Context, lockstest.Request, func() error) error {
	return lockstest.Refused("LOADING")
}

// slow is a network that takes its time there and back.
func slow(there, back time.Duration) lockstest.Fault {
	return func(_ context.Context, _ lockstest.Request, serve func() error) error {
		time.Sleep(there)
		err := serve()
		time.Sleep(back)
		return err
	}
}

// only makes f meet the requests of one kind.
func only(kind lockstest.Op, f lockstest.Fault) lockstest.Fault {
	return func(ctx context.Context, r lockstest.Request, serve func() error) error {
		if r.Op != kind {
			return serve()
		}
		return f(ctx, r, serve)
	}
}

// recorder keeps the requests that pass it, with their times; next is what happens
// to them then.
type recorder struct {
	next lockstest.Fault // nil: they arrive

	mu   sync.Mutex
	sent []sent
}

type sent struct {
	op  lockstest.Op
	at  time.Time
	all []driver.Claim
}

func (r *recorder) intercept(ctx context.Context, q lockstest.Request, serve func() error) error {
	r.mu.Lock()
	r.sent = append(r.sent, sent{q.Op, time.Now(), q.Claims})
	next := r.next
	r.mu.Unlock()
	if next == nil {
		return serve()
	}
	return next(ctx, q, serve)
}

// then changes what happens to requests from now on.
func (r *recorder) then(f lockstest.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = f
}

// of returns the requests of those kinds so far.
func (r *recorder) of(kinds ...lockstest.Op) []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []sent
	for _, s := range r.sent {
		for _, k := range kinds {
			if s.op == k {
				some = append(some, s)
			}
		}
	}
	return some
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sent)
}

// record puts a recorder in front of m.
func record(m *lockstest.Memory) *recorder {
	r := &recorder{}
	m.Intercept(r.intercept)
	return r
}

// waiter is an Acquire under way.
type waiter struct {
	lease strategy.Lease
	err   error
	at    time.Time // when it ended
	done  chan struct{}
}

// await begins to Acquire l, and returns when that cannot go on by itself.
func await(ctx context.Context, l strategy.Lock) *waiter {
	return calling(func() (strategy.Lease, error) { return l.Acquire(ctx) })
}

// wait awaits the lock called name.
func wait(ctx context.Context, s strategy.Strategy) *waiter { return await(ctx, s.NewLock(name)) }

// calling begins a call, and returns when that cannot go on by itself.
func calling(acquire func() (strategy.Lease, error)) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = acquire()
		w.at = time.Now()
	}()
	synctest.Wait()
	return w
}

// bare hides what only some protocols can do.
func bare(p driver.Protocol) driver.Protocol { return struct{ driver.Protocol }{p} }

// chaos loses, delays and refuses requests at random.
func chaos(seed uint64) lockstest.Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed))
	draw := func() int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(100)
	}
	return func(ctx context.Context, r lockstest.Request, serve func() error) error {
		switch d := draw(); {
		case d < 6:
			return lostRequest(ctx, r, serve)
		case d < 12:
			return lostReply(ctx, r, serve)
		case d < 16:
			return unsent(ctx, r, serve)
		case d < 20:
			return refused(ctx, r, serve)
		case d < 30:
			return slow(time.Duration(draw())*ms, time.Duration(draw())*ms)(ctx, r, serve) // past the time-out, too
		default:
			return slow(time.Duration(draw())*10*time.Microsecond, ms)(ctx, r, serve)
		}
	}
}

// scripted is a protocol that does what a test says, and yes where it says nothing.
type scripted struct {
	driver.Unsupported
	acquire func(driver.Claim) (driver.Grant, error)
	extend  func(driver.Claim) (driver.Grant, error)
	release func(driver.Claim) error // also Undo
}

func (p *scripted) Acquire(_ context.Context, c driver.Claim) (driver.Grant, error) {
	if p.acquire == nil {
		return driver.Grant{}, nil
	}
	return p.acquire(c)
}

func (p *scripted) Extend(_ context.Context, c driver.Claim) (driver.Grant, error) {
	if p.extend == nil {
		return driver.Grant{}, nil
	}
	return p.extend(c)
}

func (p *scripted) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.Undo(ctx, c)
}

func (p *scripted) Undo(_ context.Context, c driver.Claim) error {
	if p.release == nil {
		return nil
	}
	return p.release(c)
}

// teller is a Memory on whose notices a test has a hand.
type teller struct {
	lockstest.Memory
	watching func() // before the subscription
	watched  func() // after it
}

func (p *teller) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	if p.watching != nil {
		p.watching()
	}
	stop, err := p.Memory.Watch(ctx, c, fn)
	if p.watched != nil {
		p.watched()
	}
	return stop, err
}

// scriptedTeller is a scripted protocol whose servers would tell, but never do.
type scriptedTeller struct{ scripted }

func (*scriptedTeller) Watch(context.Context, driver.Claim, func(driver.Notification)) (func(), error) {
	return func() {}, nil
}
