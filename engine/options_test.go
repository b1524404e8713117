// Options, names, keys and tokens: what is refused, what is the default, and what Inspect reads back.
package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	const waits = "WaitBest, WaitPoll, WaitNotification and WaitQueue"
	var m lockstest.Memory
	for _, tt := range []struct {
		p    driver.Protocol
		o    strategy.Options
		want []string // the field, the value, what is allowed
	}{
		{&m, strategy.Options{TTL: -1}, []string{"Options.TTL", "-1ns", "10ms", "24h", "0 for 10s"}},
		{&m, strategy.Options{TTL: 9 * ms}, []string{"Options.TTL", "9ms", "10ms"}},
		{&m, strategy.Options{TTL: 10*ms + time.Microsecond}, []string{"Options.TTL", "10.001ms", "whole milliseconds"}},
		{&m, strategy.Options{TTL: 24*time.Hour + ms}, []string{"Options.TTL", "24h0m0.001s", "24h"}},
		{&m, strategy.Options{OpTimeout: ms - 1}, []string{"Options.OpTimeout", "999.999µs", "1ms"}},
		{&m, strategy.Options{OpTimeout: ttl}, []string{"Options.OpTimeout", "10s", "less than the TTL of 10s"}},
		{&m, strategy.Options{Label: strings.Repeat("x", 257)}, []string{"Options.Label", "257 bytes", "256"}},
		{&m, strategy.Options{Wait: -1}, []string{"Options.Wait", "-1", waits}},
		{&m, strategy.Options{Wait: strategy.WaitQueue + 1}, []string{"Options.Wait", "4", waits}},
		{&m, strategy.Options{MaxHold: -1}, []string{"Options.MaxHold", "-1ns", "the TTL of 10s or more"}},
		{&m, strategy.Options{MaxHold: ttl - ms}, []string{"Options.MaxHold", "9.999s", "the TTL of 10s or more"}},
		{&m, strategy.Options{FenceTTL: 2*ttl - ms}, []string{"Options.FenceTTL", "19.999s", "whole milliseconds from twice the TTL of 10s on",
			"0 for the greater of 24h and that", "less than 0 for ever"}},
		{&m, strategy.Options{FenceTTL: 2*ttl + 1}, []string{"Options.FenceTTL", "20.000000001s", "whole milliseconds"}},
		{bare(&m), strategy.Options{Wait: strategy.WaitNotification}, []string{"by this algorithm; allowed are WaitBest and WaitPoll"}},
		{bare(&m), strategy.Options{Wait: strategy.WaitQueue}, []string{"by this algorithm; allowed are WaitBest and WaitPoll"}},
		{&scriptedTeller{}, strategy.Options{Wait: strategy.WaitQueue}, []string{"allowed are WaitBest, WaitNotification and WaitPoll"}},
	} {
		s, err := engine.New(tt.p, tt.o)
		if s != nil {
			t.Errorf("New(%+v) = %v, want none", tt.o, s)
		}
		says(t, fmt.Sprintf("New(%+v)", tt.o), err, tt.want...)
	}
	for _, o := range []strategy.Options{
		{TTL: contract.MinTTL}, {TTL: contract.MaxTTL}, {TTL: 10 * ms, OpTimeout: ms}, {OpTimeout: ttl - 1},
		{Label: strings.Repeat("x", contract.MaxLabelLen)}, {MaxHold: ttl}, {FenceTTL: 2 * ttl}, {FenceTTL: -1},
		{FenceTTL: math.MaxInt64 / ms * ms}, {Wait: strategy.WaitPoll}, {Wait: strategy.WaitNotification}, {Wait: strategy.WaitQueue},
	} {
		_, err := engine.New(&m, o)
		is(t, fmt.Sprintf("New(%+v)", o), err)
	}
	_, err := open(t, &m, strategy.Options{Key: func(string) string { return "" }}).NewLock("n").TryAcquire(bg)
	says(t, "TryAcquire with an empty key", err, "Options.Key")
	release(t, takeAs(t, open(t, &m, strategy.Options{}), strings.Repeat("x", contract.MaxNameLen)))
	for _, w := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll} {
		s, err := engine.New(bare(&m), strategy.Options{Wait: w})
		is(t, fmt.Sprintf("New(Wait: %v)", w), err)
		_, err = s.With(func(o *strategy.Options) { o.Wait = strategy.WaitNotification })
		is(t, "With(WaitNotification)", err, strategy.ErrUnsupported)
	}
}

