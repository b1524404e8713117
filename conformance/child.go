package conformance

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/strategy"
)

// Some trials need several processes: children, which are this program, started again. A child
// says what it has done or is about to do, and waits for the parent's answer. So the order in
// which the parent hears them is the order in which things happened: no clock is needed to say
// which process held the lock when.

// role is that of children of trials; see package child.
const role = "conformance"

// A job is what a child is to do.
type job struct {
	Subject string
	Lock    string
	Rounds  int // take the lock so often, and release it each time; 0: hold it until killed
	TTL     time.Duration
}

// The words that children say.
const (
	wordReady = "ready"
	wordIn    = "in"
	wordOut   = "out"
	wordDone  = "done"
)

// Child makes this process a child of a trial, if it was started as one: it does its
// job and returns true, and main should return. Call it first in the main of a
// program that calls [Check], with all subjects that it checks.
func Child(subjects ...Subject) bool {
	return child.Run(role, func(ctx context.Context, parent *child.Parent, j job) error {
		for _, s := range subjects {
			if s.Name == j.Subject {
				return s.work(ctx, parent, j)
			}
		}
		return fmt.Errorf("no subject is called %q here", j.Subject)
	})
}

func (s Subject) work(ctx context.Context, parent *child.Parent, j job) error {
	st, err := s.Open(strategy.Options{TTL: j.TTL, OpTimeout: j.TTL * 3 / 4, RetryOnError: true})
	if err != nil {
		return err
	}
	defer st.Close()
	if err := parent.Ask(wordReady); err != nil {
		return err
	}
	for round := 0; round < j.Rounds || j.Rounds == 0; round++ {
		lease, err := st.NewLock(j.Lock).Acquire(ctx)
		if err != nil {
			return err
		}
		if err := lease.KeepAlive(0); err != nil {
			return err
		}
		if err := parent.Ask(wordIn); err != nil {
			return err
		}
		if j.Rounds == 0 {
			<-ctx.Done() // or it is killed
			return nil
		}
		if err := parent.Ask(wordOut); err != nil { // said before it is true: never too late
			return err
		}
		if err := lease.Release(ctx); err != nil {
			return err
		}
	}
	return parent.Ask(wordDone)
}

// testArgs starts a test binary so that it comes to the Run in this test and to no
// other test.
func testArgs(name string) []string {
	var pattern []string
	for part := range strings.SplitSeq(name, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	return []string{"-test.run=" + strings.Join(pattern, "/"), "-test.count=1", "-test.timeout=5m"}
}

// A sibling is a child as its trial sees it.
type sibling struct {
	*child.Process
	who string
}

func (s *sibling) answer() { s.Send(nil) }

// A word is what a child said, or how it ended.
type word struct {
	from *sibling
	text string
	err  error
}

// family starts n children with the same job. end kills them.
func (t *trial) family(n int, j job, words chan<- word) (children []*sibling, end func()) {
	t.needs(t.ChildEnv != nil, "Subject.ChildEnv is nil: the lock lives in one process")
	t.needs(t.ChildArgs != nil, "Subject.ChildArgs is nil: this program does not say how it becomes a child")
	j.Subject, j.Lock = t.Name, t.name
	ctx, cancel := context.WithCancel(t.ctx)
	var listeners sync.WaitGroup
	end = func() {
		cancel()
		for _, c := range children {
			c.Kill() // an error says that it had ended
		}
		listeners.Wait()
	}
	for i := range n {
		p, err := child.Start(child.Config{Role: role, Job: j, Args: t.ChildArgs, Env: append(os.Environ(), t.ChildEnv...)})
		if err != nil {
			end()
			t.brokef("starting a child: %w", err)
		}
		c := &sibling{p, fmt.Sprintf("child %d", i+1)}
		children = append(children, c)
		listeners.Go(func() {
			for {
				w := word{from: c}
				w.err = c.Receive(ctx, &w.text)
				select {
				case words <- w:
				case <-ctx.Done():
				}
				if w.err != nil || w.text == wordDone {
					return
				}
			}
		})
	}
	return children, end
}

// next is the next word of any child; the trial ends if one failed.
func (t *trial) next(words <-chan word) word {
	select {
	case w := <-words:
		if w.err != nil {
			t.brokef("%s: %w", w.from.who, w.err)
		}
		t.rec.add("%s: %s", w.from.who, w.text)
		return w
	case <-t.late(t.patience):
		t.failf("no child has said anything for %v, want them to get the lock in turn", t.patience)
	}
	return word{}
}

// processes is article 2's experiment: five children, one resource.
func processes(t *trial) {
	const n, rounds = 5, 4
	words := make(chan word)
	children, end := t.family(n, job{Rounds: rounds, TTL: ample.TTL}, words)
	defer end()
	for range n {
		if w := t.next(words); w.text != wordReady {
			t.brokef("%s said %q, want %s", w.from.who, w.text, wordReady)
		}
	}
	for _, c := range children {
		c.answer() // all are there: go
	}
	var inside *sibling
	served := map[*sibling]int{}
	for done := 0; done < n; {
		w := t.next(words)
		switch w.text {
		case wordIn:
			if inside != nil {
				t.failf("%s has the lock, and so has %s, want one at a time", w.from.who, inside.who)
			}
			inside = w.from
			served[w.from]++
		case wordOut:
			inside = nil
		case wordDone:
			done++
		}
		w.from.answer()
	}
	for _, c := range children {
		if served[c] != rounds {
			t.failf("%s had the lock %d times, want %d", c.who, served[c], rounds)
		}
	}
}

// holderKilled lets a child take the lock and keep it alive, and kills it.
func holderKilled(t *trial) {
	words := make(chan word)
	children, end := t.family(1, job{TTL: 3 * t.ttl}, words)
	defer end()
	holder := children[0]
	for _, want := range []string{wordReady, wordIn} {
		if w := t.next(words); w.text != want {
			t.brokef("%s said %q, want %s", w.from.who, w.text, want)
		}
		holder.answer()
	}
	b := t.contender("B", ample)
	if k := b.try(); k.err == nil {
		t.tooSlow("the child did not come to renew") // every time, if the lock does not exclude
	} else {
		k.want(strategy.ErrHeld, "a child holds the lock")
	}
	t.rec.add("%s is killed", holder.who)
	if err := holder.Kill(); err != nil {
		t.brokef("%s: %w", holder.who, err)
	}
	b.eventually("its holder is dead, and the lock expires")
}
