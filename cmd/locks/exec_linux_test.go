// Tests that the kernel ends the command when both exec and its watcher are gone.
package main

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// moveVar makes the program leave its main thread first, as the scheduler of a busy machine may have it.
const moveVar = "LOCKS_TEST_MOVE"

func init() {
	if os.Getenv(moveVar) != "" {
		program = leaveMainThread
	}
}

// leaveMainThread goes on in main on another thread, unless main is locked to its thread.
func leaveMainThread() {
	for range 100 {
		taken := make(chan bool)
		go func() {
			runtime.LockOSThread()
			main := unix.Gettid() == os.Getpid()
			taken <- main
			if main {
				select {}
			}
			runtime.UnlockOSThread()
		}()
		if <-taken {
			break
		}
	}
	main()
}

// TestExecWatcherKilled: with exec and its watcher gone the command itself gets a signal, whatever
// threads the scheduler had the starter run on.
func TestExecWatcherKilled(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	// In a loop: a signal that comes just before the shell's wait would be noticed only after it.
	c := toolFor(t, s, "exec", name, "--", "sh", "-c", "trap 'echo told; exit' TERM; echo $$; while :; do sleep 0.1; done")
	c.Env = append(c.Env, moveVar+"=1")
	c.start().number()
	watcher := watcherOf(c.Process.Pid)
	if watcher == 0 {
		t.Fatal("there is no watcher")
	}
	c.kill(syscall.SIGSTOP) // or it would start another
	syscall.Kill(watcher, syscall.SIGKILL)
	c.kill(syscall.SIGKILL)
	if out, _ := c.end(); out != "told\n" {
		t.Errorf("the command said %q, want that it got the signal", out)
	}
}
