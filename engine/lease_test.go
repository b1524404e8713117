// One lease: its deadline, its loss, its contexts, Extend, Release, Detach, and Adopt.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// The deadline counts from before the request, however slow that and its reply are.
func TestDeadlineCountsFromBeforeTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(slow(300*ms, 200*ms))
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		lease := take(t, s)
		since(t, "TryAcquire took", start, 500*ms)
		equal(t, "deadline", lease.Deadline().Sub(start), valid)
		time.Sleep(time.Second)
		start = time.Now()
		is(t, "Extend", lease.Extend(bg))
		since(t, "Extend took", start, 500*ms)
		equal(t, "deadline", lease.Deadline().Sub(start), valid)
	})
}

// Setting the clock does not move a deadline. (Fake time has no monotonic reading.)
func TestDeadlineIsMonotonic(t *testing.T) {
	t.Parallel()
	lease := take(t, open(t, &scripted{}, strategy.Options{}))
	for range 2 {
		if !strings.Contains(lease.Deadline().String(), " m=") {
			t.Errorf("Deadline = %v, want a monotonic reading", lease.Deadline())
		}
		is(t, "Extend", lease.Extend(bg))
	}
}

// A protocol may know better when the servers began to count, and for how long.
func TestDeadlineFromTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &scripted{}
		s := open(t, p, strategy.Options{})
		start := time.Now()
		p.acquire = func(driver.Claim) (driver.Grant, error) {
			time.Sleep(400 * ms)
			return driver.Grant{Start: start.Add(300 * ms), TTL: 5 * time.Second, Fence: 7}, nil
		}
		lease := take(t, s)
		equal(t, "deadline", lease.Deadline().Sub(start), 300*ms+5*time.Second-driver.Drift(5*time.Second))
		p.extend = func(c driver.Claim) (driver.Grant, error) {
			equal(t, "TTL of the last grant", c.Grant.TTL, 5*time.Second)
			equal(t, "start of the last grant", c.Grant.Start.Sub(start), 300*ms)
			return driver.Grant{}, nil
		}
		is(t, "Extend", lease.Extend(bg))
		equal(t, "deadline", time.Until(lease.Deadline()), valid)
		n, ok := lease.Fence()
		equal(t, "fence after a renewal that names none", n, 7)
		equal(t, "fence ok", ok, true)
	})
}

// Err looks at the clock: no timer needs to have run, and none does.
func TestErrLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		time.Sleep(valid - 1)
		is(t, "Err before the deadline", lease.Err())
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		time.Sleep(time.Nanosecond)
		err := lease.Err()
		is(t, "Err at the deadline", err, strategy.ErrLost)
		isNot(t, "Err at the deadline", err, strategy.ErrReleased)
		var lost *strategy.LostError
		if !errors.As(err, &lost) || *lost != (strategy.LostError{Name: name, Lapsed: true}) {
			t.Errorf("Err = %#v, want a LostError that lapsed", err)
		}
		is(t, "Release after the loss", lease.Release(bg), err)
		is(t, "Extend after the loss", lease.Extend(bg), err)
		is(t, "KeepAlive after the loss", lease.KeepAlive(0), err)
		_, e := lease.Detach()
		is(t, "Detach after the loss", e, err)
		is(t, "Failing after the loss", lease.RenewalErr())
		equal(t, "Lost is closed", closed(lease.Lost()), true)
		equal(t, "requests", m.Requests(), 1)
	})
}

// Lost comes at the deadline with the network down, exactly, and asks nobody.
func TestLostAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		lease := take(t, s)
		m.Intercept(unsent)
		lost := lease.Lost()
		equal(t, "entries scheduled", engine.Scheduled(s), 1)
		if lease.Lost() != lost {
			t.Error("second Lost = another channel, want the same")
		}
		<-lost
		since(t, "Lost after", start, valid)
		is(t, "Err", lease.Err(), strategy.ErrLost)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		equal(t, "requests", m.Requests(), 1)
	})
}

