package redistest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// label is on every container; its value is the process that owns it.
const label = "io.github.lockstrategies.redistest"

// repository is where images built here are kept, out of the way of any real one's.
const repository = "locks-redistest"

const (
	engineLimit   = 5 * time.Second // for an engine to answer at all
	registryLimit = 4 * time.Second // for a registry to answer the engine
	pullLimit     = 10 * time.Minute
	// registryMemory is how long "no registry" is believed, so that the many test
	// binaries of one run need not all wait for it.
	registryMemory = 10 * time.Minute
)

// engine is a Docker engine that answers.
type engine struct {
	client *docker.Client
	pool   *dockertest.Pool
	// hostNet: containers share this machine's network. Docker's port proxy distorts
	// timing, and accepts connections for a server that is dead, so that tests of
	// refused connections would see something else.
	hostNet bool
	host    string // where published ports are reached
}

// dockerPool connects to where DOCKER_HOST and its like say, or to the usual sockets.
func dockerPool() (*dockertest.Pool, error) {
	endpoint := ""
	if os.Getenv("DOCKER_HOST")+os.Getenv("DOCKER_URL")+os.Getenv("DOCKER_MACHINE_NAME") == "" && runtime.GOOS != "windows" {
		sockets := []string{"/var/run/docker.sock"}
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			sockets = append(sockets, filepath.Join(dir, "docker.sock")) // rootless
		}
		if home, err := os.UserHomeDir(); err == nil {
			sockets = append(sockets, filepath.Join(home, ".docker", "run", "docker.sock")) // Docker Desktop
		}
		if i := slices.IndexFunc(sockets, exists); i >= 0 {
			endpoint = "unix://" + sockets[i]
		}
	}
	return dockertest.NewPool(endpoint)
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

func openEngine(ctx context.Context) (*engine, error) {
	pool, err := dockerPool()
	if err != nil {
		return nil, fmt.Errorf("no Docker engine: %w", err)
	}
	e := &engine{client: pool.Client, pool: pool, host: loopback}
	limit, cancel := context.WithTimeoutCause(ctx, engineLimit, fmt.Errorf("no answer within %v", engineLimit))
	defer cancel()
	if err := e.client.PingWithContext(limit); err != nil {
		if limit.Err() != nil {
			err = context.Cause(limit)
		}
		return nil, fmt.Errorf("no Docker engine at %s: %w", e.client.Endpoint(), err)
	}
	info, err := within(limit, e.client.Info)
	if err != nil {
		return nil, fmt.Errorf("no Docker engine at %s: %w", e.client.Endpoint(), err)
	}
	if info.OSType != "linux" {
		return nil, fmt.Errorf("the Docker engine runs %s containers, not Linux ones", info.OSType)
	}
	u, err := url.Parse(e.client.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("no Docker engine: %w", err)
	}
	if local := u.Scheme == "unix" || u.Scheme == "npipe"; local {
		name, err := os.Hostname()
		// An engine in a virtual machine or a user name space has another network, and
		// so has one whose socket was mounted into the container that we run in.
		e.hostNet = err == nil && runtime.GOOS == "linux" && name == info.Name &&
			!strings.Contains(info.OperatingSystem, "Docker Desktop") &&
			!slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") })
	} else if h := u.Hostname(); h != "" {
		e.host = h
	}
	return e, nil
}

// within bounds a call that takes no context. The call itself ends when the engine
// answers it, or hangs up.
func within[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := call()
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}

// dockerSource has containers of one image.
type dockerSource struct {
	f     *Farm
	e     *engine
	image string     // to run; "": spec is to be built first
	spec  *distroPkg // what it was built from; nil: somebody else built it
	pull  bool       // it is not here yet
	what  string     // for the choice line
	cmd   []string   // what runs redis-server in the image; set by look, as is
	// where it starts, and so keeps its files
	workDir string

	anchoring sync.Mutex
	anchor    string // the container whose network the others share; "": none yet
}

func (*dockerSource) kind() Kind         { return Docker }
func (s *dockerSource) describe() string { return s.what }

