package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A subscription is what one wait line hears from the servers. Only the head of the line subscribes.
// The next head inherits the subscription.
type subscription struct {
	wake chan struct{} // a notification has come; holds one

	mu      sync.Mutex
	stop    func()      // nil: there is no subscription
	queue   bool        // it hears of direct grants
	broken  bool        // it has ended by itself
	without time.Time   // until when not to subscribe again
	freed   []string    // holders that have released since the last attempt began
	token   string      // of the line's claim in the servers' queue; empty: none
	direct  directGrant // what the last message says that the token was granted, until the head looks; zero: nothing
	next    time.Time   // when the successor that precedes this line has to have extended
}

// A directGrant is one that a message says that the servers have made.
type directGrant struct {
	driver.Grant
	at time.Time // when it was heard
}

// maxFreed bounds what is remembered while an attempt is under way.
const maxFreed = 64

// needed reports whether the line must subscribe, for direct grants or without; if not, whether it has a
// subscription. After a subscription broke, the line makes one pause without: subscriptions that never
// last must not set the pace.
func (s *subscription) needed(queue bool) (needed, there bool) {
	s.mu.Lock()
	broken, there, without := s.broken, s.stop != nil, time.Now().Before(s.without)
	other := there && s.queue != queue
	s.mu.Unlock()
	switch {
	case broken:
		s.close()
		return false, false
	case other: // the last head waited in another way
		s.close()
		return true, false
	}
	return !there && !without, there
}

// subscribe returns whether the servers have confirmed. c.Line is not empty to hear of direct grants.
func (s *subscription) subscribe(ctx context.Context, e *core, c driver.Claim) bool {
	start := time.Now()
	stop, err := e.p.(driver.Notifier).Watch(ctx, c, s.notify)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		pause := 10 * time.Since(start) // one that hangs must not delay every attempt
		if errors.Is(err, strategy.ErrRefused) || errors.Is(err, strategy.ErrUnsupported) {
			pause = c.TTL // the reason may pass: LOADING, too many clients
		}
		s.without = time.Now().Add(min(pause, c.TTL))
		return false
	}
	e.subscribed.Add(1)
	e.probeLater()
	s.stop, s.queue = func() { stop(); e.subscribed.Add(-1) }, c.Line != ""
	return true
}

// hearsGrants reports whether a direct grant would be heard.
func (s *subscription) hearsGrants() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop != nil && s.queue && !s.broken
}

// close ends the subscription. stop waits for a notification being delivered, which takes mu, so it is
// called without.
func (s *subscription) close() {
	s.mu.Lock()
	stop := s.stop
	s.stop, s.broken = nil, false
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// forget is called before an attempt. A release heard from now on may be that of the holder that the
// attempt will find, although its notification overtakes the reply.
func (s *subscription) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed, s.next = s.freed[:0], time.Time{}
}

// heard returns whether holder has released, so that asking makes sense; until when the successor that
// precedes the line has the lock, if that has just been heard; and whether nothing more will be heard.
// Releases of other holders are stale: they came before holder acquired.
func (s *subscription) heard(holder string) (freed bool, next time.Time, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	freed = len(s.freed) >= maxFreed || holder == "" && len(s.freed) > 0 || slices.Contains(s.freed, holder)
	next, s.next = s.next, time.Time{}
	return freed, next, s.broken
}

// expect is called before a claim with that token is sent. Its direct grant may be heard before the answer.
func (s *subscription) expect(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.direct = token, directGrant{}
}

// granted returns what has been heard of a direct grant since the last call. ok is false if nothing was.
func (s *subscription) granted() (d directGrant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, s.direct = s.direct, directGrant{}
	return d, !d.at.IsZero()
}

// notify takes in a notification. A direct grant of another token is not this line's.
func (s *subscription) notify(n driver.Notification) {
	now := time.Now()
	s.mu.Lock()
	switch {
	case n.Broken():
		s.broken = true
	case n.Token != "":
		if n.Token == s.token {
			s.direct = directGrant{n.Grant, now}
		}
	case n.Next > 0:
		s.next = now.Add(n.Next)
	case len(s.freed) < maxFreed:
		s.freed = append(s.freed, n.Holder)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // the head has not looked yet
	}
}
