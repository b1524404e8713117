//go:build unix && !linux

package child

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent does nothing: a child that is not paused reads the end of its input.
func endWithParent(*exec.Cmd) {}

func stopSelf() error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

func isStopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return strings.HasPrefix(string(state), "T"), err
}
