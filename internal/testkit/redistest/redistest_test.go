package redistest

// Servers of every kind: they start, freeze, die, come back, and leave nothing behind.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/testkit/verdict"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

func TestMain(m *testing.M) {
	code := run(m, nil)
	if f, err := containerFarm(); err == nil {
		if err := f.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if err := leftovers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// leftovers finds what is still there of all servers that these tests have started, after every
// farm has been closed.
func leftovers() error {
	children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err == nil {
		if reaper, err := machine.ReaperPID(); err == nil {
			for _, pid := range strings.Fields(string(children)) {
				if pid != strconv.Itoa(reaper) {
					return fmt.Errorf("redistest: process %s is left behind", pid)
				}
			}
		}
	}
	left, err := machine.Containers(context.Background(), machine.ThisRun)
	if err == nil && len(left) > 0 {
		return fmt.Errorf("redistest: %d containers are left behind: %v", len(left), left)
	}
	return nil
}

const patience = 20 * time.Second

// containerFarm is one for all tests, since each farm starts a container for its network.
var containerFarm = sync.OnceValues(func() (*Farm, error) {
	return Open(context.Background(), Want{Kind: Docker})
})

// open returns a farm of the given kind, or skips.
func open(t *testing.T, k Kind) *Farm {
	t.Helper()
	if k == Docker {
		f, err := containerFarm()
		if err != nil {
			t.Skipf("NOT PROVEN: %s with containers: %v", t.Name(), err)
		}
		return f
	}
	return openNew(t, k)
}

// openNew opens a farm for this test alone, or skips.
func openNew(t *testing.T, k Kind) *Farm {
	t.Helper()
	f, err := Open(t.Context(), Want{Kind: k, Log: t.Output()})
	if err != nil {
		t.Skipf("NOT PROVEN: %s with kind %s: %v", t.Name(), k, err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// eachKind runs a test with every kind of server that is ours to break.
func eachKind(t *testing.T, test func(t *testing.T, f *Farm)) {
	t.Parallel()
	for _, k := range []Kind{Docker, Process, Embedded} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			test(t, open(t, k))
		})
	}
}

func start(t *testing.T, f *Farm, c Config) *Server {
	t.Helper()
	s, err := f.Start(t.Context(), c)
	Skip(t, err, t.Name())
	end(t, s.Stop)
	return s
}

func do(t *testing.T, s *Server, cmd string, args ...any) any {
	t.Helper()
	v, err := try(t, s, patience, cmd, args...)
	if err != nil {
		t.Fatalf("%s %v = %v, want no error", cmd, args, err)
	}
	return v
}

func try(t *testing.T, s *Server, limit time.Duration, cmd string, args ...any) (any, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := s.Pool().GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return redis.DoContext(c, ctx, cmd, args...)
}

func TestSharedIsOneServer(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) {
		nodes, err := f.Nodes(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.Shared(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s != nodes[0] || nodes[0].Addr() == nodes[1].Addr() || nodes[1].Addr() == nodes[2].Addr() {
			t.Errorf("Shared = %s, Nodes = %s, %s, %s, want three of which Shared is the first",
				s.Addr(), nodes[0].Addr(), nodes[1].Addr(), nodes[2].Addr())
		}
		do(t, s, "SET", "k", "v")
		if v := do(t, nodes[1], "GET", "k"); v != nil {
			t.Errorf("GET on another node = %v, want nil", v)
		}
		for what, err := range map[string]error{"Kill": s.Kill(t.Context()), "Freeze": s.Freeze(t.Context()), "Stop": s.Stop(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), "everybody's") {
				t.Errorf("%s of the shared server = %v, want a refusal", what, err)
			}
		}
		version := s.Version()
		if f.Kind() == Embedded {
			version = "EMBEDDED"
		}
		if c := f.Choice(); version == "" || !strings.HasPrefix(c, "redis: ") || !strings.Contains(c, version) || strings.Contains(c, "\n") {
			t.Errorf("Choice = %q, want one line that begins with redis: and names %q", c, version)
		}
	})
}

func TestFreezeAndThaw(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) {
		s := start(t, f, Config{})
		do(t, s, "SET", "k", "v")
		Skip(t, s.Freeze(t.Context()), "that a frozen server does not answer, and does again once thawed")
		if _, err := try(t, s, 200*time.Millisecond, "PING"); err == nil {
			t.Error("PING of a frozen server was answered")
		}
		if err := s.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, _ := redis.String(do(t, s, "GET", "k"), nil); v != "v" {
			t.Errorf("GET after Thaw = %q, want v", v)
		}
		if err := s.Thaw(t.Context()); err != nil {
			t.Errorf("second Thaw = %v, want nil", err)
		}
		// A frozen one can be killed, restarted, and frozen again.
		if err := s.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		do(t, s, "PING")
		if err := s.Freeze(t.Context()); err != nil {
			t.Fatal(err) // and it is stopped while it is frozen
		}
	})
}

