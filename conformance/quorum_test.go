// The suite on a small quorum lock of servers in memory, which keeps all properties, unless a test has it
// make a mistake: see quorumMutants.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// mistakes are what a quorumLock does wrongly.
type mistakes struct {
	quorum          int  // how many have to agree; 0: a majority
	oneByOne        bool // asks a server when the one before it has answered
	waitsForAll     bool // wants every server's answer
	looksFirst      bool // asks each server twice
	noValidity      bool // does not look how long it took
	startsLate      bool // counts from the last reply
	inStep          bool // does not draw lots when votes were split
	heldWhenDown    bool // calls held what a minority calls so
	keepsVotes      bool // withdraws nothing when it has failed
	releasesFirst   bool // releases on one server
	releasesGranted bool // releases where the vote was confirmed, and nowhere else
	releasesOnce    bool // does not come back to servers that did not answer
	trustsNotThere  bool // believes that what is not there will not come
	extendsAny      bool // one server that extends is enough
	extendsAll      bool // every server has to extend
	loses           bool // an error is a loss
	believesLoss    bool // so is one server that says so
	watchesAll      bool // needs all servers to announce releases
	watchesFirst    bool // listens to one server
}

type quorumLock struct {
	driver.Unsupported
	servers []memory.Gated
	mistakes
	under sync.WaitGroup // requests under way
}

// A vote is what is known of one server's.
type vote int

const (
	underWay vote = iota // not answered yet
	unknown              // never to be answered
	none                 // surely none
	granted
)

// votes are what is known of a claim's. It is the Grant's State.
type votes struct {
	mu sync.Mutex
	of []vote
}

func (v *votes) set(i int, x vote) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[i] = x
}

func (v *votes) now() []vote {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.of)
}

// An answer is what one server said.
type answer struct {
	i   int
	err error
}

func (l *quorumLock) need() int {
	if l.quorum != 0 {
		return l.quorum
	}
	return len(l.servers)/2 + 1
}

// ask asks servers, all at the same time. A request that is still under
// way when nobody listens any more ends by due.
func (l *quorumLock) ask(servers []int, f func(i int) error) <-chan answer {
	answers := make(chan answer, len(servers))
	if l.oneByOne {
		l.under.Go(func() {
			for _, i := range servers {
				answers <- answer{i, f(i)}
			}
		})
		return answers
	}
	for _, i := range servers {
		l.under.Go(func() { answers <- answer{i, f(i)} })
	}
	return answers
}

func (l *quorumLock) all() []int {
	servers := make([]int, len(l.servers))
	for i := range servers {
		servers[i] = i
	}
	return servers
}

func (l *quorumLock) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	start := time.Now()
	v := &votes{of: make([]vote, len(l.servers))}
	calm := context.WithoutCancel(ctx) // what was sent is to be answered
	answers := l.ask(l.all(), func(i int) error {
		if l.looksFirst {
			l.servers[i].Extend(calm, c)
		}
		_, err := l.servers[i].Acquire(calm, c)
		switch {
		case err == nil:
			v.set(i, granted)
		case errors.Is(err, strategy.ErrUnknown):
			v.set(i, unknown)
		default:
			v.set(i, none)
		}
		return err
	})

	heard := map[int]error{}
	yes, no := 0, 0
	undecided := func() bool {
		pending := len(l.servers) - len(heard)
		switch {
		case pending == 0:
			return false
		case l.waitsForAll:
			return true
		case yes >= l.need():
			return false
		case yes+pending >= l.need():
			return true
		}
		return yes+no < l.need() && yes+no+pending >= l.need() // held, or out of reach?
	}
	var cut error
	for cut == nil && undecided() {
		select {
		case a := <-answers:
			heard[a.i] = a.err
			switch {
			case a.err == nil:
				yes++
			case errors.Is(a.err, strategy.ErrHeld):
				no++
			}
		case <-ctx.Done():
			cut = context.Cause(ctx)
		}
	}
	g := driver.Grant{Start: start, State: v}
	if l.startsLate {
		g.Start = time.Now()
	}
	late := time.Since(start) >= c.TTL-driver.Drift(c.TTL)-c.TTL/10
	if yes >= l.need() && cut == nil && (!late || l.noValidity || l.startsLate) {
		return g, nil
	}

	err := l.failure(c, heard, yes, no)
	switch {
	case cut != nil:
		err = &strategy.ServerError{Node: "quorum", Kind: strategy.ErrUnknown, Err: cut}
	case yes >= l.need():
		err = &strategy.LostError{Name: c.Name, Lapsed: true}
	}
	if l.keepsVotes {
		return driver.Grant{}, err
	}
	_, open := l.withdraw(c, v)
	return driver.Grant{State: v, Partial: len(open) > 0 && !l.releasesOnce}, err
}

