package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// With -before, this program also builds itself from an earlier commit of the repository, and that program plays
// ours a second time: in the same repetitions, on the same server. So both builds must know the contestant and
// the work. Floors and peers are played once.

// atBefore ends the names of contestants that the earlier build plays.
const atBefore = "@before"

// byBoth are scenarios in which the earlier build plays ours, too.
func byBoth(all []scenario) []scenario {
	for i := range all {
		var who []string
		for _, w := range all[i].who {
			if who = append(who, w); kindOf(w) == ours {
				who = append(who, w+atBefore)
			}
		}
		all[i].who = who
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

// comparison has a line for each of ours in each scenario: what both builds have reached in the unit of its first column.
func comparison(all []*outcome) string {
	var b strings.Builder
	b.WriteString("| | | before | after | after ÷ before |\n|---|---|--:|--:|--:|\n")
	for _, o := range all {
		unit := o.columns[0].unit
		for _, who := range o.present() {
			if slices.Contains(o.present(), who+atBefore) {
				was, is := o.series(who+atBefore, unit), o.series(who, unit)
				fmt.Fprintf(&b, "| %s | %s: %s%s | %s | %s | %s |\n",
					o.title, who, unit, o.stumbles(who), summarize(was), summarize(is), summarize(paired(is, was)))
			}
		}
	}
	return b.String()
}
