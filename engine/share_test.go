// Locks that several may hold at a time: what is handed over within a process, who asks for what is left, the shares that
// NewShare allows, and what becomes of a lease that is exchanged.
package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/internal/testkit/ledger"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// maxShare is the greatest share that a shares grants.
const maxShare = 3

// shares is the protocol of a semaphore in memory, and a recorder of its requests.
type shares struct {
	memory.Shares
	*recorder
	server *lockstest.Memory
}

func newShares(permits int) *shares {
	m := &lockstest.Memory{}
	return &shares{m.Shares(nil, permits), record(m), m}
}

func (p *shares) MaxShare() int { return maxShare }

// held returns the share that a token holds; 0: none.
func (p *shares) held(token string) (share int) {
	p.Change(key, func(l *memory.Lock) {
		if h := l.Hold(token); h != nil {
			share = memory.PermitsOf(h.Share)
		}
	})
	return share
}

// queued returns the claims in the queue.
func (p *shares) queued() (all []driver.Claim) {
	p.Requeue(key, func(queue []driver.Claim, _ func(driver.Claim) bool, _ bool) []driver.Claim {
		all = slices.Clone(queue)
		return queue
	})
	return all
}

// keeps checks how many claims wait at the server, and how many lines listen.
func (p *shares) keeps(t *testing.T, when string, queued, listening int) {
	t.Helper()
	synctest.Wait()
	want := []string{"key " + key}
	if queued > 0 {
		want = append(want, fmt.Sprintf("%d claims in the queue for %s", queued, key))
	}
	if listening > 0 {
		want = append(want, fmt.Sprintf("%d watches of %s", listening, key))
	}
	if left, _ := p.Leftovers(bg, key); !slices.Equal(left, want) {
		t.Errorf("%s at the server are %q, want %q", when, left, want)
	}
}

// takeShare acquires a share that is free.
func takeShare(t *testing.T, s engine.Strategy, share int) strategy.Lease {
	t.Helper()
	l, err := s.NewShare(name, share).TryAcquire(bg)
	if err != nil {
		t.Fatalf("TryAcquire of a share of %d = %v", share, err)
	}
	return l
}

// waitShare begins to Acquire a share and returns when that cannot go on by itself.
func waitShare(ctx context.Context, s engine.Strategy, share int) *waiter {
	return await(ctx, s.NewShare(name, share))
}

// waitShares awaits shares of those sizes, one after the other.
func waitShares(s engine.Strategy, shares ...int) (ws []*waiter) {
	for _, share := range shares {
		ws = append(ws, waitShare(bg, s, share))
	}
	return ws
}

// acquired checks which of them have ended by now.
func acquired(t *testing.T, when string, ws []*waiter, want ...int) {
	t.Helper()
	synctest.Wait()
	var got []int
	for i, w := range ws {
		if closed(w.done) {
			got = append(got, i)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s Acquire of %v has ended, want %v", when, got, want)
	}
}

// TestShareLine: the waiters of a process have one line, and one place in the queue. One of them that releases hands its share to the next,
// without a request; when the process's turn is over, the release asks for the next one's share, too.
func TestShareLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newShares(2)
		s := open(t, p, strategy.Options{})
		a, b := takeShare(t, s, 1), takeShare(t, s, 1)
		before := p.count()
		ws := waitShares(s, 1, 1, 1, 1)
		equal(t, "requests of four who wait", p.count()-before, 3) // ask, listen, ask for a place
		p.keeps(t, "while four wait", 1, 1)
		listens := p.of(lockstest.OpWatch)[0]
		equal(t, "Share of the subscription", listens.all[0].Share, 1)
		equal(t, "time until it is due", listens.all[0].Due.Sub(listens.at), op)

		before = p.count()
		release(t, a) // it has come without the line: a pass, which asks for what may be handed over
		acquired(t, "after one release", ws, 0)
		p.keeps(t, "when the first has its share", 0, 1) // the next takes a place when the turn is over
		release(t, b)
		acquired(t, "after two releases", ws, 0, 1)
		release(t, ws[0].got(t))
		release(t, ws[1].got(t))
		acquired(t, "after four releases", ws, 0, 1, 2, 3)
		equal(t, "requests of two passes and two hand-overs", p.count()-before, 2)
		one, two := ws[2].got(t), ws[3].got(t)
		if one.Token() == ws[0].lease.Token() || fenceOf(one) <= fenceOf(ws[0].lease) || fenceOf(two) <= fenceOf(ws[1].lease) {
			t.Errorf("fences of the next holds of a share = %d after %d, %d after %d; want greater ones, and tokens of their own",
				fenceOf(one), fenceOf(ws[0].lease), fenceOf(two), fenceOf(ws[1].lease))
		}
		release(t, one)
		release(t, two)
		equal(t, "passes", len(p.of(lockstest.OpPass)), 2)
		leftovers(t, p.server)
	})
}

