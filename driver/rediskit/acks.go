package rediskit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// everySecond is how long a write may wait for its fsync with appendfsync everysec. The longest of
// forty waits was 1.05 s, on Redis 8.0 and an idle disk; the rest is for a busy disk.
const everySecond = 1500 * time.Millisecond

// checkAcks refuses nonsense.
func checkAcks(a strategy.Acks) error {
	if a.Replicas < 0 || a.Replicas > contract.MaxReplicas {
		return fmt.Errorf("locks: Acks.Replicas is %d: allowed are 0 to %d", a.Replicas, contract.MaxReplicas)
	}
	return nil
}

// Acknowledged returns a protocol on n whose grants and renewals count only once others have confirmed
// them. An [driver.Acknowledger] calls it. on returns the algorithm on any node: each grant
// and each renewal runs on a connection of its own. Extend must write every time, even if the lock lasts
// long enough, because WAIT waits for the last write of its own connection.
func Acknowledged(n driver.Node, a strategy.Acks, on func(driver.Node) Confirmable) driver.Protocol {
	p := on(n)
	w := &acknowledged{Confirmable: p, node: n, acks: a, on: on}
	bulk, extendsMany := p.(driver.BulkExtender)
	notifier, notifies := p.(driver.Notifier)
	if extendsMany {
		bulk = acknowledgedBulk{w}
	}
	switch {
	case extendsMany && notifies:
		return struct {
			*acknowledged
			driver.BulkExtender
			driver.Notifier
		}{w, bulk, notifier}
	case extendsMany:
		return struct {
			*acknowledged
			driver.BulkExtender
		}{w, bulk}
	case notifies:
		return struct {
			*acknowledged
			driver.Notifier
		}{w, notifier}
	}
	return w
}

// A Confirmable is a [driver.Protocol] on one node whose grants and renewals can be [Acknowledged].
type Confirmable interface {
	driver.Protocol
	driver.Prober
	Use() error
	io.Closer
}

// acknowledged is Acknowledged without what not every protocol can do.
type acknowledged struct {
	Confirmable // on the node, for what neither grants nor prolongs
	node        driver.Node
	acks        strategy.Acks
	on          func(driver.Node) Confirmable
}

var _ interface {
	Confirmable
	driver.Reenterer
	driver.Validator
} = (*acknowledged)(nil)

// Acquire is the protocol's, acknowledged.
func (w *acknowledged) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return w.one(ctx, c, func(p Confirmable) (driver.Grant, error) { return p.Acquire(ctx, c) })
}

// Extend is the protocol's, acknowledged. A replica that knows only the old TTL would, if promoted,
// expire before the new deadline.
func (w *acknowledged) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return w.one(ctx, c, func(p Confirmable) (driver.Grant, error) { return p.Extend(ctx, c) })
}

// Adopt is the protocol's, acknowledged.
func (w *acknowledged) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return w.one(ctx, c, func(p Confirmable) (driver.Grant, error) { return p.Adopt(ctx, c, from) })
}

func (w *acknowledged) one(ctx context.Context, c driver.Claim, move func(Confirmable) (driver.Grant, error)) (driver.Grant, error) {
	var g driver.Grant
	var moved error
	err := w.confirm(ctx, c.Due, c.Key, func(p Confirmable) bool {
		g, moved = move(p)
		return moved == nil
	})
	if moved != nil {
		return g, moved
	}
	return g, err
}

// confirm makes a move on a connection of its own and, if it wrote, waits there until
// that is confirmed. Once the move has written, every error is ErrUnknown, even if WAIT was
// refused: the lock is there, and must be undone.
func (w *acknowledged) confirm(ctx context.Context, due time.Time, key string, move func(Confirmable) (wrote bool)) error {
	var wrote, enough bool
	var got strategy.Acks
	var why error
	err := w.node.Session(ctx, due, key, func(conn driver.Conn) error {
		if wrote = move(w.on(&lent{Node: w.node, conn: conn})); !wrote {
			return nil
		}
		got, why = ask(w.acks, w.node, conn, due)
		enough = why == nil && cover(got, w.acks)
		return why
	})
	switch {
	case !wrote:
		return err
	case enough && err == nil:
		return nil
	case why == nil:
		why = err
	}
	return &strategy.ServerError{Node: w.node.Name(), Kind: strategy.ErrUnknown, Err: &strategy.AcksError{Want: w.acks, Got: got, Err: why}}
}