// failure says why no majority agreed.
func (l *quorumLock) failure(c driver.Claim, heard map[int]error, yes, no int) error {
	e := &strategy.QuorumError{Name: c.Name, Need: l.need()}
	var longest time.Duration
	for i := range l.servers {
		err, ok := heard[i]
		var held *strategy.HeldError
		if errors.As(err, &held) {
			longest = max(longest, held.TTL)
		}
		if !ok {
			err = &strategy.ServerError{Node: name(i), Kind: strategy.ErrUnknown, Err: errors.New("not waited for")}
		}
		e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: name(i), Err: err})
	}
	if yes+no < l.need() && !(l.heldWhenDown && no > 0) {
		return e
	}
	e.Held = &strategy.HeldError{Name: c.Name, TTL: time.Millisecond}
	switch {
	case no >= l.need():
		e.Held.TTL = longest
	case !l.inStep:
		e.Held.TTL += rand.N(60 * time.Millisecond) // votes were split: all withdraw, and try at different times
	}
	return e
}

func name(i int) string { return fmt.Sprintf("memory %d", i+1) }

func (l *quorumLock) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g := driver.Grant{Start: time.Now(), State: c.Grant.State}
	calm := context.WithoutCancel(ctx)
	answers := l.ask(l.all(), func(i int) error {
		_, err := l.servers[i].Extend(calm, c)
		return err
	})
	need := l.need()
	if l.extendsAny {
		need = 1
	}
	if l.extendsAll {
		need = len(l.servers)
	}
	e := &strategy.QuorumError{Name: c.Name, Need: need}
	yes, losses := 0, 0
	for range l.servers {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return driver.Grant{}, &strategy.ServerError{Node: "quorum", Kind: strategy.ErrUnknown, Err: context.Cause(ctx)}
		}
		e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: name(a.i), Err: a.err})
		lost := &strategy.LostError{Name: c.Name, Err: a.err}
		switch {
		case a.err == nil:
			yes++
		case errors.As(a.err, &lost):
			losses++
		case l.loses:
			return driver.Grant{}, lost
		}
		if yes >= need {
			return g, nil
		}
		if len(l.servers)-losses < need || l.believesLoss && losses > 0 {
			return driver.Grant{}, lost
		}
	}
	return driver.Grant{}, e
}

// withdraw takes the claim's votes back wherever there may be one. It returns how many servers had one, and which may
// have one still: a server knows whether an acquire can still arrive.
func (l *quorumLock) withdraw(c driver.Claim, v *votes) (had int, open []strategy.NodeAnswer) {
	c.Grant = driver.Grant{} // it is the quorum's, and no server's
	were, asked := v.now(), []int{}
	for i, x := range were {
		if x == granted || x != none && !l.releasesGranted {
			asked = append(asked, i)
		}
	}
	if l.releasesFirst && len(asked) > 1 {
		asked = asked[:1]
	}
	var mu sync.Mutex
	answers := l.ask(asked, func(i int) error {
		_, err := l.servers[i].Release(context.Background(), c)
		switch {
		case err == nil:
			mu.Lock()
			defer mu.Unlock()
			had++
		case !errors.Is(err, strategy.ErrLost):
		case l.trustsNotThere:
			err = nil
		case were[i] != underWay: // else it may come yet
			err = l.servers[i].Undo(context.Background(), c)
		}
		if err == nil {
			v.set(i, none) // and its token is not used again
		}
		return err
	})
	for range asked {
		if a := <-answers; a.err != nil {
			open = append(open, strategy.NodeAnswer{Node: name(a.i), Err: a.err})
		}
	}
	return had, open
}

// votesOf are those that the claim's Grant has; of one that was granted nothing nobody knows.
func (l *quorumLock) votesOf(c driver.Claim) *votes {
	if v, ok := c.Grant.State.(*votes); ok {
		return v
	}
	return &votes{of: slices.Repeat([]vote{unknown}, len(l.servers))}
}

func (l *quorumLock) Undo(_ context.Context, c driver.Claim) error {
	if _, open := l.withdraw(c, l.votesOf(c)); len(open) > 0 && !l.releasesOnce {
		return &strategy.ServerError{Node: "quorum", Kind: strategy.ErrUnknown, Err: errors.New("not all have confirmed")}
	}
	return nil
}

