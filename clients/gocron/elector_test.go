// Tests which instance an Elector lets run jobs: the leader, until it resigns or its term is lost. Time is virtual.
package gocronlocks_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// The leader alone runs the jobs. When it resigns the other leads at once.
func TestElector(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		type run struct {
			by  int
			ctx context.Context
		}
		runs := make(chan run, 100)
		var electors []*gocronlocks.Elector
		for i := range 2 {
			e := gocronlocks.NewElector(election.New(open(t, server), "scheduler"))
			t.Cleanup(e.Close)
			electors = append(electors, e)
			time.Sleep(time.Second) // the first leads
			lead(t, e, func(ctx context.Context, _ strategy.Lease) error {
				runs <- run{i, ctx}
				return nil
			})
		}
		for minute := range 4 {
			r := <-runs
			synctest.Wait() // the run is over
			if r.by != minute/2 || len(runs) > 0 || r.ctx.Err() == nil {
				t.Errorf("minute %d: instance %d runs the job, want %d alone, and its context ends with %v", minute, r.by, minute/2, r.ctx.Err())
			}
			if minute == 1 {
				electors[0].Close()
				if err := electors[0].IsLeader(t.Context()); err == nil {
					t.Error("the first instance leads after Close")
				}
			}
		}
	})
}

// Close resigns before it returns, also if another calls it at the same time. From its begin on the instance does not lead, and
// the contexts of jobs end with that.
func TestElectorClose(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		leader := election.New(open(t, server), "scheduler")
		e := gocronlocks.NewElector(leader)
		cause := make(chan error, 1)
		ended := lead(t, e, func(ctx context.Context, _ strategy.Lease) error {
			server.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
				if r.Op == lockstest.OpRelease {
					time.Sleep(300 * time.Millisecond)
				}
				return serve()
			})
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		})
		time.Sleep(90 * time.Second)
		closed := make(chan time.Duration)
		began := time.Now()
		for range 2 {
			go func() {
				e.Close()
				if info, err := leader.Leader(t.Context()); err != nil || info.Held {
					t.Errorf("Leader after Close = %+v, %v, want nobody", info, err)
				}
				closed <- time.Since(began)
			}()
		}
		synctest.Wait()
		if err := e.IsLeader(t.Context()); err == nil {
			t.Error("the instance leads while it closes")
		}
		if cause := <-cause; !errors.Is(cause, strategy.ErrReleased) {
			t.Errorf("the job's context ends with %v, want ErrReleased", cause)
		}
		if err := <-ended; err != nil {
			t.Errorf("the job ends with %v, want nil", err)
		}
		for range 2 {
			if took := <-closed; took != 300*time.Millisecond {
				t.Errorf("Close took %v, want the release's 300ms", took)
			}
		}
	})
}

// An instance that does not lead says so from the beginning, and why after a failure. Close does not wait for its pause.
func TestElectorDoesNotLead(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		leads := gocronlocks.NewElector(election.New(open(t, server), "scheduler"))
		synctest.Wait()
		e := gocronlocks.NewElector(election.New(open(t, server), "scheduler"))
		synctest.Wait()
		if err := e.IsLeader(t.Context()); err == nil || !strings.Contains(err.Error(), "does not lead yet") {
			t.Errorf("IsLeader while another leads = %v, want that it does not yet", err)
		}
		server.Intercept(func(context.Context, lockstest.Request, func() error) error { return lockstest.Refused("READONLY") })
		time.Sleep(2 * ttl)
		if err := e.IsLeader(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.HasPrefix(err.Error(), "gocronlocks: this instance does not lead: ") {
			t.Errorf("IsLeader after a failure = %v, want that it does not lead, and why", err)
		}
		began := time.Now()
		e.Close()
		leads.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %v between two campaigns, want no time", took)
		}
		server.Intercept(nil)
	})
}

// A term that is lost ends the context of the job. The Elector campaigns again, also after an outage, and without
// Options.RetryOnError.
func TestElectorOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		e := gocronlocks.NewElector(election.New(open(t, server), "scheduler"))
		defer e.Close()
		var campaigns atomic.Int64 // in the outage
		ended := lead(t, e, func(ctx context.Context, _ strategy.Lease) error {
			server.Intercept(func(_ context.Context, r lockstest.Request, _ func() error) error {
				if r.Op == lockstest.OpAcquire {
					campaigns.Add(1)
				}
				time.Sleep(time.Millisecond)
				return lockstest.Unsent()
			})
			<-ctx.Done()
			return nil
		}, gocron.WithLimitedRuns(1))
		if err := <-ended; !errors.Is(err, strategy.ErrLost) {
			t.Errorf("the job ends with %v, want ErrLost", err)
		}
		if err := e.IsLeader(t.Context()); !errors.Is(err, strategy.ErrLost) { // the next campaign has just begun
			t.Errorf("IsLeader after the loss = %v, want ErrLost", err)
		}
		time.Sleep(time.Minute)
		if err := e.IsLeader(t.Context()); !errors.Is(err, strategy.ErrUnsent) || errors.Is(err, strategy.ErrLost) {
			t.Errorf("IsLeader in the outage = %v, want why the campaign has failed, and not the loss before it", err)
		}
		if n := campaigns.Load(); n > 60 {
			t.Errorf("%d campaigns in a minute, want a pause of a second between them", n)
		}
		server.Intercept(nil)
		time.Sleep(2 * time.Second)
		if err := e.IsLeader(t.Context()); err != nil {
			t.Errorf("IsLeader after the outage = %v", err)
		}
	})
}

// An Elector ends with its strategy, without Close, and says so whether or not it has led.
func TestElectorClosed(t *testing.T) {
	for name, led := range map[string]time.Duration{"it has led": time.Second, "it has not led": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				locks := open(t, server)
				if led == 0 {
					locks.Close()
				}
				e := gocronlocks.NewElector(election.New(locks, "scheduler"))
				time.Sleep(led)
				locks.Close()
				time.Sleep(time.Minute)
				if err := e.IsLeader(t.Context()); !errors.Is(err, strategy.ErrClosed) {
					t.Errorf("IsLeader = %v, want ErrClosed", err)
				}
				if led == 0 { // and there it needs no Close
					e.Close()
					e.Close()
				}
			})
		})
	}
}
