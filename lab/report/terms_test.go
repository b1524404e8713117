// Tests that each term which the page links is in the glossary, under the heading to which the link leads.
package report

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTerms(t *testing.T) {
	text, err := os.ReadFile("../../docs/learn/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // the words of each row, and the heading that they are under
	heading := ""
	for line := range strings.Lines(string(text)) {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(h), " ", "-"))
		} else if cells := strings.Split(line, "|"); len(cells) > 1 {
			for word := range strings.SplitSeq(cells[1], ",") {
				rows[strings.TrimSpace(word)] = heading
			}
		}
	}
	linked := regexp.MustCompile(`\(([^)]+)\)`).FindStringSubmatch(termRule.String())[1]
	for term := range strings.SplitSeq(linked, "|") {
		if want := rows[term]; want == "" || headingOf(term) != want {
			t.Errorf("headingOf(%q) = %q, the glossary has it under %q", term, headingOf(term), want)
		}
		if got := string(terms("a " + term + " is")); !strings.Contains(got, "glossary.md#"+rows[term]+`">`+term+"</a>") {
			t.Errorf("terms() makes of %q %q", term, got)
		}
	}
}
