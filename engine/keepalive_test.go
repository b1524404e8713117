// Renewal: when KeepAlive asks, how many leases share a request, what it makes of failures, and the
// maximum hold.
package engine_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/engine/internal/scheduler"
	"github.com/lockstrategies/locks/internal/holdstart"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

const (
	third = ttl / 3
	half  = ttl / 2
)

// A lease is renewed every third of its TTL, give or take a tenth of that. Where one request renews many, a lone one is
// renewed shortly before half of it has passed: only another's renewal makes it earlier. That counts from the last request, as
// the TTL does, and not from its answer.
func TestRenewalPeriod(t *testing.T) {
	bubbles(t, map[string]bool{"one by one": false, "in bulk": true}, func(t *testing.T, bulk bool) {
		var m lockstest.Memory
		r := record(&m)
		r.then(slow(0, op*9/10))
		p, least, most := driver.Protocol(&m), third, half
		if !bulk {
			p, least, most = bare(&m), third-third/10, third+third/10
		}
		last := time.Now()
		lease := take(t, open(t, p, strategy.Options{}))
		is(t, "KeepAlive", lease.KeepAlive(0))
		time.Sleep(time.Hour)
		is(t, "Err", lease.Err())
		var low, high int
		for _, e := range r.of(lockstest.OpExtendAll, lockstest.OpExtend) {
			period := e.at.Sub(last)
			last = e.at
			between(t, "period", period, least, most)
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

// Many locks taken at different times come to be renewed together: the requests of a period do not grow with the locks, and
// each is renewed about as often as a lone one.
func TestRenewalsRideTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s := served(t, strategy.Options{})
		const n = 100
		keepAll(t, s, n, half/n)
		before := len(r.of(lockstest.OpExtendAll))
		time.Sleep(20 * half)
		requests, renewals := r.of(lockstest.OpExtendAll)[before:], 0
		for _, e := range requests {
			renewals += len(e.all)
		}
		between(t, "requests in 20 periods", len(requests), 20, 20*4) // who is past a third rides along
		between(t, "renewals", renewals, 20*n, 30*n)
	})
}

// Locks that are all taken in one moment are not all renewed in one, neither the first time nor later, and no request is made
// for a few of them.
func TestRenewalsAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s := served(t, strategy.Options{})
		const n = 2*scheduler.MaxBatch + 100 // three batches
		keepAll(t, s, n, 0)
		for period := range 3 {
			before := len(r.of(lockstest.OpExtendAll))
			time.Sleep(half)
			at := map[time.Time]int{}
			all := r.of(lockstest.OpExtendAll)[before:]
			for _, e := range all {
				at[e.at] += len(e.all)
			}
			for _, together := range at {
				between(t, fmt.Sprintf("renewals in one moment of period %d", period), together, 0, n/2)
			}
			between(t, fmt.Sprintf("requests in period %d", period), len(all), 1, n/100)
		}
	})
}

// Leases whose options differ are not renewed in one request, because they have time-outs of their own.
func TestRequestsOfSeveralOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s := served(t, strategy.Options{})
		for i := range 6 {
			from, err := s, error(nil)
			if i%3 > 0 {
				from, err = s.Changed(func(o *strategy.Options) { o.OpTimeout = time.Duration(i) * op })
			}
			is(t, "With", err)
			is(t, "KeepAlive", takeNamed(t, from, fmt.Sprint(i)).KeepAlive(0)) // all draw the same time
		}
		time.Sleep(half)
		requests, renewed := r.of(lockstest.OpExtendAll), 0
		equal(t, "requests", len(requests), 5)
		for _, e := range requests {
			equal(t, "renewed at the same time", e.at, requests[0].at)
			for _, c := range e.all {
				equal(t, "Due", c.Due, e.all[0].Due)
				renewed++
			}
		}
		equal(t, "renewed", renewed, 6)
	})
}

