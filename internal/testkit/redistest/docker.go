package redistest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// defaultImage is what containers run when nothing else is named.
const defaultImage = "redis:7.0"

// label is on every container; its value is the run of the process that owns it.
const label = "io.github.lockstrategies.redistest"

const (
	engineLimit   = 5 * time.Second // for an engine to answer at all
	registryLimit = 5 * time.Second // for a registry to answer, where there is another way
	namedLimit    = time.Minute     // where only the named image will do
)

// engine is a Docker engine that answers.
type engine struct {
	client *docker.Client
	// hostNet: containers share this machine's network. Docker's port proxy distorts timing,
	// and accepts connections for a server that is dead, so that tests of refused connections
	// would see something else.
	hostNet bool
	host    string // where published ports are reached
	mounts  bool   // containers can have directories of this machine
	user    string // who writes there as we do
	cgroup  string // the control group for containers; "": the engine's
}

// cpuShares is a container's part of a processor for which others wait, too: that of four processes.
const cpuShares = 4096

// dockerClient connects to where DOCKER_HOST and its like say, or to the usual socket.
func dockerClient() (*docker.Client, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("no Docker engine: %w", err)
	}
	return pool.Client, nil
}

func openEngine(ctx context.Context) (*engine, error) {
	client, err := dockerClient()
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	err = client.PingWithContext(limit)
	var info *docker.DockerInfo
	if err == nil {
		info, err = client.Info()
	}
	var at *url.URL
	if err == nil {
		at, err = url.Parse(client.Endpoint())
	}
	if err != nil {
		return nil, fmt.Errorf("no Docker engine at %s: %w", client.Endpoint(), err)
	}
	if info.OSType != "linux" {
		return nil, fmt.Errorf("the Docker engine runs %s containers, not Linux ones", info.OSType)
	}
	if at.Scheme != "unix" && at.Scheme != "npipe" {
		return &engine{client: client, host: at.Hostname()}, nil
	}
	e := &engine{client: client, host: loopback}
	// An engine whose socket was mounted into the container that we run in has another name.
	name, err := os.Hostname()
	here := err == nil && runtime.GOOS == "linux" && name == info.Name
	rootless := slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") })
	desktop := strings.Contains(info.OperatingSystem, "Docker Desktop")
	e.hostNet = here && !rootless && !desktop // else its network is a virtual machine's, or a user's
	e.mounts = here || desktop
	if e.hostNet && info.CgroupDriver == "cgroupfs" {
		// The engine's own has the part of one process, which all containers share: with thirty servers,
		// and tests that keep the processors busy, a server answered after ten seconds.
		e.cgroup = "/"
	}
	if !rootless { // whose root is already us
		e.user = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	}
	return e, nil
}

// dockerSource has containers of one image.
type dockerSource struct {
	f       *Farm
	e       *engine
	image   string
	version string   // "Redis 7.0.15, ", or empty if the image does not say
	cmd     []string // what runs redis-server in the image

	anchoring sync.Mutex
	anchor    string // the container whose network the others share; "": none yet
}

func (*dockerSource) kind() Kind { return Docker }

func (s *dockerSource) describe() string {
	return fmt.Sprintf("Docker container, %simage %s", s.version, s.image)
}

// A missingImage is not on the engine's machine.
type missingImage string

func (image missingImage) Error() string { return "no image " + string(image) }

// look finds the image here, and what it runs.
func (s *dockerSource) look(image string) error {
	img, err := s.e.client.InspectImage(image)
	if errors.Is(err, docker.ErrNoSuchImage) {
		return missingImage(image)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", image, err)
	}
	s.image, s.cmd = image, []string{"redis-server"}
	if img.Config == nil {
		return nil
	}
	switch {
	case len(img.Config.Cmd) > 0:
		s.cmd = img.Config.Cmd[:1] // redis-server, or valkey-server
	case len(img.Config.Entrypoint) > 0:
		s.cmd = nil // it is the server
	}
	for _, env := range img.Config.Env {
		for _, product := range []string{"Redis", "Valkey"} {
			if v, ok := strings.CutPrefix(env, strings.ToUpper(product)+"_VERSION="); ok {
				s.version = product + " " + v + ", "
			}
		}
	}
	return nil
}

