package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// progress tells, while the work goes on, what it is and how far: in one line that
// changes on a terminal, and with a line now and then elsewhere.
type progress struct {
	w          io.Writer
	width      int // of the terminal; 0: it is none
	began, due time.Time
}

// lineEvery is how often it says something where nothing can be redrawn: a log.
const lineEvery = 15 * time.Second

func startProgress(w io.Writer) *progress {
	return &progress{w: w, width: terminalWidth(w), began: time.Now(), due: time.Now().Add(time.Second)}
}

// set gets what part of the work is done, and what is next.
func (p *progress) set(part float64, next string) {
	line := fmt.Sprintf("%3.0f %%: %s", 100*part, next)
	if part > 0.01 {
		left := time.Duration(float64(time.Since(p.began)) * (1 - part) / part)
		line = fmt.Sprintf("%3.0f %%, about %v left: %s", 100*part, left.Round(time.Second), next)
	}
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
