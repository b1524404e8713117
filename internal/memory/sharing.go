package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// Semaphore returns a strategy on m whose locks have so many permits.
func (m *Server) Semaphore(permits int, o strategy.Options) (strategy.Semaphore, error) {
	if permits < 1 {
		return nil, fmt.Errorf("locks: a semaphore of %d permits: allowed are 1 and more", permits)
	}
	return NewSemaphore(m.Shares(nil, permits), o)
}

// ReadWriter returns a strategy on m whose locks many may hold to read, or one to write.
func (m *Server) ReadWriter(o strategy.Options) (strategy.ReadWriter, error) {
	return NewReadWriter(m.Shares(nil, 0), o)
}

// semaphore adds to the engine's strategy what only a semaphore can do.
type semaphore struct {
	engine.Strategy
	p permitSetter
}

type permitSetter interface {
	driver.Protocol
	SetPermits(ctx context.Context, c driver.Claim, permits int) error
}

func NewSemaphore(p permitSetter, o strategy.Options) (strategy.Semaphore, error) {
	s, err := engine.New(p, o)
	if err != nil {
		return nil, err
	}
	return semaphore{s, p}, nil
}

func (s semaphore) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	made, err := s.Changed(change)
	if err != nil {
		return nil, err
	}
	return semaphore{made, s.p}, nil
}

func (s semaphore) NewMultiPermitLock(name string, permits int) strategy.Lock {
	return s.NewShare(name, permits)
}

func (s semaphore) SetPermits(ctx context.Context, name string, permits int) error {
	if permits < 0 {
		return fmt.Errorf("locks: SetPermits of %q to %d: allowed are 0 and more", name, permits)
	}
	return s.Ask(ctx, name, func(ctx context.Context, c driver.Claim) error {
		return s.p.SetPermits(ctx, c, permits)
	})
}

// readWriter adds to the engine's strategy what only a lock to read and to write can do.
type readWriter struct{ engine.Strategy }

func NewReadWriter(p driver.Protocol, o strategy.Options) (strategy.ReadWriter, error) {
	s, err := engine.New(p, o)
	if err != nil {
		return nil, err
	}
	return readWriter{s}, nil
}

func (s readWriter) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	made, err := s.Changed(change)
	if err != nil {
		return nil, err
	}
	return readWriter{made}, nil
}

// Reading is the share of a claim to read; to write it is zero.
const Reading = 1

func (s readWriter) NewRLock(name string) strategy.Lock {
	return s.NewShare(name, Reading)
}

func (s readWriter) Downgrade(ctx context.Context, write strategy.Lease) (strategy.Lease, error) {
	return s.Exchange(ctx, write, Reading)
}

// Shares is the protocol of locks on a Server that several may hold. It renews and watches as that of locks of one
// holder.
type Shares struct {
	Gated
	Permits int // of a lock whose number is not set; 0: a lock to read and to write
	Next    Pick
}

// A Pick returns the place in the queue, from 0, of the claim that joins the holders next; negative: none does. The
// lock has that many permits. wrote says that there was a writer when the request came.
type Pick func(l *Lock, queue []driver.Claim, permits int, wrote bool) int

func (m *Server) Shares(g Gate, permits int) Shares {
	if permits == 0 {
		return Shares{Gated{m, g}, 0, inPhases}
	}
	return Shares{Gated{m, g}, permits, inOrder}
}

// inOrder picks the first in the queue, if as many permits are free as it wants, or if it wants more than
// there are.
func inOrder(l *Lock, queue []driver.Claim, permits int, _ bool) int {
	if len(queue) == 0 {
		return -1
	}
	if wants := PermitsOf(queue[0].Share); wants <= permits && wants > permits-l.Taken() {
		return -1
	}
	return 0
}

// inPhases picks readers and writers alternately: when a writer has left, all readers that wait; otherwise
// the first writer, once the readers have left, and if none waits, all readers.
func inPhases(l *Lock, queue []driver.Claim, _ int, wrote bool) int {
	reader, writer := firstOfEach(queue)
	switch {
	case l.Writes():
		return -1
	case reader >= 0 && (wrote || writer < 0):
		return reader
	case len(l.Holds) == 0:
		return writer
	}
	return -1
}

