package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/redis/go-redis/v9"
)

// greeted says why a server has ended a connection that was being made. The server has mostly said so; but
// go-redis goes on after such a refusal, and finds the connection closed. So greeted makes another connection,
// and listens.
func (n *node) greeted(ctx context.Context, client *redis.Client, err error) error {
	if client == nil || ctx.Err() != nil || !hungUp(err) {
		return err
	}
	said := &refusals{}
	asks := plainCopy(client)
	asks.AddHook(said)
	asks.Ping(ctx) //nolint:errcheck // said has heard why
	if said.first != nil {
		return said.first
	}
	return err
}

// hungUp reports whether the other side has ended a connection. go-redis takes some errors out of their wrapping.
func hungUp(err error) bool {
	var op *net.OpError
	var call *os.SyscallError
	if errors.As(err, &op) {
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.As(err, &call)
}

// refusals is a hook that keeps the first error reply.
type refusals struct{ first redis.Error }

func (r *refusals) hear(err error) error {
	if r.first == nil {
		errors.As(err, &r.first)
	}
	return err
}

func (r *refusals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return r.hear(next(ctx, cmd)) }
}

func (r *refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return r.hear(next(ctx, cmds)) }
}

// unauthenticated says what the server's refusal means: it answers long commands of a connection that has
// not logged in by "ERR Protocol error: unauthenticated multibulk length".
func unauthenticated(said error) error {
	return fmt.Errorf("the server wants a password: %w", said)
}
