package contender

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/strategy"
)

// An Answer is what a contender answers: net/rpc demands that it is exported, as what it is asked.
type Answer struct {
	Value string // what was read; or the token of what was acquired
	Error *Error
}

func (a *Answer) of(err error) error {
	a.Error = wired(err)
	return nil
}

// A Writing is what a holder writes. Stop: it pauses before that.
type Writing struct {
	Hold, Value string
	Stop        bool
}

// role is that of contenders among children.
const role = "contender"

// A birth is what a child is to be.
type birth struct {
	Setup Setup
	Log   string // the file of its history
}

// Child makes this process a contender, if [Start] started it as one, with one of the
// known variants: it obeys until its parent is gone, and returns true; then main should
// return. Call it before anything else.
func Child(known ...subjects.Variant) bool {
	return child.Run(role, func(_ context.Context, parent *child.Parent, b birth) error {
		log, err := os.OpenFile(b.Log, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer log.Close()
		c, err := open(b.Setup, known, history.NewRecorder(log))
		if err != nil {
			return err
		}
		l, err := listen(obedient{c})
		if err != nil {
			return err
		}
		defer l.Close()
		if err := parent.Send(l.Addr().String()); err != nil {
			return err
		}
		return parent.Receive(new(any)) // nothing: that the parent is gone
	})
}

// obedient is a client as its creator sees it. Holds have the name of their token.
type obedient struct{ *client }

func (o obedient) Acquire(b Bid, a *Answer) error {
	h, err := o.acquire(context.Background(), o.setup.Name, b)
	if err == nil {
		a.Value = h.lease.Token()
	}
	return a.of(err)
}

func (o obedient) with(token string, a *Answer, do func(*hold) error) error {
	o.mu.Lock()
	h := o.holds[token]
	o.mu.Unlock()
	if h == nil {
		return a.of(fmt.Errorf("contender: %s does not have the hold %q", o.setup.Name, token))
	}
	h.using.Lock()
	defer h.using.Unlock()
	return a.of(do(h))
}

func (o obedient) Release(token string, a *Answer) error { return o.with(token, a, (*hold).release) }

func (o obedient) Read(token string, a *Answer) error {
	return o.with(token, a, func(h *hold) (err error) {
		a.Value, err = h.read()
		return err
	})
}

func (o obedient) Write(w Writing, a *Answer) error {
	stop := func() error { return nil }
	if w.Stop {
		stop = child.StopSelf
	}
	return o.with(w.Hold, a, func(h *hold) error { return h.write(w.Value, stop) })
}

func (o obedient) Work(w Workload, a *Answer) error { return a.of(o.work(w)) }

func (o obedient) Rest(_ bool, a *Answer) error { return a.of(o.rest()) }

func (o obedient) Close(_ bool, a *Answer) error { return a.of(o.close()) }

// A client is a contender where it works.
type client struct {
	setup    Setup
	strategy engine.Strategy
	other    engine.Strategy // with other options: half the TTL, another way to wait and to pass on
	recorder *history.Recorder
	store    func(op history.Op, value *string) error // nil: none; as Store.Serve
	ends     []func() error                           // what else close does
	also     func(strategy.Event)                     // gets each event, too; nil: nobody does

	mu     sync.Mutex
	holds  map[string]*hold // by token
	shift  *shift           // the work under way; nil: none
	asking map[*question]bool
}

// A question is an acquire under way.
type question struct {
	lock        string
	unconfirmed int // attempts of unknown outcome since it began, this one's or another worker's
}

// dialLimit bounds what a contender's server takes to be dialled. A link that holds
// bytes back holds the handshake back, too.
const dialLimit = 2 * time.Second

func open(s Setup, known []subjects.Variant, r *history.Recorder) (*client, error) {
	i := slices.IndexFunc(known, func(v subjects.Variant) bool { return v.Name == s.Variant })
	if i < 0 {
		var names []string
		for _, v := range known {
			names = append(names, v.Name)
		}
		return nil, fmt.Errorf("contender: no variant is called %q: allowed are %q", s.Variant, names)
	}
	v := known[i]
	switch {
	case s.Name == "":
		return nil, errors.New("contender: Setup.Name is empty: allowed is what no other of the history is called")
	case len(s.Addrs) != v.Servers || v.Dead > 0:
		return nil, fmt.Errorf("contender: %s on %d servers: allowed are %d, none of them dead from the start", v.Name, len(s.Addrs), v.Servers)
	}
	p, ends, err := dial(v, s.Addrs)
	if err != nil {
		return nil, fmt.Errorf("contender: %w", err)
	}
	c, err := newClient(s, p, r)
	if err != nil {
		return nil, err
	}
	c.ends = ends
	if s.Store != "" {
		store, err := rpc.Dial("tcp", s.Store)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("contender: the store: %w", err), c.close())
		}
		c.ends = append(c.ends, store.Close)
		c.store = func(op history.Op, value *string) error { return ask(store, op, value) }
	}
	return c, nil
}

