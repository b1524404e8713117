package redlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Watch hears of releases: each is published on every node that had the lock, in the
// step that releases it there. It returns when a quorum of the nodes has confirmed: a
// release that reaches a quorum is heard by one of them, if that one had the lock. (If not,
// the wait ends with the holder's TTL.) The others may join until Due.
//
// The first word of a release is passed on after a random pause, below three times
// what the last quorum took (and 1 … 50 ms): by then the other nodes have released as
// well, and those who wait in other processes do not all ask at once. What the
// others say until then is the same release; what one says later is passed on again,
// for the lock may not have been free before.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	joining, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.Due)
	w := &watch{quorum: p.quorum, pause: p.patience, fn: fn, cancel: cancel, soon: map[string]*time.Timer{}}
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, len(p.nodes))
	for i, n := range p.nodes {
		w.joining.Go(func() {
			var s subscription
			leave, err := n.Subscribe(joining, channel(c), func(token []byte, err error) { w.hear(&s, token, err) })
			if err == nil {
				w.join(&s, leave)
			}
			answers <- answer{i, err}
		})
	}
	t := newTally(len(p.nodes), p.quorum)
	for t.yes < p.quorum && t.yes+t.pending >= p.quorum {
		select {
		case a := <-answers:
			t.note(a.i, a.err)
		case <-ctx.Done():
			w.stop()
			return nil, context.Cause(ctx)
		}
	}
	if t.yes < p.quorum {
		w.stop()
		return nil, &strategy.QuorumError{Name: c.Name, Need: p.quorum, Nodes: p.answers(c, t)}
	}
	w.confirm()
	return w.stop, nil
}

// A watch is the subscriptions of one Watch.
type watch struct {
	quorum  int
	pause   func() time.Duration
	cancel  context.CancelFunc // ends the joining
	joining sync.WaitGroup

	mu        sync.Mutex // held while fn runs
	fn        func(driver.Notification)
	confirmed bool
	over      bool // stopped, or broken: fn is not called any more
	live      int
	leave     []func()
	soon      map[string]*time.Timer // notices to come, by holder
}

// A subscription is one node's.
type subscription struct{ joined, broken bool }

func (w *watch) join(s *subscription, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave = append(w.leave, leave)
	if s.joined = true; !s.broken {
		w.live++
	}
}

// confirm begins the time in which a quorum must be listening.
func (w *watch) confirm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.confirmed = true
	w.look()
}

// look ends a watch that can miss a release. The caller holds mu.
func (w *watch) look() {
	if w.confirmed && !w.over && w.live < w.quorum {
		w.end()
		w.fn(driver.Notification{})
	}
}

// end passes nothing on any more. The caller holds mu.
func (w *watch) end() {
	w.over = true
	for _, timer := range w.soon {
		timer.Stop()
	}
}

// hear is called by one node's subscription.
func (w *watch) hear(s *subscription, token []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	holder := string(token)
	switch {
	case err != nil:
		if s.broken = true; s.joined {
			w.live--
		}
		w.look()
	case w.over || holder == "" || w.soon[holder] != nil: // "": not published by release.lua
	default:
		w.soon[holder] = time.AfterFunc(rand.N(w.pause()), func() { w.tell(holder) })
	}
}

func (w *watch) tell(holder string) {
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
	w.end()
	w.mu.Unlock()
	w.cancel()
	w.joining.Wait()
	for _, leave := range w.leave { // nobody joins any more
		leave() // without mu: it waits for a message being heard
	}
}
