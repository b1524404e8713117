// Package redistest starts Redis servers to test against and to break: real ones wherever the
// machine allows it. Tests and the command line tool use it, so only testing.go and tls.go know
// about the testing package.
//
// It takes the first of these that is available:
//
//  1. the servers named by REDIS_ADDRS, used as they are;
//  2. containers of the official image, or of one that was built here earlier;
//  3. containers of the image, pulled, or built from Debian's packages where no registry answers;
//  4. local processes: redis-server on PATH, or from the same packages, without installing them;
//  5. the embedded miniredis, which proves little and says so.
//
// What was named is never replaced by something else; where it is not available, the choice
// fails:
//
//	REDIS_ADDRS=host:port[,…]   these servers, or redis://[user:password@]host:port[/database]
//	REDIS_KIND=docker           this kind: given, docker, process or embedded
//	REDIS_SERVER=valkey-9.1     this server, from its official image (valkey/valkey:9.1), or from
//	                            Debian's packages, for the versions that these have (see Editions)
//	REDIS_CACHE_DIR=/some/dir   keeps unpacked packages here; else in the user's cache
//
// REDIS_SERVER goes with REDIS_KIND: a container or a process of it. With REDIS_ADDRS it says
// what these must turn out to be: a server that is another one than REDIS_SERVER names is an error.
//
// Containers, processes and directories also go away when their owner is killed (see
// internal/testkit/machine). If the reaper itself is killed, look for the containers by their label:
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

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// Kind is a way to run a Redis server.
type Kind string

const (
	Given    Kind = "given"    // somebody else's servers, named by REDIS_ADDRS
	Docker   Kind = "docker"   // containers
	Process  Kind = "process"  // processes of this machine
	Embedded Kind = "embedded" // miniredis, in a process of its own
)

var (
	// ErrImpossible is wrapped by what this kind of server cannot do, however often it is asked:
	// a test that gets it has proven nothing and should say so.
	ErrImpossible = errors.New("impossible with this kind of Redis")
	// ErrClosed is returned once the farm, or the server, is closed.
	ErrClosed = errors.New("redistest: closed")
)

// Want says which servers are wanted. The zero value takes the first kind that is available.
type Want struct {
	Kind   Kind      // "": any
	Addrs  []string  // host:port or redis:// URLs of servers to use
	Server string    // product-version, such as valkey-9.1; "": any
	Cache  string    // "": locks-redistest in the user's cache directory
	Log    io.Writer // progress of slow work; nil: none
}

