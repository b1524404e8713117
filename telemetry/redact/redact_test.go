// What is left of tokens in texts.
package redact_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/redact"
)

const (
	one = "7f3c9a52-4d1e-4b8f-9a66-0c1d2e3f4a5b"
	two = "0b7de1c4-88f2-4a0e-8f3b-5d6c7b8a9e0f"
)

func TestToken(t *testing.T) {
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
		if got := redact.Token(token); got != want {
			t.Errorf("Token(%q) = %q, want %q", token, got, want)
		}
	}
}

// What is left of tokens tells one from the other, also of those made in one moment.
func TestTokensDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := engine.New(&conformance.Memory{}, strategy.Options{Label: "host-7"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		short := map[string]bool{}
		for i := range 50 {
			lease, err := s.NewLock(fmt.Sprint(i)).TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			of := redact.Token(lease.Token())
			short[of] = true
			if want := len("…3f4a5b:host-7"); len(of) != want {
				t.Errorf("Token(%q) = %q, want %d bytes", lease.Token(), of, want)
			}
		}
		if len(short) < 49 { // two may be alike, once in ten thousand times
			t.Errorf("of 50 tokens %d are left, want 49 or 50", len(short))
		}
	})
}

func TestError(t *testing.T) {
	held := &strategy.HeldError{Name: "n", Holder: one, TTL: 2 * time.Second}
	for _, tt := range []struct {
		what, name string
		err        error
		want       string
	}{
		{"none", "n", nil, ""},
		{"held", "n", held, `lock "n": held by "…3f4a5b" for up to 2s`},
		{"with a label", "n", &strategy.HeldError{Name: "n", Holder: one + ":host-7"}, `lock "n": held by "…3f4a5b:host-7"`},
		{"with a label that the error cuts off", "n", &strategy.HeldError{Name: "n", Holder: one + ":" + strings.Repeat("h", 100)},
			`lock "n": held by "…3f4a5b:` + strings.Repeat("h", 100) + `"`},
		{"by an owner", "n", &strategy.HeldError{Name: "n", Holder: "request-\x001234567890"}, `lock "n": held by "…567890"`},
		{"by nobody in particular", "n", &strategy.HeldError{Name: "n"}, `lock "n": held`},
		{"a wait that ended", "n", fmt.Errorf("%w; gave up after 1s: %w", held, context.Canceled),
			`lock "n": held by "…3f4a5b" for up to 2s; gave up after 1s: context canceled`},
		{"joined", "n", errors.Join(errors.New("first"), &strategy.LostError{Name: "n", Holder: "someone else"}),
			"first\nlock \"n\": lost: now held by \"…e else\""},
		{"a loss with its reason", "n", &strategy.LostError{Name: "n", Lapsed: true, Err: held},
			`lock "n": lost: its deadline came: held by "…3f4a5b" for up to 2s`},
		{"of several servers", "n", &strategy.QuorumError{Name: "n", Need: 2, Nodes: []strategy.NodeAnswer{
			{Node: "a", Err: &strategy.HeldError{Name: "n", Holder: "request-1"}},
			{Node: "b", Err: &strategy.LostError{Name: "n", Holder: "request-2"}},
			{Node: "c"},
		}}, `lock "n": no quorum: 1 of 3 servers agreed, needed are 2; a: held by "…st-1"; b: lost: now held by "…st-2"`},
		{"of several servers that agree", "n", &strategy.QuorumError{Name: "n", Need: 2, Held: held},
			`lock "n": held by "…3f4a5b" for up to 2s; no quorum: 0 of 0 servers agreed, needed are 2`},
		{"of several servers, by an owner", "n", &strategy.QuorumError{Name: "n", Need: 2, Held: &strategy.HeldError{Name: "n", Holder: "request-1"}},
			`lock "n": held by "…st-1"; no quorum: 0 of 0 servers agreed, needed are 2`},
		{"by an owner, with more words", "n", fmt.Errorf("more: %w", &strategy.HeldError{Name: "n", Holder: "request-1"}), `more: lock "n": held by "…st-1"`},
		{"what another strategy has written", "n", fmt.Errorf("lock:{n} holds no timestamp lock: %q", two+":host"),
			`lock:{n} holds no timestamp lock: "…8a9e0f:host"`},
		{"a name that is a UUID", "job/" + two, &strategy.HeldError{Name: "job/" + two, Holder: one},
			`lock "job/` + two + `": held by "…3f4a5b"`},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if got := redact.Error(strategy.Event{Name: tt.name, Err: tt.err}); got != tt.want {
				t.Errorf("Error(%v)\n got %s\nwant %s", tt.err, got, tt.want)
			}
		})
	}
}
