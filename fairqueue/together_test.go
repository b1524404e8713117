// Tests what the protocol asks of a server: which keys and arguments each script gets, and what contenders of
// one process, whose requests travel together, get.
package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// A notebook is a node that answers everything in the same way, and notes what it was asked.
type notebook struct {
	locktest.OneReply
	err   error
	asked []string
}

func (n *notebook) Eval(_ context.Context, _ time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	line := s.Name() + " " + strings.Join(keys, " ")
	for _, arg := range args {
		line += fmt.Sprintf(" %q", fmt.Sprint(arg))
	}
	n.asked = append(n.asked, line)
	return n.Reply, n.err
}

// TestRequests: the keys and arguments of each script. The first acquire of a lock asks whether the user
// may release it, and so does the one after a release that failed.
//
//nolint:errcheck // what is asked is all that counts
func TestRequests(t *testing.T) {
	book := &notebook{}
	p := fairqueue.On(book)
	c := driver.Claim{Name: "a", Key: "lock:{a}", Token: "t", TTL: time.Minute, FenceTTL: 2 * time.Minute, Due: time.Now().Add(time.Minute)}
	queues := c
	queues.Line, queues.Fences = "line", 256
	again := queues
	again.Repeated = true
	ask := func(reply any, err error, f func()) {
		book.Reply, book.err = reply, err
		f()
	}
	ask(int64(7), nil, func() { p.Acquire(t.Context(), c) })
	ask(int64(7), nil, func() { p.Acquire(t.Context(), queues) })
	ask(int64(7), nil, func() { p.Acquire(t.Context(), again) })
	ask(nil, errors.New("no answer"), func() { p.Release(t.Context(), c) })
	ask(nil, errors.New("no answer"), func() { p.Acquire(t.Context(), c) })
	ask(int64(7), nil, func() { p.Acquire(t.Context(), c) })
	ask(int64(1), nil, func() { p.Undo(t.Context(), queues) })
	ask(int64(1), nil, func() { p.(driver.Queuer).Pass(t.Context(), c, queues) })
	ask(int64(1), nil, func() { p.Extend(t.Context(), c) })
	ask(int64(1), nil, func() { p.Adopt(t.Context(), c, "from") })
	ask(int64(1), nil, func() { p.Inspect(t.Context(), c) })
	p = fairqueue.On(book, fairqueue.WithoutFences())
	ask(int64(0), nil, func() { p.Acquire(t.Context(), queues) })
	ask(int64(0), nil, func() { p.Adopt(t.Context(), c, "from") })
	ask(int64(0), nil, func() { p.Inspect(t.Context(), c) })
	const all, entry = " lock:{a} lock:{a}:queue lock:{a}:fence ", `"line 1000 256 t"`
	want := []string{
		"acquire" + all + `"60000" "1" "120000" "" "1" "t"`,
		"acquire" + all + `"60000" "256" "120000" ` + entry + ` "" "t"`,
		"acquire" + all + `"60000" "256" "120000" ` + entry + ` "" "t" "1"`,
		"release" + all + `"" "120000" "t" "lock:{a}:free"`,
		"acquire" + all + `"60000" "1" "120000" "" "1" "t"`,
		"acquire" + all + `"60000" "1" "120000" "" "1" "t"`,
		"release" + all + entry + ` "120000" "t" "lock:{a}:free"`,
		"pass" + all + `"t" "t" "60000" "256" ` + entry + ` "120000"`,
		`extend lock:{a} "t" "60000"`,
		`adopt lock:{a} lock:{a}:fence "from" "60000" "t" "120000" "lock:{a}:free"`,
		strings.TrimSpace("inspect" + all),
		"acquire" + all + `"60000" "0" "120000" "line 1000 0 t" "1" "t"`,
		`adopt lock:{a} "from" "60000" "t" "120000" "lock:{a}:free"`,
		"inspect lock:{a} lock:{a}:queue",
	}
	for i := range max(len(want), len(book.asked)) {
		if i >= len(want) || i >= len(book.asked) || want[i] != book.asked[i] {
			t.Fatalf("request %d of\n%s\nis not as wanted in\n%s", i, strings.Join(book.asked, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestCompany: many contenders of one process, of whom each wants any of some locks: none is
// granted twice, and every fence is greater than the one before.
func TestCompany(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{TTL: 10 * time.Minute, OpTimeout: time.Minute}) // 48 ask at once
	const contenders, names, rounds = 48, 16, 60
	type held struct {
		by   atomic.Int32
		last uint64 // the holder's alone
	}
	state := make([]held, names)
	var wg sync.WaitGroup
	var grants atomic.Int64
	for i := range contenders {
		wg.Go(func() {
			for round := range rounds {
				n := (i*7 + round*5) % names
				lease, err := locks.NewLock(fmt.Sprint("shared", n)).TryAcquire(t.Context())
				if errors.Is(err, strategy.ErrHeld) {
					continue
				}
				if err != nil {
					t.Errorf("TryAcquire() = %v, want a lease or ErrHeld", err)
					return
				}
				if other := state[n].by.Swap(int32(i + 1)); other != 0 {
					t.Errorf("lock %d was granted to %d while %d holds it", n, i, other-1)
				}
				fence, _ := lease.Fence()
				if fence <= state[n].last {
					t.Errorf("fence of lock %d = %d after %d", n, fence, state[n].last)
				}
				state[n].last = fence
				grants.Add(1)
				state[n].by.Store(0)
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			}
		})
	}
	wg.Wait()
	if got := grants.Load(); got < names {
		t.Errorf("grants = %d, want some for each lock", got)
	}
}
