// Tests what locks list --watch does in a terminal.
package main

import (
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// TestListTerminal: each list takes the place of the last.
func TestListTerminal(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	acquire(t, s, name, strategy.Options{TTL: time.Hour})
	c := toolFor(t, s, "list", name, "--watch", "--every", "10ms")
	scr := newScreen(t, c.Cmd)
	for range 2 {
		scr.expect("\x1b[H\x1b[2J")
		scr.expect("HELD BY")
		scr.expect(name)
	}
	scr.types(ctrlC)
	scr.expect("locks: interrupted")
	if c.Wait(); c.ProcessState.ExitCode() != 130 {
		t.Errorf("it ended with %v, want 130", c.ProcessState)
	}
}
