//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package contender

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// endWithParent does nothing: the child reads the end of its input.
func endWithParent(*exec.Cmd) {}

func stopSelf() error { return errors.ErrUnsupported }

func (p *process) pause(context.Context) error   { return errors.ErrUnsupported }
func (p *process) thaw() error                   { return nil } // nobody can be paused
func (p *process) stopped(context.Context) error { return errors.ErrUnsupported }

// endedByItself does not know: here whoever is killed exits, too.
func endedByItself(*os.ProcessState) bool { return false }