// The contexts of a lease end with it, and say why.
func TestContextEndsWithTheLease(t *testing.T) {
	for _, tt := range []struct {
		what string
		end  func(*lockstest.Memory, strategy.Lease)
		want error
	}{
		{"deadline", func(*lockstest.Memory, strategy.Lease) { time.Sleep(valid) }, strategy.ErrLost},
		{"release", func(_ *lockstest.Memory, l strategy.Lease) { l.Release(bg) }, strategy.ErrReleased},
		{"detach", func(_ *lockstest.Memory, l strategy.Lease) { l.Detach() }, strategy.ErrReleased},
		{"server's word", func(m *lockstest.Memory, l strategy.Lease) { m.Evict(bg, key); l.Extend(bg) }, strategy.ErrLost},
	} {
		t.Run(tt.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{})
				lease := take(t, s)
				type keyType struct{}
				ctx, cancel := lease.Context(context.WithValue(bg, keyType{}, "v"))
				defer cancel()
				other, cancelOther := lease.Context(bg)
				equal(t, "value of the parent", ctx.Value(keyType{}), any("v"))
				is(t, "ctx.Err of a lease that is held", ctx.Err())
				cancelOther()
				is(t, "ctx.Err after cancel", other.Err(), context.Canceled)
				is(t, "Cause after cancel", context.Cause(other), context.Canceled)
				is(t, "ctx.Err of the other", ctx.Err())
				equal(t, "contexts left", engine.Contexts(lease), 1)
				tt.end(&m, lease)
				synctest.Wait()
				is(t, "ctx.Err", ctx.Err(), context.Canceled)
				is(t, "Cause", context.Cause(ctx), tt.want)
				equal(t, "Cause", context.Cause(ctx), lease.Err())
				equal(t, "contexts left at the end", engine.Contexts(lease), 0)
				late, cancelLate := lease.Context(bg)
				defer cancelLate()
				equal(t, "Cause of a context made later", context.Cause(late), lease.Err())
				equal(t, "entries scheduled", engine.Scheduled(s), 0)
			})
		})
	}
}

func TestContextEndsWithItsParent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		why := errors.New("why")
		parent, stop := context.WithCancelCause(bg)
		ctx, cancel := lease.Context(parent)
		defer cancel()
		stop(why)
		<-ctx.Done()
		equal(t, "Cause", context.Cause(ctx), why)
		is(t, "Err", lease.Err())
		release(t, lease)
		equal(t, "Cause after the release", context.Cause(ctx), why)
	})
}

// Contexts end before the lock is free.
func TestContextEndsBeforeTheLockIsFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		ctx, cancel := lease.Context(bg)
		defer cancel()
		m.Intercept(func(_ context.Context, _ lockstest.Request, serve func() error) error {
			is(t, "Cause when the release is sent", context.Cause(ctx), strategy.ErrReleased)
			return serve()
		})
		release(t, lease)
	})
}

func TestExtend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		lease := take(t, s)
		fence, ok := lease.Fence()
		equal(t, "fence ok", ok, true)
		time.Sleep(6 * time.Second)
		is(t, "Extend", lease.Extend(bg))
		equal(t, "deadline", lease.Deadline().Sub(start), 6*time.Second+valid)
		n, _ := lease.Fence()
		equal(t, "fence after Extend", n, fence)
		time.Sleep(valid - 1)
		is(t, "Err", lease.Err())
		equal(t, "requests", m.Requests(), 2)
		m.Evict(bg, key)
		err := lease.Extend(bg)
		is(t, "Extend of an evicted lock", err, strategy.ErrLost)
		var lost *strategy.LostError
		if !errors.As(err, &lost) || lost.Lapsed || lost.Holder != "" {
			t.Errorf("Extend = %#v, want a LostError that tells of no holder", err)
		}
		equal(t, "holder", holds(&m, key), "")
	})
}

