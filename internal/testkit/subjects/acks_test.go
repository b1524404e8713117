// Locks that count only once a replica, or the append-only file, has confirmed them.
package subjects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// acknowledged are the variants on one server that wait for others.
func acknowledged(a strategy.Acks) []Variant {
	var vs []Variant
	for _, v := range All() {
		switch v.Name {
		case "setnxgetset", "setnxgetset-watch", "setnxpx", "luascript", "fairqueue", "reentrant":
		default:
			continue
		}
		on, skewed := v.On, v.Skewed
		v.On = func(n []driver.Node) driver.Protocol { return on(n).(driver.Acknowledger).Acknowledged(a) }
		if skewed != nil {
			v.Skewed = func(n []driver.Node, ahead time.Duration) driver.Protocol {
				return skewed(n, ahead).(driver.Acknowledger).Acknowledged(a)
			}
		}
		v.Fair = false // nobody could confirm what another's release grants
		vs = append(vs, v)
	}
	return vs
}

var byOne = strategy.Acks{Replicas: 1}

// pair is a server and its replica, in step.
func pair(t *testing.T) (primary, replica *redistest.Server) {
	t.Helper()
	return pairOf(t, redistest.ForTests(t))
}

func pairOf(t *testing.T, f *redistest.Farm) (primary, replica *redistest.Server) {
	t.Helper()
	primary, replica = redistest.OwnOf(t, f, redistest.Config{}), redistest.OwnOf(t, f, redistest.Config{})
	c := replica.Pool().Get()
	_, err := c.Do("REPLICAOF", "127.0.0.1", "1")
	c.Close()
	if err != nil { // an embedded one
		t.Skipf("NOT PROVEN: that locks are acknowledged by replicas: %v", err)
	}
	redistest.Do(t, primary, "CONFIG", "SET", "repl-diskless-sync-delay", 0) // or it waits for more replicas
	follow(t, replica, primary)
	return primary, replica
}

// follow makes replica one of primary's, and waits until it is in step.
func follow(t *testing.T, replica, primary *redistest.Server) {
	t.Helper()
	peer, err := primary.Peer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(peer)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, replica, "REPLICAOF", host, port)
	verdict.Eventually(t, "the replica is in step", func() bool {
		info := fmt.Sprintf("%s", redistest.Do(t, replica, "INFO", "replication"))
		return strings.Contains(info, "master_link_status:up") && redistest.Do(t, primary, "WAIT", 1, 1000) == int64(1)
	})
}

// leave makes replica hear nothing more of its primary, which is not even in its way.
func leave(t *testing.T, replica *redistest.Server) {
	t.Helper()
	redistest.Do(t, replica, "REPLICAOF", "127.0.0.1", "1") // tcpmux, if anything
}

// openOn returns v's strategy on s, closed with the test.
func openOn(t *testing.T, v Variant, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	n := redigonode.New(s.Pool())
	locks, err := engine.New(v.On([]driver.Node{n}), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() }) //nolint:errcheck // of a server that is dead by then
	return locks
}

// each calls f for all variants side by side: most of the time they wait for replicas.
func each(vs []Variant, f func(i int, v Variant)) {
	var all sync.WaitGroup
	for i, v := range vs {
		all.Go(func() { f(i, v) })
	}
	all.Wait()
}

func plainly(name string) Variant {
	for _, v := range All() {
		if v.Name == name {
			return v
		}
	}
	panic("no variant " + name)
}

// brief is an operation time-out for what nobody confirms. A slow machine may exceed it.
const brief = time.Second

// answered makes a call until its time-out was long enough for the server's own answer, ten times at
// most, and returns what it said then.
func answered(call func() error) (err error) {
	for range 10 {
		var acks *strategy.AcksError
		if err = call(); errors.As(err, &acks) || !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
			break
		}
	}
	return err
}

// unconfirmed checks that err says that nobody has confirmed, and nothing else.
func unconfirmed(t *testing.T, call string, err error) {
	t.Helper()
	var acks *strategy.AcksError
	if !errors.As(err, &acks) || !errors.Is(err, strategy.ErrUnknown) || acks.Got != (strategy.Acks{}) {
		t.Errorf("%s = %v, want ErrUnknown, and an AcksError: nobody has confirmed", call, err)
	}
	for _, not := range []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrRefused, strategy.ErrUnsent} {
		if errors.Is(err, not) {
			t.Errorf("%s = %v, want no %v", call, err, not)
		}
	}
}

