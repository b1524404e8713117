package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// PostgresEnv is the environment variable that names a server: its user may make databases and roles.
const PostgresEnv = "POSTGRES_URL"

var postgres = product{
	name: "postgres", image: "postgres:15",
	// initdb asks a shell for what it starts.
	pkg:    machine.Package{Name: "postgresql-15", Suite: "bookworm", Program: "usr/lib/postgresql/15/bin/postgres", With: []string{"dash"}},
	places: []string{"/usr/lib/postgresql/*/bin"}, notRoot: true, idle: []string{"sh", "-c", "read never"},
}

var pgbouncer = product{
	name: "pgbouncer", pkg: machine.Package{Name: "pgbouncer", Suite: "bookworm", Program: "usr/sbin/pgbouncer"},
	places: []string{"/usr/sbin"}, notRoot: true,
}

// PostgresURL is a server for all tests of the process; an own database is an own world.
func PostgresURL(t testing.TB) string {
	t.Helper()
	f := ForTests(t)
	urls, err := f.share(t.Context(), "postgres", PostgresEnv, func(ctx context.Context) ([]*Server, []string, error) {
		s, err := f.StartPostgres(ctx)
		if err != nil {
			return nil, nil, err
		}
		return []*Server{s}, []string{s.PostgresURL()}, nil
	})
	f.must(t, err)
	return urls[0]
}

// OwnPostgres is a server for this test alone, to break. It ends with the test.
func OwnPostgres(t testing.TB) *Server {
	t.Helper()
	f := ForTests(t)
	s, err := f.StartPostgres(t.Context())
	f.must(t, err)
	endWith(t, s)
	return s
}

// OwnStandby is a standby of a server, for this test alone.
func OwnStandby(t testing.TB, primary *Server) *Server {
	t.Helper()
	f := ForTests(t)
	s, err := f.startPostgres(t.Context(), "pg_basebackup", "-R", "-X", "stream", "-c", "fast", "-D", "data", "--no-sync", "-d", primary.PostgresURL())
	f.must(t, err)
	endWith(t, s)
	return s
}

// PostgresURL is the server's, for its superuser.
func (s *Server) PostgresURL() string {
	return "postgres://postgres@" + s.Addr + "/postgres?sslmode=disable"
}

// StartPostgres starts a server that can have standbys, and waits until it answers.
func (f *Farm) StartPostgres(ctx context.Context) (*Server, error) {
	return f.startPostgres(ctx, "initdb", "-D", "data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync")
}

// startPostgres starts a server on the data that a program makes.
func (f *Farm) startPostgres(ctx context.Context, program string, args ...string) (*Server, error) {
	from, err := f.source(ctx, postgres)
	if err != nil {
		return nil, err
	}
	s, ports, err := f.prepare(1, postgresAnswers)
	if err != nil {
		return nil, err
	}
	if err = s.run(ctx, from, program, args...); err == nil {
		s.running, err = from.start(ctx, s.dir, "postgres", []string{"-D", "data", "-p", strconv.Itoa(ports[0]),
			"-c", "listen_addresses=" + machine.Loopback, "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=300"})
	}
	if err == nil {
		err = s.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: %w", err), s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// postgresAnswers opens a session, which a server that starts or ends refuses.
func postgresAnswers(ctx context.Context, addr string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end) //nolint:errcheck // a connection that has no deadline answers, too
	}
	const version3 = 3 << 16
	hello := slices.Concat(binary.BigEndian.AppendUint32(nil, version3), []byte("user\x00postgres\x00database\x00postgres\x00\x00"))
	reply := make([]byte, 1)
	if _, err = conn.Write(slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(4+len(hello))), hello)); err == nil {
		_, err = io.ReadFull(conn, reply)
	}
	return err == nil && reply[0] == 'R' // it authenticates; E is an error
}

// OwnPooler starts PgBouncer for this test, with that configuration, and returns its address.
func OwnPooler(t testing.TB, config string) (addr string) {
	t.Helper()
	f := ForTests(t)
	from, err := f.source(t.Context(), pgbouncer)
	f.must(t, err)
	s, ports, err := f.prepare(1, func(_ context.Context, addr string) bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	f.must(t, err)
	endWith(t, s)
	config += fmt.Sprintf("\nlisten_addr = %s\nlisten_port = %d\nunix_socket_dir =\n", machine.Loopback, ports[0])
	if err = os.WriteFile(filepath.Join(s.dir, "pgbouncer.ini"), []byte(config), 0o644); err == nil {
		s.running, err = from.start(t.Context(), s.dir, "pgbouncer", []string{"pgbouncer.ini"})
	}
	if err == nil {
		err = s.Ready(t.Context())
	}
	f.must(t, err)
	return s.Addr
}
