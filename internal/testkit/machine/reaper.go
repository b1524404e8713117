package machine

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3/docker"

	"github.com/lockstrategies/locks/internal/child"
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
	if child.Run(reaperRole, reap) {
		os.Exit(0)
	}
}

const (
	reaperRole = "the servers' reaper"
	containers = "containers" // what the owner sends for them
)

// ThisRun is the value of Label on the containers of this process.
var ThisRun = fmt.Sprintf("%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))

// The reaper starts with the first thing to remove, and ends after its owner. Its process group is its own.
var theReaper = sync.OnceValues(func() (*child.Process, error) {
	r, err := child.Start(child.Config{Role: reaperRole, Job: ThisRun, CleansUp: true})
	var ready string
	if err == nil {
		err = r.Receive(context.Background(), &ready)
	}
	if err != nil {
		return nil, fmt.Errorf("the reaper, which cleans up behind a killed process, does not start: %w", err)
	}
	return r, nil
})

// ReaperPID is the reaper's number as a process; it is started if need be.
func ReaperPID() (int, error) {
	r, err := theReaper()
	if err != nil {
		return 0, err
	}
	return r.PID(), nil
}

// reapLater is called before there is anything to remove. The kernel has what was written, so it reaches the reaper
// even if its owner is killed now.
func reapLater(what string) error {
	r, err := theReaper()
	if err != nil {
		return err
	}
	return r.Send(what)
}

// reap is the reaper's life.
func reap(_ context.Context, owner *child.Parent, run string) error {
	// The owner's end may send them: the kernel sends SIGHUP to a group with a frozen server.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	leadGroup()
	os.Chdir(os.TempDir())                      //nolint:errcheck // or it keeps the owner's directory busy
	if err := owner.Send("ready"); err != nil { // before this, a signal would end the reaper
		return err
	}
	left := map[string]bool{}
	for what := ""; owner.Receive(&what) == nil; {
		left[what] = true
	}
	if left[containers] {
		delete(left, containers)
		removeContainersOf(run)
	}
	for dir := range left {
		os.RemoveAll(dir)
	}
	killGroup() // and so the reaper
	return nil
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
		all, _ := client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {Label + "=" + run}}, Context: ctx})
		for _, c := range all {
			removeContainer(context.WithoutCancel(ctx), client, c.ID) //nolint:errcheck // the next round tries again
		}
		time.Sleep(200 * time.Millisecond)
	}
}
