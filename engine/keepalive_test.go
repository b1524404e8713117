// Renewal: when KeepAlive asks, how many leases share a request, what it makes of failures, and the
// maximum hold.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/engine/internal/scheduler"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

const (
	third = ttl / 3
	half  = ttl / 2
)

// A lease is renewed every third of its TTL, give or take a tenth of that. Where one
// request renews many, a lone one is renewed shortly before half of it has passed: only
// another's renewal makes it earlier.
func TestRenewalPeriod(t *testing.T) {
	t.Run("one by one", func(t *testing.T) { testRenewalPeriod(t, false) })
	t.Run("in bulk", func(t *testing.T) { testRenewalPeriod(t, true) })
}

func testRenewalPeriod(t *testing.T, bulk bool) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		var p driver.Protocol = &m
		least, most := third, half
		if !bulk {
			p, least, most = bare(&m), third-third/10, third+third/10
		}
		s := open(t, p, strategy.Options{})
		last := time.Now()
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		time.Sleep(time.Hour)
		is(t, "Err", lease.Err())
		var low, high int
		for _, e := range append(r.of(lockstest.OpExtendAll), r.of(lockstest.OpExtend)...) {
			period := e.at.Sub(last)
			last = e.at
			if period < least || period > most {
				t.Errorf("renewal after %v, want %v to %v", period, least, most)
			}
			if bulk && low+high == 0 {
				least = half - (half-third)/4 // the first may come with any other's
			}
			if period < (least+most)/2 {
				low++
			} else {
				high++
			}
		}
		if n := low + high; n < int(9*time.Hour/10/((least+most)/2)) || low < n/3 || high < n/3 {
			t.Errorf("renewals in an hour = %d early, %d late, want about as many, and %v apart", low, high, (least+most)/2)
		}
		release(t, lease)
	})
}

// Many locks taken at different times come to be renewed together: the requests of
// a period do not grow with the locks, and each is renewed about as often as a lone one.
func TestRenewalsRideTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		const n = 100
		for i := range n {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(half / n)
		}
		before := len(r.of(lockstest.OpExtendAll))
		time.Sleep(20 * half)
		requests, renewals := r.of(lockstest.OpExtendAll)[before:], 0
		for _, e := range requests {
			renewals += len(e.all)
		}
		if len(requests) > 20*4 { // who is past a third rides along
			t.Errorf("requests for %d renewals = %d, want 4 a period or fewer", renewals, len(requests))
		}
		if renewals < 20*n || renewals > 30*n {
			t.Errorf("renewals = %d, want %d to %d", renewals, 20*n, 30*n)
		}
	})
}

// Locks that are all taken in one moment are not all renewed in one, neither the first
// time nor later, and no request is made for a few of them.
func TestRenewalsAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		const n = 2*scheduler.MaxBatch + 100 // three batches
		for i := range n {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			is(t, "KeepAlive", lease.KeepAlive(0))
		}
		for period := range 3 {
			before := len(r.of(lockstest.OpExtendAll))
			time.Sleep(half)
			at := map[time.Time]int{}
			all := r.of(lockstest.OpExtendAll)[before:]
			for _, e := range all {
				at[e.at] += len(e.all)
			}
			for _, together := range at {
				if together > n/2 {
					t.Errorf("renewals in one moment of period %d = %d of %d, want them spread", period, together, n)
				}
			}
			if len(all) > n/100 {
				t.Errorf("requests in period %d = %d, want each to renew more than 100 locks", period, len(all))
			}
		}
	})
}

