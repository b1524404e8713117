package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/lockstrategies/locks/lab/compare"
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

// render is the report for people: tables, what their marks mean, and which strategy
// to take.
func render(r *compare.Report, l look) string {
	var b strings.Builder
	server := r.Redis.Version + " at " + r.Redis.Addr
	if n := len(r.Redis.Addrs); n > 1 {
		server += fmt.Sprintf(" and %d more", n-1)
	}
	if !r.Redis.Comparable {
		server = "embedded"
	}
	b.WriteString(l.prose("", fmt.Sprintf("%s · %d CPUs · %s/%s · %s · locks %s",
		server, r.Machine.CPUs, r.Machine.OS, r.Machine.Arch, r.Machine.Go, r.Version)) + "\n")
	warning := warn(!r.Redis.Comparable && r.Method.Each > 0, r.Interrupted, l)
	b.WriteString(warning)

	var notes compare.Notes
	tables := guarantees(r, l, &notes)
	if r.Method.Each > 0 {
		tables += requests(r, l) + timings(r, l)
	}
	if r.Interrupted && tables == "" {
		return "" // nothing to show
	}
	b.WriteString(tables)
	b.WriteString(leftOut(r, l))
	b.WriteString(renderNotes(notes, l))
	b.WriteString(failures(r, l))
	b.WriteString(method(r, l))
	b.WriteString(advice(r, l))
	b.WriteString(warning) // a reader of the end alone must see it as well
	return b.String()
}

// warn says loudly what the figures are not.
func warn(imitation, interrupted bool, l look) string {
	var s string
	shout := func(words string, c text.Color) {
		for line := range strings.Lines(l.prose("!!! ", words)) {
			s += l.paint(strings.TrimSuffix(line, "\n"), text.Bold, c) + "\n"
		}
		s += "\n"
	}
	if imitation {
		shout("THE TIMINGS ARE NOT COMPARABLE: this is the embedded imitation of Redis, inside this very process. They say nothing about a real one, nor about which strategy is faster there.", text.FgRed)
	}
	if interrupted {
		shout("INTERRUPTED: what is missing, and what has a ·, was not looked at.", text.FgYellow)
	}
	return s
}

// guarantees is a table with a column for each strategy. Its head is a flight of
// stairs, since names are far wider than what stands below them.
func guarantees(r *compare.Report, l look, ns *compare.Notes) string {
	if len(r.Strategies) == 0 {
		return ""
	}
	first, widest := 0, 0
	var titles, names []string
	cells := make([][]string, len(r.Strategies))
	for _, s := range r.Strategies {
		names = append(names, s.Name)
	}
	for i, g := range r.Strategies[0].Guarantees { // by rows, so that notes are numbered in the order of reading
		if !slices.ContainsFunc(r.Strategies, func(s compare.Column) bool { return s.Guarantees[i].Verdict != compare.Unknown }) {
			continue // the work was called off before
		}
		titles = append(titles, g.Title)
		first = max(first, textWidth(g.Title)+2)
		for k, s := range r.Strategies {
			cell := guaranteeCell(s.Guarantees[i], s.Name, l, ns)
			cells[k] = append(cells[k], cell)
			widest = max(widest, textWidth(cell))
		}
	}
	if len(titles) == 0 {
		return ""
	}
	var b strings.Builder
	for len(names) > 0 {
		gap := 3
		for gap > 1 && fits(names, first, widest+gap, l.width) < len(names) {
			gap--
		}
		n := max(1, fits(names, first, widest+gap, l.width))
		width := first + n*(widest+gap) - gap
		for i, name := range names[:n] {
			title := ""
			if i == 0 {
				title = "GUARANTEES"
			}
			b.WriteString(pad(l.paint(title, text.Bold), first))
			b.WriteString(strings.Repeat(pad("│", widest+gap), i))
			b.WriteString(l.paint(name, text.Bold) + "\n")
			width = max(width, first+i*(widest+gap)+textWidth(name))
		}
		b.WriteString(strings.Repeat("─", width) + "\n")
		for i, title := range titles {
			line := pad(title, first)
			for k := range n {
				line += pad(cells[k][i], widest+gap)
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		b.WriteString("\n")
		names, cells = names[n:], cells[n:]
	}
	return b.String() + legend(r, l)
}

// fits is how many columns fit, and their names, each of which goes on to the right.
func fits(names []string, first, column, width int) int {
	for i, name := range names {
		if first+i*column+textWidth(name) > width {
			return i
		}
	}
	return len(names)
}

func textWidth(s string) int { return text.StringWidthWithoutEscSequences(s) }

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-textWidth(s)))
}

