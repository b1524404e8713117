// Package flashsale holds the sale that ends many articles on locks: a few goods, more
// buyers, all at once, in two copies of the program. Each way of buying is tried: with
// no lock, which oversells; with every lock of this module, waited for or asked for
// again; with an optimistic transaction; and with one atomic script, which is what a
// real sale should use. It prints nothing; cmd/lab does that.
//
// # How it is held
//
// The buyers are goroutines of processes that are this program, started again (see
// [Child]). Between the look at the goods and the write a buyer thinks for a moment, as
// a program takes a moment; without a lock it thinks until all others of its process
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
	Goods     = 10
	Processes = 2
	Buyers    = 15 // in each process
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

	// Progress, if set, hears before each way how many are done, of how many.
	Progress func(next Way, done, all int)
}

// A Report is what came of it.
type Report struct {
	Version string    `json:"version"` // of this module
	Began   time.Time `json:"began"`

	// Interrupted: it was called off, and what is missing was not tried.
	Interrupted bool `json:"interrupted,omitempty"`

	Redis     compare.Redis     `json:"redis"`
	Goods     int               `json:"goods"`
	Processes int               `json:"processes"`
	Buyers    int               `json:"buyers"` // in all processes
	Think     compare.Millis    `json:"think_ms"`
	Patience  compare.Millis    `json:"patience_ms"`
	Results   []Result          `json:"results"`
	LeftOut   []compare.LeftOut `json:"left_out,omitempty"` // too few servers
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

func millis(d time.Duration) compare.Millis {
	return compare.Millis(float64(d) / float64(time.Millisecond))
}

// Run holds a sale for each way. When ctx ends, the report has what is known by then,
// is marked as interrupted, and the error is ctx's cause. Any other error means that
// the servers or the processes failed. In all cases no process and no key is left.
func Run(ctx context.Context, c Config) (r *Report, err error) {
	j := job{Run: prefix + rand.Text(), Think: cmp.Or(c.Think, 2*time.Millisecond), Patience: cmp.Or(c.Patience, 20*time.Second)}
	r = &Report{
		Version: c.Version,
		Began:   time.Now().UTC().Truncate(time.Millisecond),
		Redis:   compare.RedisOf(c.Servers, c.Kind, c.Choice),
		Goods:   Goods, Processes: Processes, Buyers: Processes * Buyers,
		Think: millis(j.Think), Patience: millis(j.Patience),
		Results: []Result{},
	}
	var ways []Way
	ways, r.LeftOut = Ways(c.Variants, len(c.Servers))
	sold := slices.DeleteFunc(slices.Clone(c.Variants), isLeftOut)
	voters, err := subjects.Bootstrap(ctx, sold, c.Servers)
	for _, s := range voters {
		j.Voters = append(j.Voters, slices.Index(c.Servers, s))
	}
	var t team
	defer func() {
		if ctx.Err() != nil {
			r.Interrupted, err = true, context.Cause(ctx)
		}
		t.end() // before the sweep: they may still write
		if e := j.sweep(ctx, c.Servers); e != nil {
			err = errors.Join(err, e)
		}
	}()
	if err != nil {
		return r, err
	}
	for i, w := range ways {
		if c.Progress != nil {
			c.Progress(w, i, len(ways))
		}
		j.Way, j.Sale = w, fmt.Sprintf("%s-%d", j.Run, i)
		result, err := j.hold(ctx, &t, c.Servers)
		if ctx.Err() != nil {
			return r, nil // the result may be what it is for that reason alone
		}
		if err != nil {
			return r, fmt.Errorf("%v: %w", w, err)
		}
		r.Results = append(r.Results, *result)
	}
	return r, nil
}

// prefix begins what all keys of this package, and names of locks, have in them.
const prefix = "flashsale-"

// A job is one sale.
type job struct {
	Way             Way
	Run, Sale       string // what all keys of the run have in them, and those of this sale
	Voters          []int  // the servers that vote for the time of the run, by their guards
	Process         int    // which of the children this is
	Think, Patience time.Duration
}

// The keys of a sale. One that tells the goods' slot of a cluster keeps them together,
// which the script needs.
func goodsKey(sale string) string  { return "{" + sale + "}:goods" }
func ordersKey(sale string) string { return "{" + sale + "}:orders" }

// hold holds one sale. An error is the server's; what goes wrong among the processes
// is in the result.
func (j job) hold(ctx context.Context, t *team, servers []*redistest.Server) (*Result, error) {
	if err := t.gather(servers); err != nil {
		return nil, err
	}
	conn, err := servers[0].Pool().GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := redis.DoContext(conn, ctx, "SET", goodsKey(j.Sale), Goods); err != nil {
		return nil, err
	}
	r := &Result{Way: j.Way, Want: Exact}
	if j.Way.Name == NoLock {
		r.Want = Oversold
	}
	if err := t.sell(ctx, j, r); err != nil {
		t.end() // others will do the next
		r.Verdict, r.Errors = Wrong, append(r.Errors, err.Error())
		return r, nil // the books may still change, or be gone
	}
	if r.Left, err = redis.Int(redis.DoContext(conn, ctx, "GET", goodsKey(j.Sale))); err != nil {
		return nil, err
	}
	orders, err := redis.Strings(redis.DoContext(conn, ctx, "LRANGE", ordersKey(j.Sale), 0, -1))
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

// sweep removes every key of a run, and undoes the settings of the servers for it. It is
// done also when ctx is over.
func (j job) sweep(ctx context.Context, servers []*redistest.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	var voters []*redistest.Server
	for _, i := range j.Voters {
		voters = append(voters, servers[i])
	}
	if err := subjects.UndoBootstrap(ctx, voters); err != nil {
		return err
	}
	for _, s := range servers {
		if err := sweep(ctx, s.Pool(), j.Run); err != nil {
			return fmt.Errorf("keys with %s in them may be left at %s: %w", j.Run, s.Addr(), err)
		}
	}
	return nil
}

func sweep(ctx context.Context, pool *redis.Pool, run string) error {
	conn, err := pool.GetContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for cursor := "0"; ; {
		var keys []any
		page, err := redis.Values(redis.DoContext(conn, ctx, "SCAN", cursor, "MATCH", "*"+run+"*", "COUNT", 1000))
		if err == nil {
			_, err = redis.Scan(page, &cursor, &keys)
		}
		if err == nil && len(keys) > 0 {
			_, err = redis.DoContext(conn, ctx, "DEL", keys...)
		}
		if err != nil || cursor == "0" {
			return err
		}
	}
}
