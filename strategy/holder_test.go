package strategy_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/strategy"
)

func TestHolder(t *testing.T) {
	for _, h := range []strategy.Holder{
		{"web-1", 42, ""}, {"web-1", 1, "nightly"}, {"a/b%c", 4711, "with / and spaces/ "}, {"fe80::1%eth0", 7, "/"},
	} {
		back, ok := strategy.ParseHolder(h.String())
		if !ok || back != h {
			t.Errorf("ParseHolder(%q) = %+v, %v, want %+v", h, back, ok, h)
		}
	}
	for _, label := range []string{"", "web-1", "web-1/", "/42", "web-1/0", "web-1/-4", "web-1/007", "web-1/4x", "web-1/42/", "%zz/42", "host 7, shelf 3"} {
		if h, ok := strategy.ParseHolder(label); ok || h != (strategy.Holder{}) {
			t.Errorf("ParseHolder(%q) = %+v, %v, want that it is none", label, h, ok)
		}
	}
	if h := strategy.ThisProcess("x"); h.Host == "" || h.PID != os.Getpid() || h.Label != "x" {
		t.Errorf("ThisProcess = %+v", h)
	}
}

func TestInfoHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m conformance.Memory
		for label, want := range map[string]bool{strategy.ThisProcess("import").String(): true, "plain": false} {
			s := open(t, &m, strategy.Options{Label: label})
			lease := take(t, s)
			info, err := s.Inspect(bg, name)
			is(t, "Inspect", err)
			h, ok := info.Holder()
			equal(t, "Holder of "+label, ok, want)
			equal(t, "Holder", fmt.Sprint(h == strategy.ThisProcess("import")), fmt.Sprint(want))
			release(t, lease)
		}
	})
}
