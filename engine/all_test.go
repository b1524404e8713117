// Package multilock: several locks as one are acquired in order or not at all, and end together.
package engine_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

// all is All of s's locks of those names.
func all(t *testing.T, s strategy.Strategy, names ...string) strategy.Lock {
	t.Helper()
	locks := make([]strategy.Lock, len(names))
	for i, name := range names {
		locks[i] = s.NewLock(name)
	}
	l, err := multilock.New(locks...)
	if err != nil {
		t.Fatalf("All(%q) = %v", names, err)
	}
	return l
}

// takeAll acquires l, which must be free.
func takeAll(t *testing.T, l strategy.Lock) strategy.Lease {
	t.Helper()
	lease, err := l.TryAcquire(bg)
	if err != nil {
		t.Fatalf("TryAcquire of free locks = %v", err)
	}
	return lease
}

// heldOf tells which of the names have a holder at the server.
func heldOf(m *lockstest.Memory, names ...string) string {
	var held []string
	for _, name := range names {
		if holds(m, strategy.DefaultKey(name)) != "" {
			held = append(held, name)
		}
	}
	return strings.Join(held, " ")
}

func evict(m *lockstest.Memory, name string) { m.Evict(bg, strategy.DefaultKey(name)) }

func TestAll(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"Refused": allRefuses,
		"Order":   allInOrder,
		"Wait":    allWaits,
		"Reentry": allReentrant,
	})
}

func allRefuses(t *testing.T) {
	s := open(t, &lockstest.Memory{}, strategy.Options{})
	other := open(t, &lockstest.Memory{}, strategy.Options{})
	plain := open(t, &lockstest.Memory{}, strategy.Options{Key: func(name string) string { return name }})
	for want, locks := range map[string][]strategy.Lock{
		"one or more":                   {},
		"argument 2 is nil":             {s.NewLock("a"), nil},
		"names of 1 to 1024 bytes":      {s.NewLock("a"), s.NewLock("")},
		`xxx" has no key: allowed are `: {s.NewLock("a"), s.NewLock(strings.Repeat("x", contract.MaxNameLen+1))},
		`"a" and "a" have the same key`: {s.NewLock("a"), s.NewLock("b"), s.NewLock("a")},
		`the same key "lock:{a}"`:       {s.NewLock("a"), other.NewLock("a")},
		`"b" and "b" have the same key`: {all(t, s, "a", "b"), all(t, s, "b", "c")},
	} {
		if l, err := multilock.New(locks...); l != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("All = %v, %v, want an error with %q", l, err, want)
		}
	}
	// Other names of one key are one lock.
	_, err := multilock.New(s.NewLock("a"), plain.NewLock("lock:{a}"))
	if err == nil || !strings.Contains(err.Error(), "each key once") {
		t.Errorf("All of two names of one key = %v, want an error", err)
	}
}

func allInOrder(t *testing.T) {
	var m, elsewhere lockstest.Memory
	s := open(t, &m, strategy.Options{})
	far := open(t, &elsewhere, strategy.Options{Key: func(name string) string { return "kk:" + name }, TTL: 5 * time.Second})
	r := record(&m)
	inner, err := multilock.New(s.NewLock("c"), far.NewLock("b"))
	is(t, "All", err)
	l, err := multilock.New(s.NewLock("d"), inner, s.NewLock("a"))
	is(t, "All", err)
	equal(t, "Name", l.Name(), "b, a, c, d") // kk:b, lock:{a} …

	lease := takeAll(t, l)
	var asked []string
	for _, sent := range r.of(lockstest.OpAcquire) {
		asked = append(asked, sent.all[0].Name)
	}
	equal(t, "asked for", strings.Join(asked, " "), "a c d")
	parts := multilock.Parts(lease)
	equal(t, "Parts", len(parts), 4)
	for i, name := range []string{"b", "a", "c", "d"} {
		equal(t, "a part's name", parts[i].Name(), name)
		equal(t, "a part's owner", parts[i].Owner(), lease.Owner())
		if _, ok := parts[i].Fence(); !ok {
			t.Errorf("the fence of %q = none, want one", name)
		}
	}
	equal(t, "Deadline", lease.Deadline(), parts[0].Deadline()) // the one with the short TTL
	if lease.Owner() == "" {
		t.Error("Owner = none, want one that all parts have")
	}
	if _, ok := lease.Fence(); ok {
		t.Error("Fence of four locks: ok, want none")
	}
	if p := multilock.Parts(parts[0]); len(p) != 1 || p[0] != parts[0] {
		t.Errorf("Parts of one lock's lease = %v, want itself", p)
	}
	release(t, lease)
	equal(t, "held after the release", heldOf(&m, "a", "c", "d"), "")
	equal(t, "held elsewhere", holds(&elsewhere, "kk:b"), "")
	is(t, "the second Release", lease.Release(bg), strategy.ErrReleased)
	is(t, "a part's Err", parts[1].Err(), strategy.ErrReleased)

	lease = takeAll(t, l)
	release(t, multilock.Parts(lease)[1])
	is(t, "Err when a part was released alone", lease.Err(), strategy.ErrLost)
	isNot(t, "Err when a part was released alone", lease.Err(), strategy.ErrReleased)
	is(t, "Release", lease.Release(bg), strategy.ErrLost)
}

