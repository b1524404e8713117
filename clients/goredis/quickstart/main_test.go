// The program that the README shows is short, runs, and says that the lock is held.
package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func source(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestShort: who sees the program for the first time reads all of it.
func TestShort(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(source(t), "\n"), "\n")
	if len(lines) > 25 {
		t.Errorf("the program has %d lines, want 25 at most", len(lines))
	}
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > 78 {
			t.Errorf("line %d has %d characters, want 78 at most", i+1, n)
		}
	}
}

// TestQuickstart runs the program on the tests' server: with the lock, and while another process has it.
func TestQuickstart(t *testing.T) {
	s := redistest.Shared(t)
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(source(t), "localhost:6379", s.Addr())), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() string {
		out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
		if err != nil {
			t.Fatalf("the program fails: %v: %s", err, out)
		}
		return string(out)
	}
	if out, want := run(), "only one process at a time gets here\n<nil>\n"; out != want {
		t.Errorf("the program prints %q, want %q", out, want)
	}
	redistest.Do(t, s, "SET", "lock:{invoice/42}", "another process", "PX", 600_000)
	defer redistest.Do(t, s, "DEL", "lock:{invoice/42}")
	if out, want := run(), `lock "invoice/42": held by "…rocess" for 9m`; !strings.HasPrefix(out, want) {
		t.Errorf("the program prints %q while another process has the lock, want %q", out, want)
	}
}
