// Inside package engine, files use each other downwards only.
package layout

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// engineFiles are the files of package engine, from the bottom to the top. Each knows only what is below
// it.
var engineFiles = []string{
	"context.go", "options.go", "lease.go", "probe.go", "renewal.go", "attempt.go", "subscription.go", "line.go", "handover.go", "acquire.go", "engine.go", "share.go",
}

// TestEngineDirections: no file of package engine uses what is declared in one above it.
func TestEngineDirections(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range packages(t, root)[module+"engine"].GoFiles {
		if !slices.Contains(engineFiles, name) {
			t.Fatalf("engine/%s has no place in the order %v", name, engineFiles)
		}
		f, err := parser.ParseFile(fset, filepath.Join(root, "engine", name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	height := func(pos token.Pos) int { return slices.Index(engineFiles, filepath.Base(fset.Position(pos).Filename)) }

	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: importer.ForCompiler(fset, "gc", compiled(t, "./engine"))}).Check(module+"engine", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for id, what := range info.Uses {
		if what.Pkg() != pkg || what.Pos() == token.NoPos {
			continue
		}
		checked++
		if height(what.Pos()) > height(id.Pos()) {
			t.Errorf("%s uses %s, which is above it: %s", fset.Position(id.Pos()), id.Name, fset.Position(what.Pos()))
		}
	}
	if checked < 1000 {
		t.Errorf("%d uses were checked: the test has lost its sight", checked)
	}
}

// compiled returns what the compiler has written about each package that a package needs.
func compiled(t *testing.T, name string) func(path string) (io.ReadCloser, error) {
	cmd := exec.Command("go", "list", "-race", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}
