package redistest

import (
	"net"
	"syscall"
)

// EndListening closes a TCP listener and has nobody listen any more. To close it may not be
// enough: a child of this process that is being started has it, too, until it executes its
// program, and the port is not free before.
func EndListening(ln net.Listener) {
	if conn, err := ln.(*net.TCPListener).SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { syscall.Shutdown(int(fd), syscall.SHUT_RD) }) //nolint:errcheck // it is closed then
	}
	ln.Close()
}
