package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A subscription is what one wait line hears from the servers. Only the head of the line subscribes.
// The next head inherits the subscription. It is guarded by the mutex of the lines.
type subscription struct {
	end     func()      // nil: there is no subscription
	queue   bool        // it hears of direct grants
	broken  bool        // it has ended by itself
	without time.Time   // until when not to subscribe again
	freed   []string    // holders that have released since the last attempt began
	token   string      // of the line's last claim that may be in the servers' queue
	count   int         // of the subscriptions so far
	direct  directGrant // what the last message says that the token was granted, until the head looks; zero: nothing
	first   time.Time   // the line has heard that it is the first in the queue: until when the holder has the lock
}

// A directGrant is one that a message says that the servers have made.
type directGrant struct {
	driver.Grant
	at time.Time // when it was heard
}

// maxFreed bounds what is remembered while an attempt is under way.
const maxFreed = 64

// needs reports whether the line must subscribe, for direct grants or without; if not, whether it has a
// subscription that works.
func (s *subscription) needs(queue bool) (needed, there bool) {
	switch {
	case s.broken:
		return false, false
	case s.end != nil:
		return s.queue != queue, true // the last head waited in another way
	}
	return !time.Now().Before(s.without), false
}

// subscribed takes in that the servers have confirmed a subscription, which end ends.
func (ln *line) subscribed(c *core, queue bool, end func()) {
	c.subscribed.Add(1)
	c.probeLater()
	ln.end, ln.queue = func() { end(); c.subscribed.Add(-1) }, queue
}

// notSubscribed takes in that a subscription, begun at start, has failed.
func (ln *line) notSubscribed(c *core, start time.Time, err error) {
	pause := 10 * time.Since(start) // one that hangs must not delay every attempt
	if errors.Is(err, strategy.ErrRefused) || errors.Is(err, strategy.ErrUnsupported) {
		pause = c.o.TTL // the reason may pass: LOADING, too many clients
	}
	ln.without = time.Now().Add(min(pause, c.o.TTL))
}

// unsubscribe ends the subscription. That waits for a notification being delivered, so it is done without the mutex.
func (ln *line) unsubscribe() {
	if ln.end != nil {
		ln.later(ln.end)
	}
	ln.end, ln.broken = nil, false
	ln.count++
}

// hearsGrants reports whether a direct grant would be heard.
func (s *subscription) hearsGrants() bool { return s.end != nil && s.queue && !s.broken }

// forget is called before an attempt. A release heard from now on may be that of the holder that the
// attempt will find, although its notification overtakes the reply.
func (s *subscription) forget() { s.freed, s.first = s.freed[:0], time.Time{} }

// heard returns whether holder has released, so that asking makes sense; and until when the successor that
// precedes the line has the lock, if that has just been heard. Releases of other holders are stale: they came before
// holder acquired.
func (s *subscription) heard(holder string) (freed bool, first time.Time) {
	freed = len(s.freed) >= maxFreed || holder == "" && len(s.freed) > 0 || slices.Contains(s.freed, holder)
	first, s.first = s.first, time.Time{}
	return freed, first
}

// expect is called before a claim with that token is sent. Its direct grant may be heard before the answer.
func (s *subscription) expect(token string) { s.token, s.direct = token, directGrant{} }

// grantHeard returns what has been heard of a direct grant since the last call. ok is false if nothing was.
func (s *subscription) grantHeard() (d directGrant, ok bool) {
	d, s.direct = s.direct, directGrant{}
	return d, !d.at.IsZero()
}

// listener is what the next subscription calls. It does nothing any more once that has ended.
func (ln *line) listener() func(driver.Notification) {
	count := ln.count
	return func(n driver.Notification) {
		now := time.Now()
		ln.all.mu.Lock()
		defer ln.all.mu.Unlock()
		if ln.count == count {
			ln.notify(n, now)
		}
	}
}

// notify takes in a notification that came now. A direct grant of another token is not this line's.
func (ln *line) notify(n driver.Notification, now time.Time) {
	switch {
	case n.Broken():
		ln.broken = true
	case n.Token != "":
		if n.Token == ln.token {
			ln.direct = directGrant{n.Grant, now}
		}
	case n.Next > 0:
		ln.first = now.Add(n.Next)
	case len(ln.freed) < maxFreed:
		ln.freed = append(ln.freed, n.Holder)
	}
	if ln.head != nil {
		ln.head.wake()
	}
}
