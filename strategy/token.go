package strategy

import (
	"strings"
	"unicode/utf8"
)

const (
	uuidLen = 36 // bytes
	// shownBytes are of a token's end, because tokens drawn at the same time begin alike: 24 of a UUID's random bits. 50 stay hidden,
	// of a marked token 38.
	shownBytes = 6
)

// ShortToken returns the part of a token that texts show: a …, its last 6 bytes, and its [Options].Label, as in …3f4a5b:host-7.
// That distinguishes holds, and is not enough to take the lock, as the whole token is ([Strategy.Adopt]). Of any other name, such
// as an owner or the token of another library, ShortToken shows half at most.
//
// The texts of all errors follow this rule, so they may be logged. Fields, such as [HeldError].Holder and [Event].Token, have the
// whole token: log ShortToken of them.
func ShortToken(token string) string {
	if token == "" {
		return ""
	}
	if id, _, _ := strings.Cut(token, ":"); isUUID(id) {
		return "…" + token[uuidLen-shownBytes:]
	}
	from := len(token) - min(shownBytes, len(token)/2)
	for from < len(token) && !utf8.RuneStart(token[from]) {
		from++
	}
	return "…" + token[from:]
}

// shortenTokens shortens what looks like a token in the words of others: a server that does not know a
// command quotes its arguments.
func shortenTokens(text string) string {
	var b strings.Builder
	for len(text) >= uuidLen {
		if isUUID(text[:uuidLen]) {
			b.WriteString(ShortToken(text[:uuidLen]))
			text = text[uuidLen:]
			continue
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	return b.String() + text
}

func isUUID(s string) bool {
	return len(s) == uuidLen && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' && strings.Trim(s, "-0123456789abcdefABCDEF") == ""
}
