package strategy

import (
	"crypto/rand"
	"fmt"

	"github.com/gofrs/uuid/v5"
)

// newToken returns a token that nobody else has and nobody can guess: a random
// UUID (122 bits from crypto/rand), and after it the label, if there is one.
func newToken(label string) (string, error) {
	var id uuid.UUID // uuid.NewV4 has it escape to the heap
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("locks: no random token: %w", err)
	}
	id.SetVersion(uuid.V4)
	id.SetVariant(uuid.VariantRFC9562)
	if label == "" {
		return id.String(), nil
	}
	return id.String() + ":" + label, nil
}

// labelOf returns the label that a token of [newToken] bears.
func labelOf(token string) string {
	const n = 36 // of a UUID's text
	if len(token) > n+1 && token[n] == ':' {
		if _, err := uuid.FromString(token[:n]); err == nil {
			return token[n+1:]
		}
	}
	return ""
}