// openImage takes the named image, or that of the wanted server, or the default one,
// from here or from its registry.
func openImage(ctx context.Context, f *Farm, named string) (source, error) {
	s := &dockerSource{f: f, e: f.engine, image: cmp.Or(named, f.want.edition().image(), DefaultImage)}
	version, err := s.look(ctx)
	switch {
	case err == nil:
		s.what = fmt.Sprintf("Docker container, %simage %s", version, s.image)
		return s, nil
	case !errors.Is(err, docker.ErrNoSuchImage):
		return nil, err
	case named == "":
		// There is something else to fall back on, so find out fast.
		if err := s.askRegistry(ctx); err != nil {
			return nil, err
		}
	}
	s.pull = true
	s.what = fmt.Sprintf("Docker container, image %s, to be pulled now", s.image)
	return s, nil
}

// look finds the image here, and what it runs. version ends in a comma and a space.
func (s *dockerSource) look(ctx context.Context) (version string, err error) {
	limit, cancel := context.WithTimeoutCause(ctx, engineLimit, fmt.Errorf("no answer within %v", engineLimit))
	defer cancel()
	img, err := within(limit, func() (*docker.Image, error) { return s.e.client.InspectImage(s.image) })
	if err != nil {
		return "", fmt.Errorf("image %s: %w", s.image, err)
	}
	s.cmd = []string{"redis-server"}
	if img.Config == nil {
		return "", nil
	}
	s.workDir = img.Config.WorkingDir
	switch {
	case len(img.Config.Cmd) > 0:
		s.cmd = img.Config.Cmd[:1] // redis-server, or valkey-server
	case len(img.Config.Entrypoint) > 0:
		s.cmd = nil // it is the server
	}
	for _, env := range img.Config.Env {
		for _, product := range []string{"Redis", "Valkey"} {
			if v, ok := strings.CutPrefix(env, strings.ToUpper(product)+"_VERSION="); ok {
				return product + " " + v + ", ", nil
			}
		}
	}
	return "", nil
}

// noRegistry is what is remembered of a registry that did not answer.
type noRegistry struct {
	Engine, Image, Why string
	At                 time.Time
}

// askRegistry lets the engine ask the registry for the image, without pulling it.
func (s *dockerSource) askRegistry(ctx context.Context) error {
	file := s.f.cache.path("no-registry.json")
	var known noRegistry
	if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &known) == nil {
		age := time.Since(known.At)
		if known.Engine == s.e.client.Endpoint() && known.Image == s.image && age >= 0 && age < registryMemory {
			return errors.New(known.Why)
		}
	}
	limit, cancel := context.WithTimeoutCause(ctx, registryLimit, fmt.Errorf("nothing within %v", registryLimit))
	defer cancel()
	_, err := within(limit, func() (any, error) { return s.e.client.InspectDistribution(s.image) })
	if err == nil {
		os.Remove(file) // if any; it would be too old to be believed anyway
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var answer *docker.Error
	why := err.Error()
	if errors.As(err, &answer) {
		why = answer.Message
	}
	// The last words say it: "no such host". What is before them is for the network's
	// engineers, and too long for the one line.
	why = strings.TrimSpace(why[strings.LastIndex(why, ": ")+1:])
	known = noRegistry{Engine: s.e.client.Endpoint(), Image: s.image, At: time.Now(),
		Why: fmt.Sprintf("no registry answered for %s: %s", s.image, why)}
	if b, err := json.Marshal(known); err == nil {
		_ = writeFile(file, b) // not remembering costs the next one some seconds
	}
	return errors.New(known.Why)
}

// writeFile replaces the file at once, for readers in other processes.
func writeFile(name string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".tmp-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return os.Rename(tmp.Name(), name)
}

