package etcd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// This file is what goes on while a claim waits: somebody watches the one key whose end it awaits, and keeps its place alive.

// mostPlaceTTL is how long the place of a waiter that has died delays those behind it at most. (etcd takes up to a second
// longer.) It is long enough for an election among the members.
const mostPlaceTTL = 5 * time.Second

// A placed is a place in a queue, as it was.
type placed struct {
	key   string // in the queue; empty: none
	lease lease
	rev   int64 // in which the key was created, which is the place in the order; 0: no answer has said that it was
}

// put is the operation that takes the place. A key that is there keeps its place in the order.
func (pl placed) put() clientv3.Op {
	return clientv3.OpPut(pl.key, "", clientv3.WithLease(pl.lease.id))
}

// A place is one of this process. It is there from before a claim asks for it until the claim has the lock, or is undone.
type place struct {
	placed
	also     []lease // others that the claim may have: of a hold, by a request that was not answered, or its earlier places'
	unfollow func()  // ends what follow has begun
}

type lineKey struct{ key, line string }

// A listening is what goes on for a wait line that listens.
type listening struct {
	ctx    context.Context // ends with the subscription
	all    sync.WaitGroup  // what goes on for it
	hear   func(driver.Notification)
	mu     sync.Mutex // one notification at a time
	broken bool       // the last one has been sent
}

// notify sends a notification. A zero one is the last.
func (ln *listening) notify(n driver.Notification) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.broken || ln.ctx.Err() != nil {
		return
	}
	ln.broken = n.Broken()
	ln.hear(n)
}

// Watch lets a line listen. It asks nothing: Acquire, which takes the place, names the revision from which follow watches, so
// nothing is missed. Without a line, the claim hears of every hold that ends.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	if c.Line == "" {
		return p.watchHolder(ctx, c, fn)
	}
	_, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return nil, err
	}
	end()
	life, cancel := context.WithCancel(context.Background())
	key, ln := lineKey{c.Key, c.Line}, &listening{ctx: life, hear: fn}
	p.mu.Lock()
	p.lines[key] = ln
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		if p.lines[key] == ln {
			delete(p.lines, key)
		}
		cancel() // under mu, so that follow begins nothing afterwards
		p.mu.Unlock()
		ln.all.Wait()
	}, nil
}

// place is the place of a claim, which the caller's transaction takes if it is not there. A claim that would not hear of its turn
// gets none, but keeps what it has.
func (d dialog) place(c driver.Claim) (placed, error) {
	if c.Line == "" {
		return placed{}, nil
	}
	d.p.mu.Lock()
	there, listens := d.p.places[c.Token], d.p.lines[lineKey{c.Key, c.Line}] != nil
	var pl placed
	if there != nil {
		pl = there.placed
	}
	d.p.mu.Unlock()
	switch {
	case pl.lease.id != 0:
		return pl, nil
	case !listens:
		return placed{}, nil
	}
	_, renewed, err := d.lease(min(c.TTL, mostPlaceTTL))
	if err != nil {
		return placed{}, err
	}
	l := <-renewed
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	if there = d.p.places[c.Token]; there == nil {
		there = &place{unfollow: func() {}}
		d.p.places[c.Token] = there
	}
	there.unfollow() // by its last lease
	there.key, there.lease = keysOf(c.Key).queue+c.Token, l
	return there.placed, nil
}

// moved takes in where the place of a claim is.
func (p *protocol) moved(token string, rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl := p.places[token]; pl != nil {
		pl.rev = rev
	}
}

// ended takes in that the lease of a place has ended, or may have. The next request gets the place another.
func (p *protocol) ended(token string, l lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl := p.places[token]; pl != nil && pl.lease.id == l.id {
		pl.lease, pl.also = lease{}, append(pl.also, l)
	}
}

// settle says what becomes of the place of a claim that has failed. A claim that had its place before keeps it, as the engine does.
// Otherwise the engine undoes it, if the queue may have it.
func (p *protocol) settle(c driver.Claim, g driver.Grant, err error) (driver.Grant, error) {
	if err == nil || errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrUnknown) {
		return g, err
	}
	p.mu.Lock()
	pl := p.places[c.Token]
	sent := pl != nil && pl.rev != 0
	p.mu.Unlock()
	if !sent {
		p.vacate(c.Token)
	}
	g.Partial = g.Partial || sent && !c.Repeated
	return g, err
}

