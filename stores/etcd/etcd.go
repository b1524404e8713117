// Package etcd is a lock in etcd, for those who have etcd already, or want a lock that a fail-over does not forget. Processes
// get it in the order in which they asked.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second})
//	locks, err := etcd.New(client, strategy.Options{})
//
// # The idea
//
// The lock is a key with the holder's token. It hangs on a lease, which is a TTL that etcd counts: when the lease ends, etcd
// deletes the key. Each step is one transaction, which a majority of the members agrees on before it is answered.
//
//  1. Acquire puts the key, if there is no key, and nobody queues. etcd numbers all transactions that write: the number,
//     the revision, makes the hold's fence.
//  2. If the lock is held, a process that waits puts a key of its own, below the lock's key. The revisions in which these
//     keys were created are the order of the queue.
//  3. Release deletes the key, if it is still that of this hold.
//  4. Each waiter watches one key: that of the waiter before it, and the first watches the lock's. So a release wakes one
//     process. It puts the lock's key and deletes its own, in one transaction, if it is the first.
//
// # Leases
//
// Each hold has a lease of its own, so a hold that nobody renews ends by its own TTL, whatever else its process does. When etcd
// has confirmed a release, nothing hangs on the lease any more, and it serves the next hold of the process. So a hold costs
// etcd two writes, as with the mutex of etcd's own client. While an acquisition is under way, its lease is renewed, by a message
// to the leader alone, unless that was within the last hundredth of its TTL.
//
// After a request of unknown outcome the lease is revoked, and never used again. That makes an undo certain: a request that arrives later names
// a lease that is gone, and etcd refuses it.
//
// A place in the queue has a lease of its own, too, of at most 5 s (mostPlaceTTL), which the process renews while it waits.
//
// # Many callers in one process
//
// Contenders of one process stand in a line, and the process has one place in the queue. The holder hands the lock to the
// next in its line without a request, for at most 2 ms (handOverLimit in package engine), 256 holds ([driver.MaxFences]) and half of
// the TTL. When that is used up, the release is a Pass. In one transaction it releases the lock, and takes the line's next
// place in the queue; or, if nobody queues, it grants the line the lock again.
//
// # What it guarantees
//
//   - Exclusion: at most one holder at a time, for as long as holders stop at their deadline ([strategy.Lease.Deadline], Lost,
//     Context). A majority of the members has each grant on disk before it is answered. So no crash of a minority, and no
//     election, forgets it.
//   - Ownership: only the holder releases or extends. A late release changes nothing.
//   - No deadlock: a holder that dies is gone after its TTL, and up to a second: etcd looks for ended leases twice a second.
//   - Fencing: each hold has a number greater than all before, for as long as etcd keeps its revision: see below.
//   - Fairness: first come, first served, among processes and among the contenders in each. A process that holds the lock
//     may serve its own line first, for 2 ms.
//   - Quiet waiting: a waiter sleeps until it is its turn. A release wakes one process, however many wait. Each process that waits
//     renews its place each 1.7 s, and asks about once for each TTL of the holder.
//
// # When something breaks
//
//   - The holder dies: its lease ends, etcd deletes the key, and the first in the queue is woken.
//   - A waiter dies, or is paused: its place ends with its lease, after 5 s. The next one sees that, and takes its turn.
//   - A reply is lost: nobody knows what etcd did. The engine has the leases revoked, again and again until etcd confirms it.
//   - The leader dies: the others elect one, in a second or two. Requests fail meanwhile. The new leader counts each lease from its beginning, so
//     no lock ends early. Set Options.OpTimeout and TTL so that a renewal survives that: the defaults do.
//   - A leader is deposed and does not know it yet: it may still answer renewals, of which its successor does not
//     learn. So a renewal counts only next to a read or a write that was asked for at the same time, or later. That is answered
//     with the help of the present leader, and the answer shows whether the leader has changed.
//   - A member is cut off from the others: it refuses all requests at once, and ends watches. The client then asks another.
//   - A member vanishes, and its connections stay open: without DialKeepAliveTime the client goes on to ask it, in its turn. A
//     waiter notices that when the renewal of its place gets no answer, and listens at another member.
//   - Most members are down: nobody gets a lock, and holders lose theirs at the deadline.
//   - etcd compacts revisions that a watch still needs: the watch ends, and the waiter asks again.
//   - etcd is full (the alarm NOSPACE), or refuses a user: the error says so. Releases and renewals work while it is full.
//
// # What it does not guarantee
//
// A paused holder does not notice its deadline: give [strategy.Lease.Fence] to the store that the lock protects.
//
// etcd before 3.4.31 and 3.5.13 has a fault: a leader that was paused, and was deposed meanwhile, may end leases that its successor
// has renewed. Then the lock is granted again before its holder's deadline. The fence still rises.
//
// The revision goes back if etcd is restored from a snapshot, or is set up again. Restore it with etcdutl's --bump-revision and
// --mark-compacted, or fences repeat.
//
// # TTL
//
// etcd counts whole seconds, so [strategy.Options].TTL is whole seconds: New refuses others. The servers have a minimum TTL, which is one
// and a half times --election-timeout, rounded up: 2 s by default. A shorter one lasts as long as that; [strategy.Lease.Deadline] says so,
// and Check says what to set. Options.FenceTTL has no meaning: a fence takes no space. Options.Acks is refused: a majority
// has confirmed each grant anyway.
//
// # When
//
// Take it if etcd is there, and the lock guards what must not be done twice, hundreds of times a second at most. It
// costs two writes to the disks of a majority for each hold, or each 2 ms of a line. Take package fairqueue if thousands of
// locks a second matter more. Do not put other locks into the etcd of a Kubernetes cluster.
//
// Each write is a revision that etcd keeps until it is compacted: start it with --auto-compaction-mode and
// --auto-compaction-retention, or it fills.
//
// # In etcd
//
//	lock:{name}                  the holder: how many fences it has reserved, a space, its token
//	lock:{name}//queue/<token>   a place in the queue, empty
//
// The fence of a hold is the revision of its grant times 256, and the holds that follow in the same process have the next
// numbers. So etcdctl get lock:{name} -w fields shows the fence of the grant as ModRevision * 256. A name with two slashes in
// a row, or a slash and then a %, has a % between them in the key.
//
// A user needs readwrite on all keys that begin with those of its locks, such as lock:{.
//
// etcd 3.4 or later. The client may be one of package namespace. [strategy.Info].TTL is rounded up to seconds.
//
// Source: the queue is that of package concurrency of etcd's client, which is the lock of ZooKeeper's recipes. There the
// place in the queue is the hold, too, so all holds of a process end with its session.
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
	p := &protocol{client: client, places: map[string]*place{}, lines: map[lineKey]*listening{}}
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
	// silent says that the last transaction got no answer in time, perhaps because its member is silent. The client asks the members in
	// turn. So if each attempt makes as many requests as there are members, each transaction goes to that member again. A read
	// before some of them, at random, breaks the rhythm.
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
	return d.again(c, func() (driver.Grant, error) { return d.acquire(c) })
}