// openBuilt takes an image built from the distribution's package, earlier or later.
func openBuilt(ctx context.Context, f *Farm, name string) (source, error) {
	spec, err := resolvePackage(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &dockerSource{f: f, e: f.engine, spec: spec}
	u, ok := f.cache.unpacked(spec)
	if ok {
		s.image = spec.repository() + ":" + spec.tag(u)
	} else if s.image, err = s.findBuilt(ctx); err != nil {
		return nil, err
	}
	if s.image != "" {
		version, err := s.look(ctx)
		if err == nil {
			s.what = fmt.Sprintf("Docker container, %simage built from %s", version, spec.from())
			return s, nil
		}
		if !errors.Is(err, docker.ErrNoSuchImage) {
			return nil, err
		}
	}
	if ok {
		s.what = fmt.Sprintf("Docker container, %s, image to be built now from %s", u.product(), spec.from())
	} else if err := spec.locate(ctx); err != nil {
		return nil, err
	} else {
		s.what = fmt.Sprintf("Docker container, image to be built now from %s", spec)
	}
	s.image = ""
	return s, nil
}

func (p *distroPkg) repository() string { return repository + "/" + p.name }

var notInTags = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// tag derives from the content: what is there under this name is the same.
func (p *distroPkg) tag(u *unpacked) string {
	_, deb, ok := strings.Cut(u.Deb, ":")
	if !ok {
		deb = u.Deb
	}
	return p.tagPrefix() + notInTags.ReplaceAllString(deb, "-") + "-" + u.Hash[:12]
}

func (p *distroPkg) tagPrefix() string { return p.suite + "-" + p.arch + "-" }

// findBuilt finds the newest image of the package, for when the cache was emptied.
func (s *dockerSource) findBuilt(ctx context.Context) (string, error) {
	images, err := s.e.client.ListImages(docker.ListImagesOptions{
		Filters: map[string][]string{"reference": {s.spec.repository() + ":" + s.spec.tagPrefix() + "*"}},
		Context: ctx,
	})
	if err != nil {
		return "", fmt.Errorf("images of the Docker engine: %w", err)
	}
	var tags []string
	for _, img := range images {
		for _, tag := range img.RepoTags {
			if strings.HasPrefix(tag, s.spec.repository()+":"+s.spec.tagPrefix()) {
				tags = append(tags, tag)
			}
		}
	}
	if len(tags) == 0 {
		return "", nil
	}
	return slices.Max(tags), nil // the highest version, near enough
}

func (s *dockerSource) prepare(ctx context.Context, log io.Writer) error {
	switch {
	case s.pull:
		return s.pullImage(ctx, log)
	case s.image == "":
		return s.build(ctx, log)
	}
	return nil
}

// done sets what Choice reads.
func (s *dockerSource) done(what string, args ...any) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.what, s.pull = fmt.Sprintf(what, args...), false
}

func (s *dockerSource) pullImage(ctx context.Context, log io.Writer) error {
	unlock, err := s.f.cache.lock(ctx, "pull")
	if err != nil {
		return err
	}
	defer unlock()
	version, err := s.look(ctx)
	if err != nil {
		fmt.Fprintf(log, "redis: pulling %s\n", s.image)
		began := time.Now()
		limit, cancel := context.WithTimeoutCause(ctx, pullLimit, fmt.Errorf("not done within %v", pullLimit))
		defer cancel()
		name, tag := splitImage(s.image)
		if err := s.e.client.PullImage(docker.PullImageOptions{
			Repository: name, Tag: tag, Context: limit,
			OutputStream: io.Discard, InactivityTimeout: time.Minute,
		}, credentials(name)); err != nil {
			return fmt.Errorf("pulling %s: %w", s.image, err)
		}
		if version, err = s.look(ctx); err != nil {
			return err
		}
		fmt.Fprintf(log, "redis: pulled in %v\n", time.Since(began).Round(100*time.Millisecond))
	}
	s.done("Docker container, %simage %s", version, s.image)
	return nil
}

