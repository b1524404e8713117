package rediscnode

import (
	"testing"

	"github.com/lockstrategies/locks/internal/quotes"
)

// TestReadme: the code of the README compiles.
func TestReadme(t *testing.T) {
	if from, err := quotes.Check("README.md"); err != nil || len(from) == 0 {
		t.Error(from, err)
	}
}
