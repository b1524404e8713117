//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// What the tests of the tools share: the program as a process, a name for a lock, and how to look at
// both.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// A lock that must not lapse has a TTL of 9 s or more: a request of exec has a sixth of its TTL.

// patience is so long that only a process that would never end exceeds it.
const patience = time.Minute

// A tool is the command as a process, with what it prints.
type tool struct {
	*exec.Cmd
	t      *testing.T
	out    *bufio.Reader
	pipe   io.Closer // of out
	errs   *bytes.Buffer
	waited bool
}

// toolFor makes the command, to be run on the server, unless the arguments name one.
func toolFor(t *testing.T, s *redistest.Server, args ...string) *tool {
	t.Helper()
	cmd := clitest.Command(t, args...)
	if s != nil {
		cmd.Env = append(cmd.Env, redisVar+"="+s.URL())
	}
	c := &tool{Cmd: cmd, t: t, errs: &bytes.Buffer{}}
	cmd.Stderr, cmd.WaitDelay = c.errs, patience // a command that outlives exec must not keep the test
	return c
}

// start starts it; it is gone at the end of the test, and what it has started, too.
func (c *tool) start() *tool {
	c.t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.out, c.pipe = bufio.NewReader(out), out
	if err := c.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if !c.waited {
			c.Process.Kill()
			c.Wait()
		}
	})
	return c
}

// input is the command's standard input. It is called before start.
func (c *tool) input() io.WriteCloser {
	c.t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	return in
}

// line is the next line of the standard output.
func (c *tool) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.Process.Kill()
		c.Wait()
		c.waited = true
		c.t.Fatalf("after %q: %v; on stderr\n%s", s, err, c.errs)
	}
	return strings.TrimSuffix(s, "\n")
}

// number is a line that is one: a process.
func (c *tool) number() int {
	c.t.Helper()
	line := c.line()
	n, err := strconv.Atoi(line)
	if err != nil {
		c.t.Fatalf("the line is %q, want a process", line)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			syscall.Kill(-n, syscall.SIGKILL)
		}
	})
	return n
}

// end waits for it, and returns the rest of its output and its status.
func (c *tool) end() (out string, code int) {
	c.t.Helper()
	late := time.AfterFunc(patience, func() {
		c.Process.Kill()
		c.pipe.Close() // which the command may have still
	})
	defer late.Stop()
	rest, err := io.ReadAll(c.out)
	if err != nil {
		c.t.Errorf("it has not ended: %v", err)
	}
	if err := c.Wait(); errors.Is(err, exec.ErrWaitDelay) {
		c.t.Errorf("%q: a process that has its standard error outlives it", c.Args[1:])
	}
	c.waited = true
	return string(rest), c.ProcessState.ExitCode()
}

func (c *tool) kill(s syscall.Signal) {
	c.t.Helper()
	if err := c.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// wantEnd holds how it ends to that.
func (c *tool) wantEnd(code int, says ...string) (out string) {
	c.t.Helper()
	out, got := c.end()
	if got != code {
		c.t.Errorf("%q: exit %d, want %d; it said\n%s%s", c.Args[1:], got, code, out, c.errs)
	}
	for _, s := range says {
		if !strings.Contains(c.errs.String(), s) {
			c.t.Errorf("%q: on stderr is %q, want %q", c.Args[1:], c.errs, s)
		}
	}
	if len(says) == 0 && c.errs.Len() > 0 {
		c.t.Errorf("%q: on stderr is %q, want nothing", c.Args[1:], c.errs)
	}
	return out
}

var lockCount atomic.Int64

// newName is a lock of this test alone.
func newName(t *testing.T) string {
	return fmt.Sprintf("tool %s %d %d", t.Name(), os.Getpid(), lockCount.Add(1))
}

func groupEnded(group int) func() bool {
	return func() bool { return !alive(group) || onlyZombies(group) }
}

// onlyZombies reports whether only zombies are left of a group: this system may have no init that reaps
// them.
func onlyZombies(group int) bool {
	if state, _ := statOf(group); state != "" && state != "Z" { // without a look at each process of the system
		return false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if state, of := statOf(pid); of == group && state != "Z" {
			return false
		}
	}
	return len(processes) > 0
}

// statOf is the state of a process, T: stopped, Z: a zombie, and its group. "": there is no such
// process, or no /proc.
func statOf(pid int) (state string, group int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fmt.Sscan(rest, &state, new(int), &group)
	return state, group
}

func inspected(t *testing.T, s *redistest.Server, name string) strategy.Info {
	t.Helper()
	locks, err := fairqueue.New(redigonode.New(s.Pool()), strategy.Options{TTL: 2 * patience, OpTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	info, err := locks.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func wantFree(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	if info := inspected(t, s, name); info.Held {
		t.Errorf("the lock is still held: %+v", info)
	}
}

// onServers are the flags that name the strategy, and servers for it.
func onServers(t *testing.T, a algorithm) (flags []string) {
	t.Helper()
	f := redistest.ForTests(t)
	if a.name == "ifeq" {
		newer, err := f.Having(t.Context(), "valkey-9.1", "DELEX", "DELIFEQ")
		redistest.Skip(t, err, "what the tool does with ifeq")
		f = newer
	}
	nodes, err := f.Nodes(t.Context(), a.servers)
	redistest.Must(t, err)
	bootstrap(t, nodes)
	for _, n := range nodes {
		flags = append(flags, "--redis", n.URL())
	}
	if a.name == withPermits {
		flags = append(flags, "--permits", "1")
	}
	return append(flags, "--strategy", a.name)
}

func onServer(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	o.TTL = max(o.TTL, time.Minute)
	o.OpTimeout = o.TTL / 2 // by default it would be a second, which is short next to busy loops
	locks, err := fairqueue.New(redigonode.New(s.Pool()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// bootstrap lets new servers vote at once.
func bootstrap(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	var pools []*redis.Pool
	for _, s := range servers {
		pools = append(pools, s.Pool())
	}
	if len(pools) > 1 {
		if err := locktest.OnNodes(pools, func(nodes []driver.Node) error { return redlock.Bootstrap(t.Context(), nodes) }); err != nil {
			t.Fatal(err)
		}
	}
}

// stubborn prints its group and then, on SIGTERM, a word; it and its child go on. It waits
// without starting anything: a shell may swallow what comes between its fork and exec.
const stubborn = `trap 'echo told' TERM
(trap '' TERM; while :; do sleep 0.05; done) &
echo $$
while :; do wait; done`

func allChildren(pid int) (all string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all += " " + string(b)
	}
	return all
}
