package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

// These scenarios measure locks that several may hold at a time. No peer has one. So fairqueue stands next to them: it
// shows what an exclusive lock gives to the same callers.

// permits is how many there are.
const permits = 8

// sharing are the scenarios, in the order of the page.
func sharing() []scenario {
	return []scenario{
		permitsOf("permits-64", "64 callers on 8 permits", 0, "A holder releases at once, and asks again at once."),
		permitsOf("permits-64-1ms", "64 callers on 8 permits, held for 1 ms", time.Millisecond,
			"A holder works for 1 ms, releases, and asks again at once: 8 permits allow 8 000 acquisitions a second at most. Sleep is 8 goroutines that only work."),
		readersOf("readers-90", "64 callers, nine in ten acquisitions to read", "one in ten acquisitions, by lot,", job{Write: 10}),
		readersOf("readers-50", "64 callers, half of the acquisitions to read", "one in two acquisitions, by lot,", job{Write: 2}),
		readersOf("readers-58", "58 readers and 6 writers", "6 of them always", job{Only: 6}),
	}
}

func permitsOf(name, title string, hold time.Duration, about string) scenario {
	s := scenario{
		name: name, title: title,
		about: "64 goroutines of one process want a permit each of a semaphore of 8. " + about +
			" In use is how many permits were held on average, and at most the most that were at one time; of fairqueue, an exclusive lock, there is one.",
		who:     []string{"semaphore", "semaphore-poll", "fairqueue"},
		measure: measureSharing(job{Hold: hold}),
		columns: []column{
			{"acq/s", "acq/s", nil}, {"in use", "in-use", nil}, {"at most", "most", nil},
			{"Jain", "jain", nil}, {"max/min", "max/min", nil}, {"p99, ms", "p99-ms", nil},
			{"requests", "requests/acq", nil}, {"server's commands", "commands/acq", nil},
		},
	}
	if hold > 0 {
		s.who, s.columns = append(s.who, "sleep"), append(s.columns, column{"acq/s ÷ sleep", "acq/s", over("sleep")})
	}
	return s
}

func readersOf(name, title, write string, j job) scenario {
	j.Hold = time.Millisecond
	return scenario{
		name: name, title: title,
		about: "64 goroutines of one process want one lock, " + write + " to write, the others to read. A holder works for 1 ms, releases, and asks again at once. " +
			"To fairqueue, an exclusive lock, both are the same. In use is how many held the lock on average, and at most the most that did at one time. " +
			"Overlaps are holders next to a writer: none is allowed.",
		who:     []string{"rwlock", "rwlock-poll", "fairqueue"},
		measure: measureSharing(j),
		columns: []column{
			{"acq/s ÷ fairqueue", "acq/s", over("fairqueue")}, {"acq/s", "acq/s", nil}, {"in use", "in-use", nil}, {"at most", "most", nil}, {"overlaps", "overlaps", nil},
			{"readers' p99, ms", "read-p99-ms", nil}, {"writers' p99, ms", "write-p99-ms", nil},
			{"requests", "requests/acq", nil}, {"server's commands", "commands/acq", nil},
		},
	}
}

func measureSharing(j job) measure {
	return func(ctx context.Context, b *bench, who string) (values, error) {
		j := j
		j.Work, j.Who, j.N, j.TTL, j.For = "share", who, 64, ttl, b.window(800*time.Millisecond)
		if who == "sleep" {
			j.N = permits // without a lock, so many hold it
		}
		r, err := b.alone(ctx, j, nil)
		if err != nil || r.Stuck {
			return values{stuck: 1}, err
		}
		r.Values["jain"], r.Values["max/min"] = jain(r.Counts), spread(r.Counts)
		perAcquisition(r.Values, sum(r.Counts), r)
		return r.Values, nil
	}
}

// openSemaphore opens one of n permits that waits in this way.
func openSemaphore(n int, w strategy.Wait) opening {
	return openWaiting(w, func(node driver.Node, o strategy.Options) (strategy.Strategy, error) {
		return semaphore.New(node, n, o)
	})
}

func openRWLock(w strategy.Wait) opening {
	return openWaiting(w, func(n driver.Node, o strategy.Options) (strategy.Strategy, error) { return rwlock.New(n, o) })
}

func openWaiting(w strategy.Wait, open func(driver.Node, strategy.Options) (strategy.Strategy, error)) opening {
	return openOurs(func(n driver.Node, o strategy.Options, _ ...struct{}) (strategy.Strategy, error) {
		o.Wait = w
		return open(n, o)
	})
}

// share: N callers on one name, which several may hold. A holder who has released asks again at once.
func share(ctx context.Context, s *seat, c *client) (report, error) {
	var in presence
	r, waits, err := s.contend(ctx, c, func(t success) error {
		writes := s.mixed() && t.mode == 0
		in.enter(writes)
		time.Sleep(s.Hold)
		in.leave(writes, t.counting.Load(), time.Since(t.since))
		return t.Release(context.Background())
	})
	if err != nil || r.Stuck {
		return r, err
	}
	r.Values["in-use"] = in.held.Seconds() / r.Values["seconds"]
	r.Values["most"], r.Values["overlaps"] = float64(in.most), float64(in.overlaps)
	for mode, unit := range [2]string{"write-p99-ms", "read-p99-ms"} {
		if !s.mixed() {
			unit = "p99-ms"
		}
		if len(waits[mode]) > 0 {
			r.Values[unit] = micros(quantile(waits[mode], 0.99)) / 1e3
		}
	}
	return r, nil
}

// mixed reports whether some acquisitions are to write, and some to read.
func (j job) mixed() bool { return j.Write > 0 || j.Only > 0 }

// mode is 1 if caller i asks to read this time.
func (j job) mode(i int) int {
	if j.Only > 0 && i >= j.Only || j.Write > 0 && rand.IntN(j.Write) > 0 {
		return 1
	}
	return 0
}

// presence counts the holders, each from the return of its acquire to the call of its release.
type presence struct {
	mu             sync.Mutex
	all, writers   int
	most, overlaps int
	held           time.Duration // by all together, of holds that ended while it was measured
}

func (p *presence) enter(writes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writers > 0 || writes && p.all > 0 {
		p.overlaps++
	}
	if p.all++; writes {
		p.writers++
	}
	p.most = max(p.most, p.all)
}

func (p *presence) leave(writes, counts bool, held time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all--; writes {
		p.writers--
	}
	if counts {
		p.held += held
	}
}