// A server that answers nobody delays no deadline, however many renewals it owes.
func TestDeadlinesDoNotWaitForRenewals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s := served(t, strategy.Options{})
		r.then(only(lockstest.OpExtendAll, func(context.Context, lockstest.Request, func() error) error {
			time.Sleep(time.Minute) // beyond Due, and every deadline
			return lockstest.Unknown()
		}))
		for i := range 500 {
			lease := takeNamed(t, s, fmt.Sprint(i))
			is(t, "KeepAlive", lease.KeepAlive(0))
			want, lost := lease.Deadline(), lease.Lost()
			go func() {
				<-lost
				equal(t, "Lost", time.Since(want), 0)
			}()
			time.Sleep(ms / 25)
		}
		time.Sleep(ttl)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		time.Sleep(time.Hour)
	})
}

// Tests how one lease, or a few, are kept alive.
func TestKeepAlive(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"it does no I/O, and nothing is renewed without it": func(t *testing.T) {
			m, _, s, lease := holding(t, strategy.Options{Observe: func(strategy.Event) {}})
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
		},
		"an Extend whose caller leaves before it is sent stops no renewal": func(t *testing.T) {
			ctx, cancel := context.WithCancel(bg)
			lease := take(t, open(t, &leaving{leave: cancel}, strategy.Options{}))
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(ms)
			is(t, "Extend", lease.Extend(ctx), strategy.ErrUnsent)
			time.Sleep(10 * ttl)
			is(t, "Err", lease.Err())
			release(t, lease)
		},
		"the bound counts from when all locks that were acquired as one are there": func(t *testing.T) {
			_, _, s := served(t, strategy.Options{})
			ctx, all := holdstart.With(bg)
			lease, err := s.NewLock(name).Acquire(ctx)
			is(t, "Acquire", err)
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(2 * ttl)
			all.Begin(time.Now())
			start := time.Now()
			is(t, "KeepAlive", lease.KeepAlive(ttl))
			<-lease.Lost()
			between(t, "it was held from that moment", time.Since(start), ttl-drift-ms, ttl)
		},
		"one lost reply does not cost the lease, however patient the operation time-out": func(t *testing.T) {
			_, r, _, lease := holding(t, strategy.Options{OpTimeout: ttl - ms})
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
		},
		"leases due together are renewed in one request, and each gets its own answer": func(t *testing.T) {
			m, r, s := served(t, strategy.Options{})
			evicted, released := takeNamed(t, s, "evicted"), takeNamed(t, s, "released")
			all := []strategy.Lease{evicted, released}
			for i := range 98 {
				all = append(all, takeNamed(t, s, fmt.Sprint(i)))
			}
			m.Evict(bg, "lock:{evicted}")
			time.Sleep(half) // all are overdue
			release(t, released)
			for _, lease := range all {
				lease.KeepAlive(0)
			}
			synctest.Wait()
			renewed := 0
			for _, e := range r.of(lockstest.OpExtend, lockstest.OpExtendAll) {
				renewed += len(e.all)
			}
			equal(t, "claims renewed", renewed, 99)
			is(t, "Err of the evicted", evicted.Err(), strategy.ErrLost)
			is(t, "Err of the released", released.Err(), strategy.ErrReleased)
			for _, lease := range all[2:] {
				is(t, "Err", lease.Err())
				equal(t, "validity left", time.Until(lease.Deadline()), valid)
			}
		},
		"a protocol forgets an answer, and gives others twice": func(t *testing.T) {
			var m lockstest.Memory
			s := open(t, forgetful{&m}, strategy.Options{})
			forgotten, other := takeNamed(t, s, "forgotten"), take(t, s)
			forgotten.KeepAlive(0)
			other.KeepAlive(0)
			time.Sleep(half)
			is(t, "RenewalErr of the forgotten", forgotten.RenewalErr(), strategy.ErrUnknown)
			is(t, "RenewalErr of the other", other.RenewalErr())
			time.Sleep(half)
			is(t, "Err of the forgotten", forgotten.Err(), strategy.ErrLost)
			is(t, "Err of the other", other.Err())
			release(t, other)
			synctest.Wait()
			left, _ := m.Leftovers(bg, "lock:{forgotten}")
			equal(t, "left of the forgotten", len(left), 0)
		},
		"where each renewal is a request, one without an answer delays no other": func(t *testing.T) {
			var m lockstest.Memory
			s := open(t, bare(&m), strategy.Options{OpTimeout: 9 * time.Second})
			m.Intercept(only(lockstest.OpExtend, func(_ context.Context, q lockstest.Request, serve func() error) error {
				if q.Claims[0].Name == "slow" {
					time.Sleep(time.Until(q.Claims[0].Due) + ms)
					return lockstest.Unknown()
				}
				return serve()
			}))
			frozen, other := takeNamed(t, s, "slow"), take(t, s)
			time.Sleep(half)
			frozen.KeepAlive(0)
			other.KeepAlive(0)
			synctest.Wait()
			equal(t, "validity of the other", time.Until(other.Deadline()), valid)
			start := time.Now()
			<-frozen.Lost()
			since(t, "Lost of the frozen after", start, valid-half)
			time.Sleep(time.Minute)
			is(t, "Err of the other", other.Err())
			release(t, other)
		},
		"servers that count less than they are asked to are not asked again for a lease that nobody keeps alive": func(t *testing.T) {
			asked := 0
			p := &scripted{extend: func(driver.Claim) (driver.Grant, error) { asked++; return driver.Grant{TTL: half}, nil }}
			lease := take(t, open(t, p, strategy.Options{Observe: func(strategy.Event) {}}))
			is(t, "Extend", lease.Extend(bg))
			time.Sleep(ttl)
			is(t, "Err", lease.Err(), strategy.ErrLost)
			equal(t, "renewals", asked, 1)
		},
		"StopKeepAlive ends the renewal, and the maximum hold stays": func(t *testing.T) {
			m, _, _, lease := holding(t, strategy.Options{})
			start := time.Now()
			is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
			lease.(interface{ StopKeepAlive() }).StopKeepAlive()
			time.Sleep(8 * time.Second)
			equal(t, "requests", m.Requests(), 1)
			is(t, "Extend", lease.Extend(bg))
			between(t, "the deadline after the grant", lease.Deadline().Sub(start), ttl+1, 12*time.Second-1)
		},
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

// A failure is what may become of a request, with what its caller learns.
type failure struct {
	fault lockstest.Fault
	want  error
}

var failures = map[string]failure{
	"refused": {refused, strategy.ErrRefused}, "not sent": {unsent, strategy.ErrUnsent},
	"lost request": {lostRequest, strategy.ErrUnknown}, "lost reply": {lostReply, strategy.ErrUnknown},
}

// Renewal goes on failing until the deadline, and not beyond.
func TestRenewalIsRetriedUntilTheDeadline(t *testing.T) {
	bubbles(t, failures, func(t *testing.T, f failure) {
		start := time.Now()
		_, r, s, lease := holding(t, strategy.Options{})
		is(t, "KeepAlive", lease.KeepAlive(0))
		ctx, cancel := lease.Context(bg)
		defer cancel()
		r.then(f.fault)
		time.Sleep(half)
		is(t, "RenewalErr", lease.RenewalErr(), f.want)
		is(t, "Err while validity is left", lease.Err())
		<-lease.Lost()
		since(t, "Lost after", start, valid)
		is(t, "Err", lease.Err(), strategy.ErrLost, f.want)
		is(t, "RenewalErr after the loss", lease.RenewalErr())
		<-ctx.Done()
		equal(t, "Cause", context.Cause(ctx), lease.Err())
		time.Sleep(time.Minute)
		tries := r.of(lockstest.OpExtendAll)
		for i := 1; i < len(tries); i++ {
			equal(t, "pause between tries", tries[i].at.Sub(tries[i-1].at), ttl/20)
		}
		between(t, "the last try", tries[len(tries)-1].at.Sub(start), valid-ttl/20, valid-1)
		equal(t, "under way", engine.UnderWay(s), 0)
	})
}

// A renewal that failed is tried again after a pause, and not whenever another is due; those that failed together stay together.
func TestFailingRenewalsPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s := served(t, strategy.Options{})
		keepAll(t, s, 40, 110*ms)
		r.then(unsent)
		time.Sleep(ttl)
		last, tries := map[string]time.Time{}, 0
		least := ttl/20 - ttl/30
		for _, e := range r.of(lockstest.OpExtendAll) {
			tries++
			for _, c := range e.all {
				if pause := e.at.Sub(last[c.Name]); pause < least {
					t.Errorf("tried again after %v, want %v at least", pause, least)
				}
				last[c.Name] = e.at
			}
		}
		between(t, "requests, about one in each pause", tries, 1, 2*int(ttl/least))
	})
}

