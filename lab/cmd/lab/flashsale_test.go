package main

// The program lab: the flash sale.

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	testverdict "github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/lab/flashsale"
)

// TestFlashsaleJSON takes everything that one server allows, with a password.
func TestFlashsaleJSON(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{Password: "sword,fish"})
	out, errs, code := clitest.RunIn(t, environment(s), "flashsale", "--json")
	if code != 0 {
		t.Fatalf("exit %d:\n%s%s", code, errs, out)
	}
	if strings.Contains(out+errs, "fish") {
		t.Errorf("the password is in the output:\n%s%s", out, errs)
	}
	if first, _, _ := strings.Cut(errs, "\n"); !strings.HasPrefix(first, "redis: servers given by REDIS_ADDRS, ") {
		t.Errorf("the first line is %q, want the choice", first)
	}
	var r flashsale.Report
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	ways, leftOut := flashsale.Ways(subjects.All(), 1)
	if len(r.Results) != len(ways) || len(r.LeftOut) != len(leftOut) || r.Redis.Servers != 1 || r.Redis.Kind != "given" {
		t.Errorf("%d results, %d left out, on %+v, want %d and %d", len(r.Results), len(r.LeftOut), r.Redis, len(ways), len(leftOut))
	}
	for _, res := range r.Results {
		if !res.AsWanted() {
			t.Errorf("%v: %+v", res.Way, res)
		}
	}
	conn := s.Pool().Get()
	defer conn.Close()
	wantSwept(t, conn)
}

// TestFlashsaleEnds: a signal ends it, and leaves no process and no key; also one that
// lets it do nothing about it.
func TestFlashsaleEnds(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	conn := s.Pool().Get()
	defer conn.Close()
	if _, err := conn.Do("CLIENT", "LIST"); err != nil {
		t.Skipf("NOT PROVEN: that no process is left connected: %v", err)
	}
	clients := func() int {
		list, _ := redis.String(conn.Do("CLIENT", "LIST"))
		return strings.Count(list, "\n")
	}
	alone := clients()
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGKILL, -1}} {
		cmd := clitest.Command(t, "flashsale", "--redis", s.URL())
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The second sale is one with a lock.
		testverdict.Eventually(t, "goods of the second sale", func() bool {
			page, _ := redis.Values(conn.Do("SCAN", 0, "MATCH", "*flashsale-*-1}:goods", "COUNT", 1000))
			var keys []string
			redis.Scan(page, nil, &keys)
			return len(keys) > 0
		})
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		cmd.Wait()
		if took := time.Since(sent); took > time.Minute {
			t.Errorf("%v: it took %v to end", c.signal, took)
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%v: exit %d, want %d:\n%s", c.signal, code, c.code, errs.String())
		}
		if c.code > 0 && (!strings.Contains(out.String(), "INTERRUPTED") || strings.Contains(out.String(), "atomic script and no lock")) {
			t.Errorf("%v: want what is known and that it is not all:\n%s", c.signal, out.String())
		}
		testverdict.Eventually(t, "no process is connected", func() bool { return clients() == alone })
		wantSwept(t, conn)
	}
}

// wantSwept: no key is left on a server of the test's own.
func wantSwept(t *testing.T, conn redis.Conn) {
	t.Helper()
	keys, err := redis.Strings(conn.Do("KEYS", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		t.Errorf("left are %q", keys)
	}
}

// fixedSale is a report with one of everything. Its figures are made up.
func fixedSale() *flashsale.Report {
	result := func(name string, f flashsale.Form, sold, left, refused, tries int, ms float64, commands int64) flashsale.Result {
		r := flashsale.Result{
			Way: flashsale.Way{Name: name, Form: f, Summary: "made up", Servers: 1}, Verdict: flashsale.Exact, Want: flashsale.Exact,
			Sold: sold, Left: left, EmptyHanded: 30 - sold, Refused: refused, Attempts: tries, Took: ms, Commands: commands,
		}
		if r.Oversold = max(0, sold-10); r.Oversold > 0 {
			r.Verdict = flashsale.Oversold
		}
		return r
	}
	noLock := result(flashsale.NoLock, "", 30, 8, 0, 30, 4.567, 90)
	noLock.Want = flashsale.Oversold
	return &flashsale.Report{
		Version: "v0.1.0", Began: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC),
		Redis: flashsale.Redis{Choice: "redis: a server", Kind: "given", Version: "Redis 7.0.15", Servers: 1, Comparable: true},
		Goods: 10, Processes: 2, Buyers: 30, Think: 2, Patience: 20_000,
		Results: []flashsale.Result{
			noLock,
			result("setnxgetset-serv-stack", flashsale.Blocking, 10, 0, 0, 1234, 1234.5, 12345),
			result("luascript", flashsale.Blocking, 10, 0, 0, 85, 85.5, 169),
			result("setnxgetset-serv-stack", flashsale.NonBlocking, 10, 0, 1234, 1264, 2345.6, 12345),
			result("luascript", flashsale.NonBlocking, 10, 0, 107, 137, 205, 217),
			result(flashsale.Optimistic, "", 10, 0, 245, 275, 33.7, 1590),
			result(flashsale.AtomicScript, "", 10, 0, 0, 30, 0.63, 30),
		},
		LeftOut: []flashsale.Way{{Name: "redlock", Summary: "made up", Servers: 5}},
	}
}

func TestRenderSale(t *testing.T) {
	wrong := fixedSale()
	wrong.Results[2].Sold, wrong.Results[2].Oversold, wrong.Results[2].Verdict = 12, 2, flashsale.Oversold
	w := &wrong.Results[4]
	w.Sold, w.Left, w.GaveUp, w.Failed, w.Verdict = 7, 3, 20, 3, flashsale.Wrong
	w.Errors = []string{`lock "x": held`, "out of patience"}
	interrupted := fixedSale()
	interrupted.Interrupted, interrupted.Results = true, interrupted.Results[:2]
	embedded := fixedSale()
	embedded.Redis.Comparable = false
	for name, c := range map[string]struct {
		r *flashsale.Report
		l look
	}{
		"sale":             {fixedSale(), look{width: 80}},
		"sale-wrong":       {wrong, look{width: 80}},
		"sale-interrupted": {interrupted, look{width: 80}},
		"sale-embedded":    {embedded, look{width: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			wantRendered(t, name, renderSale(c.r, c.l), c.l)
		})
	}
	if err := saleVerdict(fixedSale()); err != nil {
		t.Errorf("saleVerdict() = %v, want nil", err)
	}
	if err := saleVerdict(wrong); err == nil {
		t.Error("saleVerdict() of what went wrong = nil, want an error")
	}
	if got := renderSale(&flashsale.Report{Interrupted: true}, look{width: 80}); got != "" {
		t.Errorf("renderSale() of what was interrupted at once = %q, want nothing", got)
	}
}
