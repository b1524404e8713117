// Tests what a scheduler finds due and when, how many items at a time, and that it keeps nothing of an item
// that is out.
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
		if l.sizes = append(l.sizes, len(due)); len(l.sizes) < 100 { // no test expects that many
			l.s.Rearm()
		}
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

// TestEarly: a batch may be taken as early as the least patient of its items allows, whichever came first.
func TestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, early := range [][]int{{1, 3}, {3, 1}, {3, 3, 1}, {3, 1, 3}} {
			names := strings.Join([]string{"a", "b", "c"}[:len(early)], " ")
			for look, want := range map[int][]string{3: {"3s ", "5s " + names}, 4: {"4s  " + names}} {
				l := newLog()
				at := func(s int) time.Time { return l.start.Add(time.Duration(s) * time.Second) }
				for i, e := range early {
					l.s.Set(&item{name: string(rune('a' + i))}, at(5), time.Duration(e)*time.Second)
				}
				l.s.Set(&item{}, at(look), 0) // makes it look
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if !slices.Equal(l.lines, want) {
					t.Errorf("early by up to %v s each: runs = %q, want %q", early, l.lines, want)
				}
			}
		}
		// Set again at its time, but more patiently, an item holds its batch back.
		l := newLog()
		a := &item{name: "a"}
		l.s.Set(a, l.start.Add(5*time.Second), 3*time.Second)
		l.s.Set(a, l.start.Add(5*time.Second), time.Second)
		l.s.Set(&item{name: "b"}, l.start.Add(3*time.Second), 0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := []string{"3s b", "5s a"}; !slices.Equal(l.lines, want) {
			t.Errorf("runs = %q, want %q", l.lines, want)
		}
	})
}

// TestRemoveFromBatch: whichever item leaves a batch, the others stay in it, and may leave it, too. With
// the last one the timer stops, and what is set next has its own time.
func TestRemoveFromBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		soon := l.start.Add(time.Second)
		a, b, c, d := &item{name: "a"}, &item{name: "b"}, &item{name: "c"}, &item{name: "d"}
		for _, i := range []*item{a, b, c, d} {
			l.s.Set(i, soon, 0)
		}
		l.s.Remove(a)
		l.s.Remove(d) // it has taken a's place
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if want := []string{"1s b c"}; !slices.Equal(l.lines, want) {
			t.Errorf("runs = %q, want %q", l.lines, want)
		}
		l.s.Set(a, l.start.Add(5*time.Second), 0)
		l.s.Remove(a)
		l.s.Set(b, l.start.Add(5*time.Second), 0) // at the time for which the timer was set before
		l.s.Set(c, l.start.Add(4*time.Second), 0)
		l.s.Remove(c)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := []string{"1s b c", "5s b"}; !slices.Equal(l.lines, want) {
			t.Errorf("runs = %q, want %q: none for what was removed", l.lines, want)
		}
		l.s.Set(a, l.start.Add(20*time.Second), 0)
		l.s.Remove(a)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(l.lines); n != 2 {
			t.Errorf("runs = %q, want no more without an item", l.lines)
		}
	})
}

// TestForgets: what has left keeps no memory, although its batch and the heap of batches stay.
func TestForgets(t *testing.T) {
	s, start := New[*item](func() {}), time.Now()
	var items []*item
	for i := range 4 {
		items = append(items, &item{})
		s.Set(items[i], start.Add(time.Hour*time.Duration(1+i/3)), 0)
	}
	s.Remove(items[1])
	s.Remove(items[3]) // the last one of its batch
	if b := s.batches[0]; !slices.Equal(b.items[:3], []*item{items[0], items[2], nil}) {
		t.Errorf("the batch holds %v, want the first and the third item alone", b.items[:3])
	}
	if b := s.batches[:2]; b[1] != nil {
		t.Error("the heap keeps a batch that is empty, want that it forgets it")
	}
}

// TestSetAgain: an item that is set to the time that it has stays where it is, which costs next to nothing:
// a lease does so whenever it is looked at.
func TestSetAgain(t *testing.T) {
	s, it, at := New[*item](func() {}), &item{}, time.Now().Add(time.Hour)
	s.Set(it, at, 0)
	if n := testing.AllocsPerRun(10, func() { s.Set(it, at, 0) }); n != 0 {
		t.Errorf("setting an item again allocates %v times, want none", n)
	}
}

// TestWholeBatches: a batch that does not fit into a run any more waits for the next; one that just fits
// does not.
func TestWholeBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for second, want := range map[int][]int{MaxBatch - 10: {MaxBatch}, MaxBatch - 9: {10, MaxBatch - 9}} {
			l := newLog()
			for i := range 10 + second {
				l.s.Set(&item{}, l.start.Add(time.Second+time.Duration(min(i/10, 1))), 2)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if !slices.Equal(l.sizes, want) {
				t.Errorf("runs found %v due, want %v", l.sizes, want)
			}
		}
	})
}

// TestItems: all that are in, of all batches.
func TestItems(t *testing.T) {
	s := New[*item](func() {})
	all, out := []*item{{}, {}, {}}, &item{}
	for i, it := range append(all, out) {
		s.Set(it, time.Now().Add(time.Hour*time.Duration(1+i/2)), 0)
	}
	s.Remove(out)
	items := s.Items()
	for _, it := range all {
		if !slices.Contains(items, it) || len(items) != len(all) {
			t.Errorf("Items() = %v, want the %d that are in", items, len(all))
		}
	}
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
	if next := s.Draw(least, most); next == first {
		t.Errorf("Draw() after a batch = %v again, want another", next)
	}
	for _, at := range []int64{300, 50, 400} { // after, before, and after what was drawn
		if later := s.Draw(time.Unix(at, 0), time.Unix(at, 0)); later != time.Unix(at, 0) {
			t.Errorf("Draw() between %d and %d = %v, want that", at, at, later)
		}
		if again := s.Draw(time.Unix(at, 0), time.Unix(at+1, 0)); again != time.Unix(at, 0) {
			t.Errorf("Draw() from %d = %v, want the last one again: it just suits", at, again)
		}
		if again := s.Draw(time.Unix(at-1, 0), time.Unix(at, 0)); again != time.Unix(at, 0) {
			t.Errorf("Draw() until %d = %v, want the last one again: it just suits", at, again)
		}
	}
	first = s.Draw(least, most) // its batch is its own, whatever was drawn for others before
	for range MaxBatch - 1 {
		if again := s.Draw(least, most); again != first {
			t.Fatalf("Draw() after others = %v, want %v again", again, first)
		}
	}
}
