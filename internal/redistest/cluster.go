package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Slots is how many slots a cluster shares out among its masters.
const Slots = 16384

// ClusterConfig is how a cluster of one's own is started. The zero value is three masters
// without replicas, which share the slots out evenly, in order.
type ClusterConfig struct {
	Masters  int    // 0: three
	Replicas int    // of each master
	Config   Config // of each server; a cluster has one database
}

// clusterNodeTimeout is after how much silence the nodes take one of them for failed. A busy
// machine is silent for long at times, and no test has to wait for it: see FailOver.
const clusterNodeTimeout = 15 * time.Second

func (c ClusterConfig) check() error {
	switch {
	case c.Masters < 1:
		return fmt.Errorf("redistest: ClusterConfig.Masters = %d, want 1 or more, or 0 for three", c.Masters)
	case c.Replicas < 0:
		return fmt.Errorf("redistest: ClusterConfig.Replicas = %d, want 0 or more", c.Replicas)
	case c.Config.Database != 0:
		return fmt.Errorf("redistest: ClusterConfig.Config.Database = %d, but a cluster has database 0 alone", c.Config.Database)
	}
	return c.Config.check()
}

// Cluster is a Redis Cluster, each node of which is a Server to break. Clients reach its
// nodes by the addresses at which these announce themselves, over a restart, too.
type Cluster struct {
	f       *Farm
	config  Config
	servers []*Server         // masters first, then the replicas of the first, of the second …
	ids     map[string]string // by address: what the cluster calls each
	release []func()          // gives the ports of the bus back
}

// StartCluster starts a cluster and returns once every node finds that it serves. Like Start
// it fails with an error that wraps ErrImpossible for given and embedded servers, and where
// containers have a network of their own, from which nodes would announce addresses that
// nobody here can reach.
func (f *Farm) StartCluster(ctx context.Context, c ClusterConfig) (*Cluster, error) {
	if c.Masters == 0 {
		c.Masters = 3
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	cl := &Cluster{f: f, config: c.Config, ids: map[string]string{}}
	err := cl.start(ctx, c)
	if err == nil {
		err = cl.form(ctx, c)
	}
	if err != nil {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
		defer cancel()
		return nil, errors.Join(err, cl.Stop(limit))
	}
	return cl, nil
}

// start starts the servers, side by side, none of which knows of another.
func (cl *Cluster) start(ctx context.Context, c ClusterConfig) error {
	n := c.Masters * (1 + c.Replicas)
	if err := cl.f.Prepare(ctx); err != nil {
		return err
	}
	started, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		// Its usual place, 10000 above the other port, may be an outgoing connection's.
		port, release, err := cl.f.ReservePort()
		if err != nil {
			errs[i] = err
			break
		}
		cl.release = append(cl.release, release)
		wg.Go(func() { started[i], errs[i] = cl.f.Start(ctx, cl.nodeConfig(port)) })
	}
	wg.Wait()
	cl.servers = slices.DeleteFunc(started, func(s *Server) bool { return s == nil })
	return errors.Join(errs...)
}

func (cl *Cluster) nodeConfig(busPort int) Config {
	c := cl.config
	args := []string{
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(busPort), "--cluster-announce-ip", loopback,
		"--cluster-node-timeout", strconv.FormatInt(clusterNodeTimeout.Milliseconds(), 10),
		"--repl-diskless-sync-delay", "0", // else it would wait five seconds for more replicas to come
	}
	if c.Password != "" { // replicas come in by it, too
		args = append(args, "--masterauth", c.Password)
	}
	if c.User != "" {
		args = append(args, "--masteruser", c.User)
	}
	c.Args = slices.Concat(args, c.Args)
	return c
}

