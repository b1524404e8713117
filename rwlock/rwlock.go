// Package rwlock is a read-write lock on one Redis: at any time many may read, or one may write.
//
// # The idea
//
// Reports read a price list, and now and then somebody replaces it. Reports do not disturb each other, so they may
// run at the same time; the one that replaces the list wants to be alone. A lock that many hold to read, or one
// holds to write, gives both.
//
//	s, err := rwlock.New(node, strategy.Options{})
//	err = strategy.Do(ctx, s.NewRLock("prices"), report)  // together with other reports
//	err = strategy.Do(ctx, s.NewLock("prices"), replace)  // alone
//
// Either of two simple rules keeps somebody out for ever. If readers come in whenever others read, a steady stream of
// readers keeps every writer out. If writers come first, a steady stream of writers keeps every reader out. So here
// readers and writers alternate in phases (a phase-fair lock).
//
// # How it works
//
// The lock is a sorted set. Its members are the holds, read:<token> or write:<token>, their scores the times at
// which they end by the server's clock. So each reader is a lease of its own: its renewal lengthens its hold and no
// other one, and a reader that has died lapses, however busy the others are.
//
// A reader comes in if nobody writes and no writer waits. A writer comes in if nobody holds the lock and nobody
// waits. Everybody else waits in one of two queues, where each process has one entry for all its writers, and one for all its
// readers. The script that ends a hold serves the queues in the same step:
//
//   - A writer goes, or makes its lock one to read ([strategy.ReadWriter].Downgrade): all readers that wait come in.
//     If none waits, the first writer comes in.
//   - The last reader goes, or the key has expired: the first writer comes in. If none waits, all readers do.
//   - The last writer that waits gives up while others read: the readers that wait come in.
//
// The script makes those who come in holders, and notifies them, as package fairqueue does (a direct grant). The readers of a
// process that wait get in together, in one step. A writer passes the lock on within its process, for a turn of 2 ms or 256 holds at
// most.
//
// # What it guarantees
//
//   - Exclusion: nobody writes while another reads or writes, for as long as Redis keeps the key and holders
//     stop at their deadline ([strategy.Lease.Deadline], Lost, Context).
//   - Ownership: only the holder releases or extends its hold. A late release changes nothing.
//   - A dead holder does not keep others out for ever: a writer is gone after its TTL, a reader after its own.
//   - Neither side starves: a reader waits for those who hold the lock, and for one writer at most unless writers
//     die; a writer waits for the writers before it, and between two of them for the readers that wait by then.
//     Processes get the lock to write in the order in which they came, and the writers of a process in theirs.
//   - Fencing: a writer's number is greater than all that were issued before it. The first reader of a phase gets a
//     new number, too, and those that join it get the same. A store that checks fences must refuse lesser numbers, and
//     let equal ones read. So it refuses a holder that was paused past its deadline, once a later one has come.
//   - Quiet waiting: a waiter sleeps until it has the lock. The requests for an acquisition do not grow with the
//     number of waiters.
//
// # When something breaks
//
//   - A holder dies: its hold ends with its TTL. The first in the queue knows when the next hold ends, and asks.
//   - A process that waits dies: nobody listens on its channel, so it is passed over, and a writer that has died keeps no
//     readers out.
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
// end too early. Fences still rise, unless the server's clock is behind the last fence. Options.Acks are
// refused: a direct grant would be unconfirmed.
//
// The lock is not re-entrant. A writer that acquires it once more, or a reader that acquires it to write, would wait for
// itself. Acquire refuses that at once, with [strategy.ErrHeld], if its ctx is that of the outer lease: see
// [strategy.Lease.Context], and strategy.Do. With any other ctx nobody knows that the caller is the holder, and it waits
// until that ctx ends. A reader that acquires it to read once more gets it, unless a writer has come to wait in between: then it waits
// for itself, whatever its ctx. Nor can a reader become a writer: two readers that both want that
// would each wait until the other has gone. Release the lock, acquire it to write, and read again. The other way is
// safe: see Downgrade. (It also takes a lease to read, and gives another one in its place.)
//
// # When
//
// Take it if holds are long, and readers are many. A reader, too, sends a request to release, and one to acquire unless it waits
// with others of its process, which ask together. Where reading takes less time than that, take package fairqueue. If readers
// can do with the state of a moment ago, let them read without a lock, and take one to write.
//
// # On the wire
//
// Acquire, Release and Extend are one script each, one round trip. A process that waits subscribes, and asks once more for
// its place. A release with a successor in the same process is the successor's acquire, too. Renewals that are due together go in one request, up to a hundred. The braces are part of the keys (a
// hash tag).
//
//	lock:{name}               a sorted set: the holds, read:<token> or write:<token>; see holders.lua. Of readers that got
//	                          in together the second is read:2.<token>, and so on
//	lock:{name}:readers       the readers that wait; see queue.lua in internal/algorithm
//	lock:{name}:readers:<line>  the channel for direct grants to the readers of one process
//	lock:{name}:writers       the writers that wait
//	lock:{name}:writers:<line>  the channel for direct grants to the writers of one process
//	lock:{name}:fence         the last fence, a number; it expires Options.FenceTTL after it was issued
//	lock:{name}:free          the channel for those who wait by notification; a message is the token that was
//	                          released, or made one to read
//
// No other library's lock has this form, and a key that has another form is refused. Read phases.lua,
// acquire.lua, admit.lua, release.lua and pass.lua, in this order. acquire_fast.lua and release_fast.lua stand before acquire and
// release, and answer their common case, a lock that nobody else wants, with fewer commands.
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

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/algorithm/fences"
	"github.com/lockstrategies/locks/internal/algorithm/holderset"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/algorithm/queue"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed phases.lua
	phasesLua string
	//go:embed acquire_fast.lua
	acquireFastLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed admit.lua
	admitLua string
	//go:embed release_fast.lua
	releaseFastLua string
	//go:embed release.lua
	releaseLua string
	//go:embed pass.lua
	passLua string

	rest   = holderset.Lua + queue.Entries + phasesLua
	shared = fences.Numbers + rest
	admits = queue.Enqueue + rest + admitLua

	acquire = driver.NewScript("acquire", fences.Numbers+holderset.Alone+acquireFastLua+admits+acquireLua)
	extend  = driver.NewScript("extend", shared+holderset.Extend)
	release = driver.NewScript("release", releaseFastLua+shared+releaseLua)
	pass    = driver.NewScript("pass", fences.Numbers+admits+passLua)
)

