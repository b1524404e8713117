package postgres

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

// The server that tests use, at POSTGRES_URL; its user may make databases and roles.

// urlEnv is the environment variable that names the server.
const urlEnv = "POSTGRES_URL"

// serverURL is the server's; without one the test is skipped.
func serverURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv(urlEnv)
	if url == "" {
		t.Skip("NOT PROVEN: what locks in PostgreSQL do: " + urlEnv + " names no server")
	}
	return url
}

// poolOf is a pool on a URL, which is closed with the test.
func poolOf(t testing.TB, url string, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 32
	for _, change := range changes {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// migrated is a pool on the server, which has the schema.
func migrated(t testing.TB, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := poolOf(t, serverURL(t), changes...)
	migrate(t, pool)
	return pool
}

func migrate(t testing.TB, pool *pgxpool.Pool, options ...Option) {
	t.Helper()
	err := pool.AcquireFunc(context.Background(), func(c *pgxpool.Conn) error {
		return Migrate(context.Background(), c.Conn(), options...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run runs SQL that must succeed.
func run(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// value is the one value of a query.
func value[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// pooler starts a PgBouncer before the server, in that pool mode, and returns its URL. Without one the test is skipped.
func pooler(t testing.TB, mode string) string {
	t.Helper()
	config, err := pgx.ParseConfig(serverURL(t))
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skipf("NOT PROVEN: what locks do behind a pooler: %v", err)
	}
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(probe.Addr().String())
	probe.Close()
	ini := filepath.Join(t.TempDir(), "pgbouncer.ini")
	password := ""
	if config.Password != "" {
		password = " password='" + config.Password + "'"
	}
	text := fmt.Sprintf(`[databases]
locks = host=%s port=%d dbname=%s user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 32
max_client_conn = 500
`, config.Host, config.Port, config.Database, config.User, password, port, mode)
	if err := os.WriteFile(ini, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{ini}
	if os.Getuid() == 0 { // it does not run as root
		args = []string{"-u", "nobody", ini}
	}
	cmd := exec.Command(path, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // it was killed
		if t.Failed() {
			t.Logf("the pooler: %s", said.Bytes())
		}
	})
	url := "postgres://any@127.0.0.1:" + port + "/locks?sslmode=disable&default_query_exec_mode=exec"
	verdict.Eventually(t, "the pooler answers", func() bool {
		conn, err := pgx.Connect(context.Background(), url)
		if err == nil {
			conn.Close(context.Background()) //nolint:errcheck // it has answered
		}
		return err == nil
	})
	return url
}

// ownDatabase makes a database for one test, and returns its URL.
func ownDatabase(t testing.TB) string {
	t.Helper()
	url := serverURL(t)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	pool := poolOf(t, url)
	name := fmt.Sprintf("locks_%x", random())
	run(t, pool, "create database "+name)
	t.Cleanup(func() { run(t, pool, "drop database "+name+" with (force)") })
	return fmt.Sprintf("postgres://%s:%s@%s:%d/%s?sslmode=prefer", config.User, config.Password, config.Host, config.Port, name)
}
