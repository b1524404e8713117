// Code that a document quotes is the code of the file that it names; so it is in the README.
package quotes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const source = "package p\n\nfunc f() {\n\tif true {\n\t\tg()\n\t}\n}\n"
	for name, c := range map[string]struct{ doc, want string }{
		"quoted":            {"<!-- from p.go -->\n```go\nif true {\n\tg()\n}\n```\n", ""},
		"no code":           {"```\nanything\n```\n", ""},
		"to be typed":       {"```sh\nmake demo\n```\n", ""},
		"changed":           {"<!-- from p.go -->\n```go\nif false {\n\tg()\n}\n```\n", "not in"},
		"part of a line":    {"<!-- from p.go -->\n```go\nif true\n```\n", "not in"},
		"from nowhere":      {"Words.\n```go\ng()\n```\n", "does not say"},
		"words in between":  {"<!-- from p.go -->\nWords.\n```go\ng()\n```\n", "does not say"},
		"from what is gone": {"<!-- from q.go -->\n```go\ng()\n```\n", "q.go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			doc := filepath.Join(dir, "doc.md")
			for file, text := range map[string]string{doc: c.doc, filepath.Join(dir, "p.go"): source} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			from, err := Check(doc)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Check = %v, want %q", err, c.want)
			}
			if name == "quoted" && from["p.go"] != 1 {
				t.Errorf("Check counts %v, want one of p.go", from)
			}
		})
	}
}

// TestReadme: the code of the README compiles.
func TestReadme(t *testing.T) {
	t.Parallel()
	from, err := Check("../../../README.md")
	if err != nil {
		t.Error(err)
	}
	if len(from) == 0 {
		t.Error("the README has no code: the test has lost its sight")
	}
}
