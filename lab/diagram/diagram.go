// Package diagram draws what clients and servers say to each other: time goes downwards, and each
// has a column.
package diagram

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Style is how a piece of a diagram stands out.
type Style int

const (
	Plain  Style = iota
	Faint        // lifelines, times
	Strong       // names, commands
	Good         // somebody holds the lock
	Bad          // a promise breaks
	Odd          // what happens besides the commands
)

// A Paint shows text in a style.
type Paint func(Style, string) string

// Draw draws events for a terminal of that width: clients and servers as columns, time
// downwards. A client's line is double while it believes it holds the lock. It is empty for an
// act that comes to a table alone.
func Draw(actors []Actor, events []Event, width int, paint Paint) string {
	if len(events) == 0 {
		return ""
	}
	d := NewDrawing(width, paint)
	d.timed = !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Send })
	all := d.Head(actors)
	for _, e := range events {
		all += d.Row(e)
	}
	return all + d.Rest()
}

// A Drawing is a diagram under the pen. It gets the events one by one, as they happen.
type Drawing struct {
	b      strings.Builder
	paint  Paint
	actors []Actor
	at     map[string]int // where an actor's line is
	text   int            // where words begin
	width  int
	// several servers: who is looked at has to be said, as no arrow does.
	several bool
	timed   bool // no command says when, so each row does
	state   map[string]*lifeline

	events int    // that it has got
	rows   []*row // to be drawn
}

// A row is one line of the diagram: an event, together with its answer if nothing else
// happened before that.
type row struct {
	Event
	index  int
	open   bool // its answer may still come
	answer string
	also   []*row // the same command, from the same client, to other servers
}

type lifeline struct{ holds, paused, dead bool }

// NewDrawing returns one that has nobody on it.
func NewDrawing(width int, paint Paint) *Drawing {
	return &Drawing{paint: paint, width: width, state: map[string]*lifeline{}}
}

// Row gets the next event, and returns the rows that are whole by that: a command
// waits for its answer to be drawn next to it. An event of the asking client alone does not
// come between them; one of others does, and then the answer gets its own row.
// Where there are several servers, a command waits for what comes next, too: what is sent to
// several of them is one row, with all answers.
func (d *Drawing) Row(e Event) string {
	n := d.events
	d.events++
	if e.Answer != "" && e.Means != "" {
		e.Answer = e.Means
	}
	e.Answer = Brief(e.Answer)
	asker := map[Kind]string{Send: e.From, Reply: e.To}[e.Kind]
	if slices.ContainsFunc(d.rows, func(r *row) bool { return r.waits() && r.From != asker }) {
		d.closeRows()
	}
	next := &row{Event: e, index: n, open: e.Kind == Send}
	switch asked, last := d.asked(e), len(d.rows)-1; {
	case asked != nil:
		asked.open, asked.answer = false, e.Answer
	case last >= 0 && d.rows[last].joins(next):
		d.rows[last].also = append(d.rows[last].also, next)
	default:
		d.rows = append(d.rows, next)
	}
	return d.drawn(d.several)
}

// asked is the row of the command that is answered, if that still waits.
func (d *Drawing) asked(e Event) *row {
	for _, r := range d.rows {
		for _, r := range r.all() {
			if e.Kind == Reply && r.open && r.index == e.Of {
				return r
			}
		}
	}
	return nil
}

// all are the row's commands.
func (r *row) all() []*row { return append([]*row{r}, r.also...) }

func (r *row) waits() bool {
	return slices.ContainsFunc(r.all(), func(r *row) bool { return r.open })
}

// joins reports whether the next row is the same command to another server.
func (r *row) joins(next *row) bool {
	return r.Kind == Send && next.Kind == Send && r.From == next.From && slices.Equal(r.Args, next.Args) &&
		!slices.ContainsFunc(r.all(), func(r *row) bool { return r.To == next.To })
}

// Waits reports whether a row waits for its answer. Others may wait for what comes next.
func (d *Drawing) Waits() bool { return slices.ContainsFunc(d.rows, (*row).waits) }

// Rest is the rows that wait.
func (d *Drawing) Rest() string {
	d.closeRows()
	return d.drawn(false)
}

func (d *Drawing) closeRows() {
	for _, r := range d.rows {
		for _, r := range r.all() {
			r.open = false
		}
	}
}

