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

	"github.com/lockstrategies/locks/internal/testkit/machine"
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

const (
	// clusterNodeTimeout is after how much silence the nodes take one of them for failed. A busy
	// machine is silent for long at times, and no test has to wait for it: see FailOver.
	clusterNodeTimeout = 15 * time.Second
	// While all have to learn something it is this short: twice in that time, and not only once
	// a second to one of them, does a node tell each other what it knows.
	clusterGossipTimeout = time.Second
)

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

// Cluster is a Redis Cluster, each node of which is a Server to break. Clients reach its nodes by
// the addresses that these announce, over a restart, too.
type Cluster struct {
	f       *Farm
	config  Config
	servers []*Server         // masters first, then the replicas of the first, of the second …
	ids     map[string]string // by address: what the cluster calls each
	buses   []int             // the ports of the servers' bus
	release []func()          // gives these ports back
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
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), machine.StartLimit)
		defer cancel()
		return nil, errors.Join(err, cl.Stop(limit))
	}
	return cl, nil
}

// start starts the servers, none of which knows of another.
func (cl *Cluster) start(ctx context.Context, c ClusterConfig) (err error) {
	n := c.Masters * (1 + c.Replicas)
	for range n { // the usual port of the bus, 10000 above the other one, may be an outgoing connection's
		port, release, err := cl.f.ReservePort()
		if err != nil {
			return err
		}
		cl.buses, cl.release = append(cl.buses, port), append(cl.release, release)
	}
	cl.servers, err = cl.f.launchAll(n, func(i int) (*Server, error) { return cl.f.Start(ctx, cl.nodeConfig(cl.buses[i])) })
	return err
}

