package play

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/redlock"
)

// A server is an embedded Redis with a clock of its own.
type server struct {
	s     *Stage
	at    int
	name  string
	redis *miniredis.Miniredis
	up    bool
	ahead time.Duration        // by how much its clock is
	ends  map[string]time.Time // of the keys that are there, as far as they expire; by the page's clock
}

func newServer(s *Stage, at int, name string) *server {
	srv := &server{s: s, at: at, name: name, up: true}
	srv.start()
	return srv
}

// start makes it an empty server.
func (srv *server) start() {
	srv.redis = miniredis.NewMiniRedis()
	srv.ends = map[string]time.Time{}
	srv.tick()
	srv.redis.ClockTTL(true)
	srv.connect() // it is started by its first connection
}

// connect makes a connection to it.
func (srv *server) connect() (redis.Conn, error) {
	if !srv.up {
		return nil, errDown
	}
	c, err := srv.redis.Dial()
	if err != nil {
		return nil, err
	}
	return redis.NewConn(c, 0, 0), nil
}

// node is a client's way to it.
func (srv *server) node() driver.Node {
	return redigonode.New(&redis.Pool{DialContext: func(context.Context) (redis.Conn, error) { return srv.connect() }})
}

// tick sets its clock: it is the page's, apart from what a move has put it forward or back.
func (srv *server) tick() { srv.redis.SetTime(time.Now().Add(srv.ahead)) }

// look notes when its keys expire.
func (srv *server) look() {
	clear(srv.ends)
	for _, k := range srv.redis.Keys() {
		if ttl := srv.redis.TTL(k); ttl > 0 {
			srv.ends[k] = time.Now().Add(ttl)
		}
	}
}

// expired returns the keys that have come to their end since the last look.
func (srv *server) expired() (keys []string) {
	srv.tick()
	for _, k := range slices.Sorted(maps.Keys(srv.ends)) {
		if !srv.redis.Exists(k) {
			keys = append(keys, k)
			delete(srv.ends, k)
		}
	}
	return keys
}

// nextExpiry is when the next key expires; zero: none does.
func (srv *server) nextExpiry() (at time.Time) {
	for _, end := range srv.ends {
		if at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at
}

func (srv *server) make(what string) error {
	if d, ok := strings.CutPrefix(what, "clock"); ok {
		ahead, err := offset(d)
		if err != nil {
			return err
		}
		srv.set(ahead)
		return nil
	}
	switch {
	case what == "restart":
		srv.redis.Close()
		srv.s.locked(func() bool { srv.up = true; return true })
		srv.start()
		srv.reconnect()
		srv.s.note("%s restarts, and has lost its data", srv.name)
	case what == "down" && srv.up:
		srv.s.locked(func() bool { srv.up = false; return true })
		srv.redis.Server().Close()
		srv.s.note("%s is down", srv.name)
	case what == "up" && !srv.up:
		srv.s.locked(func() bool { srv.up = true; return true })
		srv.reconnect()
		srv.s.note("%s is up again, and has its data", srv.name)
	case what == "up" || what == "down":
		return fmt.Errorf("%s is %s already", srv.name, what)
	default:
		return fmt.Errorf("%q is nothing that a server does", what)
	}
	return nil
}

// set puts its clock forward, or back. Redis notes a TTL as a moment: if the clock is set back, each key
// lasts for that much longer. miniredis notes how much is left, so that is added here.
func (srv *server) set(ahead time.Duration) {
	srv.s.note("%s's clock is set %s", srv.name, direction(ahead))
	srv.ahead += ahead
	if srv.tick(); ahead < 0 {
		for _, k := range srv.redis.Keys() {
			if ttl := srv.redis.TTL(k); ttl > 0 {
				srv.redis.SetTTL(k, ttl-ahead)
			}
		}
	}
	srv.s.expire()
	srv.look()
}

// reconnect lets the clients' nodes find out that their connections have ended. Before a node writes, it looks
// whether an idle connection has; but it cannot look at a pipe in memory.
func (srv *server) reconnect() {
	for _, c := range srv.s.clients {
		if c.ended.Err() == nil {
			c.links[srv.at].Node.Probe(context.Background(), soon())
		}
	}
}

// offset reads how far a clock is set, as in +11s.
func offset(text string) (time.Duration, error) {
	if !strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "-") {
		return 0, errors.New("allowed are clock+5s and clock-5s")
	}
	d, err := time.ParseDuration(text)
	if err != nil || d.Abs() > time.Hour {
		return 0, fmt.Errorf("%q is no time by which a clock is set: allowed is up to 1h", text)
	}
	return d, nil
}

func direction(ahead time.Duration) string {
	if ahead < 0 {
		return fmt.Sprintf("back by %v", -ahead)
	}
	return fmt.Sprintf("forward by %v", ahead)
}

// keys are what the server has.
func (srv *server) keys() (all []Key) {
	srv.tick()
	m, brief := srv.redis, srv.s.names.brief
	for _, k := range m.Keys() {
		key := Key{Name: brief(k), TTL: -1}
		if ttl := m.TTL(k); ttl > 0 {
			key.TTL = ttl.Milliseconds()
		}
		var parts []string
		switch m.Type(k) {
		case "string":
			key.Value, _ = m.Get(k)
		case "list":
			parts, _ = m.List(k)
		case "hash":
			fields, _ := m.HKeys(k)
			for _, f := range fields {
				parts = append(parts, f+" = "+m.HGet(k, f))
			}
		}
		if k == redlock.GuardKey {
			parts = []string{"its restart guard: it remembers"}
		}
		if parts != nil {
			key.Value = strings.Join(parts, ", ")
		}
		key.Value = brief(strings.ToValidUTF8(key.Value, "?"))
		all = append(all, key)
	}
	return all
}
