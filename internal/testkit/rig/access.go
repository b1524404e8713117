package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// contender is the user that contenders connect as.
func (n *Node) contender() string { return cmp.Or(n.config.User, "default") }

// Deny forbids contenders the commands, such as "del" and "evalsha", by ACL, also on
// connections that they have. Scripts of theirs are forbidden them as well.
func (n *Node) Deny(ctx context.Context, commands ...string) error {
	if len(commands) == 0 {
		return errors.New("rig: deny: name at least one command")
	}
	args := []any{"SETUSER", n.contender()}
	for _, c := range commands {
		args = append(args, "-"+c)
	}
	return n.tell(ctx, n.serving(), "ACL", args...)
}

// Allow allows contenders every command again.
func (n *Node) Allow(ctx context.Context) error {
	return n.tell(ctx, n.serving(), "ACL", "SETUSER", n.contender(), "+@all")
}

// KillClients ends every connection of contenders, subscriptions among them, and of
// Server().Pool(). New ones are admitted at once.
func (n *Node) KillClients(ctx context.Context) error { return n.killClients(ctx, n.serving()) }

func (n *Node) killClients(ctx context.Context, s *server) error {
	if err := n.tell(ctx, s, "CLIENT", "KILL", "USER", n.contender()); err != nil {
		return err
	}
	s.Redial()
	return nil
}

// ReadOnly makes the server refuse writes with READONLY, as a master does that was
// demoted: it is the replica of nobody. Writable ends that.
func (n *Node) ReadOnly(ctx context.Context) error {
	return n.tell(ctx, n.serving(), "REPLICAOF", "127.0.0.1", nobody)
}

// Writable makes a server that is ReadOnly a master again.
func (n *Node) Writable(ctx context.Context) error {
	return n.tell(ctx, n.serving(), "REPLICAOF", "NO", "ONE")
}

// nobody is a port on which no server listens.
const nobody = "1"

// MinReplicas makes the server refuse writes with NOREPLICAS while fewer replicas than
// that are connected. 0: it needs none.
func (n *Node) MinReplicas(ctx context.Context, replicas int) error {
	if replicas < 0 {
		return fmt.Errorf("rig: %d replicas: allowed are 0 and more", replicas)
	}
	return n.tell(ctx, n.serving(), "CONFIG", "SET", "min-replicas-to-write", replicas)
}
