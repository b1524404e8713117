// Gates before the servers, for the suite and for tests that lose or delay requests.
package etcd

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstrategies/locks/conformance"
)

// lateLimit bounds a request whose caller waits no longer.
const lateLimit = 10 * time.Second

// gated makes each request of a client pass the gate: see [conformance.Gate]. A message on the stream of renewals is a request,
// and so is the beginning of any other stream.
func gated(gate conformance.Gate) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return pass(ctx, gate, method, func() error {
				return invoke(ctx, method, req, reply, cc, opts...)
			}, func(ctx context.Context) {
				_ = invoke(ctx, method, req, reflect.New(reflect.TypeOf(reply).Elem()).Interface(), cc) // nobody hears of it
			})
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (stream grpc.ClientStream, err error) {
			if strings.HasSuffix(method, "LeaseKeepAlive") {
				if stream, err = open(ctx, desc, cc, method, opts...); err != nil {
					return nil, err
				}
				return gatedStream{stream, gate, func(ctx context.Context) (grpc.ClientStream, error) {
					return open(ctx, desc, cc, method)
				}}, nil
			}
			err = pass(ctx, gate, method, func() (err error) {
				stream, err = open(ctx, desc, cc, method, opts...)
				return err
			}, nil)
			if err != nil {
				return nil, err
			}
			return stream, nil
		}),
	}
}

// gatedStream is a stream of renewals.
type gatedStream struct {
	grpc.ClientStream
	gate conformance.Gate
	open func(context.Context) (grpc.ClientStream, error)
}

func (s gatedStream) SendMsg(m any) error {
	return pass(s.Context(), s.gate, "LeaseKeepAlive", func() error { return s.ClientStream.SendMsg(m) }, func(ctx context.Context) {
		if late, err := s.open(ctx); err == nil {
			_ = late.SendMsg(m)
			_ = late.RecvMsg(new(etcdserverpb.LeaseKeepAliveResponse))
		}
	})
}

// pass brings a request past the gate. Its caller waits no longer than ctx lasts; a request that leaves after that is made by
// late, if there is one.
func pass(ctx context.Context, gate conformance.Gate, request string, ask func() error, late func(context.Context)) error {
	if ctx.Err() != nil {
		return ask() // it does not leave
	}
	var mu sync.Mutex
	left, abandoned := false, false // the request; its caller
	answered, passed := make(chan struct{}), make(chan struct{})
	var err error
	go func() {
		defer close(passed)
		gate(request[strings.LastIndex(request, "/")+1:], func() {
			mu.Lock()
			again, tooLate := left, abandoned
			left = true
			mu.Unlock()
			switch {
			case again: // the client never sends twice
			case !tooLate:
				err = ask()
				close(answered)
			case late != nil:
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateLimit)
				defer cancel()
				late(ctx)
			}
		})
	}()
	select {
	case <-passed:
	case <-ctx.Done():
	}
	mu.Lock()
	abandoned = !left
	mu.Unlock()
	if !abandoned {
		<-answered // soon: ctx has ended, if the gate has not returned
	}
	select {
	case <-passed:
	default:
		if err == nil || abandoned {
			return status.FromContextError(ctx.Err()).Err() // the reply is lost
		}
	}
	if abandoned {
		return status.Error(codes.Unavailable, "the gate did not let it pass")
	}
	return err
}
