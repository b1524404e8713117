package faults

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/strategy"
)

// A contender wants the lock. It has a connection, and a network, of its own to each server.
type contender struct {
	s      *Stage
	who    string
	locks  strategy.Strategy
	links  []*rig.Link
	points []*points // of each server
	dead   bool      // nothing of it happens any more
	ample  bool      // no lock of it lapses before the play is over
}

// contender opens a new one. Its requests have time enough on a busy machine.
func (s *Stage) contender(who string, set ...func(*strategy.Options)) *contender {
	return s.skewed(who, 0, set...)
}

// skewed is a contender whose wall clock is ahead by so much.
func (s *Stage) skewed(who string, ahead time.Duration, set ...func(*strategy.Options)) *contender {
	c := &contender{s: s, who: who}
	o := strategy.Options{TTL: s.ttl, OpTimeout: s.op, Label: who, Wait: s.column.wait, NoHandOver: s.column.noHandOver}
	for _, f := range set {
		f(&o)
	}
	c.ample = o.TTL == s.ttl
	if ahead != 0 && s.column.Skewed == nil {
		s.Cannot("%s reads no clock that could be wrong", s.column.Name)
	}
	var nodes []driver.Node
	for i, place := range s.rig.Nodes {
		l := place.Link()
		s.linked.Store(l.Addr(), i)
		n, err := s.node(l)
		s.Must(err, "opening %s", who)
		if f := s.weather[place]; f != nil {
			f(l)
		}
		p := &points{}
		c.links, c.points = append(c.links, l), append(c.points, p)
		gated := conformance.GateNode(n, p.pass)
		if s.sloppy != nil && s.sloppy.Node != nil {
			gated = s.sloppy.Node(gated)
		}
		nodes = append(nodes, gated)
	}
	if s.sloppy != nil && s.sloppy.trusts != nil {
		nodes = s.sloppy.trusts(nodes, s.struck())
	}
	column := s.column
	for _, v := range Columns() {
		if s.sloppy != nil && v.Name == s.sloppy.variant && v.Of == column.Name {
			column = v
		}
	}
	p := column.On(nodes)
	if ahead != 0 {
		p = column.Skewed(nodes, ahead)
	}
	if s.sloppy != nil && s.sloppy.Protocol != nil {
		p = s.sloppy.Protocol(p)
	}
	locks, err := engine.New(p, o)
	s.Must(err, "opening %s", who)
	c.locks = locks
	s.contenders = append(s.contenders, c)
	return c
}

// node is what the contender speaks to a server by.
func (s *Stage) node(l *rig.Link) (driver.Node, error) {
	switch {
	case s.dial != nil && s.tired != nil:
		return nil, errors.New("the play is on a pool of another client")
	case s.dial != nil:
		return s.dial(l)
	case s.tired != nil:
		return redigonode.New(s.tired(l)), nil
	}
	return redigonode.New(l.Pool()), nil
}

func (c *contender) each(f func(*rig.Link)) {
	for _, l := range c.links {
		f(l)
	}
}

// connect opens the contender's connections, so that what follows is no handshake.
func (c *contender) connect() {
	lease, err := c.locks.NewLock("another").TryAcquire(c.s.ctx)
	if err == nil {
		err = lease.Release(c.s.ctx)
	}
	c.s.Must(err, "%s does not reach its servers", c.who)
}

// prepare lets a strategy find out which of its commands the server knows, so that its next request acquires.
func (c *contender) prepare() {
	if len(c.s.column.Commands) > 0 {
		c.connect()
	}
}

// beyond does something to the networks to the servers that a quorum can do without.
func (c *contender) beyond(f func(*rig.Link)) {
	for i := c.s.quorum(); i < len(c.links); i++ {
		f(c.links[i])
		c.points[i].recount()
	}
}

// repair ends what beyond began, once the contender has asked those servers in vain: nobody
// waits for them, and what came late would get through.
func (c *contender) repair() {
	limit := time.Now().Add(c.s.op)
	if c.s.sloppy != nil && c.s.sloppy.trusts != nil { // it does not ask them
		limit = time.Now()
	}
	for _, p := range c.points[c.s.quorum():] {
		for !p.idle() && time.Now().Before(limit) {
			time.Sleep(time.Millisecond)
		}
	}
	c.beyond((*rig.Link).Heal)
}

func (c *contender) heal() { c.each((*rig.Link).Heal) }

// die takes the contender out of the play, as a kill would: nothing of it gets out any more.
func (c *contender) die() {
	c.s.becomes(c.who, lessons.Dead, "dies")
	c.dead = true
	c.each((*rig.Link).Refuse)
}