// A claim's Share says what it asks for.
const (
	write = 0
	read  = 1
)

var modes = [...]any{write: "write", read: "read"}

// New returns the strategy on a node: what the New of a client returns. It does no I/O: see [strategy.Strategy.Check].
// Close closes the node, unless another strategy uses it, too; the client stays the caller's.
func New(n driver.Node, o strategy.Options) (strategy.ReadWriter, error) {
	s, err := engine.New(On(n), o)
	if err != nil {
		return nil, err
	}
	return rwlock{s}, nil
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(n driver.Node) driver.Protocol {
	names := keycache.New("readers", "writers", "fence")
	return &protocol{holderset.Protocol{Node: driver.NodeOf(n, nil), Names: names, Renewal: extend}}
}

// rwlock adds readers to the engine's strategy, whose locks are to write.
type rwlock struct{ engine.Strategy }

func (s rwlock) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	made, err := s.Changed(change)
	if err != nil {
		return nil, err
	}
	return rwlock{made}, nil
}

func (s rwlock) NewRLock(name string) strategy.Lock { return s.NewShare(name, read) }

// Downgrade of a lease to read gives another lease to read: see adopt.lua.
func (s rwlock) Downgrade(ctx context.Context, lease strategy.Lease) (strategy.Lease, error) {
	return s.Exchange(ctx, lease, read)
}

// protocol is the algorithm on one node.
type protocol struct {
	holderset.Protocol // Extend, ExtendAll, Probe; Close is the node's
}

var _ interface {
	driver.Protocol // also adopt.go, inspect.go, check.go
	driver.Sharer
	driver.BulkExtender
} = (*protocol)(nil)

