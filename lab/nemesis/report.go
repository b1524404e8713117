package nemesis

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/lab/history"
)

// Summary says how much the run is worth: by process, and by kind of fault.
func (r *Report) Summary() history.Summary {
	ops := slices.Clone(r.Ops)
	for i := range ops {
		op := &ops[i]
		if op.Kind == history.KindFault {
			op.Note, _, _ = strings.Cut(op.Note, ",")
		} else {
			place, _, _ := strings.Cut(op.Client, ".")
			op.Client = "client " + place
		}
	}
	return history.Summarize(ops)
}

// Slow is for how much of the run the machine was too slow to tell much of a lock.
func (r *Report) Slow() (slow time.Duration) {
	for _, op := range r.Ops {
		if op.Kind == history.KindFault && op.Note == Slow {
			slow += op.End - op.Start
		}
	}
	return slow
}

// most is how many violations are printed in full.
const most = 3

// Write tells what happened in the run.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "%s, seed %d, %v: %v\n", r.Variant.Name, r.Seed, r.For, r.Summary())
	if slow := r.Slow(); slow > 0 {
		fmt.Fprintf(w, "the machine was slow for %v\n", slow.Round(time.Millisecond))
	}
	for _, why := range slices.Sorted(maps.Keys(r.Declared)) {
		fmt.Fprintf(w, "declared, %d times: %s\n", r.Declared[why], why)
	}
	for i, v := range r.Found {
		if i == most {
			fmt.Fprintf(w, "and %d more\n", len(r.Found)-most)
			break
		}
		fmt.Fprintf(w, "VIOLATED %v\n", v)
	}
}

// Picture draws the run, with what was found in it.
func (r *Report) Picture(w io.Writer) error {
	return history.Picture(w, r.Ops, r.Found, fmt.Sprintf("%s, seed %d, %v", r.Variant.Name, r.Seed, r.For))
}