// untilUndone checks that a lock is not there any more, some time.
func untilUndone(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	verdict.Eventually(t, "the lock "+name+" is undone", func() bool {
		return redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)) == int64(0)
	})
}

// TestConformanceAcknowledged holds the suite on a variant that waits for a replica, and can do
// everything. The others wait in the same way.
func TestConformanceAcknowledged(t *testing.T) {
	const child = "LOCKS_SUBJECTS_PRIMARY" // set: the given server is the primary
	var primary *redistest.Server
	if os.Getenv(child) != "" {
		primary = redistest.Shared(t)
	} else {
		primary, _ = pair(t)
	}
	for _, v := range acknowledged(byOne) {
		if v.Name != "reentrant" {
			continue
		}
		v.Except = maps.Clone(v.Except)
		if v.Except == nil {
			v.Except = map[string]string{}
		}
		v.Except["ExtendAtomic"] = "what becomes of the lock while its extension is being confirmed is learned at the next one"
		s := v.Subject([]*redistest.Server{primary})
		s.Name += "-acknowledged"
		s.ChildEnv = append(s.ChildEnv, child+"=1")
		conformance.Run(t, s)
	}
}

// TestAcknowledgedFailOver: what a replica has confirmed outlives its primary; what it has
// not heard of is granted again while its holder believes in it, or, if it was waited for,
// never granted.
func TestAcknowledgedFailOver(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	vs := acknowledged(byOne)
	plain := strategy.Options{TTL: 10 * time.Minute, OpTimeout: time.Minute}
	short := strategy.Options{TTL: plain.TTL, OpTimeout: brief}
	take := func(s strategy.Strategy, name string) (lease strategy.Lease) {
		err := error(strategy.ErrUnknown)
		for range 10 { // its time-out may be short
			if lease, err = s.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnknown) {
				break
			}
			untilUndone(t, primary, name)
		}
		if err != nil {
			t.Errorf("TryAcquire(%s) = %v, want nil", name, err)
			return nil
		}
		return lease
	}
	kept, lost := make([]strategy.Lease, len(vs)), make([]strategy.Lease, len(vs))
	acked := make([]strategy.Strategy, len(vs))
	each(vs, func(i int, v Variant) {
		acked[i] = openOn(t, v, primary, short)
		kept[i] = take(acked[i], v.Name+"-kept")
	})
	leave(t, replica)
	each(vs, func(i int, v Variant) {
		lost[i] = take(openOn(t, plainly(v.Name), primary, plain), v.Name+"-lost")
		undone := v.Name + "-undone"
		unconfirmed(t, v.Name+": TryAcquire", answered(func() error {
			_, err := acked[i].NewLock(undone).TryAcquire(t.Context())
			if err != nil {
				untilUndone(t, primary, undone)
			}
			return err
		}))
		if kept[i] == nil {
			return
		}
		deadline := kept[i].Deadline()
		unconfirmed(t, v.Name+": Extend", answered(func() error { return kept[i].Extend(t.Context()) }))
		if !kept[i].Deadline().Equal(deadline) {
			t.Errorf("%s: the deadline has moved by %v, want it where it was", v.Name, kept[i].Deadline().Sub(deadline))
		}
	})
	if t.Failed() {
		return
	}
	redistest.Skip(t, primary.Kill(t.Context()), "that a lock that was acknowledged outlives its server")
	redistest.Do(t, replica, "REPLICAOF", "NO", "ONE")
	each(vs, func(i int, v Variant) {
		s := openOn(t, plainly(v.Name), replica, plain)
		if _, err := s.NewLock(v.Name + "-kept").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
			t.Errorf("%s: TryAcquire of an acknowledged lock after the fail-over = %v, want ErrHeld", v.Name, err)
		}
		second := take(s, v.Name+"-lost") // the double grant
		if err := lost[i].Err(); err != nil || second == nil {
			t.Errorf("%s: the first holder, of a lock that was not acknowledged: Err() = %v, want nil: two hold it", v.Name, err)
		}
		take(s, v.Name+"-undone")
	})
}

