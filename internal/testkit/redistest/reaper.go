package redistest

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3/docker"
)

// A test that panics, calls os.Exit, is interrupted or killed runs no deferred function, and its
// servers would stay for ever. So a child process, the reaper, reads a pipe of which only its
// parent, the owner of the servers, has the other end. When the pipe ends, the owner is gone,
// and the reaper removes
//
//   - the directories whose names the owner has sent,
//   - the containers with the owner's label, if the owner has sent that there are any,
//   - the processes: they are in the reaper's process group.
//
// The reaper is this same program, started again: no other binary is sure to be there for a
// test. That takes a hook before main, and before the tests' own TestMain: an init function.
func init() {
	if run := os.Getenv(reaperEnv); run != "" {
		reap(run, os.Stdin, os.Stdout)
		os.Exit(0)
	}
}

const (
	reaperEnv  = "LOCKS_REDISTEST_REAPER" // the run to clean up behind
	containers = "containers"             // what the owner sends for them
)

// thisRun is the label by which the containers of this process differ from all others.
var thisRun = fmt.Sprintf("%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))

// The reaper starts with the first thing to remove, and ends after its owner.
var theReaper = sync.OnceValues(startReaper)

type reaper struct {
	pid  int // and its process group
	pipe io.WriteCloser
}

func startReaper() (*reaper, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), reaperEnv+"="+thisRun)
	cmd.Dir = os.TempDir() // keeps nobody's directory busy
	joinGroup(cmd, 0)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	ready, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		defer ready.Close()
		_, err = ready.Read(make([]byte, 1))
	}
	if err != nil {
		return nil, fmt.Errorf("redistest: the reaper, which cleans up behind a killed process, does not start: %w", err)
	}
	return &reaper{pid: cmd.Process.Pid, pipe: pipe}, nil
}

// reapContainers and reapDir are called before there is anything to remove. The kernel has what
// was written, so it reaches the reaper even if its owner is killed now.
func reapContainers() error { return reapLater(containers) }

func reapDir(dir string) error { return reapLater(dir) }

func reapLater(what string) error {
	r, err := theReaper()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(r.pipe, what+"\n"); err != nil {
		return fmt.Errorf("redistest: the reaper is gone: %w", err)
	}
	return nil
}

// reap is the reaper's life.
func reap(run string, in io.Reader, ready io.Writer) {
	// The owner's end may send them: the kernel sends SIGHUP to a group with a frozen server.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	fmt.Fprintln(ready) // before this, a signal would end the reaper
	left := map[string]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		left[lines.Text()] = true
	}
	if left[containers] {
		delete(left, containers)
		removeContainersOf(run)
	}
	for dir := range left {
		os.RemoveAll(dir)
	}
	killGroup() // and so the reaper
}

// removeContainersOf looks for some seconds: the engine may still be creating a container that
// the owner has ordered.
func removeContainersOf(run string) {
	client, err := dockerClient()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		all, _ := client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {label + "=" + run}}, Context: ctx})
		for _, c := range all {
			removeContainer(context.WithoutCancel(ctx), client, c.ID) //nolint:errcheck // the next round tries again
		}
		time.Sleep(200 * time.Millisecond)
	}
}
