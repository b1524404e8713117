// The suite on a small quorum lock of servers in memory, which keeps all properties, unless a test has it
// make a mistake: see quorumMutants.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// memoryNode is a server in memory as a node: what a script does there is one step, too.
type memoryNode struct {
	*memory.Server
	name string
	down bool
}

var (
	voteScript    = driver.NewScript("vote", "SET key token NX PX ttl")
	renewScript   = driver.NewScript("renew", "if GET key == token then PEXPIRE key ttl")
	unvoteScript  = driver.NewScript("unvote", "if GET key == token then DEL key; PUBLISH key token")
	errUnexpected = errors.New("conformance: the node in memory does not know that command")
)

func (n memoryNode) Name() string                            { return n.name }
func (n memoryNode) Ordered() bool                           { return true }
func (n memoryNode) Use() error                              { return nil }
func (n memoryNode) Probe(context.Context, time.Time) uint64 { return 0 }
func (n memoryNode) Close() error                            { return nil }

func (n memoryNode) fails(kind, why error) error {
	return &strategy.ServerError{Node: n.name, Kind: kind, Err: why}
}

func (n memoryNode) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (reply any, err error) {
	if n.down {
		return nil, n.fails(strategy.ErrUnsent, errors.New("connection refused"))
	}
	c := driver.Claim{Key: keys[0], Token: args[0].(string), Owner: args[0].(string), Due: due}
	switch s {
	case voteScript:
		c.TTL = args[1].(time.Duration)
		_, err = n.Acquire(ctx, c)
	case renewScript:
		c.TTL = args[1].(time.Duration)
		_, err = n.Extend(ctx, c)
	case unvoteScript:
		_, err = n.Release(ctx, c)
	}
	var held *strategy.HeldError
	var lost *strategy.LostError
	switch {
	case errors.As(err, &held):
		return []any{[]byte(held.Holder), held.TTL.Milliseconds()}, nil
	case errors.As(err, &lost):
		return []byte(lost.Holder), nil
	case err != nil:
		return nil, err
	}
	return int64(1), nil
}

func (n memoryNode) Subscribe(ctx context.Context, channel string, fn func([]byte, error)) (func(), error) {
	if n.down {
		return nil, n.fails(strategy.ErrUnsent, errors.New("connection refused"))
	}
	return n.Watch(ctx, driver.Claim{Key: channel}, func(x driver.Notification) {
		if x == (driver.Notification{}) {
			fn(nil, io.EOF)
			return
		}
		fn([]byte(x.Holder), nil)
	})
}

func (n memoryNode) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return nil, n.fails(strategy.ErrRefused, errUnexpected)
}

func (n memoryNode) Session(context.Context, time.Time, string, func(driver.Conn) error) error {
	return n.fails(strategy.ErrRefused, errUnexpected)
}

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
	nodes []driver.Node
	mistakes
	under sync.WaitGroup // requests under way
}

// A vote is what is known of one server's.
type vote int

const (
	asking  vote = iota // not answered yet
	unknown             // never to be answered
	none                // surely none
	granted
)

// votes are what is known of a claim's. It is the Grant's State.
type votes struct {
	mu   sync.Mutex
	of   []vote
	over bool // withdrawn
}

// end returns what the votes are when they are withdrawn. It is one step with the end: a
// caller that casts one later learns that from set, and nobody takes it for one cast before.
func (v *votes) end() []vote {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	return slices.Clone(v.of)
}

// set reports whether the votes have been withdrawn before.
func (v *votes) set(i int, x vote) (over bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[i] = x
	return v.over
}

func (v *votes) get(i int) vote {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[i]
}

// An answer is what one server said.
type answer struct {
	i     int
	reply any
	err   error
}

func (l *quorumLock) need() int {
	if l.quorum != 0 {
		return l.quorum
	}
	return len(l.nodes)/2 + 1
}

// ask asks the nodes, all at the same time. A request that is still under
// way when nobody listens any more ends by due.
func (l *quorumLock) ask(nodes []int, f func(i int) (any, error)) <-chan answer {
	answers := make(chan answer, len(nodes))
	one := func(i int) {
		reply, err := f(i)
		answers <- answer{i, reply, err}
	}
	if l.oneByOne {
		l.under.Go(func() {
			for _, i := range nodes {
				one(i)
			}
		})
		return answers
	}
	for _, i := range nodes {
		l.under.Go(func() { one(i) })
	}
	return answers
}

func (l *quorumLock) all() []int {
	nodes := make([]int, len(l.nodes))
	for i := range nodes {
		nodes[i] = i
	}
	return nodes
}

