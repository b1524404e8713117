package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A subject is a package whose sources get faults, and the tests that must find them.
type subject struct {
	dir    string
	judges []judge // its own tests are the first
}

// A judge is a package with tests, all or some of them.
type judge struct {
	dir string
	run string // a regexp; empty: all
}

// onServers are the tests of all algorithms on real servers that add to an algorithm's own: what each right
// is for, and what a key may hold.
const onServers = "^(TestRights|TestRightsBefore7|TestForbiddenToTidy|TestKinds)$"

var subjects = []subject{
	{"engine", []judge{{"engine", ""}, {"conformance", "^TestMemory$"}}},
	{"engine/internal/lifecycle", []judge{{"engine/internal/lifecycle", ""}, {"engine", ""}, {"conformance", "^TestMemory$"}}},
	{"engine/internal/scheduler", []judge{{"engine/internal/scheduler", ""}, {"engine", ""}}},
	{"engine/internal/undo", []judge{{"engine/internal/undo", ""}, {"engine", ""}}},
	{"driver", []judge{{"driver", ""}, {"engine", ""}}},
	{"driver/rediskit", []judge{{"driver/rediskit", ""}, {"engine", ""}}},
	{"strategy", []judge{{"strategy", ""}, {"engine", ""}, {"conformance", "^TestMemory$"}}},
	{"multilock", []judge{{"multilock", ""}, {"engine", "All"}}},
	{"setnxgetset", []judge{{"setnxgetset", ""}, {"internal/testkit/subjects", onServers}}},
	{"setnxpx", []judge{{"setnxpx", ""}, {"internal/testkit/subjects", onServers}}},
	{"luascript", []judge{{"luascript", ""}, {"internal/testkit/subjects", onServers}}},
	{"ifeq", []judge{{"ifeq", ""}, {"internal/testkit/subjects", onServers}}},
	{"fairqueue", []judge{{"fairqueue", ""}, {"internal/testkit/subjects", onServers}}},
	{"internal/algorithm/fences", []judge{{"fairqueue", ""}, {"luascript", ""}}},
	{"rwlock", []judge{{"rwlock", ""}, {"internal/testkit/subjects", onServers}}},
	{"semaphore", []judge{{"semaphore", ""}, {"internal/testkit/subjects", onServers}}},
	{"internal/algorithm/queue", []judge{{"internal/algorithm/queue", ""}, {"fairqueue", ""}, {"semaphore", ""}}},
	{"internal/algorithm/holderset", []judge{{"semaphore", ""}, {"rwlock", ""}, {"internal/testkit/subjects", "^TestKinds$"}}},
	{"reentrant", []judge{{"reentrant", ""}, {"internal/testkit/subjects", onServers}}},
	{"redlock", []judge{{"redlock", ""}, {"internal/testkit/subjects", ""}}},
	{"clients/redigo", []judge{{"clients/redigo", ""}}},
	{"internal/client", []judge{{"internal/client", ""}, {"clients/redigo", ""}}},
	{"internal/subscription", []judge{{"internal/subscription", ""}, {"clients/redigo", ""}}},
	{"internal/token", []judge{{"internal/token", ""}, {"engine", ""}}},
	{"internal/algorithm/keycache", []judge{{"internal/algorithm/keycache", ""}}},
	{"internal/algorithm/stringkey", []judge{{"setnxpx", ""}, {"ifeq", ""}}},
	{"internal/timeup", []judge{{"internal/timeup", ""}}},
	{"clients/goredis", []judge{{"clients/goredis", ""}}},
	{"clients/rueidis", []judge{{"clients/rueidis", ""}}},
	{"clients/internal/lending", []judge{{"clients/internal/lending", ""}, {"clients/rueidis", ""}}},
	{"clients/redisc", []judge{{"clients/redisc", ""}}},
	{"clients/gocron", []judge{{"clients/gocron", ""}}},
	{"election", []judge{{"election", ""}}},
	{"lockstest", []judge{{"lockstest", ""}}},
	{"telemetry/lockslog", []judge{{"telemetry/lockslog", ""}}},
}

// A test is a top-level test, or an example, in a compiled test binary.
type test struct {
	binary, dir, name string
	elapsed           time.Duration
	reaches           map[int]bool
}

