package main

// The list of strategies that run on every edition, the environment of each run, and the summary.

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/subjects"
)

// TestStrategies: the list is that of the packages, and all of them are on it.
func TestStrategies(t *testing.T) {
	got, err := strategies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names, want []string
	for _, p := range got {
		names = append(names, path.Base(p))
	}
	for _, v := range subjects.All() {
		if !slices.Contains(want, v.Package) {
			want = append(want, v.Package)
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("strategies() = %q, want those of subjects.All(), %q", names, want)
	}
}

// TestSuite: each package has a test of the suite. One that has none would never pass.
func TestSuite(t *testing.T) {
	packages, err := judged(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		_, dir, _ := strings.Cut(p, "/locks/")
		files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		held := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(source), -1) {
				held = held || regexp.MustCompile(suite).MatchString(f[1])
			}
		}
		if !held {
			t.Errorf("%s has no test %s", p, suite)
		}
	}
}

// TestEnvironment: what the user has set for other tests names no other server here.
func TestEnvironment(t *testing.T) {
	for _, k := range []string{"REDIS_ADDRS", "REDIS_IMAGE", "REDIS_PACKAGE", "REDIS_KIND", "REDIS_SERVER"} {
		t.Setenv(k, "mine")
	}
	t.Setenv("REDIS_CACHE_DIR", "/mine")
	last := map[string]string{} // as the process that gets it sees it
	for _, kv := range environment("valkey-9.1") {
		k, v, _ := strings.Cut(kv, "=")
		last[k] = v
	}
	for k, want := range map[string]string{
		"REDIS_ADDRS": "", "REDIS_IMAGE": "", "REDIS_PACKAGE": "", "REDIS_KIND": "docker", "REDIS_SERVER": "valkey-9.1", "REDIS_CACHE_DIR": "/mine",
	} {
		if last[k] != want {
			t.Errorf("%s = %q, want %q", k, last[k], want)
		}
	}
}

func TestSummarize(t *testing.T) {
	var b bytes.Buffer
	summarize(&b, []result{
		{edition: "redis-7.0", version: "Redis 7.0.15", passed: []string{"a", "b"}, took: 61 * time.Second},
		{edition: "valkey-9.1", err: errors.New("no server"), took: time.Second},
	}, 2)
	const want = "" +
		"server      version       packages passed  time\n" +
		"redis-7.0   Redis 7.0.15  2 of 2           1m1s  ok\n" +
		"valkey-9.1  none          0 of 2           1s    FAIL\n"
	if b.String() != want {
		t.Errorf("summarize() =\n%s\nwant\n%s", b.String(), want)
	}
}
