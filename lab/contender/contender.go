// Package contender is a client of the locks in a process of its own, which is steered step by
// step, and can be paused, thawed and killed. All that it does goes into a history (package
// history), also when it was killed.
//
// A program whose processes may be contenders calls [Child] first:
//
//	func TestMain(m *testing.M) {
//		if contender.Child(subjects.All()...) {
//			return
//		}
//		redistest.Main(m)
//	}
package contender

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/strategy"
)

// A Setup says who a contender is and what it contends with.
type Setup struct {
	Name    string   // who, in histories; no two of one history may have the same
	Variant string   // which of the known strategies, by name
	Addrs   []string // host:port of its servers, or of what leads to them, in their order

	TTL, OpTimeout time.Duration // as in strategy.Options
	Wait           strategy.Wait
	NoHandOver     bool
	RetryOnError   bool
	Backoff        time.Duration // the most that a pause of a wait may last; 0: contract.Backoff

	Store string // host:port of the [Store] that it reads and writes; empty: none
}

// A Contender obeys its creator. Methods are safe for concurrent use: one that hangs
// hinders no other.
//
// Errors are what package strategy said, for errors.Is; from another process their type
// is *[Error]. When ctx ends before the answer has come, the contender gives
// up, and the error is ctx's.
type Contender struct {
	setup   Setup
	process *process
}

// Name returns the Setup's.
func (c *Contender) Name() string { return c.setup.Name }

// A Bid says how a lock is to be acquired.
type Bid struct {
	Lock  string
	Owner string        // who re-enters; empty: nobody
	Wait  time.Duration // for the lock, at most; 0: no bound but ctx
	Try   bool          // ask once
	Share int           // of a lock that several may hold: how many permits, 1 to read; 0: what NewLock asks for
}

// Acquire takes a lock.
func (c *Contender) Acquire(ctx context.Context, b Bid) (*Hold, error) {
	r, err := c.process.do(ctx, command{Do: doAcquire, Bid: b})
	if err != nil {
		return nil, err
	}
	return &Hold{c, r.Hold}, nil
}

// Work makes the contender work on its own, until Rest. It returns at once.
func (c *Contender) Work(ctx context.Context, w Workload) error {
	_, err := c.process.do(ctx, command{Do: doWork, Work: w})
	return err
}

// Rest ends the work and returns when all workers have left, with what made one of them
// leave earlier: not a lock that could not be had, but something that must not happen.
func (c *Contender) Rest(ctx context.Context) error {
	_, err := c.process.do(ctx, command{Do: doRest})
	return err
}

// Ops is the contender's history so far. An op that was under way when its process was
// killed is [history.Unknown] and ends [history.Forever].
func (c *Contender) Ops() ([]history.Op, error) { return c.process.ops() }

// Close ends the contender, as a program ends that closes its strategy: what is held goes
// with its TTL. The error says, too, if its process ended otherwise than by Close or
// [Contender.Kill]. Ops can still be asked for.
func (c *Contender) Close() error { return c.process.close() }

// Pause stops the process with SIGSTOP and returns when it is paused.
func (c *Contender) Pause(ctx context.Context) error { return c.process.named(c.process.Pause(ctx)) }

// Stopped returns when the process is paused: by Pause, or by itself, in a
// [Hold.WriteAfterStop].
func (c *Contender) Stopped(ctx context.Context) error {
	return c.process.named(c.process.Stopped(ctx))
}

// Thaw lets the process go on. It does nothing to one that is not paused.
func (c *Contender) Thaw() error { return c.process.named(c.process.Resume()) }

// Kill ends the process with SIGKILL and returns when it has ended. A second Kill does
// nothing, nor does one after Close. [ErrEnded] says that it had ended by itself: then it
// was not killed, and Close says so, too.
func (c *Contender) Kill() error {
	if err := c.process.Kill(); err != nil {
		return fmt.Errorf("contender: killing %s: %w", c.setup.Name, err)
	}
	return nil
}

// A Hold is a lease that a contender has.
type Hold struct {
	c     *Contender
	token string
}

func (h *Hold) do(ctx context.Context, c command) (reply, error) {
	c.Hold = h.token
	return h.c.process.do(ctx, c)
}

// Release gives the lock up.
func (h *Hold) Release(ctx context.Context) error {
	_, err := h.do(ctx, command{Do: doRelease})
	return err
}

// Downgrade makes of a hold to write one to read, in one step.
func (h *Hold) Downgrade(ctx context.Context) (*Hold, error) {
	r, err := h.do(ctx, command{Do: doDowngrade})
	if err != nil {
		return nil, err
	}
	return &Hold{h.c, r.Hold}, nil
}

// Read reads what the lock protects, if the holder believes it has the lock; otherwise the
// error is what it believes. A store that was shown a greater fence refuses: [ErrStale].
func (h *Hold) Read(ctx context.Context) (value string, err error) {
	r, err := h.do(ctx, command{Do: doRead})
	return r.Value, err
}

// Write is Read's counterpart.
func (h *Hold) Write(ctx context.Context, value string) error {
	_, err := h.do(ctx, command{Do: doWrite, Value: value})
	return err
}

// WriteAfterStop is Write by a process that is paused, by SIGSTOP, at the worst of
// moments: it has just seen that it holds the lock, and has not yet sent anything. See
// [Contender.Stopped]; it goes on with [Contender.Thaw].
func (h *Hold) WriteAfterStop(ctx context.Context, value string) error {
	_, err := h.do(ctx, command{Do: doWrite, Value: value, Stop: true})
	return err
}
