// Tests a waiter that leaves its line in the moment in which it is given the lock.
package engine

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// granter is a protocol that always grants, and tells which tokens were released.
type granter struct {
	driver.Unsupported
	tokens chan string
}

func newGranter() granter { return granter{tokens: make(chan string, 1)} }

func (granter) Acquire(context.Context, driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, nil
}

func (granter) Extend(context.Context, driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, nil
}

func (r granter) Release(_ context.Context, c driver.Claim) (driver.Outcome, error) {
	r.tokens <- c.Token
	return driver.Outcome{}, nil
}

func (granter) Undo(context.Context, driver.Claim) error { return nil }

// TestGivenWhileLeaving: a waiter that is given the lock before it is out of the line gives it back, also if it was
// about to leave. Here it waits for the mutex of the lines, which the test holds as the releaser does.
func TestGivenWhileLeaving(t *testing.T) {
	released := newGranter()
	s, err := New(released, strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, left := s.NewLock("n").(*lock), make(chan struct{})
	l.c.lines.mu.Lock()
	ln := l.c.lines.open(l.lineKey())
	w := newWaiter(&l.target, ln, "")
	ln.waiters = append(ln.waiters, w)
	go func() {
		defer close(left)
		w.leave()
	}()
	stacks := make([]byte, 4<<20)
	verdict.Eventually(t, "the waiter waits for the mutex", func() bool {
		for _, g := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, "(*waiter).leave") {
				return true
			}
		}
		return false
	})
	given := newLease(l.c, l.claimFor(""), driver.Grant{}, time.Now())
	ln.got(w, given, newTurn(), true)
	w.post(given)
	l.c.lines.mu.Unlock()
	<-left
	if err := s.Close(); err != nil { // which waits for the release
		t.Errorf("Close = %v", err)
	}
	if len(released.tokens) == 0 || <-released.tokens != given.claim.Token {
		t.Error("the lock that the waiter was given has not been released")
	}
}
