package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// With -before, this program also builds itself from an earlier commit of the repository, and that program plays
// ours a second time: in the same repetitions, on the same server. So both builds must know the contestant and
// the work. Floors and peers are played once.

// atBefore ends the names of contestants that the earlier build plays.
const atBefore = "@before"

// both are contestants of both builds.
func both(who ...string) (all []string) {
	for _, w := range who {
		all = append(all, w, w+atBefore)
	}
	return all
}

// build builds this program as it was at the commit, in a directory that it may fill, and prints which commits are compared.
func build(ctx context.Context, commit, dir string) (program string, err error) {
	program = filepath.Join(dir, "peers-before")
	said, err := exec.CommandContext(ctx, "sh", "-ec", `exec 2>&1; top=$(git rev-parse --show-toplevel)
		echo "Before: $(git rev-parse --short --verify "$1^{commit}"), after: $(git describe --always --exclude '*' --dirty)"
		git -C "$top" archive -o "$2/src.tar" "$1"; tar -xf "$2/src.tar" -C "$2"; cd "$2/lab/peers"
		GOWORK=off go build -buildvcs=false -o "$3" .`, "sh", commit, dir, program).Output()
	if err != nil {
		return "", fmt.Errorf("-before %s: %w\n%s", commit, err, said)
	}
	fmt.Print(string(said))
	return program, nil
}

// whatever is the bound of an aim that only compares both builds.
var whatever = math.NaN()

// narrowed is the scenario of that name, for fewer contestants, with other aims and further columns.
func narrowed(name string, who []string, aims []aim, more ...column) scenario {
	i := slices.IndexFunc(scenarios(), func(s scenario) bool { return s.name == name })
	s := scenarios()[i]
	s.who, s.aims, s.columns = who, aims, append(s.columns, more...)
	return s
}

// aimed is the same aim for several contestants.
func aimed(column string, least bool, bound float64, who ...string) (aims []aim) {
	for _, w := range who {
		aims = append(aims, aim{w, column, least, bound})
	}
	return aims
}

