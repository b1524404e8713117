package flashsale

// Sales: exact with a lock, oversold without, and nothing left behind.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// broken are locks that no shop should use. The second grants nothing but the warm-up, and the
// server of the third is not set up for it.
var broken = []subjects.Variant{
	variant("grants-always", func(driver.Claim) error { return nil }),
	variant("grants-never", func(c driver.Claim) error {
		if strings.Contains(c.Name, "warm-up") {
			return nil
		}
		return &strategy.HeldError{Name: c.Name}
	}),
	variant("refuses", func(driver.Claim) error {
		return &strategy.ServerError{Node: "it", Kind: strategy.ErrRefused, Err: errors.New("NOPERM")}
	}),
}

func variant(name string, acquire func(driver.Claim) error) subjects.Variant {
	return subjects.Variant{Name: name, Servers: 1, On: func([]driver.Node) driver.Protocol { return fake{acquire: acquire} }}
}

type fake struct {
	driver.Unsupported
	acquire func(driver.Claim) error
}

func (f fake) Acquire(_ context.Context, c driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, f.acquire(c)
}
func (fake) Extend(context.Context, driver.Claim) (g driver.Grant, err error)    { return }
func (fake) Release(context.Context, driver.Claim) (o driver.Outcome, err error) { return }
func (fake) Undo(context.Context, driver.Claim) error                            { return nil }

