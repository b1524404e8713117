// Tests what becomes of each type of a reply.
package client

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"testing"
)

func TestPlain(t *testing.T) {
	said := errors.New("said")
	for _, c := range []struct{ reply, want any }{
		{nil, nil}, {int64(1), int64(1)}, {[]byte("x"), []byte("x")}, {"OK", []byte("OK")},
		{1.5, []byte("1.5")}, {big.NewInt(7), []byte("7")}, {true, int64(1)}, {false, int64(0)},
		{[]any{"a", []any{true, nil}}, []any{[]byte("a"), []any{int64(1), nil}}},
		{map[any]any{"k": 0.1}, []any{[]byte("k"), []byte("0.10000000000000001")}},
	} {
		what := fmt.Sprintf("Plain(%#v)", c.reply)
		if got, err := Plain(c.reply); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s = %#v, %v, want %#v, nil", what, got, err, c.want)
		}
	}
	for words, reply := range map[string]any{
		"said":                       said,
		"element 1: said":            []any{"x", said},
		"element 0: element 1: said": []any{[]any{"x", said}},
		"a reply of type struct {}":  struct{}{},
	} {
		if got, err := Plain(reply); got != nil || err == nil || err.Error() != words {
			t.Errorf("Plain(%v) = %v, %v, want %s", reply, got, err, words)
		}
	}
	if _, err := Plain([]any{said}); !errors.Is(err, said) {
		t.Errorf("%v does not wrap %v", err, said)
	}
}
