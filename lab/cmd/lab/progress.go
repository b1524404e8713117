package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/lockstrategies/locks/lab/compare"
)

const (
	redrawEvery = 100 * time.Millisecond
	firstLine   = time.Second // where nothing can be redrawn: a log
	lineEvery   = 15 * time.Second
)

// progress tells, while the work goes on, what it is and how far: in one line that
// changes on a terminal, and with a line now and then elsewhere.
type progress struct {
	w      io.Writer
	width  int           // of the terminal; 0: it is none
	ended  chan struct{} // closed to end
	writer sync.WaitGroup

	mu    sync.Mutex
	now   compare.Progress
	since time.Time // when now began
}

func startProgress(w io.Writer) *progress {
	p := &progress{w: w, width: terminalWidth(w), ended: make(chan struct{}), since: time.Now()}
	first, every := firstLine, lineEvery
	if p.width > 0 {
		first, every = redrawEvery, redrawEvery
	}
	p.writer.Go(func() {
		next := time.NewTimer(first)
		defer next.Stop()
		for {
			select {
			case <-next.C:
				p.draw()
				next.Reset(every)
			case <-p.ended:
				if p.width > 0 {
					fmt.Fprint(w, "\r\x1b[K")
				}
				return
			}
		}
	})
	return p
}

// set gets every new part of the work.
func (p *progress) set(now compare.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.since = now, time.Now()
}

// end returns when nothing is written any more.
func (p *progress) end() {
	close(p.ended)
	p.writer.Wait()
}

func (p *progress) draw() {
	p.mu.Lock()
	line := p.line(time.Since(p.since))
	p.mu.Unlock()
	switch {
	case line == "":
	case p.width > 0:
		fmt.Fprint(p.w, "\r\x1b[K"+text.Trim(line, p.width-1))
	default:
		fmt.Fprintln(p.w, line)
	}
}

// line is what to show when the present part has gone on for that long.
func (p *progress) line(passed time.Duration) string {
	n := p.now
	if n.Total <= 0 {
		return ""
	}
	done := min(n.Done+passed, n.Until)
	percent := int(100 * done / n.Total)
	left := (n.Total - done).Round(time.Second)
	if p.width == 0 {
		return fmt.Sprintf("%3d %%, about %v left: %s", percent, left, n.Doing)
	}
	const bar = 20
	full := bar * percent / 100
	return fmt.Sprintf("%s%s %3d %%  %3s left  %s", strings.Repeat("█", full), strings.Repeat("░", bar-full), percent, left, n.Doing)
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
