package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// Replays are floors that send what fairqueue and redlock send, without their client. Their
// difference to raw is the server's work on the scripts. The difference from there to
// ours is the client's work.

// fenced and unfenced are the replies of fairqueue's acquire to a new holder. If the lock is held
// the reply is an array.
func fenced(reply any) bool   { fence, ok := reply.(int64); return ok && fence > 0 }
func unfenced(reply any) bool { return reply == int64(0) }

// An eval is one call of a script, as a strategy makes it.
type eval struct {
	script *driver.Script
	keys   []any // strings, converted once
	args   []any
}

// request sends it again.
func (e eval) request(good func(reply any) bool) floorCommand {
	return floorCommand{"EVALSHA", slices.Concat([]any{e.script.HashArg(), len(e.keys)}, e.keys, e.args), good}
}

// A recorder is a node that remembers what is called. One caller at a time.
type recorder struct {
	driver.Node
	evals []eval
}

func (r *recorder) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	r.evals = append(r.evals, eval{s, redis.Args{}.AddFlat(keys), slices.Clone(args)})
	return r.Node.Eval(ctx, due, s, keys, args...)
}

// pair records an acquire and a release.
func (r *recorder) pair(ctx context.Context, l strategy.Lock) (acquire, release eval, err error) {
	r.evals = nil
	lease, err := l.TryAcquire(ctx)
	if err != nil {
		return eval{}, eval{}, err
	}
	if err := lease.Release(ctx); err != nil {
		return eval{}, eval{}, err
	}
	if len(r.evals) != 2 {
		return eval{}, eval{}, fmt.Errorf("%d scripts were called for a pair, want 2", len(r.evals))
	}
	return r.evals[0], r.evals[1], nil
}

// recorded are the calls of fairqueue for each of the job's names, once they are in use: with
// the first of a name it asks for more. The server has the scripts by then, and fairqueue is
// closed.
func recorded(ctx context.Context, s *seat, options ...fairqueue.Option) (acquires, releases []eval, err error) {
	pool := s.pool(s.URLs[0], 1)
	n := redigonode.New(pool)
	r := &recorder{Node: n}
	st, err := fairqueue.New(r, ourOptions(s), options...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(), pool.Close()) }()
	acquires, releases = make([]eval, s.N), make([]eval, s.N)
	for i := range s.N {
		for range 3 {
			if acquires[i], releases[i], err = r.pair(ctx, st.NewLock(s.name(i))); err != nil {
				return nil, nil, err
			}
		}
	}
	return acquires, releases, nil
}

// replayed sends again and again what was recorded for each name: with the same tokens, as each
// pair ends with the release.
func replayed(s *seat, acquires, releases []eval, granted func(any) bool) func(name string) source {
	of := map[string]commands{}
	for i := range acquires {
		of[s.name(i)] = commands{acquires[i].request(granted), releases[i].request(released)}
	}
	return func(name string) source {
		t := of[name]
		return func() commands { return t }
	}
}

func openReplay(granted func(any) bool, options ...fairqueue.Option) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (client, error) {
		acquires, releases, err := recorded(ctx, s, options...)
		if err != nil {
			return nil, err
		}
		r, err := dialRaw(ctx, s, 1)
		if err != nil {
			return nil, err
		}
		r.turns = replayed(s, acquires, releases, granted)
		return r, nil
	}
}

// openAllReplay is raw-all with what redlock has sent for one lock. Each name's key takes the place
// of that lock's, so names that have never been used are new to it, too.
func openAllReplay(options ...redlock.Option) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (_ client, err error) {
		const name = "recorded"
		var nodes []driver.Node
		var pools []*redis.Pool
		defer func() {
			for _, p := range pools {
				err = errors.Join(err, p.Close())
			}
		}()
		for i, url := range s.URLs {
			pools = append(pools, s.pool(url, 1))
			nodes = append(nodes, redigonode.New(pools[i]))
		}
		first := &recorder{Node: nodes[0]} // all are asked the same
		nodes[0] = first
		st, err := redlock.New(nodes, ourOptions(s), options...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		var acquire, release eval
		for range 3 { // the release waits for all servers, so each has been asked for both
			if acquire, release, err = first.pair(ctx, st.NewLock(name)); err != nil {
				return nil, err
			}
		}
		r, err := dialRaw(ctx, s, 0)
		if err != nil {
			return nil, err
		}
		r.turns = func(to string) source {
			t := commands{acquire.renamed(name, to), release.renamed(name, to)}
			return func() commands { return t }
		}
		return r, nil
	}
}

// renamed is a call for another lock than the recorded one. Its reply has to be 1, also for an
// acquire: more would mean that a longer TTL is in use, which redlock would know from then on.
func (e eval) renamed(from, to string) floorCommand {
	from, to = strategy.DefaultKey(from), strategy.DefaultKey(to)
	r := e.request(released)
	for i, arg := range r.args {
		if text, ok := arg.(string); ok {
			r.args[i] = strings.ReplaceAll(text, from, to)
		}
	}
	return r
}
