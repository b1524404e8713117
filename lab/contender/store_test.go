package contender

// The store that refuses stale fences.

import (
	"errors"
	"testing"

	"github.com/lockstrategies/locks/lab/history"
)

// TestStoreRule: accepted is a fence that is greater than any that was shown, or equal
// and of the same owner; a read shows it as well as a write; without one all is accepted.
func TestStoreRule(t *testing.T) {
	const read, write = history.KindRead, history.KindWrite
	type ask struct {
		kind  history.Kind
		fence uint64
		owner string
		stale bool
	}
	for name, asks := range map[string][]ask{
		"rising":              {{write, 1, "A", false}, {write, 2, "B", false}, {write, 5, "C", false}},
		"older write":         {{write, 2, "B", false}, {write, 1, "A", true}, {write, 2, "B", false}},
		"older read":          {{write, 2, "B", false}, {read, 1, "A", true}},
		"a read raises":       {{read, 2, "B", false}, {write, 1, "A", true}},
		"equal, same owner":   {{write, 2, "A", false}, {read, 2, "A", false}, {write, 2, "A", false}},
		"equal, other owner":  {{write, 2, "A", false}, {write, 2, "B", true}, {read, 2, "B", true}},
		"refused, so unshown": {{write, 3, "A", false}, {write, 2, "B", true}, {write, 2, "B", true}, {write, 3, "A", false}},
		"unfenced":            {{write, 0, "A", false}, {write, 0, "B", false}, {read, 0, "A", false}},
		"unfenced as well":    {{write, 7, "A", false}, {write, 0, "B", false}, {write, 6, "C", true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := OpenStore()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c, err := dialStore(s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			stored := ""
			for i, a := range asks {
				r := request{Kind: a.kind, Key: "k", Owner: a.owner, Fence: a.fence, Value: a.owner + " wrote"}
				got, err := c.ask(r)
				if errors.Is(err, ErrStale) != a.stale || err != nil && !a.stale {
					t.Fatalf("%d: %+v = %v, want stale: %t", i, a, err, a.stale)
				}
				if a.kind == read && !a.stale && got != stored {
					t.Errorf("%d: read %q, want %q", i, got, stored)
				}
				if a.kind == write && !a.stale {
					stored = r.Value
				}
				if s.Value("k") != stored {
					t.Errorf("%d: stored is %q, want %q", i, s.Value("k"), stored)
				}
			}
		})
	}
}
