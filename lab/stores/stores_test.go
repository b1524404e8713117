// Locks in PostgreSQL and etcd under random faults on real servers: they keep what they promise. "make more" plays each for
// seconds, with one seed; -for plays longer, and all that is wrong on purpose.
package stores

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/nemesis"
	"github.com/lockstrategies/locks/stores/etcd"
	"github.com/lockstrategies/locks/stores/postgres"
	"github.com/lockstrategies/locks/strategy"
)

var (
	seedFlag = flag.Uint64("seed", 0, "what decides which faults happen; 0: with -for the time of day, else 1")
	forFlag  = flag.Duration("for", 0, "how long each store is tried, in rounds of a minute at most; 0: for seconds")
)

func TestMain(m *testing.M) {
	var all []subjects.Variant
	for _, s := range stores {
		all = append(all, s.Variant)
		for _, mistake := range mistakes {
			all = append(all, mistake.of(s.Variant))
		}
	}
	if contender.Child(all...) {
		return
	}
	storetest.Main(m)
}

// A store is what its lock claims, and where it is broken.
type store struct {
	nemesis.Config
	ground func(testing.TB) nemesis.Ground
	brief  time.Duration // how long the short part breaks things, without the calm
}

var atWays = []string{"hold requests", "hold replies", "hold both", "cut requests", "cut replies", "cut both", "slow", "reset", "refuse", "slow network"}

var stores = []store{
	{
		Config: nemesis.Config{
			Variant: subjects.Variant{Name: "postgres", Package: "postgres", Servers: 1, Fenced: true, Dial: dialPostgres},
			Faults:  append([]string{"freeze", "restart", "kill clients", "pause", "kill"}, atWays...),
			TTL:     time.Second, OpTimeout: 400 * time.Millisecond,
		},
		ground: postgresGround, brief: 3 * time.Second,
	},
	{
		Config: nemesis.Config{
			Variant: subjects.Variant{Name: "etcd", Package: "etcd", Servers: 3, Fenced: true, Dial: dialEtcd},
			Faults:  append([]string{"freeze", "restart", "cut off", "pause", "kill"}, atWays...),
			TTL:     2 * time.Second, OpTimeout: 800 * time.Millisecond, // the other half is etcd's least TTL here
			Bound: 10 * time.Second, Calm: 12 * time.Second, // a lease of a dead process is counted from its beginning by a new leader
		},
		ground: etcdGround, brief: 6 * time.Second,
	},
}

func dialPostgres(addrs []string) (driver.Protocol, func() error, error) {
	c, err := pgxpool.ParseConfig("postgres://postgres@" + addrs[0] + "/postgres?sslmode=disable&connect_timeout=2")
	if err != nil {
		return nil, nil, err
	}
	c.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, nil, err
	}
	return postgres.On(pool), func() error { pool.Close(); return nil }, nil
}

// connect makes a client as the README says, which tells nobody of requests that are lost.
func connect(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop(),
	})
}

func dialEtcd(addrs []string) (driver.Protocol, func() error, error) {
	c, err := connect(addrs)
	if err != nil {
		return nil, nil, err
	}
	return etcd.On(c), c.Close, nil
}

// TestNemesis: while servers, networks and processes break, each store's lock keeps what it promises.
func TestNemesis(t *testing.T) {
	for _, s := range stores {
		t.Run(s.Variant.Name, func(t *testing.T) {
			t.Parallel()
			c, total := s.Config, *forFlag
			switch c.Seed = *seedFlag; {
			case total == 0:
				c.Seed, total = max(c.Seed, 1), s.brief+max(c.Calm, nemesis.Calm)
			case c.Seed == 0:
				c.Seed = uint64(time.Now().UnixNano())
			}
			nemesis.Soak(t, s.ground(t), c, total, "go test -C lab/stores")
		})
	}
}

// A mistake is what a protocol does wrong on purpose.
type mistake struct {
	name   string
	make   func(driver.Protocol) driver.Protocol
	faults []string // that show it; nil: all do
}

// Without the comparison of its token the undo of an attempt hits the holder, whichever that is.
func undoesAnything(p driver.Protocol) driver.Protocol {
	return &broken.Protocol{Protocol: p, Undoes: func(ctx context.Context, c driver.Claim) error {
		if info, err := p.Inspect(ctx, driver.Claim{Key: c.Key, Name: c.Name, Due: c.Due}); err == nil && info.Held {
			c.Token = info.Token
		}
		_, err := p.ForceRelease(ctx, c)
		if errors.Is(err, strategy.ErrLost) {
			return nil
		}
		return err
	}}
}

// The first seed shows each, after 5 s on PostgreSQL and 10 s on etcd, but for the TTL that counts from the reply. That shows after 5
// to 20 s on PostgreSQL, and 10 to 100 s on etcd, which keeps a lock for up to a second longer than its holder may believe.
var mistakes = []mistake{
	{"grants some of what is held", func(p driver.Protocol) driver.Protocol { return broken.GrantsSome(p, true) }, nil},
	{"undoes anything", undoesAnything, []string{"cut replies", "reset"}},
	{"counts fences in each process", broken.HasFencesOfItsOwn.Protocol, nil},
	{"repeats a fence", broken.RepeatsAFence.Protocol, nil},
	{"counts the TTL from the reply", broken.CountsFromTheReply.Protocol, []string{"slow network", "hold replies"}},
	{"takes no answer for a yes", broken.TakesSilenceForYes.Protocol, nil},
}

// of is a store's variant with the mistake.
func (m mistake) of(v subjects.Variant) subjects.Variant {
	dial := v.Dial
	v.Name += ", " + m.name
	v.Dial = func(addrs []string) (driver.Protocol, func() error, error) {
		p, end, err := dial(addrs)
		if err != nil {
			return nil, nil, err
		}
		return m.make(p), end, nil
	}
	return v
}

// seeds is how many are enough to find what is wrong.
const seeds = 20

// TestPlanted: what is wrong with a lock is found on each store.
func TestPlanted(t *testing.T) {
	for _, s := range stores {
		t.Run(s.Variant.Name, func(t *testing.T) {
			t.Parallel()
			g := s.ground(t)
			for _, m := range mistakes {
				if *forFlag == 0 && m.name != mistakes[0].name {
					continue
				}
				t.Run(m.name, func(t *testing.T) { search(t, g, s, m) })
			}
		})
	}
}

// search plays one seed after the other, until one shows that something is wrong.
func search(t *testing.T, g nemesis.Ground, s store, m mistake) {
	t.Helper()
	c := s.Config
	c.Variant = m.of(s.Variant)
	c.Plain, c.Overstay = true, 4 // so that a mistake shows sooner
	c.Calm = time.Second
	c.For = c.Calm + 4*c.TTL
	if m.faults != nil {
		c.Faults = m.faults
	}
	began := time.Now()
	for c.Seed = 1; c.Seed <= seeds; c.Seed++ {
		r, err := nemesis.Run(t.Context(), g, c)
		if err != nil {
			t.Fatalf("seed %d: %v", c.Seed, err)
		}
		if len(r.Found) > 0 {
			t.Logf("seed %d shows it, after %v: %v", c.Seed, time.Since(began).Round(time.Second), r.Found[0].Property)
			return
		}
	}
	t.Errorf("%d seeds have shown nothing", seeds)
}