// The server's word ends the lease at once, and says who has the lock.
func TestLostByTheServersWord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		lost := lease.Lost()
		m.Evict(bg, key)
		other := take(t, s)
		err := lease.Extend(bg)
		var l *strategy.LostError
		if !errors.As(err, &l) || *l != (strategy.LostError{Name: name, Holder: other.Token()}) {
			t.Errorf("Extend = %#v, want a LostError that names the other", err)
		}
		equal(t, "Lost is closed", closed(lost), true)
		equal(t, "Err", lease.Err(), err)
		is(t, "Release", lease.Release(bg), err)
		equal(t, "holder", holds(&m, key), other.Token())
	})
}

// A protocol that says no more than ErrLost is understood.
func TestPlainErrLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &scripted{extend: func(driver.Claim) (driver.Grant, error) {
			return driver.Grant{}, fmt.Errorf("plainly %w", strategy.ErrLost)
		}}
		s := open(t, p, strategy.Options{})
		lease := take(t, s)
		err := lease.Extend(bg)
		var lost *strategy.LostError
		if !errors.As(err, &lost) || lost.Name != name {
			t.Errorf("Extend = %#v, want a *LostError", err)
		}
		equal(t, "Err", lease.Err(), err)
	})
}

// An Extend that failed leaves the lease as it was, to be tried again.
func TestExtendFails(t *testing.T) {
	for want, fault := range map[error]lockstest.Fault{
		strategy.ErrRefused: refused, strategy.ErrUnsent: unsent, strategy.ErrUnknown: lostReply,
	} {
		t.Run(want.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{})
				lease := take(t, s)
				lost := lease.Lost()
				deadline := lease.Deadline()
				r.then(fault)
				time.Sleep(time.Second)
				err := lease.Extend(bg)
				is(t, "Extend", err, want)
				isNot(t, "Extend", err, strategy.ErrLost)
				equal(t, "Failing", lease.RenewalErr(), err)
				is(t, "Err", lease.Err())
				equal(t, "deadline", lease.Deadline(), deadline)
				r.then(nil)
				time.Sleep(time.Second)
				equal(t, "renewals that nobody asked for", len(r.of(lockstest.OpExtend, lockstest.OpExtendAll)), 1)
				is(t, "Extend", lease.Extend(bg))
				is(t, "Failing", lease.RenewalErr())

				r.then(fault)
				time.Sleep(5 * time.Second)
				err = lease.Extend(bg)
				<-lost
				is(t, "Err", lease.Err(), strategy.ErrLost, want, err)
				synctest.Wait()
				undo := r.of(lockstest.OpUndo)
				if want == strategy.ErrUnknown {
					if len(undo) == 0 {
						t.Error("undoings after a renewal of unknown outcome = 0, want some")
					}
				} else {
					equal(t, "undoings", len(undo), 0)
				}
			})
		})
	}
}

// A renewal of unknown outcome may keep the key beyond the deadline: it is undone.
func TestUnknownRenewalIsUndoneAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		time.Sleep(9 * time.Second)
		m.Intercept(lostReply)
		is(t, "Extend", lease.Extend(bg), strategy.ErrUnknown)
		m.Intercept(nil)
		<-lease.Lost()
		synctest.Wait()
		equal(t, "holder", holds(&m, key), "")
	})
}

// An answer that comes after the deadline does not bring the lease back; what it
// did to the key is undone.
func TestLateRenewalIsUndone(t *testing.T) {
	for _, bulk := range []bool{true, false} {
		t.Run(fmt.Sprintf("bulk %v", bulk), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				p := driver.Protocol(&m)
				if !bulk {
					p = bare(&m)
				}
				s := open(t, p, strategy.Options{OpTimeout: 5 * time.Second})
				lease := take(t, s)
				lost := lease.Lost()
				time.Sleep(8 * time.Second)
				r.then(slow(0, 4*time.Second))
				start := time.Now()
				var err error
				if bulk {
					lease.KeepAlive(0)
					<-lost
					err = lease.Err()
				} else {
					err = lease.Extend(bg)
					since(t, "Extend took", start, 4*time.Second)
				}
				is(t, "late renewal", err, strategy.ErrLost)
				equal(t, "Lost is closed", closed(lost), true)
				time.Sleep(time.Until(start.Add(4*time.Second)) + 1)
				equal(t, "holder", holds(&m, key), "")
				if undo := r.of(lockstest.OpUndo); !bulk { // its answer came
					equal(t, "when the grant that is undone began", undo[0].all[0].Grant.Start, start)
				}
				time.Sleep(4 * time.Second)
			})
		})
	}
}

