//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Many runs of exec at a time: no two commands of a lock overlap while the server is killed, and a
// signal at any moment of the start ends all.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

var interrupts = flag.Int("interrupts", 16, "interrupt so many runs at their start")

var inFull = flag.Bool("full", false, "run 1000 commands under locks, not 40")

// TestExecStress: eight processes at a time run commands under three locks, while the
// server, which has each write in its append-only file before it answers, is killed and
// comes back. docs/learn/faults.md promises that no lock is lost by that; so no two commands of
// a lock may overlap, none may be lost or run twice, and each status must come back.
func TestExecStress(t *testing.T) {
	t.Parallel()
	const processes, locks = 8, 3
	runs, kills := 24, 2
	if *inFull {
		runs, kills = 1000, 8
	}
	s := redistest.Own(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	ctx, dir := t.Context(), t.TempDir()
	var names, logs [locks]string // each command writes when it begins, and ends
	for i := range names {
		names[i], logs[i] = newName(t), filepath.Join(dir, fmt.Sprint(i))
		redistest.Must(t, os.WriteFile(logs[i], nil, 0o600))
	}
	var next, done, refused, lost, attempts atomic.Int64
	var over sync.Map // attempts that lost their lock when they had begun
	progress := make(chan struct{}, runs)
	attempt := func(run int) (ended bool) {
		lock, id, want := run%locks, fmt.Sprintf("%d.%d", run, attempts.Add(1)), run%64
		c := toolFor(t, s, "exec", names[lock], "--ttl", "4s", "--grace", "1s", "--", "sh", "-c",
			`echo begin $1 $$ >>"$0"; echo end $1 $$ >>"$0"; exit $2`, logs[lock], id, fmt.Sprint(want))
		_, code := c.start().end()
		text, _ := os.ReadFile(logs[lock])
		begun := strings.Contains(string(text), "begin "+id+" ")
		switch {
		case code == want && strings.Contains(string(text), "end "+id+" "):
			return true
		case (code == exitUnavailable || code == exitLost) && !begun: // lost: while it started the command
			refused.Add(1)
			return false
		case code == exitLost && begun:
			lost.Add(1) // only if this machine is paused for long
			over.Store(id, true)
			return true
		}
		t.Errorf("run %s: exit %d, begun %v, want exit %d; it said\n%s", id, code, begun, want, c.errs)
		return true
	}
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			for ctx.Err() == nil {
				run := int(next.Add(1))
				if run > runs {
					return
				}
				for !attempt(run) {
				}
				done.Add(1)
				progress <- struct{}{}
			}
		})
	}
	for i := range kills {
		for int(done.Load()) < (i+1)*runs/(kills+1) {
			<-progress
		}
		redistest.Skip(t, s.Kill(ctx), "what commands under a lock do when the server dies")
		redistest.Must(t, s.Restart(ctx))
	}
	wg.Wait()

	begun := map[string]int{}
	for lock, log := range logs {
		text, err := os.ReadFile(log)
		redistest.Must(t, err)
		inside := "" // the attempt that has begun, and not ended
		for line := range strings.Lines(string(text)) {
			var what, id string
			var group int
			_, err := fmt.Sscan(line, &what, &id, &group)
			redistest.Must(t, err)
			if what == "end" {
				inside = ""
				continue
			}
			if _, ended := over.Load(inside); inside != "" && !ended {
				t.Errorf("run %s begins while run %s is under way", id, inside)
			}
			inside = id
			run, _, _ := strings.Cut(id, ".")
			begun[run]++
			if err := unix.Kill(-group, 0); !errors.Is(err, syscall.ESRCH) && !groupEnded(group)() {
				t.Errorf("there is still a process in group %d", group)
			}
		}
		verdict.Eventually(t, "the lock is free", func() bool {
			info := inspected(t, s, names[lock])
			return !info.Held && len(info.Queue) == 0
		})
	}
	for run := 1; run <= runs; run++ {
		if n := begun[fmt.Sprint(run)]; n != 1 {
			t.Errorf("run %d began %d times, want once", run, n)
		}
	}
	t.Logf("%d runs, %d kills of the server, %d attempts began no command, %d lost the lock", runs, kills, refused.Load(), lost.Load())
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
