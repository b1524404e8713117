package child

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

// endWithParent lets the kernel kill the child when its parent ends: a child that is paused reads
// no end of its input.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// stopSelf sends the signal to this thread, so that the caller does not get any further. The whole
// process stops with it.
func stopSelf() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
}

// isStopped reports whether all threads of a child are stopped.
func isStopped(pid int) (bool, error) {
	// WNOWAIT leaves the state for the next call; without WEXITED the child's end is left to
	// cmd.Wait. The first field of the answer is 0 if there was nothing to say.
	const byPID = 1
	var info [128 / 4]int32
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			syscall.WSTOPPED|syscall.WNOHANG|syscall.WNOWAIT, 0, 0)
		switch err {
		case syscall.EINTR:
		case 0:
			return info[0] != 0, nil
		default:
			return false, err
		}
	}
}
