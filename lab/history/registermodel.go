package history

import (
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// FencedRegister looks for an order that explains what a store answered that holds one
// value, initial at first, and refuses stale holders: it accepts an operation, a read too,
// iff its fence is greater than all before it, or equal to the greatest and of the same
// owner. A reader that shares a read-write lock has the fence of the writer before it, which is accepted.
func FencedRegister(ops []Op, initial string, limit time.Duration) []Violation {
	var found []Violation
	byKey := uses(ops)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		var s script
		for _, op := range byKey[key] {
			switch op.Result {
			case OK, Refused:
				s.add(op.Client, op, &op, op.Start, op.End)
			case Unknown:
				s.add("nobody", op, &op, op.Start, Forever)
			}
		}
		found = append(found, linear("FencedRegister", key, fencedModel(initial), s.steps, limit)...)
	}
	return found
}

// uses are the operations on each register.
func uses(ops []Op) map[string][]Op {
	byKey := map[string][]Op{}
	for _, op := range Merge(ops) {
		if op.Kind == KindRead || op.Kind == KindWrite {
			byKey[op.Key] = append(byKey[op.Key], op)
		}
	}
	return byKey
}

type fencedState struct {
	max          uint64
	owner, value string
}

func fencedModel(initial string) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{fencedState{value: initial}} },
		Step: func(state, input, _ any) []any {
			s, op := state.(fencedState), input.(Op)
			reads := op.Kind == KindRead && op.Share > 0
			accepts := op.Fence > s.max || op.Fence == s.max && (reads || op.owner() == s.owner)
			if !accepts {
				if op.Result == OK {
					return nil
				}
				return []any{s}
			}
			if op.Result == Refused || op.Kind == KindRead && op.Result == OK && op.Value != s.value {
				return nil
			}
			s.max, s.owner = op.Fence, op.owner()
			if op.Kind == KindWrite {
				s.value = op.Value
			}
			return []any{s}
		},
		Equal: func(a, b any) bool { return a.(fencedState) == b.(fencedState) },
	}
}
