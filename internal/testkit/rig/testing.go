package rig

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// New opens a rig for a test, or for its subtests, which share it with Reset. It ends
// with the test. Where no server is ours to break, the test is skipped, and says so.
func New(t testing.TB, n int, c redistest.Config) *Rig {
	t.Helper()
	r, err := Open(t.Context(), redistest.ForTests(t), n, c)
	redistest.Skip(t, err, "what faults of "+t.Name()+" do to a server")
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}
