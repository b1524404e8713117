package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A dialog is a call of the protocol, which may ask etcd several times. Its context ends at due. A member that has no leader
// refuses it at once, and does not let it wait.
type dialog struct {
	p *protocol
	context.Context
	due time.Time
}

// begin makes a dialog, unless its time is over: then nothing is sent.
func (p *protocol) begin(ctx context.Context, due time.Time) (d dialog, end func(), err error) {
	d = dialog{p, ctx, due}
	switch {
	case p.fault != nil:
		return d, nil, p.fault
	case timeup.Over(ctx) || !due.IsZero() && !time.Now().Before(due):
		return d, nil, d.failed(strategy.ErrUnsent, nil)
	case due.IsZero():
		d.due = time.Now().Add(24 * time.Hour)
	}
	d.Context, end = context.WithDeadline(clientv3.WithRequireLeader(ctx), d.due)
	return d, end, nil
}

// txn makes a transaction that writes: one step, for all members. It is sent once. If it were sent again, the first could be answered, and
// the second take effect after what the caller does next.
func (d dialog) txn(conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	if d.p.silent.Swap(false) && rand.N(2) == 0 {
		d.read(nil) // for nothing but the rhythm: see silent
	}
	resp, err := d.commit(d, conditions, then, otherwise)
	if errors.Is(err, context.DeadlineExceeded) {
		d.p.silent.Store(true)
	}
	if err != nil {
		return nil, d.wrap(err)
	}
	return resp, nil
}

// read makes a transaction that only reads.
func (d dialog) read(ops []clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	err = d.twice(func(ctx context.Context) error {
		resp, err = d.commit(ctx, nil, ops, nil)
		return err
	})
	if err != nil {
		return nil, d.wrap(err)
	}
	return resp, nil
}

func (d dialog) commit(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	for range 2 {
		resp, err = d.p.client.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
		if !errors.Is(err, rpctypes.ErrNoLeader) { // this member has not taken it in, and another may have a leader
			break
		}
	}
	return resp, err
}

// twice asks what may be asked again: a second time when half of the time is over, because then the member may be silent. The client
// asks the members in turn.
func (d dialog) twice(ask func(ctx context.Context) error) error {
	half, cancel := context.WithTimeout(d, time.Until(d.due)/2)
	defer cancel()
	err := ask(half)
	if err == nil || half.Err() == nil || timeup.Over(d) {
		return err
	}
	return ask(d)
}

// wrap says what became of a request that ended with an error.
func (d dialog) wrap(err error) error {
	kind := strategy.ErrUnknown
	if refused(err) {
		kind = strategy.ErrRefused
	}
	return d.failed(kind, err)
}

func (d dialog) failed(kind, err error) error {
	why := timeup.Why(d.Context, d.due)
	switch {
	case kind == strategy.ErrRefused:
		err = advise(err)
	case why != nil && err != nil:
		err = timeup.Before(why, err)
	case why != nil:
		err = why
	}
	return &strategy.ServerError{Node: d.p.name(), Kind: kind, Err: err}
}

// unsent is the error of a call that failed before it asked for the lock itself: of the lock nothing has changed. A lease that
// etcd may have granted ends by itself, and nothing hangs on it.
func unsent(err error) error {
	var server *strategy.ServerError
	if errors.As(err, &server) && server.Kind == strategy.ErrUnknown {
		return &strategy.ServerError{Node: server.Node, Kind: strategy.ErrUnsent, Err: fmt.Errorf("no lease: %w", server.Err)}
	}
	return err
}

// refused reports whether a member has answered that the request did nothing. The code Unavailable says so only if the member knows
// no leader. Otherwise it may have taken the request in, and so may one whose connection broke.
func refused(err error) bool {
	var server rpctypes.EtcdError
	if !errors.As(rpctypes.Error(err), &server) {
		return false
	}
	return server.Code() != codes.Unavailable || errors.Is(server, rpctypes.ErrNoLeader) || errors.Is(server, rpctypes.ErrNotCapable)
}

// advise adds to a refusal what somebody can do about it.
func advise(err error) error {
	for refusal, advice := range map[error]string{
		rpctypes.ErrNoSpace:          "compact and defragment etcd or raise --quota-backend-bytes, then disarm the alarm NOSPACE; releases work meanwhile",
		rpctypes.ErrPermissionDenied: "grant the user readwrite on all keys that begin with those of its locks",
		rpctypes.ErrUserEmpty:        "etcd demands a user: set Username and Password of the client",
		rpctypes.ErrNoLeader:         "most members are down, or cut off from this one",
		rpctypes.ErrTooManyRequests:  "the members are overloaded: they apply less than is asked for",
	} {
		if errors.Is(rpctypes.Error(err), refusal) {
			return fmt.Errorf("%w (%s)", err, advice)
		}
	}
	return err
}

// name is the endpoints.
func (p *protocol) name() string {
	endpoints := p.client.Endpoints()
	for i, e := range endpoints {
		endpoints[i] = shown(e)
	}
	return "etcd " + strings.Join(endpoints, ",")
}

// shown is an endpoint without the password that a URL may have.
func shown(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return u.Host
	}
	return endpoint
}

// notLock is the refusal of a key that has something else.
func (d dialog) notLock(k keys) error {
	return d.failed(strategy.ErrRefused, fmt.Errorf("the key %q is not a lock of this package: it has another value, or no lease", k.holder))
}

// lost is how a hold has ended, if kvs are what the holder's key has now.
func (d dialog) lost(c driver.Claim, k keys, kvs []*mvccpb.KeyValue) error {
	lost := &strategy.LostError{Name: c.Name}
	if len(kvs) > 0 {
		h, ok := holderOf(kvs[0])
		if !ok {
			return d.notLock(k)
		}
		lost.Holder = h.token
	}
	return lost
}

// kvs are what the i-th read of a transaction has found.
func kvs(resp *clientv3.TxnResponse, i int) []*mvccpb.KeyValue {
	for _, r := range resp.Responses {
		if found := r.GetResponseRange(); found != nil {
			if i == 0 {
				return found.Kvs
			}
			i--
		}
	}
	return nil
}
