// Tests what texts show of tokens.
package strategy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

const (
	one = "7f3c9a52-4d1e-4b8f-9a66-0c1d2e3f4a5b"
	two = "0b7de1c4-88f2-4a0e-8f3b-5d6c7b8a9e0f"
)

func TestShortToken(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]string{
		"":                                     "",
		one:                                    "…3f4a5b",
		one + ":host-7":                        "…3f4a5b:host-7",
		one + ":":                              "…3f4a5b:",
		one + "x":                              "…f4a5bx",
		strings.ToUpper(one) + ":9":            "…3F4A5B:9",
		one[:8] + "0" + one[9:] + ":host-77":   "…ost-77",
		one[:13] + "0" + one[14:] + ":host-77": "…ost-77",
		one[:18] + "0" + one[19:] + ":host-77": "…ost-77",
		one[:23] + "0" + one[24:] + ":host-77": "…ost-77",
		one[:35] + "g:host-77":                 "…ost-77",
		one[:35] + ":host-77":                  "…ost-77",
		"request-17":                           "…st-17",
		"request-1234567890abcdef":             "…abcdef",
		"a":                                    "…",
		"ab":                                   "…b",
		"ééé":                                  "…é", // not half a letter
		"\xff\xfe\xfd\xfc":                     "…\xfd\xfc",
		"\x80\x80\x80\x80":                     "…",
	} {
		if got := strategy.ShortToken(token); got != want {
			t.Errorf("ShortToken(%q) = %q, want %q", token, got, want)
		}
	}
}

// The shortened tokens differ where the tokens do, also those made in one moment.
func TestShortTokensDiffer(t *testing.T) {
	t.Parallel()
	short := map[string]bool{}
	for range 50 {
		drawn := token.New("host-7", true)
		of := strategy.ShortToken(drawn)
		short[of] = true
		if want := len("…3f4a5b:host-7"); len(of) != want {
			t.Errorf("ShortToken(%q) = %q, want %d bytes", drawn, of, want)
		}
	}
	if len(short) < 49 { // two may be alike, once in ten thousand times
		t.Errorf("of 50 tokens %d are left, want 49 or 50", len(short))
	}
}

// No error says a whole token, which is enough to take the lock.
func TestErrorsShortenTokens(t *testing.T) {
	t.Parallel()
	held := &strategy.HeldError{Name: "n", Holder: one, TTL: 2 * time.Second}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{held, `lock "n": held by "…3f4a5b" for 2s unless renewed`},
		{&strategy.HeldError{Name: "n", Holder: one + ":host-7"}, `lock "n": held by "…3f4a5b:host-7"`},
		{&strategy.HeldError{Name: "n", Holder: one + ":" + strings.Repeat("h", 200)}, `lock "n": held by "…3f4a5b:` + strings.Repeat("h", 92) + `"`},
		{&strategy.HeldError{Name: "n", Holder: "request-\x001234567890"}, `lock "n": held by "…567890"`},
		{&strategy.HeldError{Name: "job/" + two, Holder: one}, `lock "job/` + two + `": held by "…3f4a5b"`},
		{&strategy.LostError{Name: "n", Holder: "someone else"}, `lock "n": lost: now held by "…e else"`},
		{&strategy.LostError{Name: "n", Lapsed: true, Err: held}, `lock "n": lost: its deadline came: held by "…3f4a5b" for 2s unless renewed`},
		{&strategy.QuorumError{Name: "n", Need: 2, Held: held, Nodes: []strategy.NodeAnswer{{Node: "a", Err: &strategy.LostError{Name: "n", Holder: two}}}},
			`lock "n": held by "…3f4a5b" for 2s unless renewed; no quorum: 0 of 1 servers agreed, needed are 2; a: lost: now held by "…8a9e0f"`},
		{&strategy.ServerError{Node: "r", Kind: strategy.ErrRefused, Err: fmt.Errorf("unknown command 'DELEX', with args beginning with: 'n' '%s:h' '%s'", one, two)},
			`r: refused by the server: unknown command 'DELEX', with args beginning with: 'n' '…3f4a5b:h' '…8a9e0f'`},
		{&strategy.ServerError{Node: "r", Kind: strategy.ErrRefused, Err: errors.New(one)}, `r: refused by the server: …3f4a5b`},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("Error() of %#v\n got %s\nwant %s", tt.err, got, tt.want)
		}
	}
}
