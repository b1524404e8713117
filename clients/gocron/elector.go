package gocronlocks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/strategy"
)

// pause is how long an Elector waits after a campaign that has failed.
const pause = time.Second

// An Elector is a [gocron.Elector] for gocron.WithDistributedElector: the leader of an election runs all jobs. It
// campaigns in the background, also after a loss and after failures of the servers, until [Elector.Close].
type Elector struct {
	stop  context.CancelFunc
	ended chan struct{}

	mu   sync.Mutex
	term strategy.Lease // the last one, which may be over; nil: none since the last failure
	err  error          // why the last campaign failed; nil: none has failed since the last term
}

// NewElector begins to campaign. The election's strategy should have no MaxHold: it would bound the term.
func NewElector(e *election.Election) *Elector {
	ctx, stop := context.WithCancel(context.Background())
	el := &Elector{stop: stop, ended: make(chan struct{})}
	go el.campaign(ctx, e)
	return el
}

func (e *Elector) campaign(ctx context.Context, in *election.Election) {
	defer close(e.ended)
	for {
		err := in.Lead(ctx, func(ctx context.Context, term strategy.Lease) error {
			e.set(term, nil)
			<-ctx.Done()
			return nil
		})
		e.set(nil, err)
		if ctx.Err() != nil || errors.Is(err, strategy.ErrClosed) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (e *Elector) set(term strategy.Lease, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.err = term, err
}

// IsLeader is called by gocron before a run. It returns nil if this instance leads. The error says why it does not.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.leads()
	return err
}

func (e *Elector) leads() (strategy.Lease, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	term, err := e.term, e.err
	if term != nil {
		err = term.Err()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("gocronlocks: this instance does not lead: %w", err)
	case term == nil:
		return nil, errors.New("gocronlocks: this instance campaigns, and does not lead yet")
	}
	return term, nil
}

// Task makes a task of fn. fn's context ends when gocron ends the job's, and when the term does ([context.Cause] then is
// [strategy.ErrLost], or [strategy.ErrReleased] after Close); fn has to return soon then, because another instance may
// run the job. The lease is the term, and has its fence. If the term is lost before fn returns, the job has failed with
// that error, also if fn returns nil. If this instance does not lead, the task returns an error and does not call fn.
func (e *Elector) Task(fn func(ctx context.Context, term strategy.Lease) error) gocron.Task {
	return gocron.NewTask((&task{e.start, fn}).run)
}

func (e *Elector) start(ctx context.Context) (context.Context, strategy.Lease, error) {
	term, err := e.leads()
	return ctx, term, err
}

// Close resigns, and ends the campaign. Shut the scheduler down before, and close the strategy after it. If the servers
// do not answer, the engine repeats the release in the background. A second Close does nothing.
func (e *Elector) Close() {
	e.stop()
	<-e.ended
}
