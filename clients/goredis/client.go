package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The clients that New takes, and those that NewDerived makes of them.

// server is a *redis.Client, or a struct that embeds one.
type server interface {
	processor
	Options() *redis.Options
	WithTimeout(time.Duration) *redis.Client
}

// masters is a *redis.ClusterClient, or a struct that embeds one.
type masters interface {
	Options() *redis.ClusterOptions
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ForEachMaster(ctx context.Context, fn func(context.Context, *redis.Client) error) error
	ReloadState(ctx context.Context)
}

// settings are the options of a client that matter here.
type settings struct {
	password    string
	contexts    bool
	read, write time.Duration
}

const allowed = "allowed are a *redis.Client, a *redis.ClusterClient, and a struct that embeds one of them"

func routeOf(client redis.UniversalClient) (to route, set settings, err error) {
	switch c := client.(type) {
	case server:
		if o := readOptions(c); o != nil {
			to, set = singleOf(c), settings{o.Password, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout}
		}
	case masters:
		if o := readOptions(c); o != nil {
			to, set = clusterOf(c), settings{o.Password, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout}
		}
	case interface{ Options() *redis.RingOptions }:
		return nil, set, errors.New("goredis: a *redis.Ring asks another server for a key when the one that has it is " +
			"down, so two would hold its lock: give a *redis.Client, or, for redlock.New, one for each server")
	case nil:
		return nil, set, errors.New("goredis: the client is nil: " + allowed)
	default:
		return nil, set, fmt.Errorf("goredis: a %T does not show which client is in it: give that one; %s", client, allowed)
	}
	switch {
	case to == nil:
		return nil, set, fmt.Errorf("goredis: a %T is nil, or the client in it is: %s", client, allowed)
	case set.read < 0 || set.write < 0:
		return nil, set, errors.New("goredis: the client's ReadTimeout or WriteTimeout is -2, which keeps any deadline " +
			"from its connections: allowed are durations, 0 for the default, and -1")
	}
	return to, set, nil
}

// readOptions returns nil where there is no client: its methods then panic.
func readOptions[O any](client interface{ Options() *O }) *O {
	defer func() { _ = recover() }()
	return client.Options()
}

// copyOf is a client on the same connections, with options of its own, and without hooks.
func copyOf(c server) *redis.Client {
	o := c.Options()
	own := c.WithTimeout(o.ReadTimeout)
	own.Options().WriteTimeout = o.WriteTimeout
	return own
}

// derived returns a client that can be used, of one that lacks only ContextTimeoutEnabled, and what closes it.
func derived(client redis.UniversalClient) (usable redis.UniversalClient, end func() error, err error) {
	if c, one := client.(server); one {
		own := copyOf(c)
		own.Options().ContextTimeoutEnabled = true
		return own, nil, nil
	}
	o := *client.(masters).Options()
	if o.ClusterSlots != nil {
		return nil, nil, errors.New("goredis: the client's options have ClusterSlots, as those of " +
			"NewFailoverClusterClient, and a copy would not hear when they change: set ContextTimeoutEnabled, and call New")
	}
	o.ContextTimeoutEnabled = true
	for _, timeout := range []*time.Duration{&o.ReadTimeout, &o.WriteTimeout} {
		if *timeout == 0 {
			*timeout = -1 // go-redis has replaced -1, no time-out, by 0; a new client would take 0 for the default
		}
	}
	c := redis.NewClusterClient(&o)
	return c, c.Close, nil
}
