package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/lab/lessons"
	reports "github.com/lockstrategies/locks/lab/report"
)

// A board shows lessons as they are given: each act when it is over, or, where a reader says
// how long it takes, each row as it happens.
type board struct {
	w       io.Writer
	look    look
	several bool    // lessons
	reader  *reader // nil: nobody steps
	turn    sync.Mutex
	over    error // the reader has had enough

	mu      sync.Mutex
	lesson  lessons.Lesson
	acts    int // of the lesson, that have begun
	drawing *diagram.Drawing
	actors  int            // for whom it has columns
	due     *lessons.Event // that the reader has let happen, and that has not yet
	prompt  string         // stands open
	where   string         // the servers are, as far as the board has said
}

// opens: the lesson is about to begin.
func (b *board) opens(l lessons.Lesson) {
	b.lesson, b.acts = l, 0
}

// Begins is part of lessons.Watcher.
func (b *board) Begins(t lessons.Trace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	if b.acts++; b.acts == 1 {
		s.WriteString("\n" + heading(b.lesson, b.look) + b.look.prose("", b.lesson.Idea) + "\n" +
			b.look.paint(strings.TrimRight(b.look.prose("", reports.Diagrams), "\n"), text.Faint) + "\n")
	}
	title := t.Title
	if len(b.lesson.Acts) > 1 {
		title = fmt.Sprintf("Act %d: %s", b.acts, title)
	}
	s.WriteString("\n" + bold(title, b.look))
	b.drawing, b.actors, b.due = nil, 0, nil
	b.write(s.String())
}

// whereabouts says where the servers are, for readers who look at them meanwhile; again where they
// are others, or have other names.
func (b *board) whereabouts(on []lessons.Actor) string {
	s := ""
	for _, a := range on {
		if a.Server {
			s += fmt.Sprintf("%s is there:  redis-cli -u %s\n", a.Name, a.URL)
		}
	}
	if s == b.where {
		return ""
	}
	if b.where == "" {
		s += "Enter goes on, q ends the run.\n"
	}
	b.where, _, _ = strings.Cut(s, "Enter goes on")
	return s + "\n"
}

// Happens is part of lessons.Watcher.
func (b *board) Happens(e lessons.Event, on []lessons.Actor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due != nil && b.due.Kind == e.Kind && b.due.From == e.From && b.due.To == e.To {
		b.due = nil
	}
	rows := ""
	if b.drawing == nil {
		b.drawing = diagram.NewDrawing(b.look.width, b.look.style)
	}
	if len(on) != b.actors {
		b.actors = len(on)
		rows = b.drawing.Rest() + b.drawing.Head(on)
	}
	b.write(rows + b.drawing.Row(e))
}

// Ends is part of lessons.Watcher.
func (b *board) Ends(t lessons.Trace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawing != nil {
		b.write(b.drawing.Rest() + renderEnd(t, b.look))
		return
	}
	b.write(t.Diagram(b.look.width, b.look.style) + renderEnd(t, b.look))
}

// closes: the lesson is over.
func (b *board) closes(l lessons.Lesson) {
	const fixes = "The fix:"
	s := "\n" + strings.Replace(b.look.prose("", fixes+" "+l.Fix), fixes, b.look.paint(fixes, text.Bold), 1)
	all := lessons.All()
	next := slices.IndexFunc(all, func(x lessons.Lesson) bool { return x.Number > l.Number })
	if next >= 0 && !b.several { // else it comes by itself
		s += b.look.prose("", fmt.Sprintf("Next: lesson %d (%s)", all[next].Number, all[next].Title))
	}
	b.say(s)
}

// say writes what is not part of an act.
func (b *board) say(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write(s)
}

// write writes lines above the prompt, if one stands open.
func (b *board) write(s string) {
	switch {
	case s == "" || b.prompt == "":
		io.WriteString(b.w, s)
	case b.reader.terminal:
		io.WriteString(b.w, "\r\x1b[K"+s+b.prompt)
	default:
		io.WriteString(b.w, "\n"+s+b.prompt)
	}
}

