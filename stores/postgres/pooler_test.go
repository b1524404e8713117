// Behind a pooler: PgBouncer in transaction mode, where no session is anybody's, and in session mode.
package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/strategy"
)

// direct is the configuration of a connection past the pooler.
func direct(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(storetest.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestConformancePooled holds the suite behind a pooler in transaction mode, where waiters poll.
func TestConformancePooled(t *testing.T) {
	migrated(t)
	url := pooler(t, "transaction")
	s := subject("pooled", poolOf(t, url), url)
	s.Fair, s.Forge, s.BreakWatches = false, nil, nil
	s.ChildEnv = nil // a child would start another pooler
	plain, gated := s.Open, s.OpenGated
	s.Open = func(o strategy.Options) (strategy.Strategy, error) {
		if o.Wait == strategy.WaitNotification || o.Wait == strategy.WaitQueue {
			return nil, strategy.ErrUnsupported // Check says so
		}
		return plain(o)
	}
	s.OpenGated = func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
		if o.Wait == strategy.WaitNotification || o.Wait == strategy.WaitQueue {
			return nil, strategy.ErrUnsupported
		}
		return gated(o, g)
	}
	conformance.Run(t, s)
}

// TestConformancePooledListening: the connection that listens leads past the pooler, and waiters queue.
func TestConformancePooledListening(t *testing.T) {
	migrated(t)
	url := pooler(t, "transaction")
	s := subject("pooled, listening", poolOf(t, url), url, WithListener(direct(t)))
	s.ChildEnv = nil
	conformance.Run(t, s)
}

// TestPooled: what Check and waiters say of a pooler.
func TestPooled(t *testing.T) {
	t.Parallel()
	migrated(t)
	transaction, session := poolOf(t, pooler(t, "transaction")), poolOf(t, pooler(t, "session"))
	for _, wait := range []strategy.Wait{strategy.WaitNotification, strategy.WaitQueue} {
		o := strategy.Options{Wait: wait, TTL: time.Minute, OpTimeout: 20 * time.Second}
		err := open(t, transaction, o).Check(t.Context())
		if !errors.Is(err, strategy.ErrUnsupported) || !strings.Contains(err.Error(), "WithListener") {
			t.Errorf("Check in transaction mode with %v = %v, want ErrUnsupported, and what to do", wait, err)
		}
		want(t, "Check in session mode", open(t, session, o).Check(t.Context()), nil)
		want(t, "Check with a listener", open(t, transaction, o, WithListener(direct(t))).Check(t.Context()), nil)
	}
	elsewhere, err := pgx.ParseConfig(ownDatabase(t))
	want(t, "ParseConfig", err, nil)
	o := strategy.Options{Wait: strategy.WaitQueue, TTL: time.Minute, OpTimeout: 20 * time.Second}
	err = open(t, session, o, WithListener(elsewhere)).Check(t.Context())
	want(t, "Check with a listener in another database", err, strategy.ErrUnsupported)
	want(t, "Check with WaitBest", open(t, transaction, strategy.Options{}).Check(t.Context()), nil)

	// One that polls and one that queues exclude each other.
	polls, queues := open(t, transaction, long), open(t, migrated(t), long)
	name := unique(t)
	lease := try(t, polls.NewLock(name))
	acquired := make(chan strategy.Lease, 2)
	for _, s := range []strategy.Strategy{polls, queues} {
		go func() {
			l, err := s.NewLock(name).Acquire(t.Context())
			want(t, "Acquire", err, nil)
			acquired <- l
		}()
	}
	want(t, "Release", lease.Release(t.Context()), nil)
	want(t, "Release", (<-acquired).Release(t.Context()), nil)
	want(t, "Release", (<-acquired).Release(t.Context()), nil)
}

// TestExecModes: locks need no prepared statement.
func TestExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		url := storetest.PostgresURL(t)
		separator := "?"
		if strings.Contains(url, "?") {
			separator = "&"
		}
		pool := poolOf(t, url+separator+"default_query_exec_mode="+mode)
		migrate(t, pool)
		s := open(t, pool, long)
		want(t, mode+": Check", s.Check(t.Context()), nil)
		lease := try(t, s.NewLock("a\x00\xff'\\"+unique(t)))
		want(t, mode+": Extend", lease.Extend(t.Context()), nil)
		_, err := s.NewLock(lease.Name()).TryAcquire(t.Context())
		want(t, mode+": TryAcquire", err, strategy.ErrHeld)
		info, err := s.Inspect(t.Context(), lease.Name())
		if err != nil || info.Token != lease.Token() {
			t.Errorf("%s: Inspect = %+v, %v, want the holder", mode, info, err)
		}
		token, err := lease.Detach()
		want(t, mode+": Detach", err, nil)
		lease, err = s.Adopt(t.Context(), lease.Name(), token)
		want(t, mode+": Adopt", err, nil)
		want(t, mode+": CheckTx", CheckTx(t.Context(), begin(t, pool), lease), nil)
	}
}
