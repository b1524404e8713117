//go:build !unix

package strategy

import "net"

// polling: elsewhere a socket cannot be looked at without waiting.
func polling(c net.Conn) net.Conn { return c }
