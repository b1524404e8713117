package connecting

// Tests locks behind real Sentinels, before and after fail-overs. lab/faults plays fail-overs on each strategy.

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// TestSentinel: locks behind Sentinels are what they are elsewhere. They live through fail-overs: whether the old master
// has become a replica whose connections stay, or is dead.
func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinels := rig.NewSentinels(t, 1, redistest.Config{})
	pool := func() *redis.Pool {
		return pooled(t, Sentinel{Addrs: sentinels.Addrs, Master: sentinels.Name}.Pool())
	}
	t.Run("conformance", func(t *testing.T) { smoke(t, pool()) })
	process := func() strategy.Strategy {
		locks, err := fairqueue.New(redigonode.New(pool()), strategy.Options{TTL: 10 * time.Minute, OpTimeout: 2 * time.Second, RetryOnError: true})
		return locktest.Opened(t, locks, err)
	}
	holder, rival := process(), process()
	survives := func(name string, old *redistest.Server, failOver func() *redistest.Server) (master *redistest.Server) {
		t.Helper()
		lease := locktest.Try(t, holder, name)
		redistest.Must(t, lease.KeepAlive(0))
		waited := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			next, err := rival.NewLock(name).Acquire(ctx)
			if err == nil {
				err = next.Release(ctx)
			}
			waited <- err
		}()
		verdict.Eventually(t, "a place in the queue of "+name, func() bool {
			return redistest.Do(t, old, "LLEN", driver.SiblingKey(strategy.DefaultKey(name), "queue")) == int64(1)
		})
		redistest.Must(t, sentinels.Heard(t.Context(), old))
		master = failOver()
		master.Redial() // a change of role ends connections
		again(t, "the new master knows who holds "+name, func(ctx context.Context) error {
			_, err := process().NewLock(name).TryAcquire(ctx)
			return err
		}, isHeld)
		again(t, "the new master extends "+name, lease.Extend, func(err error) bool { return err == nil })
		verdict.Eventually(t, "a subscription at the new master", func() bool {
			channels, err := redis.Strings(redistest.Do(t, master, "PUBSUB", "CHANNELS", strategy.DefaultKey(name)+":*"), nil)
			return err == nil && len(channels) > 0
		})
		locktest.Release(t, lease)
		redistest.Must(t, <-waited)
		return master
	}
	first, err := sentinels.Master(t.Context())
	redistest.Must(t, err)
	second := survives("demoted", first, func() *redistest.Server {
		master, err := sentinels.Promote(t.Context())
		redistest.Must(t, err)
		redistest.Must(t, sentinels.Demote(t.Context(), first, master))
		return master
	})
	survives("died", second, func() *redistest.Server {
		master, err := sentinels.FailOver(t.Context())
		redistest.Must(t, err)
		return master
	})
}

// again makes a call until it has been answered: at first a connection may lead to a server that is dead.
func again(t *testing.T, what string, call func(context.Context) error, want func(error) bool) {
	t.Helper()
	var err error
	verdict.Eventually(t, "an answer: "+what, func() bool {
		err = call(t.Context())
		return !isUnsent(err) && !isUnknown(err)
	})
	if !want(err) {
		t.Errorf("%s: %v", what, err)
	}
}
