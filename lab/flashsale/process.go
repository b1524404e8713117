package flashsale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// The buyers are in children (see package child), which speak with their parent:
//
//	parent     child
//	a job      wordReady   it has dialled and loaded, and its buyers stand at the door
//	wordGo     a tally     when its last buyer has left
//
// A child whose parent is gone lets its buyers leave and removes the keys: so do all of them,
// however the parent went.

// role is that of a sale's processes among children.
const role = "flashsale"

const (
	wordReady = "ready"
	wordGo    = "go"
)

// A job is one sale.
type job struct {
	Way      Way
	Run      string // what the keys of all sales have in them
	Told     []int  // the servers that had to vote for that time
	Sale     string // … and of this one
	Process  int    // which of the children this is
	Buyers   int
	Think    time.Duration
	Patience time.Duration
}

// startLimit is how long a process may take to be ready: dialling, and what a loaded
// machine adds.
const startLimit = 30 * time.Second

// endLimit is how long a process may take to clean up and end.
const endLimit = 5 * time.Second

// A team is the processes in which the buyers are.
type team struct {
	members []*child.Process
	broken  error // of no use any more, and why
}

// gather starts the processes. They end by end.
func gather(c Config) (*team, error) {
	t := &team{}
	for range Processes {
		m, err := child.Start(child.Config{Role: role, Env: childEnv(os.Environ(), c.Servers), CleansUp: true})
		if err != nil {
			t.end()
			return nil, fmt.Errorf("flashsale: starting a process: %w", err)
		}
		t.members = append(t.members, m)
	}
	return t, nil
}

// childEnv is the environment of a child: the servers are found there, and not among
// its arguments, since a URL may have a password in it. Nothing else that says which
// Redis to use is inherited: the choice is made.
func childEnv(environ []string, servers []*redistest.Server) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, "REDIS_") && !strings.HasPrefix(v, "REDIS_CACHE_DIR=")
	})
	var urls []string
	for _, s := range servers {
		urls = append(urls, strings.ReplaceAll(s.URL(), ",", "%2C")) // a comma in a password separates nothing
	}
	return append(env, "REDIS_ADDRS="+strings.Join(urls, ","), "REDIS_KIND="+string(redistest.Given))
}

// sell lets the team hold one sale. If it fails at that, it is broken.
func (t *team) sell(ctx context.Context, j job) []tally {
	tallies, err := t.trySell(ctx, j)
	t.broken = err
	return tallies
}

func (t *team) trySell(ctx context.Context, j job) (tallies []tally, err error) {
	for i, m := range t.members {
		j.Process = i
		if err := m.Send(j); err != nil {
			return nil, err
		}
	}
	for i := range t.members {
		var word string
		if err := t.hear(ctx, i, startLimit, &word); err != nil {
			return nil, err
		}
	}
	for _, m := range t.members {
		if err := m.Send(wordGo); err != nil {
			return nil, err
		}
	}
	for i := range t.members {
		var y tally
		if err := t.hear(ctx, i, j.Patience+startLimit, &y); err != nil {
			return tallies, err
		}
		tallies = append(tallies, y)
	}
	return tallies, nil
}

func (t *team) hear(ctx context.Context, i int, limit time.Duration, message any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has said nothing for %v", limit))
	defer cancel()
	if err := t.members[i].Receive(ctx, message); err != nil {
		return fmt.Errorf("process %d: %w", i+1, err)
	}
	return nil
}

// end ends the processes, and returns when they have ended.
func (t *team) end() {
	for _, m := range t.members {
		if t.broken == nil {
			m.Kill() // it has nothing to clean up
		} else {
			m.Close(endLimit)
		}
	}
}

