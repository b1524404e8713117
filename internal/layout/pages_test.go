// The pages that users and authors read, package strategy and package driver, stay short.
package layout

import (
	"bytes"
	"go/ast"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// TestPagesAreShort: an author who needs a line or a name more says something else shorter, or finds a better place for it. The
// test counts no methods.
func TestPagesAreShort(t *testing.T) {
	names := map[string]int{}
	for _, f := range goFiles(t, "") {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, d := range f.tree.Decls {
			names[path.Dir(f.path)] += exported(d)
		}
	}
	for name, most := range map[string]struct{ lines, names int }{"strategy": {450, 50}, "driver": {400, 35}} {
		cmd := exec.Command("go", "doc", "-all", "./"+name)
		cmd.Dir = root
		text, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(text, []byte("\n"))
		t.Logf("%s: %d lines, %d names", name, lines, names[name])
		if lines > most.lines || names[name] > most.names || lines == 0 || names[name] == 0 {
			t.Errorf("go doc -all ./%s has %d lines and %d exported names, want up to %d and %d", name, lines, names[name], most.lines, most.names)
		}
	}
}

// exported is how many exported names a declaration has.
func exported(d ast.Decl) (n int) {
	var names []*ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name)
			case *ast.ValueSpec:
				names = append(names, s.Names...)
			}
		}
	}
	for _, name := range names {
		if name.IsExported() {
			n++
		}
	}
	return n
}
