package fencing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocQuotes holds docs/fencing.md to the sources: what a block of code there says
// comes from a file, stands in that file, line by line.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := map[string]int{}
	source, block := "", []string(nil)
	inside, code := false, false
	for number, line := range strings.Split(string(doc), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !inside:
			inside, code, block = true, fence != "", nil
			if code && source == "" {
				t.Errorf("line %d: the block of code does not say what file it is from", number+1)
			}
		case isFence:
			if code && source != "" {
				quoted[source]++
				if !stands(t, block, source) {
					t.Errorf("up to line %d: not in %s as it is here:\n%s", number+1, source, strings.Join(block, "\n"))
				}
			}
			inside, source = false, ""
		case inside:
			block = append(block, line)
		case line != "":
			source = ""
			if from, ok := strings.CutPrefix(line, "<!-- from fencing/"); ok {
				source = strings.TrimSuffix(from, " -->")
			}
		}
	}
	for _, want := range []string{"fencing.go", "example_test.go", "sql.go", "touch.lua", "http.go", "memory.go"} {
		if quoted[want] == 0 {
			t.Errorf("nothing is quoted from %s", want)
		}
	}
}

// stands tells whether the lines stand in the file, all indented by as many tabs.
func stands(t *testing.T, block []string, file string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	for tabs := range 3 {
		var b strings.Builder
		b.WriteString("\n")
		for _, line := range block {
			if line != "" {
				line = strings.Repeat("\t", tabs) + line
			}
			b.WriteString(line + "\n")
		}
		if strings.Contains("\n"+string(text), b.String()) {
			return true
		}
	}
	return false
}
