// The strategy as its users see it, on a real server: phases, downgrades, dead and late holders, fences, and users who may
// not do everything.
package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { locktest.MainForExamples(m, &url, new(driver.Node)) }

// TestConformance holds the strategy to what every lock must do, by its writers, and to what readers rely on.
func TestConformance(t *testing.T) { subjects.Run(t, "rwlock") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "rwlock") }

func open(t testing.TB, s *redistest.Server, o strategy.Options) strategy.ReadWriter {
	t.Helper()
	return openOn(t, s.Pool(), o)
}

// to is how a process acquires the lock.
func to(locks strategy.ReadWriter, name string, read bool) strategy.Lock {
	if read {
		return locks.NewRLock(name)
	}
	return locks.NewLock(name)
}

func openOn(t testing.TB, pool *redis.Pool, o strategy.Options) strategy.ReadWriter {
	t.Helper()
	locks, err := rwlock.New(redigonode.New(pool), o)
	return locktest.Opened(t, locks, err).(strategy.ReadWriter)
}

// A scene is one play of a test: a lock that nobody else uses, those who hold it and those who wait.
type scene struct {
	t       *testing.T
	server  *redistest.Server
	locks   strategy.ReadWriter
	name    string
	ctx     context.Context
	freed   time.Time // when a waiter was granted the lock last
	holding []strategy.Lease
}

// play plays a scene. A direct grant lasts for a second, unless its holder extends it: where the machine was too slow for
// that, others are granted the lock, and the scene is played again.
func play(t *testing.T, o strategy.Options, fn func(s *scene)) {
	t.Helper()
	server := redistest.Shared(t)
	verdict.Conclusive(t, func() (slow verdict.Slow) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &scene{t: t, server: server, locks: open(t, server, o), name: locktest.Unique(t), ctx: ctx}
		defer func() {
			cancel()
			for _, l := range s.holding {
				l.Release(t.Context()) //nolint:errcheck // of a scene that is over
			}
			if said, ok := recover().(verdict.Slow); ok {
				slow = said
			}
		}()
		fn(s)
		return ""
	})
}

// failf fails the test, unless the machine was too slow to tell.
func (s *scene) failf(format string, args ...any) {
	s.t.Helper()
	if late := time.Since(s.freed); !s.freed.IsZero() && late > driver.SuccessorTTL(time.Minute)/2 {
		panic(verdict.Slowf("the one that was granted the lock may have been %v late", late))
	}
	for _, l := range s.holding {
		if errors.Is(l.Err(), strategy.ErrLost) {
			panic(verdict.Slowf("a holder did not extend its direct grant in time"))
		}
	}
	s.t.Fatalf(format, args...)
}

func (s *scene) key() string     { return strategy.DefaultKey(s.name) }
func (s *scene) counter() string { return driver.SiblingKey(s.key(), "fence") }

func (s *scene) read() strategy.Lease  { s.t.Helper(); return s.try(true) }
func (s *scene) write() strategy.Lease { s.t.Helper(); return s.try(false) }

// readFirst lets two read. The first one's hold ends first, also if both came in the same millisecond.
func (s *scene) readFirst() (first, second strategy.Lease) {
	s.t.Helper()
	first = s.read()
	longer := open(s.t, s.server, strategy.Options{TTL: time.Minute}).NewRLock(s.name)
	return first, s.tried(longer, "to read for longer")
}

// try makes an attempt that must succeed.
func (s *scene) try(read bool) strategy.Lease {
	s.t.Helper()
	return s.tried(to(s.locks, s.name, read), fmt.Sprintf("to read (%t)", read))
}

func (s *scene) tried(lock strategy.Lock, what string) strategy.Lease {
	s.t.Helper()
	l, err := lock.TryAcquire(s.ctx)
	if err != nil {
		s.failf("TryAcquire() %s = %v, want nil", what, err)
	}
	s.holding = append(s.holding, l)
	return l
}

// refused makes an attempt that must not succeed.
func (s *scene) refused(read bool) *strategy.HeldError {
	s.t.Helper()
	l, err := to(s.locks, s.name, read).TryAcquire(s.ctx)
	var held *strategy.HeldError
	if !errors.As(err, &held) {
		if err == nil {
			s.holding = append(s.holding, l)
		}
		s.failf("TryAcquire() to read (%t) = %v, want ErrHeld", read, err)
	}
	return held
}

// A waiter is an Acquire under way.
type waiter struct {
	s      *scene
	cancel context.CancelFunc
	done   chan struct{}
	lease  strategy.Lease
	err    error
}

func (s *scene) waitsToRead() *waiter  { s.t.Helper(); return s.waits(true) }
func (s *scene) waitsToWrite() *waiter { s.t.Helper(); return s.waits(false) }

// waits makes a waiter that is a process of its own, as all who wait in one process have one place in the queue.
func (s *scene) waits(read bool) *waiter {
	s.t.Helper()
	return s.waitsIn(open(s.t, s.server, strategy.Options{}), read)
}

// waitsIn returns when the waiter, the first of its process, has its place, behind those that wait already.
func (s *scene) waitsIn(process strategy.ReadWriter, read bool) *waiter {
	s.t.Helper()
	before := s.queue()
	w := s.begins(process, read)
	verdict.Eventually(s.t, "the waiter is in the queue", func() bool {
		if w.over() {
			s.failf("Acquire() to read (%t) = %v at once, want that it waits", read, w.err)
		}
		return s.queue() > before
	})
	return w
}

func (s *scene) begins(process strategy.ReadWriter, read bool) *waiter {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &waiter{s: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = to(process, s.name, read).Acquire(ctx)
	}()
	return w
}

func (s *scene) info() strategy.Info {
	s.t.Helper()
	info, err := s.locks.Inspect(s.ctx, s.name)
	if err != nil {
		s.t.Fatal(err)
	}
	return info
}

func (s *scene) queue() int { s.t.Helper(); return len(s.info().Queue) }

func (w *waiter) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// comesIn returns the lease of a waiter that is granted the lock.
func (w *waiter) comesIn(why string) strategy.Lease {
	w.s.t.Helper()
	verdict.Eventually(w.s.t, why, w.over)
	if w.err != nil {
		w.s.failf("Acquire() = %v, want a lease: %s", w.err, why)
	}
	w.s.holding = append(w.s.holding, w.lease)
	return w.lease
}