func (l *quorumLock) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	start := time.Now()
	v := &votes{of: make([]vote, len(l.nodes))}
	calm := context.WithoutCancel(ctx) // what was sent is to be answered
	answers := l.ask(l.all(), func(i int) (any, error) {
		if l.looksFirst {
			l.nodes[i].Eval(calm, c.Due, renewScript, []string{c.Key}, c.Token, c.TTL)
		}
		reply, err := l.nodes[i].Eval(calm, c.Due, voteScript, []string{c.Key}, c.Token, c.TTL)
		cast := unknown
		switch {
		case err == nil && reply == int64(1):
			cast = granted
		case err == nil, errors.Is(err, strategy.ErrRefused), errors.Is(err, strategy.ErrUnsent):
			cast = none
		}
		if v.set(i, cast) && !l.releasesGranted && !l.trustsNotThere { // it was withdrawn before it was cast
			l.withdrawFrom(c, v, i)
		}
		return reply, err
	})

	heard := map[int]answer{}
	yes, no := 0, 0
	undecided := func() bool {
		pending := len(l.nodes) - len(heard)
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
			heard[a.i] = a
			switch {
			case a.err != nil:
			case a.reply == int64(1):
				yes++
			default:
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
	return driver.Grant{State: v, Partial: l.withdraw(c, v).open > 0 && !l.releasesOnce}, err
}

// failure says why no majority agreed.
func (l *quorumLock) failure(c driver.Claim, heard map[int]answer, yes, no int) error {
	e := &strategy.QuorumError{Name: c.Name, Need: l.need()}
	holders := map[string]int{}
	var left []time.Duration
	for i, n := range l.nodes {
		a, ok := heard[i]
		held, _ := a.reply.([]any)
		switch {
		case !ok:
			a.err = &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnknown, Err: errors.New("not waited for")}
		case held != nil:
			holder, ms := string(held[0].([]byte)), held[1].(int64)
			holders[holder]++
			left = append(left, rediskit.RemainingTTL(ms))
			a.err = &strategy.HeldError{Name: c.Name, Holder: holder, TTL: rediskit.RemainingTTL(ms)}
		}
		e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: n.Name(), Err: a.err})
	}
	if yes+no < l.need() && !(l.heldWhenDown && no > 0) {
		return e
	}
	e.Held = &strategy.HeldError{Name: c.Name}
	for holder, n := range holders {
		if n >= l.need() {
			e.Held.Holder = holder
		}
	}
	slices.Sort(left)
	switch k := l.need() - yes; {
	case e.Held.Holder != "" && k <= len(left):
		e.Held.TTL = left[k-1] // then enough are free
	case !l.inStep:
		e.Held.TTL = 1 + rand.N(60*time.Millisecond) // votes were split: all withdraw, and try at different times
	default:
		e.Held.TTL = time.Millisecond
	}
	return e
}

func (l *quorumLock) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g := driver.Grant{Start: time.Now(), State: c.Grant.State}
	calm := context.WithoutCancel(ctx)
	answers := l.ask(l.all(), func(i int) (any, error) {
		return l.nodes[i].Eval(calm, c.Due, renewScript, []string{c.Key}, c.Token, c.TTL)
	})
	need := l.need()
	if l.extendsAny {
		need = 1
	}
	if l.extendsAll {
		need = len(l.nodes)
	}
	e := &strategy.QuorumError{Name: c.Name, Need: need}
	var yes, lost int
	var holder string
	for range l.nodes {
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
				if l.loses {
					return driver.Grant{}, &strategy.LostError{Name: c.Name, Err: a.err}
				}
				e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: l.nodes[a.i].Name(), Err: a.err})
			case a.reply == int64(1):
				yes++
				e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: l.nodes[a.i].Name()})
			default:
				lost++
				holder = string(a.reply.([]byte))
				e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: l.nodes[a.i].Name(), Err: &strategy.LostError{Name: c.Name, Holder: holder}})
			}
		case <-ctx.Done():
			return driver.Grant{}, &strategy.ServerError{Node: "quorum", Kind: strategy.ErrUnknown, Err: context.Cause(ctx)}
		}
		if yes >= need {
			return g, nil
		}
		if len(l.nodes)-lost < need || l.believesLoss && lost > 0 {
			return driver.Grant{}, &strategy.LostError{Name: c.Name, Holder: holder}
		}
	}
	return driver.Grant{}, e
}

// A withdrawal is what became of it.
type withdrawal struct {
	had    int // servers that had the vote
	late   int // servers that had not answered when they were asked for it back
	open   int // servers that may have it still
	failed []strategy.NodeAnswer
}

