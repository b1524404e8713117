// The whole suite on one etcd, or on what ETCD_ENDPOINTS names.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/strategy"
)

func TestConformance(t *testing.T) { // not parallel: some trials look at the whole process
	conformance.Run(t, subject(t, "etcd", endpoints(t)))
}

// subject is the lock on these servers.
func subject(t *testing.T, name string, servers []string) conformance.Subject {
	t.Helper()
	admin := clientOf(t, servers)
	var watches breaker
	opens := func(o strategy.Options) (strategy.Strategy, error) { return open(o, servers, watches.option()) }
	return conformance.Subject{
		Name: name,
		Open: opens,
		OpenSkewed: func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) {
			return opens(o) // the lock takes no clock from its contenders
		},
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return open(o, servers, append(gated(g), watches.option())...)
		},
		Evict: func(ctx context.Context, key string) error {
			resp, err := admin.Get(ctx, keysOf(key).holder)
			if err != nil || len(resp.Kvs) == 0 {
				return err
			}
			if id := resp.Kvs[0].Lease; id != 0 { // what the leader does when it has ended
				_, err = admin.Revoke(ctx, clientv3.LeaseID(id))
				return err
			}
			_, err = admin.Delete(ctx, keysOf(key).holder)
			return err
		},
		BreakWatches: func(context.Context, string) error { watches.breakAll(); return nil },
		Spoil: func(ctx context.Context, key string) error {
			_, err := admin.Put(ctx, keysOf(key).holder, "somebody's")
			return err
		},
		Leftovers: func(ctx context.Context, key string) ([]string, error) {
			k, left := keysOf(key), []string(nil)
			for _, begin := range []string{k.holder, k.queue} {
				resp, err := admin.Get(ctx, begin, clientv3.WithPrefix())
				if err != nil {
					return nil, err
				}
				for _, kv := range resp.Kvs {
					left = append(left, fmt.Sprintf("%q", kv.Key))
				}
			}
			return left, nil
		},
		ChildEnv: storetest.Given(storetest.EtcdEnv, strings.Join(servers, ",")),
		TTL:      shortTTL(t),
		Fenced:   true,
		Fair:     true,
	}
}

// A breaker ends watches as a member does that has no leader.
type breaker struct {
	mu    sync.Mutex
	round chan struct{} // closed by the next breakAll
}

func (b *breaker) option() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		if err != nil || !strings.HasSuffix(method, "/Watch") {
			return stream, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.round == nil {
			b.round = make(chan struct{})
		}
		return breakable{stream, b.round}, nil
	})
}

func (b *breaker) breakAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.round != nil {
		close(b.round)
		b.round = nil
	}
}

type breakable struct {
	grpc.ClientStream
	broken <-chan struct{}
}

func (s breakable) RecvMsg(m any) error {
	received := make(chan error, 1)
	go func() { received <- s.ClientStream.RecvMsg(m) }()
	select {
	case err := <-received:
		return err
	case <-s.broken:
		return errors.New("broken by the test")
	}
}
