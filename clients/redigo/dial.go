package redigonode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"slices"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/client"
)

const (
	// maxDials is how many dials may be under way at once. One is enough unless it
	// hangs: into a black hole, or with a server that is frozen.
	maxDials = 4

	// maxCancelled is how many more may hang after they were cancelled, in a Dial that knows
	// no context. They must not keep the node from dialling, because the server may be
	// back: when maxCancelled hang, the node dials one more every dialLimit.
	maxCancelled = 16

	// leastPatience and mostPatience bound the time after which a dial counts as
	// hanging, whatever its callers' time-outs are, and another is tried next to it.
	// The hanging one goes on: a server that thaws answers it first.
	leastPatience = 100 * time.Millisecond
	mostPatience  = 2 * time.Second

	// dialLimit is when each dial ends by itself, if it knows a context.
	dialLimit = 30 * time.Second

	// mostDialPause is the longest pause after dials that failed, while their error is
	// every caller's.
	mostDialPause = 100 * time.Millisecond

	// closeGrace is how long Close waits for dials that it has cancelled. A
	// pool.Dial without context may ignore that for ever.
	closeGrace = time.Second
)

// An attempt is one dial under way, in a goroutine of its own so that callers can
// leave: the user's Dial may know no time-out, and hang in AUTH.
type attempt struct {
	began    time.Time
	patience time.Duration
	cancel   context.CancelFunc
	ended    chan struct{}

	// Guarded by the dialler's lock.
	abandoned bool       // nobody wants the connection any more
	conn      redis.Conn // dialled, but not ready for use; closed when abandoned
}

// dials are the attempts under way, oldest first. They are guarded by their
// owner's lock.
type dials struct {
	list      []*attempt
	cancelled []*attempt // cancelled for a new one, and not returned
}

// restart cancels those under way, so that another may begin at once.
func (d *dials) restart() { d.list, d.cancelled = nil, d.abandon() }

// begin notes a new attempt, or returns nil if there are enough.
func (d *dials) begin(patience time.Duration) (*attempt, context.Context) {
	now := time.Now()
	if n := len(d.list); n > 0 {
		if last := d.list[n-1]; now.Sub(last.began) < last.patience {
			return nil, nil
		}
		if n >= maxDials {
			newest, oldest := d.list[n-1], d.list[0]
			full := len(d.cancelled) >= maxCancelled && now.Sub(newest.began) < dialLimit
			if full || now.Sub(oldest.began) < mostPatience {
				return nil, nil
			}
			oldest.abandon()
			d.list, d.cancelled = d.list[1:], append(d.cancelled, oldest)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	a := &attempt{
		began:    now,
		patience: min(max(patience, leastPatience), mostPatience),
		cancel:   cancel,
		ended:    make(chan struct{}),
	}
	d.list = append(d.list, a)
	return a, ctx
}

func (d *dials) remove(a *attempt) {
	same := func(b *attempt) bool { return a == b }
	d.list = slices.DeleteFunc(d.list, same)
	d.cancelled = slices.DeleteFunc(d.cancelled, same)
}

func (a *attempt) abandon() {
	a.abandoned = true
	a.cancel()
	if a.conn != nil {
		go a.conn.Close() // ends whatever it waits for
	}
}

// abandon cancels all, and returns what to wait for.
func (d *dials) abandon() []*attempt {
	for _, a := range d.list {
		a.abandon()
	}
	return slices.Concat(d.list, d.cancelled)
}

// await waits for attempts that were abandoned, but not for ever.
func await(as []*attempt) {
	grace := time.After(closeGrace)
	for _, a := range as {
		select {
		case <-a.ended:
		case <-grace:
			return
		}
	}
}

// dialPool dials with the pool's settings, but outside of the pool. On the way the node learns the address, if the pool's
// DialContext hands its context on: a server that lets nobody in tells no name.
func (n *node) dialPool(ctx context.Context) (redis.ConnWithTimeout, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(_, addr string) { n.dialled.Store(&addr) }})
	conn, err := callDial(ctx, n.pool)
	if err != nil {
		return nil, client.Discreet(err, "")
	}
	if conn == nil {
		return nil, errors.New("the pool's Dial returned no connection")
	}
	c, ok := conn.(redis.ConnWithTimeout)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("the pool's Dial returns a %T, which lacks the methods of redis.ConnWithTimeout", conn)
	}
	return c, nil
}

func callDial(ctx context.Context, pool *redis.Pool) (redis.Conn, error) {
	if pool.DialContext != nil {
		return pool.DialContext(ctx)
	}
	return pool.Dial()
}

// dial starts a dial unless enough are under way. The pipe's lock is held.
func (p *pipe) dial(patience time.Duration) {
	a, ctx := p.dials.begin(patience)
	if a == nil {
		return
	}
	go func() {
		defer close(a.ended)
		defer a.cancel()
		err := p.connect(ctx, a)
		if errors.Is(err, errHungUp) && p.n.name.Load() == nil && p.examine(ctx, a) == nil {
			err = p.connect(ctx, a)
		}
		if err != nil {
			p.dialFailed(a, err)
		}
	}()
}

