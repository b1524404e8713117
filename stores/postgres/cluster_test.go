package postgres

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/internal/testkit/storetest"
)

// promote ends a primary at once, and has its standby take its place.
func promote(t testing.TB, primary, standby *storetest.Server) {
	t.Helper()
	if err := primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !value[bool](t, poolOf(t, standby.PostgresURL()), "select pg_promote()") {
		t.Fatal("pg_promote() = false, want true: the standby is promoted")
	}
}

// An address leads new connections to a server, and then to another. Those that are open stay where they are.
type address struct {
	net.Listener
	leads atomic.Pointer[string]
}

func addressOf(t testing.TB, s *storetest.Server) *address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &address{Listener: l}
	a.lead(s)
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

func (a *address) lead(s *storetest.Server) {
	a.leads.Store(&s.Addr)
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
