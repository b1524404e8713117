package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on a client. It does no I/O: see [strategy.Strategy.Check]. The client stays the caller's: close it
// after the strategy.
func New(client *clientv3.Client, o strategy.Options) (strategy.Strategy, error) {
	return engine.New(On(client), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(client *clientv3.Client) driver.Protocol {
	p := &protocol{client: client, idle: pool{idle: map[int64][]lease{}}, places: map[string]*place{}, lines: map[lineKey]*listening{}}
	switch {
	case client == nil:
		p.fault = errors.New("locks: the etcd client is nil: allowed is what clientv3.New returns")
	case client.ActiveConnection() == nil:
		p.fault = errors.New("locks: the etcd client has no connection: allowed is what clientv3.New returns")
	}
	return p
}

// protocol is the algorithm on one client.
type protocol struct {
	driver.Unsupported // what later versions add
	client             *clientv3.Client
	fault              error // what is wrong with the client
	idle               pool
	stream             atomic.Int64 // which stream the next watches share
	// silent says that a transaction got no answer in time, perhaps from a member that is silent. As the client asks the members in
	// turn, the next attempt may make its transaction at the same member. So one of two asks something else before.
	silent atomic.Bool

	mu     sync.Mutex
	places map[string]*place      // in queues, by the token of the claim
	lines  map[lineKey]*listening // the wait lines of this process that listen
}

var _ interface {
	driver.Protocol // also inspect.go, check.go
	driver.Queuer   // also watch.go
	driver.BulkExtender
	driver.Validator
} = (*protocol)(nil)

// A hold is what a grant leaves behind for the later calls on it: [driver.Grant].State.
type hold struct {
	lease lease
	rev   int64 // of the grant; 0: whether there is one is not known
}

// holdOf is the hold of a claim; none, if the engine knows only its token.
func holdOf(c driver.Claim) hold {
	h, _ := c.Grant.State.(hold)
	return h
}

// Use is called by engine.New: it says what is wrong with the client.
func (p *protocol) Use() error { return p.fault }

// Acquire puts the holder's key if nobody holds the lock and nobody queues before the claim. Otherwise a claim with a Line takes its
// place in the queue, in the same step.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	for range 2 {
		var g driver.Grant
		if g, err = d.acquire(c); !errors.Is(err, errAgain) {
			return g, err
		}
	}
	return driver.Grant{Partial: true}, d.failed(strategy.ErrRefused, errors.New("leases end, or places in the queue get lost, as soon as they are there"))
}

// errAgain is for an attempt that changed nothing but the place in the queue, and that is to be made once more.
var errAgain = errors.New("once more")

func (d dialog) acquire(c driver.Claim) (driver.Grant, error) {
	l, err := d.lease(c.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	pl, err := d.place(c)
	if err != nil {
		d.p.idle.add(l)
		return driver.Grant{}, err
	}

	k := keysOf(c.Key)
	conditions, then := []clientv3.Cmp{k.free()}, []clientv3.Op{k.put(c, l.id)}
	otherwise := []clientv3.Op{k.get(), k.getQueue(clientv3.WithLimit(1))}
	switch {
	case pl.rev != 0:
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(pl.key), "=", pl.rev), k.nobodyBefore(pl.rev))
		then = append(then, clientv3.OpDelete(pl.key))
	default:
		conditions = append(conditions, k.nobodyQueues())
	}
	if pl.key != "" {
		otherwise = append([]clientv3.Op{clientv3.OpPut(pl.key, "", clientv3.WithLease(pl.lease.id))}, k.get(), k.getQueue())
	}
	resp, err := d.txn(conditions, then, otherwise)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // which of the two has ended, nobody said
		d.p.leave(c.Token)
		return driver.Grant{}, errAgain
	case errors.Is(err, strategy.ErrUnknown):
		return driver.Grant{State: hold{lease: l}}, err // the engine undoes it
	case err != nil:
		d.p.idle.add(l)
		if pl.rev == 0 {
			d.p.vacate(c.Token)
		}
		return driver.Grant{}, err
	case resp.Succeeded:
		d.p.vacate(c.Token)
		return d.granted(c, hold{l, resp.Header.Revision}, resp.Header.RaftTerm)
	}
	d.p.idle.add(l)
	answer := resp.Responses
	if pl.key != "" {
		answer = answer[1:]
	}
	return d.held(c, k, pl, resp.Header.Revision, answer[0].GetResponseRange().Kvs, answer[1].GetResponseRange().Kvs)
}