// TestShareDuringAPass: while a release asks for the first waiter, another share that is given back is handed over without another
// request, if its turn is not over. If it is, it goes to the servers, and the next waiter asks for it when the first is served.
func TestShareDuringAPass(t *testing.T) {
	type row struct {
		later    time.Duration // the second share's turn begins that much later
		during   []int
		requests int
	}
	bubbles(t, map[string]row{
		"within the turn": {ms, []int{0, 1, 2}, 0},
		"after the turn":  {0, []int{0, 1}, 1},
	}, func(t *testing.T, tt row) {
		p := newShares(2)
		s := open(t, p, strategy.Options{})
		a, b := takeShare(t, s, 1), takeShare(t, s, 1)
		ws := waitShares(s, 1, 1, 1, 1)
		release(t, a)
		time.Sleep(tt.later)
		release(t, b)
		time.Sleep(5*ms/2 - tt.later) // the first share's turn is over
		p.then(only(lockstest.OpPass, slow(ms, 0)))
		go release(t, ws[0].got(t))
		synctest.Wait()
		before := p.count()
		release(t, ws[1].got(t))
		acquired(t, "during the pass", ws, tt.during...)
		equal(t, "requests of the release", p.count()-before, tt.requests)
		time.Sleep(ms)
		acquired(t, "after the pass", ws, 0, 1, 2, 3)
		release(t, ws[2].got(t))
		release(t, ws[3].got(t))
		leftovers(t, p.server)
	})
}

// TestShareNotified: a waiter that is notified wakes on the release of any holder, not only of the one that it was
// told of. When one release leaves enough for several, or several come at once, all who can have theirs
// have it at once.
func TestShareNotified(t *testing.T) {
	type row struct {
		held, wanted []int
		frees        []int // these are released, at once
		then         []int // these waiters have their shares
		attempts     int
	}
	bubbles(t, map[string]row{
		// The waiters know of the first holder alone: it ends earlier.
		"one":     {held: []int{1, 1}, wanted: []int{1, 1}, frees: []int{1}, then: []int{0}},
		"both":    {held: []int{1, 1}, wanted: []int{1, 1}, frees: []int{1, 0}, then: []int{0, 1}},
		"several": {held: []int{2}, wanted: []int{1, 1, 2}, frees: []int{0}, then: []int{0, 1}, attempts: 3}, // the third's is refused
	}, func(t *testing.T, tt row) {
		p := newShares(2)
		other := open(t, p, strategy.Options{TTL: time.Hour})
		s := open(t, p, strategy.Options{TTL: time.Hour, Wait: strategy.WaitNotification})
		var held []strategy.Lease
		for _, share := range tt.held {
			held = append(held, takeShare(t, other, share))
			time.Sleep(ms)
		}
		ws := waitShares(s, tt.wanted...)
		before := len(p.of(lockstest.OpAcquire))
		for _, i := range tt.frees {
			go release(t, held[i])
		}
		acquired(t, "at once", ws, tt.then...)
		if tt.attempts > 0 {
			equal(t, "attempts", len(p.of(lockstest.OpAcquire))-before, tt.attempts)
		}
		if len(tt.frees) < len(held) {
			release(t, held[0])
		}
		start := time.Now()
		for _, w := range ws {
			release(t, w.got(t))
		}
		since(t, "the last had its share after", start, 0)
		leftovers(t, p.server)
	})
}

