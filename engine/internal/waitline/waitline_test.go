// In which order waiters are called.
package waitline

import (
	"slices"
	"testing"
)

// TestLine: each waiter is called once, when it becomes the first, in the order in which they came.
func TestLine(t *testing.T) {
	var l Line[string]
	var called []string
	call := func() { l.Call(func(w string) { called = append(called, w) }) }
	call() // of nobody
	for _, w := range []string{"a", "b", "c", "d"} {
		l.Join(w)
		call()
	}
	l.Leave("c") // from the middle
	call()
	if !l.Called("a") || l.Called("b") || l.Len() != 3 || l.First() != "a" {
		t.Errorf("the head = %v of %v, want a of a, b, d", l.First(), l.All())
	}
	for _, w := range []string{"a", "nobody", "b", "d"} {
		l.Leave(w)
		call()
	}
	if want := []string{"a", "b", "d"}; !slices.Equal(called, want) || l.Len() != 0 {
		t.Errorf("called %v, and %v are left; want %v, and none", called, l.All(), want)
	}
}
