package memory

import (
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Change does f to the lock at key, if there is one. No request comes in between.
func (m *Server) Change(key string, f func(l *Lock)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(key); l != nil {
		f(l)
	}
}

// Requeue puts what f returns in place of the claims that wait for key. listens reports whether a claim would hear of a
// direct grant, held whether somebody holds the lock.
func (m *Server) Requeue(key string, f func(queue []driver.Claim, listens func(driver.Claim) bool, held bool) []driver.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	listens := func(c driver.Claim) bool { return m.listening(c) != nil }
	held := m.find(key) != nil
	queue := f(m.queues[key], listens, held)
	switch {
	case len(queue) > 0 && m.queues == nil:
		m.queues, m.expiries = map[string][]driver.Claim{key: queue}, map[string]time.Time{}
	case len(queue) > 0:
		m.queues[key] = queue
	default:
		delete(m.queues, key)
	}
}

// Set overwrites what is at the claim's key.
func (m *Server) Set(c driver.Claim, until time.Time) driver.Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	fence, _ := m.nextFences(c)
	l := &Lock{kind: ofOneHolder, Owner: c.Owner, Holds: []Hold{{Token: c.Token, Until: until}}, Fence: fence}
	m.put(c.Key, l)
	return m.grant(l)
}

// At returns the token at key; empty: the key is free.
func (m *Server) At(key string) (token string) {
	m.Change(key, func(l *Lock) {
		if len(l.Holds) > 0 {
			token = l.Holds[0].Token
		}
	})
	return token
}

// Until returns until when the server counts for what is at key.
func (m *Server) Until(key string) (until time.Time) {
	m.Change(key, func(l *Lock) { until = l.last().Until })
	return until
}

// Count makes the server count until then for whatever is at key.
func (m *Server) Count(key string, until time.Time) {
	m.Change(key, func(l *Lock) {
		for i := range l.Holds {
			l.Holds[i].Until = until
		}
	})
}

// Holders returns who holds each lock of one holder, by key.
func (m *Server) Holders() map[string]strategy.HeldError {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]strategy.HeldError{}
	for key := range m.locks {
		if l := m.find(key); l != nil {
			all[key] = strategy.HeldError{Holder: l.Holds[0].Token, TTL: m.left(l.last())}
		}
	}
	return all
}

// Silently does f, of which no watch of key hears.
func (m *Server) Silently(key string, f func()) {
	m.mu.Lock()
	watches := m.watches[key]
	delete(m.watches, key)
	m.mu.Unlock()
	f()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(watches) > 0 {
		m.watches[key] = append(m.watches[key], watches...)
	}
}

// Tell notifies all watches of key.
func (m *Server) Tell(key string, n driver.Notification) {
	m.mu.Lock()
	told := slices.Clone(m.watches[key])
	m.mu.Unlock()
	for _, w := range told {
		w.tell(n)
	}
}