// form makes a cluster of the servers.
func (cl *Cluster) form(ctx context.Context, c ClusterConfig) error {
	for i, s := range cl.servers {
		peer, err := s.Peer(ctx)
		if err != nil {
			return err
		}
		if peer != s.Addr() {
			return fmt.Errorf("redistest: a cluster announces one address of each node, and %s is %s to its peers: %w", s.Addr(), peer, ErrImpossible)
		}
		id, err := redis.String(cl.Do(ctx, s, "CLUSTER", "MYID"))
		if err != nil {
			return err
		}
		cl.ids[s.Addr()] = id
		// Else all begin with the same, and settle who has which slots by and by.
		if _, err := cl.Do(ctx, s, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
	}
	for i, s := range cl.servers[:c.Masters] {
		first, last := i*Slots/c.Masters, (i+1)*Slots/c.Masters-1
		if _, err := cl.Do(ctx, s, "CLUSTER", "ADDSLOTSRANGE", first, last); err != nil {
			return err
		}
	}
	for _, s := range cl.servers[1:] {
		host, port, err := net.SplitHostPort(s.Addr())
		if err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
		bus, err := cl.busPort(ctx, s)
		if err != nil {
			return err
		}
		if _, err := cl.Do(ctx, cl.servers[0], "CLUSTER", "MEET", host, port, bus); err != nil {
			return err
		}
	}
	if err := cl.settled(ctx, c.Masters, 0); err != nil {
		return err
	}
	for i, s := range cl.servers[c.Masters:] {
		master := cl.servers[i/c.Replicas]
		if _, err := cl.Do(ctx, s, "CLUSTER", "REPLICATE", cl.ids[master.Addr()]); err != nil {
			return err
		}
	}
	return cl.settled(ctx, c.Masters, c.Replicas)
}

func (cl *Cluster) busPort(ctx context.Context, s *Server) (string, error) {
	reply, err := redis.Strings(cl.Do(ctx, s, "CONFIG", "GET", "cluster-port"))
	if err != nil {
		return "", err
	}
	if len(reply) != 2 {
		return "", fmt.Errorf("redistest: %s says of its cluster-port: %q", s.Addr(), reply)
	}
	return reply[1], nil
}

// settled waits until every node knows all, and finds that the cluster serves; and every
// master has its replicas, which have all it has.
func (cl *Cluster) settled(ctx context.Context, masters, replicas int) error {
	return cl.await(ctx, "the cluster to form", func() error {
		for i, s := range cl.servers {
			info, err := redis.String(cl.Do(ctx, s, "CLUSTER", "INFO"))
			if err != nil {
				return err
			}
			m := parseInfo(info)
			if m["cluster_state"] != "ok" || m["cluster_known_nodes"] != strconv.Itoa(len(cl.servers)) {
				return fmt.Errorf("%s: cluster_state:%s, cluster_known_nodes:%s", s.Addr(), m["cluster_state"], m["cluster_known_nodes"])
			}
			if replicas == 0 {
				continue
			}
			if i >= masters {
				if err := cl.linked(ctx, s); err != nil {
					return err
				}
			}
			nodes, err := redis.String(cl.Do(ctx, s, "CLUSTER", "NODES"))
			if err != nil {
				return err
			}
			if n := strings.Count(nodes, "slave"); n != masters*replicas {
				return fmt.Errorf("%s knows %d replicas", s.Addr(), n)
			}
		}
		return nil
	})
}

// linked tells whether a replica is one, and has all its master has.
func (cl *Cluster) linked(ctx context.Context, replica *Server) error {
	info, err := replica.info(ctx, "replication")
	if err != nil {
		return err
	}
	if info["role"] != "slave" || info["master_link_status"] != "up" || info["master_sync_in_progress"] != "0" {
		return fmt.Errorf("%s: role:%s, master_link_status:%s", replica.Addr(), info["role"], info["master_link_status"])
	}
	return nil
}

// await polls until fn says nothing against it.
func (cl *Cluster) await(ctx context.Context, what string, fn func() error) error {
	limit, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not within %v", startLimit))
	defer cancel()
	var last error
	err := pollUntil(limit, func() (bool, error) {
		last = fn()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("redistest: waiting for %s: %w (last: %w)", what, err, last)
	}
	return nil
}

// Servers are the nodes: first those that were started as masters, then the replicas of the
// first of them, of the second, and so on.
func (cl *Cluster) Servers() []*Server { return slices.Clone(cl.servers) }

// Addrs are host:port of all nodes, in the order of Servers: any of them will do for a
// client to begin with.
func (cl *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range cl.servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Do sends one command to one node, wherever its key belongs.
func (cl *Cluster) Do(ctx context.Context, s *Server, cmd string, args ...any) (any, error) {
	c, err := s.Pool().GetContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: %w", s.Addr(), err)
	}
	defer c.Close()
	reply, err := redis.DoContext(c, ctx, cmd, args...)
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: %s: %w", s.Addr(), strings.TrimSpace(fmt.Sprintln(append([]any{cmd}, args[:min(len(args), 2)]...)...)), err)
	}
	return reply, nil
}

// Slot is the slot of a key, as a server computes it.
func (cl *Cluster) Slot(ctx context.Context, key string) (int, error) {
	s, err := cl.living()
	if err != nil {
		return 0, err
	}
	return redis.Int(cl.Do(ctx, s, "CLUSTER", "KEYSLOT", key))
}

// living is a node that answers.
func (cl *Cluster) living() (*Server, error) {
	for _, s := range cl.servers {
		if !s.Dead() && !s.Frozen() {
			return s, nil
		}
	}
	return nil, errors.New("redistest: no node of the cluster lives")
}

// Owner is the master that serves a slot, as a living node sees it.
func (cl *Cluster) Owner(ctx context.Context, slot int) (*Server, error) {
	s, err := cl.living()
	if err != nil {
		return nil, err
	}
	return cl.ownerFor(ctx, s, slot)
}

// OwnerOf is Owner of a key's slot.
func (cl *Cluster) OwnerOf(ctx context.Context, key string) (*Server, error) {
	slot, err := cl.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	return cl.Owner(ctx, slot)
}

// ownerFor is who serves a slot as one node sees it.
func (cl *Cluster) ownerFor(ctx context.Context, asked *Server, slot int) (*Server, error) {
	ranges, err := cl.ranges(ctx, asked)
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if r.first <= slot && slot <= r.last {
			return r.owner, nil
		}
	}
	return nil, fmt.Errorf("redistest: %s knows nobody who serves slot %d", asked.Addr(), slot)
}

