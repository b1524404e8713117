// Peers measures the locks of this module next to redsync, bsm/redislock and rueidislock, on
// the same server, in one run: in each repetition every contestant has its turn, in a random
// order, in a process of its own.
//
//	go run . -reps 5 -only loop-64
//
// It also compares two builds of this module: the one here, and that of an earlier commit, which
// must know the same contestants. At the end there is one table of both:
//
//	go run . -before 1a2b3c4 -only solo,loop-64 -who fairqueue
//
// It is a module of its own, so that users of locks do not depend on its peers. It runs on
// Unix, and needs the Go version that the peers need. It starts its servers, and empties them.
//
// The first line of the output says which Redis is used, and why. At the end comes a table for each
// scenario, in Markdown. scenarios.go says what is measured, works.go how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
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
	reps      int
	who       []string
	quick     bool
	before    string // a commit; empty: none
	seed      uint64
	scenarios []scenario
}

func parse(args []string) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("peers", flag.ContinueOnError)
	set.IntVar(&f.reps, "reps", 5, "how many repetitions")
	only := set.String("only", "", "scenarios, separated by commas; growth stands for all growth-…")
	who := set.String("who", "", "contestants, separated by commas; floors are always measured")
	set.BoolVar(&f.quick, "quick", false, "measure for a quarter of the time")
	set.StringVar(&f.before, "before", "", "an earlier commit, whose build is compared with this one")
	set.Uint64Var(&f.seed, "seed", uint64(time.Now().UnixNano()), "of the random order of contestants")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 || f.reps < 1 {
		return nil, fmt.Errorf("-reps must be at least 1, and arguments are flags: %q", set.Args())
	}
	f.who = words(*who)
	for _, w := range f.who {
		if !known(w) {
			return nil, fmt.Errorf("-who: no contestant is called %q", w)
		}
	}
	if f.scenarios = scenarios(); f.before != "" {
		f.scenarios = byBoth(f.scenarios)
	}
	if *only == "" {
		return f, nil
	}
	var meant []string
	for _, o := range words(*only) {
		names := named(f.scenarios, o)
		if len(names) == 0 {
			return nil, fmt.Errorf("-only: no scenario is called %q", o)
		}
		meant = append(meant, names...)
	}
	f.scenarios = slices.DeleteFunc(f.scenarios, func(s scenario) bool { return !slices.Contains(meant, s.name) })
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

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func run(ctx context.Context, args []string) (err error) {
	f, err := parse(args)
	if err != nil {
		return err
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
		farm: farm, random: rand.New(rand.NewPCG(f.seed, 0)), reps: f.reps, quick: f.quick, who: f.who, progress: os.Stderr, program: program,
	}
	if b.one, err = farm.Start(ctx, redistest.Config{}); err != nil {
		return err
	}
	fmt.Printf("seed %d, %d CPUs, %s %s/%s\n", f.seed, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	on := fmt.Sprintf("%s, on %s (%s)", time.Now().UTC().Format("2 January 2006"), b.one.Version(), farm.Kind())
	return b.playAll(ctx, f, on)
}

// playAll plays the scenarios. Interrupted, it prints what it has measured.
func (b *bench) playAll(ctx context.Context, f *flags, on string) error {
	var failures []string
	var all []*outcome
	defer func() {
		for _, o := range all {
			fmt.Printf("\n## %s\n\n%s", o.title, o.section(on, f.quick))
		}
		if f.before != "" {
			fmt.Printf("\n## Before and after\n\n%s", comparison(all))
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
		if len(o.present()) > 0 {
			all = append(all, o)
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d measurements failed:\n%s", len(failures), strings.Join(failures, "\n"))
	}
	return nil
}
