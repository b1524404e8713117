package main

// The program lab: how reports look on a terminal.

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/lab/compare"
)

var update = flag.Bool("update", false, "write the golden files again")

// fixed is a report with one of everything. Its figures are made up.
func fixed(t *testing.T) *compare.Report {
	t.Helper()
	text, err := os.ReadFile("../../compare/testdata/comparison.json")
	r := &compare.Report{}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRender(t *testing.T) {
	embedded := fixed(t)
	embedded.Redis = compare.Redis{Kind: "embedded", Version: "?", Addr: "127.0.0.1:1"}
	embedded.Strategies = embedded.Strategies[:3]
	interrupted := fixed(t)
	interrupted.Interrupted, interrupted.Ping, interrupted.Advice = true, nil, nil
	for i := range interrupted.Strategies {
		s := &interrupted.Strategies[i]
		s.Solo, s.HandOff, s.Contention, s.Failures = nil, nil, nil, nil
		s.Guarantees[3].Verdict = compare.Unknown // of any: the row is left out
	}
	nothing := &compare.Report{Interrupted: true}
	for name, c := range map[string]struct {
		r *compare.Report
		l look
	}{
		"width80":     {fixed(t), look{width: 80}},
		"colour":      {fixed(t), look{width: 120, colour: true}},
		"embedded":    {embedded, look{width: 80}},
		"interrupted": {interrupted, look{width: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			wantRendered(t, name, render(c.r, c.l), c.l)
		})
	}
	if got := render(nothing, look{width: 80}); got != "" {
		t.Errorf("render() of what was interrupted at once = %q, want nothing", got)
	}
}

// wantRendered: the text is that of a golden file, as wide as the look allows, and in its colours.
func wantRendered(t *testing.T, name, got string, l look) {
	t.Helper()
	wantShape(t, got, l.width)
	if strings.Contains(got, "\x1b") != l.colour {
		t.Errorf("there are colours: %v, want %v", !l.colour, l.colour)
	}
	wantGolden(t, name+".txt", got)
}
