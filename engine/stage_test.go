// The set-up of the tests of single leases, attempts and moments, and how they judge.
package engine_test

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// stories runs each story in a bubble of its own.
func stories(t *testing.T, all map[string]func(t *testing.T)) {
	t.Helper()
	bubbles(t, all, func(t *testing.T, tell func(*testing.T)) { tell(t) })
}

// served makes a server in memory, a record of its requests, and a strategy on it.
func served(t *testing.T, o strategy.Options) (*lockstest.Memory, *recorder, engine.Strategy) {
	t.Helper()
	m := &lockstest.Memory{}
	r := record(m)
	return m, r, open(t, m, o)
}

// holding is served with a lease that is held.
func holding(t *testing.T, o strategy.Options) (*lockstest.Memory, *recorder, engine.Strategy, strategy.Lease) {
	t.Helper()
	m, r, s := served(t, o)
	return m, r, s, take(t, s)
}

// forgotten makes a holder at the server that nobody uses: its lock lapses, and the next grant is a plain one.
func forgotten(t *testing.T, p driver.Protocol) strategy.Lease {
	t.Helper()
	return take(t, open(t, p, strategy.Options{}))
}

// takeNamed acquires the lock of that name, which must be free.
func takeNamed(t *testing.T, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(bg)
	if err != nil {
		t.Fatalf("TryAcquire of %q = %v", name, err)
	}
	return lease
}

// keepAll acquires n locks, with a pause after each, and keeps them alive.
func keepAll(t *testing.T, s strategy.Strategy, n int, pause time.Duration) (all []strategy.Lease) {
	t.Helper()
	for i := range n {
		all = append(all, takeNamed(t, s, fmt.Sprint(i)))
		is(t, "KeepAlive", all[i].KeepAlive(0))
		time.Sleep(pause)
	}
	return all
}

// free checks that nobody holds the lock at the server, once what is under way in the background is done.
func free(t *testing.T, m *lockstest.Memory) {
	t.Helper()
	synctest.Wait()
	equal(t, "holder", holds(m, key), "")
}

// says checks that err has all of those words.
func says(t *testing.T, call string, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%s = %v, want an error that says %q", call, err, w)
		}
	}
}

// between checks that got is not less than least, and not more than most.
func between[T cmp.Ordered](t *testing.T, what string, got, least, most T) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s = %v, want %v to %v", what, got, least, most)
	}
}

// heldBy checks that err says who holds the lock.
func heldBy(t *testing.T, call string, err error, holder string) {
	t.Helper()
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Name != name || held.Holder != holder {
		t.Errorf("%s = %v, want that %s holds the lock", call, err, holder)
	}
}

// lostAs checks that err is that loss.
func lostAs(t *testing.T, call string, err error, want strategy.LostError) {
	t.Helper()
	var lost *strategy.LostError
	if want.Name = name; !errors.As(err, &lost) || *lost != want {
		t.Errorf("%s = %#v, want %#v", call, err, want)
	}
}