func (c *contender) leave() {
	if c.dead {
		c.each((*rig.Link).Refuse) // what Close tries is not done by the dead
	}
	c.locks.Close() // what it could not undo is the play's to find
	c.each((*rig.Link).Close)
}

func (c *contender) try() (*hold, error) {
	lease, err := c.locks.NewLock(c.s.name).TryAcquire(c.s.ctx)
	if err != nil {
		c.s.say("%s asks once: %s", c.who, c.s.words(err))
	}
	return c.got(lease, err), err
}

// acquire waits, also for servers that fail meanwhile, and returns nil if it was in vain.
func (c *contender) acquire(atMost time.Duration) *hold {
	ctx, cancel := context.WithTimeout(c.s.ctx, atMost)
	defer cancel()
	for first := true; ; first = false {
		lease, err := c.locks.NewLock(c.s.name).Acquire(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, strategy.ErrClosed) {
			if err != nil {
				c.s.say("%s waits for %v in vain: %s", c.who, atMost, c.s.words(err))
			}
			return c.got(lease, err)
		}
		if first {
			c.s.say("%s waits, asks again and again: %s", c.who, c.s.words(err))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// got takes in a grant, and looks at who else believes it holds the lock.
func (c *contender) got(lease strategy.Lease, err error) *hold {
	if err != nil {
		return nil
	}
	h := &hold{by: c, lease: lease}
	s := c.s
	s.mu.Lock()
	others := append([]*hold(nil), s.holds...)
	s.holds = append(s.holds, h)
	s.mu.Unlock()
	for _, o := range others {
		if !o.over.Load() && !o.by.dead && errors.Is(o.lease.Err(), strategy.ErrLost) {
			o.learns()
		}
	}
	s.becomes(c.who, lessons.Holds, "gets the lock")
	for _, o := range others {
		o.look()
		// The other's belief first: if it still believes now, it did when the grant came.
		if !o.over.Load() && o.lease.Err() == nil && lease.Err() == nil && o.lease.Owner() != lease.Owner() {
			s.note(Violated, "%s holds the lock, and so does %s", c.who, o.by.who)
		}
	}
	return h
}

// A hold is a lease in its contender's hands.
type hold struct {
	by    *contender
	lease strategy.Lease
	over  atomic.Bool
	knows atomic.Bool // that it is lost: the trace says so
}

// learns adds to the trace that the holder knows of its loss, once.
func (h *hold) learns() {
	if !h.knows.Swap(true) {
		h.by.s.becomes(h.by.who, lessons.Ended, "knows that it has lost the lock")
	}
}

// look notices that the lock has lapsed which ought not to: the play has taken too long.
func (h *hold) look() {
	if !h.by.ample || h.over.Load() || h.by.dead || time.Now().Before(h.lease.Deadline()) {
		return
	}
	h.by.s.mu.Lock()
	defer h.by.s.mu.Unlock()
	h.by.s.late = h.by.who + "'s lock has lapsed within the play"
}

// release gives the lock up. A holder who learns only now that it was lost has not
// noticed what happened; that another got it meanwhile would have been a violation.
func (h *hold) release() error {
	h.look()
	h.over.Store(true)
	err := h.lease.Release(context.WithoutCancel(h.by.s.ctx))
	switch {
	case err == nil:
		h.by.s.becomes(h.by.who, lessons.Ended, "releases the lock")
	case !errors.Is(err, strategy.ErrLost):
		h.by.s.becomes(h.by.who, lessons.Ended, "releases the lock, and hears: %s", h.by.s.words(err))
	default:
		h.by.s.becomes(h.by.who, lessons.Ended, "releases the lock, too late")
		h.by.s.note(Detected, "%s has lost the lock, and hears: %s", h.by.who, h.by.s.words(err))
	}
	return err
}

// saysExtended adds to the trace what came of an extension.
func (h *hold) saysExtended(err error) {
	switch {
	case err == nil:
		h.by.s.say("%s extends the lock", h.by.who)
	case errors.Is(err, strategy.ErrLost):
		h.by.s.becomes(h.by.who, lessons.Ended, "extends the lock, too late")
	default:
		h.by.s.say("%s extends the lock in vain: %s", h.by.who, h.by.s.words(err))
	}
}

var (
	labelled = regexp.MustCompile(`"…[0-9a-f]+:(\w+)"`) // a contender's token
	address  = regexp.MustCompile(`127\.0\.0\.1:\d+`)   // a server's, or that of somebody's link to it
)

// place is an address as a story tells it: which server that is.
func (s *Stage) place(addr string) string {
	if len(s.rig.Nodes) == 1 {
		return "the server"
	}
	for i, n := range s.rig.Nodes {
		if n.Server().Addr() == addr {
			return fmt.Sprintf("node %d", i+1)
		}
	}
	if i, ok := s.linked.Load(addr); ok {
		return fmt.Sprintf("node %d", i.(int)+1)
	}
	return "a node"
}

// words are an error as a story tells it: for a lock that is held, by whom and for how long.
func (s *Stage) words(err error) string {
	var held *strategy.HeldError
	if err == nil {
		return "done"
	}
	if !errors.As(err, &held) {
		said := strings.TrimPrefix(err.Error(), `lock "job": `)
		return address.ReplaceAllStringFunc(labelled.ReplaceAllString(said, "$1"), s.place)
	}
	said := "the lock is held"
	if i := strings.LastIndex(held.Holder, ":"); i >= 0 { // each contender's label is its name
		said += " by " + held.Holder[i+1:]
	}
	switch {
	case held.TTL > 0:
		said += fmt.Sprintf(", for up to %v", max(held.TTL.Round(10*time.Millisecond), time.Millisecond))
	case held.TTL < 0:
		said += ", for ever"
	}
	return said
}

func (h *hold) extend() error {
	h.look()
	err := h.lease.Extend(h.by.s.ctx)
	h.saysExtended(err)
	if errors.Is(err, strategy.ErrLost) {
		h.over.Store(true)
		h.by.s.note(Detected, "%s has lost the lock, and hears: %s", h.by.who, h.by.s.words(err))
	}
	return err
}

// awaitLoss waits until the holder knows that the lock is lost.
func (h *hold) awaitLoss(atMost time.Duration) {
	select {
	case <-h.lease.Lost():
	case <-time.After(atMost):
		select { // both may have come
		case <-h.lease.Lost():
		default:
			h.by.s.say("%s still believes it holds the lock", h.by.who)
			return
		}
	}
	h.over.Store(true)
	h.learns()
	h.by.s.note(Detected, "%s has lost the lock, and knows: %s", h.by.who, h.by.s.words(h.lease.Err()))
}

// points are where a contender's requests to one server can be stepped into.
type points struct {
	mu   sync.Mutex
	n    int
	step func(i int, request string, send func())

	asked, answered int // of all requests
}

func (p *points) pass(request string, send func()) {
	p.mu.Lock()
	p.n++
	p.asked++
	i, step := p.n, p.step
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.answered++
		p.mu.Unlock()
	}()
	if step == nil {
		send()
		return
	}
	step(i, request, send)
}

// recount begins to count again, with the requests that are under way.
func (p *points) recount() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.answered = p.asked-p.answered, 0
}

// idle reports whether the server has been asked, and all that has been is over.
func (p *points) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked > 0 && p.asked == p.answered
}

