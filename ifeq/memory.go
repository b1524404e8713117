package ifeq

import (
	"context"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/algorithm/stringkey"
)

// extendWithoutMemory is Extend as a transaction: Redis allows PEXPIRE also when its memory is full. EXEC
// does nothing if the key was written, or has expired, since the WATCH.
func (p *protocol) extendWithoutMemory(ctx context.Context, c driver.Claim) error {
	return p.Session(ctx, c.Due, c.Key, func(conn driver.Conn) error {
		for {
			if err := stringkey.Expect(conn, p.Name(), "OK", "WATCH", c.Key); err != nil {
				return err
			}
			reply, err := conn.Do("GETEX", c.Key)
			if err != nil {
				return err
			}
			if holder, ok := reply.([]byte); !ok || string(holder) != c.Token {
				return rediskit.LostReply(p.Name(), c, reply)
			}
			if err := stringkey.Expect(conn, p.Name(), "OK", "MULTI"); err != nil {
				return err
			}
			if err := stringkey.Expect(conn, p.Name(), "QUEUED", "PEXPIRE", c.Key, c.TTL.Milliseconds()); err != nil {
				return err
			}
			if reply, err = conn.Do("EXEC"); err != nil {
				return err
			}
			if reply == nil {
				continue // somebody has written the key since, or it has expired: look again
			}
			if replies, ok := reply.([]any); ok && len(replies) == 1 && replies[0] == int64(1) {
				return nil
			}
			return rediskit.BadReply(p.Name(), reply)
		}
	})
}
