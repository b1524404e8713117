package rig

// Tests what a rig breaks at a server, and that a reset makes it whole.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// world is a rig of one node, whom a contender reaches over a link.
type world struct {
	*Node
	t    *testing.T
	rig  *Rig
	link *Link
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// connect is a new connection of the contender's.
func (w *world) connect() (redis.Conn, error) {
	c := w.Config()
	return redis.Dial("tcp", w.link.Addr(), redis.DialUsername(c.User), redis.DialPassword(c.Password),
		redis.DialDatabase(c.Database), redis.DialReadTimeout(generous))
}

// arrived is such a connection, which has reached the server.
func (w *world) arrived() redis.Conn {
	w.t.Helper()
	c, err := w.connect()
	w.must(err)
	_, err = c.Do("PING")
	w.must(err)
	return c
}

// says is what the contender hears, on a new connection.
func (w *world) says(cmd string, args ...any) string {
	c, err := w.connect()
	if err != nil {
		return "error: " + err.Error()
	}
	defer c.Close()
	v, err := c.Do(cmd, args...)
	if err != nil {
		return "error: " + err.Error()
	}
	switch v := v.(type) {
	case []byte:
		return string(v)
	case nil:
		return "nil"
	default:
		return fmt.Sprint(v)
	}
}

// want fails the test unless the contender hears that, of an error the beginning.
func (w *world) want(want, cmd string, args ...any) {
	w.t.Helper()
	got := w.says(cmd, args...)
	if begins := strings.HasPrefix(want, "error: ") && strings.HasPrefix(got, want); got != want && !begins {
		w.t.Errorf("%s %v = %s, want %s", cmd, args, got, want)
	}
}

// wantNothing fails the test if the contender, connected before the fault, hears anything.
func (w *world) wantNothing(fault func(), cmd string, args ...any) {
	w.t.Helper()
	c := w.arrived()
	defer c.Close()
	fault()
	if v, err := redis.DoWithTimeout(c, brief, cmd, args...); !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Errorf("%s %v = %v, %v, want no answer", cmd, args, v, err)
	}
}

// wantThere asks the server itself.
func (w *world) wantThere(want, key string) {
	w.t.Helper()
	if got, err := redis.String(w.Do(w.t.Context(), "GET", key)); got != want || err != nil {
		w.t.Errorf("GET %s at the server = %q, %v, want %q", key, got, err, want)
	}
}

// lock takes a key as a lock does.
func (w *world) lock(key string) {
	w.t.Helper()
	w.want("OK", "SET", key, "token", "PX", 600_000, "NX")
}

// TestWords: each word does what it says, and Reset undoes it.
func TestWords(t *testing.T) {
	for name, c := range map[string]redistest.Config{
		"default user": {},
		"named user":   {User: "alice", Password: "wonder", Database: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words(t, New(t, 1, c))
		})
	}
}