func TestKillAndRestart(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) { killAndRestart(t, f) })
}

func killAndRestart(t *testing.T, f *Farm) {
	s := start(t, f, Config{User: "alice", Password: "secret", Database: 3})
	addr := s.Addr()
	do(t, s, "SET", "k", "v")
	if c, err := redis.Dial("tcp", addr); err == nil {
		defer c.Close()
		if _, err := c.Do("GET", "k"); err == nil {
			t.Error("GET without a password was answered")
		}
	}
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, s, time.Second, "PING"); err == nil {
		t.Error("PING of a dead server was answered")
	}
	if err := s.Kill(t.Context()); err != nil {
		t.Errorf("second Kill = %v, want nil", err)
	}
	if err := s.Freeze(t.Context()); err == nil {
		t.Error("Freeze of a dead server = nil, want an error")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Errorf("address after Restart = %s, want %s", s.Addr(), addr)
	}
	if v := do(t, s, "GET", "k"); v != nil {
		t.Errorf("GET after Restart without persistence = %v, want nil", v)
	}
	if calls, err := s.Calls(t.Context()); !errors.Is(err, ErrImpossible) && (err != nil || calls["get"] != 1 || calls["set"] != 0) {
		t.Errorf("Calls after Restart = %v, %v, want those since", calls, err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Restart after Stop = %v, want ErrClosed", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("second Stop = %v, want nil", err)
	}
}

func TestCallsAndRoundTrips(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) {
		s := start(t, f, Config{})
		c := s.Pool().Get()
		defer c.Close()
		if _, err := c.Do("PING"); err != nil {
			t.Fatal(err)
		}
		counts := func() (calls map[string]int64, trips int64) {
			t.Helper()
			calls, err := s.Calls(t.Context())
			Skip(t, err, "how many commands a server has executed")
			if trips, err = s.RoundTrips(t.Context()); err != nil {
				t.Fatal(err)
			}
			return calls, trips
		}
		before, tripsBefore := counts()
		for range 3 {
			if _, err := c.Do("SET", "k", "v"); err != nil {
				t.Fatal(err)
			}
		}
		counts()
		after, tripsAfter := counts()
		if got := after["set"] - before["set"]; got != 3 {
			t.Errorf("SET was counted %d times, want 3", got)
		}
		if after["info"] != 0 {
			t.Errorf("our own INFO was counted %d times, want 0", after["info"])
		}
		if got := tripsAfter - tripsBefore; got != 3 {
			t.Errorf("RoundTrips of 3 SET = %d, want 3", got)
		}
	})
}

func TestServerThatDoesNotComeUp(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{Docker, Process} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			f := open(t, k)
			_, err := f.Start(t.Context(), Config{Args: []string{"--no-such-option", "yes"}})
			if err == nil || !strings.Contains(err.Error(), "no-such-option") {
				t.Errorf("Start with a wrong option = %v, want the server's own words", err)
			}
			l, err := net.Listen("tcp", machine.Loopback+":0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			if _, err := f.launchOnce(t.Context(), Config{Args: []string{"--port", port}}, -1); !errors.Is(err, machine.ErrPortTaken) {
				t.Errorf("start on a port that is taken = %v, want machine.ErrPortTaken", err)
			}
		})
	}
}

