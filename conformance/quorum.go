package conformance

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// These properties are of a lock that lives on several servers. They look at nothing but
// what contenders get. Contenders who reach just a majority, and so need each server of it,
// find out which server keeps what.
func quorum() []Property {
	return inGroup("quorum",
		scripted("OneRound",
			"An acquisition asks all servers at the same time, so that it takes as long as one of them, and asks each once.", oneRound),
		scripted("QuorumNeeded",
			"A contender that reaches less than a majority of the servers gets nothing, so two who reach different servers never both hold the lock.",
			func(t *trial) {
				s := t.servers()
				a, b := t.linked("A", t.lasting()), t.linked("B", t.lasting())
				for k := 1; k < s.up; k++ {
					a, b := a.on(t.sub(k)), b.on(t.sub(k))
					a.reaches(s.first(k))
					b.reaches(s.last(s.up - k))
					ours, theirs := a.try(), b.try()
					if ours.err == nil && theirs.err == nil {
						t.failf("A and B both hold the lock: no server has agreed to both, but one of them has no majority")
					}
					for k, reached := range map[*call]int{&ours: k, &theirs: s.up - k} {
						if reached < s.need {
							k.wantNoQuorum("that is no majority")
						} else {
							k.mustBe(nil, "that is a majority, and nobody else has one").release().mustBe(nil, k.c.who+" holds the lock")
						}
					}
				}
				a.reaches(s.first(s.need))
				b.reaches(s.first(s.up))
				a.try().mustBe(nil, "a majority is free")
				b.try().mustBe(strategy.ErrHeld, "A holds the lock on a majority, and the rest is none")
			}),
		scripted("MinorityDown",
			"With a minority of the servers down a lock works as before: it is acquired, refused to others, extended and released, also if they went down while it was held.",
			func(t *trial) {
				s := t.servers().withSpare(t)
				a, b := t.linked("A", t.lasting()), t.linked("B", t.lasting())
				for i, left := range [][]int{s.last(s.need), s.first(s.need)} {
					a, b := a.on(t.sub(i)), b.on(t.sub(i))
					a.reaches(left)
					b.reaches(left)
					h := a.try().mustBe(nil, "the lock is free, and a majority is up")
					b.try().mustBe(strategy.ErrHeld, "A holds the lock")
					h.extend().mustBe(nil, "A holds the lock")
					h.release().mustBe(nil, "A holds the lock")
					b.eventually("A has released").release().mustBe(nil, "B holds the lock")

					a, b = a.on(t.sub(i+2)), b.on(t.sub(i+2))
					a.reaches(s.first(s.up))
					h = a.tryAll().mustBe(nil, "the lock is free")
					a.reaches(left)
					h.extend().mustBe(nil, "a majority is up, and says so")
					b.try().mustBe(strategy.ErrHeld, "A holds the lock")
					h.release().mustBe(nil, "A holds the lock")
					b.eventually("A has released, and what is left of its lock is on a minority")
				}
			}),
		scripted("MajorityDown",
			"With a majority of the servers out of reach nobody knows who holds the lock: ErrNoQuorum says so at once, and not ErrHeld or ErrLost; a holder keeps its lock until they are back.",
			func(t *trial) {
				s := t.servers()
				a, b := t.linked("A", t.lasting()), t.linked("B", t.lasting())
				minority := s.first(s.need - 1)
				a.reaches(minority)
				a.try().wantNoQuorum("A reaches no majority")
				a.acquire().wantNoQuorum("A reaches no majority, and waiting for a holder would not help")
				b.eventually("A's attempts have failed").release().mustBe(nil, "B holds the lock")
				a, b = a.on(t.sub(1)), b.on(t.sub(1))
				h := b.tryAll().mustBe(nil, "the lock is free")
				a.hears(minority)
				a.try().wantNoQuorum("a minority says that the lock is held: that is not for it to say")
				a.reaches(s.first(s.up))
				a.try().mustBe(strategy.ErrHeld, "B holds the lock")
				b.reaches(minority)
				h.extend().wantNoQuorum("B reaches no majority")
				h.err().mustBe(nil, "B's deadline has not come")
				b.reaches(s.first(s.up))
				h.extend().mustBe(nil, "B holds the lock, and reaches a majority again")
				h.release().mustBe(nil, "B holds the lock")
				a.eventually("B has released")
			}),
		scripted("HungNode",
			"A minority of servers that do not answer does not delay an acquisition, and extension and release end with the operation time-out.",
			func(t *trial) {
				s := t.servers().withSpare(t)
				hung := s.first(s.spare)
				a := t.linked("A", t.patient())
				frost := a.freeze(hung)
				half := t.patience / 2 // of the operation time-out, which is all of it
				h := await(t, aside(a.try), half, "A.TryAcquire() has not returned after %v, want <nil>: a majority has answered", half).
					mustBe(nil, "the lock is free, and a majority answers")
				frost.melt()
				h.release().mustBe(nil, "A holds the lock")

				a, b, c := t.linked("A", t.lasting()), t.linked("B", t.lasting()), t.linked("C", t.lasting())
				a, b, c = a.on(t.sub(1)), b.on(t.sub(1)), c.on(t.sub(1))
				a.freeze(hung)
				b.freeze(hung)
				h = a.try().mustBe(nil, "the lock is free, and a majority answers")
				c.try().mustBe(strategy.ErrHeld, "A holds the lock on a majority")
				b.try().mustBe(strategy.ErrHeld, "a majority says that A holds the lock")
				h.extend().mustBe(nil, "A holds the lock, and a majority answers")
				h.release().mustBe(nil, "A holds the lock, and a majority answers")
				b.eventually("A has released")
			}),
		scripted("SlowQuorum",
			"An acquisition that a majority confirms only when its TTL is nearly over is refused, and the next contender need not wait for its votes to expire.",
			func(t *trial) {
				s := t.servers()
				ttl := 4 * t.ttl
				o := strategy.Options{TTL: ttl, OpTimeout: ttl - time.Millisecond}
				nearly := ttl - ttl/20
				for i, slow := range []struct {
					what string
					gate func(wait, send func())
				}{
					{"reply", func(wait, send func()) { send(); wait() }},
					{"request", func(wait, send func()) { wait(); send() }},
				} {
					a, b := t.linked("A", o).on(t.sub(i)), t.linked("B", t.lasting()).on(t.sub(i))
					asked := time.Now()
					a.net.once(s.first(s.up), func(send func()) {
						slow.gate(func() { t.pause(nearly) }, send)
					})
					t.rec.add("each server's %s to A takes %v, of a TTL of %v", slow.what, nearly, ttl)
					k := a.try()
					if k.err == nil {
						t.failf("%s = <nil> with %v of the TTL of %v left, want an error: no majority agreed in time", k.text, time.Until(k.hold.lease.Deadline()), ttl)
					}
					if k.elapsed >= ttl-driver.Drift(ttl) {
						t.tooSlow(k.text + " = " + k.err.Error())
					}
					b.eventually("A's attempt has failed, and left nothing")
					if time.Since(asked) > nearly+ttl-ttl/20 {
						t.tooSlow("B got the lock only when A's votes had expired") // every time, if A does not withdraw them
					}
				}
			}),
		scripted("FailedAttemptLeavesNothing",
			"An attempt that is refused, or finds no quorum, takes its votes back: they block nobody.",
			func(t *trial) {
				s := t.servers()
				a, b, c := t.linked("A", t.lasting()), t.linked("B", t.lasting()), t.linked("C", t.lasting())
				a.reaches(s.first(s.need))
				h := a.try().mustBe(nil, "a majority is free")
				for range 3 {
					b.try().mustBe(strategy.ErrHeld, "A holds the lock on a majority")
				}
				h.release().mustBe(nil, "A holds the lock")
				c.reaches(s.last(s.need)) // with all that was left for B to get
				c.eventually("A has released, and B was refused")

				a, b = a.on(t.sub(1)), b.on(t.sub(1))
				a.reaches(s.first(s.need - 1))
				for range 3 {
					a.try().wantNoQuorum("A reaches no majority")
				}
				b.reaches(s.first(s.need))
				b.eventually("A's attempts have failed")
			}),
		scripted("LateGrantUndone",
			"A vote that a slow server casts after the lock was released, or after the attempt had failed, is taken back long before its TTL ends.",
			func(t *trial) {
				s := t.servers()
				if s.spare > 0 {
					a, b := t.linked("A", t.lasting()), t.linked("B", t.lasting())
					frost := a.freezeOnce(s.first(s.spare))
					h := a.try().mustBe(nil, "the lock is free, and a majority answers")
					frost.bites()
					h.release().mustBe(nil, "A holds the lock")
					frost.melt()
					b.reaches(s.first(s.need)) // with all that were slow
					b.eventually("A has released, and its late votes are taken back")
				}
				a, b := t.linked("A", t.lasting()).on(t.sub(1)), t.linked("B", t.lasting()).on(t.sub(1))
				frost := a.freezeOnce(s.first(s.up))
				if k := a.try(); k.err == nil {
					t.failf("%s = <nil>, want an error: no server has answered", k.text)
				}
				t.sleep(t.ttl / 4) // A withdraws what is not there yet: if the time is too short, the trial is less severe
				frost.melt()
				b.reaches(s.first(s.need))
				b.eventually("A's attempt has failed, and its late votes are taken back")
			}),
		scripted("EvenSplit",
			"When no contender got a majority all of them withdraw, and try again at random times, so that one after the other gets the lock.", evenSplit),
		scripted("MinorityForgets",
			"A lock that a minority of the servers knows nothing of is held: it is refused to others, extended and released.",
			func(t *trial) {
				s := t.servers().withSpare(t)
				a, b := t.linked("A", t.lasting()), t.linked("B", t.lasting())
				a.reaches(s.last(s.need)) // it is all the same whether the others forget it or never heard of it
				h := a.tryAll().mustBe(nil, "the lock is free, and a majority is up")
				a.hears(s.first(s.spare))
				h.extend().wantNoQuorum("a minority says that the lock is lost: that is not for it to say")
				h.err().mustBe(nil, "A's deadline has not come")
				a.reaches(s.first(s.up))
				for range 2 {
					h.extend().mustBe(nil, "a majority keeps A's lock")
					b.try().mustBe(strategy.ErrHeld, "a majority keeps A's lock")
				}
				h.release().mustBe(nil, "A holds the lock")
				b.eventually("A has released")
			}),
		scripted("MajorityForgets",
			"A lock that only a minority of the servers still keeps is lost: extending it says ErrLost, and others get it.",
			func(t *trial) {
				t.needs(t.Evict != nil, "Subject.Evict is nil")
				s := t.servers().withSpare(t)
				a, b := t.linked("A", t.lasting()), t.linked("B", t.lasting())
				frost := a.freezeOnce(s.first(1))
				h := a.tryAll().mustBe(nil, "the lock is free, and a majority answers")
				t.evict(t.name)
				frost.melt() // now that server alone may keep the lock
				h.extend().mustBe(strategy.ErrLost, "no majority keeps A's lock")
				h.release().mustBe(strategy.ErrLost, "a loss stays")
				b.eventually("no majority keeps A's lock")
			}),
		scripted("ReleaseEverywhere",
			"A release frees the lock on every server: also where the answer to its acquisition was lost, and, once it is back, where the server was down.",
			func(t *trial) {
				s := t.servers()
				a, b := t.linked("A", t.lasting()), t.linked("B", t.lasting())
				a.tryAll().mustBe(nil, "the lock is free").release().mustBe(nil, "A holds the lock")
				for i := range s.up - s.need + 1 {
					b.reaches(s.nodes(i, s.need))
					b.eventually("A has released").release().mustBe(nil, "B holds the lock")
				}
				if s.spare == 0 {
					return
				}
				some := s.first(s.spare)
				a, b = a.on(t.sub(1)), b.on(t.sub(1))
				frost := a.freezeReplies(some)
				h := a.try().mustBe(nil, "the lock is free, and a majority answers")
				frost.bites()
				h.release().mustBe(nil, "A holds the lock")
				b.reaches(s.first(s.need))
				b.eventually("A has released")
				frost.melt()

				a, b = a.on(t.sub(2)), b.on(t.sub(2))
				a.reaches(s.first(s.up))
				h = a.tryAll().mustBe(nil, "the lock is free")
				a.reaches(s.last(s.need))
				h.release().mustBe(nil, "A holds the lock, and a majority answers")
				a.reaches(s.first(s.up))
				b.eventually("A has released, and is back at the servers that were down then")
			}),
		scripted("WokenByMajority",
			"Where the servers announce releases, a waiter is notified though a minority of them says nothing.",
			func(t *trial) {
				s := t.servers().withSpare(t)
				o := t.listening()
				o.OpTimeout = t.lasting().OpTimeout
				for i, hung := range [][]int{s.first(s.spare), s.last(s.spare)} {
					a, b := t.linked("A", o).on(t.sub(i)), t.linked("B", o).on(t.sub(i))
					h := a.tryAll().mustBe(nil, "the lock is free")
					b.freeze(hung)
					waiter := b.start()
					t.sleep(2 * o.OpTimeout) // until it has listened, asked again, and sleeps
					h.release().mustBe(nil, "A holds the lock")
					waiter.wait("A has released").mustBe(nil, "A has released")
				}
			}),
	)
}