const tableGap = "  "

// newTable is one without borders.
func newTable() table.Writer {
	w := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Box.PaddingLeft, style.Box.PaddingRight = "", tableGap
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	return w
}

// A sheet is a table with a line for each strategy.
type sheet struct {
	title   string
	columns []string
	left    bool                          // the cells are words, not numbers
	of      string                        // the measurement
	cells   func(compare.Column) []string // nil: nothing was measured
}

// render draws the table, unless there is nothing in it.
func (t sheet) render(r *compare.Report, l look) string {
	var rows [][]string
	known := false
	for _, s := range r.Strategies {
		cells := t.cells(s)
		switch {
		case cells != nil:
			known = true
		case failed(s, t.of):
			known = true
			cells = slices.Repeat([]string{failedMark}, len(t.columns))
		default:
			cells = slices.Repeat([]string{missing}, len(t.columns))
		}
		rows = append(rows, append([]string{s.Name}, cells...))
	}
	if !known {
		return ""
	}
	return drawTable(t.title, append([]string{""}, t.columns...), rows, func(i int) bool { return i > 0 && !t.left }, l) + "\n"
}

// drawTable draws what fits; columns of numbers are at their right.
func drawTable(title string, head []string, rows [][]string, right func(column int) bool, l look) string {
	w := newTable()
	widths := make([]int, len(head))
	line := func(cells []string) (row table.Row) {
		for i, cell := range cells {
			row = append(row, cell)
			widths[i] = max(widths[i], textWidth(cell))
		}
		return row
	}
	w.AppendHeader(line(head))
	for _, r := range rows {
		w.AppendRow(line(r))
	}
	var configs []table.ColumnConfig
	for i, most := range append(widths[:1], share(widths[1:], l.width-widths[0]-len(tableGap)*len(head))...) { // names stay whole
		c := table.ColumnConfig{Number: i + 1, WidthMax: most, WidthMaxEnforcer: text.WrapSoft}
		if right(i) {
			c.Align, c.AlignHeader = text.AlignRight, text.AlignRight
		}
		configs = append(configs, c)
	}
	w.SetColumnConfigs(configs)
	b := bold(title, l)
	for line := range strings.Lines(w.Render()) {
		b += strings.TrimRight(line, " \n") + "\n"
	}
	return b
}

func failed(s compare.Column, what string) bool {
	return slices.ContainsFunc(s.Failures, func(f compare.Failure) bool { return f.Measurement == what })
}

// share gives each column what it wants, if there is enough; else the widest get less.
func share(wanted []int, have int) []int {
	got := slices.Clone(wanted)
	for {
		sum, widest := 0, 0
		for i, w := range got {
			sum += w
			if w > got[widest] {
				widest = i
			}
		}
		if sum <= have || got[widest] <= 12 { // then it is left to the terminal
			return got
		}
		got[widest]--
	}
}