// An exam is the mutants of a subject and the tests that judge them.
type exam struct {
	root, work string
	subject
	files   []*goFile
	mutants []*mutant
	tests   []*test // the quickest first
	broken  map[*mutant]bool
}

// prepare finds the mutants of a subject and compiles its tests, with all Go mutants in them.
func prepare(root, work string, s subject) (*exam, error) {
	x := &exam{root: root, work: work, subject: s, broken: map[*mutant]bool{}}
	var list struct {
		Name    string
		GoFiles []string
	}
	out, err := command(filepath.Join(root, s.dir), "go", "list", "-json=Name,GoFiles", ".").Output()
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", s.dir, err)
	}
	for _, name := range list.GoFiles {
		path := filepath.Join(s.dir, name)
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		f, err := mutateGo(path, string(source))
		if err != nil {
			return nil, err
		}
		x.files = append(x.files, f)
		x.mutants = append(x.mutants, f.mutants...)
	}
	scripts, err := filepath.Glob(filepath.Join(root, s.dir, "*.lua"))
	if err != nil {
		return nil, err
	}
	for _, path := range scripts {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		x.mutants = append(x.mutants, mutateLua(filepath.Join(s.dir, filepath.Base(path)), string(source))...)
	}
	number(x.mutants)
	if err := x.compile(list.Name); err != nil {
		return nil, err
	}
	x.mutants = slices.DeleteFunc(x.mutants, func(m *mutant) bool { return x.broken[m] })
	return x, nil
}

// compile makes the first judge's test binary. A mutant that does not compile is left out.
func (x *exam) compile(name string) error {
	helpers, err := os.ReadFile(filepath.Join(x.root, "lab/mutants/helpers.go.txt"))
	if err != nil {
		return err
	}
	dir := filepath.Join(x.root, x.dir)
	text := strings.NewReplacer("PACKAGE", name, "COUNT", strconv.Itoa(len(x.mutants)), "DIR", dir).Replace(string(helpers))
	replace := map[string]string{filepath.Join(dir, "mutants_overlay.go"): filepath.Join(x.work, "helpers.go")}
	if err := os.WriteFile(filepath.Join(x.work, "helpers.go"), []byte(text), 0o600); err != nil {
		return err
	}
	for range 20 {
		sources, spans := map[string]string{}, map[string][]edit{}
		for i, f := range x.files {
			name := fmt.Sprintf("%d.go", i) // which the compiler's complaints name
			sources[name], spans[name] = f.schemata(x.broken)
			at := filepath.Join(x.work, name)
			replace[filepath.Join(x.root, f.path)] = at
			if err := os.WriteFile(at, []byte(sources[name]), 0o600); err != nil {
				return err
			}
		}
		overlay, err := json.Marshal(map[string]any{"Replace": replace})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(x.work, "overlay.json"), overlay, 0o600); err != nil {
			return err
		}
		out, err := x.build(0)
		if err == nil {
			return nil
		}
		if !x.blame(out, sources, spans) {
			return fmt.Errorf("%s with all its mutants does not compile:\n%s", x.dir, out)
		}
	}
	return fmt.Errorf("%s with its mutants does not compile, whatever is left out", x.dir)
}

func (x *exam) build(judge int) (said string, err error) {
	out, err := command(filepath.Join(x.root, x.judges[judge].dir), "go", "test", "-c", "-vet=off", "-gcflags="+importPath(x.root, x.dir)+"=-e",
		"-overlay="+filepath.Join(x.work, "overlay.json"), "-o", x.binary(judge), ".").CombinedOutput()
	return string(out), err
}

// importPath is what the compiler's flags are for.
func importPath(root, dir string) string {
	out, _ := command(filepath.Join(root, dir), "go", "list", ".").Output()
	return strings.TrimSpace(string(out))
}

func (x *exam) binary(judge int) string {
	return filepath.Join(x.work, fmt.Sprintf("judge%d.test", judge))
}

var complaint = regexp.MustCompile(`(?m)^(?:\S*/)?(\w+\.go):(\d+):(\d+): `)

