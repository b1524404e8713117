//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests parts of exec alone, for what a run as a process shows on one side only: how it ends, what it says, what the
// command finds in its environment, and that what was granted goes if the command does not start.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// ending is a lease that is released with an error.
type ending struct {
	strategy.Lease
	err error
}

func (l ending) Release(context.Context) error { return l.err }

// TestExecRelease: a loss counts where the command would have counted as a success, but for a deadline that came only
// while exec was about to release the lock. Else the command's status counts.
func TestExecRelease(t *testing.T) {
	missing, lapsed := &strategy.LostError{Name: "n"}, &strategy.LostError{Name: "n", Lapsed: true}
	unknown := &strategy.ServerError{Node: "a:1", Kind: strategy.ErrUnknown}
	const unconfirmed = "warning: the release of the lock was not confirmed: "
	for _, tt := range []struct {
		release error
		lost    error
		status  int
		want    int
		says    string
		ends    string // the error's words
	}{
		{nil, nil, 0, 0, "", ""},
		{nil, nil, 7, 7, "", ""},
		{missing, nil, 0, exitLost, "", "the command has succeeded, but "},
		{missing, nil, 5, 5, unconfirmed, ""},
		{lapsed, nil, 0, 0, unconfirmed, ""},
		{lapsed, nil, 5, 5, unconfirmed, ""},
		{unknown, nil, 0, 0, unconfirmed, ""},
		{unknown, nil, 5, 5, unconfirmed, ""},
		{nil, missing, 0, exitLost, "", ""},
		{missing, missing, 7, exitLost, "", ""},
		{unknown, lapsed, 7, exitLost, "", ""},
	} {
		var said lockedBuffer
		e := &execution{name: "n", said: newTeller(&said)}
		err := e.release(ending{err: tt.release}, tt.status, tt.lost)
		e.said.end()
		var end *cli.Exit
		if !errors.As(err, &end) || end.Status != tt.want || (end.Err == nil) != (tt.ends == "") || end.Err != nil && !strings.HasPrefix(end.Err.Error(), tt.ends) {
			t.Errorf("release = %v, with the status %d and the loss %v: exec ends with %v, want %d, %q", tt.release, tt.status, tt.lost, err, tt.want, tt.ends)
		}
		if !strings.Contains(said.String(), tt.says) || (said.String() == "") != (tt.says == "") {
			t.Errorf("release = %v, with the status %d and the loss %v: it says %q, want %q", tt.release, tt.status, tt.lost, &said, tt.says)
		}
	}
}

// TestExecHears: a renewal that fails is news once, until one succeeds. The watcher learns of each that succeeds, unless
// the command is being ended.
func TestExecHears(t *testing.T) {
	var said lockedBuffer
	r, w, err := os.Pipe()
	redistest.Must(t, err)
	defer r.Close()
	j := newJob(0, lapsed{deadline: time.Now().Add(time.Hour)}, &said)
	j.watcher.pipe = w
	fails := strategy.Event{Kind: strategy.EventRenewalFailed, Err: errors.New("why")}
	renewed := strategy.Event{Kind: strategy.EventRenewed}
	for _, n := range []strategy.Event{renewed, fails, fails, renewed, renewed, fails, renewed} {
		j.hear(n)
	}
	j.ending = true
	j.hear(renewed)
	w.Close()
	j.e.said.end()
	const news = "locks: warning: the lock cannot be renewed, and is held for 1h0m0s more: why\nlocks: the lock is renewed again\n"
	if times := regexp.MustCompile(`59m59\.\d+s`).ReplaceAllString(said.String(), "1h0m0s"); times != news+news {
		t.Errorf("it says\n%swant two warnings, and after each that the lock is renewed again", &said)
	}
	left, err := io.ReadAll(r)
	if err != nil || !regexp.MustCompile(`^(left (3600000|3599\d\d\d)\n){4}$`).Match(left) {
		t.Errorf("the watcher hears %q, want four times what is left of an hour", left)
	}
}

// TestExecObserves: who reports an event does not wait, though nobody listens.
func TestExecObserves(t *testing.T) {
	e := &execution{name: "n", said: newTeller(io.Discard), news: make(chan strategy.Event, 16), who: make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 100 {
			for _, kind := range []strategy.EventKind{strategy.EventRenewed, strategy.EventRenewalFailed, strategy.EventHeld, strategy.EventAttempt, strategy.EventUndoFailed} {
				e.observe(strategy.Event{Kind: kind, Err: strategy.ErrHeld})
			}
		}
	}()
	within(t, "observe does not wait", over)
	if len(e.news) != cap(e.news) || len(e.who) != 1 {
		t.Errorf("%d renewals and %d holders are kept, want the first 16, and one", len(e.news), len(e.who))
	}
}

