package report

import (
	"html/template"
	"net/url"
	"regexp"
	"strings"
)

// glossary is where the words of the page are explained.
const glossary = "https://github.com/lockstrategies/locks/blob/main/docs/learn/glossary.md"

var termRule = regexp.MustCompile(`\b(fence|token|lease|TTL|deadline|drift|watchdog|direct grant|re-entrant|quorum|restart guard|single point of failure)s?\b`)

// terms is prose in which the first use of each term leads to the glossary.
func terms(prose string) template.HTML {
	var b strings.Builder
	linked, end := map[string]bool{}, 0
	for _, at := range termRule.FindAllStringSubmatchIndex(prose, -1) {
		term := prose[at[2]:at[3]]
		if linked[term] {
			continue
		}
		linked[term] = true
		b.WriteString(template.HTMLEscapeString(prose[end:at[0]]))
		b.WriteString(`<a class="term" href="` + glossary + "#:~:text=" + url.PathEscape(term) + `">` + template.HTMLEscapeString(prose[at[0]:at[1]]) + "</a>")
		end = at[1]
	}
	b.WriteString(template.HTMLEscapeString(prose[end:]))
	return template.HTML(b.String())
}
