package fencing

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/gomodule/redigo/redis"
)

//go:embed touch.lua
var touchLua string

var touch = redis.NewScript(1, touchLua)

// Redis keeps each item in a hash with the fields value, fence and owner. It may be
// another Redis than the lock's.
type Redis struct{ Pool *redis.Pool }

// Read returns the value of id, "" if it has none. From now on earlier holders are
// refused.
func (s Redis) Read(ctx context.Context, id string, h Holder) (value string, err error) {
	return s.touch(ctx, id, h)
}

// Write sets the value of id. After any error but ErrStale, and that of a Holder which is
// none, nobody knows whether it took effect.
func (s Redis) Write(ctx context.Context, id, value string, h Holder) error {
	_, err := s.touch(ctx, id, h, value)
	return err
}

// touch is one run of the script: a read, or with a value a write.
func (s Redis) touch(ctx context.Context, id string, h Holder, value ...any) (string, error) {
	if err := h.check(); err != nil {
		return "", err
	}
	conn, err := s.Pool.GetContext(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	reply, err := touch.DoContext(ctx, conn, append([]any{"item:" + id, h.Fence, h.Owner}, value...)...)
	if last, ok := reply.(int64); ok {
		return "", fmt.Errorf("%q, fence %d after %d: %w", id, h.Fence, last, ErrStale)
	}
	return redis.String(reply, err)
}