func (l *quorumLock) Release(_ context.Context, c driver.Claim) (driver.Outcome, error) {
	had, open := l.withdraw(c, l.votesOf(c))
	var err error
	switch {
	case had >= l.need() || l.releasesFirst:
	case had+len(open) < l.need():
		err = &strategy.LostError{Name: c.Name}
	default:
		err = &strategy.QuorumError{Name: c.Name, Need: l.need(), Nodes: open}
	}
	return driver.Outcome{Partial: len(open) > 0 && !l.releasesOnce}, err
}

// Watch listens to all servers, and returns when a majority has confirmed.
func (l *quorumLock) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	servers, need := l.all(), l.need()
	if l.watchesFirst {
		servers, need = servers[:1], 1
	}
	if l.watchesAll {
		need = len(l.servers)
	}
	w := &quorumWatch{need: need, fn: fn, told: map[string]int{}}
	calm := context.WithoutCancel(ctx)
	answers := l.ask(servers, func(i int) error {
		stop, err := l.servers[i].Watch(calm, c, w.hear)
		if err == nil && !w.join(stop) {
			stop()
		}
		return err
	})
	for yes, left := 0, len(servers); yes < need; left-- {
		if yes+left < need {
			w.stop()
			return nil, &strategy.QuorumError{Name: c.Name, Need: need}
		}
		select {
		case a := <-answers:
			if a.err == nil {
				yes++
			}
		case <-ctx.Done():
			w.stop()
			return nil, &strategy.ServerError{Node: "quorum", Kind: strategy.ErrUnknown, Err: context.Cause(ctx)}
		}
	}
	return w.stop, nil
}

type quorumWatch struct {
	need int
	fn   func(driver.Notification)

	mu    sync.Mutex
	over  bool
	stops []func()
	told  map[string]int
}

func (w *quorumWatch) join(stop func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	w.stops = append(w.stops, stop)
	return true
}

// hear tells of a release when as many servers have as it takes.
func (w *quorumWatch) hear(n driver.Notification) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || n.Broken() {
		return
	}
	if w.told[n.Holder]++; w.told[n.Holder] == w.need {
		w.fn(driver.Notification{Holder: n.Holder})
	}
}

func (w *quorumWatch) stop() {
	w.mu.Lock()
	w.over = true
	stops := w.stops
	w.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

func (l *quorumLock) Close() error {
	l.under.Wait()
	return nil
}

// quorumSubject is a quorum lock on n servers, the last of which are down.
func quorumSubject(name string, n, down int, m mistakes) Subject {
	servers := make([]*memory.Server, n)
	for i := range servers {
		servers[i] = &memory.Server{}
	}
	openNodes := func(o strategy.Options, gates []Gate) (strategy.Strategy, error) {
		l := &quorumLock{mistakes: m}
		for i, s := range servers {
			if i >= n-down {
				l.servers = append(l.servers, memory.Gated{Server: s, Gate: closed})
			} else {
				l.servers = append(l.servers, memory.Gated{Server: s, Gate: memory.Gate(gates[i])})
			}
		}
		return engine.New(l, o)
	}
	onAll := func(f func(*memory.Server) error) error {
		for _, s := range servers {
			if err := f(s); err != nil {
				return err
			}
		}
		return nil
	}
	return Subject{
		Name: name,
		Open: func(o strategy.Options) (strategy.Strategy, error) {
			return openNodes(o, slices.Repeat([]Gate{open}, n))
		},
		Nodes:     n,
		Down:      down,
		OpenNodes: openNodes,
		Evict: func(ctx context.Context, key string) error {
			return onAll(func(m *memory.Server) error { return m.Evict(ctx, key) })
		},
		Spoil: func(ctx context.Context, key string) error {
			return onAll(func(m *memory.Server) error { return m.Spoil(ctx, key) })
		},
		Leftovers: func(ctx context.Context, key string) (left []string, err error) {
			err = onAll(func(m *memory.Server) error {
				here, err := m.Leftovers(ctx, key)
				left = append(left, here...)
				return err
			})
			return left, err
		},
	}
}

// quorums are the sizes to judge.
var quorums = []struct {
	name    string
	n, down int
}{
	{"memory-quorum-2", 2, 0},
	{"memory-quorum-3", 3, 0},
	{"memory-quorum-4", 4, 0},
	{"memory-quorum-5", 5, 0},
	{"memory-quorum-2-dead", 5, 2},
}

func TestMemoryQuorum(t *testing.T) {
	for _, q := range quorums {
		checkInBubbles(t, func() Subject { return quorumSubject(q.name, q.n, q.down, mistakes{}) })
	}
}
