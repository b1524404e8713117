package election_test

// Tests package election among processes: leaders are killed or resign, and the recorded history shows one leader at a
// time. The tests of one process are in election/.

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
)

const ttl = 2 * time.Second // a process that is starved for longer loses its term, which is right and slow

func TestMain(m *testing.M) {
	if !contender.Child(subjects.All()...) {
		redistest.Main(m)
	}
}

// A term is a candidate's, while it leads.
type term struct {
	of *contender.Contender
	*contender.Hold
}

// fleet starts candidates and hears who leads.
type fleet struct {
	*testing.T
	setup contender.Setup // as whom all stand
	lock  string          // by which they lead
	leads chan term
	all   []*contender.Contender
	dead  []*contender.Contender
}

func (f *fleet) start() {
	f.Helper()
	s := f.setup
	s.Name = fmt.Sprintf("candidate %d", len(f.all)+1)
	c, err := contender.Start(f.Context(), s)
	if err != nil {
		f.Fatal(err)
	}
	f.all = append(f.all, c)
	f.stand(c)
}

// stand has the candidate campaign, until it leads for one term.
func (f *fleet) stand(c *contender.Contender) {
	go func() {
		if h, err := c.Acquire(context.Background(), contender.Bid{Lock: f.lock, Lead: true}); err == nil {
			f.leads <- term{c, h}
		}
	}()
}

// leader waits for the next; it may take what a dead leader's lock lasts, and no more than a
// slow machine adds.
func (f *fleet) leader(limit time.Duration) term {
	f.Helper()
	timeout := time.After(limit)
	for {
		select {
		case t := <-f.leads:
			if !slices.Contains(f.dead, t.of) { // or it led, and was killed meanwhile
				return t
			}
		case <-timeout:
			f.Fatalf("nobody leads after %v", limit)
		}
	}
}

// latest is who leads now, if leader lost its term to another, as on a machine that is slow.
func (f *fleet) latest(leader term) term {
	for len(f.leads) > 0 {
		if t := <-f.leads; !slices.Contains(f.dead, t.of) {
			f.stand(leader.of)
			leader = t
		}
	}
	return leader
}

// TestLeadersAreKilled: the leader is killed, again and again, or resigns. There is
// always a next, never a second, and what they write is numbered in their order.
func TestLeadersAreKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"luascript", "reentrant"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := &fleet{
				T: t, leads: make(chan term, 100), lock: fmt.Sprintf("leader of %s %d", kind, time.Now().UnixNano()),
				setup: contender.Setup{Variant: kind, Addrs: []string{redistest.Nodes(t, 1)[0].Addr()}, TTL: ttl, RetryOnError: true},
			}
			end := func() {
				for _, c := range f.all {
					if err := c.Close(); err != nil {
						t.Errorf("%s: %v", c.Name(), err)
					}
				}
			}
			t.Cleanup(end) // what a failure has left
			const candidates, kills, resignations = 3, 2, 1
			for range candidates {
				f.start()
			}
			const slow = 20 * time.Second // for a machine that starts processes meanwhile
			leader := f.leader(time.Minute)
			var deaths, resigned []time.Duration
			for i := range kills + resignations {
				leader = f.latest(leader)
				began, old := history.Now(), leader
				if i%3 == 2 {
					if err := old.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					leader = f.leader(slow)
					resigned = append(resigned, history.Now()-began)
					f.stand(old.of)
					continue
				}
				if err := old.of.Kill(); err != nil {
					t.Fatal(err)
				}
				f.dead = append(f.dead, old.of)
				leader = f.leader(ttl + slow)
				deaths = append(deaths, history.Now()-began)
				f.start() // the dead one's successor as a candidate
			}
			end()

			var ops []history.Op
			for _, c := range f.all {
				part, err := c.Ops()
				if err != nil {
					t.Fatal(err)
				}
				ops = history.Merge(ops, part)
			}
			terms := 0
			for _, op := range ops {
				if err := op.Check(); err != nil {
					t.Error(err)
				}
				if op.Kind == history.KindAcquire && op.Result == history.OK {
					terms++
				}
			}
			if terms < kills+resignations+1 {
				t.Errorf("the history has %d terms, want %d or more", terms, kills+resignations+1)
			}
			for _, v := range slices.Concat(history.Exclusion(ops, history.Rules{}), history.FenceOrder(ops, history.Rules{})) {
				t.Error(v)
			}
			t.Logf("%d terms; a leader that was killed had a successor after %v (TTL %v), one that resigned after %v", terms, deaths, ttl, resigned)
			if least := slices.Min(resigned); least >= ttl {
				t.Errorf("who resigned had a successor after %v at best, want less than the TTL", least)
			}
		})
	}
}
