package fairqueue

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/lockstrategies/locks/driver"
)

// names are the keys and channels of a lock.
type names struct {
	// The lock, its queue and its fence counter. The counter is there without fences, too: a successor
	// may want a fence.
	keys []string
	free any // a string: the channel for those who wait without queueing

	proven atomic.Bool // the last release was allowed
}

func newNames(key string) *names {
	sibling := func(suffix string) string { return driver.SiblingKey(key, suffix) }
	return &names{keys: []string{key, sibling("queue"), sibling("fence")}, free: sibling("free")}
}

func (n *names) queue() string   { return n.keys[1] }
func (n *names) counter() string { return n.keys[2] }
func (n *names) channel() string { return n.free.(string) }

// A cache keeps the names of the locks in use, which need not be made for each request. Each place is
// for two of the keys that share it. A lock whose names it does not have makes them again. With two to
// a place that is rare, as long as there are far fewer locks in use than places.
type cache [1024][2]atomic.Pointer[names]

var seed = maphash.MakeSeed()

// of returns the names of a key.
func (c *cache) of(key string) *names {
	place := &c[maphash.String(seed, key)%uint64(len(c))]
	for i := range place {
		if n := place[i].Load(); n != nil && n.keys[0] == key {
			return n
		}
	}
	n := newNames(key)
	place[1].Store(place[0].Swap(n)) // of two at once one may be lost, and is made again
	return n
}
