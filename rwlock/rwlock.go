// Package rwlock is a read-write lock on one Redis: at any time many may read, or one may write.
//
// # The idea
//
// Reports read a price list, and now and then somebody replaces it. Reports do not disturb each other, so they may
// run at the same time; the one that replaces the list wants to be alone. A lock that many hold to read, or one
// holds to write, gives both.
//
//	s, err := rwlock.New(pool, strategy.Options{})
//	err = strategy.Do(ctx, s.NewRLock("prices"), report)  // together with other reports
//	err = strategy.Do(ctx, s.NewLock("prices"), replace)  // alone
//
// Either of two simple rules keeps somebody out for ever. If readers come in whenever others read, a steady stream of
// readers keeps every writer out. If writers come first, a steady stream of writers keeps every reader out. So here
// readers and writers take turns (a phase-fair lock).
//
// # How it works
//
// The lock is a sorted set. Its members are the holds, read:<token> or write:<token>, their scores the times at
// which they end by the server's clock. So each reader is a lease of its own: its renewal lengthens its hold and no
// other one, and a reader that has died lapses, however busy the others are.
//
// A reader comes in if nobody writes and no writer waits. A writer comes in if nobody holds the lock and nobody
// waits. Everybody else waits in one of two queues, with an entry of its own. The script that ends a hold serves the
// queues in the same step:
//
//   - A writer goes, or makes its lock one to read ([strategy.ReadWriter].Downgrade): all readers that wait come in.
//     If none waits, the first writer comes in.
//   - The last reader goes, or the key has expired: the first writer comes in. If none waits, all readers do.
//   - The last writer that waits gives up while others read: the readers that wait come in.
//
// The script makes those who come in holders, and notifies them, as package fairqueue does (a direct grant).
//
// # What it guarantees
//
//   - Exclusion: nobody writes while another reads or writes, for as long as Redis keeps the key and holders
//     stop at their deadline ([strategy.Lease.Deadline], Lost, Context).
//   - Ownership: only the holder releases or extends its hold. A late release changes nothing.
//   - A dead holder does not keep others out for ever: a writer is gone after its TTL, a reader after its own.
//   - Neither side starves: a reader waits for those who hold the lock, and for one writer at most unless writers
//     die; a writer waits for the writers before it, and between two of them for the readers that wait by then.
//     Writers have their turns in the order in which they came.
//   - Fencing: a writer's number is greater than all that were issued before it. The first reader of a turn gets a
//     new number, too, and those that join it get the same. A store that checks fences must refuse lesser numbers, and
//     let equal ones read. So it refuses a holder that was paused past its deadline, once a later one has come.
//   - Quiet waiting: a waiter sleeps until it has the lock. The requests for an acquisition do not grow with the
//     number of waiters.
//
// # When something breaks
//
//   - A holder dies: its hold ends with its TTL. The first in the queue knows when the next hold ends, and asks.
//   - A waiter dies: nobody listens on its channel, so it is passed over, and a writer that has died keeps no readers
//     out.
//   - A waiter is paused: a direct grant is for a second at most ([driver.SuccessorTTL]), and the waiter
//     extends it when it runs. So it costs that second.
//   - A reply or a message is lost: as in package fairqueue. The engine undoes an acquire, and repeats a
//     release, until Redis confirms it or the TTL has passed.
//   - The ACL forbids the queue, or waiters do not use it (WaitPoll, WaitNotification): the lock excludes as before.
//     But no writer that waits keeps new readers out, so a steady stream of readers can keep it waiting for ever.
//
// # What it does not guarantee
//
// One Redis is one point of failure. If it forgets the key (a restart without persistence, a fail-over, an
// eviction, a FLUSHALL), the lock is granted again while its holders still work. If its clock is set forward, holds
// end too early. Fences still rise, unless the server's clock is behind the last fence. There is no option
// Acknowledged: a direct grant would be unconfirmed.
//
// The lock is not re-entrant. A holder that acquires it once more waits for itself, also a reader that acquires it to
// read: a writer may have come to wait in between. Nor can a reader become a writer: two readers that both want that
// would each wait until the other has gone. Release the lock, acquire it to write, and read again. The other way is
// safe: see Downgrade. (It also takes a lease to read, and gives another one in its place.)
//
// # When
//
// Take it if holds are long, and readers are many. A reader, too, sends a request to acquire and one to release. Where
// reading takes less time than that, take package fairqueue: it hands the lock on within a process. If readers can do
// with the state of a moment ago, let them read without a lock, and take one to write.
//
// # On the wire
//
// Acquire, Release and Extend are one script each, one round trip. A waiter subscribes, and asks once more for
// its place. Renewals that are due together go in one request, up to a hundred. The braces are part of the keys (a
// hash tag).
//
//	lock:{name}               a sorted set: the holds, read:<token> or write:<token>; see
//	                          internal/holders/holders.lua
//	lock:{name}:readers       the readers that wait; see internal/queue/queue.lua
//	lock:{name}:readers:<line>  the channel for direct grants to one of them
//	lock:{name}:writers       the writers that wait
//	lock:{name}:writers:<line>  the channel for direct grants to one of them
//	lock:{name}:fence         the last fence, a number; it expires Options.FenceTTL after it was issued
//	lock:{name}:free          the channel for those who wait by notification; a message is the token that was
//	                          released, or made one to read
//
// No other library's lock has this form, and a key that has another form is refused. Read turns.lua,
// acquire.lua and release.lua, in this order.
//
// Redis 6.2 or later, or Valkey.
//
// Source: B. B. Brandenburg and J. H. Anderson, "Spin-based reader-writer synchronization for multiprocessor
// real-time systems" (2010), have phase-fair locks. Redisson's RReadWriteLock has both modes in one hash; its readers
// share an expiry, so that one reader's renewal keeps a dead one in (https://github.com/redisson/redisson/issues/7098).
package rwlock

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/fences"
	"github.com/lockstrategies/locks/internal/holders"
	"github.com/lockstrategies/locks/internal/names"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/queue"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed turns.lua
	turnsLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed release.lua
	releaseLua string

	shared = holders.Lua + fences.Expiry + fences.Numbers + queue.Entries + turnsLua

	acquire = driver.NewScript("acquire", queue.Enqueue+shared+acquireLua)
	extend  = driver.NewScript("extend", shared+holders.Extend)
	release = driver.NewScript("release", shared+releaseLua)
)

