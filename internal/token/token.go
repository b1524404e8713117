package token

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/gofrs/uuid/v5"
)

// New returns a token that nobody else has and nobody can guess, and after it the
// label, if there is one: a UUID of version 7 (RFC 9562), which is the time to the
// millisecond, for whoever inspects the lock, and 74 bits from crypto/rand.
func New(label string) (string, error) {
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
	if label == "" {
		return id.String(), nil
	}
	return id.String() + ":" + label, nil
}

// Parse returns the label that a token of [New] bears, and when it was drawn. Of
// another's token it knows neither.
func Parse(token string) (label string, drawn time.Time) {
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