// drawn draws the rows up to the first that waits. The last is kept if it is a command that
// others may join.
func (d *Drawing) drawn(keep bool) string {
	for len(d.rows) > 0 && !d.rows[0].waits() && !(keep && len(d.rows) == 1 && d.rows[0].Kind == Send) {
		d.row(*d.rows[0])
		d.rows = d.rows[1:]
	}
	defer d.b.Reset()
	return d.b.String()
}

const timeWidth = 7 // what comes before the lines

// Head is the line with the actors' names, from which their lines go down. When others have
// come on, it is drawn again, and rows are as wide as it from there on.
func (d *Drawing) Head(actors []Actor) string {
	d.actors, d.at = slices.Clone(actors), map[string]int{}
	each := 4
	for _, a := range actors {
		each = max(each, utf8.RuneCountInString(a.Name)+2)
	}
	x := timeWidth + each/2
	for i, a := range actors {
		if i > 0 && a.Server && !actors[i-1].Server {
			x += 2 // the network
		}
		d.several = d.several || a.Server && i > 0 && actors[i-1].Server
		d.at[a.Name] = x
		if d.state[a.Name] == nil {
			d.state[a.Name] = &lifeline{}
		}
		x += each
	}
	d.text = x - each/2 + 1
	line := []rune(strings.Repeat(" ", d.text))
	for _, a := range d.actors {
		name := []rune(a.Name)
		copy(line[d.at[a.Name]-len(name)/2:], name)
	}
	copy(line[4:], []rune("ms"))
	return d.paint(Strong, strings.TrimRight(string(line), " ")) + "\n"
}

// A cell is a rune with its style.
type cell struct {
	r     rune
	style Style
}

// lines are the lifelines as they are now.
func (d *Drawing) lines() []cell {
	cells := make([]cell, d.text)
	for i := range cells {
		cells[i] = cell{' ', Plain}
	}
	for name, x := range d.at {
		switch l := d.state[name]; {
		case l.dead:
		case l.paused && l.holds:
			cells[x] = cell{'┇', Good}
		case l.paused:
			cells[x] = cell{'┊', Faint}
		case l.holds:
			cells[x] = cell{'║', Good}
		default:
			cells[x] = cell{'│', Faint}
		}
	}
	return cells
}

func (d *Drawing) row(r row) {
	time, when := clock(r.At), ""
	if d.timed {
		when = time
	}
	switch r.Kind {
	case Send:
		words := d.paint(Strong, r.Command())
		style := func(s string) string { return strings.Replace(s, r.Command(), words, 1) }
		if len(r.also) == 0 {
			d.words(time, d.arrow(r.From, r.To, '─'), r.Command()+tail(r.answer), style)
			return
		}
		d.words(time, d.arrows(r), d.fanned(r), style)
	case Reply:
		d.words(time, d.arrow(r.From, r.To, '╌'), "→ "+r.Answer, nil)
	case Message:
		d.words(time, d.arrow(r.From, r.To, '╌'), "message: "+r.Answer, nil)
	case Look:
		at := ""
		if d.several {
			at = r.To + ": "
		}
		d.words("", d.lines(), "("+at+r.Command()+tail(r.Answer)+")", d.styled(Faint))
	case State:
		d.change(r, when)
	case Note:
		d.words(when, d.lines(), r.Text, d.styled(Odd))
	case Violation:
		cells := d.lines()
		for i := timeWidth; i < len(cells)-1; i++ {
			if cells[i].r == ' ' {
				cells[i] = cell{'━', Bad}
			}
		}
		d.words(when, cells, "✗ VIOLATED: "+r.Text, d.styled(Bad))
	}
}

// clock is a time in milliseconds, of which there may be many where a reader decides.
func clock(at time.Duration) string {
	if at < 10*time.Second {
		return fmt.Sprintf("%6.1f", float64(at.Microseconds())/1000)
	}
	return fmt.Sprintf("%6d", at.Milliseconds())
}

func tail(answer string) string {
	if answer == "" {
		return ""
	}
	return "  → " + answer
}

func (d *Drawing) styled(s Style) func(string) string {
	return func(text string) string { return d.paint(s, text) }
}

