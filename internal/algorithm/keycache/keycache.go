// Package keycache keeps what the requests for a lock have in common: the names of its keys and of its channel,
// and the times that its claims bring. To make them for each request would be half of what that allocates.
package keycache

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
)

// A Lock is the names of one lock.
type Lock struct {
	Keys []string // the lock, and its sibling keys
	Free any      // the channel of its releases: a string, boxed once

	TTL, FenceTTL Milliseconds // of its claims
	Proven        atomic.Bool  // the algorithm has found what it need not ask again
}

// Channel is Free as a string.
func (l *Lock) Channel() string { return l.Free.(string) }

// Milliseconds remembers the last time that was boxed.
type Milliseconds struct{ last atomic.Pointer[boxed] }

type boxed struct {
	d  time.Duration
	ms any
}

// Of returns d in milliseconds, as an argument of a command.
func (m *Milliseconds) Of(d time.Duration) any {
	b := m.last.Load()
	if b == nil || b.d != d {
		b = &boxed{d, d.Milliseconds()}
		m.last.Store(b)
	}
	return b.ms
}

// A Cache keeps the names of the locks in use. It is a two-way cache: each slot keeps the last two that hash
// to it. A lock whose names it does not have makes them again. That is rare as long as there are far fewer
// locks in use than slots.
type Cache struct {
	suffixes []string
	slots    [1024][2]atomic.Pointer[Lock]
}

// New makes a cache for locks with sibling keys of these suffixes.
func New(suffixes ...string) *Cache { return &Cache{suffixes: suffixes} }

var seed = maphash.MakeSeed()

// Of returns the names of a key.
func (c *Cache) Of(key string) *Lock {
	slot := &c.slots[maphash.String(seed, key)%uint64(len(c.slots))]
	for i := range slot {
		if l := slot[i].Load(); l != nil && l.Keys[0] == key {
			return l
		}
	}
	l := &Lock{Keys: []string{key}, Free: driver.SiblingKey(key, "free")}
	for _, suffix := range c.suffixes {
		l.Keys = append(l.Keys, driver.SiblingKey(key, suffix))
	}
	slot[1].Store(slot[0].Swap(l)) // of two at once one may be lost, and is made again
	return l
}
