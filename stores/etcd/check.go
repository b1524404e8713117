package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/strategy"
)

// checkAnswer is how long Check waits for a member's answer.
const checkAnswer = 5 * time.Second

// Check asks each endpoint how it is, and then whether the user may do what locks need, and how long a lease lasts.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	d, end, err := p.begin(ctx, time.Now().Add(2*checkAnswer))
	if err != nil {
		return err
	}
	defer end()
	endpoints := p.client.Endpoints()
	errs := make([]error, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() { errs[i] = d.checkMember(endpoint) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.Join(d.checkRights(o), d.checkTTL(o))
}

func (d dialog) checkMember(endpoint string) error {
	ctx, cancel := context.WithTimeout(d, checkAnswer)
	defer cancel()
	one := d
	one.Context = ctx
	status, err := d.p.client.Status(ctx, endpoint)
	wrong := ""
	switch {
	case err != nil:
		return fmt.Errorf("%s: no answer from the member: %w", shown(endpoint), one.wrap(err))
	case status.IsLearner:
		wrong = "the member is a learner, which serves no locks: leave it out of the client's Endpoints"
	case status.Leader == 0:
		wrong = "the member has no leader: most members are down, or cut off from it"
	case len(status.Errors) > 0:
		wrong = fmt.Sprintf("the member reports %s: see etcdctl alarm list", strings.Join(status.Errors, ", "))
	case older(status.Version, 3, 4):
		wrong = fmt.Sprintf("the member is etcd %s: locks need 3.4 or later", status.Version)
	default:
		return nil
	}
	return fmt.Errorf("%s: %w", shown(endpoint), d.failed(strategy.ErrRefused, errors.New(wrong)))
}

// older reports whether a version is before that one. One that cannot be read is not.
func older(version string, major, minor int) bool {
	var v [2]int
	for i, part := range strings.SplitN(version, ".", 3)[:min(2, strings.Count(version, ".")+1)] {
		n, err := strconv.Atoi(part)
		if err != nil {
			return false
		}
		v[i] = n
	}
	return v[0] < major || v[0] == major && v[1] < minor
}

// checkRights names all that locks do, in a transaction whose conditions never hold: etcd looks at the user's rights first.
func (d dialog) checkRights(o strategy.Options) error {
	k := keysOf(o.Key("check"))
	place := k.queue + "check"
	never := []clientv3.Cmp{clientv3.Compare(clientv3.Version(k.holder), "<", 0), k.nobodyBefore(0)}
	_, err := d.txn(never, []clientv3.Op{
		clientv3.OpPut(k.holder, "", clientv3.WithLease(1)), clientv3.OpPut(place, "", clientv3.WithLease(1)),
	}, []clientv3.Op{
		clientv3.OpTxn(never, []clientv3.Op{k.delete(), clientv3.OpDelete(place)}, []clientv3.Op{k.get(), k.getQueue(clientv3.WithLimit(1))}),
	})
	return err
}

// checkTTL asks for a lease, to see how long etcd makes it last.
func (d dialog) checkTTL(o strategy.Options) error {
	l, err := d.grant(secondsOf(o.TTL))
	if err != nil {
		return err
	}
	if err := d.revoke(l.id); err != nil {
		return err
	}
	if l.ttl > o.TTL {
		return d.failed(strategy.ErrRefused, fmt.Errorf("the minimum TTL is %v, because of --election-timeout: set Options.TTL, which is %v, to that or more", l.ttl, o.TTL))
	}
	return nil
}