// granted is the grant of a hold, whose key was put by an answer of this term.
func (d dialog) granted(c driver.Claim, h hold, term uint64) (driver.Grant, error) {
	if !h.lease.counts(term) {
		g, err := d.extend(c, h)
		if err != nil { // the claim holds the lock, for nobody knows how long
			return driver.Grant{State: h, Partial: true}, err
		}
		h = g.State.(hold)
	}
	return driver.Grant{Start: h.lease.start, TTL: h.lease.ttl, Fence: fenceOf(h.rev), Fences: reserved(c), State: h}, nil
}

// held is the answer to a claim that found the lock held, or others before it in the queue. pl is its place before the
// request, and kvs and queue what a transaction of this revision has read.
func (d dialog) held(c driver.Claim, k keys, pl placed, rev int64, kvs, queue []*mvccpb.KeyValue) (driver.Grant, error) {
	g, held := driver.Grant{}, &strategy.HeldError{Name: c.Name}
	before := k.holder // whose end the claim awaits
	for i, kv := range queue {
		if string(kv.Key) != pl.key {
			continue
		}
		g.Place, g.Kept = int32(i+1), kv.CreateRevision == pl.rev
		if pl.rev = kv.CreateRevision; i > 0 {
			before = string(queue[i-1].Key)
		}
	}
	switch {
	case len(kvs) > 0:
		h, ok := holderOf(kvs[0])
		if !ok {
			if pl.key != "" {
				return driver.Grant{Partial: true}, d.notLock(k) // the engine gives the place up
			}
			return driver.Grant{}, d.notLock(k)
		}
		held.Holder, held.TTL = h.token, d.remaining(h.lease)
	case g.Place == 1: // with the place it just took, it is the next
		d.p.moved(c.Token, pl.rev)
		return driver.Grant{}, errAgain
	case len(queue) > 0:
		held.Holder = k.tokenOf(queue[0]) // it has the next turn
	}
	if pl.key != "" {
		d.p.moved(c.Token, pl.rev)
		d.p.follow(c, before, rev)
	}
	return g, held
}

// Release deletes the holder's key, if it is of this hold. The first in the queue sees that, and asks.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Outcome{}, err
	}
	defer end()
	h := holdOf(c)
	if err := d.release(c, h.rev); err != nil {
		return driver.Outcome{}, err
	}
	p.idle.add(h.lease)
	return driver.Outcome{}, nil
}

func (d dialog) release(c driver.Claim, rev int64) error {
	k := keysOf(c.Key)
	resp, err := d.txn([]clientv3.Cmp{k.held(rev)}, []clientv3.Op{k.delete()}, []clientv3.Op{k.get()})
	if err == nil && !resp.Succeeded {
		err = d.lost(c, k, kvs(resp, 0))
	}
	return err
}

// ForceRelease deletes the holder's key, if it has the token. What the holder had hung on its lease is nothing now.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Outcome{}, err
	}
	defer end()
	h, err := d.holder(c, c.Token)
	if err != nil {
		return driver.Outcome{}, err
	}
	return driver.Outcome{}, d.release(c, h.rev)
}

// holder is the hold of that token. A *strategy.LostError: it does not hold the lock.
func (d dialog) holder(c driver.Claim, token string) (holder, error) {
	k := keysOf(c.Key)
	resp, err := d.read([]clientv3.Op{k.get()})
	if err != nil {
		return holder{}, err
	}
	if found := kvs(resp, 0); len(found) > 0 {
		if h, ok := holderOf(found[0]); ok && h.token == token {
			return h, nil
		}
	}
	return holder{}, d.lost(c, k, kvs(resp, 0))
}

// Adopt puts the holder's key with the new token and the new lease, in place of the hold with the old token. Then nothing
// hangs on the old lease: the old user cannot renew the hold, nor end it.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	old, err := d.holder(c, from)
	if err != nil {
		return driver.Grant{}, err
	}
	l, err := d.lease(c.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	k := keysOf(c.Key)
	resp, err := d.txn([]clientv3.Cmp{k.held(old.rev)}, []clientv3.Op{k.put(c, l.id)}, []clientv3.Op{k.get()})
	switch {
	case errors.Is(err, strategy.ErrUnknown):
		return driver.Grant{State: hold{lease: l}}, err
	case err == nil && !resp.Succeeded:
		err = d.lost(c, k, kvs(resp, 0))
	}
	if err != nil {
		p.idle.add(l)
		return driver.Grant{}, err
	}
	return d.granted(c, hold{l, resp.Header.Revision}, resp.Header.RaftTerm)
}