// errAgain is for an attempt that changed nothing but the place in the queue, and that is to be made once more.
var errAgain = errors.New("once more")

// again makes the attempts of a claim: more than one if a lease has ended before its time, or a place in the queue was lost.
func (d dialog) again(c driver.Claim, attempt func() (driver.Grant, error)) (driver.Grant, error) {
	for range 3 { // one for each of the two, and one more
		if g, err := attempt(); !errors.Is(err, errAgain) {
			return d.p.settle(c, g, err)
		}
	}
	return d.p.settle(c, driver.Grant{}, d.failed(strategy.ErrRefused, errors.New("leases end, or places in the queue get lost, as soon as they are there")))
}

func (d dialog) acquire(c driver.Claim) (driver.Grant, error) {
	pl, err := d.place(c)
	if err != nil {
		return driver.Grant{}, err
	}
	k := keysOf(c.Key)
	otherwise := []clientv3.Op{k.get(), k.getQueue(clientv3.WithLimit(1))}
	if pl.key != "" {
		otherwise = []clientv3.Op{k.get(), pl.put(), k.getQueue()}
	}
	g, resp, err := d.take(c, pl, []clientv3.Cmp{k.free(), k.nobodyBefore(pl.rev)}, otherwise)
	if err != nil || resp.Succeeded {
		return g, err
	}
	return d.held(c, k, pl, resp.Header.Revision, kvs(resp, 0), kvs(resp, 1))
}

// take makes the transaction that gets a claim the lock under these conditions. Then it is out of the queue. resp is nil if the
// transaction was refused, or nobody knows. An error next to resp: the claim holds the lock, for nobody knows how long.
func (d dialog) take(c driver.Claim, pl placed, conditions []clientv3.Cmp, otherwise []clientv3.Op) (g driver.Grant, resp *clientv3.TxnResponse, err error) {
	l, renewed, err := d.lease(c.TTL)
	if err != nil {
		return g, nil, err
	}
	then := []clientv3.Op{keysOf(c.Key).put(c, l.id)}
	if pl.key != "" {
		then = append(then, clientv3.OpDelete(pl.key))
	}
	resp, err = d.txn(conditions, then, otherwise)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // nobody said which of the two has ended before its time
		d.p.ended(c.Token, pl.lease)
		d.p.idle.drop()
		return g, nil, errAgain
	case errors.Is(err, strategy.ErrUnknown):
		return driver.Grant{State: hold{lease: l}}, nil, err
	case err != nil || !resp.Succeeded:
		select {
		case l = <-renewed:
		default: // nobody waits for that
		}
		d.p.idle.add(l)
		return g, resp, err
	}
	d.p.vacate(c.Token)
	g, err = d.granted(c, hold{<-renewed, resp.Header.Revision}, resp.Header.RaftTerm)
	return g, resp, err
}

