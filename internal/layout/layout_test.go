// Package layout holds the directions of imports: what may know of what.
package layout

import (
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

const (
	module = "github.com/lockstrategies/locks/"
	root   = "../.."
)

// wings are the parts of the house, by how the paths of their packages begin: the product, test support, the lab. Each
// knows itself and those before it.
var wings = []string{"", "internal/testkit/", "lab/"}

func wing(name string) (at int) {
	for i, prefix := range wings {
		if strings.HasPrefix(name+"/", prefix) {
			at = i
		}
	}
	return at
}

// floors are the packages of the product, from the ground up. A package imports what stands below it and what is in its
// own folder, but nothing else on its floor. So the contract knows no engine, and an algorithm no client and no
// other algorithm.
var floors = [][]string{
	{"internal/child", "internal/contract", "internal/holdstart", "internal/timeup", "internal/token"},
	{"strategy", "engine/internal/lifecycle", "engine/internal/scheduler"},
	{"driver", "election", "multilock", "internal/cli", "internal/client", "internal/subscription", "telemetry"},
	{"engine/internal/undo", "internal/algorithm/fences", "internal/algorithm/keycache"},
	{"engine", "driver/rediskit"},
	{"internal/memory", "internal/algorithm/queue", "internal/algorithm/stringkey"},
	{"internal/algorithm/holderset"},
	append(algorithms(), "conformance", "lockstest"),
	{"clients", "stores"},
	{"cmd", "docs", ".ci", "internal/layout", "clients/goredis/quickstart"},
}

// algorithms are the packages in the list of subjects.
func algorithms() (names []string) {
	for _, v := range subjects.All() {
		names = append(names, v.Package)
	}
	return names
}

// floor returns where a package stands, and by which name in floors: its own, or that of a folder around it.
func floor(name string) (at int, as string) {
	for as = name; as != "."; as = path.Dir(as) {
		for i, f := range floors {
			if slices.Contains(f, as) {
				return i, as
			}
		}
	}
	return -1, ""
}

// only are packages that know less of this module than stands below them.
var only = map[string][]string{
	"strategy":  {"internal/contract", "internal/timeup"},
	"driver":    {"strategy"},
	"telemetry": {"strategy"},
	"clients": {
		"strategy", "driver", "driver/rediskit", "election", "internal/client", "internal/subscription", "internal/timeup", "clients/redigo",
		"clients/internal/lending",
	},
}

// foreign are the packages of others that those of the root module import.
var foreign = map[string]string{
	"internal/token": "github.com/gofrs/uuid/v5",
	"clients/redigo": "github.com/gomodule/redigo/redis",
}

// TestDirections: the imports of all modules run downwards. Tests of the product may import test support; only the lab
// imports the lab. In the root module each package of others has one importer, and so have the servers for tests.
func TestDirections(t *testing.T) {
	found := make([]int, len(wings))
	for _, f := range goFiles(t, "") {
		name := path.Dir(f.path)
		mine, isTest := wing(name), strings.HasSuffix(f.path, "_test.go")
		found[mine]++
		known := mine
		if isTest {
			known = max(known, 1)
		}
		at, as := floor(name)
		if mine == 0 && at < 0 {
			t.Errorf("%s stands on no floor", f.path)
		}
		for _, spec := range f.tree.Imports {
			i, _ := strconv.Unquote(spec.Path.Value)
			to, ours := strings.CutPrefix(i, module)
			below, beside := floor(to)
			switch {
			case strings.HasPrefix(i, "github.com/ory/dockertest") && name != "internal/testkit/machine":
				t.Errorf("%s imports %s: only internal/testkit/machine may", f.path, i)
			case ours && wing(to) > known:
				t.Errorf("%s imports %s, of another wing", f.path, to)
			case isTest || mine > 0:
			case ours && (below > at || below == at && beside != as):
				t.Errorf("%s imports %s, which does not stand below it", f.path, to)
			case ours && only[as] != nil && !slices.Contains(only[as], to):
				t.Errorf("%s imports %s, allowed are %v", f.path, to, only[as])
			case !ours && at < len(floors)-1 && inRoot(name) && strings.Contains(i, ".") && foreign[name] != i:
				t.Errorf("%s imports %s, allowed are the standard library and %q", f.path, i, foreign[name])
			}
		}
	}
	if slices.Contains(found, 0) {
		t.Errorf("the wings have %v files: the test has lost its sight", found)
	}
}

// inRoot reports whether a package is of the root module.
func inRoot(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if _, err := os.Stat(filepath.Join(root, name, "go.mod")); err == nil {
			return false
		}
	}
	return true
}

