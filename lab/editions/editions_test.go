// Package editions has a script that runs the tests on every edition of the servers: run.
package editions

import (
	"os"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestEditions: the script goes through all that redistest has.
func TestEditions(t *testing.T) {
	script, err := os.ReadFile("run")
	if err != nil {
		t.Fatal(err)
	}
	if want := ":-" + strings.Join(redistest.Editions(), " ") + "}"; !strings.Contains(string(script), want) {
		t.Errorf("the script run does not go through %s", want)
	}
}