// Strategies made by With share the scheduler: each lease is renewed by its own, with its
// own TTL, also if they are due in one moment.
func TestRenewalsOfSeveralOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		longer, err := s.Changed(func(o *strategy.Options) { o.TTL = 2 * ttl })
		is(t, "With", err)
		want := map[string]time.Duration{}
		var leases []strategy.Lease
		for i := range 10 {
			from, d := s, ttl
			if i%3 == 0 {
				from, d = longer, 2*ttl
			}
			lease, err := from.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			leases, want[lease.Name()] = append(leases, lease), d
		}
		time.Sleep(half + half/2) // the longer ones may ride along, too
		for _, lease := range leases {
			is(t, "KeepAlive", lease.KeepAlive(0))
		}
		time.Sleep(10 * ttl)
		for _, e := range r.of(lockstest.OpExtendAll) {
			for _, c := range e.all {
				equal(t, "TTL asked for", c.TTL, want[c.Name])
			}
		}
		for _, lease := range leases {
			is(t, "Err", lease.Err())
			release(t, lease)
		}
	})
}

// A server that answers nobody delays no deadline, however many renewals it owes.
func TestDeadlinesDoNotWaitForRenewals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		r.then(only(lockstest.OpExtendAll, func(context.Context, lockstest.Request, func() error) error {
			time.Sleep(time.Minute) // beyond Due, and every deadline
			return lockstest.Unknown()
		}))
		for i := range 500 {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			is(t, "KeepAlive", lease.KeepAlive(0))
			want := lease.Deadline()
			lost := lease.Lost()
			go func() {
				<-lost
				equal(t, "Lost", time.Since(want), 0)
			}()
			if i%25 == 0 {
				time.Sleep(ms)
			}
		}
		time.Sleep(ttl)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		time.Sleep(time.Hour)
	})
}

// One lost reply does not cost the lease, however patient the operation time-out.
func TestOneLostReplyLeavesTimeForMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{OpTimeout: ttl - ms})
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		var lostOne atomic.Bool
		r.then(func(_ context.Context, _ lockstest.Request, serve func() error) error {
			if lostOne.CompareAndSwap(false, true) {
				time.Sleep(time.Hour) // nobody answers
			}
			return serve()
		})
		time.Sleep(10 * ttl)
		is(t, "Err", lease.Err())
		release(t, lease)
		time.Sleep(time.Hour) // let the request that got lost end
	})
}

// KeepAlive itself does no I/O, and nothing is renewed without it.
func TestKeepAliveDoesNoIO(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{Observe: func(strategy.Event) {}})
		lease := take(t, s)
		<-lease.Lost()
		equal(t, "requests", m.Requests(), 1)
		time.Sleep(drift + ms)
		lease = take(t, s)
		m.Intercept(slow(time.Second, 0))
		start := time.Now()
		for range 10 {
			is(t, "KeepAlive", lease.KeepAlive(0))
		}
		since(t, "KeepAlive took", start, 0)
		synctest.Wait()
		equal(t, "requests", m.Requests(), 2)
		m.Intercept(nil)
		release(t, lease)
	})
}

// KeepAlive called when a renewal would long have been due renews at once.
func TestKeepAliveCalledLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		time.Sleep(9 * time.Second)
		start := time.Now()
		is(t, "KeepAlive", lease.KeepAlive(0))
		synctest.Wait()
		equal(t, "renewals", len(r.of(lockstest.OpExtendAll)), 1)
		equal(t, "deadline", lease.Deadline().Sub(start), valid)
		release(t, lease)
	})
}

// Renewal goes on failing until the deadline, and not beyond.
func TestRenewalIsRetriedUntilTheDeadline(t *testing.T) {
	for want, fault := range map[error]lockstest.Fault{
		strategy.ErrRefused: refused, strategy.ErrUnsent: unsent, strategy.ErrUnknown: lostRequest,
	} {
		t.Run(want.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{})
				start := time.Now()
				lease := take(t, s)
				is(t, "KeepAlive", lease.KeepAlive(0))
				ctx, cancel := lease.Context(bg)
				defer cancel()
				r.then(fault)
				time.Sleep(5 * time.Second)
				is(t, "Failing", lease.RenewalErr(), want)
				is(t, "Err while validity is left", lease.Err())
				<-lease.Lost()
				since(t, "Lost after", start, valid)
				is(t, "Err", lease.Err(), strategy.ErrLost, want)
				is(t, "Failing after the loss", lease.RenewalErr())
				<-ctx.Done()
				equal(t, "Cause", context.Cause(ctx), lease.Err())
				time.Sleep(time.Minute)
				tries := r.of(lockstest.OpExtendAll)
				for i := 1; i < len(tries); i++ {
					equal(t, "pause between tries", tries[i].at.Sub(tries[i-1].at), ttl/20)
				}
				if last := tries[len(tries)-1].at.Sub(start); last >= valid || last < valid-ttl/20 {
					t.Errorf("last try after %v, want the last before the deadline", last)
				}
				equal(t, "under way", engine.UnderWay(s), 0)
			})
		})
	}
}