// attempts is a lock whose first attempt fails, and for which one then waits.
type attempts struct {
	strategy.Lock
	first, then error
	waited      bool
}

func (l *attempts) TryAcquire(context.Context) (strategy.Lease, error) { return nil, l.first }
func (l *attempts) Acquire(context.Context) (strategy.Lease, error) {
	l.waited = true
	return nil, l.then
}

// TestExecWaits: for a lock that is held, and for a grant that came too late; for a server with --wait alone. If the time of --wait is
// over before exec can ask again, the first answer counts.
func TestExecWaits(t *testing.T) {
	held, lost, away := error(&strategy.HeldError{Name: "n"}), error(&strategy.LostError{Name: "n"}), error(&strategy.ServerError{Kind: strategy.ErrUnsent})
	over := context.DeadlineExceeded
	for _, tt := range []struct {
		first         error
		wait          time.Duration
		try, failFast bool
		then          error // nil: it does not wait
		want          error
	}{
		{first: held, then: strategy.ErrClosed, want: strategy.ErrClosed}, {first: held, wait: time.Hour, failFast: true, then: over, want: held},
		{first: held, try: true, want: held},
		{first: lost, then: over, want: lost}, {first: lost, wait: time.Hour, then: over, want: lost}, {first: lost, try: true, want: lost},
		{first: away, want: away}, {first: away, try: true, want: away}, {first: away, wait: time.Hour, failFast: true, want: away},
		{first: away, wait: time.Hour, then: over, want: away},
		{first: held, wait: time.Hour, then: errors.Join(away, over), want: away},
		{first: away, wait: time.Hour, then: errors.Join(held, over), want: held},
	} {
		e := &execution{name: "n", said: newTeller(io.Discard), wait: tt.wait, try: tt.try, failFast: tt.failFast, until: time.Now().Add(tt.wait), who: make(chan error, 1)}
		l := &attempts{first: tt.first, then: tt.then}
		_, err := e.await(t.Context(), l)
		if l.waited != (tt.then != nil) {
			t.Errorf("after %v, with wait %v, try %t, fail-fast %t: it waits: %t", tt.first, tt.wait, tt.try, tt.failFast, l.waited)
		}
		for _, answer := range []error{held, lost, away, strategy.ErrClosed} {
			if errors.Is(err, answer) != (answer == tt.want) {
				t.Errorf("after %v and %v exec ends with %v, want %v", tt.first, tt.then, err, tt.want)
			}
		}
	}
}

// TestExecNotAcquired: a signal comes before all, then that another holds the lock, also where the wait is over.
func TestExecNotAcquired(t *testing.T) {
	signalled, cancel := context.WithCancelCause(t.Context())
	why := &cli.Interrupted{Signal: syscall.SIGTERM}
	cancel(why)
	held, down := error(&strategy.HeldError{Name: "n"}), error(&strategy.ServerError{Kind: strategy.ErrUnsent})
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want int // 0: the signal's
	}{
		{t.Context(), held, 3},
		{t.Context(), errors.Join(held, context.DeadlineExceeded), 3},
		{t.Context(), down, exitUnavailable},
		{t.Context(), errors.Join(down, context.DeadlineExceeded), exitUnavailable},
		{signalled, errors.Join(held, why), 0},
		{signalled, errors.Join(down, why), 0},
	} {
		e := &execution{name: "n", conflict: 3, said: newTeller(io.Discard)}
		err := e.notAcquired(tt.ctx, tt.err)
		var end *cli.Exit
		if got := errors.As(err, &end); got != (tt.want != 0) || got && end.Status != tt.want || tt.want == 0 && !errors.Is(err, why) {
			t.Errorf("after %v, signalled: %t, exec ends with %v, want the status %d", tt.err, tt.ctx == signalled, err, tt.want)
		}
	}
}

// TestWhoHolds: for how long is said where the key has an expiry.
func TestWhoHolds(t *testing.T) {
	for ttl, want := range map[time.Duration]string{
		1234567 * time.Microsecond: `lock "n" is held, for 1.235s unless renewed`, 0: `lock "n" is held`, -time.Nanosecond: `lock "n" is held`,
	} {
		if got := whoHolds(&strategy.HeldError{Name: "n", TTL: ttl}).Error(); got != want {
			t.Errorf("with a TTL of %v it says %q, want %q", ttl, got, want)
		}
	}
}

// elsewhere is a lease as a process in another time zone sees it.
type elsewhere struct {
	strategy.Lease
	fence uint64
}

func (l elsewhere) Token() string         { return "a token" }
func (l elsewhere) Fence() (uint64, bool) { return l.fence, l.fence > 0 }
func (l elsewhere) Deadline() time.Time {
	return time.Date(2026, 1, 2, 8, 49, 5, 678_999_999, time.FixedZone("Asia/Kathmandu", 5*3600+45*60))
}

