// Package verdict is what tests need so that no verdict depends on how fast the machine is:
// a test polls under a generous limit, and a test that needs a fast machine plays its setup
// again when the machine was slow.
package verdict

import (
	"fmt"
	"testing"
	"time"
)

const (
	// limit is so long that only a defect exceeds it, even next to busy loops.
	limit = time.Minute
	pause = 5 * time.Millisecond

	// plays is how often a setup is played before the test is inconclusive.
	plays = 10
)

// Eventually polls until ok returns true, for a minute. After that the test fails; what says for
// what it has waited, such as "the lock is free". It works inside a synctest bubble, too.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// Slow says why the machine was too slow for a play to prove anything, such as "the TTL of 50ms
// ended before the second request". The empty string: it was fast enough, and the play's verdict
// counts.
type Slow string

// Slowf returns a [Slow].
func Slowf(format string, args ...any) Slow { return Slow(fmt.Sprintf(format, args...)) }

// Conclusive plays until the machine was fast enough for one play, at most ten times. A failure
// inside a play is final: what is repeated is the setup, never the verdict. If no play was fast
// enough the test is skipped as INCONCLUSIVE.
func Conclusive(t testing.TB, play func() Slow) {
	t.Helper()
	var why Slow
	for range plays {
		if why = play(); why == "" || t.Failed() {
			return
		}
		t.Logf("played again: %s", why)
	}
	t.Skipf("INCONCLUSIVE: this machine is too slow: %s, in %d plays", why, plays)
}