// Pass is Release of c, and for next what Acquire does, in one step.
func (p *protocol) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	h := holdOf(c)
	l, err := d.leaseAfter(c, h, next)
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := d.pass(c, next, h, l)
	if claimed, ok := g.State.(hold); ok && err != nil { // the engine knows only the token of a claim that queues
		p.entangle(next.Token, claimed.lease)
	}
	return g, err
}

// leaseAfter is a lease for the hold that comes after h in the same process: the same one, if it counts as long as next wants.
func (d dialog) leaseAfter(c driver.Claim, h hold, next driver.Claim) (lease, error) {
	if h.lease.asked != secondsOf(next.TTL) {
		return d.lease(next.TTL)
	}
	if h.lease.fresh() {
		return h.lease, nil
	}
	l, err := d.renewed(h.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return lease{}, &strategy.LostError{Name: c.Name}
	}
	if err != nil {
		return lease{}, unsent(d.wrap(err))
	}
	return l, nil
}

func (d dialog) pass(c, next driver.Claim, h hold, l lease) (driver.Grant, error) {
	p, k, another := d.p, keysOf(c.Key), l.id != h.lease.id
	pl, err := d.place(next)
	if err != nil {
		if another {
			p.idle.add(l)
		}
		return driver.Grant{}, err
	}
	nobody, take, release := k.nobodyQueues(), []clientv3.Op{k.put(next, l.id)}, []clientv3.Op{k.delete()}
	if pl.rev != 0 {
		nobody = k.nobodyBefore(pl.rev)
	}
	if pl.key != "" {
		take = append(take, clientv3.OpDelete(pl.key))
		release = append(release, clientv3.OpPut(pl.key, "", clientv3.WithLease(pl.lease.id)))
	}
	release = append(release, k.getQueue())
	resp, err := d.txn([]clientv3.Cmp{k.held(h.rev), nobody}, take,
		[]clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{k.held(h.rev)}, release, []clientv3.Op{k.get()})})
	switch {
	case errors.Is(err, strategy.ErrUnknown):
		return driver.Grant{State: hold{lease: l}}, err
	case err == nil && resp.Succeeded:
		p.vacate(next.Token)
		if another {
			p.idle.add(h.lease)
		}
		return d.granted(next, hold{l, resp.Header.Revision}, resp.Header.RaftTerm)
	}
	if another {
		p.idle.add(l)
	}
	if err == nil {
		nested := resp.Responses[0].GetResponseTxn()
		answer := nested.Responses[len(nested.Responses)-1].GetResponseRange().Kvs
		if nested.Succeeded {
			p.idle.add(h.lease)
			return d.passed(next, k, pl, resp.Header.Revision, answer)
		}
		err = d.lost(c, k, answer)
	}
	if pl.rev == 0 {
		p.vacate(next.Token)
	}
	return driver.Grant{}, err
}

// passed is the answer to a pass that released the lock, and found this queue.
func (d dialog) passed(next driver.Claim, k keys, pl placed, rev int64, queue []*mvccpb.KeyValue) (driver.Grant, error) {
	g, err := d.held(next, k, pl, rev, nil, queue)
	if errors.Is(err, errAgain) { // its place was lost, and nobody is before the new one
		g, err = d.acquire(next)
	}
	if err != nil && !errors.Is(err, strategy.ErrHeld) {
		err = d.failed(strategy.ErrUnknown, err) // another kind would say that nothing is released
	}
	return g, err
}

// Undo revokes the leases of a claim: of its hold, and of its place in the queue. That deletes both, and a request that
// arrives later is refused, because it names a lease that is gone.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return err
	}
	defer end()
	for _, id := range p.leasesOf(c) {
		if err := d.revoke(id); err != nil {
			return err
		}
	}
	p.leave(c.Token)
	return nil
}

// Validate demands whole seconds.
func (p *protocol) Validate(o strategy.Options) error {
	if o.TTL%time.Second != 0 {
		return fmt.Errorf("locks: Options.TTL is %v: etcd counts whole seconds: allowed are 1s to 24h, and 0 for 10s. "+
			"A TTL that is less than the servers' least one (2s, or what --election-timeout makes of it) lasts as long as that", o.TTL)
	}
	return nil
}
