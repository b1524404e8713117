// Tests what locks says of servers that locks cannot rely on: locks check, and the warnings of exec and inspect.
package main

import (
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
)

// TestCheck: of each strategy.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms() {
		t.Run(a.name, func(t *testing.T) {
			flags := onServers(t, a)
			t.Parallel()
			if out := toolFor(t, nil, append([]string{"check"}, flags...)...).start().wantEnd(0); out != "ready for "+a.name+" locks\n" {
				t.Errorf("it says %q", out)
			}
		})
	}
	toolFor(t, nil, "check", "--redis", "127.0.0.1:1").start().wantEnd(69, "127.0.0.1:1: not sent: ", "connection refused")
}

// TestUnreliable: a server that may evict keys, and a replica.
func TestUnreliable(t *testing.T) {
	t.Parallel()
	s, name := redistest.Own(t, redistest.Config{}), newName(t)
	redistest.Do(t, s, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	const evicts = "may evict locks (maxmemory-policy allkeys-lru): set it to noeviction"
	toolFor(t, s, "check").start().wantEnd(69, evicts)
	if out := toolFor(t, s, "exec", name, "--", "echo", "ran").start().wantEnd(0, "locks: warning: ", evicts); out != "ran\n" {
		t.Errorf("it printed %q, want ran", out)
	}
	toolFor(t, s, "exec", name, "-q", "--", "echo", "ran").start().wantEnd(0)
	toolFor(t, s, "exec", name, "--strict", "--", "echo", "ran").start().wantEnd(69, evicts)
	if out := toolFor(t, s, "inspect", name).start().wantEnd(0, "locks: warning: ", evicts); !strings.Contains(out, "nobody") {
		t.Errorf("it says\n%s", out)
	}
	toolFor(t, s, "inspect", name, "--strict").start().wantEnd(69, evicts)

	redistest.Do(t, s, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	redistest.Do(t, s, "REPLICAOF", "127.0.0.1", "1")
	toolFor(t, s, "inspect", name).start().wantEnd(0, "is a slave: give the address of the primary")
}
