//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests what locks inspect, release and bootstrap print and do, on real servers.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	if out := toolFor(t, s, "inspect", name).start().wantEnd(0); !strings.Contains(out, "held by  nobody\n") || strings.Contains(out, "expires") {
		t.Errorf("of a free lock it says\n%s", out)
	}
	held := toolFor(t, s, "exec", name, "--ttl", "10m", "--label", "by hand", "--", "sh", "-c", "echo $LOCKS_TOKEN; echo $LOCKS_FENCE; read x")
	began := time.Now()
	held.begin()
	token, fence := held.line(), held.line()
	waiting := toolFor(t, s, "exec", name, "--label", "me too", "--", "true").start()
	queues(t, s, name)

	host, err := os.Hostname()
	redistest.Must(t, err)
	out := toolFor(t, s, "inspect", name).start().wantEnd(0)
	for _, want := range []string{
		"lock     " + name + "\n", "key      " + strategy.DefaultKey(name) + "\n",
		fmt.Sprintf("held by  %s, process %d, \"by hand\"\n", host, held.Process.Pid),
		"s ago\n", "s, unless renewed\n",
		"token    " + token + "\n", "fence    " + fence + "\n",
		fmt.Sprintf("queue    %s, process %d, \"me too\"\n", host, waiting.Process.Pid),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	var r report
	text := toolFor(t, s, "inspect", name, "--json").start().wantEnd(0)
	redistest.Must(t, json.Unmarshal([]byte(text), &r))
	if r.Name != name || r.Key != strategy.DefaultKey(name) || !r.Held || r.Token != token || r.Owner != "" || r.Holds != 1 ||
		*r.Holder != (holder{host, held.Process.Pid, "by hand"}) || fmt.Sprint(r.Fence) != fence ||
		r.Since.Before(began.Add(-time.Minute)) || r.Since.After(time.Now()) || *r.TTL < 300_000 || *r.TTL > 600_000 ||
		len(r.Queue) != 1 || *r.Queue[0].Holder != (holder{host, waiting.Process.Pid, "me too"}) {
		t.Errorf("the JSON is\n%s", text)
	}
	if since := "asked    " + r.Since.Format(time.RFC3339) + ", "; !strings.Contains(out, since) {
		t.Errorf("there is no %q in\n%s", since, out)
	}
	_, ttl, _ := strings.Cut(out, "expires  in ")
	ttl, _, _ = strings.Cut(ttl, ",")
	if left, err := time.ParseDuration(ttl); err != nil || left < 300*time.Second || left > 10*time.Minute {
		t.Errorf("it expires in %q, want 5 to 10 min: it is renewed before half of the TTL is over", ttl)
	}
	held.in.Close()
	held.end()
	waiting.wantEnd(0)
}

// TestInspectOther: holders that are not of this tool, or mean to do harm on a terminal.
func TestInspectOther(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for label, want := range map[string]string{
		"":                 "held by  (its token does not say)\n",
		"worker 7":         "held by  \"worker 7\"\n",
		"\x1b[2Jweb/12":    "held by  \"\\x1b[2Jweb/12\"\n",
		"web/12/a\x1b[2Jb": "held by  web, process 12, \"a\\x1b[2Jb\"\n",
		"web%1b[2J/12":     "held by  \"web%1b[2J/12\"\n", // not as it would be written
		strategy.Holder{Host: "a\x1bb", PID: 1}.String(): "held by  \"a\\x1bb\", process 1\n",
	} {
		name := newName(t)
		lease := acquire(t, s, name, strategy.Options{Label: label})
		out := toolFor(t, s, "inspect", name).start().wantEnd(0)
		if !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("label %q: there is no %q in\n%s", label, want, out)
		}
		redistest.Must(t, lease.Release(t.Context()))
	}
	if got := []string{plain("a b"), plain(" "), plain("a "), plain(""), plain("a\n")}; !slices.Equal(got, []string{"a b", `" "`, `"a "`, `""`, `"a\n"`}) {
		t.Errorf("plain() = %q, want quotes around what cannot be seen", got)
	}
	name := newName(t)
	redistest.Do(t, s, "SET", strategy.DefaultKey(name), "\x1b[2Jsomebody's")
	out := toolFor(t, s, "inspect", name).start().wantEnd(0)
	if !strings.Contains(out, "expires  never\n") || strings.Contains(out, "\x1b") {
		t.Errorf("of a lock without expiry it says\n%s", out)
	}
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	redistest.Do(t, s, "RPUSH", strategy.DefaultKey(name), "no lock")
	hint := fmt.Sprintf("says what is there): the lock's key is %q, and what is there is not of a fairqueue lock: give the --strategy of the lock's holder\n", strategy.DefaultKey(name))
	toolFor(t, s, "inspect", name).start().wantEnd(69, "WRONGTYPE", hint)
	toolFor(t, s, "exec", name, "--", "true").start().wantEnd(69, "WRONGTYPE", hint)
	toolFor(t, s, "release", name, "--force").start().wantEnd(69, "WRONGTYPE", hint)
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
}

