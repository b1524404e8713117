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
	for _, tt := range []struct {
		o    strategy.Options
		want []string // the field, the value, what is allowed
	}{
		{strategy.Options{TTL: -1}, []string{"Options.TTL", "-1ns", "10ms", "24h", "0 for 10s"}},
		{strategy.Options{TTL: 10*ms - 1}, []string{"Options.TTL", "9.999999ms", "10ms"}},
		{strategy.Options{TTL: 9 * ms}, []string{"Options.TTL", "9ms", "10ms"}},
		{strategy.Options{TTL: 10*ms + time.Microsecond}, []string{"Options.TTL", "10.001ms", "whole milliseconds"}},
		{strategy.Options{TTL: 24*time.Hour + ms}, []string{"Options.TTL", "24h0m0.001s", "24h"}},
		{strategy.Options{OpTimeout: -1}, []string{"Options.OpTimeout", "-1ns", "1ms", "10s"}},
		{strategy.Options{OpTimeout: ms - 1}, []string{"Options.OpTimeout", "999.999µs", "1ms"}},
		{strategy.Options{OpTimeout: ttl}, []string{"Options.OpTimeout", "10s", "less than the TTL of 10s"}},
		{strategy.Options{TTL: 50 * ms, OpTimeout: 50 * ms}, []string{"Options.OpTimeout", "50ms", "less than the TTL of 50ms"}},
		{strategy.Options{Label: strings.Repeat("x", 257)}, []string{"Options.Label", "257 bytes", "256"}},
		{strategy.Options{Wait: -1}, []string{"Options.Wait", "-1", "WaitBest, WaitPoll, WaitNotification and WaitQueue"}},
		{strategy.Options{Wait: strategy.WaitQueue + 1}, []string{"Options.Wait", "4", "WaitBest, WaitPoll, WaitNotification and WaitQueue"}},
		{strategy.Options{MaxHold: ttl - ms}, []string{"Options.MaxHold", "9.999s", "the TTL of 10s or more"}},
		{strategy.Options{FenceTTL: 2*ttl - ms}, []string{"Options.FenceTTL", "19.999s", "whole milliseconds from twice the TTL of 10s on", "0 for the greater of 24h and that", "less than 0 for ever"}},
		{strategy.Options{FenceTTL: 2*ttl + 1}, []string{"Options.FenceTTL", "20.000000001s", "whole milliseconds"}},
	} {
		s, err := engine.New(&lockstest.Memory{}, tt.o)
		if err == nil || s != nil {
			t.Errorf("New(%+v) = %v, %v, want an error", tt.o, s, err)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("New(%+v) = %q, want it to say %q", tt.o, err, w)
			}
		}
	}
}