// stay demands that waiters are still in the queue, each the first of its process: there are those that nobody has granted the lock.
func (s *scene) stay(why string, waiters ...*waiter) {
	s.t.Helper()
	if n := s.queue(); n != len(waiters) {
		s.failf("%d wait in the queue, want %d: %s", n, len(waiters), why)
	}
	for _, w := range waiters {
		if w.over() {
			s.failf("a waiter has come in (%v), want that it waits: %s", w.err, why)
		}
	}
}

// release gives a lease up, and with it the lock to others.
func (s *scene) release(l strategy.Lease) {
	s.t.Helper()
	before := time.Now()
	if err := l.Release(s.ctx); err != nil {
		s.failf("Release() = %v, want nil", err)
	}
	s.freed = before
	s.holding = slices.DeleteFunc(s.holding, func(x strategy.Lease) bool { return x == l })
}

func (s *scene) fence(l strategy.Lease) uint64 { s.t.Helper(); return locktest.Fence(s.t, l) }

// TestTogether: many read, or one writes; and what Inspect and a HeldError say of it.
func TestTogether(t *testing.T) {
	t.Parallel()
	play(t, strategy.Options{}, func(s *scene) {
		first, second := s.readFirst()
		if err := second.Extend(s.ctx); err != nil {
			s.failf("Extend() = %v", err)
		}
		held := s.refused(false)
		if held.Holder != first.Token() || held.TTL <= 0 {
			t.Errorf("HeldError = %+v, want the token of the reader that ends first", held)
		}
		if info := s.info(); !info.Held || info.Holds != 2 || info.Token != first.Token() || info.TTL <= 0 || info.Owner != first.Token() || info.Queue != nil {
			t.Errorf("Inspect() = %+v, want two holds, that of the first reader first", info)
		}
		s.release(first)
		if held := s.refused(false); held.Holder != second.Token() {
			t.Errorf("HeldError = %+v, want the token of the second reader", held)
		}
		s.release(second)
		writer := s.write()
		if info := s.info(); info.Holds != 1 || info.Token != writer.Token() {
			t.Errorf("Inspect() = %+v, want the writer", info)
		}
		for _, read := range []bool{true, false} {
			if held := s.refused(read); held.Holder != writer.Token() {
				t.Errorf("HeldError = %+v, want the writer's token", held)
			}
		}
		s.release(writer)
		if info := s.info(); info.Held || info.Holds != 0 || info.Token != "" {
			t.Errorf("Inspect() = %+v, want that nobody holds", info)
		}
		if n := redistest.Do(t, s.server, "EXISTS", s.key()); n != int64(0) {
			t.Error("the key is there after the last release")
		}
	})
}

// TestPhases: readers and writers alternate, so neither side waits for ever.
func TestPhases(t *testing.T) {
	t.Parallel()
	play(t, strategy.Options{}, func(s *scene) {
		first := s.write()
		w1, r1, w2, r2 := s.waitsToWrite(), s.waitsToRead(), s.waitsToWrite(), s.waitsToRead()
		s.release(first)
		a, b := r1.comesIn("a writer has gone"), r2.comesIn("a writer has gone, and this one reads, too")
		s.stay("others read", w1, w2)
		s.refused(true)
		r3 := s.waitsToRead()
		s.release(a)
		s.stay("one still reads, and a writer waits", w1, w2, r3)
		s.release(b)
		c := w1.comesIn("the last reader has gone")
		s.stay("another writes", w2, r3)
		s.release(c)
		d := r3.comesIn("a writer has gone")
		s.stay("another reads", w2)
		s.release(d)
		e := w2.comesIn("the last reader has gone")
		w3, w4 := s.waitsToWrite(), s.waitsToWrite()
		s.release(e)
		f := w3.comesIn("no reader waits")
		s.stay("another writes", w4)
		s.release(f)
		s.release(w4.comesIn("no reader waits"))
	})
}

// TestOneProcess: readers of one process that wait behind a writer come in together. Then a writer that waits comes in
// when they have gone, although others of that process wait to read.
func TestOneProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		same    bool // the writers are of the readers' process
		queued  bool // the second writer waits already when the readers come in
		readers int
	}{
		"nobody else waits":               {readers: 4},
		"nobody else waits, one process":  {readers: 4, same: true},
		"a writer waits":                  {readers: 4, queued: true},
		"a writer waits, in that process": {readers: 4, queued: true, same: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, strategy.Options{}, func(s *scene) {
				var inLine atomic.Int64 // each waiter plans its first pause when it has its place in line
				process := open(t, s.server, strategy.Options{Backoff: func(attempt int) time.Duration {
					if attempt == 1 {
						inLine.Add(1)
					}
					return 50 * time.Millisecond
				}})
				if test.same {
					s.locks = process
				}
				join := func(n int) []*waiter {
					t.Helper()
					all := []*waiter{s.waitsIn(process, true)}
					before := inLine.Load() // the first one's attempts are later ones from now on
					for range n - 1 {
						all = append(all, s.begins(process, true))
					}
					verdict.Eventually(t, "all readers wait", func() bool { return inLine.Load() == before+int64(n-1) })
					return all
				}
				var w *waiter // to write
				comeIn := func(all []*waiter) (in []strategy.Lease) {
					t.Helper()
					verdict.Eventually(t, "all readers come in when the writer has gone", func() bool {
						if w != nil && w.over() {
							w.comesIn("it has already")
							s.failf("a writer has come in before all readers")
						}
						return !slices.ContainsFunc(all, func(r *waiter) bool { return !r.over() })
					})
					for _, r := range all {
						in = append(in, r.comesIn("it has already"))
					}
					return in
				}

				first := s.write()
				early := join(test.readers)
				s.stay("a writer holds the lock, and they have one place", early[0])
				if test.queued {
					w = s.waitsIn(s.locks, false)
				}
				s.release(first)
				in := comeIn(early)
				if info := s.info(); info.Holds != len(in) {
					s.failf("Inspect() = %+v, want %d readers", info, len(in))
				}
				if !test.queued {
					w = s.waitsIn(s.locks, false)
				}
				s.refused(true)
				late := join(3)
				for _, l := range in {
					s.stay("one still reads, and the writer waits", w, late[0])
					s.release(l)
				}
				writer := w.comesIn("the last reader has gone")
				s.stay("the writer writes", late[0])
				w = nil
				s.release(writer)
				for _, l := range comeIn(late) {
					s.release(l)
				}
			})
		})
	}
}

