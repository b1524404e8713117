package etcd

import (
	"context"

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
