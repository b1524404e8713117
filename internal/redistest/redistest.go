// Package redistest provides Redis servers to test against and to break: real
// ones wherever the machine allows it. It is used by tests and by the command
// line tool, so only the helpers in testing.go know about the testing package.
//
// The most real server that can be had is chosen, in this order:
//
//  1. the servers named by REDIS_ADDRS, used as they are;
//  2. containers of the image REDIS_IMAGE, already here or pulled;
//  3. containers of an image built on the spot from the distribution's
//     packages, for machines that reach no registry;
//  4. local processes: redis-server on PATH, or the same unpacked packages;
//  5. the embedded miniredis, which proves little and says so.
//
// What was named is never replaced by something else; where it cannot be had, the
// choice fails:
//
//	REDIS_ADDRS=host:port[,…]   these servers, or redis://[user:password@]host:port[/database]
//	REDIS_KIND=docker           this kind: given, docker, process or embedded
//	REDIS_SERVER=valkey-9.1     this server, from its official image (valkey/valkey:9.1)
//	                            or, where no registry answers, from Debian's packages, for
//	                            the versions that these have (see Editions)
//	REDIS_IMAGE=redis:8-alpine  containers of this image
//	REDIS_PACKAGE=redis-server@trixie
//	                            this package[@suite], in a container or as a process
//	REDIS_CACHE_DIR=/some/dir   where unpacked packages are kept; else in the user's cache
//
// REDIS_SERVER goes with REDIS_KIND: a container or a process of it. With REDIS_ADDRS,
// REDIS_IMAGE or REDIS_PACKAGE it says what these must turn out to be: a server that
// is another one than REDIS_SERVER names is an error, however it was come by.
//
// Containers, processes and directories also go away when their owner is killed
// (see reaper.go). Should the reaper itself be killed, the containers are found by
// their label:
//
//	docker ps -a --filter label=io.github.lockstrategies.redistest
package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// Kind is a way of having a Redis server.
type Kind string

const (
	Given    Kind = "given"    // somebody else's servers, named by REDIS_ADDRS
	Docker   Kind = "docker"   // containers
	Process  Kind = "process"  // processes of this machine
	Embedded Kind = "embedded" // miniredis, inside this process
)

// DefaultImage is what containers run when nothing else is named. It is the version
// that Debian bookworm packages, so that both ways to a container agree.
const DefaultImage = "redis:7.0"

// DefaultPackage is what is built where no registry answers.
const DefaultPackage = "redis-server"

var (
	// ErrImpossible is wrapped by what this kind of server cannot do, however often it
	// is asked: a test that gets it has proven nothing and should say so.
	ErrImpossible = errors.New("impossible with this kind of Redis")
	// ErrClosed is returned once the farm, or the server, is closed.
	ErrClosed = errors.New("redistest: closed")
)

// Want says which servers are wanted. The zero value takes the most real ones.
type Want struct {
	Kind    Kind      // "": any
	Addrs   []string  // host:port or redis:// URLs of servers to use
	Server  string    // product-version, such as valkey-9.1; "": any
	Image   string    // "": Server's, or DefaultImage, or a built one
	Package string    // package[@suite]; "": Server's, or DefaultPackage of the host's suite
	Cache   string    // "": locks-redistest in the user's cache directory
	Log     io.Writer // progress of slow work; nil: none
}

// FromEnv reads REDIS_ADDRS, REDIS_KIND, REDIS_SERVER, REDIS_IMAGE, REDIS_PACKAGE
// and REDIS_CACHE_DIR; progress goes to the standard error.
func FromEnv() (Want, error) {
	w := Want{
		Kind:    Kind(strings.TrimSpace(os.Getenv("REDIS_KIND"))),
		Server:  strings.TrimSpace(os.Getenv("REDIS_SERVER")),
		Image:   strings.TrimSpace(os.Getenv("REDIS_IMAGE")),
		Package: strings.TrimSpace(os.Getenv("REDIS_PACKAGE")),
		Cache:   os.Getenv("REDIS_CACHE_DIR"),
		Log:     os.Stderr,
	}
	for a := range strings.SplitSeq(os.Getenv("REDIS_ADDRS"), ",") {
		if a = strings.TrimSpace(a); a != "" {
			w.Addrs = append(w.Addrs, a)
		}
	}
	return w, w.check()
}

