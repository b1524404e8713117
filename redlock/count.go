package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A voteCount counts what the nodes said in one round. Until enough is known, the requests write to
// it; then it is over: the caller reads it, and later answers do not count.
type voteCount struct {
	quorum  int
	pending int  // nodes that have not answered
	yes     int  // nodes that did what they were asked, or, of Inspect, where the lock is free
	held    int  // nodes where another token has the lock, or, of Inspect, any token
	lost    int  // nodes without the token that they were asked about
	twin    bool // node twinAt is the same server as another node
	twinAt  int
	errs    []error     // of each node; nil: it is one of yes
	until   []time.Time // of each node: when the lock is free there; zero: it is, or that is not known

	answered time.Time // when yes and held became a quorum

	round round // whose answers it counts

	mu     sync.Mutex
	enough func(*voteCount) bool
	over   bool
	done   chan struct{} // has an element when over has become true
}

func newCount(n, quorum int) *voteCount {
	vc := &voteCount{quorum: quorum, pending: n, errs: make([]error, n), until: make([]time.Time, n), done: make(chan struct{}, 1)}
	for i := range vc.errs {
		vc.errs[i] = errPending
	}
	return vc
}

func (vc *voteCount) note(i int, err error) {
	vc.pending--
	vc.errs[i] = err
	if err == nil {
		vc.yes++
	} else {
		vc.noteError(i, err)
	}
	if vc.answered.IsZero() && vc.yes+vc.held >= vc.quorum {
		vc.answered = time.Now()
	}
}

func (vc *voteCount) noteError(i int, err error) {
	var held *strategy.HeldError
	switch {
	case err == errTwin:
		vc.twin, vc.twinAt = true, i
	case errors.As(err, &held):
		vc.held++
		vc.until[i] = time.Now().Add(held.TTL)
		if held.TTL < 0 {
			vc.until[i] = never
		}
	case errors.Is(err, strategy.ErrLost):
		vc.lost++
	}
}

// hear counts an answer. Only the last that is needed wakes the caller: to wake it for each costs more
// than the answer.
func (vc *voteCount) hear(i int, err error) {
	vc.mu.Lock()
	defer vc.mu.Unlock()
	if !vc.over {
		vc.note(i, err)
		vc.endIfEnough()
	}
}

// endIfEnough ends the round when enough is known. The caller holds mu.
func (vc *voteCount) endIfEnough() {
	if vc.over = vc.pending == 0 || vc.enough(vc); vc.over {
		vc.done <- struct{}{}
	}
}

// wait returns when enough is known. When ctx ends before, it ends the requests, so that all are known.
func (vc *voteCount) wait(ctx context.Context, endAll context.CancelCauseFunc) {
	vc.mu.Lock()
	if !vc.over {
		vc.endIfEnough()
	}
	vc.mu.Unlock()
	select {
	case <-vc.done:
	case <-ctx.Done():
		endAll(context.Cause(ctx))
		<-vc.done
	}
}

// end ends the round, whatever is known.
func (vc *voteCount) end() {
	vc.mu.Lock()
	defer vc.mu.Unlock()
	if !vc.over {
		vc.over = true
		vc.done <- struct{}{}
	}
}

// awaits reports whether a node that is expected to answer has not answered.
func (vc *voteCount) awaits(expected func(i int) bool) bool {
	for i, err := range vc.errs {
		if err == errPending && expected(i) {
			return true
		}
	}
	return false
}

// never is when a key without expiry is free.
var never = time.Now().Add(100 * 365 * 24 * time.Hour)

// complete: every node has answered.
func (vc *voteCount) complete() bool { return vc.pending == 0 }

// acquireDecided: no vote to come can change what the attempt returns.
func (vc *voteCount) acquireDecided() bool {
	spoke := vc.yes + vc.held
	switch {
	case vc.twin || vc.yes >= vc.quorum:
		return true
	case vc.yes+vc.pending >= vc.quorum:
		return false
	case spoke < vc.quorum: // more than half may be out of reach: that is not "held"
		return spoke+vc.pending < vc.quorum
	}
	// It is held. A waiter must know the holder, if one has a quorum.
	_, most := vc.leader()
	return most >= vc.quorum || most+vc.pending < vc.quorum
}

// holdDecided: no answer to come can change whether a quorum still has the token, or the lock is lost.
func (vc *voteCount) holdDecided() bool {
	others := len(vc.errs) - vc.quorum // so many nodes may lack the token
	switch {
	case vc.twin || vc.yes >= vc.quorum || vc.lost > others:
		return true
	default:
		return vc.yes+vc.pending < vc.quorum && vc.lost+vc.pending <= others
	}
}

// leader is the token that most of the nodes hold the lock for.
func (vc *voteCount) leader() (token string, most int) {
	votes := map[string]int{}
	for _, err := range vc.errs {
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

// holder is the token that a quorum holds the lock for; empty: no token has a quorum.
func (vc *voteCount) holder() string {
	if token, most := vc.leader(); most >= vc.quorum {
		return token
	}
	return ""
}

// heldError names the holder, and says when a quorum will be free at the latest.
func (vc *voteCount) heldError(name string) *strategy.HeldError {
	e := &strategy.HeldError{Name: name, Holder: vc.holder()}
	var free []time.Time
	for i, err := range vc.errs {
		if err == nil || !vc.until[i].IsZero() {
			free = append(free, vc.until[i])
		}
	}
	slices.SortFunc(free, time.Time.Compare)
	if at := free[vc.quorum-1]; at.Equal(never) {
		e.TTL = -1
	} else {
		e.TTL = max(time.Until(at), time.Millisecond)
	}
	return e
}

// keeps is for how long a quorum will hold the lock for the token.
func (vc *voteCount) keeps(token string) time.Duration {
	var until []time.Time
	for i, err := range vc.errs {
		var held *strategy.HeldError
		if errors.As(err, &held) && held.Holder == token {
			until = append(until, vc.until[i])
		}
	}
	slices.SortFunc(until, time.Time.Compare)
	last := until[len(until)-vc.quorum] // when this node drops it, less than a quorum is left
	if last.Equal(never) {
		return -1
	}
	return max(time.Until(last), time.Millisecond)
}
