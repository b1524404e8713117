package postgres

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

// exec runs SQL that must succeed.
func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
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
	exec(t, pool, "create database "+name)
	t.Cleanup(func() { exec(t, pool, "drop database "+name+" with (force)") })
	return fmt.Sprintf("postgres://%s:%s@%s:%d/%s?sslmode=prefer", config.User, config.Password, config.Host, config.Port, name)
}
