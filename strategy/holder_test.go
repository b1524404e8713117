// A label that names a process is read back as it was written, and no other label is.
package strategy_test

import (
	"os"
	"testing"

	"github.com/lockstrategies/locks/strategy"
)

func TestHolder(t *testing.T) {
	parse := func(label string) (strategy.Holder, bool) { return strategy.Info{Label: label}.Holder() }
	for _, h := range []strategy.Holder{
		{"web-1", 42, ""}, {"web-1", 1, "nightly"}, {"a/b%c", 4711, "with / and spaces/ "}, {"fe80::1%eth0", 7, "/"},
	} {
		if back, ok := parse(h.String()); !ok || back != h {
			t.Errorf("Holder() of %q = %+v, %v, want %+v", h, back, ok, h)
		}
	}
	for _, label := range []string{"", "web-1", "web-1/", "/42", "web-1/0", "web-1/-4", "web-1/007", "web-1/4x", "web-1/42/", "%zz/42", "host 7, shelf 3"} {
		if h, ok := parse(label); ok || h != (strategy.Holder{}) {
			t.Errorf("Holder() of %q = %+v, %v, want none", label, h, ok)
		}
	}
	host, err := os.Hostname()
	if want := (strategy.Holder{host, os.Getpid(), "x"}); err == nil && strategy.ThisProcess("x") != want {
		t.Errorf("ThisProcess = %+v, want %+v", strategy.ThisProcess("x"), want)
	}
}
