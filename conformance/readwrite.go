package conformance

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func readingAndWriting() []Property {
	return inGroup("reading and writing",
		scripted("ReadersTogether", "Many may read at the same time, and nobody writes until the last of them has gone.", func(t *trial) {
			a, b, w := t.reader("A", ample), t.reader("B", ample), t.writer("W", ample)
			first := a.try().want(nil, "nobody holds the lock")
			second := b.try().want(nil, "A reads, and nobody writes")
			if first.lease.Token() == second.lease.Token() {
				t.failf("the token of both A and B is %q, want one of its own for each", first.lease.Token())
			}
			w.try().want(strategy.ErrHeld, "A and B read")
			first.release().want(nil, "A reads")
			w.try().want(strategy.ErrHeld, "B reads")
			second.extend().want(nil, "B reads, whether A does or not")
			second.release().want(nil, "B reads")
			w.try().want(nil, "nobody reads any more")
		}),
		scripted("WithinItself",
			"A writer in the context of its own reader's lease, and a reader or writer in that of its own writer's, is refused at once, for it would wait for itself.",
			func(t *trial) {
				w := t.writer("A", t.patient())
				r := w.reading()
				acquire := func(c *contender, ctx context.Context) call {
					return await(t, aside(func() call { return c.acquireWith(ctx) }), t.patience,
						"%s.Acquire(%s) has not returned after %v, want an answer at once", c.who, c.wants(), t.patience)
				}
				reads := r.try().want(nil, "nobody holds the lock")
				ctx, cancel := reads.lease.Context(t.ctx)
				defer cancel()
				acquire(w, ctx).want(strategy.ErrHeld, "A itself reads")
				acquire(r, ctx).want(nil, "only readers hold the lock").release().want(nil, "A reads")
				reads.release().want(nil, "A reads")
				writes := w.try().want(nil, "nobody holds the lock")
				ctx, cancel = writes.lease.Context(t.ctx)
				defer cancel()
				acquire(r, ctx).want(strategy.ErrHeld, "A itself writes")
				acquire(w, ctx).want(strategy.ErrHeld, "A itself writes")
				writes.release().want(nil, "A writes")
			}),
		scripted("WriterAlone", "While one writes, nobody reads, and nobody else writes.", func(t *trial) {
			w, v, r := t.writer("W", ample), t.writer("V", ample), t.reader("R", ample)
			h := w.try().want(nil, "nobody holds the lock")
			r.try().want(strategy.ErrHeld, "W writes")
			v.try().want(strategy.ErrHeld, "W writes")
			w.reading().try().want(strategy.ErrHeld, "W writes: its lock is not re-entrant")
			h.release().want(nil, "W writes")
			r.try().want(nil, "W has released")
		}),
		byChance("ReadersAndWriters",
			"However many contend at once to read and to write, never does one write next to anybody else.",
			func(t *trial) {
				var inside atomic.Int64
				t.compete(func(who string, o strategy.Options) *contender {
					if who < "C" {
						return t.writer(who, o)
					}
					return t.reader(who, o)
				}, 4, func(h *hold) error {
					const writer = 1000 // counts as so many readers
					own, most := int64(writer), int64(writer)
					if h.c.reads {
						own, most = 1, writer-1
					}
					n := inside.Add(own)
					defer inside.Add(-own)
					if n > most {
						return fmt.Errorf("%d write and %d read at once, want one writer, or readers", n/writer, n%writer)
					}
					time.Sleep(time.Microsecond) // let the others in, if they can
					return nil
				})
			}),
		scripted("WriterNotStarved",
			"A reader that comes after a waiting writer waits, too, though others read; so the writer has its turn when these have gone, if the lock says that it is fair.",
			func(t *trial) {
				a, b, w := t.reader("A", ample), t.reader("B", ample), t.writer("W", ample)
				t.needs(t.Fair, "Subject.Fair is false")
				h := a.try().want(nil, "nobody holds the lock")
				writer := w.queues(1)
				b.try().want(strategy.ErrHeld, "W waits, and came before B")
				reader := b.queues(2)
				released := time.Now()
				h.release().want(nil, "A reads")
				inOrder(t, writer.done, released, reader)
				writer.k.want(nil, "it is its turn").release().want(nil, "W writes")
				reader.wait("W has released").want(nil, "it is its turn")
			}),
		scripted("ReadersNotStarved",
			"When a writer has gone, all readers that wait have their turn, also those behind another writer; then that one has its turn before new readers, if the lock says that it is fair.",
			func(t *trial) {
				v, w := t.writer("V", ample), t.writer("W", ample)
				t.needs(t.Fair, "Subject.Fair is false")
				h := v.try().want(nil, "nobody holds the lock")
				writer := w.queues(1)
				readers := []*pending{t.reader("A", ample).queues(2), t.reader("B", ample).queues(3)}
				released := time.Now()
				h.release().want(nil, "V writes")
				var reads []*hold
				for _, r := range readers {
					inOrder(t, r.done, released, writer)
					reads = append(reads, r.k.want(nil, "V has written, and readers wait"))
				}
				late := t.reader("C", ample).queues(2)
				for _, h := range reads {
					released = time.Now()
					h.release().want(nil, h.c.who+" reads")
				}
				inOrder(t, writer.done, released, late)
				writer.k.want(nil, "it is its turn").release().want(nil, "W writes")
				late.wait("W has released").want(nil, "it is its turn")
			}),
		scripted("WriterGivesUp",
			"When a waiting writer gives up, the readers behind it read next to those who read already, without a release.",
			func(t *trial) {
				a, b, w := t.reader("A", t.patient()), t.reader("B", t.patient()), t.writer("W", t.patient())
				t.needs(t.Fair, "Subject.Fair is false")
				a.try().want(nil, "nobody holds the lock")
				writer := w.queues(1)
				reader := b.queues(2)
				writer.givesUp().want(strategy.ErrHeld, "A reads")
				reader.wait("W has given up").want(nil, "A reads, and nobody else waits")
			}),
		scripted("DeadReader",
			"A reader that died does not read on after its TTL, though others renew theirs, and the others keep theirs.",
			func(t *trial) {
				a, w := t.reader("A", ample), t.writer("W", ample)
				d, k := t.reader("D", t.brief()), t.reader("K", t.brief())
				long := a.try().want(nil, "nobody holds the lock")
				kept := k.try().want(nil, "nobody writes")
				kept.keepAlive(0)
				dead := d.try().want(nil, "nobody writes")
				dead.detach()
				t.sleep(time.Until(dead.got.Add(t.ttl + t.ttl/2)))
				w.try().want(strategy.ErrHeld, "A and K read")
				kept.release().want(nil, "K keeps its lock alive")
				w.try().want(strategy.ErrHeld, "A reads: its TTL is long, whatever D's was")
				long.extend().want(nil, "A reads")
				long.release().want(nil, "A reads")
				w.try().want(nil, "D's TTL is over, whatever A and K have renewed")
			}),
		scripted("ReadersOnlyOwn",
			"A holder that has lost the lock, a reader or the writer, releases and extends nothing: those who read after it keep the lock.",
			func(t *trial) {
				b, w := t.reader("B", shorter), t.writer("W", ample)
				for i, a := range []*contender{t.reader("A", ample), t.reader("A", ample), t.writer("A", ample), t.writer("A", ample)} {
					name := fmt.Sprintf("%s/%d", t.name, i)
					late := a.on(name).try().want(nil, "nobody holds the lock")
					t.evict(name)
					h := b.on(name).try().want(nil, "A has lost the lock")
					if i%2 == 0 {
						late.release().want(strategy.ErrLost, "A has lost the lock")
					} else {
						late.extend().want(strategy.ErrLost, "A has lost the lock")
					}
					w.on(name).try().want(strategy.ErrHeld, "B reads")
					h.extend().want(nil, "B reads")
					h.release().want(nil, "B reads")
					w.on(name).try().want(nil, "nobody reads any more")
				}
			}),
		scripted("Downgrade",
			"A writer that downgrades reads from then on, together with the readers that wait, and nobody writes in between, if the lock says that it is fair.",
			func(t *trial) {
				a, b := t.writer("A", t.patient()), t.reader("B", t.patient())
				v, w := t.writer("V", t.patient()), t.writer("W", ample)
				t.needs(t.Fair, "Subject.Fair is false")
				writes := a.try().want(nil, "nobody holds the lock")
				writer := v.queues(1)
				reader := b.queues(2)
				made := time.Now()
				reads := writes.downgrade().want(nil, "A writes")
				inOrder(t, reader.done, made, writer)
				other := reader.k.want(nil, "A reads now")
				if reads.lease.Token() == writes.lease.Token() {
					t.failf("the token of the lease to read is %q, as that to write, want one of its own", reads.lease.Token())
				}
				writes.err().want(strategy.ErrReleased, "A does not write any more")
				writes.release().want(strategy.ErrReleased, "A does not write any more")
				other.release().want(nil, "B reads")
				w.try().want(strategy.ErrHeld, "A reads")
				reads.extend().want(nil, "A reads")
				reads.release().want(nil, "A reads")
				writer.wait("nobody reads any more").want(nil, "it is its turn")
			}),
		scripted("WriterFences",
			"A writer's fence is greater than all before it, and so is that of the first reader after a writer; no reader's is less than the last writer's.",
			func(t *trial) {
				w, r := t.writer("W", ample), t.reader("R", ample)
				t.needs(t.Fenced, "Subject.Fenced is false")
				var writer, greatest uint64 // the last writer's, and the greatest of all
				look := func(h *hold) *hold {
					fence, ok := h.lease.Fence()
					switch {
					case h.c.reads && (!ok || fence < writer):
						t.failf("%s.Fence() to read = %d, %v, want %d at least, that of the last writer", h.c.who, fence, ok, writer)
					case !h.c.reads && (!ok || fence <= greatest):
						t.failf("%s.Fence() to write = %d, %v, want more than %d, the greatest before it", h.c.who, fence, ok, greatest)
					case !h.c.reads:
						writer = fence
					}
					greatest = max(greatest, fence)
					return h
				}
				first := look(look(w.try().want(nil, "nobody holds the lock")).downgrade().want(nil, "W writes"))
				second := look(r.try().want(nil, "W reads"))
				first.release().want(nil, "W reads")
				waiter := w.start().settles()
				second.release().want(nil, "R reads")
				third := look(waiter.wait("nobody reads any more").want(nil, "it is its turn"))
				waiter = r.start().settles()
				third.release().want(nil, "W writes")
				first = look(waiter.wait("W has released").want(nil, "it is its turn"))
				after := func(h *hold) {
					if greatest <= writer {
						t.failf("%s.Fence() to read = %d, want more than that of the writer before it, whose late write it is to stop", h.c.who, greatest)
					}
				}
				after(first)
				first.release().want(nil, "R reads")
				look(w.try().want(nil, "nobody reads any more")).release().want(nil, "W writes")
				after(look(r.try().want(nil, "W has released")))
			}),
		scripted("ReadersLeaveNothing",
			"After the last release the servers keep nothing of a lock to read and to write, and nothing of those who waited for it.",
			func(t *trial) {
				w, v, r := t.writer("W", ample), t.writer("V", ample), t.reader("R", ample)
				t.needs(t.Leftovers != nil, "Subject.Leftovers is nil")
				h := w.try().want(nil, "nobody holds the lock")
				waiter := r.start().settles()
				reads := h.downgrade().want(nil, "W writes")
				other := waiter.wait("W reads").want(nil, "W reads")
				gaveUp := v.start().settles()
				gaveUp.givesUp()
				waiter = v.start().settles()
				reads.release().want(nil, "W reads")
				other.release().want(nil, "R reads")
				waiter.wait("nobody reads any more").want(nil, "it is its turn").release().want(nil, "V writes")
				t.nothingLeft(t.patience, "the last release")
			}),
	)
}

func (t *trial) writer(who string, o strategy.Options) *contender {
	t.needs(t.OpenRW != nil, "Subject.OpenRW is nil")
	return t.enrol(&contender{who: who, o: o}, func(o strategy.Options) (strategy.Strategy, error) { return t.OpenRW(o) })
}

func (t *trial) reader(who string, o strategy.Options) *contender { return t.writer(who, o).reading() }

// reading returns the same contender, which wants to read.
func (c *contender) reading() *contender {
	other := *c
	other.reads = true
	return other.on(c.lock.Name())
}

func (h *hold) downgrade() call {
	c := h.c.reading()
	k := c.do("Downgrade()", func() (strategy.Lease, error) {
		return c.s.(strategy.ReadWriter).Downgrade(c.t.ctx, h.lease)
	})
	k.of = h
	return k
}