// splitImage splits name:tag and name@digest; a colon before a slash is a port's.
func splitImage(image string) (name, tag string) {
	if name, digest, ok := strings.Cut(image, "@"); ok {
		return name, digest
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}

// credentials are those that "docker login" has stored for the image's registry, if any.
func credentials(name string) docker.AuthConfiguration {
	registry := "https://index.docker.io/v1/"
	if host, _, ok := strings.Cut(name, "/"); ok && strings.ContainsAny(host, ".:") {
		registry = host
	}
	if all, err := docker.NewAuthConfigurationsFromDockerCfg(); err == nil {
		return all.Configs[registry]
	}
	return docker.AuthConfiguration{}
}

// build makes the image from the unpacked package, unless it is there.
func (s *dockerSource) build(ctx context.Context, log io.Writer) error {
	u, err := s.f.unpack(ctx, s.spec, log)
	if err != nil {
		return err
	}
	unlock, err := s.f.cache.lock(ctx, "image-"+s.spec.key())
	if err != nil {
		return err
	}
	defer unlock()
	image := dockerSource{f: s.f, e: s.e, image: s.spec.repository() + ":" + s.spec.tag(u)}
	version, err := image.look(ctx)
	if errors.Is(err, docker.ErrNoSuchImage) {
		began := time.Now()
		archive, aerr := u.archive(image.image)
		if aerr != nil {
			return aerr
		}
		err = s.e.client.LoadImage(docker.LoadImageOptions{InputStream: archive, OutputStream: io.Discard, Context: ctx})
		if err == nil {
			version, err = image.look(ctx)
		}
		if err == nil {
			fmt.Fprintf(log, "redis: image %s built in %v\n", image.image, time.Since(began).Round(100*time.Millisecond))
		}
	}
	if err != nil {
		return fmt.Errorf("building an image from %s: %w", s.spec.from(), err)
	}
	s.image, s.cmd, s.workDir = image.image, image.cmd, image.workDir
	s.done("Docker container, %simage built from %s", version, s.spec.from())
	return nil
}

// archive is what "docker load" takes. Unlike a plain import it can say what the image
// runs, in the way the official images do, so that both are run alike.
func (u *unpacked) archive(name string) (io.Reader, error) {
	var layer bytes.Buffer
	if err := u.tar(&layer); err != nil {
		return nil, err
	}
	config, err := u.imageConfig(digest(layer.Bytes()))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": digest(config) + ".json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	var all bytes.Buffer
	t := tar.NewWriter(&all)
	for _, f := range []struct {
		name string
		body []byte
	}{{"layer.tar", layer.Bytes()}, {digest(config) + ".json", config}, {"manifest.json", manifest}} {
		err = errors.Join(err, t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.body))}))
		if err == nil {
			_, err = t.Write(f.body)
		}
	}
	if err := errors.Join(err, t.Close()); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return &all, nil
}

// imageConfig says how to run the image that consists of the given layer.
func (u *unpacked) imageConfig(layer string) ([]byte, error) {
	const epoch = "1970-01-01T00:00:00Z" // the same content is the same image
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      epoch,
		"config": map[string]any{
			"Env":        []string{"PATH=/usr/bin", strings.ToUpper(strings.TrimSuffix(u.Package, "-server")) + "_VERSION=" + u.Version},
			"Cmd":        []string{u.Package},
			"WorkingDir": "/data",
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer}},
		"history": []any{map[string]any{"created": epoch, "created_by": u.Package + " " + u.Deb}},
	})
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return config, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (s *dockerSource) start(ctx context.Context, c Config) (_ machine, err error) {
	port, release, err := s.f.cache.reservePort()
	if err != nil {
		return nil, err
	}
	m := &dockerMachine{
		f: s.f, e: s.e, c: c, release: release,
		name: containerName(),
		addr: net.JoinHostPort(s.e.host, strconv.Itoa(port)),
	}
	// Before it exists: whoever kills us now kills nothing that nobody knows of.
	if err := s.f.keep("container", m.name); err != nil {
		release()
		return nil, err
	}
	o := s.options(m.name)
	if c.Files != nil {
		if err := m.share(s.workDir, o); err != nil {
			return nil, errors.Join(err, m.remove(ctx))
		}
	}
	var network func(*docker.HostConfig)
	if s.e.hostNet {
		anchor, err := s.dropAnchor(ctx)
		if err != nil {
			return nil, errors.Join(err, m.remove(ctx))
		}
		o.Cmd = c.args(loopback, port)
		network = func(h *docker.HostConfig) { h.NetworkMode, h.PublishAllPorts = "container:"+anchor, false }
	} else {
		o.Cmd = c.args("0.0.0.0", 6379)
		ip := loopback
		if s.e.host != loopback && s.e.host != "localhost" {
			ip = "" // another machine's: it has to be reached from outside
		}
		o.ExposedPorts = []string{"6379/tcp"}
		o.PortBindings = map[docker.Port][]docker.PortBinding{"6379/tcp": {{HostIP: ip, HostPort: strconv.Itoa(port)}}}
		network = func(h *docker.HostConfig) { h.PublishAllPorts = false }
	}
	if err := s.run(ctx, o, network); err != nil {
		if text := err.Error(); strings.Contains(text, "port is already allocated") || strings.Contains(text, "address already in use") {
			err = fmt.Errorf("%w: %w", errPortTaken, err)
		}
		if errors.Is(err, errEngineHangs) {
			return nil, err
		}
		// Removed under a limit of its own: ctx may have ended.
		limit, done := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
		defer done()
		return nil, errors.Join(err, m.remove(limit))
	}
	return m, nil
}

