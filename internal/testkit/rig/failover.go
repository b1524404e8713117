package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// ErrNoReplica is what a fail-over without a replica fails with.
var ErrNoReplica = errors.New("rig: the server has no replica: call Replicate first")

// Replicate gives the server a replica and returns once it has everything that was
// answered before the call. After a fail-over the old master becomes the replica: it is
// restarted if it is dead, and loses what it alone has.
func (n *Node) Replicate(ctx context.Context) (err error) {
	n.changing.Lock()
	defer n.changing.Unlock()
	master := n.serving()
	if n.spare == nil {
		if n.spare, err = n.start(ctx); err != nil {
			return err
		}
	}
	replica := n.spare
	if replica == master {
		replica = n.home
	}
	revive := replica.Thaw
	if replica.Dead() {
		revive = replica.Restart
	}
	if err := revive(ctx); err != nil {
		return wrap(err)
	}
	if err := n.follow(ctx, master, replica); err != nil {
		return err
	}
	if master.fsync != "" {
		if err := n.persist(ctx, replica, master.fsync); err != nil {
			return err
		}
	}
	n.replica = replica
	return nil
}

// Follow makes the server a replica of another node's, and returns once it has everything
// that was answered there before the call. Each stays at its own place: Writable promotes it,
// ReadOnly takes it from its master, and so does Reset.
func (n *Node) Follow(ctx context.Context, of *Node) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	return n.follow(ctx, of.serving(), n.serving())
}

// follow makes one of two living servers the replica of the other.
func (n *Node) follow(ctx context.Context, master, replica *server) error {
	peer, err := master.Peer(ctx)
	if err != nil {
		return wrap(err)
	}
	host, port, err := net.SplitHostPort(peer)
	if err != nil {
		return wrap(err)
	}
	// It would wait five seconds for more replicas to come.
	if err := n.tell(ctx, master, "CONFIG", "SET", "repl-diskless-sync-delay", 0); err != nil {
		return err
	}
	// With a file of its own it would keep what it is sent now.
	if err := n.tell(ctx, replica, "CONFIG", "SET", "appendonly", "no"); err != nil {
		return err
	}
	if err := n.follows(ctx, replica); err != nil {
		return err
	}
	if err := n.tell(ctx, replica, "REPLICAOF", host, port); err != nil {
		return err
	}
	if err := master.Replicated(ctx, replica.Server); err != nil {
		return wrap(err)
	}
	// The master counts it as a replica, for WAIT and for MinReplicas, a little later.
	return poll(ctx, "the replica of "+master.Addr(), func() (bool, error) {
		m, err := master.Info(ctx, "replication")
		return allOnline(m) && m["min_slaves_good_slaves"] != "0", err
	})
}

// follows makes a server that becomes a replica log in as the operator: nothing is denied to it, either.
func (n *Node) follows(ctx context.Context, s *server) error {
	err := n.tell(ctx, s, "CONFIG", "SET", "masteruser", operator)
	if err == nil {
		err = n.tell(ctx, s, "CONFIG", "SET", "masterauth", operator)
	}
	return err
}

// allOnline reports whether there are replicas, and the master has started to feed each.
func allOnline(replication map[string]string) bool {
	n := 0
	for ; replication[fmt.Sprint("slave", n)] != ""; n++ {
		if !strings.Contains(replication[fmt.Sprint("slave", n)], "state=online") {
			return false
		}
	}
	return n > 0
}

// StallReplica takes the replica's network: from now on it gets no write, and what was
// answered before it has. A replica that is merely stopped would not do: what was sent to
// it lies in its socket and is read when it is promoted.
func (n *Node) StallReplica(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.replica == nil {
		return ErrNoReplica
	}
	if err := n.serving().Replicated(ctx, n.replica.Server); err != nil {
		return wrap(err)
	}
	return n.tell(ctx, n.replica, "REPLICAOF", "127.0.0.1", nobody)
}

// FailOver kills the server and promotes its replica, to which links lead from now on.
// Writes that a stalled replica did not get are lost.
func (n *Node) FailOver(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.replica == nil {
		return ErrNoReplica
	}
	if err := n.kill(ctx); err != nil {
		return err
	}
	return n.promote(ctx)
}

// FailOverKeepingOld promotes the replica and leaves the old master alive: a client
// connected to it stays, and is served; new connections lead to the new one. So there are
// two masters, until Replicate makes the old one a replica, or Reset.
func (n *Node) FailOverKeepingOld(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.replica == nil {
		return ErrNoReplica
	}
	return n.promote(ctx)
}

// Repoint promotes the replica, to which new connections lead from now on, and then makes the old master its replica. Clients
// that are connected to the old one stay, as where an address is repointed.
func (n *Node) Repoint(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	master, replica := n.serving(), n.replica
	if replica == nil {
		return ErrNoReplica
	}
	if err := n.promote(ctx); err != nil {
		return err
	}
	return n.demoted(ctx, master, replica)
}

// HandOver is Repoint by the server's own FAILOVER: it takes no writes until the replica has all of them and takes over. New
// connections lead to the new master a moment later.
func (n *Node) HandOver(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	master, replica := n.serving(), n.replica
	if replica == nil {
		return ErrNoReplica
	}
	if err := n.follows(ctx, master); err != nil {
		return err
	}
	if err := n.tell(ctx, master, "FAILOVER"); err != nil {
		return err
	}
	err := poll(ctx, "the fail-over of "+master.Addr(), func() (bool, error) {
		r, err := replica.Info(ctx, "replication")
		return r["role"] == "master", err
	})
	if err != nil {
		return err
	}
	n.serve(replica)
	return n.demoted(ctx, master, replica)
}

// demoted makes the old master the replica of the one that serves now.
func (n *Node) demoted(ctx context.Context, old, master *server) error {
	n.replica = nil
	if err := n.follow(ctx, master, old); err != nil {
		return err
	}
	n.replica = old
	return nil
}

func (n *Node) promote(ctx context.Context) error {
	if err := n.tell(ctx, n.replica, "REPLICAOF", "NO", "ONE"); err != nil {
		return fmt.Errorf("%w: nobody serves", err)
	}
	n.serve(n.replica)
	n.replica = nil
	return nil
}
