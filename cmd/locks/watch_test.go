//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests what locks watch prints when a lock changes hands, and when its server is away. The tests wait for each line
// before they make the next change.
package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	began := time.Now().Add(-time.Second)
	c := toolFor(t, s, "watch", name, "--every", "10ms").start()
	j := toolFor(t, s, "watch", name, "--every", "10ms", "--json").start()
	seen := func(want string) (r sighting) {
		t.Helper()
		at, words, _ := strings.Cut(c.line(), "  ")
		if when, err := time.Parse(time.RFC3339, at); words != want || err != nil || when.Before(began) || when.After(time.Now()) {
			t.Errorf("it prints %q %q (%v), want the time and %q", at, words, err, want)
		}
		text := j.line()
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Name != name || r.Time.Before(began) || r.Time.After(time.Now()) {
			t.Errorf("the JSON is %s (%v)", text, err)
		}
		return r
	}
	if r := seen("free"); r.Held || r.Before != nil {
		t.Errorf("of a free lock it says %+v", r)
	}
	lease := acquire(t, s, name, strategy.Options{TTL: time.Hour, Label: strategy.Holder{Host: "web", PID: 12, Label: "x"}.String()})
	fence, _ := lease.Fence()
	if r := seen(fmt.Sprintf(`held by web, process 12, "x", fence %d`, fence)); !r.Held || r.Token != lease.Token() || r.Fence != fence || r.Before != nil {
		t.Errorf("of a held lock it says %+v", r)
	}
	redistest.Do(t, s, "SET", strategy.DefaultKey(name), "of another library", "KEEPTTL") // from one holder to the next
	r := seen(fmt.Sprintf(`held by "…ibrary", fence %d; before: web, process 12, "x"`, fence))
	if !r.Held || r.Before == nil || r.Before.Token != lease.Token() || *r.Before.Holder != (holder{"web", 12, "x"}) {
		t.Errorf("of a lock that changed hands it says %+v", r)
	}
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	if r := seen(`free; before: "…ibrary"`); r.Held || r.Before == nil || r.Before.Token != "of another library" {
		t.Errorf("of a lock that is free again it says %+v", r)
	}
	for _, w := range []*tool{c, j} {
		w.kill(syscall.SIGINT)
		if out := w.wantEnd(130, "locks: interrupted\n"); out != "" {
			t.Errorf("it prints %q although nothing has changed", out)
		}
	}
}

// TestWatchOutage: an outage is said once, and its end.
func TestWatchOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{})
	c := toolFor(t, s, "watch", "a", "--every", "10ms")
	said := &lockedBuffer{}
	c.Stderr = said
	c.start().line()
	redistest.Skip(t, s.Kill(t.Context()), "what watch does when its server dies")
	verdict.Eventually(t, "it says that the server is away", func() bool { return strings.Contains(said.String(), s.Addr()+": ") })
	redistest.Must(t, s.Restart(t.Context()))
	if line := c.line(); !strings.HasSuffix(line, "  free") {
		t.Errorf("after the restart it prints %q, want what is now", line)
	}
	redistest.Do(t, s, "RPUSH", strategy.DefaultKey("a"), "no lock")
	verdict.Eventually(t, "it says that this is no lock", func() bool { return strings.Contains(said.String(), "is not of a fairqueue lock") })
	c.kill(syscall.SIGTERM)
	_, code := c.end()
	var words []string
	for line := range strings.Lines(said.String()) {
		words = append(words, line)
	}
	if code != 143 || len(words) != 4 || words[1] != "locks: the servers answer again\n" || !strings.HasPrefix(words[2], "locks: "+s.Addr()+": refused by the server: WRONGTYPE ") {
		t.Errorf("exit %d, on stderr is %q, want 143 and: that it is away, that it answers, that there is no lock, why it ended", code, words)
	}
}
