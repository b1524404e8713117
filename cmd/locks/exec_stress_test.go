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

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

var interrupts = flag.Int("interrupts", 16, "interrupt so many runs at their start")

var inFull = flag.Bool("full", false, "run 1000 commands under locks, not 40")

// sectionVar makes the test binary the command that must not run twice at a time: its
// value is "directory/lock run status".
const sectionVar = "LOCKS_TEST_SECTION"

const overlapped = 99

func init() { other = section }

// section ends with the status, or with overlapped. The file is locked by the kernel, so
// that it is free when the process is dead, however it died.
func section() {
	if os.Getenv(sectionVar) == "" {
		return
	}
	var file, run string
	var status int
	if _, err := fmt.Sscan(os.Getenv(sectionVar), &file, &run, &status); err != nil {
		panic(err)
	}
	note := func(what string) {
		log, err := os.OpenFile(file+".log", os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(log, "%s %s %d\n", what, run, unix.Getpgrp())
		log.Close()
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	note("begin")
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		os.Exit(overlapped)
	}
	note("end")
	os.Exit(status)
}

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
	ctx := t.Context()
	dir := t.TempDir()
	var names [locks]string
	for i := range names {
		names[i] = newName(t)
	}

	var next, done, refused, lost, attempts atomic.Int64
	progress := make(chan struct{}, runs)
	var wg sync.WaitGroup
	attempt := func(run int) (ended bool) {
		lock, id := run%locks, fmt.Sprintf("%d.%d", run, attempts.Add(1))
		want := run % 64
		c := clitest.Command(t, "exec", names[lock], "--ttl", "4s", "--grace", "1s", "--", "env", "-u", clitest.MainVar)
		c.Env = append(c.Env, redisVar+"="+s.URL(), fmt.Sprintf("%s=%s %s %d", sectionVar, filepath.Join(dir, fmt.Sprint(lock)), id, want))
		c.Args = append(c.Args, c.Path) // which is the section, if it is not the tool
		out, err := c.CombinedOutput()
		text, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(lock)) + ".log")
		begun := strings.Contains(string(text), "begin "+id+" ")
		over := strings.Contains(string(text), "end "+id+" ")
		switch code := c.ProcessState.ExitCode(); {
		case code == want && over:
			return true
		case (code == exitUnavailable || code == exitLost) && !begun: // lost: while it started the command
			refused.Add(1)
			return false
		case code == exitLost && begun:
			lost.Add(1) // only if this machine is paused for long
			return true
		case code == overlapped:
			t.Errorf("run %s overlaps another", id)
		default:
			t.Errorf("run %s: %v, begun %v, ended %v, want exit %d; it said\n%s", id, err, begun, over, want, out)
		}
		return true
	}
	for range processes {
		wg.Add(1)
		go func() {
			defer wg.Done()
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
		}()
	}
	for i := range kills {
		for int(done.Load()) < (i+1)*runs/(kills+1) {
			<-progress
		}
		redistest.Skip(t, s.Kill(ctx), "what commands under a lock do when the server dies")
		if err := s.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()

	begun, groups := map[string]int{}, map[int]bool{}
	for lock := range locks {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(lock)) + ".log")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var what, id string
			var group int
			if _, err := fmt.Sscan(line, &what, &id, &group); err != nil {
				t.Fatal(err)
			}
			if what == "begin" {
				run, _, _ := strings.Cut(id, ".")
				begun[run]++
				groups[group] = true
			}
		}
	}
	for run := 1; run <= runs; run++ {
		if n := begun[fmt.Sprint(run)]; n != 1 {
			t.Errorf("run %d began %d times, want once", run, n)
		}
	}
	for group := range groups {
		if err := unix.Kill(-group, 0); !errors.Is(err, syscall.ESRCH) && !groupEnded(group)() {
			t.Errorf("there is still a process in group %d", group)
		}
	}
	for _, name := range names {
		verdict.Eventually(t, "the lock is free", func() bool {
			info := inspected(t, s, name)
			return !info.Held && len(info.Queue) == 0
		})
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
