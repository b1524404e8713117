//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests what locks says of servers that locks cannot rely on: locks check, and the warnings of exec and inspect.
package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// TestCheck: of each strategy.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms() {
		t.Run(a.name, func(t *testing.T) {
			flags := onServers(t, a)
			t.Parallel()
			if out := toolFor(t, nil, append([]string{"check"}, flags...)...).start().wantEnd(0); out != "ready for "+a.name+" locks\n" {
				t.Errorf("it says %q", out)
			}
		})
	}
	toolFor(t, nil, "check", "--redis", "127.0.0.1:1").start().wantEnd(69, "127.0.0.1:1: not sent: ", "connection refused")
}

// TestCheckVotes: check goes by the TTL that redlock's servers know of, or by --max-ttl, and not by the tool's. It advises
// bootstrap if all servers are new, and not for one that is empty next to others.
func TestCheckVotes(t *testing.T) {
	t.Parallel()
	nodes := []*redistest.Server{redistest.Own(t, redistest.Config{}), redistest.Own(t, redistest.Config{}), redistest.Own(t, redistest.Config{})}
	flags := []string{"check", "--strategy", "redlock"}
	for _, n := range nodes {
		flags = append(flags, "--redis", n.URL())
	}
	check := func(code int, more []string, says ...string) string {
		t.Helper()
		c := toolFor(t, nil, append(slices.Clone(flags), more...)...).start()
		c.wantEnd(code, says...)
		return c.errs.String()
	}
	const waits, advice, warning = " does not vote until %s after its first request", "(locks bootstrap) lets them vote at once", "(locks bootstrap) a lock might be granted twice"
	for more, ttl := range map[string]string{"": "30s", "--max-ttl 10s": "10s", "--max-ttl 1h": "1h0m0s"} {
		if said := check(69, strings.Fields(more), fmt.Sprintf(waits, ttl), advice); strings.Count(said, " does not vote ") != 3 || strings.Contains(said, warning) {
			t.Errorf("of new servers it says\n%s", said)
		}
	}
	bootstrap(t, nodes)
	for _, n := range nodes { // the services' TTL is 10 s, and this server waited for that long
		began := time.Now().Add(-12 * time.Second).UnixMilli()
		redistest.Do(t, n, "HSET", redlock.GuardKey, "max", 10000, "born", began, "new", 0)
	}
	check(0, nil)
	check(0, []string{"--max-ttl", "10s"})
	check(0, []string{"--max-ttl", "5s"}, "a server knows of a TTL of 10s, which is longer than --max-ttl")
	check(69, []string{"--max-ttl", "1h"}, " does not vote for 59m")
	redistest.Do(t, nodes[1], "FLUSHALL")
	for more, ttl := range map[string]string{"": "10s", "--max-ttl 11s": "11s"} {
		said := check(69, strings.Fields(more), nodes[1].Addr()+": ", fmt.Sprintf(waits, ttl), warning)
		if strings.Count(said, " does not vote ") != 1 || strings.Contains(said, advice) {
			t.Errorf("of a server that was emptied it says\n%s", said)
		}
	}
}

// TestOperator: a user with the lines of two strategies, and that of an operator, may run what looks at locks and servers.
func TestOperator(t *testing.T) {
	t.Parallel()
	s, name := redistest.Own(t, redistest.Config{}), newName(t)
	rules := redis.Args{"SETUSER", "operator", "reset", "on", ">swordfish"}.AddFlat(strings.Fields(subjects.Operator))
	for _, strategy := range []string{"fairqueue", "semaphore"} {
		r, err := subjects.RightsOf(strategy)
		redistest.Must(t, err)
		rules = rules.AddFlat(strings.Fields(r.Line(true)))
	}
	redistest.Do(t, s, "ACL", rules...)
	acquire(t, s, name, strategy.Options{})
	redistest.Do(t, s, "SET", strategy.DefaultKey(name+"-string"), "x") // no semaphore: list asks for its type
	operator := func(args string) *tool {
		words := strings.Fields(args)
		if i := slices.Index(words, "NAME"); i > 0 {
			words[i] = name
		}
		c := toolFor(t, s, words...)
		c.Env = append(c.Env, userVar+"=operator", passwordVar+"=swordfish")
		return c.start()
	}
	for _, args := range []string{
		"check", "check --strategy semaphore", "list", "list --strategy semaphore", "inspect NAME", "release NAME --force", "exec NAME --strict -- true",
	} {
		if out := operator(args).wantEnd(0); strings.Contains(out, "not checked") {
			t.Errorf("%s says %q", args, out)
		}
	}
	redistest.Do(t, s, "ACL", "SETUSER", "operator", "-lrange")
	acquire(t, s, name, strategy.Options{})
	for _, x := range []struct{ args, want string }{
		{"list", " ? "}, {"list --json", `"queue": null`}, {"inspect NAME", "queue    ? (this user may not see who waits: allow +lrange)\n"},
		{"list --strategy setnxpx", " ? "}, {"inspect NAME --strategy luascript", "queue    ? (the servers keep no queue for luascript)\n"},
	} {
		if out := operator(x.args).wantEnd(0); !strings.Contains(out, x.want) {
			t.Errorf("%s says %q, want %q", x.args, out, x.want)
		}
	}
	c, err := redis.Dial("tcp", s.Addr(), redis.DialUsername("operator"), redis.DialPassword("swordfish"))
	redistest.Must(t, err)
	defer c.Close()
	for _, ask := range []string{
		"PING", "INFO memory", "CONFIG GET maxmemory", "SLOWLOG GET 5", "LATENCY DOCTOR", "CLIENT LIST", "ACL LOG 1",
		"SCAN 0", "PTTL lock:{a}", "GET lock:{a}", "ZRANGE lock:{a} 0 -1", "PUBSUB CHANNELS lock:*:free",
	} {
		words := strings.Fields(ask)
		if _, err := c.Do(words[0], redis.Args{}.AddFlat(words[1:])...); err != nil {
			t.Errorf("%s: %v", ask, err)
		}
	}
}

