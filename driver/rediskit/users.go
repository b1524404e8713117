package rediskit

import "sync/atomic"

// Users counts the strategies that use a [driver.Node]. For authors of one, to embed.
type Users struct{ left atomic.Int64 }

// Use is the Use of a Node whose client can be used.
func (u *Users) Use() error {
	u.left.Add(1)
	return nil
}

// Leave takes one away, and reports whether none is left: then Close closes the Node.
func (u *Users) Leave() bool { return u.left.Add(-1) <= 0 }