// The defaults, as the servers get to see them.
func TestOptionsDefaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, tt := range []struct {
			o              strategy.Options
			ttl, op, fence time.Duration
		}{
			{strategy.Options{}, ttl, time.Second, 24 * time.Hour},
			{strategy.Options{TTL: 3 * time.Second}, 3 * time.Second, 500 * ms, 24 * time.Hour},
			{strategy.Options{TTL: 13 * time.Hour}, 13 * time.Hour, time.Second, 26 * time.Hour},
			{strategy.Options{OpTimeout: 7 * time.Second}, ttl, 7 * time.Second, 24 * time.Hour},
			{strategy.Options{FenceTTL: 2 * ttl}, ttl, time.Second, 2 * ttl},
			{strategy.Options{FenceTTL: -1}, ttl, time.Second, 0},
		} {
			_, r, _, lease := holding(t, tt.o)
			release(t, lease)
			c := r.of(lockstest.OpAcquire)[0].all[0]
			equal(t, "claim's TTL", c.TTL, tt.ttl)
			equal(t, "claim's FenceTTL", c.FenceTTL, tt.fence)
			equal(t, "claim's Due", time.Until(c.Due), tt.op)
			equal(t, "claim's Key", c.Key, key)
			equal(t, "claim's Name", c.Name, name)
			equal(t, "claim's Owner", c.Owner, c.Token)
		}
	})
}

// Whatever names and keys users make, two locks never share a key or a channel: siblings differ if keys or suffixes do. They lie
// in their key's slot, if any key can.
func TestKeysDiffer(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"n": key, "}x": "lock:{%7Dx}", "%7Dx": "lock:{%257Dx}"} {
		equal(t, "DefaultKey", strategy.DefaultKey(name), want)
	}
	words := []string{"{", "}", "{", "}", ":", ":", "a", "b", "%", "7D", "25", "{a}", "queue", "fence", "free", ":queue", ":fence:"}
	whose, tried := map[string]string{}, map[string]bool{"": true}
	mine := func(key, me string) {
		t.Helper()
		if other, taken := whose[key]; taken {
			t.Fatalf("%q is %s and %s", key, other, me)
		}
		whose[key] = me
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		k := ""
		for range 1 + random.IntN(5) {
			k += words[random.IntN(len(words))]
		}
		if tried[k] {
			continue
		}
		tried[k] = true
		_, rest, opens := strings.Cut(k, "{")
		tagged := opens && strings.IndexByte(rest, '}') > 0
		named := strategy.DefaultKey(k)
		mine(named, fmt.Sprintf("%q", k))
		for _, suffix := range []string{"queue", "fence", "free"} {
			sibling, me := driver.SiblingKey(k, suffix), fmt.Sprintf("%q's %s", k, suffix)
			mine(sibling, me)
			if tagged && sibling != k+":"+suffix {
				t.Fatalf("%s = %q, want what processes of every version use", me, sibling)
			}
			if (tagged || !strings.Contains(k, "}")) && slot(sibling) != slot(k) {
				t.Fatalf("%s = %q, in another slot", me, sibling)
			}
			mine(driver.SiblingKey(named, suffix), fmt.Sprintf("the %s of %q", suffix, k))
			if sibling := driver.SiblingKey(named, suffix); slot(sibling) != slot(named) {
				t.Fatalf("%q and %q lie in different slots", sibling, named)
			}
		}
	}
	if len(tried) < 5_000 {
		t.Errorf("tried %d keys, want more", len(tried))
	}
}

// slot is what Redis Cluster hashes: what is between the first { and the first } after it, if that is not empty, instead of the
// key.
func slot(key string) string {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if n := strings.IndexByte(key[i+1:], '}'); n > 0 {
			return key[i+1 : i+1+n]
		}
	}
	return key
}