// granted is the grant of a hold, whose key was put by an answer of this term.
func (d dialog) granted(c driver.Claim, h hold, term uint64) (driver.Grant, error) {
	if !h.lease.counts(term) {
		g, err := d.extend(c, h)
		if err != nil {
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
		d.p.moved(c.Token, kv.CreateRevision)
		if i > 0 {
			before = string(queue[i-1].Key)
		}
	}
	switch {
	case len(kvs) > 0:
		h, ok := holderOf(kvs[0])
		if !ok {
			return driver.Grant{}, d.notLock(k)
		}
		held.Holder, held.TTL = h.token, d.remaining(h.lease)
	case g.Place == 1: // with the place it just took, it is the next
		return driver.Grant{}, errAgain
	case len(queue) > 0:
		held.Holder = k.tokenOf(queue[0]) // it has the next turn
	}
	if pl.key != "" {
		d.p.follow(c, before, rev)
	}
	return g, held
}

// Release deletes the holder's key, if it is of this hold. The first in the queue sees that, and asks: unlike others, this [driver.Queuer]
// makes no direct grants. The engine undoes no claim whose release succeeded, so the lease is idle.
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

// ForceRelease deletes the holder's key, if it has the token. The holder's lease then ends by itself.
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
	return d.again(c, func() (driver.Grant, error) { return d.adopt(c, from) })
}

func (d dialog) adopt(c driver.Claim, from string) (driver.Grant, error) {
	old, err := d.holder(c, from)
	if err != nil {
		return driver.Grant{}, err
	}
	k := keysOf(c.Key)
	g, resp, err := d.take(c, placed{}, []clientv3.Cmp{k.held(old.rev)}, []clientv3.Op{k.get()})
	if err == nil && !resp.Succeeded {
		err = d.lost(c, k, kvs(resp, 0))
	}
	return g, err
}

// Pass is Release of c, and for next what Acquire does, in one step.
func (p *protocol) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	g, err := d.again(next, func() (driver.Grant, error) { return d.pass(c, next) })
	if claimed, ok := g.State.(hold); ok && err != nil { // unlike after Acquire, the engine undoes next without this State
		p.entangle(next.Token, claimed.lease)
	}
	return g, err
}

// pass makes one of three steps:
//
//	c holds the lock   nobody is before next
//	yes                yes                     next holds the lock
//	yes                no                      the lock is free, and next queues
//	no                                         nothing
func (d dialog) pass(c, next driver.Claim) (driver.Grant, error) {
	pl, err := d.place(next)
	if err != nil {
		return driver.Grant{}, err
	}
	k, h := keysOf(c.Key), holdOf(c)
	release := []clientv3.Op{k.delete(), k.getQueue()}
	if pl.key != "" {
		release = []clientv3.Op{k.delete(), pl.put(), k.getQueue()}
	}
	g, resp, err := d.take(next, pl, []clientv3.Cmp{k.held(h.rev), k.nobodyBefore(pl.rev)},
		[]clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{k.held(h.rev)}, release, []clientv3.Op{k.get()})})
	if resp == nil {
		return g, err
	}
	if !resp.Succeeded {
		nested := resp.Responses[0].GetResponseTxn()
		found := nested.Responses[len(nested.Responses)-1].GetResponseRange().Kvs
		if !nested.Succeeded {
			return driver.Grant{}, d.lost(c, k, found)
		}
		g, err = d.held(next, k, pl, resp.Header.Revision, nil, found)
		if errors.Is(err, errAgain) { // its place was lost, and nobody is before the new one
			g, err = d.again(next, func() (driver.Grant, error) { return d.acquire(next) })
		}
	}
	if err != nil && !errors.Is(err, strategy.ErrHeld) {
		return g, d.failed(strategy.ErrUnknown, err) // another kind would say that nothing is released
	}
	d.p.idle.add(h.lease) // not before: after ErrUnknown the engine undoes c, too
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
			"A TTL that is less than the servers' minimum (2s, or what --election-timeout makes of it) lasts as long as that", o.TTL)
	}
	return nil
}