func TestGivenServers(t *testing.T) {
	t.Parallel()
	real := start(t, open(t, Process), Config{Password: "secret"})
	f, err := Open(t.Context(), Want{Addrs: []string{real.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, "SET", "k", "v")
	if s.Version() != real.Version() || !strings.Contains(f.Choice(), real.Addr()) || strings.Contains(f.Choice(), "secret") {
		t.Errorf("choice = %q with %q, want %s, %s and no password", f.Choice(), s.Version(), real.Addr(), real.Version())
	}
	if _, err := f.Start(t.Context(), Config{}); !errors.Is(err, ErrImpossible) {
		t.Errorf("Start of a given server = %v, want ErrImpossible", err)
	}
	if _, err := f.Nodes(t.Context(), 2); !errors.Is(err, ErrImpossible) {
		t.Errorf("Nodes(2) of one given server = %v, want ErrImpossible", err)
	}
	if s, err := f.AtMost(t.Context(), 2); len(s) != 1 || err != nil {
		t.Errorf("AtMost(2) of one given server = %d servers, %v, want it", len(s), err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if v, _ := redis.String(do(t, real, "GET", "k"), nil); v != "v" {
		t.Errorf("GET after Close = %q, want v: a given server stays as it is", v)
	}
	if _, err := f.Shared(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Shared after Close = %v, want ErrClosed", err)
	}
}

// TestOtherServerThanNamed: what answers is looked at, however it was come by.
func TestOtherServerThanNamed(t *testing.T) {
	t.Parallel()
	real := start(t, open(t, Process), Config{})
	right := strings.ToLower(strings.ReplaceAll(real.Version(), " ", "-"))
	f, err := Open(t.Context(), Want{Addrs: []string{real.URL()}, Server: right})
	if err != nil {
		t.Fatalf("Open with REDIS_SERVER=%s for %s = %v, want nil", right, real.Version(), err)
	}
	f.Close()
	if _, err := Open(t.Context(), Want{Addrs: []string{real.URL()}, Server: "valkey-1.2"}); err == nil || !strings.Contains(err.Error(), real.Version()+" has answered") {
		t.Errorf("Open of a given %s with REDIS_SERVER=valkey-1.2 = %v, want what has answered", real.Version(), err)
	}
	f, err = Open(t.Context(), Want{Kind: Embedded, Server: "redis-7.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Shared(t.Context()); err == nil || !strings.Contains(err.Error(), "has answered (EMBEDDED") {
		t.Errorf("Shared of an imitation with REDIS_SERVER=redis-7.0 = %v, want what has answered", err)
	}
	if len(f.servers) > 0 {
		t.Error("the server that was another one was kept")
	}
}

// recorder is a testing.TB that notes how a test was ended, and goes on.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Skipf(format string, args ...any) { r.skipped = fmt.Sprintf(format, args...) }
func (r *recorder) Fatal(args ...any)                { r.failed = fmt.Sprint(args...) }

func TestSkipsSayWhatIsNotProven(t *testing.T) {
	t.Parallel()
	impossible := fmt.Errorf("given: %w", ErrImpossible)
	for _, k := range []Kind{"", Embedded} {
		r := &recorder{TB: t}
		if must(r, &Farm{want: Want{Kind: k}}, impossible); !strings.Contains(r.skipped, "NOT PROVEN: what "+t.Name()) || r.failed != "" {
			t.Errorf("must, demanded %q: skipped %q, failed %q, want skipped", k, r.skipped, r.failed)
		}
	}
	r := &recorder{TB: t}
	if must(r, &Farm{want: Want{Kind: Given}}, impossible); r.failed == "" || r.skipped != "" {
		t.Errorf("must, a real kind demanded: skipped %q, failed %q, want failed", r.skipped, r.failed)
	}
	r = &recorder{TB: t}
	if must(r, &Farm{}, errors.New("broken")); r.failed == "" || r.skipped != "" {
		t.Errorf("must with another error: skipped %q, failed %q, want failed", r.skipped, r.failed)
	}
	r = &recorder{TB: t}
	if Skip(r, impossible, "the thing"); !strings.Contains(r.skipped, "NOT PROVEN: the thing") {
		t.Errorf("Skip: skipped %q, want what is not proven", r.skipped)
	}
}

const childEnv = "LOCKS_REDISTEST_CHILD"

// TestChild is what TestNothingIsLeft runs in another process.
func TestChild(t *testing.T) {
	end := os.Getenv(childEnv)
	if end == "" {
		t.Skip("runs in a process of its own only")
	}
	Shared(t)
	s := Own(t, Config{})
	if err := s.Freeze(t.Context()); err != nil { // a server that no polite signal would end
		t.Fatal(err)
	}
	fmt.Printf("child serves at %s\n", s.Addr())
	switch end {
	case "panic":
		panic("the child panics, as the test wants it")
	case "exit":
		os.Exit(3)
	}
	<-time.After(2 * time.Minute) // until it is killed
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{Docker, Process} {
		open(t, k)
		ends := []string{"panic", "exit", "interrupt", "kill"}
		if k == Docker {
			ends = ends[3:] // the pipe to the reaper ends in the same way
		}
		for _, end := range ends {
			t.Run(string(k)+"/"+end, func(t *testing.T) {
				t.Parallel()
				endChild(t, k, end)
			})
		}
	}
}

// endChild starts servers in a child, ends it in the given way and watches them go.
func endChild(t *testing.T, k Kind, end string) {
	tmp := t.TempDir()
	if signal.Ignored(os.Interrupt) { // by nohup, or a shell's &: then the child would ignore it, too
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
	child.Env = append(os.Environ(), childEnv+"="+end, "REDIS_KIND="+string(k), "REDIS_ADDRS=", "TMPDIR="+tmp)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	addr := ""
	lines := bufio.NewScanner(out)
	for addr == "" && lines.Scan() {
		_, addr, _ = strings.Cut(lines.Text(), "child serves at ")
	}
	if addr == "" {
		t.Fatalf("the child started no server: %v", child.Wait())
	}
	switch end {
	case "interrupt":
		err = child.Process.Signal(syscall.SIGINT)
	case "kill":
		err = child.Process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	// Its output ends with it: neither servers nor reaper have inherited the pipe, for
	// which "go test" would wait.
	ended := make(chan struct{})
	go func() {
		for lines.Scan() {
		}
		child.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("somebody keeps the child's output open")
	}
	// The reaper is a process, too, and waits for its turn on a busy machine.
	verdict.Eventually(t, "no server answers at "+addr, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	verdict.Eventually(t, "no temporary file is left", func() bool {
		entries, err := os.ReadDir(tmp)
		return err == nil && len(entries) == 0
	})
	if k != Docker {
		return
	}
	verdict.Eventually(t, "no container is left", func() bool {
		left, err := machine.Containers(t.Context(), strconv.Itoa(child.Process.Pid)+"-")
		return err == nil && len(left) == 0
	})
}

func TestFiles(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) { filesOf(t, f) })
}

// TestPublishedPorts covers engines whose network is not ours.
func TestPublishedPorts(t *testing.T) {
	t.Parallel()
	f := openNew(t, Docker)
	f.source.(*dockerSource).image.Engine.HostNet = false
	for name, test := range map[string]func(*testing.T, *Farm){"restart": killAndRestart, "files": filesOf} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

func filesOf(t *testing.T, f *Farm) {
	s := start(t, f, Config{})
	ctx := t.Context()
	_, err := s.Files(ctx)
	Skip(t, err, "what a server has on its disk")
	if err := s.Put(ctx, map[string][]byte{"../x": nil}); err == nil {
		t.Error("Put outside of the data directory = nil, want an error")
	}
	do(t, s, "SET", "k", "old")
	do(t, s, "SAVE")
	saved, err := s.Files(ctx)
	if err != nil || len(saved["dump.rdb"]) == 0 {
		t.Fatalf("files after SAVE = %d, %v, want dump.rdb", len(saved), err)
	}
	do(t, s, "SET", "k", "new")
	do(t, s, "SAVE")
	if s.Dead() || s.Frozen() {
		t.Error("a server that runs is said to be dead, or frozen")
	}
	if err := s.Freeze(ctx); err != nil || !s.Frozen() {
		t.Errorf("Freeze = %v, Frozen %v", err, s.Frozen())
	}
	if files, err := s.Files(ctx); err != nil || len(files["dump.rdb"]) == 0 {
		t.Errorf("files of a frozen server = %d, %v, want dump.rdb", len(files), err)
	}
	if err := s.Kill(ctx); err != nil || !s.Dead() || s.Frozen() {
		t.Errorf("Kill = %v, Dead %v, Frozen %v, want nil, true, false", err, s.Dead(), s.Frozen())
	}
	if err := s.Put(ctx, saved); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(ctx); err != nil || s.Dead() {
		t.Fatalf("Restart = %v, Dead %v", err, s.Dead())
	}
	if v, _ := redis.String(do(t, s, "GET", "k"), nil); v != "old" {
		t.Errorf("GET after the older files were put back = %q, want old", v)
	}
	if err := s.Put(ctx, map[string][]byte{"sub/dir/file": []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if files, err := s.Files(ctx); err != nil || string(files["sub/dir/file"]) != "x" {
		t.Errorf("what was put = %q, %v, want x", files["sub/dir/file"], err)
	}

	replica := start(t, f, Config{})
	peer, err := s.Peer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(peer)
	do(t, s, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
	do(t, replica, "REPLICAOF", host, port)
	limit, cancel := context.WithTimeout(ctx, machine.StartLimit)
	defer cancel()
	if err := machine.Poll(limit, func() (bool, error) {
		v, err := try(t, replica, patience, "GET", "k")
		return v != nil, err
	}); err != nil {
		t.Errorf("replication from %s: %v", peer, err)
	}
}
