// Locks that count only once a replica, or the append-only file, has confirmed them.
package subjects

import (
	"errors"
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
func pair(t *testing.T, f *redistest.Farm) (primary, replica *redistest.Server) {
	t.Helper()
	primary, replica = redistest.OwnOf(t, f, redistest.Config{}), redistest.OwnOf(t, f, redistest.Config{})
	peer, err := primary.Peer(t.Context())
	redistest.Skip(t, err, "that locks are acknowledged by replicas")
	host, port, err := net.SplitHostPort(peer)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, primary, "CONFIG", "SET", "repl-diskless-sync-delay", 0) // or it waits for more replicas
	redistest.Do(t, replica, "REPLICAOF", host, port)
	if err := primary.Replicated(t.Context(), replica); err != nil {
		t.Fatal(err)
	}
	verdict.Eventually(t, "the replica confirms", func() bool { return redistest.Do(t, primary, "WAIT", 1, 1000) == int64(1) })
	return primary, replica
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

// TestConformanceAcknowledged holds the suite on a variant that waits for a replica, and can do
// everything. The others wait in the same way.
func TestConformanceAcknowledged(t *testing.T) {
	const child = "LOCKS_SUBJECTS_PRIMARY" // set: the given server is the primary
	var primary *redistest.Server
	if os.Getenv(child) != "" {
		primary = redistest.Shared(t)
	} else {
		primary, _ = pair(t, redistest.ForTests(t))
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

// TestAcknowledgedExtend: an extension counts when the replica has what the lock lasts
// for, also if it asks for less than an earlier one that nobody has confirmed, so that
// nothing is left to prolong.
func TestAcknowledgedExtend(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t, redistest.ForTests(t))
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

// TestAcknowledgedCheck: the words of real servers are those by which Check knows what they lack. An old server is seen, and then a
// newer one.
func TestAcknowledgedCheck(t *testing.T) {
	t.Parallel()
	v, o := acknowledged(byOne)[0], strategy.Options{TTL: time.Minute, OpTimeout: brief}
	says := func(t *testing.T, primary *redistest.Server, a strategy.Acks, want string) {
		t.Helper()
		s := openOn(t, acknowledged(a)[0], primary, o)
		verdict.Eventually(t, "Check says that "+want, func() bool { // on a slow machine nobody confirms in time
			err := s.Check(t.Context())
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
	own := redistest.ForTests(t)
	t.Run("Own", func(t *testing.T) {
		primary, _ := pair(t, own)
		if err := openOn(t, v, primary, strategy.Options{TTL: time.Hour, OpTimeout: time.Minute}).Check(t.Context()); err != nil {
			t.Errorf("Check() = %v, want nil", err)
		}
		says(t, primary, strategy.Acks{Replicas: 2}, "1 replicas confirm, Acks.Replicas is 2")
		want := "set appendonly to yes"
		if old := redistest.Do(t, primary, "COMMAND", "INFO", "WAITAOF").([]any)[0] == nil; old {
			want = "needs WAITAOF, of Redis 7.2 or Valkey"
		}
		says(t, primary, strategy.Acks{AOF: true}, want)
	})
	t.Run("Newer", func(t *testing.T) {
		newer, err := own.Having(t.Context(), "redis-8.0", "WAITAOF")
		redistest.Skip(t, err, "that locks are acknowledged by an append-only file")
		primary, _ := pair(t, newer)
		says(t, primary, strategy.Acks{AOF: true}, "set appendonly to yes")
		redistest.Do(t, primary, "CONFIG", "SET", "appendonly", "yes")
		says(t, primary, strategy.Acks{Replicas: 1, AOF: true}, "connect as many, with appendonly yes")
		says(t, primary, strategy.Acks{AOF: true}, "set it to always, or Options.OpTimeout to 2s or more")
	})
}
