//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests many runs of exec at a time: no two commands of a lock overlap, and a signal at any moment of the start ends all.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

var interrupts = flag.Int("interrupts", 16, "interrupt so many runs at their start")

// TestExecStress: eight processes at a time run commands under three locks. No two commands of a lock overlap, each runs once, and
// each status comes back.
func TestExecStress(t *testing.T) {
	t.Parallel()
	s, dir := redistest.Shared(t), t.TempDir()
	names := []string{newName(t), newName(t), newName(t)}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for run := next.Add(1); run <= 24; run = next.Add(1) {
				lock := int(run) % len(names)
				c := toolFor(t, s, "exec", names[lock], "--", "sh", "-c", `mkdir "$0" && rmdir "$0" && echo ran && exit $1`,
					filepath.Join(dir, fmt.Sprint(lock)), fmt.Sprint(100+run))
				if out := c.start().wantEnd(100 + int(run)); out != "ran\n" {
					t.Errorf("run %d prints %q, want that it ran, and alone", run, out)
				}
			}
		})
	}
	workers.Wait()
	for _, name := range names {
		if info := inspected(t, s, name); info.Held || len(info.Queue) > 0 {
			t.Errorf("%s is left: %+v", name, info)
		}
	}
}

// TestExecInterruptedAtOnce: whenever the signal comes, exec, its watcher and the command end, and no
// lock is left behind.
func TestExecInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	var begun, waiting, before, commands atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			measured := toolFor(t, s, "exec", newName(t), "--", "echo")
			start := time.Now()
			measured.start().line()
			usual := time.Since(start) // until the command has begun
			measured.end()
			for begun.Add(1) <= int64(*interrupts) && !t.Failed() {
				name, after := newName(t), rand.N(usual*3/2)
				c := toolFor(t, s, "exec", name, "--ttl", "10m", "--", "sh", "-c", "echo; exec sleep 3600").start()
				<-time.After(after)
				c.kill(syscall.SIGTERM)
				out, code := c.end() // also of those that have its output, which are all that it has started
				switch {
				case code == -1:
					before.Add(1)
				case code != 143:
					t.Errorf("after %v: exit %d, want 143; %s", after, code, c.errs)
				case out != "":
					commands.Add(1)
				default:
					waiting.Add(1)
				}
				wantFree(t, s, name)
			}
		})
	}
	workers.Wait()
	t.Logf("%d runs: SIGTERM came before the program listened %d times, before the command had begun %d times, later %d times",
		*interrupts, before.Load(), waiting.Load(), commands.Load())
}