// TestInspectHolds: how often an owner has it.
func TestInspectHolds(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	locks, err := reentrant.New(redigonode.New(s.Pool()), strategy.Options{})
	redistest.Must(t, err)
	defer locks.Close()
	ctx := strategy.WithOwner(t.Context(), "request 7")
	for range 2 {
		lease, err := locks.NewLock(name).TryAcquire(ctx)
		redistest.Must(t, err)
		defer lease.Release(t.Context())
	}
	out := toolFor(t, s, "inspect", name, "--strategy", "reentrant").start().wantEnd(0)
	if !strings.Contains(out, "holds    2\n") || !strings.Contains(out, "owner    request 7\n") {
		t.Errorf("it says\n%s", out)
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	if out := toolFor(t, s, "release", name, "--force").start().wantEnd(0); !strings.HasSuffix(out, " is free\n") {
		t.Errorf("of a free lock it says %q", out)
	}
	lease := acquire(t, s, name, strategy.Options{TTL: time.Minute, Label: strategy.Holder{Host: "web", PID: 12}.String()})
	toolFor(t, s, "release", name).start().wantEnd(2, fmt.Sprintf("this would take the lock %q from web, process 12,", name), "--force does it")
	toolFor(t, s, "release", name, "--force", "--token", "of another").start().wantEnd(75, fmt.Sprintf("is held by web, process 12, with the token %q,", strategy.ShortToken(lease.Token())), "nothing was changed")
	if !inspected(t, s, name).Held {
		t.Fatal("it was released all the same")
	}
	out := toolFor(t, s, "release", name, "--force", "--token", lease.Token(), "--json").start().wantEnd(0)
	var r removed
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Released || r.From.Token != lease.Token() || r.From.Holder.Host != "web" {
		t.Errorf("%v, it says\n%s", err, out)
	}
	wantFree(t, s, name)
	lease = acquire(t, s, name, strategy.Options{})
	out = toolFor(t, s, "release", name, "--force").start().wantEnd(0)
	if want := fmt.Sprintf("lock %s taken from %q\n", name, strategy.ShortToken(lease.Token())); out != want {
		t.Errorf("it says %q, want %q", out, want)
	}
}

// TestReleaseOneOfSeveral: --token says which of the holders of a semaphore, though inspect names another.
func TestReleaseOneOfSeveral(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	hold := func(label string, ttl time.Duration) strategy.Lease {
		locks, err := semaphore.New(redigonode.New(s.Pool()), 2, strategy.Options{TTL: ttl, Label: label})
		redistest.Must(t, err)
		t.Cleanup(func() { locks.Close() })
		lease, err := locks.NewLock(name).TryAcquire(t.Context())
		redistest.Must(t, err)
		return lease
	}
	first, second := hold("first", time.Minute), hold("second", time.Hour)
	release := func(token string) *tool {
		return toolFor(t, s, "release", name, "--permits", "2", "--force", "--json", "--token", token).start()
	}
	release("of another").wantEnd(75, `is not held by "…other": nothing was changed`)
	out := release(second.Token()).wantEnd(0)
	var r removed
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Released || r.From.Token != second.Token() || r.From.Holder.Label != "second" || r.From.TTL != nil {
		t.Errorf("%v, it says\n%s\nwant the second, and no TTL, which is the first's", err, out)
	}
	if err := second.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Extend by the holder that was named = %v, want ErrLost", err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Errorf("Release by the other = %v", err)
	}
}

// TestReleaseAll: what each strategy holds can be seen and taken away.
func TestReleaseAll(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms() {
		t.Run(a.name, func(t *testing.T) {
			flags, name := onServers(t, a), newName(t)
			t.Parallel()
			c := hold(t, nil, 0, append([]string{name, "--ttl", "9s"}, flags...)...)
			for _, args := range [][]string{{"inspect", name}, {"release", name, "--force"}} {
				out := toolFor(t, nil, append(args, flags...)...).start().wantEnd(0)
				if !strings.Contains(out, fmt.Sprintf(", process %d", c.Process.Pid)) {
					t.Errorf("%q says\n%s", args, out)
				}
			}
			c.wantEnd(76, "lost: ")
		})
	}
}

// TestReleaseFromMost: a lock is taken when a majority of the servers has released it, and a server that is
// down is named.
func TestReleaseFromMost(t *testing.T) {
	t.Parallel()
	nodes, err := redistest.TryNodes(t, 2)
	redistest.Must(t, err)
	bootstrap(t, nodes)
	name, flags := newName(t), []string{"--strategy", "redlock", "--redis", nodes[0].URL(), "--redis", nodes[1].URL(), "--redis", "127.0.0.1:1"}
	c := hold(t, nil, 0, append([]string{name, "--ttl", "9s"}, flags...)...)
	release := toolFor(t, nil, append([]string{"release", name, "--force", "--json"}, flags...)...).start()
	out := release.wantEnd(0, "note: ", "127.0.0.1:1: not sent: connection refused")
	var r removed
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Released {
		t.Errorf("%v, it says\n%s", err, out)
	}
	c.wantEnd(76, "lost: ")
}

// TestBootstrap: new servers grant nothing, and then everything.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	var flags []string
	for range 3 {
		flags = append(flags, "--redis", redistest.Own(t, redistest.Config{}).URL())
	}
	run := func(flags []string, words ...string) *tool {
		return toolFor(t, nil, append(words, flags...)...).start()
	}
	exec := append(flags, "--strategy", "redlock", "--", "true")
	run(exec, "exec", newName(t)).wantEnd(69, "no quorum")
	run(flags[:4], "bootstrap", "--redis", "127.0.0.1:1").wantEnd(69, "connection refused")
	if out := run(flags, "bootstrap").wantEnd(0); out != "3 servers vote\n" {
		t.Errorf("it says %q", out)
	}
	run(exec, "exec", newName(t)).wantEnd(0)
}
