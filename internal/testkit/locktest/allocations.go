package locktest

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// raced is how many allocations more the race detector costs a pair.
var raced float64

// Allocations tests that an acquire and a release of one caller allocate no more often than that.
func Allocations(t *testing.T, locks strategy.Strategy, most float64) {
	t.Helper()
	if redistest.ForTests(t).Kind() == redistest.Embedded {
		t.Skip("NOT PROVEN: how much a pair allocates: an embedded server allocates in this process, too")
	}
	lock := locks.NewLock(Unique(t))
	n := testing.AllocsPerRun(500, func() {
		lease, err := lock.TryAcquire(t.Context())
		if err == nil {
			err = lease.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if n > most+raced {
		t.Errorf("allocations = %v, want %v at most", n, most+raced)
	}
}