// TestGivesUp: when the last writer that waits has left its queue, the readers come in.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	play(t, strategy.Options{}, func(s *scene) {
		first := s.read()
		w1, r1, w2, r2 := s.waitsToWrite(), s.waitsToRead(), s.waitsToWrite(), s.waitsToRead()
		s.freed = time.Now()
		w1.cancel()
		verdict.Eventually(t, "the first writer has left its queue", func() bool { return len(s.info().Queue) == 3 })
		s.stay("the second writer waits", r1, w2, r2)
		s.freed = time.Now()
		w2.cancel()
		a, b := r1.comesIn("both writers have given up"), r2.comesIn("both writers have given up")
		for _, w := range []*waiter{w1, w2} {
			if <-w.done; !errors.Is(w.err, context.Canceled) || !errors.Is(w.err, strategy.ErrHeld) {
				s.failf("Acquire() = %v, want ErrHeld and the end of its context", w.err)
			}
		}
		for _, l := range []strategy.Lease{first, a, b} {
			s.release(l)
		}
	})
}

// TestDowngrade: a writer that downgrades reads on, and all readers come in at once.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	play(t, strategy.Options{}, func(s *scene) {
		writer := s.write()
		w1, r1, w2, r2 := s.waitsToWrite(), s.waitsToRead(), s.waitsToWrite(), s.waitsToRead()
		s.freed = time.Now()
		reader, err := s.locks.Downgrade(s.ctx, writer)
		if err != nil {
			s.failf("Downgrade() = %v", err)
		}
		s.holding = append(s.holding, reader)
		a, b := r1.comesIn("a writer has downgraded"), r2.comesIn("a writer has downgraded, and this one reads, too")
		s.stay("others read", w1, w2)
		if info := s.info(); info.Holds != 3 {
			s.failf("Inspect() = %+v, want three readers", info)
		}
		if err := writer.Err(); !errors.Is(err, strategy.ErrReleased) {
			t.Errorf("Err() of the write lease = %v, want ErrReleased", err)
		}
		if reader.Token() == writer.Token() || s.fence(reader) != s.fence(writer) || s.fence(a) != s.fence(writer) || s.fence(b) != s.fence(writer) {
			t.Errorf("the token is the writer's (%t), and fences are %d, %d, %d; want a new token, and the writer's fence %d",
				reader.Token() == writer.Token(), s.fence(reader), s.fence(a), s.fence(b), s.fence(writer))
		}
		if err := reader.Extend(s.ctx); err != nil {
			s.failf("Extend() of the read lease = %v", err)
		}
		s.release(a)
		s.release(reader)
		s.stay("one still reads", w1, w2)
		s.release(b)
		c := w1.comesIn("the last reader has gone")
		if s.fence(c) <= s.fence(writer) {
			t.Errorf("the next writer's fence is %d, want more than %d", s.fence(c), s.fence(writer))
		}
		s.release(c)
		s.release(w2.comesIn("the writer before it has gone"))
	})
}

// TestDowngradeOf: what else may be downgraded, and what may not.
func TestDowngradeOf(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks, name := open(t, server, strategy.Options{}), locktest.Unique(t)
	other := open(t, server, strategy.Options{})

	first := try(t, locks.NewRLock(name))
	second, err := locks.Downgrade(t.Context(), first)
	if err != nil {
		t.Fatalf("Downgrade() of a read lease = %v", err)
	}
	if second.Token() == first.Token() || !errors.Is(first.Err(), strategy.ErrReleased) {
		t.Errorf("Downgrade() of a read lease leaves %v, want a new lease in place of the old one", first.Err())
	}
	if _, err := locks.Downgrade(t.Context(), first); !errors.Is(err, strategy.ErrReleased) {
		t.Errorf("Downgrade() of a lease that is over = %v, want ErrReleased", err)
	}
	locktest.Release(t, second)

	writer := try(t, locks.NewLock(name))
	if _, err := other.Downgrade(t.Context(), writer); err == nil || writer.Err() != nil {
		t.Errorf("Downgrade() by another strategy = %v, and then the lease is %v, want an error, and that the lease is held", err, writer.Err())
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Downgrade(cancelled, writer); !errors.Is(err, context.Canceled) || writer.Err() != nil {
		t.Errorf("Downgrade() with a context that is done = %v, and then the lease is %v, want that nothing has changed", err, writer.Err())
	}
	redistest.Do(t, server, "DEL", strategy.DefaultKey(name))
	if l, err := locks.Downgrade(t.Context(), writer); !errors.Is(err, strategy.ErrLost) || l != nil {
		t.Errorf("Downgrade() of a lock that is gone = %v, %v, want ErrLost", l, err)
	}
	if err := locktest.Held(t, locks, name); err == nil {
		t.Error("the lock is held after a Downgrade that failed")
	}
}

func try(t testing.TB, l strategy.Lock) strategy.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want nil", err)
	}
	return lease
}

// TestDeadReader: a reader that has died lapses with its own TTL, however often others renew theirs.
func TestDeadReader(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks, name := open(t, server, strategy.Options{}), locktest.Unique(t)
	brief := open(t, server, strategy.Options{TTL: 300 * time.Millisecond, OpTimeout: 250 * time.Millisecond})
	alive := try(t, locks.NewRLock(name))
	verdict.Eventually(t, "a reader comes in, and dies before its TTL ends", func() bool {
		dead, err := brief.NewRLock(name).TryAcquire(t.Context())
		if err != nil {
			return false
		}
		_, err = dead.Detach()
		return err == nil
	})
	verdict.Eventually(t, "the dead reader is gone, although another renews its hold", func() bool {
		if err := alive.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := locks.Inspect(t.Context(), name)
		return err == nil && info.Holds == 1 && info.Token == alive.Token()
	})
	locktest.Release(t, alive)
	locktest.Release(t, try(t, locks.NewLock(name)))
}

// TestDeadHolders: a waiter comes in when the holders that have died lapse.
func TestDeadHolders(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprintf("read %t", read), func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			name := locktest.Unique(t)
			locks := open(t, server, strategy.Options{})
			brief := open(t, server, strategy.Options{TTL: 400 * time.Millisecond, OpTimeout: 350 * time.Millisecond})
			dies := func(l strategy.Lock) {
				verdict.Eventually(t, "a holder dies before its TTL ends", func() bool {
					lease, err := l.TryAcquire(t.Context())
					if err != nil {
						return false
					}
					_, err = lease.Detach()
					return err == nil
				})
			}
			if read {
				dies(brief.NewRLock(name))
				dies(brief.NewRLock(name))
			} else {
				dies(brief.NewLock(name))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			lease, err := locks.NewLock(name).Acquire(ctx)
			if err != nil {
				t.Fatalf("Acquire() next to holders that have died = %v", err)
			}
			lease.Release(t.Context()) //nolint:errcheck // on a slow machine it has lapsed
		})
	}
}