// withdraw takes the claim's votes back wherever there may be one.
func (l *quorumLock) withdraw(c driver.Claim, v *votes) withdrawal {
	if v == nil {
		v = &votes{of: slices.Repeat([]vote{granted}, len(l.nodes))}
	}
	were := v.end()
	var asked []int
	pending := map[int]bool{}
	for i := range l.nodes {
		x := were[i]
		if x == granted || x != none && !l.releasesGranted {
			asked = append(asked, i)
		}
		pending[i] = x == asking || x == unknown
	}
	if l.releasesFirst && len(asked) > 1 {
		asked = asked[:1]
	}
	var w withdrawal
	answers := l.ask(asked, func(i int) (any, error) { return l.withdrawFrom(c, v, i) })
	for range asked {
		switch a := <-answers; {
		case a.err != nil:
			w.failed = append(w.failed, strategy.NodeAnswer{Node: l.nodes[a.i].Name(), Err: a.err})
		case a.reply == int64(1):
			w.had++
		case pending[a.i]:
			w.late++
		}
	}
	for _, i := range asked {
		if v.get(i) != none {
			w.open++
		}
	}
	return w
}

// withdrawFrom takes one vote back. A vote that is not there may come yet, unless
// it was answered, or the server got the withdrawal after it.
func (l *quorumLock) withdrawFrom(c driver.Claim, v *votes, i int) (any, error) {
	before := v.get(i)
	reply, err := l.nodes[i].Eval(context.Background(), c.Due, unvoteScript, []string{c.Key}, c.Token)
	if err == nil && (reply == int64(1) || before == granted || before == unknown && l.nodes[i].Ordered() || l.trustsNotThere) {
		v.set(i, none) // and its token is not used again
	}
	return reply, err
}

func (l *quorumLock) Undo(_ context.Context, c driver.Claim) error {
	v, _ := c.Grant.State.(*votes)
	if l.withdraw(c, v).open > 0 && !l.releasesOnce {
		return &strategy.ServerError{Node: "quorum", Kind: strategy.ErrUnknown, Err: errors.New("not all have confirmed")}
	}
	return nil
}

func (l *quorumLock) Release(_ context.Context, c driver.Claim) (driver.Outcome, error) {
	v, _ := c.Grant.State.(*votes)
	w := l.withdraw(c, v)
	var err error
	switch {
	case w.had+w.late >= l.need() || l.releasesFirst:
	case w.had+w.late+len(w.failed) < l.need():
		err = &strategy.LostError{Name: c.Name}
	default:
		err = &strategy.QuorumError{Name: c.Name, Need: l.need(), Nodes: w.failed}
	}
	return driver.Outcome{Partial: w.open > 0 && !l.releasesOnce}, err
}

// Watch listens to all servers, and returns when a majority has confirmed.
func (l *quorumLock) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	w := &quorumWatch{l: l, fn: fn, told: map[string]int{}, timers: map[string]*time.Timer{}}
	calm, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.Due)
	nodes := l.all()
	if l.watchesFirst {
		nodes = nodes[:1]
	}
	var joining sync.WaitGroup
	joining.Add(len(nodes))
	answers := l.ask(nodes, func(i int) (any, error) {
		defer joining.Done()
		stop, err := l.nodes[i].Subscribe(calm, c.Key, w.hear)
		if err == nil && !w.join(stop) {
			stop()
		}
		return nil, err
	})
	l.under.Go(func() { joining.Wait(); cancel() })
	need := l.need()
	if l.watchesFirst {
		need = 1
	}
	if l.watchesAll {
		need = len(l.nodes)
	}
	for yes, left := 0, len(nodes); yes < need; left-- {
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
	l  *quorumLock
	fn func(driver.Notification)

	mu     sync.Mutex
	over   bool
	stops  []func()
	told   map[string]int
	timers map[string]*time.Timer
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

// hear tells of a release when a majority has, or some time after the first: it may
// have been that of votes that were split, or this majority not the lock's.
func (w *quorumWatch) hear(msg []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || err != nil {
		return
	}
	holder := string(msg)
	tell := func() { w.fn(driver.Notification{Holder: holder}) }
	switch w.told[holder]++; w.told[holder] {
	case 1:
		pause := 10 * time.Millisecond
		if !w.l.inStep {
			pause += rand.N(60 * time.Millisecond)
		}
		w.timers[holder] = time.AfterFunc(pause, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !w.over {
				tell()
			}
		})
	case w.l.need():
		w.timers[holder].Stop()
		tell()
	}
}

func (w *quorumWatch) stop() {
	w.mu.Lock()
	w.over = true
	stops := w.stops
	for _, timer := range w.timers {
		timer.Stop()
	}
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
			l.nodes = append(l.nodes, GateNode(memoryNode{s, fmt.Sprintf("memory %d", i+1), i >= n-down}, gates[i]))
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
