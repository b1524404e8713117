// Tests what a test does with Locks: what callers get when a lock is held, lost or free, what each fault does to a
// request, and which mistakes fail the test. Those that wait run in a bubble, where time is virtual.
package lockstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/enginetest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

const name = "invoice/42"

var is = enginetest.Is

func acquire(t *testing.T, s strategy.Strategy) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func ownKey(name string) string { return "mine:{" + name + "}" }

// try is the error of an attempt.
func try(t *testing.T, s strategy.Strategy) error {
	_, err := s.NewLock(name).TryAcquire(t.Context())
	return err
}

func release(t *testing.T, lease strategy.Lease) {
	t.Helper()
	is(t, "Release", lease.Release(t.Context()))
}

// A strict is a testing.TB that keeps its failures, and runs its cleanups when it ends.
type strict struct {
	testing.TB
	errs     []string
	cleanups []func()
}

func (s *strict) Helper()          {}
func (s *strict) Failed() bool     { return len(s.errs) > 0 }
func (s *strict) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }
func (s *strict) Errorf(format string, args ...any) {
	s.errs = append(s.errs, fmt.Sprintf(format, args...))
}

func (s *strict) Fatal(args ...any) {
	s.Errorf("%s", fmt.Sprint(args...))
	panic(s)
}

func (s *strict) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// want checks the failures so far, by parts of their texts.
func (s *strict) want(t *testing.T, parts ...string) {
	t.Helper()
	if len(s.errs) != len(parts) {
		t.Errorf("the test fails with %q, want %q", s.errs, parts)
		return
	}
	for i, part := range parts {
		if !strings.Contains(s.errs[i], part) {
			t.Errorf("the test fails with %q, want %q", s.errs[i], part)
		}
	}
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		free := locks.Hold(name)
		_, err := locks.NewLock(name).TryAcquire(t.Context())
		var held *strategy.HeldError
		if !errors.As(err, &held) || !strings.HasSuffix(held.Holder, ":lockstest.Hold") || held.TTL != contract.MaxTTL {
			t.Errorf("TryAcquire = %v, want held by Hold for %v", err, contract.MaxTTL)
		}
		begin := time.Now()
		err = strategy.DoWithin(t.Context(), locks.NewLock(name), 2*time.Second, func(context.Context, strategy.Lease) error { return nil })
		if took := time.Since(begin); !errors.Is(err, strategy.ErrHeld) || took != 2*time.Second {
			t.Errorf("DoWithin = %v after %v, want ErrHeld after 2s", err, took)
		}

		time.AfterFunc(time.Minute, free)
		begin = time.Now()
		lease, err := locks.NewLock(name).Acquire(t.Context())
		if took := time.Since(begin); err != nil || took != time.Minute {
			t.Fatalf("Acquire = %v after %v, want the lock when Hold releases", err, took)
		}
		release(t, lease)
		locks.Hold(name)
		free() // the first one, again: the second holds on
		is(t, "TryAcquire during a second Hold", try(t, locks), strategy.ErrHeld)
	})
}

// TestLoseOfHold: no lease of the test's ends when another process loses the lock.
func TestLoseOfHold(t *testing.T) {
	t.Parallel()
	locks := lockstest.New(t)
	locks.Hold(name)
	locks.Lose(name)
	release(t, acquire(t, locks))
}

