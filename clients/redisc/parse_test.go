// Tests how redirections and addresses are read.
package rediscnode

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/strategy"
)

func refused(words string) error {
	return fmt.Errorf("wrapped: %w", &strategy.ServerError{Node: "n", Kind: strategy.ErrRefused, Err: errors.New(words)})
}

func TestRedirection(t *testing.T) {
	for words, want := range map[string]redirect{
		"MOVED 3999 127.0.0.1:6381":     {moved, 3999, "127.0.0.1:6381"},
		"MOVED 3999 redis-1.local:6381": {moved, 3999, "redis-1.local:6381"},
		"MOVED 3999 :6381":              {moved, 3999, "asked:6381"},
		"MOVED 3999 ?:6381":             {moved, 3999, "asked:6381"},
		"MOVED 3999 ::1:6381":           {moved, 3999, "[::1]:6381"},
		"ASK 0 127.0.0.1:6381":          {ask, 0, "127.0.0.1:6381"},
		"TRYAGAIN Multiple keys":        {kind: tryAgain},
		"MOVED":                         {},
		"MOVED 3999":                    {},
		"MOVED x 127.0.0.1:6381":        {},
		"MOVED 16384 127.0.0.1:6381":    {},
		"MOVED -1 127.0.0.1:6381":       {},
		"MOVED 3999 nowhere":            {},
		"CLUSTERDOWN The cluster":       {},
		"ERR MOVED 1 a:1":               {},
		"ERR 1 a:1":                     {},
		"":                              {},
	} {
		if got := redirection(refused(words), "asked:1"); got != want {
			t.Errorf("%q: %+v, want %+v", words, got, want)
		}
	}
	unknown := &strategy.ServerError{Kind: strategy.ErrUnknown, Err: errors.New("MOVED 1 a:1")}
	if got := redirection(unknown, "asked:1"); got != (redirect{}) {
		t.Errorf("of an unknown outcome: %+v", got)
	}
	if got := redirection(nil, "asked:1"); got != (redirect{}) {
		t.Errorf("of none: %+v", got)
	}
}

func host(name string, port int64) any {
	return []any{[]byte(name), port, []byte("id"), []any{}}
}

func TestReadSlots(t *testing.T) {
	told, err := readSlots([]any{
		[]any{int64(0), int64(99), host("a", 1), host("r", 2)},
		[]any{int64(200), int64(redisc.HashSlots - 1), []any{nil, int64(3)}},
		[]any{int64(150), int64(150), host("a", 1), host("r", 2), host("s", 65535)},
	}, "asked:9")
	if err != nil {
		t.Fatal(err)
	}
	if told.owners[0] != "a:1" || told.owners[99] != "a:1" || told.owners[100] != "" || told.owners[149] != "" || told.owners[150] != "a:1" || told.owners[151] != "" || told.owners[redisc.HashSlots-1] != "asked:3" {
		t.Errorf("owners %q, %q, %q", told.owners[0], told.owners[100], told.owners[redisc.HashSlots-1])
	}
	if got := fmt.Sprint(told.addrs); got != "[a:1 asked:3 r:2 s:65535]" {
		t.Errorf("addresses %v", got)
	}
	for _, bad := range []any{
		nil, int64(1), []any{}, []any{nil}, []any{[]any{int64(0), int64(1)}},
		[]any{[]any{int64(-1), int64(1), host("a", 1)}},
		[]any{[]any{int64(2), int64(1), host("a", 1)}},
		[]any{[]any{int64(0), int64(redisc.HashSlots), host("a", 1)}},
		[]any{[]any{int64(0), []byte("1"), host("a", 1)}},
		[]any{[]any{int64(0), int64(1), nil}},
		[]any{[]any{int64(0), int64(1), []any{[]byte("a"), int64(0)}}},
		[]any{[]any{int64(0), int64(1), []any{[]byte("a"), []byte("1")}}},
		[]any{[]any{int64(0), int64(1), []any{[]byte("a"), int64(65536)}}},
	} {
		if told, err := readSlots(bad, "asked:9"); err == nil {
			t.Errorf("%v: %v, want an error", bad, told.addrs)
		}
	}
}

// FuzzRedirection: whatever a server says leads to a slot that there is, or nowhere.
func FuzzRedirection(f *testing.F) {
	for _, s := range []string{"MOVED 1 a:1", "ASK 16383 [::1]:6379", "TRYAGAIN", "MOVED 99999999999999999999 :", "MOVED 1 :::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, words string) {
		r := redirection(refused(words), "asked:1")
		if (r.kind == moved || r.kind == ask) != (r.addr != "") || r.slot < 0 || r.slot >= redisc.HashSlots {
			t.Errorf("%q: %+v", words, r)
		}
	})
}