func TestOptionsAllowed(t *testing.T) {
	t.Parallel()
	for _, o := range []strategy.Options{
		{},
		{TTL: contract.MinTTL},
		{TTL: contract.MaxTTL},
		{TTL: 10 * ms, OpTimeout: ms},
		{OpTimeout: ttl - 1},
		{Label: strings.Repeat("x", contract.MaxLabelLen)},
		{MaxHold: ttl},
		{FenceTTL: 2 * ttl},
		{FenceTTL: -1},
		{FenceTTL: math.MaxInt64 / ms * ms},
		{Wait: strategy.WaitPoll},
		{Wait: strategy.WaitNotification},
	} {
		if _, err := engine.New(&lockstest.Memory{}, o); err != nil {
			t.Errorf("New(%+v) = %v, want nil", o, err)
		}
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
			var m lockstest.Memory
			r := record(&m)
			release(t, take(t, open(t, &m, tt.o)))
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

func TestWaitRefused(t *testing.T) {
	t.Parallel()
	var m lockstest.Memory
	_, err := engine.New(bare(&m), strategy.Options{Wait: strategy.WaitNotification})
	is(t, "New(WaitNotification) of a protocol without notices", err, strategy.ErrUnsupported)
	if !strings.Contains(fmt.Sprint(err), "allowed are WaitBest and WaitPoll") {
		t.Errorf("New(WaitNotification) = %q, want it to say what is allowed", err)
	}
	_, err = engine.New(&scriptedTeller{}, strategy.Options{Wait: strategy.WaitQueue})
	is(t, "New(WaitQueue) of a protocol without a queue", err, strategy.ErrUnsupported)
	if !strings.Contains(fmt.Sprint(err), "allowed are WaitBest, WaitNotification and WaitPoll") {
		t.Errorf("New(WaitQueue) = %q, want it to say what is allowed", err)
	}
	for _, w := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll} {
		s, err := engine.New(bare(&m), strategy.Options{Wait: w})
		is(t, fmt.Sprintf("New(Wait: %v)", w), err)
		_, err = s.With(func(o *strategy.Options) { o.Wait = strategy.WaitNotification })
		is(t, "With(WaitNotification)", err, strategy.ErrUnsupported)
	}
	for w, want := range map[strategy.Wait]string{
		strategy.WaitBest: "best", strategy.WaitPoll: "poll", strategy.WaitNotification: "notification", 7: "Wait(7)",
	} {
		equal(t, fmt.Sprintf("Wait(%d).String()", int(w)), w.String(), want)
	}
}

func TestDefaultBackoff(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[int]time.Duration{
		math.MinInt: 2 * ms, -1: 2 * ms, 0: 2 * ms, 1: 2 * ms, 2: 4 * ms, 3: 8 * ms, 4: 16 * ms, 5: 32 * ms,
		6: 64 * ms, 7: 128 * ms, 8: 250 * ms, 9: 250 * ms, 64: 250 * ms, math.MaxInt: 250 * ms,
	} {
		equal(t, fmt.Sprintf("DefaultBackoff(%d)", attempt), contract.Backoff(attempt), want)
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{0: 2 * ms, 10 * ms: 2*ms + 100*time.Microsecond, ttl: drift} {
		equal(t, fmt.Sprintf("Drift(%v)", d), driver.Drift(d), want)
	}
}

// names are those that hash tags make difficult.
func names() []string {
	all := []string{"n", "%7D", "%25", "%257D", "7D", "\x00", "\xff\xfe", "ü", " ", ":", "n:fence", strings.Repeat("x", contract.MaxNameLen)}
	const letters = "{}%a"
	for _, a := range letters {
		for _, b := range letters + "\x00" {
			for _, c := range letters {
				all = append(all, strings.ReplaceAll(string([]rune{a, b, c}), "\x00", ""), string(a)+string(c)+"7D", string(a)+"25"+string(b))
			}
		}
	}
	for _, a := range letters {
		all = append(all, string(a))
	}
	seen := map[string]bool{}
	var distinct []string
	for _, n := range all {
		if !seen[n] {
			seen[n] = true
			distinct = append(distinct, n)
		}
	}
	return distinct
}

func TestKeysDifferAndShareASlot(t *testing.T) {
	t.Parallel()
	keys := map[string]string{}
	add := func(key, whose string) {
		t.Helper()
		if other, taken := keys[key]; taken {
			t.Errorf("key %q is that of %s and of %s", key, other, whose)
		}
		keys[key] = whose
	}
	for _, n := range names() {
		k := strategy.DefaultKey(n)
		add(k, fmt.Sprintf("%q", n))
		for _, suffix := range []string{"fence", "free"} {
			sibling := driver.SiblingKey(k, suffix)
			add(sibling, fmt.Sprintf("%q's %s", n, suffix))
			equal(t, fmt.Sprintf("slot of %q next to %q", sibling, k), slot(sibling), slot(k))
		}
	}
	equal(t, "DefaultKey(n)", strategy.DefaultKey("n"), key)
	equal(t, "DefaultKey(})", strategy.DefaultKey("}x"), "lock:{%7Dx}")
	equal(t, "DefaultKey(%)", strategy.DefaultKey("%7Dx"), "lock:{%257Dx}")
}

// Keys of the user's own making: with a tag, without one, and with half of one.
func TestSiblingKey(t *testing.T) {
	t.Parallel()
	for k, want := range map[string]string{
		"foo":        "{foo}:fence:",
		"{foo":       "{{foo}:fence:",
		"a{b}c":      "a{b}c:fence",
		"{b}":        "{b}:fence",
		"{{}":        "{{}:fence",
		"a{b}{c}{}":  "a{b}{c}{}:fence",
		"lock:{a}b}": "lock:{a}b}:fence",
	} {
		got := driver.SiblingKey(k, "fence")
		equal(t, fmt.Sprintf("SiblingKey(%q)", k), got, want)
		equal(t, fmt.Sprintf("slot of %q", got), slot(got), slot(k))
	}
}

// Whatever keys users make, two locks never share a key or a channel: siblings differ if keys or suffixes
// do. And they lie in their key's slot, if any key can.
func TestSiblingKeysDiffer(t *testing.T) {
	t.Parallel()
	words := []string{"{", "}", "{", "}", ":", ":", "a", "b", "{a}", "queue", "fence", "free", ":queue", ":fence:"}
	suffixes := []string{"queue", "fence", "free"}
	whose := map[string]string{}
	tried := map[string]bool{"": true}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
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
		for _, suffix := range suffixes {
			sibling, me := driver.SiblingKey(k, suffix), fmt.Sprintf("%q's %s", k, suffix)
			if other, taken := whose[sibling]; taken {
				t.Fatalf("%q is %s and %s", sibling, other, me)
			}
			whose[sibling] = me
			if tagged && sibling != k+":"+suffix {
				t.Fatalf("%s = %q, want what processes of every version use", me, sibling)
			}
			if (tagged || !strings.Contains(k, "}")) && slot(sibling) != slot(k) {
				t.Fatalf("%s = %q, in another slot", me, sibling)
			}
		}
	}
	if len(tried) < 10_000 {
		t.Errorf("tried %d keys, want more", len(tried))
	}
}

// slot is the rule of Redis Cluster: what is between the first { and the first }
// after it, if that is not empty, is hashed instead of the key.
func slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if n := strings.IndexByte(key[i+1:], '}'); n > 0 {
			key = key[i+1 : i+1+n]
		}
	}
	var crc uint16 // CRC-16/XMODEM
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func TestSlotRule(t *testing.T) {
	t.Parallel()
	equal(t, "slot(123456789)", slot("123456789"), 0x31C3) // the reference's check value
	equal(t, "slot of a tag", slot("x{user1000}y"), slot("user1000"))
	equal(t, "slot(foo)", slot("foo"), 12182) // CLUSTER KEYSLOT foo
}

func TestNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		for n, want := range map[string]string{
			"": "0 bytes: allowed are 1 to 1024",
			strings.Repeat("x", contract.MaxNameLen+1): "1025 bytes: allowed are 1 to 1024",
		} {
			l := s.NewLock(n)
			equal(t, "Name", l.Name(), n)
			_, err1 := l.TryAcquire(bg)
			_, err2 := l.Acquire(bg)
			_, err3 := s.Inspect(bg, n)
			_, err4 := s.Adopt(bg, n, "token")
			err5 := s.ForceRelease(bg, strategy.Info{Name: n, Held: true, Token: "token"})
			for i, err := range []error{err1, err2, err3, err4, err5} {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("call %d with a name of %d bytes = %v, want %q", i, len(n), err, want)
				}
			}
		}
		none := open(t, &m, strategy.Options{Key: func(string) string { return "" }})
		if _, err := none.NewLock("n").TryAcquire(bg); !strings.Contains(fmt.Sprint(err), "Options.Key") {
			t.Errorf("TryAcquire with an empty key = %v, want it to name Options.Key", err)
		}
		for _, n := range names() {
			lease, err := s.NewLock(n).Acquire(bg)
			is(t, "Acquire", err)
			equal(t, "Name", lease.Name(), n)
			is(t, "Release", lease.Release(bg))
		}
		equal(t, "requests", m.Requests(), 2*len(names()))

		owner := strategy.WithOwner(bg, strings.Repeat("x", contract.MaxNameLen+1))
		if _, err := s.NewLock(name).Acquire(owner); !strings.Contains(fmt.Sprint(err), "the owner has 1025 bytes: allowed are 1024") {
			t.Errorf("Acquire with a long owner = %v, want what is allowed", err)
		}
	})
}

func TestTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		seen := map[string]bool{}
		for _, label := range []string{"", "host-7:42", ":", "{}", strings.Repeat("x", contract.MaxLabelLen)} {
			s := open(t, &m, strategy.Options{Label: label})
			for range 20 {
				asked := time.Now().Round(0)
				lease := take(t, s)
				if seen[lease.Token()] {
					t.Errorf("Token = %q a second time", lease.Token())
				}
				seen[lease.Token()] = true
				want := 36
				if label != "" {
					want += 1 + len(label)
				}
				equal(t, "length of the token", len(lease.Token()), want)
				equal(t, "Owner", lease.Owner(), lease.Token())
				info, err := s.Inspect(bg, name)
				is(t, "Inspect", err)
				wanted := strategy.Info{Name: name, Key: key, Held: true, Token: lease.Token(), Owner: lease.Token(), Holds: 1, Label: label, Since: asked, TTL: ttl, Fence: info.Fence}
				info.Since = info.Since.In(asked.Location())
				equal(t, "Inspect", fmt.Sprintf("%+v", info), fmt.Sprintf("%+v", wanted))
				time.Sleep(time.Millisecond) // or a token might show the time of another
				release(t, lease)
			}
		}
	})
}

// A token that is not of ours has no label, and does not tell when it was drawn.
func TestForeignTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		for _, token := range []string{"x", "x:y", strings.Repeat("x", 36) + ":label", "12345678-1234-4234-8234-123456789abc", "12345678-1234-4234-8234-123456789abc:", "12345678-1234-7234-c234-123456789abc"} {
			if _, err := m.Acquire(bg, driver.Claim{Key: key, Token: token, Owner: token, TTL: ttl}); err != nil {
				t.Fatal(err)
			}
			info, err := s.Inspect(bg, name)
			is(t, "Inspect", err)
			equal(t, "Token", info.Token, token)
			equal(t, "Label", info.Label, "")
			equal(t, "Since", info.Since, time.Time{})
			m.Evict(bg, key)
		}
	})
}
