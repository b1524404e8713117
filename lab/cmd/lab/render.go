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
	if !l.colour || s == "" || len(c) == 0 {
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

	g := r.Grid()
	tables := guarantees(r, g, l) + measured(r, l)
	if r.Interrupted && tables == "" {
		return "" // nothing to show
	}
	b.WriteString(tables)
	if len(r.LeftOut) > 0 {
		b.WriteString(l.prose("", tooFew(r.LeftOut)) + "\n")
	}
	for i, n := range g.Notes {
		b.WriteString(l.prose(fmt.Sprintf("%3d ", i+1), n.String()))
	}
	if len(g.Notes) > 0 {
		b.WriteString("\n")
	}
	b.WriteString(failures(r, l))
	if how := r.How(); how != "" {
		b.WriteString(l.prose("", how) + "\n")
	}
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

// guarantees is the table of marks, and what these mean.
func guarantees(r *compare.Report, g compare.Grid, l look) string {
	if len(g.Rows) == 0 {
		return ""
	}
	m := marks{title: "GUARANTEES"}
	for _, s := range r.Strategies {
		m.names = append(m.names, s.Name)
	}
	for _, row := range g.Rows {
		var cells []string
		for _, c := range row.Cells {
			mark := c.Mark()
			switch {
			case c.Note > 0:
				mark = l.paint(mark, text.FgRed, text.Bold) + strconv.Itoa(c.Note)
			case c.Rating == compare.Kept:
				mark = l.paint(mark, text.FgGreen)
			}
			cells = append(cells, mark)
		}
		m.add(row.Title, cells)
	}
	var legend []string
	for _, v := range g.Legend {
		legend = append(legend, v.Mark()+" "+v.Meaning())
	}
	return m.render(l) + l.prose("", strings.Join(legend, ", ")) + "\n"
}

// marks is a table with a column for each name. Its head is a flight of stairs, since names are far wider than
// what stands below them. Columns for which there is no room are in a table of their own below.
type marks struct {
	title  string
	names  []string
	titles []string   // of the rows; empty: one that sets others apart
	cells  [][]string // by row
}

func (m *marks) add(title string, cells []string) {
	m.titles, m.cells = append(m.titles, title), append(m.cells, cells)
}

func (m *marks) render(l look) string {
	first, widest := textWidth(m.title)+2, 0
	for i, title := range m.titles {
		first = max(first, textWidth(title)+2)
		for _, cell := range m.cells[i] {
			widest = max(widest, textWidth(cell))
		}
	}
	var b strings.Builder
	for done := 0; done < len(m.names); {
		names, gap := m.names[done:], 3
		for gap > 1 && fits(names, first, widest+gap, l.width) < len(names) {
			gap--
		}
		column := widest + gap
		n := max(1, fits(names, first, column, l.width))
		width := first + n*column - gap
		for i, name := range names[:n] {
			title := ""
			if i == 0 {
				title = l.paint(m.title, text.Bold)
			}
			b.WriteString(pad(title, first) + strings.Repeat(pad("│", column), i) + l.paint(name, text.Bold) + "\n")
			width = max(width, first+i*column+textWidth(name))
		}
		b.WriteString(strings.Repeat("─", width) + "\n")
		for i, title := range m.titles {
			line := pad(title, first)
			for _, cell := range m.cells[i][min(done, len(m.cells[i])):min(done+n, len(m.cells[i]))] {
				line += pad(cell, column)
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		b.WriteString("\n")
		done += n
	}
	return b.String()
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

// measured are the tables of what was counted and timed.
func measured(r *compare.Report, l look) (s string) {
	for _, t := range r.Tables() {
		title := strings.ToUpper(t.Title) + ", " + t.About
		if !r.Redis.Comparable && !t.Words {
			title += "  !!! NOT COMPARABLE"
		}
		s += drawTable(title, append([]string{""}, t.Head...), t.Rows, func(i int) bool { return i > 0 && !t.Words }, l) + "\n"
		if t.Note != "" {
			s += l.prose("", t.Note) + "\n"
		}
	}
	return s
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

func advice(r *compare.Report, l look) string {
	if len(r.Advice) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(l.paint("WHICH ONE?", text.Bold) + "\n")
	for _, a := range r.Advice {
		b.WriteString(l.prose("  ", a.For))
		b.WriteString(l.prose("    → ", l.paint(strings.Join(a.Strategies, ", "), text.Bold)+". "+a.Why))
	}
	return b.String() + "\n" + l.prose("", "docs/use/choosing.md asks in order, and says why.") + "\n"
}