func words(t *testing.T, r *Rig) {
	w := &world{Node: r.Nodes[0], rig: r, link: r.Nodes[0].Link()}
	for _, word := range []struct {
		name string
		test func(context.Context, *world)
	}{
		{"kill", func(ctx context.Context, w *world) {
			w.lock("k")
			w.must(w.Kill(ctx))
			w.want("error: dial", "GET", "k")
			w.must(w.Kill(ctx))
		}},
		{"restart without persistence", func(ctx context.Context, w *world) {
			w.lock("k")
			w.must(w.Restart(ctx))
			w.want("nil", "GET", "k")
		}},
		{"power loss without persistence", func(ctx context.Context, w *world) {
			w.lock("k")
			w.must(w.PowerLoss(ctx, nil))
			w.want("nil", "GET", "k")
		}},
		{"power loss with a checkpoint that is too old", func(ctx context.Context, w *world) {
			w.must(w.Persist(ctx, "everysec"))
			w.lock("k")
			c, err := w.Checkpoint(ctx)
			w.must(err)
			c.at = c.at.Add(-everySecond)
			if err := w.PowerLoss(ctx, c); !errors.Is(err, ErrStale) {
				w.t.Errorf("PowerLoss = %v, want ErrStale", err)
			}
			w.want("1", "DEL", "k") // it goes on
		}},
		{"no persistence any more", func(ctx context.Context, w *world) {
			w.must(w.Persist(ctx, "always"))
			w.lock("k")
			w.must(w.Unpersist(ctx))
			w.lock("l")
			w.must(w.Restart(ctx))
			w.want("nil", "GET", "k")
			w.want("nil", "GET", "l")
			w.must(w.Persist(ctx, "always"))
			w.lock("k")
			w.must(w.Restart(ctx))
			w.want("token", "GET", "k")
			w.want("nil", "GET", "l")
		}},
		{"freeze and thaw", func(ctx context.Context, w *world) {
			w.wantNothing(func() { w.must(w.Freeze(ctx)) }, "GET", "k")
			w.must(w.Thaw(ctx))
			w.want("nil", "GET", "k")
			w.must(w.Freeze(ctx))
		}},
		{"fail-over with a write that was replicated", func(ctx context.Context, w *world) {
			w.lock("before")
			w.must(w.Replicate(ctx))
			w.want("OK", "SET", "much", strings.Repeat("x", 32<<20)) // to keep the replica busy
			w.lock("k")
			w.must(w.StallReplica(ctx))
			w.must(w.FailOver(ctx))
			w.want("token", "GET", "before")
			w.want("token", "GET", "k")
			w.lock("new")
		}},
		{"fail-over with a write that was not", func(ctx context.Context, w *world) {
			w.must(w.Replicate(ctx))
			w.must(w.StallReplica(ctx))
			w.lock("k")
			w.must(w.FailOver(ctx))
			w.want("nil", "GET", "k")
			// And back to where it came from.
			w.must(w.Replicate(ctx))
			w.must(w.FailOver(ctx))
			w.lock("k")
			w.must(w.Replicate(ctx))
			w.want("token", "GET", "k")
		}},
		{"fail-over with persistence", func(ctx context.Context, w *world) {
			w.must(w.Persist(ctx, "always"))
			w.must(w.Replicate(ctx))
			w.must(w.FailOver(ctx))
			w.lock("k")
			w.must(w.Restart(ctx))
			w.want("token", "GET", "k")
		}},
		{"restart of who was a replica, and then persistent", func(ctx context.Context, w *world) {
			w.must(w.Persist(ctx, "always"))
			w.lock("k")
			w.must(w.Replicate(ctx))
			w.must(w.FailOver(ctx))
			w.must(w.Replicate(ctx))
			w.must(w.rig.Reset(ctx))
			for range 2 {
				w.must(w.Restart(ctx))
				w.want("nil", "GET", "k")
				w.must(w.Replicate(ctx))
				w.must(w.FailOver(ctx))
			}
		}},
		{"fail-over without a replica", func(ctx context.Context, w *world) {
			for name, err := range map[string]error{
				"FailOver": w.FailOver(ctx), "FailOverKeepingOld": w.FailOverKeepingOld(ctx), "StallReplica": w.StallReplica(ctx),
				"Repoint": w.Repoint(ctx), "HandOver": w.HandOver(ctx),
			} {
				if !errors.Is(err, ErrNoReplica) {
					w.t.Errorf("%s without a replica = %v, want ErrNoReplica", name, err)
				}
			}
			w.lock("k")
		}},
		{"split brain", func(ctx context.Context, w *world) {
			w.must(w.Replicate(ctx))
			old := w.arrived()
			defer old.Close()
			w.must(w.FailOverKeepingOld(ctx))
			if v, err := old.Do("SET", "k", "old", "NX"); v != "OK" {
				w.t.Errorf("SET at the old master = %v, %v, want OK", v, err)
			}
			w.lock("k")
		}},
		{"repoint", func(ctx context.Context, w *world) { w.changePlaces(ctx, w.Repoint) }},
		{"hand-over", func(ctx context.Context, w *world) { w.changePlaces(ctx, w.HandOver) }},
		{"flush all", func(ctx context.Context, w *world) {
			w.lock("k")
			w.must(w.FlushAll(ctx))
			w.want("nil", "GET", "k")
		}},
		{"flush scripts", func(ctx context.Context, w *world) {
			sha := w.says("SCRIPT", "LOAD", "return 1")
			w.want("1", "EVALSHA", sha, 0)
			w.must(w.FlushScripts(ctx))
			w.want("error: NOSCRIPT", "EVALSHA", sha, 0)
		}},
		{"evict what has a TTL", func(ctx context.Context, w *world) {
			w.lock("k")
			w.want("OK", "SET", "fence", 1)
			w.must(w.Evict(ctx, "volatile-lru"))
			w.want("nil", "GET", "k")
			w.want("1", "GET", "fence")
			w.lock("k")
		}},
		{"evict all", func(ctx context.Context, w *world) {
			w.lock("k")
			w.want("OK", "SET", "fence", 1)
			w.must(w.Evict(ctx, "allkeys-random"))
			w.want("nil", "GET", "k")
			w.want("nil", "GET", "fence")
		}},
		{"out of memory", func(ctx context.Context, w *world) {
			w.lock("k")
			w.must(w.FillMemory(ctx))
			w.want("error: OOM", "SET", "other", 1)
			w.want("token", "GET", "k")
			w.must(w.FreeMemory(ctx))
			w.lock("other")
			w.must(w.FillMemory(ctx))
		}},
		{"deny", func(ctx context.Context, w *world) {
			w.lock("k")
			w.must(w.Deny(ctx, "del"))
			w.want("error: NOPERM", "DEL", "k")
			w.want("token", "GET", "k")
			w.must(w.Allow(ctx))
			w.want("1", "DEL", "k")
			w.must(w.Deny(ctx, "set", "evalsha"))
			w.want("error: NOPERM", "SET", "k", 1)
			w.want("error: NOPERM", "EVALSHA", "0", 0)
		}},
		{"spoil", func(ctx context.Context, w *world) {
			w.lock("k")
			w.must(w.Spoil(ctx, "k"))
			w.want("error: WRONGTYPE", "GET", "k")
		}},
		{"kill clients", func(ctx context.Context, w *world) {
			c := w.arrived()
			defer c.Close()
			w.must(w.KillClients(ctx))
			if _, err := c.Do("PING"); err == nil {
				w.t.Error("PING on a killed connection was answered")
			}
			w.want("PONG", "PING")
		}},
		{"clock forward and back", func(ctx context.Context, w *world) {
			w.want("OK", "SET", "short", 1, "PX", 60_000)
			w.want("OK", "SET", "long", 1, "PX", 600_000)
			w.want("OK", "SET", "fence", 1)
			w.must(w.JumpClock(ctx, time.Minute))
			w.want("nil", "GET", "short")
			w.want("1", "GET", "fence")
			left := func() time.Duration {
				ms, err := redis.Int64(w.Do(ctx, "PTTL", "long"))
				w.must(err)
				return time.Duration(ms) * time.Millisecond
			}
			if got := left(); got > 9*time.Minute || got < 7*time.Minute {
				w.t.Errorf("TTL of 10 min after a jump of 1 min = %v, want 9 min", got)
			}
			w.must(w.JumpClock(ctx, -time.Hour))
			if got := left(); got < time.Hour {
				w.t.Errorf("TTL after a jump back by 1 h = %v, want more than that", got)
			}
		}},
		{"read only", func(ctx context.Context, w *world) {
			w.must(w.ReadOnly(ctx))
			w.want("error: READONLY", "SET", "k", 1)
			w.must(w.Writable(ctx))
			w.lock("k")
			w.must(w.ReadOnly(ctx))
		}},
		{"too few replicas", func(ctx context.Context, w *world) {
			w.must(w.MinReplicas(ctx, 1))
			w.want("error: NOREPLICAS", "SET", "k", 1)
			w.must(w.MinReplicas(ctx, 0))
			w.lock("k")
			w.must(w.MinReplicas(ctx, 1))
			w.must(w.Replicate(ctx))
			w.lock("other")
		}},
		{"refused", func(ctx context.Context, w *world) {
			w.link.Refuse()
			w.want("error: dial", "PING")
			w.link.Heal()
			w.want("PONG", "PING")
			w.link.Refuse()
		}},
		{"a reply that is cut", func(ctx context.Context, w *world) {
			w.wantNothing(func() { w.link.Cut(Replies) }, "SET", "k", "taken")
			w.wantThere("taken", "k")
		}},
		{"a request that is held", func(ctx context.Context, w *world) {
			w.wantNothing(func() { w.link.Hold(Requests) }, "SET", "k", "late")
			if v, err := w.Do(ctx, "GET", "k"); v != nil || err != nil {
				w.t.Errorf("GET at the server = %v, %v, want nil", v, err)
			}
			w.link.Heal()
			w.must(poll(ctx, "what was held", func() (bool, error) {
				v, err := w.Do(ctx, "GET", "k")
				return v != nil, err
			}))
			w.wantNothing(func() { w.link.Hold(Requests) }, "SET", "k", "never") // says the check after Reset
		}},
		{"a request to a frozen server", func(ctx context.Context, w *world) {
			w.wantNothing(func() { w.must(w.Freeze(ctx)) }, "SET", "k", "late")
			w.must(w.Thaw(ctx))
			w.must(poll(ctx, "what lay in the socket", func() (bool, error) {
				v, err := w.Do(ctx, "GET", "k")
				return v != nil, err
			}))
			w.wantNothing(func() { w.must(w.Freeze(ctx)) }, "SET", "k", "never")
		}},
		{"settings and users by other words", func(ctx context.Context, w *world) {
			for _, cmd := range [][]any{
				{"CONFIG", "SET", "timeout", "3600"},
				{"CONFIG", "SET", "save", "900 1"},
				{"CONFIG", "SET", "lua-time-limit", "1234"},
				{"ACL", "SETUSER", "mallory", "on", "nopass", "+@all", "~*"},
				{"ACL", "SETUSER", w.contender(), "resetkeys", "~lock:*", "resetchannels", "-@dangerous"},
				{"CLIENT", "PAUSE", 600_000, "WRITE"},
			} {
				_, err := w.Do(ctx, cmd[0].(string), cmd[1:]...)
				w.must(err)
			}
			w.want("error: NOPERM", "GET", "k")
		}},
		{"an end that nobody gave it", func(ctx context.Context, w *world) {
			_, _ = w.Do(ctx, "SHUTDOWN", "NOSAVE") // there is no answer
			w.want("error: ", "PING")
		}},
	} {
		t.Run(word.name, func(t *testing.T) {
			w.t = t
			direct, err := redis.DialURL(w.Server().URL())
			w.must(err)
			defer direct.Close()
			word.test(t.Context(), w)
			w.must(r.Reset(t.Context()))
			if _, err := direct.Do("PING"); err == nil {
				t.Error("a contender's connection outlived Reset")
			}
			w.want("nil", "GET", "k")
			w.lock("k")
			w.want("1", "DEL", "k")
			w.want("error: NOSCRIPT", "EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0)
			settings, err := redis.StringMap(w.Do(t.Context(), "CONFIG", "GET", "*"))
			w.must(err)
			for k, v := range w.home.settings {
				if settings[k] != v {
					t.Errorf("%s after Reset = %q, want %q", k, settings[k], v)
				}
			}
			if n, err := redis.Int(w.Do(t.Context(), "DBSIZE")); n != 0 || err != nil {
				t.Errorf("keys after Reset = %d, %v, want none", n, err)
			}
		})
	}
}

// changePlaces plays a word by which master and replica change places: twice, so there and back.
func (w *world) changePlaces(ctx context.Context, word func(context.Context) error) {
	w.lock("k")
	w.must(w.Replicate(ctx))
	for range 2 {
		old := w.arrived()
		defer old.Close()
		w.must(word(ctx))
		if v, err := redis.String(old.Do("GET", "k")); v != "token" || err != nil {
			w.t.Errorf("GET at the old master, which is a replica = %q, %v, want token", v, err)
		}
		if _, err := old.Do("SET", "k", "old"); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
			w.t.Errorf("SET at the old master = %v, want READONLY", err)
		}
		w.want("token", "GET", "k")
		w.want("1", "DEL", "k")
		w.lock("k")
	}
	old := w.arrived()
	defer old.Close()
	w.must(word(ctx))
	w.must(w.StallReplica(ctx))
	w.want("1", "DEL", "k")
	if v, err := redis.String(old.Do("GET", "k")); v != "token" || err != nil {
		w.t.Errorf("GET at a replica that is cut off = %q, %v, want token", v, err)
	}
}
