//go:build unix

package fencing

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/redistest"
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
				locks, err := luascript.New(server.Pool(), strategy.Options{TTL: time.Minute})
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

				c := start(t, j)
				c.wants("read a") // it holds the lock
				c.pause()
				untilGone(t, server, "lock:{"+j.Lock+"}")

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

				c.goOn()
				c.wants(want)
				_, h = hold()
				if value, err := s.Read(ctx, j.Item, h); value != wantValue || err != nil {
					t.Errorf("in the end the value is %q, %v, want %q", value, err, wantValue)
				}
			})
		}
	}
}

// untilGone waits until the server has let the key go.
func untilGone(t *testing.T, server *redistest.Server, key string) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if redistest.Do(t, server, "EXISTS", key) == int64(0) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s is still there after a minute", key)
		}
	}
}

// childVar tells a process that it is the holder to be paused, and its job.
const childVar = "LOCKS_FENCING_CHILD"

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
func Child() bool {
	text := os.Getenv(childVar)
	if text == "" {
		return false
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.work(context.Background())
	}
	if err != nil {
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return true
}

func (j job) work(ctx context.Context) error {
	s, end, err := j.open()
	if err != nil {
		return err
	}
	defer end()
	pool := dial(j.Redis)
	defer pool.Close()
	locks, err := luascript.New(pool, strategy.Options{TTL: time.Second})
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
	fmt.Println("read", value)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err // the parent is gone
	}
	err = s.Write(ctx, j.Item, value+"c", h)
	switch {
	case err == nil:
		fmt.Println("wrote")
		return nil
	case !errors.Is(err, ErrStale):
		return err
	}
	if _, err = s.Read(ctx, j.Item, h); !errors.Is(err, ErrStale) {
		return fmt.Errorf("the write was stale, the read is not: %v", err)
	}
	fmt.Println("stale stale")
	return nil
}

// A process is a child as its parent sees it.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func start(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVar+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it has ended by itself
		cmd.Wait()         //nolint:errcheck // killed, or not: it said all it had to say
	})
	return &process{t: t, cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
}

// wants reads the child's next line.
func (p *process) wants(line string) {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the child ended, %v, want %q", p.lines.Err(), line)
	}
	if got := p.lines.Text(); got != line {
		p.t.Fatalf("the child says %q, want %q", got, line)
	}
}

// pause returns when the child stands still.
func (p *process) pause() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			p.t.Fatal(err)
		case !status.Stopped():
			p.t.Fatalf("the child has status %v, want stopped", status)
		}
		return
	}
}

// goOn lets the child run, and write.
func (p *process) goOn() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.WriteString(p.stdin, "write\n"); err != nil {
		p.t.Fatal(err)
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