// TestLose: without a bubble, because the holder knows at once. A fault does not keep it from that.
func TestLose(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for how, take := range map[string]func(t *testing.T, l *lockstest.Locks) strategy.Lease{
		"TryAcquire": func(t *testing.T, l *lockstest.Locks) strategy.Lease { return acquire(t, l) },
		"Acquire": func(t *testing.T, l *lockstest.Locks) strategy.Lease {
			lease, err := l.NewLock(name).Acquire(ctx)
			is(t, "Acquire", err)
			return lease
		},
		"Adopt": func(t *testing.T, l *lockstest.Locks) strategy.Lease {
			token, err := acquire(t, l).Detach()
			is(t, "Detach", err)
			lease, err := l.Adopt(ctx, name, token)
			is(t, "Adopt", err)
			return lease
		},
		"another process": func(t *testing.T, l *lockstest.Locks) strategy.Lease {
			return acquire(t, l.Process(strategy.Options{}))
		},
		"a key of its own": func(t *testing.T, l *lockstest.Locks) strategy.Lease {
			s, err := l.With(func(o *strategy.Options) { o.Key = ownKey })
			is(t, "With", err)
			return acquire(t, s)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			locks := lockstest.New(t)
			lease := take(t, locks)
			is(t, "KeepAlive", lease.KeepAlive(0))
			work, cancel := lease.Context(ctx)
			defer cancel()
			lost := lease.Lost()
			locks.Fail(lockstest.Unreachable)
			locks.Lose(name)
			select {
			case <-lost:
			default:
				t.Error("Lost is open, want it closed")
			}
			if cause := context.Cause(work); !errors.Is(cause, strategy.ErrLost) || !errors.Is(lease.Err(), strategy.ErrLost) {
				t.Errorf("the context ends with %v, Err = %v, want ErrLost", cause, lease.Err())
			}
		})
	}
}

// TestLoseAfterOthers: the holder knows of the loss, though others have asked for the lock since, have failed to adopt it,
// or have handed it to the holder within their process.
func TestLoseAfterOthers(t *testing.T) {
	for how, hold := range map[string]func(t *testing.T, l *lockstest.Locks) strategy.Lease{
		"others ask": func(t *testing.T, l *lockstest.Locks) strategy.Lease {
			lease := acquire(t, l)
			for _, s := range []strategy.Strategy{l, l.Process(strategy.Options{})} {
				is(t, "TryAcquire", try(t, s), strategy.ErrHeld)
				is(t, "DoWithin", strategy.DoWithin(t.Context(), s.NewLock(name), time.Second, nil), strategy.ErrHeld)
				_, err := s.Adopt(t.Context(), name, "another")
				is(t, "Adopt", err, strategy.ErrLost)
			}
			return lease
		},
		"it was handed over": func(t *testing.T, l *lockstest.Locks) strategy.Lease {
			release := acquire(t, l).Release
			next := make(chan strategy.Lease)
			for range 2 {
				go func() {
					lease, err := l.NewLock(name).Acquire(t.Context())
					if err != nil {
						t.Error(err)
					}
					next <- lease
				}()
			}
			synctest.Wait()
			is(t, "release", release(t.Context()))
			is(t, "Release", (<-next).Release(t.Context())) // to the second, without a request
			return <-next
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := lockstest.New(t)
				lease := hold(t, locks)
				locks.Lose(name)
				is(t, "Err", lease.Err(), strategy.ErrLost)
			})
		})
	}
}

// TestKeys: Hold and Lose find a lock under the key that it had last, of several keys of its name.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		release(t, acquire(t, locks))
		elsewhere := locks.Process(strategy.Options{Key: ownKey})
		release(t, acquire(t, elsewhere))
		free := locks.Hold(name)
		is(t, "TryAcquire under the key of its own", try(t, elsewhere), strategy.ErrHeld)
		free()
		lease := acquire(t, elsewhere)
		locks.Lose(name)
		is(t, "Err", lease.Err(), strategy.ErrLost)
		release(t, acquire(t, locks))
		locks.Hold(name)
		is(t, "TryAcquire under the usual key", try(t, locks), strategy.ErrHeld)
	})
}

// TestLeftHeld: a lock that the server keeps is not free, whatever became of its lease.
func TestLeftHeld(t *testing.T) {
	for how, leave := range map[string]func(t *testing.T, l *lockstest.Locks){
		"the release is lost": func(t *testing.T, l *lockstest.Locks) {
			lease := acquire(t, l)
			l.Fail(lockstest.Unreachable)
			is(t, "Release", lease.Release(t.Context()), strategy.ErrUnsent)
		},
		"it is detached, and was lost before": func(t *testing.T, l *lockstest.Locks) {
			acquire(t, l)
			l.Lose(name)
			_, err := acquire(t, l).Detach()
			is(t, "Detach", err)
		},
		"it is detached": func(t *testing.T, l *lockstest.Locks) {
			_, err := acquire(t, l).Detach()
			is(t, "Detach", err)
		},
		"a semaphore has asked for it, in vain": func(t *testing.T, l *lockstest.Locks) {
			acquire(t, l)
			is(t, "TryAcquire of permits of a lock of one holder", try(t, l.Semaphore(2, strategy.Options{})), strategy.ErrRefused)
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &strict{TB: t}
				locks := lockstest.New(tb)
				leave(t, locks)
				locks.AssertFree()
				tb.want(t, `lock "invoice/42" is still held by`)
				tb.end()
			})
		})
	}
}

func TestLoseLetsAWaiterIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		first := acquire(t, locks)
		is(t, "KeepAlive", first.KeepAlive(0))
		time.AfterFunc(time.Minute, func() { locks.Lose(name) })
		begin := time.Now()
		next, err := locks.Process(strategy.Options{}).NewLock(name).Acquire(t.Context())
		if took := time.Since(begin); err != nil || took != time.Minute {
			t.Fatalf("Acquire of a waiter = %v after %v, want the lock after 1m", err, took)
		}
		synctest.Wait() // Lose returns
		is(t, "Err of the first", first.Err(), strategy.ErrLost)
		release(t, next)
	})
}

// TestSemaphore: permits are held, are lost and fail as locks are, and the test fails if one is left over.
func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &strict{TB: t}
		locks := lockstest.New(tb)
		ours, others := locks.Semaphore(3, strategy.Options{}), locks.Semaphore(3, strategy.Options{})
		first := acquire(t, ours)
		time.Sleep(time.Second)
		second, err := others.NewMultiPermitLock(name, 2).Acquire(t.Context())
		is(t, "Acquire", err)
		err = strategy.DoWithin(t.Context(), ours.NewLock(name), 2*time.Second, func(context.Context, strategy.Lease) error { return nil })
		if !errors.Is(err, strategy.ErrHeld) {
			t.Errorf("DoWithin of a semaphore that is full = %v, want ErrHeld", err)
		}
		deadline := second.Deadline()
		locks.Lose(name) // of the hold that ends first
		if !errors.Is(first.Err(), strategy.ErrLost) || second.Err() != nil {
			t.Errorf("Err = %v and %v, want ErrLost, and nil of the permits that are not lost", first.Err(), second.Err())
		}
		if renewed := second.Deadline(); !renewed.Equal(deadline) {
			t.Errorf("Lose has moved the deadline of the permits that are not lost by %v, want 0", renewed.Sub(deadline))
		}
		synctest.Wait() // DoWithin has left the queue, in the background
		locks.FailNext(lockstest.Unreachable)
		is(t, "TryAcquire", try(t, ours), strategy.ErrUnsent)
		is(t, "SetPermits", ours.SetPermits(t.Context(), name, 5))
		if _, err := ours.With(func(o *strategy.Options) { o.TTL = -1 }); err == nil {
			t.Error("With a negative TTL = nil, want an error")
		}
		changed, err := ours.With(func(o *strategy.Options) { o.Label = "changed" })
		is(t, "With", err)
		again := changed.(strategy.Semaphore).NewMultiPermitLock(name, 3)
		lease, err := again.TryAcquire(t.Context())
		is(t, "TryAcquire", err)
		release(t, second)
		locks.AssertFree()
		tb.want(t, `lock "invoice/42" is still held by`)
		release(t, lease)
		locks.AssertFree()
		tb.want(t, `lock "invoice/42" is still held by`) // once
		tb.end()
	})
}

// TestLoseAll: a lock that is a part of several is lost, and so are all.
func TestLoseAll(t *testing.T) {
	t.Parallel()
	locks := lockstest.New(t)
	both, err := multilock.New(locks.NewLock("a"), locks.NewLock("b"))
	is(t, "New", err)
	lease, err := both.TryAcquire(t.Context())
	is(t, "TryAcquire", err)
	locks.Lose("b")
	is(t, "Err", lease.Err(), strategy.ErrLost)
	lease.Release(t.Context()) //nolint:errcheck // it is lost; this releases a
}

func TestAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		paused := acquire(t, locks)
		locks.Advance(9 * time.Second)
		is(t, "TryAcquire within the TTL of 10s", try(t, locks), strategy.ErrHeld)
		locks.Advance(time.Second + time.Millisecond) // the server keeps the lock in the millisecond in which its TTL ends
		next := acquire(t, locks.Process(strategy.Options{}))
		before, _ := paused.Fence()
		after, _ := next.Fence()
		if paused.Err() != nil || after <= before {
			t.Errorf("the paused holder has %v, and fence %d; the next holder has fence %d, want nil and a greater one", paused.Err(), before, after)
		}
		is(t, "Extend by the paused holder", paused.Extend(t.Context()), strategy.ErrLost)
		locks.Advance(-time.Minute) // set back: it is held for longer by that
		time.Sleep(time.Minute)
		is(t, "TryAcquire within the minute", try(t, locks.Process(strategy.Options{})), strategy.ErrHeld)
		locks.Advance(10*time.Second + time.Millisecond)
		release(t, acquire(t, locks))
	})
}

func TestFaults(t *testing.T) {
	for fault, tt := range map[string]struct {
		meet  lockstest.Fault
		want  error
		holds bool // the request took effect
	}{
		"Unreachable": {lockstest.Unreachable, strategy.ErrUnsent, false},
		"LostReply":   {lockstest.LostReply, strategy.ErrUnknown, true},
		"Refuse":      {lockstest.Refuse("OOM"), strategy.ErrRefused, false},
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &strict{TB: t}
				locks := lockstest.New(tb)
				locks.Fail(func(ctx context.Context, r lockstest.Request, serve func() error) error {
					if r.Op == lockstest.OpAcquire {
						return tt.meet(ctx, r, serve)
					}
					return lockstest.Unsent() // so nothing is undone yet
				})
				_, err := locks.NewLock(name).TryAcquire(t.Context())
				if !errors.Is(err, tt.want) {
					t.Errorf("TryAcquire = %v, want %v", err, tt.want)
				}
				locks.AssertFree()
				if held := tb.Failed(); held != tt.holds {
					t.Errorf("the server holds the lock: %v, want %v", held, tt.holds)
				}
				tb.errs = nil
				tb.end() // what was granted is undone
				tb.want(t)
			})
		})
	}
}

func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		locks.Fail(lockstest.Refuse("LOADING"))
		locks.FailNext(lockstest.Unreachable, nil)
		locks.FailNext(lockstest.Refuse("READONLY"))
		fails := func(want string) {
			t.Helper()
			_, err := locks.Process(strategy.Options{}).NewLock(name).TryAcquire(t.Context())
			if got := fmt.Sprint(err); !strings.HasSuffix(got, want) {
				t.Errorf("TryAcquire = %v, want %s", err, want)
			}
		}
		fails("unreachable")
		lease := acquire(t, locks)
		fails("READONLY")
		fails("LOADING")
		fails("LOADING")
		locks.FailNext(lockstest.Unreachable)
		locks.Fail(lockstest.Refuse("OOM")) // takes back what was to come next
		fails("OOM")
		locks.FailNext(lockstest.Unreachable)
		locks.Fail(nil) // takes back both
		release(t, lease)

		locks.FailNext(lockstest.Unreachable) // not for these three
		locks.Hold(name)
		locks.AssertFree()
		locks.Lose(name)
		fails("unreachable")
		acquire(t, locks)
		locks.FailNext(lockstest.Unreachable) // not for the question by which the holder learns of its loss
		locks.Lose(name)
		fails("unreachable")

		free := locks.Hold(name)
		locks.FailNext(lockstest.LostReply) // also of a refusal
		if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
			t.Errorf("TryAcquire of a lock that is held = %v, want ErrUnknown", err)
		}
		synctest.Wait() // the engine undoes what there is
		free()
		locks.FailNext(lockstest.LostReply)
		is(t, "TryAcquire", try(t, locks), strategy.ErrUnknown)
		synctest.Wait() // the engine undoes the grant
		locks.AssertFree()
	})
}

