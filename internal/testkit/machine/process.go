package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// LogFile is where a process writes, in its directory.
const LogFile = "server.log"

// A Process is a server as a process of this machine, as the user that we are. Its methods are called one at a time.
type Process struct {
	Program string
	Args    []string
	Dir     string // in which it starts
	NotRoot bool   // if we are root, it is nobody for itself, and we are for the rest of the machine

	cmd     *exec.Cmd
	exited  chan struct{} // closed once the process is gone, and waitErr is set
	waitErr error
}

// Start starts it, for the first time too.
func (p *Process) Start() error {
	pid, err := ReaperPID()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.Dir, LogFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Program, p.Args...) // #nosec: the server we chose
	cmd.Dir = p.Dir
	// A file, not a pipe of ours: "go test" would wait for it, and the server for us.
	cmd.Stdout, cmd.Stderr = log, log
	joinGroup(cmd, pid)
	if p.NotRoot && os.Getuid() == 0 {
		becomeNobody(cmd)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		p.waitErr = cmd.Wait()
		close(exited)
	}()
	return nil
}

// Restart starts a dead one.
func (p *Process) Restart(context.Context) error { return p.Start() }

// Remove ends it.
func (p *Process) Remove(ctx context.Context) error { return p.Kill(ctx) }

// Wait returns once the process has ended, with an error unless it succeeded.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Kill(context.WithoutCancel(ctx)))
	}
	if p.waitErr == nil {
		return nil
	}
	return p.Failed(ctx)
}

// Failed says why the process is not running, with its last words; nil if it runs.
func (p *Process) Failed(context.Context) error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	log, err := os.ReadFile(filepath.Join(p.Dir, LogFile))
	if err != nil {
		log = []byte(err.Error())
	}
	return ended(fmt.Sprintf("the process ended: %v", p.waitErr), string(log))
}

// Freeze stops the process, and then those that it has started. It returns once they stand.
func (p *Process) Freeze(ctx context.Context) error {
	if err := freezeProcess(p.cmd.Process.Pid); err != nil {
		return err
	}
	return awaitFrozen(ctx, p.cmd.Process.Pid)
}

// awaitFrozen waits for a process that is being stopped, and stops those that it has started.
func awaitFrozen(ctx context.Context, pid int) error {
	if err := awaitStopped(ctx, pid); err != nil {
		return err
	}
	for _, child := range childrenOf(pid) { // it starts no others now
		if freezeProcess(child) == nil { // else it has ended
			if err := awaitStopped(ctx, child); err != nil {
				return err
			}
		}
	}
	return nil
}

// childrenOf are the processes that pid has started. Where there is no /proc it has none.
func childrenOf(pid int) (pids []int) {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for f := range strings.FieldsSeq(string(list)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

func thawChildren(pid int) {
	for _, child := range childrenOf(pid) {
		thawProcess(child) //nolint:errcheck // it may have ended
	}
}

// awaitStopped returns once the process has come to a stop: the kernel stops its threads a little
// after it has taken the signal. Where there is no /proc it returns at once.
func awaitStopped(ctx context.Context, pid int) error {
	limit, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("it does not stop"))
	defer cancel()
	return Poll(limit, func() (bool, error) {
		state := stateOf(pid)
		return state == "" || state == "T" || state == "Z", nil
	})
}

// stateOf is one letter of /proc, or "" for no such process.
func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	s := string(stat)
	return strings.TrimSpace(s[strings.LastIndexByte(s, ')')+1:])[:1] // after a name, which may contain blanks
}

// Thaw lets what is frozen go on.
func (p *Process) Thaw(context.Context) error {
	thawChildren(p.cmd.Process.Pid)
	return thawProcess(p.cmd.Process.Pid)
}

// Kill returns once the process is dead, and those that it has started.
func (p *Process) Kill(ctx context.Context) error {
	if p.cmd == nil { // it has not started
		return nil
	}
	children := childrenOf(p.cmd.Process.Pid)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	for _, child := range children {
		killProcess(child) //nolint:errcheck // it may have ended
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, child := range children {
		if err := Poll(ctx, func() (bool, error) { s := stateOf(child); return s == "" || s == "Z", nil }); err != nil {
			return err
		}
	}
	return nil
}
