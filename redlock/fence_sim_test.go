// A model of the fences, apart from the implementation: every history of a small world.
package redlock_test

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
)

// The model plays the rules that docs/learn/redlock.md proves, and each rule that was rejected. Nothing here uses the
// implementation.
//
//	Phase 1  Ask all: if the key is free, set it to my token and tell c, the counter. Go on when a
//	         majority Q has granted, with F = 1 + the greatest c it told.
//	Phase 2  Ask Q: if the key still holds my token, c = max(c, F), and confirm.
//	         When a majority W of Q has confirmed, the lock is held with fence F.
//
// A node that lost its memory is blank: it says so, and counts neither in Q nor in W until it is healed. Those who asked
// while it was blank heal it after a success: if it still has that memory, c = max(c, F).
//
// To heal in phase 2 is not enough: a grant that was long under way may find y blank, though the rest of its Q was read
// before 1 began. The test prints that history.

// A simVariant is a way to use the counters.
type simVariant struct {
	onePhase      bool  // phase 1 increments and tells, and that is all
	unconditional bool  // phase 2 does not look at the key
	silenceIsZero bool  // a blank node counts like any other
	healsEarly    bool  // phase 2 heals, and what it healed counts in W
	expires       bool  // a counter expires when the node's clock has reached it; a vote tells the clock, too
	fromNow       bool  // … or some time after it was set, whatever the clock says
	more          int32 // a holder takes so many more numbers than one
	onlyFirst     bool  // … and phase 2 notes the first
}

const simNodes, simTries, simMajority = 3, 2, 2

// A simState is everything: the nodes, and the attempts with what is under way.
type simState struct {
	nodes    [simNodes]simNode
	tries    [simTries]simTry
	tokens   int32
	memories int32
	finished int32 // the greatest fence of those that are finished
}

// A simNode is a server: the key of one lock, and its counter.
type simNode struct {
	key    int32 // the token that holds it; 0: free
	c      int32
	memory int32 // which memory this is; another after each loss
	blank  bool  // it has lost its counter, and is not healed
	clock  int32
	until  int32 // the clock at which c expires
}

// A simTry is one attempt. Requests and replies are sets of nodes, a bit for each.
type simTry struct {
	phase  simPhase
	token  int32
	floor  int32 // the greatest fence of those that were finished when it began
	fence  int32 // in phase 1 the greatest counter told
	told   [simNodes]int32
	grants uint8 // requests under way
	writes uint8
	heals  uint8
	q      uint8 // the nodes that granted
	blank  uint8 // those of them that were blank
	w      uint8 // the nodes that confirmed
}

type simPhase uint8

const (
	simIdle simPhase = iota
	simAsking
	simWriting
	simHeld
)

// A simEvent is one thing that can happen, at any moment. A reply that comes too late to count is as good as a lost one.
// One that comes in time says what was true when the node spoke. So a request and its reply are one event. A request that
// never arrives, or an attempt that does nothing more, needs none.
type simEvent struct {
	what      string
	try, node int
}

const (
	simGrant     = "grants"
	simGrantLost = "grants, unheard by"
	simWrite     = "phase 2 of" // by a client that may have been paused for long
	simWriteBack = "gets the write-back of"
	simHeal      = "gets the heal of"
	simJoin      = "is given the key again that it lost, of" // while the lock is held
	simExpire    = "lets its key go"                         // in time, early or late, or by a release
	simForget    = "loses its memory"
	simLapse     = "lets its counter expire"
)

