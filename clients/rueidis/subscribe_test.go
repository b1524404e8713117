// Subscribe while its connection is being dialled.
package rueidisnode

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/rig"
	"github.com/lockstrategies/locks/internal/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestSubscribeWhileDialling(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1, redistest.Config{})
	link := r.Nodes[0].Link()
	n := newNode(t, rueidis.ClientOption{InitAddress: []string{link.Addr()}})
	link.Hold(rig.Both)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := n.Subscribe(ctx, "c", func([]byte, error) { t.Error("fn was called") })
	want(t, "Subscribe without a connection", err, strategy.ErrUnsent, context.DeadlineExceeded)
	link.Heal()
	verdict.Eventually(t, "a subscription after that", func() bool {
		stop, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
		if err == nil {
			stop()
		}
		return err == nil
	})
}
