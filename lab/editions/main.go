// Editions holds the conformance suite on all strategies, and the lessons, on one server after another:
// those of redistest.Editions, or REDIS_SERVER alone, in containers. Arguments are
// further ones of go test, such as -count=10. It exits with 1 unless all passed on all.
//
//	make editions
//	make editions ARGS='-count=10 -shuffle=on'
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/lockstrategies/locks/internal/redistest"
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
	edition string
	version string // "": there was no server
	passed  []string
	took    time.Duration
	err     error
}

func run(ctx context.Context, args []string) error {
	packages, err := judged(ctx)
	if err != nil {
		return err
	}
	editions := redistest.Editions()
	if one := os.Getenv("REDIS_SERVER"); one != "" {
		editions = []string{one}
	}
	var results []result
	failed := 0
	for _, e := range editions {
		began := time.Now()
		r := result{edition: e}
		if r.version, r.err = find(ctx, e); r.err == nil {
			r.passed, r.err = test(ctx, e, packages, args)
		}
		r.took = time.Since(began)
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
	summarize(os.Stdout, results, len(packages))
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d servers were not passed", failed, len(editions))
	}
	return nil
}

// judged are the packages with tests of the suite.
func judged(ctx context.Context) ([]string, error) {
	packages, err := strategies(ctx)
	if err != nil {
		return nil, err
	}
	return append(packages, path.Dir(packages[0])+"/lab/lessons"), nil
}

// strategies are the packages at the top of the library that hold the suite on
// themselves: a test of internal/layout sees to it that all strategies do.
func strategies(ctx context.Context) ([]string, error) {
	const list = `{{.Module.Path}} {{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}`
	cmd := exec.CommandContext(ctx, "go", "list", "-f", list, "github.com/lockstrategies/locks/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if path.Dir(f[1]) == f[0] && slices.Contains(f[2:], f[0]+"/internal/subjects") {
			found = append(found, f[1])
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no strategies here: run it in the module lab")
	}
	return found, nil
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

// suite are the tests that hold a strategy, or the lessons, to what they have to show.
const suite = "^Test(Conformance|Steps)$"

// test runs the suite and returns the packages that passed.
func test(ctx context.Context, e string, packages, args []string) (passed []string, err error) {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-race", "-count=1", "-timeout=1h", "-run=" + suite}, args, packages)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test ends its tests
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = environment(e)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	err = cmd.Run()
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		// ok  	<package>	1.234s
		f := strings.Fields(lines.Text())
		if len(f) >= 3 && f[0] == "ok" && slices.Contains(packages, f[1]) && !strings.Contains(lines.Text(), "no tests to run") {
			passed = append(passed, f[1])
		}
	}
	if err == nil && len(passed) < len(packages) {
		err = fmt.Errorf("%d of %d packages have run the suite", len(passed), len(packages))
	}
	return passed, err
}

// environment names the edition, and nothing that would name another server.
func environment(e string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"REDIS_ADDRS", "REDIS_IMAGE", "REDIS_PACKAGE"}, name)
	})
	return append(env, "REDIS_KIND="+string(redistest.Docker), "REDIS_SERVER="+e)
}

func summarize(w io.Writer, results []result, packages int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "server\tversion\tpackages passed\ttime")
	for _, r := range results {
		verdict := "ok"
		if r.err != nil {
			verdict = "FAIL"
		}
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%v\t%s\n", r.edition, cmp.Or(r.version, "none"), len(r.passed), packages, r.took.Round(time.Second), verdict)
	}
	t.Flush()
}
