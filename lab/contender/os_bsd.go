//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package contender

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent does nothing: the child reads the end of its input, if it is not stopped.
func endWithParent(*exec.Cmd) {}

// stopSelf stops this process and returns when it goes on.
func stopSelf() error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// isStopped tells whether a child stands still.
func isStopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return strings.HasPrefix(string(state), "T"), err
}
