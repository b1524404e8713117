package flashsale

// Sales: exact with a lock, oversold without, and nothing left behind.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	if _, isChild := child.JobOf[any](role); isChild && os.Getenv(mute) != "" {
		fmt.Fprintln(os.Stderr, "not today")
		os.Exit(1)
	}
	if !Child(slices.Concat(subjects.All(), broken)...) {
		redistest.Main(m)
	}
}

// mute makes children end at once.
const mute = "LOCKS_FLASHSALE_TEST_MUTE"

// broken are locks that no shop should use.
var broken = []subjects.Variant{
	variant("grants-always", func() driver.Protocol { return always{} }),
	variant("grants-never", func() driver.Protocol { return never{} }),
	variant("refuses", func() driver.Protocol { return refuses{} }),
}

func variant(name string, p func() driver.Protocol) subjects.Variant {
	return subjects.Variant{Name: name, Servers: 1, On: func([]driver.Node) driver.Protocol { return p() }}
}

type always struct{ driver.Unsupported }

func (always) Acquire(context.Context, driver.Claim) (g driver.Grant, err error)   { return }
func (always) Extend(context.Context, driver.Claim) (g driver.Grant, err error)    { return }
func (always) Release(context.Context, driver.Claim) (o driver.Outcome, err error) { return }
func (always) Undo(context.Context, driver.Claim) error                            { return nil }

// never grants, but for the warm-up.
type never struct{ always }

func (never) Acquire(_ context.Context, c driver.Claim) (g driver.Grant, err error) {
	if strings.Contains(c.Name, "warm-up") {
		return g, nil
	}
	return g, &strategy.HeldError{Name: c.Name}
}

// refuses is a server that is not set up for it.
type refuses struct{ always }

func (refuses) Acquire(context.Context, driver.Claim) (g driver.Grant, err error) {
	return g, &strategy.ServerError{Node: "it", Kind: strategy.ErrRefused, Err: errors.New("NOPERM")}
}

// most is how many servers the strategies need.
func most() int {
	n := 1
	for _, v := range subjects.All() {
		if !v.Aside {
			n = max(n, v.Servers)
		}
	}
	return n
}

