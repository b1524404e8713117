// Whatever a server says, the texts of errors are short and printable.
package rediskit_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/contract"
)

// FuzzInfo: whatever INFO says, Check has an opinion, and a short one.
func FuzzInfo(f *testing.F) {
	for _, info := range []string{
		"", "role:master\r\n", "role:slave\r\nloading:1\r\n", "maxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n", ":\r\n::", "role", "role:\x00\xff",
	} {
		f.Add([]byte(info))
	}
	f.Fuzz(func(t *testing.T, info []byte) {
		err := rediskit.CheckNode(bg, time.Time{}, node{reply: info})
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("CheckNode of %q says %d bytes", info, len(err.Error()))
		}
	})
}

// FuzzDescribe: the text is short and printable, whatever the reply is made of. Each byte of shape opens an array, closes
// one, or is an element.
func FuzzDescribe(f *testing.F) {
	f.Add([]byte("((1)2(x))"), []byte("what"))
	f.Add(bytes.Repeat([]byte("("), 100_000), []byte("\x1b"))
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 { // each run of the tests plays these
		shape, text := make([]byte, random.IntN(500)), make([]byte, random.IntN(40))
		for i := range shape {
			shape[i] = "((()) 0123"[random.IntN(10)]
		}
		for i := range text {
			text[i] = byte(random.IntN(256))
		}
		f.Add(shape, text)
	}
	f.Fuzz(func(t *testing.T, shape, text []byte) {
		open := [][]any{nil}
		for _, b := range shape {
			last := len(open) - 1
			switch {
			case b == '(':
				open = append(open, nil)
			case b == ')' && last > 0:
				open[last-1] = append(open[last-1], open[last])
				open = open[:last]
			case b%3 == 0:
				open[last] = append(open[last], int64(b))
			case b%3 == 1:
				open[last] = append(open[last], text)
			default:
				open[last] = append(open[last], nil)
			}
		}
		for last := len(open) - 1; last > 0; last-- {
			open[last-1] = append(open[last-1], open[last])
		}
		got := rediskit.Describe(open[0])
		if len(got) > 1000 || contract.Printable(got) != got {
			t.Errorf("Describe = %d bytes: %.300q, want a short and printable text", len(got), got)
		}
	})
}