// leave forgets a place. Its lease is never used again.
func (p *protocol) leave(token string) (left lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl := p.places[token]; pl != nil {
		delete(p.places, token)
		pl.unfollow()
		left = pl.lease
	}
	return left
}

// vacate is leave of a place whose key certainly does not hang on its lease, which is idle then.
func (p *protocol) vacate(token string) {
	if l := p.leave(token); l.id != 0 {
		p.idle.add(l)
	}
}

// entangle notes that a claim in the queue may hold the lock by this lease.
func (p *protocol) entangle(token string, l lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := p.places[token]
	if pl == nil {
		pl = &place{unfollow: func() {}}
		p.places[token] = pl
	}
	pl.also = append(pl.also, l)
}

// leasesOf are all leases that requests of the claim have named, unless they are certainly over.
func (p *protocol) leasesOf(c driver.Claim) (ids []clientv3.LeaseID) {
	all := []lease{holdOf(c).lease}
	p.mu.Lock()
	if pl := p.places[c.Token]; pl != nil {
		all = append(append(all, pl.lease), pl.also...)
	}
	p.mu.Unlock()
	for _, l := range all {
		if l.id != 0 {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// follow keeps the place of c alive, and watches the key whose end c awaits, from after this revision. It goes on until the place is
// left or the subscription ends.
func (p *protocol) follow(c driver.Claim, before string, rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ln, pl := p.lines[lineKey{c.Key, c.Line}], p.places[c.Token]
	if ln == nil || pl == nil {
		return
	}
	pl.unfollow()
	ctx, cancel := context.WithCancel(ln.ctx)
	pl.unfollow = cancel
	at := pl.placed
	ln.all.Go(func() { p.awaitTurn(ctx, ln, c, at, before, rev) })
	ln.all.Go(func() { p.keepPlace(ctx, ln, c.Token, at.lease) })
}

// awaitTurn notifies the line when its claim has reason to ask. As long as somebody else is before it in the queue, the turn is
// not the claim's.
func (p *protocol) awaitTurn(ctx context.Context, ln *listening, c driver.Claim, at placed, before string, rev int64) {
	k := keysOf(c.Key)
	for before != "" {
		err := p.awaitEnd(ctx, before, rev)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			ln.notify(driver.Notification{})
			return
		case before == k.holder:
			before = ""
		default:
			before, rev = p.before(ctx, k, at)
		}
	}
	if ctx.Err() == nil {
		ln.notify(driver.Notification{Token: c.Token})
	}
}

// awaitEnd returns nil when the key has been deleted after this revision. etcd tells of the past up to 100 ms late, so the watch begins
// with what comes, and then a read says whether the key has been deleted before.
func (p *protocol) awaitEnd(ctx context.Context, key string, rev int64) error {
	watching, cancel := context.WithCancel(p.watching(ctx))
	defer cancel()
	for resp := range p.client.Watch(watching, key, clientv3.WithCreatedNotify(), clientv3.WithFilterPut()) {
		switch err := resp.Err(); {
		case err != nil: // compacted, no leader
			return err
		case len(resp.Events) > 0:
			return nil
		case resp.Created:
			if over, err := p.isOver(ctx, key, rev); over || err != nil {
				return err
			}
		}
	}
	return errors.New("the watch has ended")
}

// isOver reports whether the key has been deleted after this revision. It may be there again: a place that was lost and taken again is
// behind all others.
func (p *protocol) isOver(ctx context.Context, key string, rev int64) (over bool, err error) {
	d, end, err := p.begin(ctx, time.Now().Add(mostPlaceTTL/3))
	if err != nil {
		return false, err
	}
	defer end()
	resp, err := d.read([]clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly())})
	if err != nil {
		return false, err
	}
	now := kvs(resp, 0)
	return len(now) == 0 || now[0].CreateRevision > rev, nil
}

