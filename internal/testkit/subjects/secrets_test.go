// No error, event or name tells the password.
package subjects

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// secret is a password that no word of ours may have, nor a part of it.
const secret = "hunter2-Tr0ub4dor"

// A leak looks at all that a program gets to see.
type leak struct {
	t    *testing.T
	what string

	mu     sync.Mutex
	errors int
}

// hears searches an error, and what it wraps, for the secret.
func (l *leak) hears(call string, err error) {
	l.t.Helper()
	if err == nil {
		return
	}
	l.mu.Lock()
	l.errors++
	l.mu.Unlock()
	l.reads(call, fmt.Sprintf("%v %+v %#v", err, err, err))
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		l.hears(call, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range e.Unwrap() {
			l.hears(call, e)
		}
	}
}

func (l *leak) reads(call, text string) {
	l.t.Helper()
	for _, part := range []string{secret, url.QueryEscape(secret), secret[:7], secret[8:]} {
		if strings.Contains(text, part) {
			l.t.Errorf("%s: %s tells the password: %s", l.what, call, text)
			return
		}
	}
}

// options observe events, too.
func (l *leak) options() strategy.Options {
	return strategy.Options{TTL: 2 * time.Second, OpTimeout: 500 * time.Millisecond, Observe: func(e strategy.Event) {
		l.reads("an event", fmt.Sprintf("%+v", e))
		l.hears("an event", e.Err)
	}}
}

// TestNoPasswordIsTold provokes errors of every origin while a password is set: of the dial, of
// TLS, of AUTH, of the ACL, and of renewals that begin to fail. None has it, nor does an
// event, a name, or a result of Check.
func TestNoPasswordIsTold(t *testing.T) {
	s := redistest.Own(t, redistest.Config{Password: secret})
	open := redistest.Own(t, redistest.Config{}) // asks for none
	narrow := may(t, []*redistest.Server{s}, "narrow", lockKey+" +get")
	redistest.Do(t, s, "ACL", "SETUSER", narrow.name, ">"+secret)
	authority, err := redistest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	_, addr := redistest.OwnTLS(t, authority, redistest.Config{Password: secret})

	dials := map[string]func() (redis.Conn, error){
		"wrong password":     func() (redis.Conn, error) { return redis.Dial("tcp", s.Addr(), redis.DialPassword(secret+"x")) },
		"wrong user":         func() (redis.Conn, error) { return redis.DialURL("redis://nobody:" + secret + "@" + s.Addr()) },
		"password of none":   func() (redis.Conn, error) { return redis.DialURL("redis://:" + secret + "@" + open.Addr()) },
		"user of none":       func() (redis.Conn, error) { return redis.DialURL("redis://me:" + secret + "@" + open.Addr()) },
		"no password":        func() (redis.Conn, error) { return redis.Dial("tcp", s.Addr()) },
		"forbidden commands": func() (redis.Conn, error) { return redis.DialURL("redis://narrow:" + secret + "@" + s.Addr()) },
		"nobody there":       func() (redis.Conn, error) { return redis.DialURL("redis://me:" + secret + "@127.0.0.1:1") },
		"no such host":       func() (redis.Conn, error) { return redis.DialURL("redis://me:" + secret + "@no-such-host.invalid:1") },
		"a bad port":         func() (redis.Conn, error) { return redis.DialURL("redis://me:" + secret + "@host:port") },
		"a bad escape":       func() (redis.Conn, error) { return redis.DialURL("redis://me:" + secret + "%zz@host:1") },
		"a bad database":     func() (redis.Conn, error) { return redis.DialURL("redis://:" + secret + "@" + s.Addr() + "/x") },
		"no such database":   func() (redis.Conn, error) { return redis.DialURL("redis://:" + secret + "@" + s.Addr() + "/99999") },
		"a bad scheme":       func() (redis.Conn, error) { return redis.DialURL("radish://:" + secret + "@" + s.Addr()) },
		"TLS to a plain one": func() (redis.Conn, error) {
			return redis.DialURL("rediss://:"+secret+"@"+s.Addr(), redis.DialTLSHandshakeTimeout(200*time.Millisecond))
		},
		"plain to a TLS one": func() (redis.Conn, error) { return redis.DialURL("redis://:" + secret + "@" + addr) },
		"unknown authority":  func() (redis.Conn, error) { return redis.DialURL("rediss://:" + secret + "@" + addr) },
	}
	for what, dial := range dials {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{"setnxgetset-watch", "setnxpx", "luascript", "fairqueue", "reentrant", "redlock-1"} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					l := &leak{t: t, what: name}
					refusals(t, l, plainly(name), dial)
					if l.errors == 0 {
						t.Errorf("there was no error")
					}
				})
			}
		})
	}
	t.Run("renewals", func(t *testing.T) {
		for _, name := range []string{"setnxpx", "luascript", "fairqueue", "reentrant", "redlock-1"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				lockedOut(t, plainly(name), s)
			})
		}
	})
}