// TestLapsed: holders are dropped that are still in the key, and count as gone: a writer lets readers in, readers let a writer in.
func TestLapsed(t *testing.T) {
	t.Parallel()
	lapse := func(s *scene, mode string, l strategy.Lease) {
		redistest.Do(t, s.server, "ZADD", s.key(), 1000, mode+":"+l.Token())
	}
	play(t, strategy.Options{}, func(s *scene) { // a writer: the readers
		dead := s.write()
		w1, r1 := s.waitsToWrite(), s.waitsToRead()
		lapse(s, "write", dead)
		s.freed = time.Now()
		s.refused(true) // a newcomer finds it, and waits, because a writer waits
		a := r1.comesIn("a writer has lapsed")
		s.stay("another reads", w1)
		s.release(a)
		s.release(w1.comesIn("the last reader has gone"))
	})
	play(t, strategy.Options{}, func(s *scene) { // readers: the writer
		dead := s.read()
		w1, r1 := s.waitsToWrite(), s.waitsToRead()
		lapse(s, "read", dead)
		s.freed = time.Now()
		s.refused(false)
		a := w1.comesIn("the readers have lapsed")
		s.stay("another writes", r1)
		s.release(a)
		s.release(r1.comesIn("the writer has gone"))
	})
	play(t, strategy.Options{}, func(s *scene) { // nobody knows: the writer
		s.write()
		r1, w1, r2 := s.waitsToRead(), s.waitsToWrite(), s.waitsToRead()
		redistest.Do(t, s.server, "DEL", s.key())
		s.freed = time.Now()
		s.refused(true)
		w := w1.comesIn("the key is gone")
		s.stay("another writes", r1, r2)
		s.release(w)
		s.release(r1.comesIn("the writer has gone"))
		s.release(r2.comesIn("it reads, too"))
	})
}

// TestLateHolders: a holder that has lost its hold changes nothing for those after it.
func TestLateHolders(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks := open(t, server, strategy.Options{})
	for _, read := range []bool{false, true} {
		for what, late := range map[string]func(strategy.Lease) error{
			"Extend":  func(l strategy.Lease) error { return l.Extend(t.Context()) },
			"Release": func(l strategy.Lease) error { return l.Release(t.Context()) },
		} {
			name := locktest.Unique(t)
			zombie := try(t, to(locks, name, read))
			redistest.Do(t, server, "DEL", strategy.DefaultKey(name))
			writer := try(t, locks.NewLock(name))
			if err := late(zombie); !errors.Is(err, strategy.ErrLost) {
				t.Errorf("%s() to read (%t), after the lock was lost = %v, want ErrLost", what, read, err)
			}
			if info, err := locks.Inspect(t.Context(), name); err != nil || info.Token != writer.Token() || info.Holds != 1 {
				t.Errorf("Inspect() = %+v, %v, want the writer", info, err)
			}
			locktest.Release(t, writer)
		}
	}
}

// TestFences: a writer's number, and that of the first reader of a phase, is greater than all before it; readers that
// join have that reader's.
func TestFences(t *testing.T) {
	t.Parallel()
	play(t, strategy.Options{}, func(s *scene) {
		var last uint64
		rises := func(what string, l strategy.Lease) {
			if n := s.fence(l); n <= last {
				s.failf("the fence of %s is %d after %d, want more", what, n, last)
			} else {
				last = n
			}
		}
		same := func(what string, l strategy.Lease) {
			if n := s.fence(l); n != last {
				s.failf("the fence of %s is %d, want %d", what, n, last)
			}
		}
		for _, read := range []bool{true, true, false, false, true} {
			l := s.try(read)
			rises("a holder that is alone", l)
			s.release(l)
		}
		first := s.try(true)
		rises("the first reader", first)
		second := s.try(true)
		same("a second reader", second)
		if info := s.info(); info.Fence != last {
			s.failf("Inspect() = fence %d, want %d", info.Fence, last)
		}
		redistest.Do(t, s.server, "DEL", s.counter()) // as if it had expired
		third := s.try(true)
		rises("a reader that joins when the counter is gone", third)
		for _, l := range []strategy.Lease{first, second, third} {
			s.release(l)
		}

		writer := s.write()
		rises("a writer", writer)
		r1, r2 := s.waitsToRead(), s.waitsToRead()
		s.release(writer)
		a, b := r1.comesIn("the writer has gone"), r2.comesIn("the writer has gone")
		rises("the first reader that was granted the lock", a)
		same("the second", b)
		w := s.waitsToWrite()
		s.release(a)
		s.release(b)
		next := w.comesIn("the last reader has gone")
		rises("the writer that was granted the lock", next)
		s.release(next)
	})
}

func TestFencesExpire(t *testing.T) {
	t.Parallel()
	locktest.FencesExpire(t, func(t *testing.T, s *redistest.Server, o strategy.Options) strategy.Strategy { return open(t, s, o) })
}

// TestAdopt: the token alone is enough, and the hold stays what it was.
func TestAdopt(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks, other := open(t, server, strategy.Options{}), open(t, server, strategy.Options{})
	for _, read := range []bool{false, true} {
		name := locktest.Unique(t)
		lease := try(t, to(locks, name, read))
		fence := locktest.Fence(t, lease)
		token, err := lease.Detach()
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := other.Adopt(t.Context(), name, token)
		if err != nil {
			t.Fatalf("Adopt() to read (%t) = %v", read, err)
		}
		if got := locktest.Fence(t, adopted); got < fence || (got == fence) != read {
			t.Errorf("the fence of a hold to read (%t) is %d after %d; want the same for a reader, and more for a writer", read, got, fence)
		}
		if _, err := locks.Adopt(t.Context(), name, token); !errors.Is(err, strategy.ErrLost) {
			t.Errorf("the second Adopt() = %v, want ErrLost", err)
		}
		if second, err := locks.NewRLock(name).TryAcquire(t.Context()); (err == nil) != read {
			t.Errorf("TryAcquire() to read, next to an adopted hold to read (%t) = %v", read, err)
		} else if err == nil {
			locktest.Release(t, second)
		}
		if err := locktest.Held(t, locks, name); err != nil {
			t.Error(err)
		}
		if err := adopted.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if !read {
			if adopted, err = other.Downgrade(t.Context(), adopted); err != nil {
				t.Fatalf("Downgrade() of an adopted lease = %v", err)
			}
			locktest.Release(t, try(t, locks.NewRLock(name)))
		}
		locktest.Release(t, adopted)
		locktest.Release(t, try(t, locks.NewLock(name)))
	}
}

