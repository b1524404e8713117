package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// Floors that send what fairqueue and redlock send, without their client. What they take longer
// than raw and pool is the server's work on the scripts; what ours take longer than they do is
// the client's.

// A request is one command, and what its reply has to be: a floor that is refused is quick,
// and no floor.
type request struct {
	cmd  string
	args []any
	good func(reply any) bool
}

// A turn is what one caller sends to acquire and to release.
type turn struct{ acquire, release request }

func (r request) do(c redis.Conn) error {
	reply, err := c.Do(r.cmd, r.args...)
	return r.check(reply, err)
}

func (r request) check(reply any, err error) error {
	if err == nil && !r.good(reply) {
		return errNotThere
	}
	return err
}

// fenced and unfenced tell what fairqueue's acquire says: another holder would be an array.
func fenced(reply any) bool   { fence, ok := reply.(int64); return ok && fence > 0 }
func unfenced(reply any) bool { return reply == int64(0) }

// eachOf is the reply of a script to several callers.
func eachOf(n int, good func(any) bool) func(any) bool {
	return func(reply any) bool {
		told, _ := reply.([]any)
		return len(told) == n && !slices.ContainsFunc(told, func(a any) bool { return !good(a) })
	}
}

// An eval is one call of a script, as a strategy makes it.
type eval struct {
	script *driver.Script
	keys   []any // strings, which are not to be made anew for each request
	args   []any
}

// A recorder is a node that remembers what is called. One caller at a time.
type recorder struct {
	*node.Node
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
func recorded(ctx context.Context, s *seat, own ...fairqueue.Option) (acquires, releases []eval, err error) {
	pool := s.pool(s.URLs[0], 1)
	n, err := node.New(pool)
	if err != nil {
		return nil, nil, err
	}
	r := &recorder{Node: n}
	st, err := engine.New(fairqueue.On(r, own...), ourOptions(s))
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

// joint is one request for the calls of several callers; for one it is that call's own.
func joint(calls []eval, good func(any) bool) request {
	all := make([]*eval, len(calls))
	for i := range calls {
		all[i] = &calls[i]
	}
	if len(all) > 1 {
		good = eachOf(len(all), good)
	}
	return request{"EVALSHA", jointArgs(nil, all), good}
}

// jointArgs appends its arguments, in the layout that driver.NewJointScript tells.
func jointArgs(args []any, calls []*eval) []any {
	first, n := calls[0], len(calls)
	shared, _ := first.script.Joint()
	args = append(args, first.script.HashArg(), n*len(first.keys))
	for i := range first.keys {
		for _, c := range calls {
			args = append(args, c.keys[i])
		}
	}
	args = append(args, first.args[:shared]...)
	for i := shared; i < len(first.args); i++ {
		for _, c := range calls {
			args = append(args, c.args[i])
		}
	}
	return args
}

// A replay sends over one connection, again and again, what fairqueue has sent: with the same
// tokens, as each pair ends with the release.
type replay struct {
	*raw
	turns map[string]turn
}

func openReplay(granted func(any) bool, own ...fairqueue.Option) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (client, error) {
		acquires, releases, err := recorded(ctx, s, own...)
		if err != nil {
			return nil, err
		}
		c, err := openRaw(1)(ctx, s)
		if err != nil {
			return nil, err
		}
		return &replay{c.(*raw), turns(s, acquires, releases, granted)}, nil
	}
}

// turns are what is sent for each name, nobody together with others.
func turns(s *seat, acquires, releases []eval, granted func(any) bool) map[string]turn {
	of := map[string]turn{}
	for i := range acquires {
		of[s.name(i)] = turn{joint(acquires[i:i+1], granted), joint(releases[i:i+1], released)}
	}
	return of
}

func (r *replay) mutex(name string) mutex { return &replayMutex{r.conns[0], r.turns[name]} }

type replayMutex struct {
	c redis.Conn
	turn
}

func (m *replayMutex) acquire(context.Context) (held, error) { return m, m.turn.acquire.do(m.c) }
func (m *replayMutex) Release(context.Context) error         { return m.turn.release.do(m.c) }

// A pooledReplay borrows a connection for each pair, as pool does.
type pooledReplay struct {
	*pooled
	turns map[string]turn
}

func openPooledReplay(ctx context.Context, s *seat) (client, error) {
	acquires, releases, err := recorded(ctx, s)
	if err != nil {
		return nil, err
	}
	return &pooledReplay{&pooled{Pool: s.pool(s.URLs[0], s.callers())}, turns(s, acquires, releases, fenced)}, nil
}

func (p *pooledReplay) mutex(name string) mutex {
	return &pooledReplayMutex{p: p.Pool, replayMutex: replayMutex{turn: p.turns[name]}}
}

type pooledReplayMutex struct {
	p *redis.Pool
	replayMutex
}

func (m *pooledReplayMutex) acquire(ctx context.Context) (held, error) {
	m.c = m.p.Get()
	_, err := m.replayMutex.acquire(ctx)
	return m, err
}

func (m *pooledReplayMutex) Release(ctx context.Context) error {
	return errors.Join(m.replayMutex.Release(ctx), m.c.Close())
}

// A pipeline has no callers: one goroutine sends what acquires all names and reads all replies,
// then what releases them likewise. No caller has to be woken.
type pipeline struct {
	*raw
	acquires, releases []request
}

// pairs makes one on each name.
func (p *pipeline) pairs() error {
	if err := pipelined(p.conns[0], p.acquires); err != nil {
		return err
	}
	return pipelined(p.conns[0], p.releases)
}

func pipelined(c redis.Conn, rs []request) error {
	for _, r := range rs {
		if err := c.Send(r.cmd, r.args...); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for _, r := range rs {
		if err := r.check(c.Receive()); err != nil {
			return err
		}
	}
	return nil
}

func openPipeRaw(ctx context.Context, s *seat) (client, error) {
	c, err := openRaw(1)(ctx, s)
	if err != nil {
		return nil, err
	}
	p := &pipeline{raw: c.(*raw)}
	for i := range s.N {
		t := p.turn(s.name(i))
		p.acquires = append(p.acquires, t.acquire)
		p.releases = append(p.releases, t.release)
	}
	return p, nil
}

// turn is what raw sends for a name.
func (r *raw) turn(name string) turn {
	key := r.mutex(name).(*rawMutex).key
	return turn{
		acquire: request{"SET", []any{key, token, "NX", "PX", r.ttl}, granted},
		release: request{"EVALSHA", []any{deleteHash, 1, key, token}, released},
	}
}

// An allReplay is raw-all with what redlock has sent for a lock, whose key and channel each name's
// take the place of: names that nobody has used are new to it, too.
type allReplay struct {
	*raw
	key              string // of what was recorded
	acquire, release eval
}

func openAllReplay(own ...redlock.Option) func(context.Context, *seat) (client, error) {
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
			n, err := node.New(pools[i])
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, n)
		}
		first := &recorder{Node: nodes[0].(*node.Node)} // all are asked the same
		nodes[0] = first
		st, err := engine.New(redlock.On(nodes, own...), ourOptions(s))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		a := &allReplay{key: strategy.DefaultKey(name)}
		for range 3 { // the release waits for all servers, so each has been asked for both
			if a.acquire, a.release, err = first.pair(ctx, st.NewLock(name)); err != nil {
				return nil, err
			}
		}
		c, err := openRaw(0)(ctx, s)
		if err != nil {
			return nil, err
		}
		a.raw = c.(*raw)
		return a, nil
	}
}

