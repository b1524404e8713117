package faults

import (
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/strategy"
)

// networkFaults are those of what lies between a contender and the servers. One cable
// leads to all servers, so what happens to a contender's network happens to all.
func networkFaults() []Fault {
	const (
		undone = "A does not know what became of its request, says so, and undoes it"
		again  = "a new connection is dialled, and a client without an answer asks again: an extension that arrives twice counts once, and each acquire has a token of its own"
		others = "a majority of the servers goes on without it"
	)
	return []Fault{
		{Name: "acquire: request lost",
			Story:  "A's request to acquire never arrives, and A gives up. C asks.",
			Cells:  every(Kept, "nothing was granted, and A does not believe that it was"),
			Turned: []Sloppy{{Lock: broken.TakesSilenceForYes}},
			play:   inVain("A's requests are lost on the way", func(l *rig.Link) { l.Cut(rig.Requests) }, "")},
		{Name: "acquire: reply lost",
			Story:  "A's request is granted, but the reply is lost, and A gives up. Its network heals, and C asks.",
			Cells:  every(Kept, undone),
			Turned: []Sloppy{{Lock: broken.UndoesNothing}},
			play:   inVain("replies to A are lost on the way", func(l *rig.Link) { l.Cut(rig.Replies) }, "A's network heals")},
		{Name: "acquire: request late",
			Story:  "A's request is delayed until A has given up, and then it arrives, and the lock is granted to one who has gone. C asks.",
			Cells:  every(Kept, undone+" in an order in which the undo cannot come first"),
			Turned: []Sloppy{{Lock: broken.UndoesNothing}},
			play:   inVain("A's requests are held up on the way", func(l *rig.Link) { l.Hold(rig.Requests) }, "they arrive")},
		{Name: "acquire: reply late", Prevent: "a TTL of many round trips",
			Story:  "A is granted the lock, and hears of it when most of the TTL is over. Nobody renews it; when it lapses B gets it.",
			Cells:  every(Detected, "A counts its TTL from before it asked, not from the reply, and so its lease ends before the lock expires on the servers"),
			Turned: []Sloppy{{Lock: broken.CountsFromTheReply}},
			play: func(s *Stage) {
				a := s.contender("A", func(o *strategy.Options) { o.TTL, o.OpTimeout = s.brief, s.brief*9/10 })
				a.connect()
				s.say("replies to A take, together, half of the TTL")
				a.each(func(l *rig.Link) { l.Delay(rig.Replies, s.brief/2/time.Duration(s.column.trips())) })
				h, err := a.try()
				s.Must(err, "A's reply comes too late")
				b := s.contender("B").acquire(s.ttl)
				if b == nil {
					s.Cannot("B does not get the lock after its TTL")
				}
				h.awaitLoss(0)
			}},
		{Name: "extend: reply lost",
			Story:  "A holds the lock. The reply to its extension is lost, and then its network heals. B asks, A releases, C asks.",
			Cells:  every(Kept, "A's deadline stays where it was until an answer comes, and extending twice does no harm"),
			Turned: []Sloppy{{Lock: broken.NeverDialsAgain}},
			held:   extendsTwice("replies to A are lost on the way", rig.Replies)},
		{Name: "release: request lost", Prevent: "a short TTL: the others wait for it",
			Story: "A's request to release never arrives. C asks; then A's network heals.",
			Cells: every(Unavailable, "the servers have not heard of the release: the lock stays until it is repeated, or the TTL is over"),
			held: func(s *Stage, a *hold) {
				s.lost(a.by, "A's requests are lost on the way", rig.Requests)
				a.release()
				s.next("C")
			}},
		{Name: "release: reply lost, and repeated when another holds it",
			Story:  "A's release arrives, but its reply is lost. C gets the lock. A's network heals, and its release is repeated. D asks.",
			Cells:  every(Kept, "the repeated release compares, finds another's token, and leaves it alone"),
			Turned: []Sloppy{{Lock: broken.ReleasesAnything}},
			held: func(s *Stage, a *hold) {
				a.by.connect() // who was granted the lock on a connection that was lent has no other yet
				lost := a.by.at(s.column.deletes, func() { s.lost(a.by, "replies to A are lost on the way", rig.Replies) }, nil)
				a.release()
				lost()
				c := s.next("C")
				a.by.heal()
				s.say("A's network heals")
				a.by.leave() // which waits for the repeated release
				s.rival("D")
				if c != nil {
					c.release()
				}
				s.next("E")
			}},
		{Name: "two ask at once",
			Story:  "Neither hears of the answer to its first request before the other's is answered. Of five servers, A's requests reach some first, and B's the others, and one is out of reach, so neither gets a majority; then all arrive. Both go on asking, and the one that gets the lock releases it when the other's first attempt is over.",
			Cells:  every(Kept, "one gets it and the other waits", in(Kept, "who was refused takes its votes back at once, and asks again at random times", "redlock")),
			Turned: []Sloppy{{Lock: broken.TakesHalfForMost}, {Lock: broken.LooksBeforeItTakes}},
			play:   (*Stage).split},
		{Name: "re-entry: reply lost",
			Story:  "A holds the lock, and asks for it again as the same owner; the reply is lost. A's network heals, B asks, A releases, C asks.",
			Cells:  every(Kept, "the owner is refused as anybody else, and has nothing to undo", in(Kept, "each hold is a field of its own, so undoing the second leaves the first", "reentrant")),
			Turned: []Sloppy{{Lock: broken.UndoesNothing}, {Lock: broken.NeverDialsAgain}},
			play: func(s *Stage) {
				a := s.contender("A")
				a.beyond((*rig.Link).Refuse)
				ctx := strategy.WithOwner(s.ctx, "A")
				lease, err := a.locks.NewLock(s.name).TryAcquire(ctx)
				h := a.got(lease, err)
				if h == nil {
					s.Cannot("A gets no lock to begin with: %w", err)
				}
				s.lost(a, "replies to A are lost on the way", rig.Replies)
				again, err := a.locks.NewLock(s.name).TryAcquire(ctx)
				if err != nil {
					s.say("A asks again: %s", s.words(err))
				}
				if a.got(again, err) != nil {
					s.Cannot("A hears of it")
				}
				a.heal()
				s.say("A's network heals")
				h.insist()
				s.follow(h)
			}},
		{Name: "partition of the holder", Prevent: "nothing; stop the work when the lease's context ends",
			Story: "A keeps the lock alive, and is cut off from all servers, without a sign. B gets the lock when it lapses.",
			Cells: every(Detected, "the holder's own clock tells it at its deadline that the lock is lost, and the deadline comes before the lock expires on the servers"),
			play: func(s *Stage) {
				a := s.holder("A", brief(s))
				a.keepAlive()
				s.lost(a.by, "A is cut off", rig.Both)
				s.succeeds("B", "its TTL")
				a.awaitLoss(0)
			}},
		{Name: "half-open connection",
			Story:  "A holds the lock, and its connections die without a sign while it says nothing. Then it extends. B asks, A releases, C asks.",
			Cells:  every(Kept, again),
			Turned: []Sloppy{{Lock: broken.NeverDialsAgain}},
			held:   extendsTwice("A's connections die, and nobody tells it", rig.Both)},
		{Name: "slow network",
			Story: "Every packet of A takes a tenth of its time-out. A acquires, extends, B asks, A releases, C asks.",
			Cells: every(Kept, "every answer comes within its time-out, and deadlines count from before the request: it is slow, and that is all",
				in(Unavailable, "a transaction is six round trips, which is more than the time-out: the lock cannot be renewed, and is held until its TTL is over", "setnxgetset-watch")),
			Turned: []Sloppy{{Lock: broken.IsImpatient}},
			play: func(s *Stage) {
				a := s.contender("A")
				a.each(func(l *rig.Link) { l.Delay(rig.Both, s.op/10) })
				h := a.acquire(s.ttl)
				if h == nil {
					s.note(Unavailable, "A does not get the lock")
					return
				}
				h.insist()
				s.follow(h)
			}},
		{Name: "connections reset",
			Story:  "A holds the lock, and B waits for it. All connections of both are reset. A extends and releases, and B gets the lock.",
			Cells:  every(Kept, again),
			Turned: []Sloppy{{Lock: broken.NeverDialsAgain}, grantsWhatIsHeld},
			held: func(s *Stage, a *hold) {
				served := s.waiter("B")
				s.say("all connections are reset")
				for _, c := range s.contenders {
					c.each((*rig.Link).Reset)
				}
				a.insist()
				a.release()
				served()
			}},
		{Name: "CLIENT KILL, again and again",
			Story:  "A holds the lock, and B waits for it. The server kills all its clients ten times while A extends. A releases, and B gets the lock.",
			Cells:  every(Kept, again),
			Turned: []Sloppy{{Lock: broken.NeverDialsAgain}},
			held: func(s *Stage, a *hold) {
				served := s.waiter("B")
				for range 10 {
					s.Must(s.victim().KillClients(s.ctx), "CLIENT KILL")
					a.extend()
				}
				s.say("ten times all clients were killed")
				a.insist()
				a.release()
				served()
			}},
		{Name: "server out of reach: refused", Prevent: "`redlock`; `RetryOnError` to wait for the server",
			Story:  "Nobody can reach a server: connections are refused. A asks; if it gets the lock, B asks, A releases, C asks.",
			Cells:  every(Unavailable, "the only server cannot be reached", in(Kept, others, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			play:   without("a server refuses all connections", (*rig.Link).Refuse)},
		{Name: "server out of reach: silent", Prevent: "`redlock`; `RetryOnError` to wait for the server",
			Story:  "Requests to a server vanish. A asks; if it gets the lock, B asks, A releases, C asks.",
			Cells:  every(Unavailable, "the only server cannot be reached", in(Kept, others, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			play:   without("what is sent to a server vanishes", func(l *rig.Link) { l.Cut(rig.Both) })},
		{Name: "server hears, and cannot answer", Prevent: "`redlock`",
			Story:  "A server gets all requests, but its replies vanish. A asks; if it gets the lock, B asks, A releases. The server heals, and C asks.",
			Cells:  every(Unavailable, "whatever the only server grants, nobody hears of, and its caller undoes it", in(Kept, "the others are a majority, and the votes of the one whose answers are lost are undone", "redlock")),
			Turned: []Sloppy{trustsOneServer},
			play:   without("replies of a server vanish", func(l *rig.Link) { l.Cut(rig.Replies) })},
		{Name: "slow server", Prevent: "an `OpTimeout` longer than the server's slowest command",
			Story:  "A server answers later than anybody waits. A asks; if it gets the lock, it extends, B asks, A releases, C asks.",
			Cells:  every(Unavailable, "the only server answers when its caller has given up, and undoes", in(Kept, "who does not answer within the time-out for one node is not waited for, on acquire, extend and release", "redlock")),
			Turned: []Sloppy{trustsOneServer},
			play: func(s *Stage) {
				s.everywhere("a server answers late", s.victim(), func(l *rig.Link) { l.Delay(rig.Replies, 2*s.op) })
				if a := s.next("A"); a != nil {
					a.extend()
					s.follow(a)
				}
			}},
	}
}

// inVain is a play in which A asks once and hears nothing. Then its network heals, if there are words for that.
func inVain(what string, harm func(*rig.Link), then string) func(*Stage) {
	return func(s *Stage) {
		a := s.contender("A")
		a.connect()
		a.each(harm)
		s.say("%s", what)
		a.try()
		if then != "" {
			a.heal()
			s.say("%s", then)
		}
		s.next("C")
	}
}

// extendsTwice is a play in which A's network loses what goes that way while A extends, and heals.
func extendsTwice(what string, d rig.Direction) func(*Stage, *hold) {
	return func(s *Stage, a *hold) {
		s.lost(a.by, what, d)
		a.extend()
		a.by.heal()
		s.say("A's network heals")
		a.insist()
		s.follow(a)
	}
}

// without is a play in which nobody can do with a server what is needed.
func without(what string, harm func(*rig.Link)) func(*Stage) {
	return func(s *Stage) {
		s.everywhere(what, s.victim(), harm)
		s.beginAfterFault()
	}
}

// split lets two contenders ask at once, each of whom reaches other servers first. Neither
// hears what its first request came to before the other's is answered, so that one that
// looks before it takes looks too early; the one that gets the lock keeps it until the other's
// first attempt is over, so that it shows if both have it.
func (s *Stage) split() {
	a, b := s.contender("A"), s.contender("B")
	a.connect()
	b.connect()
	if s.quorum() > 1 {
		for _, c := range s.contenders {
			c.links[len(c.links)-1].Refuse()
		}
		half := len(s.rig.Nodes) / 2
		for i := range half {
			b.links[i].Hold(rig.Requests)
			a.links[half+i].Hold(rig.Requests)
		}
		s.say("A's requests are held up on the way to one half of the servers, and B's to the other")
	}
	got := make(chan *hold, 2)
	asked, told := make(chan struct{}, 2), make(chan struct{})
	var tried sync.WaitGroup
	tried.Add(2)
	for _, c := range []*contender{a, b} {
		near := 0
		if s.quorum() > 1 && c == b {
			near = len(s.rig.Nodes) / 2
		}
		c.atServer(near, 1, nil, func() { asked <- struct{}{}; <-told })
		go func() {
			h, _ := c.try()
			tried.Done()
			if h == nil {
				h = c.acquire(s.ttl / 2)
			}
			tried.Wait()
			if h != nil {
				h.release()
			}
			got <- h
		}()
	}
	for range 2 {
		select {
		case <-asked:
		case <-time.After(s.ttl):
			close(told)
			s.Cannot("they do not come to ask")
		}
	}
	if s.quorum() > 1 {
		for i := range len(s.rig.Nodes) - 1 {
			a.links[i].Heal()
			b.links[i].Heal()
		}
		s.say("they arrive")
	}
	close(told)
	for range 2 {
		if <-got == nil {
			s.note(Unavailable, "one of them does not get the lock, though nobody keeps it")
		}
	}
}

// lost makes a contender's network lose what goes one way, or both.
func (s *Stage) lost(c *contender, what string, d rig.Direction) {
	c.each(func(l *rig.Link) { l.Cut(d) })
	s.say("%s", what)
}

// waiter is a new contender who waits for the lock, and has begun to when this returns. served
// waits until the lock is his.
func (s *Stage) waiter(who string) (served func()) {
	c := s.contender(who)
	refused := make(chan struct{})
	c.at(1, nil, func() { close(refused) })
	got := make(chan *hold, 1)
	go func() { got <- c.acquire(s.ttl) }()
	select {
	case <-refused:
	case <-time.After(s.ttl):
		s.Cannot("%s does not come to ask", who)
	}
	return func() {
		if <-got == nil {
			s.note(Unavailable, "%s, who waits, does not get the lock that was released", who)
		}
	}
}
