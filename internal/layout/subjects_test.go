// Every strategy is known to the suite, and its own test runs the suite.
package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

// TestEveryStrategyIsJudged: a folder that nobody compares, or whose own test leaves
// the suite out, would be a strategy of which nothing is known.
func TestEveryStrategyIsJudged(t *testing.T) {
	all := strategies(packages(t, root))
	if len(all) == 0 {
		t.Fatal("no strategies were found")
	}
	listed := map[string]bool{}
	for _, v := range subjects.All() {
		listed[v.Package] = true
		if _, ok := all[v.Package]; !ok {
			t.Errorf("subjects.All() has %s of package %q, which is not there", v.Name, v.Package)
		}
	}
	for name, p := range all {
		if !listed[name] {
			t.Errorf("strategy %s is missing from subjects.All()", name)
		}
		exported := functions(t, p.Dir, p.GoFiles)
		for _, want := range []string{"New", "On"} {
			if exported[want] == nil {
				t.Errorf("strategy %s has no func %s", name, want)
			}
		}
		test := functions(t, p.Dir, slices.Concat(p.TestGoFiles, p.XTestGoFiles))["TestConformance"]
		if test == nil || !runsSuite(test, name) {
			t.Errorf("strategy %s has no test that is func TestConformance(t *testing.T) { subjects.Run(t, %q) }", name, name)
		}
	}
}

// functions are the functions, methods left out, of some files by their names.
func functions(t *testing.T, dir string, files []string) map[string]*ast.FuncDecl {
	t.Helper()
	found := map[string]*ast.FuncDecl{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name] = fn
			}
		}
	}
	return found
}

// runsSuite reports whether a statement of the test's own, one that nothing decides
// about, is subjects.Run(t, pkg).
func runsSuite(test *ast.FuncDecl, pkg string) bool {
	return slices.ContainsFunc(test.Body.List, func(s ast.Stmt) bool {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := e.X.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 { // more: some of its variants
			return false
		}
		run, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || run.Sel.Name != "Run" {
			return false
		}
		from, ok := run.X.(*ast.Ident)
		arg, ok2 := call.Args[1].(*ast.BasicLit)
		if !ok || !ok2 || from.Name != "subjects" {
			return false
		}
		name, err := strconv.Unquote(arg.Value)
		return err == nil && name == pkg
	})
}
