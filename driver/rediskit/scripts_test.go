// Every branch of rights.lua: which commands it finds forbidden, and what it leaves. Tests in
// internal/testkit/subjects show that it finds the servers' own refusals in this way.
package rediskit_test

import (
	"testing"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/scripttest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestRightsScript(t *testing.T) {
	const all = "free GET SET PEXPIRE PEXPIREAT LINDEX LPOS LREM RPUSH HGET HMGET HDEL HSET TIME PUBLISH DEL"
	const same = scripttest.Same
	scripttest.RunAnywhere(t, rediskit.Rights, []scripttest.Row{
		{Name: "all is allowed", Keys: "k", Args: all, Reply: "[]", After: same},
		{Name: "some are forbidden", Keys: "k", Args: all, Forbid: "SET/k RPUSH TIME PUBLISH/free", Reply: "[SET '' RPUSH '' TIME '' PUBLISH '']", After: same},
		{Name: "one is unknown", Keys: "k", Args: "free GET NOSUCH SET", Reply: "[NOSUCH 'the server has no such command']", After: same},
		{Name: "another key is forbidden", Keys: "k", Args: all, Forbid: "SET/other", Reply: "[]", After: same},
		{Name: "all is allowed, before Redis 7.0", Old: true, Keys: "k", Args: all, Reply: "[]", After: same,
			Runs:  "GET SET PEXPIRE PEXPIREAT LINDEX LPOS LREM LPOP RPUSH LPOP HGET HMGET HDEL DEL HSET DEL TIME PUBLISH DEL",
			Heard: "free ''"},
		{Name: "some are forbidden, before Redis 7.0", Old: true, Keys: "k", Args: "free GET SET RPUSH HSET TIME", Forbid: "SET/k RPUSH TIME",
			Reply: "[SET 'NOPERM forbidden' RPUSH 'NOPERM forbidden' TIME 'NOPERM forbidden']", After: same},
		{Name: "what cannot be undone is not tried, before Redis 7.0", Old: true, Keys: "k", Args: "free RPUSH LPOP HSET DEL", Forbid: "DEL LPOP",
			Reply: "[LPOP 'NOPERM forbidden' DEL 'NOPERM forbidden']", After: same, Runs: "LPOP LPOP DEL DEL"},
		{Name: "nothing is asked", Keys: "k", Args: "free", Reply: "[]", After: same},
	})
}