// FromEnv reads REDIS_ADDRS, REDIS_KIND, REDIS_SERVER and REDIS_CACHE_DIR; progress goes to the standard error.
func FromEnv() (Want, error) {
	w := Want{
		Kind:   Kind(strings.TrimSpace(os.Getenv("REDIS_KIND"))),
		Server: strings.TrimSpace(os.Getenv("REDIS_SERVER")),
		Cache:  os.Getenv("REDIS_CACHE_DIR"),
		Log:    os.Stderr,
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
		return fmt.Errorf("redistest: REDIS_KIND=%q is not known: allowed are %s, %s, %s, %s, or unset for the first that is available",
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
	_, err := parseEdition(w.Server)
	return err
}

// edition is the Server that is wanted. It was checked.
func (w Want) edition() edition {
	e, _ := parseEdition(w.Server)
	return e
}

// A way leads to servers; several ways can lead to the same kind.
type way struct {
	name string
	kind Kind
	open bool // what is wanted allows it
	try  func() (source, error)
}

const noAddrs = "no REDIS_ADDRS"

// ways lists those that are worth a try, in order, and what ruled out others.
func (f *Farm) ways(ctx context.Context) (ways []way, notes []string) {
	w := f.want
	if len(w.Addrs) == 0 {
		notes = append(notes, noAddrs)
	} else if w.Kind == "" || w.Kind == Given {
		return []way{{name: "given servers", try: func() (source, error) { return openGiven(ctx, w.Addrs, w.edition()) }}}, nil
	} else {
		notes = append(notes, "REDIS_ADDRS passed over")
	}
	for _, v := range []struct{ name, value string }{{"KIND", string(w.Kind)}, {"SERVER", w.Server}} {
		if v.value != "" {
			notes = append(notes, "REDIS_"+v.name+"="+v.value)
		}
	}

	image := cmp.Or(w.edition().image(), defaultImage)
	p := packageOf(cmp.Or(w.edition().pkg(), defaultPackage))
	named := w.Server != ""
	packaged := !named || w.edition().pkg() != ""
	// The work that several ways need is done once.
	unpack := sync.OnceValues(func() (dir string, err error) { return f.host.Unpack(ctx, p) })
	engine := sync.OnceValues(func() (*machine.Engine, error) { return machine.OpenEngine(ctx) })
	container := func(get func(*machine.Image) error) func() (source, error) {
		return func() (source, error) {
			e, err := engine()
			if err != nil {
				return nil, err
			}
			s := &dockerSource{image: machine.Image{Host: f.host, Engine: e, Command: []string{"redis-server"}}}
			return s, get(&s.image)
		}
	}
	silence := machine.RegistryLimit
	if !packaged {
		silence = namedLimit
	}
	all := []way{
		{"image here", Docker, true, container(func(i *machine.Image) error { return i.Look(image) })},
		{"image built earlier", Docker, packaged, container(func(i *machine.Image) error { return i.Look(p.Image()) })},
		{"image pulled", Docker, true, container(func(i *machine.Image) error { return i.Pull(ctx, image, silence) })},
		{"image built", Docker, packaged, container(func(i *machine.Image) error { return i.Build(ctx, p, unpack) })},
		{"server on PATH", Process, !named, func() (source, error) { return openPath(ctx, f.host) }},
		{"server unpacked", Process, packaged, func() (source, error) {
			dir, err := unpack()
			if err != nil {
				return nil, err
			}
			return openProcess(ctx, f.host, filepath.Join(p.Bin(dir), p.Name))
		}},
		{"server embedded", Embedded, !named || w.Kind == Embedded, func() (source, error) { return embeddedSource{}, nil }},
	}
	return slices.DeleteFunc(all, func(way way) bool { return !way.open || w.Kind != "" && w.Kind != way.kind }), notes
}

// source starts servers of one kind.
type source interface {
	kind() Kind
	describe() string // for the choice line
	// start starts a server without waiting until it answers. place is its place among the
	// servers for everybody, or -1.
	start(ctx context.Context, c Config, place int) (instance, error)
}

// Farm starts servers of the chosen kind and ends them.
type Farm struct {
	want   Want
	host   *machine.Host
	source source
	choice string

	sharing  sync.Mutex // held while the shared servers start
	shared   []*Server
	choosing sync.Mutex // held while a farm of another edition is opened
	others   map[string]other

	mu      sync.Mutex
	closed  bool
	servers map[*Server]bool
}

// An other is a farm of another edition, or why there cannot be one.
type other struct {
	farm *Farm
	err  error
}

// Open chooses, and does the slow work that comes before a first server: it pulls or builds an
// image. It reports slow work to Want.Log.
func Open(ctx context.Context, w Want) (*Farm, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	host, err := machine.NewHost(w.Cache, w.Log)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	f := &Farm{want: w, host: host, others: map[string]other{}, servers: map[*Server]bool{}}
	ways, settings := f.ways(ctx)
	notes := slices.Clone(settings)
	var failed []error
	for _, way := range ways {
		if f.source, err = way.try(); err == nil {
			f.choice = choiceLine(f.source.describe(), settings, failed)
			return f, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("redistest: %s: %w", way.name, errors.Join(err, context.Cause(ctx)))
		}
		if n := oneLine(err); !slices.Contains(notes, n) { // several ways fail for one reason
			notes, failed = append(notes, n), append(failed, err)
		}
	}
	return nil, fmt.Errorf("redistest: no Redis is available (%s). Ways out: name servers that you have in REDIS_ADDRS; "+
		"run a Docker engine that has, or can pull, an image of Redis; install redis-server; "+
		"or unset REDIS_KIND and REDIS_SERVER to take what there is", strings.Join(notes, "; "))
}

// choiceLine says what was chosen, by which settings, and what would have come first but is not available.
// A substitute for an image is no failure, and the line does not sound like one.
func choiceLine(what string, settings []string, failed []error) string {
	line := "redis: " + what
	var over []string
	var image machine.MissingImage // the first, which was to be used
	for _, err := range failed {
		var missing machine.MissingImage
		switch {
		case !errors.As(err, &missing):
			over = append(over, oneLine(err))
		case image == "":
			image = missing
		}
	}
	if image != "" && !strings.Contains(what, string(image)) {
		line += ", in place of image " + string(image)
	}
	notes := slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return s == noAddrs })
	if len(over) > 0 {
		notes = append(notes, "not available: "+strings.Join(over, "; "))
	}
	if len(notes) > 0 {
		line += " (" + strings.Join(notes, "; ") + ")"
	}
	return line
}

