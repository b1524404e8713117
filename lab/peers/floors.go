package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
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

// A floorLock is a lock that is a token, as a program takes it that has only the key and the TTL.
type floorLock struct {
	key string
	ttl time.Duration
}

// acquire and release are the commands, and what their replies have to be: a floor that is refused is quick, and no floor.
func (l floorLock) acquire(do func(good any, cmd string, args ...any) error) error {
	return do("OK", "SET", l.key, token, "NX", "PX", l.ttl.Milliseconds())
}

func (l floorLock) release(do func(good any, cmd string, args ...any) error) error {
	return do(int64(1), "EVALSHA", deleteHash, 1, l.key, token)
}

func check(good, reply any, err error) error {
	if err == nil && reply != good {
		return errNotThere
	}
	return err
}

// raw writes to all its connections, then reads from all.
type raw struct {
	never
	conns []redis.Conn
	ttl   time.Duration
}

// openRaw connects to the first n servers; 0: to all.
func openRaw(n int) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (client, error) {
		r := &raw{ttl: s.TTL}
		for i, url := range s.URLs {
			if n > 0 && i == n {
				break
			}
			c, err := s.pool(url, 1).DialContext(ctx)
			if err == nil {
				_, err = c.Do("SCRIPT", "LOAD", compareAndDelete)
			}
			if err != nil {
				return nil, err
			}
			r.conns = append(r.conns, c)
		}
		return r, nil
	}
}

func (r *raw) mutex(name string) mutex {
	return &rawMutex{r, floorLock{strategy.DefaultKey(name), r.ttl}}
}

func (r *raw) do(good any, cmd string, args ...any) error {
	for _, c := range r.conns {
		if err := errors.Join(c.Send(cmd, args...), c.Flush()); err != nil {
			return err
		}
	}
	for _, c := range r.conns {
		reply, err := c.Receive()
		if err := check(good, reply, err); err != nil {
			return err
		}
	}
	return nil
}

type rawMutex struct {
	r *raw
	floorLock
}

func (m *rawMutex) acquire(context.Context) (held, error) { return m, m.floorLock.acquire(m.r.do) }
func (m *rawMutex) Release(context.Context) error         { return m.release(m.r.do) }

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

func (p *pooled) mutex(name string) mutex {
	return &pooledMutex{p: p, floorLock: floorLock{strategy.DefaultKey(name), p.ttl}}
}

type pooledMutex struct {
	p *pooled
	floorLock
	c redis.Conn
}

func (m *pooledMutex) acquire(context.Context) (held, error) {
	m.c = m.p.Get()
	return m, m.floorLock.acquire(m.do)
}

func (m *pooledMutex) Release(context.Context) error {
	return errors.Join(m.release(m.do), m.c.Close())
}

func (m *pooledMutex) do(good any, cmd string, args ...any) error {
	reply, err := m.c.Do(cmd, args...)
	return check(good, reply, err)
}