// firstOfEach returns the places of the first reader and of the first writer in the queue, where all readers come
// before all writers. Negative: none waits.
func firstOfEach(queue []driver.Claim) (reader, writer int) {
	reads := func(c driver.Claim) bool { return c.Share == Reading }
	writes := func(c driver.Claim) bool { return !reads(c) }
	return slices.IndexFunc(queue, reads), slices.IndexFunc(queue, writes)
}

// PermitsOf is how many permits a share is: no share is one.
func PermitsOf(share int32) int { return int(max(share, 1)) }

// Taken is how many permits the holders have.
func (l *Lock) Taken() (n int) {
	for _, h := range l.Holds {
		n += PermitsOf(h.Share)
	}
	return n
}

// Writes reports whether one of the holders writes. A nil lock has none.
func (l *Lock) Writes() bool {
	return l != nil && slices.ContainsFunc(l.Holds, func(h Hold) bool { return h.Share != Reading })
}

// first is the hold that ends first; empty if nobody holds the lock.
func (l *Lock) first() Hold {
	if len(l.Holds) == 0 {
		return Hold{}
	}
	return slices.MinFunc(l.Holds, byEnd)
}

// MaxShare is how much of a lock one claim may ask for.
func (s Shares) MaxShare() int {
	if s.Permits == 0 {
		return Reading
	}
	return 1000
}

// Excludes reports whether one of them writes.
func (s Shares) Excludes(held, asked int32) bool {
	return s.Permits == 0 && (held != Reading || asked != Reading)
}

// Groups reports whether many may hold the share together: to read.
func (s Shares) Groups(share int32) bool { return s.Permits == 0 && share == Reading }

// Acquire admits those whom Next picks, and then gives the claim the last place in the queue, from which it may get in
// at once. If it does not, and has no Line, it leaves the queue again.
func (s Shares) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return s.request(ctx, OpAcquire, []driver.Claim{c}, func(x *step) (driver.Grant, error) {
		if x.l.Hold(c.Token) == nil && s.tooMany(c) {
			return driver.Grant{}, errTooMany
		}
		return x.admit(false)
	})
}

var errTooMany = Refused("more permits are asked for than there are")

// Pass is Release of c, and Acquire of next behind those who come first, in one step.
func (s Shares) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	return s.request(ctx, OpPass, []driver.Claim{c, next}, func(x *step) (driver.Grant, error) {
		held := x.l.Hold(c.Token)
		switch {
		case s.tooMany(next):
			return driver.Grant{}, errTooMany
		case held == nil:
			return driver.Grant{}, &strategy.LostError{Name: c.Name}
		}
		wrote, left := x.l.Writes(), PermitsOf(held.Share)-PermitsOf(next.Share)
		if x.l.Hold(next.Token) != nil { // it was granted its own while it queued
			left = PermitsOf(held.Share)
		}
		x.l.End(c.Token)
		g, err := x.admit(wrote)
		freed := left > 0
		if s.Permits == 0 {
			freed = wrote || len(x.l.Holds) == 0 || x.moved
		}
		if freed && x.unwanted() {
			x.told = append(x.told, s.tellReleased(c.Key, c.Token))
		}
		return g, err
	})
}

// Adopt puts the claim's token in another's place, with a new fence. The hold keeps its share, unless the claim
// has one: that is how a writer becomes a reader.
func (s Shares) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return s.request(ctx, OpAdopt, []driver.Claim{c}, func(x *step) (driver.Grant, error) {
		h := x.l.Hold(from)
		if h == nil {
			return driver.Grant{}, &strategy.LostError{Name: c.Name}
		}
		downgraded := c.Share != 0 && c.Share != h.Share
		if c.Share == 0 {
			c.Share = h.Share
		}
		c.Fences, c.Holds = 1, 0
		g := x.grant(c, c.TTL)
		if x.l.End(from); downgraded {
			x.serve(true)
			x.callFirst()
			x.told = append(x.told, s.tellReleased(c.Key, from))
		}
		return g, nil
	})
}

// Release takes the token's hold away. Those who do not queue are notified if they may come in now.
func (s Shares) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, s.Finish(ctx, OpRelease, c)
}