func allWaits(t *testing.T) {
	var m lockstest.Memory
	s, rival := open(t, &m, strategy.Options{}), open(t, &m, strategy.Options{})
	successor, err := rival.NewLock("b").TryAcquire(bg)
	is(t, "the rival", err)
	is(t, "the rival's KeepAlive", successor.KeepAlive(0))
	w := await(bg, all(t, s, "c", "b", "a"))
	time.Sleep(5*ttl + 3*time.Second)
	equal(t, "held during the wait", heldOf(&m, "a", "b", "c"), "a b")
	equal(t, "Acquire has ended", closed(w.done), false)
	released := time.Now()
	release(t, successor)
	lease := w.got(t)
	since(t, "Acquire after the release", released, 0)
	// a, held for long, and b, a direct grant for a second, begin again.
	deadline := lease.Deadline()
	if deadline.Before(w.at.Add(valid / 10 * 9)) {
		t.Errorf("Deadline = %v after Acquire, want nine tenths of %v", deadline.Sub(w.at), valid)
	}
	equal(t, "held", heldOf(&m, "a", "b", "c"), "a b c")
	// The renewal that kept them alive during the wait has ended with it.
	time.Sleep(time.Until(deadline))
	is(t, "Err at the deadline", lease.Err(), strategy.ErrLost)
	time.Sleep(ttl)
	equal(t, "held after the TTL", heldOf(&m, "a", "b", "c"), "")
	equal(t, "scheduled", engine.Scheduled(s), 0)
}

func allReentrant(t *testing.T) {
	m := reentrant()
	s := open(t, m, strategy.Options{})
	outer := takeAll(t, all(t, s, "a", "b"))
	ctx, cancel := outer.Context(bg)
	defer cancel()
	_, err := s.NewLock("b").TryAcquire(bg)
	is(t, "entry without the lease's context", err, strategy.ErrHeld)
	inner, err := all(t, s, "a", "b").Acquire(ctx)
	is(t, "re-entry of both", err)
	release(t, outer)
	equal(t, "held by the inner", heldOf(m, "a", "b"), "a b")
	release(t, inner)
	equal(t, "held", heldOf(m, "a", "b"), "")
	named, err := all(t, s, "a", "b").TryAcquire(as("jane"))
	is(t, "TryAcquire", err)
	equal(t, "Owner", named.Owner(), "jane")
	release(t, named)
}

// Contenders of several processes take random ones of six locks, in whatever order they name them, on a bad network: nothing is
// held twice, nobody waits for ever, and nothing is left.
func TestManyTakeSomeOfSix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		names := []string{"a", "b", "c", "d", "e", "f"}
		var m lockstest.Memory
		m.Intercept(chaos(11))
		locks := map[string]*witness{}
		for _, name := range names {
			locks[name] = &witness{T: t, held: map[strategy.Lease]bool{}}
		}
		ctx, cancel := context.WithTimeout(bg, time.Hour) // a deadlock would take as long
		defer cancel()
		var everybody sync.WaitGroup
		for process := range 5 {
			s := open(t, &m, strategy.Options{TTL: time.Second, RetryOnError: true})
			for i := range 10 {
				everybody.Go(func() {
					random := rand.New(rand.NewPCG(uint64(process), uint64(i)))
					for range 4 {
						picked := slices.Clone(names)
						random.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
						lease, err := all(t, s, picked[:1+random.IntN(4)]...).Acquire(ctx)
						if err != nil {
							continue
						}
						is(t, "KeepAlive", lease.KeepAlive(0))
						for _, part := range multilock.Parts(lease) {
							locks[part.Name()].got(part)
						}
						time.Sleep(time.Duration(random.IntN(20)) * ms)
						for _, part := range multilock.Parts(lease) {
							locks[part.Name()].ended(part)
						}
						lease.Release(bg)
					}
				})
			}
		}
		everybody.Wait()
		m.Intercept(nil)
		time.Sleep(2 * time.Second)
		equal(t, "held in the end", heldOf(&m, names...), "")
		for name, w := range locks {
			if w.grants < 20 {
				t.Errorf("%q was granted %d times, want more", name, w.grants)
			}
		}
	})
}

// A witness sees all leases of a lock that their holders believe in, and complains of two at once, and of fences that do not rise.
type witness struct {
	*testing.T

	mu       sync.Mutex
	held     map[strategy.Lease]bool
	greatest uint64
	grants   int
}

// got notes that somebody holds the lock.
func (w *witness) got(l strategy.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Err() != nil {
		return // lost on its way
	}
	for other := range w.held {
		if other.Err() == nil {
			w.Errorf("%s and %s hold %q at once", other.Token(), l.Token(), l.Name())
		}
	}
	if fence := fenceOf(l); fence <= w.greatest {
		w.Errorf("fence = %d after %d, want a greater one", fence, w.greatest)
	}
	w.held[l], w.greatest = true, max(w.greatest, fenceOf(l))
	w.grants++
}

// ended notes that a hold ends.
func (w *witness) ended(l strategy.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, l)
}
