package fairqueue

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// published is a node on whose channels one message comes.
type published struct {
	driver.Node
	msg []byte
}

func (n published) Subscribe(_ context.Context, _ string, fn func([]byte, error)) (func(), error) {
	fn(n.msg, nil)
	return func() {}, nil
}

// FuzzNotification: whatever is published to a queue's channel, what is passed on is a grant that
// can be counted with, or that somebody else is next.
func FuzzNotification(f *testing.F) {
	for _, msg := range []string{
		"grant 7 1 1000 1795341427 5 token", "next 1000", "", " ", "grant", "grant 1 1 1 1 1 ", "grant -1 1 1 1 1 t", "next 99999999999999999999",
		"grant 18446744073709551615 257 86400001 9223372036 1000000 t", "next 0", "next 86400001", "grant 1 1 1000 9223372036 999999 \x00\xff",
	} {
		f.Add([]byte(msg))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		c := driver.Claim{Name: "n", Key: "n", Line: "line", Due: time.Now().Add(time.Minute)}
		stop, err := watchQueue(t.Context(), published{msg: msg}, c, "queue:line", func(n driver.Notification) {
			g := n.Grant
			switch {
			case n.Broken() || n.Holder != "":
				t.Errorf("%q is passed on as %+v", msg, n)
			case n.Token == "" && (n.Next <= 0 || n.Next > strategy.MaxTTL):
				t.Errorf("%q: next in %v", msg, n.Next)
			case n.Token != "" && (g.TTL <= 0 || g.TTL > strategy.MaxTTL || g.Fences < 0 || g.Fences > driver.MaxFences || g.Fence > math.MaxInt64 || g.ServerTime < 0):
				t.Errorf("%q: granted %+v", msg, g)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		stop()
	})
}