// next lets e happen to s. It returns false if that cannot be; wrong tells of a duplicate or an inversion.
func (v simVariant) next(s *simState, e simEvent) (ok bool, wrong string) {
	n, a, bit := &s.nodes[e.node], &s.tries[e.try], uint8(1)<<e.node
	majority := func(set uint8) bool { return bits.OnesCount8(set) >= simMajority }
	switch e.what {
	case simGrant, simGrantLost:
		if a.phase == simIdle && (e.try == 0 || s.tries[0].phase != simIdle) {
			// To begin just before its first grant is the hardest: most is finished.
			s.tokens++
			*a = simTry{phase: simAsking, token: s.tokens, floor: s.finished, grants: 1<<simNodes - 1}
		}
		if a.grants&bit == 0 || n.key != 0 { // refused: that says nothing of fences
			return false, ""
		}
		a.grants &^= bit
		n.key = a.token
		if v.onePhase {
			n.c++
		}
		if e.what == simGrant && a.phase == simAsking {
			a.q |= bit
			a.fence = max(a.fence, n.c, n.clock)
			a.told[e.node] = n.memory
			if n.blank && !v.silenceIsZero {
				a.blank |= bit
			}
		}
	case simWrite:
		if a.phase != simAsking || !majority(a.q&^a.blank) {
			return false, ""
		}
		if v.onePhase {
			return true, v.finish(s, a)
		}
		a.phase, a.fence, a.writes, a.q = simWriting, a.fence+1, a.q, 0
		if !v.healsEarly {
			a.writes &^= a.blank
		}
	case simWriteBack:
		if a.writes&bit == 0 {
			return false, ""
		}
		a.writes &^= bit
		if n.key == a.token || v.unconditional {
			v.note(n, a)
			expired := v.expires && n.memory == a.told[e.node] // since it granted this, when it knew
			n.blank = n.blank && !v.healsEarly && !v.silenceIsZero && !expired
			if a.phase == simWriting {
				a.w |= bit
			}
		}
		if a.phase == simWriting && majority(a.w) { // it finishes as soon as it can: the more begins later
			if !v.healsEarly {
				a.heals = a.blank
			}
			return true, v.finish(s, a)
		}
	case simHeal:
		if a.heals&bit == 0 {
			return false, ""
		}
		a.heals &^= bit
		if n.memory == a.told[e.node] {
			v.note(n, a)
			n.blank = false
		}
	case simJoin:
		if a.phase != simHeld || n.key != 0 {
			return false, ""
		}
		n.key = a.token
	case simExpire:
		if n.key == 0 {
			return false, ""
		}
		n.key = 0
	case simForget:
		if !n.blank && s.blank() { // one more would only end all progress
			return false, ""
		}
		s.memories++
		*n = simNode{memory: s.memories, blank: true, clock: n.clock}
	case simLapse:
		ever := n.memory > 0
		if !v.expires || n.c == 0 || ever && !n.blank && s.blank() {
			return false, ""
		}
		if !v.fromNow {
			n.clock = max(n.clock, n.until) // no sooner: the node reports a lesser time for longer
		}
		n.c, n.until, n.blank = 0, 0, n.blank || ever // it cannot tell what has expired from what it forgot
	}
	return true, ""
}

// note has a node know the fence of an attempt.
func (v simVariant) note(n *simNode, a *simTry) {
	fence := a.fence
	if !v.onlyFirst {
		fence += v.more
	}
	n.c = max(n.c, fence)
	n.until = n.c
}

// blank reports whether a node is.
func (s *simState) blank() bool {
	return slices.ContainsFunc(s.nodes[:], func(n simNode) bool { return n.blank })
}

// finish is the moment from which on the client may tell others of its fence.
func (v simVariant) finish(s *simState, a *simTry) (wrong string) {
	a.phase = simHeld
	if a.fence <= a.floor {
		wrong = fmt.Sprintf("a fence of %d, but it began after one of %d was finished", a.fence, a.floor)
	}
	for i := range s.tries {
		if b := &s.tries[i]; b != a && b.phase == simHeld && max(a.fence, b.fence) <= min(a.fence, b.fence)+v.more {
			wrong = fmt.Sprintf("two with fence %d", max(a.fence, b.fence))
		}
	}
	s.finished = max(s.finished, a.fence+v.more)
	a.floor, a.q, a.w, a.blank = 0, 0, 0, 0 // as they do not matter any more, states are alike
	return wrong
}

