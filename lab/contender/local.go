package contender

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/strategy"
)

// A Local is a contender in this process, for simulations. Only its callers can be paused, and what it sends and gets:
// that is the network's affair. Its timers go on.
type Local struct {
	c *client

	late atomic.Int64 // a time.Duration

	mu   sync.Mutex
	thaw chan struct{} // closed when it goes on; nil: it is not paused
	dead bool
}

// Late makes its goroutines run up to that much late where something has just happened to a lock. 0: no longer.
func (l *Local) Late(by time.Duration) { l.late.Store(int64(by)) }

// distance is how far the store is.
const distance = 50 * time.Microsecond

// Open makes a contender that speaks a protocol. observe, if not nil, gets the events of its locks, too.
func Open(s Setup, p driver.Protocol, store *Store, observe func(strategy.Event)) (*Local, error) {
	l := &Local{}
	c, err := newClient(s, p, history.NewRecorder(nil))
	if err != nil {
		return nil, err
	}
	l.c = c
	if store != nil {
		c.store = func(op history.Op, value *string) error {
			time.Sleep(distance + rand.N(distance)) // or all of an instant would happen at once
			if !l.goesOn() {
				return ErrEnded
			}
			return store.Serve(op, value)
		}
	}
	c.also = func(e strategy.Event) {
		if observe != nil {
			observe(e)
		}
		if late := l.late.Load(); late > 0 {
			time.Sleep(time.Duration(rand.Int64N(late)))
		}
		l.goesOn()
	}
	return l, nil
}

// goesOn waits while the contender is paused, and reports whether it lives.
func (l *Local) goesOn() bool {
	l.mu.Lock()
	thaw := l.thaw
	l.mu.Unlock()
	if thaw != nil {
		<-thaw
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dead
}

// Pause stops the callers where they next do something. Thaw lets them go on.
func (l *Local) Pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thaw == nil && !l.dead {
		l.thaw = make(chan struct{})
	}
}

// Thaw ends a Pause.
func (l *Local) Thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thaw != nil {
		close(l.thaw)
		l.thaw = nil
	}
}

// Deadlines are those of the holds of a lock in which the contender believes, one for each of which several may hold. The servers
// are to keep each until then.
func (l *Local) Deadlines(lock string) (all []time.Time) {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return nil
	}
	l.c.mu.Lock()
	var leases []strategy.Lease
	for _, h := range l.c.holds {
		if h.lease.Name() == lock {
			leases = append(leases, slices.Repeat([]strategy.Lease{h.lease}, max(h.share, 1))...)
		}
	}
	l.c.mu.Unlock()
	for _, lease := range leases {
		if d := lease.Deadline(); lease.Err() == nil {
			all = append(all, d)
		}
	}
	return all
}

// Work makes the contender work until Rest.
func (l *Local) Work(w Workload) error { return l.c.work(w) }

// Rest ends the work, as [Contender.Rest] does.
func (l *Local) Rest() error { return l.c.rest() }

// Quit closes the strategy while the workers work, and then ends the work.
func (l *Local) Quit() error {
	err := l.c.strategy.Close()
	return errors.Join(err, l.c.rest())
}

// Close ends the work, and closes the strategy.
func (l *Local) Close() error { return l.c.close() }

// Kill ends the history at once. Its network must carry nothing of it afterwards. It returns when nothing of
// it runs.
func (l *Local) Kill() {
	l.c.recorder.Cut()
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.Thaw()
	l.c.close() //nolint:errcheck // nobody reads what a dead process says
}

// Ops is the history so far.
func (l *Local) Ops() []history.Op { return l.c.recorder.Ops() }
