// The counting of votes: when a round is decided, and what it says of the holder.
package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// The answers that a node may give, in the rounds of Acquire and of Extend.
var (
	heldBy = func(token string) error { return &strategy.HeldError{Holder: token, TTL: time.Second} }
	down   = &strategy.ServerError{Node: "n", Kind: strategy.ErrUnsent}

	votes = []error{nil, heldBy("a"), heldBy("b"), down}
	keeps = []error{nil, &strategy.LostError{}, down}
)

// TestEnough plays every round of one to six nodes, in every order that matters: a round
// goes on as long as the answers to come can change what comes of it, and no longer.
func TestEnough(t *testing.T) {
	outcome := func(tl *voteCount) string { // by the rules, from all answers
		held := map[string]int{}
		for _, err := range tl.errs {
			if h, ok := err.(*strategy.HeldError); ok {
				held[h.Holder]++
			}
		}
		switch {
		case tl.yes >= tl.quorum:
			return "granted"
		case tl.lost > len(tl.errs)-tl.quorum:
			return "lost"
		case tl.yes+tl.held < tl.quorum:
			return "unreachable"
		}
		for token, n := range held {
			if n >= tl.quorum {
				return "held by " + token
			}
		}
		return "held"
	}
	for n := 1; n <= 6; n++ {
		for _, round := range []struct {
			name   string
			words  []error
			enough func(*voteCount) bool
		}{{"acquireDecided", votes, (*voteCount).acquireDecided}, {"holdDecided", keeps, (*voteCount).holdDecided}} {
			// outcomes gives what may still come of a round in which the first nodes have said
			// so much; which of the nodes it was does not matter.
			var outcomes func(said []error) map[string]bool
			outcomes = func(said []error) map[string]bool {
				tl := newCount(n, n/2+1)
				for i, err := range said {
					tl.note(i, err)
				}
				all := map[string]bool{}
				if len(said) == n {
					all[outcome(tl)] = true
					return all
				}
				for _, word := range round.words {
					for o := range outcomes(append(said[:len(said):len(said)], word)) {
						all[o] = true
					}
				}
				if got, want := round.enough(tl), len(all) == 1; got != want {
					t.Errorf("%s() of %d nodes, after %s = %v, want %v: it may end as %v", round.name, n, fmt.Sprint(said), got, want, all)
				}
				return all
			}
			outcomes(nil)
		}
	}
}
