// Which commands begin and end a transaction.
package client

import (
	"strings"
	"testing"
)

func TestState(t *testing.T) {
	for said, want := range map[string]string{
		"":                         "",
		"GET":                      "",
		"WATCH":                    "UNWATCH",
		"watch get":                "UNWATCH",
		"WATCH UNWATCH":            "",
		"MULTI":                    "DISCARD",
		"WATCH Multi":              "DISCARD",
		"WATCH MULTI EXEC":         "",
		"WATCH MULTI DISCARD":      "",
		"MULTI UNWATCH":            "DISCARD", // it is queued, and ends no transaction
		"WATCH MULTI UNWATCH EXEC": "",
		"WATCH MULTI EXEC WATCH":   "UNWATCH",
	} {
		var s State
		for _, cmd := range strings.Fields(said) {
			s.Note(cmd)
		}
		if got := s.End(); got != want || s.Queueing() != (want == "DISCARD") {
			t.Errorf("after %q End() = %q, Queueing() = %v, want %q", said, got, s.Queueing(), want)
		}
	}
}
