package history

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"time"
)

//go:embed picture.html
var pictureHTML string

var pictureTemplate = template.Must(template.New("picture").Parse(pictureHTML))

// The picture's measures, in pixels.
const (
	labelWidth = 150
	timeWidth  = 1350
	laneHeight = 56
	bandHeight = 15 // a fault's label
	axisHeight = 30
	barTop     = 18
	barHeight  = 24
	smallLane  = 9
)

// mostShown is how many violations are shown: one that is not found at once has many
// consequences.
const mostShown = 20

// mostOps is how many operations are drawn and put in words.
const mostOps = 20_000

// Picture writes a page that shows a history: a lane for each client, time to the right, a
// bar for each hold from its grant to its end as its holder saw it, faults across; then a
// strip of the whole history, and all of it in words. It is cut to some seconds around the
// first violation, whose operations stand out; if there is none, to the beginning. Of a
// history too long for any reader, strip and words are cut, too. The page needs nothing but
// itself.
func Picture(w io.Writer, ops []Op, v []Violation, title string) error {
	p := draw(ops, v)
	p.Title = title
	if err := pictureTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

type picture struct {
	Title         string
	From, To      string
	Width, Height int
	Shapes        []shape
	StripHeight   int
	Strip         []shape
	Violations    []wordsOf
	More          int // violations that are not shown
	Lines         []wordsOf
	Colours       []string // of the lanes' bars, in turn
	Summary       string
	Ops           int // of the whole history, if it was cut; or 0
}

// A shape is a rectangle, or a text if it has one and no width.
type shape struct {
	X, Y, W, H int
	Class      string
	Text       string // inside, if there is room
	TextX      int
	TextY      int
	Anchor     string
	Tip        string
}

// wordsOf is a line of text, and how it is to be shown.
type wordsOf struct {
	Text  string
	Class string
	Ops   []string
}

// A view maps a part of time to the picture's width.
type view struct{ from, to time.Duration }

func (v view) x(t time.Duration) int {
	t = min(max(t, v.from), v.to)
	return labelWidth + int(float64(t-v.from)/float64(v.to-v.from)*timeWidth)
}

func (v view) shows(from, to time.Duration) bool { return to >= v.from && from <= v.to }

func draw(ops []Op, found []Violation) *picture {
	// Times are shown from the history's beginning on: Now's zero means nothing to anybody.
	ops = Merge(ops)
	var zero time.Duration
	if len(ops) > 0 {
		zero = ops[0].Start
	}
	for i := range ops {
		ops[i] = ops[i].earlier(zero)
	}
	shown := make([]Violation, len(found))
	for i, v := range found {
		shown[i] = v
		shown[i].Ops = nil
		for _, op := range v.Ops {
			shown[i].Ops = append(shown[i].Ops, op.earlier(zero))
		}
	}
	p := &picture{Width: labelWidth + timeWidth + 20, Summary: Summarize(ops).String()}
	if len(ops) > mostOps {
		p.Ops = len(ops)
		ops = middle(ops, shown)
	}
	b := bookOf(ops)
	whole := view{0, time.Millisecond}
	if len(ops) > 0 {
		whole.from = ops[0].Start
		whole.to = max(b.last, whole.from+time.Millisecond)
	}
	part := whole.around(shown)
	var lanes []string
	for _, op := range ops {
		if op.Client != "" && !slices.Contains(lanes, op.Client) {
			lanes = append(lanes, op.Client)
		}
	}
	slices.Sort(lanes)

	p.From, p.To = seconds(part.from), seconds(part.to)
	marked := map[Op]bool{}
	for i, v := range shown {
		words := wordsOf{Text: v.Property + ": " + v.Sentence}
		for _, op := range v.Ops {
			words.Ops = append(words.Ops, op.String())
			marked[op] = marked[op] || i == 0
		}
		if i < mostShown {
			p.Violations = append(p.Violations, words)
		}
	}
	p.More = len(found) - len(p.Violations)
	for _, op := range ops {
		line := wordsOf{Text: op.String()}
		if marked[op] {
			line.Class = "odd"
		} else if op.Kind == KindFault {
			line.Class = "fault"
		} else if part.shows(op.Start, op.End) {
			line.Class = "part"
		}
		p.Lines = append(p.Lines, line)
	}
	p.paint(b, part, lanes, marked)
	p.strip(b, whole, part, lanes, marked)
	return p
}

// middle is the part of a long history in which the first violation was seen.
func middle(ops []Op, found []Violation) []Op {
	var last time.Duration
	if len(found) > 0 {
		for _, op := range found[0].Ops {
			last = max(last, op.Start)
		}
	}
	i, _ := slices.BinarySearchFunc(ops, last, func(op Op, t time.Duration) int { return cmp.Compare(op.Start, t) })
	from := min(max(i-mostOps/2, 0), len(ops)-mostOps)
	return ops[from : from+mostOps]
}

func (op Op) earlier(by time.Duration) Op {
	op.Start -= by
	if op.End != Forever {
		op.End -= by
	}
	if op.Deadline != 0 {
		op.Deadline -= by
	}
	return op
}

// around is the part of a history that shows the first violation with what came before
// and after it.
func (v view) around(found []Violation) view {
	const most, least = 4 * time.Second, 200 * time.Millisecond
	if len(found) == 0 || len(found[0].Ops) == 0 {
		return view{v.from, min(v.to, v.from+most)}
	}
	from, to, last := Forever, time.Duration(0), time.Duration(0)
	for _, op := range found[0].Ops {
		end := max(op.End, op.Deadline)
		if end == Forever {
			end = op.Start
		}
		from, to, last = min(from, op.Start), max(to, end), max(last, op.Start)
	}
	rim := max((to-from)/3, least)
	from, to = max(from-rim, v.from), min(to+rim, v.to)
	if to-from > most { // what came last is what was seen
		from, to = max(last-most*2/3, v.from), min(last+most/3, v.to)
	}
	return view{from, max(to, from+time.Millisecond)}
}

func (p *picture) add(s shape) { p.Shapes = append(p.Shapes, s) }

func (p *picture) text(x, y int, class, anchor, text string) {
	p.add(shape{Class: class, Text: text, TextX: x, TextY: y, Anchor: anchor})
}

// paint draws what the view shows: faults behind all, then lanes with holds and what was
// done in them.
func (p *picture) paint(b *book, v view, lanes []string, marked map[Op]bool) {
	var faults []Op
	for _, f := range b.faults {
		if v.shows(f.Start, f.End) {
			faults = append(faults, f)
		}
	}
	rows := bandRows(faults, v)
	top := 10
	for _, r := range rows {
		top = max(top, 10+(r+1)*bandHeight)
	}
	laneY := func(client string) int { return top + slices.Index(lanes, client)*laneHeight }
	bottom := top + len(lanes)*laneHeight
	p.Height = bottom + axisHeight
	for i := range lanes {
		p.add(shape{X: 0, Y: top + i*laneHeight, W: p.Width, H: laneHeight - 1, Class: "lane"})
		p.text(labelWidth-10, top+i*laneHeight+barTop+barHeight/2+4, "name", "end", lanes[i])
	}
	for i, f := range faults {
		x, w := v.x(f.Start), max(v.x(f.End)-v.x(f.Start), 2)
		y, h := top, bottom-top
		if f.Client != "" {
			y, h = laneY(f.Client), laneHeight-1
		}
		p.add(shape{X: x, Y: y, W: w, H: h, Class: "fault", Tip: f.String()})
		label := 10 + rows[i]*bandHeight
		p.add(shape{X: x, Y: label, W: 1, H: y - label, Class: "string"})
		p.text(x+3, label+11, "fault", "start", words(f))
	}
	p.axis(v, top, bottom)
	for _, page := range b.byKey {
		for _, op := range page.attempts {
			if !v.shows(op.Start, op.End) {
				continue
			}
			y := laneY(op.Client) + barTop + barHeight + 3
			p.add(shape{X: v.x(op.Start), Y: y, W: max(v.x(op.End)-v.x(op.Start), 1), H: 3, Class: "try " + string(op.Result) + odd(marked, op), Tip: op.String()})
		}
	}
	for i, lane := range lanes {
		for _, h := range b.holds {
			if h.client == lane {
				p.hold(h, v, laneY(lane)+barTop, i%6, marked)
			}
		}
	}
	for _, op := range b.stray {
		if v.shows(op.Start, op.Start) {
			p.mark(op, v, laneY(op.Client)+barTop, marked)
		}
	}
}

// hold draws a hold: its bar, until when it was believed in, and what was done in it.
func (p *picture) hold(h *hold, v view, y, colour int, marked map[Op]bool) {
	over, _ := h.over()
	class := fmt.Sprint("hold c", colour)
	for _, op := range append([]Op{h.grant}, h.ops...) {
		if marked[op] {
			class = "hold odd"
		}
	}
	end := h.grant.End
	for i, s := range h.spans() {
		end = s.until
		if !v.shows(s.from, s.until) {
			continue
		}
		bar := shape{X: v.x(s.from), Y: y, W: max(v.x(s.until)-v.x(s.from), 2), H: barHeight, Class: class, Tip: h.grant.String()}
		if text := fenceText(h.grant.Fence); i == 0 && bar.W > 9*len(text) && text != "" {
			bar.Text, bar.TextX, bar.TextY, bar.Anchor = text, bar.X+4, y+barHeight/2+4, "start"
		}
		p.add(bar)
		if s.until < over && v.shows(s.until, s.until) { // a deadline, not an end that it chose
			p.add(shape{X: v.x(s.until), Y: y - 4, W: 2, H: barHeight + 8, Class: "deadline", Tip: "deadline, " + clock(s.until)})
		}
	}
	for _, op := range h.ops {
		if !v.shows(op.Start, min(op.End, max(op.Start, end))) {
			continue
		}
		if op.Kind == KindRelease {
			p.add(shape{X: v.x(op.Start), Y: y + barHeight/3, W: max(v.x(op.End)-v.x(op.Start), 1), H: barHeight / 3, Class: "release " + string(op.Result) + odd(marked, op), Tip: op.String()})
		}
		p.mark(op, v, y, marked)
	}
}

// mark draws a sign above the bar where an operation began; a renewal's where it ended.
func (p *picture) mark(op Op, v view, y int, marked map[Op]bool) {
	sign, at := map[Kind]string{KindRenew: "+", KindRead: "r", KindWrite: "w", KindLost: "✕", KindRelease: ""}[op.Kind], op.Start
	if op.Kind == KindRenew || op.Kind == KindLost {
		at = op.End
	}
	if at == Forever {
		at = op.Start
	}
	if op.Result != "" && op.Result != OK && sign != "" {
		sign += map[Result]string{Lost: "✕", Unknown: "?", Refused: "!"}[op.Result]
	}
	if sign == "" || at < v.from || at > v.to {
		return
	}
	p.add(shape{X: v.x(at), Y: y - 3, W: 1, H: barHeight + 3, Class: "tick" + odd(marked, op), Tip: op.String()})
	p.add(shape{Class: "sign " + string(op.Result) + odd(marked, op), Text: sign, TextX: v.x(at), TextY: y - 5, Anchor: "middle", Tip: op.String()})
}

func odd(marked map[Op]bool, op Op) string {
	if marked[op] {
		return " odd"
	}
	return ""
}

// bandRows gives every fault's label a row in which it covers no other.
func bandRows(faults []Op, v view) []int {
	var free []int // by row: from where on
	rows := make([]int, len(faults))
	for i, f := range faults {
		x := v.x(f.Start)
		row := slices.IndexFunc(free, func(from int) bool { return from <= x })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}
		free[row] = x + 7*len(words(f)) + 10
		rows[i] = row
	}
	return rows
}