// MaxShare is that of a reader.
func (p *protocol) MaxShare() int { return read }

// Excludes says that only readers hold the lock together.
func (p *protocol) Excludes(held, asked int32) bool { return held != read || asked != read }

// Groups says that readers get in together.
func (p *protocol) Groups(share int32) bool { return share == read }

// Acquire makes c a holder if no hold excludes it and nobody waits who comes first; of a claim to read, as many holders as
// c.Holds says. Otherwise a claim with a Line takes its place in the queue.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	l := p.Names.Of(c.Key)
	args := []any{l.FenceTTL.Of(c.FenceTTL), l.TTL.Of(c.TTL), c.Token, modes[c.Share], count(c), queue.Entry(c, count(c))}
	asked, prove := queue.Asked(c), holderset.Prove(l)
	if asked+c.Joins+prove != "" {
		args = append(args, asked, c.Joins, prove)
	}
	reply, err := p.Eval(ctx, c.Due, acquire, l.Keys, args...)
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := p.acquired(c, reply)
	holderset.Proved(l, c, err)
	return g, err
}

// acquired reads the reply of an acquire: also a fence, and for how many holders it is, or how many of them are reserved.
func (p *protocol) acquired(c driver.Claim, reply any) (driver.Grant, error) {
	r, _ := reply.([]any)
	if len(r) != 2 {
		return p.Acquired(c, reply)
	}
	n, ok := r[1].(int64)
	if _, fence := r[0].(int64); !fence {
		return p.Acquired(c, reply)
	}
	if !ok || n < 1 || n > int64(count(c)) {
		return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
	}
	g, err := p.Acquired(c, r[0])
	if c.Share == read {
		g.Holds = int32(n)
	} else {
		g.Fences = int(n)
	}
	return g, err
}

// count is how many holders a claim to read is for, or how many fences one to write reserves.
func count(c driver.Claim) int {
	if c.Share == read {
		return int(max(c.Holds, 1))
	}
	return max(c.Fences, 1)
}

// Release gives the hold up, whether it is to read or to write, and serves the queue.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.release(ctx, c, "")
}

// Undo is Release of all holders that the claim is for, and also gives up the place in the queue.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	return rediskit.Undone(p, c, p.release(ctx, c, queue.Entry(c, count(c)), count(c)))
}

// ForceRelease is Release.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

func (p *protocol) release(ctx context.Context, c driver.Claim, entry string, undoes ...any) error {
	l := p.Names.Of(c.Key)
	args := append([]any{l.FenceTTL.Of(c.FenceTTL), c.Token, entry, l.Free}, undoes...)
	reply, err := p.Eval(ctx, c.Due, release, l.Keys, args...)
	if err != nil {
		l.Proven.Store(false)
		return err
	}
	return rediskit.ReleaseReply(p.Name(), c, reply)
}

// Pass is Release of c and Acquire of next, in one step.
func (p *protocol) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	l := p.Names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, pass, l.Keys, l.FenceTTL.Of(next.FenceTTL), l.TTL.Of(next.TTL), next.Token, modes[next.Share],
		count(next), queue.Entry(next, count(next)), queue.Asked(next), c.Token, l.Free)
	if err != nil {
		return driver.Grant{}, err
	}
	if reply == nil {
		return driver.Grant{}, &strategy.LostError{Name: c.Name}
	}
	return p.acquired(next, reply)
}

// Watch hears of direct grants to the claim's line; without a line, of releases that find nobody in the queue.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	l := p.Names.Of(c.Key)
	if c.Line != "" {
		return queue.Watch(ctx, p, c, queue.Channel(queueKey(l, c.Share), c.Line), true, func(n driver.Notification) {
			if c.Share == read { // the message says how many of them read
				n.Grant.Holds, n.Grant.Fences = int32(n.Grant.Fences), 0
			}
			fn(n)
		})
	}
	return rediskit.WatchChannel(ctx, p, c, l.Channel(), fn)
}

// queueKey is where a claim with this Share waits.
func queueKey(l *keycache.Lock, share int32) string {
	if share == read {
		return l.Keys[1]
	}
	return l.Keys[2]
}