// TestExecEnvironmentOfAnother: nothing is left of an exec around this one, whatever that had, and the deadline is UTC. The
// variables that say how to reach Redis stay, or go with --no-redis-env.
func TestExecEnvironmentOfAnother(t *testing.T) {
	for _, name := range []string{"LOCKS_NAME", "LOCKS_TOKEN", "LOCKS_FENCE", "LOCKS_DEADLINE", "LOCKS_NAMES", "REDIS_OTHER", redisVar} {
		t.Setenv(name, "others'")
	}
	private := []string{"REDIS_PASSWORD=", "REDIS_TLS_CA=", "REDIS_TLS_CERT=", "REDIS_TLS_KEY=", "REDIS_TLS_SERVER_NAME=", "REDIS_URL=others'", "REDIS_USER="}
	for _, v := range private {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	for fence, want := range map[uint64][]string{
		0: {"LOCKS_DEADLINE=2026-01-02T03:04:05.678Z", "LOCKS_NAME=n", "LOCKS_NAMES=others'", "LOCKS_TOKEN=a token", "REDIS_OTHER=others'"},
		7: {"LOCKS_DEADLINE=2026-01-02T03:04:05.678Z", "LOCKS_FENCE=7", "LOCKS_NAME=n", "LOCKS_NAMES=others'", "LOCKS_TOKEN=a token", "REDIS_OTHER=others'"},
	} {
		if fence == 0 {
			want = append(want, private...)
		}
		var found []string
		others := 0
		for _, v := range (&execution{name: "n", noRedisEnv: fence > 0}).environment(elsewhere{fence: fence}) {
			if strings.HasPrefix(v, "LOCKS_") && !strings.HasPrefix(v, "LOCKS_TEST_") || slices.Contains(private, v) || strings.HasPrefix(v, "REDIS_OTHER=") {
				found = append(found, v)
			} else {
				others++
			}
		}
		slices.Sort(found)
		slices.Sort(want)
		if !slices.Equal(found, want) || others < len(os.Environ())-len(private)-6 {
			t.Errorf("the environment has %q, and %d others of %d, want %q and the others", found, others, len(os.Environ()), want)
		}
	}
}

// lostVar makes the program an exec whose lease is lost as soon as it is granted. Its value says when exec finds that:
// "before" it looks for signals, or when the watcher is there and the command is "next". With "never" the lease is kept, and
// no process can be made of the command.
const lostVar = "LOCKS_TEST_LOST"

func init() {
	if os.Getenv(lostVar) != "" {
		program = loseBeforeTheStart
	}
}

// kept is a lease whose loss nobody notices at first.
type kept struct{ strategy.Lease }

func (kept) KeepAlive(time.Duration) error { return nil }

func loseBeforeTheStart() {
	if os.Args[1] != "exec" { // the watcher, or the starter
		main()
		return
	}
	cli.Main(&cobra.Command{Use: "exec", SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs, RunE: cli.Does(func(cmd *cobra.Command) error {
		var server lockstest.Memory
		locks, err := engine.New(&server, strategy.Options{})
		if err != nil {
			return err
		}
		ctx := context.Background()
		lease, err := locks.NewLock("n").TryAcquire(ctx)
		if err != nil {
			return err
		}
		e := execution{name: "n", command: []string{"sh", "-c", "echo ran"}, said: newTeller(os.Stderr)}
		if e.marked, err = locks.NewLock("n" + markSuffix).TryAcquire(ctx); err != nil {
			return err
		}
		if os.Getenv(lostVar) == "never" {
			e.command = append(e.command, "a\x00b")
		} else {
			server.Evict(ctx, "lock:{n}")
			if err := lease.Extend(ctx); !errors.Is(err, strategy.ErrLost) {
				return err
			}
		}
		if os.Getenv(lostVar) == "next" {
			lease = kept{lease}
		}
		err = e.hold(cmd.Context(), lease, "/bin/sh")
		for _, name := range []string{"n", "n" + markSuffix} {
			if info, inspected := locks.Inspect(ctx, name); inspected != nil || info.Held {
				e.say("%s is left: %v", name, inspected)
			}
		}
		e.said.end()
		return err
	})})
}

// TestExecNotStarted: a hold that is lost between the grant and the command, or a command that cannot begin: the command
// does not begin, the lock is free, and the mark of --at-least goes.
func TestExecNotStarted(t *testing.T) {
	t.Parallel()
	for lost, want := range map[string]struct {
		status     int
		says, ends string
	}{
		"before": {exitLost, "locks: lock \"n\": lost: the key is gone", ""},
		"next":   {exitLost, "locks: lock \"n\": lost: the key is gone; the command was not started", ""},
		"never":  {exitNotExecutable, "exec: sh: ", ": invalid argument"},
	} {
		c := toolFor(t, nil, "exec")
		c.Env = append(c.Env, lostVar+"="+lost)
		out := c.start().wantEnd(want.status, want.says)
		if said := c.errs.String(); out != "" || !strings.HasPrefix(said, want.says) || !strings.HasSuffix(said, want.ends+"\n") || strings.Count(said, "\n") != 1 {
			t.Errorf("lost %s: the command says %q, exec %q, want nothing, and %q … %q alone", lost, out, said, want.says, want.ends)
		}
	}
}

// TestExecSignalledBeforeTheStart: a signal between the grant and the command: the lock and the mark of --at-least go.
func TestExecSignalledBeforeTheStart(t *testing.T) {
	locks := lockstest.New(t)
	taken := func(name string) strategy.Lease {
		lease, err := locks.NewLock(name).TryAcquire(t.Context())
		redistest.Must(t, err)
		return lease
	}
	started := filepath.Join(t.TempDir(), "started")
	e := execution{name: "n", said: newTeller(io.Discard), command: []string{"touch", started}, marked: taken("n" + markSuffix)}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := &cli.Interrupted{Signal: syscall.SIGTERM}
	cancel(why)
	if err := e.hold(ctx, taken("n"), "/usr/bin/touch"); !errors.Is(err, why) {
		t.Errorf("hold = %v, want %v", err, why)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the command was started")
	}
	locks.AssertFree()
}

// TestExecLabel: inspect shows the label, the host and the process, of the lock and of the mark of --at-least. The mark and
// its counter stay for their own times. -E is also the status of an exec that finds the mark.
func TestExecLabel(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := hold(t, s, 0, name, "--label", "by cron", "--at-least", "1h")
	want := strategy.ThisProcess("by cron")
	want.PID = c.Process.Pid
	for _, lock := range []string{name, name + markSuffix} {
		if holder, ok := inspected(t, s, lock).Holder(); !ok || holder != want {
			t.Errorf("the holder of %s is %+v, want %+v", lock, holder, want)
		}
	}
	counter := redistest.Do(t, s, "PTTL", strategy.DefaultKey(name+markSuffix)+":fence").(int64)
	if keeps := time.Duration(counter) * time.Millisecond; keeps <= time.Hour || keeps > 2*time.Hour {
		t.Errorf("the counter of the mark stays for %v, want what is left of 2h", keeps)
	}
	c.in.Close()
	c.wantEnd(0)
	toolFor(t, s, "exec", name, "--at-least", "1h", "-E", "3", "--", "echo", "ran").start().wantEnd(3, markSuffix+"\" is held by ")
	wantFree(t, s, name)
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name+markSuffix))
}

