// Hostile names, tokens and keys are locked as any other.
package subjects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// A hostile is something that no lock of ours has put where it lies.
type hostile struct {
	what    string
	put     func(key string) []any // the command, after the key was deleted
	expires bool                   // in a minute
}

// text is a string's.
func text(what, value string) hostile {
	return hostile{what: what, put: func(key string) []any { return []any{"SET", key, value} }}
}

// with is of a command whose arguments follow the key.
func with(what, cmd string, args ...any) hostile {
	return hostile{what: what, put: func(key string) []any { return append([]any{cmd, key}, args...) }}
}

// expiring is with, and the key expires.
func expiring(what, cmd string, args ...any) hostile {
	h := with(what, cmd, args...)
	h.expires = true
	return h
}

func hostiles() []hostile {
	now := time.Now()
	ms := func(t time.Time) string { return fmt.Sprint(t.UnixMilli()) }
	numbers := []string{
		"0", "-1", "9007199254740992", "9223372036854775807", "18446744073709551616", strings.Repeat("9", 400), "1.5", "0x10", " 1", "nan", "",
	}
	all := []hostile{
		text("words", "tomorrow at noon"),
		text("binary", "\x00\xff\r\n\x00$-1\r\n"),
		text("a huge string", strings.Repeat("x", 4<<20)),
		text("a glob", "*"), text("a format", "%s%d%n"), text("a Lua string", "']] .. redis.call('FLUSHALL') --"),
		text("a colon", ":"), text("a stamp without a token", ms(now.Add(time.Hour))+":"),
		text("a stamp in a thousand years", ms(now.AddDate(1000, 0, 0))+":t"),
		text("a stamp before 1970", "-"+ms(now)+":t"), text("a stamp in seconds", fmt.Sprint(now.Unix())+":t"),
		with("an empty string that expires", "SET", "", "PX", 600000),
		with("a list", "RPUSH", "a", "b"), with("a set", "SADD", "a"), with("a sorted set", "ZADD", 1, "a"),
		with("a stream", "XADD", "*", "a", "b"),
		expiring("permits of garbage", "ZADD", "inf", "permit:t", "-inf", "permit:", "9e15", "permit:t:x", "0", "permit::2"),
		expiring("permits that never lapse", "ZADD", "inf", "permit:t"),
		expiring("a permit and a reader", "ZADD", "8e15", "permit:t", "9e15", "read:t"),
		expiring("a reader and writers", "ZADD", "8e15", "read:t", "9e15", "write:t", "9e15", "write:u"),
		expiring("writers and garbage", "ZADD", "8e15", "write:t", "9e15", "garbage", "inf", "read:"),
		with("a hash", "HSET", "a", "b"),
		with("a hash with an owner alone", "HSET", "owner", "o"),
		with("a hash with an empty owner", "HSET", "owner", "", "fence", "1", "hold:t", ms(now.Add(time.Hour))),
		with("a lock without expiry", "HSET", "owner", "o", "fence", "1", "hold:t", ms(now.Add(time.Hour))),
		with("a lock with an empty token", "HSET", "owner", "o", "fence", "1", "hold:", ms(now.Add(time.Hour))),
		with("a guard of garbage", "HSET", "run", "x", "past", "\x00", "gen", "*", "born", "soon", "max", "long", "new", "1", "why", "", "seen", ".*"),
		with("a guard that began later", "HSET", "run", "x", "gen", "g", "born", ms(now.AddDate(100, 0, 0)), "max", "99999999999999", "seen", "none"),
		with("a list of garbage", "RPUSH", "", " ", "\x00", "line 1000 1", "line x 1 t", "line 1000 1 t o", "line -5 -5 t",
			"line 99999999999999999999 1 t o", "line 1000 99999999999999999999 t", "line 1 3 ttt", "line 1 1 t ", strings.Repeat("l", 100000)+" 1000 1 t"),
	}
	for _, n := range numbers {
		all = append(all, text("the number "+n[:min(len(n), 30)], n),
			with("a hash with the fence "+n[:min(len(n), 30)], "HSET", "owner", "o", "fence", n, "hold:t", n),
			with("a counter "+n[:min(len(n), 30)], "HSET", "n", n, "gen", "g"),
			with("a guard with "+n[:min(len(n), 30)], "HSET", "run", "x", "gen", "g", "born", n, "max", n, "seen", "s"),
			with("a list with "+n[:min(len(n), 30)], "RPUSH", "line "+n+" "+n+" t o", n))
	}
	return all
}

