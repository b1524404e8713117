// Package flashsale holds the sale that ends many articles on locks: a few goods, more
// buyers, all at once, in two copies of the program. Each way of buying is tried: with
// no lock, which oversells; with every lock of this module, waited for or asked for
// again; with an optimistic transaction; and with one atomic script, which is what a
// real sale should use. It prints nothing; cmd/lab does that.
//
// # How it is held
//
// The buyers of each copy have connections and locks of their own, as two processes have.
// Between the look at the goods and the write a buyer thinks for a moment, as
// a program takes a moment; without a lock it thinks until all others
// have looked, so that overselling is no matter of luck. Redis says at the
// end what was sold, not what buyers believe. Commands are counted by the clients'
// connections, those of the locks' own included, after a warm-up that dials and loads
// scripts.
package flashsale

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/compare"
)

// The sale of the article.
const (
	Goods  = 10
	Copies = 2  // of the program
	Buyers = 15 // of each copy
)

// Form is how a buyer meets a lock that another holds.
type Form string

const (
	Blocking    Form = "blocking"     // waits for it
	NonBlocking Form = "non-blocking" // is refused, and asks again later
)

// The ways to buy that are no lock.
const (
	NoLock       = "no lock"
	Optimistic   = "optimistic"
	AtomicScript = "atomic script"
)

// A Way is a way to buy.
type Way struct {
	Name string `json:"way"` // of a strategy, or one of those above
	Form Form   `json:"form,omitempty"`
}

func (w Way) String() string {
	if w.Form == "" {
		return w.Name
	}
	return w.Name + ", " + string(w.Form)
}

// isLeftOut: in no sale is what stands aside, or what several hold at a time.
func isLeftOut(v subjects.Variant) bool { return v.Aside || v.Several() }

// Ways returns the ways to buy, and the strategies that take more servers than there
// are, which are left out.
func Ways(variants []subjects.Variant, servers int) (ways []Way, leftOut []compare.LeftOut) {
	ways = []Way{{Name: NoLock}}
	for _, form := range []Form{Blocking, NonBlocking} {
		for _, v := range variants {
			switch {
			case isLeftOut(v):
			case v.Servers <= servers:
				ways = append(ways, Way{v.Name, form})
			case form == Blocking: // reported once
				leftOut = append(leftOut, compare.LeftOut{Name: v.Name, Servers: v.Servers})
			}
		}
	}
	return append(ways, Way{Name: Optimistic}, Way{Name: AtomicScript}), leftOut
}

// Config says where the sale is held.
type Config struct {
	Servers  []*redistest.Server // the goods are on the first
	Kind     redistest.Kind      // of the servers
	Choice   string              // which servers they are, and why
	Variants []subjects.Variant
	Version  string // of this module

	Think    time.Duration // between look and write; 0: 2 ms
	Patience time.Duration // how long a buyer tries to get in; 0: 20 s

	// Progress, if set, hears before each way what part of the whole is done.
	Progress func(part float64, next string)
}

// A Report is what came of it.
type Report struct {
	Version string    `json:"version"` // of this module
	Began   time.Time `json:"began"`

	// Interrupted: it was called off, and what is missing was not tried.
	Interrupted bool `json:"interrupted,omitempty"`

	Redis    compare.Redis     `json:"redis"`
	Goods    int               `json:"goods"`
	Copies   int               `json:"copies"`
	Buyers   int               `json:"buyers"` // of all copies
	Think    compare.Millis    `json:"think_ms"`
	Patience compare.Millis    `json:"patience_ms"`
	Results  []Result          `json:"results"`
	LeftOut  []compare.LeftOut `json:"left_out,omitempty"` // too few servers
}

// A Balance is what became of the goods.
type Balance string

const (
	Exact    Balance = "exact"    // as many orders as there were goods
	Oversold Balance = "oversold" // more
	Wrong    Balance = "wrong"    // the books do not agree, goods are left, or buyers failed
)

