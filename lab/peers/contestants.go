package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	syncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// A client is a contestant, opened. Its connections end with the process.
type client interface {
	mutex(name string) mutex // one caller's
	// keep keeps a lock alive until the process ends, as users of the library do it.
	keep(h held)
	lost(h held) bool
}

// A mutex is one caller's way to one lock.
type mutex interface {
	acquire(ctx context.Context) (held, error) // waits; an error ends the measurement, unless ctx is done
}

// held is one hold of a lock.
type held interface {
	Release(ctx context.Context) error
}

// callers is how many connections pools keep: one for each caller, but not for each of ten
// thousand locks that are renewed.
func (s *seat) callers() int { return min(max(s.N, 20), 256) }

type kind int

const (
	floor kind = iota // no lock: what the commands of one cost
	peer
	ours
)

// A contestant is a library in one configuration.
type contestant struct {
	name string
	kind kind
	open func(ctx context.Context, s *seat) (client, error)
}

// contestants are all there are. Contestants called -again show the noise. docs/data/performance.md says what
// each of them is.
var contestants = []contestant{
	{"raw", floor, openRaw(1)},
	{"raw-again", floor, openRaw(1)},
	{"pool", floor, openPool},
	{"pool-again", floor, openPool},
	{"raw-all", floor, openRaw(0)},
	{"raw-all-again", floor, openRaw(0)},
	{"sleep", floor, func(context.Context, *seat) (client, error) { return nothing{}, nil }},

	{"redsync", peer, openRedsync(nil)},
	{"redsync-10ms", peer, openRedsync(nil, redsync.WithRetryDelay(10*time.Millisecond))},
	{"redsync-1ms", peer, openRedsync(nil, redsync.WithRetryDelay(time.Millisecond))},
	{"redsync-failfast", peer, openRedsync(nil, redsync.WithFailFast(true))},
	{"redsync-100ms-io", peer, openRedsync([]redis.DialOption{
		redis.DialReadTimeout(100 * time.Millisecond), redis.DialWriteTimeout(100 * time.Millisecond)})},
	{"bsm", peer, openBSM(func() redislock.RetryStrategy { return redislock.LinearBackoff(100 * time.Millisecond) })}, // as in its example
	{"bsm-exponential", peer, openBSM(func() redislock.RetryStrategy {
		return redislock.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond)
	})},
	{"bsm-1ms", peer, openBSM(func() redislock.RetryStrategy { return redislock.LinearBackoff(time.Millisecond) })},
	{"rueidislock", peer, openRueidis(rueidislock.LockerOption{})},
	{"rueidislock-tuned", peer, openRueidis(rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true})},

	{"fairqueue", ours, openOurs(fairqueue.New)},
	{"fairqueue-unfenced", ours, openOurs(fairqueue.New, fairqueue.WithoutFences())},
	{"luascript", ours, openOurs(luascript.New)},
	{"semaphore", ours, openSemaphore(permits, strategy.WaitBest)},
	{"semaphore-poll", ours, openSemaphore(permits, strategy.WaitPoll)},
	{"semaphore-1", ours, openSemaphore(1, strategy.WaitBest)},
	{"rwlock", ours, openRWLock(strategy.WaitBest)},
	{"rwlock-poll", ours, openRWLock(strategy.WaitPoll)},
	{"reentrant", ours, openOurs(reentrantNew)},
	{"setnxpx", ours, openOurs(setnxpx.New)},
	{"setnxgetset", ours, openOurs(setnxgetset.New)},
	{"redlock", ours, openRedlock()},
	{"redlock-unguarded", ours, openRedlock(redlock.WithoutGuard())},
	{"redlock-fenced", ours, openRedlock(redlock.WithFences())},
}

// lossy remembers which locks could not be renewed.
type lossy struct{ failed sync.Map }

func (l *lossy) lost(h held) bool { _, failed := l.failed.Load(h); return failed }

// every renews in a goroutine of its own, as users of libraries do that leave it to them.
func (l *lossy) every(d time.Duration, h held, renew func() error) {
	go func() {
		for range time.Tick(d) {
			if renew() != nil {
				l.failed.Store(h, true)
				return
			}
		}
	}()
}

type redsyncClient struct {
	lossy
	s       *redsync.Redsync
	options []redsync.Option
	ttl     time.Duration
}

func openRedsync(dial []redis.DialOption, options ...redsync.Option) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		c := &redsyncClient{ttl: s.TTL, options: append([]redsync.Option{redsync.WithExpiry(s.TTL)}, options...)}
		var pools []syncredis.Pool
		for _, url := range s.URLs {
			pools = append(pools, syncredigo.NewPool(s.pool(url, s.callers(), dial...)))
		}
		c.s = redsync.New(pools...)
		return c, nil
	}
}

func (c *redsyncClient) mutex(name string) mutex {
	return &redsyncMutex{c.s.NewMutex(name, c.options...)}
}

