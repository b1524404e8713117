// A model of the fences, apart from the implementation: every history of a small world, and random ones of a
// larger world.
package redlock_test

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// This test shows how several independent counters give one rising fence, and what goes wrong
// when a client asks them in a simpler way. Nothing here uses the implementation. No clock is part of it
// as long as counters stay.
//
// The algorithm. Each of N nodes has the lock's key and a counter c.
//
//	Phase 1  Ask all: if the key is free, set it to my token and tell c. Go on when a
//	         majority Q has granted, with F = 1 + the greatest c it told.
//	Phase 2  Ask Q: if the key still holds my token, c = max(c, F), and confirm.
//	         When a majority W of Q has confirmed, the lock is held with fence F.
//
// Theorem. No two acquisitions have the same fence, and one that was finished before
// another began has the lesser.
//
// Proof. Their majorities W1 and W2 share a node y. At y a token is set once before it
// confirms, so from the grant to the confirmation the key held that token without a
// break, and these two intervals do not overlap. Say y confirmed 1 before it granted 2.
// Since c never falls, 2 heard c ≥ F1, and F2 > F1. If 1 was finished before 2 began,
// then 1 is the earlier at y. ∎ No clock is in it: pauses, early and late expiry, lost
// and late messages change nothing. Nor does a key that a node is given again once the
// lock is held, for then all that counts has been confirmed.
//
// Nodes that forget. A node that lost its memory is blank: it says so, names its new
// memory (a number that no other memory has), and counts neither in Q nor in W until it
// is healed. It is healed after a success, with F, by those who asked while it was blank
// and heard so before they began phase 2: if it still has that memory, c = max(c, F).
//
// Proof that a healed y knows what it forgot. Let it have confirmed 1 before it forgot,
// and 3 heal it. W1 and W3 share a node z. It granted 1 before y confirmed 1, before y
// forgot, before 3 heard of that, before z confirmed 3; so at z, 1 is the earlier, and
// F3 > F1 (by induction over heals z knew F1, though it may have forgotten it, too). ∎
// So a loss never costs safety. To go on at all, a majority must not be blank.
//
// To heal in phase 2 is not enough: a grant that was long under way may find y blank,
// though the rest of its Q was read before 1 began. TestFenceExhaustive prints that
// history. A node that does not vote until the longest TTL has passed would refuse such
// a grant, but then a clock is in it.

// Counters that expire. A node has a clock. With c it tells its clock, and F = 1 + the
// greatest of both. Its counter expires when the clock has reached c; until then the clock
// may be set in any way, and afterwards not below what has expired. A node that has ever
// been blank is blank again then: it cannot tell what has expired from what it forgot.
//
// Proof. Let y be in W1 and W2, and confirm 1 before it grants 2. Then it tells c ≥ F1, or
// a clock that has reached F1, for c was F1 or more when it expired. So F2 > F1. ∎ A node
// heals as above: what it knew when it expired, it forgot.

// Blocks. A holder may take k more numbers for those who get the lock from it in its process,
// and phase 2 notes F + k. Read c = max(c, F + k) above: 2 heard c ≥ F1 + k, so F2 is greater
// than each number of 1. ∎

// A simVariant is a way to use the counters, on so many nodes.
type simVariant struct {
	nodes         int
	onePhase      bool  // phase 1 increments and tells, and that is all
	unconditional bool  // phase 2 does not look at the key
	silenceIsZero bool  // a blank node counts like any other
	healsEarly    bool  // phase 2 heals, and what it healed counts in W
	expires       bool  // counters expire
	fromNow       bool  // … some time after they were set, whatever the clock says
	once          bool  // … by the first number that they had, not by the last
	more          int32 // a holder takes so many more numbers than one
	onlyFirst     bool  // … and phase 2 notes the first
}

const simNodes, simTries = 5, 3 // at most

