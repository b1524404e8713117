package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// defaultImage is what containers run when nothing else is named.
const defaultImage = "redis:7.0"

// namedLimit is for a registry to answer where only the named image will do.
const namedLimit = time.Minute

// dockerSource has containers of one image.
type dockerSource struct {
	image machine.Image

	anchoring sync.Mutex
	anchor    *machine.Container // whose network the others share; nil: none yet
}

func (*dockerSource) kind() Kind { return Docker }

func (s *dockerSource) describe() string {
	for _, env := range s.image.Env {
		for _, product := range []string{"Redis", "Valkey"} {
			if v, ok := strings.CutPrefix(env, strings.ToUpper(product)+"_VERSION="); ok {
				return fmt.Sprintf("Docker container, %s %s, image %s", product, v, s.image.Name)
			}
		}
	}
	return "Docker container, image " + s.image.Name
}

func (s *dockerSource) start(ctx context.Context, c Config, _ int) (_ instance, err error) {
	h, e := s.image.Host, s.image.Engine
	port, release, err := h.ReservePort()
	if err != nil {
		return nil, err
	}
	m := &dockerInstance{e: e, c: c, release: release, addr: net.JoinHostPort(e.Host, strconv.Itoa(port))}
	defer func() {
		if err != nil { // removed under a limit of its own: ctx may have ended
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), machine.StartLimit)
			defer cancel()
			err = errors.Join(err, m.remove(limit))
		}
	}()
	if c.Files != nil && !e.HostNet {
		return nil, fmt.Errorf("redistest: the engine is not on this machine's own system, so they share no directory: %w", ErrImpossible)
	}
	if e.Mounts {
		if m.dataDir, err = newDataDir(h, c); err != nil {
			return nil, err
		}
	}
	j := machine.Job{Dir: m.dir, Args: c.args("0.0.0.0", 6379), Inside: 6379, Port: port}
	if e.HostNet {
		j.Args = c.args(machine.Loopback, port)
		if j.Beside, err = s.dropAnchor(ctx); err != nil {
			return nil, err
		}
	}
	m.Container, err = s.image.Start(ctx, j)
	return m, err
}

// dropAnchor starts, once, the container whose network the servers share: this machine's. It
// listens to nobody. A container that joins another's network has no part in the engine's
// bookkeeping of networks. That locks up for good (seen on Docker 20.10) when many containers
// on the host's network come and go at once.
func (s *dockerSource) dropAnchor(ctx context.Context) (_ *machine.Container, err error) {
	s.anchoring.Lock()
	defer s.anchoring.Unlock()
	if s.anchor == nil {
		s.anchor, err = s.image.Start(ctx, machine.Job{Args: []string{"--port", "0", "--unixsocket", "anchor.sock", "--save", ""}})
	}
	return s.anchor, err
}

func (s *dockerSource) weighAnchor() error {
	s.anchoring.Lock()
	defer s.anchoring.Unlock()
	if s.anchor == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), machine.StartLimit)
	defer cancel()
	return s.anchor.Remove(ctx)
}

type dockerInstance struct {
	*machine.Container // nil: not started
	e                  *machine.Engine
	c                  Config
	addr               string
	release            func() // gives the port back
	dataDir
}

func (m *dockerInstance) url() string { return m.c.url(m.addr) }

func (m *dockerInstance) peer(ctx context.Context) (string, error) {
	if m.e.HostNet {
		return m.addr, nil
	}
	ip, err := m.IP(ctx)
	if err != nil {
		return "", err
	}
	if ip == "" {
		return "", fmt.Errorf("the engine gives the container no address of its own: %w", ErrImpossible)
	}
	return net.JoinHostPort(ip, "6379"), nil
}

func (m *dockerInstance) remove(ctx context.Context) (err error) {
	defer m.release()
	if m.Container != nil {
		err = m.Remove(ctx)
	}
	return errors.Join(err, m.dataDir.remove())
}
