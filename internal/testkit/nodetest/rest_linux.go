package nodetest

import (
	"syscall"
	"unsafe"
)

// acknowledged reports whether the other side has acknowledged all that was sent, the end included.
func acknowledged(fd uintptr) bool {
	var left int32
	_, _, err := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&left)))
	return err != 0 || left == 0
}