// TestLastRenewalSaysHowLongItHad: close before the deadline a renewal may not wait for the whole operation time-out.
// Its error says so: the server may only have been slow.
func TestLastRenewalSaysHowLongItHad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var last error
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventRenewalFailed {
				mu.Lock()
				defer mu.Unlock()
				last = e.Err
			}
		}})
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		m.Intercept(slow(time.Hour, 0))
		time.Sleep(7 * time.Second)
		const had = "the lease was about to end, so this renewal had only "
		if err := lease.RenewalErr(); err == nil || strings.Contains(err.Error(), had) {
			t.Errorf("RenewalErr = %v, want that of a renewal that had all its time", err)
		}
		<-lease.Lost()
		mu.Lock()
		defer mu.Unlock()
		is(t, "the last renewal", last, strategy.ErrUnknown)
		_, words, ok := strings.Cut(last.Error(), had)
		if left, err := time.ParseDuration(strings.TrimSuffix(words, ")")); !ok || err != nil || left <= 0 || left > op/2 {
			t.Errorf("the last renewal = %v, want how long it had, and %v at most", last, op/2)
		}
		if !strings.HasSuffix(lease.Err().Error(), last.Error()) {
			t.Errorf("Err = %v, want that it says %v", lease.Err(), last)
		}
		time.Sleep(2 * time.Hour)
	})
}

// A frozen server costs one operation time-out per try; when it thaws in time the
// lease is as good as new.
func TestRenewalRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		r.then(func(_ context.Context, q lockstest.Request, _ func() error) error {
			time.Sleep(time.Until(q.Claims[0].Due) + op)
			return lockstest.Unknown()
		})
		time.Sleep(8 * time.Second)
		is(t, "Failing", lease.RenewalErr(), strategy.ErrUnknown, context.DeadlineExceeded)
		tries := r.of(lockstest.OpExtendAll)
		for i := 1; i < len(tries); i++ {
			equal(t, "pause between tries", tries[i].at.Sub(tries[i-1].at), op+ttl/20)
		}
		r.then(nil)
		time.Sleep(op + ttl/20)
		is(t, "Failing", lease.RenewalErr())
		is(t, "Err", lease.Err())
		if left := time.Until(lease.Deadline()); left < valid-op-ttl/20 {
			t.Errorf("validity left = %v, want a renewed one", left)
		}
		time.Sleep(time.Minute)
		is(t, "Err a minute later", lease.Err())
		release(t, lease)
		time.Sleep(op)
	})
}

// The server's word ends a lease in the moment of the renewal that hears it.
func TestRenewalHearsOfTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		m.Evict(bg, key)
		<-lease.Lost()
		all := r.of(lockstest.OpExtendAll)
		equal(t, "renewals", len(all), 1)
		since(t, "Lost after the renewal", all[0].at, 0)
		var lost *strategy.LostError
		if !errors.As(lease.Err(), &lost) || lost.Lapsed {
			t.Errorf("Err = %v, want the server's word", lease.Err())
		}
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		n := m.Requests()
		time.Sleep(time.Minute)
		equal(t, "later requests", m.Requests()-n, 0)
		equal(t, "holder", holds(&m, key), "")
	})
}