// One renewal at a time: the second waits for the first, or until its ctx ends.
func TestExtendsOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		r.then(slow(500*ms, 0))
		start := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { is(t, "Extend", lease.Extend(bg)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, 100*ms)
		defer cancel()
		err := lease.Extend(ctx)
		is(t, "Extend while another is under way", err, context.DeadlineExceeded)
		since(t, "Extend took", start, 100*ms)
		all.Wait()
		for i, e := range r.of(lockstest.OpExtend) {
			equal(t, "time of the renewal", e.at.Sub(start), time.Duration(i)*500*ms)
		}
	})
}

func TestRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		lost := lease.Lost()
		is(t, "KeepAlive", lease.KeepAlive(0))
		is(t, "Release", lease.Release(bg))
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		is(t, "second Release", lease.Release(bg), strategy.ErrReleased)
		is(t, "Extend", lease.Extend(bg), strategy.ErrReleased)
		is(t, "KeepAlive", lease.KeepAlive(0), strategy.ErrReleased)
		_, err := lease.Detach()
		is(t, "Detach", err, strategy.ErrReleased)
		equal(t, "requests", m.Requests(), 2)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		time.Sleep(time.Minute)
		equal(t, "requests a minute later", m.Requests(), 2)
		equal(t, "Lost is closed", closed(lost), false)
		equal(t, "later Lost is closed", closed(lease.Lost()), false)
		isNot(t, "Err", lease.Err(), strategy.ErrLost)
		left, _ := m.Leftovers(bg, key)
		equal(t, "left at the server", len(left), 0)
	})
}

// The server may know of a loss that the holder has not heard of.
func TestReleaseOfWhatTheServerLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		m.Evict(bg, key)
		other := take(t, s)
		is(t, "Release", lease.Release(bg), strategy.ErrLost)
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		time.Sleep(time.Second)
		equal(t, "releases", len(r.of(lockstest.OpRelease, lockstest.OpUndo)), 1)
		equal(t, "holder", holds(&m, key), other.Token())
	})
}

// A renewal under way is waited for; nothing is sent after the release.
func TestReleaseWaitsForARenewal(t *testing.T) {
	for _, end := range []string{"release", "detach"} {
		t.Run(end, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{})
				lease := take(t, s)
				is(t, "KeepAlive", lease.KeepAlive(0))
				r.then(func(ctx context.Context, q lockstest.Request, serve func() error) error {
					if q.Op == lockstest.OpExtendAll {
						time.Sleep(800 * ms)
					}
					return serve()
				})
				for len(r.of(lockstest.OpExtendAll)) == 0 {
					time.Sleep(100 * ms)
				}
				renewal := r.of(lockstest.OpExtendAll)[0].at
				last := lockstest.OpRelease
				if end == "release" {
					is(t, "Release", lease.Release(bg))
				} else {
					last = lockstest.OpExtendAll
					_, err := lease.Detach()
					is(t, "Detach", err)
				}
				since(t, "it took from the renewal", renewal, 800*ms)
				is(t, "Err", lease.Err(), strategy.ErrReleased)
				n := m.Requests()
				time.Sleep(time.Minute)
				equal(t, "later requests", m.Requests()-n, 0)
				equal(t, "last request", r.sent[len(r.sent)-1].op, last)
			})
		})
	}
}