// TestForceRelease: an operator takes out the hold that ends first, whatever it is.
func TestForceRelease(t *testing.T) {
	t.Parallel()
	play(t, strategy.Options{}, func(s *scene) {
		first, second := s.readFirst()
		w := s.waitsToWrite()
		info := s.info()
		if err := s.locks.ForceRelease(s.ctx, info); err != nil {
			s.failf("ForceRelease() = %v", err)
		}
		if err := s.locks.ForceRelease(s.ctx, info); !errors.Is(err, strategy.ErrLost) {
			s.failf("the second ForceRelease() = %v, want ErrLost", err)
		}
		if err := first.Extend(s.ctx); !errors.Is(err, strategy.ErrLost) {
			t.Errorf("Extend() of a hold that was taken = %v, want ErrLost", err)
		}
		s.holding = slices.DeleteFunc(s.holding, func(l strategy.Lease) bool { return l == first })
		s.stay("another reads", w)
		s.freed = time.Now()
		if err := s.locks.ForceRelease(s.ctx, s.info()); err != nil {
			s.failf("ForceRelease() = %v", err)
		}
		s.holding = slices.DeleteFunc(s.holding, func(l strategy.Lease) bool { return l == second })
		s.release(w.comesIn("both readers were taken out"))
	})
}

// TestKeepAlive: many renewals go out together, to read and to write, and a lost hold does not end the others.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks := open(t, server, strategy.Options{})
	p, name := rwlock.On(locktest.Node(t, server)), locktest.Unique(t)
	var claims []driver.Claim
	for i := range 230 {
		c := driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: fmt.Sprint("t", i), Share: 1, TTL: time.Minute, Due: time.Now().Add(time.Minute)}
		if i%2 == 0 { // a lock of its own
			c.Name, c.Share = fmt.Sprint(name, i), 0
			c.Key = strategy.DefaultKey(c.Name)
		}
		if _, err := p.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		claims = append(claims, c)
	}
	redistest.Do(t, server, "ZREM", claims[1].Key, "read:t1")
	redistest.Do(t, server, "DEL", claims[2].Key)
	errs, _ := locktest.RenewAll(t, server, p, claims)
	for i, err := range errs {
		if want := i == 1 || i == 2; errors.Is(err, strategy.ErrLost) != want || !want && err != nil {
			t.Errorf("renewal %d = %v", i, err)
		}
	}
	if info, err := locks.Inspect(t.Context(), name); err != nil || info.Holds != 114 {
		t.Errorf("Inspect() = %+v, %v, want 114 readers", info, err)
	}
	for _, c := range claims {
		p.Release(t.Context(), c) //nolint:errcheck // two are gone
	}
}

// TestNoLock: what is no lock of this kind is refused, and left as it is.
func TestNoLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locks := open(t, server, strategy.Options{})
	for what, put := range map[string][]any{
		"a string": {"SET", "x"}, "a list": {"RPUSH", "x"}, "a sorted set without expiry": {"ZADD", "8999999999999", "write:x"}, "a semaphore": {"ZADD", "8999999999999", "x"},
	} {
		look := map[any][]any{"SET": {"GET"}, "RPUSH": {"LRANGE", 0, -1}, "ZADD": {"ZRANGE", 0, -1, "WITHSCORES"}}[put[0]]
		name := locktest.Unique(t)
		key := strategy.DefaultKey(name)
		redistest.Do(t, server, put[0].(string), append([]any{key}, put[1:]...)...)
		if what == "a semaphore" {
			redistest.Do(t, server, "PEXPIRE", key, 60_000)
		}
		seen := func() string {
			return fmt.Sprintf("%q", redistest.Do(t, server, look[0].(string), append([]any{key}, look[1:]...)...))
		}
		before := seen()
		for _, l := range []strategy.Lock{locks.NewLock(name), locks.NewRLock(name)} {
			if _, err := l.TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") && !strings.Contains(err.Error(), "NOLOCK") {
				t.Errorf("TryAcquire() of %s = %v, want ErrRefused with WRONGTYPE or NOLOCK", what, err)
			}
		}
		if _, err := locks.Adopt(t.Context(), name, "x"); !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("Adopt() of %s = %v, want ErrRefused", what, err)
		}
		if after := seen(); after != before {
			t.Errorf("%s is %s, want what it was, %s", what, after, before)
		}
		redistest.Do(t, server, "DEL", key)
	}
}

// TestOutOfMemory: holders renew, and release; those who wait come in; nobody else does.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t, redistest.Config{})
	c := server.Pool().Get()
	defer c.Close()
	if _, err := c.Do("CONFIG", "SET", "maxmemory", 0); err != nil {
		t.Skipf("NOT PROVEN: what a lock does on a server that is out of memory: %v", err)
	}
	locks := open(t, server, strategy.Options{})
	verdict.Conclusive(t, func() verdict.Slow {
		name := locktest.Unique(t)
		writer := try(t, locks.NewLock(name))
		got := make(chan strategy.Lease, 1)
		go func() {
			l, err := locks.NewRLock(name).Acquire(t.Context())
			if err != nil {
				t.Errorf("Acquire() of a waiter, while the server is out of memory = %v", err)
			}
			got <- l
		}()
		verdict.Eventually(t, "a reader waits", func() bool {
			info, err := locks.Inspect(t.Context(), name)
			return err == nil && len(info.Queue) == 1
		})
		for range 2 { // so that each script is known
			if err := writer.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			locktest.Release(t, try(t, locks.NewRLock(name+"/warm")))
		}
		redistest.Do(t, server, "CONFIG", "SET", "maxmemory", 1)
		defer redistest.Do(t, server, "CONFIG", "SET", "maxmemory", 0)
		for _, l := range []strategy.Lock{locks.NewLock(name + "/other"), locks.NewRLock(name + "/other")} {
			if _, err := l.TryAcquire(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("TryAcquire() = %v, want ErrRefused with OOM", err)
			}
		}
		if err := writer.Extend(t.Context()); err != nil {
			t.Errorf("Extend() = %v, want nil", err)
		}
		freed := time.Now()
		if err := writer.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
		reader := <-got
		if reader == nil {
			return ""
		}
		if late := time.Since(freed); late > driver.SuccessorTTL(time.Minute)/2 {
			return verdict.Slowf("the reader was %v late", late)
		}
		if err := reader.Release(t.Context()); err != nil {
			t.Errorf("Release() of the reader that was granted the lock = %v, want nil", err)
		}
		return ""
	})
}

