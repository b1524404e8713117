package fairqueue

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
)

// lockNames are the keys and the channels of a lock.
type lockNames struct {
	// The lock, its queue and its fence counter. The counter is there without fences, too: a successor
	// may want a fence.
	keys  []string
	freed any // the channel for those who wait without queueing; a string, boxed once to save an allocation

	ttl    atomic.Pointer[fenceTTL] // the last that a claim brought
	proven atomic.Bool              // an acquire has found that this user may release; reset when a release fails
}

// A fenceTTL is a claim's, and its milliseconds, boxed once to save an allocation for each request.
type fenceTTL struct {
	d  time.Duration
	ms any
}

func newNames(key string) *lockNames {
	sibling := func(suffix string) string { return driver.SiblingKey(key, suffix) }
	return &lockNames{keys: []string{key, sibling("queue"), sibling("fence")}, freed: sibling("free")}
}

func (n *lockNames) queue() string        { return n.keys[1] }
func (n *lockNames) counter() string      { return n.keys[2] }
func (n *lockNames) freedChannel() string { return n.freed.(string) }

// fenceTTL is how long the counter is to last, in ms.
func (n *lockNames) fenceTTL(c driver.Claim) any {
	ttl := n.ttl.Load()
	if ttl == nil || ttl.d != c.FenceTTL {
		ttl = &fenceTTL{c.FenceTTL, c.FenceTTL.Milliseconds()}
		n.ttl.Store(ttl)
	}
	return ttl.ms
}

// lineChannel is where a line hears of direct grants.
func (n *lockNames) lineChannel(line string) string { return n.queue() + ":" + line }

// A cache keeps the names of the locks in use, so that they need not be made for each request. It is a
// two-way cache: each slot keeps the last two that hash to it. A lock whose names it does not have makes
// them again. That is rare as long as there are far fewer locks in use than slots.
type cache [1024][2]atomic.Pointer[lockNames]

var seed = maphash.MakeSeed()

// of returns the names of a key.
func (c *cache) of(key string) *lockNames {
	slot := &c[maphash.String(seed, key)%uint64(len(c))]
	for i := range slot {
		if n := slot[i].Load(); n != nil && n.keys[0] == key {
			return n
		}
	}
	n := newNames(key)
	slot[1].Store(slot[0].Swap(n)) // of two at once one may be lost, and is made again
	return n
}
