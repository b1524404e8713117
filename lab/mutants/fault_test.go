package mutants

import (
	"os"
	"strings"
	"testing"
)

// TestOperators: what each operator makes of a line, in Go and in Lua.
func TestOperators(t *testing.T) {
	const goSource = "package p\nfunc f() {\n\tLINE\n}\n"
	for _, tt := range []struct {
		file, source, line string
		fault              Fault
		want               string
	}{
		{"p.go", goSource, "a(); b()", skip("b"), "a(); if false { b() }"},
		{"p.go", goSource, "if x && y > 0 { a() }", never("y"), "if x && (false && (y > 0)) { a() }"},
		{"p.go", goSource, "if x && y > 0 { a() }", always("x && y"), "if (true || (x && y > 0)) { a() }"},
		{"p.go", goSource, "a(min(x, y), y < x)", swap("min"), "a(max(x, y), y < x)"},
		{"p.go", goSource, "a(min(x, y), y < x)", swap("y < x"), "a(min(x, y), y <= x)"},
		{"p.go", goSource, "a(x, y, x)", instead("x", "z").nth(2), "a(x, y, z)"},
		{"p.go", goSource, `do("SET", k, "NX")`, omit(`"NX"`), `do("SET", k)`},

		{"p.lua", "LINE\n", "if x then a() end -- b()", skip("a"), "if x then  end -- b()"},
		{"p.lua", "LINE\n", "if not (x and y > 0) then", never("y"), "if not (x and false) then"},
		{"p.lua", "LINE\n", "if x or f(x, 1) == 2 then", always("f("), "if x or true then"},
		{"p.lua", "LINE\n", "local a = math.max(x, y) -- max", instead("math.max(", "y"), "local a = y -- max"},
		{"p.lua", "LINE\n", "f(x, y, x)", instead("x", "z").nth(2), "f(x, y, z)"},
		{"p.lua", "LINE\n", "call('SET', k, 'PX', ttl)", omit("'PX', ttl"), "call('SET', k)"},
	} {
		m := Mutant{File: tt.file, Fault: tt.fault}
		if strings.HasSuffix(tt.file, ".go") {
			m.Func = "f"
		}
		got, err := m.Apply(strings.Replace(tt.source, "LINE", tt.line, 1))
		if want := strings.Replace(tt.source, "LINE", tt.want, 1); err != nil || got != want {
			t.Errorf("%v of %q = %q, %v, want %q", tt.fault, tt.line, got, err, want)
		}
	}
	m := Mutant{File: "p.lua", Fault: never("x")}
	if got, err := m.Apply("if x and x then\n"); err == nil {
		t.Errorf("one of two places = %q, want an error", got)
	}
}

// TestApply: each fault has its place in the sources of today, and each has a name of its own.
func TestApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		if names[m.Name()] {
			t.Errorf("%s: there is another of this name", m.Name())
		}
		names[m.Name()] = true
		source, err := os.ReadFile("../../" + m.File)
		if err != nil {
			t.Error(err)
			continue
		}
		if broken, err := m.Apply(string(source)); err != nil {
			t.Errorf("%s: %v", m.Name(), err)
		} else if broken == string(source) {
			t.Errorf("%s: changes nothing", m.Name())
		}
	}
}
