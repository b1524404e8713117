package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/strategy"
)

// Floors are no locks. They send the commands of one, as a client that does nothing else.

// compareAndDelete is the release of a lock that is a token.
const compareAndDelete = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

var deleteHash = func() string { h := sha1.Sum([]byte(compareAndDelete)); return hex.EncodeToString(h[:]) }()

const token = "0123456789abcdef0123456789abcdef"

var errNotThere = errors.New("the lock was not there, or not free")

// never is for what a floor does not do.
type never struct{}

func (never) keep(held)      {}
func (never) lost(held) bool { return false }

// nothing is no lock at all: what its holders do is all that takes time.
type nothing struct{ never }

func (n nothing) mutex(string) mutex                    { return n }
func (n nothing) acquire(context.Context) (held, error) { return n, nil }
func (nothing) Release(context.Context) error           { return nil }
func (nothing) close() error                            { return nil }

// A floorCommand is one command, and what its reply has to be: a floor that is refused is quick,
// and no floor.
type floorCommand struct {
	cmd  string
	args []any
	good func(reply any) bool
}

func granted(reply any) bool  { return reply != nil }
func released(reply any) bool { return reply == int64(1) }

func (r floorCommand) check(reply any, err error) error {
	if err == nil && !r.good(reply) {
		return errNotThere
	}
	return err
}

// commands are what one caller sends to acquire and to release. A source makes the next one.
type (
	commands struct{ acquire, release floorCommand }
	source   func() commands
)

// ofRaw makes each of them from its parts, as a program does that has only the key and the TTL.
func ofRaw(ttl time.Duration) func(name string) source {
	ms := ttl.Milliseconds()
	return func(name string) source {
		key := strategy.DefaultKey(name)
		return func() commands {
			return commands{
				acquire: floorCommand{"SET", []any{key, token, "NX", "PX", ms}, granted},
				release: floorCommand{"EVALSHA", []any{deleteHash, 1, key, token}, released},
			}
		}
	}
}

// raw writes to all its connections, then reads from all.
type raw struct {
	never
	conns []redis.Conn
	turns func(name string) source
}

// openRaw connects to the first n servers; 0: to all.
func openRaw(n int) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (client, error) { return dialRaw(ctx, s, n) }
}

func dialRaw(ctx context.Context, s *seat, n int) (*raw, error) {
	urls := s.URLs
	if n > 0 {
		urls = urls[:n]
	}
	r := &raw{turns: ofRaw(s.TTL)}
	for _, url := range urls {
		c, err := s.pool(url, 1).DialContext(ctx)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.conns = append(r.conns, c)
		if _, err := c.Do("SCRIPT", "LOAD", compareAndDelete); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

func (r *raw) mutex(name string) mutex { return &rawMutex{r: r, next: r.turns(name)} }

func (r *raw) close() (err error) {
	for _, c := range r.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (r *raw) do(q floorCommand) error {
	for _, c := range r.conns {
		if err := errors.Join(c.Send(q.cmd, q.args...), c.Flush()); err != nil {
			return err
		}
	}
	for _, c := range r.conns {
		if err := q.check(c.Receive()); err != nil {
			return err
		}
	}
	return nil
}

type rawMutex struct {
	r        *raw
	next     source
	commands commands
}

func (m *rawMutex) acquire(context.Context) (held, error) {
	m.commands = m.next()
	return m, m.r.do(m.commands.acquire)
}

func (m *rawMutex) Release(context.Context) error { return m.r.do(m.commands.release) }

// pooled borrows a connection for each pair.
type pooled struct {
	never
	*redis.Pool
	ttl time.Duration
}

func openPool(_ context.Context, s *seat) (client, error) {
	if _, err := s.admin.Do("SCRIPT", "LOAD", compareAndDelete); err != nil {
		return nil, err
	}
	s.said++
	return &pooled{Pool: s.pool(s.URLs[0], s.callers()), ttl: s.TTL}, nil
}

func (p *pooled) mutex(name string) mutex { return &pooledMutex{p: p, next: ofRaw(p.ttl)(name)} }
func (p *pooled) close() error            { return p.Pool.Close() }

type pooledMutex struct {
	p        *pooled
	next     source
	commands commands
	c        redis.Conn
}

func (m *pooledMutex) acquire(context.Context) (held, error) {
	m.commands, m.c = m.next(), m.p.Get()
	return m, m.do(m.commands.acquire)
}

func (m *pooledMutex) Release(context.Context) error {
	return errors.Join(m.do(m.commands.release), m.c.Close())
}

func (m *pooledMutex) do(q floorCommand) error { return q.check(m.c.Do(q.cmd, q.args...)) }

// scripted holds locks that one script renews.
type scripted struct {
	*raw
	ttl    time.Duration
	mu     sync.Mutex
	keys   []any
	once   sync.Once
	lapsed atomic.Int64
}

const renewAll = `local n = 0
for i = 1, #KEYS do
  if redis.call("get", KEYS[i]) == ARGV[1] then n = n + redis.call("pexpire", KEYS[i], ARGV[2]) end
end
return n`

func openScript(ctx context.Context, s *seat) (client, error) {
	r, err := dialRaw(ctx, s, 1)
	if err != nil {
		return nil, err
	}
	return &scripted{raw: r, ttl: s.TTL}, nil
}

func (c *scripted) mutex(name string) mutex {
	return &scriptedMutex{c, strategy.DefaultKey(name), &rawMutex{r: c.raw, next: c.turns(name)}}
}

type scriptedMutex struct {
	c   *scripted
	key string
	m   *rawMutex
}

func (m *scriptedMutex) acquire(ctx context.Context) (held, error) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	_, err := m.m.acquire(ctx)
	return m, err
}

func (m *scriptedMutex) Release(ctx context.Context) error {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.m.Release(ctx)
}

// keep starts the renewal of all with the first.
func (c *scripted) keep(h held) {
	c.mu.Lock()
	c.keys = append(c.keys, h.(*scriptedMutex).key)
	c.mu.Unlock()
	c.once.Do(func() {
		script := redis.NewScript(-1, renewAll)
		go func() {
			for range time.Tick(c.ttl / 3) {
				c.mu.Lock()
				args := append(append([]any{len(c.keys)}, c.keys...), token, c.ttl.Milliseconds())
				n, err := redis.Int(script.Do(c.conns[0], args...))
				if err != nil || n < len(c.keys) {
					c.lapsed.Add(int64(len(c.keys) - n))
				}
				c.mu.Unlock()
			}
		}()
	})
}

func (c *scripted) lost(held) bool { return c.lapsed.Load() > 0 }