// Undo is Release of all holds of the claim, and gives up its place in the queue.
func (s Shares) Undo(ctx context.Context, c driver.Claim) error { return s.Finish(ctx, OpUndo, c) }

// ForceRelease is Release.
func (s Shares) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, s.Finish(ctx, OpForceRelease, c)
}

// Finish is Release, Undo or ForceRelease, as op says.
func (s Shares) Finish(ctx context.Context, op Op, c driver.Claim) error {
	_, err := s.request(ctx, op, []driver.Claim{c}, func(x *step) (driver.Grant, error) {
		held, wrote, queued, tokens := false, x.l.Writes(), -1, []string{c.Token}
		if op == OpUndo {
			tokens, queued = s.tokens(c), s.queued(c)
			s.dequeue(c)
		}
		for _, token := range tokens {
			held = held || x.l.Hold(token) != nil
			x.l.End(token)
		}
		x.moved = queued == 0 || queued > 0 && s.Permits == 0
		x.serve(held && wrote)
		x.callFirst()
		freed := held || queued >= 0
		if s.Permits == 0 {
			freed = held && (wrote || len(x.l.Holds) == 0) || x.moved
		}
		if freed && x.unwanted() {
			x.told = append(x.told, s.tellReleased(c.Key, c.Token))
		}
		switch {
		case held:
			return driver.Grant{}, nil
		case op == OpUndo:
			return driver.Grant{}, s.notThere(c)
		}
		return driver.Grant{}, &strategy.LostError{Name: c.Name}
	})
	return err
}

// SetPermits sets how many permits the lock has; 0: as many as its process says.
func (s Shares) SetPermits(ctx context.Context, c driver.Claim, permits int) error {
	_, err := s.request(ctx, OpPermits, []driver.Claim{c}, func(x *step) (driver.Grant, error) {
		if s.limits == nil {
			s.limits = map[string]int{}
		}
		if s.limits[c.Key] = permits; permits == 0 {
			delete(s.limits, c.Key)
		}
		x.serve(false)
		x.callFirst()
		if x.unwanted() {
			x.told = append(x.told, s.tellReleased(c.Key, "permits"))
		}
		return driver.Grant{}, nil
	})
	return err
}

// Inspect reports the hold that ends first, how much of the lock is held, and which claims queue for it.
func (s Shares) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return s.inspect(s.through(ctx), c, s.kind(), func(l *Lock, info *strategy.Info) {
		first := l.first()
		info.Token, info.Owner, info.TTL, info.Holds = first.Token, first.Token, s.left(first), l.Taken()
	})
}

// A step is what the server does for one request. Its methods are for callers that hold mu.
type step struct {
	Shares
	l       *Lock
	c       driver.Claim // of who asks
	granted driver.Grant // to c; a zero Fence: nothing yet
	moved   bool         // another may be the first in the queue now
	told    []func()     // notifications, sent when the step is over
}

// request makes one step, for the last of the claims.
func (s Shares) request(ctx context.Context, op Op, claims []driver.Claim, do func(x *step) (driver.Grant, error)) (driver.Grant, error) {
	c := claims[len(claims)-1]
	arrives := func(n int) {
		if op == OpAcquire || op == OpAdopt || op == OpPass {
			s.arrives(c.Token, n)
		}
	}
	arrives(1)
	return ask(s.Server, s.through(ctx), Request{op, claims}, func() { arrives(-1) }, func() (driver.Grant, error) {
		s.mu.Lock()
		x := &step{Shares: s, l: s.find(c.Key), c: c}
		defer func() {
			s.mu.Unlock()
			for _, tell := range x.told {
				tell()
			}
		}()
		switch {
		case x.l == nil:
			x.l = &Lock{kind: s.kind()}
		case x.l.kind != s.kind():
			return driver.Grant{}, errForeign
		}
		g, err := do(x)
		if s.put(c.Key, x.l); len(x.l.Holds) == 0 {
			delete(s.locks, c.Key)
		}
		return g, err
	})
}