// A simState is everything: the nodes, and the attempts with what is under way. It is a
// value, so that the exhaustive search can tell which it has seen.
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
	past   int32 // the greatest clock at which one has expired
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
	simOver // given up, or released; requests may still arrive
)

// A simEvent is one thing that can happen, at any moment. A reply that comes too late to
// count is as good as a lost one. One that comes in time says what was true when the node
// spoke. So a request and its reply are one event.
type simEvent struct {
	what      simWhat
	try, node int
}

type simWhat uint8

const (
	simBegin     simWhat = iota
	simGrant             // a grant request arrives
	simGrantLost         // … and its reply does not
	simWrite             // phase 2 begins, by a client that may have been paused for long
	simWriteBack         // a write-back arrives
	simWriteLost         // … and its reply does not
	simFinish            // the client knows that it holds the lock
	simHeal              // a heal arrives
	simJoin              // a node that lost the key of a held lock is given it again
	simEnd               // the client gives up, releases, or dies
	simExpire            // in time, early or late, or a release that arrives
	simForget            // a node loses its memory
	simTick              // a node's clock goes on
	simSetBack           // a node's clock is set back
	simLapse             // a counter expires
)

// next lets e happen to s. It returns false if that cannot be; wrong tells of a
// duplicate or an inversion.
func (v simVariant) next(s *simState, e simEvent) (ok bool, wrong string) {
	n, a, bit := &s.nodes[e.node], &s.tries[e.try], uint8(1)<<e.node
	majority := func(set uint8) bool { return bits.OnesCount8(set) > v.nodes/2 }
	switch e.what {
	case simBegin:
		if a.phase != simIdle && a.phase != simOver {
			return false, ""
		}
		s.tokens++
		*a = simTry{phase: simAsking, token: s.tokens, floor: s.finished, grants: 1<<v.nodes - 1}
	case simGrant, simGrantLost:
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
	case simWriteBack, simWriteLost:
		if a.writes&bit == 0 {
			return false, ""
		}
		a.writes &^= bit
		if n.key != a.token && !v.unconditional {
			return true, ""
		}
		v.note(n, v.noted(a))
		expired := v.expires && n.memory == a.told[e.node] // since it granted this, when it knew
		n.blank = n.blank && !v.healsEarly && !v.silenceIsZero && !expired
		if e.what == simWriteBack && a.phase == simWriting {
			a.w |= bit
		}
	case simFinish:
		if a.phase != simWriting || !majority(a.w) {
			return false, ""
		}
		if !v.healsEarly {
			a.heals = a.blank
		}
		return true, v.finish(s, a)
	case simHeal:
		if a.heals&bit == 0 {
			return false, ""
		}
		a.heals &^= bit
		if n.memory == a.told[e.node] {
			v.note(n, v.noted(a))
			n.blank = false
		}
	case simJoin:
		if a.phase != simHeld || n.key != 0 {
			return false, ""
		}
		n.key = a.token
	case simEnd:
		if a.phase == simIdle || a.phase == simOver {
			return false, ""
		}
		a.phase = simOver
	case simExpire:
		if n.key == 0 {
			return false, ""
		}
		n.key = 0
	case simForget:
		if !n.blank && s.blank() == (v.nodes-1)/2 {
			return false, "" // one more would only end all progress
		}
		s.memories++
		*n = simNode{memory: s.memories, blank: true, clock: n.clock, past: n.past}
	case simTick:
		n.clock++
	case simSetBack:
		if n.clock == n.past {
			return false, ""
		}
		n.clock = n.past
	case simLapse:
		ever := n.memory > 0
		if !v.expires || n.c == 0 || n.clock < n.until && !v.fromNow || ever && !n.blank && s.blank() == (v.nodes-1)/2 {
			return false, ""
		}
		n.past = max(n.past, min(n.until, n.clock))
		n.c, n.until, n.blank = 0, 0, n.blank || ever
	}
	return true, ""
}

