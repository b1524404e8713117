//go:build js

// Wasm is the play for a page, which compiles it to WebAssembly: see lab/play/page. The page sets
// play = {algorithm, width, show} before it starts the program, and then calls play.move(text). Before the first move
// and after each the program calls play.show with the state as JSON and the diagram.
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
	// The channel is made outside of the bubble. So for as long as the play waits for a move, its time is paused.
	moves := make(chan string, 1000)
	page.Set("move", js.FuncOf(func(_ js.Value, args []js.Value) any {
		moves <- args[0].String()
		return nil
	}))
	next := func() (string, bool) { return <-moves, true }
	show := func(s *play.Stage) {
		state, err := json.Marshal(s.State())
		if err != nil {
			panic(err)
		}
		page.Call("show", string(state), s.Diagram(page.Get("width").Int(), paint))
	}
	test := testing.InternalTest{Name: "play", F: func(t *testing.T) { play.Play(t, algorithm, next, show) }}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{test}, nil, nil)
}

// paint puts marks around what stands out: the page makes elements of them.
func paint(style diagram.Style, text string) string {
	if style == diagram.Plain {
		return text
	}
	return fmt.Sprintf("\x01%d%s\x02", style, text)
}
