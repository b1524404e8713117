package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Extend renews the lease, and then looks whether the holder's key is still of this hold. etcd counts the TTL of the lease's grant
// again, whatever the claim says: at the end of a maximum hold the engine undoes the claim.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	return d.extend(c, holdOf(c))
}

// extend tries twice: if the leader changes, the first renewal may not count.
func (d dialog) extend(c driver.Claim, h hold) (g driver.Grant, err error) {
	for range 2 {
		d.extendAll([]driver.Claim{c}, []hold{h}, func(_ int, granted driver.Grant, failed error) { g, err = granted, failed })
		if !errors.Is(err, errLeader) {
			break
		}
	}
	return g, err
}

var errLeader = errors.New("the leader changed during the renewal, so it may not count")

// mostTogether is how many holds one transaction looks at. etcd allows 128 operations (--max-txn-ops).
const mostTogether = 64

// mostAtOnce is how many such groups are under way at a time.
const mostAtOnce = 4

// ExtendAll renews each lease, as many as 256 at a time, and looks at 64 holders' keys in one request. Holds that are due at different
// times are no group: one whose deadline is near must not cut the others short.
func (p *protocol) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	order := make([]int, len(cs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cs[a].Due.Compare(cs[b].Due) })
	var all sync.WaitGroup
	slots := make(chan struct{}, mostAtOnce)
	for len(order) > 0 {
		n := 1
		for n < min(len(order), mostTogether) && cs[order[n]].Due.Equal(cs[order[0]].Due) {
			n++
		}
		group := order[:n]
		order = order[n:]
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			p.extendGroup(ctx, cs, group, done)
		})
	}
	all.Wait()
}

// extendGroup is ExtendAll for the claims of these numbers.
func (p *protocol) extendGroup(ctx context.Context, cs []driver.Claim, group []int, done func(int, driver.Grant, error)) {
	d, end, err := p.begin(ctx, cs[group[0]].Due)
	if err != nil {
		for _, i := range group {
			done(i, driver.Grant{}, err)
		}
		return
	}
	defer end()
	claims, holds := make([]driver.Claim, len(group)), make([]hold, len(group))
	for n, i := range group {
		claims[n], holds[n] = cs[i], holdOf(cs[i])
	}
	d.extendAll(claims, holds, func(n int, g driver.Grant, err error) { done(group[n], g, err) })
}

// extendAll renews the leases at the same time, for two thirds of the time at most, and then reads all holders' keys in one step. A renewal
// that gets no answer takes from the others no time for the read, which proves that they count: see lease.counts.
func (d dialog) extendAll(cs []driver.Claim, holds []hold, done func(int, driver.Grant, error)) {
	early := d
	early.due = time.Now().Add(time.Until(d.due) * 2 / 3)
	var cancel context.CancelFunc
	early.Context, cancel = context.WithDeadline(d, early.due)
	defer cancel()
	errs := make([]error, len(cs))
	reads := make([]clientv3.Op, len(cs))
	var all sync.WaitGroup
	for i, c := range cs {
		reads[i] = keysOf(c.Key).get()
		all.Go(func() { holds[i].lease, errs[i] = early.renewTwice(holds[i].lease) })
	}
	all.Wait()
	resp, err := d.read(reads)
	for i, c := range cs {
		ended := errors.Is(errs[i], rpctypes.ErrLeaseNotFound)
		switch {
		case err != nil:
			done(i, driver.Grant{}, err)
			continue
		case errs[i] != nil && !ended:
			done(i, driver.Grant{}, d.wrap(errs[i]))
			continue
		}
		h, found := holds[i], kvs(resp, i)
		switch {
		case len(found) == 0, found[0].ModRevision != h.rev:
			done(i, driver.Grant{}, d.lost(c, keysOf(c.Key), found))
		case ended: // the key ends with it, in a moment
			done(i, driver.Grant{}, &strategy.LostError{Name: c.Name})
		case !h.lease.counts(resp.Header.RaftTerm):
			done(i, driver.Grant{}, d.failed(strategy.ErrUnknown, errLeader))
		default:
			done(i, driver.Grant{Start: h.lease.start, TTL: h.lease.ttl, State: h}, nil)
		}
	}
}