// TestAcknowledgedExtend: an extension counts when the replica has what the lock lasts
// for, also if it asks for less than an earlier one that nobody has confirmed, so that
// nothing is left to prolong.
func TestAcknowledgedExtend(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	vs := acknowledged(byOne)
	n := redigonode.New(primary.Pool())
	defer n.Close()
	on := func(v Variant) driver.Protocol { return v.On([]driver.Node{n}) }
	claim := func(v Variant, ttl, within time.Duration) driver.Claim {
		return driver.Claim{
			Name: v.Name, Key: strategy.DefaultKey(v.Name + "-extended"), Token: v.Name, Owner: v.Name,
			TTL: ttl, Due: time.Now().Add(within),
		}
	}
	const long = 20 * time.Second // for a machine that is busy
	for _, v := range vs {
		if _, err := on(v).Acquire(t.Context(), claim(v, time.Minute, long)); err != nil {
			t.Fatalf("%s: Acquire = %v", v.Name, err)
		}
	}
	redistest.Skip(t, replica.Freeze(t.Context()), "that an extension which has nothing to write is not taken for confirmed")
	each(vs, func(_ int, v Variant) {
		if _, err := on(plainly(v.Name)).Extend(t.Context(), claim(v, time.Hour, long)); err != nil {
			t.Errorf("%s: Extend that waits for nobody = %v, want nil", v.Name, err)
		}
		unconfirmed(t, v.Name+": Extend", answered(func() error {
			_, err := on(v).Extend(t.Context(), claim(v, 2*time.Minute, brief))
			return err
		}))
	})
	if err := replica.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		if _, err := on(v).Extend(t.Context(), claim(v, 3*time.Minute, long)); err != nil {
			t.Errorf("%s: Extend = %v, want nil", v.Name, err)
		}
		if v.Package == "setnxgetset" {
			continue // its expiry is in the value
		}
		left := time.Duration(redistest.Do(t, replica, "PTTL", strategy.DefaultKey(v.Name+"-extended")).(int64)) * time.Millisecond
		if left < 2*time.Minute {
			t.Errorf("%s: the replica keeps it for %v, want about 3 minutes or an hour", v.Name, left)
		}
	}
}

