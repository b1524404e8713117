package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	p := &protocol{client: client, idle: pool{idle: map[int64][]lease{}}, places: map[string]*place{}, lines: map[lineKey]*line{}}
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

	mu     sync.Mutex
	places map[string]*place // in queues, by the token of the claim
	lines  map[lineKey]*line // the wait lines of this process that listen
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
	r, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	for range 2 {
		var g driver.Grant
		if g, err = r.acquire(c); !errors.Is(err, errAgain) {
			return g, err
		}
	}
	return driver.Grant{Partial: true}, r.failed(strategy.ErrRefused, errors.New("leases end, or places in the queue get lost, as soon as they are there"))
}

// errAgain is for an attempt that changed nothing but the place in the queue, and that is to be made once more.
var errAgain = errors.New("once more")

func (r request) acquire(c driver.Claim) (driver.Grant, error) {
	l, err := r.lease(c.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	pl, err := r.place(c)
	if err != nil {
		r.p.idle.add(l)
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
	resp, err := r.txn(conditions, then, otherwise)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // which of the two has ended, nobody said
		r.p.leave(c.Token)
		return driver.Grant{}, errAgain
	case errors.Is(err, strategy.ErrUnknown):
		return driver.Grant{State: hold{lease: l}}, err // the engine undoes it
	case err != nil:
		r.p.idle.add(l)
		if pl.rev == 0 {
			r.p.vacate(c.Token)
		}
		return driver.Grant{}, err
	case resp.Succeeded:
		r.p.vacate(c.Token)
		return r.granted(c, hold{l, resp.Header.Revision}, resp.Header.RaftTerm)
	}
	r.p.idle.add(l)
	answer := resp.Responses
	if pl.key != "" {
		answer = answer[1:]
	}
	return r.held(c, k, pl, resp.Header.Revision, answer[0].GetResponseRange().Kvs, answer[1].GetResponseRange().Kvs)
}

// granted is the grant of a hold, whose key was put by an answer of this term.
func (r request) granted(c driver.Claim, h hold, term uint64) (driver.Grant, error) {
	if !h.lease.counts(term) {
		g, err := r.extend(c, h)
		if err != nil { // the claim holds the lock, for nobody knows how long
			return driver.Grant{State: h, Partial: true}, err
		}
		h = g.State.(hold)
	}
	return driver.Grant{Start: h.lease.start, TTL: h.lease.ttl, Fence: fenceOf(h.rev), Fences: reserved(c), State: h}, nil
}

// held is the answer to a claim that found the lock held, or others before it in the queue. pl is its place before the
// request, and kvs and queue what a transaction of this revision has read.
func (r request) held(c driver.Claim, k keys, pl placed, rev int64, kvs, queue []*mvccpb.KeyValue) (driver.Grant, error) {
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
				return driver.Grant{Partial: true}, r.notLock(k) // the engine gives the place up
			}
			return driver.Grant{}, r.notLock(k)
		}
		held.Holder, held.TTL = h.token, r.remaining(h.lease)
	case g.Place == 1: // with the place it just took, it is the next
		r.p.moved(c.Token, pl.rev)
		return driver.Grant{}, errAgain
	case len(queue) > 0:
		held.Holder = k.tokenOf(queue[0]) // it has the next turn
	}
	if pl.key != "" {
		r.p.moved(c.Token, pl.rev)
		r.p.follow(c, before, rev)
	}
	return g, held
}

// Release deletes the holder's key, if it is of this hold. The first in the queue sees that, and asks.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	r, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Outcome{}, err
	}
	defer end()
	h := holdOf(c)
	if err := r.release(c, h.rev); err != nil {
		return driver.Outcome{}, err
	}
	p.idle.add(h.lease)
	return driver.Outcome{}, nil
}

func (r request) release(c driver.Claim, rev int64) error {
	k := keysOf(c.Key)
	resp, err := r.txn([]clientv3.Cmp{k.held(rev)}, []clientv3.Op{k.delete()}, []clientv3.Op{k.get()})
	if err == nil && !resp.Succeeded {
		err = r.lost(c, k, kvs(resp, 0))
	}
	return err
}

// ForceRelease deletes the holder's key, if it has the token. What the holder had hung on its lease is nothing now.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	r, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Outcome{}, err
	}
	defer end()
	h, err := r.holder(c, c.Token)
	if err != nil {
		return driver.Outcome{}, err
	}
	return driver.Outcome{}, r.release(c, h.rev)
}