// A claim's Share says what it asks for.
const (
	write = 0
	read  = 1
)

var modes = [...]any{write: "write", read: "read"}

// New returns the strategy on the Redis that pool dials. It takes the pool's settings (address, password, TLS,
// database) and dials two connections of its own. The caller closes the pool. It does no I/O: see
// [strategy.Strategy.Check].
func New(pool *redis.Pool, o strategy.Options) (strategy.ReadWriter, error) {
	n, err := node.New(pool)
	if err != nil {
		return nil, err
	}
	return Make(On(n), o)
}

// On returns the algorithm on any node: for other clients, decorators and tests. Closing the protocol closes
// the node.
func On(n driver.Node) driver.Protocol {
	return &protocol{holders.Protocol{Node: n, Names: names.New("readers", "writers", "fence"), Renewal: extend}}
}

// Make is engine.New for what [On] returns.
func Make(p driver.Protocol, o strategy.Options) (strategy.ReadWriter, error) {
	if _, ok := p.(*protocol); !ok {
		return nil, fmt.Errorf("locks: the protocol is a %T: allowed is what rwlock.On returns", p)
	}
	s, err := engine.New(p, o)
	if err != nil {
		return nil, err
	}
	return rwlock{s}, nil
}

// rwlock adds readers to the engine's strategy, whose locks are to write.
type rwlock struct{ strategy.Strategy }

func (s rwlock) With(o strategy.Options) (strategy.Strategy, error) {
	made, err := s.Strategy.With(o)
	if err != nil {
		return nil, err
	}
	return rwlock{made}, nil
}

func (s rwlock) NewRLock(name string) strategy.Lock { return engine.NewShare(s.Strategy, name, read) }

// Downgrade of a lease to read gives another lease to read: see adopt.lua.
func (s rwlock) Downgrade(ctx context.Context, lease strategy.Lease) (strategy.Lease, error) {
	return engine.Exchange(ctx, s.Strategy, lease, read)
}

// protocol is the algorithm on one node.
type protocol struct {
	holders.Protocol // Extend, ExtendAll, Probe; Close is the node's
}

var _ interface {
	driver.Protocol
	driver.Sharer
	driver.BulkExtender
	driver.Adopter   // adopt.go
	driver.Inspector // inspect.go
	driver.Checker   // check.go
	driver.Prober
} = (*protocol)(nil)

// MaxShare is that of a reader.
func (p *protocol) MaxShare() int { return read }

// Acquire makes c a holder if the lock lets it in and nobody waits who comes first. Otherwise a claim with a Line
// takes its place in the queue.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	l := p.Names.Of(c.Key)
	args := []any{l.FenceTTL.Of(c.FenceTTL), l.TTL.Of(c.TTL), c.Token, modes[c.Share], queue.Entry(c, 1)}
	if c.Asked && c.Line != "" {
		args = append(args, "1")
	}
	reply, err := p.Eval(ctx, c.Due, acquire, l.Keys, args...)
	if err != nil {
		return driver.Grant{}, err
	}
	return p.Acquired(c, reply)
}

// Release gives the hold up, whether it is to read or to write, and serves the queue.
func (p *protocol) Release(ctx context.Context, c driver.Claim) error {
	entry := ""
	if c.Undo {
		entry = queue.Entry(c, 1) // an undo also gives up the place in the queue
	}
	l := p.Names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, release, l.Keys, l.FenceTTL.Of(c.FenceTTL), c.Token, entry, l.Free)
	if err != nil {
		return err
	}
	return driver.ReleaseReply(p.Name(), p.Ordered(), c, reply)
}

// Watch hears of direct grants to the claim's line; without a line, of releases that find nobody in the queue.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	l := p.Names.Of(c.Key)
	if c.Line != "" {
		return queue.Watch(ctx, p, c, queue.Channel(queueKey(l, c.Share), c.Line), fn)
	}
	return driver.WatchChannel(ctx, p, c, l.Channel(), fn)
}

// queueKey is where a claim with this Share waits.
func queueKey(l *names.Lock, share int32) string {
	if share == read {
		return l.Keys[1]
	}
	return l.Keys[2]
}