// Leases due together are renewed in one request, and each gets its own answer.
func TestBulkRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		var leases []strategy.Lease
		for i := range 100 {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			leases = append(leases, lease)
		}
		m.Evict(bg, "lock:{7}")
		time.Sleep(5 * time.Second) // all are overdue
		release(t, leases[8])
		for _, lease := range leases {
			lease.KeepAlive(0)
		}
		synctest.Wait()
		renewed := 0
		for _, e := range r.of(lockstest.OpExtendAll) {
			renewed += len(e.all)
		}
		equal(t, "claims renewed", renewed, 99)
		equal(t, "single renewals", len(r.of(lockstest.OpExtend)), 0)
		for i, lease := range leases {
			switch i {
			case 7:
				is(t, "Err of the evicted", lease.Err(), strategy.ErrLost)
			case 8:
				is(t, "Err of the released", lease.Err(), strategy.ErrReleased)
			default:
				is(t, "Err", lease.Err())
				equal(t, "validity left", time.Until(lease.Deadline()), valid)
			}
		}
	})
}

// One timer fires for all that are due at one moment: that is one request.
func TestLeasesDueTogetherShareARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		for i := range 200 {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			lease.KeepAlive(0)
		}
		time.Sleep(2 * time.Second)
		r.then(unsent)
		time.Sleep(7 * time.Second) // failing ones are retried together in the end, or not; all are in some request
		seen := map[string]bool{}
		for _, e := range r.of(lockstest.OpExtendAll) {
			for _, c := range e.all {
				seen[c.Name] = true
			}
		}
		equal(t, "leases for which renewal was tried", len(seen), 200)
		time.Sleep(2 * time.Second)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
	})
}

// forgetful is a bulk protocol that answers for some, twice for others.
type forgetful struct{ *lockstest.Memory }

func (p forgetful) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	p.Memory.ExtendAll(ctx, cs, func(i int, g driver.Grant, err error) {
		if cs[i].Name != "forgotten" {
			done(i, g, err)
			done(i, driver.Grant{}, &strategy.LostError{Name: cs[i].Name})
		}
	})
}

func TestBulkRenewalForgetsAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, forgetful{&m}, strategy.Options{})
		forgotten, err := s.NewLock("forgotten").TryAcquire(bg)
		is(t, "TryAcquire", err)
		other := take(t, s)
		forgotten.KeepAlive(0)
		other.KeepAlive(0)
		time.Sleep(5 * time.Second)
		is(t, "Failing of the forgotten", forgotten.RenewalErr(), strategy.ErrUnknown)
		is(t, "Failing of the other", other.RenewalErr())
		time.Sleep(5 * time.Second)
		is(t, "Err of the forgotten", forgotten.Err(), strategy.ErrLost)
		is(t, "Err of the other", other.Err())
		release(t, other)
		synctest.Wait()
		left, _ := m.Leftovers(bg, "lock:{forgotten}")
		equal(t, "left of the forgotten", len(left), 0)
	})
}

// A lock whose renewal gets no answer does not delay the others, with a protocol
// that renews them one by one.
func TestSlowRenewalDelaysNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, bare(&m), strategy.Options{OpTimeout: 9 * time.Second})
		r.then(only(lockstest.OpExtend, func(_ context.Context, q lockstest.Request, serve func() error) error {
			if q.Claims[0].Name == "slow" {
				time.Sleep(time.Until(q.Claims[0].Due) + ms)
				return lockstest.Unknown()
			}
			return serve()
		}))
		frozen, err := s.NewLock("slow").TryAcquire(bg)
		is(t, "TryAcquire", err)
		other := take(t, s)
		time.Sleep(5 * time.Second)
		frozen.KeepAlive(0)
		other.KeepAlive(0)
		synctest.Wait()
		equal(t, "validity of the other", time.Until(other.Deadline()), valid)
		start := time.Now()
		<-frozen.Lost()
		since(t, "Lost of the frozen after", start, valid-5*time.Second)
		time.Sleep(time.Minute)
		is(t, "Err of the other", other.Err())
		release(t, other)
	})
}