// Child makes this process one of those of a sale, if it was started as one: it sells as its
// parent says until the parent is gone, and returns true; then main should return. Call it before
// anything else, with all strategies that take part.
func Child(variants ...subjects.Variant) bool {
	return child.Run(role, func(ctx context.Context, parent *child.Parent, _ any) (err error) {
		// Neither a parent that is gone nor Ctrl-C, which is the parent's to act on, may keep the
		// child from cleaning up.
		signal.Ignore(syscall.SIGPIPE, os.Interrupt)
		farm, servers, err := subjects.ParentsServers(ctx)
		if err != nil {
			return err
		}
		defer farm.Close()
		w := worker{servers: servers, variants: variants, parent: parent}
		for _, s := range servers {
			p := w.counter.pool(s.Pool())
			defer p.Close()
			w.pools = append(w.pools, p)
		}
		for err == nil {
			err = w.work(ctx)
		}
		if ctx.Err() != nil && w.run != "" { // else the parent is there, and does it
			err = errors.Join(err, sweep(ctx, servers, w.told, w.run))
		}
		return err
	})
}

// A worker is what a child has for all of its sales.
type worker struct {
	servers  []*redistest.Server
	variants []subjects.Variant
	parent   *child.Parent
	counter  counter
	pools    []*redis.Pool // counted, of the servers
	run      string        // whose keys to sweep
	told     []*redistest.Server
}

// work does one job. An error ends the child.
func (w *worker) work(ctx context.Context) error {
	var j job
	if err := w.parent.Receive(&j); err != nil {
		return err
	}
	w.run, w.told = j.Run, nil
	for _, i := range j.Told {
		w.told = append(w.told, w.servers[i])
	}
	s := &shop{
		pool:  w.pools[0],
		goods: goodsKey(j.Sale), orders: ordersKey(j.Sale),
		think: j.Think, patience: j.Patience,
	}
	s.looking.Add(j.Buyers)
	buy, end, err := w.open(ctx, s, j)
	if err != nil {
		return err
	}
	defer end()
	if err := warmUp(ctx, s.pool, j.Buyers); err != nil {
		return err
	}
	if err := w.parent.Ask(wordReady); err != nil {
		return err
	}
	var buyers []string
	for i := range j.Buyers {
		buyers = append(buyers, fmt.Sprintf("buyer %d of process %d", i+1, j.Process+1))
	}
	s.attempts.Store(0) // those of the warm-up
	before := w.counter.n.Load()
	t := s.sell(ctx, buyers, buy)
	end() // and what it still has to send is sent
	t.Commands = w.counter.n.Load() - before
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.parent.Send(t)
}

// options are the locks'. The TTL is never needed here, and a busy machine may be slow.
var options = strategy.Options{TTL: 30 * time.Second, OpTimeout: 5 * time.Second}

// open finds how to buy, and makes what that takes ready. end may be called twice.
func (w *worker) open(ctx context.Context, s *shop, j job) (buy buying, end func(), err error) {
	nothing := func() {}
	switch j.Way.Name {
	case NoLock:
		return s.noLock, nothing, nil
	case Optimistic:
		return s.optimistic, nothing, nil
	case AtomicScript:
		conn, err := s.pool.GetContext(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer conn.Close()
		return s.atomicScript, nothing, buyScript.Load(conn)
	}
	i := slices.IndexFunc(w.variants, func(v subjects.Variant) bool { return v.Name == j.Way.Name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no strategy %q here", j.Way.Name)
	}
	v := w.variants[i]
	o := options
	o.Observe = func(e strategy.Event) {
		if e.Kind == strategy.EventAttempt {
			s.attempts.Add(1)
		}
	}
	st, err := v.New(w.pools[:v.Servers], o)
	if err != nil {
		return nil, nil, err
	}
	end = sync.OnceFunc(func() { st.Close() })
	// A lock of its own, to dial and to load scripts. It may take longer than the sale.
	lease, err := waitFor(ctx, st.NewLock(fmt.Sprintf("%s warm-up %d", j.Sale, j.Process)), startLimit/2)
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	s.lock = st.NewLock(j.Sale)
	if j.Way.Form == NonBlocking {
		return s.nonBlocking, end, nil
	}
	return s.blocking, end, nil
}

// warmUp dials a connection for each buyer.
func warmUp(ctx context.Context, pool *redis.Pool, buyers int) error {
	for range buyers {
		conn, err := pool.GetContext(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // with all the others, or it would be the same one
		if _, err := redis.DoContext(conn, ctx, "PING"); err != nil {
			return err
		}
	}
	return nil
}
