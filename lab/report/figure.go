package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstrategies/locks/lab/lessons"
)

// A figure is an act as a sequence diagram. Each step is a row of a list: a strip of SVG, in
// which time goes downwards and each actor has a line, and next to it the words, which break
// as the page is narrow or wide. All x are percentages, so the strips are as wide as there is
// room; rows are as high as their words, and the strips, one below the other, are one picture.
type figure struct {
	ID     string
	Trace  lessons.Trace
	Width  string // in columns
	Heads  []head
	Ground *zone // on which servers stand
	Rows   []row
	About  string
	Text   string // the same for a terminal

	// Names stand upright where two next to each other would touch; they take so many letters.
	UprightPhone, UprightWide bool
	Letters                   int
}

type head struct {
	lessons.Actor
	X string
}

type zone struct{ X, Width string }

// A row is a step.
type row struct {
	lessons.Row
	Class   string // for the style
	Time    string
	Title   string // what the strip shows, in words; empty: the row's words say it
	Lines   []stroke
	Arrows  []arrow // what is sent
	Back    []arrow // its answers
	Marks   []mark
	Several bool // there are several servers, so words say which
	Ground  *zone
}

// A stroke is a piece of an actor's.
type stroke struct{ Class, X, Y1, Y2 string }

type arrow struct {
	Class  string
	X1, X2 string
	Head   string // which symbol is at its end
}

type mark struct{ Symbol, X string }

// Where the first line of a row's words is, at which arrows and marks are.
const (
	top    = "13"
	above  = "-1" // strips overlap, or there would be seams
	bottom = "100%"
)

// clock is a time in milliseconds, of which there may be many.
func clock(at time.Duration) string {
	if at < 10*time.Second {
		return fmt.Sprintf("%.1f ms", float64(at.Microseconds())/1000)
	}
	return fmt.Sprintf("%d ms", at.Milliseconds())
}

type state struct{ holds, paused, dead bool }

// drawing is a figure under the pen.
type drawing struct {
	figure
	at      map[string]float64
	column  float64 // how wide one is
	states  map[string]*state
	several bool
	broken  bool // two hold the lock, from a violation on
}

func newFigure(lesson string, n int, t lessons.Trace) figure {
	d := drawing{at: map[string]float64{}, states: map[string]*state{}}
	d.ID, d.Trace = fmt.Sprintf("%s-%d", lesson, n+1), t
	d.Text = t.Diagram(96, func(_ lessons.Style, s string) string { return s })
	d.columns()
	for _, r := range t.Rows() {
		d.row(r)
	}
	var clients, servers []string
	for _, a := range t.Actors {
		if a.Server {
			servers = append(servers, a.Name)
		} else {
			clients = append(clients, a.Name)
		}
	}
	d.About = fmt.Sprintf("Sequence diagram in %d steps. Clients: %s. Servers: %s.", len(d.Rows), strings.Join(clients, ", "), strings.Join(servers, ", "))
	return d.figure
}

// columns gives each actor its place; between clients and servers is the network.
func (d *drawing) columns() {
	const network = 0.4
	x, from := 0.0, -1.0
	for i, a := range d.Trace.Actors {
		if a.Server && i > 0 && !d.Trace.Actors[i-1].Server {
			x += network
		}
		if a.Server && from < 0 {
			from = x
		}
		d.several = d.several || a.Server && i > 0 && d.Trace.Actors[i-1].Server
		d.at[a.Name] = x + 0.5
		d.states[a.Name] = &state{}
		d.Letters = max(d.Letters, utf8.RuneCountInString(a.Name))
		x++
	}
	if x == 0 {
		x = 1
	}
	d.column = 100 / x
	for name := range d.at {
		d.at[name] *= d.column
	}
	if from >= 0 {
		d.Ground = &zone{percent(from * 100 / x), percent((x - from) * 100 / x)}
	}
	for _, a := range d.Trace.Actors {
		d.Heads = append(d.Heads, head{a, d.x(a.Name)})
	}
	d.Width = strconv.FormatFloat(x, 'f', -1, 64)
	// The widths that style.css makes of it, and of a letter.
	d.UprightPhone = d.touch(min(40*x, 131), 7.3, 14) // on 320 px
	d.UprightWide = d.touch(min(88*x, 430), 7.6, 22)
}

// touch reports whether names do that in strips of that width, if each takes so much for a
// letter, and so much for what is around it.
func (d *drawing) touch(width, letter, around float64) bool {
	for i, a := range d.Trace.Actors[min(1, len(d.Trace.Actors)):] {
		before := d.Trace.Actors[i]
		takes := around + letter*float64(utf8.RuneCountInString(before.Name)+utf8.RuneCountInString(a.Name))/2
		if takes > (d.at[a.Name]-d.at[before.Name])/100*width {
			return true
		}
	}
	return false
}

func percent(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) + "%" }

func (d *drawing) x(name string) string { return percent(d.at[name]) }

