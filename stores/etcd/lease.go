package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lease is one of etcd's: what hangs on it ends with it. One lease serves one hold, or one place in a queue.
type lease struct {
	id    clientv3.LeaseID
	asked int64         // the TTL that was asked for, in seconds
	ttl   time.Duration // that etcd counts: it has a minimum
	start time.Time     // a moment before etcd began to count it

	renewed bool   // since its grant, which all members know
	term    uint64 // renewed: of the answer
}

// fresh reports whether so little of the TTL has passed that the lease need not be renewed before it serves again.
func (l lease) fresh() bool { return time.Since(l.start) <= l.ttl/100 }

// counts reports whether the renewal of l counts, next to the answer of a read or a write of this term. Both were asked for after
// l.start. An example of a renewal that does not count:
//
//	term 4  the leader is cut off, and does not know yet that another is elected
//	term 5  begins: the new leader writes its first entry
//	start   the old leader renews the lease, and the answer is of term 4: nobody else learns of it
//	then    a read needs the new leader, so its answer is of term 5
//
// A member shows the term of the last entry that it has applied: at a renewal before it asks the leader. So a renewal of term 5 is never
// the old leader's. A leader that is elected after start counts the whole TTL from its election, so then nothing depends on the
// renewal. (etcd 3.4.31 and 3.5.13 have the leader ask the others first.)
func (l lease) counts(term uint64) bool { return !l.renewed || l.term == term }

// secondsOf is a TTL as etcd counts it. Validate refuses others; they are rounded up for users of On alone.
func secondsOf(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// lease returns a lease for a hold or a place: one that is idle, or a new one. A new one costs an entry in etcd's log,
// as a write does. One that was idle for long is renewed, by a message to the leader alone, while the caller goes on: renewed gets
// the lease as it is afterwards.
func (d dialog) lease(ttl time.Duration) (l lease, renewed <-chan lease, err error) {
	l, ok := d.p.idle.take(secondsOf(ttl))
	if ok && !l.fresh() {
		return l, d.renewing(l), nil
	}
	if !ok {
		l, err = d.grant(secondsOf(ttl))
	}
	known := make(chan lease, 1)
	known <- l
	return l, known, err
}

// renewing renews a lease while the caller goes on. If that fails, the lease that renewed gets counts for no term.
func (d dialog) renewing(l lease) (renewed <-chan lease) {
	start, result := time.Now(), make(chan lease, 1) // before the caller asks: see counts
	go func() {
		half, cancel := context.WithTimeout(d, time.Until(d.due)/2)
		defer cancel()
		again, err := d.renew(half, l)
		if err == nil {
			again.start = start
		} else {
			again.renewed, again.term = true, 0
		}
		result <- again
	}()
	return result
}

func (d dialog) grant(seconds int64) (lease, error) {
	l := lease{asked: seconds}
	err := d.twice(func(ctx context.Context) error {
		l.start = time.Now()
		resp, err := d.p.client.Grant(ctx, seconds)
		if err == nil {
			l.id, l.ttl = resp.ID, time.Duration(resp.TTL)*time.Second
		}
		return err
	})
	if err != nil {
		return lease{}, unsent(d.wrap(err))
	}
	return l, nil
}

// renewTwice renews a lease. The error is the client's, and ErrLeaseNotFound if the lease has ended.
func (d dialog) renewTwice(l lease) (_ lease, err error) {
	err = d.twice(func(ctx context.Context) error {
		l, err = d.renew(ctx, l)
		return err
	})
	return l, err
}

// renew asks once. (The client's KeepAliveOnce asks again and again while no member answers, without a pause.)
func (d dialog) renew(ctx context.Context, l lease) (lease, error) {
	ctx, cancel := context.WithCancel(ctx) // the stream ends with it
	defer cancel()
	start := time.Now()
	stream, err := etcdserverpb.NewLeaseClient(d.p.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return l, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		return l, clientv3.ContextError(ctx, err)
	}
	resp, err := stream.Recv()
	switch {
	case err != nil:
		return l, clientv3.ContextError(ctx, err)
	case resp.TTL <= 0:
		return l, rpctypes.ErrLeaseNotFound
	}
	l.start, l.ttl = start, time.Duration(resp.TTL)*time.Second
	l.renewed, l.term = true, resp.Header.GetRaftTerm()
	return l, nil
}

// revoke ends a lease, and deletes what hangs on it. A request that arrives later and names the lease is refused.
func (d dialog) revoke(id clientv3.LeaseID) error {
	err := d.twice(func(ctx context.Context) error {
		_, err := d.p.client.Revoke(ctx, id)
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return d.wrap(err)
	}
	return nil
}

// remaining is how much of a lease's TTL is left at most; 0: it is over, or no answer came.
func (d dialog) remaining(id clientv3.LeaseID) time.Duration {
	ctx, cancel := context.WithTimeout(d, time.Until(d.due)/2) // the caller has its answer already: this must not make it late
	defer cancel()
	resp, err := d.p.client.TimeToLive(ctx, id)
	if err != nil || resp.TTL < 0 {
		return 0
	}
	return time.Duration(min(resp.TTL+1, resp.GrantedTTL)) * time.Second // it leaves out what is less than a second
}

// A pool has the idle leases of a process, by their TTL in seconds. Nothing hangs on them, and no request is under way that
// hangs a key on them. Those that nobody takes end by themselves.
type pool struct {
	mu   sync.Mutex
	idle map[int64][]lease // the one that became idle last comes last
}

// take returns the lease that became idle last, of those that are not about to end.
func (p *pool) take(seconds int64) (l lease, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.idle[seconds]
	for len(all) > 0 && !ok {
		l, all = all[len(all)-1], all[:len(all)-1]
		ok = time.Since(l.start) < l.ttl*3/4
	}
	if ok {
		p.idle[seconds] = all
	} else {
		delete(p.idle, seconds)
	}
	return l, ok
}

// add takes in a lease that has become idle, and drops those that have ended.
func (p *pool) add(l lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = map[int64][]lease{}
	}
	all := p.idle[l.asked]
	for len(all) > 0 && all[0].ended() {
		all = all[1:]
	}
	p.idle[l.asked] = append(all, l)
}

// drop forgets all leases: one of them had ended before its time.
func (p *pool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = nil
}

// ended reports whether the whole TTL has passed.
func (l lease) ended() bool { return time.Since(l.start) >= l.ttl }
