package contender

// The store that refuses stale fences.

import (
	"testing"

	"github.com/lockstrategies/locks/lab/history"
)

// TestStoreRule: accepted is a fence that is greater than any that was shown, or equal
// and of the same owner; a read shows it as well as a write; without one all is accepted. Readers that share a lock
// have the fence of the writer before them, and read. Then that writer is refused.
func TestStoreRule(t *testing.T) {
	const read, write = history.KindRead, history.KindWrite
	type asked struct {
		kind  history.Kind
		fence uint64
		owner string
		stale bool
		share bool
	}
	for name, asks := range map[string][]asked{
		"rising":              {{kind: write, fence: 1, owner: "A"}, {kind: write, fence: 2, owner: "B"}, {kind: write, fence: 5, owner: "C"}},
		"older write":         {{kind: write, fence: 2, owner: "B"}, {kind: write, fence: 1, owner: "A", stale: true}, {kind: write, fence: 2, owner: "B"}},
		"older read":          {{kind: write, fence: 2, owner: "B"}, {kind: read, fence: 1, owner: "A", stale: true}},
		"a read raises":       {{kind: read, fence: 2, owner: "B"}, {kind: write, fence: 1, owner: "A", stale: true}},
		"equal, same owner":   {{kind: write, fence: 2, owner: "A"}, {kind: read, fence: 2, owner: "A"}, {kind: write, fence: 2, owner: "A"}},
		"equal, other owner":  {{kind: write, fence: 2, owner: "A"}, {kind: write, fence: 2, owner: "B", stale: true}, {kind: read, fence: 2, owner: "B", stale: true}},
		"refused, so unshown": {{kind: write, fence: 3, owner: "A"}, {kind: write, fence: 2, owner: "B", stale: true}, {kind: write, fence: 2, owner: "B", stale: true}, {kind: write, fence: 3, owner: "A"}},
		"unfenced":            {{kind: write, fence: 0, owner: "A"}, {kind: write, fence: 0, owner: "B"}, {kind: read, fence: 0, owner: "A"}},
		"unfenced as well":    {{kind: write, fence: 7, owner: "A"}, {kind: write, fence: 0, owner: "B"}, {kind: write, fence: 6, owner: "C", stale: true}},
		"sharing readers": {
			{kind: write, fence: 2, owner: "A"}, {kind: read, fence: 2, owner: "B", share: true}, {kind: read, fence: 2, owner: "C", share: true},
			{kind: read, fence: 2, owner: "B", share: true}, {kind: write, fence: 2, owner: "A", stale: true}, {kind: write, fence: 3, owner: "D"},
			{kind: read, fence: 2, owner: "B", share: true, stale: true},
		},
		"sharing writers": {{kind: write, fence: 2, owner: "A"}, {kind: write, fence: 2, owner: "B", share: true, stale: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Store{cells: map[string]*cell{}}
			stored := ""
			for i, a := range asks {
				op := history.Op{Kind: a.kind, Key: "k", Owner: a.owner, Fence: a.fence, Value: a.owner + " wrote"}
				if a.share {
					op.Share = 1
				}
				var got string
				if err := s.Serve(op, &got); err != nil != a.stale {
					t.Fatalf("%d: %+v = %v, want stale: %t", i, a, err, a.stale)
				}
				if a.kind == write && !a.stale {
					stored = op.Value
				}
				if s.Value("k") != stored || !a.stale && got != stored {
					t.Errorf("%d: it gets %q, and stored is %q, want %q", i, got, s.Value("k"), stored)
				}
			}
		})
	}
}