// note has a node know a fence.
func (v simVariant) note(n *simNode, fence int32) {
	if n.c == 0 || !v.once {
		n.until = max(n.c, fence)
	}
	n.c = max(n.c, fence)
}

// noted is what phase 2 has nodes note.
func (v simVariant) noted(a *simTry) int32 {
	if v.onlyFirst {
		return a.fence
	}
	return a.fence + v.more
}

// blank is how many nodes are.
func (s *simState) blank() (blank int) {
	for _, n := range s.nodes {
		if n.blank {
			blank++
		}
	}
	return blank
}

// finish is the moment from which on the client may tell others of its fence.
func (v simVariant) finish(s *simState, a *simTry) (wrong string) {
	a.phase = simHeld
	if a.fence <= a.floor {
		wrong = fmt.Sprintf("a fence of %d, but it began after one of %d was finished", a.fence, a.floor)
	}
	s.finished = max(s.finished, a.fence+v.more)
	a.floor, a.q, a.w, a.blank = 0, 0, 0, 0 // as they do not matter any more, states are alike
	return wrong
}

// wanted reports whether the key on node is that of somebody who is still at it.
func (s *simState) wanted(node int) bool {
	for i := range s.tries {
		if a := &s.tries[i]; a.token == s.nodes[node].key && a.phase != simOver {
			return true
		}
	}
	return false
}

// pending is the first node from this one on in a set, if there is one.
func (v simVariant) pending(set uint8, node int) int {
	for range v.nodes {
		if set>>node&1 == 1 {
			break
		}
		node = (node + 1) % v.nodes
	}
	return node
}

// run lets random events happen. The seed decides.
func (v simVariant) run(seed uint64, steps int, losses bool) (acquired int, wrong string) {
	r := rand.New(rand.NewPCG(seed, 0))
	// Each run has an adversary with habits of its own: one that loses hardly anything
	// finds other histories than one that loses most.
	clients, early, forget := 1+r.IntN(simTries), 1+r.IntN(100), 2+r.IntN(20)
	weights := [simLapse + 1]int{
		simBegin: 10, simGrant: 40, simGrantLost: r.IntN(8), simWrite: 1 + r.IntN(20), simWriteBack: 30, simWriteLost: r.IntN(8),
		simFinish: 20, simHeal: 1 + r.IntN(10), simJoin: r.IntN(4), simEnd: 2 + r.IntN(10), simExpire: 40, simForget: 2,
	}
	if v.expires {
		weights[simTick], weights[simSetBack], weights[simLapse] = 10+r.IntN(60), r.IntN(4), 1+r.IntN(20)
	}
	var lots []simWhat
	for what, weight := range weights {
		for range weight {
			lots = append(lots, simWhat(what))
		}
	}
	var s simState
	fences := map[int32]bool{}
	for range steps {
		e := simEvent{what: lots[r.IntN(len(lots))], try: r.IntN(clients), node: r.IntN(v.nodes)}
		if e.what == simExpire && s.wanted(e.node) && r.IntN(early) > 0 {
			continue // there must be progress, too
		}
		if e.what == simForget && (!losses || r.IntN(forget) > 0) {
			continue
		}
		a := &s.tries[e.try]
		switch e.what {
		case simGrant, simGrantLost:
			e.node = v.pending(a.grants, e.node)
		case simWriteBack, simWriteLost:
			e.node = v.pending(a.writes, e.node)
		case simHeal:
			e.node = v.pending(a.heals, e.node)
		}
		before := a.phase
		_, wrong := v.next(&s, e)
		if a.phase == simHeld && before != simHeld {
			acquired++
			for f := a.fence; f <= a.fence+v.more; f++ {
				if fences[f] {
					wrong = fmt.Sprintf("two with fence %d", f)
				}
				fences[f] = true
			}
		}
		if wrong != "" {
			return acquired, wrong
		}
	}
	return acquired, ""
}

