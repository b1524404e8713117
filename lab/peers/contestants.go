package main

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	syncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// A client is a contestant, opened.
type client interface {
	mutex(name string) mutex // one caller's
	// keep keeps a lock alive until the process ends, as users of the library do it.
	keep(h held)
	lost(h held) bool
	close() error
}

// A mutex is one caller's way to one lock.
type mutex interface {
	acquire(ctx context.Context) (held, error) // waits; an error ends the measurement, unless ctx is done
}

// held is a lock that was acquired.
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
	name, about string
	kind        kind
	open        func(ctx context.Context, s *seat) (client, error)
}

// contestants are all there are.
var contestants = []contestant{
	{"raw", "one redigo connection: SET NX PX, then EVALSHA of compare-and-delete", floor, openRaw(1)},
	{"raw-again", "raw once more: the noise", floor, openRaw(1)},
	{"pool", "the same over a redigo pool that keeps a connection per caller", floor, openPool},
	{"pool-again", "pool once more: the noise", floor, openPool},
	{"raw-fairqueue", "over one redigo connection what fairqueue sends for a pair, without its client", floor, openReplay(fenced)},
	{"raw-fairqueue-unfenced", "likewise WithoutFences", floor, openReplay(unfenced, fairqueue.WithoutFences())},
	{"pool-fairqueue", "what fairqueue sends for a pair, over a pool as pool's", floor, openPooledReplay},
	{"pipe-raw", "one connection and one goroutine, which sends raw's SET for all names, reads all replies, and releases likewise", floor, openPipeRaw},
	{"pipe-fairqueue", "likewise fairqueue's requests, up to 64 callers in each", floor, openPipeReplay},
	{"crew-raw", "one connection and a goroutine for each caller, who has to be woken: one at a time yields, and sends raw's commands for all who have come", floor, openCrew(0)},
	{"crew-fairqueue", "likewise fairqueue's requests, up to 64 callers in each", floor, openCrew(mostJoined)},
	{"raw-all", "SET written to a connection to each server, then all replies read; then EVALSHA likewise", floor, openRaw(0)},
	{"raw-all-again", "raw-all once more: the noise", floor, openRaw(0)},
	{"raw-all-redlock", "over raw-all's connections, and as it does, what redlock sends for a pair, without its client", floor, openAllReplay()},
	{"raw-all-redlock-unguarded", "likewise WithoutGuard", floor, openAllReplay(redlock.WithoutGuard())},
	{"script", "one script that renews all locks, every third of the TTL", floor, openScript},
	{"script-again", "script once more: the noise", floor, openScript},

	{"redsync", "redsync v4.18.1 over redigo", peer, openRedsync(nil)},
	{"redsync-10ms", "WithRetryDelay(10 ms)", peer, openRedsync(nil, redsync.WithRetryDelay(10*time.Millisecond))},
	{"redsync-1ms", "WithRetryDelay(1 ms)", peer, openRedsync(nil, redsync.WithRetryDelay(time.Millisecond))},
	{"redsync-failfast", "WithFailFast", peer, openRedsync(nil, redsync.WithFailFast(true))},
	{"redsync-100ms-io", "read and write time-outs of 100 ms", peer, openRedsync([]redis.DialOption{
		redis.DialReadTimeout(100 * time.Millisecond), redis.DialWriteTimeout(100 * time.Millisecond)})},
	{"bsm", "bsm/redislock v0.9.4 over go-redis v9.23; waiting: LinearBackoff(100 ms), as in its example", peer,
		openBSM(func() redislock.RetryStrategy { return redislock.LinearBackoff(100 * time.Millisecond) })},
	{"bsm-exponential", "ExponentialBackoff(16 ms, 512 ms)", peer,
		openBSM(func() redislock.RetryStrategy {
			return redislock.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond)
		})},
	{"bsm-1ms", "LinearBackoff(1 ms)", peer,
		openBSM(func() redislock.RetryStrategy { return redislock.LinearBackoff(time.Millisecond) })},
	{"rueidislock", "rueidislock v1.0.79", peer, openRueidis(rueidislock.LockerOption{})},
	{"rueidislock-tuned", "KeyMajority 1, NoLoopTracking", peer, openRueidis(rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true})},

	{"fairqueue", "this module, as it comes", ours, openOurs(fairqueue.New)},
	{"fairqueue-unfenced", "WithoutFences", ours, openOurs(fairqueue.New, fairqueue.WithoutFences())},
	{"luascript", "", ours, openOurs(luascript.New)},
	{"reentrant", "", ours, openOurs(reentrant.New)},
	{"setnxpx", "", ours, openOurs(setnxpx.New)},
	{"setnxgetset", "", ours, openOurs(setnxgetset.New)},
	{"redlock", "", ours, openRedlock()},
	{"redlock-unguarded", "WithoutGuard", ours, openRedlock(redlock.WithoutGuard())},
	{"redlock-fenced", "WithFences", ours, openRedlock(redlock.WithFences())},
}

