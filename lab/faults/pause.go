package faults

import (
	"context"
	"errors"

	steered "github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/lessons"
)

// pauses are those of a holder who is paused for longer than its lock lasts: a garbage
// collection, SIGSTOP. It is stopped for real, in a process of its own.
// The data that the lock protects is in a store next to the servers.
func pauses() []Fault {
	const (
		late    = "between the look and the write no lock can help: A's write comes last, and B's is lost"
		refused = "the store has seen B's fence, which is greater, and refuses A's write"
	)
	return []Fault{
		{Name: "holder paused, looks before it writes", Prevent: "fences",
			Story: "A's process is stopped (SIGSTOP) past its TTL. B gets the lock and writes. A goes on, and looks whether it still holds the lock before it writes.",
			Cells: every(Detected, "A's deadline is on a clock that went on while A was paused, so A knows as soon as it looks (that of a machine that was suspended may not have: then only a fence helps)"),
			play: func(s *Stage) {
				a := s.process("A", steered.OpenCarelessStore)
				s.Must(a.by.Pause(s.ctx), "pausing A")
				s.becomes("A", lessons.Paused, "is paused: its process is stopped")
				a.overtaken(s)
				err := a.hold.Write(s.ctx, "A's")
				s.becomes("A", lessons.Awake, "goes on, and wants to write: %s", s.words(err))
				a.judge(s, err)
			}},
		{Name: "holder paused between look and write", Prevent: "fences",
			Story: "A reads, and looks whether it still holds the lock; then its process is stopped (SIGSTOP) past its TTL. B gets the lock, reads and writes. A goes on, and writes.",
			Cells: every(Violated, late),
			play:  func(s *Stage) { s.lateWrite(steered.OpenCarelessStore) }},
		{Name: "holder paused, and the store looks at fences", Prevent: "a strategy with fences",
			Story: "A reads, and looks whether it still holds the lock; then its process is stopped (SIGSTOP) past its TTL. B gets the lock, reads and writes. A goes on, and writes. Both show their fences to the store, which accepts none that is less than what it has seen.",
			Cells: every(Detected, refused,
				in(Violated, "there is no fence: without a script the lock and a number would come in two steps, so the numbers may have the wrong order", "setnxgetset", "setnxpx", "ifeq"),
				in(Violated, "there is no fence unless it is asked for, and "+late, "redlock"),
				in(Detected, refused, "redlock-fenced")),
			play: func(s *Stage) { s.lateWrite(steered.OpenStore) }},
	}
}

// A worker is a holder who reads and writes what the lock protects.
type worker struct {
	by    *steered.Contender
	hold  *steered.Hold
	store *steered.Store
	rival *steered.Contender // who has overtaken it
}

// process is a worker in a process of its own, who has the lock for a short TTL, and has
// read what is to be overwritten.
func (s *Stage) process(who string, open func() (*steered.Store, error)) *worker {
	store, err := open()
	s.Must(err, "the store")
	s.later(anyway(store.Close))
	w := &worker{store: store}
	setup := s.setup(who, store)
	setup.TTL, setup.OpTimeout = s.brief, s.brief/3
	w.by, err = steered.Start(s.ctx, setup)
	s.Must(err, "starting %s", who)
	s.later(func(context.Context) error {
		defer s.becomes(who, lessons.Ended, "leaves: its process ends")
		return w.by.Close()
	})
	s.work(who, w)
	return w
}

// setup is a contender's, who has a network of its own to each server.
func (s *Stage) setup(who string, store *steered.Store) steered.Setup {
	setup := steered.Setup{Name: who, Variant: s.column.Name, TTL: s.ttl, OpTimeout: s.op, Store: store.Addr()}
	for i, n := range s.rig.Nodes {
		addr := n.Link().Addr()
		s.linked.Store(addr, i)
		setup.Addrs = append(setup.Addrs, addr)
	}
	return setup
}

// work takes the lock and reads.
func (s *Stage) work(who string, w *worker) {
	var err error
	w.hold, err = w.by.Acquire(s.ctx, steered.Bid{Lock: s.name, Wait: s.longest()})
	s.Must(err, "%s gets no lock", who)
	value, err := w.hold.Read(s.ctx)
	s.Must(err, "%s cannot read", who)
	s.becomes(who, lessons.Holds, "has the lock, and reads %q", value)
}

// overtaken lets B take the lock, when the TTL is over, and write; then w goes on.
func (w *worker) overtaken(s *Stage) {
	by, err := steered.Start(s.ctx, s.setup("B", w.store))
	s.Must(err, "opening B")
	s.later(anyway(by.Close))
	w.rival = by
	b := &worker{by: by, store: w.store}
	s.work("B", b)
	s.Must(b.hold.Write(s.ctx, "B's"), "B cannot write")
	s.say("B writes")
	s.Must(w.by.Thaw(), "A does not go on")
	s.later(func(ctx context.Context) error {
		defer s.becomes("B", lessons.Ended, "releases the lock")
		return b.hold.Release(ctx)
	})
}

// lateWrite stops A's process between its look and its write.
func (s *Stage) lateWrite(open func() (*steered.Store, error)) {
	a := s.process("A", open)
	wrote := make(chan error, 1)
	go func() { wrote <- a.hold.WriteAfterStop(s.ctx, "A's") }()
	s.Must(a.by.Stopped(s.ctx), "A does not stop")
	s.becomes("A", lessons.Paused, "has looked, and is paused before it writes: its process is stopped")
	a.overtaken(s)
	err := <-wrote
	s.becomes("A", lessons.Awake, "goes on, and writes: %s", s.words(err))
	a.judge(s, err)
}

// judge looks at what is stored when both have written. The judges of histories must see the
// same in what each has recorded, and nothing worse.
func (w *worker) judge(s *Stage, err error) {
	lost := false
	for _, v := range w.violations(s) {
		if v.Property != "NoLostUpdate" {
			s.Cannot("the history: %v", v)
		}
		lost = true
	}
	value := w.store.Value(s.name)
	if lost != (value != "B's") {
		s.Cannot("%q is stored, and that an update is lost is in the history: %v", value, lost)
	}
	switch {
	case lost:
		s.note(Violated, "what B wrote is lost: %q is stored", value)
	case err == nil:
		s.Cannot("A's write is nowhere")
	case errors.Is(err, steered.ErrStale):
		s.becomes("A", lessons.Ended, "no longer believes it holds the lock")
		s.note(Detected, "the store refuses A's write: %v", err)
	default:
		s.becomes("A", lessons.Ended, "knows that it has lost the lock")
		s.note(Detected, "A has lost the lock, and knows: %s", s.words(err))
	}
}

// violations are those in the histories of both.
func (w *worker) violations(s *Stage) []history.Violation {
	var ops []history.Op
	for _, c := range []*steered.Contender{w.by, w.rival} {
		more, err := c.Ops()
		s.Must(err, "the history of %s", c.Name())
		ops = append(ops, more...)
	}
	return history.Judge(ops, history.Rules{Reentrant: s.column.Reentrant, Fenced: s.column.Fenced})
}

// anyway is f for those who have a context.
func anyway(f func() error) func(context.Context) error {
	return func(context.Context) error { return f() }
}
