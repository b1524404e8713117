package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Inspect reads the holder and the queue in one step, and then how long the holder's lease lasts.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	d, end, err := p.begin(ctx, c.Due)
	if err != nil {
		return strategy.Info{}, err
	}
	defer end()
	k := keysOf(c.Key)
	resp, err := d.read([]clientv3.Op{k.get(), k.getQueue()})
	if err != nil {
		return strategy.Info{}, err
	}
	var info strategy.Info
	for _, kv := range kvs(resp, 1) {
		info.Queue = append(info.Queue, k.tokenOf(kv))
	}
	if len(kvs(resp, 0)) == 0 {
		return info, nil
	}
	h, ok := holderOf(kvs(resp, 0)[0])
	if !ok {
		return strategy.Info{}, d.notLock(k)
	}
	info.Held, info.Token, info.Fence, info.TTL = true, h.token, h.fence, d.remaining(h.lease)
	return info, nil
}

// listTime bounds List.
const listTime = 10 * time.Second

// List returns the keys of all locks that somebody holds and whose keys begin with prefix, sorted by their bytes in etcd: with
// [strategy.DefaultKey] that is lock:{name} for each, and the prefix lock:{ has all. Inspect says who holds one. The user needs
// the right to read all keys that begin so. It ends after 10 s at the latest. An error of the servers is a
// *[strategy.ServerError].
func List(ctx context.Context, client *clientv3.Client, prefix string) (keys []string, err error) {
	d, end, err := On(client).(*protocol).begin(ctx, time.Now().Add(listTime))
	if err != nil {
		return nil, err
	}
	defer end()
	resp, err := d.read([]clientv3.Op{clientv3.OpGet(escape(prefix), clientv3.WithPrefix())})
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs(resp, 0) {
		if _, ok := holderOf(kv); ok { // others are places in queues, or not of locks
			keys = append(keys, unescape(string(kv.Key)))
		}
	}
	return keys, nil
}
