// Package storetest starts servers of PostgreSQL and etcd to test against and to break, as redistest does those of Redis.
//
// It takes the first of these that is available:
//
//  1. the servers named by POSTGRES_URL or ETCD_ENDPOINTS: as the shared ones alone, for they are not ours to break;
//  2. containers of the official image that is here, or of one that was built here earlier;
//  3. containers of the image, pulled, or built from Debian's packages where no registry answers;
//  4. local processes: of an installed PostgreSQL or etcd, or from the same packages, without installing them.
//
// Containers share this machine's network: an engine in a virtual machine is passed over. STORE_KIND=given|docker|process
// demands a kind. Where a kind is demanded, a test without a server fails; else it is skipped as NOT PROVEN. REDIS_CACHE_DIR
// keeps unpacked packages, if it is set.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// The kinds of servers, by their names in STORE_KIND.
const (
	byUser  = "given"
	docker  = "docker"
	process = "process"
)

// ErrUnavailable says that there is no such server here, and why.
var ErrUnavailable = errors.New("not available")

// A product is what servers are of.
type product struct {
	name    string
	image   string // the official one; "": none
	pkg     machine.Package
	places  []string // of the folder of an installed one, next to PATH
	notRoot bool     // it does not run as root
	idle    []string // a command that lives on and does nothing
}

func (p product) program() string { return filepath.Base(p.pkg.Program) }

// Farm starts servers, and ends them.
type Farm struct {
	kind string
	host *machine.Host

	mu      sync.Mutex
	sources map[string]func() (source, error) // by product
	shared  map[string]func() ([]string, error)
	anchor  *machine.Container            // whose network the containers share; nil: none yet
	left    []func(context.Context) error // removes what the farm has started for everybody
}

// A source starts programs of a product.
type source interface {
	start(ctx context.Context, dir, program string, args []string) (running, error)
}

// running is a program that has been started: a machine.Container or a machine.Process.
type running interface {
	Failed(ctx context.Context) error
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
	Wait(ctx context.Context) error
	Remove(ctx context.Context) error
}

type containers struct {
	f *Farm
	product
	image machine.Image
}