// admit serves those who come before the claim that asks, and then it. wrote says that a writer has gone. A claim that was granted
// while it queued is granted again, because nobody knows that fence; and a reader that joins one of its process, although others wait.
func (x *step) admit(wrote bool) (driver.Grant, error) {
	c, kept := x.c, false
	joined := x.l.Hold(c.Joins)
	if x.l.Hold(c.Token) != nil || joined != nil && x.Groups(joined.Share) && x.Groups(c.Share) {
		x.moved = x.queued(c) >= 0
		x.dequeue(c)
		x.granted = x.grant(c, c.TTL)
	}
	x.serve(wrote)
	if x.granted.Fence == 0 {
		kept = x.enqueue(c, x.behind(c))
		x.serve(false)
	}
	x.callFirst()
	if x.granted.Fence != 0 {
		return x.granted, nil
	}
	first := x.l.first()
	held := &strategy.HeldError{Name: c.Name, Holder: first.Token, TTL: x.left(first)}
	if x.Permits > 0 {
		held.Taken, held.Permits = x.l.Taken(), x.limit(c.Key)
	}
	if c.Line == "" {
		x.dequeue(c)
		return driver.Grant{}, held
	}
	g := driver.Grant{ServerTime: x.serverTime(), Place: x.place(c), Kept: kept}
	x.prolong(c, g.Place, held.TTL)
	return g, held
}

// serve admits those whom Next picks. The claim that asks gets an answer, the others are notified. One that does
// not listen leaves the queue, and so does one that wants more permits than there are now: it asks, and is refused.
func (x *step) serve(wrote bool) {
	for {
		x.passOver()
		queue := x.queues[x.c.Key]
		i := x.Next(x.l, queue, x.limit(x.c.Key), wrote)
		if i < 0 {
			return
		}
		c, w := queue[i], x.listening(queue[i])
		x.dequeue(c)
		x.moved = true
		switch {
		case c.Token == x.c.Token:
			x.granted = x.grant(x.c, x.c.TTL)
		case w == nil || x.l.Hold(c.Token) != nil: // dead, or granted already
		case x.tooMany(c):
			x.told = append(x.told, func() { w.tell(driver.Notification{Next: time.Millisecond}) })
		default:
			ttl := driver.SuccessorTTL(c.TTL)
			g := x.grant(c, ttl)
			g.TTL, g.ServerTime = ttl, x.serverTime()
			x.told = append(x.told, func() { w.tell(driver.Notification{Token: c.Token, Grant: g}) })
		}
	}
}

// passOver takes those out of the queue who come first and do not listen, if there is room for them.
func (x *step) passOver() {
	for x.Permits == 0 && !x.l.Writes() || x.l.Taken() < x.limit(x.c.Key) {
		heads := x.heads(x.queues[x.c.Key])
		i := slices.IndexFunc(heads, func(c driver.Claim) bool { return c.Token != x.c.Token && x.listening(c) == nil })
		if i < 0 {
			return
		}
		x.dequeue(heads[i])
		x.moved = true
	}
}

// callFirst notifies those who are the first in the queue now when to ask.
func (x *step) callFirst() {
	next := time.Millisecond
	if len(x.l.Holds) > 0 {
		next = x.left(x.l.first())
	}
	for _, c := range x.heads(x.queues[x.c.Key]) {
		if x.moved {
			x.told = append(x.told, x.tellNext(c, next))
		}
	}
}

// unwanted reports whether those who do not queue may come in now.
func (x *step) unwanted() bool {
	queue := x.queues[x.c.Key]
	if x.Permits > 0 {
		return len(queue) == 0
	}
	_, writer := firstOfEach(queue)
	return !x.l.Writes() && writer < 0
}

