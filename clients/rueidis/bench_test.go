// Measures how long a GET takes, for one caller and for many.
package rueidisnode

import (
	"fmt"
	"testing"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// BenchmarkGet is one request, by one caller and by many: through the Node, and through the
// client alone.
func BenchmarkGet(b *testing.B) {
	s := redistest.Shared(b)
	client, err := rueidis.NewClient(optionsOf(b, s))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	n := New(client).(*node)
	defer n.Close()
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("node/callers=%d", callers), func(b *testing.B) {
			b.SetParallelism(callers)
			each(b, callers, func() error { _, err := n.Do(b.Context(), soon(), "GET", "k"); return err })
		})
		b.Run(fmt.Sprintf("client/callers=%d", callers), func(b *testing.B) {
			each(b, callers, func() error {
				err := client.Do(b.Context(), client.B().Get().Key("k").Build()).Error()
				if rueidis.IsRedisNil(err) {
					err = nil
				}
				return err
			})
		})
	}
}

func each(b *testing.B, callers int, call func() error) {
	b.ReportAllocs()
	next := make(chan bool)
	done := make(chan error, callers)
	for range callers {
		go func() {
			for range next {
				if err := call(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	b.ResetTimer()
	for range b.N {
		next <- true
	}
	close(next)
	for range callers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}