// TestUnreliable: a server that may evict keys, and a replica.
func TestUnreliable(t *testing.T) {
	t.Parallel()
	s, name := redistest.Own(t, redistest.Config{}), newName(t)
	redistest.Do(t, s, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	const evicts = "may evict locks (maxmemory-policy allkeys-lru): set it to noeviction"
	toolFor(t, s, "check").start().wantEnd(69, evicts)
	if out := toolFor(t, s, "exec", name, "--", "echo", "ran").start().wantEnd(0, "locks: warning: ", evicts); out != "ran\n" {
		t.Errorf("it printed %q, want ran", out)
	}
	toolFor(t, s, "exec", name, "-q", "--", "echo", "ran").start().wantEnd(0)
	toolFor(t, s, "exec", name, "--strict", "--", "echo", "ran").start().wantEnd(69, evicts)
	redistest.Do(t, s, "ACL", "SETUSER", "blind", "on", ">swordfish", "~*", "&*", "+@all", "-info")
	const unseen = ": does not say whether it is a replica, may evict locks or is full: allow +info"
	blind := func(args ...string) *tool {
		c := toolFor(t, s, args...)
		c.Env = append(c.Env, userVar+"=blind", passwordVar+"=swordfish")
		return c.start()
	}
	if out, want := blind("check").wantEnd(0), "ready for fairqueue locks; not checked: "+s.Addr()+unseen+"\n"; out != want {
		t.Errorf("to a user who may not ask it says %q, want %q", out, want)
	}
	blind("exec", name, "--", "true").wantEnd(0)
	blind("exec", name, "--strict", "--", "true").wantEnd(69, unseen)
	if out := toolFor(t, s, "inspect", name).start().wantEnd(0, "locks: warning: ", evicts); !strings.Contains(out, "nobody") {
		t.Errorf("it says\n%s", out)
	}
	toolFor(t, s, "inspect", name, "--strict").start().wantEnd(69, evicts)

	redistest.Do(t, s, "CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1mb")
	const full = "is full (used_memory "
	toolFor(t, s, "check").start().wantEnd(69, full, "raise maxmemory")
	toolFor(t, s, "exec", name, "--try", "--", "true").start().wantEnd(69, "locks: warning: ", full, "OOM ")
	redistest.Do(t, s, "CONFIG", "SET", "maxmemory", "100mb")
	redistest.Do(t, s, "REPLICAOF", "127.0.0.1", "1")
	toolFor(t, s, "inspect", name).start().wantEnd(69, "is a slave: give the address of the primary", "READONLY")
}

// TestUnreliableOfSeveral: each server of several is looked at, and each that may not keep locks is named, in a warning of its
// own, or in the refusal of --strict. One that does
// not say what it is passes without --strict, and one that is away is left to the next request.
func TestUnreliableOfSeveral(t *testing.T) {
	const evicts, replica = "may evict locks (maxmemory-policy allkeys-lru)", "is a slave"
	var c connection
	var want []string
	for _, says := range []struct{ info, fault string }{
		{"role:master\r\n", ""}, {"role:master\r\nmaxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n", evicts}, {"", ""}, {"role:slave\r\n", replica}, {"role:master\r\n", ""},
	} {
		s := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "INFO" && says.info != "" {
				c.Say("$%d\r\n%s\r\n", len(says.info), says.info)
			} else {
				c.Say("-NOPERM no\r\n")
			}
		})
		c.servers = append(c.servers, address{network: "tcp", at: s.Addr})
		if says.fault != "" {
			want = append(want, says.fault)
		}
	}
	c.servers = append(c.servers, address{network: "tcp", at: "127.0.0.1:1"})
	var warned []string
	warn := func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) }
	if err := c.examine(t.Context(), time.Minute, warn); err != nil || len(warned) != 2 || !strings.Contains(warned[0], want[0]) || !strings.Contains(warned[1], want[1]) {
		t.Errorf("without --strict: %v, and it warns\n%q\nwant %q, one by one", err, warned, want)
	}
	c.strict, warned, want = true, nil, append(want, ": does not say whether it is a replica, may evict locks or is full: allow +info")
	err := c.examine(t.Context(), time.Minute, warn)
	var end *cli.Exit
	if !errors.As(err, &end) || end.Status != exitUnavailable || warned != nil ||
		slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(end.Err.Error(), w) }) {
		t.Errorf("with --strict: %v, and it warns %q, want status %d, and %q", err, warned, exitUnavailable, want)
	}
}
