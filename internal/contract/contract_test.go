// Tests the default pauses, and what a terminal gets of a server's words.
package contract

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for attempt, want := range map[int]time.Duration{
		-1 << 63: 2 * ms, -1: 2 * ms, 0: 2 * ms, 1: 2 * ms, 2: 4 * ms, 3: 8 * ms, 7: 128 * ms, 8: 250 * ms, 9: 250 * ms, 100: 250 * ms, 1<<63 - 1: 250 * ms,
	} {
		if got := Backoff(attempt); got != want {
			t.Errorf("Backoff(%d) = %v, want %v", attempt, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "",
		`ERR it's "10.0.0.1:6379", \x, ⌛ é`: `ERR it's "10.0.0.1:6379", \x, ⌛ é`,
		"\x1b]0;owned\a\x1b[31mred":         `\x1b]0;owned\a\x1b[31mred`,
		"a\r\nb\tc\x00\x7f":                 `a\r\nb\tc\x00\x7f`,
		"\u009b31m \u202egnp.exe \u2066":    `\u009b31m \u202egnp.exe \u2066`,
		"\xff\xc3(":                         `\xff\xc3(`,
		"\U000e0001\ufeff":                  `\U000e0001\ufeff`,
		"\ufffd":                            "\ufffd",
	} {
		got := Printable(text)
		if got != want {
			t.Errorf("Printable(%q) = %s, want %s", text, got, want)
		}
		if again := Printable(got); again != got {
			t.Errorf("Printable of %s = %s, want the same", got, again)
		}
	}
}
