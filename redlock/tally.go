package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A tally counts what the nodes have said in one round. Until enough have, that is for those
// who hear of it; then it is the caller's, and what is said later does not count.
type tally struct {
	quorum  int
	pending int  // have not answered
	yes     int  // agreed
	held    int  // have another holder's token, and do not lose it
	lost    int  // do not have the token that they were asked about
	twin    bool // a node is another one, too: twinAt
	twinAt  int
	errs    []error     // of each node; nil: agreed
	until   []time.Time // of each node: when it is free; zero: it is, or nobody knows

	round context.Context // whose requests they answer

	mu     sync.Mutex
	enough func(*tally) bool
	over   bool          // it is the caller's
	done   chan struct{} // has an element when it has become so
}

func newTally(n, quorum int) *tally {
	t := &tally{quorum: quorum, pending: n, errs: make([]error, n), until: make([]time.Time, n), done: make(chan struct{}, 1)}
	for i := range t.errs {
		t.errs[i] = errPending
	}
	return t
}

func (t *tally) note(i int, err error) {
	t.pending--
	t.errs[i] = err
	var held *strategy.HeldError
	switch {
	case err == nil:
		t.yes++
	case err == errTwin:
		t.twin, t.twinAt = true, i
	case errors.As(err, &held):
		t.held++
		t.until[i] = time.Now().Add(held.TTL)
		if held.TTL < 0 {
			t.until[i] = never
		}
	case errors.Is(err, strategy.ErrLost):
		t.lost++
	}
}

// hear notes what a node has said. The last that is needed wakes the caller, once: to be
// woken for each costs more than the answer.
func (t *tally) hear(i int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.note(i, err)
		t.look()
	}
}

// look ends the hearing when enough is known. The caller holds mu.
func (t *tally) look() {
	if t.over = t.pending == 0 || t.enough(t); t.over {
		t.done <- struct{}{}
	}
}

// wait returns when enough is known.
func (t *tally) wait() {
	t.mu.Lock()
	if !t.over {
		t.look()
	}
	t.mu.Unlock()
	<-t.done
}

// await hears those that are pending and expected, for a while.
func (t *tally) await(d time.Duration, expected func(i int) bool) {
	t.mu.Lock()
	t.enough = func(t *tally) bool {
		for i, err := range t.errs {
			if err == errPending && expected(i) {
				return false
			}
		}
		return true
	}
	t.look()
	t.mu.Unlock()
	select {
	case <-t.done:
	case <-time.After(d):
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
	}
}

// never is when a key without expiry is free.
var never = time.Now().Add(100 * 365 * 24 * time.Hour)

// complete: every node has answered.
func (t *tally) complete() bool { return t.pending == 0 }

// answered: the nodes that have not said yet whether they grant cannot change what the
// attempt comes to.
func (t *tally) answered() bool {
	spoke := t.yes + t.held
	switch {
	case t.twin || t.yes >= t.quorum:
		return true
	case t.yes+t.pending >= t.quorum:
		return false
	case spoke < t.quorum: // more than half may be out of reach: that is not "held"
		return spoke+t.pending < t.quorum
	}
	// It is held. Who waits must know by whom, if one holder has a quorum.
	_, most := t.leader()
	return most >= t.quorum || most+t.pending < t.quorum
}

// decided: the nodes that have not said yet whether they have the token cannot change
// whether a quorum has, or whether it is lost.
func (t *tally) decided() bool {
	others := len(t.errs) - t.quorum // so many may lack it
	switch {
	case t.twin || t.yes >= t.quorum || t.lost > others:
		return true
	default:
		return t.yes+t.pending < t.quorum && t.lost+t.pending <= others
	}
}

// leader is whom most of the nodes hold the lock for.
func (t *tally) leader() (token string, most int) {
	votes := map[string]int{}
	for _, err := range t.errs {
		var holder string
		var held *strategy.HeldError
		var lost *strategy.LostError
		switch {
		case errors.As(err, &held): // also by an empty token, which is not ours
			holder = held.Holder
		case errors.As(err, &lost) && lost.Holder != "":
			holder = lost.Holder
		default:
			continue
		}
		if votes[holder]++; votes[holder] > most {
			token, most = holder, votes[holder]
		}
	}
	return token, most
}

// holder is who has a quorum, if anybody.
func (t *tally) holder(quorum int) string {
	if token, most := t.leader(); most >= quorum {
		return token
	}
	return ""
}

// heldError: by whom, and when a quorum will be free at the latest.
func (t *tally) heldError(name string, quorum int) *strategy.HeldError {
	e := &strategy.HeldError{Name: name, Holder: t.holder(quorum)}
	var free []time.Time
	for i, err := range t.errs {
		if err == nil || !t.until[i].IsZero() {
			free = append(free, t.until[i])
		}
	}
	slices.SortFunc(free, time.Time.Compare)
	if at := free[quorum-1]; at.Equal(never) {
		e.TTL = -1
	} else {
		e.TTL = max(time.Until(at), time.Millisecond)
	}
	return e
}

// keeps is how long a quorum will show the token.
func (t *tally) keeps(token string) time.Duration {
	var until []time.Time
	for i, err := range t.errs {
		var held *strategy.HeldError
		if errors.As(err, &held) && held.Holder == token {
			until = append(until, t.until[i])
		}
	}
	slices.SortFunc(until, time.Time.Compare)
	last := until[len(until)-t.quorum] // when it goes, less than a quorum is left
	if last.Equal(never) {
		return -1
	}
	return max(time.Until(last), time.Millisecond)
}