// TestNewShare: which shares are allowed. For others no request is sent.
func TestNewShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newShares(maxShare)
		s := open(t, p, strategy.Options{})
		for _, share := range []int{0, -1, maxShare + 1, 1 << 31, 1<<32 + 1} {
			_, try := s.NewShare(name, share).TryAcquire(bg)
			_, wait := s.NewShare(name, share).Acquire(bg)
			for _, err := range []error{try, wait} {
				want := fmt.Sprintf("a share of %d of the lock %q: allowed are 1 to %d", share, name, maxShare)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Acquire of a share of %d = %v, want an error that says %q", share, err, want)
				}
			}
		}
		if _, err := s.NewShare("", 0).TryAcquire(bg); err == nil || !strings.Contains(err.Error(), "name has 0 bytes") {
			t.Errorf("TryAcquire of a lock without a name = %v, want that the name is not allowed", err)
		}
		equal(t, "requests", p.count(), 0)
		release(t, takeShare(t, s, maxShare))
		release(t, take(t, s))
		equal(t, "Share of NewLock", p.of(lockstest.OpAcquire)[1].all[0].Share, 0)
	})
}

// TestExchange: a lease becomes one of another share, in one request. The first is released, for its user and for
// the observer, and the second is as any other.
func TestExchange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newShares(maxShare)
		var events ledger.Ledger
		s := open(t, p, strategy.Options{Observe: events.Observe})
		from := takeShare(t, s, 3)
		is(t, "KeepAlive", from.KeepAlive(0))
		ctx, cancel := from.Context(bg)
		defer cancel()
		time.Sleep(time.Second)
		other := waitShare(bg, s, 2)
		before, start := p.count(), time.Now()
		same, err := s.Changed(func(o *strategy.Options) { o.OpTimeout = op / 2 }) // of the same strategy, with other options
		is(t, "With", err)
		to, err := same.Exchange(bg, from, 1)
		is(t, "Exchange", err)
		equal(t, "requests", p.count()-before, 1)
		release(t, other.got(t)) // what was left was free at once
		is(t, "Err of what was exchanged", from.Err(), strategy.ErrReleased)
		is(t, "cause of the end of its context", context.Cause(ctx), strategy.ErrReleased)
		is(t, "Release of what was exchanged", from.Release(bg), strategy.ErrReleased)
		is(t, "Err", to.Err())
		equal(t, "Deadline", to.Deadline(), start.Add(valid))
		equal(t, "share of the new token", p.held(to.Token()), 1)
		equal(t, "share of the old token", p.held(from.Token()), 0)
		if fenceOf(to) <= fenceOf(from) {
			t.Errorf("Fence = %d, want more than %d", fenceOf(to), fenceOf(from))
		}
		equal(t, "held, by the events", events.Held(), 1)
		renewed := len(p.of(lockstest.OpExtendAll))
		time.Sleep(5 * time.Second)
		equal(t, "renewals since", len(p.of(lockstest.OpExtendAll))-renewed, 0) // KeepAlive was for the first
		release(t, to)
		leftovers(t, p.server)
		equal(t, "scheduled", engine.Scheduled(s), 0)
		is(t, "events", events.Err())
	})
}

