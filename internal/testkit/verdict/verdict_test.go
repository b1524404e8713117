// Tests what Eventually and Conclusive do at their limits. They run in bubbles, so the minute takes no
// time.
package verdict

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a test that only notes how it ended.
type recorder struct {
	testing.TB
	fatal, skip string
	failed      bool
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Failed() bool        { return r.failed }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed, r.fatal = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// record returns how a test with this body ends.
func record(body func(*recorder)) *recorder {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(r)
	}()
	<-done
	return r
}

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		Eventually(t, "59 s are over", func() bool { return time.Since(begin) >= 59*time.Second })
		r := record(func(r *recorder) { Eventually(r, "the lock is free", func() bool { return false }) })
		if !strings.Contains(r.fatal, "the lock is free") {
			t.Errorf("after the limit the test ends with %q, want what it has waited for", r.fatal)
		}
	})
}

func TestConclusive(t *testing.T) {
	for name, c := range map[string]struct {
		slow        int // so many plays are
		fails       bool
		plays       int
		wantSkipped bool
	}{
		"fast at once":            {slow: 0, plays: 1},
		"fast at last":            {slow: 9, plays: 10},
		"never fast":              {slow: 100, plays: 10, wantSkipped: true},
		"a failure is final":      {slow: 0, fails: true, plays: 1},
		"also of a play too slow": {slow: 100, fails: true, plays: 1},
	} {
		t.Run(name, func(t *testing.T) {
			played := 0
			r := record(func(r *recorder) {
				Conclusive(r, func() Slow {
					played++
					r.failed = c.fails
					if played <= c.slow {
						return Slowf("play %d", played)
					}
					return ""
				})
			})
			if played != c.plays || (r.skip != "") != c.wantSkipped {
				t.Errorf("%d plays, skipped %q; want %d plays, skipped: %v", played, r.skip, c.plays, c.wantSkipped)
			}
		})
	}
}
