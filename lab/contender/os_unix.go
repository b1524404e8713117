//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package contender

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

func (p *process) pause(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("contender: pausing %s: %w", p.who, err)
	}
	return p.stopped(ctx)
}

func (p *process) thaw() error {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("contender: thawing %s: %w", p.who, err)
	}
	return nil
}

// stopped asks until the process stands still.
func (p *process) stopped(ctx context.Context) error {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		switch yes, err := isStopped(p.cmd.Process.Pid); {
		case yes:
			return nil
		case err != nil:
			return fmt.Errorf("contender: waiting until %s stands still: %w", p.who, err)
		}
		select {
		case <-time.After(pause):
		case <-p.ended:
			return fmt.Errorf("contender: waiting until %s stands still: %w", p.who, p.gone())
		case <-ctx.Done():
			return fmt.Errorf("contender: waiting until %s stands still: %w", p.who, context.Cause(ctx))
		}
	}
}

// endedByItself tells whether a process was not ended by a signal.
func endedByItself(s *os.ProcessState) bool { return s.Exited() }
