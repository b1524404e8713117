package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// processSource has processes of this machine, as the user that we are.
type processSource struct {
	h       *machine.Host
	program string
	version string
}

// openPath looks for an installed server.
func openPath(ctx context.Context, h *machine.Host) (source, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if p, err := exec.LookPath(name); err == nil {
			return openProcess(ctx, h, p)
		}
	}
	return nil, errors.New("no redis-server on PATH")
}

var versionWords = regexp.MustCompile(`(\w+) server v=(\S+)`) // Redis server v=7.0.15 sha=…

func openProcess(ctx context.Context, h *machine.Host, program string) (source, error) {
	if !machine.HaveProcesses {
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
	s := &processSource{h: h, program: program, version: "version unknown"}
	if m := versionWords.FindStringSubmatch(string(out)); m != nil {
		s.version = m[1] + " " + m[2]
	}
	return s, nil
}

func (*processSource) kind() Kind { return Process }

func (s *processSource) describe() string {
	return fmt.Sprintf("local process, %s, %s", s.version, s.program)
}

func (s *processSource) start(ctx context.Context, c Config, _ int) (instance, error) {
	port, release, err := s.h.ReservePort()
	if err != nil {
		return nil, err
	}
	m := &processInstance{c: c, addr: net.JoinHostPort(machine.Loopback, strconv.Itoa(port)), release: release}
	if m.dataDir, err = newDataDir(s.h, c); err == nil {
		m.Process = machine.Process{Program: s.program, Args: c.args(machine.Loopback, port), Dir: m.dir}
		err = m.Start()
	}
	if err != nil {
		return nil, errors.Join(err, m.remove(context.WithoutCancel(ctx)))
	}
	return m, nil
}

type processInstance struct {
	machine.Process
	c       Config
	addr    string
	release func() // gives the port back
	dataDir
}

func (m *processInstance) url() string                          { return m.c.url(m.addr) }
func (m *processInstance) peer(context.Context) (string, error) { return m.addr, nil }

func (m *processInstance) remove(ctx context.Context) error {
	defer m.release()
	return errors.Join(m.Kill(ctx), m.dataDir.remove())
}