func (c *redsyncClient) keep(h held) {
	m := h.(*redsyncMutex)
	c.every(c.ttl/3, h, func() error {
		ok, err := m.ExtendContext(context.Background())
		if err == nil && !ok {
			err = errNotThere
		}
		return err
	})
}

type redsyncMutex struct{ *redsync.Mutex }

// acquire asks again where redsync has given up after its 32 tries.
func (m *redsyncMutex) acquire(ctx context.Context) (held, error) {
	for {
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		if err == nil || ctx.Err() != nil || !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			return m, err
		}
	}
}

func (m *redsyncMutex) Release(ctx context.Context) error {
	ok, err := m.UnlockContext(ctx)
	if err == nil && !ok {
		err = errNotThere
	}
	return err
}

type bsmClient struct {
	lossy
	c     *redislock.Client
	retry func() redislock.RetryStrategy
	ttl   time.Duration
}

func openBSM(retry func() redislock.RetryStrategy) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		o, err := goredis.ParseURL(s.URLs[0])
		if err != nil {
			return nil, err
		}
		o.Dialer, o.PoolSize = s.dial, s.callers()
		return &bsmClient{c: redislock.New(goredis.NewClient(o)), retry: retry, ttl: s.TTL}, nil
	}
}

func (c *bsmClient) mutex(name string) mutex { return &bsmMutex{c, name} }

func (c *bsmClient) keep(h held) {
	l := h.(*redislock.Lock)
	c.every(c.ttl/3, h, func() error { return l.Refresh(context.Background(), c.ttl, nil) })
}

type bsmMutex struct {
	c   *bsmClient
	key string
}

// acquire asks again where bsm has given up after one TTL.
func (m *bsmMutex) acquire(ctx context.Context) (held, error) {
	for {
		l, err := m.c.c.Obtain(ctx, m.key, m.c.ttl, &redislock.Options{RetryStrategy: m.c.retry()})
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redislock.ErrNotObtained) {
			return l, err
		}
	}
}

type rueidisClient struct{ rueidislock.Locker }

func openRueidis(o rueidislock.LockerOption) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		o, err := o, error(nil)
		if o.ClientOption, err = rueidis.ParseURL(s.URLs[0]); err != nil {
			return nil, err
		}
		o.ClientOption.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.dial(ctx, "tcp", addr)
		}
		o.KeyValidity = s.TTL
		l, err := rueidislock.NewLocker(o)
		return &rueidisClient{l}, err
	}
}

func (c *rueidisClient) mutex(name string) mutex { return &rueidisMutex{l: c.Locker, name: name} }
func (c *rueidisClient) keep(held)               {} // it does so by itself
func (c *rueidisClient) lost(h held) bool        { return h.(*rueidisMutex).ctx.Err() != nil }

type rueidisMutex struct {
	l      rueidislock.Locker
	name   string
	ctx    context.Context // ends with the lock
	cancel context.CancelFunc
}

func (m *rueidisMutex) acquire(ctx context.Context) (_ held, err error) {
	m.ctx, m.cancel, err = m.l.WithContext(ctx, m.name)
	return m, err
}

func (m *rueidisMutex) Release(context.Context) error { m.cancel(); return nil }

// ourClient is each strategy of this module.
type ourClient struct{ s strategy.Strategy }

// ourOptions are the defaults, but an attempt that fails is repeated, as redsync does without a
// quorum.
func ourOptions(s *seat) strategy.Options { return strategy.Options{TTL: s.TTL, RetryOnError: true} }

// reentrantNew is reentrant.New, which has no options of its own.
func reentrantNew(n driver.Node, o strategy.Options, _ ...struct{}) (strategy.Strategy, error) {
	return reentrant.New(n, o)
}

func openOurs[O any](open func(driver.Node, strategy.Options, ...O) (strategy.Strategy, error), options ...O) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		st, err := open(redigonode.New(s.pool(s.URLs[0], s.callers())), ourOptions(s), options...)
		return &ourClient{st}, err
	}
}

func openRedlock(options ...redlock.Option) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		var pools []*redis.Pool
		for _, url := range s.URLs {
			pools = append(pools, s.pool(url, s.callers()))
		}
		st, err := redlock.New(locktest.Nodes(pools...), ourOptions(s), options...)
		return &ourClient{st}, err
	}
}

func (c *ourClient) mutex(name string) mutex { return &ourMutex{c.s.NewLock(name)} }
func (c *ourClient) lost(h held) bool        { return h.(strategy.Lease).Err() != nil }

func (c *ourClient) keep(h held) {
	if err := h.(strategy.Lease).KeepAlive(time.Hour); err != nil {
		fmt.Println(err) // the loss is counted
	}
}

type ourMutex struct{ l strategy.Lock }

func (m *ourMutex) acquire(ctx context.Context) (held, error) {
	return m.l.Acquire(ctx)
}