// TestWaysToWait: readers and writers exclude each other, and all come in, however they wait.
func TestWaysToWait(t *testing.T) {
	for _, way := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll, strategy.WaitNotification, strategy.WaitQueue} {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			name := locktest.Unique(t)
			var in, readers atomic.Int64 // a writer counts a thousand
			most := atomic.Int64{}
			enter := func(read bool) error {
				share := int64(1000)
				if read {
					share = 1
					most.Store(max(most.Load(), readers.Add(1)))
					defer readers.Add(-1)
				}
				n := in.Add(share)
				defer in.Add(-share)
				if n != share && (!read || n >= 1000) {
					return fmt.Errorf("%d readers and %d writers hold the lock", n%1000, n/1000)
				}
				return nil
			}
			var all sync.WaitGroup
			for i := range 3 {
				locks := open(t, server, strategy.Options{Wait: way, TTL: time.Minute, OpTimeout: 50 * time.Second})
				for j := range 4 {
					all.Go(func() {
						for k := range 4 {
							read := (i+j+k)%3 > 0
							var broke error
							err := strategy.Do(t.Context(), to(locks, name, read), func(ctx context.Context, lease strategy.Lease) error {
								err := enter(read)
								if lease.Err() == nil {
									broke = err
								}
								return nil
							})
							if broke != nil {
								t.Error(broke)
							}
							if err != nil && !errors.Is(err, strategy.ErrLost) { // a direct grant may lapse on a slow machine
								t.Errorf("Do() = %v, want nil", err)
							}
						}
					})
				}
			}
			all.Wait()
			info, err := open(t, server, strategy.Options{}).Inspect(t.Context(), name)
			if err != nil || len(info.Queue) > 0 {
				t.Errorf("Inspect() = %+v, %v after all have gone, want that nobody waits", info, err)
			}
		})
	}
}

