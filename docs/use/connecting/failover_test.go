package connecting

// Locks behind real Sentinels, before, during and after fail-overs.

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// world is a master, two replicas and three Sentinels, and contenders who know the Sentinels.
type world struct {
	*testing.T
	*rig.Sentinels
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) pool() *redis.Pool {
	return pooled(w.T, Sentinel{Addrs: w.Addrs, Master: w.Name}.Pool())
}

// closed closes a strategy with the test.
func (w *world) closed(s strategy.Strategy, err error) strategy.Strategy {
	w.Helper()
	w.must(err)
	w.Cleanup(func() { s.Close() })
	return s
}

// contender is one process that uses fairqueue.
func (w *world) contender(o strategy.Options) strategy.Strategy {
	w.Helper()
	return w.closed(fairqueue.New(redigonode.New(w.pool()), o))
}

// acknowledged are the options long, with confirmations.
func acknowledged(a strategy.Acks) strategy.Options {
	o := long
	o.Acks = a
	return o
}

func (w *world) take(s strategy.Strategy, name string) strategy.Lease {
	w.Helper()
	lease, err := s.NewLock(name).TryAcquire(w.Context())
	if err != nil {
		w.Fatalf("TryAcquire(%s) = %v, want nil", name, err)
	}
	return lease
}

// A waiter is an Acquire under way.
type waiter struct {
	lease strategy.Lease
	err   error
	done  chan struct{}
}

