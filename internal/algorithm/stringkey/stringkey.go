// Package stringkey has what the algorithms without scripts share. Their lock is one string key, which they
// read by single commands, and some of them write in transactions.
package stringkey

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// Holder reads the token in the key, if there is one. GETEX reads as GET does, but a replica refuses it: what a replica has may
// be out of date.
func Holder(ctx context.Context, n driver.Node, c driver.Claim) (token string, held bool, err error) {
	reply, err := n.Do(ctx, c.Due, "GETEX", c.Key)
	if err != nil {
		return "", false, err
	}
	switch r := reply.(type) {
	case nil:
		return "", false, nil
	case []byte:
		return string(r), true, nil
	}
	return "", false, rediskit.BadReply(n.Name(), reply)
}

// Remaining reads how long the key lasts; negative: it has no expiry; 0: there is no key.
func Remaining(ctx context.Context, n driver.Node, c driver.Claim) (time.Duration, error) {
	reply, err := n.Do(ctx, c.Due, "PTTL", c.Key)
	if err != nil {
		return 0, err
	}
	ms, ok := reply.(int64)
	switch {
	case !ok:
		return 0, rediskit.BadReply(n.Name(), reply)
	case ms == -2:
		return 0, nil
	}
	return rediskit.RemainingTTL(ms), nil
}

// Inspect is GETEX and PTTL, two steps: if the lock changes hands between them, it
// returns the token of one holder with the TTL of the other.
func Inspect(ctx context.Context, n driver.Node, c driver.Claim) (strategy.Info, error) {
	holder, held, err := Holder(ctx, n, c)
	if err != nil || !held {
		return strategy.Info{}, err
	}
	ttl, err := Remaining(ctx, n, c)
	if err != nil || ttl == 0 { // it has gone meanwhile
		return strategy.Info{}, err
	}
	return strategy.Info{Held: true, Token: holder, TTL: ttl}, nil
}

// Expect sends a command of a transaction, which has one good answer. server is a name for errors.
func Expect(conn driver.Conn, server, answer, cmd string, args ...any) error {
	reply, err := conn.Do(cmd, args...)
	if err != nil {
		return err
	}
	if text, ok := reply.([]byte); !ok || string(text) != answer {
		return rediskit.BadReply(server, reply)
	}
	return nil
}
