package goredisnode

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// Which connections of the pool a node relies on.

const (
	// leaveEvery is how often the connections to a replica are left, and how long a refusal counts for
	// all new connections: a server that stays a replica must not be stormed.
	leaveEvery = time.Second

	// trusted is for how long a server's connections over TLS are relied on without a word of it.
	trusted = time.Second

	// drainLimit bounds drain. It takes no time, unless others take the last connections meanwhile.
	drainLimit = 100 * time.Millisecond
)

// drain closes the connections of the pool that are at rest: what has silenced one, or led it to a replica,
// is true of all of its age. go-redis has no word for that. So drain takes each, and fails to write to it. All
// are held until the last is taken, or the pool would make new ones, and lend those.
func (n *node) drain(client *redis.Client) {
	ctx, cancel := context.WithTimeout(n.life, drainLimit)
	defer cancel()
	c := &call{n: n, client: client, user: ctx, ctx: ctx, due: time.Now().Add(drainLimit)}
	pool := plainCopy(client)
	for left := client.PoolStats().IdleConns; left > 0 && client.PoolStats().IdleConns > 0; left-- {
		conn := pool.Conn()
		defer conn.Close() //nolint:errcheck // it cannot fail
		c.breakConn(conn)
	}
}

// plainCopy is a client for what is no request of the user's: without hooks, and not counted by a limiter.
func plainCopy(client *redis.Client) *redis.Client {
	c := copyOf(client)
	c.Options().Limiter = nil
	return c
}

// breakConn keeps a connection out of the pool: after a command that is not written, or not answered,
// go-redis closes the connection.
func (c *call) breakConn(conn *redis.Conn) {
	cmd := newCommand(c, "PING", []any{nil})
	cmd.progress.Store(dropped)
	process(conn, cmd) //nolint:errcheck // it is to fail
}

// leave is called when a server has turned out to be a replica: its address may lead to the new primary by
// now. It ends the connections at rest, and the subscriptions.
func (n *node) leave(client *redis.Client) {
	n.leaving.Lock()
	defer n.leaving.Unlock()
	if time.Since(n.leftAt) < leaveEvery {
		return
	}
	n.leftAt = time.Now()
	n.drain(client)
	n.leaveSubscriptions()
}

// ofReplica reports whether a command was refused because the server is a replica.
func ofReplica(err error) bool {
	var said *strategy.ServerError
	return errors.As(err, &said) && said.Kind == strategy.ErrRefused && rediskit.ReadOnly(said.Err)
}

// resend sends a command again that a replica has refused. It returns that refusal if new connections are
// known to lead to a replica.
func (c *call) resend(on processor, name string, args []any, refusal error) (reply any, err error) {
	err = refusal
	c.retry(func() error { reply, err = c.run(on, name, args); return err })
	return reply, err
}

// retry calls try until no replica answers it, or a new connection has led to one, too. Those that others
// used when the replica was left may be in the pool again; each is closed with its refusal. go-redis does not
// say which connection a command has had. But it counts how often none was at rest: without that, it was
// no new one.
func (c *call) retry(try func() error) {
	c.n.leaving.Lock()
	stays := time.Since(c.n.replicaAgainAt) < leaveEvery
	c.n.leaving.Unlock()
	for !stays {
		made := c.client.PoolStats().Misses
		if !ofReplica(try()) {
			return
		}
		stays = c.client.PoolStats().Misses != made
	}
	c.n.leaving.Lock()
	defer c.n.leaving.Unlock()
	if time.Since(c.n.replicaAgainAt) >= leaveEvery {
		c.n.replicaAgainAt = time.Now()
	}
}

// lend takes a connection of the pool, which leads to a primary. In a cluster, the server will say whose a
// key is.
func (c *call) lend() (conn *redis.Conn, err error) {
	if c.n.to.many() {
		return lent(c.client), nil
	}
	try := func() error {
		conn = lent(c.client)
		if err = c.hello(conn); err != nil {
			c.breakConn(conn)
			conn.Close() //nolint:errcheck // it cannot fail
		}
		return err
	}
	if ofReplica(c.question(try)) {
		c.retry(try)
	}
	var failed *strategy.ServerError
	if errors.As(err, &failed) && failed.Kind == strategy.ErrUnknown {
		err = c.failed(strategy.ErrUnsent, failed.Err) // not its kind: nothing was sent but the question
	}
	return conn, err
}

// question asks a server something that changes nothing. If the connection had ended at rest, it asks once more: now the others
// of its age are closed.
func (c *call) question(ask func() error) error {
	err := ask()
	if errors.Is(err, strategy.ErrUnknown) && c.ended() == nil {
		err = ask()
	}
	return err
}

// hello asks a server for its role. One that refuses to tell is taken for a primary.
func (c *call) hello(conn *redis.Conn) error {
	reply, err := c.run(conn, "HELLO", []any{nil})
	switch {
	case err == nil && rediskit.Demoted(reply):
		c.n.leave(c.client)
		return c.failed(strategy.ErrRefused, errors.New("READONLY the server is a replica"))
	case errors.Is(err, strategy.ErrRefused):
		return nil
	}
	return err
}

// probeIdle makes sure that a connection has not ended at rest. go-redis looks for that itself, but cannot over
// TLS. The PING goes over the connection that is taken next, unless the user has set PoolFIFO; if it is not
// answered, all at rest are closed.
func (c *call) probeIdle() {
	c.n.mu.Lock()
	last, known := c.n.answered[c.client]
	c.n.mu.Unlock()
	if !known || time.Since(last) <= trusted {
		return
	}
	if _, err := c.run(c.client, "PING", []any{nil}); errors.Is(err, strategy.ErrUnsent) {
		c.n.drain(c.client) // run has done so where the PING was not answered
	}
}

// answers notes that a server lives, over TLS: see probeIdle.
func (n *node) answers(client *redis.Client) {
	if client.Options().TLSConfig == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.answered) > 1000 { // a cluster's masters come and go
		clear(n.answered)
	}
	n.answered[client] = time.Now()
}