// oneLine cuts out the middle of what is too long.
func oneLine(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if r := []rune(s); len(r) > 240 {
		s = string(r[:120]) + " … " + string(r[len(r)-110:])
	}
	return s
}

// Choice is one line that says what was chosen and why.
func (f *Farm) Choice() string { return f.choice }

// Kind is what was chosen.
func (f *Farm) Kind() Kind { return f.source.kind() }

// Program is the server that is started as a process; empty: servers are of another kind.
func (f *Farm) Program() string {
	if s, ok := f.source.(*processSource); ok {
		return s.program
	}
	return ""
}

// Shared is one server for everybody, started on first use. Others' keys are on it, and nobody
// may break it.
func (f *Farm) Shared(ctx context.Context) (*Server, error) {
	s, err := f.Nodes(ctx, 1)
	if err != nil {
		return nil, err
	}
	return s[0], nil
}

// Nodes are n independent servers for everybody, the first being Shared's.
func (f *Farm) Nodes(ctx context.Context, n int) ([]*Server, error) {
	if most := f.fixed(); most > 0 && n > most {
		return nil, fmt.Errorf("redistest: %d servers wanted, REDIS_ADDRS names %d: %w", n, most, ErrImpossible)
	}
	f.sharing.Lock()
	defer f.sharing.Unlock()
	if have := len(f.shared); have < n {
		started, err := f.launchAll(n-have, func(i int) (*Server, error) { return f.launch(ctx, Config{}, have+i) })
		if err != nil {
			return nil, err
		}
		f.shared = append(f.shared, started...)
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
	if most := f.fixed(); most > 0 {
		n = min(n, most)
	}
	return f.Nodes(ctx, n)
}

// fixed is how many servers are given. 0: as many as are started.
func (f *Farm) fixed() int {
	if g, ok := f.source.(*givenSource); ok {
		return len(g.urls)
	}
	return 0
}

// Start starts a server of one's own, to break. Given servers are not ours to break: the error
// then wraps ErrImpossible.
func (f *Farm) Start(ctx context.Context, c Config) (*Server, error) { return f.launch(ctx, c, -1) }

// StartAll starts n servers of one's own, side by side, or none.
func (f *Farm) StartAll(ctx context.Context, n int, c Config) ([]*Server, error) {
	return f.launchAll(n, func(int) (*Server, error) { return f.Start(ctx, c) })
}

// launchAll launches n servers, side by side, or none.
func (f *Farm) launchAll(n int, launch func(i int) (*Server, error)) ([]*Server, error) {
	started, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { started[i], errs[i] = launch(i) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return started, nil
	}
	for _, s := range started {
		if s != nil {
			err = errors.Join(err, s.end())
		}
	}
	return nil, err
}

// attempts is how many ports are tried before one that is taken is an error.
const attempts = 5

// launch starts a server and waits until it answers.
func (f *Farm) launch(ctx context.Context, c Config, place int) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		s, err := f.launchOnce(ctx, c, place)
		if err == nil || attempt == attempts || !errors.Is(err, machine.ErrPortTaken) {
			return s, err
		}
	}
}