// majority is how many of n have to agree, so that no two can be agreed on.
func majority(n int) int { return n/2 + 1 }

func oneRound(t *trial) {
	s := t.servers()
	a := t.linked("A", t.patient())
	all := newBarrier(t, s.up)
	a.net.once(s.first(s.up), func(send func()) {
		all.pass()
		select {
		case <-all.open:
			send()
		case <-t.ctx.Done():
		}
	})
	t.rec.add("no server answers A before all have been asked")
	acquired := aside(a.try)
	select {
	case <-all.open:
	case <-t.late(t.patience / 2): // of the operation time-out, which is all of it
		t.failf("after %v A has asked %d of %d servers, want all at the same time", t.patience/2, s.up-int(all.left.Load()), s.up)
	}
	(<-acquired).mustBe(nil, "the lock is free")
	for i := range s.up {
		// A fence takes a second round.
		if n := a.net.count(i); n != 1 && !t.Fenced {
			t.failf("A.TryAcquire() made %d requests to server %d, want 1", n, i+1)
		}
	}
}

func evenSplit(t *trial) {
	s := t.servers()
	// So many that neither half is a majority. An even number is split evenly.
	voters := s.first(min(s.up, 2*(s.need-1)))
	ours, theirs := voters[:len(voters)/2], voters[len(voters)/2:]
	// A network in which contenders that ask at the same time split the votes again. Their pauses are
	// drawn from so much more than its lag that few draws tell them apart.
	const lag = 20 * time.Millisecond
	o := t.lasting()
	o.Backoff = func(int) time.Duration { return 25 * lag }
	a, b, c := t.linked("A", o), t.linked("B", o), t.linked("C", o)
	for _, x := range []*contender{a, b, c} {
		x.reaches(voters)
	}
	// Each votes for itself on its half; then each asks the other half, and is answered
	// when both have asked. They do not wait for one that does not ask so.
	byA, byB, both := newBarrier(t, len(ours)), newBarrier(t, len(theirs)), newBarrier(t, len(voters))
	first := func(voted *barrier) func(func()) {
		return func(send func()) {
			send()
			voted.pass()
		}
	}
	then := func(voted *barrier) func(func()) {
		return func(send func()) {
			voted.wait()
			send()
			both.pass()
			both.wait()
		}
	}
	a.net.once(ours, first(byA))
	b.net.once(theirs, first(byB))
	a.net.once(theirs, then(byB))
	b.net.once(ours, then(byA))
	var calls [2]call
	var tries sync.WaitGroup
	tries.Go(func() { calls[0] = a.try() })
	tries.Go(func() { calls[1] = b.try() })
	tries.Wait()
	for _, k := range calls {
		if !errors.Is(k.err, strategy.ErrHeld) && (byA.gaveUp.Load() || byB.gaveUp.Load() || both.gaveUp.Load()) {
			t.tooSlow("A and B did not vote at the same time")
		}
		k.mustBe(strategy.ErrHeld, "each got some of the votes, and no majority")
	}
	c.eventually("A and B have withdrawn").release().mustBe(nil, "C holds the lock")

	t.relies(5 * lag)
	for x, far := range map[*contender][]int{a: theirs, b: ours} {
		x.net.set(far, func(_ string, send func()) { t.pause(lag); send(); t.pause(lag) })
	}
	t.rec.add("servers %s are %v farther from A, and servers %s from B", numbers(theirs), lag, numbers(ours))
	ended := make(chan call, 2)
	for _, x := range []*contender{a, b} {
		go func() {
			k := x.acquire()
			if k.hold != nil {
				k.hold.release()
			}
			ended <- k
		}()
	}
	for range 2 {
		k := <-ended
		k.mustBe(nil, "its turn comes")
	}
}

