package fencing

// A holder, a process, is paused between its read and its write until another holds the lock: each store refuses
// its write, and without the rule loses the other's update.

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

// TestPausedHolder stops a holder, a process, between its read and its write for longer
// than its TTL. Meanwhile another takes the lock, reads and writes. Then the first goes
// on to write what it made of its read. A store with the rule refuses it; the same store
// without it is seen to lose the other's update.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	for kind := range kinds {
		for _, checked := range []bool{true, false} {
			name, want, wantValue := kind+" with the rule", "stale stale", "ab"
			if !checked {
				name, want, wantValue = kind+" without", "wrote", "ac"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server, ctx := redistest.Shared(t), t.Context()
				j := job{Kind: kind, Checked: checked, Item: rand.Text(), Lock: rand.Text(), Redis: server.URL()}
				switch {
				case kind == "sql":
					j.Addr = filepath.Join(t.TempDir(), "items.db")
				case kind == "redis":
					j.Addr = server.URL()
				case checked:
					j.Addr = serve(t, NewHandler())
				default:
					j.Addr = serve(t, &careless{})
				}
				s, end, err := j.open()
				if err != nil {
					t.Fatal(err)
				}
				defer end()
				locks, err := luascript.New(redigonode.New(server.Pool()), strategy.Options{TTL: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				defer locks.Close()
				hold := func() (strategy.Lease, Holder) {
					t.Helper()
					lease, err := locks.NewLock(j.Lock).Acquire(ctx)
					if err != nil {
						t.Fatal(err)
					}
					h, err := Of(lease)
					if err != nil {
						t.Fatal(err)
					}
					return lease, h
				}

				lease, h := hold()
				if err := s.Write(ctx, j.Item, "a", h); err != nil {
					t.Fatal(err)
				}
				if err := lease.Release(ctx); err != nil {
					t.Fatal(err)
				}

				c, err := child.Start(child.Config{Role: role, Job: j})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Kill() })
				wantSaid(t, c, "read a") // it holds the lock
				if err := c.Pause(ctx); errors.Is(err, errors.ErrUnsupported) {
					t.Skip(err)
				} else if err != nil {
					t.Fatal(err)
				}
				untilExpired(t, server, "lock:{"+j.Lock+"}")

				lease, h = hold()
				value, err := s.Read(ctx, j.Item, h)
				if value != "a" || err != nil {
					t.Fatalf("Read by the next holder = %q, %v, want a", value, err)
				}
				if err := s.Write(ctx, j.Item, value+"b", h); err != nil {
					t.Fatalf("Write by the next holder = %v, want nil", err)
				}
				if err := lease.Release(ctx); err != nil {
					t.Fatal(err)
				}

				if err := errors.Join(c.Resume(), c.Send("write")); err != nil {
					t.Fatal(err)
				}
				wantSaid(t, c, want)
				_, h = hold()
				if value, err := s.Read(ctx, j.Item, h); value != wantValue || err != nil {
					t.Errorf("in the end the value is %q, %v, want %q", value, err, wantValue)
				}
			})
		}
	}
}

// untilExpired waits until the key has expired.
func untilExpired(t *testing.T, server *redistest.Server, key string) {
	t.Helper()
	verdict.Eventually(t, key+" is gone", func() bool { return redistest.Do(t, server, "EXISTS", key) == int64(0) })
}

// role is that of the holder to be paused among children.
const role = "paused holder"

type job struct {
	Kind, Addr  string // the store
	Checked     bool
	Item        string
	Lock, Redis string
}

func (j job) open() (s store, end func(), err error) {
	switch j.Kind {
	case "sql":
		db, err := sqlite(j.Addr)
		if err != nil {
			return nil, nil, err
		}
		if !j.Checked {
			return carelessSQL{db}, func() { db.Close() }, nil
		}
		return SQL{db}, func() { db.Close() }, nil
	case "redis":
		pool := dial(j.Addr)
		if !j.Checked {
			return carelessRedis{pool}, func() { pool.Close() }, nil
		}
		return Redis{pool}, func() { pool.Close() }, nil
	case "http":
		return HTTP{j.Addr, http.DefaultClient}, func() {}, nil
	}
	return nil, nil, fmt.Errorf("store %q: allowed are sql, redis, http", j.Kind)
}

func dial(url string) *redis.Pool {
	return &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
}

// Child does the job that this process was started for. It returns false if it was
// started for none.
func Child() bool { return child.Run(role, work) }

func work(ctx context.Context, parent *child.Parent, j job) error {
	s, end, err := j.open()
	if err != nil {
		return err
	}
	defer end()
	pool := dial(j.Redis)
	defer pool.Close()
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: time.Second})
	if err != nil {
		return err
	}
	defer locks.Close()

	var h Holder
	var value string
	for { // until what it read, it read as the holder: a loaded machine can take longer than the TTL
		lease, err := locks.NewLock(j.Lock).Acquire(ctx)
		if err != nil {
			return err
		}
		if err := lease.KeepAlive(0); err != nil {
			return err
		}
		if h, err = Of(lease); err != nil {
			return err
		}
		if value, err = s.Read(ctx, j.Item, h); err != nil {
			return err
		}
		if lease.Err() == nil {
			break
		}
	}
	// It has just seen that it holds the lock. No later look could help: the pause can
	// always come after it.
	if err := parent.Ask("read " + value); err != nil {
		return err
	}
	err = s.Write(ctx, j.Item, value+"c", h)
	switch {
	case err == nil:
		return parent.Send("wrote")
	case !errors.Is(err, ErrStale):
		return err
	}
	if _, err = s.Read(ctx, j.Item, h); !errors.Is(err, ErrStale) {
		return fmt.Errorf("the write was stale, the read is not: %v", err)
	}
	return parent.Send("stale stale")
}

// wantSaid checks the child's next message.
func wantSaid(t *testing.T, c *child.Process, want string) {
	t.Helper()
	var got string
	if err := c.Receive(t.Context(), &got); err != nil {
		t.Fatalf("the child's next message: %v, want %q", err, want)
	}
	if got != want {
		t.Fatalf("the child says %q, want %q", got, want)
	}
}

// The careless stores do as the others do, without the rule.

type carelessSQL struct{ db *sql.DB }

func (s carelessSQL) Read(ctx context.Context, id string, _ Holder) (value string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT value FROM items WHERE id = ?`, id).Scan(&value)
	return value, err
}

func (s carelessSQL) Write(ctx context.Context, id, value string, _ Holder) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO items (id, value, fence, owner) VALUES (?, ?, 0, '')
		ON CONFLICT (id) DO UPDATE SET value = excluded.value`, id, value)
	return err
}

type carelessRedis struct{ pool *redis.Pool }

func (s carelessRedis) Read(ctx context.Context, id string, _ Holder) (string, error) {
	c := s.pool.Get()
	defer c.Close()
	return redis.String(redis.DoContext(c, ctx, "HGET", "item:"+id, "value"))
}

func (s carelessRedis) Write(ctx context.Context, id, value string, _ Holder) error {
	c := s.pool.Get()
	defer c.Close()
	_, err := redis.DoContext(c, ctx, "HSET", "item:"+id, "value", value)
	return err
}

type careless struct{ values sync.Map }

func (s *careless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.values.Store(r.URL.Path, string(body))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	value, _ := s.values.Load(r.URL.Path)
	fmt.Fprint(w, value)
}
