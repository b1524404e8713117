package machine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// Label is on every container; its value is the run of the process that owns it.
const Label = "io.github.lockstrategies.redistest"

const (
	engineLimit = 5 * time.Second // for an engine to answer at all
	// RegistryLimit is for a registry to answer, where there is another way.
	RegistryLimit = 5 * time.Second
)

// Engine is a Docker engine that answers.
type Engine struct {
	client *docker.Client
	// HostNet: containers share this machine's network. Docker's port proxy distorts timing,
	// and accepts connections for a server that is dead, so that tests of refused connections
	// would see something else.
	HostNet bool
	Host    string // where published ports are reached
	Mounts  bool   // containers can have directories of this machine
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

// OpenEngine looks for one where DOCKER_HOST and its like say, or at the usual socket.
func OpenEngine(ctx context.Context) (*Engine, error) {
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
		return &Engine{client: client, Host: at.Hostname()}, nil
	}
	e := &Engine{client: client, Host: Loopback}
	// An engine whose socket was mounted into the container that we run in has another name.
	name, err := os.Hostname()
	here := err == nil && runtime.GOOS == "linux" && name == info.Name
	rootless := slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") })
	desktop := strings.Contains(info.OperatingSystem, "Docker Desktop")
	e.HostNet = here && !rootless && !desktop // else its network is a virtual machine's, or a user's
	e.Mounts = here || desktop
	if e.HostNet && info.CgroupDriver == "cgroupfs" {
		// The engine's own has the part of one process, which all containers share: with thirty servers,
		// and tests that keep the processors busy, a server answered after ten seconds.
		e.cgroup = "/"
	}
	if !rootless { // whose root is already us
		e.user = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	}
	return e, nil
}

// Image is what containers run. Look, Pull or Build finds it.
type Image struct {
	Host    *Host
	Engine  *Engine
	Name    string
	Command []string // what runs the server in the image; nil: the image's entry point
	Env     []string
}

// A MissingImage is not on the engine's machine.
type MissingImage string

func (image MissingImage) Error() string { return "no image " + string(image) }

