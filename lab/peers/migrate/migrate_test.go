// Package migrate holds what docs/use/migrating.md says: its code compiles, and locks of this
// module and of redsync, bsm/redislock and redis-py that are given the same key exclude each other, so
// that a fleet can be migrated one process at a time.
package migrate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	syncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gofrs/uuid/v5"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/quotes"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// TestDocQuotes holds docs/use/migrating.md to code_test.go, which is compiled.
func TestDocQuotes(t *testing.T) {
	from, err := quotes.Check("../../../docs/use/migrating.md")
	if err != nil || from["../../lab/peers/migrate/code_test.go"] != 1 {
		t.Errorf("%v, %v, want that the one function of code_test.go is quoted", from, err)
	}
}

func TestMain(m *testing.M) { redistest.Main(m) }

// ttl is long enough for a machine that is busy: where a lock is to expire, it is deleted.
const ttl = 30 * time.Second

// A peer is another library's lock of one name.
type peer interface {
	try(ctx context.Context) (taken bool, err error) // taken: somebody else has it
	extend(ctx context.Context) error                // nil: it was still its own
	release(ctx context.Context) error               // nil: it was still its own
}

// peers make a lock of the key on the servers.
var peers = map[string]func(t *testing.T, servers []*redistest.Server, key string) peer{
	"redsync": func(t *testing.T, servers []*redistest.Server, key string) peer {
		var pools []syncredis.Pool
		for _, s := range servers {
			pools = append(pools, syncredigo.NewPool(poolOf(t, s)))
		}
		return redsyncPeer{redsync.New(pools...).NewMutex(key, redsync.WithExpiry(ttl))}
	},
	"bsm": func(t *testing.T, servers []*redistest.Server, key string) peer {
		o, err := goredis.ParseURL(servers[0].URL())
		if err != nil {
			t.Fatal(err)
		}
		c := goredis.NewClient(o)
		t.Cleanup(func() { c.Close() })
		return &bsmPeer{c: redislock.New(c), key: key}
	},
	"redis-py": newRedisPyPeer,
}

type redsyncPeer struct{ *redsync.Mutex }

func (p redsyncPeer) try(ctx context.Context) (bool, error) {
	err := p.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return true, nil
	}
	return false, err
}

func (p redsyncPeer) extend(ctx context.Context) error  { return certain(p.ExtendContext(ctx)) }
func (p redsyncPeer) release(ctx context.Context) error { return certain(p.UnlockContext(ctx)) }

func certain(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("not its own any more")
	}
	return err
}

type bsmPeer struct {
	c   *redislock.Client
	key string
	*redislock.Lock
}

func (p *bsmPeer) try(ctx context.Context) (bool, error) {
	l, err := p.c.Obtain(ctx, p.key, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return true, nil
	}
	if err == nil {
		p.Lock = l
	}
	return false, err
}

func (p *bsmPeer) extend(ctx context.Context) error  { return p.Refresh(ctx, ttl, nil) }
func (p *bsmPeer) release(ctx context.Context) error { return p.Release(ctx) }

// ours are the strategies that exclude the peers.
var ours = map[string]func([]driver.Node, strategy.Options) (strategy.Strategy, error){
	"luascript":   func(n []driver.Node, o strategy.Options) (strategy.Strategy, error) { return luascript.New(n[0], o) },
	"fairqueue":   func(n []driver.Node, o strategy.Options) (strategy.Strategy, error) { return fairqueue.New(n[0], o) },
	"setnxpx":     func(n []driver.Node, o strategy.Options) (strategy.Strategy, error) { return setnxpx.New(n[0], o) },
	"setnxgetset": func(n []driver.Node, o strategy.Options) (strategy.Strategy, error) { return setnxgetset.New(n[0], o) },
	"redlock": func(n []driver.Node, o strategy.Options) (strategy.Strategy, error) {
		return redlock.New(n, o, redlock.WithoutGuard(), redlock.WithNodeTimeout(o.OpTimeout)) // redsync's servers have no guard
	},
}

// opened is one of ours on the servers, whose keys are the old lock's: the names themselves.
func opened(t *testing.T, which string, servers ...*redistest.Server) strategy.Strategy {
	t.Helper()
	var nodes []driver.Node
	for _, s := range servers {
		nodes = append(nodes, redigonode.New(poolOf(t, s)))
	}
	s, err := ours[which](nodes, strategy.Options{
		TTL: ttl, OpTimeout: ttl / 3, // no attempt fails because the machine is slow
		Key: func(name string) string { return name },
	})
	nilError(t, "New", err)
	t.Cleanup(func() { s.Close() })
	return s
}

func poolOf(t *testing.T, s *redistest.Server) *redis.Pool {
	p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.DialURL(s.URL()) }}
	t.Cleanup(func() { p.Close() })
	return p
}

// fleet runs f for each of ours with each of the peers, on the same key.
func fleet(t *testing.T, f func(t *testing.T, p *pair)) {
	for _, own := range []string{"luascript", "fairqueue", "setnxpx", "redlock"} {
		for theirs, make := range peers {
			servers := 1
			if own == "redlock" {
				servers = 3
			}
			if servers > 1 && theirs != "redsync" {
				continue
			}
			t.Run(own+" and "+theirs, func(t *testing.T) {
				t.Parallel()
				nodes := redistest.Nodes(t, servers)
				key := "fleet:" + uuid.Must(uuid.NewV4()).String()
				s := opened(t, own, nodes...)
				f(t, &pair{t: t, servers: nodes, key: key, lock: s.NewLock(key), s: s, open: func() peer { return make(t, nodes, key) }})
			})
		}
	}
}

