package rediscnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

const (
	// askLimit bounds what one server is asked about the cluster, and askNext is after how
	// long another is asked next to one that is silent.
	askLimit = 5 * time.Second
	askNext  = 100 * time.Millisecond

	// askEvery is how long after the last answer the cluster is asked again at the earliest: a
	// fail-over takes its time, and must not be stormed.
	askEvery = 100 * time.Millisecond
)

// A layout says which server has which slot, as far as that is known. It is guarded by Node.mu.
type layout struct {
	owners  [redisc.HashSlots]string // addresses; empty: not known
	addrs   []string                 // of all nodes, masters first
	guide   string                   // the server to ask if a slot's owner is not known; empty: none
	changed bool                     // a slot has changed its server

	asking *inquiry  // under way; nil: none
	asked  time.Time // when the last ended
}

// An inquiry is one question to the cluster, for all who want to know.
type inquiry struct {
	done chan struct{}
	err  error // once done
}

// owner returns the server of a slot, which the caller gives back with users.Done. It asks the
// cluster if it does not know.
func (n *node) owner(ctx context.Context, due time.Time, slot int) (*server, error) {
	addr := n.ownerAddr(slot)
	if addr == "" {
		if err := n.inquire(ctx, due); err != nil {
			return nil, n.unsent(err)
		}
		if addr = n.ownerAddr(slot); addr == "" {
			return nil, n.failed(strategy.ErrUnsent, fmt.Errorf("no node of the cluster serves slot %d", slot))
		}
	}
	s, err := n.at(addr)
	if err != nil {
		return nil, n.failed(strategy.ErrUnsent, err)
	}
	return s, nil
}

func (n *node) ownerAddr(slot int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr := n.layout.owners[slot]; addr != "" {
		return addr
	}
	return n.layout.guide
}

// learn takes in that a slot is served at addr, and reports whether that is news. The caller
// holds n.mu.
func (n *node) learn(slot int, addr string) bool {
	l := &n.layout
	if l.owners[slot] == addr {
		return false
	}
	l.changed = l.changed || l.owners[slot] != ""
	l.owners[slot] = addr
	return true
}

// moved takes in what a server said, and has the rest asked for: slots seldom move alone.
func (n *node) moved(slot int, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.learn(slot, addr) {
		return
	}
	n.breakMoved()
	if n.layout.guide == "" {
		n.ask()
	}
}

// inquire has the cluster asked who serves what, and waits for the answer.
func (n *node) inquire(ctx context.Context, due time.Time) error {
	n.mu.Lock()
	q := n.ask()
	n.mu.Unlock()
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(due)):
		return timeup.Err
	}
}

// ask begins an inquiry, unless one is under way. The caller holds n.mu.
func (n *node) ask() *inquiry {
	l := &n.layout
	if l.asking != nil {
		return l.asking
	}
	q := &inquiry{done: make(chan struct{})}
	if n.closed {
		q.err = strategy.ErrClosed
		close(q.done)
		return q
	}
	l.asking = q
	pause := time.After(time.Until(l.asked.Add(askEvery)))
	n.work.Go(func() {
		select {
		case <-pause:
		case <-n.ctx.Done():
		}
		told, err := n.askAll()
		n.mu.Lock()
		l.asking, l.asked = nil, time.Now()
		if q.err = err; err == nil {
			n.apply(told)
		}
		n.mu.Unlock()
		close(q.done)
	})
	return q
}

// apply takes in what a server has told of the whole cluster. The caller holds n.mu.
func (n *node) apply(told *report) {
	l := &n.layout
	if told.guide != "" {
		l.guide = told.guide
		return
	}
	l.guide, l.addrs = "", told.addrs
	known := map[string]bool{}
	for _, addr := range told.addrs {
		known[addr] = true
	}
	for slot, addr := range told.owners {
		switch {
		case addr != "":
			n.learn(slot, addr)
		case !known[l.owners[slot]]:
			l.owners[slot] = "" // to be asked for
		}
	}
	n.breakMoved() // before retire does, which would tell of a server's end instead
	n.retire(func(addr string) bool { return !known[addr] })
}