// TestGrantsHeard: the message of a direct grant says for how many readers it is, or how many fences a writer has.
func TestGrantsHeard(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	p := rwlock.On(locktest.Node(t, server))
	name := locktest.Unique(t)
	claim := func(token string, share int32) driver.Claim {
		return driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: token, Share: share, TTL: time.Minute, FenceTTL: time.Minute, Due: time.Now().Add(time.Minute)}
	}
	release := func(c driver.Claim) {
		t.Helper()
		if _, err := p.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	holder := claim("w", 0)
	if _, err := p.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	writer, readers := claim("w2", 0), claim("r", 1)
	writer.Line, writer.Fences = "writers", 16
	readers.Line, readers.Holds = "readers", 3
	heard := make(chan driver.Notification, 10)
	for _, c := range []driver.Claim{writer, readers} {
		stop, err := p.(driver.Notifier).Watch(t.Context(), c, func(n driver.Notification) {
			if n.Token != "" {
				heard <- n
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if _, err := p.Acquire(t.Context(), c); !errors.Is(err, strategy.ErrHeld) {
			t.Fatalf("Acquire() = %v, want ErrHeld", err)
		}
	}
	release(holder)
	if n := <-heard; n.Token != "r" || n.Grant.Holds != 3 || n.Grant.Fences != 0 {
		t.Errorf("readers heard %+v, want a grant of three holds", n)
	}
	for i := range 3 {
		hold := readers
		hold.Token = driver.HoldToken(readers.Token, i)
		release(hold)
	}
	if n := <-heard; n.Token != "w2" || n.Grant.Holds != 0 || n.Grant.Fences != 16 {
		t.Errorf("the writer heard %+v, want a grant with 16 fences", n)
	}
	release(writer)
}

// TestNotified: a waiter that does not queue hears of a release, and of a downgrade, when it may come in.
func TestNotified(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	p := rwlock.On(locktest.Node(t, server))
	claim := func(name, token string, share int32) driver.Claim {
		return driver.Claim{Name: name, Key: strategy.DefaultKey(name), Token: token, Share: share, TTL: time.Minute, Due: time.Now().Add(time.Minute)}
	}
	name := locktest.Unique(t)
	heard := make(chan string, 10)
	stop, err := p.(driver.Notifier).Watch(t.Context(), claim(name, "", 0), func(n driver.Notification) { heard <- n.Holder })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	acquire := func(token string, share int32) {
		t.Helper()
		if _, err := p.Acquire(t.Context(), claim(name, token, share)); err != nil {
			t.Fatal(err)
		}
	}
	release := func(token string) {
		t.Helper()
		if _, err := p.Release(t.Context(), claim(name, token, 0)); err != nil {
			t.Fatal(err)
		}
	}
	acquire("w", 0)
	if _, err := p.Adopt(t.Context(), claim(name, "r1", 1), "w"); err != nil {
		t.Fatal(err)
	}
	acquire("r2", 1)
	release("r2") // nobody may come in who could not before
	release("r1")
	acquire("w2", 0)
	release("w2")
	for _, want := range []string{"w", "r1", "w2"} {
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("heard %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("heard nothing, want %q", want)
		}
	}
}

// TestRoundTrips: what the package doc says of the wire, as the server counts it.
func TestRoundTrips(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{})
	for range 2 { // dials, and loads the scripts
		l := try(t, locks.NewLock("warm"))
		if err := l.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := locks.Downgrade(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		locktest.Release(t, r)
	}
	count := func(what string, f func() error) { t.Helper(); locktest.RoundTrips(t, s, what, 1, f) }
	var w, r, second strategy.Lease
	var err error
	count("Acquire to write", func() error { w = try(t, locks.NewLock("counted")); return nil })
	count("a held TryAcquire", func() error { return locktest.Held(t, locks, "counted") })
	count("Extend", func() error { return w.Extend(t.Context()) })
	count("Downgrade", func() error { r, err = locks.Downgrade(t.Context(), w); return err })
	count("Acquire to read", func() error { second = try(t, locks.NewRLock("counted")); return nil })
	count("Release", func() error { return r.Release(t.Context()) })
	count("the last Release", func() error { return second.Release(t.Context()) })
}

// TestLeastRights: a user who may do no more than Check demands can do all, and Check names what is missing.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{})
	least := []any{
		"-@all", "resetkeys", "resetchannels", "~lock:*", "&lock:*", "+eval", "+evalsha", "+subscribe", "+unsubscribe", "+publish", "+pubsub", "+time",
		"+zrange", "+zadd", "+zrem", "+zremrangebyscore", "+zscore", "+zcount", "+pttl", "+pexpireat", "+get", "+set",
		"+lindex", "+lpop", "+lrange", "+lpos", "+lrem", "+rpush", "+pexpire",
	}
	pool := locktest.As(t, s, "least", "which rights a lock needs", least...)
	locks := openOn(t, pool, strategy.Options{Wait: strategy.WaitQueue})
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	verdict.Conclusive(t, func() verdict.Slow {
		name := locktest.Unique(t)
		w := try(t, locks.NewLock(name))
		got := make(chan error, 2)
		for range 2 { // each is a process, and so has a place in the queue
			process := openOn(t, pool, strategy.Options{Wait: strategy.WaitQueue})
			go func() {
				l, err := process.NewRLock(name).Acquire(t.Context())
				if err == nil {
					err = l.Release(t.Context())
				}
				got <- err
			}()
		}
		verdict.Eventually(t, "two readers wait", func() bool {
			info, err := locks.Inspect(t.Context(), name)
			return err == nil && len(info.Queue) == 2
		})
		freed := time.Now()
		r, err := locks.Downgrade(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		errs := []error{<-got, <-got, r.Release(t.Context())}
		if late := time.Since(freed); late > driver.SuccessorTTL(time.Minute)/2 {
			return verdict.Slowf("the readers were %v late", late)
		}
		for _, err := range errs {
			if err != nil {
				t.Errorf("a reader: %v", err)
			}
		}
		return ""
	})
	for _, cmd := range []string{"zrange", "zadd", "zrem", "zremrangebyscore", "zscore", "zcount", "pttl", "pexpireat", "get", "set", "lindex", "lpop", "lpos", "lrem", "rpush", "pexpire", "publish"} {
		rules := append(slices.Clone(least), "-"+cmd)
		locks := openOn(t, locktest.As(t, s, "no-"+cmd, "that Check names a right", rules...), strategy.Options{Wait: strategy.WaitQueue})
		if err := locks.Check(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(fmt.Sprint(err), "+"+cmd) {
			t.Errorf("Check() without %s = %v, want ErrRefused that names it", cmd, err)
		}
	}
	notified := openOn(t, locktest.As(t, s, "free", "that Check names a channel", append(slices.Clone(least), "-publish")...), strategy.Options{Wait: strategy.WaitNotification})
	if err := notified.Check(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), ":free") {
		t.Errorf("Check() of a user that waits by notification, without publish = %v, want ErrRefused that names the channel", err)
	}
	without := openOn(t, locktest.As(t, s, "none", "that Check passes without the queue", append(slices.Clone(least), "-lrange", "-publish")...), strategy.Options{})
	if err := without.Check(t.Context()); err != nil {
		t.Errorf("Check() of a user that may wait in any way, without the queue = %v, want nil", err)
	}
}

// TestReplies: what no such script replies is an unknown outcome.
func TestReplies(t *testing.T) {
	t.Parallel()
	c := locktest.AClaim()
	locktest.ErrorsAreTold(t, rwlock.On)
	odd := []any{int64(0), int64(-1), []byte("x"), []any{}, []any{[]byte("a"), []byte("b")}, []any{int64(1), []byte("t"), int64(1), nil, nil}}
	for _, reply := range odd {
		p := rwlock.On(locktest.OneReply{Reply: reply})
		_, err := p.Acquire(t.Context(), c)
		_, err2 := p.Adopt(t.Context(), c, "from")
		_, err3 := p.Inspect(t.Context(), c)
		if b, ok := reply.([]byte); ok && string(b) == "x" {
			err2 = strategy.ErrUnknown // another holds it
		}
		for i, err := range []error{err, err2, err3, locktest.Err(p.Release(t.Context(), c))} {
			if !errors.Is(err, strategy.ErrUnknown) && !(i == 3 && errors.Is(err, strategy.ErrLost)) {
				t.Errorf("operation %d with the reply %v = %v, want ErrUnknown", i, reply, err)
			}
		}
	}
	for _, reply := range []any{
		[]any{[]byte("1"), []byte("t"), int64(5), nil, []any{}}, []any{int64(1), []byte("t"), nil, nil, []any{}}, []any{int64(1), nil, int64(5), nil, []any{}},
	} {
		if _, err := rwlock.On(locktest.OneReply{Reply: reply}).Inspect(t.Context(), c); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Inspect() with the reply %v = %v, want ErrUnknown", reply, err)
		}
	}
	bad := []any{int64(1), []byte("t"), int64(5), []byte("seven"), []any{}}
	if _, err := rwlock.On(locktest.OneReply{Reply: bad}).Inspect(t.Context(), c); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() with a counter that holds no fence = %v, want ErrRefused", err)
	}
}

// TestAsked: what the scripts are asked with.
func TestAsked(t *testing.T) {
	t.Parallel()
	with := func(change func(*driver.Claim)) driver.Claim {
		c := locktest.AClaim()
		change(&c)
		return c
	}
	c := locktest.AClaim()
	line := with(func(c *driver.Claim) { c.Line = "l" })
	reader := with(func(c *driver.Claim) { c.Line, c.Share, c.Repeated = "l", 1, true })
	readers := with(func(c *driver.Claim) { c.Line, c.Share, c.Holds = "l", 1, 9 })
	joins := with(func(c *driver.Claim) { c.Share, c.Joins = 1, "b" })
	writer := with(func(c *driver.Claim) { c.Line, c.Fences = "l", 16 })
	const keys = " a {a}:readers: {a}:writers: {a}:fence: "
	nine := []any{int64(7), int64(9)}
	next := func(c driver.Claim) driver.Claim {
		c.Token = "next"
		return c
	}
	granted := func(f func(p driver.Sharer) (driver.Grant, error)) func(n driver.Node) (any, error) {
		return func(n driver.Node) (any, error) { return f(rwlock.On(n).(driver.Sharer)) }
	}
	acquire := func(c driver.Claim) func(n driver.Node) (any, error) {
		return granted(func(p driver.Sharer) (driver.Grant, error) { return p.(driver.Protocol).Acquire(t.Context(), c) })
	}
	pass := func(to driver.Claim) func(n driver.Node) (any, error) {
		return granted(func(p driver.Sharer) (driver.Grant, error) { return p.Pass(t.Context(), c, next(to)) })
	}
	one, several, together := driver.Grant{Fence: 7}, driver.Grant{Fence: 7, Fences: 9}, driver.Grant{Fence: 7, Holds: 9}
	locktest.Talks(t,
		locktest.Talk{Name: "to write", Asked: []string{"acquire" + keys + "86400000 60000 t write 1    1"}, Replies: []any{int64(7)}, Do: acquire(c), Got: one},
		locktest.Talk{Name: "with a line", Asked: []string{"acquire" + keys + "86400000 60000 t write 1 l 1000 1 t   1"}, Replies: []any{int64(7)}, Do: acquire(line), Got: one},
		locktest.Talk{Name: "to read, again", Asked: []string{"acquire" + keys + "86400000 60000 t read 1 l 1000 1 t 1  1"}, Replies: []any{int64(7)}, Do: acquire(reader), Got: one},
		locktest.Talk{Name: "nine readers", Asked: []string{"acquire" + keys + "86400000 60000 t read 9 l 1000 9 t   1"}, Replies: []any{nine}, Do: acquire(readers), Got: together},
		locktest.Talk{Name: "joins a reader", Asked: []string{"acquire" + keys + "86400000 60000 t read 1   b 1"}, Replies: []any{int64(7)}, Do: acquire(joins), Got: one},
		locktest.Talk{Name: "sixteen fences", Asked: []string{"acquire" + keys + "86400000 60000 t write 16 l 1000 16 t   1"}, Replies: []any{nine}, Do: acquire(writer), Got: several},
		locktest.Talk{Name: "pass", Asked: []string{"pass" + keys + "86400000 60000 next write 16 l 1000 16 next  t {a}:free:"}, Replies: []any{nine}, Do: pass(writer), Got: several},
		locktest.Talk{Name: "pass to one that waits", Asked: []string{"pass" + keys + "86400000 60000 next read 1 l 1000 1 next 1 t {a}:free:"}, Replies: []any{int64(7)}, Do: pass(reader), Got: one},
		locktest.Talk{Name: "pass what is lost", Asked: []string{"pass" + keys + "86400000 60000 next write 1 l 1000 1 next  t {a}:free:"}, Replies: []any{nil}, Do: pass(line), Got: driver.Grant{},
			Err: &strategy.LostError{Name: "a"}},
		locktest.Talk{Name: "pass, and it waits", Asked: []string{"pass" + keys + "86400000 60000 next write 1 l 1000 1 next  t {a}:free:"}, Do: pass(line),
			Replies: []any{[]any{[]byte("other"), int64(1000), int64(3), int64(5), int64(2), int64(0)}},
			Got:     driver.Grant{ServerTime: 3*time.Second + 5*time.Microsecond, Place: 2}, Err: &strategy.HeldError{Name: "a", Holder: "other", TTL: time.Second}},
		locktest.Talk{Name: "Release", Asked: []string{"release" + keys + "86400000 t  {a}:free:"}, Replies: []any{int64(1)},
			Do: func(n driver.Node) (any, error) { return nil, locktest.Err(rwlock.On(n).Release(t.Context(), readers)) }},
		locktest.Talk{Name: "an undo", Asked: []string{"release" + keys + "86400000 t l 1000 1 t {a}:free: 1"}, Replies: []any{int64(1)},
			Do: func(n driver.Node) (any, error) { return nil, rwlock.On(n).Undo(t.Context(), reader) }},
		locktest.Talk{Name: "an undo of nine", Asked: []string{"release" + keys + "86400000 t l 1000 9 t {a}:free: 9"}, Replies: []any{int64(1)},
			Do: func(n driver.Node) (any, error) { return nil, rwlock.On(n).Undo(t.Context(), readers) }},
	)
	for _, reply := range []any{[]any{int64(7), int64(0)}, []any{int64(7), int64(10)}, []any{int64(0), int64(9)}, []any{int64(7), nil}} {
		if _, err := rwlock.On(locktest.OneReply{Reply: reply}).Acquire(t.Context(), readers); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Acquire() on %v = %v, want ErrUnknown: no script says that", reply, err)
		}
	}
}