// holder is the hold of that token. A *strategy.LostError: it does not hold the lock.
func (r request) holder(c driver.Claim, token string) (holder, error) {
	k := keysOf(c.Key)
	resp, err := r.txn(nil, []clientv3.Op{k.get()}, nil)
	if err != nil {
		return holder{}, err
	}
	if found := kvs(resp, 0); len(found) > 0 {
		if h, ok := holderOf(found[0]); ok && h.token == token {
			return h, nil
		}
	}
	return holder{}, r.lost(c, k, kvs(resp, 0))
}

// Adopt puts the holder's key with the new token and the new lease, in place of the hold with the old token. Then nothing
// hangs on the old lease: the old user cannot renew the hold, nor end it.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	r, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	old, err := r.holder(c, from)
	if err != nil {
		return driver.Grant{}, err
	}
	l, err := r.lease(c.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	k := keysOf(c.Key)
	resp, err := r.txn([]clientv3.Cmp{k.held(old.rev)}, []clientv3.Op{k.put(c, l.id)}, []clientv3.Op{k.get()})
	switch {
	case errors.Is(err, strategy.ErrUnknown):
		return driver.Grant{State: hold{lease: l}}, err
	case err == nil && !resp.Succeeded:
		err = r.lost(c, k, kvs(resp, 0))
	}
	if err != nil {
		p.idle.add(l)
		return driver.Grant{}, err
	}
	return r.granted(c, hold{l, resp.Header.Revision}, resp.Header.RaftTerm)
}

// Pass is Release of c, and for next what Acquire does. The next hold has the lease of the last one, if nobody queues.
func (p *protocol) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	r, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	k, h := keysOf(c.Key), holdOf(c)
	if !h.lease.fresh() {
		if h.lease, err = r.renew(h.lease); errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return driver.Grant{}, &strategy.LostError{Name: c.Name}
		} else if err != nil {
			return driver.Grant{}, unsent(r.wrap(err))
		}
	}
	pl, err := r.place(next)
	if err != nil {
		return driver.Grant{}, err
	}
	nobody, release := k.nobodyQueues(), []clientv3.Op{k.delete()}
	if pl.rev != 0 {
		nobody = k.nobodyBefore(pl.rev)
	}
	take := []clientv3.Op{k.put(next, h.lease.id)}
	if pl.key != "" {
		release = append(release, clientv3.OpPut(pl.key, "", clientv3.WithLease(pl.lease.id)))
		take = append(take, clientv3.OpDelete(pl.key))
	}
	release = append(release, k.getQueue())
	resp, err := r.txn([]clientv3.Cmp{k.held(h.rev), nobody}, take, []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{k.held(h.rev)}, release, []clientv3.Op{k.get()})})
	switch {
	case errors.Is(err, strategy.ErrUnknown):
		p.entangle(next.Token, h.lease)
		return driver.Grant{}, err
	case err != nil:
		if pl.rev == 0 {
			p.vacate(next.Token)
		}
		return driver.Grant{}, err
	case resp.Succeeded:
		p.vacate(next.Token)
		return r.granted(next, hold{h.lease, resp.Header.Revision}, resp.Header.RaftTerm)
	}
	nested := resp.Responses[0].GetResponseTxn()
	if !nested.Succeeded {
		if pl.rev == 0 {
			p.vacate(next.Token)
		}
		return driver.Grant{}, r.lost(c, k, nested.Responses[0].GetResponseRange().Kvs)
	}
	p.idle.add(h.lease)
	queue := nested.Responses[len(nested.Responses)-1].GetResponseRange().Kvs
	g, err := r.held(next, k, pl, resp.Header.Revision, nil, queue)
	if errors.Is(err, errAgain) { // those who queued before are gone
		g, err = r.acquire(next)
	}
	if err != nil && !errors.Is(err, strategy.ErrHeld) { // c is released, and that is not what this error would say
		err = r.failed(strategy.ErrUnknown, err)
	}
	return g, err
}

// Undo revokes the leases of a claim: of its hold, and of its place in the queue. That deletes both, and a request that
// arrives later is refused, because it names a lease that is gone.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	r, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return err
	}
	defer end()
	for _, id := range p.leasesOf(c) {
		if err := r.revoke(id); err != nil {
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
