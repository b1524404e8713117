// Texts that come from servers: what a terminal gets of them.
package strategy_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

// hostile has what a terminal obeys.
const hostile = "\x1b]0;owned\a\u009b31m\u202e\r\n\xff"

// printable fails the test if a text has what a terminal obeys, or no line.
func printable(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || !utf8.ValidString(text) {
		t.Errorf("%s = %q, which has what is not printable", what, text)
	}
}

// TestHostileWords: no text of an error hands a terminal what a server, or a holder, has put into a field.
func TestHostileWords(t *testing.T) {
	t.Parallel()
	server := &strategy.ServerError{Node: hostile, Kind: strategy.ErrRefused, Err: errors.New(hostile)}
	held := &strategy.HeldError{Name: hostile, Holder: hostile}
	for what, err := range map[string]error{
		"ServerError":  server,
		"no reason":    &strategy.ServerError{Node: hostile, Kind: strategy.ErrUnsent},
		"QuorumError":  &strategy.QuorumError{Name: hostile, Held: held, Nodes: []strategy.NodeAnswer{{Node: hostile, Err: server}, {Node: hostile, Err: held}, {Node: hostile}}},
		"HeldError":    held,
		"LostError":    &strategy.LostError{Name: hostile, Lapsed: true, Err: server},
		"now held":     &strategy.LostError{Name: hostile, Holder: hostile},
		"multilock":    &multilock.Error{Name: hostile, Names: []string{hostile}, Errs: []error{server}},
		"AcksError":    &strategy.ServerError{Node: hostile, Kind: strategy.ErrUnknown, Err: &strategy.AcksError{Err: server}},
		"within words": &strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown, Err: server},
	} {
		printable(t, what, err.Error())
	}
	if text := (&strategy.QuorumError{Name: "n", Nodes: []strategy.NodeAnswer{{Node: hostile, Err: server}}}).Error(); strings.Count(text, "owned") != 2 {
		t.Errorf("%q names the server more than once", text)
	}
}

// FuzzHostileWords: whatever a server says, a terminal gets one line that it can show.
func FuzzHostileWords(f *testing.F) {
	f.Add(hostile, "ERR "+hostile)
	f.Add("10.0.0.1:6379", "WRONGTYPE Operation against a key holding the wrong kind of value")
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 { // each run of the tests plays these
		words := []rune(hostile)
		for i := range words {
			words[i] = rune(random.IntN(1 << (1 + random.IntN(21))))
		}
		f.Add(string(words[:4]), string(words)+string([]byte{byte(random.IntN(256))}))
	}
	f.Fuzz(func(t *testing.T, node, words string) {
		err := &strategy.ServerError{Node: node, Kind: strategy.ErrRefused, Err: errors.New(words)}
		printable(t, "Error", err.Error())
		printable(t, "Error of a quorum", (&strategy.QuorumError{Name: "n", Nodes: []strategy.NodeAnswer{{Node: node, Err: err}}}).Error())
	})
}
