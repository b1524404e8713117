// Package rig has Redis servers that can be broken, and a network to each that can be
// broken for each contender. Tests, the matrix of faults, the nemesis and the lessons
// share its few words.
//
// A [Node] is a place: what it does happens to the server that serves there now. A
// [Link] is one contender's way to it. [At] is the point of a protocol at which
// something happens, so that nobody has to sleep and hope.
//
// What cannot be done for real is an emulation and says so: [Node.PowerLoss],
// [Node.JumpClock]. Where there are no servers of our own to break (miniredis, servers
// of REDIS_ADDRS), Open fails with redistest.ErrImpossible.
package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// Rig is a number of independent servers of our own. The words of one node may be called
// by several goroutines; those that change a server wait for each other.
type Rig struct{ Nodes []*Node }

// operator is the user that breaks things: what is denied to contenders is not
// denied to it.
const operator = "rig"

// patience bounds an operator's command, on a machine that stalls for seconds.
const patience = 30 * time.Second

// overrides is the file of a server's data directory in which settings outlive its
// process. The pattern, since a file that is named must be there (Redis 7.0 and later).
const (
	overrides       = "rig-overrides.conf"
	overridesFilter = "rig-*.conf"
)

// Open starts n servers of the farm, each with c. By default they keep nothing on disk.
func Open(ctx context.Context, farm *redistest.Farm, n int, c redistest.Config) (*Rig, error) {
	if n < 1 {
		return nil, fmt.Errorf("rig: %d servers: allowed are 1 and more", n)
	}
	c.Args = slices.Concat(c.Args, []string{
		"--user", operator, "on", ">" + operator, "~*", "&*", "+@all",
		"--include", overridesFilter,
		"--rdb-del-sync-files", "yes", // or a replica would find what it was sent at its next start
	})
	r := &Rig{}
	for range n {
		r.Nodes = append(r.Nodes, &Node{farm: farm, config: c, links: map[*Link]bool{}})
	}
	err := r.each(func(n *Node) (err error) {
		if n.home, err = n.start(ctx); err == nil {
			n.serve(n.home)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// each runs fn for all nodes side by side, since servers take a second to start.
func (r *Rig) each(fn func(*Node) error) error {
	errs := make([]error, len(r.Nodes))
	var wg sync.WaitGroup
	for i, n := range r.Nodes {
		wg.Go(func() { errs[i] = fn(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close ends the links, with their pools, and the servers.
func (r *Rig) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	return r.each(func(n *Node) error {
		err := n.endLinks()
		n.changing.Lock()
		defer n.changing.Unlock()
		for _, s := range n.servers() {
			err = errors.Join(err, s.Stop(ctx))
		}
		return err
	})
}

// Reset makes the rig as good as new, for far less than a new one costs. Connections
// through links are reset, links healed, the frozen thawed, the dead restarted. The home
// server serves again and has no replica; users and settings are as they were at the start;
// no server has a key, a script or a contender's connection. Nothing that was sent
// before takes effect after.
func (r *Rig) Reset(ctx context.Context) error {
	return r.each(func(n *Node) error { return n.reset(ctx) })
}

// Node is a place: an address whose server may change, as that of a virtual IP or a
// proxy does at a fail-over.
type Node struct {
	farm   *redistest.Farm
	config redistest.Config

	changing sync.Mutex // one change of the servers at a time; taken before mu
	home     *server    // who serves at first, and after a Reset
	spare    *server    // kept for the next Replicate, since starting one costs a second; nil: none yet
	replica  *server    // of the server that serves; nil: none

	mu     sync.Mutex
	now    *server // who serves
	down   bool    // it is dead, so connections are refused
	closed bool
	links  map[*Link]bool
}

// A server is one of redistest's, and how it was at its start.
type server struct {
	*redistest.Server
	fsync    string            // its append-only file's; empty: none
	settings map[string]string // CONFIG GET *
	users    []string          // ACL LIST
}

// Server is who serves there now.
func (n *Node) Server() *redistest.Server { return n.serving().Server }

func (n *Node) serving() *server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

// Config is how its servers are started: the rig's own arguments are the last.
func (n *Node) Config() redistest.Config { return n.config }

// servers are all that there are, for callers that hold changing.
func (n *Node) servers() []*server {
	return slices.DeleteFunc([]*server{n.home, n.spare}, func(s *server) bool { return s == nil })
}

// start starts one more server, and remembers how it is.
func (n *Node) start(ctx context.Context) (*server, error) {
	started, err := n.farm.Start(ctx, n.config)
	if err != nil {
		return nil, fmt.Errorf("rig: %w", err)
	}
	s := &server{Server: started}
	if s.settings, err = redis.StringMap(n.ask(ctx, s, "CONFIG", "GET", "*")); err == nil {
		s.users, err = redis.Strings(n.ask(ctx, s, "ACL", "LIST"))
	}
	if err != nil {
		return nil, errors.Join(err, started.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// Do sends an operator's command to the server that serves, around all faults: on a connection
// of its own, past the links, as a user to whom nothing is denied. A server that is
// frozen or dead it cannot wake.
func (n *Node) Do(ctx context.Context, cmd string, args ...any) (any, error) {
	return n.ask(ctx, n.serving(), cmd, args...)
}

func (n *Node) ask(ctx context.Context, s *server, cmd string, args ...any) (any, error) {
	limit, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	var reply any
	c, err := n.dial(limit, s)
	if err == nil {
		reply, err = c.Do(cmd, args...)
		c.Close()
	}
	if err != nil {
		if limit.Err() != nil {
			err = context.Cause(limit)
		}
		return nil, fmt.Errorf("rig: %s at %s: %w", cmd, s.Addr(), err)
	}
	return reply, nil
}

// tell is ask for commands whose reply says no more than that they were done.
func (n *Node) tell(ctx context.Context, s *server, cmd string, args ...any) error {
	_, err := n.ask(ctx, s, cmd, args...)
	return err
}

// dial connects the operator. The connection ends with ctx.
func (n *Node) dial(ctx context.Context, s *server) (redis.Conn, error) {
	return redis.DialContext(ctx, "tcp", s.Addr(),
		redis.DialUsername(operator), redis.DialPassword(operator), redis.DialDatabase(n.config.Database),
		redis.DialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil { // a frozen server would keep the AUTH waiting, which knows no ctx
				context.AfterFunc(ctx, func() { c.Close() })
			}
			return c, err
		}))
}

// serve makes s the one that serves, and lets connections through to it.
func (n *Node) serve(s *server) {
	n.mu.Lock()
	n.now = s
	n.mu.Unlock()
	n.setDown(false)
}

// setDown makes the links refuse connections, as a dead server's kernel does, or not.
func (n *Node) setDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for l := range n.links {
		l.setDown(down)
	}
}

// Link is a contender's network to the server that serves here. It ends with the rig.
// Where it is not available, its pools' Dial says why, and so do Reset and Close.
func (n *Node) Link() *Link {
	l := newLink(n)
	n.mu.Lock()
	closed := n.closed
	if !closed {
		n.links[l] = true
		l.setDown(n.down)
	}
	n.mu.Unlock()
	if closed {
		l.Close()
	}
	return l
}

// forget is called by a link that has ended.
func (n *Node) forget(l *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l)
}

func (n *Node) endLinks() error {
	n.mu.Lock()
	n.closed = true
	links := slices.Collect(maps.Keys(n.links))
	n.mu.Unlock()
	var err error
	for _, l := range links {
		err = errors.Join(err, l.failure())
		l.Close()
	}
	return err
}

func (n *Node) reset(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	n.mu.Lock()
	links := slices.Collect(maps.Keys(n.links))
	n.mu.Unlock()
	for _, l := range links {
		l.Reset()
		l.Heal()
	}
	var err error
	for _, s := range n.servers() {
		err = errors.Join(err, n.renew(ctx, s))
	}
	if err != nil {
		return err
	}
	n.replica = nil
	n.serve(n.home)
	for _, l := range links {
		err = errors.Join(err, l.failure())
	}
	return err
}

// renew makes a server as it was at its start.
func (n *Node) renew(ctx context.Context, s *server) error {
	if s.fsync != "" { // before a restart that would read it
		if err := s.Put(ctx, map[string][]byte{overrides: []byte("# nothing\n")}); err != nil {
			return wrap(err)
		}
		s.fsync = ""
	}
	err := s.Thaw(ctx)
	if err == nil && !s.Dead() {
		err = n.tell(ctx, s, "CLIENT", "UNPAUSE")
	}
	if err != nil && ctx.Err() == nil || s.Dead() { // also when nobody here ended it
		err = s.Restart(ctx)
	}
	if err != nil {
		return wrap(err)
	}
	// Connections end before the keys go: what lay unread in them is never executed.
	for _, step := range []func() error{
		func() error { return n.tell(ctx, s, "REPLICAOF", "NO", "ONE") },
		func() error { return n.restoreUsers(ctx, s) },
		func() error { return n.killClients(ctx, s) },
		func() error { return n.restoreSettings(ctx, s) },
		func() error { return n.tell(ctx, s, "FLUSHALL", "SYNC") },
		func() error { return n.tell(ctx, s, "SCRIPT", "FLUSH", "SYNC") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// restoreSettings undoes every CONFIG SET, also those of others.
func (n *Node) restoreSettings(ctx context.Context, s *server) error {
	now, err := redis.StringMap(n.ask(ctx, s, "CONFIG", "GET", "*"))
	if err != nil {
		return err
	}
	for k, v := range s.settings {
		if now[k] != v {
			if err := n.tell(ctx, s, "CONFIG", "SET", k, v); err != nil {
				return fmt.Errorf("%w (%s back to %q)", err, k, v)
			}
		}
	}
	return nil
}

// restoreUsers undoes every ACL SETUSER and DELUSER.
func (n *Node) restoreUsers(ctx context.Context, s *server) error {
	now, err := redis.Strings(n.ask(ctx, s, "ACL", "LIST"))
	if err != nil {
		return err
	}
	was := map[string]bool{}
	for _, line := range s.users { // as in "user name rule rule …"
		words := strings.Fields(line)
		was[words[1]] = true
		if slices.Contains(now, line) {
			continue
		}
		args := []any{"SETUSER", words[1], "reset"}
		for _, rule := range words[2:] {
			args = append(args, rule)
		}
		if err := n.tell(ctx, s, "ACL", args...); err != nil {
			return err
		}
	}
	for _, line := range now {
		if name := strings.Fields(line)[1]; !was[name] {
			if err := n.tell(ctx, s, "ACL", "DELUSER", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// poll calls fn until it is done or fails, ever less often, up to every 50 ms.
func poll(ctx context.Context, what string, fn func() (done bool, err error)) error {
	limit, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("not within %v", 2*patience))
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		done, err := fn()
		if done || err != nil {
			return err
		}
		select {
		case <-limit.Done():
			return fmt.Errorf("rig: %s: %w", what, context.Cause(limit))
		case <-time.After(wait):
		}
	}
}