// step shows what comes next, and returns when the reader lets it.
func (b *board) step(next lessons.Event, on []lessons.Actor) error {
	b.turn.Lock() // clients may act at the same time; the reader steps one after the other
	defer b.turn.Unlock()
	if b.over != nil {
		return b.over
	}
	b.settle()
	b.ask(next, on)
	after, err := b.reader.next()
	b.over = err
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prompt, b.due = "", &next
	io.WriteString(b.w, after)
	return err
}

// settle returns when what has been let happen is on the board, together with its answer; or
// when the answer takes its time, as it does if it is waiting for what comes next.
func (b *board) settle() {
	for end := time.Now().Add(100 * time.Millisecond); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		settled := b.due == nil && (b.drawing == nil || !b.drawing.Waits()) || time.Now().After(end)
		if settled && b.drawing != nil {
			b.write(b.drawing.Rest())
		}
		b.mu.Unlock()
		if settled {
			return
		}
	}
}

// ask shows what comes next.
func (b *board) ask(next lessons.Event, on []lessons.Actor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write(b.whereabouts(on))
	what := next.Text
	if next.Kind == lessons.Send {
		what = next.From + " → " + next.To + ": " + next.Command()
	}
	const enter = "   [Enter] "
	if b.reader.terminal { // which takes it away again, if it is one line
		what = text.Trim(what, b.look.width-1-textWidth(enter))
	}
	b.prompt = b.look.paint(what, text.FgCyan) + enter
	io.WriteString(b.w, b.prompt)
}

// style is the lessons' styles as colours.
func (l look) style(s diagram.Style, words string) string {
	return l.paint(words, map[diagram.Style]text.Colors{
		diagram.Faint: {text.Faint}, diagram.Strong: {text.Bold}, diagram.Good: {text.FgGreen},
		diagram.Bad: {text.FgRed, text.Bold}, diagram.Odd: {text.FgYellow},
	}[s]...)
}

func heading(l lessons.Lesson, look look) string {
	return bold(fmt.Sprintf("LESSON %d  %s", l.Number, l.Title), look)
}

// bold is a title, in as many lines as it takes.
func bold(s string, l look) string {
	var b strings.Builder
	for line := range strings.Lines(l.prose("", s)) {
		b.WriteString(l.paint(strings.TrimSuffix(line, "\n"), text.Bold) + "\n")
	}
	return b.String()
}

// renderEnd is what stands below an act's diagram: scripts that ran, what was measured, and
// the verdicts.
func renderEnd(t lessons.Trace, l look) string {
	var b strings.Builder
	for _, x := range t.Listings {
		b.WriteString("\n" + l.paint(x.Name+":", text.Bold) + "\n")
		for line := range strings.Lines(strings.TrimSpace(x.Source)) {
			b.WriteString(strings.TrimRight("    "+strings.TrimSuffix(line, "\n"), " \t") + "\n")
		}
	}
	for _, x := range t.Tables {
		b.WriteString("\n" + lessonTable(x, l))
	}
	if len(t.Verdicts) > 0 {
		b.WriteString("\n")
	}
	for _, v := range t.Verdicts {
		mark := l.paint("✓ KEPT", text.FgGreen) + strings.Repeat(" ", len("VIOLATED  ")-len("KEPT"))
		if !v.Held {
			mark = l.paint("✗ VIOLATED", text.FgRed, text.Bold) + "  "
		}
		b.WriteString(l.prose(mark, v.Promise+": "+v.Because))
	}
	return b.String()
}

// lessonTable is what an act measured: names first, and then figures.
func lessonTable(x lessons.Table, l look) string {
	return drawTable(x.Title, x.Head, x.Rows, func(column int) bool { return figures(x.Rows, column) }, l)
}

// figures reports whether each cell of a column begins with a digit.
func figures(rows [][]string, column int) bool {
	return !slices.ContainsFunc(rows, func(r []string) bool {
		return r[column] == "" || r[column][0] < '0' || r[column][0] > '9'
	})
}
