package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Meaning says what a verdict's mark stands for.
func (v Rating) Meaning() string {
	switch v {
	case Kept:
		return "kept"
	case Weak:
		return "a weakness seen in this run"
	case Absent:
		return "not offered"
	case Failed:
		return "failed and should not have"
	case Unclear:
		return "the machine was too slow to say"
	}
	return "not looked at"
}

// Verdicts are all that there are, in the order of a legend.
func Verdicts() []Rating { return []Rating{Kept, Weak, Absent, Failed, Unclear, Unknown} }

// Notes are what was seen where a mark is ✗ or !, each told once.
type Notes []Note

// A Note is what was seen of some strategies.
type Note struct {
	Properties []string
	Strategies []string
	Failed     bool // it was not expected
	Why        []string
	Seen       string

	about string // of which two are the same
}

// Number returns the note's number for what was seen of a strategy; the first is 1.
func (ns *Notes) Number(g Guarantee, who string) int {
	n := Note{Strategies: []string{who}, Failed: g.Verdict == Failed}
	for _, p := range g.Properties {
		if p.Verdict != g.Verdict {
			continue
		}
		n.Properties = append(n.Properties, p.Name)
		if p.Reason != "" && !slices.Contains(n.Why, p.Reason) {
			n.Why = append(n.Why, p.Reason)
		}
		if n.Seen == "" {
			n.Seen = Sentence(p.Evidence)
		}
	}
	n.about = fmt.Sprint(n.Properties, n.Why)
	if n.Failed {
		n.about += who // not expected: each is to be read
	}
	for i, m := range *ns {
		if m.about == n.about {
			(*ns)[i].Strategies = append(m.Strategies, who)
			return i + 1
		}
	}
	*ns = append(*ns, n)
	return len(*ns)
}

// String tells it in a sentence or two.
func (n Note) String() string {
	s := fmt.Sprintf("%s (%s): ", strings.Join(n.Properties, ", "), strings.Join(n.Strategies, ", "))
	if n.Failed {
		s += "NOT EXPECTED. "
	}
	if len(n.Why) > 0 {
		s += strings.Join(n.Why, "; ") + ". "
	}
	return s + "Seen: " + n.Seen
}

// Sentence is the first line of an error, as far as anybody reads.
func Sentence(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 300 {
		s = string(r[:300]) + " …"
	}
	return s
}

// Words is "2: GET, DEL", and for several servers that are all asked alike and at
// the same time "1 ×5: EVALSHA". For other requests it gives sums.
func (r Requests) Words(servers int) string {
	each, head := 1.0, ThreeDigits(r.RoundTrips)
	if servers > 1 {
		each = float64(servers)
		alike := r.RoundTrips == each*float64(r.InTurn) &&
			!slices.ContainsFunc(r.Commands, func(c Commands) bool { return math.Mod(c.Times, each) != 0 })
		if head = fmt.Sprintf("%d ×%d", r.InTurn, servers); !alike {
			each, head = 1, fmt.Sprintf("%d, %s in all", r.InTurn, ThreeDigits(r.RoundTrips))
		}
	}
	var names []string
	for _, c := range r.Commands {
		name := c.Name
		if c.Times != each {
			name = ThreeDigits(c.Times/each) + " " + name
		}
		names = append(names, name)
	}
	return head + ": " + strings.Join(names, ", ")
}

// A Timing is a table of what was timed, with a row for each strategy.
type Timing struct {
	Of    string // the measurement, as failures name it
	Title string
	About string
	Head  []string
	Cells func(Column) []string // nil: it was not measured
}

// Timings are the tables of times and rates.
func (r *Report) Timings() []Timing {
	var contenders []string
	for _, n := range r.Method.Contenders {
		contenders = append(contenders, strconv.Itoa(n)+" contending")
	}
	return []Timing{
		{MeasuringSolo, "One caller", "acquire and release", []string{"p50", "p99", "p50 in PINGs"}, func(s Column) []string {
			if s.Solo == nil {
				return nil
			}
			return []string{Micros(s.Solo.P50), Micros(s.Solo.P99), ThreeDigits(s.Solo.PerPing)}
		}},
		{MeasuringHandOff, "Hand-off", fmt.Sprintf("release → grant to another process, hold %v", r.Method.Hold.Duration()),
			[]string{"p50", "p99", "p50 in PINGs", "commands for each"}, func(s Column) []string {
				if s.HandOff == nil {
					return nil
				}
				return []string{Micros(s.HandOff.P50), Micros(s.HandOff.P99), ThreeDigits(s.HandOff.PerPing), ThreeDigits(s.HandOff.Commands)}
			}},
		{MeasuringContention, "Contention", "acquisitions per second · fairness", contenders, func(s Column) []string {
			if len(s.Contention) == 0 {
				return nil
			}
			cells := slices.Repeat([]string{"·"}, len(contenders))
			for i, c := range s.Contention {
				cells[i] = fmt.Sprintf("%s · %.2f", Rate(c.PerSecond), c.Jain)
			}
			return cells
		}},
	}
}

// How returns how the times were measured, and how far to trust them; nothing where there are none.
func (r *Report) How() string {
	m := r.Method
	if r.Ping == nil {
		return ""
	}
	var spread float64
	for _, s := range r.Strategies {
		for _, c := range s.Contention {
			if c.PerSecond > 0 {
				spread = max(spread, (c.Highest-c.Lowest)/2/c.PerSecond)
			}
		}
	}
	s := fmt.Sprintf("Guarantees are trials of the conformance suite, held in this run. "+
		"Round trips were counted at the client's connections. "+
		"Timings: %v each, after a warm-up, the strategies in turn. "+
		"Contention: each contender is a goroutine of one process that acquires and releases one lock over and over, without holding it; "+
		"fairness is Jain's index of their shares, 1 if all got the same, 1/n if one got all; rates are the median of %d rounds",
		m.Each.Duration(), m.Rounds)
	if spread > 0 {
		s += fmt.Sprintf(", which differ by up to ±%.0f %%", 100*spread)
	}
	s += "."
	s += fmt.Sprintf(" PING: p50 %s, p99 %s; divided by itself it reads %.2f, which is the noise of one caller's figures.",
		Micros(r.Ping.P50), Micros(r.Ping.P99), r.Ping.Control)
	return s
}

// Micros prints microseconds with three digits.
func Micros(us float64) string {
	switch {
	case us >= 1e6:
		return ThreeDigits(us/1e6) + " s"
	case us >= 1e3:
		return ThreeDigits(us/1e3) + " ms"
	}
	return ThreeDigits(us) + " µs"
}

// ThreeDigits prints three digits, more than which was not measured.
func ThreeDigits(x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Sprint(x)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// Rate prints a number of three digits with its thousands set apart.
func Rate(x float64) string {
	if x < 1000 {
		return ThreeDigits(x)
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-2)
	s := strconv.FormatInt(int64(math.Round(x/unit)*unit), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
