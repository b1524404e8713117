//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests what locks list prints of the locks on a server, on several, and on none that answers.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

// TestNameOf: names and keys are each other's inverse, and other keys have no name.
func TestNameOf(t *testing.T) {
	for _, name := range []string{"a", "deploy/web", "}", "%", "%7D", "%25", "}%7D", "{a}", "a}:queue{", "\x00", strings.Repeat("x", contract.MaxNameLen)} {
		if got, ok := nameOf(strategy.DefaultKey(name)); got != name || !ok {
			t.Errorf("nameOf(%q) = %q, %v, want %q", strategy.DefaultKey(name), got, ok, name)
		}
	}
	for _, key := range []string{
		"", "a", "lock:a", "lock:{a", "lock:{}", "lock:{}a}", "lock:{%7d}", "lock:{%}", "lock:{a}:fence", "lock:{a}:queue",
		"xlock:{a}", strategy.DefaultKey(strings.Repeat("x", contract.MaxNameLen+1)),
	} {
		if name, ok := nameOf(key); ok {
			t.Errorf("nameOf(%q) = %q, want that it is no lock's key", key, name)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{})
	const none = "locks: no lock is held whose key matches lock:{*}\n"
	if out := toolFor(t, s, "list").start().wantEnd(0, none); out != "" {
		t.Errorf("of no lock it prints %q", out)
	}
	if out := toolFor(t, s, "list", "--json").start().wantEnd(0, none); out != "[]\n" {
		t.Errorf("of no lock it prints %q, want an empty list", out)
	}
	for i := range 3000 { // more than a page of SCAN
		redistest.Do(t, s, "SET", fmt.Sprint("another's ", i), "x")
	}
	for _, name := range []string{"b", "}a", "%a", "over"} {
		lease := acquire(t, s, name, strategy.Options{TTL: time.Hour, Label: strategy.Holder{Host: "web", PID: 12, Label: "\x1b[2J"}.String()})
		if name == "over" { // its fence stays
			redistest.Must(t, lease.Release(t.Context()))
		}
	}
	redistest.Do(t, s, "SET", strategy.DefaultKey("c"), "of another library")
	others, err := reentrant.New(redigonode.New(s.Pool()), strategy.Options{TTL: time.Hour, OpTimeout: patience})
	redistest.Must(t, err)
	defer others.Close()
	if _, err := others.NewLock("a").TryAcquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting := toolFor(t, s, "exec", "b", "--", "true").start()
	queues(t, s, "b")

	const by = `web, process 12, "\x1b[2J"`
	const kind = "(it, or a key that belongs to it, is not of a fairqueue lock: the type of its key is hash)"
	out := toolFor(t, s, "list").start().wantEnd(0)
	want := "NAME ASKED TTL WAITERS HELD BY %a T ago T 0 " + by + " a – – – " + kind + " b T ago T 1 " + by + ` c – never 0 "…ibrary" }a T ago T 0 ` + by
	times := regexp.MustCompile(`\b[\dhm]+s\b`)
	if got := times.ReplaceAllString(strings.Join(strings.Fields(out), " "), "T"); got != want {
		t.Errorf("it prints\n%swhich is %q, want %q", out, got, want)
	}
	names := func(args ...string) (names []string) {
		t.Helper()
		var all []listed
		text := toolFor(t, s, append([]string{"list", "--json"}, args...)...).start().wantEnd(0)
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		for _, l := range all {
			names = append(names, l.Name)
			if (l.Problem == "") != l.Held || l.Key != strategy.DefaultKey(l.Name) || l.Name == "b" && (len(l.Queue) != 1 || l.Holder.Host != "web") {
				t.Errorf("%v: the JSON is\n%s", args, text)
			}
		}
		return names
	}
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"*", []string{"%a", "a", "b", "c", "}a"}}, {"[ab]", []string{"a", "b"}}, {"%*", []string{"%a"}}, {"}a", []string{"}a"}}, {"?", []string{"a", "b", "c"}},
	} {
		if got := names(c.pattern); !slices.Equal(got, c.want) {
			t.Errorf("%q lists %q, want %q", c.pattern, got, c.want)
		}
	}
	if out := toolFor(t, s, "list", "a", "--strategy", "reentrant").start().wantEnd(0); strings.Contains(out, "(") || !strings.Contains(out, "\na ") {
		t.Errorf("of a reentrant lock it prints\n%s", out)
	}
	waiting.kill(syscall.SIGTERM)
	waiting.end()
}

