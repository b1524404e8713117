// Package contender is a client of the locks that can be steered step by step, in this
// process or in one of its own, which can then be paused, thawed and killed. All that it
// does goes into a history (package history), and of a process that was killed, too.
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
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subjects"
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
	HandOver       strategy.HandOver
	RetryOnError   bool
	Backoff        time.Duration // the most that a pause of a wait may last; 0: strategy.DefaultBackoff

	Ahead time.Duration // how much its wall clock is; allowed for variants that read one
	Store string        // host:port of the [Store] that it reads and writes; empty: none

	// Around is put around each node. Only in this process: see [Here].
	Around func(i int, n driver.Node) driver.Node `json:"-"`
}

// A Contender obeys its creator. Methods are safe for concurrent use: one that hangs
// hinders no other.
//
// Errors are what package strategy said, for errors.Is; from another process their type
// is *[Error]. When ctx ends before the answer has come, the contender is told to give
// up, and the error is ctx's.
type Contender struct {
	setup Setup
	seat  seat
}

// A seat is where a contender sits: in this process or in another.
type seat interface {
	do(ctx context.Context, c command) (reply, error)
	ops() ([]history.Op, error)
	close() error
}

// Here opens a contender in this process, with one of the variants that are known.
func Here(s Setup, known ...subjects.Variant) (*Contender, error) {
	c, err := open(s, known, history.NewRecorder(nil))
	if err != nil {
		return nil, err
	}
	return &Contender{s, here{c}}, nil
}

// here is the seat in this process.
type here struct{ *client }

func (h here) ops() ([]history.Op, error) { return h.recorder.Ops(), nil }

// Name returns the Setup's.
func (c *Contender) Name() string { return c.setup.Name }

// A Bid says how a lock is to be acquired.
type Bid struct {
	Lock  string
	Owner string        // who re-enters; empty: nobody
	Wait  time.Duration // for the lock, at most; 0: no bound but ctx
	Try   bool          // ask once
}

// Acquire takes a lock.
func (c *Contender) Acquire(ctx context.Context, b Bid) (*Hold, error) {
	return c.hold(c.seat.do(ctx, command{Do: doAcquire, Bid: b}))
}

// Adopt takes up a hold that was detached.
func (c *Contender) Adopt(ctx context.Context, lock, token string) (*Hold, error) {
	return c.hold(c.seat.do(ctx, command{Do: doAdopt, Bid: Bid{Lock: lock}, Hold: token}))
}

func (c *Contender) hold(r reply, err error) (*Hold, error) {
	if err != nil {
		return nil, err
	}
	return &Hold{c, r.Grant}, nil
}

// Check asks whether the servers can be relied on: strategy.Strategy.Check.
func (c *Contender) Check(ctx context.Context) error {
	_, err := c.seat.do(ctx, command{Do: doCheck})
	return err
}

// Work makes the contender work on its own, until Rest. It returns at once.
func (c *Contender) Work(ctx context.Context, w Workload) error {
	_, err := c.seat.do(ctx, command{Do: doWork, Work: w})
	return err
}

// Rest ends the work and returns when all workers have left, with what made one of them
// leave earlier: not a lock that could not be had, but something that must not happen.
func (c *Contender) Rest(ctx context.Context) error {
	_, err := c.seat.do(ctx, command{Do: doRest})
	return err
}

// Ops is the contender's history so far. What was under way when its process was killed
// is [history.Unknown] and ends [history.Forever].
func (c *Contender) Ops() ([]history.Op, error) { return c.seat.ops() }

// Close ends the contender, as a program ends that closes its strategy: what is held goes
// with its TTL. The error says, too, if its process ended otherwise than by Close or
// [Contender.Kill]. Ops can still be asked for.
func (c *Contender) Close() error { return c.seat.close() }

// ErrNoProcess says that a contender in this process can be neither paused nor killed.
var ErrNoProcess = errors.New("contender: it has no process of its own: allowed are those that Start started")