// A barrier lets its callers go on when n have come, or after some time.
type barrier struct {
	t      *trial
	left   atomic.Int32
	open   chan struct{}
	gaveUp atomic.Bool // somebody has gone on before
}

func newBarrier(t *trial, n int) *barrier {
	b := &barrier{t: t, open: make(chan struct{})}
	b.left.Store(int32(n))
	return b
}

func (b *barrier) pass() {
	if b.left.Add(-1) == 0 {
		close(b.open)
	}
}

func (b *barrier) wait() {
	select {
	case <-b.open:
	case <-time.After(b.t.ttl / 2):
		b.gaveUp.Store(true)
	}
}

// servers are those of the trial, by number from 0.
type servers struct {
	up    int // those that are not always down: the first so many
	need  int // a majority of all
	spare int // so many more may fail
}

// servers skips the trial where there is no quorum.
func (t *trial) servers() servers {
	t.needs(t.Nodes > 1, "Subject.Nodes is less than 2: the lock lives on one server")
	t.needs(t.OpenNodes != nil, "Subject.OpenNodes is nil")
	s := servers{up: t.Nodes - t.Down, need: majority(t.Nodes)}
	s.spare = s.up - s.need
	return s
}

// withSpare skips the trial where all that are up are needed.
func (s servers) withSpare(t *trial) servers {
	t.needs(s.spare > 0, "Subject.Nodes less Subject.Down is a bare majority: no server can be spared")
	return s
}

