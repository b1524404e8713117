package main

// The program lab: the matrix of faults.

import (
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/lab/faults"
)

// TestFaultsMatrix: each row is there with a mark for each strategy, its story, and a reason
// for each cell; words choose among them.
func TestFaultsMatrix(t *testing.T) {
	out, errs, code := clitest.Run(t, "faults")
	if code != 0 || errs != "" {
		t.Fatalf("lab faults: exit %d, %q on stderr", code, errs)
	}
	for line := range strings.Lines(out) {
		if w := textWidth(strings.TrimSuffix(line, "\n")); w > 80 {
			t.Errorf("%d wide: %q, want 80 at most", w, line)
		}
	}
	words := strings.Join(strings.Fields(out), " ")
	for _, f := range faults.All() {
		marks := ""
		for _, c := range faults.Strategies() {
			marks += " " + f.Cells[c.Name].Verdict.Mark()
		}
		for _, want := range []string{f.Name + marks, f.Story} {
			if !strings.Contains(words, strings.Join(strings.Fields(want), " ")) {
				t.Errorf("lab faults: %s: no %q", f.Name, want)
			}
		}
		for _, cell := range f.Cells {
			if !strings.Contains(words, cell.Reason+".") {
				t.Errorf("lab faults: %s: no reason %q", f.Name, cell.Reason)
			}
		}
	}
	out, _, _ = clitest.Run(t, "faults", "power", "LOSS")
	if n := strings.Count(out, "power loss"); n != 2*len(rowsOf([]string{"power loss"})) || strings.Contains(out, "FLUSHALL") {
		t.Errorf("lab faults power LOSS: want its rows and no other:\n%s", out)
	}
}

// TestFaultsPlay breaks real servers, and a process of the command's own.
func TestFaultsPlay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ row, strategy, want string }{
		{"FLUSHALL", "luascript", "✗ violated: B holds the lock, and so does A"},
		{"looks before", "setnxpx", "◐ detected: A has lost the lock, and knows: "},
	} {
		out, errs, code := clitest.Run(t, append([]string{"faults", "--play", "--strategy", c.strategy}, strings.Fields(c.row)...)...)
		if code == 1 && strings.Contains(errs, "cannot") {
			t.Skipf("NOT PROVEN: that faults are played: %s", errs)
		}
		if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), c.want) {
			t.Errorf("lab faults --play %s: exit %d, want 0 and %q:\n%s%s", c.row, code, c.want, out, errs)
		}
	}
}

// TestFaultsNotPlayed: a strategy for which there is no server is reported as such, and not as
// one that has failed.
func TestFaultsNotPlayed(t *testing.T) {
	for _, name := range []string{"REDIS_ADDRS", "REDIS_SERVER"} {
		t.Setenv(name, "")
	}
	t.Setenv("REDIS_KIND", "embedded")
	out, errs, code := clitest.Run(t, "faults", "--play", "--strategy", "setnxpx-synced", "power", "loss")
	words := strings.Join(strings.Fields(out), " ")
	const why = "the servers know no WAITAOF: of embedded servers there is no other edition"
	if code != 1 || !strings.Contains(words, "setnxpx-synced ? not played: "+why) || !strings.Contains(errs, "nothing was played: "+why) {
		t.Errorf("lab faults --play setnxpx-synced on an embedded server: exit %d, want 1 and %q:\n%s%s", code, why, out, errs)
	}
}