func (w Want) check() error {
	switch w.Kind {
	case "", Given, Docker, Process, Embedded:
	default:
		return fmt.Errorf("redistest: REDIS_KIND=%q is not known: allowed are %s, %s, %s, %s, or unset for the most real one",
			string(w.Kind), Given, Docker, Process, Embedded)
	}
	if w.Kind == Given && len(w.Addrs) == 0 {
		return errors.New("redistest: REDIS_KIND=given, but REDIS_ADDRS names no server: set it to host:port[,host:port…], or unset REDIS_KIND")
	}
	for _, a := range w.Addrs {
		if _, err := serverURL(a); err != nil {
			return err
		}
	}
	if _, err := parseEdition(w.Server); err != nil {
		return err
	}
	_, err := parsePackage(w.Package)
	return err
}

// edition is the Server that is wanted. It was checked.
func (w Want) edition() edition {
	e, _ := parseEdition(w.Server)
	return e
}

// packageName is what is unpacked. "": the default.
func (w Want) packageName() string { return cmp.Or(w.Package, w.edition().pkg()) }

// step is one way to a server; several steps can lead to the same kind.
type step int

const (
	givenServers step = iota
	imageContainer
	builtContainer
	pathProcess
	unpackedProcess
	embeddedServer
)

// plan lists the ways worth trying, in order, and why those before them are not.
func plan(w Want) (steps []step, notes []string) {
	if len(w.Addrs) == 0 {
		notes = append(notes, "no REDIS_ADDRS")
	} else if w.Kind == "" || w.Kind == Given {
		return []step{givenServers}, nil
	} else {
		notes = append(notes, "REDIS_ADDRS passed over")
	}
	docker := []step{imageContainer, builtContainer}
	process := []step{pathProcess, unpackedProcess}
	e := w.edition()
	switch {
	case w.Image != "" && w.Package != "":
		process = process[1:] // a server on PATH is not the package that was named
	case w.Image != "":
		docker = docker[:1]
	case w.Package != "":
		docker, process = docker[1:], process[1:]
	case e != edition{} && e.pkg() == "":
		docker, process = docker[:1], nil // no package has it, and who knows what is on PATH
	case e != edition{}:
		process = process[1:]
	}
	if w.Kind != "" {
		notes = append(notes, "REDIS_KIND="+string(w.Kind))
	}
	if w.Server != "" {
		notes = append(notes, "REDIS_SERVER="+w.Server)
	}
	switch w.Kind {
	case Docker:
		return docker, notes
	case Process:
		return process, notes
	case Embedded:
		return []step{embeddedServer}, notes
	}
	switch {
	case w.Package != "", w.Image == "" && w.Server != "":
		return slices.Concat(docker, process), notes
	case w.Image != "":
		return docker, notes
	}
	return slices.Concat(docker, process, []step{embeddedServer}), notes
}

// source is one way of having servers that was found to be open.
type source interface {
	kind() Kind
	describe() string // for the choice line
	// prepare does the slow work: pull, build. It is called until it succeeds once.
	prepare(ctx context.Context, log io.Writer) error
	// start starts a server without waiting until it answers.
	start(ctx context.Context, c Config) (machine, error)
}

// walk tries steps until one is open. It returns what is left of them, and the
// notes extended by why the others are closed.
func walk(ctx context.Context, steps []step, notes []string, probe func(context.Context, step) (source, error)) (source, []step, []string, error) {
	for i, st := range steps {
		src, err := probe(ctx, st)
		if err == nil {
			return src, steps[i+1:], notes, nil
		}
		if ctx.Err() != nil {
			return nil, nil, notes, context.Cause(ctx)
		}
		notes = note(notes, err)
	}
	return nil, nil, notes, fmt.Errorf("redistest: no Redis to be had (%s). Ways out: name servers that you have in REDIS_ADDRS; "+
		"run a Docker engine that has, or can pull, an image of Redis; install redis-server; "+
		"or unset REDIS_KIND, REDIS_SERVER, REDIS_IMAGE and REDIS_PACKAGE to take what there is", strings.Join(notes, "; "))
}