// The maximum hold ends a lease, and the lock expires then: exactly.
func TestMaximumHold(t *testing.T) {
	for _, most := range []time.Duration{ttl, ttl + ms, 12 * time.Second, 25*time.Second + 700*time.Microsecond, time.Minute} {
		t.Run(most.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{})
				start := time.Now()
				lease := take(t, s)
				if most > ttl {
					time.Sleep(2 * time.Second) // counted from the grant, not from the call
				}
				is(t, "KeepAlive", lease.KeepAlive(most))
				<-lease.Lost()
				if early := most - time.Since(start); early < 2*ms || early > drift+ms {
					t.Errorf("Lost %v before the maximum hold, want the drift", early)
				}
				err := lease.Err()
				is(t, "Err", err, strategy.ErrLost)
				if !strings.Contains(err.Error(), "maximum hold") {
					t.Errorf("Err = %q, want it to name the maximum hold", err)
				}
				time.Sleep(time.Until(start.Add(most - ms)))
				left, _ := m.Leftovers(bg, key)
				equal(t, "keys a millisecond before the end", len(left), 1)
				time.Sleep(2 * ms)
				left, _ = m.Leftovers(bg, key)
				equal(t, "keys a millisecond after the end", len(left), 0)
				equal(t, "releases", m.Requests(lockstest.OpRelease, lockstest.OpUndo), 0)
			})
		})
	}
}

func TestMaximumHoldRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		for _, most := range []time.Duration{math.MinInt64, -1, 1, ttl - 1} {
			if err := lease.KeepAlive(most); err == nil || !strings.Contains(err.Error(), "the TTL of 10s or more") {
				t.Errorf("KeepAlive(%v) = %v, want what is allowed", most, err)
			}
		}
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		is(t, "KeepAlive for ages", lease.KeepAlive(math.MaxInt64))
		time.Sleep(time.Hour)
		is(t, "Err", lease.Err())
		release(t, lease)
	})
}

// A second call sets another bound: later, none, or earlier than what the servers
// count already.
func TestMaximumHoldChanged(t *testing.T) {
	for _, tt := range []struct {
		what   string
		first  time.Duration
		second time.Duration
		at     time.Duration // of the second call
		ends   time.Duration // 0: never
	}{
		{"later", 25 * time.Second, 40 * time.Second, 5 * time.Second, 40 * time.Second},
		{"later, when the last renewal is over", 25 * time.Second, 40 * time.Second, 20 * time.Second, 40 * time.Second},
		{"none", 25 * time.Second, 0, 24 * time.Second, 0},
		{"from none", 0, 40 * time.Second, 20 * time.Second, 40 * time.Second},
		{"earlier", time.Minute, 25 * time.Second, 5 * time.Second, 25 * time.Second},
		{"earlier than the servers count", time.Minute, 25 * time.Second, 24 * time.Second, 25 * time.Second},
		{"in a moment", 0, 25 * time.Second, 25*time.Second - 50*ms, 25 * time.Second},
		{"over", 0, 12 * time.Second, 20 * time.Second, 20 * time.Second},
	} {
		for _, network := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, network %v", tt.what, network), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var m lockstest.Memory
					s := open(t, &m, strategy.Options{})
					start := time.Now()
					lease := take(t, s)
					is(t, "first KeepAlive", lease.KeepAlive(tt.first))
					time.Sleep(tt.at)
					is(t, "Err", lease.Err())
					if !network && tt.ends == tt.second { // for a moment, so that the bound is not reached by renewal
						m.Intercept(unsent)
						time.AfterFunc(100*ms, func() { m.Intercept(nil) })
					}
					err := lease.KeepAlive(tt.second)
					if tt.ends == tt.at {
						is(t, "second KeepAlive", err, strategy.ErrLost)
						synctest.Wait()
						time.Sleep(op)
						equal(t, "holder", holds(&m, key), "")
						return
					}
					is(t, "second KeepAlive", err)
					if tt.ends == 0 {
						time.Sleep(time.Hour)
						is(t, "Err", lease.Err())
						release(t, lease)
						return
					}
					<-lease.Lost()
					if early := tt.ends - time.Since(start); early < 2*ms || early > drift+ms {
						t.Errorf("Lost %v before the maximum hold, want the drift", early)
					}
					if !strings.Contains(lease.Err().Error(), "maximum hold") {
						t.Errorf("Err = %q, want it to name the maximum hold", lease.Err())
					}
					time.Sleep(time.Until(start.Add(tt.ends)))
					if network {
						equal(t, "holder at the end", holds(&m, key), "")
					} else {
						time.Sleep(op)
						equal(t, "holder soon after the end", holds(&m, key), "")
					}
				})
			})
		}
	}
}

