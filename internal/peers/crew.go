package main

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// A crew are callers who have to be woken, and no lock: nobody has a context or a time-out, and
// nobody leaves. They share a connection. Who comes first yields once and sends what all bring who
// have come by then; a goroutine reads the replies and wakes them.
type crew struct {
	client  // a single name's, over the same connection
	conn    redis.Conn
	members map[string]*member
	joined  int // how many share a request at most

	mu      sync.Mutex
	sending bool
	queue   []*errand

	flight chan []*errand // requests that wait for their reply, each with whom it is for
	reader sync.WaitGroup
}

// A member is who acquires and releases one name.
type member struct {
	c        *crew
	in, back *errand
}

// An errand is what one member asks again and again.
type errand struct {
	request
	eval    eval // where several may share a request
	release bool
	done    chan error
}

func (m *member) acquire(context.Context) (held, error) { return m, m.c.do(m.in) }
func (m *member) release(context.Context) error         { return m.c.do(m.back) }

func (c *crew) mutex(name string) mutex { return c.members[name] }

func (c *crew) do(e *errand) error {
	c.mu.Lock()
	c.queue = append(c.queue, e)
	if c.sending {
		c.mu.Unlock()
		return <-e.done
	}
	c.sending = true
	for len(c.queue) > 0 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		batch := c.queue
		c.queue = make([]*errand, 0, cap(batch))
		c.mu.Unlock()
		c.send(batch)
		c.mu.Lock()
	}
	c.sending = false
	c.mu.Unlock()
	return <-e.done
}

// send leaves errors to the reader, which meets them, too.
func (c *crew) send(batch []*errand) {
	releases := make([]*errand, 0, len(batch))
	acquires := slices.DeleteFunc(batch, func(e *errand) bool {
		if e.release {
			releases = append(releases, e)
		}
		return e.release
	})
	for _, all := range [][]*errand{acquires, releases} {
		for together := range slices.Chunk(all, c.joined) {
			r := together[0].request
			if len(together) > 1 {
				evals := make([]eval, len(together))
				for i, e := range together {
					evals[i] = e.eval
				}
				r = joint(evals, r.good)
			}
			c.conn.Send(r.cmd, r.args...)
			c.flight <- together
		}
	}
	c.conn.Flush()
}

func (c *crew) read() {
	for together := range c.flight {
		reply, err := c.conn.Receive()
		answers := []any{reply}
		if len(together) > 1 {
			answers, _ = reply.([]any)
		}
		for i, e := range together {
			switch {
			case err != nil:
				e.done <- err
			case len(answers) != len(together) || !e.good(answers[i]):
				e.done <- errNotThere
			default:
				e.done <- nil
			}
		}
	}
}

func (c *crew) close() error {
	close(c.flight)
	c.reader.Wait()
	return c.client.close()
}

// openCrew has callers send what luascript has sent, up to so many in a request; 0: raw's
// commands, which nobody shares.
func openCrew(joined int) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (client, error) {
		var acquires, releases []eval
		if joined > 0 {
			var err error
			if acquires, releases, err = recorded(ctx, s); err != nil {
				return nil, err
			}
		}
		one, err := openRaw(1)(ctx, s)
		if err != nil {
			return nil, err
		}
		r := one.(*raw)
		c := &crew{client: r, conn: r.conns[0], members: map[string]*member{}, joined: max(joined, 1), flight: make(chan []*errand, 1024)}
		for i := range s.N {
			t := r.turn(s.name(i))
			a, b := &errand{request: t.acquire}, &errand{request: t.release, release: true}
			if joined > 0 {
				a.eval, b.eval = acquires[i], releases[i]
				a.request, b.request = joint(acquires[i:i+1], fenced), joint(releases[i:i+1], released)
			}
			a.done, b.done = make(chan error, 1), make(chan error, 1)
			c.members[s.name(i)] = &member{c, a, b}
		}
		c.reader.Go(c.read)
		return c, nil
	}
}