// A smallState is a state, in whose world no number outgrows a byte. Nodes are alike, so their order is not in it.
type smallState struct {
	finished int32
	nodes    [simNodes][12]byte
	tries    [simTries][3]int32
}

func (s *simState) small() (k smallState) {
	k.finished = s.finished
	for t, a := range s.tries {
		k.tries[t] = [3]int32{int32(a.phase), a.floor, a.fence}
	}
	for i, n := range s.nodes {
		b := append(k.nodes[i][:0], byte(n.key), byte(n.c), byte(n.memory), byte(n.clock)<<4|byte(n.until))
		if n.blank {
			b[2] |= 0x80
		}
		for _, a := range s.tries {
			var sets byte
			for bit, set := range []uint8{a.grants, a.writes, a.heals, a.q, a.blank, a.w} {
				sets |= set >> i & 1 << bit
			}
			b = append(b, sets, byte(a.told[i]))
		}
	}
	slices.SortFunc(k.nodes[:], func(a, b [12]byte) int { return bytes.Compare(a[:], b[:]) })
	return k
}

// explore follows every order of events, with so many losses. It returns how many states there are, and the shortest
// history that goes wrong.
func (v simVariant) explore(losses int) (states int, wrong string) {
	var events []simEvent
	for node := range simNodes {
		for try := range simTries {
			for _, what := range []string{simGrant, simGrantLost, simWriteBack, simHeal, simJoin} {
				events = append(events, simEvent{what, try, node})
			}
			if node == 0 {
				events = append(events, simEvent{what: simWrite, try: try})
			}
		}
		for _, what := range []string{simExpire, simForget, simLapse} {
			events = append(events, simEvent{what: what, node: node})
		}
	}
	type visit struct {
		simState
		from int
		simEvent
	}
	seen := map[smallState]bool{}
	visits := []visit{{from: -1}}
	for at := 0; at < len(visits); at++ {
		for _, e := range events {
			s := visits[at].simState
			if e.what == simForget && int(s.memories) == losses {
				continue
			}
			ok, wrong := v.next(&s, e)
			if !ok {
				continue
			}
			if wrong != "" {
				history := []string{wrong, fmt.Sprintf("node %d %s %c", e.node+1, e.what, 'A'+e.try)}
				for ; at > 0; at = visits[at].from {
					e := visits[at].simEvent
					history = append(history, fmt.Sprintf("node %d %s %c", e.node+1, e.what, 'A'+e.try))
				}
				slices.Reverse(history)
				return len(seen), strings.Join(history, "\n")
			}
			if key := s.small(); !seen[key] {
				seen[key] = true
				visits = append(visits, visit{s, at, e})
			}
		}
	}
	return len(seen), ""
}

// TestFenceRules tries all there is in a small world: three nodes, two attempts, and one loss where nodes lose their memory.
func TestFenceRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		correct bool
		losses  int
		simVariant
	}{
		{"one phase", false, 0, simVariant{onePhase: true}},
		{"write-back though another has the key", false, 0, simVariant{unconditional: true}},
		{"write-back", true, 0, simVariant{}},
		{"losses, silence counts as zero", false, 1, simVariant{silenceIsZero: true}},
		{"losses, healed by any write-back", false, 1, simVariant{healsEarly: true}},
		{"losses, healed after a success", true, 1, simVariant{}},
		{"counters expire some time after they are set", false, 0, simVariant{expires: true, fromNow: true}},
		{"counters expire by their number", true, 0, simVariant{expires: true}},
		{"blocks, of which the first number is noted", false, 0, simVariant{more: 1, onlyFirst: true}},
		{"blocks", true, 0, simVariant{more: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			states, wrong := c.explore(c.losses)
			t.Logf("%d states\n%s", states, wrong)
			if c.correct != (wrong == "") {
				t.Errorf("went wrong: %v, want %v", wrong != "", !c.correct)
			}
		})
	}
}
