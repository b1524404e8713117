// Tests that the model breaks and holds as docs/learn/model.md says, that the rules of fences do, and that the names are those of
// package redlock.
package main

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustCheck(t *testing.T, model, flags string) (history []string, states string) {
	t.Helper()
	history, states, err := check(model, flags)
	switch {
	case errors.Is(err, errNoSpin):
		t.Skipf("NOT PROVEN: what the model of RedLock shows: %v", err)
	case errors.Is(err, context.DeadlineExceeded):
		t.Skipf("INCONCLUSIVE: what the model of RedLock shows: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return history, states
}

// TestVariants: each variant ends as it should, and the page shows its flags and its history.
func TestVariants(t *testing.T) {
	page := read(t, "../model.md")
	for _, v := range variants {
		t.Run(v.flags, func(t *testing.T) {
			history, states := mustCheck(t, model, v.flags)
			found := finding(history, states)
			if v.breaks != (len(history) > 0) {
				t.Errorf("broken: %v, want %v\n%s", !v.breaks, v.breaks, found)
			}
			if v.breaks && !strings.Contains(page, found) || !strings.Contains(page, v.flags) {
				t.Errorf("the page does not show %s:\n%s", v.flags, found)
			}
		})
	}
}

// TestEachRuleCounts: the model without one of its rules breaks. The page invites to try those that are flags.
func TestEachRuleCounts(t *testing.T) {
	page := read(t, "../model.md")
	const mine = "notYet(n) && key[n] == me;\n\t\tagrees(n);\n\t\t"
	const anybodys = "notYet(n);\n\t\tagrees(n);\n\t\t"
	for _, c := range []struct{ name, flags, rule, without string }{
		{"the guard waits for a whole TTL", "-DRESTARTS=1 -DMAXTTL=1", "", ""},
		{"the holder allows for drift", "-DDRIFT=0", "", ""},
		{"a node that lost its counter does not count", "-DFENCES=2 -DRESTARTS=1", "", ""},
		{"two quorums share a node", "-DQUORUM=1", "", ""},
		{"release compares the token", "", "key[n] == me;\n\t\texpire(n)", "key[n];\n\t\texpire(n)"},
		{"extend compares the token", "", mine + "ttl", anybodys + "ttl"},
		{"join takes only a free key", "", "validity[me] && !key[n]", "validity[me]"},
		{"writeback compares the token", "-DFENCES=2", mine + "counter", anybodys + "counter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := strings.Replace(model, c.rule, c.without, 1)
			if c.rule != "" && changed == model {
				t.Fatalf("the model has no %q", c.rule)
			}
			history, states := mustCheck(t, changed, c.flags)
			if len(history) == 0 {
				t.Errorf("holds in all %s states, want a history that breaks it", states)
			}
			if c.rule == "" && !strings.Contains(page, "'"+c.flags+"'") {
				t.Errorf("the page does not suggest %s", c.flags)
			}
			t.Log(finding(history, states))
		})
	}
}

//go:embed fences.pml
var fences string

// TestFenceRules: fences rise by the rules, and with each rule that was rejected they do not.
func TestFenceRules(t *testing.T) {
	for _, c := range []struct {
		name, flags string
		breaks      bool
	}{
		{"one phase", "-DPHASES=1", true},
		{"write-back though another has the key", "-DCOMPARES=0", true},
		{"write-back", "", false},
		{"losses, silence counts as zero", "-DLOSSES=1 -DHEALS=0", true},
		{"losses, healed by any write-back", "-DLOSSES=1 -DHEALS=1", true},
		{"losses, healed after a success", "-DLOSSES=1", false},
		{"counters expire some time after they are set", "-DEXPIRES=2", true},
		{"counters expire by their number", "-DEXPIRES=1", false},
		{"blocks, of which the first number is noted", "-DMORE=1 -DNOTES=0", true},
		{"blocks", "-DMORE=1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			history, states := mustCheck(t, fences, c.flags)
			t.Log(finding(history, states))
			if c.breaks != (len(history) > 0) {
				t.Errorf("broken: %v, want %v", !c.breaks, c.breaks)
			}
		})
	}
}

// TestNames: the model has a step for each script of the package, or names it as left out. The quorum is the package's, and an
// election has its phases in the same order.
func TestNames(t *testing.T) {
	const redlock = "../../../redlock/"
	first := func(text, pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("there is no %s: the test has lost its sight", pattern)
		}
		return strings.ReplaceAll(m[1], " ", "")
	}
	leftOut := strings.Split(first(model, `Left out: ([\w, ]+)\.`), ",")
	var scripts []string
	for _, m := range regexp.MustCompile(`driver\.NewScript\("(\w+)"`).FindAllStringSubmatch(read(t, redlock+"scripts.go"), -1) {
		scripts = append(scripts, m[1])
		if strings.Contains(model, "inline "+m[1]+"(n)") == slices.Contains(leftOut, m[1]) {
			t.Errorf("script %s is a step of the model, or is left out, want one of both", m[1])
		}
	}
	for _, name := range leftOut {
		if !slices.Contains(scripts, name) {
			t.Errorf("the model leaves out %s, which is no script", name)
		}
	}
	for _, part := range []string{"guard", "vote"} {
		if _, err := os.Stat(redlock + part + ".lua"); err != nil || !strings.Contains(model, "inline "+part+"(n)") {
			t.Errorf("%s: want the same name in the model and in the package (%v)", part, err)
		}
	}
	ours := first(model, `QUORUM \(NODES([^)]*)\)`)
	if code := first(read(t, redlock+"setup.go"), `quorum: len\(nodes\)([^}]*)}`); code != ours {
		t.Errorf("the quorum is nodes%s, in the model NODES%s", code, ours)
	}
	phases := `(?s)\) elect\([^\n]*\{\n.*?(p\.collect\(.*?p\.won\(.*?p\.issueFence\(.*?p\.inTime\(.*?p\.giveBack\()`
	first(read(t, redlock+"redlock.go"), phases)
	first(model, `(?s)\nelect:\n.*?(round\(acquire.*?round\(writeback, granted.*?round\(extend.*?\ngiveBack:)`)
}