func (f *Farm) launchOnce(ctx context.Context, c Config, place int) (*Server, error) {
	m, err := f.source.start(ctx, c, place)
	if err != nil {
		return nil, err
	}
	s := newServer(f, m, place >= 0)
	if err := s.ready(ctx); err != nil {
		err = fmt.Errorf("redistest: %s at %s: %w", f.Kind(), s.Addr(), err)
		return nil, errors.Join(err, s.end())
	}
	if err := f.want.edition().wrong(s.Version(), f.source.describe()); err != nil {
		return nil, errors.Join(err, s.end())
	}
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.servers[s] = true
	}
	f.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, s.end())
	}
	return s, nil
}

// Of is a farm of the same kind whose servers are of the edition, for what takes a newer one
// than was chosen. It is opened once, its choice line is logged, and it ends with f. Where that
// cannot be, the error wraps ErrImpossible: given and embedded servers are what they are, and a
// server that was named is not replaced by another.
func (f *Farm) Of(ctx context.Context, edition string) (*Farm, error) {
	if _, err := parseEdition(edition); err != nil {
		return nil, err
	}
	f.choosing.Lock()
	defer f.choosing.Unlock()
	if o, known := f.others[edition]; known {
		return o.farm, o.err
	}
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	farm, err := f.openOther(ctx, edition)
	if err != nil && ctx.Err() != nil {
		return nil, err // it may be asked for again
	}
	f.others[edition] = other{farm, err}
	return farm, err
}

func (f *Farm) openOther(ctx context.Context, edition string) (*Farm, error) {
	if k := f.Kind(); k == Given || k == Embedded {
		return nil, fmt.Errorf("redistest: of %s servers there is no other edition: %w; unset REDIS_ADDRS, or set REDIS_KIND=docker or process", k, ErrImpossible)
	}
	if named := f.want.Server; named != "" {
		return nil, fmt.Errorf("redistest: %s was asked for, and is not replaced by %s: %w; unset REDIS_SERVER, or name one that is new enough",
			named, edition, ErrImpossible)
	}
	o, err := Open(ctx, Want{Kind: f.Kind(), Server: edition, Cache: f.want.Cache, Log: f.want.Log})
	if err != nil {
		return nil, fmt.Errorf("redistest: no %s next to what was chosen: %w: %w", edition, ErrImpossible, err)
	}
	fmt.Fprintf(f.host.Log, "redis, for what takes %s: %s\n", edition, strings.TrimPrefix(o.Choice(), "redis: "))
	return o, nil
}

// Having is the farm, if its servers know one of the commands, or a farm Of the edition, which does.
func (f *Farm) Having(ctx context.Context, edition string, commands ...string) (*Farm, error) {
	s, err := f.Shared(ctx)
	if err != nil {
		return nil, err
	}
	if known, err := s.Knows(ctx, commands...); err != nil || known {
		return f, err
	}
	o, err := f.Of(ctx, edition)
	if err != nil {
		return nil, fmt.Errorf("redistest: the servers know no %s: %w", strings.Join(commands, " or "), err)
	}
	return o, nil
}

// Close ends every server and removes all that was made for them, except what the cache keeps:
// unpacked packages and images.
func (f *Farm) Close() error {
	f.mu.Lock()
	f.closed = true
	servers := f.servers
	f.servers = nil
	f.mu.Unlock()
	f.choosing.Lock()
	defer f.choosing.Unlock()

	var wg sync.WaitGroup
	errs := make(chan error, len(servers)+len(f.others)+1)
	for _, o := range f.others {
		if o.farm != nil {
			wg.Go(func() { errs <- o.farm.Close() })
		}
	}
	for s := range servers {
		wg.Go(func() { errs <- s.end() })
	}
	wg.Wait()
	if s, ok := f.source.(*dockerSource); ok {
		errs <- s.weighAnchor()
	}
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return errors.Join(all, f.host.Close())
}

// ReservePort finds a free port of this machine, which nobody else gets until release.
func (f *Farm) ReservePort() (port int, release func(), err error) { return f.host.ReservePort() }
