package flashsale

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/wait"
	"github.com/lockstrategies/locks/strategy"
)

// A shop is one sale as the buyers of one copy of the program meet it.
type shop struct {
	Config
	sale          string
	pools         []*redis.Pool // of the servers; the goods are on the first
	goods, orders string        // the keys of how many are left, and of the list of those who have bought
	lock          strategy.Lock // nil: of no use for this way of buying

	looking *sync.WaitGroup // buyers of all copies who have not looked yet
	refused *atomic.Int64   // how often those of all copies had to try again
}

// A buyer's way ends with sold, or without: then it is sold out, or err says why
// nobody knows.
type buying func(ctx context.Context, buyer string) (sold bool, err error)

// errPatience ends the wait of a buyer who has waited too long.
var errPatience = errors.New("out of patience")

// looks is a buyer's look at the goods, and what it thinks until it writes.
func (s *shop) looks(ctx context.Context, conn redis.Conn, think func()) (left int, err error) {
	if left, err = redis.Int(redis.DoContext(conn, ctx, "GET", s.goods)); err != nil {
		return 0, err
	}
	think()
	return left, context.Cause(ctx) // which has ended if the lock is lost, say
}

// lookAndBuy is what is wrong without a lock: between the look and the write, others
// look at the same goods. think passes the time between the two.
func (s *shop) lookAndBuy(ctx context.Context, buyer string, think func()) (sold bool, err error) {
	conn, err := s.pools[0].GetContext(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	left, err := s.looks(ctx, conn, think)
	if err != nil || left <= 0 {
		return false, err
	}
	// Not with ctx: who has begun to write must finish, or the books are wrong.
	if _, err := conn.Do("SET", s.goods, left-1); err != nil {
		return false, err
	}
	_, err = conn.Do("RPUSH", s.orders, buyer)
	return err == nil, err
}

// noLock is what goes wrong. So that it does not depend on luck, a buyer thinks until
// all others have looked, too.
func (s *shop) noLock(ctx context.Context, buyer string) (bool, error) {
	looked := sync.OnceFunc(s.looking.Done)
	defer looked() // also by who could not look: the others wait
	return s.lookAndBuy(ctx, buyer, func() {
		looked()
		s.looking.Wait()
	})
}

func (s *shop) blocking(ctx context.Context, buyer string) (bool, error) {
	lease, err := waitFor(ctx, s.lock, s.Patience)
	if err != nil {
		return false, err
	}
	return s.buyUnder(ctx, lease, buyer)
}

// waitFor acquires l, until the patience is over. That servers did not answer in time,
// or too few of them, is no reason to go home.
func waitFor(ctx context.Context, l strategy.Lock, patience time.Duration) (strategy.Lease, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	for {
		lease, err := l.Acquire(bounded)
		if err == nil || bounded.Err() != nil || !mayRetry(err) {
			return lease, err
		}
		wait.For(bounded, rand.N(50*time.Millisecond))
	}
}

// nonBlocking asks once. A refused buyer presses the button again a little later, as
// people do, until the patience is over.
func (s *shop) nonBlocking(ctx context.Context, buyer string) (bool, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, s.Patience, errPatience)
	defer cancel()
	for n := 0; ; n++ {
		lease, err := s.lock.TryAcquire(bounded)
		if err == nil {
			return s.buyUnder(ctx, lease, buyer)
		}
		if !mayRetry(err) {
			return false, err
		}
		s.refused.Add(1)
		wait.For(bounded, rand.N(10*time.Millisecond<<min(n, 5))) // up to 320 ms, at random
		if bounded.Err() != nil {
			return false, fmt.Errorf("%w; %w", context.Cause(bounded), err)
		}
	}
}

// mayRetry reports whether a refused buyer may have more luck later: another holds the
// lock, or the servers did not agree in time. A server that refuses a request refuses it again.
func mayRetry(err error) bool {
	again := []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrNoQuorum, strategy.ErrUnknown}
	return slices.ContainsFunc(again, func(e error) bool { return errors.Is(err, e) })
}

func (s *shop) buyUnder(ctx context.Context, lease strategy.Lease, buyer string) (sold bool, err error) {
	held, cancel := lease.Context(ctx)
	defer cancel()
	sold, err = s.lookAndBuy(held, buyer, func() { wait.For(held, s.Think) })
	if e := lease.Release(ctx); !errors.Is(e, strategy.ErrUnknown) { // that is repeated in the background
		err = errors.Join(err, e)
	}
	return sold, err
}

