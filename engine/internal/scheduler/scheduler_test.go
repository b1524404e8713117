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

// set makes an item due some seconds after the start, or some earlier.
func (l *log) set(i *item, at, early int) {
	l.s.Set(i, l.start.Add(time.Duration(at)*time.Second), time.Duration(early)*time.Second)
}

// check lets all come whose time comes soon, and looks at the runs so far.
func (l *log) check(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(20 * time.Second)
	synctest.Wait()
	if !slices.Equal(l.lines, want) {
		t.Errorf("runs = %q, want %q", l.lines, want)
	}
	if n := l.s.Len(); n != 0 {
		t.Errorf("Len() = %d, want 0", n)
	}
}

// TestDue: each item is due at its time. One that may be early joins an earlier run, and one that was removed or moved is not
// due at its old time. After any item has left a batch, the others stay in it, and may leave it, too. With the last one the timer
// stops, and what is set next has its own time.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		a, b, c, d, e := &item{name: "a"}, &item{name: "b"}, &item{name: "c"}, &item{name: "d"}, &item{name: "e"}
		l.set(c, 3, 0)
		l.set(a, 1, 0)
		l.set(b, 2, 1)
		l.set(d, 3, 0)
		l.set(e, 1, 0)
		l.set(d, 4, 0)
		l.s.Remove(e)
		l.s.Remove(e)
		if n := l.s.Len(); n != 4 {
			t.Errorf("Len() = %d, want 4", n)
		}
		runs := []string{"1s a b", "3s c", "4s d"}
		l.check(t, runs...)

		l.set(a, 22, 0) // the timer is stopped, and set again
		l.s.Remove(a)
		l.set(b, 22, 0) // at the time for which it was set before
		l.set(c, 21, 0)
		l.s.Remove(c)
		runs = append(runs, "22s b")
		l.check(t, runs...)

		for _, i := range []*item{a, b, c, d} {
			l.set(i, 50, 0)
		}
		l.s.Remove(a)
		l.s.Remove(d) // it has taken a's place
		runs = append(runs, "50s b c")
		l.check(t, runs...)

		l.set(a, 70, 0)
		l.s.Remove(a)
		l.check(t, runs...)
	})
}

// TestBatches: no run gets more than MaxBatch items, and none is left behind. A batch that does not fit into a run any more
// waits for the next; one that just fits does not.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			first, second int
			want          []int
		}{
			{2*MaxBatch + 10, 0, []int{MaxBatch, MaxBatch, 10}},
			{10, MaxBatch - 10, []int{MaxBatch}},
			{10, MaxBatch - 9, []int{10, MaxBatch - 9}},
		} {
			l := newLog()
			for i := range tt.first + tt.second {
				l.s.Set(&item{}, l.start.Add(time.Second+time.Duration(min(i/tt.first, 1))), 2)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if !slices.Equal(l.sizes, tt.want) {
				t.Errorf("runs found %v due, want %v", l.sizes, tt.want)
			}
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
				for i, e := range early {
					l.set(&item{name: string(rune('a' + i))}, 5, e)
				}
				l.set(&item{}, look, 0) // makes it look
				l.check(t, want...)
			}
		}
		// Set again at its time, but more patiently, an item holds its batch back.
		l := newLog()
		a := &item{name: "a"}
		l.set(a, 5, 3)
		l.set(a, 5, 1)
		l.set(&item{name: "b"}, 3, 0)
		l.check(t, "3s b", "5s a")
	})
}

// TestItems: those of all batches that are in. Items that have left keep no memory, although its batch and the heap of batches stay.
func TestItems(t *testing.T) {
	s, start := New[*item](func() {}), time.Now()
	var items []*item
	for i := range 4 {
		items = append(items, &item{})
		s.Set(items[i], start.Add(time.Hour*time.Duration(1+i/3)), 0)
	}
	if all := s.Items(); len(all) != 4 || !slices.Contains(all, items[0]) || !slices.Contains(all, items[3]) {
		t.Errorf("Items() = %v, want %v", all, items)
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

// TestDraw: as many callers in a row as fit into a batch get the same time, if that suits them.
func TestDraw(t *testing.T) {
	s := New[*item](func() {})
	draw := func(least, most int64) int64 {
		t.Helper()
		at := s.Draw(time.Unix(least, 0), time.Unix(most, 0))
		if at.Before(time.Unix(least, 0)) || at.After(time.Unix(most, 0)) {
			t.Errorf("Draw() between %d and %d = %v", least, most, at)
		}
		return at.UnixNano()
	}
	batch := func() int64 {
		first := draw(100, 200)
		for range MaxBatch - 1 {
			if again := draw(100, 200); again != first {
				t.Fatalf("Draw() = %v, want %v again", again, first)
			}
		}
		return first
	}
	if first := batch(); draw(100, 200) == first {
		t.Errorf("Draw() after a batch = %v again, want another", first)
	}
	for _, at := range []int64{300, 50, 400} { // after, before, and after what was drawn
		drawn := draw(at, at)
		for _, room := range [][2]int64{{at, at + 1}, {at - 1, at}} {
			if again := draw(room[0], room[1]); again != drawn {
				t.Errorf("Draw() between %d and %d = %d, want the last one again: it just suits", room[0], room[1], again)
			}
		}
	}
	batch() // its batch is its own, whatever was drawn for others before
}
