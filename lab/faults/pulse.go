package faults

import (
	"context"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A pulse tells how slow the machine is. It writes to a server that nobody breaks, again
// and again, and measures how long it is from one answer to the next. If the disk, the server or this
// process delays these, it delays what is played as well.
type pulse struct {
	end func()

	mu   sync.Mutex
	last time.Time // of the answers
	gaps []gap     // the longer ones
}

type gap struct {
	end  time.Time
	long time.Duration
}

const (
	beat  = 20 * time.Millisecond // between an answer and the next write
	brisk = 50 * time.Millisecond // a gap of which no play takes notice
)

// listen begins to write.
func listen(pool *redis.Pool) *pulse {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pulse{last: time.Now()}
	done := make(chan struct{})
	p.end = func() { cancel(); <-done }
	go func() {
		defer close(done)
		again := time.NewTicker(beat)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			c := pool.Get()
			_, err := c.Do("SET", "pulse", 1)
			c.Close()
			if err == nil {
				p.answered(time.Now())
			}
		}
	}()
	return p
}

func (p *pulse) answered(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if long := at.Sub(p.last) - beat; long > brisk {
		p.gaps = append(p.gaps, gap{at, long})
	}
	p.last = at
}

// longest is the longest time without an answer that reaches beyond a moment.
func (p *pulse) longest(since time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := max(time.Since(p.last)-beat, 0)
	for _, g := range p.gaps {
		if g.end.After(since) {
			most = max(most, g.long)
		}
	}
	return most
}