// TestExchangeRefused: what is not allowed, or comes too late, sends nothing and leaves the lease as it was.
func TestExchangeRefused(t *testing.T) {
	done, cancel := context.WithCancel(bg)
	cancel()
	type row struct {
		before func(s strategy.Strategy, l strategy.Lease)
		by     func(t *testing.T, p *shares, s engine.Strategy) engine.Strategy // nil: by s
		share  int
		ctx    context.Context
		says   string
		is     error
		ended  bool // the lease has ended in that way
	}
	bubbles(t, map[string]row{
		"no share":          {share: 0, says: "allowed are 1 to 3"},
		"too great a share": {share: maxShare + 1, says: "allowed are 1 to 3"},
		"ctx is done":       {share: 1, ctx: done, is: context.Canceled},
		"another strategy's": {share: 1, says: "another strategy's", by: func(t *testing.T, p *shares, _ engine.Strategy) engine.Strategy {
			return open(t, p, strategy.Options{})
		}},
		"of another key": {share: 1, says: "another strategy's", by: func(t *testing.T, _ *shares, s engine.Strategy) engine.Strategy {
			other, err := s.Changed(func(o *strategy.Options) { o.Key = func(name string) string { return "other:" + name } })
			is(t, "With", err)
			return other
		}},
		"closed":   {share: 1, is: strategy.ErrClosed, before: func(s strategy.Strategy, _ strategy.Lease) { s.Close() }},
		"lapsed":   {share: 1, is: strategy.ErrLost, ended: true, before: func(strategy.Strategy, strategy.Lease) { time.Sleep(ttl) }},
		"detached": {share: 1, is: strategy.ErrReleased, ended: true, before: func(_ strategy.Strategy, l strategy.Lease) { l.Detach() }},
	}, func(t *testing.T, tt row) {
		p := newShares(maxShare)
		s := open(t, p, strategy.Options{})
		by, ctx := s, cmp.Or(tt.ctx, bg)
		if tt.by != nil {
			by = tt.by(t, p, s)
		}
		l := takeShare(t, s, 2)
		if tt.before != nil {
			tt.before(s, l)
		}
		before := p.count()
		_, err := by.Exchange(ctx, l, tt.share)
		if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("Exchange = %v, want %v, and that it says %q", err, tt.is, tt.says)
		}
		_, err = by.Exchange(ctx, struct{ strategy.Lease }{l}, tt.share)
		equal(t, "a lease of no engine is exchanged", err == nil, false)
		synctest.Wait()
		equal(t, "requests", p.count()-before, 0)
		if tt.ended {
			is(t, "Err of the lease", l.Err(), tt.is)
			return
		}
		is(t, "Err of the lease", l.Err())
		equal(t, "share of the lease", p.held(l.Token()), 2)
	})
}

// TestExchangeFails: when the request has failed, the caller holds nothing. The engine undoes whatever the servers may
// still keep of either lease; of a lease that is lost they keep nothing.
func TestExchangeFails(t *testing.T) {
	type row struct {
		fault  lockstest.Fault
		err    error
		undone int // leases: the old one, or both
	}
	says := func(err error) lockstest.Fault {
		return func(context.Context, lockstest.Request, func() error) error { return err }
	}
	var p *shares
	var s engine.Strategy
	for what, tt := range map[string]row{
		"refused":      {refused, strategy.ErrRefused, 1},
		"unsupported":  {says(strategy.ErrUnsupported), strategy.ErrUnsupported, 1},
		"unsent":       {unsent, strategy.ErrUnsent, 1},
		"lost request": {lostRequest, strategy.ErrUnknown, 2},
		"lost reply":   {lostReply, strategy.ErrUnknown, 2},
		"lost lease":   {says(&strategy.LostError{Name: name}), strategy.ErrLost, 0},
		"late":         {slow(0, valid), strategy.ErrLost, 1}, // the new one
		"closed": {func(_ context.Context, _ lockstest.Request, serve func() error) error {
			err := serve()
			go s.Close() //nolint:errcheck // the test's end closes it again
			time.Sleep(ms)
			return err
		}, strategy.ErrClosed, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			p = newShares(maxShare)
			missed := 0
			s = open(t, p, strategy.Options{OpTimeout: ttl - ms, Observe: func(e strategy.Event) {
				if e.Kind == strategy.EventMissed {
					missed++
				}
			}})
			from := takeShare(t, s, 2)
			p.then(only(lockstest.OpAdopt, tt.fault))
			to, err := s.Exchange(bg, from, 1)
			if is(t, what, err, tt.err); to != nil {
				t.Errorf("Exchange = %v, want no lease", to)
			}
			is(t, "Err of what was exchanged", from.Err(), strategy.ErrReleased)
			equal(t, "missed", missed, 1)
			synctest.Wait()
			tokens := map[string]bool{}
			for _, r := range p.of(lockstest.OpUndo) {
				tokens[r.all[0].Token] = true
			}
			equal(t, "leases undone: "+what, len(tokens), tt.undone)
			if what != "lost lease" {
				leftovers(t, p.server)
			}
		})
	}
}

