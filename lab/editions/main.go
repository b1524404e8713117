// Editions runs the tests of all that speaks to servers on one server after another: the algorithms, the nodes of all
// clients, the tool and the lessons, on those of redistest.Editions, or on REDIS_SERVER alone, in containers. Arguments are
// further ones of go test, such as -count=10. At the end it says what no server could show, and why. It exits with 1
// unless all tests passed on all.
//
//	make editions
//	make editions ARGS='-count=10 -shuffle=on'
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "editions:", err)
		os.Exit(1)
	}
}

// A result is how it went on one server.
type result struct {
	edition  string
	version  string // "": there was no server
	passed   []string
	unproven map[string][]string // why tests were skipped: the tests
	elapsed  time.Duration
	err      error
}

func run(ctx context.Context, args []string) error {
	modules, err := judged(ctx)
	if err != nil {
		return err
	}
	packages := 0
	for _, m := range modules {
		packages += len(m.packages)
	}
	editions := redistest.Editions()
	if one := os.Getenv("REDIS_SERVER"); one != "" {
		editions = []string{one}
	}
	var results []result
	failed := 0
	for _, e := range editions {
		began := time.Now()
		r := result{edition: e, unproven: map[string][]string{}}
		if r.version, r.err = find(ctx, e); r.err == nil {
			for _, m := range modules {
				r.err = errors.Join(r.err, r.test(ctx, m, args))
			}
		}
		r.elapsed = time.Since(began)
		if r.err != nil {
			failed++
			fmt.Fprintf(os.Stderr, "editions: %s: %v\n", e, r.err)
		}
		results = append(results, r)
		fmt.Println()
		if ctx.Err() != nil {
			break
		}
	}
	summarize(os.Stdout, results, packages)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d servers were not passed", failed, len(editions))
	}
	return nil
}

// A module is those of its packages whose tests speak to servers.
type module struct {
	dir      string
	packages []string
}

// dirs are the modules that speak to servers.
var dirs = []string{".", "cmd/locks", "clients/goredis", "clients/rueidis", "clients/valkey", "clients/redisc", "clients/gocron"}

// judged are the packages whose tests get servers from redistest, and the lessons.
func judged(ctx context.Context) ([]module, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockstrategies/locks").Output()
	if err != nil {
		return nil, fmt.Errorf("run it in the module lab: go list: %w", err)
	}
	var all []module
	for _, dir := range dirs {
		dir = filepath.Join(strings.TrimSpace(string(root)), dir)
		cmd := exec.CommandContext(ctx, "go", "list", "-f", `{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./...")
		cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, append(os.Environ(), "GOWORK=off") // also where a workspace leaves this module out
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", dir, err)
		}
		m := module{dir: dir}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			asks := slices.ContainsFunc(f[1:], func(imported string) bool { return strings.HasSuffix(imported, "/locks/internal/testkit/redistest") })
			if asks && !strings.HasSuffix(f[0], "/internal/testkit/redistest") && !strings.HasSuffix(f[0], "/internal/testkit/rig") {
				m.packages = append(m.packages, f[0])
			}
		}
		if len(m.packages) == 0 {
			return nil, fmt.Errorf("no package in %s asks for servers", dir)
		}
		all = append(all, m)
	}
	return append(all, module{filepath.Join(strings.TrimSpace(string(root)), "lab"), []string{"github.com/lockstrategies/locks/lab/lessons"}}), nil
}

// want is a container of the edition, however the environment would have it.
func want(e string) redistest.Want {
	return redistest.Want{Kind: redistest.Docker, Server: e, Cache: os.Getenv("REDIS_CACHE_DIR"), Log: os.Stderr}
}

// find prints which server it will be, and why, sees that it answers, and returns
// what it says of itself. It does slow work once for all tests.
func find(ctx context.Context, e string) (version string, err error) {
	f, err := redistest.Open(ctx, want(e))
	if err != nil {
		fmt.Printf("%s: none\n", e)
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fmt.Printf("%s: %s\n", e, f.Choice())
	s, err := f.Shared(ctx)
	if err != nil {
		return "", err
	}
	fmt.Printf("%s: %s answers\n", e, s.Version())
	return s.Version(), nil
}

// test runs the tests of a module, and takes in what they show.
func (r *result) test(ctx context.Context, m module, args []string) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-race", "-count=1", "-timeout=1h", "-p=1"}, args, m.packages)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test ends its tests
	cmd.WaitDelay = 30 * time.Second
	cmd.Dir, cmd.Env, cmd.Stderr = m.dir, environment(r.edition), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	passed := len(r.passed)
	err = r.take(out)
	if err = errors.Join(err, cmd.Wait()); err == nil && len(r.passed)-passed < len(m.packages) {
		err = fmt.Errorf("%d of %d packages of %s have run", len(r.passed)-passed, len(m.packages), m.dir)
	}
	return err
}

// An event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// take reads what go test says: a line for each package, what failed, and why tests were skipped.
func (r *result) take(out io.Reader) error {
	said := map[string]string{} // by each test
	for d := json.NewDecoder(out); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			io.Copy(io.Discard, out) //nolint:errcheck // go test must not hang
			return err
		}
		test := e.Package + " " + e.Test
		switch e.Action {
		case "output":
			said[test] += e.Output
		case "skip":
			if why := unproven(said[test]); why != "" {
				r.unproven[why] = append(r.unproven[why], test)
			}
		case "fail":
			fmt.Printf("FAIL %s\n%s", test, said[test])
		case "pass":
			if e.Test == "" && !strings.Contains(said[test], "no tests to run") {
				fmt.Println("ok  ", e.Package)
				r.passed = append(r.passed, e.Package)
			}
		}
		if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
			delete(said, test)
		}
	}
}

// unproven is what a skipped test says that it could not show, and why; empty: it is of no account here, such as a property
// of locks that a strategy does not have.
func unproven(said string) string {
	for _, mark := range []string{"NOT PROVEN", "INCONCLUSIVE"} {
		if i := strings.Index(said, mark); i >= 0 {
			why, _, _ := strings.Cut(said[i:], "\n")
			return why
		}
	}
	return ""
}

// environment names the edition, and nothing that would name another server.
func environment(e string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"REDIS_ADDRS", "REDIS_IMAGE", "REDIS_PACKAGE"}, name)
	})
	return append(env, "GOWORK=off", "REDIS_KIND="+string(redistest.Docker), "REDIS_SERVER="+e)
}

func summarize(w io.Writer, results []result, packages int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "server\tversion\tpackages passed\ttime")
	for _, r := range results {
		verdict, skipped := "ok", 0
		for _, tests := range r.unproven {
			skipped += len(tests)
		}
		switch {
		case r.err != nil:
			verdict = "FAIL"
		case skipped > 0:
			verdict = fmt.Sprintf("%d tests have shown nothing: see below", skipped)
		}
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%v\t%s\n", r.edition, cmp.Or(r.version, "none"), len(r.passed), packages, r.elapsed.Round(time.Second), verdict)
	}
	t.Flush()
	for _, r := range results {
		for _, why := range slices.Sorted(maps.Keys(r.unproven)) {
			fmt.Fprintf(w, "%s: %s (%d tests, such as %s)\n", r.edition, why, len(r.unproven[why]), r.unproven[why][0])
		}
	}
}