// Close before the deadline a renewal may not wait for the whole operation time-out. Its error says so: the server may only
// have been slow.
func TestLastRenewalSaysHowLongItHad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const had = "the lease was about to end, so this renewal had only "
		var last error
		m, _, _, lease := holding(t, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind != strategy.EventRenewalFailed {
				return
			}
			last = e.Err
			is(t, "a renewal", last, strategy.ErrUnknown)
			want := fmt.Sprint(had, e.Elapsed.Round(time.Millisecond), ")") // it waits for all of its time
			if brief := e.Elapsed < op/2; brief != strings.HasSuffix(last.Error(), want) || !brief && strings.Contains(last.Error(), had) {
				t.Errorf("a renewal that had %v = %v, want that it says so: %t", e.Elapsed, last, brief)
			}
		}})
		is(t, "KeepAlive", lease.KeepAlive(0))
		m.Intercept(slow(time.Hour, 0))
		<-lease.Lost()
		synctest.Wait()
		says(t, "Err", lease.Err(), last.Error())
		time.Sleep(2 * time.Hour)
	})
}

// endsWith checks that lease ends with a maximum hold that is over at end, and not much earlier.
func endsWith(t *testing.T, lease strategy.Lease, end time.Time) {
	t.Helper()
	<-lease.Lost()
	between(t, "Lost before the maximum hold", time.Until(end), 2*ms, drift+ms)
	is(t, "Err", lease.Err(), strategy.ErrLost)
	says(t, "Err", lease.Err(), "maximum hold")
}

