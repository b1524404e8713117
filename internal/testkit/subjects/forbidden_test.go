// Tests what a user without some right can do to a lock, and how many round trips one who has all rights needs.
package subjects

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// scripted are the algorithms each of whose operations is one script.
var scripted = []string{"luascript", "fairqueue", "semaphore", "rwlock", "reentrant"}

// TestForbidden: whichever command an ACL forbids, no lock is granted that its user could not release; luascript leaves that to
// Check. An operation that is refused leaves the holder as it was, one that is not is complete, and no lock is ever without expiry.
func TestForbidden(t *testing.T) {
	for _, name := range scripted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := variantOf(name)
			servers := serversFor(t, v)
			r, err := RightsOf(name)
			if err != nil {
				t.Fatal(err)
			}
			all := v.On([]driver.Node{nodeOn(t, servers[0])})
			for _, p := range r.Parts {
				command := strings.TrimPrefix(p.Rule, "+")
				if command == p.Rule || strings.Contains(command, "eval") || strings.Contains(command, "|") {
					continue
				}
				u := may(t, servers, "may-not-"+command+"-"+name, "~* &* +@all -"+command)
				bound := v.On([]driver.Node{locktest.NodeOn(t, u.pools(t)[0])})
				forbidden{t, servers[0], all, bound, name + " without " + command}.play()
			}
		})
	}
}

// forbidden is a lock with a protocol of a user who may do all, and one who is bound.
type forbidden struct {
	t          *testing.T
	server     *redistest.Server
	all, bound driver.Protocol
	name       string
}

func (f forbidden) claim(token string) driver.Claim {
	return driver.Claim{
		Name: f.name, Key: strategy.DefaultKey(f.name), Token: token, Owner: token, Line: "line of " + token, TTL: time.Hour, FenceTTL: time.Hour,
		Due: time.Now().Add(time.Minute),
	}
}

// holder is who holds the lock, which expires; empty: nobody.
func (f forbidden) holder() string {
	f.t.Helper()
	info, err := f.all.Inspect(f.t.Context(), f.claim(""))
	if err != nil {
		f.t.Fatal(err)
	}
	if redistest.Do(f.t, f.server, "PTTL", strategy.DefaultKey(f.name)) == int64(-1) {
		f.t.Errorf("%s: the lock has no expiry", f.name)
	}
	return info.Token
}

// ends fails the test unless the lock has the holder that an operation leaves, or, if it was refused, the one before.
func (f forbidden) ends(what string, err error, before, after string) {
	f.t.Helper()
	want := after
	if errors.Is(err, strategy.ErrRefused) {
		want = before
	} else if err != nil {
		f.t.Errorf("%s: %s() = %v, want nil or ErrRefused", f.name, what, err)
	}
	if got := f.holder(); got != want {
		f.t.Errorf("%s: the holder after %s() = %v is %q, want %q", f.name, what, err, got, want)
	}
}

func (f forbidden) play() {
	ctx := f.t.Context()
	mine := f.claim("mine")
	grant, err := f.bound.Acquire(ctx, mine)
	f.ends("Acquire", err, "", "mine")
	if err == nil {
		mine.Grant = grant
		if _, err := f.bound.Release(ctx, mine); err != nil && !strings.HasPrefix(f.name, "luascript") {
			f.t.Errorf("%s: Release() of what was granted = %v, want nil", f.name, err)
		}
	}
	for what, op := range map[string]struct {
		do    func(c driver.Claim) error
		after string
	}{
		"Extend":       {func(c driver.Claim) error { return locktest.Err(f.bound.Extend(ctx, c)) }, "held"},
		"Adopt":        {func(driver.Claim) error { return locktest.Err(f.bound.Adopt(ctx, f.claim("new"), "held")) }, "new"},
		"Release":      {func(c driver.Claim) error { return locktest.Err(f.bound.Release(ctx, c)) }, ""},
		"ForceRelease": {func(c driver.Claim) error { return locktest.Err(f.bound.ForceRelease(ctx, c)) }, ""},
	} {
		redistest.Do(f.t, f.server, "DEL", strategy.DefaultKey(f.name))
		held := f.claim("held")
		if held.Grant, err = f.all.Acquire(ctx, held); err != nil {
			f.t.Fatal(err)
		}
		f.ends(what, op.do(held), "held", op.after)
	}
}

// TestRoundTrips: what the packages' docs say of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	for _, name := range scripted {
		t.Run(name, func(t *testing.T) {
			s := redistest.Own(t, redistest.Config{})
			locks, err := plainly(name).New([]*redis.Pool{s.Pool()}, unhurried)
			locktest.Opened(t, locks, err)
			for range 2 { // dials, and loads the scripts
				lease := locktest.Try(t, locks, "warm")
				if err := lease.Extend(t.Context()); err != nil {
					t.Fatal(err)
				}
				locktest.Release(t, lease)
			}
			count := func(what string, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, 1, f) }
			var lease strategy.Lease
			count("Acquire", func() error { lease = locktest.Try(t, locks, "counted"); return nil })
			count("a held TryAcquire", func() error { return locktest.Held(t, locks, "counted") })
			count("Extend", func() error { return lease.Extend(t.Context()) })
			count("Release", func() error { return lease.Release(t.Context()) })
		})
	}
}
