package main

// The program lab as a process, and its comparison.

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	testverdict "github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/lab/compare"
)

func TestMain(m *testing.M) {
	if !clitest.Main(main) {
		redistest.Main(m)
	}
}

func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // on the standard error
	}{
		{"nope", `unknown command "nope" for "lab"`},
		{"compar", "Did you mean this?\n\tcompare"},
		{"compare --strategy nope", `there is no strategy "nope": there are setnxgetset-blind, `},
		{"compare --embedded --docker", "[docker embedded] were all set"},
		{"compare --quick --duration 1s", "[duration quick] were all set"},
		{"compare --markdown --quick", "[markdown quick] were all set"},
		{"compare --duration 1ms", "--duration is 1ms: allowed are 50ms to 1h0m0s"},
		{"compare --redis redis://me:secret@localhost", "--redis has a password, and everybody on this machine can read arguments"},
		{"compare --redis :secret@localhost", "give it by REDIS_ADDRS=redis://user:password@host:port"},
		{"compare --redis=", "--redis names no server: want host:port or redis://"},
		{"compare --redis redis://:sec%ret@localhost", "--redis names no server: want host:port or redis://"},

		{"lesson nope", `there is no lesson "nope": allowed are 1 to `},
		{"lesson --all 8", "--all gives all lessons: leave out 8, or --all"},
		{"lesson --json --embedded", "--json and --embedded: of which lesson?"},
		{"lesson 8 --step --json", "[json step] were all set"},

		{"exercise 99", `there is no exercise "99": allowed are 1 to `},
		{"exercise --solution", "of which exercise? 'lab exercise' lists them"},
		{"exercise 3 --all", "--all judges all exercises: leave out the numbers"},

		{"faults of nature", `no fault has "of nature" in its name`},
		{"faults --strategy redlock", "--strategy: only with --play"},
		{"faults --play --strategy nope", "--strategy nope: allowed are setnxgetset, "},
		{"faults --play --strategy redlock behind", `"behind": no play for redlock: allowed are setnxgetset`},
		{"faults --play --redis localhost restart", "unknown flag: --redis"},

		{"report --output=", "--output names no file"},
	} {
		errs := clitest.Misuse(t, rootCommand(), c.args, c.want)
		if strings.Contains(errs, "sec") && strings.Contains(c.args, "sec") {
			t.Errorf("lab %s: the password is in %q", c.args, errs)
		}
	}
}

func TestHelp(t *testing.T) {
	for args, wants := range map[string][]string{
		"":                {"Available Commands:", "compare"},
		"--help":          {"Available Commands:", "compare", "flashsale", "faults", "lesson", "exercise", "report"},
		"compare --help":  {"Examples:", "lab compare --quick", "luascript", "--strategy name", "--embedded"},
		"--version":       {"lab ", "go1."},
		"completion bash": {"bash completion"},
	} {
		clitest.Help(t, rootCommand(), args, wants)
	}
}

// TestUnreachable: nothing listens on port 1, and somewhere else nobody answers.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for addr, want := range map[string]string{"127.0.0.1:1": "connection refused", silent.Addr().String(): "no answer within 5s"} {
		out, errs, code := clitest.Run(t, "compare", "--redis", addr)
		if code != 69 || out != "" || !strings.Contains(errs, "--redis names "+addr+", which cannot be used: ") || !strings.Contains(errs, want) {
			t.Errorf("exit %d, %q, %q, want 69 and what is wrong with the server: %s", code, out, errs, want)
		}
		if strings.Contains(errs, "REDIS_ADDRS") || strings.Contains(errs, "redistest") || strings.Contains(errs, "deadline exceeded") {
			t.Errorf("%q speaks of variables that nobody set, or of this module's insides", errs)
		}
	}
	_, errs, code := clitest.RunIn(t, []string{"REDIS_ADDRS=redis://me:secret@127.0.0.1:1/2", "REDIS_KIND=given"}, "compare")
	if code != 69 || !strings.Contains(errs, "connection refused") || strings.Contains(errs, "secret") {
		t.Errorf("exit %d, %q, want 69, what is wrong, and no password", code, errs)
	}
}

// decoded is what a command says in JSON on a server, or several, with a password, which it does not say.
func decoded[T any](t *testing.T, servers []*redistest.Server, args ...string) (v T) {
	t.Helper()
	out, errs, code := clitest.RunIn(t, subjects.Environment(servers...), append(args, "--json")...)
	if code != 0 || !strings.HasPrefix(errs, "redis: servers given by REDIS_ADDRS, ") || strings.Contains(out+errs, "fish") {
		t.Fatalf("exit %d, want 0, the choice first, and no password:\n%s%s", code, errs, out)
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%v in\n%s", err, out)
	}
	return v
}

// locked are servers of the test's own with a password.
func locked(t *testing.T, n int) (all []*redistest.Server) {
	t.Helper()
	for range n {
		all = append(all, redistest.Own(t, redistest.Config{Password: "sword,fish"}))
	}
	return all
}

