package redistest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// embeddedSource has miniredis, an imitation written in Go.
type embeddedSource struct{}

func (embeddedSource) kind() Kind { return Embedded }

func (embeddedSource) describe() string {
	return "EMBEDDED miniredis, an imitation of Redis: NOT PROVEN are real Redis' behaviour in detail, its Lua, " +
		"expiry to the millisecond, eviction, persistence, replication, freezing"
}

func (embeddedSource) start(_ context.Context, c Config, _ int) (instance, error) {
	if len(c.Args) > 0 {
		return nil, fmt.Errorf("redistest: miniredis takes no arguments (%s): %w", strings.Join(c.Args, " "), ErrImpossible)
	}
	if c.Files != nil {
		return nil, fmt.Errorf("redistest: miniredis keeps no files: %w", ErrImpossible)
	}
	m := &embeddedMachine{c: c, refusal: "miniredis has no files and no peers"}
	if err := m.run(machine.Loopback + ":0"); err != nil {
		return nil, err
	}
	return m, nil
}

// An embeddedMachine is this same program, started again, as the reaper is. In the process of the
// tests it would answer late: Go looks for what has arrived only every 10 ms while the tests keep
// its processors busy.
type embeddedMachine struct {
	c    Config
	addr string
	refusal

	p *child.Process // nil: it is dead
}

const embeddedRole = "redistest's embedded server"

func init() {
	if child.Run(embeddedRole, serveEmbedded) {
		os.Exit(0)
	}
}

// serveEmbedded is the life of an embedded server: it tells its address, and ends with its owner.
func serveEmbedded(ctx context.Context, owner *child.Parent, at string) error {
	u, err := url.Parse(at)
	if err != nil {
		return err
	}
	r := miniredis.NewMiniRedis()
	r.ClockTTL(true) // or its clock is stopped: keys would never expire
	if password, ok := u.User.Password(); ok && u.User.Username() != "" {
		r.RequireUserAuth(u.User.Username(), password)
	} else if ok {
		r.RequireAuth(password)
	}
	if err := r.StartAddr(u.Host); err != nil {
		return err
	}
	if err := owner.Send(r.Addr()); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// run starts it, empty as a real one without persistence.
func (m *embeddedMachine) run(addr string) error {
	p, err := child.Start(child.Config{Role: embeddedRole, Job: m.c.url(addr)})
	if err == nil {
		if err = p.Receive(context.Background(), &m.addr); err != nil {
			p.Kill() //nolint:errcheck // it has ended
		}
	}
	if err != nil {
		return fmt.Errorf("redistest: miniredis does not start: %w", err)
	}
	m.p = p
	return nil
}

func (m *embeddedMachine) url() string                  { return m.c.url(m.addr) }
func (m *embeddedMachine) Failed(context.Context) error { return nil }

func (m *embeddedMachine) Kill(context.Context) error {
	p := m.p
	m.p = nil
	return p.Kill()
}

func (m *embeddedMachine) Restart(context.Context) error { return m.run(m.addr) }

func (m *embeddedMachine) remove(ctx context.Context) error {
	if m.p == nil {
		return nil
	}
	return m.Kill(ctx)
}
