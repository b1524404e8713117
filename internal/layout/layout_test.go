// Package layout holds the directions of imports: what may know of what.
package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/lockstrategies/locks/"
	root   = "../.."
)

type pkg struct {
	ImportPath, Dir                          string
	Standard                                 bool
	Imports, TestImports, XTestImports, Deps []string
	GoFiles, TestGoFiles, XTestGoFiles       []string
}

// packages lists the packages of the module in a folder, and all that they need, by their paths.
func packages(t *testing.T, dir string) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,Imports,TestImports,XTestImports,Deps,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module alone
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	all := map[string]pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// foreign returns the imports that are neither the standard library's nor allowed.
func foreign(all map[string]pkg, imports []string, allowed ...string) []string {
	return slices.DeleteFunc(slices.Clone(imports), func(i string) bool {
		return all[i].Standard || i == "C" || slices.Contains(allowed, i)
	})
}

const (
	uuid   = "github.com/gofrs/uuid/v5"
	redigo = "github.com/gomodule/redigo/redis"
)

// TestDirections: strategy ← driver ← engine ← algorithms. The contract needs the standard library
// alone, the suite needs no client, and an algorithm knows no other.
func TestDirections(t *testing.T) {
	all := packages(t, root)
	const (
		strategy = module + "strategy"
		driver   = module + "driver"
		engine   = module + "engine"
		token    = module + "internal/token"
		fences   = module + "internal/fences"
		names    = module + "internal/names"
		plain    = module + "internal/plain"
		queue    = module + "internal/queue"
		holders  = module + "internal/holders"
	)
	allowed := map[string][]string{
		"strategy": {},
		"driver":   {strategy, token},
		"engine": {strategy, driver, token,
			engine + "/internal/lifecycle", engine + "/internal/scheduler", engine + "/internal/undo", engine + "/internal/waitline"},
		"engine/internal/lifecycle": {},
		"engine/internal/scheduler": {},
		"engine/internal/waitline":  {},
		"engine/internal/undo":      {strategy, driver, engine + "/internal/lifecycle"},
		"conformance":               {strategy, driver, engine, module + "internal/child"},
		"internal/child":            {},
		"election":                  {strategy},
		"lockstest":                 {strategy, driver, engine, module + "conformance"},

		"internal/token":    {uuid},
		"internal/fences":   {},
		"internal/names":    {driver},
		"internal/plain":    {strategy, driver},
		"internal/queue":    {strategy, driver},
		"internal/holders":  {strategy, driver, names, queue},
		"internal/node":     {strategy, driver, module + "internal/callback", module + "internal/timeup", module + "internal/transaction", redigo},
		"internal/nodetest": {strategy, driver, module + "internal/redistest", module + "internal/verdict"},

		"telemetry/lockslog": {strategy},
	}
	for name := range strategies(all) {
		allowed[name] = []string{strategy, driver, engine, token, fences, names, plain, queue, holders, module + "internal/node", redigo}
	}
	for name, may := range allowed {
		p, ok := all[module+name]
		if !ok {
			t.Errorf("package %s is not there", name)
			continue
		}
		if bad := foreign(all, p.Imports, may...); len(bad) > 0 {
			t.Errorf("%s imports %v, allowed are the standard library and %v", name, bad, may)
		}
	}
}

// TestOneImporterOfDockertest: servers for tests come from one place, and no
// package that users import comes near it.
func TestOneImporterOfDockertest(t *testing.T) {
	all := packages(t, root)
	maps.Copy(all, packages(t, filepath.Join(root, "lab")))
	const redistest = module + "internal/redistest"
	for name, p := range all {
		if !strings.HasPrefix(name, module) || name == redistest {
			continue
		}
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if strings.HasPrefix(i, "github.com/ory/dockertest") {
				t.Errorf("%s imports %s: only internal/redistest may", name, i)
			}
		}
		ours := strings.HasPrefix(name, module+"internal/") || strings.HasPrefix(name, module+"lab/")
		if !ours && slices.Contains(p.Deps, redistest) {
			t.Errorf("%s depends on internal/redistest outside its tests", name)
		}
	}
}

// TestProduction: the production tool contains nothing of the tests and the lab.
func TestProduction(t *testing.T) {
	p, ok := packages(t, root)[module+"cmd/locks"]
	if !ok {
		t.Fatal("there is no cmd/locks: the test has lost its sight")
	}
	for _, d := range p.Deps {
		for _, not := range []string{
			module + "internal/redistest", module + "internal/subjects", module + "internal/rig", module + "conformance", "testing",
			"github.com/ory/dockertest", "github.com/alicebob/miniredis", "github.com/jedib0t/go-pretty", "github.com/HdrHistogram",
		} {
			if d == not || strings.HasPrefix(d, not+"/") {
				t.Errorf("cmd/locks depends on %s", d)
			}
		}
	}
}

