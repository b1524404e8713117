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
	if !l.Leave("c") || l.Leave("c") { // from the middle
		t.Error("Leave of one in the line, and of one that has left, want true, false")
	}
	call()
	if !l.Called("a") || l.Called("b") || l.Len() != 3 || l.First() != "a" {
		t.Errorf("the head = %v of %v, want a of a, b, d", l.First(), l.All())
	}
	for _, w := range []string{"a", "nobody", "b", "d"} {
		l.Leave(w)
		call()
	}
	l.Join("f")
	l.JoinFirst("e")
	call()
	if !l.Leave("e") || !l.Leave("f") {
		t.Errorf("%v are in the line, want e and f", l.All())
	}
	if want := []string{"a", "b", "d", "e"}; !slices.Equal(called, want) || l.Len() != 0 {
		t.Errorf("called %v, and %v are left; want %v, and none", called, l.All(), want)
	}
}