// blame finds the mutants that the compiler complains about: the smallest around each place.
func (x *exam) blame(out string, sources map[string]string, spans map[string][]edit) (found bool) {
	for _, c := range complaint.FindAllStringSubmatch(out, -1) {
		line, _ := strconv.Atoi(c[2])
		column, _ := strconv.Atoi(c[3])
		at := 0
		for l := range strings.Lines(sources[c[1]]) {
			if line--; line == 0 {
				break
			}
			at += len(l)
		}
		at += column - 1
		var best *edit
		for i, s := range spans[c[1]] {
			if s.start <= at && at <= s.end && !x.broken[s.m] && (best == nil || s.end-s.start < best.end-best.start) {
				best = &spans[c[1]][i]
			}
		}
		if best != nil {
			x.broken[best.m] = true
			found = true
		}
	}
	return found
}

// control runs each test of a judge alone, without a fault. It notes how long it takes and what it reaches.
func (x *exam) control(judge, workers int) error {
	if judge > 0 {
		if said, err := x.build(judge); err != nil {
			return fmt.Errorf("the tests of %s do not compile: %w\n%s", x.judges[judge].dir, err, said)
		}
	}
	j := x.judges[judge]
	cmd := command(filepath.Join(x.root, j.dir), x.binary(judge), "-test.list", cmp.Or(j.run, "."))
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the tests of %s: %w", j.dir, err)
	}
	x.tests = nil
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); regexp.MustCompile(`^(Test|Example|Fuzz)\w*$`).MatchString(name) {
			x.tests = append(x.tests, &test{binary: x.binary(judge), dir: cmd.Dir, name: name})
		}
	}
	var failed error
	var mu sync.Mutex
	parallel(workers, x.tests, func(i int, t *test) {
		log := filepath.Join(x.work, fmt.Sprintf("reached%d-%d", judge, i))
		end := x.play([]*test{t}, 10*time.Minute, "MUTANT_REACHED="+log)
		t.elapsed = end.elapsed + 10*time.Millisecond
		mu.Lock()
		defer mu.Unlock()
		if end.fate != survived {
			failed = errors.Join(failed, fmt.Errorf("%s fails without a fault: %s by %s\n%s", t.name, end.fate, end.by, end.output))
		}
		t.reaches = reached(log)
	})
	slices.SortStableFunc(x.tests, func(a, b *test) int { return int(a.elapsed - b.elapsed) })
	return failed
}

var reachedMark = regexp.MustCompile(`mutant (\d+)`)

func reached(log string) map[int]bool {
	b, _ := os.ReadFile(log)
	ids := map[int]bool{}
	for _, m := range reachedMark.FindAllSubmatch(b, -1) {
		id, _ := strconv.Atoi(string(m[1]))
		ids[id] = true
	}
	return ids
}

// A fate is what became of a mutant.
type fate string

const (
	killed     fate = "killed"
	timedOut   fate = "timed out"
	survived   fate = "survived"
	notReached fate = "not reached"
)

func (v fate) alive() bool { return v == survived || v == notReached }

// An outcome is a verdict and its reason.
type outcome struct {
	fate
	by      string // the test that failed first
	output  string
	elapsed time.Duration
}

// judge runs the tests that reach a mutant, the quick ones first. Of a script nobody knows which reach it.
func (x *exam) judge(m *mutant) outcome {
	tests := slices.Clone(x.tests)
	if m.script == "" {
		tests = slices.DeleteFunc(tests, func(t *test) bool { return !t.reaches[m.id] })
	} else {
		// First the tables of scripts: they give a verdict at once, where others would wait for a lock.
		slices.SortStableFunc(tests, func(a, b *test) int { return cmp.Compare(tables(b), tables(a)) })
	}
	if len(tests) == 0 {
		return outcome{fate: notReached}
	}
	env, discard := x.put(m)
	defer discard()
	began := time.Now()
	for _, batch := range batches(tests) {
		var limit time.Duration
		for _, t := range batch {
			limit += t.elapsed
		}
		if end := x.play(batch, max(10*time.Second, 3*limit+5*time.Second), env...); end.fate != survived {
			end.elapsed = time.Since(began)
			return end
		}
	}
	return outcome{fate: survived, elapsed: time.Since(began)}
}

