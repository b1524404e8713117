// Package scheduler calls many items back, each at its time, with one timer.
package scheduler

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// MaxBatch is how many items are due at a time, at most. A wake-up costs about as much as the renewal of
// hundreds of locks, so a batch is large. Other requests must get in between, so it is not larger.
const MaxBatch = 2048

// An Item has one entry in a scheduler. Item and scheduler lock in this order.
type Item[T any] interface {
	// Entry returns the item's own entry, always the same one.
	Entry() *Entry[T]
}

// An Entry is where an item is in its scheduler. The zero value is none.
type Entry[T any] struct {
	batch *batch[T]
	index int32 // in the batch's items
}

// A Scheduler runs its function when the earliest time has come. An item costs no goroutine and no
// timer, and a scheduler without items costs nothing.
type Scheduler[T Item[T]] struct {
	run   func()
	epoch time.Time // times count from here: a number is compared sooner than a time.Time

	mu      sync.Mutex
	batches batches[T] // the earliest first
	latest  *batch[T]  // that an item was put into: items due together come one after another
	drawn   time.Time  // see Draw
	draws   int
	timer   *time.Timer
	armed   time.Duration // when the timer runs
}

// A batch is the items that are due together, so that ordering them costs nothing.
type batch[T any] struct {
	at    time.Duration
	from  time.Duration // when it may be taken early: all of its items allow that
	items []T
	index int // in the heap
}

// stopped is not the time of any batch.
const stopped = time.Duration(math.MinInt64)

// New returns a scheduler that calls run, on a goroutine of its own, when an item is due. run calls
// [Scheduler.Due] and then [Scheduler.Rearm].
func New[T Item[T]](run func()) *Scheduler[T] {
	return &Scheduler[T]{run: run, epoch: time.Now()}
}

// Epoch returns the time from which Since counts.
func (s *Scheduler[T]) Epoch() time.Time { return s.epoch }

// Since returns the time from the epoch until t.
func (s *Scheduler[T]) Since(t time.Time) time.Duration { return t.Sub(s.epoch) }

// Set makes the item due at that time, or by up to early before it, if run is at work then.
func (s *Scheduler[T]) Set(item T, at time.Time, early time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, d := item.Entry(), s.Since(at)
	if b := e.batch; b != nil && b.at == d {
		b.from = max(b.from, d-early)
		return
	}
	s.drop(e)
	if b := s.latest; b == nil || b.at != d {
		s.latest = &batch[T]{at: d, from: d - early}
		heap.Push(&s.batches, s.latest)
	}
	b := s.latest
	b.from = max(b.from, d-early)
	e.batch, e.index = b, int32(len(b.items))
	b.items = append(b.items, item)
	s.arm()
}

// Remove takes the item out, if it is in.
func (s *Scheduler[T]) Remove(item T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); e.batch != nil {
		s.drop(e)
		s.arm()
	}
}

// drop takes an entry out of its batch. The caller holds mu.
func (s *Scheduler[T]) drop(e *Entry[T]) {
	b := e.batch
	if b == nil {
		return
	}
	end := len(b.items) - 1
	last := b.items[end]
	b.items[e.index], last.Entry().index = last, e.index
	e.batch = nil
	s.cut(b, end)
}

// cut leaves the batch its first n items. The caller holds mu.
func (s *Scheduler[T]) cut(b *batch[T], n int) {
	clear(b.items[n:])
	b.items = b.items[:n]
	if n > 0 {
		return
	}
	heap.Remove(&s.batches, b.index)
	if s.latest == b {
		s.latest = nil
	}
}

// Draw returns a random time between these two. It returns the same one to as many callers in a row as
// one batch has items, as long as it is between theirs, too.
func (s *Scheduler[T]) Draw(least, most time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draws%MaxBatch == 0 || s.drawn.Before(least) || s.drawn.After(most) {
		s.draws, s.drawn = 0, least.Add(rand.N(most.Sub(least)+1))
	}
	s.draws++
	return s.drawn
}

// Due takes out items whose time has come, [MaxBatch] at most, and appends them to due. A batch stays
// whole where it can: half of it now would make the other half early later. If that leaves items that
// are due, run is called again at once.
func (s *Scheduler[T]) Due(now time.Time, due []T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.batches) > 0 && s.batches[0].from <= s.Since(now) {
		b := s.batches[0]
		if len(due) > 0 && len(due)+len(b.items) > MaxBatch {
			break
		}
		stay := max(len(b.items)-MaxBatch, 0)
		due = append(due, b.items[stay:]...)
		for _, item := range b.items[stay:] {
			item.Entry().batch = nil
		}
		s.cut(b, stay)
	}
	return due
}

// Rearm sets the timer again after it has run.
func (s *Scheduler[T]) Rearm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = stopped
	s.arm()
}

// arm sets the timer for the earliest batch. The caller holds mu.
func (s *Scheduler[T]) arm() {
	if len(s.batches) == 0 {
		if s.timer != nil {
			s.timer.Stop()
			s.armed = stopped
		}
		return
	}
	first := s.batches[0].at
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(s.epoch.Add(first)), s.run)
	case first != s.armed:
		s.timer.Reset(time.Until(s.epoch.Add(first)))
	}
	s.armed = first
}

// Len returns how many items are in.
func (s *Scheduler[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, b := range s.batches {
		n += len(b.items)
	}
	return n
}

// Items returns all items that are in.
func (s *Scheduler[T]) Items() (all []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		all = append(all, b.items...)
	}
	return all
}

// batches are a heap.
type batches[T any] []*batch[T]

func (h batches[T]) Len() int           { return len(h) }
func (h batches[T]) Less(i, j int) bool { return h[i].at < h[j].at }
func (h batches[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *batches[T]) Push(x any) {
	b := x.(*batch[T])
	b.index = len(*h)
	*h = append(*h, b)
}

func (h *batches[T]) Pop() any {
	old := *h
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return b
}
