//go:build !linux

package redistest

import "net"

// EndListening closes a listener, which is all that can be done here.
func EndListening(ln net.Listener) { ln.Close() }
