package main

// Tests the list of packages that run on every edition, the environment of each run, what is read of it, and the summary.

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

// TestJudged: all strategies are judged, the nodes of all clients, and the tool.
func TestJudged(t *testing.T) {
	modules, err := judged(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range modules {
		got = append(got, m.packages...)
	}
	want := []string{"driver/rediskit", "clients/redigo", "internal/testkit/subjects", "cmd/locks", "lab/lessons", "clients/goredis", "clients/rueidis", "clients/redisc", "clients/valkey", "clients/gocron"}
	for _, v := range subjects.All() {
		want = append(want, v.Package)
	}
	for _, p := range want {
		if !slices.Contains(got, "github.com/lockstrategies/locks/"+p) {
			t.Errorf("judged() = %q, want %s among them", got, p)
		}
	}
}

// TestTake: a package counts if its tests have passed, and what a skipped test could not show is kept.
func TestTake(t *testing.T) {
	r := &result{unproven: map[string][]string{}}
	err := r.take(strings.NewReader(`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: NOT PROVEN: what ifeq does: no DELEX\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: skipped: Subject.OpenRW is nil\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: INCONCLUSIVE: the machine was late\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Output":"ok  \tq\t0.1s [no tests to run]\n"}
{"Action":"pass","Package":"q"}
{"Action":"fail","Package":"r","Test":"TestD"}
{"Action":"fail","Package":"r"}
`))
	want := map[string][]string{"NOT PROVEN: what ifeq does: no DELEX": {"p TestA"}, "INCONCLUSIVE: the machine was late": {"p TestC"}}
	if err != nil || !slices.Equal(r.passed, []string{"p"}) || !reflect.DeepEqual(r.unproven, want) {
		t.Errorf("take() = %v, passed %q, unproven %q, want p alone, and %q", err, r.passed, r.unproven, want)
	}
	if err := r.take(strings.NewReader("no JSON")); err == nil {
		t.Error("take() of what is no JSON = nil")
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
		{edition: "redis-7.0", version: "Redis 7.0.15", passed: []string{"a", "b"}, elapsed: 61 * time.Second, unproven: map[string][]string{"NOT PROVEN: x": {"a T", "b T"}}},
		{edition: "redis-8.6", version: "Redis 8.6.3", passed: []string{"a", "b"}, elapsed: time.Second},
		{edition: "valkey-9.1", err: errors.New("no server"), elapsed: time.Second},
	}, 2)
	const want = "" +
		"server      version       packages passed  time\n" +
		"redis-7.0   Redis 7.0.15  2 of 2           1m1s  2 tests have shown nothing: see below\n" +
		"redis-8.6   Redis 8.6.3   2 of 2           1s    ok\n" +
		"valkey-9.1  none          0 of 2           1s    FAIL\n" +
		"redis-7.0: NOT PROVEN: x (2 tests, such as a T)\n"
	if b.String() != want {
		t.Errorf("summarize() =\n%s\nwant\n%s", b.String(), want)
	}
}
