// Tests what holds for each test file: it says first what it tests, and it does not sleep on a real
// clock.
package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// goFile is a parsed file of any module.
type goFile struct {
	path string // from the root
	set  *token.FileSet
	tree *ast.File
}

func testFiles(t *testing.T) []goFile { return goFiles(t, "_test") }

// goFiles are the files whose names end so.
func goFiles(t *testing.T, end string) (files []goFile) {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasSuffix(f.path, end+".go") {
			files = append(files, f)
		}
	}
	if len(files) < 100 {
		t.Fatalf("there are %d files: the test has lost its sight", len(files))
	}
	return files
}

var parsed = sync.OnceValues(func() (files []goFile, err error) {
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata") {
			return err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		files = append(files, goFile{filepath.ToSlash(name), set, tree})
		return err
	})
	return files, err
})

// TestFilesSayWhatTheyTest: a comment above the package clause, or right below it. A file of helpers or
// examples needs none.
func TestFilesSayWhatTheyTest(t *testing.T) {
	for _, f := range testFiles(t) {
		if !slices.ContainsFunc(f.tree.Decls, isTest) {
			continue
		}
		says := false
		clause := f.set.Position(f.tree.Name.End()).Line
		for _, c := range f.tree.Comments {
			says = says || strings.TrimSpace(c.Text()) != "" && f.set.Position(c.Pos()).Line <= clause+2 // no directive
		}
		if !says {
			t.Errorf("%s: want a comment in the first lines that says what the file tests", f.path)
		}
	}
}

func isTest(d ast.Decl) bool {
	fn, ok := d.(*ast.FuncDecl)
	return ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" ||
		strings.HasPrefix(fn.Name.Name, "Benchmark") || strings.HasPrefix(fn.Name.Name, "Fuzz"))
}

// TestNoSleeps: a sleep on a real clock is too short on a slow machine, and a waste on a fast one. In
// a bubble of testing/synctest it takes no time; elsewhere internal/testkit/verdict polls. A benchmark may, and so may a wrong lock,
// whose mistake it is.
func TestNoSleeps(t *testing.T) {
	for _, f := range testFiles(t) {
		bubble := strings.HasSuffix(f.path, "bench_test.go") || strings.HasSuffix(f.path, "mutants_test.go")
		ast.Inspect(f.tree, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			bubble = bubble || ok && slices.Contains([]string{"synctest", "bubble", "bubbles", "Bubble", "perRow", "stories"}, id.Name)
			return true
		})
		if bubble {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s: time.Sleep outside of a bubble", f.set.Position(s.Pos()))
				}
			}
			return true
		})
	}
}