// options are those of every container.
func (s *dockerSource) options(name string) *dockertest.RunOptions {
	repo, tag := splitImage(s.image)
	return &dockertest.RunOptions{
		Name: name, Repository: repo, Tag: tag,
		Labels: map[string]string{label: strconv.Itoa(os.Getpid())},
	}
}

// dropAnchor starts, once, the container whose network the servers share: this machine's.
// It listens to nobody. A container that joins another's network has no part in the
// engine's bookkeeping of networks, which locks up for good (seen on Docker 20.10) when
// many containers on the host's network come and go at once.
func (s *dockerSource) dropAnchor(ctx context.Context) (name string, err error) {
	s.anchoring.Lock()
	defer s.anchoring.Unlock()
	if s.anchor != "" {
		return s.anchor, nil
	}
	name = containerName()
	if err := s.f.keep("container", name); err != nil { // the reaper ends it, too
		return "", err
	}
	o := s.options(name)
	o.Cmd = []string{"--port", "0", "--unixsocket", "anchor.sock", "--save", ""}
	if err := s.run(ctx, o, func(h *docker.HostConfig) { h.NetworkMode, h.PublishAllPorts = "host", false }); err != nil {
		return "", err
	}
	s.anchor = name
	return name, nil
}

func containerName() string {
	return fmt.Sprintf("locks-redistest-%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

var errEngineHangs = errors.New("the engine hangs")

// run starts a container. With an error other than errEngineHangs it may be there, and
// has to be removed.
func (s *dockerSource) run(ctx context.Context, o *dockertest.RunOptions, network func(*docker.HostConfig)) (err error) {
	o.Cmd = slices.Concat(s.cmd, o.Cmd)
	// An engine that starts nothing any more has been seen; nobody must wait for it for ever.
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not started within %v", startLimit))
	defer cancel()
	ran := make(chan error, 1)
	go func() {
		_, err := s.e.pool.RunWithOptions(o, network)
		ran <- err
	}()
	select {
	case err = <-ran:
	case <-ctx.Done():
		// The engine goes on creating it, so it can only be removed once that is done. If
		// it takes too long, the reaper keeps it in mind.
		select {
		case <-ran:
			err = context.Cause(ctx)
		case <-time.After(engineLimit):
			return fmt.Errorf("redistest: container of %s: %w: %w", s.image, errEngineHangs, context.Cause(ctx))
		}
	}
	if err != nil {
		return fmt.Errorf("redistest: container of %s: %w", s.image, err)
	}
	return nil
}

type dockerMachine struct {
	f       *Farm
	e       *engine
	c       Config
	name    string
	addr    string
	dir     string // of this machine, where its data directory is, too; "": there is none
	release func() // gives the port back
}

func (m *dockerMachine) url() string { return m.c.url(m.addr) }

func (m *dockerMachine) failed(ctx context.Context) error {
	c, err := m.e.client.InspectContainerWithContext(m.name, ctx)
	if err != nil || c.State.Running {
		return err
	}
	var log bytes.Buffer
	if err := m.e.client.Logs(docker.LogsOptions{
		Context: ctx, Container: m.name, OutputStream: &log, ErrorStream: &log, Tail: "15", Stdout: true, Stderr: true,
	}); err != nil {
		fmt.Fprintf(&log, "(logs: %v)", err)
	}
	return ended(fmt.Sprintf("the container ended: exit code %d %s", c.State.ExitCode, c.State.Error), log.String())
}

// signal reaches the server itself, which is the container's first process.
func (m *dockerMachine) signal(ctx context.Context, sig docker.Signal) error {
	return m.e.client.KillContainer(docker.KillContainerOptions{ID: m.name, Signal: sig, Context: ctx})
}

func (m *dockerMachine) freeze(ctx context.Context) error {
	if err := m.signal(ctx, docker.SIGSTOP); err != nil {
		return err
	}
	c, err := m.e.client.InspectContainerWithContext(m.name, ctx)
	if err != nil {
		return err
	}
	if !m.e.hostNet {
		return nil // the number is another machine's
	}
	return awaitStopped(ctx, c.State.Pid)
}

func (m *dockerMachine) thaw(ctx context.Context) error { return m.signal(ctx, docker.SIGCONT) }

func (m *dockerMachine) kill(ctx context.Context) error {
	var dead *docker.ContainerNotRunning
	if err := m.signal(ctx, docker.SIGKILL); err != nil && !errors.As(err, &dead) {
		return err
	}
	_, err := m.e.client.WaitContainerWithContext(m.name, ctx)
	return err
}

func (m *dockerMachine) restart(ctx context.Context) error {
	var runs *docker.ContainerAlreadyRunning
	if err := m.e.client.StartContainerWithContext(m.name, nil, ctx); !errors.As(err, &runs) { // from a call that was given up
		return err
	}
	return nil
}

// share makes the data directory one of this machine's, with the files of the Config.
func (m *dockerMachine) share(dataDir string, o *dockertest.RunOptions) (err error) {
	if !m.e.hostNet {
		return fmt.Errorf("redistest: the engine is not on this machine's own system, so they share no directory: %w", ErrImpossible)
	}
	if dataDir == "" || dataDir == "/" {
		return fmt.Errorf("redistest: %w: %w", errNoDataDir, ErrImpossible)
	}
	if m.dir, err = m.f.tempDir(); err != nil {
		return err
	}
	// Everybody's to read and write, as official images do not run their server as root.
	// Nobody else comes this far: the directory that this one is in is ours alone.
	if err := os.Chmod(m.dir, 0o777); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	for name, b := range m.c.Files {
		p := filepath.Join(m.dir, name)
		err := os.WriteFile(p, b, 0o600)
		if err == nil {
			err = os.Chmod(p, 0o666)
		}
		if err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	o.Mounts = []string{m.dir + ":" + dataDir}
	return nil
}

func (m *dockerMachine) localDir() string { return m.dir }

var errNoDataDir = errors.New("the image has no directory of its own for data (WorkingDir)")

// dataDir is where the server starts, and so keeps its files.
func (m *dockerMachine) dataDir(ctx context.Context) (string, error) {
	c, err := m.e.client.InspectContainerWithContext(m.name, ctx)
	if err != nil {
		return "", err
	}
	if c.Config == nil || c.Config.WorkingDir == "" || c.Config.WorkingDir == "/" {
		return "", errNoDataDir
	}
	return c.Config.WorkingDir, nil
}

func (m *dockerMachine) files(ctx context.Context) (map[string][]byte, error) {
	dir, err := m.dataDir(ctx)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	if err := m.e.client.DownloadFromContainer(m.name, docker.DownloadFromContainerOptions{
		Path: dir, OutputStream: &archive, Context: ctx,
	}); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for t := tar.NewReader(&archive); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		// The first element is the directory itself.
		if _, name, ok := strings.Cut(path.Clean(h.Name), "/"); ok && h.Typeflag == tar.TypeReg {
			if files[name], err = io.ReadAll(t); err != nil {
				return nil, err
			}
		}
	}
}

func (m *dockerMachine) put(ctx context.Context, files map[string][]byte) error {
	dir, err := m.dataDir(ctx)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	t := tar.NewWriter(&archive)
	for name, b := range files {
		// Everybody's to read: official images do not run their server as root.
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o666, Size: int64(len(b))}); err != nil {
			return err
		}
		if _, err := t.Write(b); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return m.e.client.UploadToContainer(m.name, docker.UploadToContainerOptions{Path: dir, InputStream: &archive, Context: ctx})
}

func (m *dockerMachine) peer(ctx context.Context) (string, error) {
	if m.e.hostNet {
		return m.addr, nil
	}
	c, err := m.e.client.InspectContainerWithContext(m.name, ctx)
	if err != nil {
		return "", err
	}
	if c.NetworkSettings == nil || c.NetworkSettings.IPAddress == "" {
		return "", fmt.Errorf("the engine gives the container no address of its own: %w", ErrImpossible)
	}
	return net.JoinHostPort(c.NetworkSettings.IPAddress, "6379"), nil
}

func (m *dockerMachine) remove(ctx context.Context) error {
	defer m.release()
	if err := removeContainer(ctx, m.e.client, m.name); err != nil && !isMissing(err) {
		return err // the reaper tries again
	}
	m.f.gone("container", m.name)
	if m.dir == "" {
		return nil
	}
	return os.RemoveAll(m.dir)
}
