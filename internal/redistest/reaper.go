package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ory/dockertest/v3/docker"
)

const (
	reaperEnv = "LOCKS_REDISTEST_REAPER"
	reapLimit = 30 * time.Second
)

// A test that panics, calls os.Exit, is interrupted or killed runs no deferred
// function, and its servers would stay for ever. So a child process, the reaper, is
// told of everything that has to go away, and reads the pipe that only its parent holds
// the other end of: when that ends, the parent is gone, however it went.
//
// The reaper is this same program, started again: no other binary can be counted on to
// be there for a test. That takes a hook before main, and before the tests' own
// TestMain, which is why this is an init function. The environment variable that guards
// it is set for the reaper alone.
func init() {
	if os.Getenv(reaperEnv) == "1" {
		reap(os.Stdin)
		os.Exit(0)
	}
}

// reaper is the parent's view of it.
type reaper struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	pipe io.WriteCloser
}

func startReaper() (*reaper, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), reaperEnv+"=1")
	// No output, and none inherited: "go test" waits until everybody has closed its pipes.
	cmd.Stdout, cmd.Stderr = nil, nil
	cmd.Dir = os.TempDir() // keeps nobody's directory busy
	detach(cmd)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &reaper{cmd: cmd, pipe: pipe}, nil
}

// add and remove send one line each: a sign, a class and its fields. Once written, a
// line is in the kernel's hands and reaches the reaper even if we are killed now.
func (r *reaper) add(what ...string) error { return r.send("+", what) }

// remove has no error to tell: a reaper that is gone needs not forget.
func (r *reaper) remove(what ...string) { _ = r.send("-", what) }

func (r *reaper) send(sign string, what []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(r.pipe, sign+strings.Join(what, "\t")+"\n"); err != nil {
		return fmt.Errorf("redistest: the reaper is gone: %w", err)
	}
	return nil
}

// close lets the reaper remove what is left, and waits for it.
func (r *reaper) close() error {
	r.mu.Lock()
	r.pipe.Close()
	r.mu.Unlock()
	late := time.AfterFunc(reapLimit+5*time.Second, func() { r.cmd.Process.Kill() })
	defer late.Stop()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("redistest: reaper: %w", err)
	}
	return nil
}

// reap is the reaper's life.
func reap(in io.Reader) {
	left := map[string]bool{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if what := lines.Text(); strings.HasPrefix(what, "+") {
			left[what[1:]] = true
		} else if what != "" {
			delete(left, what[1:])
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), reapLimit)
	defer cancel()
	var wg sync.WaitGroup
	var dirs []string
	for what := range left {
		switch f := strings.Split(what, "\t"); {
		case f[0] == "container" && len(f) == 2:
			wg.Go(func() { reapContainer(ctx, f[1]) })
		case f[0] == "process" && len(f) == 3:
			reapProcess(f[1], f[2])
		case f[0] == "dir" && len(f) == 2:
			dirs = append(dirs, f[1])
		}
	}
	wg.Wait()
	for _, d := range dirs { // after the processes that write into them
		pollUntil(ctx, func() (bool, error) { return os.RemoveAll(d) == nil, nil })
	}
}

// reapContainer removes the container of that name. Its parent may have died between
// announcing it and hearing from the engine, which may then still be creating it: so not
// finding it is believed only after a while.
func reapContainer(ctx context.Context, name string) {
	pool, err := dockerPool()
	if err != nil {
		return
	}
	patience := time.Now().Add(5 * time.Second)
	pollUntil(ctx, func() (bool, error) {
		err := removeContainer(ctx, pool.Client, name)
		return err == nil || isMissing(err) && time.Now().After(patience), nil
	})
}

func removeContainer(ctx context.Context, client *docker.Client, name string) error {
	return client.RemoveContainer(docker.RemoveContainerOptions{ID: name, Force: true, RemoveVolumes: true, Context: ctx})
}

func isMissing(err error) bool {
	var none *docker.NoSuchContainer
	var answer *docker.Error
	return errors.As(err, &none) || errors.As(err, &answer) && answer.Status == http.StatusNotFound
}

// reapProcess kills the process, unless the number has gone to another one since.
func reapProcess(pid, birth string) {
	n, err := strconv.Atoi(pid)
	if err != nil || birthOf(n) != birth {
		return
	}
	if p, err := os.FindProcess(n); err == nil {
		p.Kill()
	}
}

// birthOf tells processes apart that had the same number: the time of its start, where
// the system tells it in /proc, and "" elsewhere.
func birthOf(pid int) string {
	f := procStat(pid)
	if len(f) < 20 {
		return ""
	}
	return f[19] // field 22 of proc_pid_stat(5): starttime
}

// procStat returns the fields of /proc/pid/stat from the third, the state, on. The second
// is a name that may itself contain blanks and parentheses.
func procStat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := string(b)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// awaitStopped returns once the process has come to a stop: the kernel stops its
// threads a little after it has taken the signal. Where there is no /proc it returns
// at once.
func awaitStopped(ctx context.Context, pid int) error {
	limit, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("it does not stop"))
	defer cancel()
	return pollUntil(limit, func() (bool, error) {
		f := procStat(pid)
		return len(f) == 0 || f[0] == "T" || f[0] == "Z", nil
	})
}
