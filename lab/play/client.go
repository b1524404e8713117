package play

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/strategy"
)

// A client is a process that wants the lock.
type client struct {
	s      *Stage
	at     int
	name   string
	links  []*link // to the servers
	locks  strategy.Strategy
	ahead  atomic.Int64 // by how much its clock is, as a time.Duration
	byHand bool         // its messages wait for a move
	paused bool
	hangs  time.Time // since when its work gets nowhere; zero: it does not hang
	last   string    // how its last call ended
	holds  []*hold   // all of them, in their order

	ended  context.Context // ends when it dies
	kill   context.CancelFunc
	closed chan struct{}
	waits  context.Context // of its calls
	cancel context.CancelFunc

	// Guarded by the stage's mu.
	doing    []string // calls that have not ended
	finished []func() // what those that have ended mean to the client
}

// A hold is one that a client got.
type hold struct {
	client   *client
	n        int // of the stage
	name     string
	lease    strategy.Lease
	fence    uint64
	fenced   bool
	believes bool // the client believes that it has it
	renewed  bool // it is kept alive
}

func newClient(s *Stage, at int, name string) (*client, error) {
	c := &client{s: s, at: at, name: name, closed: make(chan struct{})}
	c.ended, c.kill = context.WithCancel(context.Background())
	c.waits, c.cancel = context.WithCancel(c.ended)
	var nodes []driver.Node
	for _, srv := range s.servers {
		l := &link{Node: srv.node(), c: c, srv: srv}
		c.links, nodes = append(c.links, l), append(nodes, l)
	}
	var err error
	c.locks, err = s.algorithm.create(c, nodes)
	return c, err
}

// delivers reports whether its messages arrive by themselves.
func (c *client) delivers() bool { return !c.byHand && !c.paused }

// holding is the last hold that it believes it has; nil: none.
func (c *client) holding() *hold {
	for _, h := range slices.Backward(c.holds) {
		if h.believes && c.ended.Err() == nil {
			return h
		}
	}
	return nil
}

func (c *client) make(what string) error {
	if c.ended.Err() != nil {
		return fmt.Errorf("%s is dead", c.name)
	}
	if d, ok := strings.CutPrefix(what, "clock"); ok {
		ahead, err := offset(d)
		if err == nil {
			c.ahead.Add(int64(ahead))
			c.s.note("%s's clock is set %s", c.name, direction(ahead))
		}
		return err
	}
	what, bound, _ := strings.Cut(what, "=")
	switch what {
	case "try", "acquire":
		c.asks(what == "acquire")
	case "cancel":
		c.cancel()
		c.waits, c.cancel = context.WithCancel(c.ended)
	case "pause", "resume":
		return c.pauses(what == "pause")
	case "step", "auto":
		c.byHand = what == "step"
	case "pass", "lose":
		for _, m := range c.s.wire {
			if m.client == c {
				return c.s.decide(m, what)
			}
		}
		return fmt.Errorf("nothing of %s's is on the wire", c.name)
	case "all":
		if c.paused {
			return fmt.Errorf("%s is paused: what it sends and gets stays on the wire", c.name)
		}
		c.s.deliver(func(m *message) bool { return m.client == c })
	case "kill":
		c.s.add(diagram.Event{Kind: diagram.State, From: c.name, Condition: diagram.Dead, Text: c.name + " dies"})
		c.die()
	case "release", "write", "renew", "keepalive", "hang":
		h := c.holding()
		if h == nil {
			return fmt.Errorf("%s does not hold the lock", c.name)
		}
		return c.works(h, what, bound)
	default:
		return fmt.Errorf("%q is nothing that a client does", what)
	}
	return nil
}

// asks has it ask for the lock: once, or until it has it.
func (c *client) asks(wait bool) {
	ctx := strategy.WithOwner(c.waits, c.name)
	lock := c.locks.NewLock(lockName)
	doing, ask := "asks for the lock", lock.TryAcquire
	if wait {
		doing, ask = "waits for the lock", lock.Acquire
		c.s.note("%s asks for the lock, and waits for it", c.name)
	} else {
		c.s.note("%s asks for the lock, once", c.name)
	}
	c.call(doing, func() func() {
		lease, err := ask(ctx)
		return func() {
			if err == nil {
				c.gets(lease)
				return
			}
			c.ends("no lock", err)
			if errors.Is(err, strategy.ErrHeld) {
				c.s.kept(c)
			}
		}
	})
}

// gets: from here on it believes that it holds the lock.
func (c *client) gets(lease strategy.Lease) {
	c.s.holds++
	h := &hold{client: c, n: c.s.holds, name: c.s.names.brief(lease.Token()), lease: lease, believes: true}
	text := c.name + " believes it holds the lock"
	if c.holding() != nil {
		text = c.name + " has entered again"
	}
	if h.fence, h.fenced = lease.Fence(); h.fenced {
		text += fmt.Sprintf(", fence %d", h.fence)
	}
	c.holds, c.last = append(c.holds, h), "has got the lock"
	c.s.add(diagram.Event{Kind: diagram.State, From: c.name, Condition: diagram.Holds, Text: text})
	go func() {
		select {
		case <-lease.Lost():
			c.s.wake()
		case <-c.ended.Done():
		}
	}()
}