// TestHostile puts what no lock has written into each of a lock's keys. Every operation gives
// an error or behaves: none panics or hangs, no two hold the lock, and once the key is gone, or
// at once where it is not the lock's own, the lock is available again.
func TestHostile(t *testing.T) {
	realOnly(t)
	for _, name := range []string{"setnxgetset", "setnxgetset-watch", "setnxpx", "luascript", "fairqueue", "semaphore", "rwlock", "reentrant", "redlock-1", "redlock-fenced"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := plainly(name)
			if name == "redlock-fenced" { // on one server the garbage is a majority's
				v.Servers, v.On = 1, quorum(redlock.WithFences())
			}
			s := redistest.Own(t, redistest.Config{})
			if _, err := Bootstrap(t.Context(), []Variant{v}, []*redistest.Server{s}); err != nil {
				t.Fatal(err)
			}
			for i, h := range hostiles() {
				for _, of := range []string{"lock", "queue", "fence", "guard"} {
					if !v.has(of) {
						continue
					}
					lock := fmt.Sprintf("%s-%d-%s", name, i, of)
					besets(t, v, s, h, lock, of)
				}
			}
		})
	}
}

// FuzzHostile is TestHostile with whatever comes to mind: a string, and a list, a hash and a
// lock's hash of what stands between zero bytes.
func FuzzHostile(f *testing.F) {
	variants := map[string]Variant{}
	names := []string{"setnxgetset", "setnxgetset-watch", "setnxpx", "luascript", "fairqueue", "reentrant", "redlock-1"}
	for i, name := range names {
		variants[name] = plainly(name)
		for of := range 4 {
			f.Add(uint8(i), uint8(of), uint8(of), []byte("1795341427012:t"))
			f.Add(uint8(i), uint8(of), uint8(3), []byte("o\x001\x00t\x009007199254740991"))
			f.Add(uint8(i), uint8(of), uint8(1), []byte("line 1000 1 t o\x00line 1000 1 tt"))
		}
	}
	realOnly(f)
	s := redistest.Own(f, redistest.Config{})
	if _, err := Bootstrap(f.Context(), slices.Collect(maps.Values(variants)), []*redistest.Server{s}); err != nil {
		f.Fatal(err)
	}
	keys := []string{"lock", "queue", "fence", "guard"}
	f.Fuzz(func(t *testing.T, which, of, kind uint8, value []byte) {
		v, at := variants[names[int(which)%len(names)]], keys[of%4]
		if v.has(at) {
			besets(t, v, s, fuzzed(kind, value), "fuzzed", at)
		}
	})
}

// realOnly skips a test on an imitation, whose scripts and numbers are not Redis'.
func realOnly(t testing.TB) {
	if redistest.ForTests(t).Kind() == redistest.Embedded {
		t.Skip("NOT PROVEN: what hostile values do to locks: this is no Redis")
	}
}

func fuzzed(kind uint8, value []byte) hostile {
	parts := []any{}
	for part := range bytes.SplitSeq(value, []byte{0}) {
		parts = append(parts, part)
	}
	switch kind % 4 {
	case 1:
		return with(anything, "RPUSH", parts...)
	case 2:
		return with(anything, "HSET", append(parts, make([]any, len(parts)%2)...)...)
	case 3: // owner, fence, token, end, token, end …
		parts = slices.Insert(parts, 0, any("owner"))
		parts = slices.Insert(parts, min(2, len(parts)), any("fence"))
		for i := 4; i < len(parts); i += 2 {
			if token, ok := parts[i].([]byte); ok {
				parts[i] = "hold:" + string(token)
			}
		}
		h := with(anything, "HSET", append(parts, make([]any, len(parts)%2)...)...)
		h.expires = true
		return h
	}
	return text(anything, string(value))
}

// anything may be a lock, too, that has lapsed.
const anything = "anything"

// has reports whether the variant has a key of that kind.
func (v Variant) has(of string) bool {
	switch of {
	case "queue":
		return v.Fair
	case "fence":
		return v.Fenced
	case "guard":
		return v.Guarded
	}
	return true
}

// queue is what the variant calls its queue.
func (v Variant) queue() string {
	switch v.Package {
	case "semaphore":
		return "waiters"
	case "rwlock":
		return "writers"
	}
	return "queue"
}