// ask waits until all that a demands have confirmed the last write of conn, or the time is over. It
// returns what has confirmed.
func ask(a strategy.Acks, n driver.Node, conn driver.Conn, due time.Time) (got strategy.Acks, err error) {
	limit := max(patience(time.Until(due)).Milliseconds(), 1) // 0 would be for ever
	var reply any
	if !a.AOF {
		if reply, err = conn.Do("WAIT", a.Replicas, limit); err != nil {
			return strategy.Acks{}, err
		}
		if replicas, ok := reply.(int64); ok {
			return strategy.Acks{Replicas: int(replicas)}, nil
		}
		return strategy.Acks{}, BadReply(n.Name(), reply)
	}
	if reply, err = conn.Do("WAITAOF", 1, a.Replicas, limit); err != nil {
		return strategy.Acks{}, err
	}
	if r, _ := reply.([]any); len(r) == 2 {
		local, ok := r[0].(int64)
		replicas, ok2 := r[1].(int64)
		if ok && ok2 {
			return strategy.Acks{Replicas: int(replicas), AOF: local > 0}, nil
		}
	}
	return strategy.Acks{}, BadReply(n.Name(), reply)
}

// patience is how long WAIT may wait, of the time that is left until the time-out. The rest is for
// its reply. Without that reply nobody would know which confirmation is missing, and the
// connection would have to be killed.
func patience(left time.Duration) time.Duration { return left * 3 / 4 }

func cover(got, want strategy.Acks) bool {
	return got.Replicas >= want.Replicas && (got.AOF || !want.AOF)
}

// acknowledgedBulk is the ExtendAll of an acknowledged protocol that has one.
type acknowledgedBulk struct{ w *acknowledged }

// ExtendAll is the protocol's, with one wait for all. It passes on answers that need no
// confirmation before that wait: a holder that has lost its lock has to learn it at once.
func (b acknowledgedBulk) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	if len(cs) == 0 {
		return
	}
	due := cs[0].Due
	for _, c := range cs {
		if c.Due.Before(due) {
			due = c.Due
		}
	}
	type answer struct {
		g   driver.Grant
		err error
	}
	answers := make([]*answer, len(cs))
	err := b.w.confirm(ctx, due, cs[0].Key, func(p Confirmable) (wrote bool) {
		p.(driver.BulkExtender).ExtendAll(ctx, cs, func(i int, g driver.Grant, err error) {
			answers[i] = &answer{g, err}
			if err != nil && !elsewhere(err) {
				done(i, g, err)
			}
		})
		for _, a := range answers {
			wrote = wrote || a != nil && a.err == nil
		}
		return wrote
	})
	for i, a := range answers {
		switch {
		case a == nil && err != nil: // there was no connection
			done(i, driver.Grant{}, err)
		case a == nil: // no answer: the engine sees to that
		case a.err == nil:
			done(i, a.g, err)
		}
	}
	for i, a := range answers {
		if a != nil && elsewhere(a.err) { // a cluster: the connection was to the first one's server
			g, err := b.w.Extend(ctx, cs[i])
			done(i, g, err)
		}
	}
}

// elsewhere reports whether a cluster has the key on another server.
func elsewhere(err error) bool {
	return errors.Is(err, strategy.ErrRefused) && strings.Contains(err.Error(), "MOVED ")
}

// Reenters is the protocol's.
func (w *acknowledged) Reenters() bool {
	r, ok := w.Confirmable.(driver.Reenterer)
	return ok && r.Reenters()
}

// Validate refuses Acks that are nonsense.
func (w *acknowledged) Validate(o strategy.Options) error {
	if err := checkAcks(w.acks); err != nil {
		return err
	}
	if v, ok := w.Confirmable.(driver.Validator); ok {
		return v.Validate(o)
	}
	return nil
}

// Check is the protocol's. It also asks whether enough replicas, and the append-only file, confirm.
func (w *acknowledged) Check(ctx context.Context, o strategy.Options) error {
	if err := w.Confirmable.Check(ctx, o); err != nil {
		return err
	}
	return checkAcknowledged(ctx, w.acks, o, w.node)
}