// TestNobodyNeedsTheLab: only modules inside lab require it, so nothing else can import it.
func TestNobodyNeedsTheLab(t *testing.T) {
	inside := 0
	err := filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(file) != "go.mod" {
			return err
		}
		text, err := os.ReadFile(file)
		if !bytes.Contains(text, []byte(module+"lab")) {
			return err
		}
		if strings.HasPrefix(file, filepath.Join(root, "lab")+string(filepath.Separator)) {
			inside++
		} else {
			t.Errorf("%s names the lab", file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if inside == 0 {
		t.Error("no go.mod names the lab: the test has lost its sight")
	}
}

// strategies are the packages at the top level that are no part of the frame.
func strategies(all map[string]pkg) map[string]pkg {
	found := map[string]pkg{}
	for name, p := range all {
		rest, ours := strings.CutPrefix(name, module)
		if ours && path.Dir(rest) == "." && !slices.Contains([]string{"strategy", "driver", "engine", "conformance", "lockstest", "election"}, rest) {
			found[rest] = p
		}
	}
	return found
}

// TestNoWallClock: only setnxgetset goes by what a contender's clock says. The
// others measure how long ago something was, by the monotonic clock, so a clock that
// is wrong or set does not move it; internal/subjects relies on that. (A token has
// the time in it, for people who inspect the lock; no lock reads it.)
func TestNoWallClock(t *testing.T) {
	all := packages(t, root)
	const stamped = "setnxgetset"
	readers := func(name string) (found []string) {
		for _, file := range all[module+name].GoFiles {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(wallClock, s.Sel.Name) {
					found = append(found, file+" reads "+s.Sel.Name)
				}
				return true
			})
		}
		return found
	}
	names := append(slices.Collect(maps.Keys(strategies(all))), "strategy", "driver", "engine", "internal/node")
	for _, name := range names {
		if found := readers(name); len(found) > 0 && name != stamped {
			t.Errorf("%s: %v: only %s may read a time's value", name, found, stamped)
		}
	}
	if len(readers(stamped)) == 0 {
		t.Errorf("%s reads no clock: the test has lost its sight", stamped)
	}
}

// TestNoDates: no strategy tells a server when a lock ends, only for how long it lasts, so a
// contender's clock has no part in it. A script may, if it takes the date from the server. (To
// ask for the right to a command, as a driver.Right and rights.lua do, is not to use it.)
func TestNoDates(t *testing.T) {
	dates := regexp.MustCompile(`(?i)\b(PXAT|EXAT|P?EXPIREAT)\b`)
	all, scripts := packages(t, root), 0
	names := append(slices.Collect(maps.Keys(strategies(all))), "strategy", "driver", "engine", "internal/node")
	for _, name := range names {
		for _, file := range all[module+name].GoFiles {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if field, ok := n.(*ast.KeyValueExpr); ok {
					if name, ok := field.Key.(*ast.Ident); ok && name.Name == "Commands" {
						return false
					}
				}
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && dates.MatchString(s.Value) {
					t.Errorf("%s/%s: %s: a lock's end is given as a date", name, file, s.Value)
				}
				return true
			})
		}
		files, err := filepath.Glob(filepath.Join(root, name, "*.lua"))
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		asked := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if scripts++; dates.Match(text) && filepath.Base(file) != "rights.lua" {
				told = append(told, filepath.Base(file))
			}
			asked = asked || strings.Contains(string(text), "redis.call('TIME')")
		}
		if len(told) > 0 && !asked {
			t.Errorf("%s: %v tell a lock's end as a date, and no script asks the server for the time", name, told)
		}
	}
	if scripts == 0 {
		t.Error("there are no scripts: the test has lost its sight")
	}
}

// wallClock are the methods of time.Time that give away its value, not its distance
// from another.
var wallClock = []string{
	"Unix", "UnixMilli", "UnixMicro", "UnixNano", "Date", "Clock", "Year", "YearDay", "Month", "Weekday", "ISOWeek",
	"Format", "AppendFormat", "MarshalText", "AppendText", "MarshalBinary", "AppendBinary", "MarshalJSON", "GobEncode",
}