// Look finds the image here, and what it runs.
func (i *Image) Look(name string) error {
	img, err := i.Engine.client.InspectImage(name)
	if errors.Is(err, docker.ErrNoSuchImage) {
		return MissingImage(name)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	i.Name = name
	if img.Config == nil {
		return nil
	}
	i.Env = img.Config.Env
	switch {
	case len(img.Config.Cmd) > 0:
		i.Command = img.Config.Cmd[:1] // redis-server, or valkey-server
	case len(img.Config.Entrypoint) > 0:
		i.Command = nil // it is the server
	}
	return nil
}

// obtain makes the image, unless it is here by now. One process at a time does.
func (i *Image) obtain(ctx context.Context, name string, make func() error) error {
	unlock, err := lock(ctx, filepath.Join(i.Host.cache, "images.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if i.Look(name) == nil {
		return nil
	}
	began := time.Now()
	if err := make(); err != nil {
		return err
	}
	fmt.Fprintf(i.Host.Log, "image %s is here after %v\n", name, time.Since(began).Round(100*time.Millisecond))
	return i.Look(name)
}

// Pull gives up on a registry that is silent for that time.
func (i *Image) Pull(ctx context.Context, image string, silence time.Duration) error {
	return i.obtain(ctx, image, func() error {
		fmt.Fprintf(i.Host.Log, "pulling %s\n", image)
		limit, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing within %v", silence)) })
		defer silent.Stop()
		name, tag := docker.ParseRepositoryTag(image)
		if _, digest, ok := strings.Cut(image, "@"); ok {
			tag = digest
		}
		err := i.Engine.client.PullImage(docker.PullImageOptions{
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

// Build makes the package's image of the directory in which it is unpacked.
func (i *Image) Build(ctx context.Context, p Package, unpack func() (dir string, err error)) error {
	return i.obtain(ctx, p.Image(), func() error {
		dir, err := unpack()
		if err != nil {
			return err
		}
		if err := i.Engine.client.BuildImage(docker.BuildImageOptions{
			Name: p.Image(), ContextDir: dir, OutputStream: io.Discard, RmTmpContainer: true, ForceRmTmpContainer: true, Context: ctx,
		}); err != nil {
			return fmt.Errorf("building image %s: %w", p.Image(), err)
		}
		return nil
	})
}

// A Job is what a container does.
type Job struct {
	Program string // "": the image's Command
	Args    []string
	Dir     string     // a directory of this machine, /data in the container, in which it starts; "": the image's
	NotRoot bool       // if we are root, it is nobody, and gets Dir
	Beside  *Container // whose network it shares; nil: this machine's, if the engine's is that, or one of its own
	Stdin   bool       // it can read, and nobody writes
	Inside  int        // the port that a network of its own publishes
	Port    int        // where on this machine
}

// Start creates a container and starts it. After an error it is not there.
func (i *Image) Start(ctx context.Context, j Job) (*Container, error) {
	e := i.Engine
	o := docker.CreateContainerOptions{
		Name:       "locks-redistest-" + ThisRun + "-" + strings.ToLower(rand.Text()[:8]),
		Config:     &docker.Config{Image: i.Name, Cmd: slices.Concat(i.Command, j.Args), Labels: map[string]string{Label: ThisRun}, OpenStdin: j.Stdin},
		HostConfig: &docker.HostConfig{CgroupParent: e.cgroup, CPUShares: cpuShares},
	}
	if j.Program != "" {
		o.Config.Entrypoint, o.Config.Cmd = []string{j.Program}, j.Args
	}
	if j.Dir != "" {
		o.HostConfig.Binds = []string{j.Dir + ":/data"}
		o.Config.WorkingDir, o.Config.User = "/data", e.user
	}
	if j.NotRoot {
		o.HostConfig.Binds = append(o.HostConfig.Binds, "/etc/passwd:/etc/passwd:ro") // PostgreSQL wants to know its user's name
		if os.Getuid() == 0 {
			o.Config.User = fmt.Sprintf("%d:%d", nobody, nobody)
			if err := os.Chown(j.Dir, nobody, nobody); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case j.Beside != nil:
		o.HostConfig.NetworkMode = "container:" + j.Beside.name
	case e.HostNet:
		o.HostConfig.NetworkMode = "host"
	default:
		ip := Loopback
		if e.Host != Loopback && e.Host != "localhost" {
			ip = "" // another machine's: we come from outside
		}
		inside := docker.Port(strconv.Itoa(j.Inside) + "/tcp")
		o.Config.ExposedPorts = map[docker.Port]struct{}{inside: {}}
		o.HostConfig.PortBindings = map[docker.Port][]docker.PortBinding{inside: {{HostIP: ip, HostPort: strconv.Itoa(j.Port)}}}
	}
	err := i.run(ctx, o)
	if err != nil && (strings.Contains(err.Error(), "port is already allocated") || strings.Contains(err.Error(), "address already in use")) {
		err = fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	if err != nil {
		return nil, err
	}
	return &Container{e, o.Name}, nil
}

func (i *Image) run(ctx context.Context, o docker.CreateContainerOptions) error {
	if err := reapLater(containers); err != nil { // before there is one
		return err
	}
	// The engine would go on creating it even if nobody waited, so the caller's end counts afterwards.
	limit, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), StartLimit, fmt.Errorf("not started within %v", StartLimit))
	defer cancel()
	o.Context = limit
	_, err := i.Engine.client.CreateContainer(o)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = i.Engine.client.StartContainerWithContext(o.Name, nil, limit)
	}
	if err != nil && limit.Err() != nil {
		err = context.Cause(limit)
	}
	if err == nil {
		return nil
	}
	clean, done := context.WithTimeout(context.WithoutCancel(ctx), engineLimit)
	defer done()
	return errors.Join(fmt.Errorf("container of %s: %w", i.Name, err), removeContainer(clean, i.Engine.client, o.Name))
}

// A Container is a server, or what does something for one. Its methods are called one at a time.
type Container struct {
	e    *Engine
	name string
}

// Failed says why the container is not running, with its last words; nil if it runs.
func (c *Container) Failed(ctx context.Context) error {
	now, err := c.e.client.InspectContainerWithContext(c.name, ctx)
	if err != nil || now.State.Running {
		return err
	}
	return c.over(ctx, now.State.ExitCode, now.State.Error)
}

func (c *Container) over(ctx context.Context, code int, why string) error {
	var log bytes.Buffer
	if err := c.e.client.Logs(docker.LogsOptions{
		Context: ctx, Container: c.name, OutputStream: &log, ErrorStream: &log, Tail: "15", Stdout: true, Stderr: true,
	}); err != nil {
		fmt.Fprintf(&log, "(logs: %v)", err)
	}
	return ended(fmt.Sprintf("the container ended: exit code %d %s", code, why), log.String())
}

// Wait returns once the container has ended, with an error unless its program succeeded.
func (c *Container) Wait(ctx context.Context) error {
	code, err := c.e.client.WaitContainerWithContext(c.name, ctx)
	if err != nil || code == 0 {
		return err
	}
	return c.over(ctx, code, "")
}

// signal reaches the server itself, which is the container's first process.
func (c *Container) signal(ctx context.Context, sig docker.Signal) error {
	return c.e.client.KillContainer(docker.KillContainerOptions{ID: c.name, Signal: sig, Context: ctx})
}

// Freeze stops the server, with the processes that it has started if they are this machine's, and returns once they stand.
func (c *Container) Freeze(ctx context.Context) error {
	if err := c.signal(ctx, docker.SIGSTOP); err != nil {
		return err
	}
	pid, err := c.pid(ctx)
	if err != nil || pid == 0 {
		return err
	}
	return awaitFrozen(ctx, pid)
}

// Thaw lets a frozen server go on.
func (c *Container) Thaw(ctx context.Context) error {
	pid, err := c.pid(ctx)
	if err != nil {
		return err
	}
	if pid != 0 {
		thawChildren(pid)
	}
	return c.signal(ctx, docker.SIGCONT)
}

// pid is the server's number on this machine; 0: it runs on another.
func (c *Container) pid(ctx context.Context) (int, error) {
	now, err := c.e.client.InspectContainerWithContext(c.name, ctx)
	if err != nil || !c.e.HostNet {
		return 0, err
	}
	return now.State.Pid, nil
}

// Kill returns once the server is dead.
func (c *Container) Kill(ctx context.Context) error {
	var dead *docker.ContainerNotRunning
	if err := c.signal(ctx, docker.SIGKILL); err != nil && !errors.As(err, &dead) {
		return err
	}
	_, err := c.e.client.WaitContainerWithContext(c.name, ctx)
	return err
}

// Restart starts a dead server, and does not wait until it answers.
func (c *Container) Restart(ctx context.Context) error {
	var runs *docker.ContainerAlreadyRunning
	if err := c.e.client.StartContainerWithContext(c.name, nil, ctx); !errors.As(err, &runs) { // from a call that was given up
		return err
	}
	return nil
}

// IP is the container's address for other containers; empty: it has none of its own.
func (c *Container) IP(ctx context.Context) (string, error) {
	now, err := c.e.client.InspectContainerWithContext(c.name, ctx)
	if err != nil || now.NetworkSettings == nil {
		return "", err
	}
	return now.NetworkSettings.IPAddress, nil
}

// Remove ends the container, and leaves nothing of it.
func (c *Container) Remove(ctx context.Context) error {
	return removeContainer(ctx, c.e.client, c.name)
}

// Containers are the names of the containers whose owner's run begins with run.
func Containers(ctx context.Context, run string) (names []string, err error) {
	client, err := dockerClient()
	if err != nil {
		return nil, err
	}
	all, err := client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {Label}}, Context: ctx})
	for _, c := range all {
		if strings.HasPrefix(c.Labels[Label], run) {
			names = append(names, c.Names...)
		}
	}
	return names, err
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