// TestJSON compares a strategy with weaknesses and one on several servers, all of which have a password. The rest of the table is
// package compare's test.
func TestJSON(t *testing.T) {
	t.Parallel()
	all := locked(t, 5)
	r := decoded[compare.Report](t, all, "compare", "--duration", "60ms", "--strategy", "setnxpx-blind", "--strategy", "redlock")
	if r.Redis.Kind != "given" || len(r.Redis.Addrs) != len(all) || len(r.Strategies) != 2 || len(r.LeftOut) > 0 || len(r.Advice) == 0 {
		t.Fatalf("%+v, %d strategies, %v left out, and %d pieces of advice", r.Redis, len(r.Strategies), r.LeftOut, len(r.Advice))
	}
	for _, col := range r.Strategies {
		if col.Cost == nil || col.Solo == nil || col.HandOff == nil || len(col.Contention) != len(compare.Contenders) {
			t.Errorf("%s is not complete: %+v", col.Name, col)
		}
		for _, g := range col.Guarantees {
			for _, p := range g.Properties {
				if p.Name == "Processes" && p.Verdict != compare.Kept { // children were started
					t.Errorf("%s: %s is %q: %s %s", col.Name, p.Name, p.Verdict, p.Reason, p.Evidence)
				}
				if p.Verdict == compare.Weak && (p.Reason == "" || p.Evidence == "" || len(p.History) == 0) {
					t.Errorf("%s: %s is weak, without its evidence: %+v", col.Name, p.Name, p)
				}
			}
		}
	}
}

// TestTooFewServers: with one server given, what takes more is left out, and refused
// where it was asked for.
func TestTooFewServers(t *testing.T) {
	c := comparison{servers: servers{redis: []string{"localhost:6379"}}, variants: []subjects.Variant{{Name: "many", Servers: 5}}}
	if err := c.enough(1); err != nil {
		t.Errorf("enough(1) = %v, want nil: it was not asked for by name", err)
	}
	c.strategies = []string{"many"}
	if err := c.enough(5); err != nil {
		t.Errorf("enough(5) = %v, want nil", err)
	}
	const want = "many takes 5 servers, --redis names 1"
	if err := c.enough(1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("enough(1) = %v, want %q", err, want)
	}
}

// TestTooOldServers: a strategy whose commands the servers lack is refused where it was asked for.
func TestTooOldServers(t *testing.T) {
	t.Parallel()
	out, errs, code := clitest.Run(t, "compare", "--embedded", "--strategy", "ifeq")
	if code != 1 || !strings.Contains(errs, "ifeq takes servers that know DELEX or DELIFEQ") || strings.Contains(out, "GUARANTEES") {
		t.Errorf("exit %d, on stderr %q, want 1, which commands it takes, and no table:\n%s", code, errs, out)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	out, errs, code := clitest.Run(t, "compare", "--redis", s.URL(), "--markdown", "--strategy", "luascript")
	if code != 0 || !strings.HasPrefix(errs, "redis: ") {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if lines[0] != "| | luascript |" || lines[1] != "|---|:-:|" || lines[2] != "| one holder, if nothing goes wrong | ✓ |" || len(lines) < 20 {
		t.Errorf("stdout is\n%s", out)
	}
	if strings.ContainsAny(out, "!·") {
		t.Errorf("something failed, or was not looked at:\n%s", out)
	}
}

// TestInterrupt: a signal ends it; the output is not that of a whole run. A sale leaves no key, and a report no half page.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	page := filepath.Join(folder, "page.html")
	if err := os.WriteFile(page, []byte("what was there before"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := redistest.Own(t, redistest.Config{})
	for _, c := range []struct {
		args   string
		signal syscall.Signal
		code   int
		whole  string // is at the end of a whole run
	}{
		{"flashsale", syscall.SIGTERM, 143, "atomic script and no lock"},
		{"report -o " + page, syscall.SIGINT, 130, "is written"},
		{"compare --duration 10m --strategy setnxpx", syscall.SIGTERM, 143, "WHICH ONE?"},
	} {
		cmd := clitest.Command(t, append(strings.Fields(c.args), "--redis", s.URL())...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testverdict.Eventually(t, "keys of lab "+c.args, func() bool { return redistest.Do(t, s, "DBSIZE") != int64(0) })
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != c.code || strings.Contains(out.String(), c.whole) || !strings.Contains(errs.String(), "lab: ") {
			t.Errorf("lab %s: exit %d, want %d, a word, and no %q:\n%s%s", c.args, code, c.code, c.whole, out.String(), errs.String())
		}
		if c.args == "flashsale" {
			wantSwept(t, s)
		}
		redistest.Do(t, s, "FLUSHALL")
	}
	left, _ := os.ReadDir(folder)
	if text, err := os.ReadFile(page); err != nil || string(text) != "what was there before" || len(left) != 1 {
		t.Errorf("the file is %.60q, %v, one of %v: want what was there before, alone", text, err, left)
	}
}