// note adds a reason, in one line, unless the step before failed for the same one.
func note(notes []string, err error) []string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if r := []rune(s); len(r) > 240 {
		s = string(r[:120]) + " … " + string(r[len(r)-110:])
	}
	if slices.Contains(notes, s) {
		return notes
	}
	return append(notes, s)
}

// Farm starts servers of the chosen kind and ends them.
type Farm struct {
	want  Want
	cache cache
	log   io.Writer

	fleeting bool // the cache ends with us

	preparing sync.Mutex // held during slow work; taken before mu
	sharing   sync.Mutex // held while the shared servers start; taken before preparing
	choosing  sync.Mutex // held while a farm of another edition is opened; taken before preparing

	mu       sync.Mutex
	src      source
	rest     []step
	notes    []string
	prepared bool
	closed   bool
	engine   *engine // found by the first step that needs one
	engErr   error
	fetchErr error // what the packages could not be had for; no use to try again
	reaper   *reaper
	dir      string // parent of the processes' directories
	servers  map[*Server]bool
	shared   []*Server
	others   map[string]other // by edition
}

// An other is a farm of another edition, or why there is none.
type other struct {
	farm *Farm
	err  error
}

// Open chooses. It looks and asks, for seconds at the most, but pulls, builds and
// starts nothing yet, so that the choice can be printed before the slow work.
func Open(ctx context.Context, w Want) (*Farm, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	f := &Farm{want: w, log: w.Log, servers: map[*Server]bool{}}
	if f.log == nil {
		f.log = io.Discard
	}
	var err error
	if f.cache, f.fleeting, err = openCache(w.Cache); err != nil {
		return nil, err
	}
	steps, notes := plan(w)
	f.src, f.rest, f.notes, err = walk(ctx, steps, notes, f.probe)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// probe finds out whether a way is open.
func (f *Farm) probe(ctx context.Context, st step) (source, error) {
	switch st {
	case givenServers:
		return openGiven(ctx, f.want.Addrs, f.want.edition())
	case imageContainer, builtContainer:
		if f.engine == nil && f.engErr == nil {
			f.engine, f.engErr = openEngine(ctx)
		}
		if f.engErr != nil {
			return nil, f.engErr
		}
		if st == imageContainer {
			return openImage(ctx, f, f.want.Image)
		}
		return openBuilt(ctx, f, f.want.packageName())
	case pathProcess:
		return openPath(ctx, f)
	case unpackedProcess:
		return openUnpacked(ctx, f, f.want.packageName())
	default:
		return embeddedSource{}, nil
	}
}

// Choice is one line that says what was chosen and why. Prepare may find out more
// (a version) and, when the chosen way turns out to be closed, something else.
func (f *Farm) Choice() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := "redis: " + f.src.describe()
	if len(f.notes) > 0 {
		line += " (" + strings.Join(f.notes, "; ") + ")"
	}
	return line
}

// Kind is what was chosen.
func (f *Farm) Kind() Kind {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.src.kind()
}

// Prepare does the slow work that starting a server would otherwise do: it pulls or
// builds the image. When that fails, the next way is taken, if what was asked for allows
// one, and its choice line is logged.
func (f *Farm) Prepare(ctx context.Context) error {
	f.preparing.Lock()
	defer f.preparing.Unlock()
	for {
		f.mu.Lock()
		src, done, closed := f.src, f.prepared, f.closed
		f.mu.Unlock()
		if closed {
			return ErrClosed
		}
		if done {
			return nil
		}
		err := src.prepare(ctx, f.log)
		if err == nil {
			f.mu.Lock()
			f.prepared = true
			f.mu.Unlock()
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("redistest: preparing %s: %w", src.kind(), errors.Join(err, context.Cause(ctx)))
		}
		next, rest, notes, werr := walk(ctx, f.rest, note(f.notes, err), f.probe)
		if werr != nil {
			return werr
		}
		f.mu.Lock()
		f.src, f.rest, f.notes = next, rest, notes
		f.mu.Unlock()
		fmt.Fprintln(f.log, f.Choice())
	}
}