func TestRun(t *testing.T) {
	servers := redistest.Nodes(t, most())
	var told []string
	r, err := Run(t.Context(), Config{
		Servers: servers, Kind: redistest.Given, Choice: "redis: a choice", Version: "v0", Variants: subjects.All(),
		Patience: time.Minute,
		Progress: func(next Way, done, all int) { told = append(told, fmt.Sprintf("%v %d/%d", next, done, all)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ways, leftOut := Ways(subjects.All(), len(servers))
	if len(r.Results) != len(ways) || len(told) != len(ways) || len(leftOut) > 0 || r.LeftOut != nil {
		t.Fatalf("%d results, told %q, left out %v, want %d of both, and nothing left out", len(r.Results), told, r.LeftOut, len(ways))
	}
	for i, s := range r.Results {
		t.Logf("%-30v %2d sold, %3d refused, %3d attempts, %5.1f ms, %4d commands", s.Way, s.Sold, s.Refused, s.Attempts, s.Took, s.Commands)
		want := Exact
		if s.Name == NoLock {
			want = Oversold
		}
		if s.Way != ways[i] || s.Want != want || s.Verdict != want || !s.AsWanted() {
			t.Errorf("%v: %s, wanted %s, want %s of %v", s.Way, s.Verdict, s.Want, want, ways[i])
		}
		served := s.Sold + s.EmptyHanded
		if served != Processes*Buyers || s.GaveUp != 0 || s.Failed != 0 || len(s.Errors) != 0 {
			t.Errorf("%v: %d served, %d gave up, %d failed (%q), want all %d to be served", s.Way, served, s.GaveUp, s.Failed, s.Errors, Processes*Buyers)
		}
		if s.Took <= 0 || s.Commands <= 0 {
			t.Errorf("%v: took %v ms and %d commands", s.Way, s.Took, s.Commands)
		}
		switch {
		case s.Name == NoLock:
			if s.Sold != Processes*Buyers || s.Oversold != s.Sold-Goods || s.Left < 1 {
				t.Errorf("no lock: %d sold, %d oversold, %d left, want every buyer to have bought", s.Sold, s.Oversold, s.Left)
			}
			if want := int64(3 * Processes * Buyers); s.Commands != want {
				t.Errorf("no lock: %d commands, want GET, SET and RPUSH by each: %d", s.Commands, want)
			}
		case s.Sold != Goods || s.Left != 0 || s.Oversold != 0:
			t.Errorf("%v: %d sold, %d left, %d oversold, want exactly %d sold", s.Way, s.Sold, s.Left, s.Oversold, Goods)
		}
		switch {
		case s.Name == AtomicScript:
			if s.Commands != Processes*Buyers || s.Attempts != Processes*Buyers || s.Refused != 0 {
				t.Errorf("atomic script: %d commands, %d attempts, %d refused, want one, one, none for each buyer", s.Commands, s.Attempts, s.Refused)
			}
		case s.Form == Blocking:
			least := Processes * Buyers
			if queues := s.Name == "fairqueue"; queues {
				least = Processes // most buyers are made the holder by another's release
			}
			if s.Refused != 0 || s.Attempts < least {
				t.Errorf("%v: %d refused, %d attempts, want nobody refused, and %d attempts at least", s.Way, s.Refused, s.Attempts, least)
			}
		case s.Name == NoLock:
		case s.Refused == 0 || s.Attempts != s.Refused+Processes*Buyers:
			t.Errorf("%v: %d refused, %d attempts, want some refused, and each attempt refused or the buyer's last", s.Way, s.Refused, s.Attempts)
		}
	}
	for _, s := range servers {
		wantNoKeys(t, s)
	}

	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&back, r) {
		t.Errorf("a report changes on its way through JSON:\n%+v, want\n%+v", back, *r)
	}
}

// wantNoKeys: a sale cleans up behind itself, fence counters included.
func wantNoKeys(t *testing.T, s *redistest.Server) {
	t.Helper()
	conn := s.Pool().Get()
	defer conn.Close()
	keys, err := redis.Strings(conn.Do("KEYS", "*"+prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		t.Errorf("left at %s: %q", s.Addr(), keys)
	}
}

// result finds one.
func result(t *testing.T, r *Report, name string, f Form) Result {
	t.Helper()
	for _, s := range r.Results {
		if s.Name == name && s.Form == f {
			return s
		}
	}
	t.Fatalf("no result for %s %s", name, f)
	return Result{}
}

// TestTeeth: the sale convicts a lock that excludes nobody.
func TestTeeth(t *testing.T) {
	r, err := Run(t.Context(), Config{
		Servers: redistest.Nodes(t, 1), Variants: broken[:1],
		Think: 100 * time.Millisecond, // nobody writes before another has looked
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Form{Blocking, NonBlocking} {
		s := result(t, r, "grants-always", f)
		if s.Verdict != Oversold || s.AsWanted() || s.Oversold == 0 || s.Sold != Goods+s.Oversold {
			t.Errorf("%v: %s, %d sold, %d oversold, want it to oversell", s.Way, s.Verdict, s.Sold, s.Oversold)
		}
	}
}

// TestPatience: no buyer waits for ever, and goods that nobody could buy are not a sale.
func TestPatience(t *testing.T) {
	r, err := Run(t.Context(), Config{
		Servers: redistest.Nodes(t, 1), Variants: broken[1:2],
		Patience: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Form{Blocking, NonBlocking} {
		s := result(t, r, "grants-never", f)
		if s.Verdict != Wrong || s.AsWanted() || s.GaveUp != Processes*Buyers || s.Sold != 0 || s.Left != Goods || len(s.Errors) == 0 {
			t.Errorf("%v: %+v, want all to give up, and say why", s.Way, s)
		}
	}
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
	names := func(ways []Way) (s []string) {
		for _, w := range ways {
			s = append(s, w.String())
		}
		return s
	}
	ways, leftOut := Ways(variants, 4)
	if got, want := names(ways), []string{"no lock", "one, blocking", "one, non-blocking", "optimistic", "atomic script"}; !slices.Equal(got, want) {
		t.Errorf("with 4 servers: %q, want %q", got, want)
	}
	if got := names(leftOut); !slices.Equal(got, []string{"five"}) {
		t.Errorf("with 4 servers left out are %q, want five", got)
	}
	ways, leftOut = Ways(variants, 5)
	if len(ways) != 7 || len(leftOut) != 0 {
		t.Errorf("with 5 servers: %q, left out %q", names(ways), names(leftOut))
	}
}

// TestInterrupted: it ends with what is known, and leaves nothing.
func TestInterrupted(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	r, err := Run(ctx, Config{
		Servers: []*redistest.Server{s}, Variants: broken[1:2], // all wait
		Progress: func(next Way, _, _ int) {
			if next.Form == Blocking {
				time.AfterFunc(300*time.Millisecond, func() { cancel(reason) })
			}
		},
	})
	if !errors.Is(err, reason) || !r.Interrupted || len(r.Results) != 1 {
		t.Errorf("Run() = %+v, %v, want one result, and that it was interrupted", r, err)
	}
	wantNoKeys(t, s)
	wantAlone(t, s)
}

// wantAlone: no process of a sale is connected.
func wantAlone(t *testing.T, s *redistest.Server) {
	t.Helper()
	conn := s.Pool().Get()
	defer conn.Close()
	verdict.Eventually(t, "nobody but this process is connected", func() bool {
		list, err := redis.String(conn.Do("CLIENT", "LIST"))
		if err != nil {
			redistest.Skip(t, fmt.Errorf("%w: %w", redistest.ErrImpossible, err), "that no process is left connected")
		}
		return strings.Count(list, "\n") <= s.Pool().ActiveCount()+1 // and the one that looks
	})
}

// TestNoProcesses: a way whose processes end says so, and the next gets others.
func TestNoProcesses(t *testing.T) {
	t.Setenv(mute, "1")
	s := redistest.Nodes(t, 1)
	r, err := Run(t.Context(), Config{Servers: s})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 3 {
		t.Fatalf("%d results, want one for each way", len(r.Results))
	}
	for _, res := range r.Results {
		if res.Verdict != Wrong || len(res.Errors) != 1 || !strings.Contains(res.Errors[0], "ended (exit status 1): not today") {
			t.Errorf("%v: %s, %q, want its last words", res.Way, res.Verdict, res.Errors)
		}
	}
	wantNoKeys(t, s[0])
}

// TestRefused: a lock that is not available at all is reported in the server's words, and the
// other ways are not its victims.
func TestRefused(t *testing.T) {
	s := redistest.Nodes(t, 1)
	r, err := Run(t.Context(), Config{Servers: s, Variants: broken[2:]})
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range r.Results {
		switch {
		case res.Name != "refuses":
			if !res.AsWanted() {
				t.Errorf("%v: %+v", res.Way, res)
			}
		case res.Verdict != Wrong || len(res.Errors) != 1 || !strings.Contains(res.Errors[0], "NOPERM"):
			t.Errorf("%v: %s, %q, want the server's words", res.Way, res.Verdict, res.Errors)
		}
	}
	wantNoKeys(t, s[0])
}

// TestServerDown: that is an error of the whole.
func TestServerDown(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Config{Servers: []*redistest.Server{s}}); err == nil {
		t.Error("Run() without a server = nil, want an error")
	}
}

// TestChildEnv: a child finds its parent's servers, and nothing that says otherwise.
func TestChildEnv(t *testing.T) {
	s := redistest.Nodes(t, 1)
	got := childEnv([]string{"HOME=/h", "REDIS_ADDRS=a,b", "REDIS_KIND=docker", "REDIS_IMAGE=i", "REDIS_CACHE_DIR=/c"}, s)
	want := []string{"HOME=/h", "REDIS_CACHE_DIR=/c", "REDIS_ADDRS=" + s[0].URL(), "REDIS_KIND=given"}
	if !slices.Equal(got, want) {
		t.Errorf("childEnv() = %q, want %q", got, want)
	}
}

// TestScript: no effect in part.
func TestScript(t *testing.T) {
	s := redistest.Nodes(t, 1)[0]
	conn := s.Pool().Get()
	defer conn.Close()
	buy := func(goods, orders string) (int, error) {
		return redis.Int(buyScript.Do(conn, goods, orders, "me"))
	}
	key := prefix + t.Name()
	goods, orders := goodsKey(key), ordersKey(key)
	defer conn.Do("DEL", goods, orders)
	for _, c := range []struct {
		goods     any
		orders    []any // of RPUSH; nil: no list
		want      int
		wantErr   bool
		wantGoods string
	}{
		{1, nil, 1, false, "0"},
		{0, nil, 0, false, "0"},
		{-1, nil, 0, false, "-1"},
		{"many", nil, 0, true, "many"},
	} {
		conn.Do("DEL", orders)
		conn.Do("SET", goods, c.goods)
		n, err := buy(goods, orders)
		left, _ := redis.String(conn.Do("GET", goods))
		sold, _ := redis.Int(conn.Do("LLEN", orders))
		if n != c.want || (err != nil) != c.wantErr || left != c.wantGoods || sold != c.want {
			t.Errorf("of %v: %d, %v; %s left, %d orders, want %d, an error: %v, %s left", c.goods, n, err, left, sold, c.want, c.wantErr, c.wantGoods)
		}
	}
	conn.Do("SET", goods, 1)
	conn.Do("SET", orders, "no list")
	if _, err := buy(goods, orders); err == nil {
		t.Error("orders are no list, and the script says nothing")
	}
	if left, _ := redis.Int(conn.Do("GET", goods)); left != 1 {
		t.Errorf("it failed, and %d goods are left, want 1", left)
	}
	conn.Do("DEL", goods, orders)
	if n, err := buy(goods, orders); n != 0 || err != nil {
		t.Errorf("of goods that are not there: %d, %v, want 0", n, err)
	}
}