func (d *drawing) row(e lessons.Row) {
	r := row{Row: e, Class: string(e.Kind), Ground: d.Ground, Several: d.several}
	if e.Kind == lessons.Send || e.Kind == lessons.Reply || e.Kind == lessons.Message {
		r.Time = clock(e.At)
	}
	changed := ""
	switch e.Kind {
	case lessons.Send:
		d.sends(&r)
	case lessons.Reply:
		r.Title = fmt.Sprintf("%s answers %s", e.From, e.To)
		r.Arrows = []arrow{d.arrow(e.From, e.To, "back", "reply")}
		if strings.HasPrefix(e.Answer, noAnswer) {
			r.Title, r.Arrows = fmt.Sprintf("%s hears nothing from %s", e.To, e.From), nil
			r.Marks = []mark{{"unheard", d.x(e.To)}}
		}
	case lessons.Message:
		r.Title = fmt.Sprintf("%s tells %s", e.From, e.To)
		r.Arrows = []arrow{d.arrow(e.From, e.To, "back", "reply")}
	case lessons.Look:
		r.Marks = []mark{{"look", d.x(e.To)}}
	case lessons.State:
		changed = e.From
		r.Class += " " + string(e.Condition)
		if e.Condition == lessons.Dead {
			r.Marks = []mark{{"dead", d.x(e.From)}}
		}
	case lessons.Violation:
		d.broken = d.broken || d.holders() > 1
	}
	d.lines(&r, changed, above, top)
	if changed != "" {
		d.change(e.Event)
		d.lines(&r, changed, top, bottom)
	}
	d.broken = d.broken && d.holders() > 1
	d.Rows = append(d.Rows, r)
}

// Names for the servers' part of a conversation in which the servers say nothing.
const (
	noAnswer = "(no answer)"
	notSent  = "(not sent)"
)

// sends draws a command to one server or to several, and the answers that are next to it.
func (d *drawing) sends(r *row) {
	said := map[string]string{} // by server
	for _, a := range r.Answers {
		for _, who := range a.From {
			said[who] = a.Text
		}
	}
	r.Title = fmt.Sprintf("%s asks %s", r.From, strings.Join(r.Row.Servers, ", "))
	var answered, silent, unsent []string
	for _, to := range r.Row.Servers {
		a := d.arrow(r.From, to, "send", "sent")
		switch said := said[to]; {
		case said == "":
		case strings.HasPrefix(said, notSent):
			unsent = append(unsent, to)
			a.X2, a.Head = percent(d.at[to]-math.Copysign(d.column/3, d.at[to]-d.at[r.From])), "lost"
		case strings.HasPrefix(said, noAnswer):
			silent = append(silent, to)
		default:
			answered = append(answered, to)
			r.Back = append(r.Back, d.arrow(to, r.From, "back", "reply"))
		}
		r.Arrows = append(r.Arrows, a)
	}
	switch all := len(r.Row.Servers); {
	case len(answered) == all:
		r.Title += ", and is answered"
	case len(answered) > 0:
		r.Title += ", and is answered by " + strings.Join(answered, ", ")
	case len(silent) > 0:
		r.Title += ", and hears nothing"
		r.Marks = []mark{{"unheard", d.x(r.From)}}
	case len(unsent) == all:
		r.Title = fmt.Sprintf("%s does not reach %s", r.From, strings.Join(unsent, ", "))
	}
}

func (d *drawing) arrow(from, to, class, head string) arrow {
	way := "-right"
	if d.at[to] < d.at[from] {
		way = "-left"
	}
	return arrow{class, d.x(from), d.x(to), head + way}
}

// lines draws the lines as they are now: that of who changes from y1 to y2, all others, once,
// from end to end.
func (d *drawing) lines(r *row, changes, y1, y2 string) {
	for _, a := range d.Trace.Actors {
		if a.Name != changes {
			if y1 == above {
				d.line(r, a, above, bottom)
			}
			continue
		}
		d.line(r, a, y1, y2)
	}
}

func (d *drawing) line(r *row, a lessons.Actor, y1, y2 string) {
	s, class := d.states[a.Name], "line"
	switch {
	case s.dead:
		return
	case s.holds:
		class = "hold"
	}
	if s.paused {
		class += " paused"
	}
	if s.holds && d.broken {
		class += " both"
	}
	r.Lines = append(r.Lines, stroke{class, d.x(a.Name), y1, y2})
}

// holders is how many live ones believe they hold the lock.
func (d *drawing) holders() (n int) {
	for _, s := range d.states {
		if s.holds && !s.dead {
			n++
		}
	}
	return n
}

func (d *drawing) change(e lessons.Event) {
	s := d.states[e.From]
	switch e.Condition {
	case lessons.Holds:
		s.holds = true
	case lessons.Ended:
		s.holds = false
	case lessons.Paused:
		s.paused = true
	case lessons.Awake:
		s.paused = false
	case lessons.Dead:
		s.dead = true
	case lessons.Alive:
		s.dead, s.paused = false, false
	}
}

// A sample is an entry of the legend.
type sample struct {
	row
	Words string
}

// legend is how to read the diagrams.
func legend() []sample {
	const x = "50%"
	whole := func(class string) []stroke { return []stroke{{class, x, above, bottom}} }
	server := &zone{"0%", "100%"}
	return []sample{
		{row{Lines: whole("line")}, "a client: a program that wants the lock"},
		{row{Lines: whole("line"), Ground: server}, "a server, on grey ground"},
		{row{Lines: whole("hold")}, "it believes it holds the lock"},
		{row{Lines: whole("hold paused")}, "it is paused, and believes it none the less"},
		{row{Lines: whole("line paused")}, "it is paused"},
		{row{Lines: []stroke{{"line", x, above, top}}, Marks: []mark{{"dead", x}}}, "it dies"},
		{row{Arrows: []arrow{{"send", "5%", "95%", "sent-right"}}}, "a command"},
		{row{Arrows: []arrow{{"back", "95%", "5%", "reply-left"}}}, "its reply, or a message"},
		{row{Lines: whole("line"), Ground: server, Marks: []mark{{"look", x}}}, "a look at the server, outside the story"},
		{row{Lines: whole("hold both"), Class: "violation"}, "a promise is broken here"},
	}
}
