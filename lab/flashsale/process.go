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
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/strategy"
)

// The buyers are in children (see package child). A child hears of a job, and says that it has
// dialled and loaded, and that its buyers stand at the door. It hears that they may go in, and
// sends a Result when the last one has left.
//
// A child whose parent is gone lets its buyers leave and removes the keys: so do all of them,
// however the parent went.

// role is that of a sale's processes among children.
const role = "flashsale"

// startLimit is how long a process may take to be ready: dialling, and what a loaded
// machine adds. endLimit is how long it may take to clean up and end.
const startLimit, endLimit = 30 * time.Second, 5 * time.Second

// A team is the processes in which the buyers are; empty: they are not started.
type team []*child.Process

func (t *team) gather(servers []*redistest.Server) error {
	for len(*t) < Processes {
		p, err := child.Start(child.Config{Role: role, Env: childEnv(servers), CleansUp: true})
		if err != nil {
			return fmt.Errorf("flashsale: starting a process: %w", err)
		}
		*t = append(*t, p)
	}
	return nil
}

// end returns when the processes have ended.
func (t *team) end() {
	for _, p := range *t {
		p.Close(endLimit)
	}
	*t = nil
}

// sell has the processes hold a sale, and adds up how their buyers fared.
func (t team) sell(ctx context.Context, j job, r *Result) error {
	hear := func(limit time.Duration, message func(i int) any) error {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has said nothing for %v", limit))
		defer cancel()
		for i, p := range t {
			if err := p.Receive(ctx, message(i)); err != nil {
				return fmt.Errorf("process %d: %w", i+1, err)
			}
		}
		return nil
	}
	for i, p := range t {
		j.Process = i
		if err := p.Send(j); err != nil {
			return err
		}
	}
	if err := hear(startLimit, func(int) any { return new(any) }); err != nil {
		return err
	}
	for _, p := range t {
		if err := p.Send("go"); err != nil {
			return err
		}
	}
	parts := make([]Result, len(t))
	err := hear(j.Patience+startLimit, func(i int) any { return &parts[i] })
	for _, y := range parts {
		r.Sold += y.Sold
		r.GaveUp += y.GaveUp
		r.Failed += y.Failed
		r.Refused += y.Refused
		r.Commands += y.Commands
		r.Took = max(r.Took, y.Took)
		r.Errors = append(r.Errors, y.Errors...)
	}
	return err
}

// childEnv has a child find the servers in its environment, and not among its arguments, since
// a URL may have a password in it.
func childEnv(servers []*redistest.Server) []string {
	var urls []string
	for _, s := range servers {
		urls = append(urls, strings.ReplaceAll(s.URL(), ",", "%2C")) // a comma in a password separates nothing
	}
	return append(os.Environ(), "REDIS_ADDRS="+strings.Join(urls, ","), "REDIS_KIND="+string(redistest.Given))
}

// Child makes this process one of those of a sale, if it was started as one: it sells as its
// parent says until the parent is gone, and returns true; then main should return. Call it before
// anything else, with all strategies that take part.
func Child(variants ...subjects.Variant) bool {
	return child.Run(role, func(ctx context.Context, parent *child.Parent, _ any) error {
		// Neither a parent that is gone nor Ctrl-C, which is the parent's to act on, may keep the
		// child from cleaning up.
		signal.Ignore(syscall.SIGPIPE, os.Interrupt)
		farm, servers, err := subjects.ParentsServers(ctx)
		if err != nil {
			return err
		}
		defer farm.Close()
		var sent compare.Meter
		pools, end := sent.Pools(servers)
		defer end()
		var j job
		for err == nil {
			var next job
			if err = parent.Receive(&next); err == nil {
				j = next
				err = j.work(ctx, parent, pools, variants, &sent)
			}
		}
		if ctx.Err() != nil && j.Run != "" { // else the parent is there, and does it
			err = errors.Join(err, j.sweep(ctx, servers))
		}
		return err
	})
}

// work is a child's part of a sale. An error ends the child.
func (j job) work(ctx context.Context, parent *child.Parent, pools []*redis.Pool, variants []subjects.Variant, sent *compare.Meter) error {
	s := &shop{pool: pools[0], job: j, goods: goodsKey(j.Sale), orders: ordersKey(j.Sale)}
	buy, end, err := s.open(ctx, pools, variants)
	if err != nil {
		return err
	}
	defer end()
	for range Buyers { // dials a connection for each
		conn, err := s.pool.GetContext(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // with all the others, or it would be the same one
		if _, err := redis.DoContext(conn, ctx, "PING"); err != nil {
			return err
		}
	}
	if err := parent.Ask("ready"); err != nil {
		return err
	}
	sent.Commands() // those of the warm-up
	r := s.sell(ctx, buy)
	end() // and what it still has to send is sent
	r.Commands = sent.Commands()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return parent.Send(r)
}

// options are the locks'. The TTL is never needed here, and a busy machine may be slow.
var options = strategy.Options{TTL: 30 * time.Second, OpTimeout: 5 * time.Second}

// open finds how to buy, and makes what that takes ready. end may be called twice.
func (s *shop) open(ctx context.Context, pools []*redis.Pool, variants []subjects.Variant) (buy buying, end func(), err error) {
	nothing := func() {}
	switch s.Way.Name {
	case NoLock:
		s.looking.Add(Buyers)
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
	i := slices.IndexFunc(variants, func(v subjects.Variant) bool { return v.Name == s.Way.Name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no strategy %q here", s.Way.Name)
	}
	st, err := variants[i].New(pools[:variants[i].Servers], options)
	if err != nil {
		return nil, nil, err
	}
	end = sync.OnceFunc(func() { st.Close() })
	// A lock of its own, to dial and to load scripts. It may take longer than the sale.
	lease, err := waitFor(ctx, st.NewLock(fmt.Sprintf("%s warm-up %d", s.Sale, s.Process)), startLimit/2)
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	s.lock = st.NewLock(s.Sale)
	if s.Way.Form == NonBlocking {
		return s.nonBlocking, end, nil
	}
	return s.blocking, end, nil
}
