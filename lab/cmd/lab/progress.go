package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/lockstrategies/locks/lab/compare"
)

// progress tells, while the work goes on, what it is and how far: in one line that
// changes on a terminal, and with a line now and then elsewhere.
type progress struct {
	w     io.Writer
	width int // of the terminal; 0: it is none
	due   time.Time
}

// lineEvery is how often it says something where nothing can be redrawn: a log.
const lineEvery = 15 * time.Second

func startProgress(w io.Writer) *progress {
	return &progress{w: w, width: terminalWidth(w), due: time.Now().Add(time.Second)}
}

// set gets every new part of the work.
func (p *progress) set(now compare.Progress) {
	line := fmt.Sprintf("%3d %%, about %v left: %s", 100*now.Done/max(now.Total, 1), (now.Total - now.Done).Round(time.Second), now.Doing)
	switch {
	case p.width > 0:
		fmt.Fprint(p.w, "\r\x1b[K"+text.Trim(line, p.width-1))
	case time.Now().After(p.due):
		p.due = time.Now().Add(lineEvery)
		fmt.Fprintln(p.w, line)
	}
}

func (p *progress) end() {
	if p.width > 0 {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// terminalWidth is 0 if w is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80 // a terminal that does not know: the classic
	}
	return width
}