// renderNotes tells each in a sentence or two.
func renderNotes(ns compare.Notes, l look) string {
	var b strings.Builder
	for i, n := range ns {
		b.WriteString(l.prose(fmt.Sprintf("%3d ", i+1), n.String()))
	}
	if len(ns) > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

func guaranteeCell(g compare.Guarantee, who string, l look, ns *compare.Notes) string {
	mark := g.Verdict.Mark()
	switch g.Verdict {
	case compare.Kept:
		return l.paint(mark, text.FgGreen)
	case compare.Weak, compare.Failed:
		return l.paint(mark, text.FgRed, text.Bold) + strconv.Itoa(ns.Number(g, who))
	}
	return mark
}

const (
	missing    = "·"
	failedMark = "failed"
)

func requests(r *compare.Report, l look) string {
	s := sheet{
		title:   "REQUESTS, while nobody contends",
		columns: []string{"acquire", "release", "refused try", "keys left"},
		left:    true,
		of:      compare.MeasuringCost,
		cells: func(s compare.Column) []string {
			if s.Cost == nil {
				return nil
			}
			left := missing
			if s.Cost.KeysLeft != nil {
				left = strconv.Itoa(*s.Cost.KeysLeft)
			}
			return []string{
				s.Cost.Acquire.Words(s.Servers), s.Cost.Release.Words(s.Servers), s.Cost.HeldTry.Words(s.Servers), left,
			}
		},
	}.render(r, l)
	if s == "" {
		return ""
	}
	words := "2: GET, DEL is two round trips, one after another, with these commands."
	if slices.ContainsFunc(r.Strategies, func(s compare.Column) bool { return s.Servers > 1 }) {
		words += " 1 ×5: EVALSHA is one round trip to each of five servers, all at the same time."
	}
	return s + l.prose("", words) + "\n"
}

func timings(r *compare.Report, l look) (s string) {
	warning := ""
	if !r.Redis.Comparable {
		warning = "  !!! NOT COMPARABLE"
	}
	for _, t := range r.Timings() {
		s += sheet{title: strings.ToUpper(t.Title) + ", " + t.About + warning, columns: t.Head, of: t.Of, cells: t.Cells}.render(r, l)
	}
	return s
}

// legend says what the marks mean, of those that are there.
func legend(r *compare.Report, l look) string {
	seen := map[compare.Rating]bool{}
	for _, s := range r.Strategies {
		for _, g := range s.Guarantees {
			seen[g.Verdict] = true
		}
	}
	var parts []string
	for _, v := range compare.Verdicts() {
		if seen[v] {
			parts = append(parts, v.Mark()+" "+v.Meaning())
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return l.prose("", strings.Join(parts, ", ")) + "\n"
}

// leftOut says for what there were too few servers.
func leftOut(r *compare.Report, l look) string {
	if len(r.LeftOut) == 0 {
		return ""
	}
	return l.prose("", tooFew(r.LeftOut)) + "\n"
}

func tooFew(out []compare.LeftOut) string {
	var names []string
	for _, o := range out {
		names = append(names, fmt.Sprintf("%s, which takes %d servers", o.Name, o.Servers))
	}
	return "Left out: " + strings.Join(names, "; ") + ". " + waysToMore
}

// waysToMore is for those who gave too few servers: what is started is always enough.
const waysToMore = "Give as many, or none, and they are started."

func failures(r *compare.Report, l look) string {
	var b strings.Builder
	for _, s := range r.Strategies {
		for _, f := range s.Failures {
			b.WriteString(l.prose("!!! ", fmt.Sprintf("%s: measuring %s failed: %s", s.Name, f.Measurement, compare.Sentence(f.Error))))
		}
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// method says how it was measured, and how far to trust it.
func method(r *compare.Report, l look) string {
	s := r.How()
	if s == "" {
		return ""
	}
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
			s = l.paint(strings.Join(a.Strategies, ", "), text.Bold) + ". " + s
		}
		b.WriteString(l.prose("  ", a.For))
		b.WriteString(l.prose("    → ", s))
	}
	return b.String() + "\n" + l.prose("", "docs/use/choosing.md asks in order, and says why.") + "\n"
}