// at steps in before or after the k-th request from now on to the server that the fault
// strikes, once. The maker of the request may not wait for it: a majority of others can
// answer. stepped does, and lets no step begin any more.
func (c *contender) at(k int, before, after func()) (stepped func()) {
	return c.atServer(c.s.struck(), k, before, after)
}

// atServer is at, for any of the servers.
func (c *contender) atServer(server, k int, before, after func()) (stepped func()) {
	var step sync.Mutex // held while it lasts
	late := false
	p := c.points[server]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n = 0
	p.step = func(i int, request string, send func()) {
		if i != k {
			send()
			return
		}
		step.Lock()
		defer step.Unlock()
		if late {
			send()
			return
		}
		if before != nil {
			c.s.say("before %s's request %d (%s) leaves", c.who, k, request)
			before()
		}
		send()
		if after != nil {
			c.s.say("%s's request %d (%s) is answered", c.who, k, request)
			after()
		}
	}
	return func() {
		step.Lock()
		defer step.Unlock()
		late = true
	}
}

// keepAlive renews the lock until it is over.
func (h *hold) keepAlive() {
	h.by.s.Must(h.lease.KeepAlive(0), "%s.KeepAlive", h.by.who)
	h.by.s.say("%s keeps the lock alive", h.by.who)
}

// insist extends until that works, or the lock is lost.
func (h *hold) insist() {
	for range 5 {
		if err := h.extend(); err == nil || h.over.Load() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.by.s.note(Unavailable, "%s cannot extend the lock, though everything is well", h.by.who)
}

// brief gives a contender a TTL that the play lives through.
func brief(s *Stage) func(*strategy.Options) {
	return func(o *strategy.Options) { o.TTL, o.OpTimeout = s.brief, s.brief/3 }
}