// connect dials, and brings the connection to the pipe.
func (p *pipe) connect(ctx context.Context, a *attempt) error {
	conn, err := p.n.dialPool(ctx)
	if err == nil {
		if err = p.bring(a, conn); err != nil {
			conn.Close()
		}
	}
	return err
}

// anyKey is for EXISTS, which every proxy knows; twemproxy does not know PING.
const anyKey = "locks"

// errHungUp says that a server, or a proxy before it, ended a connection without a word when it was asked
// who that is.
var errHungUp = errors.New("it hung up when asked for CLIENT INFO")

// examine finds out on another connection whether a server that hung up, and has never said who it is, does so
// each time: it answers EXISTS, and hangs up when it is asked for that. Then it is not asked again. nil: connect
// once more.
func (p *pipe) examine(ctx context.Context, a *attempt) error {
	conn, err := p.n.dialPool(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := p.prepares(a, conn); err != nil {
		return err
	}
	if _, err := conn.DoWithTimeout(dialLimit, "EXISTS", anyKey); err != nil && !isReply(err) {
		return err
	}
	err = p.n.identify(conn, new(client.Identity))
	if errors.Is(err, errHungUp) {
		p.n.hangsUp.Store(true)
		p.n.unordered.Store(true)
		return nil
	}
	return err
}

// bring makes a dialled connection ready and hands it to the pipe, after it has
// killed those that were given up. That includes connections given up after this
// one was dialled: which was first says nothing about what the server reads first.
//
// If it breaks meanwhile they stay marked, for the next. If the server that answers
// is not the one that had them, it has killed none, and is right: what the other
// still does, it does to other data.
func (p *pipe) bring(a *attempt, conn redis.ConnWithTimeout) error {
	if err := p.prepares(a, conn); err != nil {
		return err
	}
	w := &wire{conn: conn, born: a.began}
	w.peeker.begin(conn)
	if err := p.n.identify(conn, &w.id); err != nil {
		return err
	}
	w.lastReply = time.Now()
	var killed []client.Identity
	for {
		first, taken := p.dialled(a, w, killed)
		if len(first) == 0 {
			if !taken {
				conn.Close()
			}
			return nil
		}
		if err := p.n.kill(conn, first); err != nil {
			return err
		}
		killed = first
	}
}

// prepares notes the connection, so that giving up the attempt ends what is done
// with it.
func (p *pipe) prepares(a *attempt, conn redis.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.abandoned {
		return errReplaced
	}
	a.conn = conn
	return nil
}

// identify asks the server who the connection is, and in the same packet whether
// it may kill: the filters of that question match nobody. A server that refuses
// either keeps no order, for good.
func (n *node) identify(conn redis.ConnWithTimeout, id *client.Identity) error {
	if n.unordered.Load() {
		return nil
	}
	replies, err := ask(conn, time.Now().Add(dialLimit),
		clientInfo,
		client.MayKill,
	)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: %w", errHungUp, err)
	}
	if err != nil {
		return err
	}
	*id = n.introduced(replies[0])
	if !id.Known() || !isInt(replies[1]) {
		n.unordered.Store(true)
	}
	return nil
}

// kill ends connections, and returns nil when they are dead, or when the server
// has refused that for good. Having killed none is as good as one: it was dead.
func (n *node) kill(conn redis.ConnWithTimeout, ids []client.Identity) error {
	cmds := make([][]string, len(ids))
	for i, id := range ids {
		cmds[i] = id.Kill()
	}
	replies, err := ask(conn, time.Now().Add(dialLimit), cmds...)
	if err != nil {
		return err
	}
	if !allInts(replies) {
		n.unordered.Store(true)
	}
	return nil
}

// ask sends commands in one packet and returns their replies; nil stands for a refusal. A
// refusal that only speaks of the server's state fails the whole.
func ask(conn redis.ConnWithTimeout, due time.Time, cmds ...[]string) ([]any, error) {
	for _, cmd := range cmds {
		if err := conn.Send(cmd[0], redis.Args{}.AddFlat(cmd[1:])...); err != nil {
			return nil, err
		}
	}
	if err := conn.Flush(); err != nil {
		return nil, err
	}
	var replies []any
	var said error
	for range cmds {
		r, err := readReply(conn, remaining(due))
		if err != nil && !isReply(err) {
			return nil, cmp.Or(said, err) // what the server said before it hung up is the better reason
		}
		if err != nil {
			said = err
			if client.Passing(err) {
				return nil, err
			}
		}
		replies = append(replies, r)
	}
	return replies, nil
}

func isInt(reply any) bool { _, ok := reply.(int64); return ok }

func allInts(replies []any) bool {
	return !slices.ContainsFunc(replies, func(r any) bool { return !isInt(r) })
}

var clientInfo = []string{"CLIENT", "INFO"}

// introduced reads the answer to clientInfo. It also learns the node's name: the server's own side of the connection.
func (n *node) introduced(reply any) client.Identity {
	said, _ := redis.String(reply, nil) // a refusal says nothing
	id := client.Introduced(said)
	if id.Server != "" {
		n.name.Store(&id.Server)
	}
	return id
}
