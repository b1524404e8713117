package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Grid is the guarantees as a table with a column for each strategy, and what was seen where one lacks them.
type Grid struct {
	Rows   []GridRow
	Notes  []Note
	Legend []Rating // that are in it
}

// A GridRow is a guarantee.
type GridRow struct {
	Title      string
	Properties []Property // that it consists of, of the first strategy
	Cells      []GridCell
}

// A GridCell is what the suite said. Note is the number of what was seen, from 1; 0: there is none.
type GridCell struct {
	Rating
	Note int
}

// Grid is the table of guarantees. A row that nobody was asked for is left out.
func (r *Report) Grid() (g Grid) {
	if len(r.Strategies) == 0 {
		return g
	}
	seen := map[Rating]bool{}
	for i, first := range r.Strategies[0].Guarantees { // by rows, so that notes are numbered as they are read
		row, known := GridRow{Title: first.Title, Properties: first.Properties}, false
		for _, s := range r.Strategies {
			c := GridCell{Rating: s.Guarantees[i].Verdict}
			if c.Rating == Weak || c.Rating == Failed {
				c.Note = g.number(s.Guarantees[i], s.Name)
			}
			known = known || c.Rating != Unknown
			seen[c.Rating] = true
			row.Cells = append(row.Cells, c)
		}
		if known {
			g.Rows = append(g.Rows, row)
		}
	}
	for _, v := range ratings {
		if seen[v.Rating] {
			g.Legend = append(g.Legend, v.Rating)
		}
	}
	return g
}

// A Note is what was seen of some strategies.
type Note struct {
	Properties []string
	Strategies []string
	Failed     bool // it was not expected
	Why        []string
	Seen       string
}

// number is that of the note on what was seen of a strategy. Strategies with the same expected weakness share a note.
func (g *Grid) number(of Guarantee, who string) int {
	n := Note{Strategies: []string{who}, Failed: of.Verdict == Failed}
	for _, p := range of.Properties {
		if p.Verdict != of.Verdict {
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
	for i, m := range g.Notes {
		if !n.Failed && !m.Failed && slices.Equal(m.Properties, n.Properties) && slices.Equal(m.Why, n.Why) {
			g.Notes[i].Strategies = append(m.Strategies, who)
			return i + 1
		}
	}
	g.Notes = append(g.Notes, n)
	return len(g.Notes)
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

// words is "2: GET, DEL", and for several servers that are all asked alike and at
// the same time "1 ×5: EVALSHA". For other requests it gives sums.
func (r Requests) words(servers int) string {
	each, head := 1.0, threeDigits(r.RoundTrips)
	if servers > 1 {
		each = float64(servers)
		alike := r.RoundTrips == each*float64(r.InTurn) &&
			!slices.ContainsFunc(r.Commands, func(c Commands) bool { return math.Mod(c.Times, each) != 0 })
		if head = fmt.Sprintf("%d ×%d", r.InTurn, servers); !alike {
			each, head = 1, fmt.Sprintf("%d, %s in all", r.InTurn, threeDigits(r.RoundTrips))
		}
	}
	var names []string
	for _, c := range r.Commands {
		name := c.Name
		if c.Times != each {
			name = threeDigits(c.Times/each) + " " + name
		}
		names = append(names, name)
	}
	return head + ": " + strings.Join(names, ", ")
}

// A Table is what was counted or timed. A row is a strategy's name, and its cells.
type Table struct {
	Of, Title, About string // Of: the measurement, as failures name it
	Note             string // how to read it, where it has to be said
	Words            bool   // the cells are words, and not numbers
	Head             []string
	Rows             [][]string
}

// Tables are those in which something was measured.
func (r *Report) Tables() (all []Table) {
	var contenders []string
	for _, n := range r.Method.Contenders {
		contenders = append(contenders, strconv.Itoa(n)+" contending")
	}
	const none = "·"
	for _, t := range []struct {
		Table
		cells func(Column) []string // nil: it was not measured
	}{
		{Table{Of: MeasuringCost, Title: "Requests", About: "while nobody contends", Words: true, Head: []string{"acquire", "release", "refused try", "keys left"},
			Note: "2: GET, DEL is two round trips, one after another, with these commands. 1 ×5: EVALSHA is one round trip to each of five servers, all at the same time."},
			func(s Column) []string {
				if s.Cost == nil {
					return nil
				}
				left := none
				if s.Cost.KeysLeft != nil {
					left = strconv.Itoa(*s.Cost.KeysLeft)
				}
				return []string{s.Cost.Acquire.words(s.Servers), s.Cost.Release.words(s.Servers), s.Cost.HeldTry.words(s.Servers), left}
			}},
		{Table{Of: MeasuringSolo, Title: "One caller", About: "acquire and release", Head: []string{"p50", "p99", "p50 in PINGs"}},
			func(s Column) []string {
				if s.Solo == nil {
					return nil
				}
				return []string{Micros(s.Solo.P50), Micros(s.Solo.P99), threeDigits(s.Solo.PerPing)}
			}},
		{Table{Of: MeasuringHandOff, Title: "Hand-off", About: fmt.Sprintf("release → grant to another process, hold %v", r.Method.Hold.Duration()),
			Head: []string{"p50", "p99", "p50 in PINGs", "commands for each"}},
			func(s Column) []string {
				if s.HandOff == nil {
					return nil
				}
				commands := none
				if s.Servers > 0 {
					commands = threeDigits(s.HandOff.Commands)
				}
				return []string{Micros(s.HandOff.P50), Micros(s.HandOff.P99), threeDigits(s.HandOff.PerPing), commands}
			}},
		{Table{Of: MeasuringContention, Title: "Contention", About: "acquisitions per second · fairness", Head: contenders},
			func(s Column) []string {
				if len(s.Contention) == 0 {
					return nil
				}
				cells := slices.Repeat([]string{none}, len(contenders))
				for i, c := range s.Contention {
					cells[i] = fmt.Sprintf("%s · %.2f", rate(c.PerSecond), c.Jain)
				}
				return cells
			}},
	} {
		known := false
		for _, s := range r.Strategies {
			cells := t.cells(s)
			switch {
			case cells == nil && s.failed(t.Of):
				cells, known = slices.Repeat([]string{"failed"}, len(t.Head)), true
			case cells == nil:
				cells = slices.Repeat([]string{none}, len(t.Head))
			default:
				known = true
			}
			t.Rows = append(t.Rows, append([]string{s.Name}, cells...))
		}
		if known {
			all = append(all, t.Table)
		}
	}
	return all
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
	for _, c := range r.Strategies {
		if c.Servers == 0 {
			s += " Trials on " + c.Name + " that need a hook into its requests are held by its own tests alone."
		}
	}
	s += fmt.Sprintf(" PING: p50 %s, p99 %s; divided by itself it reads %.2f, which is the noise of one caller's figures.",
		Micros(r.Ping.P50), Micros(r.Ping.P99), r.Ping.Control)
	return s
}

// Micros prints microseconds with three digits.
func Micros(us float64) string {
	switch {
	case us >= 1e6:
		return threeDigits(us/1e6) + " s"
	case us >= 1e3:
		return threeDigits(us/1e3) + " ms"
	}
	return threeDigits(us) + " µs"
}

// threeDigits prints three digits, more than which was not measured.
func threeDigits(x float64) string {
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

// rate prints a number of three digits with its thousands set apart.
func rate(x float64) string {
	if x < 1000 {
		return threeDigits(x)
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-2)
	s := strconv.FormatInt(int64(math.Round(x/unit)*unit), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
