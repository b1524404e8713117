// Tests that the keys of different locks never meet, whatever bytes are in their names.
package etcd

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]keys{
		"lock:{invoice/42}":     {"lock:{invoice/42}", "lock:{invoice/42}//queue/"},
		"lock:{http://x//y}":    {"lock:{http:/%/x/%/y}", "lock:{http:/%/x/%/y}//queue/"},
		"lock:{a//queue/}":      {"lock:{a/%/queue/}", "lock:{a/%/queue/}//queue/"},
		"///":                   {"/%/%/", "/%/%///queue/"},
		"/%/":                   {"/%%/", "/%%///queue/"},
		"50%":                   {"50%", "50%//queue/"},
		"\x00\xff":              {"\x00\xff", "\x00\xff//queue/"},
		strategy.DefaultKey(""): {"lock:{}", "lock:{}//queue/"},
	} {
		if got := keysOf(key); got != want {
			t.Errorf("keysOf(%q) = %q, want %q", key, got, want)
		}
	}
}

// TestKeysApart looks at all keys of up to six bytes of an alphabet of those that matter.
func TestKeysApart(t *testing.T) {
	t.Parallel()
	all := []string{""}
	for from := 0; len(all[len(all)-1]) < 6; from++ {
		for _, b := range "/%q" {
			all = append(all, all[from]+string(b))
		}
	}
	holders := map[string]string{}
	for _, key := range all[1:] {
		k := keysOf(key)
		if other, ok := holders[k.holder]; ok {
			t.Fatalf("%q and %q have the same holder's key %q", key, other, k.holder)
		}
		holders[k.holder] = key
		if got := unescape(k.holder); got != key {
			t.Fatalf("unescape(%q) = %q, want %q", k.holder, got, key)
		}
		if strings.Contains(k.holder, "//") {
			t.Fatalf("the holder's key of %q is %q, want none that can begin as a queue's", key, k.holder)
		}
		// Another lock's queue begins in the same way only if the slashes come at the same place.
		if i := strings.Index(k.queue, "//queue/"); k.queue[:i] != k.holder && k.queue[:i]+"/" != k.holder {
			t.Fatalf("the queue of %q is %q", key, k.queue)
		}
	}
	for _, key := range all[1:] {
		queue := keysOf(key).queue
		for i := range len(queue) {
			if other, ok := holders[queue[:i]]; ok && other != key && strings.HasPrefix(queue, keysOf(other).queue) {
				t.Fatalf("the queue of %q begins as that of %q", key, other)
			}
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		holder
		ok bool
	}{
		"1 token":       {holder{"token", 7*256 + 0, 7, 9}, true},
		"16 token: a b": {holder{"token: a b", 7*256 + 15, 7, 9}, true},
		"256 t":         {holder{"t", 7*256 + 255, 7, 9}, true},
		"257 t":         {}, "0 t": {}, "-1 t": {}, "x t": {}, "1 ": {}, "1": {}, "": {}, "token": {},
	} {
		got, ok := holderOf(&mvccpb.KeyValue{Value: []byte(value), ModRevision: 7, Lease: 9})
		if got != want.holder || ok != want.ok {
			t.Errorf("holderOf(%q) = %+v, %v, want %+v, %v", value, got, ok, want.holder, want.ok)
		}
	}
	if _, ok := holderOf(&mvccpb.KeyValue{Value: []byte("1 token"), ModRevision: 7}); ok {
		t.Error("holderOf of a key without a lease is a holder, want none: it would never end")
	}
	for fences, want := range map[int]string{0: "1 x", 1: "1 x", 16: "16 x", 256: "256 x", 1000: "256 x"} {
		if got := valueOf(driver.Claim{Token: "x", Fences: fences}); got != want {
			t.Errorf("valueOf with %d fences = %q, want %q", fences, got, want)
		}
	}
}
