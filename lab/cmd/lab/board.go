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
	"github.com/lockstrategies/locks/lab/exercises"
	"github.com/lockstrategies/locks/lab/lessons"
	reports "github.com/lockstrategies/locks/lab/report"
)

// A board shows lessons as they are given: each act when it is over, or, where a reader says
// how long it takes, each row as it happens.
type board struct {
	w       io.Writer
	look    look
	several bool    // lessons
	legend  bool    // that of the diagrams is there
	reader  *reader // nil: nobody steps

	predicts bool // what comes of a step
	turn     sync.Mutex
	over     error // the reader has had enough

	mu      sync.Mutex
	lesson  lessons.Lesson
	acts    int // of the lesson, that have begun
	drawing *diagram.Drawing
	actors  int            // for whom it has columns
	due     *lessons.Event // that the reader has let happen, and that has not yet
	prompt  string         // stands open
	where   string         // the servers are, as far as the board has said

	quiz   *lessons.Quiz // nil: nobody predicts
	judges []func() string
}

func (b *board) opens(l lessons.Lesson) {
	b.lesson, b.acts = l, 0
	if b.predicts {
		b.quiz = &lessons.Quiz{}
	}
}

// Begins is part of lessons.Watcher.
func (b *board) Begins(t lessons.Trace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	if b.acts++; b.acts == 1 {
		s.WriteString("\n" + heading(b.lesson, b.look) + b.look.prose("", b.lesson.Idea))
		if !b.legend {
			s.WriteString("\n" + b.look.paint(strings.TrimRight(b.look.prose("", reports.Diagrams+" "+reports.InWords), "\n"), text.Faint) + "\n")
		}
		b.legend = true
	}
	title := t.Title
	if len(b.lesson.Acts) > 1 {
		title = fmt.Sprintf("Act %d: %s", b.acts, title)
	}
	s.WriteString("\n" + bold(title, b.look))
	b.drawing, b.actors, b.due, b.judges = nil, 0, nil, nil
	if b.quiz != nil {
		b.quiz.Begins()
	}
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
	said := "Enter goes on, q ends the run.\n"
	if b.predicts {
		said = "Say what will come. ?: how to answer. Enter alone: you do not know. q ends the run.\n"
	}
	first := b.where == ""
	if b.where = s; first {
		s += said
	}
	return s + "\n"
}

// Happens is part of lessons.Watcher.
func (b *board) Happens(e lessons.Event, on []lessons.Actor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due != nil && b.due.Kind == e.Kind && b.due.From == e.From && b.due.To == e.To {
		b.due = nil
	}
	if b.quiz != nil {
		b.quiz.Happens(e)
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
	diagram := t.Diagram(b.look.width, b.look.style)
	b.mu.Lock()
	if b.drawing != nil {
		diagram = b.drawing.Rest()
	}
	b.mu.Unlock()
	b.say(diagram)
	b.judge()
	b.say(renderEnd(t, b.look))
}

func (b *board) closes(l lessons.Lesson) {
	const fixes = "The fix:"
	s := "\n" + strings.Replace(b.look.prose("", fixes+" "+l.Fix), fixes, b.look.paint(fixes, text.Bold), 1) + b.score() + b.further(l)
	all := lessons.All()
	next := slices.IndexFunc(all, func(x lessons.Lesson) bool { return x.Number > l.Number })
	if next >= 0 && !b.several { // else it comes by itself
		s += b.look.prose("", fmt.Sprintf("Next: lesson %d (%s)", all[next].Number, all[next].Title))
	}
	b.say(s)
}

// further is where else the lesson's subject is: in the documents, in the code, and in an exercise.
func (b *board) further(l lessons.Lesson) string {
	s := fmt.Sprintf("Read: docs/learn/evolution.md#%d", l.Number)
	if rows := l.Articles(); rows != "" {
		s += "; " + rows + " of docs/learn/articles.md"
	}
	s += ". Done right: " + l.Right() + "."
	for _, e := range exercises.All() {
		if e.Lesson == l.Number {
			s += fmt.Sprintf(" Exercise: make exercise N=%d (%s).", e.Number, e.Title)
		}
	}
	return b.look.prose("", s)
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
	err := b.waits(next, on)
	b.over = err
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = &next
	return err
}

// waits returns when the reader lets a step happen, or has predicted what comes of it.
func (b *board) waits(next lessons.Event, on []lessons.Actor) error {
	if b.quiz == nil {
		b.ask(next, on)
		_, after, err := b.reader.next()
		b.answered(after)
		return err
	}
	b.judge()
	for i, q := range b.quiz.Asks(next, on) {
		if i == 0 {
			b.say(b.whereabouts(on) + b.look.paint(stepText(next), text.FgCyan) + "\n")
		}
		said, err := b.predicted(q)
		if err != nil {
			return err
		}
		b.judges = append(b.judges, func() string { return b.quiz.Judge(q, said) })
	}
	return nil
}

// predicted is what the reader says to a question.
func (b *board) predicted(q lessons.Question) (string, error) {
	for {
		b.mu.Lock()
		b.prompt = "  " + q.Words + " "
		io.WriteString(b.w, b.prompt)
		b.mu.Unlock()
		said, after, err := b.reader.next()
		if !b.reader.terminal { // which shows what is typed
			after = said + after
		} else if err == nil {
			after = ""
		}
		b.answered(after)
		if err != nil || said != "?" {
			return said, err
		}
		b.say(b.look.prose("  ", q.Forms+"; or else: error, no answer. Enter alone: I do not know."))
	}
}

func (b *board) answered(after string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prompt = ""
	io.WriteString(b.w, after)
}

// judge says which predictions of the last step were right.
func (b *board) judge() {
	b.judges = slices.DeleteFunc(b.judges, func(judge func() string) bool {
		said := judge()
		if said == "" { // it is not to be seen yet
			return false
		}
		colour := map[string]text.Colors{"✓": {text.FgGreen}, "✗": {text.FgRed}}[said[:len("✓")]]
		b.say(b.look.paint(strings.TrimRight(b.look.prose("  ", said), "\n"), colour...) + "\n")
		return true
	})
}

// score is how the reader's predictions came out, if there were any.
func (b *board) score() string {
	if b.quiz == nil || b.quiz.Asked == 0 {
		return ""
	}
	return b.quiz.Score() + ".\n"
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

func (b *board) ask(next lessons.Event, on []lessons.Actor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write(b.whereabouts(on))
	what := stepText(next)
	const enter = "   [Enter] "
	if b.reader.terminal { // which takes it away again, if it is one line
		what = text.Trim(what, b.look.width-1-textWidth(enter))
	}
	b.prompt = b.look.paint(what, text.FgCyan) + enter
	io.WriteString(b.w, b.prompt)
}

func stepText(next lessons.Event) string {
	if next.Kind == lessons.Send {
		return next.From + " → " + next.To + ": " + next.Command()
	}
	return next.Text
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
