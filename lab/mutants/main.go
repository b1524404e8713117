// Mutants puts faults into the sources, Go and Lua, one at a time, and sees whether a test finds each.
//
//	go run ./mutants                     all packages
//	go run ./mutants fairqueue engine    these
//	go run ./mutants -since origin/main  the functions that differ from a commit, and the scripts
//	go run ./mutants -for 10m            as many as can be judged by then
//	go run ./mutants -run 'settle: negate' engine
//	go run ./mutants -properties         whether the suite's properties convict those in properties.txt
//
// The faults are systematic:
//
//	drop    a statement is not executed
//	negate  a condition, or what && and || join in it, is the opposite
//	bound   < is <=, > is >=, and the other way round
//	swap    max is min, min is max
//	omit    an option of a Redis command is not sent, with its value (in Lua)
//
// All Go mutants of a package are compiled into one test binary, each behind a switch (golang.go, and
// helpers.go.txt for what the switches call); the environment says which is on. Scripts are read from a
// directory instead of embedded. First each test runs alone, without a fault, which shows what it reaches of the
// Go mutants. Then each of these is judged by the tests that reach it, and a script's by all, until the first that
// fails: by those of its own package, and, if it lives, in the same way by those of other packages (subjects, in run.go).
//
// A mutant that survives is a test that is missing, or it is equivalent: nobody can tell it from the
// original. equivalent.txt lists those, each with the reason. An entry that matches nothing, or a mutant
// that is killed, is an error. With -since they are not judged.
//
// The exit status is 1 if a package is below 97 % of the mutants that are not equivalent; where only a
// part of a package was judged, if that is so few that it cannot be chance.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"
)

// wanted is the least part of the mutants, not counting equivalent ones, that tests must kill.
const wanted = 0.97

var (
	since      = flag.String("since", "", "only functions and scripts that differ from this commit")
	limit      = flag.Duration("for", 0, "judge mutants in random order until this time is over, which packages share, and say how many are left; 0: judge all")
	run        = flag.String("run", "", "only mutants whose names match this regexp")
	list       = flag.Bool("list", false, "list the mutants, judge none")
	verbose    = flag.Bool("v", false, "print each verdict")
	properties = flag.Bool("properties", false, "show that each property convicts its mutant in properties.txt")
	workers    = flag.Int("workers", 2*runtime.GOMAXPROCS(0), "how many mutants are judged at a time")
)

// interrupted ends with Ctrl-C or SIGTERM. Then nothing new begins, and what runs is killed: it has groups of
// its own, which the terminal does not reach. A second Ctrl-C ends the program at once.
var interrupted, noLonger = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

func main() {
	log.SetFlags(0)
	flag.Parse()
	context.AfterFunc(interrupted, noLonger)
	well, err := examineAll()
	if interrupted.Err() != nil {
		log.Fatal("interrupted: no verdict")
	}
	if err != nil {
		log.Fatal(err)
	}
	if !well {
		os.Exit(1)
	}
}

func examineAll() (well bool, err error) {
	root, err := repository()
	if err != nil {
		return false, err
	}
	if *properties {
		return true, convict(root)
	}
	r, err := examine(root, flag.Args())
	if err != nil || interrupted.Err() != nil {
		return false, err
	}
	return r.print(), nil
}

// With -for, packages share the time: until is when that of the package under judgement is over.
var start, until = time.Now(), time.Time{}

func timeIsOver() bool { return *limit > 0 && time.Now().After(until) }

// command is a tool, such as go, which cleans up when it is interrupted.
func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(interrupted, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// workDir is a directory for a subject, also for what its tests put into theirs. discard removes it: once
// more if a server of a killed test, which has a moment left, wrote to it meanwhile.
func workDir() (dir string, discard func(), err error) {
	if dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return "", nil, err
	}
	discard = func() {
		for end := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
	}
	return dir, discard, os.Mkdir(filepath.Join(dir, "tmp"), 0o700)
}