func (s servers) nodes(first, n int) []int {
	var nodes []int
	for i := range n {
		nodes = append(nodes, first+i)
	}
	return nodes
}

func (s servers) first(n int) []int { return s.nodes(0, n) }
func (s servers) last(n int) []int  { return s.nodes(s.up-n, n) }

func numbers(nodes []int) string {
	var words []string
	for _, i := range nodes {
		words = append(words, fmt.Sprint(i+1))
	}
	return strings.Join(words, ", ")
}

// sub is another lock of the trial, for its i-th part.
func (t *trial) sub(i int) string { return fmt.Sprintf("%s/%d", t.name, i) }

// lasting is for trials in which servers fail and nothing expires: what gets no answer
// ends soon, a lock does not.
func (t *trial) lasting() strategy.Options {
	t.relies(t.ttl / 2)
	o := t.patient()
	o.OpTimeout = 2 * t.ttl
	o.TTL = max(o.TTL, 8*o.OpTimeout)
	return o
}

// mustBe is want where the script makes servers fail: then it is for the lock to do
// without them, and their errors are the lock's.
func (k call) mustBe(target error, why string) *hold {
	var server *strategy.ServerError
	if !matches(k.err, target) && errors.As(k.err, &server) && k.elapsed < k.c.o.OpTimeout/2 {
		k.t.failf("%s = %w, want %s: %s", k.text, k.err, nameOf(target), why)
	}
	return k.want(target, why)
}

// wantNoQuorum ends the trial unless the error says that too few servers were reached.
func (k call) wantNoQuorum(why string) {
	if !errors.Is(k.err, strategy.ErrNoQuorum) || errors.Is(k.err, strategy.ErrHeld) || errors.Is(k.err, strategy.ErrLost) {
		k.t.failf("%s = %w, want ErrNoQuorum, and neither ErrHeld nor ErrLost: %s", k.text, orNil{k.err}, why)
	}
}
