//go:build js

// Wasm is the play for a page, which compiles it to WebAssembly: see lab/play/page. The page sets
// play = {algorithm, moves, width, show} before it starts the program, and then calls play.move(text, width).
// After the first moves, and after each that follows, the program calls play.show with the state as JSON and
// the diagram. An empty move draws the diagram again, at another width.
package main

import (
	"encoding/json"
	"fmt"
	"syscall/js"
	"testing"

	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/lab/play"
)

func main() {
	page := js.Global().Get("play")
	algorithm, err := play.Find(page.Get("algorithm").String())
	if err != nil {
		fmt.Println(err)
		return
	}
	// The channel is made outside of the bubble. So for as long as the play waits for a move, its time stands still.
	asked := make(chan question, 1000)
	page.Set("move", js.FuncOf(func(_ js.Value, args []js.Value) any {
		asked <- question{args[0].String(), args[1].Int()}
		return nil
	}))
	p := player{page: page, width: page.Get("width").Int(), asked: asked}
	for i := range page.Get("moves").Length() {
		p.first = append(p.first, page.Get("moves").Index(i).String())
	}
	test := testing.InternalTest{Name: "play", F: func(t *testing.T) { play.Play(t, algorithm, p.next, p.show) }}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{test}, nil, nil)
}

// A question of the page's: a move, and how wide the diagram may be.
type question struct {
	move  string
	width int
}

type player struct {
	page  js.Value
	width int
	first []string // moves that are not shown one by one
	asked chan question
	stage *play.Stage
}

func (p *player) next() (string, bool) {
	if len(p.first) > 0 {
		move := p.first[0]
		p.first = p.first[1:]
		return move, true
	}
	for q := range p.asked {
		p.width = q.width
		if q.move != "" {
			return q.move, true
		}
		p.show(p.stage)
	}
	return "", false
}

func (p *player) show(s *play.Stage) {
	if p.stage = s; len(p.first) > 0 {
		return
	}
	state, err := json.Marshal(s.State())
	if err != nil {
		panic(err)
	}
	p.page.Call("show", string(state), s.Diagram(p.width, paint))
}

// paint puts marks around what stands out: the page makes elements of them.
func paint(style diagram.Style, text string) string {
	if style == diagram.Plain {
		return text
	}
	return fmt.Sprintf("\x01%d%s\x02", style, text)
}
