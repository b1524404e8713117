package goredisnode

import (
	"cmp"
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A route leads to the server of a key.
type route interface {
	name() string
	nameOf(client *redis.Client) string
	many() bool // it is a cluster: a server says who serves a key
	at(ctx context.Context, key string) (*redis.Client, error)
	through(client *redis.Client) processor // what sends requests to it

	// redirect returns the server that a refusal names as the one that serves the key, and whether
	// that one must hear that it was asked for (ASK). nil: it says nothing of the kind.
	redirect(ctx context.Context, key string, refusal error) (next *redis.Client, asking bool)

	// reload is called when a server was not reached, has not answered, or does not write any
	// more: another may serve by now.
	reload()
}

// single is one server, or who Sentinel says it is.
type single struct {
	client *redis.Client
	on     processor // the client that was given: requests go through its hooks, and its methods
}

func singleOf(c server) single {
	client, plain := c.(*redis.Client)
	if !plain {
		client = copyOf(c)
	}
	return single{client, c}
}

func (s single) name() string { return s.nameOf(s.client) }
func (s single) nameOf(client *redis.Client) string {
	return cmp.Or(unnamed[client.Options().Addr], client.Options().Addr)
}

func (s single) many() bool { return false }

// unnamed is the name of a client that learns from Sentinel where to go. go-redis puts the same text
// in the address's place for all such clients. This name says to RedLock that it identifies no server.
var unnamed = map[string]string{"FailoverClient": "redis"}

func (s single) at(context.Context, string) (*redis.Client, error) { return s.client, nil }

func (s single) through(*redis.Client) processor { return s.on }

func (s single) redirect(context.Context, string, error) (*redis.Client, bool) { return nil, false }

func (s single) reload() {}

// cluster is a Redis Cluster. Commands go through its masters' clients, not through the
// ClusterClient, which repeats on another node what failed, and sends some commands to all.
type cluster struct {
	client masters
	seeds  string
}

func clusterOf(client masters) cluster {
	return cluster{client, "cluster of " + strings.Join(client.Options().Addrs, ", ")}
}

func (c cluster) name() string { return c.seeds }

func (c cluster) many() bool { return true }

func (c cluster) nameOf(client *redis.Client) string { return client.Options().Addr }

func (c cluster) at(ctx context.Context, key string) (*redis.Client, error) {
	return c.client.MasterForKey(ctx, key)
}

func (c cluster) through(client *redis.Client) processor { return client }

func (c cluster) redirect(ctx context.Context, key string, refusal error) (next *redis.Client, asking bool) {
	addr, moved := redis.IsMovedError(refusal)
	if !moved {
		if addr, asking = redis.IsAskError(refusal); !asking {
			return nil, false
		}
	}
	// ForEachMaster reads the cluster's state again. It calls for all at once, but only one has the address.
	_ = c.client.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		if master.Options().Addr == addr {
			next = master
		}
		return nil
	})
	if next == nil && moved { // by another name than it is known by
		next, _ = c.at(ctx, key)
	}
	return next, asking
}

func (c cluster) reload() { c.client.ReloadState(context.Background()) } // in the background, at most every 200 ms

// afterAsking sends commands to the server that gets a slot, each behind an ASKING in the same packet.
type afterAsking struct{ client *redis.Client }

func (a afterAsking) Process(ctx context.Context, cmd redis.Cmder) error {
	pipe := a.client.Pipeline()
	_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "ASKING"))
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx) // its error may be that of ASKING, next to which the command has its own outcome
	return cmd.Err()
}
