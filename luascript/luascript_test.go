package luascript_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) {
		n, err := node.New(s.Pool())
		if err != nil {
			panic(err)
		}
		url, yourNode = s.URL(), n
	})
}

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "luascript") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "luascript") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options, own ...luascript.Option) strategy.Strategy {
	t.Helper()
	locks, err := luascript.New(s.Pool(), o, own...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return locks
}

func acquire(t *testing.T, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want nil", err)
	}
	return lease
}

func fence(t *testing.T, l strategy.Lease) uint64 {
	t.Helper()
	n, ok := l.Fence()
	if !ok {
		t.Fatal("Fence() = 0, false, want a fence")
	}
	return n
}

// unique is a name that no other test uses.
func unique(t *testing.T) string {
	return t.Name() + strconv.Itoa(int(time.Now().UnixNano()))
}

func onServer(t *testing.T, s *redistest.Server, own ...luascript.Option) driver.Protocol {
	t.Helper()
	n, err := node.New(s.Pool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return luascript.On(n, own...)
}

func claim(name, token string) driver.Claim {
	return driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: token, TTL: time.Minute, Due: time.Now().Add(time.Minute)}
}

// TestOnTheWire: the commands that each script runs, as MONITOR shows them.
func TestOnTheWire(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	p := onServer(t, s)
	monitor, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	fmt.Fprint(monitor, "MONITOR\r\n")
	lines := bufio.NewReader(monitor)
	if ok, err := lines.ReadString('\n'); ok != "+OK\r\n" {
		t.Skipf("NOT PROVEN: which commands the scripts run: MONITOR = %q, %v", ok, err)
	}
	digits := regexp.MustCompile(`"[0-9]{16}"`)
	ran := func() (commands string) {
		redistest.Do(t, s, "ECHO", "end")
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, `"end"`) {
				return commands
			}
			if _, command, lua := strings.Cut(line, " lua] "); lua {
				commands += digits.ReplaceAllString(strings.TrimSpace(command), "<fence>") + "\n"
			}
		}
	}
	c, rival := claim("a", "mine"), claim("a", "rival's")
	adopter, inspector := p.(driver.Adopter), p.(driver.Inspector)
	for _, step := range []struct {
		what string
		do   func() error
		want string
	}{
		{"Acquire", func() error { _, err := p.Acquire(t.Context(), c); return err }, `"GET" "lock:{a}"
"GET" "lock:{a}:fence"
"TIME"
"SET" "lock:{a}:fence" <fence>
"SET" "lock:{a}" "mine" "PX" "60000"
`},
		{"a held Acquire", func() error {
			if _, err := p.Acquire(t.Context(), rival); !errors.Is(err, strategy.ErrHeld) {
				return fmt.Errorf("%w, want ErrHeld", err)
			}
			return nil
		}, `"GET" "lock:{a}"
"PTTL" "lock:{a}"
`},
		{"Extend", func() error { long := c; long.TTL *= 2; _, err := p.Extend(t.Context(), long); return err }, `"GET" "lock:{a}"
"PTTL" "lock:{a}"
"PEXPIRE" "lock:{a}" "120000"
`},
		{"Inspect", func() error { _, err := inspector.Inspect(t.Context(), c); return err }, `"GET" "lock:{a}:fence"
"GET" "lock:{a}"
"PTTL" "lock:{a}"
`},
		{"Adopt", func() error { _, err := adopter.Adopt(t.Context(), rival, "mine"); return err }, `"GET" "lock:{a}"
"GET" "lock:{a}:fence"
"TIME"
"SET" "lock:{a}:fence" <fence>
"SET" "lock:{a}" "rival's" "PX" "60000"
`},
		{"a late Release", func() error {
			if err := p.Release(t.Context(), c); !errors.Is(err, strategy.ErrLost) {
				return fmt.Errorf("%w, want ErrLost", err)
			}
			return nil
		}, `"GET" "lock:{a}"
`},
		{"Release", func() error { return p.Release(t.Context(), rival) }, `"GET" "lock:{a}"
"DEL" "lock:{a}"
"PUBLISH" "lock:{a}:free" "rival's"
`},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s = %v", step.what, err)
		}
		if got := ran(); got != step.want {
			t.Errorf("%s runs\n%swant\n%s", step.what, got, step.want)
		}
	}
}

