package rig

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
)

// FlushAll deletes every key.
func (n *Node) FlushAll(ctx context.Context) error {
	return n.tell(ctx, n.serving(), "FLUSHALL", "SYNC")
}

// FlushScripts makes the server forget every script.
func (n *Node) FlushScripts(ctx context.Context) error {
	return n.tell(ctx, n.serving(), "SCRIPT", "FLUSH", "SYNC")
}

// freeLimit is how long a server that may be frozen by now is asked to take its memory
// back. Reset undoes what the server does not hear of that.
const freeLimit = 5 * time.Second

// Evict makes Redis run out of memory until it has evicted every key that the policy
// lets it evict, and then gives it memory again. Allowed are the policies of Redis that
// evict: "allkeys-…" takes every key, "volatile-…" every key that has a TTL. A key that is
// written in the meantime goes, too, or the write is refused.
func (n *Node) Evict(ctx context.Context, policy string) error {
	volatile := strings.HasPrefix(policy, "volatile-")
	if !volatile && !strings.HasPrefix(policy, "allkeys-") {
		return fmt.Errorf("rig: policy %q: allowed are volatile-… and allkeys-…, such as volatile-lru", policy)
	}
	s := n.serving()
	err := n.tell(ctx, s, "CONFIG", "SET", "maxmemory-policy", policy)
	if err == nil {
		err = n.tell(ctx, s, "CONFIG", "SET", "maxmemory", 1)
	}
	if err == nil {
		err = poll(ctx, "eviction at "+s.Addr(), func() (bool, error) {
			keys, err := s.Info(ctx, "keyspace") // "db0:keys=1,expires=0,…", nothing for one without keys
			for _, db := range keys {
				if !volatile || !strings.Contains(db, ",expires=0,") {
					return false, err
				}
			}
			return true, err
		})
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeLimit) // given up or not
	defer cancel()
	return errors.Join(err, n.FreeMemory(limit))
}

// FillMemory leaves the server no memory, and nothing that it may evict: what takes
// memory is refused with OOM until FreeMemory.
func (n *Node) FillMemory(ctx context.Context) error {
	s := n.serving()
	if err := n.tell(ctx, s, "CONFIG", "SET", "maxmemory-policy", "noeviction"); err != nil {
		return err
	}
	return n.tell(ctx, s, "CONFIG", "SET", "maxmemory", 1)
}

// FreeMemory gives the server back the memory that it had at its start.
func (n *Node) FreeMemory(ctx context.Context) error {
	s := n.serving()
	for _, k := range []string{"maxmemory", "maxmemory-policy"} {
		if err := n.tell(ctx, s, "CONFIG", "SET", k, s.settings[k]); err != nil {
			return err
		}
	}
	return nil
}

// Spoil puts a list where the lock should be, whatever was there.
func (n *Node) Spoil(ctx context.Context, key string) error {
	return n.tell(ctx, n.serving(), "EVAL", spoilScript, 1, key)
}

//go:embed spoil.lua
var spoilScript string

//go:embed jump.lua
var jumpScript string

// JumpClock sets the server's clock forward by d, or back if d is negative. It is an
// emulation: the TTL of every key in the database of Config becomes shorter or longer by
// that, and what has thereby lapsed is deleted. The time that Lua and clients
// get from TIME does not jump.
func (n *Node) JumpClock(ctx context.Context, d time.Duration) error {
	if d%time.Millisecond != 0 {
		return fmt.Errorf("rig: clock jump by %v: allowed are whole milliseconds", d)
	}
	return n.tell(ctx, n.serving(), "EVAL", jumpScript, 0, d.Milliseconds())
}
