package contender

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel kill the child with its parent, also while it is stopped
// and reads no end of input.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// stopSelf stops this process and returns when it goes on. The signal is for this thread,
// so that it does not get any further; the whole process stops with it.
func stopSelf() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// isStopped tells whether all threads of a child stand still.
func isStopped(pid int) (bool, error) {
	// WNOWAIT leaves the news for the next who asks; without WEXITED the end of the
	// child is left to whoever waits for that.
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil && info.Signo != 0, err
		}
	}
}