func repository() (string, error) {
	out, err := command("", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockstrategies/locks").Output()
	return strings.TrimSpace(string(out)), err
}

// examine judges the mutants of the packages; none means all.
func examine(root string, packages []string) (*report, error) {
	only, err := regexp.Compile(*run)
	if err != nil {
		return nil, err
	}
	changed, err := changes(root, *since)
	if err != nil {
		return nil, err
	}
	equivalent, err := parseEquivalent(equivalentText)
	if err != nil {
		return nil, err
	}
	r := &report{equivalent: equivalent, whole: *run == "" && *since == "" && *limit == 0 && !*list}
	known := map[string]bool{}
	for _, s := range subjects {
		known[s.dir] = true
	}
	for _, p := range packages {
		if !known[strings.TrimPrefix(filepath.Clean(p), "./")] {
			return nil, fmt.Errorf("no package %s: see subjects in run.go", p)
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool {
		return len(packages) > 0 && !slices.ContainsFunc(packages, func(p string) bool { return filepath.Clean(p) == s.dir }) || changed != nil && !changed.touches(s.dir)
	})
	for i, s := range chosen {
		until = time.Now().Add((*limit - time.Since(start)) / time.Duration(len(chosen)-i))
		if err := r.examine(root, s, func(m *mutant) bool {
			return only.MatchString(m.name()) && (changed == nil || changed.has(m))
		}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

type hunks map[string][][2]int

var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// changes are what differs from a commit; nil if there is none.
func changes(root, since string) (hunks, error) {
	if since == "" {
		return nil, nil
	}
	if command(root, "git", "rev-parse", "--verify", "--quiet", since+"^{commit}").Run() != nil {
		return nil, fmt.Errorf("-since %s: there is no such commit here; a shallow clone has only the last ones (git fetch --unshallow gets the others)", since)
	}
	cmd := command(root, "git", "diff", "-U0", "--no-color", "--merge-base", since, "--", "*.go", "*.lua", ":!*_test.go")
	said := &strings.Builder{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("-since %s: git diff: %s (a shallow clone may lack the commits in between: git fetch --unshallow)", since, strings.TrimSpace(said.String()))
	}
	changed, file := hunks{}, ""
	for l := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(l, "+++ b/"); ok {
			file = strings.TrimSpace(name)
		} else if h := hunk.FindStringSubmatch(l); h != nil {
			from, _ := strconv.Atoi(h[1])
			n := 1
			if h[2] != "" {
				n, _ = strconv.Atoi(h[2])
			}
			changed[file] = append(changed[file], [2]int{from, from + max(n, 1) - 1})
		}
	}
	return changed, nil
}

func (c hunks) touches(dir string) bool {
	for file := range c {
		if filepath.Dir(file) == dir {
			return true
		}
	}
	return false
}

// has reports whether a line of the mutant's function differs.
func (c hunks) has(m *mutant) bool {
	return slices.ContainsFunc(c[m.file], func(l [2]int) bool { return l[0] <= m.to && m.from <= l[1] })
}

//go:embed equivalent.txt
var equivalentText string

// parseEquivalent returns the reasons by the mutants' names. An entry is a name, and the reason in the
// lines below, which are indented.
func parseEquivalent(text string) (map[string]string, error) {
	reasons, name := map[string]string{}, ""
	for l := range strings.Lines(text) {
		words := strings.TrimSpace(l)
		switch _, twice := reasons[words]; {
		case words == "" || strings.HasPrefix(l, "//"):
		case l[0] == '\t':
			reasons[name] = strings.TrimSpace(reasons[name] + " " + words)
		case twice:
			return nil, fmt.Errorf("equivalent.txt has %q twice", words)
		default:
			name = words
			reasons[name] = ""
		}
	}
	for name, reason := range reasons {
		if reason == "" || name == "" {
			return nil, fmt.Errorf("equivalent.txt gives no reason for %q", name)
		}
	}
	return reasons, nil
}

// A report is the verdicts on several packages.
type report struct {
	equivalent map[string]string
	whole      bool // all mutants of each package were judged
	packages   []*packageReport
}

type packageReport struct {
	dir     string
	mutants []*mutant
	elapsed time.Duration
}

func (r *report) examine(root string, s subject, chosen func(*mutant) bool) error {
	began := time.Now()
	work, discard, err := workDir()
	if err != nil {
		return err
	}
	defer discard()
	x, err := prepare(root, work, s)
	if err != nil {
		return err
	}
	p := &packageReport{dir: s.dir}
	for _, m := range x.mutants {
		_, listed := r.equivalent[m.name()]
		if chosen(m) && !(listed && *since != "") { // whether what is equivalent still is, a whole run shows
			p.mutants = append(p.mutants, m)
		}
	}
	r.packages = append(r.packages, p)
	if *list || timeIsOver() {
		return nil
	}
	if *limit > 0 {
		rand.Shuffle(len(p.mutants), func(i, j int) { p.mutants[i], p.mutants[j] = p.mutants[j], p.mutants[i] })
	}
	left := p.mutants
	for i, j := range s.judges {
		if len(left) == 0 || interrupted.Err() != nil {
			break
		}
		if err := x.control(i, *workers); err != nil {
			return err
		}
		log.Printf("%s: %d mutants, %d tests of %s (%v)", s.dir, len(left), len(x.tests), j.dir, time.Since(began).Round(time.Second))
		left = x.judgeAll(left, i == 0, i == len(s.judges)-1)
	}
	p.elapsed = time.Since(began)
	return nil
}

// judgeAll runs the tests of one judge on mutants, and returns those that live. Only the first judge stops
// when time is over: the others judge all that lived through it, or a sample would lack its survivors.
func (x *exam) judgeAll(mutants []*mutant, first, last bool) (living []*mutant) {
	var done atomic.Int64
	parallel(*workers, mutants, func(_ int, m *mutant) {
		if first && timeIsOver() || interrupted.Err() != nil {
			return
		}
		if end := x.judge(m); first || end.fate != notReached {
			m.end = end
		}
		if n := done.Add(1); n%100 == 0 {
			log.Printf("%s: %d of %d judged", x.dir, n, len(mutants))
		}
		if *verbose && (last || !m.end.alive()) {
			log.Printf("%s:%d: %s: %s %s (%v)", m.file, m.line, m.name(), m.end.fate, m.end.by, m.end.elapsed.Round(10*time.Millisecond))
		}
	})
	return slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return !m.end.alive() })
}

// chance is how probable it is that so many of n mutants live, or more, if tests kill as many of the whole
// package as they must.
func chance(n, alive int) float64 {
	fewer, exactly := 0.0, math.Pow(wanted, float64(n)) // that exactly k live: k is 0
	for k := range alive {
		fewer += exactly
		exactly *= float64(n-k) / float64(k+1) * (1 - wanted) / wanted
	}
	return 1 - fewer
}

// print writes the table, then the survivors by file, and reports whether all is well.
func (r *report) print() (well bool) {
	well = true
	if *list {
		for _, p := range r.packages {
			for _, m := range p.mutants {
				fmt.Printf("%s:%d: %s\n", m.file, m.line, m.name())
			}
		}
		return true
	}
	if len(r.packages) == 0 {
		fmt.Println("nothing to judge")
		return true
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "mutants\tkilled\ttimed out\tsurvived\tnot reached\tequivalent\trate\ttook\t  package")
	var survivors, stale, unproven []string
	for _, p := range r.packages {
		count, used, equivalent := map[fate]int{}, map[string]bool{}, 0
		for _, m := range p.mutants {
			_, listed := r.equivalent[m.name()]
			used[m.name()] = listed
			switch {
			case m.end.fate == "": // not judged
			case m.end.alive() && listed:
				equivalent++
				continue
			case listed:
				stale = append(stale, fmt.Sprintf("%s: listed as equivalent, but %s by %s", m.name(), m.end.fate, m.end.by))
			case m.end.alive():
				survivors = append(survivors, fmt.Sprintf("%s:%d: %s %s (%s)", m.file, m.line, m.op, m.text, m.end.fate))
			}
			count[m.end.fate]++
		}
		if count[""] > 0 {
			unproven = append(unproven, fmt.Sprintf("NOT PROVEN: time was over before %d mutants of %s were judged\n", count[""], p.dir))
			if count[""] == len(p.mutants) {
				continue
			}
		}
		dead := count[killed] + count[timedOut]
		rate, n := 1.0, dead+count[survived]+count[notReached]
		if n > 0 {
			rate = float64(dead) / float64(n)
		}
		if r.whole {
			well = well && rate >= wanted
		} else {
			well = well && chance(n, n-dead) > 0.001
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%.1f %%\t%v\t  %s\n", n+equivalent, count[killed], count[timedOut],
			count[survived], count[notReached], equivalent, 100*rate, p.elapsed.Round(time.Second), p.dir)
		for name := range r.equivalent {
			if r.whole && filepath.Dir(strings.Fields(name)[0]) == p.dir && !used[name] {
				stale = append(stale, name+": listed as equivalent, but there is no such mutant")
			}
		}
	}
	table.Flush()
	fmt.Print(strings.Join(unproven, ""))
	for title, list := range map[string][]string{"Survivors:": survivors, "equivalent.txt is stale:": stale} {
		if len(list) > 0 {
			fmt.Printf("\n%s\n%s\n", title, strings.Join(list, "\n"))
		}
	}
	return well && len(stale) == 0
}