// put returns the environment in which a test binary plays the mutant.
func (x *exam) put(m *mutant) (env []string, discard func()) {
	env = []string{"MUTANT=" + strconv.Itoa(m.id)}
	if m.script == "" {
		return env, func() {}
	}
	dir := filepath.Join(x.work, fmt.Sprintf("script%d", m.id))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, filepath.Base(m.file)), []byte(m.script), 0o600)); err != nil {
		panic(err)
	}
	return append(env, "MUTANT_SCRIPTS="+dir), func() { os.RemoveAll(dir) }
}

// tables is 1 of a test that plays the tables of a script (internal/testkit/scripttest), 0 of others.
func tables(t *test) int {
	if strings.HasSuffix(t.name, "Script") || strings.HasSuffix(t.name, "Scripts") {
		return 1
	}
	return 0
}

// batches are, of tests in their order, first those that take no time, such as tests with a fake server,
// which give a verdict where the others would wait for one; then the quick ones, up to a second.
func batches(tests []*test) (all [][]*test) {
	from := time.Duration(-1)
	for _, to := range []time.Duration{100 * time.Millisecond, time.Second, math.MaxInt64} {
		var batch []*test
		var sum time.Duration
		for _, t := range tests {
			if sum += t.elapsed; from < sum && sum <= to {
				batch = append(batch, t)
			}
		}
		if len(batch) > 0 {
			all = append(all, batch)
		}
		from = to
	}
	return all
}

// These lines a test binary prints. The time at the end of a test leaves parallel subtests out.
var (
	running = regexp.MustCompile(`^\x16?=== (?:RUN|NAME|CONT)\s+(\S+)`)
	passed  = regexp.MustCompile(`^\x16?--- (?:PASS|SKIP): [^/\s]+ `)
	failure = regexp.MustCompile(`^\x16?(?:--- FAIL: (\S+)|panic: |fatal error: |FAIL)`)
)

// play runs tests of one binary until the first fails. The outcome's time is without the process's start.
func (x *exam) play(tests []*test, limit time.Duration, env ...string) (end outcome) {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	if len(names) == 1 {
		pattern = "^" + strings.ReplaceAll(names[0], "/", "$/^") + "$" // it may be a subtest
	}
	cmd := exec.Command(tests[0].binary, "-test.v=test2json", "-test.failfast", "-test.parallel=8", "-test.timeout=0", "-test.run="+pattern)
	cmd.Dir = tests[0].dir
	cmd.Env = append(os.Environ(), append(env, "REDIS_KIND=process", "TMPDIR="+filepath.Join(x.work, "tmp"))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, in, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	in.Close()
	if err != nil {
		panic(err)
	}
	kill := func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	ending, done := context.WithTimeout(interrupted, limit)
	defer done()
	over := context.AfterFunc(ending, func() {
		kill()
		out.SetReadDeadline(time.Now())
	})
	var text []string
	var last string // the test that has begun last
	end.fate = survived
	var began time.Time
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if end.fate == survived && len(text) == 200 {
			text = text[1:]
		}
		if text = append(text, line); len(text) > 300 { // enough of what follows the failure
			text = text[:300]
		}
		if found := running.FindStringSubmatch(line); found != nil {
			last = found[1]
			if began.IsZero() {
				began = time.Now()
			}
		} else if passed.MatchString(line) {
			end.elapsed = time.Since(began)
		}
		if found := failure.FindStringSubmatch(line); found != nil && end.fate == survived {
			end.fate, end.by = killed, cmp.Or(found[1], strings.TrimSpace(line))
			kill()
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				kill()
			}
			break
		}
	}
	err = cmd.Wait()
	late := !over()
	out.Close()
	kill() // its children
	switch {
	case end.fate == killed:
	case late:
		end.fate, end.by = timedOut, last
	case err != nil:
		end.fate, end.by = killed, err.Error()
	}
	end.output = strings.Join(text, "")
	return end
}

// parallel calls do for each of the list, several at a time, until it is interrupted.
func parallel[T any](workers int, list []T, do func(int, T)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, workers)
	for i, e := range list {
		slots <- struct{}{}
		if interrupted.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			do(i, e)
		})
	}
	all.Wait()
}