// Shared is one server for everybody, started on first use. Others' keys are on it,
// and it cannot be broken.
func (f *Farm) Shared(ctx context.Context) (*Server, error) {
	s, err := f.Nodes(ctx, 1)
	if err != nil {
		return nil, err
	}
	return s[0], nil
}

// Nodes are n independent servers for everybody, the first being Shared's.
func (f *Farm) Nodes(ctx context.Context, n int) ([]*Server, error) {
	f.sharing.Lock()
	defer f.sharing.Unlock()
	f.mu.Lock()
	have, src := len(f.shared), f.src
	f.mu.Unlock()
	if g, ok := src.(*givenSource); ok && n > len(g.urls) {
		return nil, fmt.Errorf("redistest: %d servers wanted, REDIS_ADDRS names %d: %w", n, len(g.urls), ErrImpossible)
	}
	if have < n {
		if err := f.Prepare(ctx); err != nil {
			return nil, err
		}
		// Containers take a second to start, and do so side by side.
		started, errs := make([]*Server, n), make([]error, n)
		var wg sync.WaitGroup
		for i := have; i < n; i++ {
			wg.Go(func() { started[i], errs[i] = f.launch(ctx, Config{}, i) })
		}
		wg.Wait()
		// After one that failed none is kept, since its place is what the next call fills.
		f.mu.Lock()
		for i := have; i < n && errs[i] == nil; i++ {
			f.shared = append(f.shared, started[i])
		}
		kept := len(f.shared)
		for _, s := range started[kept:] {
			delete(f.servers, s)
		}
		f.mu.Unlock()
		for _, s := range started[kept:] {
			if s != nil {
				errs = append(errs, s.end())
			}
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	return slices.Clone(f.shared[:n]), nil
}

// AtMost is Nodes, or fewer where fewer are given.
func (f *Farm) AtMost(ctx context.Context, n int) ([]*Server, error) {
	f.mu.Lock()
	g, ok := f.src.(*givenSource)
	f.mu.Unlock()
	if ok {
		n = min(n, len(g.urls))
	}
	return f.Nodes(ctx, n)
}

// Start starts a server of one's own, to break. Given servers are not ours to break:
// the error then wraps ErrImpossible.
func (f *Farm) Start(ctx context.Context, c Config) (*Server, error) {
	if f.Kind() == Given {
		return nil, fmt.Errorf("redistest: the servers of REDIS_ADDRS are shared, and none of them is ours to break: %w; unset REDIS_ADDRS, or set REDIS_KIND=docker or process", ErrImpossible)
	}
	if err := f.Prepare(ctx); err != nil {
		return nil, err
	}
	return f.launch(ctx, c, -1)
}

// attempts is how many ports are tried before one that is taken is an error.
const attempts = 5

// launch starts a server and waits until it answers. shared is its place among the
// servers for everybody, or -1.
func (f *Farm) launch(ctx context.Context, c Config, shared int) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		s, err := f.launchOnce(ctx, c, shared)
		if err == nil || attempt == attempts || !errors.Is(err, errPortTaken) {
			return s, err
		}
	}
}

func (f *Farm) launchOnce(ctx context.Context, c Config, shared int) (*Server, error) {
	f.mu.Lock()
	src := f.src
	f.mu.Unlock()
	var m machine
	var err error
	if g, ok := src.(*givenSource); ok {
		m = givenMachine(g.urls[shared])
	} else if m, err = src.start(ctx, c); err != nil {
		return nil, err
	}
	s := newServer(f, m, shared >= 0)
	if err := s.ready(ctx); err != nil {
		err = fmt.Errorf("redistest: %s at %s: %w", src.kind(), s.Addr(), err)
		return nil, errors.Join(err, s.end())
	}
	f.mu.Lock()
	what := src.describe()
	f.mu.Unlock()
	if err := f.want.edition().wrong(s.Version(), what); err != nil {
		return nil, errors.Join(err, s.end())
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, errors.Join(ErrClosed, s.end())
	}
	f.servers[s] = true
	f.mu.Unlock()
	return s, nil
}

