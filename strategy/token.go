package strategy

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/gofrs/uuid/v5"
)

// newToken returns a token that nobody else has and nobody can guess, and after it the
// label, if there is one: a UUID of version 7 (RFC 9562), which is the time to the
// millisecond, for whoever inspects the lock, and 74 bits from crypto/rand.
//
// announced marks the token of a holder whose release is published to those who wait for it
// (a [Notifier]'s that is no [Queuer]): see [Announced]. Of the 74 bits 12 are the mark then.
func newToken(label string, announced bool) (string, error) {
	var id uuid.UUID // uuid.NewV7 has it escape to the heap, and takes a lock
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("locks: no random token: %w", err)
	}
	ms := time.Now().UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id.SetVersion(uuid.V7)
	id.SetVariant(uuid.VariantRFC9562)
	if announced {
		id[6], id[7] = 0x7e, 0x11
	} else if id[6] == 0x7e && id[7] == 0x11 {
		id[7]++ // by chance
	}
	if label == "" {
		return id.String(), nil
	}
	return id.String() + ":" + label, nil
}

// mark is the third group of an announced token.
const mark = "7e11"

// Announced reads the holder's token, for a protocol that shares its keys with others: ours
// says that [New] drew it; announced, that the holder's release is published to those who
// wait by [Notifier]. A holder of another kind publishes nothing, so [HeldError].Silent is
// true of it. Of the tokens of strangers that are UUIDs of version 7, one in 4096 looks
// announced.
func Announced(token string) (announced, ours bool) {
	_, drawn := readToken(token)
	if drawn.IsZero() {
		return false, false
	}
	return token[14:18] == mark, true
}

// readToken returns the label that a token of [newToken] bears, and when it was drawn. Of
// another's token it knows neither.
func readToken(token string) (label string, drawn time.Time) {
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
		if drawn, err = t.Time(); err != nil {
			drawn = time.Time{}
		}
	}
	return label, drawn
}
