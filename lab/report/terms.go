package report

import (
	"html/template"
	"regexp"
	"strings"
)

// glossary is where the words of the page are explained.
const glossary = "https://github.com/lockstrategies/locks/blob/main/docs/glossary.md"

// headings are the terms that the page links, and their headings in the glossary.
var headings = map[string]string{
	"fence": "what", "token": "what", "lease": "what",
	"TTL": "time", "deadline": "time", "drift allowance": "time", "watchdog": "time",
	"direct grant": "waiting",
	"re-entrant":   "kinds-of-locks",
	"quorum":       "several-servers", "restart guard": "several-servers", "single point of failure": "several-servers",
}

var termRule = regexp.MustCompile(`\b(fence|token|lease|TTL|deadline|drift allowance|watchdog|direct grant|re-entrant|quorum|restart guard|single point of failure)s?\b`)

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
		b.WriteString(`<a class="term" href="` + glossary + "#" + headings[term] + `">` + template.HTMLEscapeString(prose[at[0]:at[1]]) + "</a>")
		end = at[1]
	}
	b.WriteString(template.HTMLEscapeString(prose[end:]))
	return template.HTML(b.String())
}
