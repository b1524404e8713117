//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package machine

import (
	"errors"
	"os"
	"os/exec"
)

// HaveProcesses says whether servers can be processes here.
const HaveProcesses = false

// tryLock always succeeds. Nothing is unpacked here, so what is left is two processes choosing one
// port, which shows when the second server does not come up, and is tried again with another.
func tryLock(*os.File) (bool, error) { return true, nil }

func leadGroup()               {}
func joinGroup(*exec.Cmd, int) {}
func killGroup()               {}

func freezeProcess(int) error { return errors.ErrUnsupported }
func thawProcess(int) error   { return errors.ErrUnsupported }
func killProcess(int) error   { return errors.ErrUnsupported }