// Release gets the last grant, also that of the renewal that it waited for.
func TestReleaseBearsTheLastGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &scripted{}
		s := open(t, p, strategy.Options{})
		lease := take(t, s)
		time.Sleep(time.Second)
		begun := time.Now()
		p.extend = func(driver.Claim) (driver.Grant, error) {
			time.Sleep(500 * ms)
			return driver.Grant{}, nil
		}
		p.release = func(c driver.Claim) error {
			equal(t, "start of the last grant", c.Grant.Start, begun)
			equal(t, "TTL of the last grant", c.Grant.TTL, ttl)
			return nil
		}
		go lease.Extend(bg)
		synctest.Wait()
		release(t, lease)
	})
}

// Release goes on when ctx is cancelled, for the operation time-out at most.
func TestReleaseIsDetachedFromContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		ctx, cancel := context.WithTimeout(bg, 100*ms)
		defer cancel()
		m.Intercept(slow(900*ms, 0))
		is(t, "Release", lease.Release(ctx))
		equal(t, "holder", holds(&m, key), "")

		lease = take(t, s)
		m.Intercept(slow(5*time.Second, 0))
		start := time.Now()
		is(t, "Release", lease.Release(ctx), strategy.ErrUnknown)
		since(t, "Release took", start, op)
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		time.Sleep(20 * time.Second)
		equal(t, "holder", holds(&m, key), "")
	})
}

// A release that is not certain is repeated in the background until it is.
func TestReleaseIsRepeated(t *testing.T) {
	for want, fault := range map[error]lockstest.Fault{
		strategy.ErrRefused: refused, strategy.ErrUnsent: unsent, strategy.ErrUnknown: lostRequest,
	} {
		t.Run(want.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{})
				lease := take(t, s)
				r.then(fault)
				is(t, "Release", lease.Release(bg), want)
				is(t, "second Release", lease.Release(bg), strategy.ErrReleased)
				is(t, "Err", lease.Err(), strategy.ErrReleased)
				time.Sleep(3*time.Second + ms)
				r.then(nil)
				n := len(r.of(lockstest.OpUndo))
				time.Sleep(op / 4)
				equal(t, "undos until it is certain", len(r.of(lockstest.OpUndo)), n+1)
				equal(t, "under way", engine.UnderWay(s), 0)
				equal(t, "holder", holds(&m, key), "")
			})
		})
	}
}

func TestRepeatedReleaseEndsWithTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		m.Intercept(unsent)
		is(t, "Release", lease.Release(bg), strategy.ErrUnsent)
		time.Sleep(op + ttl)
		synctest.Wait()
		equal(t, "under way", engine.UnderWay(s), 0)
		is(t, "Close", s.Close())
	})
}

// A lock handed over: the old lease is over, the new one holds, with a fence of
// its own where the algorithm issues one.
func TestDetachAndAdopt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		a := open(t, &m, strategy.Options{})
		b := open(t, &m, strategy.Options{TTL: 20 * time.Second, OpTimeout: 2 * time.Second})
		lease := take(t, a)
		is(t, "KeepAlive", lease.KeepAlive(0))
		token, err := lease.Detach()
		is(t, "Detach", err)
		equal(t, "token", token, lease.Token())
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		is(t, "Release", lease.Release(bg), strategy.ErrReleased)
		equal(t, "entries scheduled", engine.Scheduled(a), 0)
		time.Sleep(5 * time.Second)
		equal(t, "holder", holds(&m, key), token)

		start := time.Now()
		m.Intercept(slow(50*ms, 50*ms))
		successor, err := b.Adopt(bg, name, token)
		is(t, "Adopt", err)
		m.Intercept(nil)
		equal(t, "Name", successor.Name(), name)
		if successor.Token() == token || holds(&m, key) != successor.Token() {
			t.Errorf("Token = %q, holder %q, want one of its own that holds", successor.Token(), holds(&m, key))
		}
		var first *strategy.LostError
		if _, err := a.Adopt(bg, name, token); !errors.As(err, &first) || first.Holder != successor.Token() {
			t.Errorf("second Adopt = %v, want a LostError that names the successor", err)
		}
		equal(t, "deadline", successor.Deadline().Sub(start), 20*time.Second-driver.Drift(20*time.Second))
		old, _ := lease.Fence()
		if n, ok := successor.Fence(); !ok || n <= old {
			t.Errorf("fence of the successor = %d, %v, want more than %d", n, ok, old)
		}
		is(t, "KeepAlive", successor.KeepAlive(0))
		time.Sleep(time.Minute)
		release(t, successor)

		_, err = b.Adopt(bg, name, token)
		is(t, "Adopt of a lock that is free", err, strategy.ErrLost)
		if _, err = b.Adopt(bg, name, ""); err == nil || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Adopt of no token = %v, want what is allowed", err)
		}
		other := take(t, a)
		_, err = b.Adopt(bg, name, token)
		var lost *strategy.LostError
		if !errors.As(err, &lost) || lost.Holder != other.Token() {
			t.Errorf("Adopt = %v, want a LostError that names the other", err)
		}
		m.Intercept(unsent)
		_, err = b.Adopt(bg, name, other.Token())
		is(t, "Adopt without a network", err, strategy.ErrUnsent)
	})
}