// The maximum hold ends a lease, and the lock expires then: exactly.
func TestMaximumHold(t *testing.T) {
	for _, most := range []time.Duration{ttl, ttl + ms, 12 * time.Second, 25*time.Second + 700*time.Microsecond, time.Minute} {
		t.Run(most.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				end := time.Now().Add(most)
				m, _, _, lease := holding(t, strategy.Options{})
				if most > ttl {
					time.Sleep(2 * time.Second) // counted from the grant, not from the call
				}
				is(t, "KeepAlive", lease.KeepAlive(most))
				endsWith(t, lease, end)
				time.Sleep(time.Until(end.Add(-ms)))
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

// A second call sets another bound: later, none, or earlier than what the servers count already.
func TestMaximumHoldChanged(t *testing.T) {
	const s = time.Second
	for what, tt := range map[string]struct {
		first, second time.Duration
		at            time.Duration // of the second call
		ends          time.Duration // 0: never
	}{
		"later":                                {25 * s, 40 * s, 5 * s, 40 * s},
		"later, when the last renewal is over": {25 * s, 40 * s, 20 * s, 40 * s},
		"none":                                 {25 * s, 0, 24 * s, 0},
		"from none":                            {0, 40 * s, 20 * s, 40 * s},
		"earlier":                              {time.Minute, 25 * s, 5 * s, 25 * s},
		"earlier than the servers count":       {time.Minute, 25 * s, 24 * s, 25 * s},
		"in a moment":                          {0, 25 * s, 25*s - 50*ms, 25 * s},
		"for ages":                             {40 * s, math.MaxInt64, 20 * s, 0},
		"over":                                 {0, 12 * s, 20 * s, 20 * s},
	} {
		bubbles(t, map[string]bool{what: true, what + ", without a network": false}, func(t *testing.T, network bool) {
			start := time.Now()
			m, _, _, lease := holding(t, strategy.Options{})
			is(t, "first KeepAlive", lease.KeepAlive(tt.first))
			says(t, "KeepAlive", lease.KeepAlive(ttl-1), "the TTL of 10s or more")
			says(t, "KeepAlive", lease.KeepAlive(math.MinInt64), "the TTL of 10s or more")
			time.Sleep(tt.at)
			is(t, "Err", lease.Err())
			if !network && tt.ends == tt.second { // for a moment, so that the bound is not reached by renewal
				m.Intercept(unsent)
				time.AfterFunc(100*ms, func() { m.Intercept(nil) })
			}
			err := lease.KeepAlive(tt.second)
			switch tt.ends {
			case tt.at:
				is(t, "second KeepAlive", err, strategy.ErrLost)
				time.Sleep(op)
				free(t, m)
				return
			case 0:
				is(t, "second KeepAlive", err)
				time.Sleep(time.Hour)
				is(t, "Err", lease.Err())
				release(t, lease)
				return
			}
			is(t, "second KeepAlive", err)
			endsWith(t, lease, start.Add(tt.ends))
			time.Sleep(time.Until(start.Add(tt.ends)))
			if !network {
				time.Sleep(op)
			}
			equal(t, "holder at the end", holds(m, key), "")
		})
	}
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
		end := time.Now().Add(25 * time.Second)
		lease := take(t, open(t, p, strategy.Options{}))
		is(t, "KeepAlive", lease.KeepAlive(25*time.Second))
		<-lease.Lost()
		between(t, "Lost before the maximum hold", time.Until(end), 0, driver.Drift(25*time.Second))
		says(t, "Err", lease.Err(), "maximum hold")
		time.Sleep(time.Hour)
	})
}

// A lock that servers count beyond the maximum hold, because they never shorten a TTL, is undone when the hold is over, also if
// another hold of the process was granted it.
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

// A maximum hold that ends before what the servers count bounds the lease, and its renewals, at once; also one that was under
// way.
func TestBoundWhileTheServersCountBeyond(t *testing.T) {
	type story func(t *testing.T, r *recorder, lease strategy.Lease)
	bubbles(t, map[string]story{
		"the deadline": func(t *testing.T, r *recorder, lease strategy.Lease) {
			is(t, "Extend", lease.Extend(bg))
			r.then(unsent)
			is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
			equal(t, "Deadline", time.Until(lease.Deadline()), 3*time.Second-driver.Drift(3*time.Second))
		},
		"the deadline, by less than the drift": func(t *testing.T, r *recorder, lease strategy.Lease) {
			is(t, "Extend", lease.Extend(bg))
			deadline := lease.Deadline()
			time.Sleep(half)
			r.then(unsent)
			is(t, "KeepAlive", lease.KeepAlive(9*time.Second+ttl-10*ms))
			equal(t, "Deadline", lease.Deadline(), deadline) // the drift from now on is less than that of the TTL
		},
		"until the bound is lifted": func(t *testing.T, r *recorder, lease strategy.Lease) {
			is(t, "Extend", lease.Extend(bg))
			r.then(unsent)
			is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
			synctest.Wait()
			r.then(nil)
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(3 * time.Second)
			is(t, "Err at the end of the old bound", lease.Err())
		},
		"by Extend": func(t *testing.T, r *recorder, lease strategy.Lease) {
			is(t, "KeepAlive", lease.KeepAlive(12*time.Second))
			is(t, "Extend", lease.Extend(bg))
			equal(t, "TTL asked for", r.of(lockstest.OpExtend)[0].all[0].TTL, 3*time.Second)
		},
		"during Extend": func(t *testing.T, r *recorder, lease strategy.Lease) {
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
		},
	}, func(t *testing.T, tell story) {
		_, r, _, lease := holding(t, strategy.Options{})
		time.Sleep(9 * time.Second)
		tell(t, r, lease)
	})
}

// leaving is a server for which the caller of a single Extend leaves before the request is sent.
type leaving struct {
	lockstest.Memory
	leave context.CancelFunc
}

func (p *leaving) Extend(context.Context, driver.Claim) (driver.Grant, error) {
	time.Sleep(half) // a renewal is due meanwhile
	p.leave()
	return driver.Grant{}, lockstest.Unsent()
}
