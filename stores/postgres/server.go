package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A database is what the protocol asks. There is one; tests put a gate before it.
type database interface {
	// ask sends one statement in a transaction of its own, and returns what r.read made of its rows. It ends at due, and soon after ctx does.
	ask(ctx context.Context, due time.Time, r statement) (any, error)

	// subscribe is driver.Node.Subscribe.
	subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error)

	// listener is the advisory lock of the connection that listens, or listened last.
	listener() int64

	driver.Prober
	failed(kind, err error) error
	badReply(err error) error
	io.Closer
}

// unusable is the database of a pool, or of options, that have a fault: it is the error of all calls.
type unusable struct{ fault error }

func (u unusable) ask(context.Context, time.Time, statement) (any, error) { return nil, u.fault }

func (u unusable) subscribe(context.Context, string, func([]byte, error)) (stop func(), err error) {
	return nil, u.fault
}

func (u unusable) listener() int64                         { return 0 }
func (u unusable) Probe(context.Context, time.Time) uint64 { return 0 }
func (u unusable) failed(error, error) error               { return u.fault }
func (u unusable) badReply(error) error                    { return u.fault }
func (u unusable) Close() error                            { return nil }

// A statement asks for a step, or for something else.
type statement struct {
	step string // its name
	key  string // of the lock
	args []any
	read func(pgx.Rows) (any, error)
}

// ask asks for a step of a claim, which returns rows of T.
func ask[T any](ctx context.Context, p *protocol, c driver.Claim, step string, args []any, columns func(*T) []any) ([]T, error) {
	reply, err := p.ask(ctx, c.Due, statement{step: step, key: c.Key, args: args, read: func(rows pgx.Rows) (any, error) {
		var all []T
		for rows.Next() {
			var row T
			if err := rows.Scan(columns(&row)...); err != nil {
				return all, err
			}
			all = append(all, row)
		}
		return all, rows.Err()
	}})
	if err != nil {
		return nil, err
	}
	return reply.([]T), nil
}

// askOne is ask for a step that returns one row.
func askOne[T any](ctx context.Context, p *protocol, c driver.Claim, step string, args []any, columns func(*T) []any) (row T, err error) {
	rows, err := ask(ctx, p, c, step, args, columns)
	if err == nil && len(rows) != 1 {
		err = p.badReply(fmt.Errorf("%d rows, want 1", len(rows)))
	}
	if err != nil {
		return row, err
	}
	return rows[0], nil
}

// statements are those of all requests, by the names of their steps.
func statements(s settings) map[string]string {
	all := map[string]string{
		"rights": rightsOf(s), "notify": "select pg_notify($1, '')",
		"list": s.in("select l.key from locks.enter_1(null, $1, '') left join locks.lease l on l.expires > clock_timestamp() order by l.key"),
	}
	for step, arguments := range map[string]int{"acquire": 11, "release": 9, "pass": 11, "extend": 5, "adopt": 9, "inspect": 2} {
		var places []string
		for i := range arguments {
			places = append(places, "$"+strconv.Itoa(i+1))
		}
		all[step] = s.in(fmt.Sprintf("select * from %s.%s_1(%s)", defaultSchema, step, strings.Join(places, ", ")))
	}
	return all
}

// server is a database that is reached through a pool.
type server struct {
	*listening
	pool       *pgxpool.Pool
	settings   settings
	statements map[string]string
	name       string // for errors

	mu      sync.Mutex
	left    time.Time // when its connections were closed last
	silent  bool      // it gave no answer to the last Probe
	started time.Time // when the server says that it was started
	returns uint64    // how often it has come back
}

func newServer(pool *pgxpool.Pool, s settings) *server {
	c := pool.Config().ConnConfig
	srv := &server{
		pool: pool, settings: s, statements: statements(s),
		name: "postgres " + net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + c.Database,
	}
	srv.listening = newListening(srv)
	return srv
}

// failed is a caller's error.
func (s *server) failed(kind, err error) error {
	return &strategy.ServerError{Node: s.name, Kind: kind, Err: client.Discreet(err, s.pool.Config().ConnConfig.Password)}
}

// badReply is the error for a reply that nobody can read: the server did something, but nobody knows what.
func (s *server) badReply(err error) error {
	return s.failed(strategy.ErrUnknown, fmt.Errorf("a reply that no lock of this kind gives: %w", err))
}

