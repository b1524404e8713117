package redistest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A container costs a quarter of a second of a processor. So a server that a test has owned serves
// another test, if it can be shown to be as it was at its start.

// lasting are the commands that change more of a server than its keys, scripts and counts. Redis 6 counts
// no subcommands, so there CONFIG GET is one of them, too.
var lasting = regexp.MustCompile(`^(acl(\|(deluser|load|setuser))?|bgrewriteaof|bgsave|client(\|pause)?|cluster(\|.*)?|config(\|(rewrite|set))?|debug|failover|function(\|.*)?|module(\|.*)?|psync|replicaof|save|slaveof|sync)$`)

// startFor is Start for a test that gives the server back.
func (f *Farm) startFor(ctx context.Context, c Config) (*Server, error) {
	if reflect.ValueOf(c).IsZero() {
		f.mu.Lock()
		if last := len(f.idle) - 1; last >= 0 {
			s := f.idle[last]
			f.idle = f.idle[:last]
			f.mu.Unlock()
			return s, nil
		}
		f.mu.Unlock()
	}
	return f.Start(ctx, c)
}

// giveBack ends a server that own returned, or keeps it for the next test.
func (f *Farm) giveBack(ctx context.Context, s *Server, c Config) error {
	if !reflect.ValueOf(c).IsZero() || s.asNew(ctx) != nil {
		return s.Stop(ctx)
	}
	again := newServer(f, s.m, false)
	if err := again.ready(ctx); err != nil {
		return errors.Join(err, s.Stop(ctx))
	}
	if err := s.retire(func() error { return nil }); err != nil {
		return err
	}
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.servers[again] = true
		f.idle = append(f.idle, again)
	}
	f.mu.Unlock()
	if closed {
		return again.end()
	}
	return nil
}

// asNew makes the server as it was at its start. The error says why it is not.
func (s *Server) asNew(ctx context.Context) error {
	s.changing.Lock()
	changed := s.ended || s.changed
	s.changing.Unlock()
	if changed {
		return errors.New("it was killed, frozen or given files")
	}
	calls, err := s.Calls(ctx)
	if err != nil {
		return err
	}
	if calls["ping"] == 0 { // which ready has sent
		return errors.New("its counts were reset, so what it was sent is not known")
	}
	for command := range calls {
		if lasting.MatchString(command) {
			return fmt.Errorf("it was sent %s", command)
		}
	}
	s.pool.Close()
	s.forget()
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	// A client that is still connected may send something to the next test's server.
	alone, cancel := context.WithTimeoutCause(ctx, time.Second, errors.New("the test has left connections"))
	defer cancel()
	if err := pollUntil(alone, func() (bool, error) {
		list, err := redis.String(redis.DoContext(c, alone, "CLIENT", "LIST"))
		return strings.Count(list, "\n") == 1, err
	}); err != nil {
		return err
	}
	for _, cmd := range []redis.Args{{"FLUSHALL", "SYNC"}, {"SCRIPT", "FLUSH", "SYNC"}, {"CONFIG", "RESETSTAT"}} {
		if _, err := redis.DoContext(c, ctx, cmd[0].(string), cmd[1:]...); err != nil {
			return err
		}
	}
	return nil
}