func TestRun(t *testing.T) {
	const all = Copies * Buyers
	servers := redistest.Nodes(t, subjects.Most(subjects.Compared()))
	var told []string
	r, err := Run(t.Context(), Config{
		Servers: servers, Kind: redistest.Given, Choice: "redis: a choice", Version: "v0", Variants: subjects.All(),
		Patience: time.Minute,
		Progress: func(_ float64, next string) { told = append(told, next) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ways, leftOut := Ways(subjects.All(), len(servers))
	if len(r.Results) != len(ways) || len(told) != len(ways) || len(leftOut) > 0 || r.LeftOut != nil {
		t.Fatalf("%d results, told %q, left out %v, want %d of both, and nothing left out", len(r.Results), told, r.LeftOut, len(ways))
	}
	for i, s := range r.Results {
		want, sold, left := Exact, Goods, 0
		if s.Name == NoLock { // every buyer has bought
			want, sold, left = Oversold, all, s.Left
		}
		if s.Way != ways[i] || s.Want != want || s.Verdict != want || s.Sold != sold || s.Oversold != sold-Goods || s.Left != left || s.Left < 0 {
			t.Errorf("%v: %+v, want %s of %v", s.Way, s, want, ways[i])
		}
		if s.GaveUp != 0 || s.Failed != 0 || len(s.Errors) != 0 || s.Took <= 0 {
			t.Errorf("%v: %+v, want all to be served", s.Way, s)
		}
		// GET, SET and RPUSH by each; one script by each
		if most := map[string]int64{NoLock: 3 * all, AtomicScript: all}[s.Name]; s.Commands <= 0 || most > 0 && s.Commands != most {
			t.Errorf("%v: %d commands, want %d", s.Way, s.Commands, most)
		}
		if refuses := s.Form == NonBlocking; s.Name != Optimistic && (s.Refused > 0) != refuses {
			t.Errorf("%v: %d refused, want that some are: %v", s.Way, s.Refused, refuses)
		}
	}
	wantNoKeys(t, servers...)
}

// wantNoKeys: a sale cleans up behind itself, fence counters included.
func wantNoKeys(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		conn := s.Pool().Get()
		keys, err := redis.Strings(conn.Do("KEYS", "*"+prefix+"*"))
		conn.Close()
		if err != nil || len(keys) > 0 {
			t.Errorf("left at %s: %q, %v", s.Addr(), keys, err)
		}
	}
}

// TestBroken: the sale convicts a lock that excludes nobody, no buyer waits for ever for one that
// is never free, and one that is not available is reported in the server's words. The other ways
// are not their victims.
func TestBroken(t *testing.T) {
	servers := redistest.Nodes(t, 1)
	r, err := Run(t.Context(), Config{
		Servers: servers, Variants: broken, Patience: 200 * time.Millisecond,
		Think: 100 * time.Millisecond, // nobody writes before another has looked
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Results {
		ok := false
		switch s.Name {
		case "grants-always":
			ok = s.Verdict == Oversold && s.Oversold > 0 && s.Sold == Goods+s.Oversold
		case "grants-never":
			ok = s.Verdict == Wrong && s.GaveUp == Copies*Buyers && s.Sold == 0 && s.Left == Goods && len(s.Errors) > 0
		case "refuses":
			ok = s.Verdict == Wrong && len(s.Errors) == 1 && strings.Contains(s.Errors[0], "NOPERM")
		default:
			ok = s.AsWanted()
		}
		if isBroken := s.Form != ""; !ok || s.AsWanted() == isBroken {
			t.Errorf("%v: %+v", s.Way, s)
		}
	}
	wantNoKeys(t, servers...)
}

// TestVerdict: the books must agree.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		sold, left, failed int
		agreed             bool
		want               Balance
	}{
		{Goods, 0, 0, true, Exact},
		{Goods, 0, 0, false, Wrong},
		{Goods, 0, 1, true, Wrong},
		{Goods, 1, 0, true, Wrong}, // one was sold twice
		{Goods - 1, 1, 0, true, Wrong},
		{Goods - 1, 0, 0, true, Wrong},
		{Goods, -1, 0, true, Wrong},
		{Goods + 1, 0, 0, true, Oversold},
		{Goods + 1, 0, 0, false, Oversold},
	} {
		r := &Result{Sold: c.sold, Left: c.left, Failed: c.failed}
		if got := verdictOf(r, c.agreed); got != c.want {
			t.Errorf("verdictOf(%d sold, %d left, %d failed, agreed %v) = %s, want %s", c.sold, c.left, c.failed, c.agreed, got, c.want)
		}
	}
}

// TestWays: a strategy that takes more servers than there are is named, once.
func TestWays(t *testing.T) {
	variants := []subjects.Variant{{Name: "one", Servers: 1}, {Name: "aside", Servers: 1, Aside: true}, {Name: "five", Servers: 5}}
	for servers, want := range map[int]string{
		4: "[no lock one, blocking one, non-blocking optimistic atomic script] [{five 5}]",
		5: "[no lock one, blocking five, blocking one, non-blocking five, non-blocking optimistic atomic script] []",
	} {
		ways, leftOut := Ways(variants, servers)
		if got := fmt.Sprint(ways, leftOut); got != want {
			t.Errorf("with %d servers: %s, want %s", servers, got, want)
		}
	}
}

// TestInterrupted: it ends with what is known, and leaves nothing.
func TestInterrupted(t *testing.T) {
	servers := redistest.Nodes(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	r, err := Run(ctx, Config{
		Servers: servers, Variants: broken[1:2], // all wait
		Progress: func(_ float64, next string) {
			if strings.HasSuffix(next, string(Blocking)) {
				time.AfterFunc(300*time.Millisecond, func() { cancel(reason) })
			}
		},
	})
	if !errors.Is(err, reason) || !r.Interrupted || len(r.Results) != 1 {
		t.Errorf("Run() = %+v, %v, want one result, and that it was interrupted", r, err)
	}
	wantNoKeys(t, servers...)
}

// TestScript: no effect in part.
func TestScript(t *testing.T) {
	conn := redistest.Nodes(t, 1)[0].Pool().Get()
	defer conn.Close()
	goods, orders := goodsKey(prefix+t.Name()), ordersKey(prefix+t.Name())
	defer conn.Do("DEL", goods, orders)
	for _, c := range []struct{ goods, orders, want, left string }{ // orders: in place of the list
		{"1", "", "1", "0"},
		{"0", "", "0", "0"},
		{"-1", "", "0", "-1"},
		{"many", "", "an error", "many"},
		{"1", "no list", "an error", "1"},
		{"", "", "0", ""},
	} {
		conn.Do("DEL", goods, orders)
		for key, value := range map[string]string{goods: c.goods, orders: c.orders} {
			if value != "" {
				conn.Do("SET", key, value)
			}
		}
		got := "an error"
		if n, err := redis.Int(buyScript.Do(conn, goods, orders, "me")); err == nil {
			got = fmt.Sprint(n)
		}
		left, _ := redis.String(conn.Do("GET", goods))
		sold, _ := redis.Int(conn.Do("LLEN", orders))
		if got != c.want || left != c.left || (sold == 1) != (c.want == "1") {
			t.Errorf("of %q: %s; %q left, %d orders, want %s, %q left", c.goods, got, left, sold, c.want, c.left)
		}
	}
}
