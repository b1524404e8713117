package history

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"
)

//go:embed picture.html
var pictureHTML string

var pictureTemplate = template.Must(template.New("picture").Parse(pictureHTML))

// The picture's measures, in pixels.
const (
	labelWidth = 150
	timeWidth  = 1350
	laneHeight = 48
	barHeight  = 20
)

// mostShown is for how long before the last operation of a violation, and after it, a history is shown.
const mostShown = 2 * time.Second

// Picture writes a page that shows what led to the first violation, or, if there is none, how the history begins:
// a lane for each client, time to the right, a bar for each hold as its holder saw it, faults across; and all of
// it in words. The operations of the violation are red. The page needs nothing but itself.
func Picture(w io.Writer, ops []Op, found []Violation, title string) error {
	p := picture{Title: title, Violations: found, Width: labelWidth + timeWidth}
	p.draw(Merge(ops), found)
	if err := pictureTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

type picture struct {
	Title         string
	Violations    []Violation
	Width, Height int
	Shapes        []shape
	Words         []words

	from, to time.Duration
}

// A shape is a rectangle with what to show of it when it is pointed at; or, without a width, a text.
type shape struct {
	X, Y, W, H  int
	Class, Text string
}

type words struct{ Class, Text string }

// draw fills in what happened in the part that is shown.
func (p *picture) draw(ops []Op, found []Violation) {
	odd := map[Op]bool{}
	if len(ops) > 0 {
		p.from = ops[0].Start
	}
	p.to = p.from + 2*mostShown
	if len(found) > 0 && len(found[0].Ops) > 0 {
		for _, op := range found[0].Ops {
			odd[op] = true
			p.to = max(p.to, op.Start+mostShown)
		}
		p.from = p.to - 2*mostShown
	}
	ops = slices.DeleteFunc(ops, func(op Op) bool { return max(op.End, op.Deadline) < p.from || op.Start > p.to })
	var lanes []string
	for _, op := range ops {
		if op.Client != "" && !slices.Contains(lanes, op.Client) {
			lanes = append(lanes, op.Client)
		}
	}
	slices.Sort(lanes)
	p.Height = max(len(lanes), 1) * laneHeight
	for i, lane := range lanes {
		p.Shapes = append(p.Shapes, shape{X: 5, Y: i*laneHeight + laneHeight/2, Text: lane})
	}
	class := func(op Op) string {
		if odd[op] {
			return "odd"
		}
		return string(op.Kind) + " " + string(op.Result)
	}
	for _, op := range ops {
		p.Words = append(p.Words, words{class(op), op.String()})
		y, h := slices.Index(lanes, op.Client)*laneHeight, laneHeight-2
		switch {
		case op.Client == "":
			y, h = 0, p.Height
		case op.Kind != KindFault: // under the bar of its hold
			y, h = y+barHeight+5, barHeight/2
		}
		p.bar(op.Start, op.End, y, h, class(op), op)
	}
	for _, hold := range bookOf(ops).holds {
		y := slices.Index(lanes, hold.client)*laneHeight + 4
		for _, s := range hold.spans() {
			p.bar(s.from, s.until, y, barHeight, "hold "+class(hold.grant), hold.grant)
		}
	}
}

// bar adds what lasted from a moment to another, as far as that is shown.
func (p *picture) bar(from, to time.Duration, y, h int, class string, op Op) {
	x := func(t time.Duration) int {
		t = min(max(t, p.from), p.to) - p.from
		return labelWidth + int(int64(t)*timeWidth/int64(p.to-p.from))
	}
	if to >= p.from && from <= p.to {
		p.Shapes = append(p.Shapes, shape{X: x(from), Y: y, W: max(x(to)-x(from), 2), H: h, Class: class, Text: op.String()})
	}
}
