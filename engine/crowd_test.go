// Many processes in the servers' queue: what they cost, who looks after the holder, and who notices that
// a process is not heard of any more.
package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// An acquisition costs four requests, and a fifth to listen, however many processes wait: one is refused,
// one queues, one extends the direct grant, one releases. Where that takes longer, the first in the queue
// asks for how long. All others together ask a few times per TTL.
func TestCrowd(t *testing.T) {
	for _, hold := range []time.Duration{100 * ms, 2 * time.Second} {
		for _, processes := range []int{2, 20, 200} {
			t.Run(fmt.Sprint(hold, "/", processes), func(t *testing.T) {
				bubble(t, func(t *testing.T) { crowd(t, hold, processes) })
			})
		}
	}
}

func crowd(t *testing.T, hold time.Duration, processes int) {
	const rounds = 4
	var m lockstest.Memory
	houses := make([]strategy.Strategy, processes)
	for i := range houses {
		houses[i] = open(t, &m, strategy.Options{})
	}
	contend(t, houses, 1, rounds, hold)
	most := 4.2
	if hold > time.Second {
		most += 1 + float64(hold/time.Second)
	}
	each := float64(m.Requests()-m.Requests(lockstest.OpWatch)) / float64(rounds*processes)
	if each > most {
		t.Errorf("requests for an acquisition = %.2f, want %.1f at most", each, most)
	}
	leftovers(t, &m)
}

// The first in the queue asks when the holder's TTL ends, also if another was first when the holder got
// the lock.
func TestNextWatches(t *testing.T) {
	// soon says that w got the lock d after start, or very soon after that.
	soon := func(t *testing.T, w *waiter, start time.Time, d time.Duration) {
		t.Helper()
		release(t, w.got(t))
		if took := w.at.Sub(start); took < d || took > d+10*ms {
			t.Errorf("the next got the lock after %v, want %v and little more", took, d)
		}
	}
	bubbles(t, map[string]func(t *testing.T, m *lockstest.Memory, a, b, c strategy.Strategy){
		"the first has left": func(t *testing.T, m *lockstest.Memory, a, b, c strategy.Strategy) {
			ctx, cancel := context.WithCancel(bg)
			start := time.Now()
			take(t, a)
			first, next := wait(ctx, b), wait(bg, c)
			cancel()
			<-first.done
			soon(t, next, start, ttl)
		},
		"the first got the lock when the TTL was over, and died": func(t *testing.T, m *lockstest.Memory, a, b, c strategy.Strategy) {
			take(t, a)
			ctx, cancel := context.WithCancel(bg)
			first := wait(bg, b)
			var between []*waiter
			for range 30 {
				between = append(between, wait(ctx, open(t, m, strategy.Options{})))
			}
			next := wait(bg, c) // far behind, until those between leave
			cancel()
			for _, w := range between {
				<-w.done
			}
			first.got(t)
			soon(t, next, first.at, ttl)
		},
		"the one that was notified that it is first has left": func(t *testing.T, m *lockstest.Memory, a, b, c strategy.Strategy) {
			holder := take(t, a)
			defer queueUp(t, m, "paused", true)()
			ctx, cancel := context.WithCancel(bg)
			told, next := wait(ctx, c), wait(bg, c)
			start := time.Now()
			release(t, holder)
			time.Sleep(successorTTL / 2)
			cancel()
			<-told.done
			soon(t, next, start, successorTTL)
		},
	}, func(t *testing.T, play func(t *testing.T, m *lockstest.Memory, a, b, c strategy.Strategy)) {
		var m lockstest.Memory
		a, b := houses(t, &m, strategy.Options{})
		play(t, &m, a, b, open(t, &m, strategy.Options{}))
	})
}

// The holder has died, and so has the first in the queue. The second asks within a TTL after the
// holder's, or another does before it, also if the heads of each process come and go meanwhile.
func TestFirstDiesWithTheHolder(t *testing.T) {
	bubblesOf(t, []int{1, 5, 50}, func(t *testing.T, processes int) {
		var m lockstest.Memory
		start := time.Now()
		take(t, open(t, &m, strategy.Options{}))
		queueUp(t, &m, "dead", false)
		ctx, cancel := context.WithCancel(bg)
		got := make(chan time.Time, 2*processes)
		var all sync.WaitGroup
		for range processes {
			s := open(t, &m, strategy.Options{})
			for range 2 { // so that one is there when the other leaves
				all.Go(func() {
					for ctx.Err() == nil {
						patient, done := context.WithTimeout(ctx, time.Second)
						l, err := s.NewLock(name).Acquire(patient)
						if done(); err == nil {
							got <- time.Now()
							release(t, l)
							return
						}
					}
				})
				time.Sleep(time.Second / 2 / time.Duration(processes))
			}
		}
		took := 10 * ttl
		select {
		case at := <-got:
			took = at.Sub(start)
		case <-time.After(took):
		}
		cancel()
		all.Wait()
		if took < ttl || took > 2*ttl+10*ms {
			t.Errorf("somebody got the lock after %v, want after one TTL or two", took)
		}
	})
}

// A slot of a cluster may move, or a replica become the master: a process that waits still listens, but
// releases do not count it any more, and pass it over. It notices by its place, which is another each
// time, and subscribes again.
func TestSubscriptionIsForgotten(t *testing.T) {
	type row struct {
		told bool // a message tells it each time that it was passed over
		most time.Duration
	}
	bubbles(t, map[string]row{
		"it hears that it is passed over": {true, time.Second},
		"it hears nothing":                {false, ttl + time.Second},
	}, func(t *testing.T, tt row) {
		p := &roaming{}
		busy, b := houses(t, p, strategy.Options{})
		holder := take(t, busy)
		w := wait(bg, b)
		p.forget()
		stale := p.fn
		ctx, cancel := context.WithCancel(bg)
		var all sync.WaitGroup
		for range 3 { // the lock is always wanted here, too
			all.Go(func() {
				for {
					l, err := busy.NewLock(name).Acquire(ctx)
					if err != nil {
						return
					}
					time.Sleep(20 * ms)
					release(t, l)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		release(t, holder)
		for time.Since(start) < time.Minute && !closed(w.done) {
			time.Sleep(100 * ms)
			if tt.told {
				stale(driver.Notification{Next: ms})
			}
		}
		release(t, w.got(t))
		if took := w.at.Sub(start); took > tt.most {
			t.Errorf("the lock after %v, want within %v", took, tt.most)
		}
		cancel()
		all.Wait()
	})
}

// roaming is a Memory whose last subscription can be forgotten: nobody hears of that.
type roaming struct {
	lockstest.Memory

	mu     sync.Mutex
	forget func()
	fn     func(driver.Notification)
}

func (p *roaming) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	stop, err := p.Memory.Watch(ctx, c, fn)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget, p.fn = stop, fn
	return stop, err
}