// TestForeignHolder: other libraries publish no release, and a waiter does not sleep until
// their TTL ends.
func TestForeignHolder(t *testing.T) {
	s := redistest.Shared(t)
	for what, token := range map[string]string{
		"redsync": "d2hhdGV2ZXIgaXQgaXMhIQ==", "redislock": "n4bQgYhMfWWaL-qgxVrQFa", "redis-py": "a8098c1af86e11dabd1a00112444be1e",
		"StackExchange.Redis, a machine": "WEB-1", "a UUID of version 4": "f47ac10b-58cc-4372-a567-0e02b2c3d479",
		"a UUID of version 7": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "nothing": "",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := unique(t)
			key := strategy.DefaultKey(name)
			if r := redistest.Do(t, s, "SET", key, token, "NX", "PX", 60_000); fmt.Sprintf("%s", r) != "OK" {
				t.Fatalf("SET = %v, want OK", r)
			}
			waits(t, func(o strategy.Options) strategy.Strategy { return open(t, s, o) }, name, func() {
				redistest.Do(t, s, "DEL", key)
			})
		})
	}
	t.Run("setnxpx", func(t *testing.T) { // whose tokens are drawn as ours
		theirs, err := setnxpx.New(s.Pool(), strategy.Options{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		name := unique(t)
		lease := acquire(t, theirs, name)
		waits(t, func(o strategy.Options) strategy.Strategy { return open(t, s, o) }, name, func() {
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
		})
	})
}

// waits has a contender wait for the lock, frees it, and fails if the contender sleeps on.
func waits(t *testing.T, open func(strategy.Options) strategy.Strategy, name string, free func()) {
	t.Helper()
	held := make(chan struct{}, 1000)
	locks := open(strategy.Options{TTL: time.Minute, Observe: func(e strategy.Event) {
		if e.Kind == strategy.EventHeld {
			held <- struct{}{}
		}
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // far more than Backoff, far less than the TTL
	defer cancel()
	done := make(chan error)
	go func() {
		lease, err := locks.NewLock(name).Acquire(ctx)
		if err == nil {
			err = lease.Release(t.Context())
		}
		done <- err
	}()
	for range 2 { // once at first, and once when it has subscribed
		select {
		case <-held:
		case err := <-done:
			t.Fatalf("Acquire() = %v while the lock is held, want it to wait", err)
		}
	}
	time.Sleep(50 * time.Millisecond) // it may still be on its way to sleep
	free()
	if err := <-done; err != nil {
		t.Errorf("Acquire() = %v, want nil soon after the release", err)
	}
}

// TestQuietAmongItsOwn: a waiter polls no holder whose release will be published.
func TestQuietAmongItsOwn(t *testing.T) {
	s := redistest.Shared(t)
	for what, own := range map[string][]luascript.Option{"Fenced": nil, "Unfenced": {luascript.WithoutFences()}} {
		t.Run(what, func(t *testing.T) {
			name := unique(t)
			lease := acquire(t, open(t, s, strategy.Options{TTL: time.Minute}, own...), name)
			asked := make(chan struct{}, 1000)
			waits(t, func(o strategy.Options) strategy.Strategy {
				observe := o.Observe
				o.Observe = func(e strategy.Event) {
					observe(e)
					if e.Kind == strategy.EventHeld {
						asked <- struct{}{}
					}
				}
				return open(t, s, o, own...)
			}, name, func() {
				time.Sleep(time.Second)
				if n := len(asked); n != 2 {
					t.Errorf("requests of a waiter in a second = %d, want 2: one at first, one when it has subscribed", n)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			})
		})
	}
}

// TestFenceSurvivesItsCounter: the server's clock is the floor.
func TestFenceSurvivesItsCounter(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	first := acquire(t, locks, "a")
	older := fence(t, first)
	redistest.Do(t, s, "FLUSHALL")
	second := acquire(t, locks, "a")
	if newer := fence(t, second); newer <= older {
		t.Errorf("fence after FLUSHALL = %d, want more than %d", newer, older)
	}
	if err := first.Release(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("first.Release() = %v, want ErrLost", err)
	}
	// The counter also rises when the clock stands still, or was ahead before.
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	redistest.Do(t, s, "SET", "lock:{a}:fence", ahead)
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := acquire(t, locks, "a")
	if got, want := fence(t, third), ahead+1; got != want {
		t.Errorf("fence = %d, want %d", got, want)
	}
	token, err := third.Detach()
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := locks.Adopt(t.Context(), "a", token)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fence(t, adopted), ahead+2; got != want {
		t.Errorf("fence of the adopted hold = %d, want %d", got, want)
	}
}

// TestBadCounter: a counter that holds no fence is an error, and nothing is changed.
func TestBadCounter(t *testing.T) {
	s := redistest.Shared(t)
	locks := open(t, s, strategy.Options{})
	for what, value := range map[string]string{
		"a word": "seven", "negative": "-1", "2^53-1": "9007199254740991", "infinite": "inf", "not a number": "nan", "empty": "",
	} {
		t.Run(what, func(t *testing.T) {
			name := unique(t)
			key := strategy.DefaultKey(name)
			redistest.Do(t, s, "SET", key+":fence", value)
			defer redistest.Do(t, s, "DEL", key+":fence")
			_, err := locks.NewLock(name).TryAcquire(t.Context())
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "holds no fence") {
				t.Errorf("TryAcquire() = %v, want ErrRefused because the counter holds no fence", err)
			}
			if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
				t.Errorf("EXISTS %s = %v, want 0: refused, but taken", key, n)
			}
			if v := fmt.Sprintf("%s", redistest.Do(t, s, "GET", key+":fence")); v != value {
				t.Errorf("counter = %q, want %q as before", v, value)
			}
		})
	}
	t.Run("a list", func(t *testing.T) {
		name := unique(t)
		key := strategy.DefaultKey(name)
		redistest.Do(t, s, "RPUSH", key+":fence", "x")
		defer redistest.Do(t, s, "DEL", key+":fence")
		if _, err := locks.NewLock(name).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("TryAcquire() = %v, want ErrRefused and WRONGTYPE", err)
		}
		if n := redistest.Do(t, s, "EXISTS", key); n != int64(0) {
			t.Errorf("EXISTS %s = %v, want 0: refused, but taken", key, n)
		}
	})
}

// TestBulk: renewals go 256 to a request, and one lock that cannot be renewed stops no other.
func TestBulk(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	p := onServer(t, s)
	claims := make([]driver.Claim, 300)
	for i := range claims {
		c := claim(strconv.Itoa(i), "t"+strconv.Itoa(i))
		c.TTL = time.Second
		if _, err := p.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.TTL = time.Minute
		claims[i] = c
	}
	gone, taken, spoiled, long := 7, 107, 207, 30
	claims[long].TTL = time.Hour
	redistest.Do(t, s, "DEL", claims[gone].Key)
	redistest.Do(t, s, "SET", claims[taken].Key, "another")
	redistest.Do(t, s, "DEL", claims[spoiled].Key)
	redistest.Do(t, s, "RPUSH", claims[spoiled].Key, "no lock")
	answers := make([]error, len(claims))
	p.(driver.BulkExtender).ExtendAll(t.Context(), claims, func(i int, _ driver.Grant, err error) { answers[i] = err })
	for i, err := range answers {
		var lost *strategy.LostError
		switch i {
		case gone:
			if !errors.As(err, &lost) || lost.Holder != "" || redistest.Do(t, s, "EXISTS", claims[i].Key) != int64(0) {
				t.Errorf("renewal of one that is gone = %v, want a LostError without holder, and no lock", err)
			}
		case taken:
			if !errors.As(err, &lost) || lost.Holder != "another" {
				t.Errorf("renewal of one that was taken = %v, want a LostError with its holder", err)
			}
		case spoiled:
			if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("renewal of a list = %v, want ErrRefused and WRONGTYPE", err)
			}
		default:
			ttl := claims[i].TTL.Milliseconds()
			if ms := redistest.Do(t, s, "PTTL", claims[i].Key).(int64); err != nil || ms < ttl/2 || ms > ttl {
				t.Errorf("renewal %d = %v, PTTL = %d ms, want nil and about %d ms", i, err, ms, ttl)
			}
		}
	}
}

// TestExtendNeverShortens: a renewal that was stuck on its way, and asked for less
// than a later one got, must not take from the holder what it relies on.
func TestExtendNeverShortens(t *testing.T) {
	s := redistest.Shared(t)
	p, c := onServer(t, s), claim(unique(t), "t")
	if _, err := p.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	late := c
	late.TTL = time.Second
	if _, err := p.Extend(t.Context(), late); err != nil {
		t.Errorf("Extend() by less = %v, want nil", err)
	}
	if ms := redistest.Do(t, s, "PTTL", c.Key).(int64); ms < 30_000 {
		t.Errorf("PTTL = %d ms, want about a minute", ms)
	}
	if err := p.Release(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// TestOutOfMemory: a release and a renewal work when Redis takes no other writes.
func TestOutOfMemory(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	lease := acquire(t, locks, "a")
	c := s.Pool().Get()
	defer c.Close()
	if _, err := c.Do("CONFIG", "SET", "maxmemory", 1); err != nil {
		t.Skipf("NOT PROVEN: that locks are released when Redis is out of memory: %v", err)
	}
	_, err := locks.NewLock("b").TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("TryAcquire() = %v, want ErrRefused and OOM", err)
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestForbidden: what a user can do whom the ACL forbids something.
func TestForbidden(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	as := func(t *testing.T, user, notProven string, rules ...any) strategy.Strategy {
		t.Helper()
		c := s.Pool().Get()
		defer c.Close()
		if _, err := c.Do("ACL", append([]any{"SETUSER", user, "on", ">secret", "~*", "&*", "+@all"}, rules...)...); err != nil {
			t.Skipf("NOT PROVEN: %s: %v", notProven, err)
		}
		pool := &redis.Pool{Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", s.Addr(), redis.DialUsername(user), redis.DialPassword("secret"))
		}}
		t.Cleanup(func() { pool.Close() })
		locks, err := luascript.New(pool, strategy.Options{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locks.Close() })
		return locks
	}
	t.Run("PUBLISH", func(t *testing.T) {
		locks := as(t, "mute", "that a user who may not publish can release", "-publish")
		if err := acquire(t, locks, "mute").Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
		if n := redistest.Do(t, s, "EXISTS", "lock:{mute}"); n != int64(0) {
			t.Errorf("EXISTS = %v, want 0: it is released", n)
		}
	})
	t.Run("DEL", func(t *testing.T) {
		locks := as(t, "hoarder", "that Check sees a user who may not release", "-del")
		if err := locks.Check(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "+del") {
			t.Errorf("Check() = %v, want ErrRefused, and what to allow", err)
		}
	})
	t.Run("the counter", func(t *testing.T) {
		locks := as(t, "narrow", "that nothing is locked without its fence", "resetkeys", "~lock:{narrow}", "%R~lock:{narrow}:fence")
		if _, err := locks.NewLock("narrow").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("TryAcquire() = %v, want ErrRefused", err)
		}
		if n := redistest.Do(t, s, "EXISTS", "lock:{narrow}"); n != int64(0) {
			t.Errorf("EXISTS = %v, want 0: refused, but taken", n)
		}
	})
}

// TestWithoutFences: no counter is left, and the lock's key is all that is touched.
func TestWithoutFences(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{}, luascript.WithoutFences())
	lease := acquire(t, locks, "a")
	if n, ok := lease.Fence(); ok {
		t.Errorf("Fence() = %d, true, want none", n)
	}
	token, err := lease.Detach()
	if err != nil {
		t.Fatal(err)
	}
	if lease, err = locks.Adopt(t.Context(), "a", token); err != nil {
		t.Fatal(err)
	}
	if info, err := locks.Inspect(t.Context(), "a"); err != nil || info.Token != lease.Token() || info.Fence != 0 {
		t.Errorf("Inspect() = %+v, %v, want the lease's token and no fence", info, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := redistest.Do(t, s, "DBSIZE"); n != int64(0) {
		t.Errorf("DBSIZE = %v, want 0: no counter is left", n)
	}
}

// oneReply is a node that answers everything in the same way.
type oneReply struct {
	driver.Node
	reply any
}

func (n oneReply) Name() string  { return "fake" }
func (n oneReply) Ordered() bool { return true }
func (n oneReply) Eval(context.Context, time.Time, *driver.Script, []string, ...any) (any, error) {
	return n.reply, nil
}

// TestGarbage: a reply that no script gives is neither a grant, nor held, nor lost: nobody knows.
func TestGarbage(t *testing.T) {
	c := driver.Claim{Name: "a", Key: "a", Token: "t"}
	for _, reply := range []any{nil, int64(-1), int64(0), []byte("OK"), []any{}, []any{int64(1)}, []any{int64(1), int64(1)}, []any{[]byte("x")}, []any{[]byte("x"), []byte("y")}, "text"} {
		g, err := luascript.On(oneReply{reply: reply}).Acquire(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{int64(2), int64(-1), []any{}, []any{int64(2)}, []any{int64(1), int64(1)}} {
		_, err := luascript.On(oneReply{reply: reply}).Extend(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}} {
		if err := luascript.On(oneReply{reply: reply}).Release(t.Context(), c); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Release() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
}
