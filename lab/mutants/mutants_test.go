package main

// Tests what each operator makes of a source, in Go and in Lua, that the switches of a whole package fit into
// one another, and that properties.txt and equivalent.txt name what there is.

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/parse"

	"github.com/lockstrategies/locks/conformance"
)

// TestChance: a sample of which too many live says that the package is below the limit only if chance
// hardly explains it.
func TestChance(t *testing.T) {
	for _, tt := range []struct {
		n, alive int
		ill      bool
	}{{0, 0, false}, {1, 1, false}, {2, 2, true}, {14, 3, false}, {14, 4, true}, {100, 3, false}, {100, 8, false}, {100, 10, true}} {
		if p := chance(tt.n, tt.alive); (p <= 0.001) != tt.ill {
			t.Errorf("of %d mutants %d live: the chance is %v, want it to say that the package is below the limit: %v", tt.n, tt.alive, p, tt.ill)
		}
	}
}

func TestOperatorsOfGo(t *testing.T) {
	for _, tt := range []struct {
		line  string
		names string // the mutants, separated by semicolons
		want  string
	}{
		{"a()", "drop a()", "if !mutantOn(1) { a() }"},
		{"x := a()", "", "x := a()"},
		{"t.Helper()", "", "t.Helper()"},
		{"if x && !y { a() }", "drop if x && !y { a() }; negate x; negate y", "if !mutantOn(1) { if mutantNot(2, x) && !mutantNot(3, y) { a() } }"},
		{"x = n < 2", "drop x = n < 2; negate n < 2; bound n < 2", "if !mutantOn(1) { x = mutantNot(2, mutantLess(3, n , 2)) }"},
		{"n := min(max(k, 0), 9)", "swap min(max(k, 0), 9); swap max(k, 0)", "n := mutantMin(1, mutantMax(2, k, 0), 9)"},
		{"switch k { case 1: a() }", "drop switch k { case 1: a() }; drop a()", "if !mutantOn(1) { switch k { case 1: if !mutantOn(2) { a() } } }"},
	} {
		f, err := mutateGo("p.go", "package p\nfunc f() {\n"+tt.line+"\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		number(f.mutants)
		got, _ := f.schemata(nil)
		if want := "package p\nfunc f() {\n" + tt.want + "\n}\n"; got != want {
			t.Errorf("%s becomes\n%s\nwant\n%s", tt.line, got, want)
		}
		if got := names(f.mutants, "p.go f: "); got != tt.names {
			t.Errorf("%s has the mutants %s, want %s", tt.line, got, tt.names)
		}
	}
}

func TestOperatorsOfLua(t *testing.T) {
	for _, tt := range []struct{ line, names, last string }{
		{"a(1) -- b()", "drop a(1)", " -- b()"},
		{"local x = a(1)", "", ""},
		{"if x and n < 2 then a() end", "negate x; bound if x and n < 2 then a() end; negate n < 2; drop if x and n < 2 then a() end", ""},
		{"local x = math.max(n, 1)", "swap local x = math.max(n, 1)", "local x = math.min(n, 1)"},
		{"return c('SET', k, 'PX', t[1])", "omit 'PX', t[1] of return c('SET', k, 'PX', t[1])", "return c('SET', k)"},
		{"local x = not (p or q == 1) and {a = 1, [2] = 'end'} or f(function() return 1 end)", "negate q == 1", ""},
	} {
		mutants := mutateLua("p.lua", tt.line)
		number(mutants)
		if got := names(mutants, "p.lua: "); got != tt.names {
			t.Errorf("%s has the mutants %s, want %s", tt.line, got, tt.names)
		} else if last := len(mutants) - 1; tt.last != "" && mutants[last].script != tt.last {
			t.Errorf("%s becomes %s, want %s", tt.line, mutants[last].script, tt.last)
		}
	}
}

func names(mutants []*mutant, prefix string) string {
	var all []string
	for _, m := range mutants {
		all = append(all, strings.TrimPrefix(m.name(), prefix))
	}
	return strings.Join(all, "; ")
}

// TestOperatorsEverywhere: all sources can be read, and with their switches they are still Go, or Lua. A run
// shows whether that compiles.
func TestOperatorsEverywhere(t *testing.T) {
	known := map[string]bool{}
	for _, s := range subjects {
		var all []*mutant
		sources, err := filepath.Glob("../../" + s.dir + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range sources {
			source, err := os.ReadFile(path)
			if err != nil || strings.HasSuffix(path, "_test.go") {
				continue
			}
			name := strings.TrimPrefix(path, "../../")
			switch filepath.Ext(path) {
			case ".go":
				f, err := mutateGo(name, string(source))
				if err != nil {
					t.Fatal(err)
				}
				number(f.mutants)
				all = append(all, f.mutants...)
				text, _ := f.schemata(nil)
				if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
					t.Errorf("with its mutants: %v", err)
				}
			case ".lua":
				for _, m := range mutateLua(name, string(source)) {
					if _, err := parse.Parse(strings.NewReader(m.script), m.name()); err != nil {
						t.Error(err)
					}
					all = append(all, m)
				}
			}
		}
		number(all)
		for _, m := range all {
			known[m.name()] = true
		}
	}
	equivalent, err := parseEquivalent(equivalentText)
	if err != nil {
		t.Fatal(err)
	}
	for name := range equivalent {
		if !known[name] {
			t.Errorf("equivalent.txt lists %q: there is no such mutant", name)
		}
	}
	for _, c := range convictions() {
		if !known[c.mutant] {
			t.Errorf("properties.txt lists %q: there is no such mutant", c.mutant)
		}
	}
}

// TestProperties: each property that conformance leaves to the sources has a mutant of theirs that it
// convicts: "mutants -properties" shows that it does.
func TestProperties(t *testing.T) {
	list, err := os.ReadFile("../../conformance/testdata/shown-by-sources.txt")
	if err != nil {
		t.Fatal(err)
	}
	var properties, shown []string
	for _, p := range conformance.Properties() {
		properties = append(properties, p.Name)
	}
	for _, c := range convictions() {
		shown = append(shown, c.property)
	}
	for _, name := range strings.Fields(string(list)) {
		if !slices.Contains(shown, name) {
			t.Errorf("%s convicts no mutant: add one that it finds to properties.txt, or delete it", name)
		}
	}
	for _, name := range shown {
		if !slices.Contains(properties, name) {
			t.Errorf("there is no property %s", name)
		}
	}
}
