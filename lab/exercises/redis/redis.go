// Package redis is what the locks of the exercises speak to: a server, and what a client wants of it.
package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A Claim is what one client wants of one lock.
type Claim struct {
	Key   string // of the lock
	Token string // drawn for this attempt: no other has the same
	TTL   int    // for how long the server is to keep the lock without a renewal, in milliseconds

	Now     int    // what this client's own clock said when the call began, in milliseconds
	Owner   string // who may have the lock several times
	Permits int    // how many may hold the lock at a time

	// Voted are the places of the servers that have voted for this claim. A RedLock sets it when it acquires, and finds it again
	// when it extends or releases.
	Voted []int
}

// These scripts do what they say in one step. Redis runs nothing else meanwhile.
const (
	// DeleteIfMine gets the token, and returns 1 if it was the key's value, which is gone now.
	DeleteIfMine = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
		return redis.call('DEL', KEYS[1])`
	// ExpireIfMine gets the token and a TTL, and returns 1 if the token is the key's value, which now has this TTL.
	ExpireIfMine = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
		return redis.call('PEXPIRE', KEYS[1], ARGV[2])`
)

// A Server is a Redis, for one call of a lock.
type Server struct {
	ctx  context.Context
	node driver.Node
	due  time.Time
	call string
	sent bool
	err  error
}

// New returns a server for one call, which has to be answered by then.
func New(ctx context.Context, n driver.Node, due time.Time, call string) *Server {
	return &Server{ctx: ctx, node: n, due: due, call: call}
}

// Name is the server's, for errors.
func (s *Server) Name() string { return s.node.Name() }

// Err is why the server did not answer a command. Nothing was sent after that.
func (s *Server) Err() error { return s.err }

// Sent reports whether the server may have done something.
func (s *Server) Sent() bool { return s.sent }

// Do sends a command, and returns the answer: an int, a string, or nil. nil also stands for no answer.
func (s *Server) Do(command, key string, args ...any) any {
	return s.ask(func() (any, error) { return s.node.Do(s.ctx, s.due, command, key, args...) })
}

// Eval has the server run a Lua script, which finds the key as KEYS[1] and the other arguments as ARGV[1], ARGV[2] and so on.
func (s *Server) Eval(script, key string, args ...any) any {
	return s.ask(func() (any, error) {
		return s.node.Eval(s.ctx, s.due, driver.NewScript(s.call, script), []string{key}, args...)
	})
}

// Ask asks all servers at the same time, and waits for each. It returns the places of those that said yes, in order.
func Ask(servers []*Server, one func(*Server) bool) (yes []int) {
	said := make([]bool, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { said[i] = one(s) })
	}
	all.Wait()
	for i := range said {
		if said[i] {
			yes = append(yes, i)
		}
	}
	return yes
}

func (s *Server) ask(send func() (any, error)) any {
	var reply any
	if s.err == nil {
		reply, s.err = send()
		s.sent = s.sent || !errors.Is(s.err, strategy.ErrUnsent)
	}
	switch r := reply.(type) {
	case int64:
		return int(r)
	case []byte:
		return string(r)
	}
	return reply
}
