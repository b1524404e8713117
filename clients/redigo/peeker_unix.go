//go:build unix

package redigonode

import "syscall"

// readable reports whether a read of a socket would not have to wait: for an end, an error, or bytes.
func readable(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
}