// A lock that was adopted too late for the lease to be of use is not left behind.
func TestAdoptTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{OpTimeout: ttl - ms})
		token, err := take(t, s).Detach()
		is(t, "Detach", err)
		m.Intercept(only(lockstest.OpAdopt, slow(0, valid)))
		lease, err := s.Adopt(bg, name, token)
		if lease != nil {
			t.Errorf("Adopt = %v, want no lease", lease)
		}
		is(t, "Adopt", err, strategy.ErrLost)
		synctest.Wait()
		time.Sleep(time.Nanosecond)
		equal(t, "holder", holds(&m, key), "")
	})
}

// An observer learns when an adopted lock lapses, though nobody asks.
func TestObserverOfAnAdoptedLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		token, err := take(t, open(t, &m, strategy.Options{})).Detach()
		is(t, "Detach", err)
		var lost atomic.Int32
		successor := open(t, &m, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventLost {
				lost.Add(1)
			}
		}})
		_, err = successor.Adopt(bg, name, token)
		is(t, "Adopt", err)
		time.Sleep(ttl)
		synctest.Wait()
		equal(t, "events of a loss", lost.Load(), 1)
	})
}

func TestFenceOfAlgorithmsWithoutOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, &scripted{}, strategy.Options{})
		n, ok := take(t, s).Fence()
		equal(t, "fence", n, 0)
		equal(t, "fence ok", ok, false)
	})
}

// All methods at once, on a lease that is released and on one that is lost.
func TestLeaseIsSafeForConcurrentUse(t *testing.T) {
	for _, end := range []string{"release", "detach", "deadline", "server's word", "close"} {
		t.Run(end, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				m.Intercept(slow(ms, ms))
				s := open(t, &m, strategy.Options{TTL: 100 * ms, Observe: func(strategy.Event) {}})
				lease := take(t, s)
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						for range 40 {
							switch i % 10 {
							case 0:
								lease.Err()
							case 1:
								lease.Lost()
							case 2:
								ctx, cancel := lease.Context(bg)
								defer cancel()
								_ = ctx.Err()
							case 3:
								lease.Extend(bg)
							case 4:
								lease.KeepAlive(time.Duration(i) * 20 * ms)
							case 5:
								lease.KeepAlive(0)
							case 6:
								lease.Deadline()
								lease.Fence()
							case 7:
								lease.RenewalErr()
							case 8:
								_, cancel := lease.Context(bg)
								cancel()
							case 9:
								_ = lease.Token() + lease.Owner() + lease.Name()
							}
							time.Sleep(ms)
						}
					})
				}
				time.Sleep(20*ms + 1)
				ends := func() error { return lease.Release(bg) }
				switch end {
				case "detach":
					ends = func() error { _, err := lease.Detach(); return err }
				case "deadline":
					m.Intercept(unsent)
					ends = func() error { <-lease.Lost(); return lease.Err() }
				case "server's word":
					m.Evict(bg, key)
					ends = func() error { <-lease.Lost(); return lease.Err() }
				case "close":
					ends = s.Close
				}
				var mu sync.Mutex
				won := 0
				for range 4 {
					all.Go(func() {
						err := ends()
						mu.Lock()
						defer mu.Unlock()
						switch end {
						case "release", "detach":
							if err == nil {
								won++
							} else {
								is(t, "the others' "+end, err, strategy.ErrReleased)
							}
						case "close":
							is(t, "Close", err)
						default:
							is(t, "Err", err, strategy.ErrLost)
						}
					})
				}
				all.Wait()
				if end == "release" || end == "detach" {
					equal(t, "calls that ended the lease", won, 1)
				}
				if lease.Err() == nil {
					<-lease.Lost()
				}
				equal(t, "entries scheduled", engine.Scheduled(s), 0)
				time.Sleep(time.Second)
			})
		})
	}
}

