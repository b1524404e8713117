//go:build unix

package strategy

import "net"

// Polls is how often a connection has polled in vain, and how many reads are not to poll now.
func Polls(c net.Conn) (misses, rest int32) {
	p := c.(*pollConn)
	return p.misses.Load(), p.rest.Load()
}

// Poll says that somebody polls, or nobody.
func Poll(somebody bool) { polls.Store(somebody) }