// A bound that comes while a renewal is under way holds for it, too.
func TestMaximumHoldChangedDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		lease := take(t, s)
		time.Sleep(8 * time.Second)
		r.then(only(lockstest.OpExtend, slow(400*ms, 400*ms)))
		go lease.Extend(bg)
		synctest.Wait()
		is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
		<-lease.Lost()
		if early := 12*time.Second - time.Since(start); early < 2*ms || early > drift+ms {
			t.Errorf("Lost %v before the maximum hold, want the drift", early)
		}
		time.Sleep(time.Until(start.Add(12 * time.Second)))
		equal(t, "holder at the end", holds(&m, key), "")
		if n := m.Requests(lockstest.OpExtendAll); n > 2 {
			t.Errorf("renewals = %d, want 2 at most", n)
		}
	})
}

// A protocol that counts more than it is asked to must not be asked for ever.
func TestMaximumHoldOfAGenerousProtocol(t *testing.T) {
	bubble(t, func(t *testing.T) {
		renewals := 0
		p := &scripted{extend: func(driver.Claim) (driver.Grant, error) {
			if renewals++; renewals > 100 {
				t.Fatal("renewals > 100")
			}
			return driver.Grant{TTL: time.Hour}, nil
		}}
		s := open(t, p, strategy.Options{})
		start := time.Now()
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(25*time.Second))
		<-lease.Lost()
		if d := 25*time.Second - time.Since(start); d < 0 || d > driver.Drift(25*time.Second) {
			t.Errorf("Lost %v before the maximum hold, want the drift", d)
		}
		if !strings.Contains(lease.Err().Error(), "maximum hold") {
			t.Errorf("Err = %q, want it to name the maximum hold", lease.Err())
		}
		time.Sleep(time.Hour)
	})
}

// TestMaximumHoldAfterAHandOver: a lock that servers count beyond the maximum hold, because they never shorten a TTL, is
// undone when the hold is over, also if another hold of the process was granted it.
func TestMaximumHoldAfterAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked, released atomic.Int64
		s := open(t, &scripted{
			acquire: func(c driver.Claim) (driver.Grant, error) {
				if asked.Add(1) == 1 { // so that the caller stands in line
					return driver.Grant{}, &strategy.HeldError{Name: c.Name}
				}
				return driver.Grant{TTL: time.Hour}, nil
			},
			release: func(driver.Claim) error { released.Add(1); return nil },
		}, strategy.Options{})
		first, second := wait(bg, s), wait(bg, s)
		is(t, "KeepAlive", first.got(t).KeepAlive(ttl)) // cuts the TTL
		synctest.Wait()
		release(t, first.lease)
		is(t, "KeepAlive", second.got(t).KeepAlive(ttl))
		equal(t, "attempts", asked.Load(), 2)
		<-second.lease.Lost()
		synctest.Wait()
		equal(t, "releases", released.Load(), 1)
	})
}

// Many leases, kept and released at random: no entry is left scheduled, and
// nobody is forgotten.
func TestAgendaKeepsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(slow(ms, ms))
		s := open(t, &m, strategy.Options{TTL: time.Second})
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				l := s.NewLock(fmt.Sprint(i))
				for j := range 10 {
					lease, err := l.Acquire(bg)
					if err != nil {
						t.Errorf("Acquire = %v", err)
						return
					}
					if (i+j)%4 == 0 {
						<-lease.Lost() // nobody renews it
						is(t, "Err", lease.Err(), strategy.ErrLost)
						continue
					}
					lease.KeepAlive(0)
					time.Sleep(time.Duration((i*31+j*17)%5000) * ms)
					is(t, "Release", lease.Release(bg))
				}
			})
		}
		all.Wait()
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
	})
}

