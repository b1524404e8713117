//go:build !unix

package postgres

import "net"

// ended is not known here: the pool pings a connection that was at rest for a second.
func ended(net.Conn) bool { return false }