func words(fault Op) string {
	if fault.Note == "" {
		return "fault"
	}
	return fault.Note
}

func (p *picture) axis(v view, top, bottom int) {
	step := time.Millisecond
	for _, by := range []time.Duration{2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000} {
		if (v.to-v.from)/step <= 14 {
			break
		}
		step = by * time.Millisecond
	}
	for t := v.from.Truncate(step); t <= v.to; t += step {
		if t < v.from {
			continue
		}
		p.add(shape{X: v.x(t), Y: top, W: 1, H: bottom - top + 4, Class: "grid"})
		p.text(v.x(t), bottom+18, "time", "middle", seconds(t))
	}
}

func seconds(t time.Duration) string {
	return strconv.FormatFloat(t.Round(time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

// fenceText shows the end of a great fence: those of a history begin alike.
func fenceText(fence uint64) string {
	s := strconv.FormatUint(fence, 10)
	switch {
	case fence == 0:
		return ""
	case len(s) > 8:
		return "…" + s[len(s)-6:]
	}
	return s
}

// strip draws the whole history, small, with the part that is shown above.
func (p *picture) strip(b *book, whole, part view, lanes []string, marked map[Op]bool) {
	p.StripHeight = len(lanes)*smallLane + 24
	add := func(s shape) { p.Strip = append(p.Strip, s) }
	bottom := len(lanes) * smallLane
	add(shape{X: whole.x(part.from), Y: 0, W: max(whole.x(part.to)-whole.x(part.from), 2), H: bottom, Class: "shown"})
	for _, f := range b.faults {
		y, h := 0, bottom
		if f.Client != "" {
			y, h = slices.Index(lanes, f.Client)*smallLane, smallLane
		}
		add(shape{X: whole.x(f.Start), Y: y, W: max(whole.x(f.End)-whole.x(f.Start), 1), H: h, Class: "fault", Tip: f.String()})
	}
	for i, lane := range lanes {
		add(shape{Class: "small", Text: lane, TextX: labelWidth - 10, TextY: (i+1)*smallLane - 1, Anchor: "end"})
		for _, h := range b.holds {
			if h.client != lane {
				continue
			}
			for _, s := range h.spans() {
				add(shape{X: whole.x(s.from), Y: i*smallLane + 1, W: max(whole.x(s.until)-whole.x(s.from), 1), H: smallLane - 2, Class: fmt.Sprint("hold c", i%6)})
			}
		}
	}
	for op := range marked {
		if marked[op] {
			add(shape{X: whole.x(op.Start), Y: 0, W: 1, H: bottom, Class: "odd"})
		}
	}
	add(shape{Class: "time", Text: seconds(whole.from), TextX: whole.x(whole.from), TextY: bottom + 16, Anchor: "start"})
	add(shape{Class: "time", Text: seconds(whole.to), TextX: whole.x(whole.to), TextY: bottom + 16, Anchor: "end"})
}
