package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// processSource has processes of this machine, as the user that we are.
type processSource struct {
	f       *Farm
	command []string   // redis-server and what it takes to run it
	what    string     // for the choice line
	spec    *distroPkg // what command comes from; nil: it is installed
}

// openPath looks for an installed server.
func openPath(ctx context.Context, f *Farm) (source, error) {
	if !haveProcesses {
		return nil, fmt.Errorf("no local Redis process on %s", runtime.GOOS)
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		p, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if p, err = filepath.Abs(p); err != nil {
			continue
		}
		limit, cancel := context.WithTimeout(ctx, 5*time.Second)
		out, err := exec.CommandContext(limit, p, "--version").Output()
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", p, err)
		}
		return &processSource{f: f, command: []string{p}, what: fmt.Sprintf("local process, %s, %s", toldVersion(string(out)), p)}, nil
	}
	return nil, errors.New("no redis-server on PATH")
}

var versionWords = regexp.MustCompile(`(\w+) server v=(\S+)`)

// toldVersion reads "Redis server v=7.0.15 sha=…".
func toldVersion(s string) string {
	if m := versionWords.FindStringSubmatch(s); m != nil {
		return m[1] + " " + m[2]
	}
	return "version unknown"
}

// openUnpacked runs the distribution's package from the cache, without installing it.
func openUnpacked(ctx context.Context, f *Farm, name string) (source, error) {
	if !haveProcesses {
		return nil, fmt.Errorf("no local Redis process on %s", runtime.GOOS)
	}
	spec, err := resolvePackage(ctx, name)
	if err != nil {
		return nil, err
	}
	if spec.foreign() {
		return nil, fmt.Errorf("packages for %s do not run on %s", spec.arch, runtime.GOARCH)
	}
	s := &processSource{f: f, spec: spec}
	if u, ok := f.cache.unpacked(spec); ok {
		s.use(u)
	} else if f.fetchErr != nil {
		return nil, f.fetchErr
	} else if err := spec.locate(ctx); err != nil {
		return nil, err
	} else {
		s.what = fmt.Sprintf("local process, %s to be unpacked now", spec)
	}
	return s, nil
}

func (s *processSource) use(u *unpacked) {
	s.command = u.command()
	s.what = fmt.Sprintf("local process, %s, unpacked from %s", u.product(), s.spec)
}

func (*processSource) kind() Kind         { return Process }
func (s *processSource) describe() string { return s.what }

func (s *processSource) prepare(ctx context.Context, log io.Writer) error {
	if s.command != nil {
		return nil
	}
	u, err := s.f.unpack(ctx, s.spec, log)
	if err != nil {
		return err
	}
	s.f.mu.Lock() // Choice reads it
	defer s.f.mu.Unlock()
	s.use(u)
	return nil
}

func (s *processSource) start(ctx context.Context, c Config) (machine, error) {
	port, release, err := s.f.cache.reservePort()
	if err != nil {
		return nil, err
	}
	dir, err := s.f.tempDir()
	if err != nil {
		release()
		return nil, err
	}
	m := &processMachine{f: s.f, c: c, dir: dir, port: port, release: release}
	m.command = slices.Concat(s.command, c.args(loopback, port))
	err = m.put(ctx, c.Files)
	if err == nil {
		err = m.restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.remove(context.WithoutCancel(ctx)))
	}
	return m, nil
}

type processMachine struct {
	f       *Farm
	c       Config
	command []string
	dir     string
	port    int
	release func() // gives the port back

	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone, and waitErr is set

	mu      sync.Mutex
	waitErr error
}

func (m *processMachine) url() string {
	return m.c.url(loopback + ":" + strconv.Itoa(m.port))
}

// restart starts the process, for the first time too.
func (m *processMachine) restart(ctx context.Context) error {
	log, err := os.OpenFile(m.logFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(m.command[0], m.command[1:]...) // #nosec: the server we chose
	cmd.Dir = m.dir
	// A file, not a pipe of ours: "go test" would wait for it, and the server for us.
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	birth := birthOf(cmd.Process.Pid)
	keepErr := m.f.keep("process", pid, birth) // before the goroutine below takes it back
	exited := make(chan struct{})
	m.cmd, m.exited = cmd, exited
	go func() {
		err := cmd.Wait()
		m.mu.Lock()
		m.waitErr = err
		m.mu.Unlock()
		m.f.gone("process", pid, birth)
		close(exited)
	}()
	if keepErr != nil {
		return errors.Join(keepErr, m.kill(context.WithoutCancel(ctx)))
	}
	return nil
}

func (m *processMachine) localDir() string {
	if m.c.Files == nil {
		return ""
	}
	return m.dir
}

func (m *processMachine) logFile() string { return filepath.Join(m.dir, "redis.log") }

func (m *processMachine) failed(context.Context) error {
	select {
	case <-m.exited:
	default:
		return nil
	}
	log, err := os.ReadFile(m.logFile())
	if err != nil {
		log = []byte(err.Error())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return ended(fmt.Sprintf("the process ended: %v", m.waitErr), string(log))
}

func (m *processMachine) freeze(ctx context.Context) error {
	if err := freezeProcess(m.cmd.Process); err != nil {
		return err
	}
	return awaitStopped(ctx, m.cmd.Process.Pid)
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

func (m *processMachine) files(context.Context) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(m.dir, func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!e.Type().IsRegular() || p == m.logFile()) {
			return nil // the server removes files of its own, and then they are none
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.dir, p)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files[filepath.ToSlash(name)] = b
		return err
	})
	return files, err
}

func (m *processMachine) put(_ context.Context, files map[string][]byte) error {
	for name, b := range files {
		p := filepath.Join(m.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(p, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (m *processMachine) peer(context.Context) (string, error) {
	return net.JoinHostPort(loopback, strconv.Itoa(m.port)), nil
}

func (m *processMachine) remove(ctx context.Context) error {
	defer m.release()
	var err error
	if m.cmd != nil {
		err = m.kill(ctx)
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}
