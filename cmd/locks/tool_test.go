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
	"slices"
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
	"github.com/lockstrategies/locks/internal/testkit/verdict"
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
	in     io.WriteCloser // of begin
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
	redistest.Must(c.t, err)
	c.out, c.pipe = bufio.NewReader(out), out
	redistest.Must(c.t, c.Start())
	c.t.Cleanup(func() {
		if !c.waited {
			c.Process.Kill()
			c.Wait()
		}
	})
	return c
}

// begin starts it with an input that is open until the test closes c.in.
func (c *tool) begin() *tool {
	c.t.Helper()
	in, err := c.StdinPipe()
	redistest.Must(c.t, err)
	c.in = in
	return c.start()
}

// hold begins an exec with these arguments, and returns when its command has begun: the command goes on until the test
// closes c.in, and exits with that status.
func hold(t *testing.T, s *redistest.Server, status int, args ...string) *tool {
	t.Helper()
	c := toolFor(t, s, slices.Concat([]string{"exec"}, args, []string{"--", "sh", "-c", fmt.Sprintf("echo in; read line; exit %d", status)})...).begin()
	c.line()
	return c
}

// acquire holds a lock by the library.
func acquire(t *testing.T, s *redistest.Server, name string, o strategy.Options) strategy.Lease {
	t.Helper()
	lease, err := onServer(t, s, o).NewLock(name).TryAcquire(t.Context())
	redistest.Must(t, err)
	return lease
}

// queues waits until one process waits for the lock.
func queues(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	verdict.Eventually(t, "a process queues", func() bool { return len(inspected(t, s, name).Queue) == 1 })
}

// sleeper is a command in a group of its own. ended is closed when it is gone.
func sleeper(t *testing.T, words ...string) (command *exec.Cmd, ended chan struct{}) {
	t.Helper()
	if words == nil {
		words = []string{"sleep", "600"}
	}
	command, ended = exec.Command(words[0], words[1:]...), make(chan struct{})
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	redistest.Must(t, command.Start())
	go func() {
		defer close(ended)
		command.Wait()
	}()
	t.Cleanup(func() {
		syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		<-ended
	})
	return command, ended
}

// within fails the test unless the channel is closed, or has a value, in time.
func within[T any](t *testing.T, what string, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(patience):
		t.Errorf("not within %v: %s", patience, what)
	}
	return got
}

// needsProc skips a test that looks at processes by /proc.
func needsProc(t *testing.T) {
	t.Helper()
	if state, _ := statOf(os.Getpid()); state == "" {
		t.Skip("not proven: that takes /proc")
	}
}

// newJob is a job of exec whose command is that process, as exec has it once the command was started: all that exec, the
// command and the watcher say comes from the test.
func newJob(leader int, lease strategy.Lease, said io.Writer) *job {
	return &job{
		e: &execution{name: "n", said: newTeller(said), grace: time.Minute}, lease: lease, leader: leader, tty: &terminal{fd: -1},
		starter: &starter{executed: make(chan struct{})}, watcher: &watcher{pid: -1}, changes: make(chan change, 1),
	}
}

// lapsed is a lease whose deadline has come, or is lost otherwise.
type lapsed struct {
	strategy.Lease
	deadline time.Time
	held     bool // until lost is closed
	lost     chan struct{}
	asked    chan struct{} // gets a value when somebody asks for Err
	evicted  bool          // before its deadline
}

func (l lapsed) Deadline() time.Time   { return l.deadline }
func (l lapsed) Lost() <-chan struct{} { return l.lost }
func (l lapsed) Err() error {
	select {
	case l.asked <- struct{}{}:
	default:
	}
	select {
	case <-l.lost:
	default:
		if l.held {
			return nil
		}
	}
	return &strategy.LostError{Name: "n", Lapsed: !l.evicted}
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

// wantEnded waits until a group is gone.
func wantEnded(t *testing.T, group int) {
	t.Helper()
	verdict.Eventually(t, "the group is gone", groupEnded(group))
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
	redistest.Must(t, err)
	defer locks.Close()
	info, err := locks.Inspect(t.Context(), name)
	redistest.Must(t, err)
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
	redistest.Must(t, err)
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
		redistest.Must(t, locktest.OnNodes(pools, func(nodes []driver.Node) error { return redlock.Bootstrap(t.Context(), nodes) }))
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
