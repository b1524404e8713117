//go:build !unix

package child

import (
	"errors"
	"os"
	"os/exec"
)

// endWithParent does nothing: the child reads the end of its input.
func endWithParent(*exec.Cmd) {}

func stop(*os.Process) error      { return errors.ErrUnsupported }
func resume(*os.Process) error    { return errors.ErrUnsupported }
func stopSelf() error             { return errors.ErrUnsupported }
func isStopped(int) (bool, error) { return false, errors.ErrUnsupported }
