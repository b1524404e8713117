package gocronlocks

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockstrategies/locks/strategy"
)

// Task makes a task of fn. fn's context ends when gocron ends the job's, and when the lock is lost ([context.Cause] then
// is [strategy.ErrLost]); fn has to return soon then, because another instance may run the job. The lease has the
// fence. If the lock is lost before fn returns, the job has failed with that error, also if fn returns nil.
//
// The job needs a name (gocron.WithName). Without this Locker, or if the lock is lost before fn is called, the task returns
// an error, and does not call fn. A Locker does its work for other tasks as well, but these do not learn of a loss.
func (l *Locker) Task(fn func(ctx context.Context, lease strategy.Lease) error) gocron.Task {
	return gocron.NewTask((&task{l.start, fn}).run)
}

// start finds the lease of the run that gocron starts with ctx. A run is started once.
func (l *Locker) start(ctx context.Context) (context.Context, strategy.Lease, error) {
	r, ok := l.runs.LoadAndDelete(ctx)
	if !ok {
		return nil, nil, errors.New("gocronlocks: the job runs without the lock of this Locker: give it to the scheduler with gocron.WithDistributedLocker, or to the job with gocron.WithDistributedJobLocker")
	}
	found := r.(*run)
	if err := found.hold.Err(); err != nil { // lost since the grant: another instance may run the job
		return nil, nil, err
	}
	return context.WithValue(ctx, tickKey{}, found.tick), found.hold, nil
}

type tickKey struct{}

// Tick returns the time for which a run is scheduled, if ctx is of a [Locker.Task] with [Locker.KeyPerTick]. All
// instances have the same time for a tick, however their clocks differ. ok is false for any other context.
func Tick(ctx context.Context) (t time.Time, ok bool) {
	t, _ = ctx.Value(tickKey{}).(time.Time)
	return t, !t.IsZero()
}

// A task is a function that runs under a lease.
type task struct {
	start func(context.Context) (context.Context, strategy.Lease, error)
	fn    func(context.Context, strategy.Lease) error
}

func (t *task) run(ctx context.Context) error {
	ctx, lease, err := t.start(ctx)
	if err != nil {
		return err
	}
	held, cancel := lease.Context(ctx)
	defer cancel()
	err = t.fn(held, lease)
	if lost := lease.Err(); errors.Is(lost, strategy.ErrLost) && !errors.Is(err, lost) {
		err = errors.Join(err, lost)
	}
	return err
}

// unnamed is what gocron calls a job of Task that has no name.
var unnamed = runtime.FuncForPC(reflect.ValueOf((*task)(nil).run).Pointer()).Name()
