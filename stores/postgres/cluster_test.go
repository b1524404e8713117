//go:build unix

package postgres

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Servers of a test's own, which have standbys and are stopped: made by the programs of PostgreSQL, if they are here.

// binEnv names the folder of these programs, if they are not where Debian has them.
const binEnv = "POSTGRES_BIN"

// A cluster is one such server.
type cluster struct {
	bin, dir string
	port     int
	as       *syscall.Credential
}

func (c *cluster) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.port)
}

func (c *cluster) addr() string { return "127.0.0.1:" + strconv.Itoa(c.port) }

// primary starts a server without standbys.
func primary(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{bin: os.Getenv(binEnv)}
	if c.bin == "" {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
		if len(found) == 0 {
			t.Skip("NOT PROVEN: what locks do when a server fails: " + binEnv + " names no folder")
		}
		c.bin = filepath.Dir(found[len(found)-1])
	}
	dir, err := os.MkdirTemp("", "locks-postgres-") // another user has to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 { // it does not run as root
		nobody, err := user.Lookup("postgres")
		if err != nil {
			t.Skipf("NOT PROVEN: what locks do when a server fails: %v", err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	c.dir = filepath.Join(dir, "primary")
	c.do(t, "initdb", "-D", c.dir, "-A", "trust", "-U", "postgres", "--no-sync")
	c.start(t, "fsync = off\nwal_level = replica\nmax_wal_senders = 5\nhot_standby = on\nmax_connections = 100\n")
	return c
}

// standby starts a server that follows c.
func (c *cluster) standby(t testing.TB) *cluster {
	t.Helper()
	s := &cluster{bin: c.bin, dir: filepath.Join(filepath.Dir(c.dir), "standby"), as: c.as}
	c.do(t, "pg_basebackup", "-R", "-X", "stream", "-c", "fast", "-D", s.dir, "-h", "127.0.0.1", "-p", strconv.Itoa(c.port), "-U", "postgres")
	s.start(t, "")
	return s
}

// start starts the server with more settings, and stops it with the test.
func (c *cluster) start(t testing.TB, more string) {
	t.Helper()
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.port = probe.Addr().(*net.TCPAddr).Port
	probe.Close()
	f, err := os.OpenFile(filepath.Join(c.dir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "\nlisten_addresses = '127.0.0.1'\nport = %d\nunix_socket_directories = ''\n%s", c.port, more)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.command("pg_ctl", "-D", c.dir, "-m", "immediate", "stop").Run() }) //nolint:errcheck // it may be down
	c.do(t, "pg_ctl", "-D", c.dir, "-l", filepath.Join(c.dir, "log"), "-w", "start")
}

func (c *cluster) stop(t testing.TB)    { c.do(t, "pg_ctl", "-D", c.dir, "-m", "immediate", "-w", "stop") }
func (c *cluster) promote(t testing.TB) { c.do(t, "pg_ctl", "-D", c.dir, "-w", "promote") }

// do runs a program, which must succeed.
func (c *cluster) do(t testing.TB, name string, args ...string) {
	t.Helper()
	if said, err := c.command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, said)
	}
}

func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = filepath.Dir(c.dir)
	if c.as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	}
	return cmd
}

// An address leads new connections to a server, and then to another. Those that are open stay where they are.
type address struct {
	net.Listener
	leads atomic.Pointer[string]
}

func addressOf(t testing.TB, c *cluster) *address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &address{Listener: l}
	a.lead(c)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { pipe(from, *a.leads.Load()) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Wait() // the pools have been closed before
	})
	return a
}

func (a *address) lead(c *cluster) {
	addr := c.addr()
	a.leads.Store(&addr)
}

func (a *address) url() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", a.Addr())
}

// pipe connects a connection to a server until either ends.
func pipe(from net.Conn, addr string) {
	defer from.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			io.Copy(way[0], way[1]) //nolint:errcheck // the end is the end
			from.Close()
			to.Close()
		})
	}
	both.Wait()
}

// replayed waits until the standby has all that the primary has.
func replayed(t testing.TB, primary, standby *pgxpool.Pool) {
	t.Helper()
	lsn := value[string](t, primary, "select pg_current_wal_lsn()::text")
	for !value[bool](t, standby, "select pg_last_wal_replay_lsn() >= $1::pg_lsn", lsn) {
		if _, err := standby.Exec(context.Background(), "select pg_sleep(0.01)"); err != nil {
			t.Fatal(err)
		}
	}
}