// firstSlot is one that a master serves, by its own account.
func (cl *Cluster) firstSlot(ctx context.Context, master *Server) (int, error) {
	ranges, err := cl.ranges(ctx, master)
	if err != nil {
		return 0, err
	}
	for _, r := range ranges {
		if r.owner == master {
			return r.first, nil
		}
	}
	return 0, fmt.Errorf("redistest: %s serves no slot", master.Addr())
}

type slotRange struct {
	first, last int
	owner       *Server
}

// ranges are the slots as one node sees them.
func (cl *Cluster) ranges(ctx context.Context, asked *Server) ([]slotRange, error) {
	reply, err := redis.Values(cl.Do(ctx, asked, "CLUSTER", "SLOTS"))
	if err != nil {
		return nil, err
	}
	var ranges []slotRange
	for _, told := range reply {
		var r slotRange
		var master []any
		var port int
		parts, err := redis.Values(told, nil)
		if err == nil {
			_, err = redis.Scan(parts, &r.first, &r.last, &master)
		}
		if err == nil {
			_, err = redis.Scan(master, nil, &port)
		}
		if err != nil {
			return nil, fmt.Errorf("redistest: %s: CLUSTER SLOTS: %w: %v", asked.Addr(), err, told)
		}
		if r.owner, err = cl.at(net.JoinHostPort(loopback, strconv.Itoa(port))); err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func (cl *Cluster) at(addr string) (*Server, error) {
	i := slices.IndexFunc(cl.servers, func(s *Server) bool { return s.Addr() == addr })
	if i < 0 {
		return nil, fmt.Errorf("redistest: no node of the cluster is at %s", addr)
	}
	return cl.servers[i], nil
}

// Other is a master that is not the given one: where a slot can be moved to.
func (cl *Cluster) Other(ctx context.Context, than *Server) (*Server, error) {
	for _, s := range cl.servers {
		if s == than || s.Dead() || s.Frozen() {
			continue
		}
		info, err := s.info(ctx, "replication")
		if err != nil {
			return nil, fmt.Errorf("redistest: %s: %w", s.Addr(), err)
		}
		if info["role"] == "master" {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: the cluster has no master beside %s", than.Addr())
}

// Move moves a slot with all its keys to another master, as an operator does who reshards a
// cluster that is in use, and returns once every living node knows it.
func (cl *Cluster) Move(ctx context.Context, slot int, to *Server) error {
	r, err := cl.BeginMove(ctx, slot, to)
	if err != nil {
		return err
	}
	if err := r.Keys(ctx); err != nil {
		return err
	}
	return r.Finish(ctx)
}

// A Move is a slot on its way from one master to another. From BeginMove to Finish the old
// one serves what it still has, and sends clients on for the rest (ASK); a command for keys
// of which each has some is refused (TRYAGAIN).
type Move struct {
	cl       *Cluster
	slot     int
	from, to *Server
}

// BeginMove says on both sides that the slot is about to move. No key has moved yet.
func (cl *Cluster) BeginMove(ctx context.Context, slot int, to *Server) (*Move, error) {
	from, err := cl.Owner(ctx, slot)
	if err != nil {
		return nil, err
	}
	if from == to {
		return nil, fmt.Errorf("redistest: %s has slot %d already", to.Addr(), slot)
	}
	// The one that takes it first, lest the other send clients to one that sends them back.
	if _, err := cl.Do(ctx, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", cl.ids[from.Addr()]); err != nil {
		return nil, err
	}
	if _, err := cl.Do(ctx, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", cl.ids[to.Addr()]); err != nil {
		return nil, err
	}
	return &Move{cl: cl, slot: slot, from: from, to: to}, nil
}

// Key moves one key, if it is there.
func (m *Move) Key(ctx context.Context, key string) error { return m.migrate(ctx, key) }

// Keys moves all keys that the slot has now.
func (m *Move) Keys(ctx context.Context) error {
	for {
		keys, err := redis.Strings(m.cl.Do(ctx, m.from, "CLUSTER", "GETKEYSINSLOT", m.slot, 100))
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := m.migrate(ctx, keys...); err != nil {
			return err
		}
	}
}

func (m *Move) migrate(ctx context.Context, keys ...string) error {
	host, port, err := net.SplitHostPort(m.to.Addr())
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	args := redis.Args{host, port, "", 0, 10000}
	switch c := m.cl.config; {
	case c.User != "":
		args = args.Add("AUTH2", c.User, c.Password)
	case c.Password != "":
		args = args.Add("AUTH", c.Password)
	}
	_, err = m.cl.Do(ctx, m.from, "MIGRATE", args.Add("KEYS").AddFlat(keys)...)
	return err
}

// Finish gives the slot to its new master, and returns once every living node knows it. Keys
// that were not moved are lost.
func (m *Move) Finish(ctx context.Context) error {
	id := m.cl.ids[m.to.Addr()]
	for _, s := range []*Server{m.to, m.from} { // in that order, or nobody has it should we die between
		if _, err := m.cl.Do(ctx, s, "CLUSTER", "SETSLOT", m.slot, "NODE", id); err != nil {
			return err
		}
	}
	return m.cl.agreed(ctx, m.slot, m.to)
}

// agreed waits until every living node knows who serves the slot, and serves.
func (cl *Cluster) agreed(ctx context.Context, slot int, owner *Server) error {
	return cl.await(ctx, fmt.Sprintf("all nodes to know that slot %d is at %s", slot, owner.Addr()), func() error {
		epoch := "" // else two may claim the next slot by the same
		for _, s := range cl.servers {
			if s.Dead() || s.Frozen() {
				continue
			}
			seen, err := cl.ownerFor(ctx, s, slot)
			if err != nil {
				return err
			}
			if seen != owner {
				return fmt.Errorf("%s sees it at %s", s.Addr(), seen.Addr())
			}
			info, err := redis.String(cl.Do(ctx, s, "CLUSTER", "INFO"))
			if err != nil {
				return err
			}
			m := parseInfo(info)
			if m["cluster_state"] != "ok" || epoch != "" && m["cluster_current_epoch"] != epoch {
				return fmt.Errorf("%s: cluster_state:%s, cluster_current_epoch:%s", s.Addr(), m["cluster_state"], m["cluster_current_epoch"])
			}
			epoch = m["cluster_current_epoch"]
		}
		return nil
	})
}

// replicaOf is a living replica of a master.
func (cl *Cluster) replicaOf(ctx context.Context, master *Server) (*Server, error) {
	_, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	for _, s := range cl.servers {
		if s.Dead() || s.Frozen() {
			continue
		}
		info, err := s.info(ctx, "replication")
		if err != nil {
			return nil, fmt.Errorf("redistest: %s: %w", s.Addr(), err)
		}
		if info["role"] == "slave" && info["master_port"] == port {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: %s has no replica that lives", master.Addr())
}

// Stall cuts a master off from its replicas: what was answered before they have, and from
// now on they get no write. It ends with a restart of the master.
func (cl *Cluster) Stall(ctx context.Context, master *Server) error {
	replica, err := cl.replicaOf(ctx, master)
	if err != nil {
		return err
	}
	info, err := master.info(ctx, "replication")
	if err != nil {
		return fmt.Errorf("redistest: %s: %w", master.Addr(), err)
	}
	offset, err := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	if err != nil {
		return fmt.Errorf("redistest: %s: %w", master.Addr(), err)
	}
	if err := cl.await(ctx, "the replica of "+master.Addr(), func() error {
		info, err := replica.info(ctx, "replication")
		if err != nil {
			return err
		}
		if have, err := strconv.ParseInt(info["slave_repl_offset"], 10, 64); err != nil || have < offset {
			return fmt.Errorf("it has %d of %d (%v)", have, offset, err)
		}
		return nil
	}); err != nil {
		return err
	}
	// A replica that is merely frozen would not do: what was sent to it lies in its socket.
	// So it is turned away when it comes again.
	user := cl.config.User
	if user == "" {
		user = "default"
	}
	if _, err := cl.Do(ctx, master, "ACL", "SETUSER", user, "-psync", "-sync"); err != nil {
		return err
	}
	_, err = cl.Do(ctx, master, "CLIENT", "KILL", "TYPE", "replica")
	return err
}

// FailOver kills a master, and has its replica take over at once, without waiting for the
// others to find out. It returns the replica once every living node knows it for the master.
// What a stalled replica was not told is lost.
func (cl *Cluster) FailOver(ctx context.Context, master *Server) (*Server, error) {
	replica, err := cl.replicaOf(ctx, master)
	if err != nil {
		return nil, err
	}
	slot, err := cl.firstSlot(ctx, master)
	if err != nil {
		return nil, err
	}
	if err := master.Kill(ctx); err != nil {
		return nil, err
	}
	if _, err := cl.Do(ctx, replica, "CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		return nil, err
	}
	return replica, cl.agreed(ctx, slot, replica)
}

// Stop ends all nodes and removes everything they have left.
func (cl *Cluster) Stop(ctx context.Context) error {
	errs := make([]error, len(cl.servers))
	var wg sync.WaitGroup
	for i, s := range cl.servers {
		wg.Go(func() { errs[i] = s.Stop(ctx) })
	}
	wg.Wait()
	for _, release := range cl.release {
		release()
	}
	cl.release = nil
	return errors.Join(errs...)
}
