package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

// A server that restarts without its data has forgotten its locks, and a holder would learn of that at
// the next renewal only. A server that becomes a replica announces no release any more, and a waiter would
// learn of that at the end of the holder's TTL only. So servers are asked for a sign of life while leases are
// kept alive, and while there are subscriptions: a Node ends those that lead to a replica, and then the head
// of each line asks again.

const (
	probeEvery  = 750 * time.Millisecond // so that a waiter that then makes its pause is back within a second
	probeAnswer = time.Second            // how long an answer may take
)

// probed reports whether there is somebody for whom to probe.
func (s *shared) probed() bool { return s.renewal.Len() > 0 || s.subscribed.Load() > 0 }

// probeLater schedules a probe, unless one is scheduled already.
func (s *shared) probeLater() {
	if s.prober != nil && !s.probing.Swap(true) {
		time.AfterFunc(probeEvery, s.probe)
	}
}

// probe asks whether a server was away, for as long as there are leases or subscriptions.
func (s *shared) probe() {
	if s.probed() && s.enter() == nil {
		if n := s.prober.Probe(context.Background(), time.Now().Add(probeAnswer)); n != s.returns {
			s.returns = n
			s.renewSoon()
		}
		s.leave()
	}
	s.probing.Store(false) // before the look: who comes after that schedules a probe itself
	if s.probed() && !s.group.Closed() {
		s.probeLater()
	}
}

// mostSpread is the longest time over which renewSoon spreads the renewals that a probe has made due.
const mostSpread = time.Second

// renewSoon makes all renewals due, within a twentieth of the TTL, so that those of thousands of locks,
// and of all processes, do not come at once.
func (s *shared) renewSoon() {
	now := time.Now()
	for _, l := range s.renewal.Items() {
		l.mu.Lock()
		if l.end == nil && !l.next.IsZero() && !l.renewing {
			soon := min(l.claim.Grant.TTL/20, mostSpread)
			at := now.Add(rand.N(soon + 1))
			if l.c.bulk != nil {
				at = s.renewal.Draw(now, now.Add(soon))
			}
			if at.Before(l.next) {
				l.next = at
				l.plan()
			}
		}
		l.mu.Unlock()
	}
}
