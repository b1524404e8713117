// The strategy as its users see it: on the wire, among other libraries, and without some rights.
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

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, &yourNode) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "luascript") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "luascript") }

// open returns a strategy on s that is closed with the test.
func open(t *testing.T, s *redistest.Server, o strategy.Options, options ...luascript.Option) strategy.Strategy {
	t.Helper()
	locks, err := luascript.New(redigonode.New(s.Pool()), o, options...)
	return locktest.Opened(t, locks, err)
}

func claim(name, token string) driver.Claim {
	return driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: token, TTL: time.Minute, Due: time.Now().Add(time.Minute)}
}

// TestOnTheWire: the commands that each script runs, as MONITOR shows them.
func TestOnTheWire(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	p := luascript.On(locktest.Node(t, s))
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
	adopter, inspector := p, p
	for _, step := range []struct {
		what string
		do   func() error
		want string
	}{
		{"Acquire", func() error { _, err := p.Acquire(t.Context(), c); return err }, `"GET" "lock:{a}"
"TIME"
"GET" "lock:{a}:fence"
"SET" "lock:{a}:fence" <fence>
"SET" "lock:{a}" "mine" "PX" "60000"
`},
		{"a held Acquire", func() error {
			if _, err := p.Acquire(t.Context(), rival); !errors.Is(err, strategy.ErrHeld) {
				return fmt.Errorf("%w, want ErrHeld", err)
			}
			return nil
		}, `"GET" "lock:{a}"
"GETEX" "lock:{a}"
"PTTL" "lock:{a}"
`},
		{"Extend", func() error { long := c; long.TTL *= 2; _, err := p.Extend(t.Context(), long); return err }, `"GET" "lock:{a}"
"PTTL" "lock:{a}"
"PEXPIRE" "lock:{a}" "120000"
`},
		{"Inspect", func() error { _, err := inspector.Inspect(t.Context(), c); return err }, `"GET" "lock:{a}:fence"
"GETEX" "lock:{a}"
"PTTL" "lock:{a}"
`},
		{"Adopt", func() error { _, err := adopter.Adopt(t.Context(), rival, "mine"); return err }, `"GET" "lock:{a}"
"TIME"
"GET" "lock:{a}:fence"
"SET" "lock:{a}:fence" <fence>
"SET" "lock:{a}" "rival's" "PX" "60000"
"PUBLISH" "lock:{a}:free" "mine"
`},
		{"a late Release", func() error {
			if _, err := p.Release(t.Context(), c); !errors.Is(err, strategy.ErrLost) {
				return fmt.Errorf("%w, want ErrLost", err)
			}
			return nil
		}, `"GETEX" "lock:{a}"
`},
		{"Release", func() error { return locktest.Err(p.Release(t.Context(), rival)) }, `"GETEX" "lock:{a}"
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
			name := locktest.Unique(t)
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
		theirs, err := setnxpx.New(redigonode.New(s.Pool()), strategy.Options{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		name := locktest.Unique(t)
		lease := locktest.Try(t, theirs, name)
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
	free()
	if err := <-done; err != nil {
		t.Errorf("Acquire() = %v, want nil soon after the release", err)
	}
}

// TestQuietAmongItsOwn: a waiter polls no holder whose release will be published. The engine polls
// where a grant is Silent.
func TestQuietAmongItsOwn(t *testing.T) {
	s := redistest.Shared(t)
	for what, options := range map[string][]luascript.Option{"Fenced": nil, "Unfenced": {luascript.WithoutFences()}} {
		t.Run(what, func(t *testing.T) {
			name := locktest.Unique(t)
			lease := locktest.Try(t, open(t, s, strategy.Options{TTL: time.Minute}, options...), name)
			g, err := luascript.On(locktest.Node(t, s), options...).Acquire(t.Context(), claim(name, "t"))
			if !errors.Is(err, strategy.ErrHeld) || g.Silent {
				t.Errorf("Acquire() = %+v, %v, want ErrHeld by a holder that is not silent", g, err)
			}
			locktest.Release(t, lease)
		})
	}
}

// TestBulk: renewals go 256 to a request, and one lock that cannot be renewed stops no other.
func TestBulk(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	p := luascript.On(locktest.Node(t, s))
	claims := make([]driver.Claim, 300)
	for i := range claims {
		c := claim(strconv.Itoa(i), "t"+strconv.Itoa(i))
		c.TTL = 20 * time.Second
		if _, err := p.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.TTL = time.Minute
		claims[i] = c
	}
	deleted, taken, spoiled, long := 7, 107, 207, 30
	claims[long].TTL = time.Hour
	redistest.Do(t, s, "DEL", claims[deleted].Key)
	redistest.Do(t, s, "SET", claims[taken].Key, "another")
	redistest.Do(t, s, "DEL", claims[spoiled].Key)
	redistest.Do(t, s, "RPUSH", claims[spoiled].Key, "no lock")
	answers := make([]error, len(claims))
	p.(driver.BulkExtender).ExtendAll(t.Context(), claims, func(i int, _ driver.Grant, err error) { answers[i] = err })
	for i, err := range answers {
		var lost *strategy.LostError
		switch i {
		case deleted:
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

// TestForbidden: what a user can still do if the ACL forbids something.
func TestForbidden(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	as := func(t *testing.T, user, notProven string, rules ...any) strategy.Strategy {
		t.Helper()
		locks, err := luascript.New(redigonode.New(locktest.As(t, s, user, notProven, rules...)), strategy.Options{TTL: time.Minute})
		return locktest.Opened(t, locks, err)
	}
	t.Run("PUBLISH", func(t *testing.T) {
		locks := as(t, "mute", "that a user who may not publish can release", "-publish")
		if err := locktest.Try(t, locks, "mute").Release(t.Context()); err != nil {
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

func TestFencesExpire(t *testing.T) {
	locktest.FencesExpire(t, func(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy { return open(t, s, o) })
}

// TestWithoutFences: no counter is left, and the lock's key is all that is touched.
func TestWithoutFences(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{}, luascript.WithoutFences())
	lease := locktest.Try(t, locks, "a")
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
	narrow := locktest.As(t, s, "narrow", "that a lock without fences needs no right to a counter", "resetkeys", "~lock:{*}")
	for _, options := range [][]luascript.Option{nil, {luascript.WithoutFences()}} {
		locks, err := luascript.New(redigonode.New(narrow), strategy.Options{}, options...)
		if err = locktest.Opened(t, locks, err).Check(t.Context()); (err == nil) != (options != nil) {
			t.Errorf("Check() of a user without the counter, with %d options = %v, want nil without fences alone", len(options), err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := luascript.New(nil, strategy.Options{}); err == nil {
		t.Error("New(nil) = nil, want an error")
	}
}

// TestGarbage: a reply that no script gives is neither a grant, nor held, nor lost: nobody knows.
func TestGarbage(t *testing.T) {
	c := driver.Claim{Name: "a", Key: "a", Token: "t"}
	for _, reply := range []any{nil, int64(-1), int64(0), []byte("OK"), []any{}, []any{int64(1)}, []any{int64(1), int64(0)}, []any{int64(1), int64(-1)}, []any{int64(1), int64(driver.MaxFences + 1)}, []any{int64(0), int64(2)}, []any{int64(-1), int64(2)}, []any{int64(1), int64(2), int64(3)}, []any{int64(1), []byte("x")}, []any{[]byte("x")}, []any{[]byte("x"), []byte("y")}, "text"} {
		g, err := luascript.On(locktest.OneReply{Reply: reply}).Acquire(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) {
			t.Errorf("Acquire() on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{nil, int64(1), int64(-1), []any{int64(0), int64(2)}, []byte("x")} {
		g, err := luascript.On(locktest.OneReply{Reply: reply}, luascript.WithoutFences()).Acquire(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Acquire() without fences on %#v = %+v, %v, want ErrUnknown", reply, g, err)
		}
	}
	for _, reply := range []any{int64(2), int64(-1), []any{}, []any{int64(2)}, []any{int64(1), int64(1)}} {
		_, err := luascript.On(locktest.OneReply{Reply: reply}).Extend(t.Context(), c)
		if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	for _, reply := range []any{int64(0), int64(-1), []any{}} {
		if _, err := luascript.On(locktest.OneReply{Reply: reply}).Release(t.Context(), c); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Release() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	inspects := func(reply any) error {
		_, err := luascript.On(locktest.OneReply{Reply: reply}).Inspect(t.Context(), c)
		return err
	}
	for _, reply := range []any{nil, []any{}, []any{int64(1), int64(1), nil}, []any{[]byte("t"), nil, nil}, []any{[]byte("t"), int64(1), nil, nil}} {
		if err := inspects(reply); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Inspect() on %#v = %v, want ErrUnknown", reply, err)
		}
	}
	if err := inspects([]any{nil, int64(-2), []byte("no number")}); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() of a counter that is no number = %v, want ErrRefused", err)
	}
}

// TestRequests: the keys and arguments of each script, and what becomes of its reply.
func TestRequests(t *testing.T) {
	type doing = func(driver.Node) (any, error)
	talk := func(name string, do doing, asked string, reply, got any, err error) locktest.Talk {
		return locktest.Talk{Name: name, Do: do, Asked: []string{asked}, Replies: []any{reply}, Got: got, Err: err}
	}
	c := locktest.AClaim()
	for _, options := range [][]luascript.Option{nil, {luascript.WithoutFences()}} {
		on := func(n driver.Node) driver.Protocol { return luascript.On(n, options...) }
		keys, counted := "a {a}:fence:", any([]byte("7"))
		fence, granted := uint64(7), driver.Grant{Fence: 7, Fences: 1}
		if options != nil {
			keys, fence, granted, counted = "a", 0, driver.Grant{}, nil
		}
		reply := any(int64(fence))
		most := struct {
			reply any
			grant driver.Grant
		}{reply, granted}
		if options == nil {
			most.reply, most.grant.Fences = []any{int64(fence), int64(driver.MaxFences)}, driver.MaxFences
		}
		acquire := func(n driver.Node) (any, error) { return on(n).Acquire(t.Context(), c) }
		extend := func(n driver.Node) (any, error) { return on(n).Extend(t.Context(), c) }
		release := func(n driver.Node) (any, error) { return nil, locktest.Err(on(n).Release(t.Context(), c)) }
		adopt := func(n driver.Node) (any, error) { return on(n).Adopt(t.Context(), c, "from") }
		inspect := func(n driver.Node) (any, error) { return on(n).Inspect(t.Context(), c) }
		other := []byte("other")
		lost := &strategy.LostError{Name: "a", Holder: "other"}
		locktest.Talks(t,
			talk("acquire", acquire, "acquire "+keys+" t 60000 86400000 1", reply, granted, nil),
			talk("acquire for as many holds as may be", acquire, "acquire "+keys+" t 60000 86400000 1", most.reply, most.grant, nil),
			talk("acquire a held one", acquire, "acquire "+keys+" t 60000 86400000 1", []any{other, int64(1000)}, driver.Grant{Silent: true},
				&strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second}),
			talk("extend", extend, "extend a t 60000", []any{int64(1)}, driver.Grant{}, nil),
			talk("extend another's", extend, "extend a t 60000", []any{other}, driver.Grant{}, lost),
			talk("release", release, "release a t {a}:free:", int64(1), nil, nil),
			talk("release another's", release, "release a t {a}:free:", other, nil, lost),
			talk("adopt", adopt, "adopt "+keys+" from t 60000 86400000 {a}:free:", reply, granted, nil),
			talk("adopt another's", adopt, "adopt "+keys+" from t 60000 86400000 {a}:free:", other, driver.Grant{}, lost),
			talk("inspect", inspect, "inspect "+keys, []any{other, int64(1000), counted}, strategy.Info{Held: true, Token: "other", TTL: time.Second, Fence: fence}, nil),
			talk("inspect one that is free", inspect, "inspect "+keys, []any{nil, int64(-2), counted}, strategy.Info{Fence: fence}, nil),
		)
	}
}

func TestErrorsAreTold(t *testing.T) {
	locktest.ErrorsAreTold(t, func(n driver.Node) driver.Protocol { return luascript.On(n) })
}

func TestGrantsOnceConfirmed(t *testing.T) {
	on := func(n driver.Node, a strategy.Acks) driver.Protocol {
		return luascript.On(n).(driver.Acknowledger).Acknowledged(a)
	}
	locktest.GrantsOnceConfirmed(t, on, "EVALSHA", int64(7))
}

// TestAllocations: a lease, a token, the arguments of two requests, and their replies.
func TestAllocations(t *testing.T) {
	locktest.Allocations(t, open(t, redistest.Shared(t), strategy.Options{}), 9)
}