// TestFailsNoMore: at the end of a test no fault is left for what the engine undoes then.
func TestFailsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &strict{TB: t}
		locks := lockstest.New(tb)
		locks.FailNext(lockstest.LostReply)
		for range 100 {
			locks.FailNext(lockstest.Unreachable)
		}
		is(t, "TryAcquire", try(t, locks), strategy.ErrUnknown)
		tb.end()
		tb.want(t)
	})
}

// TestFailsInTheBackground: a renewal meets a fault as a request does, and Hold, its release and AssertFree do not.
func TestFailsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		lease := acquire(t, locks)
		is(t, "KeepAlive", lease.KeepAlive(0))
		locks.Fail(lockstest.Unreachable)
		time.Sleep(6 * time.Second)
		is(t, "RenewalErr", lease.RenewalErr(), strategy.ErrUnsent)
		time.Sleep(4*time.Second - time.Millisecond)
		is(t, "Err", lease.Err(), strategy.ErrLost)
		locks.AssertFree() // the server keeps the lock for two milliseconds more
		time.Sleep(2 * time.Millisecond)
		locks.Hold(name)()
		locks.Fail(nil)
		release(t, acquire(t, locks))
	})
}

// TestMistakes: what a test does wrong, or finds wrong, fails it, and the failure names the lock.
func TestMistakes(t *testing.T) {
	t.Parallel()
	tb := &strict{TB: t}
	locks := lockstest.New(tb)
	locks.Lose(name)
	tb.want(t, `Lose("invoice/42"): nobody holds it: allowed is a lock that is held`)

	tb.errs = nil
	locks.Hold("b")
	locks.Hold("b")()
	_, err := locks.NewLock("b").TryAcquire(t.Context())
	is(t, "TryAcquire next to the first Hold", err, strategy.ErrHeld)
	tb.want(t, `Hold("b"): lock "b": held by "…000001:lockstest.Hold" for 2`)
	tb.want(t, "allowed is a lock that is free")

	tb.errs = nil
	labelled := locks.Process(strategy.Options{Label: "shop"})
	leased := acquire(t, labelled)
	another, err := locks.NewLock("a").TryAcquire(t.Context())
	is(t, "TryAcquire", err)
	locks.AssertFree() // b is held by Hold alone
	tb.want(t, `lock "a" is still held by`, `lock "invoice/42" is still held by`)

	tb.errs = nil
	release(t, another)
	locks.AssertFree()
	tb.want(t, `lock "invoice/42" is still held by "`+strategy.ShortToken(leased.Token())+`" for up to`)
	if !strings.Contains(tb.errs[0], ":shop") {
		t.Errorf("the failure is %q, want the holder's label in it", tb.errs[0])
	}

	tb.errs = nil
	elsewhere, err := locks.With(func(o *strategy.Options) { o.Key = func(name string) string { return "other:" + name } })
	is(t, "With", err)
	release(t, acquire(t, elsewhere))
	locks.AssertFree() // the name has had another key since, and its lock there is free
	tb.want(t, `lock "invoice/42" is still held by`)

	tb.errs = nil
	tb.end() // nothing released it
	tb.want(t, `lock "invoice/42" is still held by`)

	is(t, "KeepAlive after the test", leased.KeepAlive(0), strategy.ErrClosed)
	is(t, "TryAcquire after the test", try(t, locks), strategy.ErrClosed)
	tb.end() // after a failure the locks that are held are no news
	tb.want(t, `lock "invoice/42" is still held by`)
}

// TestBadOptions: what no lock can be made of is an error of With, and ends the test elsewhere.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	bad := strategy.Options{TTL: -time.Second}
	if _, err := lockstest.New(t).With(func(to *strategy.Options) { *to = bad }); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("With = %v, want an error that says what is allowed", err)
	}
	for want, open := range map[string]func(*lockstest.Locks){
		"Options.TTL":              func(l *lockstest.Locks) { l.Process(bad) },
		"a semaphore of 0 permits": func(l *lockstest.Locks) { l.Semaphore(0, strategy.Options{}) },
	} {
		tb := &strict{TB: t}
		func() {
			defer func() {
				if recover() != any(tb) {
					t.Errorf("%s: it returns, want that the test ends", want)
				}
			}()
			open(lockstest.New(tb))
		}()
		tb.want(t, want)
		tb.end()
	}
}