// TestListOther: whatever lies at a lock's key, or at its fence's, the list goes on, and says so.
func TestListOther(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms() {
		t.Run(a.name, func(t *testing.T) {
			flags := onServers(t, a)
			t.Parallel()
			var nodes []redis.Conn
			for i := 1; i < 2*a.servers; i += 2 {
				c, err := redis.DialURL(flags[i])
				redistest.Must(t, err)
				defer c.Close()
				nodes = append(nodes, c)
			}
			name := newName(t)
			hour, ahead := "3600000", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
			others := map[string][][]any{ // the keys by what comes after the lock's
				"a string": {{"SET", "", "tomorrow at noon"}}, "an empty string": {{"SET", "", ""}}, "a stamp": {{"SET", "", ahead + ":token"}},
				"a list": {{"RPUSH", "", "a"}}, "a set": {{"SADD", "", "a"}}, "a stream": {{"XADD", "", "*", "a", "b"}},
				"a hash": {{"HSET", "", "a", "b"}}, "a sorted set": {{"ZADD", "", ahead, "a"}}, "a sorted set that ends": {{"ZADD", "", ahead, "a"}, {"PEXPIRE", "", hour}},
				"a token and no queue": {{"SET", "", "token"}, {"SET", ":queue", "a"}}, "a token and no fence": {{"SET", "", "token"}, {"SET", ":fence", "seven"}},
				"a token and a list of fences": {{"SET", "", "token"}, {"RPUSH", ":fence", "a"}},
				"permits and no fence":         {{"ZADD", "", ahead, "permit:token"}, {"PEXPIRE", "", hour}, {"SET", ":fence", "seven"}},
				"a reader and no fence":        {{"ZADD", "", ahead, "read:token"}, {"PEXPIRE", "", hour}, {"SET", ":fence", "seven"}},
			}
			for what, commands := range others {
				for _, cmd := range commands {
					for _, c := range nodes {
						key := strategy.DefaultKey(name+" "+what) + cmd[1].(string)
						_, err := c.Do(cmd[0].(string), append([]any{key}, cmd[2:]...)...)
						redistest.Must(t, err)
						defer c.Do("DEL", key)
					}
				}
			}
			holder := hold(t, nil, 0, append([]string{name + " held"}, flags...)...)
			out := toolFor(t, nil, append([]string{"list", name + " *"}, flags...)...).start().wantEnd(0)
			for what := range others {
				if !strings.Contains(out, "\n"+name+" "+what+"  ") {
					t.Errorf("%s is not in\n%s", what, out)
				}
			}
			if !strings.Contains(out, fmt.Sprintf(", process %d\n", holder.Process.Pid)) || strings.Count(out, "\n") != len(others)+2 {
				t.Errorf("want %d locks, and one that is held by process %d, in\n%s", len(others), holder.Process.Pid, out)
			}
			holder.in.Close()
			holder.wantEnd(0)
		})
	}
}

// TestListSeveral: of redlock's servers a majority is enough to list, and to hold a lock.
func TestListSeveral(t *testing.T) {
	t.Parallel()
	nodes, err := redistest.TryNodes(t, 3)
	redistest.Must(t, err)
	bootstrap(t, nodes)
	name, minority := newName(t), newName(t)
	flags := func(urls ...string) (flags []string) {
		for _, u := range urls {
			flags = append(flags, "--redis", u)
		}
		return append(flags, "--strategy", "redlock")
	}
	const down = "127.0.0.1:1"
	all, most, few := flags(nodes[0].URL(), nodes[1].URL(), nodes[2].URL()), flags(nodes[0].URL(), nodes[1].URL(), down), flags(nodes[0].URL(), down, "127.0.0.1:2")
	c := hold(t, nil, 0, append([]string{name, "--ttl", "1m"}, most...)...)
	redistest.Do(t, nodes[0], "SET", strategy.DefaultKey(minority), "of a holder that lost the vote")
	mine := fmt.Sprintf("tool %s %d *", t.Name(), os.Getpid())
	list := func(flags []string) *tool {
		return toolFor(t, nil, append([]string{"list", mine}, flags...)...).start()
	}
	who := fmt.Sprintf(", process %d", c.Process.Pid)
	if out := list(all).wantEnd(0); strings.Count(out, "\n") != 2 || !strings.Contains(out, name+" ") || !strings.Contains(out, who) {
		t.Errorf("it prints\n%swant the lock that a majority has", out)
	}
	const away = down + ": not sent: "
	if out := list(most).wantEnd(0, "locks: note: a majority of the servers answers, but not all: "+away); strings.Count(out, "\n") != 3 ||
		!strings.Contains(out, who) || !strings.Contains(out, "(too few servers answer: lock \""+minority+"\": ") {
		t.Errorf("it prints\n%swant the lock that a majority has, and the one of which that is not known", out)
	}
	list(few).wantEnd(69, "locks: "+away, "\n127.0.0.1:2: not sent: ")
	c.in.Close()
	c.end()
	redistest.Do(t, nodes[0], "DEL", strategy.DefaultKey(minority))
}

// TestListWatch: the list is printed again and again, also after an outage, until a signal comes.
func TestListWatch(t *testing.T) {
	t.Parallel()
	toolFor(t, nil, "list", "--redis", "127.0.0.1:1").start().wantEnd(69, "locks: 127.0.0.1:1: not sent: ", "connection refused\n")
	s := redistest.Own(t, redistest.Config{})
	c := toolFor(t, s, "list", "--watch", "--every", "10ms")
	said := &lockedBuffer{}
	c.Stderr = said
	c.start()
	hold := func(name string) {
		t.Helper()
		acquire(t, s, name, strategy.Options{TTL: time.Hour})
		for !strings.HasPrefix(c.line(), name+" ") {
		}
	}
	hold("first")
	redistest.Skip(t, s.Kill(t.Context()), "what list --watch does when its server dies")
	verdict.Eventually(t, "it says that the server is away", func() bool {
		return strings.Contains(said.String(), "locks: "+s.Addr()+": ") && strings.Contains(said.String(), "connection refused\n")
	})
	redistest.Must(t, s.Restart(t.Context()))
	hold("second")
	c.kill(syscall.SIGINT)
	if _, code := c.end(); code != 130 || !strings.HasSuffix(said.String(), "locks: interrupted\n") {
		t.Errorf("exit %d, on stderr is %q, want 130 and that it was interrupted", code, said)
	}
}