// watching is a context for a watch, which ends when its member has no leader. All watches share a stream to one member, until a renewal
// gets no answer. As that member may be silent, later watches then share another stream.
func (p *protocol) watching(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "locks-stream", strconv.FormatInt(p.stream.Load(), 10))
}

// before reads whose end the claim at a place awaits now, and in which revision. Empty: it is to ask.
func (p *protocol) before(ctx context.Context, k keys, at placed) (key string, rev int64) {
	d, end, err := p.begin(ctx, time.Now().Add(at.lease.ttl/3))
	if err != nil {
		return "", 0
	}
	defer end()
	resp, err := d.read([]clientv3.Op{
		clientv3.OpGet(at.key), k.get(), clientv3.OpGet(k.queue, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(at.rev-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(1)),
	})
	switch {
	case err != nil, len(kvs(resp, 0)) == 0:
		return "", 0
	case len(kvs(resp, 2)) > 0:
		return string(kvs(resp, 2)[0].Key), resp.Header.Revision
	case len(kvs(resp, 1)) > 0:
		return k.holder, resp.Header.Revision
	}
	return "", 0
}

// keepPlace renews the lease of a place. If the lease has ended, the claim is to ask, for another place. If a renewal gets no answer for
// half of the TTL, the watch may hear nothing either. Then the subscription ends, and the line listens and asks again.
func (p *protocol) keepPlace(ctx context.Context, ln *listening, token string, l lease) {
	next := l.start.Add(l.ttl / 3)
	for {
		stream := p.stream.Load()
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		renewed, err := p.keepAlive(ctx, l)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			l, next = renewed, renewed.start.Add(renewed.ttl/3)
			p.renewed(token, l)
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			p.ended(token, l)
			ln.notify(driver.Notification{Token: token})
			return
		case errors.Is(err, context.DeadlineExceeded), l.ended():
			p.stream.CompareAndSwap(stream, stream+1)
			ln.notify(driver.Notification{})
			return
		default: // a member has answered, or cannot be reached
			next = time.Now().Add(l.ttl / 10)
		}
	}
}

func (p *protocol) keepAlive(ctx context.Context, l lease) (lease, error) {
	d, end, err := p.begin(ctx, time.Now().Add(l.ttl/2))
	if err != nil {
		return l, err
	}
	defer end()
	return d.renew(d, l)
}

// renewed takes in the lease of a place, unless that has another by now.
func (p *protocol) renewed(token string, l lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl := p.places[token]; pl != nil && pl.lease.id == l.id {
		pl.lease = l
	}
}

// watchHolder notifies of each hold that ends: by a release or an expiry, which delete the key, or because another hold takes its
// place.
func (p *protocol) watchHolder(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return nil, err
	}
	defer end()
	life, cancel := context.WithCancel(context.Background())
	ln := &listening{ctx: life, hear: fn}
	confirmed := make(chan error, 1)
	ln.all.Go(func() {
		began := false
		err := p.holds(life, keysOf(c.Key).holder, ln, func() {
			if !began {
				began = true
				confirmed <- nil
			}
		})
		if !began {
			confirmed <- err
			return
		}
		ln.notify(driver.Notification{})
	})
	stop = func() { cancel(); ln.all.Wait() }
	select {
	case err = <-confirmed:
		if err != nil {
			err = d.wrap(err)
		}
	case <-d.Done():
		err = d.failed(strategy.ErrUnknown, d.Err())
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// holds notifies of each hold that ends until it cannot any more. It calls begun when it would not miss any.
func (p *protocol) holds(ctx context.Context, key string, ln *listening, begun func()) error {
	for resp := range p.client.Watch(p.watching(ctx), key, clientv3.WithCreatedNotify(), clientv3.WithPrevKV()) {
		if err := resp.Err(); err != nil {
			return err
		}
		if resp.Created {
			begun()
		}
		for _, event := range resp.Events {
			switch {
			case event.IsCreate():
			case event.PrevKv == nil: // compacted: nobody knows whose hold it was
				return errors.New("the watch missed who held the lock")
			default:
				h, _ := holderOf(event.PrevKv)
				ln.notify(driver.Notification{Holder: h.token})
			}
		}
	}
	return errors.New("the watch has ended")
}
