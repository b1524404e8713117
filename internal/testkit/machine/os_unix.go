//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package machine

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// HaveProcesses says whether servers can be processes here.
const HaveProcesses = true

// tryLock takes the file's lock, if nobody has it.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, err
		}
	}
}

// leadGroup makes this process the first of a process group, out of reach of the terminal's Ctrl-C.
func leadGroup() { syscall.Setpgid(0, 0) } //nolint:errcheck // a child that has just started may

// joinGroup starts cmd in a process group.
func joinGroup(cmd *exec.Cmd, group int) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

// killGroup kills all processes of our group, and so ourselves.
func killGroup() { syscall.Kill(0, syscall.SIGKILL) } //nolint:errcheck // nobody is left to hear of it

func freezeProcess(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
func thawProcess(pid int) error   { return syscall.Kill(pid, syscall.SIGCONT) }
func killProcess(pid int) error   { return syscall.Kill(pid, syscall.SIGKILL) }