// Of is a farm of the same kind whose servers are of the edition, for what takes a newer
// one than was chosen. It is opened once, its choice line is logged, and it ends with f.
// Where that cannot be had the error wraps ErrImpossible: given and embedded servers are
// what they are, and a server that was named is not replaced by another.
func (f *Farm) Of(ctx context.Context, edition string) (*Farm, error) {
	o, err := f.of(ctx, edition)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return o, nil
}

func (f *Farm) of(ctx context.Context, edition string) (*Farm, error) {
	f.choosing.Lock()
	defer f.choosing.Unlock()
	f.mu.Lock()
	known, ok := f.others[edition]
	f.mu.Unlock()
	if ok {
		return known.farm, known.err
	}
	if err := f.Prepare(ctx); err != nil { // the kind may change until then
		return nil, err
	}
	if _, err := parseEdition(edition); err != nil {
		return nil, err
	}
	w := Want{Kind: f.Kind(), Server: edition, Cache: f.want.Cache, Log: f.want.Log}
	var why error
	switch named := cmp.Or(f.want.Server, f.want.Image, f.want.Package); {
	case w.Kind == Given, w.Kind == Embedded:
		why = fmt.Errorf("of %s servers there is no other edition: %w; unset REDIS_ADDRS, or set REDIS_KIND=docker or process", w.Kind, ErrImpossible)
	case named != "":
		why = fmt.Errorf("%s was asked for, and is not replaced by %s: %w; unset REDIS_SERVER, REDIS_IMAGE and REDIS_PACKAGE, or name one that is new enough", named, edition, ErrImpossible)
	}
	if why != nil {
		return nil, f.remember(edition, other{err: why})
	}
	o, err := Open(ctx, w)
	if err == nil {
		fmt.Fprintf(f.log, "redis, for what takes %s: %s\n", edition, strings.TrimPrefix(o.Choice(), "redis: "))
		if err = o.Prepare(ctx); err != nil {
			err = errors.Join(err, o.Close())
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err // it may be asked for again
	case err != nil:
		return nil, f.remember(edition, other{err: fmt.Errorf("no %s beside what was chosen: %w: %w", edition, ErrImpossible, err)})
	}
	return o, f.remember(edition, other{farm: o})
}

// Having is the farm, if its servers know the command, or a farm Of the edition, which does.
func (f *Farm) Having(ctx context.Context, command, edition string) (*Farm, error) {
	if err := f.Prepare(ctx); err != nil {
		return nil, err
	}
	if f.Kind() != Embedded {
		s, err := f.Shared(ctx)
		if err != nil {
			return nil, err
		}
		c, err := s.Pool().GetContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("redistest: %s: %w", s.Addr(), err)
		}
		defer c.Close()
		known, err := redis.Values(redis.DoContext(c, ctx, "COMMAND", "INFO", command))
		if err != nil {
			return nil, fmt.Errorf("redistest: %s, asked for %s: %w", s.Addr(), command, err)
		}
		if len(known) == 1 && known[0] != nil {
			return f, nil
		}
	}
	o, err := f.of(ctx, edition)
	if err != nil {
		return nil, fmt.Errorf("redistest: the servers know no %s: %w", command, err)
	}
	return o, nil
}

// remember keeps a farm of another edition until Close.
func (f *Farm) remember(edition string, o other) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		if o.farm != nil {
			return errors.Join(ErrClosed, o.farm.Close())
		}
		return ErrClosed
	}
	if f.others == nil {
		f.others = map[string]other{}
	}
	f.others[edition] = o
	return o.err
}

// ReservePort finds a free port of this machine and keeps it, also while nothing listens
// on it: no other server is given it, nor any outgoing connection, until release.
func (f *Farm) ReservePort() (port int, release func(), err error) { return f.cache.reservePort() }

