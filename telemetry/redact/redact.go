// Package redact shortens tokens, for logs and traces. More people read these than may take locks.
// The token of a hold is enough to take the lock from its holder ([strategy.Strategy.Adopt]), and the
// name of an owner is enough to enter a re-entrant lock. To tell one hold from the other, the end of
// a token is enough.
//
// It is for authors of observers ([strategy.Options].Observe).
package redact

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/lockstrategies/locks/strategy"
)

const (
	shown = 6  // bytes of a token: 24 of a UUID's random bits; 50 stay hidden, of a marked token 38
	uuid  = 36 // bytes
)

// Token returns a … and the last 6 bytes of a token: …3f4a5b. Many tokens have the same beginning,
// the time at which they were drawn. A label ([strategy.Options].Label) is kept: …3f4a5b:host-7. Of
// any other name of a holder (an owner, the token of another library) Token keeps half at most. An
// empty token stays empty.
func Token(token string) string {
	if token == "" {
		return ""
	}
	if id, _, _ := strings.Cut(token, ":"); isUUID(id) {
		return "…" + token[uuid-shown:]
	}
	from := len(token) - min(shown, len(token)/2)
	for from < len(token) && !utf8.RuneStart(token[from]) {
		from++
	}
	return "…" + token[from:]
}

var anyUUID = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// isUUID tells whether s is what anyUUID matches, or nearly: it is asked for each event.
func isUUID(s string) bool {
	return len(s) == uuid && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' && strings.Trim(s, "-0123456789abcdefABCDEF") == ""
}

// Error returns the text of the event's error with all tokens in it shortened as by [Token]:
// the holders that it names, and whatever else looks like a token and is no part of the
// lock's name. It is empty if there is no error.
func Error(e strategy.Event) string {
	if e.Err == nil {
		return ""
	}
	text := e.Err.Error()
	for _, holder := range holders(e.Err, nil) {
		text = strings.ReplaceAll(text, fmt.Sprintf("%.100q", holder), fmt.Sprintf("%q", Token(holder)))
	}
	return anyUUID.ReplaceAllStringFunc(text, func(token string) string {
		if strings.Contains(e.Name, token) {
			return token
		}
		return Token(token)
	})
}

// holders appends whom an error, or one within it, names.
func holders(err error, found []string) []string {
	var within []error
	switch e := err.(type) {
	case *strategy.HeldError:
		found = append(found, e.Holder)
	case *strategy.LostError:
		found = append(found, e.Holder)
	case *strategy.QuorumError: // which does not unwrap all that it says
		for _, n := range e.Nodes {
			within = append(within, n.Err)
		}
		if e.Held != nil {
			within = append(within, e.Held)
		}
	case interface{ Unwrap() []error }:
		within = e.Unwrap()
	}
	if one := errors.Unwrap(err); one != nil {
		within = append(within, one)
	}
	for _, w := range within {
		found = holders(w, found)
	}
	return found
}
