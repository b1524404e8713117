// Tests what each failure says of the lock, and that a request that may have been taken in is sent once.
package etcd

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstrategies/locks/strategy"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	p := On(clientOf(t, []string{"127.0.0.1:1"})).(*protocol)
	d, end, err := p.begin(t.Context(), claimOf("x", "y").Due)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, x := range []struct {
		err   error
		kind  error
		words string // what to do about it
	}{
		{rpctypes.ErrGRPCNoSpace, strategy.ErrRefused, "alarm NOSPACE"},
		{rpctypes.ErrGRPCRequestTooManyRequests, strategy.ErrRefused, "overloaded"},
		{rpctypes.ErrGRPCPermissionDenied, strategy.ErrRefused, "readwrite"},
		{rpctypes.ErrGRPCUserEmpty, strategy.ErrRefused, "Username"},
		{rpctypes.ErrGRPCAuthFailed, strategy.ErrRefused, ""},
		{rpctypes.ErrGRPCInvalidAuthToken, strategy.ErrRefused, ""},
		{rpctypes.ErrGRPCNoLeader, strategy.ErrRefused, "most members"},
		{rpctypes.ErrGRPCLeaseNotFound, strategy.ErrRefused, ""},
		{rpctypes.ErrGRPCRequestTooLarge, strategy.ErrRefused, ""},
		{rpctypes.ErrGRPCCorrupt, strategy.ErrRefused, ""},
		{rpctypes.ErrGRPCNotCapable, strategy.ErrRefused, ""},
		{rpctypes.ErrGRPCTimeout, strategy.ErrUnknown, ""},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, strategy.ErrUnknown, ""},
		{rpctypes.ErrGRPCTimeoutDueToConnectionLost, strategy.ErrUnknown, ""},
		{rpctypes.ErrGRPCLeaderChanged, strategy.ErrUnknown, ""},
		{rpctypes.ErrGRPCStopped, strategy.ErrUnknown, ""},
		{status.Error(codes.Unavailable, "transport is closing"), strategy.ErrUnknown, ""},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max"), strategy.ErrUnknown, ""},
		{status.Error(codes.Internal, "stream terminated"), strategy.ErrUnknown, ""},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), strategy.ErrUnknown, ""},
		{context.Canceled, strategy.ErrUnknown, ""},
		{errors.New("something else"), strategy.ErrUnknown, ""},
	} {
		got := d.wrap(x.err)
		for _, kind := range []error{strategy.ErrRefused, strategy.ErrUnknown, strategy.ErrUnsent} {
			if errors.Is(got, kind) != (kind == x.kind) {
				t.Errorf("%v becomes %v, want %v", x.err, got, x.kind)
			}
		}
		if !strings.Contains(got.Error(), x.words) || !strings.Contains(got.Error(), "127.0.0.1:1") {
			t.Errorf("%v becomes %v, want %q and the server's name in it", x.err, got, x.words)
		}
	}
}

// losing breaks the connection after each transaction, before its reply.
func losing(asked *atomic.Int32) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if strings.HasSuffix(method, "/Txn") && err == nil {
			asked.Add(1)
			return status.Error(codes.Unavailable, "transport is closing")
		}
		return err
	})
}

// TestReplyLost: the client must not repeat what may have been done, and the undo takes it back.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	lossy, sound := On(clientOf(t, endpoints(t), losing(&asked))), clientOf(t, endpoints(t))
	key := keyOf(t)
	c := claimOf(key, "token")
	g, err := lossy.Acquire(t.Context(), c)
	if !errors.Is(err, strategy.ErrUnknown) {
		t.Fatalf("Acquire() = %v, want ErrUnknown", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the transaction was sent %d times, want once", n)
	}
	if resp, err := sound.Get(t.Context(), keysOf(key).holder); err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("etcd has %d keys (%v), want the one whose reply was lost", len(resp.Kvs), err)
	}
	c.Grant = g
	if err := lossy.Undo(t.Context(), c); err != nil {
		t.Fatalf("Undo() = %v, want nil", err)
	}
	nothing(t, sound, key, "after the undo")

	held := must(t, On(sound), claimOf(key, "another"))
	if _, err := lossy.Release(t.Context(), held); !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("Release() = %v, want ErrUnknown", err)
	}
	if err := lossy.Undo(t.Context(), held); err != nil {
		t.Errorf("Undo() = %v, want nil: the lock is released", err)
	}
}
