package contract

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text as a terminal or a log can show it: each character that is not printable is written as in a Go
// string, such as \x1b for ESC and \u202e for one that turns the direction of writing. A server may put any bytes into its
// address and into its error replies. The texts of errors follow this rule.
func Printable(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if bad := r == utf8.RuneError && n == 1; bad || unprintable(r) {
			quoted := strconv.Quote(text[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
