package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// Sentinels are three Sentinels, and the servers that they watch: a master and its replicas.
// All are real, so a fail-over takes what it takes: some seconds. Its words are for one
// goroutine.
type Sentinels struct {
	Name    string              // what the Sentinels call the master
	Addrs   []string            // of the Sentinels
	Servers []*redistest.Server // who is the master changes

	sentinels []*redistest.Server
}

const (
	// calm is how long a server may be silent before it counts as down: long, since a busy
	// machine must not make a master of a replica when nobody has asked for it.
	calm = time.Minute
	// alert is the same once we have killed the master.
	alert = 500 * time.Millisecond
)

// OpenSentinels starts a master with n replicas, each with c, and three Sentinels that know
// all of them. Where servers do not share this machine's network it fails with
// redistest.ErrImpossible: a Sentinel tells addresses, and everybody has to reach them.
func OpenSentinels(ctx context.Context, farm *redistest.Farm, n int, c redistest.Config) (_ *Sentinels, err error) {
	if n < 1 {
		return nil, fmt.Errorf("rig: %d replicas: allowed are 1 and more", n)
	}
	s := &Sentinels{Name: "locks"}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	// A master would wait five seconds for more replicas to come.
	c.Args = slices.Concat(c.Args, []string{"--repl-diskless-sync-delay", "0"})
	if c.Password != "" { // each may be the replica of another some time
		c.Args = slices.Concat(c.Args, []string{"--masterauth", c.Password})
	}
	if c.User != "" {
		c.Args = slices.Concat(c.Args, []string{"--masteruser", c.User})
	}
	master, err := farm.Start(ctx, c)
	if err != nil {
		return nil, wrap(err)
	}
	s.Servers = append(s.Servers, master)
	peer, err := master.Peer(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	if peer != master.Addr() {
		return nil, fmt.Errorf("rig: servers see each other at %s, and others see them at %s: %w", peer, master.Addr(), redistest.ErrImpossible)
	}
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		return nil, wrap(err)
	}
	c.Args = slices.Concat(c.Args, []string{"--replicaof", host + " " + port})
	config := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\n"+
		"sentinel down-after-milliseconds %[1]s %[4]d\nsentinel failover-timeout %[1]s 10000\nsentinel parallel-syncs %[1]s %[5]d\n",
		s.Name, host, port, calm.Milliseconds(), n)
	if c.Password != "" {
		config += fmt.Sprintf("sentinel auth-pass %s %s\n", s.Name, c.Password)
	}
	if c.User != "" {
		config += fmt.Sprintf("sentinel auth-user %s %s\n", s.Name, c.User)
	}
	replicas, err := farm.StartAll(ctx, n, c)
	if err != nil {
		return nil, wrap(err)
	}
	s.Servers = append(s.Servers, replicas...)
	if err := s.Heard(ctx, master); err != nil {
		return nil, err
	}
	watcher := redistest.Config{Files: map[string][]byte{"sentinel.conf": []byte(config)}, Sentinel: "sentinel.conf"}
	if s.sentinels, err = farm.StartAll(ctx, 3, watcher); err != nil {
		return nil, wrap(err)
	}
	for _, one := range s.sentinels {
		s.Addrs = append(s.Addrs, one.Addr())
	}
	return s, s.each(ctx, "knowing all", func(know map[string]string) bool {
		return know["num-slaves"] == strconv.Itoa(n) && know["num-other-sentinels"] == "2" && know["flags"] == "master"
	})
}

// Close ends them all.
func (s *Sentinels) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var err error
	for _, one := range slices.Concat(s.sentinels, s.Servers) { // nobody is promoted meanwhile
		err = errors.Join(err, one.Stop(ctx))
	}
	return err
}

// call sends one command to a server, or to a Sentinel.
func call(ctx context.Context, to *redistest.Server, cmd string, args ...any) (any, error) {
	limit, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	c, err := to.Pool().DialContext(limit) // a Sentinel ends connections, the pool's too
	if err != nil {
		return nil, fmt.Errorf("rig: %s at %s: %w", cmd, to.Addr(), err)
	}
	defer c.Close()
	reply, err := redis.DoContext(c, limit, cmd, args...)
	if err != nil {
		return nil, fmt.Errorf("rig: %s at %s: %w", cmd, to.Addr(), err)
	}
	return reply, nil
}