var simVariants = []struct {
	name    string
	correct bool
	losses  bool
	rare    bool // so rarely wrong that chance does not find it
	large   bool // too large for TestFenceExhaustive, or not to be seen in a small world
	simVariant
}{
	{name: "one phase", simVariant: simVariant{onePhase: true}},
	{name: "write-back though another has the key", simVariant: simVariant{unconditional: true}},
	{name: "write-back", correct: true},
	{name: "losses, silence counts as zero", losses: true, simVariant: simVariant{silenceIsZero: true}},
	{name: "losses, healed by any write-back", losses: true, rare: true, simVariant: simVariant{healsEarly: true}},
	{name: "losses, healed after a success", losses: true, correct: true},
	{name: "counters expire some time after they are set", simVariant: simVariant{expires: true, fromNow: true}},
	{name: "counters expire by their first number", large: true, simVariant: simVariant{expires: true, once: true}},
	{name: "counters expire by their number", correct: true, simVariant: simVariant{expires: true}},
	{name: "blocks, of which the first number is noted", simVariant: simVariant{more: 1, onlyFirst: true}},
	{name: "blocks", correct: true, simVariant: simVariant{more: 1}},
	{name: "losses, blocks, and counters expire by their number", losses: true, correct: true, large: true, simVariant: simVariant{expires: true, more: 2}},
	{name: "losses, and counters expire by their number", losses: true, correct: true, large: true, simVariant: simVariant{expires: true}},
}

// TestFenceSimulation runs five nodes at random: two thousand acquisitions
// where the fences are correct, and elsewhere until one is wrong.
func TestFenceSimulation(t *testing.T) {
	t.Parallel()
	for _, c := range simVariants {
		if c.rare {
			continue // TestFenceExhaustive finds it
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.nodes = 5
			acquired := 0
			for seed := uint64(1); acquired < 2_000; seed++ {
				n, wrong := c.run(seed, 10_000, c.losses)
				acquired += n
				switch {
				case wrong != "" && c.correct:
					t.Fatalf("seed %d, after %d acquisitions: %s", seed, acquired, wrong)
				case wrong != "":
					t.Logf("seed %d, after %d acquisitions: %s", seed, acquired, wrong)
					return
				}
			}
			t.Logf("%d acquisitions", acquired)
			if !c.correct {
				t.Error("no fence was wrong: the simulation does not see what it is for")
			}
		})
	}
}

// A smallState is a state of three nodes and two attempts, in whose world no number
// outgrows a byte. Nodes are alike, so their order is not in it.
type smallState struct {
	finished int32
	nodes    [3]smallNode
	tries    [2][3]int32
}

type smallNode [12]byte

func (s *simState) small() (k smallState) {
	k.finished = s.finished
	for t, a := range s.tries[:2] {
		k.tries[t] = [3]int32{int32(a.phase), a.floor, a.fence}
	}
	for i, n := range s.nodes[:3] {
		b := append(k.nodes[i][:0], byte(n.key), byte(n.c), byte(n.memory), byte(n.clock)<<4|byte(n.until))
		if n.blank {
			b[2] |= 0x80
		}
		for _, a := range s.tries[:2] {
			var sets byte
			for bit, set := range []uint8{a.grants, a.writes, a.heals, a.q, a.blank, a.w} {
				sets |= set >> i & 1 << bit
			}
			b = append(b, sets, byte(a.told[i]))
		}
	}
	slices.SortFunc(k.nodes[:], func(a, b smallNode) int { return bytes.Compare(a[:], b[:]) })
	return k
}