func (d *Drawing) change(r row, when string) {
	l, style, mark := d.state[r.From], Odd, rune(0)
	switch r.Condition {
	case Holds:
		l.holds, style = true, Good
	case Ended:
		l.holds = false
	case Paused:
		l.paused = true
	case Awake:
		l.paused = false
	case Dead:
		l.dead, mark = true, '✗'
	case Alive:
		l.dead = false
	}
	cells := d.lines()
	if mark != 0 {
		cells[d.at[r.From]] = cell{mark, Odd}
	}
	d.words(when, cells, r.Text, d.styled(style))
}

// arrow is the lifelines with an arrow between two of them.
func (d *Drawing) arrow(from, to string, with rune) []cell {
	cells := d.lines()
	a, b := d.at[from], d.at[to]
	step := 1
	if b < a {
		step = -1
	}
	for x := a + step; x != b; x += step {
		r := with
		switch cells[x].r {
		case '│', '┊':
			r = '┼'
		case '║', '┇':
			r = '╫'
		}
		cells[x] = cell{r, Plain}
	}
	cells[b-step] = cell{map[int]rune{1: '▶', -1: '◀'}[step], Plain}
	return cells
}

// words writes a row, with its words in as many lines as they take.
func (d *Drawing) words(time string, cells []cell, text string, style func(string) string) {
	if style == nil {
		style = d.styled(Plain)
	}
	var lines []string
	width := max(d.width-d.text, 20)
	for part := range strings.SplitSeq(text, "\n") {
		lines = append(lines, wrap(part, width-min(2*len(lines), 2))...)
	}
	for i, line := range lines {
		if i > 0 {
			time, cells = "", d.lines()
			line = "  " + line
		}
		d.b.WriteString(d.paint(Faint, fmt.Sprintf("%*s", timeWidth-1, time)) + " " + d.cells(cells[timeWidth:]) + style(line) + "\n")
	}
}

// cells is the runes, each run of one style painted as one.
func (d *Drawing) cells(cells []cell) string {
	var b strings.Builder
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].style == cells[0].style {
			n++
		}
		var run strings.Builder
		for _, c := range cells[:n] {
			run.WriteRune(c.r)
		}
		b.WriteString(d.paint(cells[0].style, run.String()))
		cells = cells[n:]
	}
	return b.String()
}

// wrap breaks a text between words into lines of that width at most. An arrow stays with what
// comes after it.
func wrap(text string, width int) (lines []string) {
	const glue = "\u00a0"
	line, indented := "", max(width-2, 10)
	end := func() {
		lines = append(lines, strings.ReplaceAll(strings.TrimRight(line, " "), "→"+glue, "→ "))
	}
	for _, w := range strings.Split(strings.ReplaceAll(text, "→ ", "→"+glue), " ") {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > width {
			end()
			line, width = "", indented
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	end()
	return lines
}

// arrows is the lifelines with an arrow to each server that a command was sent to.
func (d *Drawing) arrows(r row) []cell {
	commands := r.all()
	farthest := slices.MaxFunc(commands, func(a, b *row) int { return d.at[a.To] - d.at[b.To] })
	cells := d.arrow(r.From, farthest.To, '─')
	for _, c := range commands {
		cells[d.at[c.To]-1] = cell{'▶', Plain}
	}
	return cells
}

// fanned is a command to several servers, with what they have answered: in one line, if it
// is short, or else in one for each of the different answers.
func (d *Drawing) fanned(r row) string {
	parts := []string{r.Command()}
	for _, a := range r.answers(d.actors) {
		parts = append(parts, "→ "+strings.Join(a.from, " ")+": "+a.text)
	}
	if line := strings.Join(parts, "  "); utf8.RuneCountInString(line) <= d.width-d.text {
		return line
	}
	return strings.Join(parts, "\n")
}

// answers are the different ones to a command, in the order of the servers.
func (r row) answers(actors []Actor) (all []reading) {
	commands := r.all()
	place := func(r *row) int {
		return slices.IndexFunc(actors, func(a Actor) bool { return a.Name == r.To })
	}
	slices.SortFunc(commands, func(a, b *row) int { return place(a) - place(b) })
	for _, c := range commands {
		if c.answer == "" {
			continue
		}
		i := slices.IndexFunc(all, func(a reading) bool { return a.text == c.answer })
		if i < 0 {
			i, all = len(all), append(all, reading{text: c.answer})
		}
		all[i].from = append(all[i].from, c.To)
	}
	return all
}

// A reading is what some servers said, all the same.
type reading struct {
	from []string
	text string
}