// keep tells the reaper, starting it if need be, of something that has to go away.
func (f *Farm) keep(what ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if f.reaper == nil {
		r, err := startReaper()
		if err != nil {
			return fmt.Errorf("redistest: the reaper, which would clean up behind a killed process, does not start: %w", err)
		}
		f.reaper = r
	}
	return f.reaper.add(what...)
}

// gone tells the reaper that something is no more.
func (f *Farm) gone(what ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reaper != nil {
		f.reaper.remove(what...)
	}
}

// unpack is the cache's, and remembers that it was in vain.
func (f *Farm) unpack(ctx context.Context, p *distroPkg, log io.Writer) (*unpacked, error) {
	u, err := f.cache.unpack(ctx, p, log)
	if err != nil {
		f.fetchErr = err // Prepare, our only caller, is alone
	}
	return u, err
}

// tempDir is a new directory for one server.
func (f *Farm) tempDir() (string, error) {
	f.mu.Lock()
	dir := f.dir
	f.mu.Unlock()
	if dir == "" {
		d, err := os.MkdirTemp("", "locks-redistest-")
		if err != nil {
			return "", fmt.Errorf("redistest: %w", err)
		}
		if err := f.keep("dir", d); err != nil {
			return "", errors.Join(err, os.RemoveAll(d))
		}
		f.mu.Lock()
		if f.dir == "" {
			f.dir = d
		}
		dir = f.dir
		f.mu.Unlock()
		if dir != d { // somebody was quicker
			os.RemoveAll(d)
			f.gone("dir", d)
		}
	}
	d, err := os.MkdirTemp(dir, "server-")
	if err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	return d, nil
}

// Close ends every server and removes all that was made for them, except what the
// cache keeps: unpacked packages and images.
func (f *Farm) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	servers, r, dir, others := f.servers, f.reaper, f.dir, f.others
	f.servers, f.others = nil, nil
	f.mu.Unlock()

	var wg sync.WaitGroup
	errs := make(chan error, len(servers)+len(others)+3)
	for _, o := range others {
		if o.farm != nil {
			wg.Go(func() { errs <- o.farm.Close() })
		}
	}
	for s := range servers {
		wg.Go(func() { errs <- s.end() })
	}
	wg.Wait()
	if dir != "" {
		errs <- os.RemoveAll(dir)
	}
	if f.fleeting {
		errs <- os.RemoveAll(string(f.cache))
	}
	if r != nil {
		errs <- r.close() // what could not be ended above is tried once more
	}
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// cache is a directory that is shared by all processes of the user.
type cache string

const usualCache = "locks-redistest" // in the user's folder for caches

// openCache creates the directory. Without a home, as a service account may be, it is a
// fleeting one: whatever is found under a known name in a directory that everybody can
// write to may be somebody else's, and programs are run from here.
func openCache(dir string) (c cache, fleeting bool, err error) {
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			if dir, err = os.MkdirTemp("", "locks-redistest-cache-"); err != nil {
				return "", false, fmt.Errorf("redistest: %w", err)
			}
			return cache(dir), true, nil
		}
		dir = filepath.Join(base, usualCache)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", false, fmt.Errorf("redistest: cache directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", false, fmt.Errorf("redistest: cache directory: %w; set REDIS_CACHE_DIR to one that can be written", err)
	}
	return cache(dir), false, nil
}

func (c cache) path(elem ...string) string {
	return filepath.Join(append([]string{string(c)}, elem...)...)
}

// lock waits for the named lock among processes. The kernel gives it back when its
// holder dies, so nothing is ever left locked.
func (c cache) lock(ctx context.Context, name string) (unlock func(), err error) {
	p := c.path(name + ".lock")
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	file, err := os.OpenFile(p, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	// The lock belongs to the open file, so other goroutines are held off as well.
	if err := pollUntil(ctx, func() (bool, error) { return tryLock(file) }); err != nil {
		file.Close()
		return nil, fmt.Errorf("redistest: waiting for %s: %w", p, err)
	}
	return func() { file.Close() }, nil
}