// compareAndDelete is the release of a lock that is a token.
const compareAndDelete = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

var deleteHash = func() string { h := sha1.Sum([]byte(compareAndDelete)); return hex.EncodeToString(h[:]) }()

const token = "0123456789abcdef0123456789abcdef"

var errNotThere = errors.New("the lock was not there, or not free")

// never is for what a floor does not do.
type never struct{}

func (never) keep(held)      {}
func (never) lost(held) bool { return false }

// raw writes to all its connections, then reads from all.
type raw struct {
	never
	conns []redis.Conn
	ttl   int64
}

// openRaw connects to the first n servers; 0: to all.
func openRaw(n int) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (client, error) {
		urls := s.URLs
		if n > 0 {
			urls = urls[:n]
		}
		r := &raw{ttl: s.TTL.Milliseconds()}
		for _, url := range urls {
			c, err := s.pool(url, 1).DialContext(ctx)
			if err != nil {
				return nil, errors.Join(err, r.close())
			}
			r.conns = append(r.conns, c)
			if _, err := c.Do("SCRIPT", "LOAD", compareAndDelete); err != nil {
				return nil, errors.Join(err, r.close())
			}
		}
		return r, nil
	}
}

func (r *raw) mutex(name string) mutex { return &rawMutex{r, "lock:{" + name + "}"} }

func (r *raw) close() (err error) {
	for _, c := range r.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// all sends a command over all connections before it reads a reply.
func (r *raw) all(good func(any) bool, cmd string, args ...any) error {
	for _, c := range r.conns {
		if err := errors.Join(c.Send(cmd, args...), c.Flush()); err != nil {
			return err
		}
	}
	for _, c := range r.conns {
		reply, err := c.Receive()
		if err != nil {
			return err
		}
		if !good(reply) {
			return errNotThere
		}
	}
	return nil
}

type rawMutex struct {
	r   *raw
	key string
}

func granted(reply any) bool  { return reply != nil }
func released(reply any) bool { return reply == int64(1) }

func (m *rawMutex) acquire(context.Context) (held, error) {
	if len(m.r.conns) == 1 { // as anybody would write it
		return m, set(m.r.conns[0], m.key, m.r.ttl)
	}
	return m, m.r.all(granted, "SET", m.key, token, "NX", "PX", m.r.ttl)
}

func (m *rawMutex) Release(context.Context) error {
	if len(m.r.conns) == 1 {
		return del(m.r.conns[0], m.key)
	}
	return m.r.all(released, "EVALSHA", deleteHash, 1, m.key, token)
}

func set(c redis.Conn, key string, ttl int64) error {
	reply, err := c.Do("SET", key, token, "NX", "PX", ttl)
	if err == nil && !granted(reply) {
		return errNotThere
	}
	return err
}

func del(c redis.Conn, key string) error {
	reply, err := c.Do("EVALSHA", deleteHash, 1, key, token)
	if err == nil && !released(reply) {
		return errNotThere
	}
	return err
}

// pooled borrows a connection for each pair.
type pooled struct {
	never
	*redis.Pool
	ttl int64
}

func openPool(ctx context.Context, s *seat) (client, error) {
	if _, err := s.admin.Do("SCRIPT", "LOAD", compareAndDelete); err != nil {
		return nil, err
	}
	s.said++
	return &pooled{Pool: s.pool(s.URLs[0], s.callers()), ttl: s.TTL.Milliseconds()}, nil
}

func (p *pooled) mutex(name string) mutex { return &pooledMutex{p: p, key: "lock:{" + name + "}"} }
func (p *pooled) close() error            { return p.Pool.Close() }

type pooledMutex struct {
	p   *pooled
	key string
	c   redis.Conn
}

func (m *pooledMutex) acquire(context.Context) (held, error) {
	m.c = m.p.Get()
	return m, set(m.c, m.key, m.p.ttl)
}

func (m *pooledMutex) Release(context.Context) error {
	return errors.Join(del(m.c, m.key), m.c.Close())
}

// scripted holds locks that one script renews.
type scripted struct {
	*raw
	mu   sync.Mutex
	keys []any
	once sync.Once
	gone atomic.Int64
}

const renewAll = `local n = 0
for i = 1, #KEYS do
  if redis.call("get", KEYS[i]) == ARGV[1] then n = n + redis.call("pexpire", KEYS[i], ARGV[2]) end
end
return n`

func openScript(ctx context.Context, s *seat) (client, error) {
	c, err := openRaw(1)(ctx, s)
	if err != nil {
		return nil, err
	}
	return &scripted{raw: c.(*raw)}, nil
}

func (c *scripted) mutex(name string) mutex { return &scriptedMutex{c, c.raw.mutex(name).(*rawMutex)} }

type scriptedMutex struct {
	c *scripted
	m *rawMutex
}

func (m *scriptedMutex) acquire(ctx context.Context) (held, error) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	_, err := m.m.acquire(ctx)
	return m, err
}

