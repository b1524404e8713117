package scheduler

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type item struct {
	name  string
	entry Entry[*item]
}

func (i *item) Entry() *Entry[*item] { return &i.entry }

// log is what a scheduler's runs found due, and after how long.
type log struct {
	s     *Scheduler[*item]
	start time.Time
	lines []string
	sizes []int
}

func newLog() *log {
	l := &log{start: time.Now()}
	l.s = New[*item](func() {
		var names []string
		due := l.s.Due(time.Now(), nil)
		for _, i := range due {
			names = append(names, i.name)
		}
		slices.Sort(names)
		l.lines = append(l.lines, time.Since(l.start).String()+" "+strings.Join(names, " "))
		l.sizes = append(l.sizes, len(due))
		l.s.Rearm()
	})
	return l
}

// TestDue: each item is due at its time. One that may be early joins an earlier run, and one that was
// removed or moved is not due at its old time.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		at := func(s int) time.Time { return l.start.Add(time.Duration(s) * time.Second) }
		a, b, c, d, e := &item{name: "a"}, &item{name: "b"}, &item{name: "c"}, &item{name: "d"}, &item{name: "e"}
		l.s.Set(c, at(3), 0)
		l.s.Set(a, at(1), 0)
		l.s.Set(b, at(2), 1*time.Second)
		l.s.Set(d, at(3), 0)
		l.s.Set(e, at(1), 0)
		l.s.Set(d, at(4), 0)
		l.s.Remove(e)
		l.s.Remove(e)
		if n := l.s.Len(); n != 4 {
			t.Errorf("Len() = %d, want 4", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := []string{"1s a b", "3s c", "4s d"}; !slices.Equal(l.lines, want) {
			t.Errorf("runs = %q, want %q", l.lines, want)
		}
		if n := l.s.Len(); n != 0 {
			t.Errorf("Len() = %d, want 0", n)
		}
		l.s.Set(a, at(20), 0) // the timer is stopped, and set again
		l.s.Remove(a)
		l.s.Set(b, at(30), 0)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := l.lines[len(l.lines)-1]; got != "30s b" || len(l.lines) != 4 {
			t.Errorf("runs = %q, want one more, 30s b", l.lines)
		}
	})
}

// TestMaxBatch: no run gets more than MaxBatch items, and none is left behind.
func TestMaxBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		for range 2*MaxBatch + 10 {
			l.s.Set(&item{}, l.start.Add(time.Second), 0)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []int{MaxBatch, MaxBatch, 10}; !slices.Equal(l.sizes, want) {
			t.Errorf("runs found %v due, want %v", l.sizes, want)
		}
	})
}

// TestDraw: as many callers in a row as fit into a batch get the same time, if that suits them.
func TestDraw(t *testing.T) {
	s := New[*item](func() {})
	least, most := time.Unix(100, 0), time.Unix(200, 0)
	first := s.Draw(least, most)
	if first.Before(least) || first.After(most) {
		t.Errorf("Draw() = %v, want between %v and %v", first, least, most)
	}
	for range MaxBatch - 1 {
		if again := s.Draw(least, most); again != first {
			t.Fatalf("Draw() = %v, want %v again", again, first)
		}
	}
	if later := s.Draw(time.Unix(300, 0), time.Unix(300, 0)); later != time.Unix(300, 0) {
		t.Errorf("Draw() after both = %v, want a time of its own", later)
	}
}
