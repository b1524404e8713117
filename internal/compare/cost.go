package compare

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// namePrefix begins the names of all locks that are taken for measuring.
const namePrefix = "compare "

// freshName is a lock that nobody else uses.
func freshName() string { return namePrefix + rand.Text() }

const (
	// costRounds is how often each call is counted: once would do, if it were
	// certain that nothing else is ever sent.
	costRounds = 20

	// mostKeys is how many keys a server may have to be looked through for what a
	// lock leaves behind: somebody may use it.
	mostKeys = 100_000
)

// cost counts what an uncontended lock sends.
func cost(ctx context.Context, s *redistest.Server, v subjects.Variant, shared bool) (c *Cost, err error) {
	var m meter
	pool := m.pool(s.Pool())
	defer pool.Close()
	// Two, as two processes would have: one holds while the other tries.
	holder, err := v.New([]*redis.Pool{pool}, strategy.Options{})
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	rival, err := v.New([]*redis.Pool{pool}, strategy.Options{})
	if err != nil {
		return nil, err
	}
	defer rival.Close()

	name := freshName()
	defer sweep(ctx, s, name)
	var lease *strategy.Lease
	acquire := func() (err error) {
		lease, err = holder.Lock(name).Acquire(ctx)
		return err
	}
	release := func() error { return lease.Release(ctx) }
	try := func() error {
		l, err := rival.Lock(name).TryAcquire(ctx)
		if err == nil {
			return errors.Join(errors.New("the lock was granted while another held it"), l.Release(ctx))
		}
		if !errors.Is(err, strategy.ErrHeld) {
			return err
		}
		return nil
	}

	var onAcquire, onRelease, onTry tally
	count := counting{s: s, m: &m, client: shared}
	for i := -1; i < costRounds; i++ { // the first dials, and loads scripts
		for _, step := range []struct {
			do func() error
			t  *tally
		}{{acquire, &onAcquire}, {try, &onTry}, {release, &onRelease}} {
			one, err := count.one(ctx, step.do)
			if err != nil {
				return nil, err
			}
			if i >= 0 {
				step.t.add(one)
			}
		}
	}
	c = &Cost{Acquire: onAcquire.each(), Release: onRelease.each(), HeldTry: onTry.each(), RoundTripsBy: "server"}
	if count.client {
		c.RoundTripsBy = "client"
	}
	if err := traces(ctx, s, holder, c); err != nil {
		return nil, err
	}
	return c, nil
}

// counting counts what one call costs.
type counting struct {
	s      *redistest.Server
	m      *meter
	client bool // the server cannot tell
}

type tally struct {
	n          int
	sent       sent
	roundTrips int64
	executed   int64
}

func (t *tally) add(u tally) {
	t.n += u.n
	t.sent.add(u.sent)
	t.roundTrips += u.roundTrips
	t.executed += u.executed
}

func (t *tally) each() Requests {
	n := float64(t.n)
	r := Requests{RoundTrips: float64(t.roundTrips) / n, Executed: float64(t.executed) / n}
	for _, name := range t.sent.order {
		r.Commands = append(r.Commands, Commands{Name: name, Times: float64(t.sent.commands[name]) / n})
	}
	return r
}

// one makes one call and counts it. Whether the server counts round trips is found
// out at the first, and kept to.
func (c *counting) one(ctx context.Context, call func() error) (tally, error) {
	tripsBefore, execBefore, err := c.server(ctx)
	if err != nil {
		return tally{}, err
	}
	c.m.take()
	if err := call(); err != nil {
		return tally{}, err
	}
	t := tally{n: 1, sent: c.m.take()}
	trips, exec, err := c.server(ctx)
	if err != nil {
		return tally{}, err
	}
	t.roundTrips, t.executed = trips-tripsBefore, exec-execBefore
	if c.client {
		t.roundTrips, t.executed = t.sent.flushes, 0
	}
	return t, nil
}

// server asks for the server's counts, unless it has others to serve as well.
func (c *counting) server(ctx context.Context) (trips, executed int64, err error) {
	if c.client {
		return 0, 0, nil
	}
	trips, err = c.s.RoundTrips(ctx)
	if errors.Is(err, redistest.ErrImpossible) {
		c.client = true
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	calls, err := c.s.Calls(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, n := range calls {
		executed += n
	}
	return trips, executed, nil
}

// traces looks at what the lock writes: while it is held, and what stays.
func traces(ctx context.Context, s *redistest.Server, st *strategy.Strategy, c *Cost) error {
	name := freshName()
	defer sweep(ctx, s, name)
	lease, err := st.Lock(name).Acquire(ctx)
	if err != nil {
		return err
	}
	conn, err := s.Pool().GetContext(ctx)
	if err != nil {
		return errors.Join(err, lease.Release(ctx))
	}
	defer conn.Close()
	value, err := redis.String(redis.DoContext(conn, ctx, "GET", strategy.DefaultKey(name)))
	c.TokenInKey = err == nil && value == lease.Token() // WRONGTYPE is an answer as well
	if err := lease.Release(ctx); err != nil {
		return err
	}
	keys, err := keysOf(ctx, conn, name)
	if err != nil {
		return err
	}
	if keys != nil {
		n := len(keys)
		c.KeysLeft = &n
	}
	return nil
}

// keysOf finds the keys with a lock's name in theirs. nil: there are too many keys
// to look through.
func keysOf(ctx context.Context, conn redis.Conn, name string) ([]string, error) {
	size, err := redis.Int(redis.DoContext(conn, ctx, "DBSIZE"))
	if err != nil || size > mostKeys {
		return nil, err
	}
	found := []string{}
	for cursor := "0"; ; {
		page, err := redis.Values(redis.DoContext(conn, ctx, "SCAN", cursor, "MATCH", "*"+name+"*", "COUNT", 1000))
		if err != nil {
			return nil, err
		}
		var keys []string
		if _, err := redis.Scan(page, &cursor, &keys); err != nil {
			return nil, err
		}
		for _, k := range keys {
			if strings.Contains(k, name) {
				found = append(found, k)
			}
		}
		if cursor == "0" {
			return found, nil
		}
	}
}

// sweep removes what a lock of this name has left on the server, which may be
// somebody's: fence counters. It does its best; they harm nobody.
func sweep(ctx context.Context, s *redistest.Server, name string) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	conn, err := s.Pool().GetContext(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	keys, err := keysOf(ctx, conn, name)
	if err != nil || len(keys) == 0 {
		return
	}
	redis.DoContext(conn, ctx, "DEL", redis.Args{}.AddFlat(keys)...)
}
