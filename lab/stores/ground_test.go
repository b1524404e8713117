// Tests break servers of PostgreSQL and etcd, and the networks to them, in the nemesis's words.
package stores

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
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
	peers          *peering // nil: it is alone
	id             string   // what its peers call it
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
func (s *server) CutOff()                               { s.peers.cutOff(s.id) }
func (s *server) Rejoin()                               { s.peers.rejoin(s.id) }

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

// etcdGround is three members, of which one can be cut off from the others. An election takes them half a second or more.
func etcdGround(t testing.TB) nemesis.Ground {
	t.Helper()
	g := &ground{t: t, farm: storetest.ForTests(t)}
	peers := &peering{off: map[string]chan struct{}{}}
	var known sync.Mutex // of IDs, while they are asked for
	members := storetest.OwnEtcdBehind(t, 3, func(addr string) (string, error) {
		s := &server{peers: peers}
		g.servers = append(g.servers, s)
		return peers.proxy(t, addr, func() string {
			known.Lock()
			defer known.Unlock()
			return s.id
		}), nil
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
		status, err := c.Status(t.Context(), m.Addr)
		if err != nil {
			t.Fatal(err)
		}
		known.Lock()
		g.servers[i].id = strconv.FormatUint(status.Header.MemberId, 16)
		known.Unlock()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if status, err := clients[0].Status(ctx, members[0].Addr); err == nil {
			t.Logf("the members are in term %d: so many elections have begun", status.RaftTerm)
		}
	})
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

// TestCutOff: the others elect another leader, while the old one has none to follow; once it rejoins it follows that one.
func TestCutOff(t *testing.T) {
	t.Parallel()
	g := etcdGround(t).(*ground)
	leaderOf := func(s *server) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := connect([]string{s.s.Addr})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		status, err := c.Status(ctx, s.s.Addr)
		if err != nil {
			return "?"
		}
		return strconv.FormatUint(status.Leader, 16)
	}
	led := func(by func(id string) bool, who ...*server) func() bool {
		return func() bool {
			first := leaderOf(who[0])
			return by(first) && !slices.ContainsFunc(who, func(s *server) bool { return leaderOf(s) != first })
		}
	}
	anybody := func(id string) bool { return id != "?" && id != "0" }
	verdict.Eventually(t, "all have one leader", led(anybody, g.servers...))
	old := leaderOf(g.servers[0])
	i := slices.IndexFunc(g.servers, func(s *server) bool { return s.id == old })
	others := slices.Delete(slices.Clone(g.servers), i, i+1)
	g.servers[i].CutOff()
	verdict.Eventually(t, "the others have another leader", led(func(id string) bool { return anybody(id) && id != old }, others...))
	verdict.Eventually(t, "the old one has none", led(func(id string) bool { return id == "0" }, g.servers[i]))
	g.servers[i].Rejoin()
	verdict.Eventually(t, "all have one leader again", led(anybody, g.servers...))
}
