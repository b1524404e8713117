package redistest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// embeddedSource has miniredis, an imitation written in Go.
type embeddedSource struct{}

func (embeddedSource) kind() Kind { return Embedded }

func (embeddedSource) describe() string {
	return "EMBEDDED miniredis, an imitation of Redis: NOT PROVEN are real Redis' behaviour in detail, its Lua, " +
		"expiry to the millisecond, eviction, persistence, replication, freezing"
}

func (embeddedSource) start(_ context.Context, c Config, _ int) (machine, error) {
	if len(c.Args) > 0 {
		return nil, fmt.Errorf("redistest: miniredis takes no arguments (%s): %w", strings.Join(c.Args, " "), ErrImpossible)
	}
	if c.Files != nil {
		return nil, fmt.Errorf("redistest: miniredis keeps no files: %w", ErrImpossible)
	}
	m := &embeddedMachine{c: c, refusal: "miniredis has no files and no peers"}
	if err := m.run(loopback + ":0"); err != nil {
		return nil, err
	}
	return m, nil
}

// An embeddedMachine is this same program, started again, as the reaper is. In the process of the
// tests it would answer late: Go looks for what has arrived only every 10 ms while the tests keep
// its processors busy.
type embeddedMachine struct {
	c    Config
	addr string
	refusal

	cmd *exec.Cmd // nil: it is dead
	in  io.WriteCloser

	mu  sync.Mutex // held while it is asked for the calls
	out *bufio.Reader
}

const embeddedEnv = "LOCKS_REDISTEST_EMBEDDED" // the URL at which to serve

func init() {
	if at := os.Getenv(embeddedEnv); at != "" {
		if err := serveEmbedded(at, os.Stdin, os.Stdout); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(0)
	}
}

// serveEmbedded is the life of an embedded server: it tells its address, answers each line with the
// calls until then, and ends with its input, and so with its owner.
func serveEmbedded(at string, in io.Reader, out io.Writer) error {
	u, err := url.Parse(at)
	if err != nil {
		return err
	}
	r := miniredis.NewMiniRedis()
	r.ClockTTL(true) // or its clock is stopped: keys would never expire
	if password, ok := u.User.Password(); ok && u.User.Username() != "" {
		r.RequireUserAuth(u.User.Username(), password)
	} else if ok {
		r.RequireAuth(password)
	}
	if err := r.StartAddr(u.Host); err != nil {
		return err
	}
	var mu sync.Mutex
	count := map[string]int64{}
	r.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		mu.Lock()
		defer mu.Unlock()
		count[strings.ToLower(cmd)]++
		return false
	})
	fmt.Fprintln(out, r.Addr())
	for lines := bufio.NewScanner(in); lines.Scan(); {
		mu.Lock()
		err := json.NewEncoder(out).Encode(count)
		mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// run starts it, empty as a real one without persistence.
func (m *embeddedMachine) run(addr string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), embeddedEnv+"="+m.c.url(addr))
	cmd.Dir = os.TempDir() // keeps nobody's directory busy
	joinGroup(cmd, 0)
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cmd, m.in, m.out = cmd, in, bufio.NewReader(out)
	said, err := m.out.ReadString('\n')
	if said = strings.TrimSpace(said); err != nil || strings.HasPrefix(said, "error:") {
		m.end()
		return fmt.Errorf("redistest: miniredis does not start: %s (%v)", said, err)
	}
	m.addr = said
	return nil
}

func (m *embeddedMachine) calls() (calls map[string]int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err = io.WriteString(m.in, "calls\n"); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	line, err := m.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &calls)
	}
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return calls, nil
}

func (m *embeddedMachine) url() string                  { return m.c.url(m.addr) }
func (m *embeddedMachine) failed(context.Context) error { return nil }

func (m *embeddedMachine) kill(context.Context) error {
	m.end()
	return nil
}

// end ends the process, whose status says nothing: it was killed.
func (m *embeddedMachine) end() {
	m.cmd.Process.Kill() //nolint:errcheck // it may be dead
	m.cmd.Wait()         //nolint:errcheck // it was killed
	m.in.Close()
	m.cmd = nil
}

func (m *embeddedMachine) restart(context.Context) error { return m.run(m.addr) }

func (m *embeddedMachine) remove(ctx context.Context) error {
	if m.cmd == nil {
		return nil
	}
	return m.kill(ctx)
}
