// Package stores has the locks that are not on Redis, for a comparison with those that are.
package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/stores/etcd"
	"github.com/lockstrategies/locks/stores/postgres"
	"github.com/lockstrategies/locks/strategy"
)

// patience bounds what is asked of a server besides the locks.
const patience = 10 * time.Second

// FromEnv are the stores of these names, or for none all whose servers the environment names. They answer. Close them.
// In PostgreSQL it makes the locks' tables, if they are not there.
func FromEnv(ctx context.Context, names []string) (all []compare.Store, closeAll func(), err error) {
	var ends []func()
	closeAll = func() {
		for _, end := range ends {
			end()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, of := range known {
		addr, asked := os.Getenv(of.variable), slices.Contains(names, of.name)
		switch {
		case asked && addr == "":
			closeAll()
			return nil, nil, fmt.Errorf("%s takes a server: %s names it", of.name, of.variable)
		case addr == "", len(names) > 0 && !asked:
			continue
		}
		s, end, err := of.connect(addr)
		if err == nil {
			ends = append(ends, end)
			err = s.ready(ctx)
		}
		if err != nil { // the address is not repeated: it may hold a password
			closeAll()
			return nil, nil, fmt.Errorf("%s: %w", of.variable, err)
		}
		s.Name, s.ChildEnv = of.name, []string{of.variable + "=" + addr}
		all = append(all, compare.Store{Subject: s.Subject, Summary: of.summary})
	}
	return all, closeAll, nil
}

// Children are the stores as processes of a trial open them: see [conformance.Child].
func Children() (all []conformance.Subject) {
	for _, of := range known {
		all = append(all, conformance.Subject{Name: of.name, Open: func(o strategy.Options) (strategy.Strategy, error) {
			s, _, err := of.connect(os.Getenv(of.variable)) // it ends with this process
			if err != nil {
				return nil, err
			}
			return s.Open(o)
		}})
	}
	return all
}

// A store is what a trial, and a measurement, needs of it. Its requests pass no gate, so trials that stop one are left to
// the store's own tests.
type store struct {
	conformance.Subject
	ready func(context.Context) error
}

var known = []struct {
	name, summary, variable string
	connect                 func(addr string) (store, func(), error)
}{
	{"postgres", "a row of a table, with a queue, by functions of the database", storetest.PostgresEnv, onPostgres},
	{"etcd", "a key with a lease, and a queue in the order of revisions", storetest.EtcdEnv, onEtcd},
}

func onPostgres(url string) (s store, end func(), err error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return s, nil, errors.New("it is no URL of PostgreSQL: want postgres://user:password@host:port/database")
	}
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return s, nil, err
	}
	s.ready = func(ctx context.Context) error {
		return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return postgres.Migrate(ctx, c.Conn()) })
	}
	s.Subject = conformance.Subject{
		Open: func(o strategy.Options) (strategy.Strategy, error) { return postgres.New(pool, o) },
		OpenSkewed: func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) {
			return postgres.New(pool, o) // the lock takes no clock from its contenders
		},
		Evict: func(ctx context.Context, key string) error { // an expired row stays
			_, err := pool.Exec(ctx, `update locks.lease set expires = clock_timestamp() - interval '1 millisecond' where key = $1`, []byte(key))
			return err
		},
		Leftovers: func(ctx context.Context, key string) ([]string, error) { // but for expired rows, which are swept in time
			var leases, places int
			err := pool.QueryRow(ctx, `select (select count(*) from locks.lease where key = $1 and expires > clock_timestamp()),
				(select count(*) from locks.queue where key = $1)`, []byte(key)).Scan(&leases, &places)
			if err != nil || leases+places == 0 {
				return nil, err
			}
			return []string{fmt.Sprintf("%d leases and %d places in the queue", leases, places)}, nil
		},
		Fenced: true, Fair: true,
	}
	return s, pool.Close, nil
}

func onEtcd(endpoints string) (s store, end func(), err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoints, ","), Logger: zap.NewNop()})
	if err != nil {
		return s, nil, err
	}
	s.ready = func(ctx context.Context) error {
		_, err := client.Get(ctx, "any")
		return err
	}
	open := func(o strategy.Options) (strategy.Strategy, error) { return etcd.New(client, o) }
	s.Subject = conformance.Subject{
		Open: open,
		OpenSkewed: func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) {
			return open(o) // the lock takes no clock from its contenders
		},
		Evict: func(ctx context.Context, key string) error {
			resp, err := client.Get(ctx, holderOf(key))
			if err != nil || len(resp.Kvs) == 0 {
				return err
			}
			if id := resp.Kvs[0].Lease; id != 0 { // what the leader does when it has ended
				_, err = client.Revoke(ctx, clientv3.LeaseID(id))
				return err
			}
			_, err = client.Delete(ctx, holderOf(key))
			return err
		},
		Spoil: func(ctx context.Context, key string) error {
			_, err := client.Put(ctx, holderOf(key), "somebody's")
			return err
		},
		Leftovers: func(ctx context.Context, key string) (left []string, err error) {
			for _, o := range [][]clientv3.OpOption{nil, {clientv3.WithPrefix()}} {
				at := holderOf(key)
				if o != nil {
					at += "//queue/"
				}
				resp, err := client.Get(ctx, at, o...)
				if err != nil {
					return nil, err
				}
				for _, kv := range resp.Kvs {
					left = append(left, fmt.Sprintf("%q", kv.Key))
				}
			}
			return left, nil
		},
		TTL:    etcdTTL,
		Fenced: true, Fair: true,
	}
	return s, func() { client.Close() }, nil
}

// etcdTTL is the shortest that etcd grants with its usual election timeout of 1 s.
const etcdTTL = 2 * time.Second

// holderOf is the key of the lock's holder.
func holderOf(key string) string {
	key = strings.ReplaceAll(key, "/%", "/%%")
	for strings.Contains(key, "//") {
		key = strings.ReplaceAll(key, "//", "/%/")
	}
	return key
}