// grant makes c a holder for ttl, or all the readers that it is for, or as many holds of permits as there is room for. The fence is
// new, and readers share it; if readers find the lock held, they have that of the holders. A writer has as many as it asks for, and so
// has a hold of permits; several share 256.
func (x *step) grant(c driver.Claim, ttl time.Duration) (g driver.Grant) {
	tokens := x.tokens(c)
	n := len(tokens)
	switch last := x.lastFence(c.Key); {
	case x.Permits > 0 && x.room(c) > 1:
		n = x.room(c)
		tokens = tokens[:n]
		each := max(min(c.Fences, 256/n), 1)
		if x.lastFence(c.Key) == 0 {
			each = 1
		}
		g.Fence, g.Fences, g.Holds = x.issue(c, each*n), each, int32(n)
	case x.Permits > 0:
		tokens = tokens[:1]
		if g.Fence, n = x.nextFences(c); n > 1 {
			g.Fences, g.Holds = n, 1
		}
	case !x.Groups(c.Share):
		if g.Fence, n = x.nextFences(c); n > 1 {
			g.Fences = n
		}
	case len(x.l.Holds) > 0 && last != 0:
		g.Fence = last
	default:
		g.Fence = x.issue(c, 1)
	}
	if x.Groups(c.Share) && n > 1 {
		g.Holds = int32(n)
	}
	for i, token := range tokens {
		h := Hold{Token: token, Until: x.ends(ttl), Share: c.Share, Fence: g.Fence}
		if x.Permits > 0 {
			h.Fence += uint64(i * max(g.Fences, 1))
		}
		if old := x.l.Hold(token); old != nil {
			h.Until = latest(old.Until, h.Until)
			*old = h
		} else {
			x.l.Holds = append(x.l.Holds, h)
		}
	}
	return g
}

// room is how many holds of permits c can have, at least one: as many as it has, or as are free, but no more than 1000 permits at once.
func (x *step) room(c driver.Claim) int {
	tokens := x.tokens(c)
	if x.l.Hold(c.Token) != nil {
		if i := slices.IndexFunc(tokens, func(token string) bool { return x.l.Hold(token) == nil }); i >= 0 {
			return i
		}
		return len(tokens)
	}
	free := min(x.limit(c.Key)-x.l.Taken(), 1000)
	return max(min(len(tokens), free/PermitsOf(c.Share)), 1)
}

// tokens are those of the holds that c is for.
func (s Shares) tokens(c driver.Claim) []string {
	all := []string{c.Token}
	for i := 1; i < int(c.Holds) && (s.Permits > 0 || s.Groups(c.Share)); i++ {
		all = append(all, driver.HoldToken(c.Token, i))
	}
	return all
}

// entry is what c has in the queue: readers, how many holds they wait for; a writer, how many fences it reserves. A claim for permits
// waits for one hold, with a number of fences that is always the same.
func (s Shares) entry(c driver.Claim) driver.Claim {
	switch {
	case s.Permits > 0:
		c.Fences, c.Holds = 16, 0
	case s.Groups(c.Share):
		c.Fences = 0
	default:
		c.Holds = 0
	}
	return c
}

func (s Shares) enqueue(c driver.Claim, behind int) (kept bool) {
	return s.Server.enqueue(s.entry(c), behind)
}

func (s Shares) queued(c driver.Claim) int { return s.Server.queued(s.entry(c)) }

func (s Shares) dequeue(c driver.Claim) { s.Server.dequeue(s.entry(c)) }

// heads are the first in the queue: of a lock to read and to write, the first reader and the first writer.
func (s Shares) heads(queue []driver.Claim) (heads []driver.Claim) {
	if s.Permits > 0 {
		return queue[:min(len(queue), 1)]
	}
	reader, writer := firstOfEach(queue)
	for _, i := range []int{reader, writer} {
		if i >= 0 {
			heads = append(heads, queue[i])
		}
	}
	return heads
}

// behind is how many come before a newcomer: all, but for a reader all readers. The caller holds mu.
func (s Shares) behind(c driver.Claim) int {
	queue := s.queues[c.Key]
	if _, writer := firstOfEach(queue); s.Permits == 0 && c.Share == Reading && writer >= 0 {
		return writer
	}
	return len(queue)
}

// place is c's in its queue, from 1. The caller holds mu.
func (s Shares) place(c driver.Claim) int32 {
	i := s.queued(c)
	if _, writer := firstOfEach(s.queues[c.Key]); s.Permits == 0 && c.Share != Reading {
		i -= writer
	}
	return int32(i + 1)
}

func (s Shares) kind() kind {
	if s.Permits > 0 {
		return ofPermits
	}
	return toReadAndWrite
}

// limit is how many permits the lock has. The caller holds mu.
func (s Shares) limit(key string) int {
	if n := s.limits[key]; n > 0 {
		return n
	}
	return s.Permits
}

// tooMany reports whether c wants more permits than there are. The caller holds mu.
func (s Shares) tooMany(c driver.Claim) bool {
	return s.Permits > 0 && PermitsOf(c.Share) > s.limit(c.Key)
}
