// Several holds by one request: readers of one process that wait together, and permits.
package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// TestReadersJoin: readers that have come while the first one asked get in by one claim, which joins the first one's hold. Those that
// come while that claim is under way join nothing, so they let a writer in that waits. The hold of a reader that
// has left is the next one's.
func TestReadersJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s, err := m.ReadWriter(strategy.Options{})
		is(t, "ReadWriter", err)
		r.then(only(lockstest.OpAcquire, slow(10*ms, 0)))
		ctx, leave := context.WithCancel(bg)
		ws := []*waiter{
			wait(bg, reading{s}), wait(bg, reading{s}), wait(as("me"), reading{s}), wait(ctx, reading{s}),
		}
		time.Sleep(15 * ms)
		late, later := wait(bg, reading{s}), wait(bg, reading{s})
		leave()
		time.Sleep(15 * ms)
		r.then(nil)
		synctest.Wait()
		var claims []driver.Claim
		for _, q := range r.of(lockstest.OpAcquire) {
			claims = append(claims, q.all[0])
		}
		first, second, third := ws[0].got(t), ws[1].got(t), ws[2].got(t)
		<-ws[3].done
		is(t, "Acquire of who left", ws[3].err, context.Canceled)
		equal(t, "attempts", len(claims), 3)
		equal(t, "the second claim joins", claims[1].Joins, first.Token())
		equal(t, "holds that it asks for", claims[1].Holds, int32(3))
		equal(t, "the third claim joins", claims[2].Joins, "")
		equal(t, "token of the second reader", second.Token(), claims[1].Token)
		equal(t, "token of the third reader", third.Token(), driver.HoldToken(claims[1].Token, 1))
		equal(t, "owner of the second reader", second.Owner(), second.Token())
		equal(t, "owner of the third reader", third.Owner(), "me")
		equal(t, "fence of the third reader", fenceOf(third), fenceOf(first))
		equal(t, "token of the reader that has come late", late.got(t).Token(), driver.HoldToken(claims[1].Token, 2))
		equal(t, "its owner", late.lease.Owner(), late.lease.Token())
		for _, l := range []strategy.Lease{first, second, third, late.lease, later.got(t)} {
			release(t, l)
		}
		leftovers(t, &m)
		is(t, "Close", s.Close())
	})
}

// TestReadersBehindAWriter: readers that wait together for a writer of another process get in by one direct grant, and each of them
// that holds on is given its whole TTL.
func TestReadersBehindAWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		writes, err := m.ReadWriter(strategy.Options{})
		is(t, "ReadWriter", err)
		s, err := m.ReadWriter(strategy.Options{})
		is(t, "ReadWriter", err)
		writer := take(t, writes)
		r.then(slow(10*ms, 0))
		ws := []*waiter{wait(bg, reading{s}), wait(bg, reading{s}), wait(bg, reading{s})}
		time.Sleep(time.Second)
		r.then(nil)
		before := r.count()
		release(t, writer)
		synctest.Wait()
		equal(t, "requests", r.count()-before, 1)
		time.Sleep(2 * successorTTL)
		for _, w := range ws {
			is(t, "Err", w.got(t).Err())
			release(t, w.lease)
		}
		leftovers(t, &m)
		is(t, "Close", s.Close())
		is(t, "Close", writes.Close())
	})
}

// TestHoldThatNobodyWants: if all who wait have left while a claim for several was under way, what is left over is given back.
func TestHoldThatNobodyWants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s, err := m.ReadWriter(strategy.Options{})
		is(t, "ReadWriter", err)
		r.then(only(lockstest.OpAcquire, slow(10*ms, 0)))
		ctx, leave := context.WithCancel(bg)
		first, second, leaver := wait(bg, reading{s}), wait(bg, reading{s}), wait(ctx, reading{s})
		time.Sleep(15 * ms)
		leave()
		<-leaver.done
		time.Sleep(15 * ms)
		r.then(nil)
		release(t, first.got(t))
		release(t, second.got(t))
		leftovers(t, &m)
		is(t, "Close", s.Close())
	})
}

// TestReadersBeforeTheNextWriter: a writer hands the lock over to the next writer of its process only if no reader of the process waits.
func TestReadersBeforeTheNextWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, err := m.ReadWriter(strategy.Options{})
		is(t, "ReadWriter", err)
		holder := take(t, s)
		first, second, third := wait(bg, s), wait(bg, s), wait(bg, s)
		release(t, holder)
		before := m.Requests()
		release(t, first.got(t))
		l := second.got(t)
		equal(t, "requests of a hand-over", m.Requests()-before, 0)
		reader := wait(bg, reading{s})
		release(t, l)
		release(t, reader.got(t))
		equal(t, "the third writer had it after the reader", third.got(t) != nil && !third.at.Before(reader.at), true)
		release(t, third.lease)
		leftovers(t, &m)
		is(t, "Close", s.Close())
	})
}

// TestDowngradeNextToWriters: a writer that has come through the line and makes its lock one to read keeps no later writer waiting
// once it has gone.
func TestDowngradeNextToWriters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, err := m.ReadWriter(strategy.Options{})
		is(t, "ReadWriter", err)
		first := take(t, s)
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		second, third := wait(ctx, s), wait(ctx, s)
		release(t, first)
		reads, err := s.Downgrade(bg, second.got(t))
		is(t, "Downgrade", err)
		time.Sleep(time.Second)
		equal(t, "the third has it next to a reader", closed(third.done), false)
		start := time.Now()
		release(t, reads)
		release(t, third.got(t))
		since(t, "the third waited for", start, 0)
		leftovers(t, &m)
		is(t, "Close", s.Close())
	})
}