// optimistic excludes nobody: if the goods have changed between the look and the
// write, the server refuses the transaction, and the buyer looks again. One of those
// who look at the same goods always succeeds, so no buyer tries for ever.
func (s *shop) optimistic(ctx context.Context, buyer string) (bool, error) {
	conn, err := s.pools[0].GetContext(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close() // unwatches
	for {
		if _, err := redis.DoContext(conn, ctx, "WATCH", s.goods); err != nil {
			return false, err
		}
		left, err := s.looks(ctx, conn, func() { wait.For(ctx, s.Think) })
		if err != nil || left <= 0 {
			return false, err
		}
		for _, cmd := range [][]any{{"MULTI"}, {"SET", s.goods, left - 1}, {"RPUSH", s.orders, buyer}} {
			conn.Send(cmd[0].(string), cmd[1:]...) // an error comes with the answer
		}
		if done, err := conn.Do("EXEC"); err != nil || done != nil {
			return err == nil, err
		}
		s.refused.Add(1)
	}
}

//go:embed buy.lua
var buySource string

var buyScript = redis.NewScript(2, buySource)

// atomicScript looks and writes in one step, at the server.
func (s *shop) atomicScript(ctx context.Context, buyer string) (bool, error) {
	conn, err := s.pools[0].GetContext(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	return redis.Bool(buyScript.Do(conn, s.goods, s.orders, buyer))
}

// options are the locks'. The TTL is never needed here, and a busy machine may be slow.
var options = strategy.Options{TTL: 30 * time.Second, OpTimeout: 5 * time.Second}

// open finds how to buy that way, and dials and loads what it takes. close may be called twice.
func (s *shop) open(ctx context.Context, w Way, copied int) (buy buying, close func(), err error) {
	close = func() {}
	switch w.Name {
	case NoLock:
		buy = s.noLock
	case Optimistic:
		buy = s.optimistic
	case AtomicScript:
		buy = s.atomicScript
	default:
		v := s.Variants[slices.IndexFunc(s.Variants, func(v subjects.Variant) bool { return v.Name == w.Name })]
		st, err := v.New(s.pools[:v.Servers], options)
		if err != nil {
			return nil, close, err
		}
		close = sync.OnceFunc(func() { st.Close() })
		// A lock of its own, to dial and to load scripts. It may take longer than the sale.
		lease, err := waitFor(ctx, st.NewLock(fmt.Sprintf("%s warm-up %d", s.sale, copied)), 15*time.Second)
		if err == nil {
			err = lease.Release(ctx)
		}
		if err != nil {
			return nil, close, err
		}
		if s.lock, buy = st.NewLock(s.sale), s.blocking; w.Form == NonBlocking {
			buy = s.nonBlocking
		}
	}
	for range Buyers { // a connection for each
		conn, err := s.pools[0].GetContext(ctx)
		if err != nil {
			return nil, close, err
		}
		defer conn.Close() // with all the others, or it would be the same one
		if err := buyScript.Load(conn); err != nil {
			return nil, close, err
		}
	}
	return buy, close, nil
}

// mostErrors are reported of one sale: they tend to say the same.
const mostErrors = 3

// sell lets the buyers of all copies in, all at once, and returns when the last one has left.
func (c Config) sell(ctx context.Context, w Way, sale string, r *Result) {
	var mu sync.Mutex
	leave := func(sold bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			if sold { // else it was sold out
				r.Sold++
			}
			return
		case errors.Is(err, errPatience):
			r.GaveUp++
		default:
			r.Failed++
		}
		if !slices.Contains(r.Errors, err.Error()) && len(r.Errors) < mostErrors {
			r.Errors = append(r.Errors, err.Error())
		}
	}
	var sent compare.Meter
	var looking sync.WaitGroup
	var refused atomic.Int64
	looking.Add(Copies * Buyers)
	var buys [Copies]buying
	var closes [Copies]func()
	for i := range Copies {
		pools, end := sent.Pools(c.Servers)
		defer end()
		s := &shop{Config: c, sale: sale, pools: pools, goods: goodsKey(sale), orders: ordersKey(sale), looking: &looking, refused: &refused}
		var err error
		buys[i], closes[i], err = s.open(ctx, w, i)
		defer closes[i]()
		if err != nil {
			leave(false, err)
			return
		}
	}
	sent.Commands() // those of the warm-up
	began := time.Now()
	var all sync.WaitGroup
	for i, buy := range buys {
		for n := range Buyers {
			all.Go(func() { leave(buy(ctx, fmt.Sprintf("buyer %d of copy %d", n+1, i+1))) })
		}
	}
	all.Wait()
	r.Took, r.Refused = compare.MillisOf(time.Since(began)), int(refused.Load())
	for _, close := range closes { // what they still have to send is sent
		close()
	}
	r.Commands = sent.Commands()
}