func (s *server) ask(ctx context.Context, due time.Time, r statement) (any, error) {
	if ended := timeup.Cause(ctx); ended != nil {
		return nil, s.failed(strategy.ErrUnsent, ended)
	}
	if !time.Now().Before(due) {
		return nil, s.failed(strategy.ErrUnsent, timeup.Err)
	}
	bounded, cancel := context.WithDeadlineCause(ctx, due, timeup.Err)
	defer cancel()
	for again := true; ; again = false {
		began := time.Now()
		reply, kind, err := s.once(bounded, r)
		if err == nil {
			return reply, nil
		}
		if kind == strategy.ErrRefused && elsewhere(err) && s.leave(began) && again {
			continue // it has changed nothing; a new connection may lead to the primary
		}
		return nil, s.failed(kind, timeup.With(ctx, due, explained(s.settings, err)))
	}
}

// once sends the statement on one connection.
func (s *server) once(ctx context.Context, r statement) (reply any, kind, err error) {
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, strategy.ErrUnsent, fmt.Errorf("no connection: %w", err)
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, s.statements[r.step], r.args...)
	if err == nil {
		reply, err = r.read(rows)
		rows.Close()
		if err == nil {
			err = rows.Err() // also of the commit
		}
	}
	if err == nil {
		return reply, nil, nil
	}
	var refusal *pgconn.PgError
	switch {
	case pgconn.SafeToRetry(err):
		return nil, strategy.ErrUnsent, err
	case errors.As(err, &refusal) && rows.CommandTag().String() == "" && !strings.HasPrefix(refusal.Code, connectionClass):
		return nil, strategy.ErrRefused, err // the transaction is rolled back
	}
	return nil, strategy.ErrUnknown, err
}

// connectionClass begins the codes with which a pooler says that it lost the server, perhaps after the commit.
const connectionClass = "08"

// connection is one of the pool that the server has not closed: a dead one at rest costs no call. A new one is used in any case.
func (s *server) connection(ctx context.Context) (*pgxpool.Conn, error) {
	for tries := s.pool.Stat().MaxConns(); ; tries-- {
		conn, err := s.pool.Acquire(ctx)
		if err != nil || tries <= 0 || !ended(conn.Conn().PgConn().Conn()) {
			return conn, err
		}
		conn.Conn().Close(ctx) //nolint:errcheck // it has ended
		conn.Release()
	}
}

// elsewhere reports whether a refusal says that the connection leads to no primary, or that the server ended the session before
// it read the statement.
func elsewhere(err error) bool {
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Code {
	case "25006", // a standby; or a session that may only read
		"57P01", "57P02", "57P03": // it shuts down, has crashed, or starts
		return true
	}
	return false
}

// leaveEvery is how often the connections are closed at most.
const leaveEvery = time.Second

// leave closes the connections of the pool, and that which listens, for a call that began at that time. It reports whether
// that is done, so that the next connection is a new one.
func (s *server) leave(began time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case began.Before(s.left): // another call has done it meanwhile
		return true
	case time.Since(s.left) < leaveEvery:
		return false
	}
	s.pool.Reset()
	s.listening.leave()
	s.left = time.Now()
	return true
}

// explained adds what to do about a refusal.
func explained(s settings, err error) error {
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		return err
	}
	switch refusal.Code {
	case "3F000", "42883", "42P01": // no such schema, function, table
		return fmt.Errorf("the schema %s is missing or older than this program: run postgres.Migration: %w", s.schema, err)
	case "55P03": // lock_timeout
		return fmt.Errorf("other steps on this lock have kept this one waiting: %w", err)
	case "42501":
		return fmt.Errorf("the role may not use the schema %s: see postgres.Migration for its rights: %w", s.schema, err)
	}
	return err
}

// Probe asks for a sign of life. A server that was started again may be another, which has forgotten locks.
func (s *server) Probe(ctx context.Context, due time.Time) (returns uint64) {
	ctx, cancel := context.WithDeadlineCause(ctx, due, timeup.Err)
	defer cancel()
	began := time.Now()
	var started time.Time
	var standby bool
	err := s.pool.QueryRow(ctx, "select pg_postmaster_start_time(), pg_is_in_recovery()").Scan(&started, &standby)
	if err == nil && standby || elsewhere(err) {
		s.leave(began)
	}
	s.mu.Lock()
	another := err == nil && !s.started.IsZero() && !s.started.Equal(started)
	switch {
	case err != nil, standby:
		s.silent = true
	case another, s.silent:
		s.returns++
		fallthrough
	default:
		s.silent, s.started = false, started
	}
	returns = s.returns
	s.mu.Unlock()
	if another {
		s.listening.leave()
	}
	return returns
}