// of is a call for another lock than the recorded one.
func (a *allReplay) of(e eval, key string) request {
	args := []any{e.script.Hash(), len(e.keys)}
	for _, k := range e.keys {
		args = append(args, strings.ReplaceAll(k.(string), a.key, key))
	}
	for _, arg := range e.args {
		if text, ok := arg.(string); ok {
			arg = strings.ReplaceAll(text, a.key, key)
		}
		args = append(args, arg)
	}
	return request{cmd: "EVALSHA", args: args}
}

func (a *allReplay) mutex(name string) mutex {
	key := strategy.DefaultKey(name)
	return &allReplayMutex{a.raw, turn{a.of(a.acquire, key), a.of(a.release, key)}}
}

type allReplayMutex struct {
	r *raw
	turn
}

// acquire is told 1, as is who releases: more would mean that a longer TTL is in use, of which
// redlock would know from then on.
func (m *allReplayMutex) acquire(context.Context) (held, error) {
	return m, m.r.all(released, m.turn.acquire.cmd, m.turn.acquire.args...)
}

func (m *allReplayMutex) Release(context.Context) error {
	return m.r.all(released, m.turn.release.cmd, m.turn.release.args...)
}

// mostJoined is how many calls share a request at most, as in internal/node.
const mostJoined = 64

func openPipeReplay(ctx context.Context, s *seat) (client, error) {
	acquires, releases, err := recorded(ctx, s)
	if err != nil {
		return nil, err
	}
	c, err := openRaw(1)(ctx, s)
	if err != nil {
		return nil, err
	}
	p := &pipeline{raw: c.(*raw)}
	for calls := range slices.Chunk(acquires, mostJoined) {
		p.acquires = append(p.acquires, joint(calls, fenced))
	}
	for calls := range slices.Chunk(releases, mostJoined) {
		p.releases = append(p.releases, joint(calls, released))
	}
	return p, nil
}