func (c *Contender) process(what string) (*process, error) {
	p, ok := c.seat.(*process)
	if !ok {
		return nil, fmt.Errorf("%s of %s: %w", what, c.setup.Name, ErrNoProcess)
	}
	return p, nil
}

// Pause stops the process with SIGSTOP and returns when it stands still.
func (c *Contender) Pause(ctx context.Context) error {
	p, err := c.process("pause")
	if err != nil {
		return err
	}
	return p.named(p.Pause(ctx))
}

// Stopped returns when the process stands still: by Pause, or by itself, in a
// [Hold.WriteAfterStop].
func (c *Contender) Stopped(ctx context.Context) error {
	p, err := c.process("wait for the stop")
	if err != nil {
		return err
	}
	return p.named(p.Stopped(ctx))
}

// Thaw lets the process go on. It does nothing to one that is not paused.
func (c *Contender) Thaw() error {
	p, err := c.process("thaw")
	if err != nil {
		return err
	}
	return p.named(p.Resume())
}

// Kill ends the process with SIGKILL and returns when it is no more. A second Kill does
// nothing, nor does one after Close. [ErrEnded] says that it had ended by itself: then it
// was not killed, and Close says so, too.
func (c *Contender) Kill() error {
	p, err := c.process("kill")
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return fmt.Errorf("contender: killing %s: %w", c.setup.Name, err)
	}
	return nil
}

// A Hold is a lease that a contender has.
type Hold struct {
	c *Contender
	g Grant
}

// A Grant is what a contender was given.
type Grant struct {
	Token, Owner string
	Fence        uint64        // 0: none
	Deadline     time.Duration // by the clock of package history
}

// Token returns the lease's.
func (h *Hold) Token() string { return h.g.Token }

// Owner returns the lease's.
func (h *Hold) Owner() string { return h.g.Owner }

// Fence returns the lease's, 0 if it has none.
func (h *Hold) Fence() uint64 { return h.g.Fence }

func (h *Hold) do(ctx context.Context, c command) (reply, error) {
	c.Hold = h.g.Token
	return h.c.seat.do(ctx, c)
}

// Extend renews the lease once.
func (h *Hold) Extend(ctx context.Context) error {
	_, err := h.do(ctx, command{Do: doExtend})
	return err
}

// KeepAlive renews the lease in the background, for maxHold at most unless that is 0.
func (h *Hold) KeepAlive(ctx context.Context, maxHold time.Duration) error {
	_, err := h.do(ctx, command{Do: doKeepAlive, Most: maxHold})
	return err
}

// Release gives the lock up.
func (h *Hold) Release(ctx context.Context) error {
	_, err := h.do(ctx, command{Do: doRelease})
	return err
}

// Detach leaves the lock with the servers, and returns the token for Adopt.
func (h *Hold) Detach(ctx context.Context) (token string, err error) {
	_, err = h.do(ctx, command{Do: doDetach})
	return h.g.Token, err
}

// Err is what the holder believes: nil while it believes to hold the lock.
func (h *Hold) Err(ctx context.Context) error {
	_, err := h.do(ctx, command{Do: doErr})
	return err
}

// Deadline is until when the holder believes to hold, by the clock of package history.
func (h *Hold) Deadline(ctx context.Context) (time.Duration, error) {
	r, err := h.do(ctx, command{Do: doDeadline})
	return r.Grant.Deadline, err
}

// Read reads what the lock protects, if the holder believes to hold it; otherwise the
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

// WriteAfterStop is Write by a process that stands still, by SIGSTOP, at the worst of
// moments: it has just seen that it holds the lock, and has not yet sent anything. See
// [Contender.Stopped]; it goes on with [Contender.Thaw].
func (h *Hold) WriteAfterStop(ctx context.Context, value string) error {
	if _, err := h.c.process("stop"); err != nil {
		return err
	}
	_, err := h.do(ctx, command{Do: doWrite, Value: value, Stop: true})
	return err
}
