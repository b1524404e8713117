// Peers measures the locks of this module next to redsync, bsm/redislock and rueidislock, on
// the same server, in one run: in each repetition every contestant has its turn, in a random
// order, in a process of its own.
//
//	go run . -reps 5 -update ../../docs/data/performance.md
//
// It also compares two builds of this module: the one here, and that of an earlier commit, which
// must know the same contestants. At the end there is one table, with a line for each aim:
//
//	go run . -before 1a2b3c4                  # 8 minutes
//	go run . -before 1a2b3c4 -quick -reps 2   # one and a half, without renewals
//
// It is a module of its own, so that users of locks do not depend on its peers. It runs on
// Unix, and needs the Go version that the peers need.
//
// The first line of the output says which Redis is used, and why. Then come the measurements,
// in the format of benchstat, and at the end a table of ratios for each scenario, in Markdown.
// -update puts these, and the plots, into a page that has marks for them. Repetitions can be
// collected in several runs: -with reads what earlier runs have printed.
//
// scenarios.go says what is measured, works.go how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func main() {
	if asChild() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

type flags struct {
	reps         int
	only, who    []string
	quick        bool
	before       string // a commit; empty: none
	seed         uint64
	update, with string // files
	profiles     string // a directory
	scenarios    []scenario
}

func parse(args []string) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("peers", flag.ContinueOnError)
	set.IntVar(&f.reps, "reps", 5, "how many repetitions")
	only := set.String("only", "", "scenarios, separated by commas; growth stands for all growth-…")
	who := set.String("who", "", "contestants, separated by commas; floors are always measured")
	set.BoolVar(&f.quick, "quick", false, "measure for a quarter of the time")
	set.StringVar(&f.before, "before", "", "an earlier commit, whose build is compared with this one, in scenarios for that")
	set.Uint64Var(&f.seed, "seed", uint64(time.Now().UnixNano()), "of the random order of contestants")
	set.StringVar(&f.update, "update", "", "the page whose tables, and the plots next to it, are rewritten")
	set.StringVar(&f.with, "with", "", "a file with the output of earlier runs, whose repetitions count, too")
	set.StringVar(&f.profiles, "profiles", "", "a directory for CPU profiles of all contestants, of the last repetition")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	if f.reps < 0 || f.reps == 0 && f.with == "" {
		return nil, errors.New("-reps must be at least 1; 0 is allowed with -with")
	}
	f.only, f.who = words(*only), words(*who)
	if f.update != "" && (f.quick || f.who != nil || f.before != "") {
		return nil, errors.New("-update excludes -quick, -who and -before: a page has all contestants, measured in full")
	}
	for _, w := range f.who {
		if !known(w) {
			return nil, fmt.Errorf("-who: no contestant is called %q", w)
		}
	}
	if f.scenarios = scenarios(); f.before != "" {
		f.scenarios = compared()
	}
	if f.only == nil {
		if f.before != "" && f.quick {
			f.scenarios = f.scenarios[:len(f.scenarios)-1] // renewals take as long as ever
		}
		return f, nil
	}
	meant := map[string]bool{}
	for _, o := range f.only {
		names := named(f.scenarios, o)
		if len(names) == 0 {
			return nil, fmt.Errorf("-only: no scenario is called %q", o)
		}
		for _, n := range names {
			meant[n] = true
		}
	}
	f.scenarios = slices.DeleteFunc(f.scenarios, func(s scenario) bool { return !meant[s.name] })
	return f, nil
}

// named returns the scenario of that name or, if no scenario has it, those whose names begin with it.
func named(all []scenario, name string) (names []string) {
	for _, s := range all {
		if s.name == name {
			return []string{name}
		}
		if strings.HasPrefix(s.name, name+"-") {
			names = append(names, s.name)
		}
	}
	return names
}

func words(list string) (all []string) {
	for w := range strings.SplitSeq(list, ",") {
		if w = strings.TrimSpace(w); w != "" {
			all = append(all, w)
		}
	}
	return all
}

func run(ctx context.Context, args []string) (err error) {
	f, err := parse(args)
	if err != nil {
		return err
	}
	var before earlier
	if f.with != "" {
		if before, err = readEarlier(f.with); err != nil {
			return err
		}
	}
	if f.reps == 0 {
		m := describe(before.redis)
		m.cpu = before.cpu
		b := &bench{before: before, who: f.who, progress: os.Stderr}
		return b.playAll(ctx, f, m)
	}
	var program string
	if f.before != "" {
		dir, err := os.MkdirTemp("", "locks-peers-before-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if program, err = build(ctx, f.before, dir); err != nil {
			return err
		}
	}
	want, err := redistest.FromEnv()
	if err != nil {
		return err
	}
	farm, err := redistest.Open(ctx, want)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()
	fmt.Println(farm.Choice()) // before the slow work

	b := &bench{
		farm: farm, mine: true, random: rand.New(rand.NewPCG(f.seed, 0)), reps: f.reps, quick: f.quick, who: f.who,
		profiles: f.profiles, progress: os.Stderr, before: before, program: program,
	}
	b.one, err = farm.Start(ctx, redistest.Config{})
	if errors.Is(err, redistest.ErrImpossible) { // the servers are given
		b.mine = false
		b.one, err = farm.Shared(ctx)
	}
	if err != nil {
		return err
	}
	m := describe(fmt.Sprintf("%s (%s)", b.one.Version(), farm.Kind()))
	b.lines = newBenchWriter(os.Stdout, m, f.seed)
	if f.profiles != "" {
		if err := os.MkdirAll(f.profiles, 0o755); err != nil {
			return err
		}
	}
	return b.playAll(ctx, f, m)
}

// playAll plays the scenarios. Interrupted, it prints what it has measured.
func (b *bench) playAll(ctx context.Context, f *flags, m machine) error {
	var failures []string
	var all []*outcome
	defer func() {
		for _, o := range all {
			fmt.Printf("\n## %s\n\n%s", o.title, o.section(m, f.quick))
		}
		if f.before != "" {
			fmt.Printf("\n## Before and after\n\n%s", comparison(all))
		} else {
			fmt.Printf("\n%s", balance(all))
		}
	}()
	for _, s := range f.scenarios {
		o, err := b.play(ctx, s)
		if errors.Is(err, redistest.ErrImpossible) {
			fmt.Fprintf(b.progress, "peers: %s is not measured: %v\n", s.name, err)
			continue
		}
		if err != nil {
			return err
		}
		failures = append(failures, o.failures...)
		if len(o.present()) == 0 {
			continue // nothing was measured, here or before
		}
		all = append(all, o)
		if f.update == "" {
			continue
		}
		if o.drawn() {
			if err := o.draw(filepath.Dir(f.update)); err != nil {
				return err
			}
		}
		if err := update(f.update, o.name, o.section(m, false)); err != nil {
			return err
		}
	}
	if f.update != "" && f.only == nil { // or the balance would not be of all
		if err := errors.Join(update(f.update, "balance", balance(all)), update(f.update, "machine", m.section())); err != nil {
			return err
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d measurements failed:\n%s", len(failures), strings.Join(failures, "\n"))
	}
	return nil
}

// update writes a section of the page.
func update(page, name, section string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	written, err := rewrite(string(text), name, section)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(written), 0o644)
}
