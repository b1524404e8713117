package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// A reader steps through a lesson.
type reader struct {
	ctx      context.Context
	lines    chan string
	terminal bool // in and out
}

// enough ends a lesson: the reader has had it.
type enough struct{ why string }

func (e *enough) Error() string { return e.why }

func newReader(ctx context.Context, in io.Reader, out io.Writer) *reader {
	r := &reader{ctx: ctx, lines: make(chan string)}
	f, ok := in.(*os.File)
	r.terminal = ok && term.IsTerminal(int(f.Fd())) && terminalWidth(out) > 0
	go func() { // which a read of a terminal keeps until the process ends
		defer close(r.lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case r.lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return r
}

// next returns when the reader has pressed Enter, with what stood before it, or with an error when there will be no
// next step. after is what comes after the prompt then. On a terminal that takes it away
// again, so that the diagram is whole: there is the line that the reader has ended.
func (r *reader) next() (line, after string, err error) {
	select {
	case line, more := <-r.lines:
		line = strings.TrimSpace(line)
		switch strings.ToLower(line) {
		case "q", "quit", "exit":
			err = &enough{"The lesson ends here, as you said."}
		}
		switch {
		case !more && r.terminal: // Ctrl-D ends no line
			return "", "\r\x1b[K", &enough{"The lesson ends here, as the input does."}
		case !more:
			return "", "\n", &enough{"The lesson ends here, as the input does."}
		case r.terminal:
			return line, "\x1b[A\r\x1b[K", err
		}
		return line, "\n", err
	case <-r.ctx.Done():
		return "", "\n", context.Cause(r.ctx)
	}
}
