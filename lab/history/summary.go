package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Summary says how much happened in a history: how much its verdict is worth.
type Summary struct {
	Length   time.Duration
	Acquired int                     // acquisitions
	Clients  map[string]int          // of these, by client
	Lapsed   int                     // holds that were not released: lost, or left to lapse
	Answers  map[Kind]map[Result]int // how operations ended
	Faults   map[string]int          // by what was done
}

// Summarize counts.
func Summarize(ops []Op) Summary {
	b := bookOf(ops)
	s := Summary{Clients: map[string]int{}, Answers: map[Kind]map[Result]int{}, Faults: map[string]int{}}
	if len(b.ops) == 0 {
		return s
	}
	s.Length = b.last - b.ops[0].Start
	for _, op := range b.ops {
		switch {
		case op.Kind == KindFault:
			s.Faults[op.Note]++
		case !op.Kind.silent():
			if s.Answers[op.Kind] == nil {
				s.Answers[op.Kind] = map[Result]int{}
			}
			s.Answers[op.Kind][op.Result]++
		}
	}
	for _, h := range b.holds {
		s.Acquired++
		s.Clients[h.client]++
		if _, ok := h.released(); !ok {
			s.Lapsed++
		}
	}
	return s
}

// String is the summary in some lines.
func (s Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d acquisitions in %v, by %d clients (%s), %d of them not released",
		s.Acquired, s.Length.Round(time.Millisecond), len(s.Clients), counts(s.Clients), s.Lapsed)
	for _, kind := range kinds {
		if answers := s.Answers[kind]; len(answers) > 0 {
			fmt.Fprintf(&b, "\n%s: %s", kind, counts(answers))
		}
	}
	fmt.Fprintf(&b, "\nfaults: %s", cmp.Or(counts(s.Faults), "none"))
	return b.String()
}

// counts lists how often there was what, the most frequent first.
func counts[K cmp.Ordered](of map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(of), func(a, b K) int { return cmp.Or(of[b]-of[a], cmp.Compare(a, b)) })
	var words []string
	for _, k := range keys {
		words = append(words, fmt.Sprintf("%d %v", of[k], k))
	}
	return strings.Join(words, ", ")
}