// explore follows every order of events in a small world: three nodes, two attempts, so
// many losses. It returns how many states there are, and the shortest history that goes
// wrong.
func (v simVariant) explore(losses int) (states int, wrong string) {
	v.nodes = 3
	type visit struct {
		simState
		from int
		simEvent
	}
	seen := map[smallState]bool{}
	visits := []visit{{from: -1}}
	for at := 0; at < len(visits); at++ {
		for _, e := range smallEvents {
			s := visits[at].simState
			a, other := &s.tries[e.try], &s.tries[1-e.try]
			if e.what == simForget && int(s.memories) == losses {
				continue
			}
			if n := &s.nodes[e.node]; e.what == simLapse && v.expires && !v.fromNow {
				n.clock = max(n.clock, n.until) // no sooner: the node reports a lesser time for longer
			}
			if a.phase == simIdle && (e.what == simGrant || e.what == simGrantLost) && (e.try == 0 || other.phase != simIdle) {
				// To begin just before its first grant is the hardest: most is finished.
				v.next(&s, simEvent{what: simBegin, try: e.try})
			}
			ok, wrong := v.next(&s, e)
			if !ok {
				continue
			}
			if e.what == simWriteBack {
				// So is to finish as soon as it can: the more begins later.
				_, wrong = v.next(&s, simEvent{what: simFinish, try: e.try})
			}
			if a.phase == simHeld && other.phase == simHeld && max(a.fence, other.fence) <= min(a.fence, other.fence)+v.more {
				wrong = fmt.Sprintf("two with fence %d", max(a.fence, other.fence))
			}
			if wrong != "" {
				history := []string{e.String(), wrong}
				for ; at > 0; at = visits[at].from {
					history = append(history, "")
					copy(history[1:], history)
					history[0] = visits[at].simEvent.String()
				}
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

// smallEvents are those that matter in a small world. The others are a request that
// never arrives, or an attempt that does nothing more, and so are in it already.
var smallEvents = func() (es []simEvent) {
	for node := range 3 {
		for try := range 2 {
			for _, what := range []simWhat{simGrant, simGrantLost, simWriteBack, simHeal, simJoin} {
				es = append(es, simEvent{what, try, node})
			}
			if node == 0 {
				es = append(es, simEvent{what: simWrite, try: try})
			}
		}
		es = append(es, simEvent{what: simExpire, node: node}, simEvent{what: simForget, node: node},
			simEvent{what: simLapse, node: node})
	}
	return es
}()

func (e simEvent) String() string {
	client, node := string(rune('A'+e.try)), e.node+1
	switch e.what {
	case simGrant:
		return fmt.Sprintf("node %d grants %s", node, client)
	case simGrantLost:
		return fmt.Sprintf("node %d grants %s, which does not hear of it in time", node, client)
	case simWrite:
		return fmt.Sprintf("%s has heard enough", client)
	case simWriteBack:
		return fmt.Sprintf("node %d gets the write-back of %s", node, client)
	case simHeal:
		return fmt.Sprintf("node %d gets the heal of %s", node, client)
	case simJoin:
		return fmt.Sprintf("node %d is given the key of %s", node, client)
	case simExpire:
		return fmt.Sprintf("node %d lets its key go", node)
	case simForget:
		return fmt.Sprintf("node %d forgets", node)
	case simTick:
		return fmt.Sprintf("node %d has a later time", node)
	case simSetBack:
		return fmt.Sprintf("node %d has its clock set back", node)
	case simLapse:
		return fmt.Sprintf("node %d lets its counter expire", node)
	}
	return fmt.Sprintf("event %d of %s at node %d", e.what, client, node)
}

// TestFenceExhaustive tries all there is in a small world.
func TestFenceExhaustive(t *testing.T) {
	t.Parallel()
	for _, c := range simVariants {
		if c.large {
			continue // TestFenceSimulation plays it
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			losses := 0
			if c.losses {
				losses = 1
			}
			states, wrong := c.explore(losses)
			t.Logf("%d states\n%s", states, wrong)
			if c.correct != (wrong == "") {
				t.Errorf("went wrong: %v, want %v", wrong != "", !c.correct)
			}
		})
	}
}