// A pair is a lock of ours, and the same lock as a peer takes it.
type pair struct {
	t       *testing.T
	servers []*redistest.Server
	key     string
	s       strategy.Strategy
	lock    strategy.Lock
	open    func() peer
}

// take is our acquisition, which must succeed.
func (p *pair) take() strategy.Lease {
	p.t.Helper()
	lease, err := p.lock.TryAcquire(p.t.Context())
	if err != nil {
		p.t.Fatalf("our TryAcquire = %v, want the lock, which is free", err)
	}
	return lease
}

// refused says that we do not get the lock, and returns how it was said.
func (p *pair) refused() *strategy.HeldError {
	p.t.Helper()
	lease, err := p.lock.TryAcquire(p.t.Context())
	var held *strategy.HeldError
	if !errors.As(err, &held) {
		p.t.Fatalf("our TryAcquire = %v, %v, want ErrHeld: the peer has the lock", lease, err)
	}
	return held
}

// tries is the peer's attempt.
func (p *pair) tries(x peer, want bool) {
	p.t.Helper()
	taken, err := x.try(p.t.Context())
	if err != nil || taken == want {
		p.t.Fatalf("the peer's attempt: taken %v, %v, want that it gets the lock: %v", taken, err, want)
	}
}

// expire ends the hold as its TTL would.
func (p *pair) expire() {
	p.t.Helper()
	for _, s := range p.servers {
		// A quorum's lock is held before the last server has been reached.
		verdict.Eventually(p.t, p.key+" is there and is deleted", func() bool { return redistest.Do(p.t, s, "DEL", p.key) == int64(1) })
	}
}

func nilError(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestExclusion: neither gets what the other holds, or has extended; our error names the holder, and for how long it
// holds. A release frees the lock for the other.
func TestExclusion(t *testing.T) {
	fleet(t, func(t *testing.T, p *pair) {
		x := p.open()
		p.tries(x, true)
		held := p.refused()
		value, err := redis.String(redistest.Do(t, p.servers[0], "GET", p.key), nil)
		nilError(t, "GET", err)
		if held.Holder != value || held.TTL <= 0 || held.TTL > ttl {
			t.Errorf("held by %q for %v, want %q for %v at most", held.Holder, held.TTL, value, ttl)
		}
		nilError(t, "the peer's extension", x.extend(t.Context()))
		p.refused()
		nilError(t, "the peer's release", x.release(t.Context()))

		lease := p.take()
		p.tries(x, false)
		nilError(t, "our extension", lease.Extend(t.Context()))
		p.tries(x, false)
		nilError(t, "our release", lease.Release(t.Context()))
		p.tries(x, true)
	})
}

// TestLateRelease: a holder whose hold has expired neither releases nor extends the other's.
func TestLateRelease(t *testing.T) {
	fleet(t, func(t *testing.T, p *pair) {
		x := p.open()
		lease := p.take()
		p.expire()
		p.tries(x, true)
		if err := lease.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
			t.Errorf("our late extension = %v, want ErrLost", err)
		}
		if err := lease.Release(t.Context()); !errors.Is(err, strategy.ErrLost) {
			t.Errorf("our late release = %v, want ErrLost", err)
		}
		p.refused()

		p.expire()
		lease = p.take()
		if x.extend(t.Context()) == nil || x.release(t.Context()) == nil {
			t.Error("the peer's late extension or release succeeded, want that both are refused")
		}
		nilError(t, "our extension after it", lease.Extend(t.Context()))
		p.tries(p.open(), false)
	})
}

// TestTheyAreSeen: operators see a peer's hold, and can end it.
func TestTheyAreSeen(t *testing.T) {
	fleet(t, func(t *testing.T, p *pair) {
		x := p.open()
		p.tries(x, true)
		seen, err := p.s.Inspect(t.Context(), p.key)
		nilError(t, "Inspect", err)
		if !seen.Held || seen.Token == "" || !seen.Since.IsZero() || seen.Label != "" {
			t.Errorf("Inspect = %+v, want that it is held, and nothing that its token does not contain", seen)
		}
		nilError(t, "ForceRelease", p.s.ForceRelease(t.Context(), seen))
		if x.release(t.Context()) == nil {
			t.Error("the peer's release of what was taken from it succeeded")
		}
		p.take()
	})
}

// TestMixedFleet: contenders of both kinds, all waiting for the lock: never two at a time, and
// each kind has its turn.
func TestMixedFleet(t *testing.T) {
	fleet(t, func(t *testing.T, p *pair) {
		const contenders, each = 3, 5
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var inside, overlaps atomic.Int32
		work := func() {
			if inside.Add(1) > 1 {
				overlaps.Add(1)
			}
			redistest.Do(p.t, p.servers[0], "PING") // so that an overlap has the time to show
			inside.Add(-1)
		}
		var all sync.WaitGroup
		for range contenders {
			x := p.open()
			all.Go(func() {
				for range each {
					if err := strategy.Do(ctx, p.lock, func(context.Context, strategy.Lease) error { work(); return nil }); err != nil {
						t.Errorf("ours: %v", err)
						return
					}
				}
			})
			all.Go(func() {
				for range each {
					err := waits(ctx, x)
					if err == nil {
						work()
						err = x.release(ctx)
					}
					if err != nil {
						t.Errorf("the peer's: %v", err)
						return
					}
				}
			})
		}
		all.Wait()
		if n := overlaps.Load(); n > 0 {
			t.Errorf("%d times two held the lock", n)
		}
	})
}

// waits polls as the peers do.
func waits(ctx context.Context, x peer) error {
	for {
		taken, err := x.try(ctx)
		if err != nil || !taken {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
