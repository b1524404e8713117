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
type client struct {
	mutex  func(name string) mutex // one caller's
	reader func(name string) mutex // likewise, to hold the lock to read; nil: that is the same
	keep   func(h held)            // keeps a lock alive until the process ends, as users of the library do it
	lost   func(h held) bool
}

// A mutex is one caller's way to one lock: it waits. An error ends the measurement, unless ctx is done.
type mutex func(ctx context.Context) (held, error)

type held interface {
	Release(ctx context.Context) error
}

// An opening opens a contestant.
type opening func(ctx context.Context, s *seat) (*client, error)

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
	open opening
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
	{"sleep", floor, openNothing},

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

// renewing is a client whose users renew each lock in a goroutine of its own.
func (s *seat) renewing(mutex func(name string) mutex, renew func(h held) error) *client {
	var failed sync.Map // locks that could not be renewed
	return &client{
		mutex: mutex,
		keep: func(h held) {
			go func() {
				for range time.Tick(s.TTL / 3) {
					if renew(h) != nil {
						failed.Store(h, true)
						return
					}
				}
			}()
		},
		lost: func(h held) bool { _, lost := failed.Load(h); return lost },
	}
}

func openRedsync(dial []redis.DialOption, options ...redsync.Option) opening {
	return func(_ context.Context, s *seat) (*client, error) {
		options := append([]redsync.Option{redsync.WithExpiry(s.TTL)}, options...)
		var pools []syncredis.Pool
		for _, url := range s.URLs {
			pools = append(pools, syncredigo.NewPool(s.pool(url, s.callers(), dial...)))
		}
		c := redsync.New(pools...)
		return s.renewing(func(name string) mutex {
			m := redsyncHeld{c.NewMutex(name, options...)}
			return func(ctx context.Context) (held, error) {
				for { // again where redsync has given up after its 32 tries
					err := m.LockContext(ctx)
					var taken *redsync.ErrTaken
					if err == nil || ctx.Err() != nil || !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
						return m, err
					}
				}
			}
		}, func(h held) error { return certain(h.(redsyncHeld).ExtendContext(context.Background())) }), nil
	}
}

type redsyncHeld struct{ *redsync.Mutex }

func (h redsyncHeld) Release(ctx context.Context) error { return certain(h.UnlockContext(ctx)) }

func certain(ok bool, err error) error {
	if err == nil && !ok {
		err = errNotThere
	}
	return err
}

func openBSM(retry func() redislock.RetryStrategy) opening {
	return func(_ context.Context, s *seat) (*client, error) {
		o, err := goredis.ParseURL(s.URLs[0])
		if err != nil {
			return nil, err
		}
		o.Dialer, o.PoolSize = s.dial, s.callers()
		c := redislock.New(goredis.NewClient(o))
		return s.renewing(func(name string) mutex {
			return func(ctx context.Context) (held, error) {
				for { // again where bsm has given up after one TTL
					l, err := c.Obtain(ctx, name, s.TTL, &redislock.Options{RetryStrategy: retry()})
					if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redislock.ErrNotObtained) {
						return l, err
					}
				}
			}
		}, func(h held) error { return h.(*redislock.Lock).Refresh(context.Background(), s.TTL, nil) }), nil
	}
}

func openRueidis(o rueidislock.LockerOption) opening {
	return func(_ context.Context, s *seat) (*client, error) {
		o, err := o, error(nil)
		if o.ClientOption, err = rueidis.ParseURL(s.URLs[0]); err != nil {
			return nil, err
		}
		o.ClientOption.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.dial(ctx, "tcp", addr)
		}
		o.KeyValidity = s.TTL
		l, err := rueidislock.NewLocker(o)
		return &client{
			mutex: func(name string) mutex {
				h := &rueidisHeld{}
				return func(ctx context.Context) (_ held, err error) {
					h.ctx, h.cancel, err = l.WithContext(ctx, name)
					return h, err
				}
			},
			keep: func(held) {}, // it does so by itself
			lost: func(h held) bool { return h.(*rueidisHeld).ctx.Err() != nil },
		}, err
	}
}

type rueidisHeld struct {
	ctx    context.Context // ends with the lock
	cancel context.CancelFunc
}

func (h *rueidisHeld) Release(context.Context) error { h.cancel(); return nil }

// ourOptions are the defaults, but an attempt that fails is repeated, as redsync does without a
// quorum.
func ourOptions(s *seat) strategy.Options { return strategy.Options{TTL: s.TTL, RetryOnError: true} }

// reentrantNew is reentrant.New, which has no options of its own.
func reentrantNew(n driver.Node, o strategy.Options, _ ...struct{}) (strategy.Strategy, error) {
	return reentrant.New(n, o)
}

func openOurs[O any](open func(driver.Node, strategy.Options, ...O) (strategy.Strategy, error), options ...O) opening {
	return func(_ context.Context, s *seat) (*client, error) {
		return clientOf(open(redigonode.New(s.pool(s.URLs[0], s.callers())), ourOptions(s), options...))
	}
}

func openRedlock(options ...redlock.Option) opening {
	return func(_ context.Context, s *seat) (*client, error) {
		var pools []*redis.Pool
		for _, url := range s.URLs {
			pools = append(pools, s.pool(url, s.callers()))
		}
		return clientOf(redlock.New(locktest.Nodes(pools...), ourOptions(s), options...))
	}
}

// clientOf is each strategy of this module.
func clientOf(st strategy.Strategy, err error) (*client, error) {
	if err != nil {
		return nil, err
	}
	mutexOf := func(l strategy.Lock) mutex {
		return func(ctx context.Context) (held, error) { return l.Acquire(ctx) }
	}
	c := &client{
		mutex: func(name string) mutex { return mutexOf(st.NewLock(name)) },
		keep: func(h held) {
			if err := h.(strategy.Lease).KeepAlive(time.Hour); err != nil {
				fmt.Println(err) // the loss is counted
			}
		},
		lost: func(h held) bool { return h.(strategy.Lease).Err() != nil },
	}
	if rw, ok := st.(strategy.ReadWriter); ok {
		c.reader = func(name string) mutex { return mutexOf(rw.NewRLock(name)) }
	}
	return c, nil
}