// TestSingleRenewalsStayApart: where each renewal is a request, locks acquired in one moment are not renewed
// in one moment.
func TestSingleRenewalsStayApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, bare(&m), strategy.Options{})
		const n = 100
		for i := range n {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			is(t, "KeepAlive", lease.KeepAlive(0))
		}
		time.Sleep(half)
		at := map[time.Time]int{}
		for _, e := range r.of(lockstest.OpExtend) {
			at[e.at]++
		}
		for _, together := range at {
			if together > n/10 {
				t.Errorf("renewals in one moment = %d of %d, want them apart", together, n)
			}
		}
	})
}

// TestFailingRenewalsPause: a renewal that failed is tried again after a pause, and not whenever another is
// due; those that failed together stay together.
func TestFailingRenewalsPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		for i := range 40 {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(110 * ms)
		}
		r.then(unsent)
		time.Sleep(ttl)
		last, tries := map[string]time.Time{}, 0
		for _, e := range r.of(lockstest.OpExtendAll) {
			tries++
			for _, c := range e.all {
				if pause := e.at.Sub(last[c.Name]); pause < ttl/20-ttl/30 {
					t.Errorf("tried again after %v, want %v at least", pause, ttl/20-ttl/30)
				}
				last[c.Name] = e.at
			}
		}
		if least := ttl / (ttl/20 - ttl/30); tries > 2*int(least) {
			t.Errorf("requests = %d, want about one in each pause", tries)
		}
	})
}

// TestRequestsOfSeveralOptions: leases whose options differ are not renewed in one request, because they
// have time-outs of their own.
func TestRequestsOfSeveralOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		for i := range 6 {
			from, err := s, error(nil)
			if i%3 > 0 {
				from, err = s.Changed(func(o *strategy.Options) { o.OpTimeout = time.Duration(i) * op })
			}
			is(t, "With", err)
			lease, err := from.NewLock(fmt.Sprint(i)).TryAcquire(bg)
			is(t, "TryAcquire", err)
			is(t, "KeepAlive", lease.KeepAlive(0)) // all draw the same time
		}
		time.Sleep(half)
		requests := r.of(lockstest.OpExtendAll)
		equal(t, "requests", len(requests), 5)
		for _, e := range requests {
			equal(t, "renewed at the same time", e.at, requests[0].at)
			for _, c := range e.all {
				equal(t, "Due", c.Due, e.all[0].Due)
			}
		}
	})
}