// A Result is one sale.
type Result struct {
	Way
	Verdict Balance `json:"verdict"`
	Want    Balance `json:"want"`

	Sold     int `json:"sold"`     // orders in Redis
	Oversold int `json:"oversold"` // those for which there were no goods
	Left     int `json:"left"`     // goods in Redis

	GaveUp  int `json:"gave_up"` // buyers whose patience was over
	Failed  int `json:"failed"`  // buyers whom an error sent away
	Refused int `json:"refused"` // how often buyers had to try again

	Took     compare.Millis `json:"took_ms"` // until the last buyer left
	Commands int64          `json:"commands"`
	Errors   []string       `json:"errors,omitempty"`
}

// AsWanted reports whether the goods went as this way promises.
func (r *Result) AsWanted() bool { return r.Verdict == r.Want }

// Run holds a sale for each way. When ctx ends, the report has what is known by then,
// is marked as interrupted, and the error is ctx's cause. Any other error means that
// the servers failed. In all cases no key is left.
func Run(ctx context.Context, c Config) (r *Report, err error) {
	c.Think, c.Patience = cmp.Or(c.Think, 2*time.Millisecond), cmp.Or(c.Patience, 20*time.Second)
	r = &Report{
		Version: c.Version,
		Began:   time.Now().UTC().Truncate(time.Millisecond),
		Redis:   compare.RedisOf(c.Servers, c.Kind, c.Choice),
		Goods:   Goods, Copies: Copies, Buyers: Copies * Buyers,
		Think: compare.MillisOf(c.Think), Patience: compare.MillisOf(c.Patience),
		Results: []Result{},
	}
	var ways []Way
	ways, r.LeftOut = Ways(c.Variants, len(c.Servers))
	sold := slices.DeleteFunc(slices.Clone(c.Variants), isLeftOut)
	err = compare.Bootstrapped(ctx, sold, c.Servers, func() error { return c.holdAll(ctx, ways, r) })
	if ctx.Err() != nil {
		r.Interrupted, err = true, context.Cause(ctx)
	}
	return r, err
}

func (c Config) holdAll(ctx context.Context, ways []Way, r *Report) error {
	run := prefix + rand.Text()
	for i, w := range ways {
		if c.Progress != nil {
			c.Progress(float64(i)/float64(len(ways)), w.String())
		}
		result, err := c.hold(ctx, w, fmt.Sprintf("%s-%d", run, i))
		if ctx.Err() != nil {
			return err // the result may be what it is for that reason alone
		}
		if err != nil {
			return fmt.Errorf("%v: %w", w, err)
		}
		r.Results = append(r.Results, *result)
	}
	return nil
}

// prefix begins what all keys of this package, and names of locks, have in them.
const prefix = "flashsale-"

// The keys of a sale. One that tells the goods' slot of a cluster keeps them together,
// which the script needs.
func goodsKey(sale string) string  { return "{" + sale + "}:goods" }
func ordersKey(sale string) string { return "{" + sale + "}:orders" }

// hold holds one sale. An error is the server's; what goes wrong with the locks or the buyers is in the result.
func (c Config) hold(ctx context.Context, w Way, sale string) (r *Result, err error) {
	defer func() { err = errors.Join(err, compare.Sweep(ctx, c.Servers, sale)) }()
	conn, err := c.Servers[0].Pool().GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := redis.DoContext(conn, ctx, "SET", goodsKey(sale), Goods); err != nil {
		return nil, err
	}
	r = &Result{Way: w, Want: Exact}
	if w.Name == NoLock {
		r.Want = Oversold
	}
	c.sell(ctx, w, sale, r)
	if r.Left, err = redis.Int(redis.DoContext(conn, ctx, "GET", goodsKey(sale))); err != nil {
		return nil, err
	}
	orders, err := redis.Strings(redis.DoContext(conn, ctx, "LRANGE", ordersKey(sale), 0, -1))
	if err != nil {
		return nil, err
	}
	believed := r.Sold
	r.Sold, r.Oversold = len(orders), max(0, len(orders)-Goods)
	slices.Sort(orders)
	once := len(slices.Compact(orders)) == r.Sold // nobody bought twice
	r.Verdict = verdictOf(r, once && believed == r.Sold)
	return r, nil
}

// verdictOf judges by Redis; agreed says whether the buyers know of the same orders.
func verdictOf(r *Result, agreed bool) Balance {
	switch {
	case r.Sold > Goods:
		return Oversold
	case agreed && r.Sold == Goods && r.Left == 0 && r.Failed == 0:
		return Exact
	}
	return Wrong
}
