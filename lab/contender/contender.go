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
	"errors"
	"fmt"
	"io"
	"math"
	"net/rpc"
	"os"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/child"
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

// ErrEnded says that a contender's process has ended.
var ErrEnded = child.ErrEnded

// A Contender obeys its creator. Methods are safe for concurrent use: one that hangs
// hinders no other.
//
// It is a child (see package child), which serves commands (net/rpc). Its history goes to a file,
// line by line as things happen, where it outlives the child.
//
// Errors are what package strategy said, for errors.Is; from another process their type
// is *[Error]. When ctx ends before the answer has come, the error is ctx's, and the contender goes on.
type Contender struct {
	setup   Setup
	process *child.Process
	log     *os.File // of its history; its name is gone

	calls *rpc.Client

	mu      sync.Mutex
	history []history.Op // read before the log was closed; nil: it is not

	close func() error
}

// How long a process may take, when nothing is in its way but a loaded machine and servers that
// do not answer: to come up, and to close its strategy.
const startLimit, closeLimit = 60 * time.Second, 30 * time.Second

// Start opens a contender in a process of its own: this program again, which calls
// [Child]. ctx bounds the start; the process ends with Kill or Close.
func Start(ctx context.Context, s Setup) (*Contender, error) {
	c, err := start(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("contender: starting %s: %w", s.Name, err)
	}
	return c, nil
}

func start(ctx context.Context, s Setup) (c *Contender, err error) {
	log, err := os.CreateTemp("", "locks-contender-*.jsonl")
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, os.Remove(log.Name())) // both have it open: so nothing is left of it, however they end
		if err != nil {
			log.Close()
		}
	}()
	p, err := child.Start(child.Config{Role: role, Job: birth{s, log.Name()}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it has said nothing for %v", startLimit))
	defer cancel()
	c = &Contender{setup: s, process: p, log: log}
	c.close = sync.OnceValue(c.doClose)
	var addr string
	if err = p.Receive(ctx, &addr); err == nil {
		c.calls, err = rpc.Dial("tcp", addr)
	}
	if err != nil {
		p.Kill() // an error says no more than err
		return nil, err
	}
	return c, nil
}

// do has the contender do something, and waits for its answer.
func (c *Contender) do(ctx context.Context, what string, with any) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	var a Answer
	select {
	case call := <-c.calls.Go("contender."+what, with, &a, make(chan *rpc.Call, 1)).Done:
		switch {
		case call.Error != nil: // the process is gone, and says why
			return "", fmt.Errorf("%s of %s: %w", what, c.setup.Name, c.process.Receive(ctx, new(any)))
		case a.Error != nil:
			return a.Value, a.Error
		}
		return a.Value, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Name returns the Setup's.
func (c *Contender) Name() string { return c.setup.Name }

// A Bid says how a lock is to be acquired.
type Bid struct {
	Lock  string
	Owner string        // who re-enters; empty: nobody
	Wait  time.Duration // for the lock, at most; 0: no bound but ctx
	Try   bool          // ask once
	Other bool          // by other options than the Setup's: half the TTL, polling, and the other of NoHandOver
	Share int           // of a lock that several may hold: how many permits, 1 to read; 0: what NewLock asks for
}

// Acquire takes a lock.
func (c *Contender) Acquire(ctx context.Context, b Bid) (*Hold, error) {
	token, err := c.do(ctx, "Acquire", b)
	if err != nil {
		return nil, err
	}
	return &Hold{c, token}, nil
}

// Work makes the contender work on its own, until Rest. It returns at once.
func (c *Contender) Work(ctx context.Context, w Workload) error {
	_, err := c.do(ctx, "Work", w)
	return err
}

// Rest ends the work and returns when all workers have left, with what made one of them
// leave earlier: not a lock that could not be had, but something that must not happen.
func (c *Contender) Rest(ctx context.Context) error {
	_, err := c.do(ctx, "Rest", true)
	return err
}

// Ops is the contender's history so far. An op that was under way when its process was
// killed is [history.Unknown] and ends [history.Forever].
func (c *Contender) Ops() ([]history.Op, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.history != nil {
		return c.history, nil
	}
	return history.Read(io.NewSectionReader(c.log, 0, math.MaxInt64))
}

// Close ends the contender, as a program ends that closes its strategy: what is held goes
// with its TTL. The error says, too, if its process ended otherwise than by Close or
// [Contender.Kill]. Ops can still be asked for.
func (c *Contender) Close() error { return c.close() }

func (c *Contender) doClose() error {
	c.process.Resume() // an error says that it has ended
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit, fmt.Errorf("closing it takes more than %v", closeLimit))
	defer cancel()
	_, err := c.do(ctx, "Close", true)
	if errors.Is(err, ErrEnded) {
		err = nil // Close knows whether that was Kill's doing
	}
	c.calls.Close()
	if err = errors.Join(err, c.process.Close(closeLimit)); err != nil {
		err = fmt.Errorf("contender: closing %s: %w", c.setup.Name, err)
	}
	ops, readErr := c.Ops()
	c.mu.Lock()
	c.history = append([]history.Op{}, ops...)
	c.mu.Unlock()
	return errors.Join(err, readErr, c.log.Close())
}

// Pause stops the process with SIGSTOP and returns when it is paused.
func (c *Contender) Pause(ctx context.Context) error { return c.process.Pause(ctx) }

// Stopped returns when the process is paused: by Pause, or by itself, in a
// [Hold.WriteAfterStop].
func (c *Contender) Stopped(ctx context.Context) error { return c.process.Stopped(ctx) }

// Thaw lets the process go on. It does nothing to one that is not paused.
func (c *Contender) Thaw() error { return c.process.Resume() }

// Kill ends the process with SIGKILL and returns when it has ended. A second Kill does
// nothing, nor does one after Close. [ErrEnded] says that it had ended by itself: then it
// was not killed, and Close says so, too.
func (c *Contender) Kill() error { return c.process.Kill() }

// A Hold is a lease that a contender has.
type Hold struct {
	c     *Contender
	token string
}

// Release gives the lock up.
func (h *Hold) Release(ctx context.Context) error {
	_, err := h.c.do(ctx, "Release", h.token)
	return err
}

// Read reads what the lock protects, if the holder believes it has the lock; otherwise the
// error is what it believes. A store that was shown a greater fence refuses: [ErrStale].
func (h *Hold) Read(ctx context.Context) (value string, err error) {
	return h.c.do(ctx, "Read", h.token)
}

// Write is Read's counterpart.
func (h *Hold) Write(ctx context.Context, value string) error {
	_, err := h.c.do(ctx, "Write", Writing{Hold: h.token, Value: value})
	return err
}

// WriteAfterStop is Write by a process that is paused, by SIGSTOP, at the worst of
// moments: it has just seen that it holds the lock, and has not yet sent anything. See
// [Contender.Stopped]; it goes on with [Contender.Thaw].
func (h *Hold) WriteAfterStop(ctx context.Context, value string) error {
	_, err := h.c.do(ctx, "Write", Writing{h.token, value, true})
	return err
}