func (m *scriptedMutex) Release(ctx context.Context) error {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.m.Release(ctx)
}

// keep starts the renewal of all with the first.
func (c *scripted) keep(h held) {
	c.mu.Lock()
	c.keys = append(c.keys, h.(*scriptedMutex).m.key)
	c.mu.Unlock()
	c.once.Do(func() {
		script := redis.NewScript(-1, renewAll)
		go func() {
			for range time.Tick(time.Duration(c.ttl) * time.Millisecond / 3) {
				c.mu.Lock()
				args := append(append([]any{len(c.keys)}, c.keys...), token, c.ttl)
				n, err := redis.Int(script.Do(c.conns[0], args...))
				if err != nil || n < len(c.keys) {
					c.gone.Add(int64(len(c.keys) - n))
				}
				c.mu.Unlock()
			}
		}()
	})
}

func (c *scripted) lost(held) bool { return c.gone.Load() > 0 }

// lossy remembers which locks could not be renewed.
type lossy struct{ gone sync.Map }

func (l *lossy) lost(h held) bool { _, gone := l.gone.Load(h); return gone }

// every renews in a goroutine of its own, as users of libraries do that leave it to them.
func (l *lossy) every(d time.Duration, h held, renew func() error) {
	go func() {
		for range time.Tick(d) {
			if renew() != nil {
				l.gone.Store(h, true)
				return
			}
		}
	}()
}

type redsyncClient struct {
	lossy
	s       *redsync.Redsync
	pools   []*redis.Pool
	options []redsync.Option
	ttl     time.Duration
}

func openRedsync(dial []redis.DialOption, own ...redsync.Option) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		c := &redsyncClient{ttl: s.TTL, options: append([]redsync.Option{redsync.WithExpiry(s.TTL)}, own...)}
		var pools []syncredis.Pool
		for _, url := range s.URLs {
			p := s.pool(url, s.callers(), dial...)
			c.pools, pools = append(c.pools, p), append(pools, syncredigo.NewPool(p))
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

func (c *redsyncClient) close() (err error) {
	for _, p := range c.pools {
		err = errors.Join(err, p.Close())
	}
	return err
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
	r     *goredis.Client
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
		r := goredis.NewClient(o)
		return &bsmClient{c: redislock.New(r), r: r, retry: retry, ttl: s.TTL}, nil
	}
}

func (c *bsmClient) mutex(name string) mutex { return &bsmMutex{c, name} }

func (c *bsmClient) keep(h held) {
	l := h.(*redislock.Lock)
	c.every(c.ttl/3, h, func() error { return l.Refresh(context.Background(), c.ttl, nil) })
}

func (c *bsmClient) close() error { return c.r.Close() }

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
func (c *rueidisClient) close() error            { c.Close(); return nil }

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
type ourClient struct {
	s     strategy.Strategy
	pools []*redis.Pool
}

// ourOptions are the defaults; but who fails asks again, as redsync does where there was no
// quorum.
func ourOptions(s *seat) strategy.Options { return strategy.Options{TTL: s.TTL, RetryOnError: true} }

func openOurs[O any](open func(*redis.Pool, strategy.Options, ...O) (strategy.Strategy, error), own ...O) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		pool := s.pool(s.URLs[0], s.callers())
		st, err := open(pool, ourOptions(s), own...)
		return &ourClient{st, []*redis.Pool{pool}}, err
	}
}

func openRedlock(own ...redlock.Option) func(context.Context, *seat) (client, error) {
	return func(_ context.Context, s *seat) (client, error) {
		c, err := &ourClient{}, error(nil)
		for _, url := range s.URLs {
			c.pools = append(c.pools, s.pool(url, s.callers()))
		}
		c.s, err = redlock.New(c.pools, ourOptions(s), own...)
		return c, err
	}
}

func (c *ourClient) mutex(name string) mutex { return &ourMutex{c.s.NewLock(name)} }
func (c *ourClient) lost(h held) bool        { return h.(strategy.Lease).Err() != nil }

func (c *ourClient) keep(h held) {
	if err := h.(strategy.Lease).KeepAlive(time.Hour); err != nil {
		fmt.Println(err) // the loss is counted
	}
}

func (c *ourClient) close() error {
	err := c.s.Close()
	for _, p := range c.pools {
		err = errors.Join(err, p.Close())
	}
	return err
}

type ourMutex struct{ l strategy.Lock }

func (m *ourMutex) acquire(ctx context.Context) (held, error) {
	return m.l.Acquire(ctx)
}
