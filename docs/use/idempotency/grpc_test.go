// Tests what a gRPC client gets that calls with a key once or twice, or while locks fail, and how often the handler
// then runs: called as gRPC calls it, and once through a real server.
package idempotency_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/lockstrategies/locks/docs/use/idempotency"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

const method = "/grpc.health.v1.Health/Check"

// A clinic is a service whose handler counts its runs. It serves in its first run alone.
type clinic struct {
	health.UnimplementedHealthServer
	locks  *lockstest.Locks
	unary  grpc.UnaryServerInterceptor
	runs   int
	during func(ctx context.Context) error
}

func openClinic(t *testing.T) *clinic {
	c := &clinic{locks: lockstest.New(t)}
	o := &idempotency.Once{Locks: c.locks, Answers: inMemory()}
	c.unary = o.Unary(func(context.Context) string { return "ann" }, method)
	return c
}

func (c *clinic) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	c.runs++
	run := c.runs
	if c.during != nil {
		if err := c.during(ctx); err != nil {
			return nil, err
		}
	}
	if run > 1 {
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

// call calls the interceptor as gRPC does.
func (c *clinic) call(ctx context.Context, method, service string, keys ...string) (any, error) {
	ctx = metadata.NewIncomingContext(ctx, metadata.MD{"idempotency-key": keys})
	request := &health.HealthCheckRequest{Service: service}
	return c.unary(ctx, request, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, req any) (any, error) {
		return c.Check(ctx, req.(*health.HealthCheckRequest))
	})
}

// gets checks the reply, which is that of run n, or the error.
func (c *clinic) gets(t *testing.T, reply any, err error, run int, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("the error is %v, want %v", err, code)
	}
	want := health.HealthCheckResponse_NOT_SERVING
	if run == 1 {
		want = health.HealthCheckResponse_SERVING
	}
	if code == codes.OK && !proto.Equal(reply.(proto.Message), &health.HealthCheckResponse{Status: want}) {
		t.Errorf("the reply is %v, want that of run %d", reply, run)
	}
}

func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openClinic(t)
		for i, tt := range []struct {
			method, service string
			keys            []string
			run             int
			want            codes.Code
			runs            int // in the end
		}{
			{method, "a", nil, 0, codes.InvalidArgument, 0},
			{method, "a", []string{"a b"}, 0, codes.InvalidArgument, 0},
			{method, "a", []string{"k1"}, 1, codes.OK, 1},
			{method, "a", []string{"k1"}, 1, codes.OK, 1},
			{method, "b", []string{"k1"}, 0, codes.FailedPrecondition, 1},
			{"/another/Method", "a", nil, 2, codes.OK, 2}, // it needs no key
			{"/another/Method", "a", []string{"k1"}, 3, codes.OK, 3},
			{method, "a", []string{"k2"}, 4, codes.OK, 4},
		} {
			reply, err := c.call(t.Context(), tt.method, tt.service, tt.keys...)
			c.gets(t, reply, err, tt.run, tt.want)
			if c.runs != tt.runs {
				t.Errorf("call %d: the handler has run %d times, want %d", i, c.runs, tt.runs)
			}
		}
	})
}

// TestCallErrors: the handler's error is kept with all that it says, unless it says that nothing was done.
func TestCallErrors(t *testing.T) {
	detailed, err := status.New(codes.NotFound, "no such account \xff").WithDetails(&health.HealthCheckRequest{Service: "detail"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		err  error
		code codes.Code
		runs int
	}{
		"a status":       {detailed.Err(), codes.NotFound, 1},
		"any error":      {errStore, codes.Unknown, 1},
		"nothing done":   {status.Error(codes.Unavailable, "busy"), codes.Unavailable, 2},
		"a wrapped one":  {fmt.Errorf("pay: %w", status.Error(codes.Unavailable, "busy")), codes.Unavailable, 2},
		"not this lock":  {strategy.ErrHeld, codes.Unknown, 1},
		"a context's":    {context.Canceled, codes.Canceled, 1},
		"out of a limit": {status.Error(codes.ResourceExhausted, "quota"), codes.ResourceExhausted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openClinic(t)
				c.during = func(context.Context) error { return tt.err }
				var before error
				for range 2 {
					_, err := c.call(t.Context(), method, "a", "k1")
					if status.Code(err) != tt.code || before != nil && err.Error() != before.Error() {
						t.Errorf("the error is %v, after %v, want %v", err, before, tt.code)
					}
					before = err
				}
				if c.runs != tt.runs {
					t.Errorf("the handler ran %d times, want %d", c.runs, tt.runs)
				}
				if details := status.Convert(before).Details(); (len(details) == 1) != (name == "a status") {
					t.Errorf("the error has the details %v", details)
				}
			})
		})
	}
}

func TestCallFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lock = "idempotency/ann/k1"
		c := openClinic(t)
		release := c.locks.Hold(lock)
		_, err := c.call(t.Context(), method, "a", "k1")
		c.gets(t, nil, err, 0, codes.Aborted)
		release()
		c.locks.FailNext(lockstest.Unreachable)
		_, err = c.call(t.Context(), method, "a", "k1")
		c.gets(t, nil, err, 0, codes.Unavailable)
		if c.runs != 0 {
			t.Errorf("the handler ran %d times, want 0", c.runs)
		}
		c.during = func(ctx context.Context) error { c.locks.Lose(lock); return context.Cause(ctx) }
		_, err = c.call(t.Context(), method, "a", "k1")
		c.gets(t, nil, err, 0, codes.Unavailable)
		c.during = func(context.Context) error {
			c.during = nil
			c.locks.Advance(time.Minute) // past its TTL
			reply, err := c.call(t.Context(), method, "a", "k1")
			c.gets(t, reply, err, 3, codes.OK)
			return nil
		}
		_, err = c.call(t.Context(), method, "a", "k1")
		c.gets(t, nil, err, 0, codes.Unavailable)
		reply, err := c.call(t.Context(), method, "a", "k1")
		c.gets(t, reply, err, 3, codes.OK)
	})
}

// TestServer: a client and a server that talk over a connection in memory.
func TestServer(t *testing.T) {
	c := openClinic(t)
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.UnaryInterceptor(c.unary))
	health.RegisterHealthServer(server, c)
	go server.Serve(listener) //nolint:errcheck // it ends with Stop
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := health.NewHealthClient(conn)
	_, err = client.Check(t.Context(), &health.HealthCheckRequest{})
	c.gets(t, nil, err, 0, codes.InvalidArgument)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "Idempotency-Key", "k1")
	for range 2 {
		reply, err := client.Check(ctx, &health.HealthCheckRequest{})
		c.gets(t, reply, err, 1, codes.OK)
	}
	if c.runs != 1 {
		t.Errorf("the handler ran %d times, want once", c.runs)
	}
}