func (cl *Cluster) nodeConfig(busPort int) Config {
	c := cl.config
	args := []string{
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(busPort), "--cluster-announce-ip", machine.Loopback,
		"--cluster-node-timeout", strconv.FormatInt(clusterNodeTimeout.Milliseconds(), 10),
		"--cluster-replica-no-failover", "yes", // but when FailOver tells it to
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
		if cl.ids[s.Addr()], err = redis.String(cl.Do(ctx, s, "CLUSTER", "MYID")); err != nil {
			return err
		}
		// Else all begin with the same epoch, and take a while to settle who has which slots.
		if _, err := cl.Do(ctx, s, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		if i < c.Masters {
			first, last := i*Slots/c.Masters, (i+1)*Slots/c.Masters-1
			if _, err := cl.Do(ctx, s, "CLUSTER", "ADDSLOTSRANGE", first, last); err != nil {
				return err
			}
		}
		host, port := hostPort(s)
		for _, other := range cl.servers[:i] { // each of them: by gossip they would meet seconds later
			if _, err := cl.Do(ctx, other, "CLUSTER", "MEET", host, port, cl.buses[i]); err != nil {
				return err
			}
		}
	}
	if c.Replicas > 0 {
		if err := cl.met(ctx); err != nil {
			return err
		}
	}
	for i, s := range cl.servers[c.Masters:] {
		master := cl.servers[i/c.Replicas]
		if _, err := cl.Do(ctx, s, "CLUSTER", "REPLICATE", cl.ids[master.Addr()]); err != nil {
			return err
		}
	}
	if err := cl.settled(ctx, c.Masters*c.Replicas); err != nil {
		return err
	}
	for i, s := range cl.servers[c.Masters:] {
		if err := cl.servers[i/c.Replicas].Replicated(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// hostPort splits a server's address, which is ours and so well formed.
func hostPort(s *Server) (host, port string) {
	host, port, _ = net.SplitHostPort(s.Addr())
	return host, port
}

// met waits until every node knows all.
func (cl *Cluster) met(ctx context.Context) error {
	return cl.await(ctx, "the nodes of a cluster to meet", func() error {
		for _, s := range cl.servers {
			nodes, err := redis.String(cl.Do(ctx, s, "CLUSTER", "NODES"))
			if err != nil {
				return err
			}
			if strings.Count(nodes, "\n") != len(cl.servers) || strings.Contains(nodes, "handshake") {
				return fmt.Errorf("%s knows\n%s", s.Addr(), nodes)
			}
		}
		return nil
	})
}

// settled waits until every node knows all, so many replicas among them, and finds that the cluster serves.
func (cl *Cluster) settled(ctx context.Context, replicas int) error {
	return cl.learned(ctx, "the cluster to form", func() error {
		for _, s := range cl.servers {
			info, err := cl.info(ctx, s)
			if err != nil {
				return err
			}
			if info["cluster_state"] != "ok" || info["cluster_known_nodes"] != strconv.Itoa(len(cl.servers)) {
				return fmt.Errorf("%s: cluster_state:%s, cluster_known_nodes:%s", s.Addr(), info["cluster_state"], info["cluster_known_nodes"])
			}
			nodes, err := redis.String(cl.Do(ctx, s, "CLUSTER", "NODES"))
			if err != nil {
				return err
			}
			if n := strings.Count(nodes, "slave"); n != replicas {
				return fmt.Errorf("%s knows %d replicas", s.Addr(), n)
			}
		}
		return nil
	})
}

// info is what a node says of the cluster.
func (cl *Cluster) info(ctx context.Context, s *Server) (map[string]string, error) {
	text, err := redis.String(cl.Do(ctx, s, "CLUSTER", "INFO"))
	return parseInfo(text), err
}

// learned is await for what nodes have to hear from each other.
func (cl *Cluster) learned(ctx context.Context, what string, fn func() error) error {
	err := cl.setNodeTimeout(ctx, clusterGossipTimeout)
	if err == nil {
		err = cl.await(ctx, what, fn)
	}
	return errors.Join(err, cl.setNodeTimeout(ctx, clusterNodeTimeout))
}

func (cl *Cluster) setNodeTimeout(ctx context.Context, d time.Duration) error {
	living, err := cl.living()
	for _, s := range living {
		if _, e := cl.Do(ctx, s, "CONFIG", "SET", "cluster-node-timeout", d.Milliseconds()); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// await polls until fn returns no error.
func (cl *Cluster) await(ctx context.Context, what string, fn func() error) error {
	limit, cancel := context.WithTimeoutCause(ctx, machine.StartLimit, fmt.Errorf("not within %v", machine.StartLimit))
	defer cancel()
	var last error
	err := machine.Poll(limit, func() (bool, error) {
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
	return s.do(ctx, cmd, args...)
}

// Slot is the slot of a key, as a server computes it.
func (cl *Cluster) Slot(ctx context.Context, key string) (int, error) {
	living, err := cl.living()
	if err != nil {
		return 0, err
	}
	return redis.Int(cl.Do(ctx, living[0], "CLUSTER", "KEYSLOT", key))
}

// living are the nodes that answer.
func (cl *Cluster) living() ([]*Server, error) {
	living := slices.DeleteFunc(cl.Servers(), func(s *Server) bool { return s.Dead() || s.Frozen() })
	if len(living) == 0 {
		return nil, errors.New("redistest: no node of the cluster lives")
	}
	return living, nil
}

// Owner is the master that serves a slot, as a living node sees it.
func (cl *Cluster) Owner(ctx context.Context, slot int) (*Server, error) {
	living, err := cl.living()
	if err != nil {
		return nil, err
	}
	owners, err := cl.owners(ctx, living[0])
	if err == nil && owners[slot] == nil {
		err = fmt.Errorf("redistest: %s knows no node that serves slot %d", living[0].Addr(), slot)
	}
	return owners[slot], err
}

// OwnerOf is Owner of a key's slot.
func (cl *Cluster) OwnerOf(ctx context.Context, key string) (*Server, error) {
	slot, err := cl.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	return cl.Owner(ctx, slot)
}

// owners are the masters of all slots as one node sees them; nil: it knows none.
func (cl *Cluster) owners(ctx context.Context, asked *Server) (owners [Slots]*Server, err error) {
	ranges, err := redis.Values(cl.Do(ctx, asked, "CLUSTER", "SLOTS"))
	if err != nil {
		return owners, err
	}
	for _, r := range ranges { // first and last slot, its master, its replicas
		var first, last, port int
		var master []any
		parts, err := redis.Values(r, nil)
		if err == nil {
			_, err = redis.Scan(parts, &first, &last, &master)
		}
		if err == nil {
			_, err = redis.Scan(master, nil, &port)
		}
		if err != nil {
			return owners, fmt.Errorf("redistest: %s: CLUSTER SLOTS: %w: %v", asked.Addr(), err, r)
		}
		at := net.JoinHostPort(machine.Loopback, strconv.Itoa(port))
		i := slices.Index(cl.Addrs(), at)
		if i < 0 {
			return owners, fmt.Errorf("redistest: no node of the cluster is at %s", at)
		}
		for slot := first; slot <= last; slot++ {
			owners[slot] = cl.servers[i]
		}
	}
	return owners, nil
}

// Other is a master that is not the given one: where a slot can be moved to.
func (cl *Cluster) Other(ctx context.Context, than *Server) (*Server, error) {
	return cl.find(ctx, "master other than "+than.Addr(), func(s *Server, info map[string]string) bool {
		return s != than && info["role"] == "master"
	})
}

// replicaOf is a living replica of a master.
func (cl *Cluster) replicaOf(ctx context.Context, master *Server) (*Server, error) {
	_, port := hostPort(master)
	return cl.find(ctx, "replica of "+master.Addr(), func(_ *Server, info map[string]string) bool {
		return info["role"] == "slave" && info["master_port"] == port
	})
}

// find returns the first living node whose replication is as wanted.
func (cl *Cluster) find(ctx context.Context, what string, wanted func(s *Server, replication map[string]string) bool) (*Server, error) {
	living, err := cl.living()
	if err != nil {
		return nil, err
	}
	for _, s := range living {
		info, err := s.Info(ctx, "replication")
		if err != nil {
			return nil, fmt.Errorf("redistest: %s: %w", s.Addr(), err)
		}
		if wanted(s, info) {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: the cluster has no %s that lives", what)
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
	host, port := hostPort(m.to)
	args := redis.Args{host, port, "", 0, 10000}
	switch c := m.cl.config; {
	case c.User != "":
		args = args.Add("AUTH2", c.User, c.Password)
	case c.Password != "":
		args = args.Add("AUTH", c.Password)
	}
	_, err := m.cl.Do(ctx, m.from, "MIGRATE", args.Add("KEYS").AddFlat(keys)...)
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

// agreed waits until every living node knows the slot's master, and serves.
func (cl *Cluster) agreed(ctx context.Context, slot int, owner *Server) error {
	return cl.learned(ctx, fmt.Sprintf("all nodes to know that slot %d is at %s", slot, owner.Addr()), func() error {
		living, err := cl.living()
		if err != nil {
			return err
		}
		epoch := "" // else two may claim the next slot by the same
		for _, s := range living {
			owners, err := cl.owners(ctx, s)
			if err != nil {
				return err
			}
			if owners[slot] != owner {
				return fmt.Errorf("%s does not see it there", s.Addr())
			}
			info, err := cl.info(ctx, s)
			if err != nil {
				return err
			}
			if info["cluster_state"] != "ok" || epoch != "" && info["cluster_current_epoch"] != epoch {
				return fmt.Errorf("%s: cluster_state:%s, cluster_current_epoch:%s", s.Addr(), info["cluster_state"], info["cluster_current_epoch"])
			}
			epoch = info["cluster_current_epoch"]
		}
		return nil
	})
}

// Stall cuts a master off from its replicas: what was answered before they have, and from
// now on they get no write. It ends with a restart of the master.
func (cl *Cluster) Stall(ctx context.Context, master *Server) error {
	replica, err := cl.replicaOf(ctx, master)
	if err != nil {
		return err
	}
	if err := master.Replicated(ctx, replica); err != nil {
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
// Writes that a stalled replica did not get are lost.
func (cl *Cluster) FailOver(ctx context.Context, master *Server) (*Server, error) {
	return cl.promote(ctx, master, master.Kill, "TAKEOVER")
}

// Demote has a master and its replica change places, as CLUSTER FAILOVER does: the master becomes the replica,
// and its connections stay open. It returns the new master once every node knows it.
func (cl *Cluster) Demote(ctx context.Context, master *Server) (*Server, error) {
	return cl.promote(ctx, master, func(context.Context) error { return nil })
}

func (cl *Cluster) promote(ctx context.Context, master *Server, before func(context.Context) error, how ...any) (*Server, error) {
	replica, err := cl.replicaOf(ctx, master)
	if err != nil {
		return nil, err
	}
	owners, err := cl.owners(ctx, master)
	if err != nil {
		return nil, err
	}
	slot := slices.Index(owners[:], master)
	if slot < 0 {
		return nil, fmt.Errorf("redistest: %s serves no slot", master.Addr())
	}
	if err := before(ctx); err != nil {
		return nil, err
	}
	if _, err := cl.Do(ctx, replica, "CLUSTER", append([]any{"FAILOVER"}, how...)...); err != nil {
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
