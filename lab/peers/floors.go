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

// openNothing opens no lock at all: what its holders do is all that takes time.
func openNothing(context.Context, *seat) (*client, error) {
	return &client{mutex: func(string) mutex {
		return func(context.Context) (held, error) { return nothing{}, nil }
	}}, nil
}

type nothing struct{}

func (nothing) Release(context.Context) error { return nil }

// A floorLock is a lock that is a token, as a program takes it that has only the key and the TTL.
type floorLock struct {
	key string
	ttl time.Duration
	do  func(good any, cmd string, args ...any) error // a floor that is refused is quick, and no floor
}

func (l *floorLock) acquire(context.Context) (held, error) {
	return l, l.do("OK", "SET", l.key, token, "NX", "PX", l.ttl.Milliseconds())
}

func (l *floorLock) Release(context.Context) error {
	return l.do(int64(1), "EVALSHA", deleteHash, 1, l.key, token)
}

func check(good, reply any, err error) error {
	if err == nil && reply != good {
		return errNotThere
	}
	return err
}

// openRaw connects to the first n servers; 0: to all. It writes to all its connections, then reads from all.
func openRaw(n int) opening {
	return func(ctx context.Context, s *seat) (*client, error) {
		var conns []redis.Conn
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
			conns = append(conns, c)
		}
		do := func(good any, cmd string, args ...any) error {
			for _, c := range conns {
				if err := errors.Join(c.Send(cmd, args...), c.Flush()); err != nil {
					return err
				}
			}
			for _, c := range conns {
				reply, err := c.Receive()
				if err := check(good, reply, err); err != nil {
					return err
				}
			}
			return nil
		}
		return &client{mutex: func(name string) mutex {
			l := &floorLock{strategy.DefaultKey(name), s.TTL, do}
			return l.acquire
		}}, nil
	}
}

// openPool borrows a connection for each pair.
func openPool(_ context.Context, s *seat) (*client, error) {
	if _, err := s.admin.Do("SCRIPT", "LOAD", compareAndDelete); err != nil {
		return nil, err
	}
	s.said++
	pool := s.pool(s.URLs[0], s.callers())
	return &client{mutex: func(name string) mutex {
		l := &pooledLock{}
		l.floorLock = floorLock{strategy.DefaultKey(name), s.TTL, func(good any, cmd string, args ...any) error {
			reply, err := l.conn.Do(cmd, args...)
			return check(good, reply, err)
		}}
		return func(ctx context.Context) (held, error) {
			l.conn = pool.Get()
			_, err := l.acquire(ctx)
			return l, err
		}
	}}, nil
}

type pooledLock struct {
	floorLock
	conn redis.Conn
}

func (l *pooledLock) Release(ctx context.Context) error {
	return errors.Join(l.floorLock.Release(ctx), l.conn.Close())
}
