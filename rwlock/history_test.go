// Random histories of readers and writers on the real server, and whether they are those of a read-write lock.
package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/locktest"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/verdict"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/strategy"
)

// A span is a time in which a lease surely held the lock: from its grant, as its caller saw it, to the last moment at which
// it was not over.
type span struct {
	who        string
	read       bool
	fence      uint64
	asked      time.Time // before its call
	begin, end time.Time
}

func (s span) String() string {
	mode := "writes"
	if s.read {
		mode = "reads"
	}
	return fmt.Sprintf("%s %s with the fence %d from %v to %v", s.who, mode, s.fence, s.begin, s.end)
}

// A recorder collects spans.
type recorder struct {
	mu    sync.Mutex
	spans []span
}

// over records a hold that is about to end. Its last sure moment is before Err was nil: a lapse that came later is no matter.
func (r *recorder) over(s span, l strategy.Lease) {
	s.end = time.Now()
	if l.Err() != nil {
		s.end = s.begin // it has lapsed, and nobody knows when
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
}

// judge returns what no read-write lock does.
func judge(spans []span) (faults []string) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return a.begin.Compare(b.begin) })
	for i, a := range spans {
		for _, b := range spans[i+1:] { // which began later
			if (!a.read || !b.read) && b.begin.Before(a.end) {
				faults = append(faults, fmt.Sprintf("at the same time: %v; %v", a, b))
			}
			if b.asked.Before(a.begin) {
				continue // b may have been granted first
			}
			if rises := b.fence > a.fence; !rises && (!b.read || b.fence < a.fence) {
				faults = append(faults, fmt.Sprintf("fences fall: %v; %v", a, b))
			}
		}
	}
	return faults
}

// TestJudge: it sees what is wrong, and nothing else.
func TestJudge(t *testing.T) {
	now := time.Now()
	at := func(read bool, fence uint64, asked, begin, end int) span {
		ms := func(n int) time.Time { return now.Add(time.Duration(n) * time.Millisecond) }
		return span{who: "A", read: read, fence: fence, asked: ms(asked), begin: ms(begin), end: ms(end)}
	}
	for what, c := range map[string]struct {
		spans []span
		wrong bool
	}{
		"readers together":            {[]span{at(true, 1, 0, 1, 5), at(true, 1, 2, 3, 4)}, false},
		"a writer after a reader":     {[]span{at(true, 1, 0, 1, 5), at(false, 2, 2, 5, 9)}, false},
		"a reader after a writer":     {[]span{at(false, 1, 0, 1, 5), at(true, 1, 6, 7, 8)}, false},
		"granted in the other order":  {[]span{at(true, 2, 0, 3, 3), at(true, 1, 2, 4, 5)}, false},
		"writers together":            {[]span{at(false, 1, 0, 1, 5), at(false, 2, 2, 4, 9)}, true},
		"a reader next to a writer":   {[]span{at(true, 2, 0, 3, 9), at(false, 1, 0, 1, 4)}, true},
		"a writer with an old fence":  {[]span{at(false, 2, 0, 1, 2), at(false, 2, 3, 4, 5)}, true},
		"a writer with a reader's":    {[]span{at(true, 2, 0, 1, 2), at(false, 2, 3, 4, 5)}, true},
		"a reader with an old fence":  {[]span{at(false, 2, 0, 1, 2), at(true, 1, 3, 4, 5)}, true},
		"a reader with a fence of it": {[]span{at(true, 2, 0, 1, 2), at(true, 2, 3, 4, 5)}, false},
	} {
		if faults := judge(c.spans); (len(faults) > 0) != c.wrong {
			t.Errorf("%s: faults %q", what, faults)
		}
	}
}

