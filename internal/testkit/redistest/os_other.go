//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package redistest

import (
	"errors"
	"os"
	"os/exec"
)

const haveProcesses = false

// tryLock always succeeds. Nothing is unpacked here, so what is left is two processes choosing one
// port, which shows when the second server does not come up, and is tried again with another.
func tryLock(*os.File) (bool, error) { return true, nil }

func leadGroup()               {}
func joinGroup(*exec.Cmd, int) {}
func killGroup()               {}

func freezeProcess(*os.Process) error { return errors.ErrUnsupported }
func thawProcess(*os.Process) error   { return errors.ErrUnsupported }
