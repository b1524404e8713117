package strategy

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/lockstrategies/locks/internal/timeup"
)

// Watch yields what [Strategy.Inspect] sees of a lock: at once, and again when the holder, the number of holds or the fence has
// changed. It asks after each period of every, and does not see a hold that is shorter. While several hold the lock, only their
// number and the fence count. An error is yielded once; Watch then asks on, and yields what it sees when the servers answer again. It ends when ctx
// does, or the loop.
func Watch(ctx context.Context, s Strategy, name string, every time.Duration) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if every <= 0 {
			yield(Info{}, fmt.Errorf("locks: Watch asks every %v: allowed is more than 0", every))
			return
		}
		ticker := time.NewTicker(every)
		var last Info
		first, failing := true, false
		for !timeup.Over(ctx) {
			info, err := s.Inspect(ctx, name)
			switch {
			case timeup.Over(ctx): // that ends the loop
			case err != nil:
				if !failing && !yield(Info{}, err) {
					return
				}
			case first, failing, changed(last, info):
				if !yield(info, nil) {
					return
				}
				last, first = info, false
			}
			failing = err != nil
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}
}

func changed(a, b Info) bool {
	another := a.Token != b.Token || a.Owner != b.Owner
	return a.Held != b.Held || another && a.Holds < 2 || a.Holds != b.Holds || a.Fence != b.Fence
}