// An adoption whose answer was lost is undone, whether or not it took effect: its
// caller does not know the token that may hold the lock now. It learns why its context ended.
func TestAdoptionOfUnknownEnd(t *testing.T) {
	for what, fault := range map[string]lockstest.Fault{"reply": lostReply, "request": lostRequest} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{})
				token, err := take(t, s).Detach()
				is(t, "Detach", err)
				ctx, cancel := context.WithCancelCause(bg)
				why := errors.New("why")
				m.Intercept(func(ctx context.Context, q lockstest.Request, serve func() error) error {
					defer cancel(why)
					return fault(ctx, q, serve)
				})
				_, err = s.Adopt(ctx, name, token)
				is(t, "Adopt", err, strategy.ErrUnknown, context.Canceled, why)
				m.Intercept(nil)
				time.Sleep(op)
				equal(t, "under way", engine.UnderWay(s), 0)
				want := token // it did not take effect: the lock is whose it was
				if what == "reply" {
					want = ""
				}
				equal(t, "holder", holds(&m, key), want)
			})
		})
	}
}

// What a renewal does not say stays as it was: the fence with those reserved behind it, the owner, and the
// protocol's own state.
func TestRenewalKeepsTheGrant(t *testing.T) {
	for what, tt := range map[string]struct{ says, want driver.Grant }{
		"nothing":               {driver.Grant{}, driver.Grant{Fence: 7, Fences: 3, Owner: "o", State: "s"}},
		"the fence":             {driver.Grant{Fence: 7}, driver.Grant{Fence: 7, Fences: 3, Owner: "o", State: "s"}},
		"the fence, and so few": {driver.Grant{Fence: 7, Fences: 2}, driver.Grant{Fence: 7, Fences: 2, Owner: "o", State: "s"}},
		"another fence":         {driver.Grant{Fence: 8}, driver.Grant{Fence: 8, Owner: "o", State: "s"}},
		"owner and state":       {driver.Grant{Owner: "p", State: "t"}, driver.Grant{Fence: 7, Fences: 3, Owner: "p", State: "t"}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var got driver.Grant
				lease := take(t, open(t, &scripted{
					acquire: func(driver.Claim) (driver.Grant, error) {
						return driver.Grant{Fence: 7, Fences: 3, Owner: "o", State: "s"}, nil
					},
					extend:  func(driver.Claim) (driver.Grant, error) { return tt.says, nil },
					release: func(c driver.Claim) error { got = c.Grant; return nil },
				}, strategy.Options{}))
				time.Sleep(time.Second)
				renewed := time.Now()
				is(t, "Extend", lease.Extend(bg))
				release(t, lease)
				tt.want.Start, tt.want.TTL = renewed, ttl
				equal(t, "the grant of the release", got, tt.want)
			})
		})
	}
}

// TestAdoptIsTimed: an adoption has the operation time-out.
func TestAdoptIsTimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		token, err := take(t, s).Detach()
		is(t, "Detach", err)
		lease, err := s.Adopt(bg, name, token)
		is(t, "Adopt", err)
		equal(t, "Due", time.Until(r.of(lockstest.OpAdopt)[0].all[0].Due), op)
		release(t, lease)
	})
}
