// Locks behind Sentinels live through a fail-over.
package goredisnode

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
)

// TestSentinel: after a fail-over the client finds the new master; who holds a lock that this
// one has heard of goes on.
func TestSentinel(t *testing.T) {
	t.Parallel()
	s := rig.NewSentinels(t, 1, redistest.Config{})
	livesOn(t, nodeOf(t, failoverClient(t, s.Name, s.Addrs)), func() {
		master, err := s.Master(t.Context())
		redistest.Must(t, err)
		redistest.Must(t, s.Heard(t.Context(), master))
		_, err = s.FailOver(t.Context())
		redistest.Must(t, err)
	})
}