// TestExecPipeSignal: a SIGPIPE is exec's own: it neither ends exec nor reaches the command.
func TestExecPipeSignal(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--", "sh", "-c", `exec 2>&-; trap 'echo pipe' PIPE; trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo ready; while :; do sleep 0.05; done`).start()
	c.line()
	c.kill(syscall.SIGPIPE)
	for _, next := range []struct {
		signal syscall.Signal
		says   string
	}{{syscall.SIGUSR1, "usr1"}, {syscall.SIGUSR2, "usr2"}} { // exec takes them one after the other
		c.kill(next.signal)
		if line := c.line(); line != next.says {
			t.Errorf("the command says %q, want %q", line, next.says)
		}
	}
	c.wantEnd(0)
}

// TestExecGrace: a command that ends within the grace is not killed, and gets signals until then. The next holder keeps the
// lock.
func TestExecGrace(t *testing.T) {
	t.Parallel()
	s, name := redistest.Shared(t), newName(t)
	c := toolFor(t, s, "exec", name, "--ttl", "12s", "--grace", "1m", "--", "sh", "-c",
		`trap 'echo told' TERM; trap 'sleep 1.5; echo saved; exit' INT; echo $$; while :; do sleep 0.05; done`).start()
	c.number()
	redistest.Do(t, s, "SET", strategy.DefaultKey(name), "another", "KEEPTTL")
	if line := c.line(); line != "told" {
		t.Errorf("the command said %q, want that it got SIGTERM", line)
	}
	c.kill(syscall.SIGINT)
	if out := c.wantEnd(76, "now held by", "ending the command: SIGTERM, and after 1m0s SIGKILL"); out != "saved\n" {
		t.Errorf("the command said %q, want that it had the time to save its work", out)
	}
	if !inspected(t, s, name).Held {
		t.Error("the next holder has lost the lock")
	}
	redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
}
