//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package redistest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const haveProcesses = true

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

// detach gives cmd a session of its own, out of reach of the terminal's Ctrl-C.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func freezeProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func thawProcess(p *os.Process) error   { return p.Signal(syscall.SIGCONT) }
