// Package token draws the tokens of holders.
package token

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/uuid/v5"
)

// mark is the third group of an announced token.
const mark = "7e11"

// New returns a token that nobody else has and nobody can guess, and after it the label, if there is
// one. It is a UUID of version 7 (RFC 9562): the time in milliseconds, for people who inspect the lock,
// and 74 bits from crypto/rand.
//
// announced marks the token of a holder whose release is published to waiters that subscribe. Then 12
// of the 74 bits are the mark.
func New(label string, announced bool) string {
	var id uuid.UUID // uuid.NewV7 makes it escape to the heap, and takes a lock
	rand.Read(id[:]) // it never fails: without random numbers the program ends
	ms := time.Now().UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id.SetVersion(uuid.V7)
	id.SetVariant(uuid.VariantRFC9562)
	setMark(&id, announced)
	if label == "" {
		return id.String()
	}
	return id.String() + ":" + label
}

// setMark gives a UUID of version 7 the mark, or makes sure that it has another third group.
func setMark(id *uuid.UUID, announced bool) {
	if announced {
		id[6], id[7] = 0x7e, 0x11
	} else if id[6] == 0x7e && id[7] == 0x11 {
		id[7]++ // by chance
	}
}

// Announced reads the holder's token, for a protocol that shares its keys with other libraries. ours
// says that New drew it; announced, that the holder's release is published. A foreign UUID of version 7
// looks announced with a chance of one in 4096.
func Announced(token string) (announced, ours bool) {
	if _, drawn := Parse(token); drawn.IsZero() {
		return false, false
	}
	return base(token)[14:18] == mark, true
}

// base is the token of New that driver.HoldToken has made a token of; the token itself, if it has not.
func base(token string) string {
	if i, rest, ok := strings.Cut(token, "."); ok && len(i) < 4 {
		if n, err := strconv.Atoi(i); err == nil && n > 1 && strconv.Itoa(n) == i {
			return rest
		}
	}
	return token
}

// Parse returns the label of a token of New, and when it was drawn; the same of those that driver.HoldToken makes of it. Of a
// foreign token it knows neither.
func Parse(token string) (label string, drawn time.Time) {
	token = base(token)
	const n = 36 // of a UUID's text
	if len(token) < n || len(token) > n && token[n] != ':' {
		return "", time.Time{}
	}
	id, err := uuid.FromString(token[:n])
	if err != nil {
		return "", time.Time{}
	}
	if len(token) > n {
		label = token[n+1:]
	}
	if t, err := uuid.TimestampFromV7(id); err == nil && id.Variant() == uuid.VariantRFC9562 {
		drawn, _ = t.Time() // there is no error
	}
	return label, drawn
}
