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
	Acquired int            // acquisitions
	Clients  map[string]int // of these, by client

	// How long those that acquired the lock had tried for it: since the first of their
	// tries that followed each other within a tenth of a second.
	WaitP50, WaitP99, WaitMax time.Duration

	Answers map[Kind]map[Result]int // how operations ended

	// Contenders is how many were trying on average, and at most, when somebody got the
	// lock, the one that got it included.
	Contenders    float64
	MostAtOnce    int
	Lapsed        int            // holds that were not released: lost, or left to lapse
	Faults        map[string]int // by what was done
	FaultsLasting time.Duration  // how much of Length some fault lasted
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
			s.Faults[words(op)]++
		case !op.Kind.silent():
			if s.Answers[op.Kind] == nil {
				s.Answers[op.Kind] = map[Result]int{}
			}
			s.Answers[op.Kind][op.Result]++
		}
	}
	var waits []time.Duration
	for _, h := range b.holds {
		s.Acquired++
		s.Clients[h.client]++
		if _, ok := h.released(); !ok {
			s.Lapsed++
		}
	}
	for _, p := range b.byKey {
		for _, t := range tries(p.attempts, 100*time.Millisecond) {
			if t.ops[len(t.ops)-1].Result == OK {
				waits = append(waits, t.until-t.from)
			}
		}
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		s.WaitP50, s.WaitP99, s.WaitMax = quantile(waits, 50), quantile(waits, 99), waits[len(waits)-1]
	}
	tried := 0
	for _, p := range b.byKey {
		sum, most := contenders(p)
		tried += sum
		s.MostAtOnce = max(s.MostAtOnce, most)
	}
	if s.Acquired > 0 {
		s.Contenders = float64(tried) / float64(s.Acquired)
	}
	s.FaultsLasting = lasting(b.faults, b.last)
	return s
}

// contenders counts, over all grants, who was trying when each was made, and the most at
// once.
func contenders(p *page) (sum, most int) {
	type change struct {
		at    time.Duration
		by    int
		grant bool
	}
	var changes []change
	for _, op := range p.attempts {
		changes = append(changes, change{op.Start, 1, false})
		if op.End != Forever {
			changes = append(changes, change{op.End, -1, op.grants()})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), b.by-a.by) })
	n := 0
	for _, c := range changes {
		if c.grant {
			sum += n
			most = max(most, n)
		}
		n += c.by
	}
	return sum, most
}

// lasting is for how long at least one fault lasted.
func lasting(faults []Op, last time.Duration) (sum time.Duration) {
	var until time.Duration
	for i, f := range faults { // by Start
		if i == 0 {
			until = f.Start
		}
		end := min(f.End, last)
		if from := max(f.Start, until); end > from {
			sum += end - from
			until = end
		}
	}
	return sum
}

// quantile is the smallest of the sorted values that so many per cent do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

// String is the summary in some lines.
func (s Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d acquisitions in %v, by %d clients (%s), %d of them not released\n", s.Acquired, s.Length.Round(time.Millisecond),
		len(s.Clients), counts(s.Clients), s.Lapsed)
	fmt.Fprintf(&b, "wait: median %v, 99 %% %v, longest %v\n", rounded(s.WaitP50), rounded(s.WaitP99), rounded(s.WaitMax))
	fmt.Fprintf(&b, "contention: %.1f on average were trying when somebody got the lock, %d at most", s.Contenders, s.MostAtOnce)
	for _, kind := range kinds {
		if answers := s.Answers[kind]; len(answers) > 0 {
			fmt.Fprintf(&b, "\n%s: %s", kind, counts(answers))
		}
	}
	n := 0
	for _, m := range s.Faults {
		n += m
	}
	fmt.Fprintf(&b, "\nfaults: %d, lasting for %v", n, s.FaultsLasting.Round(time.Millisecond))
	if n > 0 {
		fmt.Fprintf(&b, " (%s)", counts(s.Faults))
	}
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
