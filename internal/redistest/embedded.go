package redistest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// embeddedSource has miniredis, an imitation written in Go.
type embeddedSource struct{}

func (embeddedSource) kind() Kind { return Embedded }

func (embeddedSource) describe() string {
	return "EMBEDDED miniredis, an imitation of Redis: NOT PROVEN are real Redis' behaviour in detail, its Lua, " +
		"expiry to the millisecond, eviction, persistence, replication, freezing"
}

func (embeddedSource) start(_ context.Context, c Config, _ int) (machine, error) {
	if len(c.Args) > 0 {
		return nil, fmt.Errorf("redistest: miniredis takes no arguments (%s): %w", strings.Join(c.Args, " "), ErrImpossible)
	}
	if c.Files != nil {
		return nil, fmt.Errorf("redistest: miniredis keeps no files: %w", ErrImpossible)
	}
	m := &embeddedMachine{c: c, count: map[string]int64{}, refusal: "miniredis lives in this process, and has no files and no peers"}
	if err := m.run(loopback + ":0"); err != nil {
		return nil, err
	}
	return m, nil
}

type embeddedMachine struct {
	c    Config
	addr string

	redis *miniredis.Miniredis
	refusal

	mu    sync.Mutex
	count map[string]int64
}

// run starts a miniredis, empty as a real one without persistence.
func (m *embeddedMachine) run(addr string) error {
	r := miniredis.NewMiniRedis()
	r.ClockTTL(true) // or its time stands still: keys would never expire
	switch {
	case m.c.User != "":
		r.RequireUserAuth(m.c.User, m.c.Password)
	case m.c.Password != "":
		r.RequireAuth(m.c.Password)
	}
	if err := r.StartAddr(addr); err != nil {
		return fmt.Errorf("redistest: miniredis: %w", err)
	}
	r.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.count[strings.ToLower(cmd)]++
		return false
	})
	m.redis, m.addr = r, r.Addr()
	return nil
}

func (m *embeddedMachine) calls() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.count)
}

func (m *embeddedMachine) url() string                  { return m.c.url(m.addr) }
func (m *embeddedMachine) failed(context.Context) error { return nil }

// kill closes all connections, as the death of a process would.
func (m *embeddedMachine) kill(context.Context) error {
	m.redis.Close()
	m.redis = nil
	return nil
}

func (m *embeddedMachine) restart(context.Context) error {
	m.mu.Lock()
	clear(m.count)
	m.mu.Unlock()
	return m.run(m.addr)
}

func (m *embeddedMachine) remove(ctx context.Context) error {
	if m.redis == nil {
		return nil
	}
	return m.kill(ctx)
}