// TestWithinItself: a caller in the context of its own lease is refused only what waits for that lease: not another lock,
// nor what the lease does not hold any more.
func TestWithinItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, err := m.ReadWriter(strategy.Options{})
		is(t, "ReadWriter", err)
		outer, err := s.NewRLock(name).Acquire(bg)
		is(t, "Acquire to read", err)
		inner, cancel := outer.Context(bg)
		defer cancel()
		before := m.Requests()
		_, err = s.NewLock(name).Acquire(inner)
		is(t, "Acquire to write within it", err, strategy.ErrHeld)
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Holder != outer.Token() || held.TTL != ttl {
			t.Errorf("Acquire to write within it = %#v, want that the outer lease holds it for %v", held, ttl)
		}
		equal(t, "requests", m.Requests()-before, 0)
		other, err := s.NewLock("other").Acquire(inner)
		is(t, "Acquire of another lock", err)
		innermost, cancel := other.Context(inner)
		defer cancel()
		_, err = s.NewLock(name).Acquire(innermost)
		is(t, "Acquire to write within both", err, strategy.ErrHeld)
		release(t, other)
		release(t, outer)
		later, err := s.NewLock(name).Acquire(context.WithoutCancel(inner))
		is(t, "Acquire after the release", err)
		release(t, later)
		is(t, "Close", s.Close())
	})
}

// TestAsk: a request that is of no lease gets a claim without a token, and is counted among those that Close waits
// for. It is not made after Close, when ctx is done, or for a name that is not allowed.
func TestAsk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newShares(1)
		s := open(t, p, strategy.Options{TTL: time.Minute, FenceTTL: -1})
		failed := errors.New("failed")
		asked := 0
		ask := func(ctx context.Context, name string) error {
			return s.Ask(ctx, name, func(got context.Context, c driver.Claim) error {
				asked++
				equal(t, "ctx", got, ctx)
				equal(t, "claim", c, driver.Claim{Name: name, Key: key, TTL: time.Minute, Due: time.Now().Add(op)})
				equal(t, "under way", engine.UnderWay(s), 1)
				return failed
			})
		}
		equal(t, "Ask", ask(bg, name), failed)
		equal(t, "asked", asked, 1)
		equal(t, "under way afterwards", engine.UnderWay(s), 0)
		done, cancel := context.WithCancel(bg)
		cancel()
		is(t, "Ask when ctx is done", ask(done, name), context.Canceled)
		if err := ask(bg, ""); err == nil || !strings.Contains(err.Error(), "name has 0 bytes") {
			t.Errorf("Ask of a lock without a name = %v, want that the name is not allowed", err)
		}
		is(t, "Close", s.Close())
		is(t, "Ask after Close", ask(bg, name), strategy.ErrClosed)
		equal(t, "asked", asked, 1)
	})
}