// compared are the scenarios of -before: those of the page for those whom the aims are about, and some more.
func compared() []scenario {
	one, two := []string{"semaphore-1", "rwlock"}, []string{"semaphore-1", "rwlock", "fairqueue"}
	plain := []string{"fairqueue", "luascript", "setnxpx"}
	const lesser = 100 * 0.9 / 1.9 // the share of one process, in per cent, if it gets 0.9 of what the other gets

	held := narrowed("permits-64-1ms", both(two...), slices.Concat(aimed("requests", false, 1.2, one...), aimed("at most", false, 1, one...)))
	held.name, held.title = "loop-64-1ms", "64 waiters in one process, held for 1 ms"
	held.about = "64 goroutines want one lock. The holder works for 1 ms, releases, and asks again at once. At most is how many held it at one time."

	fixed := narrowed("readers-90", both("rwlock", "fairqueue"), slices.Concat(aimed("acq/s ÷ fairqueue", true, 8, "rwlock"), aimed("overlaps", false, 0, "rwlock")))
	byLot := fixed
	fixed.name, fixed.title, fixed.measure = "readers-58", "58 readers and 6 writers", measureSharing(job{Hold: time.Millisecond, Only: 6})
	fixed.about = "64 goroutines of one process want one lock, 6 of them always to write, the others to read. The rest is as with nine in ten acquisitions."
	byLot.name, byLot.title, byLot.measure = "readers-lot", "64 callers, each reads with a probability of 0.9", measureSharing(job{Hold: time.Millisecond, Write: 10, Lot: true})
	byLot.about = "As with 58 readers, but each acquisition is to write with a probability of one in ten, in each of the goroutines."

	drain := narrowed("drain-256", append(both("semaphore-1", "rwlock", "fairqueue", "luascript", "setnxpx"), "rueidislock-tuned"), slices.Concat(
		aimed("slowest ÷ median", false, 2, two...), aimed("µs per waiter", false, whatever, "semaphore-1", "rwlock", "fairqueue", "luascript", "setnxpx")),
		column{"slowest ÷ median", "max/p50", nil})
	drain.name, drain.title, drain.measure = "drain-64", "64 waiters once each", measureDrain(64, 3)
	drain.about = "64 goroutines wait for one lock. It is released, and the time runs until each of them has had it once, and has released at once. " +
		"Slowest ÷ median is of the times from that release to the return of each acquire: in equal steps the last waits 1.94 times as long as the 33rd. All are medians of three drains."

	renewal := narrowed("renewal", both(plain...), slices.Concat(aimed("client CPU, %", false, whatever, plain...), aimed("server CPU, %", false, whatever, plain...), aimed("requests/s", false, whatever, plain...), aimed("lost", false, 0, plain...)))
	renewal.about, renewal.measure, renewal.every = "10 000 locks with a TTL of 3 s are kept alive. After one and a third TTL, one TTL is measured.", measureRenewal(10_000, 3*time.Second), 5

	return []scenario{
		narrowed("loop-64", append(both("semaphore-1", "rwlock", "reentrant", "fairqueue", "luascript", "setnxpx"), "redsync", "redsync-10ms", "redsync-1ms", "rueidislock-tuned"), slices.Concat(
			aimed("acq/s ÷ fastest redsync", true, 10, one...), aimed("acq/s ÷ fastest redsync", true, 2, "reentrant"),
			aimed("acq/s ÷ fastest redsync", true, whatever, plain...), aimed("Jain", true, 0.99, one...))),
		held,
		narrowed("handoff", append(both("semaphore-1", "rwlock", "fairqueue", "luascript", "setnxpx"), "rueidislock-tuned"), slices.Concat(
			aimed("p50 ÷ PING", false, 5, two...), aimed("p50 ÷ PING", false, whatever, "luascript", "setnxpx"), aimed("overlaps", false, 0, two...), aimed("share, %", true, lesser, two...)),
			column{"share, %", "share-%", nil}),
		narrowed("processes-loop", both(two...), slices.Concat(aimed("acq/s", true, whatever, two...), aimed("share, %", true, lesser, two...)), column{"share, %", "share-%", nil}),
		narrowed("permits-64-1ms", append(both("semaphore"), "sleep"), slices.Concat(
			aimed("acq/s", true, 0.9*8000, "semaphore"), aimed("acq/s ÷ sleep", true, 0.9, "semaphore"), aimed("at most", false, permits, "semaphore"), aimed("Jain", true, 0.99, "semaphore")),
			column{"acq/s ÷ sleep", "acq/s", over("sleep")}),
		fixed, byLot,
		narrowed("solo", append(both("semaphore-1", "rwlock", "reentrant", "fairqueue"), "redsync", "rueidislock-tuned"), slices.Concat(
			aimed("p50 ÷ fairqueue", false, 1.15, one...), aimed("commands", false, 14, one...), aimed("commands", false, 11, "reentrant"), aimed("allocations", false, 8, append(one, "reentrant")...),
			aimed("p50, µs", false, whatever, "semaphore-1", "rwlock", "reentrant", "fairqueue")),
			column{"p50 ÷ fairqueue", "p50-µs", over("fairqueue")}, column{"commands", "commands/pair", nil}),
		narrowed("redlock", append(both("redlock"), "redsync-failfast"), aimed("p50 ÷ redsync-failfast", false, 1, "redlock"), column{"p50 ÷ redsync-failfast", "p50-µs", over("redsync-failfast")}),
		drain,
		narrowed("distinct-64", both(plain...), aimed("pairs/s", true, whatever, plain...)),
		narrowed("distinct-256", both(plain...), aimed("pairs/s", true, whatever, plain...)),
		renewal,
	}
}

// comparison has a line for each aim: what both builds have reached.
func comparison(all []*outcome) string {
	var b strings.Builder
	b.WriteString("| | aim | before | after | met | better by |\n|---|---|--:|--:|---|--:|\n")
	for _, o := range all {
		for _, a := range o.aims {
			if !slices.Contains(o.present(), a.who) {
				continue // of those that were not chosen by -who
			}
			c := o.columns[slices.IndexFunc(o.columns, func(c column) bool { return c.title == a.column })]
			was, is := o.each(a.who+atBefore, c), o.each(a.who, c)
			better, sign := paired(was, is), "≤"
			if a.least {
				better, sign = paired(is, was), "≥"
			}
			got, what, met := summarize(is), a.who+": "+a.column, "–"
			if !math.IsNaN(a.bound) {
				what = fmt.Sprintf("%s %s %s", what, sign, number(a.bound))
				if got.n > 0 {
					met = map[bool]string{true: "yes", false: "no"}[a.least && got.center >= a.bound || !a.least && got.center <= a.bound]
				}
			}
			fmt.Fprintf(&b, "| %s | %s%s | %s | %s | %s | %s |\n", o.title, what, o.stumbles(a.who), summarize(was), got, met, summarize(better))
		}
	}
	return b.String() + "\nBetter by is after ÷ before where more is better, before ÷ after elsewhere, by repetition: above 1, after is better.\n"
}
