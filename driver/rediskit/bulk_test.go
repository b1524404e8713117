// Tests how BulkScript renews many locks in few requests: what each request has, what each lock learns, how
// many requests are under way, and what a cluster makes of it.
package rediskit_test

import (
	"context"
	"errors"
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

func TestBulkScript(t *testing.T) {
	t.Parallel()
	n := &bulkNode{answer: func(keys []string) (any, error) {
		answers := make([]any, len(keys))
		for i, key := range keys {
			if answers[i] = int64(1); key == "k3" {
				answers[i] = "another"
			}
		}
		return answers, nil
	}}
	for i, err := range extendAll(t, bulkOf(n, 2), bulkClaims(5)) {
		if i == 3 {
			is(t, "the lost one", err, strategy.ErrLost)
		} else {
			is(t, "the others", err)
		}
	}
	equal(t, "requests for 5 locks, 2 at most in each", len(n.asked), 3)
	for i, keys := range n.asked {
		last := keys[len(keys)-1]
		if want := fmt.Sprint("k", 100-n.dues[i].Unix()); last != want {
			t.Errorf("due of %v is that of %s, want the earliest, of %s", keys, want, last)
		}
	}
	equal(t, "arguments: the tokens, and in each request the TTL", len(n.args), 5+3)
	equal(t, "answers for no locks", len(extendAll(t, bulkOf(n, 2), nil)), 0)
	equal(t, "requests for no locks", len(n.asked), 3)
}

// Some requests are under way at a time, so that nobody waits for the next; and not all, so
// that others who send in between do not wait for all. One that gets no answer delays nobody.
func TestBulkScriptAbreast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var under atomic.Int64
		n := &bulkNode{answer: func(keys []string) (any, error) {
			if n := under.Add(1); n > 4 {
				t.Errorf("requests under way = %d, want 4 or fewer", n)
			}
			defer under.Add(-1)
			time.Sleep(ms)
			if keys[0] == "k0" {
				time.Sleep(time.Second)
				return nil, lockstest.Unknown()
			}
			return int64(len(keys)), nil
		}}
		b := bulkOf(n, 10)
		start := time.Now()
		var last atomic.Int64
		b.ExtendAll(bg, bulkClaims(200), func(i int, _ driver.Grant, err error) {
			if i < 10 {
				is(t, "without an answer", err, strategy.ErrUnknown)
			} else {
				is(t, "extended", err)
				last.Store(int64(time.Since(start)))
			}
		})
		equal(t, "the last of the others", time.Duration(last.Load()), 7*ms)
	})
}

// Locks of several TTLs ride together, each with its own. That all are extended is said by
// their number.
func TestBulkScriptOfSeveralTTLs(t *testing.T) {
	t.Parallel()
	n := &bulkNode{answer: func(keys []string) (any, error) { return int64(len(keys)), nil }}
	cs := bulkClaims(3)
	cs[1].TTL = 2 * time.Second
	for _, err := range extendAll(t, bulkOf(n, 100), cs) {
		is(t, "extended", err)
	}
	equal(t, "requests", len(n.asked), 1)
	equal(t, "arguments", fmt.Sprint(n.args), "[t0 t1 t2 1000 2000 1000]")
}

// One key that the user may not touch any more does not keep the others from being renewed.
func TestBulkScriptForbidsOneKey(t *testing.T) {
	t.Parallel()
	noPerm := &strategy.ServerError{Node: "n", Kind: strategy.ErrRefused, Err: errors.New("NOPERM No permissions to access a key")}
	n := &bulkNode{answer: func(keys []string) (any, error) {
		if slices.Contains(keys, "k1") {
			return nil, noPerm
		}
		return int64(len(keys)), nil
	}}
	for i, err := range extendAll(t, bulkOf(n, 10), bulkClaims(3)) {
		if want := i == 1; errors.Is(err, strategy.ErrRefused) != want || err != nil != want {
			t.Errorf("claim %d = %v, want a refusal: %t", i, err, want)
		}
	}
}

// A cluster refuses a script over several slots: then each lock gets its own request,
// and one that cannot be renewed does not keep the others from it.
func TestBulkScriptOnACluster(t *testing.T) {
	t.Parallel()
	words := "CROSSSLOT Keys in request don't hash to the same slot"
	n := &bulkNode{answer: func(keys []string) (any, error) {
		switch {
		case len(keys) > 1:
			return nil, &strategy.ServerError{Node: "n", Kind: strategy.ErrRefused, Err: errors.New(words)}
		case keys[0] == "k1":
			return nil, unreachable()
		}
		return []any{int64(1)}, nil
	}}
	for i, err := range extendAll(t, bulkOf(n, 100), bulkClaims(3)) {
		if i == 1 {
			is(t, "the one whose node is down", err, strategy.ErrUnsent)
		} else {
			is(t, "the others", err)
		}
	}
	equal(t, "requests", len(n.asked), 4)
}

// They are not one after the other: the last of many would come too late. Nor are all of them under way
// at once.
func TestBulkScriptOnAClusterSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var under atomic.Int64
		b := bulkOf(&bulkNode{answer: func(keys []string) (any, error) {
			if len(keys) > 1 {
				return nil, refusal(strategy.ErrRefused, "CROSSSLOT")
			}
			if n := under.Add(1); n > 32 {
				t.Errorf("requests under way = %d, want 32 or fewer", n)
			}
			defer under.Add(-1)
			time.Sleep(ms)
			return []any{int64(1)}, nil
		}}, 100)
		start := time.Now()
		for _, err := range extendAll(t, b, bulkClaims(40)) {
			is(t, "each", err)
		}
		since(t, "40 renewals of 1 ms each", start, 2*ms)
	})
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

// A reply that no such script gives is no renewal.
func TestBulkScriptOddAnswers(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{nil, int64(1), []byte("OK"), []any{}, []any{int64(1), int64(1), int64(1)}} {
		n := &bulkNode{answer: func([]string) (any, error) { return reply, nil }}
		for _, err := range extendAll(t, bulkOf(n, 100), bulkClaims(2)) {
			is(t, fmt.Sprintf("reply %v", reply), err, strategy.ErrUnknown)
		}
	}
}