// dial makes a variant's protocol on servers at these addresses.
func dial(v subjects.Variant, addrs []string) (p driver.Protocol, ends []func() error, err error) {
	if v.Dial != nil {
		p, end, err := v.Dial(addrs)
		return p, []func() error{end}, err
	}
	var nodes []driver.Node
	for _, addr := range addrs {
		pool := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", addr, redis.DialConnectTimeout(dialLimit), redis.DialReadTimeout(dialLimit), redis.DialWriteTimeout(dialLimit))
		}}
		nodes, ends = append(nodes, redigonode.New(pool)), append(ends, pool.Close)
	}
	return v.On(nodes), ends, nil
}

// newClient is a client that speaks a protocol, and has no store yet.
func newClient(s Setup, p driver.Protocol, r *history.Recorder) (c *client, err error) {
	c = &client{setup: s, recorder: r, holds: map[string]*hold{}, asking: map[*question]bool{}}
	o := strategy.Options{TTL: s.TTL, OpTimeout: s.OpTimeout, Wait: s.Wait, NoHandOver: s.NoHandOver, RetryOnError: s.RetryOnError, Label: s.Name, Observe: c.observe}
	if s.Backoff != 0 {
		o.Backoff = func(attempt int) time.Duration { return min(contract.Backoff(attempt), s.Backoff) }
	}
	if c.strategy, err = engine.New(p, o); err != nil {
		return nil, err
	}
	c.other, err = c.strategy.Changed(func(o *strategy.Options) {
		o.TTL, o.Wait, o.NoHandOver = s.TTL/2, strategy.WaitPoll, !s.NoHandOver
	})
	return c, err
}

func (c *client) close() error {
	errs := []error{c.rest(), c.strategy.Close()}
	for _, end := range c.ends {
		errs = append(errs, end())
	}
	return errors.Join(append(errs, c.recorder.Err())...)
}

// acquire takes a lock in who's name.
func (c *client) acquire(ctx context.Context, who string, b Bid) (*hold, error) {
	if b.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.Wait)
		defer cancel()
	}
	if b.Owner != "" {
		ctx = strategy.WithOwner(ctx, b.Owner)
	}
	locks, ttl := c.strategy, c.setup.TTL
	if b.Other {
		locks, ttl = c.other, ttl/2
	}
	lock := locks.NewLock(b.Lock)
	if b.Share > 0 {
		lock = locks.NewShare(b.Lock, b.Share)
	}
	ask := lock.Acquire
	if b.Try {
		ask = lock.TryAcquire
	}
	q := &question{lock: b.Lock}
	c.mu.Lock()
	c.asking[q] = true
	c.mu.Unlock()
	op := c.recorder.Begin(history.Op{Client: who, Kind: history.KindAcquire, Key: b.Lock, Owner: b.Owner, Share: b.Share, TTL: ttl})
	lease, err := ask(ctx)
	c.mu.Lock()
	delete(c.asking, q)
	op.Unconfirmed = q.unconfirmed
	c.mu.Unlock()
	op = c.recorder.End(op.Of(lease, err))
	if err != nil {
		return nil, err
	}
	return c.begin(locks, lease, op), nil
}

