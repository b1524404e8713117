// Tests what a line does after each event in each state.
package engine

import (
	"strings"
	"testing"
)

func TestStates(t *testing.T) {
	const table = `
	after      asks   granted  admitted  refused  passes   leaves  ends
	idle       .      .        .         .        .        .       .
	waiting    asking holding  idle      .        passing  idle    .
	asking     .      holding  idle      waiting  .        idle    idle
	holding    .      .        .         .        passing  .       idle
	passing    .      holding  idle      waiting  .        .       idle`
	states := map[string]state{"idle": idle, "waiting": waiting, "asking": asking, "holding": holding, "passing": passing}
	events := map[string]event{"asks": asks, "granted": granted, "admitted": admitted, "refused": refused, "passes": passes, "leaves": leaves, "ends": ends}
	rows := strings.Split(strings.TrimSpace(table), "\n")
	head := strings.Fields(rows[0])[1:]
	for _, row := range rows[1:] {
		cells := strings.Fields(row)
		for i, what := range head {
			before := states[cells[0]]
			want, changes := states[cells[1+i]]
			if !changes {
				want = before // nothing changes
			}
			if got := before.on(events[what]); got != want {
				t.Errorf("%s: after %q it is %d, want %d", cells[0], what, got, want)
			}
		}
	}
	if len(rows)-1 != len(states) || len(head) != len(events) {
		t.Errorf("the table has %d states and %d events, want %d and %d", len(rows)-1, len(head), len(states), len(events))
	}
}