// TestHistories: many processes read and write at random, give up waiting, die, adopt and downgrade.
func TestHistories(t *testing.T) {
	server := redistest.Shared(t)
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			name := locktest.Unique(t)
			var r recorder
			var all sync.WaitGroup
			for i := range 4 {
				locks, err := rwlock.New(server.Pool(), strategy.Options{TTL: 2 * time.Second, OpTimeout: 1900 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { locks.Close() }) // the error names attempts that were given up, and may not be undone yet
				for j := range 3 {
					p := &process{t: t, locks: locks, name: name, who: fmt.Sprintf("%c%d", 'A'+i, j), r: &r, rand: rand.New(rand.NewPCG(seed, uint64(3*i+j)))}
					all.Go(func() {
						for range 25 {
							p.step()
						}
					})
				}
			}
			all.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			faults := judge(r.spans)
			for i, f := range faults[:min(len(faults), 10)] {
				t.Errorf("%d of %d: %s", i+1, len(faults), f)
			}
			if len(r.spans) < 12*5 {
				t.Errorf("%d holds in the history, want more: the test has lost its sight", len(r.spans))
			}
			locks := open(t, server, strategy.Options{})
			verdict.Eventually(t, "nobody holds the lock or waits", func() bool { // dead holders lapse
				info, err := locks.Inspect(t.Context(), name)
				return err == nil && !info.Held && len(info.Queue) == 0
			})
		})
	}
}

// A process is a goroutine that does what comes into its mind.
type process struct {
	t     *testing.T
	locks strategy.ReadWriter
	name  string
	who   string
	r     *recorder
	rand  *rand.Rand
}

func (p *process) step() {
	s := span{who: p.who, read: p.rand.IntN(3) > 0, asked: time.Now()}
	l := p.locks.NewLock(p.name)
	if s.read {
		l = p.locks.NewRLock(p.name)
	}
	lease, err := p.acquire(l)
	if err != nil {
		return
	}
	s = begun(s, lease)
	p.linger()
	switch p.rand.IntN(8) {
	case 0:
		if !s.read {
			asked := time.Now()
			p.r.over(s, lease) // until before the request: then others may read
			if lease, err = p.locks.Downgrade(p.t.Context(), lease); err != nil {
				p.lost("Downgrade", err)
				return
			}
			s = begun(span{who: p.who, read: true, asked: asked}, lease)
			p.linger()
		}
	case 1:
		p.lost("Extend", lease.Extend(p.t.Context()))
	case 2: // somebody adopts it
		asked := time.Now()
		p.r.over(s, lease)
		token, err := lease.Detach()
		if err != nil {
			p.lost("Detach", err)
			return
		}
		if lease, err = p.locks.Adopt(p.t.Context(), p.name, token); err != nil {
			p.lost("Adopt", err)
			return
		}
		s = begun(span{who: p.who, read: s.read, asked: asked}, lease)
	case 3:
		if p.rand.IntN(16) == 0 { // it dies
			p.r.over(s, lease)
			lease.Detach() //nolint:errcheck // it may have lapsed
			return
		}
	}
	p.r.over(s, lease)
	p.lost("Release", lease.Release(p.t.Context()))
}

func begun(s span, l strategy.Lease) span {
	s.begin = time.Now()
	s.fence, _ = l.Fence()
	return s
}

// acquire tries once, waits, or gives up soon.
func (p *process) acquire(l strategy.Lock) (strategy.Lease, error) {
	switch p.rand.IntN(4) {
	case 0:
		lease, err := l.TryAcquire(p.t.Context())
		if err != nil && !errors.Is(err, strategy.ErrHeld) {
			p.lost("TryAcquire", err)
		}
		return lease, err
	case 1:
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Duration(p.rand.IntN(20))*time.Millisecond)
		defer cancel()
		lease, err := l.Acquire(ctx)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			p.lost("Acquire", err)
		}
		return lease, err
	}
	lease, err := l.Acquire(p.t.Context())
	if err != nil {
		p.lost("Acquire", err)
	}
	return lease, err
}

// lost fails the test for every error that does not say that the machine was slow.
func (p *process) lost(what string, err error) {
	if err != nil && !errors.Is(err, strategy.ErrLost) && !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
		p.t.Errorf("%s.%s() = %v, want nil, or that the lock is lost", p.who, what, err)
	}
}

func (p *process) linger() { <-time.After(time.Duration(p.rand.IntN(3000)) * time.Microsecond) }