func (s *containers) start(ctx context.Context, dir, program string, args []string) (running, error) {
	anchor, err := s.dropAnchor(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.image.Start(ctx, machine.Job{Program: program, Args: args, Dir: dir, NotRoot: s.notRoot, Beside: anchor})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dropAnchor starts, once, the container whose network the others share: redistest says why.
func (s *containers) dropAnchor(ctx context.Context) (_ *machine.Container, err error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.anchor == nil && s.idle != nil {
		s.f.anchor, err = s.image.Start(ctx, machine.Job{Program: s.idle[0], Args: s.idle[1:], Stdin: true})
	}
	return s.f.anchor, err
}

type processes struct {
	bin     string
	notRoot bool
}

func (s processes) start(_ context.Context, dir, program string, args []string) (running, error) {
	p := &machine.Process{Program: filepath.Join(s.bin, program), Args: args, Dir: dir, NotRoot: s.notRoot}
	if err := p.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// source is the product's, which is chosen once.
func (f *Farm) source(ctx context.Context, p product) (source, error) {
	f.mu.Lock()
	choose, known := f.sources[p.name]
	if !known {
		choose = sync.OnceValues(func() (source, error) { return f.choose(context.WithoutCancel(ctx), p) })
		f.sources[p.name] = choose
	}
	f.mu.Unlock()
	return choose()
}

// choose takes the first that is available, and does the slow work that comes before a first server.
func (f *Farm) choose(ctx context.Context, p product) (source, error) {
	unpack := sync.OnceValues(func() (string, error) { return f.host.Unpack(ctx, p.pkg) })
	engine := sync.OnceValues(func() (*machine.Engine, error) {
		e, err := machine.OpenEngine(ctx)
		if err == nil && !e.HostNet {
			err = errors.New("the engine's containers do not share this machine's network")
		}
		return e, err
	})
	container := func(get func(*machine.Image) error) func() (source, string, error) {
		return func() (source, string, error) {
			e, err := engine()
			if err != nil {
				return nil, "", err
			}
			s := &containers{f, p, machine.Image{Host: f.host, Engine: e}}
			err = get(&s.image)
			return s, "Docker container, image " + s.image.Name, err
		}
	}
	local := func(find func() (bin string, err error)) func() (source, string, error) {
		return func() (source, string, error) {
			if !machine.HaveProcesses {
				return nil, "", errors.ErrUnsupported
			}
			bin, err := find()
			return processes{bin, p.notRoot}, "local process, " + filepath.Join(bin, p.program()), err
		}
	}
	var failed []string
	for _, way := range []struct {
		kind string
		open bool
		try  func() (source, string, error)
	}{
		{docker, p.image != "", container(func(i *machine.Image) error { return i.Look(p.image) })},
		{docker, true, container(func(i *machine.Image) error { return i.Look(p.pkg.Image()) })},
		{docker, p.image != "", container(func(i *machine.Image) error { return i.Pull(ctx, p.image, machine.RegistryLimit) })},
		{docker, true, container(func(i *machine.Image) error { return i.Build(ctx, p.pkg, unpack) })},
		{process, true, local(p.installed)},
		{process, true, local(func() (string, error) {
			dir, err := unpack()
			return p.pkg.Bin(dir), err
		})},
	} {
		if !way.open || f.kind != "" && f.kind != way.kind {
			continue
		}
		s, what, err := way.try()
		if err == nil {
			fmt.Printf("%s: %s\n", p.name, what)
			return s, nil
		}
		if why := strings.Join(strings.Fields(err.Error()), " "); !slices.Contains(failed, why) {
			failed = append(failed, why)
		}
	}
	if f.kind == byUser {
		failed = append(failed, "given servers are not ours to start or to break")
	}
	return nil, fmt.Errorf("%s: %w: %s", p.name, ErrUnavailable, strings.Join(failed, "; "))
}

// installed finds the folder of the product's programs.
func (p product) installed() (bin string, err error) {
	program, err := exec.LookPath(p.program())
	for _, place := range p.places {
		if found, _ := filepath.Glob(filepath.Join(place, p.program())); len(found) > 0 {
			program, err = found[len(found)-1], nil
		}
	}
	return filepath.Dir(program), err
}

// A Server is one server, to break. Freeze and Thaw stop it and let it go on, with all of its processes. Kill ends it, and Restart
// starts it again on its data; see Ready. Its methods are called one at a time.
type Server struct {
	Addr string // host:port, which stays over a restart

	running
	dir     string
	release []func() // gives ports back
	answers func(ctx context.Context, addr string) bool
}

// prepare makes a server's directory, and reserves ports for it.
func (f *Farm) prepare(ports int, answers func(ctx context.Context, addr string) bool) (s *Server, reserved []int, err error) {
	s = &Server{answers: answers}
	for range ports {
		port, release, err := f.host.ReservePort()
		if err != nil {
			return nil, nil, errors.Join(err, s.Stop(context.Background()))
		}
		reserved, s.release = append(reserved, port), append(s.release, release)
	}
	s.Addr = machine.Loopback + ":" + strconv.Itoa(reserved[0])
	if s.dir, err = f.host.NewDir(); err != nil {
		return nil, nil, errors.Join(err, s.Stop(context.Background()))
	}
	return s, reserved, nil
}

// run runs a program in the server's directory, which must succeed.
func (s *Server) run(ctx context.Context, from source, program string, args ...string) error {
	r, err := from.start(ctx, s.dir, program, args)
	if err == nil {
		err = errors.Join(r.Wait(ctx), r.Remove(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// Ready waits until the server answers.
func (s *Server) Ready(ctx context.Context) error {
	limit, cancel := context.WithTimeoutCause(ctx, machine.StartLimit, fmt.Errorf("%s does not answer within %v", s.Addr, machine.StartLimit))
	defer cancel()
	return machine.Poll(limit, func() (bool, error) {
		once, cancel := context.WithTimeout(limit, 5*time.Second)
		defer cancel()
		if s.answers(once, s.Addr) {
			return true, nil
		}
		return false, s.Failed(limit)
	})
}

// Stop ends the server, and removes what it has left.
func (s *Server) Stop(ctx context.Context) (err error) {
	if s.running != nil {
		err = s.Remove(ctx)
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	for _, release := range s.release {
		release()
	}
	return err
}

// ReservePort finds a free port of this machine, which nobody else gets until release.
func (f *Farm) ReservePort() (port int, release func(), err error) { return f.host.ReservePort() }

// share starts a product's servers for everybody, once. A server that the environment names is taken as it is.
func (f *Farm) share(ctx context.Context, name, env string, start func(context.Context) ([]*Server, []string, error)) ([]string, error) {
	if named := os.Getenv(env); named != "" && cmp.Or(f.kind, byUser) == byUser {
		return []string{named}, nil
	}
	f.mu.Lock()
	get, known := f.shared[name]
	if !known {
		get = sync.OnceValues(func() ([]string, error) {
			servers, urls, err := start(context.WithoutCancel(ctx))
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, s := range servers {
				f.left = append(f.left, s.Stop)
			}
			return urls, err
		})
		f.shared[name] = get
	}
	f.mu.Unlock()
	return get()
}

// Open opens a farm. Progress of slow work goes to log; nil: nowhere.
func Open(log io.Writer) (*Farm, error) {
	kind := os.Getenv("STORE_KIND")
	if !slices.Contains([]string{"", byUser, docker, process}, kind) {
		return nil, fmt.Errorf("storetest: STORE_KIND=%q is not known: allowed are given, docker, process, or unset for the first that is available", kind)
	}
	host, err := machine.NewHost(os.Getenv("REDIS_CACHE_DIR"), log)
	if err != nil {
		return nil, fmt.Errorf("storetest: %w", err)
	}
	return &Farm{kind: kind, host: host, sources: map[string]func() (source, error){}, shared: map[string]func() ([]string, error){}}, nil
}

// Close ends the shared servers.
func (f *Farm) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), machine.StartLimit)
	defer cancel()
	var err error
	for _, end := range f.left {
		err = errors.Join(err, end(ctx))
	}
	if f.anchor != nil {
		err = errors.Join(err, f.anchor.Remove(ctx))
	}
	return errors.Join(err, f.host.Close())
}

// forTests is the farm that Main opened.
var forTests atomic.Pointer[Farm]

// Main is the body of a TestMain. It runs the tests, ends all servers, and exits.
func Main(m *testing.M) { os.Exit(Tests{m}.Run()) }

// Tests are those of a package that also needs servers of Redis: redistest.Main(storetest.Tests{M: m}).
type Tests struct{ *testing.M }

// Run runs the tests, ends all servers of this package, and returns the exit status.
func (t Tests) Run() int {
	f, err := Open(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	forTests.Store(f)
	code := t.M.Run()
	if err := f.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// ForTests is the farm that Main opened.
func ForTests(t testing.TB) *Farm {
	t.Helper()
	f := forTests.Load()
	if f == nil {
		t.Fatal("storetest: this package needs func TestMain(m *testing.M) { storetest.Main(m) }")
	}
	// go test has not seen that Main read it, and would take results on other servers from its cache.
	os.Getenv("STORE_KIND")
	return f
}

// must ends the test, unless err is nil: it skips the test for what is not available, unless a kind was demanded.
func (f *Farm) must(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrUnavailable) && f.kind == "":
		t.Skipf("NOT PROVEN: what %s is about: %v", t.Name(), err)
	default:
		t.Fatal(err)
	}
}

// endWith ends servers with the test.
func endWith(t testing.TB, servers ...*Server) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), machine.StartLimit)
		defer cancel()
		for _, s := range servers {
			if err := s.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
	})
}

// Given is the environment by which a child process uses the servers that a variable of this package names, and no others.
func Given(env, value string) []string { return []string{env + "=" + value, "STORE_KIND=" + byUser} }