// TestProduction: the production tool contains nothing of the tests and the lab.
func TestProduction(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Dir = filepath.Join(root, "cmd/locks")
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module alone
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	if !slices.Contains(all, module+"cmd/locks") {
		t.Fatal("there is no cmd/locks: the test has lost its sight")
	}
	for _, d := range all {
		for _, not := range []string{
			module + "internal/testkit", module + "conformance", module + "lockstest", module + "lab", "testing",
			"github.com/ory/dockertest", "github.com/alicebob/miniredis", "github.com/jedib0t/go-pretty", "github.com/HdrHistogram",
		} {
			if d == not || strings.HasPrefix(d, not+"/") {
				t.Errorf("cmd/locks depends on %s", d)
			}
		}
	}
}

// strategies are the files of the packages at the top level that are no part of the frame, by package.
func strategies(t *testing.T) map[string][]goFile {
	t.Helper()
	frame := []string{"strategy", "driver", "engine", "conformance", "lockstest", "election", "multilock"}
	found := map[string][]goFile{}
	for _, f := range goFiles(t, "") {
		if dir := path.Dir(f.path); !strings.ContainsAny(dir, "./") && !slices.Contains(frame, dir) {
			found[dir] = append(found[dir], f)
		}
	}
	return found
}

// locking are the sources of the algorithms and of what they stand on, by package.
func locking(t *testing.T) map[string][]goFile {
	t.Helper()
	all := strategies(t)
	for _, f := range goFiles(t, "") {
		if dir := path.Dir(f.path); slices.Contains([]string{"strategy", "driver", "driver/rediskit", "engine", "clients/redigo"}, dir) {
			all[dir] = append(all[dir], f)
		}
	}
	for dir, files := range all {
		all[dir] = slices.DeleteFunc(files, func(f goFile) bool { return strings.HasSuffix(f.path, "_test.go") })
	}
	return all
}

// TestNoWallClock: only setnxgetset goes by what a contender's clock says. The
// others measure how long ago something was, by the monotonic clock, so a clock that
// is wrong or set does not move it; internal/testkit/subjects relies on that. (A token has
// the time in it, for people who inspect the lock; no lock reads it.)
func TestNoWallClock(t *testing.T) {
	const stamped = "setnxgetset"
	seen := false
	for name, files := range locking(t) {
		for _, f := range files {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(wallClock, s.Sel.Name) {
					if seen = seen || name == stamped; name != stamped {
						t.Errorf("%s reads %s: only %s may read a time's value", f.path, s.Sel.Name, stamped)
					}
				}
				return true
			})
		}
	}
	if !seen {
		t.Errorf("%s reads no clock: the test has lost its sight", stamped)
	}
}

// TestNoDates: no strategy tells a server when a lock ends, only for how long it lasts, so a
// contender's clock has no part in it. A script may, if it takes the date from the server. (To
// ask for the right to a command, as a rediskit.Right and rights.lua do, is not to use it.)
func TestNoDates(t *testing.T) {
	dates := regexp.MustCompile(`(?i)\b(PXAT|EXAT|P?EXPIREAT)\b`)
	scripts := 0
	for name, files := range locking(t) {
		for _, f := range files {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if field, ok := n.(*ast.KeyValueExpr); ok {
					if name, ok := field.Key.(*ast.Ident); ok && name.Name == "Commands" {
						return false
					}
				}
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && dates.MatchString(s.Value) {
					t.Errorf("%s: %s: a lock's end is given as a date", f.path, s.Value)
				}
				return true
			})
		}
		lua, err := filepath.Glob(filepath.Join(root, name, "*.lua"))
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		asked := false
		for _, file := range lua {
			text := read(t, file)
			if scripts++; dates.MatchString(text) && filepath.Base(file) != "rights.lua" {
				told = append(told, filepath.Base(file))
			}
			asked = asked || strings.Contains(text, "redis.call('TIME')")
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
