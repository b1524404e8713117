// Tests break servers of PostgreSQL and etcd, and the networks to them, in the nemesis's words.
package stores

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/nemesis"
	"github.com/lockstrategies/locks/stores/postgres"
)

// A ground is servers of one store.
type ground struct {
	t       testing.TB
	farm    *storetest.Farm
	servers []*server
	reset   func(ctx context.Context) error
	ping    func(ctx context.Context, server int) error // what takes that server a millisecond, and no other
	store   *contender.Store
}

// A server is broken in these words. A plan of a store has no others.
type server struct {
	nemesis.Server // nil
	s              *storetest.Server
	killClients    func(context.Context) error
	peers          *rig.Link // by which other members reach it; nil: there are none
}

func (s *server) Freeze(ctx context.Context) error { return s.s.Freeze(ctx) }
func (s *server) Thaw(ctx context.Context) error   { return s.s.Thaw(ctx) }
func (s *server) Kill(ctx context.Context) error   { return s.s.Kill(ctx) }

func (s *server) Restart(ctx context.Context) error {
	if err := s.s.Restart(ctx); err != nil {
		return err
	}
	return s.s.Ready(ctx)
}

func (s *server) KillClients(ctx context.Context) error { return s.killClients(ctx) }
func (s *server) CutOff()                               { s.peers.Cut(rig.Both) }
func (s *server) Rejoin()                               { s.peers.Heal() }

// link leads to an address, until the test ends.
func link(t testing.TB, f *storetest.Farm, addr string) (*rig.Link, error) {
	port, release, err := f.ReservePort()
	if err != nil {
		return nil, err
	}
	l := rig.OpenLink(port, release, addr)
	t.Cleanup(l.Close)
	return l, nil
}

func (g *ground) Open(ctx context.Context, _ nemesis.Config) (servers []nemesis.Server, store string, err error) {
	for _, s := range g.servers {
		servers = append(servers, s)
	}
	if err := g.reset(ctx); err != nil {
		return nil, "", err
	}
	if g.store, err = contender.OpenStore(); err != nil {
		return nil, "", err
	}
	return servers, g.store.Addr(), nil
}

func (g *ground) Ways() (ways []nemesis.Way) {
	for _, s := range g.servers {
		l, err := link(g.t, g.farm, s.s.Addr)
		if err != nil {
			g.t.Fatal(err)
		}
		ways = append(ways, l)
	}
	return ways
}

func (g *ground) Start(ctx context.Context, ways []nemesis.Way, s contender.Setup) (nemesis.Process, error) {
	for _, w := range ways {
		s.Addrs = append(s.Addrs, w.(*rig.Link).Addr())
	}
	return contender.Start(ctx, s)
}

func (g *ground) Ping(ctx context.Context, server int) {
	g.ping(ctx, server) //nolint:errcheck // an error takes its time, too
}

func (g *ground) Close() error {
	if g.store == nil {
		return nil
	}
	return g.store.Close()
}

// postgresGround is one server.
func postgresGround(t testing.TB) nemesis.Ground {
	t.Helper()
	s := storetest.OwnPostgres(t)
	pool, err := pgxpool.New(t.Context(), s.PostgresURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	run := func(sql string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := pool.Exec(ctx, sql)
			return err
		}
	}
	if err := run(postgres.Migration())(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &ground{
		t: t, farm: storetest.ForTests(t),
		servers: []*server{{s: s, killClients: run("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")}},
		reset:   run("truncate locks.lease, locks.queue"),
		ping:    func(ctx context.Context, _ int) error { return run("select 1")(ctx) },
	}
}

// etcdGround is three members, which reach each other by links. An election takes them half a second or more.
func etcdGround(t testing.TB) nemesis.Ground {
	t.Helper()
	g := &ground{t: t, farm: storetest.ForTests(t)}
	members := storetest.OwnEtcdBehind(t, 3, func(addr string) (string, error) {
		l, err := link(t, g.farm, addr)
		if err != nil {
			return "", err
		}
		g.servers = append(g.servers, &server{peers: l})
		return l.Addr(), nil
	}, "--heartbeat-interval", "100", "--election-timeout", "500")
	var clients []*clientv3.Client
	for i, m := range members {
		g.servers[i].s = m
		c, err := connect([]string{m.Addr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		clients = append(clients, c)
	}
	g.reset = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := clients[0].Delete(ctx, "", clientv3.WithPrefix())
		return err
	}
	g.ping = func(ctx context.Context, server int) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := clients[server].Get(ctx, "anything", clientv3.WithSerializable())
		return err
	}
	return g
}
