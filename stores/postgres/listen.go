package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/strategy"
)

// errPooler says why nobody can listen.
var errPooler = fmt.Errorf("%w: a notification does not come back, as behind a pooler in transaction mode; "+
	"give WithListener a configuration that leads to the same database of the server itself, or set Options.Wait to WaitPoll", strategy.ErrUnsupported)

// listening are the subscriptions of a server: one connection for all of them, which is not one of the pool. It holds an
// advisory lock of its own, so each step knows whether a waiter can still hear of a grant.
type listening struct {
	server *server
	sub    *subscription.Subscriber
	id     atomic.Int64 // the advisory lock of the last connection

	pooled atomic.Pointer[time.Time] // when a pooler was found last; nil: none
}

func newListening(s *server) *listening {
	l := &listening{server: s}
	l.sub = subscription.New(l)
	return l
}

func (l *listening) subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	return l.sub.Subscribe(ctx, channel, fn)
}

func (l *listening) listener() int64 { return l.id.Load() }

// leave ends the subscriptions: their connection leads to a server that is not the primary any more.
func (l *listening) leave() { l.sub.Leave(func(subscription.Conn) bool { return true }) }

// Close ends the subscriptions, and waits for all that goes on.
func (l *listening) Close() error {
	l.sub.Close()
	l.sub.Wait()
	return nil
}

// askPoolerEvery is how long it is believed that a pooler is in between.
const askPoolerEvery = time.Minute

// Home is the server. Behind a pooler nobody can listen.
func (l *listening) Home(context.Context, string) (any, error) {
	if found := l.pooled.Load(); found != nil && time.Since(*found) < askPoolerEvery {
		return nil, l.server.failed(strategy.ErrRefused, errPooler)
	}
	return l.server.name, nil
}

// staleAfter is how long a connection at rest is trusted.
const staleAfter = 30 * time.Second

// Stale is subscription.Client's.
func (l *listening) Stale(_, used time.Time) bool { return time.Since(used) > staleAfter }

// Failed is subscription.Client's.
func (l *listening) Failed(_ any, kind, err error) error {
	if errors.Is(err, errPooler) {
		kind = strategy.ErrRefused
	}
	return l.server.failed(kind, err)
}

