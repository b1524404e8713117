package rig

import (
	"net"
	"syscall"
)

// endListening has nobody listen any more. To close the listener may not be enough: a child of
// this process that is being started has it, too, until it executes its program.
func endListening(ln net.Listener) {
	if conn, err := ln.(*net.TCPListener).SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { syscall.Shutdown(int(fd), syscall.SHUT_RD) }) //nolint:errcheck // it is closed then
	}
}
