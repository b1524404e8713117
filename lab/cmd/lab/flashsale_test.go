package main

// The program lab: the flash sale.

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/flashsale"
)

// TestFlashsaleJSON takes everything that one server allows, with a password.
func TestFlashsaleJSON(t *testing.T) {
	t.Parallel()
	all := locked(t, 1)
	r := decoded[flashsale.Report](t, all, "flashsale")
	ways, leftOut := flashsale.Ways(subjects.All(), 1)
	if len(r.Results) != len(ways) || len(r.LeftOut) != len(leftOut) || len(r.Redis.Addrs) > 0 || r.Redis.Kind != "given" {
		t.Errorf("%d results, %d left out, on %+v, want %d and %d", len(r.Results), len(r.LeftOut), r.Redis, len(ways), len(leftOut))
	}
	for _, res := range r.Results {
		if !res.AsWanted() {
			t.Errorf("%v: %+v", res.Way, res)
		}
	}
	wantSwept(t, all[0])
}

// wantSwept: no key is left on a server of the test's own.
func wantSwept(t *testing.T, s *redistest.Server) {
	t.Helper()
	if keys := redistest.Do(t, s, "KEYS", "*").([]any); len(keys) > 0 {
		t.Errorf("left are %q", keys)
	}
}

// TestRenderSale: of a report that is made up.
func TestRenderSale(t *testing.T) {
	result := func(name string, f flashsale.Form, v flashsale.Balance, sold, left int, ms compare.Millis) flashsale.Result {
		return flashsale.Result{Way: flashsale.Way{Name: name, Form: f}, Verdict: v, Want: flashsale.Exact, Sold: sold, Left: left, Refused: 107, Took: ms, Commands: 12345}
	}
	noLock := result(flashsale.NoLock, "", flashsale.Oversold, 30, 8, 4.567)
	noLock.Want = flashsale.Oversold
	sale := flashsale.Report{
		Redis: compare.Redis{Comparable: true}, Goods: 10, Copies: 2, Buyers: 30, Think: 2, Patience: 20_000,
		Results: []flashsale.Result{
			noLock,
			result("setnxgetset-serv-stack", flashsale.Blocking, flashsale.Exact, 10, 0, 1234.5),
			result("luascript", flashsale.NonBlocking, flashsale.Exact, 10, 0, 205),
			result(flashsale.AtomicScript, "", flashsale.Exact, 10, 0, 0.63),
		},
		LeftOut: []compare.LeftOut{{Name: "redlock", Servers: 5}},
	}
	wrong := sale
	wrong.Interrupted, wrong.Redis.Comparable = true, false
	failed := result("luascript", flashsale.NonBlocking, flashsale.Wrong, 7, 3, 2345.6)
	failed.GaveUp, failed.Failed, failed.Errors = 20, 3, []string{`lock "x": held`, "out of patience"}
	wrong.Results = []flashsale.Result{noLock, result("luascript", flashsale.Blocking, flashsale.Oversold, 12, 0, 85.5), failed}
	for name, r := range map[string]*flashsale.Report{"sale": &sale, "sale-wrong": &wrong} {
		l := look{width: 80}
		wantRendered(t, name, renderSale(r, l), l)
		if err := saleVerdict(r); (err != nil) != (r == &wrong) {
			t.Errorf("saleVerdict() of %s = %v", name, err)
		}
	}
	if got := renderSale(&flashsale.Report{Interrupted: true}, look{width: 80}); got != "" {
		t.Errorf("renderSale() of what was interrupted at once = %q, want nothing", got)
	}
}
