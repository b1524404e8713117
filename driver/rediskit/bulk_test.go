// Tests how BulkScript renews many locks in few requests: what each request has, what each lock learns, how
// many requests are under way, and what a cluster makes of it.
package rediskit_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// bulkNode answers a bulk script, several calls at a time, and keeps what it was asked.
type bulkNode struct {
	node
	answer func(keys []string) (any, error)

	mu    sync.Mutex
	asked [][]string
	dues  []time.Time
	args  []any
}

func (n *bulkNode) Eval(_ context.Context, due time.Time, _ *driver.Script, keys []string, args ...any) (any, error) {
	n.mu.Lock()
	n.asked = append(n.asked, keys)
	n.dues = append(n.dues, due)
	n.args = append(n.args, args...)
	n.mu.Unlock()
	return n.answer(keys)
}

func bulkOf(n *bulkNode, most int) rediskit.BulkScript {
	return rediskit.BulkScript{Node: n, Script: driver.NewScript("extend", ""), Most: most, Refused: func(c driver.Claim, answer any) error {
		return &strategy.LostError{Name: c.Name, Holder: fmt.Sprint(answer)}
	}}
}

func bulkClaims(n int) []driver.Claim {
	cs := make([]driver.Claim, n)
	for i := range cs {
		cs[i] = driver.Claim{Name: fmt.Sprint(i), Key: fmt.Sprint("k", i), Token: fmt.Sprint("t", i), TTL: time.Second, Due: time.Unix(int64(100-i), 0)}
	}
	return cs
}

// extendAll returns what done got, by claim.
func extendAll(t *testing.T, p driver.BulkExtender, cs []driver.Claim) []error {
	t.Helper()
	errs, told := make([]error, len(cs)), make([]int, len(cs))
	var mu sync.Mutex
	p.ExtendAll(bg, cs, func(i int, _ driver.Grant, err error) {
		mu.Lock()
		defer mu.Unlock()
		errs[i] = err
		told[i]++
	})
	for i, n := range told {
		if n != 1 {
			t.Errorf("done was called %d times for claim %d, want once", n, i)
		}
	}
	return errs
}

// Each lock learns what became of it, whatever the server makes of the requests that have it.
func TestBulkScript(t *testing.T) {
	t.Parallel()
	number := func(keys []string) (any, error) { return int64(len(keys)), nil }
	odd := func(reply any) func([]string) (any, error) { return func([]string) (any, error) { return reply, nil } }
	unknown := []error{strategy.ErrUnknown, strategy.ErrUnknown, strategy.ErrUnknown}
	for what, c := range map[string]struct {
		most     int // locks in one request
		answer   func(keys []string) (any, error)
		want     []error
		requests int
	}{
		"a number says that all are extended": {100, number, []error{nil, nil, nil}, 1},
		"several requests":                    {2, number, []error{nil, nil, nil}, 2},
		"one is lost":                         {100, odd([]any{int64(1), "another", int64(1)}), []error{nil, strategy.ErrLost, nil}, 1},
		// One key that the user may not touch any more does not keep the others from being renewed.
		"one is forbidden": {100, func(keys []string) (any, error) {
			if slices.Contains(keys, "k1") {
				return nil, refusal(strategy.ErrRefused, "NOPERM No permissions to access a key")
			}
			return number(keys)
		}, []error{nil, strategy.ErrRefused, nil}, 4},
		// A cluster refuses a script over several slots: then each lock gets its own request, and one that cannot be
		// renewed does not keep the others from it.
		"several slots": {100, func(keys []string) (any, error) {
			switch {
			case len(keys) > 1:
				return nil, refusal(strategy.ErrRefused, "CROSSSLOT Keys in request don't hash to the same slot")
			case keys[0] == "k1":
				return nil, unreachable()
			}
			return []any{int64(1)}, nil
		}, []error{nil, strategy.ErrUnsent, nil}, 4},
		"no answer":     {100, odd(nil), unknown, 1},
		"too little":    {100, odd(int64(2)), unknown, 1},
		"a text":        {100, odd([]byte("OK")), unknown, 1},
		"an empty list": {100, odd([]any{}), unknown, 1},
		"too many":      {100, odd([]any{int64(1), int64(1), int64(1), int64(1)}), unknown, 1},
	} {
		n := &bulkNode{answer: c.answer}
		for i, err := range extendAll(t, bulkOf(n, c.most), bulkClaims(3)) {
			if c.want[i] == nil {
				is(t, what, err)
			} else {
				is(t, what, err, c.want[i])
			}
		}
		equal(t, "requests: "+what, len(n.asked), c.requests)
		for i, keys := range n.asked {
			last := keys[len(keys)-1]
			if want := fmt.Sprint("k", 100-n.dues[i].Unix()); last != want {
				t.Errorf("%s: due of %v is that of %s, want the earliest, of %s", what, keys, want, last)
			}
		}
	}
	// Locks of several TTLs ride together, each with its own.
	n, cs := &bulkNode{answer: number}, bulkClaims(3)
	extendAll(t, bulkOf(n, 100), cs)
	cs[1].TTL = 2 * time.Second
	extendAll(t, bulkOf(n, 100), cs)
	equal(t, "arguments", fmt.Sprint(n.args), "[t0 t1 t2 1000 t0 t1 t2 1000 2000 1000]")
	equal(t, "answers for no locks", len(extendAll(t, bulkOf(n, 2), nil)), 0)
	equal(t, "requests", len(n.asked), 2)
}

