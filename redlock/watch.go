package redlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// Watch listens for releases: each node that had the lock publishes its release in the step that
// deletes the key. Watch returns when a quorum of the nodes has confirmed; the others may follow
// until Due. A release quorum and a listening quorum share a node. If that node had lost the lock, it
// publishes nothing, and the wait ends with the holder's TTL.
//
// The first message of a release is passed on after a random pause, below three times what the last
// quorum took (and 1 … 50 ms). By then the other nodes have released as well, and waiters in other
// processes do not all ask at once. Messages of other nodes until then are the same release. A
// later one is passed on again, because the lock may not have been free before.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	if ended := timeup.Cause(ctx); ended != nil {
		return nil, ended
	}
	subCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.Due)
	w := &watch{quorum: p.quorum, pause: p.patience, fn: fn, cancel: cancel, soon: map[string]*time.Timer{}}
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, len(p.nodes))
	for i, n := range p.nodes {
		w.subscribing.Go(func() {
			var s subscription
			leave, err := n.Subscribe(subCtx, channel(c), func(token []byte, err error) { w.hear(&s, token, err) })
			if err == nil {
				w.add(&s, leave)
			}
			answers <- answer{i, err}
		})
	}
	count := newCount(len(p.nodes), p.quorum)
	for count.yes < p.quorum && count.yes+count.pending >= p.quorum {
		select {
		case a := <-answers:
			count.note(a.i, a.err)
		case <-ctx.Done():
			w.stop()
			return nil, context.Cause(ctx)
		}
	}
	if count.yes < p.quorum {
		w.stop()
		return nil, &strategy.QuorumError{Name: c.Name, Need: p.quorum, Nodes: p.answers(c, count)}
	}
	w.confirm()
	return w.stop, nil
}

// A watch is what one Watch has subscribed to.
type watch struct {
	quorum      int
	pause       func() time.Duration
	cancel      context.CancelFunc // ends subscriptions that are not confirmed yet
	subscribing sync.WaitGroup

	mu        sync.Mutex // held while fn runs
	fn        func(driver.Notification)
	confirmed bool
	over      bool // stopped, or broken: fn is not called any more
	live      int
	leave     []func()
	soon      map[string]*time.Timer // notifications to come, by holder
}

// A subscription is one node's.
type subscription struct{ added, broken bool }

func (w *watch) add(s *subscription, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave = append(w.leave, leave)
	if s.added = true; !s.broken {
		w.live++
	}
}

// confirm says that a quorum listens, and must from now on.
func (w *watch) confirm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.confirmed = true
	w.endIfBlind()
}

// endIfBlind ends a watch that may miss a release. The caller holds mu.
func (w *watch) endIfBlind() {
	if w.confirmed && !w.over && w.live < w.quorum {
		w.over = true
		w.fn(driver.Notification{})
	}
}

// hear is called by one node's subscription.
func (w *watch) hear(s *subscription, token []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	holder := string(token)
	switch {
	case err != nil:
		if s.broken = true; s.added {
			w.live--
		}
		w.endIfBlind()
	case w.over || holder == "" || w.soon[holder] != nil: // "": no script has published it
	default:
		w.soon[holder] = time.AfterFunc(rand.N(w.pause()), func() { w.notify(holder) })
	}
}

func (w *watch) notify(holder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.soon, holder)
	if !w.over {
		w.fn(driver.Notification{Holder: holder})
	}
}

// stop ends the watch and waits until nothing of it is left.
func (w *watch) stop() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.cancel()
	w.subscribing.Wait()
	for _, leave := range w.leave { // none is added any more
		leave() // without mu: it waits for a message that is being heard
	}
}