// begin notes what was acquired.
func (c *client) begin(locks engine.Strategy, lease strategy.Lease, op history.Op) *hold {
	h := &hold{client: c, locks: locks, ttl: op.TTL, lease: lease, who: op.Client, share: op.Share, deadline: op.Deadline, looked: op.End, believed: op.End}
	c.mu.Lock()
	c.holds[lease.Token()] = h
	c.mu.Unlock()
	return h
}

// observe notes how long a renewal took. And it counts the attempts of which nobody knows the end: an Acquire
// that goes on may succeed and say nothing of them, but they are undone meanwhile. The event does not say whose
// attempt it was, so it counts for all who were asking.
func (c *client) observe(e strategy.Event) {
	if c.also != nil {
		defer c.also(e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holds[e.Token]; h != nil && e.Kind == strategy.EventRenewed {
		h.elapsed.Store(int64(e.Elapsed))
	}
	if e.Kind != strategy.EventAttempt || !errors.Is(e.Err, strategy.ErrUnknown) {
		return
	}
	for q := range c.asking {
		if q.lock == e.Name {
			q.unconfirmed++
		}
	}
}

// A hold is a lease and what has been recorded of it. It has one user at a time.
type hold struct {
	*client
	locks engine.Strategy // that has given it
	ttl   time.Duration
	lease strategy.Lease
	who   string
	share int

	elapsed atomic.Int64 // of the last renewal: a time.Duration

	using    sync.Mutex    // by commands of the creator
	deadline time.Duration // as recorded
	looked   time.Duration // when that was
	lost     bool          // recorded
	kept     bool          // alive in the background
	capped   bool          // … until its maximum hold is over, soon
	believed time.Duration // when the lease was last seen to hold
}

// op is what all operations of a hold have.
func (h *hold) op(k history.Kind) history.Op {
	fence, _ := h.lease.Fence()
	op := history.Op{Client: h.who, Kind: k, Key: h.lease.Name(), Hold: h.lease.Token(), Fence: fence, Share: h.share}
	if o := h.lease.Owner(); o != op.Hold {
		op.Owner = o
	}
	return op
}

// notice records renewals in the background: that there was one shows in the deadline.
func (h *hold) notice() {
	d, now := history.At(h.lease.Deadline()), history.Now()
	if d > h.deadline {
		op := h.op(history.KindRenew)
		op.Start, op.End, op.Result, op.Deadline, op.TTL = h.looked, now, history.OK, d, h.ttl
		op.Noticed = true
		h.recorder.Add(op)
		h.deadline = d
	}
	h.looked = now
}

// check asks what the holder believes, and records that it has learned of a loss.
func (h *hold) check() error {
	h.notice()
	err := h.look()
	if errors.Is(err, strategy.ErrLost) {
		h.learn(err)
	}
	return err
}

// watch looks again and again what the holder believes, until it does not any more.
func (h *hold) watch() {
	for h.check() == nil {
		time.Sleep(h.setup.TTL / 300)
	}
}

func (h *hold) look() error {
	now := history.Now() // what it says was so then, too: a lease does not come back
	err := h.lease.Err()
	if err == nil {
		h.believed = max(h.believed, now)
	}
	return err
}

func (h *hold) learn(err error) {
	if h.lost {
		return
	}
	h.lost = true
	op := h.op(history.KindLost)
	op.Start, op.End, op.Note = h.believed, history.Now(), err.Error()
	op.Capped = h.capped
	h.recorder.Add(op)
}

func (h *hold) extend() error {
	h.notice()
	op := h.op(history.KindRenew)
	op.TTL = h.ttl
	op.Noticed = h.kept // one in the background may come in between, and is not seen then
	op = h.recorder.Begin(op)
	err := h.lease.Extend(context.Background())
	if op = op.Of(h.lease, err); err == nil {
		op.Took = time.Duration(h.elapsed.Load())
	}
	op = h.recorder.End(op)
	if err == nil {
		h.deadline, h.looked = max(h.deadline, op.Deadline), op.End
	}
	if errors.Is(err, strategy.ErrLost) {
		h.learn(err)
	}
	return err
}

func (h *hold) keepAlive() error {
	h.kept = true
	return h.lease.KeepAlive(0)
}

// cap has a hold that is kept alive end by its maximum hold, one TTL, which may be over already.
func (h *hold) cap() {
	h.notice()
	h.capped = true
	if err := h.lease.KeepAlive(h.ttl); err != nil {
		h.learn(err)
		return
	}
	h.watch()
}

func (h *hold) release() error {
	h.notice()
	op := h.recorder.Begin(h.op(history.KindRelease))
	err := h.lease.Release(context.Background())
	h.recorder.End(op.Ended(err))
	h.forget()
	return err
}

// downgrade makes of a hold to write one to read. In the history the one is released, and the other acquired, in
// the same time.
func (h *hold) downgrade() (*hold, error) {
	h.notice()
	release := h.recorder.Begin(h.op(history.KindRelease))
	acquire := history.Op{Client: h.who, Kind: history.KindAcquire, Key: h.lease.Name(), Share: 1, From: h.lease.Token(), TTL: h.ttl}
	acquire = h.recorder.Begin(acquire)
	lease, err := h.locks.Exchange(context.Background(), h.lease, 1)
	acquire = h.recorder.End(acquire.Of(lease, err))
	release = release.Ended(err)
	if release.Result == history.Lost && history.Now() >= h.deadline {
		release.Result = history.Unknown // the deadline came, whatever the servers said
	}
	h.recorder.End(release)
	h.forget()
	if err != nil {
		return nil, err
	}
	return h.begin(h.locks, lease, acquire), nil
}

// adopt detaches the lock, and adopts it again. In the history nobody knows until when the first hold lasts.
func (h *hold) adopt() (*hold, error) {
	h.notice()
	detach := h.recorder.Begin(h.op(history.KindRelease))
	token, err := h.lease.Detach()
	detach = detach.Ended(err)
	if err == nil {
		detach.Result = history.Unknown
	}
	h.recorder.End(detach)
	h.forget()
	if err != nil {
		return nil, err
	}
	adopt := h.recorder.Begin(history.Op{Client: h.who, Kind: history.KindAcquire, Key: h.lease.Name(), Share: h.share, TTL: h.ttl})
	lease, err := h.locks.Adopt(context.Background(), h.lease.Name(), token)
	adopt = h.recorder.End(adopt.Of(lease, err))
	if err != nil {
		return nil, err
	}
	return h.begin(h.locks, lease, adopt), nil
}

func (h *hold) forget() {
	h.client.mu.Lock()
	delete(h.holds, h.lease.Token())
	h.client.mu.Unlock()
}

var errNoStore = errors.New("contender: Setup.Store is empty: there is nothing to read or write")

func (h *hold) read() (value string, err error) {
	err = h.protected(h.op(history.KindRead), func(op *history.Op) error {
		err := h.store(*op, &value)
		op.Value = value
		return err
	})
	return value, err
}

func (h *hold) write(value string, before func() error) error {
	op := h.op(history.KindWrite)
	op.Value = value
	return h.protected(op, func(op *history.Op) error {
		if err := before(); err != nil {
			return err
		}
		return h.store(*op, new(string))
	})
}

// protected does what only a holder may do. The operation begins before the holder looks
// whether it holds the lock: so if it does it may, and a pause in between is in the
// history.
func (h *hold) protected(op history.Op, do func(*history.Op) error) error {
	if h.store == nil {
		return errNoStore
	}
	h.notice()
	op = h.recorder.Begin(op)
	if err := h.look(); err != nil {
		op = op.Ended(err)
		op.Result = history.Unsent
		h.recorder.End(op)
		if errors.Is(err, strategy.ErrLost) {
			h.learn(err)
		}
		return err
	}
	h.notice() // a renewal without which this would be too late
	err := do(&op)
	op = op.Ended(err)
	if errors.Is(err, ErrStale) {
		op.Result = history.Refused
	}
	h.recorder.End(op)
	return err
}