// TestProof: the first grant of a lock has the user's rights proven, and so has the first after a release that failed.
func TestProof(t *testing.T) {
	t.Parallel()
	c := locktest.AClaim()
	n := &locktest.Dialog{Replies: []any{int64(7), int64(7), errors.New("NOPERM"), int64(7)}}
	p := rwlock.On(n)
	for _, err := range []error{
		locktest.Err(p.Acquire(t.Context(), c)), locktest.Err(p.Acquire(t.Context(), c)),
		locktest.Err(p.Release(t.Context(), c)), locktest.Err(p.Acquire(t.Context(), c)),
	} {
		t.Log(err) // that of the release is an error
	}
	const acquires = "acquire a {a}:readers: {a}:writers: {a}:fence: 86400000 60000 t write 1"
	const proves = acquires + "    1"
	if want := []string{proves, acquires, "release a {a}:readers: {a}:writers: {a}:fence: 86400000 t  {a}:free:", proves}; !slices.Equal(n.Asked, want) {
		t.Errorf("asked %q, want %q", n.Asked, want)
	}
}

// TestNew: bad input is refused, and With keeps readers.
func TestNew(t *testing.T) {
	t.Parallel()
	if _, err := rwlock.New(nil, strategy.Options{}); err == nil || !strings.Contains(err.Error(), "node is nil") {
		t.Errorf("New() without a node = %v, want an error that says so", err)
	}
	if _, err := rwlock.New(locktest.OneReply{}, strategy.Options{TTL: -1}); err == nil {
		t.Error("New() with a negative TTL = nil, want an error")
	}
	server := redistest.Shared(t)
	locks := open(t, server, strategy.Options{})
	other, err := locks.With(func(o *strategy.Options) { o.TTL = 2 * time.Minute })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.With(func(o *strategy.Options) { o.TTL = -1 }); err == nil {
		t.Error("With() with a negative TTL = nil, want an error")
	}
	name := locktest.Unique(t)
	w := try(t, other.NewLock(name))
	if left := time.Until(w.Deadline()); left <= time.Minute {
		t.Errorf("the lease lasts for %v, want two minutes", left)
	}
	r, err := other.(strategy.ReadWriter).Downgrade(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	locktest.Release(t, try(t, other.(strategy.ReadWriter).NewRLock(name)))
	locktest.Release(t, r)
	p := rwlock.On(locktest.Node(t, server))
	shares, err := engine.New(p, strategy.Options{})
	locktest.Opened(t, shares, err)
	if _, err := shares.NewShare(name, 2).TryAcquire(t.Context()); err == nil {
		t.Error("a share of 2 is allowed, want an error: a reader's is 1")
	}
}
