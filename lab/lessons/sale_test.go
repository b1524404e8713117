package lessons

import (
	"context"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/lab/flashsale"
)

func init() {
	shown["flash-sale"] = []string{
		"no more is sold than there is: VIOLATED",
		"no more is sold than there is: HELD",
		// no lock; both forms of the lock, the transaction, and the script
		"no more is sold than there is: VIOLATED; no more is sold than there is: HELD; no more is sold than there is: HELD; " +
			"no more is sold than there is: HELD; no more is sold than there is: HELD",
	}
}

// saleChild is this test binary as a process of a sale.
func saleChild(ctx context.Context) error {
	w, err := redistest.FromEnv()
	if err != nil {
		return err
	}
	farm, err := redistest.Open(ctx, w)
	if err != nil {
		return err
	}
	defer farm.Close()
	servers, err := farm.Nodes(ctx, len(w.Addrs))
	if err != nil {
		return err
	}
	return flashsale.Child(ctx, servers, subjects.All())
}
