package valkeynode

// The files of this package are those of clients/rueidis, with the names of valkey-go: it began as a copy of rueidis and
// keeps its API. Package clients/internal/lending has what both clients' nodes do. "go test -run TestGenerated -update" writes them. The tests of clients/rueidis are the tests of this
// package, too, in the same other names; they are not kept here.

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files of this package")

const header = "// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.\n\n"

// origin is a sentence of the package's documentation.
const origin = "// This package is generated from clients/rueidis, whose tests judge it, too: change it there.\n"

// kept are the tests that are here: the example, which the README quotes, and what it needs.
var kept = []string{"example_test.go", "export_test.go", "main_test.go"}

// inWordsOfValkey turns a source of clients/rueidis into one of this package.
func inWordsOfValkey(source string) string {
	source = strings.NewReplacer(
		"github.com/redis/rueidis", "github.com/valkey-io/valkey-go",
		"clients/rueidis", "clients/valkey",
		"rueidisnode", "valkeynode",
		"lib-name=rueidis", "lib-name=valkey",
		"IsRedisNil", "IsValkeyNil",
		"RedisMessage", "ValkeyMessage",
		"RedisResult", "ValkeyResult",
		"NonRedisError", "NonValkeyError",
	).Replace(source)
	source = regexp.MustCompile(`\brueidis\.([A-Z])`).ReplaceAllString(source, "valkey.$1")
	source = strings.ReplaceAll(source, "rueidis", "valkey-go")
	return header + strings.Replace(source, "//\n// # One server", "//\n"+origin+"//\n// # One server", 1)
}

// sources are the files of clients/rueidis in words of valkey-go, by their names.
func sources(t *testing.T) map[string]string {
	t.Helper()
	originals, err := filepath.Glob("../rueidis/*.go")
	if err != nil || len(originals) < 12 {
		t.Fatalf("clients/rueidis has %d files: %v", len(originals), err)
	}
	all := map[string]string{}
	for _, original := range originals {
		source, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(original)] = inWordsOfValkey(string(source))
	}
	return all
}

func TestGenerated(t *testing.T) {
	made := map[string]bool{"generated_test.go": true}
	for name, want := range sources(t) {
		if strings.HasSuffix(name, "_test.go") && !slices.Contains(kept, name) {
			continue
		}
		made[name] = true
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := os.ReadFile(name); string(got) != want {
			t.Errorf("%s is not what clients/rueidis has now: run go test -run TestGenerated -update", name)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !made[name] {
			t.Errorf("%s has no original in clients/rueidis", name)
		}
	}
}

// TestOfRueidis runs the tests of clients/rueidis on this package: the go command takes them from another folder, as if
// they were here, and leaves this file out.
func TestOfRueidis(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{filepath.Join(here, "generated_test.go"): ""}}
	for name, source := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			path := filepath.Join(elsewhere, name)
			if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(here, name)] = path
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(elsewhere, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "-race", "-count=1", "-v", "-shuffle=on", "-parallel=6", "-overlay", list, ".").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- PASS: TestConformance/"); n == 0 || !strings.Contains(string(out), "--- PASS: TestNode") {
		t.Errorf("the suite has not run:\n%s", out)
	}
}