// refusals calls everything that meets with the dial.
func refusals(t *testing.T, l *leak, v Variant, dial func() (redis.Conn, error)) {
	pool := &redis.Pool{Dial: dial}
	defer pool.Close()
	n := redigonode.New(pool)
	locks, err := engine.New(v.On([]driver.Node{n}), l.options())
	if err != nil {
		t.Fatal(err)
	}
	lock := "secret-" + v.Name
	l.hears("Check", locks.Check(t.Context()))
	_, err = locks.NewLock(lock).TryAcquire(t.Context())
	l.hears("TryAcquire", err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	_, err = locks.NewLock(lock).Acquire(ctx)
	cancel()
	l.hears("Acquire", err)
	_, err = locks.Inspect(t.Context(), lock)
	l.hears("Inspect", err)
	_, err = locks.Adopt(t.Context(), lock, "token")
	l.hears("Adopt", err)
	l.hears("ForceRelease", locks.ForceRelease(t.Context(), strategy.Info{Name: lock, Held: true, Token: "token", Owner: "token"}))
	l.hears("Session", n.Session(t.Context(), time.Now().Add(time.Second), lock, func(driver.Conn) error { return nil }))
	_, err = n.Subscribe(t.Context(), "lock:{a}:free", func([]byte, error) {})
	l.hears("Subscribe", err)
	if v.Guarded {
		l.hears("Bootstrap", redlock.Bootstrap(t.Context(), []driver.Node{n}))
	}
	l.reads("Name", n.Name())
	l.hears("Close", locks.Close())
}

// lockedOut takes the password from a holder whose lock is kept alive.
func lockedOut(t *testing.T, v Variant, s *redistest.Server) {
	l := &leak{t: t, what: v.Name}
	user := "holder-of-" + v.Name
	redistest.Do(t, s, "ACL", "SETUSER", user, "reset", "on", ">"+secret, "~*", "&*", "+@all")
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL("redis://" + user + ":" + secret + "@" + s.Addr()) }}
	defer pool.Close()
	if _, err := Bootstrap(t.Context(), []Variant{v}, []*redistest.Server{s}); err != nil {
		t.Fatal(err)
	}
	locks, err := v.New([]*redis.Pool{pool}, l.options())
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locks.NewLock("out-" + v.Name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.KeepAlive(0); err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, s, "ACL", "DELUSER", user) // ends his connections
	var failing error
	verdict.Eventually(t, "renewals fail", func() bool {
		if failing = lease.RenewalErr(); failing == nil {
			failing = lease.Err()
		}
		return failing != nil
	})
	l.hears("Failing", failing)
	<-lease.Lost()
	if err := lease.Err(); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("%s: Err() = %v, want ErrLost", v.Name, err)
	}
	l.hears("Err", lease.Err())
	l.hears("Release", lease.Release(t.Context()))
	l.hears("Close", locks.Close())
	if l.errors == 0 {
		t.Errorf("%s: there was no error", v.Name)
	}
}
