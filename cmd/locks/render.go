package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/lockstrategies/locks/internal/compare"
)

// A look is what the output may be.
type look struct {
	width  int
	colour bool
}

const (
	pipedWidth = 80 // where nobody says how wide it is
	leastWidth = 60 // narrower, lines are left to the terminal to break
	proseWidth = 100
)

func lookOf(w io.Writer) look {
	l := look{width: terminalWidth(w)}
	l.colour = l.width > 0 && os.Getenv("NO_COLOR") == ""
	if l.width == 0 {
		l.width = pipedWidth
		if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil {
			l.width = n
		}
	}
	l.width = max(l.width, leastWidth)
	return l
}

func (l look) paint(s string, c ...text.Color) string {
	if !l.colour || s == "" {
		return s
	}
	return text.Escape(s, text.Colors(c).EscapeSeq())
}

// prose wraps a paragraph, the lines after the first indented as far as the first
// one's text.
func (l look) prose(first, s string) string {
	indent := text.StringWidthWithoutEscSequences(first)
	lines := strings.Split(text.WrapSoft(s, min(l.width, proseWidth)-indent), "\n")
	var b strings.Builder
	for i, line := range lines {
		if i == 0 {
			b.WriteString(first)
		} else {
			b.WriteString(strings.Repeat(" ", indent))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// A row is one line of the table. A section has no cells.
type row struct {
	title string
	cells []string
}

// render is the report for people: one table, what its marks mean, and which
// strategy to take.
func render(r *compare.Report, l look) string {
	var b strings.Builder
	server := r.Redis.Version + " at " + r.Redis.Addr
	if !r.Redis.Comparable {
		server = "embedded"
	}
	fmt.Fprintf(&b, "%s · %d CPUs · %s/%s · %s · locks %s\n\n",
		server, r.Machine.CPUs, r.Machine.OS, r.Machine.Arch, r.Machine.Go, r.Version)
	warning := warn(r, l)
	b.WriteString(warning)

	var notes notes
	rows := guaranteeRows(r, l, &notes)
	if r.Method.Each > 0 {
		rows = slices.Concat(rows, costRows(r), timingRows(r))
	}
	if r.Interrupted {
		if rows = known(rows); len(rows) == 0 {
			return "" // nothing to show
		}
	}
	header := []string{""}
	for _, s := range r.Strategies {
		header = append(header, s.Name)
	}
	for _, block := range blocks(header, rows, l.width) {
		b.WriteString(tabulate(header, rows, block, l) + "\n")
	}
	b.WriteString(legend(r, l))
	b.WriteString(notes.render(l))
	b.WriteString(failures(r, l))
	b.WriteString(method(r, l))
	b.WriteString(advice(r, l))
	b.WriteString(warning) // whoever reads the end only must see it as well
	return b.String()
}

// warn says loudly what the figures are not.
func warn(r *compare.Report, l look) string {
	var s string
	shout := func(words string, c text.Color) {
		for line := range strings.Lines(l.prose("!!! ", words)) {
			s += l.paint(strings.TrimSuffix(line, "\n"), text.Bold, c) + "\n"
		}
		s += "\n"
	}
	if !r.Redis.Comparable && r.Method.Each > 0 {
		shout("THE TIMINGS ARE NOT COMPARABLE: this is the embedded imitation of Redis, inside this very process. They say nothing about a real one, nor about which strategy is faster there.", text.FgRed)
	}
	if r.Interrupted {
		shout("INTERRUPTED: what is missing, and what has a ·, was not looked at.", text.FgYellow)
	}
	return s
}

// known drops the rows of which nothing is known, and sections without rows.
func known(rows []row) []row {
	var left []row
	for i, r := range rows {
		if r.cells != nil {
			if slices.ContainsFunc(r.cells, func(c string) bool { return c != missing }) {
				left = append(left, r)
			}
			continue
		}
		next := slices.IndexFunc(rows[i+1:], func(r row) bool { return r.cells == nil })
		if next < 0 {
			next = len(rows) - i - 1
		}
		if len(known(rows[i+1:i+1+next])) > 0 {
			left = append(left, r)
		}
	}
	return left
}

// blocks splits the columns into tables that fit: the numbers of those in each.
func blocks(header []string, rows []row, width int) [][]int {
	first := 0
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = text.StringWidthWithoutEscSequences(h)
	}
	for _, r := range rows {
		if r.cells == nil {
			continue // a section's title runs over the columns
		}
		first = max(first, text.StringWidthWithoutEscSequences(r.title))
		for i, c := range r.cells {
			widths[i+1] = max(widths[i+1], text.StringWidthWithoutEscSequences(c))
		}
	}
	const gap = 2
	var all [][]int
	var block []int
	used := first
	for i := 1; i < len(header); i++ {
		if len(block) > 0 && used+gap+widths[i] > width {
			all = append(all, block)
			block, used = nil, first
		}
		block = append(block, i)
		used += gap + widths[i]
	}
	return append(all, block)
}

// tabulate draws the table of some columns.
func tabulate(header []string, rows []row, columns []int, l look) string {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)

	head := table.Row{""}
	var configs []table.ColumnConfig
	for k, i := range columns {
		head = append(head, l.paint(header[i], text.Bold))
		configs = append(configs, table.ColumnConfig{Number: k + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(head)
	// Sections' titles run over the columns, so they are put in afterwards.
	titles := map[int]string{}
	lines := 2 // the header and the line under it
	for n, r := range rows {
		if r.cells == nil {
			if n > 0 {
				t.AppendRow(table.Row{""})
				lines++
			}
			titles[lines] = l.paint(r.title, text.Bold)
		}
		line := table.Row{r.title}
		if r.cells == nil {
			line[0] = ""
		}
		for _, i := range columns {
			if r.cells != nil {
				line = append(line, r.cells[i-1])
			}
		}
		t.AppendRow(line)
		lines++
	}
	var b strings.Builder
	for i, line := range strings.Split(t.Render(), "\n") {
		if title, ok := titles[i]; ok {
			line = title
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// notes are what was seen where a mark is not ✓, each told once.
type notes []note

type note struct {
	compare.Property
	who []string
}

// number returns the note's number for a property of a strategy.
func (ns *notes) number(p compare.Property, who string) int {
	for i, n := range *ns {
		if n.Name == p.Name && n.Verdict == p.Verdict && n.Reason == p.Reason {
			(*ns)[i].who = append(n.who, who)
			return i + 1
		}
	}
	*ns = append(*ns, note{Property: p, who: []string{who}})
	return len(*ns)
}

// render tells each in a sentence or two.
func (ns notes) render(l look) string {
	var b strings.Builder
	for i, n := range ns {
		s := fmt.Sprintf("%s (%s): ", n.Name, strings.Join(n.who, ", "))
		if n.Verdict == compare.Failed {
			s += "NOT EXPECTED. "
		}
		if n.Reason != "" {
			s += n.Reason + ". "
		}
		b.WriteString(l.prose(fmt.Sprintf("%3d ", i+1), s+"Seen: "+sentence(n.Evidence)))
	}
	if len(ns) > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// sentence is the first line of an error, as far as anybody reads.
func sentence(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 300 {
		s = string(r[:300]) + " …"
	}
	return s
}

func guaranteeRows(r *compare.Report, l look, ns *notes) []row {
	rows := []row{{title: "GUARANTEES"}}
	if len(r.Strategies) == 0 {
		return rows
	}
	for i, g := range r.Strategies[0].Guarantees {
		cells := make([]string, len(r.Strategies))
		for k, s := range r.Strategies {
			cells[k] = guaranteeCell(s.Guarantees[i], s.Name, l, ns)
		}
		rows = append(rows, row{g.Title, cells})
	}
	return rows
}

func guaranteeCell(g compare.Guarantee, who string, l look, ns *notes) string {
	mark := g.Verdict.Mark()
	switch g.Verdict {
	case compare.Kept:
		return l.paint(mark, text.FgGreen)
	case compare.Weak, compare.Failed:
	default:
		return mark
	}
	var numbers []string
	for _, p := range g.Properties {
		if p.Verdict == compare.Weak || p.Verdict == compare.Failed {
			numbers = append(numbers, strconv.Itoa(ns.number(p, who)))
		}
	}
	return strings.Join(numbers, " ") + " " + l.paint(mark, text.FgRed, text.Bold)
}

const missing = "·"

// cell is what was measured of every strategy, or why there is nothing.
func cell(r *compare.Report, what string, get func(compare.Strategy) (string, bool)) []string {
	cells := make([]string, len(r.Strategies))
	for i, s := range r.Strategies {
		text, ok := get(s)
		switch {
		case ok:
			cells[i] = text
		case slices.ContainsFunc(s.Failures, func(f compare.Failure) bool { return f.Measurement == what }):
			cells[i] = "failed"
		default:
			cells[i] = missing
		}
	}
	return cells
}

func costRows(r *compare.Report) []row {
	add := func(title string, get func(*compare.Cost) string) row {
		return row{title, cell(r, compare.MeasuringCost, func(s compare.Strategy) (string, bool) {
			if s.Cost == nil {
				return "", false
			}
			return get(s.Cost), true
		})}
	}
	requests := func(of func(*compare.Cost) compare.Requests) func(*compare.Cost) string {
		return func(c *compare.Cost) string { return commands(of(c)) }
	}
	rows := []row{
		{title: "REQUESTS, round trips: commands, while nobody contends"},
		add("acquire", requests(func(c *compare.Cost) compare.Requests { return c.Acquire })),
		add("release", requests(func(c *compare.Cost) compare.Requests { return c.Release })),
		add("a try, while it is held", requests(func(c *compare.Cost) compare.Requests { return c.HeldTry })),
		add("keys that stay, for each name", func(c *compare.Cost) string {
			if c.KeysLeft == nil {
				return missing
			}
			return strconv.Itoa(*c.KeysLeft)
		}),
	}
	return rows
}

// commands is "2: GET, DEL".
func commands(r compare.Requests) string {
	var names []string
	for _, c := range r.Commands {
		name := c.Name
		if c.Times != 1 {
			name = short(c.Times) + " " + name
		}
		names = append(names, name)
	}
	return short(r.RoundTrips) + ": " + strings.Join(names, ", ")
}

func timingRows(r *compare.Report) []row {
	warning := ""
	if !r.Redis.Comparable {
		warning = "  !!! NOT COMPARABLE"
	}
	solo := func(title string, get func(*compare.Solo) string) row {
		return row{title, cell(r, compare.MeasuringSolo, func(s compare.Strategy) (string, bool) {
			if s.Solo == nil {
				return "", false
			}
			return get(s.Solo), true
		})}
	}
	handOff := func(title string, get func(*compare.HandOff) string) row {
		return row{title, cell(r, compare.MeasuringHandOff, func(s compare.Strategy) (string, bool) {
			if s.HandOff == nil {
				return "", false
			}
			return get(s.HandOff), true
		})}
	}
	rows := []row{
		{title: "ONE CALLER, acquire and release" + warning},
		solo("p50", func(s *compare.Solo) string { return micros(s.P50) }),
		solo("p99", func(s *compare.Solo) string { return micros(s.P99) }),
		solo("p50 in PINGs", func(s *compare.Solo) string { return short(s.PerPing) }),
		{title: fmt.Sprintf("HAND-OFF, release → grant to another process, hold %v", r.Method.Hold.Duration()) + warning},
		handOff("p50", func(s *compare.HandOff) string { return micros(s.P50) }),
		handOff("p99", func(s *compare.HandOff) string { return micros(s.P99) }),
		handOff("p50 in PINGs", func(s *compare.HandOff) string { return short(s.PerPing) }),
		handOff("commands for each", func(s *compare.HandOff) string { return short(s.Commands) }),
		{title: "CONTENTION, acquisitions per second · fairness" + warning},
	}
	for i, n := range r.Method.Contenders {
		title := strconv.Itoa(n) + " contenders"
		if n == 1 {
			title = "1 contender"
		}
		rows = append(rows, row{title, cell(r, compare.MeasuringContention, func(s compare.Strategy) (string, bool) {
			if i >= len(s.Contention) {
				return "", false
			}
			c := s.Contention[i]
			return fmt.Sprintf("%s · %.2f", rate(c.PerSecond), c.Jain), true
		})})
	}
	return rows
}

// legend says what the marks mean, of those that are there.
func legend(r *compare.Report, l look) string {
	seen := map[compare.Verdict]bool{}
	for _, s := range r.Strategies {
		for _, g := range s.Guarantees {
			seen[g.Verdict] = true
		}
	}
	var parts []string
	for _, m := range []struct {
		v    compare.Verdict
		text string
	}{
		{compare.Kept, "kept"}, {compare.Weak, "a weakness seen in this run"}, {compare.Absent, "not offered"},
		{compare.Failed, "failed and should not have"}, {compare.Unknown, "not looked at"},
	} {
		if seen[m.v] {
			parts = append(parts, m.v.Mark()+" "+m.text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return l.prose("", strings.Join(parts, ", ")) + "\n"
}

func failures(r *compare.Report, l look) string {
	var b strings.Builder
	for _, s := range r.Strategies {
		for _, f := range s.Failures {
			b.WriteString(l.prose("!!! ", fmt.Sprintf("%s: measuring %s failed: %s", s.Name, f.Measurement, sentence(f.Error))))
		}
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// method says how it was measured, and how far to trust it.
func method(r *compare.Report, l look) string {
	m := r.Method
	if r.Ping == nil { // no timings
		return ""
	}
	by := map[string]bool{}
	var spread float64
	for _, s := range r.Strategies {
		if s.Cost != nil {
			by[s.Cost.RoundTripsBy] = true
		}
		for _, c := range s.Contention {
			if c.PerSecond > 0 {
				spread = max(spread, (c.Highest-c.Lowest)/2/c.PerSecond)
			}
		}
	}
	counted := ""
	switch {
	case by["server"]:
		counted = " Round trips were counted by the server."
	case by["client"]:
		counted = " Round trips were counted by the client: the server does not tell ours."
	}
	s := fmt.Sprintf("Guarantees are trials of the conformance suite, held in this run.%s "+
		"Timings: %v each, after a warm-up, the strategies in turn. "+
		"Contention: each contender is a goroutine of one process that acquires and releases one lock over and over, without holding it; "+
		"fairness is Jain's index of their shares, 1 if all got the same, 1/n if one got all; rates are the median of %d rounds",
		counted, m.Each.Duration(), m.Rounds)
	if spread > 0 {
		s += fmt.Sprintf(", which differ by up to ±%.0f %%", 100*spread)
	}
	s += "."
	s += fmt.Sprintf(" PING: p50 %s, p99 %s; divided by itself it reads %.2f, which is the noise of one caller's figures.",
		micros(r.Ping.P50), micros(r.Ping.P99), r.Ping.Control)
	return l.prose("", s) + "\n"
}

func advice(r *compare.Report, l look) string {
	if len(r.Advice) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(l.paint("WHICH ONE?", text.Bold) + "\n")
	for _, a := range r.Advice {
		s := a.Why
		if len(a.Strategies) > 0 {
			s = l.paint(strings.Join(a.Strategies, ", "), text.Bold) + ": " + s
		}
		b.WriteString(l.prose("  ", a.For))
		b.WriteString(l.prose("    → ", s))
	}
	return b.String() + "\n"
}

// micros prints microseconds with three digits.
func micros(us float64) string {
	switch {
	case us >= 1e6:
		return short(us/1e6) + " s"
	case us >= 1e3:
		return short(us/1e3) + " ms"
	}
	return short(us) + " µs"
}

// short prints three digits, more than which was not measured.
func short(x float64) string {
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
		return short(x)
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-2)
	s := strconv.FormatInt(int64(math.Round(x/unit)*unit), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