// besets puts h into a key of a lock that is free, and of one that is held.
func besets(t *testing.T, v Variant, s *redistest.Server, h hostile, lock, of string) {
	o := strategy.Options{TTL: 10 * time.Minute, OpTimeout: time.Minute} // nothing here is about time-outs
	first, second := openOn(t, v, s, o), openOn(t, v, s, o)
	defer first.Close()
	defer second.Close()
	key := strategy.DefaultKey(lock)
	at := map[string]string{
		"lock": key, "queue": driver.SiblingKey(key, v.queue()), "fence": driver.SiblingKey(key, "fence"), "guard": redlock.GuardKey,
	}[of]
	put := func() {
		redistest.Do(t, s, "DEL", at)
		cmd := h.put(at)
		redistest.Do(t, s, cmd[0].(string), cmd[1:]...)
		if h.expires {
			redistest.Do(t, s, "PEXPIRE", at, 60000)
		}
	}
	clear := func() {
		redistest.Do(t, s, "DEL", key, at, driver.SiblingKey(key, v.queue()), driver.SiblingKey(key, "fence"))
		if of == "guard" {
			if err := redlock.Bootstrap(t.Context(), []driver.Node{nodeOn(t, s)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	bad := func(call string, err error) {
		t.Helper()
		t.Errorf("%s: %s in the %s of %q: %s = %v", v.Name, h.what, of, lock, call, err)
	}

	// Of a lock that is held: its holder learns it, or goes on.
	lease, err := first.NewLock(lock).TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire(%s) = %v", lock, err)
	}
	put()
	if other, err := second.NewLock(lock).TryAcquire(t.Context()); err == nil {
		// Its own key was overwritten: the holder that finds out has lost it.
		if of != "lock" || lease.Extend(t.Context()) == nil {
			bad("TryAcquire of a held lock", nil)
		}
		other.Release(t.Context()) //nolint:errcheck // looked at below
		put()
	} else if !known(err) {
		bad("TryAcquire of a held lock", err)
	}
	if err := lease.Extend(t.Context()); err != nil && !known(err) || err == nil && of == "lock" {
		bad("Extend", err)
	}
	if err := lease.Release(t.Context()); err != nil && !known(err) || err == nil && of == "lock" {
		bad("Release", err)
	}
	clear()

	// Of one that is free.
	put()
	info, err := second.Inspect(t.Context(), lock)
	if err != nil && !known(err) {
		bad("Inspect", err)
	}
	if _, err := second.Adopt(t.Context(), lock, "nobody's"); err == nil || !known(err) {
		bad("Adopt", err)
	}
	lease, err = first.NewLock(lock).TryAcquire(t.Context())
	switch {
	case err == nil && of == "lock" && !info.Held && !lapsed(v, h):
		bad("TryAcquire", err)
	case err == nil:
		if other, err := second.NewLock(lock).TryAcquire(t.Context()); err == nil {
			bad("TryAcquire of a second", err)
			other.Release(t.Context()) //nolint:errcheck // it has failed
		}
		if err := lease.Release(t.Context()); err != nil {
			bad("Release of what was granted", err)
		}
	case !known(err):
		bad("TryAcquire", err)
	case of == "queue":
		bad("TryAcquire: the lock does not depend on its queue", err)
	case errors.Is(err, strategy.ErrHeld) && of == "lock":
		if !info.Held {
			bad("TryAcquire says held, Inspect says free", err)
		} else if err := first.ForceRelease(t.Context(), info); err != nil {
			bad("ForceRelease", err)
		}
	}
	waiting, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
	lease, err = first.NewLock(lock).Acquire(waiting)
	cancel()
	if err == nil {
		err = lease.Release(t.Context())
	}
	if err != nil && !known(err) && !errors.Is(err, context.DeadlineExceeded) {
		bad("Acquire", err)
	}
	clear()
	lease, err = first.NewLock(lock).TryAcquire(t.Context())
	if err != nil {
		bad("TryAcquire once it is gone", err)
		return
	}
	err = lease.Release(t.Context())
	if v.Package == "setnxpx" && errors.Is(err, strategy.ErrLost) {
		err = nil // the undo of the Acquire before looks and deletes in two steps: it may delete the next lock
	}
	if err != nil {
		bad("Release once it is gone", err)
	}
	clear()
}

// lapsed reports whether a value is a lock of v's that has lapsed.
func lapsed(v Variant, h hostile) bool {
	return h.what == anything || v.Package == "reentrant" && strings.HasPrefix(h.what, "a hash with the fence") // its hold
}

// known reports whether an error is one of the contract's, for what the servers said.
func known(err error) bool {
	for _, kind := range []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrRefused, strategy.ErrNoQuorum} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func nodeOn(t *testing.T, s *redistest.Server) driver.Node {
	t.Helper()
	n := redigonode.New(s.Pool())
	t.Cleanup(func() { n.Close() }) //nolint:errcheck // it is the test's
	return n
}