// TestBoundWhileTheServersCountBeyond: a maximum hold that ends before what the servers count bounds the
// lease, and its renewals, at once; also one that was under way. A later bound lifts it at once.
func TestBoundWhileTheServersCountBeyond(t *testing.T) {
	late := func(t *testing.T, m *lockstest.Memory, o strategy.Options) (*recorder, strategy.Lease) {
		r := record(m)
		lease := take(t, open(t, m, o))
		time.Sleep(9 * time.Second)
		return r, lease
	}
	t.Run("the deadline", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var m lockstest.Memory
			r, lease := late(t, &m, strategy.Options{})
			is(t, "Extend", lease.Extend(bg))
			r.then(unsent)
			is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
			equal(t, "Deadline", time.Until(lease.Deadline()), 3*time.Second-driver.Drift(3*time.Second))
		})
	})
	t.Run("the deadline, by less than the drift", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var m lockstest.Memory
			r, lease := late(t, &m, strategy.Options{})
			is(t, "Extend", lease.Extend(bg))
			deadline := lease.Deadline()
			time.Sleep(half)
			r.then(unsent)
			is(t, "KeepAlive", lease.KeepAlive(9*time.Second+ttl-10*ms))
			equal(t, "Deadline", lease.Deadline(), deadline) // the drift from now on is less than that of the TTL
		})
	})
	t.Run("lifted", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var m lockstest.Memory
			r, lease := late(t, &m, strategy.Options{})
			is(t, "Extend", lease.Extend(bg))
			r.then(unsent)
			is(t, "KeepAlive", lease.KeepAlive(10*time.Second))
			synctest.Wait()
			r.then(nil)
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(time.Minute)
			is(t, "Err", lease.Err())
			release(t, lease)
		})
	})
	t.Run("by Extend", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var m lockstest.Memory
			r, lease := late(t, &m, strategy.Options{})
			is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
			is(t, "Extend", lease.Extend(bg))
			equal(t, "TTL asked for", r.of(lockstest.OpExtend)[0].all[0].TTL, 3*time.Second)
		})
	})
	t.Run("during Extend", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var m lockstest.Memory
			r, lease := late(t, &m, strategy.Options{})
			r.then(only(lockstest.OpExtend, slow(0, 100*ms)))
			go lease.Extend(bg)
			synctest.Wait()
			is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
			time.Sleep(100 * ms)
			synctest.Wait()
			cuts := r.of(lockstest.OpExtendAll)
			if len(cuts) != 1 || cuts[0].all[0].TTL != 12*time.Second-9100*ms {
				t.Errorf("renewals = %+v, want one that cuts the TTL at once", cuts)
			}
		})
	})
}

// TestShorterGrant: servers that count less than they are asked to are not asked again for a lease that
// nobody keeps alive; nor is a failed Extend repeated.
func TestShorterGrant(t *testing.T) {
	for what, fails := range map[string]bool{"shorter": false, "failed": true} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				asked := 0
				p := &scripted{extend: func(driver.Claim) (driver.Grant, error) {
					if asked++; fails {
						return driver.Grant{}, lockstest.Unsent()
					}
					return driver.Grant{TTL: ttl / 2}, nil
				}}
				lease := take(t, open(t, p, strategy.Options{Observe: func(strategy.Event) {}}))
				if err := lease.Extend(bg); (err != nil) != fails {
					t.Errorf("Extend = %v, want an error: %v", err, fails)
				}
				time.Sleep(ttl)
				is(t, "Err", lease.Err(), strategy.ErrLost)
				equal(t, "renewals", asked, 1)
			})
		})
	}
}

// The time until the next renewal counts from the last request, as the TTL does, and not from its answer.
func TestRenewalsCountFromTheRequest(t *testing.T) {
	for what, p := range map[string]func(*lockstest.Memory) driver.Protocol{
		"bulk": func(m *lockstest.Memory) driver.Protocol { return m }, "single": func(m *lockstest.Memory) driver.Protocol { return bare(m) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, p(&m), strategy.Options{})
				lease := take(t, s)
				is(t, "KeepAlive", lease.KeepAlive(0))
				r.then(slow(0, op*9/10))
				time.Sleep(4 * ttl)
				most := map[string]time.Duration{"bulk": ttl / 2, "single": ttl/3 + ttl/30}[what]
				sent := r.of(lockstest.OpExtend, lockstest.OpExtendAll)
				for i := range sent[1:] {
					if gap := sent[i+1].at.Sub(sent[i].at); gap > most+ms {
						t.Errorf("a renewal came %v after the one before, want %v at most", gap, most)
					}
				}
				release(t, lease)
			})
		})
	}
}

// StopKeepAlive ends the renewal. The maximum hold stays.
func TestStopKeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
		lease.(interface{ StopKeepAlive() }).StopKeepAlive()
		time.Sleep(8 * time.Second)
		equal(t, "requests", m.Requests(), 1)
		is(t, "Extend", lease.Extend(bg))
		if end := lease.Deadline().Sub(start); end <= ttl || end >= 12*time.Second {
			t.Errorf("the deadline is %v after the grant, want more than %v, and less than 12s", end, ttl)
		}
	})
}
