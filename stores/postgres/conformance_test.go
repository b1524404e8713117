// The strategy is held to the exported suite, on a real server.
package postgres

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/strategy"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, subject("postgres", migrated(t), storetest.PostgresURL(t)))
}

// TestEveryWayToWait holds the suite on the other ways to wait.
func TestEveryWayToWait(t *testing.T) {
	pool, url := migrated(t), storetest.PostgresURL(t)
	for name, change := range map[string]func(o *strategy.Options){
		"poll":         func(o *strategy.Options) { o.Wait = cmp.Or(o.Wait, strategy.WaitPoll) },
		"notification": func(o *strategy.Options) { o.Wait = cmp.Or(o.Wait, strategy.WaitNotification) },
		"no hand-over": func(o *strategy.Options) { o.NoHandOver = true },
	} {
		s := subject(name, pool, url)
		s.Fair = name == "no hand-over"
		plain, gated := s.Open, s.OpenGated
		s.Open = func(o strategy.Options) (strategy.Strategy, error) { change(&o); return plain(o) }
		s.OpenGated = func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			change(&o)
			return gated(o, g)
		}
		conformance.Run(t, s)
	}
}

// subject is the strategy on a pool. A child process opens the server of the URL.
func subject(name string, pool *pgxpool.Pool, url string, options ...Option) conformance.Subject {
	listeners := `select pid from pg_locks where locktype = 'advisory' and granted
		and (classid::bigint << 32 | objid::bigint) = any ($1::bigint[])`
	return conformance.Subject{
		Name: name,
		Open: func(o strategy.Options) (strategy.Strategy, error) { return New(pool, o, options...) },
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			p := newProtocol(pool, settingsOf(options))
			p.database = behind(p.database, g)
			return engine.New(p, o)
		},
		OpenSkewed: func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) { return New(pool, o, options...) },
		Evict: func(ctx context.Context, key string) error { // an expired row stays
			_, err := pool.Exec(ctx, `update locks.lease set expires = clock_timestamp() - interval '1 millisecond' where key = $1`, []byte(key))
			return err
		},
		BreakWatches: func(ctx context.Context, key string) error {
			locks, err := listenersOf(ctx, pool, key)
			if err == nil {
				_, err = pool.Exec(ctx, `select pg_terminate_backend(pid) from (`+listeners+`) as l`, locks)
			}
			return err
		},
		Forge: func(ctx context.Context, key string, n driver.Notification) error { return forge(ctx, pool, key, n) },
		// An expired row stays until somebody takes its place or an acquire sweeps it: see TestSweep.
		Leftovers: func(ctx context.Context, key string) (left []string, err error) {
			n := newNames(defaultSchema).of(key)
			rows, err := pool.Query(ctx, `select 'lease '||encode(token, 'escape')||' until '||expires from locks.lease where key = $2 and expires > clock_timestamp()
				union all select 'place of '||encode(token, 'escape') from locks.queue where key = $2
				union all select 'listener '||pid from (`+listeners+`) as l`, []int64{n.heard}, n.key)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var s string
				if err := rows.Scan(&s); err != nil {
					return nil, err
				}
				left = append(left, s)
			}
			return left, rows.Err()
		},
		ChildEnv: storetest.Given(storetest.PostgresEnv, url),
		Fenced:   true,
		Fair:     true,
	}
}

// listenersOf are the advisory locks of those who listen for a lock.
func listenersOf(ctx context.Context, pool *pgxpool.Pool, key string) (locks []int64, err error) {
	n := newNames(defaultSchema).of(key)
	err = pool.QueryRow(ctx, `select coalesce(array_agg(listener), '{}') from locks.queue where key = $1`, n.key).Scan(&locks)
	return append(locks, n.heard), err
}

// forge sends what n says on all channels of a lock.
func forge(ctx context.Context, pool *pgxpool.Pool, key string, n driver.Notification) error {
	name := newNames(defaultSchema).of(key)
	var channels []string
	var now int64
	err := pool.QueryRow(ctx, `select coalesce(array_agg(channel), '{}'), locks.micros_1(clock_timestamp()) from locks.queue where key = $1`, name.key).Scan(&channels, &now)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("%x", n.Holder)
	switch {
	case n.Token != "":
		fence := n.Grant.Fence
		if fence == 0 {
			fence = driver.MaxFences
		}
		message = fmt.Sprintf("grant %d %d %d %d %x", fence/driver.MaxFences*driver.MaxFences, max(n.Grant.Fences, 1), n.Grant.TTL.Milliseconds(), now+n.Grant.ServerTime.Microseconds(), n.Token)
	case n.Next > 0:
		message = fmt.Sprintf("next %d", n.Next.Milliseconds())
	}
	for _, channel := range append(channels, name.freed) {
		if _, err := pool.Exec(ctx, `select pg_notify($1, $2)`, channel, message); err != nil {
			return err
		}
	}
	return nil
}