// works has it do something with its hold.
func (c *client) works(h *hold, what, bound string) error {
	ctx := context.WithoutCancel(c.waits)
	switch what {
	case "write":
		c.writes(h)
	case "release":
		c.loses(h, "is done, and releases the lock")
		c.call("releases the lock", func() func() {
			err := h.lease.Release(ctx)
			return func() { c.ends("the release", err) }
		})
	case "renew":
		c.call("renews the lock", func() func() {
			err := h.lease.Extend(ctx)
			return func() { c.ends("the renewal", err) }
		})
	case "keepalive":
		maxHold, err := time.ParseDuration("0" + bound)
		if err == nil {
			err = h.lease.KeepAlive(maxHold)
		}
		if err != nil {
			return err
		}
		h.renewed = true
		until := "for as long as it runs"
		if maxHold > 0 {
			until = fmt.Sprintf("for %v at most", maxHold)
		}
		c.s.note("%s has the lock renewed in the background, %s", c.name, until)
	case "hang":
		c.hangs = time.Now()
		c.s.note("%s's work hangs from here on", c.name)
	}
	return nil
}

// writes sends a write to the database. It does not ask whether it still holds the lock: it just has.
func (c *client) writes(h *hold) {
	db := &c.s.db
	args := []string{"WRITE", fmt.Sprintf("%s:%d", c.name, db.sent+1)}
	if h.fenced {
		args = append(args, fmt.Sprintf("fence=%d", h.fence))
	}
	db.sent++
	m := &message{kind: request, client: c, server: dbName, at: len(c.s.servers)}
	m.text = c.s.names.command(args)
	m.arrive = func() { c.s.written(h, args) }
	c.s.post(m)
}

// pauses stops it, or lets it go on. Its belief is as it was.
func (c *client) pauses(on bool) error {
	if on == c.paused {
		return fmt.Errorf("%s is %s already", c.name, map[bool]string{true: "paused", false: "running"}[on])
	}
	c.s.locked(func() bool { c.paused = on; return true })
	e := diagram.Event{Kind: diagram.State, From: c.name, Condition: diagram.Paused, Text: c.name + " is paused"}
	if !on {
		e.Condition, e.Text = diagram.Awake, c.name+" goes on"
	}
	c.s.add(e)
	return nil
}

// die ends it. Requests that it has sent may still arrive.
func (c *client) die() {
	if c.ended.Err() != nil {
		return
	}
	c.kill()
	for _, m := range slices.Clone(c.s.wire) {
		if m.client == c && m.kind != request {
			c.s.drop(m)
		}
	}
	go func() {
		c.locks.Close()
		close(c.closed)
	}()
}

// call runs one of its calls; what the call returns is for the stage to run.
func (c *client) call(doing string, do func() (end func())) {
	c.doing = append(c.doing, doing)
	go func() {
		end := do()
		c.s.locked(func() bool {
			i := slices.Index(c.doing, doing)
			c.doing = slices.Delete(c.doing, i, i+1)
			c.finished = append(c.finished, end)
			return true
		})
		c.s.wake()
	}()
}

// ends notes how a call has ended.
func (c *client) ends(what string, err error) {
	if err == nil {
		c.last = what + " has succeeded"
		return
	}
	c.last = c.s.names.brief(what + ": " + err.Error())
	c.s.note("%s: %s", c.name, c.last)
}

func (c *client) loses(h *hold, why string) {
	h.believes = false
	e := diagram.Event{Kind: diagram.State, From: c.name, Text: c.name + " " + why}
	if c.holding() == nil {
		e.Condition, c.hangs = diagram.Ended, time.Time{}
	}
	c.s.add(e)
}

// observe sees how its calls have ended, and whether it has lost a lock. Paused, it sees nothing.
func (c *client) observe() {
	if c.ended.Err() != nil || c.paused {
		return
	}
	var finished []func()
	c.s.locked(func() bool { finished, c.finished = c.finished, nil; return true })
	for _, end := range finished {
		end()
	}
	for _, h := range c.holds {
		if !h.believes {
			continue
		}
		if err := h.lease.Err(); err != nil {
			c.last = "has lost the lock"
			c.loses(h, "notices that its lock is lost: "+err.Error())
		}
	}
}

const dbName = "db"

// database is what the lock protects. It takes no write whose fence is less than the greatest that it has seen.
type database struct {
	sent  int
	value string
	fence uint64
}

// written is the arrival of a write, and is judged: a later holder may have come since the writer's hold.
func (s *Stage) written(h *hold, args []string) {
	value := args[1]
	of := s.add(diagram.Event{Kind: diagram.Send, From: h.client.name, To: dbName, Args: args})
	later := ""
	for _, c := range s.clients {
		if i := slices.IndexFunc(c.holds, func(o *hold) bool { return o.n > h.n }); i >= 0 && c != h.client {
			later = c.name
		}
	}
	refused := h.fenced && h.fence < s.db.fence
	said := "OK"
	if refused {
		said = fmt.Sprintf("refused: fence %d has written", s.db.fence)
	}
	s.add(diagram.Event{Kind: diagram.Reply, From: dbName, To: h.client.name, Of: of, Answer: said})
	switch {
	case refused:
		s.stopped = append(s.stopped, fmt.Sprintf("The fence stops %s's late write: %s has held the lock since", h.client.name, later))
		s.note("%s", s.stopped[len(s.stopped)-1])
		return
	case later != "" && h.fenced:
		s.note("%s's write is late, but %s has written nothing yet: in the order of the fences it comes first", h.client.name, later)
	case later != "":
		s.violated("late "+value, noLate, "The database took %s's write after %s had got the lock: without a fence it could not tell", h.client.name, later)
	}
	s.db.value, s.db.fence = value, max(s.db.fence, h.fence)
}