// each waits until every Sentinel knows what is asked of it.
func (s *Sentinels) each(ctx context.Context, what string, fn func(know map[string]string) bool) error {
	for _, one := range s.sentinels {
		if err := poll(ctx, what+" by the Sentinel at "+one.Addr(), func() (bool, error) {
			know, err := redis.StringMap(call(ctx, one, "SENTINEL", "MASTER", s.Name))
			return err == nil && fn(know), err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Master is who the Sentinels say it is: all of them, each done with what made it the master,
// or it is an error.
func (s *Sentinels) Master(ctx context.Context) (*redistest.Server, error) {
	var addr string
	for _, one := range s.sentinels {
		know, err := redis.StringMap(call(ctx, one, "SENTINEL", "MASTER", s.Name))
		if err != nil {
			return nil, err
		}
		here := net.JoinHostPort(know["ip"], know["port"])
		if addr != "" && here != addr {
			return nil, fmt.Errorf("rig: Sentinels name %s and %s", addr, here)
		}
		if strings.Contains(know["flags"], "failover_in_progress") {
			return nil, fmt.Errorf("rig: the Sentinel at %s is about to replace %s", one.Addr(), here)
		}
		addr = here
	}
	for _, server := range s.Servers {
		if server.Addr() == addr {
			return server, nil
		}
	}
	return nil, fmt.Errorf("rig: the Sentinels name %s, which is not one of ours", addr)
}

// Heard waits until every replica that lives has what the master has now, and the master
// counts it as a replica.
func (s *Sentinels) Heard(ctx context.Context, master *redistest.Server) error {
	replicas := 0
	for _, one := range s.Servers {
		if one == master || one.Dead() {
			continue
		}
		replicas++
		if err := master.Replicated(ctx, one); err != nil {
			return wrap(err)
		}
	}
	return poll(ctx, "the replicas of "+master.Addr(), func() (bool, error) {
		text, err := redis.String(call(ctx, master, "INFO", "replication"))
		return strings.Count(text, "state=online") == replicas, err
	})
}

// FailOver kills the master, and returns once all Sentinels name another.
func (s *Sentinels) FailOver(ctx context.Context) (master *redistest.Server, err error) {
	old, err := s.Master(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.set(ctx, alert); err != nil {
		return nil, err
	}
	if err := old.Kill(ctx); err != nil {
		return nil, wrap(err)
	}
	if master, err = s.another(ctx, old); err != nil {
		return nil, err
	}
	return master, s.set(ctx, calm)
}

// Promote makes the Sentinels promote a replica, and returns once all of them name it. The
// old master goes on as if nothing had happened until a Sentinel turns to it, which is more
// than eight seconds later, or Demote does.
func (s *Sentinels) Promote(ctx context.Context) (master *redistest.Server, err error) {
	old, err := s.Master(ctx)
	if err != nil {
		return nil, err
	}
	// It finds none good enough while its last news of them is too old.
	if err := poll(ctx, "a Sentinel that promotes", func() (bool, error) {
		_, err := call(ctx, s.sentinels[0], "SENTINEL", "FAILOVER", s.Name)
		var said redis.Error
		if errors.As(err, &said) && strings.HasPrefix(said.Error(), "NOGOODSLAVE") {
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		return nil, err
	}
	return s.another(ctx, old)
}

// Demote makes a server a replica of the master, as a Sentinel does that finds it after a
// fail-over. But its clients' connections stay: what they write is refused with READONLY.
func (s *Sentinels) Demote(ctx context.Context, old, master *redistest.Server) error {
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		return wrap(err)
	}
	_, err = call(ctx, old, "REPLICAOF", host, port)
	return err
}

// set tells every Sentinel how long a server may be silent.
func (s *Sentinels) set(ctx context.Context, down time.Duration) error {
	for _, one := range s.sentinels {
		if _, err := call(ctx, one, "SENTINEL", "SET", s.Name, "down-after-milliseconds", down.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// another waits until the Sentinels agree on another master than that, and it says so, too.
func (s *Sentinels) another(ctx context.Context, old *redistest.Server) (master *redistest.Server, err error) {
	err = poll(ctx, "another master than "+old.Addr(), func() (bool, error) {
		if master, err = s.Master(ctx); err != nil || master == old {
			return false, ctx.Err() // they do not agree yet
		}
		role, err := redis.Values(call(ctx, master, "ROLE"))
		if err != nil || len(role) == 0 {
			return false, err
		}
		word, err := redis.String(role[0], nil)
		return word == "master", err
	})
	return master, err
}

// NewSentinels is OpenSentinels for a test. They end with the test. If they are not available, it skips
// the test, and says why.
func NewSentinels(t testing.TB, n int, c redistest.Config) *Sentinels {
	t.Helper()
	s, err := OpenSentinels(t.Context(), redistest.ForTests(t), n, c)
	redistest.Skip(t, err, "what "+t.Name()+" asks of Sentinels")
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
