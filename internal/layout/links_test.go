// Links between the pages of this repository lead somewhere.
package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	mdLink  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	named   = regexp.MustCompile(`<a (?:id|name)="([^"]*)"`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinks(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "clients/*/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	if len(pages) < 15 {
		t.Fatalf("%d pages, want more: the test looks in the wrong place", len(pages))
	}
	for _, page := range pages {
		text := fenced.ReplaceAllString(read(t, page), "")
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			target := m[1]
			if strings.Contains(target, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(target, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: there is no such file", page, target)
			} else if anchor != "" && strings.HasSuffix(file, ".md") && !anchors(read(t, file))[anchor] {
				t.Errorf("%s links to %s: there is no such heading", page, target)
			}
		}
	}
}

// anchors are the names by which GitHub links to a page's headings, and those that the page sets.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := strings.ToLower(mdLink.ReplaceAllString(m[1], "$1"))
		all[strings.ReplaceAll(noSlug.ReplaceAllString(title, ""), " ", "-")] = true
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
