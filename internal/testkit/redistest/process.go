package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// processSource has processes of this machine, as the user that we are.
type processSource struct {
	f       *Farm
	program string
	version string
}

// openPath looks for an installed server.
func openPath(ctx context.Context, f *Farm) (source, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if p, err := exec.LookPath(name); err == nil {
			return openProcess(ctx, f, p)
		}
	}
	return nil, errors.New("no redis-server on PATH")
}

var versionWords = regexp.MustCompile(`(\w+) server v=(\S+)`) // Redis server v=7.0.15 sha=…

func openProcess(ctx context.Context, f *Farm, program string) (source, error) {
	if !haveProcesses {
		return nil, fmt.Errorf("no local Redis process on %s", runtime.GOOS)
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	limit, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(limit, program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", program, err)
	}
	s := &processSource{f: f, program: program, version: "version unknown"}
	if m := versionWords.FindStringSubmatch(string(out)); m != nil {
		s.version = m[1] + " " + m[2]
	}
	return s, nil
}

func (*processSource) kind() Kind { return Process }

func (s *processSource) describe() string {
	return fmt.Sprintf("local process, %s, %s", s.version, s.program)
}

func (s *processSource) start(ctx context.Context, c Config, _ int) (machine, error) {
	port, release, err := s.f.ReservePort()
	if err != nil {
		return nil, err
	}
	m := &processMachine{program: s.program, c: c, port: port, release: release}
	if m.dataDir, err = s.f.newDataDir(c); err == nil {
		err = m.restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.remove(context.WithoutCancel(ctx)))
	}
	return m, nil
}

type processMachine struct {
	program string
	c       Config
	port    int
	release func() // gives the port back
	dataDir

	cmd     *exec.Cmd
	exited  chan struct{} // closed once the process is gone, and waitErr is set
	waitErr error
}

func (m *processMachine) addr() string { return net.JoinHostPort(loopback, strconv.Itoa(m.port)) }
func (m *processMachine) url() string  { return m.c.url(m.addr()) }

// restart starts the process, for the first time too.
func (m *processMachine) restart(context.Context) error {
	r, err := theReaper()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(m.program, m.c.args(loopback, m.port)...) // #nosec: the server we chose
	cmd.Dir = m.dir
	// A file, not a pipe of ours: "go test" would wait for it, and the server for us.
	cmd.Stdout, cmd.Stderr = log, log
	joinGroup(cmd, r.PID())
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	exited := make(chan struct{})
	m.cmd, m.exited = cmd, exited
	go func() {
		m.waitErr = cmd.Wait()
		close(exited)
	}()
	return nil
}

func (m *processMachine) failed(context.Context) error {
	select {
	case <-m.exited:
	default:
		return nil
	}
	log, err := os.ReadFile(filepath.Join(m.dir, logFile))
	if err != nil {
		log = []byte(err.Error())
	}
	return ended(fmt.Sprintf("the process ended: %v", m.waitErr), string(log))
}

func (m *processMachine) freeze(ctx context.Context) error {
	if err := freezeProcess(m.cmd.Process); err != nil {
		return err
	}
	return awaitStopped(ctx, m.cmd.Process.Pid)
}

// awaitStopped returns once the process has come to a stop: the kernel stops its threads a little
// after it has taken the signal. Where there is no /proc it returns at once.
func awaitStopped(ctx context.Context, pid int) error {
	limit, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("it does not stop"))
	defer cancel()
	return pollUntil(limit, func() (bool, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		s := string(stat)
		state := strings.TrimSpace(s[strings.LastIndexByte(s, ')')+1:]) // after a name, which may contain blanks
		return err != nil || strings.HasPrefix(state, "T") || strings.HasPrefix(state, "Z"), nil
	})
}

func (m *processMachine) thaw(context.Context) error { return thawProcess(m.cmd.Process) }

func (m *processMachine) kill(ctx context.Context) error {
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-m.exited:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *processMachine) peer(context.Context) (string, error) { return m.addr(), nil }

func (m *processMachine) remove(ctx context.Context) error {
	defer m.release()
	var err error
	if m.cmd != nil {
		err = m.kill(ctx)
	}
	return errors.Join(err, m.dataDir.remove())
}
