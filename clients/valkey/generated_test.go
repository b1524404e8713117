package valkeynode

// The files of this package are those of clients/rueidis, with the names of valkey-go: it began as a copy of rueidis and
// keeps its API. "go test -run TestGenerated -update" writes them.

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files of this package")

const header = "// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.\n\n"

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
	return header + strings.ReplaceAll(source, "rueidis", "valkey-go")
}

func TestGenerated(t *testing.T) {
	originals, err := filepath.Glob("../rueidis/*.go")
	if err != nil || len(originals) < 20 {
		t.Fatalf("clients/rueidis has %d files: %v", len(originals), err)
	}
	made := map[string]bool{"generated_test.go": true}
	for _, original := range originals {
		source, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		name, want := filepath.Base(original), inWordsOfValkey(string(source))
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
