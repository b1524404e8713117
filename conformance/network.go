package conformance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// gated opens a contender whose requests can be stepped between.
func (t *trial) gated(who string, o strategy.Options) *contender {
	t.needs(t.OpenGated != nil, "Subject.OpenGated is nil")
	net := newNetwork(1)
	return t.enrol(&contender{who: who, o: o, net: net}, func(o strategy.Options) (strategy.Strategy, error) {
		return t.OpenGated(o, net.gate(0))
	})
}

// linked opens a contender with a network of its own to each server.
func (t *trial) linked(who string, o strategy.Options) *contender {
	net := newNetwork(t.Nodes)
	return t.enrol(&contender{who: who, o: o, net: net}, func(o strategy.Options) (strategy.Strategy, error) {
		gates := make([]Gate, t.Nodes)
		for i := range gates {
			gates[i] = net.gate(i)
		}
		return t.OpenNodes(o, gates)
	})
}

// A network is one contender's ways to its servers; of a gated one a single way to all of them.
type network struct {
	mu     sync.Mutex
	ways   []Gate
	asked  []int // requests, by way
	under  int   // requests under way
	frozen int   // of these, held up by a frost
}

func newNetwork(ways int) *network {
	n := &network{ways: make([]Gate, ways), asked: make([]int, ways)}
	n.restore()
	return n
}

func open(_ string, send func()) { send() }
func closed(string, func())      {}

func (n *network) gate(i int) Gate {
	return func(request string, send func()) {
		n.mu.Lock()
		n.asked[i]++
		n.under++
		way := n.ways[i]
		n.mu.Unlock()
		defer func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.under--
		}()
		way(request, send)
	}
}

// count returns how many requests went that way.
func (n *network) count(i int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[i]
}

func (n *network) set(ways []int, to Gate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range ways {
		n.ways[i] = to
	}
}

func (n *network) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.ways {
		n.ways[i] = open
	}
}

func (n *network) freeze(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen += by
}

// once lets step decide on the next request to each of these servers.
func (n *network) once(nodes []int, step func(send func())) {
	for _, i := range nodes {
		var next sync.Once
		n.set([]int{i}, func(_ string, send func()) {
			passed := true
			next.Do(func() { passed = false })
			if passed {
				send()
			} else {
				step(send)
			}
		})
	}
}

// requests is how many a gated contender has made so far.
func (c *contender) requests() int { return c.net.count(0) }

// each calls step for every request of a gated contender from now on, with its number from 1; nil: for none.
func (c *contender) each(step func(i int, send func())) {
	if step == nil {
		c.net.restore()
		return
	}
	var made atomic.Int32
	c.net.set([]int{0}, func(request string, send func()) {
		i := int(made.Add(1))
		c.t.rec.add("%s sends request %d: %s", c.who, i, request)
		step(i, send)
	})
}

// before calls f before the k-th request from now on leaves.
func (c *contender) before(k int, f func()) {
	c.each(func(i int, send func()) {
		if i == k {
			f()
		}
		send()
	})
}

// after calls f when the k-th request from now on was answered, before the caller
// hears of it.
func (c *contender) after(k int, f func()) {
	c.each(func(i int, send func()) {
		send()
		if i == k {
			f()
		}
	})
}

// tryAll is try. It also waits until the servers that the majority did not need have
// answered, except those that a frost holds up.
func (c *contender) tryAll() call {
	n := c.net
	n.mu.Lock()
	before := slices.Clone(n.asked)
	n.mu.Unlock()
	k := c.try()
	grace := time.Now().Add(c.t.ttl) // a lock that does not ask all of them is no worse for it here
	c.t.relies(c.t.ttl / 4)
	c.t.eventually("all servers have answered "+c.who, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		all := true
		for i := range c.t.Nodes - c.t.Down {
			all = all && n.asked[i] > before[i]
		}
		return n.under == n.frozen && (all || time.Now().After(grace))
	})
	return k
}

// reaches cuts the contender off from all other servers.
func (c *contender) reaches(nodes []int) {
	for i := range c.t.Nodes - c.t.Down {
		way := closed
		if slices.Contains(nodes, i) {
			way = open
		}
		c.net.set([]int{i}, way)
	}
	c.t.rec.add("%s reaches servers %s of %d", c.who, numbers(nodes), c.t.Nodes)
}

// hears is reaches; and what the contender asks next, these servers answer before the
// others fail.
func (c *contender) hears(nodes []int) {
	c.reaches(nodes)
	answered := newBarrier(c.t, len(nodes))
	c.net.once(nodes, func(send func()) {
		send()
		answered.pass()
	})
	for i := range c.t.Nodes - c.t.Down {
		if !slices.Contains(nodes, i) {
			c.net.set([]int{i}, func(string, func()) {
				answered.wait()
				c.t.pause(c.t.ttl / 20) // so it hears of these last
			})
		}
	}
}

// A frost holds requests or replies up, until it melts.
type frost struct {
	t     *trial
	net   *network
	ways  int
	until time.Time // what is sent later is not held up; zero: it is
	melts chan struct{}

	mu      sync.Mutex
	caught  int
	arrived int
}

func (c *contender) frost(ways int, what string, args ...any) *frost {
	c.t.rec.add(what, args...)
	return &frost{t: c.t, net: c.net, ways: ways, melts: make(chan struct{})}
}

// holdUp holds up all that a gated contender asks.
func (c *contender) holdUp() *frost {
	f := c.frost(1, "%s's requests are held up", c.who)
	c.each(func(_ int, send func()) { f.hold(send) })
	return f
}

// freeze holds up all that the contender asks of these servers.
func (c *contender) freeze(nodes []int) *frost {
	f := c.frost(len(nodes), "servers %s do not answer %s", numbers(nodes), c.who)
	c.net.set(nodes, func(_ string, send func()) { f.hold(send) })
	return f
}

// freezeOnce holds up the next request to each of these servers. A request that comes after it
// overtakes it.
func (c *contender) freezeOnce(nodes []int) *frost {
	f := c.frost(len(nodes), "%s's next requests to servers %s are held up", c.who, numbers(nodes))
	c.net.once(nodes, f.hold)
	return f
}

// freezeReplies holds up what each of these servers answers to the next request.
func (c *contender) freezeReplies(nodes []int) *frost {
	f := c.frost(len(nodes), "the next replies of servers %s to %s are held up", numbers(nodes), c.who)
	c.net.once(nodes, func(send func()) {
		send()
		f.hold(func() {})
	})
	return f
}

func (f *frost) hold(then func()) {
	if isClosed(f.melts) || !f.until.IsZero() && !time.Now().Before(f.until) {
		then()
		return
	}
	f.mu.Lock()
	f.caught++
	f.mu.Unlock()
	f.net.freeze(1)
	select {
	case <-f.melts:
		f.net.freeze(-1)
		then()
	case <-f.t.ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived++
}

// bites waits until there is something to hold up on each of its ways. A lock that
// does not ask all of its servers is not waited for.
func (f *frost) bites() {
	grace := time.Now().Add(f.t.ttl)
	f.t.eventually("what is to be held up comes", func() bool { return f.holds() >= f.ways || time.Now().After(grace) })
}

// holds is how many requests or replies it has held up so far.
func (f *frost) holds() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.caught
}

// melt lets what was held up arrive, and returns when it has. It holds up nothing more.
func (f *frost) melt() {
	close(f.melts)
	f.t.rec.add("what was held up arrives")
	f.t.eventually("what was held up has arrived", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.arrived == f.caught
	})
}