// TestAcknowledgedCheck: it counts the replicas that confirm.
func TestAcknowledgedCheck(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	for _, v := range acknowledged(byOne) {
		if err := openOn(t, v, primary, strategy.Options{TTL: time.Hour, OpTimeout: time.Minute}).Check(t.Context()); err != nil {
			t.Errorf("%s: Check() = %v, want nil", v.Name, err)
		}
	}
	wantSaid := func(v Variant, want string) {
		s := openOn(t, v, primary, strategy.Options{TTL: time.Minute, OpTimeout: brief})
		verdict.Eventually(t, v.Name+": Check says that "+want, func() bool { // on a slow machine nobody confirms in time
			err := s.Check(t.Context())
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
	each(acknowledged(strategy.Acks{Replicas: 2}), func(_ int, v Variant) { wantSaid(v, "1 replicas confirm, Acks.Replicas is 2") })
	leave(t, replica)
	wantSaid(acknowledged(byOne)[0], "0 replicas confirm")
	if n := redistest.Do(t, primary, "DBSIZE"); n != int64(0) {
		t.Errorf("DBSIZE = %v, want 0: Check changes nothing", n)
	}
}

// TestAcknowledgedAOF: the append-only file, where the server can be asked for it; where
// not, Check says so, and nobody gets a lock that is worth less than was asked for. An old
// server is seen to refuse, and then a newer one is taken.
func TestAcknowledgedAOF(t *testing.T) {
	t.Parallel()
	own := redistest.ForTests(t)
	t.Run("Own", func(t *testing.T) { acknowledgedAOF(t, own) })
	t.Run("Newer", func(t *testing.T) {
		newer, err := own.Having(t.Context(), "redis-8.0", "WAITAOF")
		redistest.Skip(t, err, "that locks are acknowledged by an append-only file")
		if newer != own { // or it was seen above
			acknowledgedAOF(t, newer)
		}
	})
}

func acknowledgedAOF(t *testing.T, f *redistest.Farm) {
	primary, _ := pairOf(t, f)
	redistest.Do(t, primary, "CONFIG", "SET", "appendonly", "yes")
	redistest.Do(t, primary, "CONFIG", "SET", "appendfsync", "always")
	byFile := acknowledged(strategy.Acks{AOF: true})
	o := strategy.Options{TTL: time.Minute, OpTimeout: 6 * time.Second}
	check := func(v Variant, o strategy.Options, want string) {
		t.Helper()
		if err := openOn(t, v, primary, o).Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Check() = %v, want %q", v.Name, err, want)
		}
	}
	refused := func(v Variant, name string) {
		t.Helper()
		_, err := openOn(t, v, primary, o).NewLock(name).TryAcquire(t.Context())
		unconfirmed(t, v.Name+": TryAcquire", err)
		untilUndone(t, primary, name)
	}
	if old := redistest.Do(t, primary, "COMMAND", "INFO", "WAITAOF").([]any)[0] == nil; old {
		each(byFile, func(_ int, v Variant) {
			check(v, o, "needs WAITAOF, of Redis 7.2 or Valkey")
			refused(v, v.Name)
		})
		return
	}
	each(byFile, func(_ int, v Variant) {
		s := openOn(t, v, primary, o)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("%s: Check() = %v, want nil", v.Name, err)
		}
		lease, err := s.NewLock(v.Name).TryAcquire(t.Context())
		if err != nil {
			t.Errorf("%s: TryAcquire() = %v, want nil", v.Name, err)
			return
		}
		if err := lease.Extend(t.Context()); err != nil {
			t.Errorf("%s: Extend() = %v, want nil", v.Name, err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("%s: Release() = %v, want nil", v.Name, err)
		}
	})
	both, short := acknowledged(strategy.Acks{Replicas: 1, AOF: true})[0], o
	short.OpTimeout = brief
	s := openOn(t, both, primary, short)
	verdict.Eventually(t, "Check says that the replica has no file", func() bool {
		err := s.Check(t.Context())
		return err != nil && strings.Contains(err.Error(), "connect as many, with appendonly yes")
	})
	redistest.Do(t, primary, "CONFIG", "SET", "appendfsync", "everysec")
	check(byFile[0], strategy.Options{}, "set it to always, or Options.OpTimeout to 2s or more")
	patient := openOn(t, byFile[0], primary, o)
	if strings.Contains(primary.Version(), "Valkey") {
		check(byFile[0], o, "what it has written and not synced yet")
	} else if err := patient.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	for i := range 2 { // the second within the same second as the first
		if _, err := patient.NewLock(fmt.Sprint("second", i)).TryAcquire(t.Context()); err != nil {
			t.Errorf("TryAcquire() = %v, want nil", err)
		}
	}
	redistest.Do(t, primary, "CONFIG", "SET", "appendonly", "no")
	each(byFile, func(_ int, v Variant) {
		check(v, o, "set appendonly to yes")
		refused(v, v.Name+"-refused")
	})
}

// TestAcknowledgedCost: what the documentation says of round trips.
func TestAcknowledgedCost(t *testing.T) {
	t.Parallel()
	primary, _ := pair(t)
	for _, v := range acknowledged(byOne) {
		if v.Name != "luascript" && v.Name != "fairqueue" && v.Name != "reentrant" {
			continue
		}
		s := openOn(t, v, primary, strategy.Options{TTL: time.Minute, OpTimeout: 20 * time.Second})
		// One after the other, each a round trip: nothing is sent before the last reply.
		count := func(what, want string, f func() error) {
			t.Helper()
			before, err := primary.Calls(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			if err := f(); err != nil && !errors.Is(err, strategy.ErrHeld) {
				t.Fatalf("%s: %s = %v, want nil", v.Name, what, err)
			}
			after, err := primary.Calls(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, cmd := range []string{"client|info", "client|id", "eval", "evalsha", "ping", "wait"} {
				if n := after[cmd] - before[cmd]; n > 0 {
					got = append(got, fmt.Sprint(n, " ", cmd))
				}
			}
			if g := strings.Join(got, ", "); g != want {
				t.Errorf("%s: round trips of %s = %s, want %s", v.Name, what, g, want)
			}
		}
		var lease strategy.Lease
		acquire := func() (err error) {
			lease, err = s.NewLock(v.Name + "-counted").TryAcquire(t.Context())
			return err
		}
		for range 2 { // the first time connections are dialled, and scripts loaded
			if err := errors.Join(acquire(), lease.Extend(t.Context()), lease.Release(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		count("Acquire", "1 client|info, 1 evalsha, 1 wait", acquire)
		count("Acquire, held", "1 client|info, 1 evalsha", func() error {
			_, err := s.NewLock(v.Name + "-counted").TryAcquire(t.Context())
			return err
		})
		count("Extend", "1 client|info, 1 evalsha, 1 wait", func() error { return lease.Extend(t.Context()) })
		count("Release", "1 evalsha", func() error { return lease.Release(t.Context()) })
	}
}