// Some requests are under way at a time, so that nobody waits for the next; and not all, so that others who send in between do not
// wait for all. One that gets no answer delays nobody.
func TestBulkScriptSideBySide(t *testing.T) {
	for what, c := range map[string]struct {
		apart bool // of a cluster that wants each lock by itself
		most  int  // requests at a time
	}{"some in each": {false, 4}, "each by itself": {true, 32}} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var under, last atomic.Int64
				n := &bulkNode{answer: func(keys []string) (any, error) {
					if c.apart && len(keys) > 1 {
						return nil, refusal(strategy.ErrRefused, "CROSSSLOT")
					}
					if n := under.Add(1); n > int64(c.most) {
						t.Errorf("requests under way = %d, want %d or fewer", n, c.most)
					}
					defer under.Add(-1)
					time.Sleep(ms)
					if keys[0] == "k0" {
						time.Sleep(time.Second)
						return nil, lockstest.Unknown()
					}
					return int64(len(keys)), nil
				}}
				each, start := 10, time.Now()
				if c.apart {
					each = 200
				}
				bulkOf(n, each).ExtendAll(bg, bulkClaims(200), func(i int, _ driver.Grant, err error) {
					if i == 0 || i < 10 && !c.apart {
						is(t, "without an answer", err, strategy.ErrUnknown)
					} else {
						is(t, "extended", err)
						last.Store(int64(time.Since(start)))
					}
				})
				equal(t, "the last of the others", time.Duration(last.Load()), 7*ms)
			})
		})
	}
}

// TestBulkScriptOfOne: Extend returns what the server says of its one lock. A cluster's refusal of one
// lock is an answer: there is nothing to take apart.
func TestBulkScriptOfOne(t *testing.T) {
	t.Parallel()
	crossSlot := refusal(strategy.ErrRefused, "CROSSSLOT")
	for what, tt := range map[string]struct {
		reply any
		err   error
		is    error
	}{
		"extended":      {int64(1), nil, nil},
		"extended one":  {[]any{int64(1)}, nil, nil},
		"lost":          {[]any{nil}, nil, strategy.ErrLost},
		"not sent":      {nil, unreachable(), strategy.ErrUnsent},
		"several slots": {nil, crossSlot, strategy.ErrRefused},
	} {
		n := &bulkNode{}
		n.answer = func([]string) (any, error) {
			if len(n.asked) > 100 {
				return int64(1), nil // enough: once would do
			}
			return tt.reply, tt.err
		}
		_, err := bulkOf(n, 10).Extend(bg, bulkClaims(1)[0])
		if tt.is == nil {
			is(t, "Extend, "+what, err)
		} else {
			is(t, "Extend, "+what, err, tt.is)
		}
		equal(t, "requests, "+what, len(n.asked), 1)
	}
	equal(t, "no error is of several slots", rediskit.SeveralSlots(nil), false)
	equal(t, "SeveralSlots", rediskit.SeveralSlots(crossSlot), true)
	equal(t, "another refusal is of several slots", rediskit.SeveralSlots(refusal(strategy.ErrRefused, "MOVED")), false)
	equal(t, "an unknown outcome is of several slots", rediskit.SeveralSlots(refusal(strategy.ErrUnknown, "CROSSSLOT")), false)
}