// wait lets somebody wait for a lock, and returns once he has taken his place in the queue.
func (w *world) wait(s strategy.Strategy, master *redistest.Server, name string) *waiter {
	w.Helper()
	q := &waiter{done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	go func() {
		defer close(q.done)
		defer cancel()
		q.lease, q.err = s.NewLock(name).Acquire(ctx)
	}()
	verdict.Eventually(w.T, "a place in the queue of "+name, func() bool {
		return redistest.Do(w.T, master, "LLEN", driver.SiblingKey(strategy.DefaultKey(name), "queue")) == int64(1)
	})
	return q
}

// oneServer are the main strategies on one server.
func oneServer() []subjects.Variant {
	return slices.DeleteFunc(subjects.All(), func(v subjects.Variant) bool { return v.Servers != 1 || v.Guarded || v.Aside })
}

// long is a TTL that no fail-over outlasts; persistent who goes on asking in between.
var (
	long       = strategy.Options{TTL: 10 * time.Minute, OpTimeout: 2 * time.Second}
	persistent = strategy.Options{TTL: 10 * time.Minute, OpTimeout: 2 * time.Second, RetryOnError: true}
)

// TestSentinel is the whole life of one: locks behind Sentinels are what they are elsewhere,
// and what docs/learn/faults.md says of fail-overs comes out when Sentinels make them.
func TestSentinel(t *testing.T) {
	t.Parallel()
	const child = "LOCKS_PRODUCTION_SENTINELS" // set: the Sentinels of the parent
	if addrs := os.Getenv(child); addrs != "" {
		sentinel := Sentinel{Addrs: strings.Split(addrs, ","), Master: "locks"}
		t.Run("conformance", func(t *testing.T) { conform(t, sentinel.Pool()) })
		return
	}
	sentinels := rig.NewSentinels(t, 2, redistest.Config{})
	t.Run("conformance", func(t *testing.T) {
		w := &world{t, sentinels}
		if !*all {
			smoke(t, w.pool())
			return
		}
		conform(t, w.pool(), child+"="+strings.Join(w.Addrs, ","),
			"REDIS_ADDRS="+w.Servers[0].URL(), "REDIS_KIND="+string(redistest.Given)) // nothing else is started
	})
	for _, phase := range []struct {
		name string
		play func(*world)
	}{
		{"the old master goes on", (*world).oldGoesOn}, // and is a replica in the end
		{"locks replicated", (*world).replicated},      // and one replica is left
		{"locks not replicated", (*world).notReplicated},
	} {
		if !t.Run(phase.name, func(t *testing.T) { phase.play(&world{t, sentinels}) }) {
			return // what comes next needs the servers that this was to leave
		}
	}
}

var all = flag.Bool("all", false, "hold the whole suite behind Sentinels, on all strategies")

// conform holds the suite on all strategies that take one server.
func conform(t *testing.T, pool *redis.Pool, childEnv ...string) {
	for _, v := range oneServer() {
		s := v.SubjectOn([]*redis.Pool{pool})
		s.ChildEnv = childEnv
		conformance.Run(t, s)
	}
}

// failed checks how a call has ended.
func (w *world) failed(call string, err error, want func(error) bool, word string) {
	w.Helper()
	if err == nil || !want(err) || !strings.Contains(err.Error(), word) {
		w.Errorf("%s = %v, want the error of its kind with %q", call, err, word)
	}
}

// unconfirmed checks that too few replicas have confirmed what was asked for.
func (w *world) unconfirmed(call string, err error) {
	w.Helper()
	var missing *strategy.AcksError
	if !isUnknown(err) || !errors.As(err, &missing) {
		w.Errorf("%s = %v, want ErrUnknown with an AcksError", call, err)
	}
}

// oldGoesOn: a replica is promoted, and the old master goes on. Then it is made a replica,
// and nobody ends its connections, as Sentinels would do later on.
func (w *world) oldGoesOn() {
	ctx := w.Context()
	old, err := w.Master(ctx)
	w.must(err)
	a, acked := w.contender(long), w.contender(acknowledged(strategy.Acks{Replicas: 1}))
	c := w.contender(persistent)
	kept, waited, own := w.take(a, "kept"), w.take(a, "waited"), w.take(c, "own")
	ackedLease := w.take(acked, "acknowledged")
	waits := w.wait(c, old, "waited")
	w.must(w.Heard(ctx, old))

	master, err := w.Promote(ctx)
	w.must(err)
	split := w.take(a, "split") // at the old one
	b := w.contender(long)
	other, err := try(w.T, b, "split")
	if err != nil {
		w.Fatalf("B.TryAcquire() = %v, want nil: there are two masters, and each grants the lock", err)
	}
	_, err = acked.NewLock("unconfirmed").TryAcquire(ctx)
	w.unconfirmed("TryAcquire at the old master, which has no replica any more", err)
	w.unconfirmed("Extend there", ackedLease.Extend(ctx))

	w.must(w.Demote(ctx, old, master))
	w.must(w.Heard(ctx, master))
	// The first request meets the refusal, and is sent once more on another connection.
	if err := kept.Extend(ctx); err != nil {
		w.Errorf("Extend at a master that was demoted = %v, want nil: the new master knows the lock", err)
	}
	w.failed("Extend of the lock that was granted twice", split.Extend(ctx), isLost, strategy.ShortToken(other.Token()))
	if err := ackedLease.Extend(ctx); err != nil {
		w.Errorf("Extend, acknowledged, at the same = %v, want nil", err)
	}
	// A sleeping waiter's process notices it with its next request, at the latest a probe; then the waiter
	// subscribes at the new master.
	if err := own.Extend(ctx); err != nil {
		w.Errorf("Extend by the waiter's process = %v, want nil", err)
	}
	verdict.Eventually(w.T, "a subscription at the new master", func() bool {
		channels, err := redis.Strings(redistest.Do(w.T, master, "PUBSUB", "CHANNELS", "lock:{waited}:*"), nil)
		return err == nil && len(channels) > 0
	})
	w.must(waited.Release(ctx))
	w.granted(waits)
	for _, l := range []strategy.Lease{kept, other, own, ackedLease} {
		w.must(l.Release(ctx))
	}
}

// granted checks that the waiter gets the lock.
func (w *world) granted(q *waiter) {
	w.Helper()
	<-q.done
	if q.err != nil {
		w.Errorf("Acquire() = %v, want nil", q.err)
		return
	}
	w.must(q.lease.Release(w.Context()))
}

// replicated: the master dies when its replicas have heard of all locks.
func (w *world) replicated() {
	ctx := w.Context()
	old, err := w.Master(ctx)
	w.must(err)
	type hold struct {
		strategy.Strategy
		lease strategy.Lease
	}
	var holds []hold
	for _, v := range oneServer() {
		s := w.closed(v.New([]*redis.Pool{w.pool()}, long))
		holds = append(holds, hold{s, w.take(s, v.Name)})
	}
	one := w.contender(acknowledged(strategy.Acks{Replicas: 1}))
	all := w.contender(acknowledged(strategy.Acks{Replicas: 2}))
	byOne, byAll := w.take(one, "one"), w.take(all, "all")
	deadline := byAll.Deadline()

	holder := w.contender(long)
	waited, given := w.take(holder, "waited"), w.take(holder, "given up")
	goesOn := w.wait(w.contender(persistent), old, "waited")
	givesUp := w.wait(w.contender(long), old, "given up")

	renewing := w.contender(strategy.Options{TTL: time.Minute})
	renewed := w.take(renewing, "renewed")
	w.must(renewed.KeepAlive(0))
	briefly, err := renewing.With(func(o *strategy.Options) { o.TTL, o.OpTimeout = 400*time.Millisecond, 300*time.Millisecond }) // it has its connection
	w.must(err)
	brief := w.take(briefly, "brief")
	w.must(brief.KeepAlive(0))
	w.must(w.Heard(ctx, old))

	master, err := w.FailOver(ctx)
	w.must(err)
	w.failed("the lease that no fail-over is short enough for", brief.Err(), isLost, "")
	<-givesUp.done
	w.failed("Acquire without RetryOnError", givesUp.err, func(err error) bool { return isUnsent(err) || isUnknown(err) }, "")
	rival := w.contender(long)
	for i, v := range oneServer() {
		next := w.closed(v.New([]*redis.Pool{w.pool()}, long))
		if lease, err := try(w.T, next, v.Name); err == nil {
			w.Errorf("%s: B.TryAcquire() = %v, want ErrHeld: the new master knows the lock", v.Name, lease)
			continue
		}
		w.must(w.again(holds[i].lease.Extend))
		w.must(holds[i].lease.Release(ctx))
		w.must(w.take(next, v.Name).Release(ctx))
	}
	// One replica is left. The Sentinels have it follow the new master in their own time.
	w.must(w.Heard(ctx, master))
	w.must(w.again(byOne.Extend))
	w.unconfirmed("Extend that waits for two replicas", w.again(byAll.Extend))
	if !byAll.Deadline().Equal(deadline) {
		w.Errorf("the deadline has moved by %v, want it where it was", byAll.Deadline().Sub(deadline))
	}
	for _, name := range []string{"one", "all"} {
		if _, err := try(w.T, rival, name); !isHeld(err) {
			w.Errorf("B.TryAcquire(%s) = %v, want ErrHeld", name, err)
		}
	}
	w.must(w.again(renewed.Extend))
	if err := renewed.RenewalErr(); err != nil {
		w.Errorf("RenewalErr() after the fail-over = %v, want nil", err)
	}
	w.must(w.again(waited.Extend))
	w.must(waited.Release(ctx))
	w.granted(goesOn)
	for _, l := range []strategy.Lease{byOne, byAll, renewed, given} {
		w.must(l.Release(ctx))
	}
}

// again repeats what fails while a connection to a dead master is found out.
func (w *world) again(fn func(context.Context) error) (err error) {
	w.Helper()
	verdict.Eventually(w.T, "an answer", func() bool {
		err = fn(w.Context())
		var missing *strategy.AcksError
		return !isUnsent(err) && (!isUnknown(err) || errors.As(err, &missing))
	})
	return err
}

// notReplicated: the master dies before its replica has heard of the last locks.
func (w *world) notReplicated() {
	ctx := w.Context()
	type hold struct {
		strategy.Strategy
		lease strategy.Lease
	}
	var holds []hold
	for _, v := range oneServer() {
		s := w.closed(v.New([]*redis.Pool{w.pool()}, long))
		w.must(w.take(s, "warm "+v.Name).Release(ctx))
		holds = append(holds, hold{Strategy: s})
	}
	acked := w.contender(strategy.Options{TTL: 10 * time.Minute, OpTimeout: time.Second, Acks: strategy.Acks{Replicas: 1}})
	w.must(w.take(acked, "warm").Release(ctx))

	w.must(w.Stall(ctx))
	for i, v := range oneServer() {
		holds[i].lease = w.take(holds[i].Strategy, "lost "+v.Name)
	}
	_, err := acked.NewLock("never").TryAcquire(ctx)
	w.unconfirmed("TryAcquire that no replica hears of", err)
	_, err = w.FailOver(ctx)
	w.must(err)
	for i, v := range oneServer() {
		next, err := try(w.T, w.closed(v.New([]*redis.Pool{w.pool()}, long)), "lost "+v.Name)
		if err != nil {
			w.Errorf("%s: B.TryAcquire() = %v, want nil: the new master has not heard of the lock", v.Name, err)
			continue
		}
		older, fenced := holds[i].lease.Fence()
		if newer, _ := next.Fence(); fenced && newer <= older {
			w.Errorf("%s: B's fence is %d, want more than A's, %d", v.Name, newer, older)
		}
		w.failed(v.Name+": A.Extend()", w.again(holds[i].lease.Extend), isLost, "")
		w.must(next.Release(ctx))
	}
	// No caller got the lock, and the new master has no replica to confirm it.
	_, err = acked.NewLock("never").TryAcquire(ctx)
	for isUnsent(err) { // the pool's connections to the dead one are found out
		_, err = acked.NewLock("never").TryAcquire(ctx)
	}
	w.unconfirmed("TryAcquire at a master without replicas", err)
}
