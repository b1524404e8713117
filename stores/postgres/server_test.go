package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

// The servers that tests use: see internal/testkit/storetest.

func TestMain(m *testing.M) { storetest.Main(m) }

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
	pool := poolOf(t, storetest.PostgresURL(t), changes...)
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

// pooler starts a PgBouncer before the server, in that pool mode, and returns its URL.
func pooler(t testing.TB, mode string) string {
	t.Helper()
	config, err := pgx.ParseConfig(storetest.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	password := ""
	if config.Password != "" {
		password = " password='" + config.Password + "'"
	}
	addr := storetest.OwnPooler(t, fmt.Sprintf(`[databases]
locks = host=%s port=%d dbname=%s user=%s%s
[pgbouncer]
auth_type = any
pool_mode = %s
default_pool_size = 32
max_client_conn = 500
`, config.Host, config.Port, config.Database, config.User, password, mode))
	url := "postgres://any@" + addr + "/locks?sslmode=disable&default_query_exec_mode=exec"
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
	url := storetest.PostgresURL(t)
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
