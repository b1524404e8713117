package contender

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstrategies/locks/lab/wait"
	"github.com/lockstrategies/locks/strategy"
)

// A Workload is what a contender does on its own. Each worker goes round: it takes a
// lock, reads what it protects, thinks, writes back, and releases. Chances are 1 in so
// many; 0 means never.
type Workload struct {
	Locks   []string // one of them each time, by chance
	Workers int
	Seed    uint64 // of all that is left to chance

	Patience time.Duration // the longest wait for a lock
	Think    time.Duration // the longest time between reading and writing
	Rest     time.Duration // the longest time between two rounds

	Try      int // the chance that a worker asks once and does not wait
	Renew    int // that it extends the lease while it thinks
	Keep     int // that it keeps the lease alive, and thinks for about a TTL
	Cap      int // that it lets a hold that it has kept alive end by its maximum hold
	Overstay int // that it does not release, but stays until it has lost the lock
	Reenter  int // that it takes the lock again while it has it, as the same owner
	Adopt    int // that it detaches the lock, and adopts it again
	Other    int // that it asks by other options: see Bid

	// Permits is how many each lock has, if several may hold it. Heavy is the chance that a worker asks for more
	// than one, of the first lock only: a history tells more of those who were refused where nobody waits for
	// several. ReadWrite: most workers read. Write is the chance that a worker writes instead, and Downgrade that it
	// goes on to read then.
	Permits   int
	Heavy     int
	ReadWrite bool
	Write     int
	Downgrade int
}

// A shift is a workload under way.
type shift struct {
	Workload
	*client
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

func (c *client) work(w Workload) error {
	if len(w.Locks) == 0 || w.Workers < 1 || w.Patience <= 0 {
		return fmt.Errorf("contender: a workload of %d locks, %d workers and a patience of %v: allowed are 1 or more of each", len(w.Locks), w.Workers, w.Patience)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shift != nil {
		return errors.New("contender: it works already: let it rest first")
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &shift{Workload: w, client: c, stop: cancel}
	c.shift = s
	for i := range w.Workers {
		s.workers.Go(func() {
			who := worker{shift: s, name: fmt.Sprintf("%s/%d", c.setup.Name, i+1), chance: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
			if err := who.work(ctx); err != nil {
				s.mu.Lock()
				s.errs = append(s.errs, fmt.Errorf("%s: %w", who.name, err))
				s.mu.Unlock()
			}
		})
	}
	return nil
}

// rest ends the work. A waiter for a lock gives up; a holder goes on to its end.
func (c *client) rest() error {
	c.mu.Lock()
	s := c.shift
	c.shift = nil
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	s.stop()
	s.workers.Wait()
	return errors.Join(s.errs...)
}

// A worker is one goroutine of a shift.
type worker struct {
	*shift
	name   string
	chance *rand.Rand
	writes int
}

func (w *worker) oneIn(n int) bool { return n > 0 && w.chance.IntN(n) == 0 }

func (w *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(w.chance.Int64N(int64(max(d, 0)) + 1))
}

// work goes round until ctx ends. An error is one that no fault excuses.
func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.round(ctx); err != nil {
			return err
		}
		wait.For(ctx, w.upTo(w.Rest))
	}
	return nil
}

// round is one acquisition, or the attempt. It is in the history, and no error here, that a
// lock is not available or lost, or that nobody knows.
func (w *worker) round(ctx context.Context) error {
	b := Bid{Lock: w.Locks[w.chance.IntN(len(w.Locks))], Wait: w.Patience, Try: w.oneIn(w.Try), Other: w.oneIn(w.Other)}
	switch {
	case w.ReadWrite && !w.oneIn(w.Write):
		b.Share = 1
	case w.Permits > 1 && b.Lock == w.Locks[0] && w.oneIn(w.Heavy):
		b.Share = 2 + w.chance.IntN(w.Permits-1)
	}
	again := w.oneIn(w.Reenter)
	if again {
		w.writes++ // a name that nobody had
		b.Owner = fmt.Sprintf("%s owner %d", w.name, w.writes)
	}
	h, err := w.acquire(ctx, w.name, b)
	if err != nil {
		return nil
	}
	err = w.use(ctx, h, b, again)
	if err == nil && w.ReadWrite && b.Share == 0 && w.oneIn(w.Downgrade) {
		if h, err = h.downgrade(); err != nil {
			return excused(err)
		}
		if err = w.see(h); err == nil {
			err = w.think(h)
		}
	}
	if err == nil && !again && w.oneIn(w.Adopt) {
		if h, err = h.adopt(); err != nil {
			return excused(err)
		}
		if err = w.see(h); err == nil {
			err = w.think(h)
		}
	}
	switch {
	case err != nil:
	case h.kept && w.oneIn(w.Cap):
		h.cap()
		h.forget()
		return nil
	case !h.kept && w.oneIn(w.Overstay): // or it would be held for ever
		h.watch()
		h.forget()
		return nil
	}
	return w.over(h, err)
}

// use is what a holder does with the lock, and why it could not go on.
func (w *worker) use(ctx context.Context, h *hold, b Bid, again bool) error {
	if err := w.see(h); err != nil {
		return err
	}
	if again {
		if err := w.reenter(ctx, h, b); err != nil {
			return err
		}
	}
	if err := w.think(h); err != nil || w.store == nil || w.ReadWrite && b.Share > 0 {
		return err
	}
	w.writes++
	return h.write(fmt.Sprintf("%s #%d", w.name, w.writes), func() error { return nil })
}

func (w *worker) see(h *hold) error {
	if w.store == nil {
		return h.check()
	}
	_, err := h.read()
	return err
}

// think passes the time in which others must keep out.
func (w *worker) think(h *hold) error {
	long := w.upTo(w.Think)
	switch {
	case w.oneIn(w.Keep):
		if err := h.keepAlive(); err != nil {
			return err
		}
		long += w.upTo(w.setup.TTL * 3 / 2)
	case w.oneIn(w.Renew):
		time.Sleep(long)
		if err := h.extend(); errors.Is(err, strategy.ErrLost) {
			return err
		}
	}
	// Look often: a holder that has not looked believes nothing, and what two do not believe at
	// one moment is no violation. It also brings renewals in the background into the history.
	for end := time.Now().Add(long); time.Now().Before(end); {
		time.Sleep(min(time.Until(end), w.setup.TTL/200))
		if err := h.check(); err != nil {
			return err
		}
	}
	return nil
}

// reenter takes the lock again, and gives the inner hold back.
func (w *worker) reenter(ctx context.Context, h *hold, b Bid) error {
	inner, err := w.acquire(ctx, w.name, b)
	if err != nil {
		return h.check()
	}
	time.Sleep(w.upTo(w.Think / 4))
	return w.over(inner, inner.check())
}

// over ends a hold, if it has not ended, after what ended its work. It excuses what a
// fault may cause.
func (w *worker) over(h *hold, err error) error {
	return errors.Join(excused(err), excused(h.release()))
}

// excused is err, if no fault may cause it.
func excused(err error) error {
	for _, s := range []error{ErrStale, strategy.ErrLost, strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrUnknown, strategy.ErrNoQuorum, strategy.ErrUnsupported, strategy.ErrClosed} {
		if errors.Is(err, s) {
			return nil
		}
	}
	return err
}