// obtain makes the image, unless it is here by now. One process at a time does.
func (s *dockerSource) obtain(ctx context.Context, image string, make func() error) error {
	unlock, err := lock(ctx, filepath.Join(s.f.cache, "images.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if s.look(image) == nil {
		return nil
	}
	began := time.Now()
	if err := make(); err != nil {
		return err
	}
	fmt.Fprintf(s.f.log, "redis: image %s is here after %v\n", image, time.Since(began).Round(100*time.Millisecond))
	return s.look(image)
}

// pull gives up on a registry that is silent for that time.
func (s *dockerSource) pull(ctx context.Context, image string, silence time.Duration) error {
	return s.obtain(ctx, image, func() error {
		fmt.Fprintf(s.f.log, "redis: pulling %s\n", image)
		limit, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing within %v", silence)) })
		defer silent.Stop()
		name, tag := docker.ParseRepositoryTag(image)
		if _, digest, ok := strings.Cut(image, "@"); ok {
			tag = digest
		}
		err := s.e.client.PullImage(docker.PullImageOptions{
			Repository: name, Tag: cmp.Or(tag, "latest"), Context: limit,
			OutputStream: onWrite(func() { silent.Reset(time.Minute) }), // the registry has answered
		}, docker.AuthConfiguration{})
		if err != nil && limit.Err() != nil {
			err = context.Cause(limit)
		}
		if err != nil {
			return fmt.Errorf("pulling %s: %w", image, err)
		}
		return nil
	})
}

type onWrite func()

func (fn onWrite) Write(b []byte) (int, error) {
	fn()
	return len(b), nil
}

// build makes an image of what unpack.sh leaves.
func (s *dockerSource) build(ctx context.Context, image string, unpack func() (string, error)) error {
	return s.obtain(ctx, image, func() error {
		dir, err := unpack()
		if err != nil {
			return err
		}
		if err := s.e.client.BuildImage(docker.BuildImageOptions{
			Name: image, ContextDir: dir, OutputStream: io.Discard, RmTmpContainer: true, ForceRmTmpContainer: true, Context: ctx,
		}); err != nil {
			return fmt.Errorf("building image %s: %w", image, err)
		}
		return nil
	})
}

func (s *dockerSource) start(ctx context.Context, c Config, _ int) (_ machine, err error) {
	port, release, err := s.f.ReservePort()
	if err != nil {
		return nil, err
	}
	m := &dockerMachine{e: s.e, c: c, release: release, name: containerName(), addr: net.JoinHostPort(s.e.host, strconv.Itoa(port))}
	defer func() {
		if err != nil { // removed under a limit of its own: ctx may have ended
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
			defer cancel()
			err = errors.Join(err, m.remove(limit))
		}
	}()
	o := docker.CreateContainerOptions{Name: m.name, Config: &docker.Config{}, HostConfig: &docker.HostConfig{}}
	if c.Files != nil && !s.e.hostNet {
		return nil, fmt.Errorf("redistest: the engine is not on this machine's own system, so they share no directory: %w", ErrImpossible)
	}
	if s.e.mounts {
		if m.dataDir, err = s.f.newDataDir(c); err != nil {
			return nil, err
		}
		o.HostConfig.Binds = []string{m.dir + ":/data"}
		o.Config.WorkingDir, o.Config.User = "/data", s.e.user
	}
	if s.e.hostNet {
		anchor, err := s.dropAnchor(ctx)
		if err != nil {
			return nil, err
		}
		o.HostConfig.NetworkMode = "container:" + anchor
		return m, s.run(ctx, o, c.args(loopback, port))
	}
	ip := loopback
	if s.e.host != loopback && s.e.host != "localhost" {
		ip = "" // another machine's: we come from outside
	}
	o.Config.ExposedPorts = map[docker.Port]struct{}{"6379/tcp": {}}
	o.HostConfig.PortBindings = map[docker.Port][]docker.PortBinding{"6379/tcp": {{HostIP: ip, HostPort: strconv.Itoa(port)}}}
	err = s.run(ctx, o, c.args("0.0.0.0", 6379))
	if err != nil && (strings.Contains(err.Error(), "port is already allocated") || strings.Contains(err.Error(), "address already in use")) {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return m, err
}

// dropAnchor starts, once, the container whose network the servers share: this machine's. It
// listens to nobody. A container that joins another's network has no part in the engine's
// bookkeeping of networks. That locks up for good (seen on Docker 20.10) when many containers
// on the host's network come and go at once.
func (s *dockerSource) dropAnchor(ctx context.Context) (name string, err error) {
	s.anchoring.Lock()
	defer s.anchoring.Unlock()
	if s.anchor != "" {
		return s.anchor, nil
	}
	name = containerName()
	o := docker.CreateContainerOptions{Name: name, Config: &docker.Config{}, HostConfig: &docker.HostConfig{NetworkMode: "host"}}
	if err := s.run(ctx, o, []string{"--port", "0", "--unixsocket", "anchor.sock", "--save", ""}); err != nil {
		return "", err
	}
	s.anchor = name
	return name, nil
}

func (s *dockerSource) weighAnchor() error {
	s.anchoring.Lock()
	defer s.anchoring.Unlock()
	if s.anchor == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return removeContainer(ctx, s.e.client, s.anchor)
}

func containerName() string {
	return "locks-redistest-" + thisRun + "-" + strings.ToLower(rand.Text()[:8])
}

// run creates a container and starts it. After an error it is not there.
func (s *dockerSource) run(ctx context.Context, o docker.CreateContainerOptions, args []string) error {
	if err := reapLater(containers); err != nil { // before there is one
		return err
	}
	// The engine would go on creating it even if nobody waited, so the caller's end counts afterwards.
	limit, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), startLimit, fmt.Errorf("not started within %v", startLimit))
	defer cancel()
	o.Context = limit
	o.HostConfig.CgroupParent, o.HostConfig.CPUShares = s.e.cgroup, cpuShares
	o.Config.Image = s.image
	o.Config.Cmd = slices.Concat(s.cmd, args)
	o.Config.Labels = map[string]string{label: thisRun}
	_, err := s.e.client.CreateContainer(o)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = s.e.client.StartContainerWithContext(o.Name, nil, limit)
	}
	if err != nil && limit.Err() != nil {
		err = context.Cause(limit)
	}
	if err == nil {
		return nil
	}
	clean, done := context.WithTimeout(context.WithoutCancel(ctx), engineLimit)
	defer done()
	return errors.Join(fmt.Errorf("redistest: container of %s: %w", s.image, err), removeContainer(clean, s.e.client, o.Name))
}

type dockerMachine struct {
	e       *engine
	c       Config
	name    string
	addr    string
	release func() // gives the port back
	dataDir
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
	if err != nil || !m.e.hostNet { // then the number is another machine's
		return err
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
	return errors.Join(removeContainer(ctx, m.e.client, m.name), m.dataDir.remove())
}

// removeContainer succeeds, too, if there is no such container.
func removeContainer(ctx context.Context, client *docker.Client, name string) error {
	err := client.RemoveContainer(docker.RemoveContainerOptions{ID: name, Force: true, RemoveVolumes: true, Context: ctx})
	var none *docker.NoSuchContainer
	if errors.As(err, &none) {
		return nil
	}
	return err
}