// checkAcknowledged publishes an empty message to nobody, which replicas get, too, and waits until they
// confirm it. (If the user may not publish, it finds out only whether they confirmed earlier writes.)
func checkAcknowledged(ctx context.Context, a strategy.Acks, o strategy.Options, n driver.Node) error {
	due := time.Now().Add(o.OpTimeout)
	var got strategy.Acks
	err := n.Session(ctx, due, o.Key("check"), func(conn driver.Conn) (err error) {
		if _, err = conn.Do("PUBLISH", driver.SiblingKey(o.Key("check"), "free"), ""); err != nil && !errors.Is(err, strategy.ErrRefused) {
			return err
		}
		got, err = ask(a, n, conn, due)
		return err
	})
	switch {
	case err != nil && a.AOF && errors.Is(err, strategy.ErrRefused) && strings.Contains(err.Error(), "unknown command"):
		return fmt.Errorf("%w: Acks.AOF needs WAITAOF, of Redis 7.2 or Valkey: update the server, or demand Replicas alone", err)
	case err != nil && a.AOF && errors.Is(err, strategy.ErrRefused) && strings.Contains(err.Error(), "appendonly"):
		return fmt.Errorf("%w: set appendonly to yes, or demand Replicas alone", err)
	case err != nil:
		return err
	case got.Replicas < a.Replicas && a.AOF:
		return fmt.Errorf("%s: %d replicas confirm that they have it in their append-only file, Acks.Replicas is %d: connect as many, with appendonly yes, or demand fewer", n.Name(), got.Replicas, a.Replicas)
	case got.Replicas < a.Replicas:
		return fmt.Errorf("%s: %d replicas confirm, Acks.Replicas is %d: connect as many, or demand fewer", n.Name(), got.Replicas, a.Replicas)
	case a.AOF:
		return checkFsync(ctx, due, o, n)
	}
	return nil
}

// checkFsync refuses a server that does not make a write durable within the time for which a grant, or
// a renewal, waits. A server that does not say when it makes writes durable passes.
func checkFsync(ctx context.Context, due time.Time, o strategy.Options, n driver.Node) error {
	reply, err := n.Do(ctx, due, "CONFIG", "GET", "appendfsync")
	if errors.Is(err, strategy.ErrRefused) {
		return nil
	}
	if err != nil {
		return err
	}
	r, _ := reply.([]any)
	if len(r) != 2 {
		return nil
	}
	// A renewal begins with half of the TTL left at least, less drift, and may take half of that.
	shortest := patience(min(o.OpTimeout, o.TTL*2/9))
	switch when, _ := r[1].([]byte); string(when) {
	case "no":
		return fmt.Errorf("%s: appendfsync is no, so the kernel decides when writes become durable: set it to always or everysec", n.Name())
	case "everysec":
		if shortest < everySecond {
			return fmt.Errorf("%s: makes writes durable once a second (appendfsync everysec): set it to always, or Options.OpTimeout to 2s or more (it is %v) and TTL to 9s or more (it is %v)", n.Name(), o.OpTimeout, o.TTL)
		}
		return checkHaste(ctx, due, n)
	}
	return nil
}

var valkey = regexp.MustCompile(`valkey_version:((\d+)\.(\d+)\S*)`)

// checkHaste refuses a server that, with everysec, confirms what it has only written, up to a
// second before the sync. Valkey does, up to the last version that we have looked at. A server
// that does not report its kind and version passes.
func checkHaste(ctx context.Context, due time.Time, n driver.Node) error {
	reply, err := n.Do(ctx, due, "INFO", "server")
	if errors.Is(err, strategy.ErrRefused) {
		return nil
	}
	if err != nil {
		return err
	}
	info, _ := reply.([]byte)
	v := valkey.FindSubmatch(info)
	if v == nil {
		return nil
	}
	major, _ := strconv.Atoi(string(v[2]))
	minor, _ := strconv.Atoi(string(v[3]))
	if major > 9 || major == 9 && minor > 1 {
		return nil
	}
	return fmt.Errorf("%s: Valkey %s confirms with appendfsync everysec what it has written and not synced yet (https://github.com/redis/redis/pull/13793): set it to always", n.Name(), v[1])
}

// lent is a node whose commands go over one connection. Its session sees to time-outs.
type lent struct {
	driver.Node
	mu   sync.Mutex // a connection takes one command at a time, a protocol may send several
	conn driver.Conn
}

func (n *lent) Do(_ context.Context, _ time.Time, cmd, key string, args ...any) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if key == "" && len(args) == 0 {
		return n.conn.Do(cmd)
	}
	return n.conn.Do(cmd, append([]any{key}, args...)...)
}

// Eval runs a script by its hash, and in full if the server does not know it.
func (n *lent) Eval(_ context.Context, _ time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	all := []any{s.Hash(), len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	reply, err := n.conn.Do("EVALSHA", all...)
	if NoScript(err) { // it has changed nothing
		all[0] = s.Source()
		return n.conn.Do("EVAL", all...)
	}
	return reply, err
}

func (n *lent) Session(_ context.Context, _ time.Time, _ string, fn func(driver.Conn) error) error {
	return fn(n.conn)
}
