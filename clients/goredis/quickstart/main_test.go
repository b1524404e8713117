// The program that the README shows runs.
package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestQuickstart runs the program on the tests' server.
func TestQuickstart(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	program := strings.ReplaceAll(string(source), "localhost:6379", redistest.Shared(t).Addr())
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	if want := "only one process at a time gets here\n<nil>\n"; err != nil || string(out) != want {
		t.Errorf("the program prints %q, %v, want %q", out, err, want)
	}
}