// Dial makes the connection, and its advisory lock.
func (l *listening) Dial(ctx context.Context, _ *subscription.Link) (subscription.Conn, error) {
	config, err := l.config(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	id, err := l.greet(ctx, conn)
	if err != nil {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		conn.Close(brief) //nolint:errcheck // it is given up
		return nil, err
	}
	hijacked, err := conn.PgConn().Hijack()
	if err != nil {
		conn.Close(ctx) //nolint:errcheck // it is given up
		return nil, err
	}
	l.id.Store(id)
	return &listenConn{HijackedConn: hijacked}, nil
}

// config is that of the pool, with its changes, or the listener's.
func (l *listening) config(ctx context.Context) (*pgx.ConnConfig, error) {
	config := l.server.settings.listener
	if config != nil {
		config = config.Copy()
	} else {
		pool := l.server.pool.Config()
		config = pool.ConnConfig
		if pool.BeforeConnect != nil {
			if err := pool.BeforeConnect(ctx, config); err != nil {
				return nil, err
			}
		}
	}
	if config.ValidateConnect == nil { // of several servers, the primary
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if config.RuntimeParams == nil {
		config.RuntimeParams = map[string]string{}
	}
	config.RuntimeParams["application_name"] = strings.TrimSpace(config.RuntimeParams["application_name"] + " locks")
	return config, nil
}

// greet prepares a new connection, and returns its advisory lock.
func (l *listening) greet(ctx context.Context, conn *pgx.Conn) (id int64, err error) {
	id = int64(random())
	var pid uint32
	if err := conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return 0, err
	}
	if pid != conn.PgConn().PID() || l.server.settings.listener != nil { // something is in between; or it may lead elsewhere
		if err := l.test(ctx, conn); err != nil {
			return 0, err
		}
	}
	l.pooled.Store(nil)
	_, err = conn.PgConn().Exec(ctx, "select pg_advisory_lock("+strconv.FormatInt(id, 10)+")").ReadAll()
	return id, err
}

func random() uint64 {
	var b [8]byte
	rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint64(b[:])
}

// testChannel is a channel that nobody else uses.
func testChannel() string { return testPrefix + strconv.FormatUint(random(), 16) }

// echoLimit is how long a notification may take to come back.
const echoLimit = time.Second

// test finds out whether notifications that come over the pool are heard.
func (l *listening) test(ctx context.Context, conn *pgx.Conn) error {
	channel := testChannel()
	if _, err := conn.PgConn().Exec(ctx, "listen "+channel).ReadAll(); err != nil {
		return err
	}
	if _, err := l.server.pool.Exec(ctx, "select pg_notify($1, '')", channel); err != nil {
		return err
	}
	waits, cancel := context.WithTimeout(ctx, echoLimit)
	defer cancel()
	heard := conn.PgConn().WaitForNotification(waits)
	if _, err := conn.PgConn().Exec(ctx, "unlisten "+channel).ReadAll(); err != nil { // a pooler's server goes on
		return err
	}
	if heard != nil {
		now := time.Now()
		l.pooled.Store(&now)
		return errPooler
	}
	return nil
}

// listenConn is the connection. One goroutine writes to it, another reads.
type listenConn struct {
	*pgconn.HijackedConn
	refusal error // of the request that is being answered
}

// writeLimit bounds the writing of a few requests.
const writeLimit = 2 * time.Second

// Write sends each request as a statement of its own.
func (c *listenConn) Write(requests []*subscription.Request) ([]error, error) {
	for _, r := range requests {
		c.Frontend.Send(&pgproto3.Query{String: statementOf(r)})
	}
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return nil, err
	}
	return nil, c.Frontend.Flush()
}

// statementOf is SQL for a request. Those who wait without a place in the queue also hold an advisory lock for their channel, so
// a release that nobody hears sends nothing.
func statementOf(r *subscription.Request) string {
	if r.Cmd == subscription.Ping {
		return "" // which is answered, too
	}
	listen, lock := "listen ", "pg_advisory_lock_shared"
	if r.Cmd == subscription.Unsubscribe {
		listen, lock = "unlisten ", "pg_advisory_unlock_shared"
	}
	if strings.HasPrefix(r.Channel, freedPrefix) {
		return fmt.Sprintf("%s%s; select %s(%d)", listen, r.Channel, lock, heardLock(r.Channel))
	}
	return listen + r.Channel
}

// Read reads until a notification has come, or a statement has been answered.
func (c *listenConn) Read(limit time.Duration) (subscription.Event, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return subscription.Event{}, err
	}
	for {
		msg, err := c.Frontend.Receive()
		if err != nil {
			if c.refusal != nil {
				err = fmt.Errorf("%w: %w", err, c.refusal) // why it ends
			}
			return subscription.Event{}, err
		}
		switch msg := msg.(type) {
		case *pgproto3.NotificationResponse:
			return subscription.Event{Message: true, Channel: msg.Channel, Payload: []byte(msg.Payload)}, nil
		case *pgproto3.ErrorResponse:
			c.refusal = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			e := subscription.Event{Refusal: c.refusal}
			c.refusal = nil
			return e, nil
		}
	}
}

// closeLimit bounds a farewell.
const closeLimit = 100 * time.Millisecond

// Close says so to the server, and does not wait for the answer.
func (c *listenConn) Close() {
	c.Conn.SetWriteDeadline(time.Now().Add(closeLimit)) //nolint:errcheck // it is closed next
	if quit, err := (&pgproto3.Terminate{}).Encode(nil); err == nil {
		c.Conn.Write(quit) //nolint:errcheck // likewise
	}
	c.Conn.Close()
}

var (
	_ subscription.Client = (*listening)(nil)
	_ subscription.Reader = (*listenConn)(nil)
)