// A report is what one server tells of the cluster.
type report struct {
	owners [redisc.HashSlots]string
	addrs  []string
	guide  string // instead: it tells nothing, but answers
}

// askAll asks one server after the other, past those that are silent, until one has answered.
func (n *node) askAll() (*report, error) {
	ctx, cancel := context.WithTimeoutCause(n.ctx, askLimit, timeup.Err)
	defer cancel()
	type answer struct {
		told *report
		err  error
	}
	addrs := n.candidates()
	answers := make(chan answer, len(addrs))
	var errs []error
	asked := 0
	for {
		var next <-chan time.Time
		if asked < len(addrs) {
			addr := addrs[asked]
			asked++
			n.work.Go(func() {
				told, err := n.askOne(ctx, addr)
				answers <- answer{told, err}
			})
			next = time.After(askNext)
		}
		select {
		case a := <-answers:
			if a.err == nil {
				return a.told, nil
			}
			if errs = append(errs, a.err); len(errs) == len(addrs) {
				return nil, errors.Join(errs...)
			}
		case <-next:
		case <-ctx.Done():
			return nil, errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
}

func (n *node) askOne(ctx context.Context, addr string) (*report, error) {
	s, err := n.at(addr)
	if err != nil {
		return nil, err
	}
	defer s.users.Done()
	reply, err := s.Do(ctx, time.Now().Add(askLimit), "CLUSTER", "SLOTS")
	if errors.Is(err, strategy.ErrRefused) && rediskit.Forbidden(err.Error()) {
		return &report{guide: addr}, nil
	}
	var failed *strategy.ServerError
	if errors.As(err, &failed) { // what became of the question is not what becomes of the caller's request
		return nil, fmt.Errorf("%s: %w", addr, failed.Err)
	}
	told, err := readSlots(reply, addr)
	if err != nil {
		return nil, fmt.Errorf("%s: CLUSTER SLOTS: %w", addr, err)
	}
	return told, nil
}

// readSlots reads CLUSTER SLOTS: first slot, last slot, {host, port, …} of the master, and of
// each replica. A server that does not know its own host leaves it to the one that asked at addr.
func readSlots(reply any, addr string) (*report, error) {
	ranges, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("an unexpected reply: %T", reply)
	}
	told := &report{}
	seen := map[string]bool{}
	var replicas []string
	for _, r := range ranges {
		parts, _ := r.([]any)
		if len(parts) < 3 {
			return nil, fmt.Errorf("an unexpected range: %s", rediskit.Describe(r))
		}
		first, ok := parts[0].(int64)
		last, ok2 := parts[1].(int64)
		if !ok || !ok2 || first < 0 || last < first || last >= redisc.HashSlots {
			return nil, fmt.Errorf("an unexpected range: %s", rediskit.Describe(r))
		}
		for i, part := range parts[2:] {
			at, err := readNode(part, addr)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				for slot := first; slot <= last; slot++ {
					told.owners[slot] = at
				}
			}
			switch {
			case seen[at]:
			case i == 0:
				told.addrs = append(told.addrs, at)
			default:
				replicas = append(replicas, at)
			}
			seen[at] = true
		}
	}
	if len(told.addrs) == 0 {
		return nil, errors.New("no node serves any slot")
	}
	told.addrs = append(told.addrs, replicas...)
	return told, nil
}

func readNode(part any, asked string) (addr string, err error) {
	words, _ := part.([]any)
	if len(words) < 2 {
		return "", fmt.Errorf("an unexpected node: %s", rediskit.Describe(part))
	}
	port, ok := words[1].(int64)
	if !ok || port < 1 || port > 65535 {
		return "", fmt.Errorf("an unexpected port: %s", rediskit.Describe(words[1]))
	}
	host, _ := words[0].([]byte)
	return address(string(host), strconv.FormatInt(port, 10), asked), nil
}

// address joins host and port; a host that the server does not know, or does not tell, is the
// one at which it was asked.
func address(host, port, asked string) string {
	if host == "" || host == "?" {
		host, _, _ = splitAddr(asked)
	}
	return net.JoinHostPort(host, port)
}
